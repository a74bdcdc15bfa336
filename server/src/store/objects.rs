//! Objects: writes, deletes and versions.
//!
//! A key's newest version stands under `O` where it is an object; all others, and delete markers, stand
//! under `V`. So a key without an `O` row has no current object, and listing current objects costs
//! nothing for versions and markers.

use std::sync::Arc;

use bytes::Bytes;

use super::buckets::{find, missing, version_record};
use super::index::{IndexError, Rows, RowsMut};
use super::model::{Bucket, Object, Pair, Part, Version, Versioning};
use super::{Decided, Draft, Store, StoreError, deviant, forget, keep, next_seq, rows, seek_within};
use crate::checksum;
use crate::instant::Instant;
use crate::lifecycle::Due;
use crate::names::{BucketName, Key, VersionId, sequence_of};
use crate::precondition::WriteCondition;

/// An object whose body has been taken in, to be committed.
pub(crate) struct NewObject {
    pub(crate) object: Object,
    pub(crate) body: Draft,
    pub(crate) part_checksum: Option<checksum::Value>,
    pub(crate) condition: WriteCondition,
    pub(crate) now: Instant,
    /// Makes the version id one that can't be guessed.
    pub(crate) random: [u8; 16],
}

/// What a committed write became.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// `None` in a bucket where versioning was never enabled.
    pub(crate) version: Option<VersionId>,
    pub(crate) last_modified: Instant,
    /// When it expires under the bucket's lifecycle.
    pub(crate) expiry: Option<Due>,
}

/// What a delete did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deleted {
    /// The version that was removed, or the delete marker that was written.
    pub(crate) version: Option<VersionId>,
    /// Whether that version is a delete marker.
    pub(crate) marker: bool,
}

/// Which versions a delete is about.
pub(crate) enum Doomed {
    /// The current one, under a condition.
    Current(WriteCondition),
    /// This one, for good.
    Version(VersionId),
}

impl Store {
    /// Commits an object, if its condition holds at that moment.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Refused`.
    pub(crate) fn put(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        new: NewObject,
    ) -> impl Future<Output = Result<Placed, StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key) = (bucket.clone(), key.clone());
        async move {
            // A refused body leaves the critical section before it is dropped: its file may have to be removed.
            let outcome = store
                .index
                .apply(move |rows| {
                    let record = match admit(rows, &bucket, &key, &new.condition)? {
                        Ok(record) => record,
                        Err(refused) => return Ok(Err((refused, new.body))),
                    };
                    let part = Part {
                        number: 1,
                        size: new.object.size,
                        etag: new.object.etag.clone(),
                        checksum: new.part_checksum,
                        last_modified: new.now,
                        blob: keep(rows, new.body)?,
                    };
                    let place = Place { bucket: &bucket, key: &key, record: &record };
                    place.commit(rows, new.object, &[part], new.now, new.random).map(Ok)
                })
                .await?;
            let (placed, files) = outcome.map_err(|(refused, _body)| refused)?;
            store.release(&files);
            Ok(placed)
        }
    }

    /// Deletes the current object or one version.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Refused`.
    pub(crate) fn delete(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        doomed: Doomed,
        now: Instant,
        random: [u8; 16],
    ) -> impl Future<Output = Result<Deleted, StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key) = (bucket.clone(), key.clone());
        async move {
            let (deleted, files) = store
                .decide(move |rows| {
                    let condition = match &doomed {
                        Doomed::Current(condition) => condition,
                        Doomed::Version(_) => &WriteCondition::Always,
                    };
                    let record = match admit(rows, &bucket, &key, condition)? {
                        Ok(record) => record,
                        Err(refused) => return Ok(Err(refused)),
                    };
                    let place = Place { bucket: &bucket, key: &key, record: &record };
                    let keeps_trace = deviant::keeps_trace(condition);
                    let mut files = Vec::new();
                    let deleted = match doomed {
                        Doomed::Version(id) => place.remove_version(rows, id, &mut files)?,
                        Doomed::Current(_) if record.versioning == Versioning::Off => {
                            if place.remove_null(rows, &mut files)? {
                                place.trace_delete(rows, keeps_trace)?;
                            }
                            Deleted::default()
                        }
                        Doomed::Current(_) => place.mark_deleted(rows, now, random, &mut files)?,
                    };
                    Ok(Ok((deleted, files)))
                })
                .await?;
            store.release(&files);
            Ok(deleted)
        }
    }

    /// Replaces the tags of one version, or of the current object. Its time and ETag stay.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `IsMarker`.
    pub(crate) fn set_tags(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        version: Option<VersionId>,
        tags: Vec<Pair>,
    ) -> impl Future<Output = Result<VersionId, StoreError>> + Send + use<> {
        let store = self.clone();
        let (bucket, key) = (bucket.clone(), key.clone());
        async move {
            store
                .decide(move |rows| {
                    if find(rows, &bucket)?.is_none() {
                        return Ok(Err(missing(&bucket)));
                    }
                    let (row, value) = match locate(rows, &bucket, &key, version.as_ref())? {
                        Ok(found) => found,
                        Err(error) => return Ok(Err(error)),
                    };
                    let (mut version, parts) = version_record(&row, &value)?;
                    let Some(object) = &mut version.object else {
                        return Ok(Err(StoreError::IsMarker(version.id, version.last_modified)));
                    };
                    object.tags = tags;
                    rows.put(&row, encode_version(&version, &parts)?)?;
                    Ok(Ok(version.id))
                })
                .await
        }
    }
}

