//! Uploads in parts of the bucket in memory.

use bytes::{Bytes, BytesMut};
use md5::{Digest as _, Md5};

use super::{MemoryStore, Stored, denied};
use crate::store::multipart::{
    Described, MAX_PARTS, MIN_PART_BYTES, MultipartStore, OpenUpload, PartPage, PartRef, StoredPart,
    UploadId, UploadPage,
};
use crate::store::{ETag, Outcome, Pending, Store as _};

/// What a store says to a Complete that it has done before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepeatedComplete {
    /// The first answer again, as AWS does.
    #[default]
    SameAnswer,
    /// 404 NoSuchUpload, as MinIO does.
    NoSuchUpload,
}

#[derive(Clone, Debug)]
struct Part {
    number: u16,
    bytes: Bytes,
    md5: [u8; 16],
}

impl Part {
    fn etag(&self) -> ETag {
        ETag(format!("\"{}\"", hex::encode(self.md5)))
    }
}

#[derive(Clone, Debug)]
enum State {
    Open(Vec<Part>),
    Completed(ETag),
}

/// An upload of the bucket in memory.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    key: String,
    id: UploadId,
    metadata: Vec<(String, String)>,
    initiated_ms: u64,
    state: State,
}

impl MemoryStore {
    fn begin(&self, key: &str, metadata: &[(String, String)]) -> UploadId {
        let mut uploads = self.uploads.lock();
        let id = UploadId(format!("upload-{:06}", uploads.len() + 1));
        let mut metadata: Vec<_> =
            metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        metadata.sort();
        uploads.push(Upload {
            key: key.to_owned(),
            id: id.clone(),
            metadata,
            initiated_ms: self.date_ms(),
            state: State::Open(Vec::new()),
        });
        id
    }

    /// What `look` makes of an upload that is still open.
    fn open<T>(
        &self,
        key: &str,
        id: &UploadId,
        look: impl FnOnce(&mut Vec<Part>) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut uploads = self.uploads.lock();
        let found = uploads.iter_mut().find(|upload| upload.key == key && upload.id == *id);
        match found.map(|upload| &mut upload.state) {
            Some(State::Open(parts)) => look(parts),
            _ => Outcome::Missing,
        }
    }

    fn finish(&self, key: &str, id: &UploadId, named: &[PartRef]) -> Outcome<ETag> {
        let mut uploads = self.uploads.lock();
        let found = uploads.iter_mut().find(|upload| upload.key == key && upload.id == *id);
        let Some(upload) = found else { return Outcome::Missing };
        let parts = match (&upload.state, self.repeated_complete) {
            (State::Open(parts), _) => parts,
            (State::Completed(etag), RepeatedComplete::SameAnswer) => return Outcome::Done(etag.clone()),
            (State::Completed(_), RepeatedComplete::NoSuchUpload) => return Outcome::Missing,
        };
        let chosen = match chosen(parts, named) {
            Ok(chosen) => chosen,
            Err((code, message)) => return denied(400, code, message),
        };
        let (mut body, mut sums) = (BytesMut::new(), Vec::new());
        for part in chosen {
            body.extend_from_slice(&part.bytes);
            sums.extend_from_slice(&part.md5);
        }
        let etag = ETag(format!("\"{}-{}\"", hex::encode(Md5::digest(&sums)), named.len()));
        let stored = Stored {
            bytes: body.freeze(),
            etag: etag.clone(),
            last_modified_ms: self.date_ms(),
            metadata: upload.metadata.clone(),
        };
        self.objects.lock().insert(key.to_owned(), stored);
        upload.state = State::Completed(etag.clone());
        Outcome::Done(etag)
    }

    fn uploads_after(&self, after: Option<&(String, UploadId)>, limit: u16) -> UploadPage {
        let uploads = self.uploads.lock();
        let mut open: Vec<OpenUpload> = uploads
            .iter()
            .filter(|upload| matches!(upload.state, State::Open(_)))
            .map(|upload| OpenUpload {
                key: upload.key.clone(),
                upload: upload.id.clone(),
                initiated_ms: Some(upload.initiated_ms),
            })
            .filter(|upload| after.is_none_or(|(key, id)| (&upload.key, &upload.upload) > (key, id)))
            .collect();
        open.sort_by(|a, b| (&a.key, &a.upload).cmp(&(&b.key, &b.upload)));
        let more = open.len() > usize::from(limit);
        open.truncate(limit.into());
        let next = open.last().filter(|_| more).map(|last| (last.key.clone(), last.upload.clone()));
        UploadPage { uploads: open, next }
    }
}

