//! Multipart uploads. Complete moves no bytes: the uploaded parts become the object's parts.

use std::sync::Arc;

use super::buckets::{find, missing};
use super::index::{IndexError, Rows, RowsMut};
use super::model::{Done, Object, Part, Upload};
use super::objects::{Place, current_etag, last_change};
use super::{
    Decided, Draft, Placed, Store, StoreError, forget, keep, next_seq, rows, seek_within, successor,
};
use crate::checksum::{self, Checksum};
use crate::deviation::Deviation;
use crate::etag;
use crate::instant::Instant;
use crate::lifecycle::Due;
use crate::names::{BucketName, Key, sequence_of};
use crate::precondition::WriteCondition;

/// Smallest size of a part that is not the last, in bytes (S3 User Guide, "Multipart upload limits").
pub(crate) const MIN_PART_BYTES: u64 = 5 * 1024 * 1024;

/// How long a completed upload answers the same request the same way. AWS does not say how long it does;
/// a day covers every client's retries.
const DONE_KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// One part as CompleteMultipartUpload lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) number: u16,
    /// Without quotes.
    pub(crate) etag: String,
    /// The checksum listed beside it, in base64.
    pub(crate) checksum: Option<checksum::Value>,
}

/// What a complete request says beside the parts.
pub(crate) struct CompleteRequest {
    /// In ascending order of their numbers.
    pub(crate) listed: Vec<Listed>,
    pub(crate) condition: WriteCondition,
    /// What the object's checksum must be.
    pub(crate) checksum: Option<Checksum>,
    /// `x-amz-mp-object-size`: what the object's size must be.
    pub(crate) size: Option<u64>,
    pub(crate) now: Instant,
    pub(crate) random: [u8; 16],
}

/// Where parts and request contradict each other as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Completion {
    #[error("the request says {expected} bytes, the parts have {actual}")]
    Size { expected: u64, actual: u64 },
    #[error("the {0} checksum of the request is not that of the parts")]
    Checksum(checksum::Algorithm),
    #[error("part {number} is listed with a {algorithm} checksum, which the upload does not use")]
    PartChecksum { number: u16, algorithm: checksum::Algorithm },
    #[error("part {number} is listed without its {algorithm} checksum")]
    PartChecksumMissing { number: u16, algorithm: checksum::Algorithm },
}

/// What a completed upload became.
pub(crate) struct Completed {
    pub(crate) placed: Placed,
    pub(crate) etag: String,
    pub(crate) checksum: Option<Checksum>,
}