/// The row of a version, or of the current object.
pub(super) fn locate(
    rows: &(impl Rows + ?Sized),
    bucket: &BucketName,
    key: &Key,
    version: Option<&VersionId>,
) -> Decided<(Bytes, Bytes)> {
    let current = rows::current(bucket, key);
    let value = rows.get(&current)?;
    let Some(wanted) = version else {
        return Ok(match value {
            Some(value) => Ok((current, value)),
            None => Err(StoreError::NoSuchKey {
                key: key.as_str().to_owned(),
                marker: newest_version(rows, bucket, key)?.map(|(_, version, _)| version.id),
            }),
        });
    };
    if let Some(value) = value
        && rows::decode::<Version>(&current, &value)?.0.id == *wanted
    {
        return Ok(Ok((current, value)));
    }
    let seq = match wanted {
        VersionId::Null => rows.get(&rows::null_version(bucket, key))?.map(|v| super::number(Some(v))),
        VersionId::Id(id) => sequence_of(id),
    };
    if let Some(seq) = seq {
        let row = rows::version(bucket, key, seq);
        if let Some(value) = rows.get(&row)?
            && rows::decode::<Version>(&row, &value)?.0.id == *wanted
        {
            return Ok(Ok((row, value)));
        }
    }
    Ok(Err(StoreError::NoSuchVersion { key: key.as_str().to_owned(), version: wanted.as_str().to_owned() }))
}

/// The newest version under `V`: its row, record and value.
fn newest_version(
    rows: &(impl Rows + ?Sized),
    bucket: &BucketName,
    key: &Key,
) -> Result<Option<(Bytes, Version, Bytes)>, IndexError> {
    let of_key = rows::versions_of(bucket, key);
    let Some((row, value)) = rows.seek(&of_key)?.filter(|(row, _)| row.starts_with(&of_key)) else {
        return Ok(None);
    };
    let (version, _) = rows::decode::<Version>(&row, &value)?;
    Ok(Some((row, version, value)))
}

/// When the key was last written or deleted, in the order of commits.
pub(super) fn last_change(rows: &dyn Rows, bucket: &BucketName, key: &Key) -> Result<u64, IndexError> {
    let row = rows::current(bucket, key);
    let current = match rows.get(&row)? {
        Some(value) => rows::decode::<Version>(&row, &value)?.0.seq,
        None => newest_version(rows, bucket, key)?.map_or(0, |(_, version, _)| version.seq),
    };
    Ok(current.max(super::number(rows.get(&rows::trace(bucket, key))?)))
}

/// Whether the bucket is there and the condition holds for the key as it is now.
fn admit(rows: &dyn Rows, bucket: &BucketName, key: &Key, condition: &WriteCondition) -> Decided<Bucket> {
    let Some(record) = find(rows, bucket)? else { return Ok(Err(missing(bucket))) };
    let etag = match condition {
        WriteCondition::Always => None,
        _ => current_etag(rows, bucket, key, condition)?,
    };
    let changed = match condition.bent().and_then(|bent| bent.since) {
        Some(since) => last_change(rows, bucket, key)? > since,
        None => false,
    };
    Ok(match condition.decide(etag.as_deref(), changed) {
        Ok(()) => Ok(record),
        Err(refusal) => Err(StoreError::Refused { refusal, key: key.as_str().to_owned() }),
    })
}

pub(super) fn current_etag(
    rows: &dyn Rows,
    bucket: &BucketName,
    key: &Key,
    condition: &WriteCondition,
) -> Result<Option<String>, IndexError> {
    let row = rows::current(bucket, key);
    let object = match rows.get(&row)? {
        Some(value) => rows::decode::<Version>(&row, &value)?.0.object,
        None => None,
    };
    match condition.bent() {
        None => Ok(object.map(|object| object.etag)),
        Some(bent) => deviant::etag_that_counts(rows, bucket, key, object, bent),
    }
}

pub(super) fn encode_version(version: &Version, parts: &[Part]) -> Result<Bytes, IndexError> {
    let record = rows::encode(version)?;
    if parts.is_empty() {
        return Ok(record);
    }
    Ok([record, rows::encode(&parts)?].concat().into())
}

/// A key whose versions are being changed.
pub(super) struct Place<'a> {
    pub(super) bucket: &'a BucketName,
    pub(super) key: &'a Key,
    pub(super) record: &'a Bucket,
}