/// The parts that a Complete names, or the code and message of its refusal.
fn chosen<'a>(parts: &'a [Part], named: &[PartRef]) -> Result<Vec<&'a Part>, (&'static str, String)> {
    if named.is_empty() {
        return Err(("InvalidRequest", "an upload has at least one part".to_owned()));
    }
    if !named.is_sorted_by(|a, b| a.number < b.number) {
        return Err(("InvalidPartOrder", "parts ascend".to_owned()));
    }
    let mut found = Vec::new();
    for name in named {
        let part = parts.iter().find(|part| part.number == name.number && part.etag() == name.etag);
        found.push(part.ok_or_else(|| ("InvalidPart", format!("part {} is not there", name.number)))?);
    }
    let small = |part: &&&Part| part.bytes.len() < MIN_PART_BYTES;
    if let Some(part) = found[..found.len() - 1].iter().find(small) {
        return Err(("EntityTooSmall", format!("part {} is too small", part.number)));
    }
    Ok(found)
}

impl MultipartStore for MemoryStore {
    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<UploadId>> {
        Box::pin(async move { Outcome::Done(self.begin(key, metadata)) })
    }

    fn upload_part<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        number: u16,
        bytes: Bytes,
    ) -> Pending<'a, Outcome<ETag>> {
        Box::pin(async move {
            if number == 0 || number > MAX_PARTS {
                return denied(400, "InvalidArgument", format!("part number {number}"));
            }
            self.open(key, upload, |parts| {
                let part = Part { number, md5: Md5::digest(&bytes).into(), bytes };
                let etag = part.etag();
                parts.retain(|other| other.number != number);
                parts.push(part);
                parts.sort_by_key(|part| part.number);
                Outcome::Done(etag)
            })
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        parts: &'a [PartRef],
    ) -> Pending<'a, Outcome<ETag>> {
        Box::pin(async move { self.finish(key, upload, parts) })
    }

    fn abort<'a>(&'a self, key: &'a str, upload: &'a UploadId) -> Pending<'a, Outcome<()>> {
        Box::pin(async move {
            let mut uploads = self.uploads.lock();
            uploads
                .retain(|one| !(one.key == key && one.id == *upload && matches!(one.state, State::Open(_))));
            Outcome::Done(())
        })
    }

    fn list_uploads<'a>(
        &'a self,
        after: Option<&'a (String, UploadId)>,
        limit: u16,
    ) -> Pending<'a, Outcome<UploadPage>> {
        Box::pin(async move { Outcome::Done(self.uploads_after(after, limit)) })
    }

    fn list_parts<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        after: Option<u16>,
        limit: u16,
    ) -> Pending<'a, Outcome<PartPage>> {
        Box::pin(async move {
            self.open(key, upload, |parts| {
                let mut rest = parts.iter().filter(|part| after.is_none_or(|last| part.number > last));
                let page: Vec<StoredPart> = rest
                    .by_ref()
                    .take(limit.into())
                    .map(|part| StoredPart {
                        number: part.number,
                        etag: part.etag(),
                        size: part.bytes.len() as u64,
                    })
                    .collect();
                let more = rest.next().is_some();
                let next = page.last().filter(|_| more).map(|last| last.number);
                Outcome::Done(PartPage { parts: page, next })
            })
        })
    }

    fn describe<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Described>> {
        Box::pin(async move {
            match self.get(key).await {
                Outcome::Done(object) => {
                    Outcome::Done(Described { meta: object.meta, metadata: object.metadata })
                }
                Outcome::Refused(refusal) => Outcome::Refused(refusal),
                Outcome::Missing => Outcome::Missing,
                Outcome::Unknown(why) => Outcome::Unknown(why),
            }
        })
    }
}