impl Store {
    /// Begins an upload; `name` makes its id from its place in the order of commits. Gives the id back, and when the
    /// bucket's lifecycle aborts the upload.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn create_upload(
        &self,
        bucket: &BucketName,
        key: &Key,
        mut upload: Upload,
        name: impl FnOnce(u64) -> String + Send + 'static,
    ) -> Result<(String, Option<Due>), StoreError> {
        let (bucket, key) = (bucket.clone(), key.clone());
        self.decide(move |rows| {
            let Some(record) = find(rows, &bucket)? else { return Ok(Err(missing(&bucket))) };
            upload.seq = next_seq(rows)?;
            upload.id = name(upload.seq);
            rows.put(&rows::upload(&bucket, &key, upload.seq), rows::encode(&upload)?)?;
            let abort = record.abort_of(&key, upload.initiated);
            Ok(Ok((upload.id, abort)))
        })
        .await
    }

    /// An open upload of this key.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`.
    pub(crate) fn upload(&self, bucket: &BucketName, key: &Key, id: &str) -> Result<Upload, StoreError> {
        let snapshot = self.index.snapshot()?;
        if find(&*snapshot, bucket)?.is_none() {
            return Err(missing(bucket));
        }
        open_upload(&*snapshot, bucket, key, id)?.ok_or_else(|| StoreError::NoSuchUpload(id.to_owned()))
    }

    /// Commits a part in place of an earlier one of its number.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) fn put_part(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        id: &str,
        mut part: Part,
        body: Draft,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key, id) = (bucket.clone(), key.clone(), id.to_owned());
        async move {
            let outcome = store
                .index
                .apply(move |rows| {
                    let Some(upload) = open_upload(rows, &bucket, &key, &id)? else {
                        return Ok(Err((StoreError::NoSuchUpload(id), body)));
                    };
                    let mut files = Vec::new();
                    let row = rows::part(upload.seq, part.number);
                    if let Some(value) = rows.get(&row)? {
                        forget(rows, &[rows::decode(&row, &value)?.0], &mut files)?;
                    }
                    part.blob = keep(rows, body)?;
                    rows.put(&row, rows::encode(&part)?)?;
                    Ok(Ok(files))
                })
                .await?;
            let files = outcome.map_err(|(error, _body)| error)?;
            store.release(&files);
            Ok(())
        }
    }

    /// An upload's parts with numbers above `after`, at most `max`, and whether there are more.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`.
    pub(crate) fn parts(
        &self,
        bucket: &BucketName,
        key: &Key,
        id: &str,
        after: u16,
        max: usize,
    ) -> Result<(Upload, Vec<Part>, bool), StoreError> {
        let upload = self.upload(bucket, key, id)?;
        let snapshot = self.index.snapshot()?;
        let within = rows::parts_of(upload.seq);
        let mut from = successor(&rows::part(upload.seq, after));
        let mut parts = Vec::new();
        while let Some((row, value)) = seek_within(&*snapshot, &within, &from)? {
            if parts.len() == max {
                return Ok((upload, parts, true));
            }
            parts.push(rows::decode(&row, &value)?.0);
            from = successor(&row);
        }
        Ok((upload, parts, false))
    }

    /// Ends an upload and removes its parts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`.
    pub(crate) fn abort(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        id: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key, id) = (bucket.clone(), key.clone(), id.to_owned());
        async move {
            let files = store
                .decide(move |rows| {
                    if find(rows, &bucket)?.is_none() {
                        return Ok(Err(missing(&bucket)));
                    }
                    let Some(upload) = open_upload(rows, &bucket, &key, &id)? else {
                        return Ok(Err(StoreError::NoSuchUpload(id)));
                    };
                    let mut files = Vec::new();
                    end_upload(rows, &bucket, &key, upload.seq, &mut files)?;
                    Ok(Ok(files))
                })
                .await?;
            store.release(&files);
            Ok(())
        }
    }

    /// Makes the listed parts the key's newest object, if the condition holds at that moment. A refused
    /// complete leaves the upload open.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `InvalidPart`, `PartTooSmall`, `Completion`, `Refused`.
    pub(crate) fn complete(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        id: &str,
        request: CompleteRequest,
    ) -> impl Future<Output = Result<Completed, StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key, id) = (bucket.clone(), key.clone(), id.to_owned());
        async move {
            let (completed, files) =
                store.decide(move |rows| complete(rows, &bucket, &key, &id, &request)).await?;
            store.release(&files);
            Ok(completed)
        }
    }
}

pub(super) fn open_upload(
    rows: &(impl Rows + ?Sized),
    bucket: &BucketName,
    key: &Key,
    id: &str,
) -> Result<Option<Upload>, IndexError> {
    let Some(seq) = sequence_of(id) else { return Ok(None) };
    let row = rows::upload(bucket, key, seq);
    let Some(value) = rows.get(&row)? else { return Ok(None) };
    let (upload, _) = rows::decode::<Upload>(&row, &value)?;
    Ok((upload.id == id).then_some(upload))
}

/// Removes the rows of an upload's parts and gives the parts back.
pub(super) fn take_parts(rows: &mut dyn RowsMut, upload: u64) -> Result<Vec<Part>, IndexError> {
    let within = rows::parts_of(upload);
    let mut parts = Vec::new();
    while let Some((row, value)) = seek_within(rows, &within, &within)? {
        parts.push(rows::decode(&row, &value)?.0);
        rows.remove(&row)?;
    }
    Ok(parts)
}

/// Ends an upload without an object: its parts go.
pub(super) fn end_upload(
    rows: &mut dyn RowsMut,
    bucket: &BucketName,
    key: &Key,
    upload: u64,
    files: &mut Vec<u64>,
) -> Result<(), IndexError> {
    let parts = take_parts(rows, upload)?;
    forget(rows, &parts, files)?;
    close(rows, bucket, key, upload)
}