impl Place<'_> {
    /// Makes `object` the newest version. Gives back the files that are no longer needed.
    pub(super) fn commit(
        &self,
        rows: &mut dyn RowsMut,
        object: Object,
        parts: &[Part],
        now: Instant,
        random: [u8; 16],
    ) -> Result<(Placed, Vec<u64>), IndexError> {
        let mut files = Vec::new();
        let seq = next_seq(rows)?;
        let id = self.make_room(rows, seq, random, &mut files)?;
        let last_modified = now.whole_second();
        let expiry = self.record.expiry_of(self.key, &object, last_modified);
        let version = Version { seq, id, last_modified, object: Some(object) };
        rows.put(&rows::current(self.bucket, self.key), encode_version(&version, parts)?)?;
        let version = (self.record.versioning != Versioning::Off).then_some(version.id);
        Ok((Placed { version, last_modified, expiry }, files))
    }

    /// Writes a delete marker.
    fn mark_deleted(
        &self,
        rows: &mut dyn RowsMut,
        now: Instant,
        random: [u8; 16],
        files: &mut Vec<u64>,
    ) -> Result<Deleted, IndexError> {
        let seq = next_seq(rows)?;
        let id = self.make_room(rows, seq, random, files)?;
        let marker = Version { seq, id, last_modified: now.whole_second(), object: None };
        self.store_version(rows, &marker, rows::encode(&marker)?)?;
        Ok(Deleted { version: Some(marker.id), marker: true })
    }

    /// Moves the current object aside, or removes the null version where the next one is null again, and
    /// names the next version.
    fn make_room(
        &self,
        rows: &mut dyn RowsMut,
        seq: u64,
        random: [u8; 16],
        files: &mut Vec<u64>,
    ) -> Result<VersionId, IndexError> {
        let next = match self.record.versioning {
            Versioning::Enabled => VersionId::generate(seq, random),
            Versioning::Off | Versioning::Suspended => {
                self.remove_null(rows, files)?;
                VersionId::Null
            }
        };
        let row = rows::current(self.bucket, self.key);
        if let Some(value) = rows.get(&row)? {
            let (version, _) = rows::decode::<Version>(&row, &value)?;
            rows.remove(&row)?;
            self.store_version(rows, &version, value)?;
        }
        Ok(next)
    }

    /// Puts a version under `V`.
    fn store_version(
        &self,
        rows: &mut dyn RowsMut,
        version: &Version,
        value: Bytes,
    ) -> Result<(), IndexError> {
        if version.id == VersionId::Null {
            let seq = Bytes::copy_from_slice(&version.seq.to_be_bytes());
            rows.put(&rows::null_version(self.bucket, self.key), seq)?;
        }
        rows.put(&rows::version(self.bucket, self.key, version.seq), value)
    }

    /// Removes the null version, wherever it stands, and says whether there was one.
    fn remove_null(&self, rows: &mut dyn RowsMut, files: &mut Vec<u64>) -> Result<bool, IndexError> {
        match locate(rows, self.bucket, self.key, Some(&VersionId::Null))? {
            Ok((row, value)) => self.remove_row(rows, &row, &value, files).map(|_| true),
            Err(_) => Ok(false),
        }
    }

    fn remove_row(
        &self,
        rows: &mut dyn RowsMut,
        row: &[u8],
        value: &[u8],
        files: &mut Vec<u64>,
    ) -> Result<Version, IndexError> {
        let (version, parts) = version_record(row, value)?;
        forget(rows, &parts, files)?;
        rows.remove(row)?;
        if version.id == VersionId::Null {
            rows.remove(&rows::null_version(self.bucket, self.key))?;
        }
        Ok(version)
    }

    /// Removes one version for good; the next newest becomes current if it is an object.
    fn remove_version(
        &self,
        rows: &mut dyn RowsMut,
        id: VersionId,
        files: &mut Vec<u64>,
    ) -> Result<Deleted, IndexError> {
        let Ok((row, value)) = locate(rows, self.bucket, self.key, Some(&id))? else {
            return Ok(Deleted { version: Some(id), marker: false }); // nothing there is as good as deleted
        };
        let removed = self.remove_row(rows, &row, &value, files)?;
        let current = rows::current(self.bucket, self.key);
        if row == current {
            self.trace_delete(rows, false)?;
        }
        if rows.get(&current)?.is_none()
            && let Some((row, newest, value)) = newest_version(rows, self.bucket, self.key)?
            && newest.object.is_some()
        {
            rows.remove(&row)?;
            if newest.id == VersionId::Null {
                rows.remove(&rows::null_version(self.bucket, self.key))?;
            }
            rows.put(&current, value)?;
        }
        Ok(Deleted { version: Some(id), marker: removed.object.is_none() })
    }

    /// Remembers this delete while an upload of the key is open: its conditional complete must know. Or in any
    /// case, where a deviation wants to know.
    fn trace_delete(&self, rows: &mut dyn RowsMut, always: bool) -> Result<(), IndexError> {
        let uploads = rows::uploads_of(self.bucket, self.key);
        if always || seek_within(rows, &uploads, &uploads)?.is_some() {
            let seq = next_seq(rows)?;
            rows.put(&rows::trace(self.bucket, self.key), Bytes::copy_from_slice(&seq.to_be_bytes()))?;
        }
        Ok(())
    }
}