/// Removes an upload's row, and the trace of deletes once no upload of the key needs it.
fn close(rows: &mut dyn RowsMut, bucket: &BucketName, key: &Key, upload: u64) -> Result<(), IndexError> {
    rows.remove(&rows::upload(bucket, key, upload))?;
    let others = rows::uploads_of(bucket, key);
    if seek_within(rows, &others, &others)?.is_none() {
        rows.remove(&rows::trace(bucket, key))?;
    }
    Ok(())
}

fn complete(
    rows: &mut dyn RowsMut,
    bucket: &BucketName,
    key: &Key,
    id: &str,
    request: &CompleteRequest,
) -> Decided<(Completed, Vec<u64>)> {
    let Some(record) = find(rows, bucket)? else { return Ok(Err(missing(bucket))) };
    let Some(upload) = open_upload(rows, bucket, key, id)? else {
        return Ok(match repeated(rows, bucket, key, id, &request.listed)? {
            Some(_) if request.condition.acts(&Deviation::RepeatedCompleteNoSuchUpload) => {
                Err(StoreError::NoSuchUpload(id.to_owned()))
            }
            Some(completed) => Ok((completed, Vec::new())),
            None => Err(StoreError::NoSuchUpload(id.to_owned())),
        });
    };
    let parts = match chosen_parts(rows, &upload, &request.listed)? {
        Ok(parts) => parts,
        Err(error) => return Ok(Err(error)),
    };
    let object = match assemble(&upload, &parts, request) {
        Ok(object) => object,
        Err(problem) => return Ok(Err(StoreError::Completion(problem))),
    };
    let changed = last_change(rows, bucket, key)? > upload.seq;
    let current = current_etag(rows, bucket, key, &request.condition)?;
    if let Err(refusal) = request.condition.decide(current.as_deref(), changed) {
        if request.condition.acts(&Deviation::RefusedCompleteEndsUpload) {
            // Files of large parts go with the sweep of the next start.
            end_upload(rows, bucket, key, upload.seq, &mut Vec::new())?;
        }
        return Ok(Err(StoreError::Refused { refusal, key: key.as_str().to_owned() }));
    }

    let unlisted: Vec<Part> = take_parts(rows, upload.seq)?
        .into_iter()
        .filter(|part| parts.binary_search_by_key(&part.number, |p| p.number).is_err())
        .collect();
    let (etag, checksum) = (object.etag.clone(), object.checksum);
    let place = Place { bucket, key, record: &record };
    let (placed, mut files) = place.commit(rows, object, &parts, request.now, request.random)?;
    forget(rows, &unlisted, &mut files)?;
    close(rows, bucket, key, upload.seq)?;
    let done = Done {
        upload_id: upload.id,
        key: key.as_str().to_owned(),
        at: request.now,
        listed: listed_pairs(&request.listed),
        etag: etag.clone(),
        checksum,
        version: placed.version.clone(),
    };
    rows.put(&rows::done(bucket, upload.seq), rows::encode(&done)?)?;
    drop_old_answers(rows, bucket, request.now)?;
    Ok(Ok((Completed { placed, etag, checksum }, files)))
}

fn listed_pairs(listed: &[Listed]) -> Vec<(u16, String)> {
    listed.iter().map(|part| (part.number, part.etag.clone())).collect()
}

/// The answer of the same request that was completed before.
fn repeated(
    rows: &dyn Rows,
    bucket: &BucketName,
    key: &Key,
    id: &str,
    listed: &[Listed],
) -> Result<Option<Completed>, IndexError> {
    let Some(seq) = sequence_of(id) else { return Ok(None) };
    let row = rows::done(bucket, seq);
    let Some(value) = rows.get(&row)? else { return Ok(None) };
    let (done, _) = rows::decode::<Done>(&row, &value)?;
    let same = done.upload_id == id && done.key == key.as_str() && done.listed == listed_pairs(listed);
    Ok(same.then_some(Completed {
        placed: Placed { version: done.version, last_modified: done.at, expiry: None },
        etag: done.etag,
        checksum: done.checksum,
    }))
}

/// Answers kept for repeats go after a day, two for each one that comes, so that their number stays bounded.
fn drop_old_answers(rows: &mut dyn RowsMut, bucket: &BucketName, now: Instant) -> Result<(), IndexError> {
    let within = rows::within(b'D', bucket);
    for _ in 0..2 {
        let Some((row, value)) = seek_within(rows, &within, &within)? else { break };
        let (done, _) = rows::decode::<Done>(&row, &value)?;
        if now.epoch_ms() - done.at.epoch_ms() < DONE_KEPT_MS {
            break;
        }
        rows.remove(&row)?;
    }
    Ok(())
}

/// The stored parts that the request lists, each as it lists it.
fn chosen_parts(rows: &dyn Rows, upload: &Upload, listed: &[Listed]) -> Decided<Vec<Part>> {
    let invalid = |part: &Listed| StoreError::InvalidPart {
        upload: upload.id.clone(),
        number: part.number,
        etag: part.etag.clone(),
    };
    let mut parts = Vec::with_capacity(listed.len());
    for wanted in listed {
        let row = rows::part(upload.seq, wanted.number);
        let Some(value) = rows.get(&row)? else { return Ok(Err(invalid(wanted))) };
        let (part, _) = rows::decode::<Part>(&row, &value)?;
        if part.etag != wanted.etag {
            return Ok(Err(invalid(wanted)));
        }
        parts.push(part);
    }
    if let Some(error) = wrong_checksum(upload, listed, &parts, invalid) {
        return Ok(Err(error));
    }
    let before_last = parts.split_last().map_or(&[][..], |(_, before)| before);
    if let Some(small) = before_last.iter().find(|part| part.size < MIN_PART_BYTES) {
        return Ok(Err(StoreError::PartTooSmall {
            number: small.number,
            size: small.size,
            etag: small.etag.clone(),
        }));
    }
    Ok(Ok(parts))
}

/// The first part that is listed with another checksum than it has (AWS names any of them). In a composite, a
/// checksum of another algorithm is not taken for a part that isn't there (recorded). Pure.
fn wrong_checksum(
    upload: &Upload,
    listed: &[Listed],
    parts: &[Part],
    invalid: impl Fn(&Listed) -> StoreError,
) -> Option<StoreError> {
    let (listed, algorithm) = listed.iter().zip(parts).find_map(|(listed, part)| {
        let checksum = listed.checksum.filter(|checksum| Some(*checksum) != part.checksum)?;
        Some((listed, checksum.algorithm()))
    })?;
    if upload.checksum.is_some_and(|(own, kind)| kind == checksum::Type::Composite && own != algorithm) {
        let number = listed.number;
        return Some(StoreError::Completion(Completion::PartChecksum { number, algorithm }));
    }
    Some(invalid(listed))
}

/// The object that the parts make, where it is what the request says. Pure.
fn assemble(upload: &Upload, parts: &[Part], request: &CompleteRequest) -> Result<Object, Completion> {
    let size = parts.iter().map(|part| part.size).sum();
    if let Some(expected) = request.size.filter(|expected| *expected != size) {
        return Err(Completion::Size { expected, actual: size });
    }
    let (algorithm, kind) =
        upload.checksum.unwrap_or((checksum::Algorithm::Crc64nvme, checksum::Type::FullObject));
    if upload.checksum.is_some() && kind == checksum::Type::Composite {
        // Composite uploads list every part with its checksum (S3 API Reference, CompletedPart).
        if let Some(part) = request.listed.iter().find(|part| part.checksum.is_none()) {
            return Err(Completion::PartChecksumMissing { number: part.number, algorithm });
        }
    }
    let values: Option<Vec<_>> = parts.iter().map(|part| Some((part.checksum?, part.size))).collect();
    let checksum = values.and_then(|values| Checksum::of_parts(algorithm, kind, &values));
    if let Some(expected) = request.checksum.filter(|expected| Some(*expected) != checksum) {
        return Err(Completion::Checksum(expected.value.algorithm()));
    }
    let etag = etag::of_parts(parts.iter().map(|part| part.etag.as_str()));
    Ok(Object {
        size,
        etag: match request.condition.bent() {
            Some(bent) => bent.made_etag(etag),
            None => etag,
        },
        checksum,
        attributes: upload.attributes.clone(),
        tags: upload.tags.clone(),
        part_count: u32::try_from(parts.len()).ok(),
    })
}
