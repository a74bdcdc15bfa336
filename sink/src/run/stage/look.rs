//! What a key shows of a staged upload: its object, the pending upload, or neither.

use super::Staging;
use crate::error::SinkError;
use crate::model::stage::files::Proof;
use crate::model::stage::{Handle, JobRoot};
use crate::plan::stage::{Standing, own};
use crate::stage::mutant::Mutant;
use crate::store::multipart::{MultipartStore, OpenUpload, UploadId};
use crate::store::{Outcome, Pending};

/// Uploads that a page of a listing has at most (S3 API reference, ListMultipartUploads).
const PAGE: u16 = 1000;

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub standing: Standing,
    /// The object's tag, where there is one.
    pub etag: String,
    /// What makes it foreign, where it is.
    pub foreign: String,
}

impl Staging {
    /// HEAD, then the open uploads. A question without an answer is an error, and never "not there".
    pub(super) async fn look(&self, handle: &Handle) -> Result<Seen, SinkError> {
        let key = handle.key.as_str();
        let bare = |standing| Seen { standing, etag: String::new(), foreign: String::new() };
        if let Some(object) = self.asked("HeadObject", key, || self.uploads.describe(key)).await? {
            let etag = object.meta.etag.0.clone();
            if self.mutant.is(Mutant::AnyObjectAccepted) {
                return Ok(Seen { etag, ..bare(Standing::Own(Proof::Token)) });
            }
            return Ok(match own(handle, &object) {
                Ok(proof) => Seen { etag, ..bare(Standing::Own(proof)) },
                Err(foreign) => Seen { standing: Standing::Foreign, etag, foreign },
            });
        }
        let mut after = None;
        loop {
            let from = after.as_ref();
            let page = self.asked("ListMultipartUploads", key, || self.uploads.list_uploads(from, PAGE));
            let Some(page) = page.await? else { return Ok(bare(Standing::Absent { settled: false })) };
            if page.uploads.iter().any(|open| open.key == key && open.upload == handle.upload_id) {
                return Ok(bare(Standing::Pending));
            }
            match page.next {
                Some(next) if after.as_ref().is_none_or(|last| next > *last) => after = Some(next),
                _ => return Ok(bare(Standing::Absent { settled: false })),
            }
        }
    }
}

/// Open uploads of one job in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pendings {
    /// Of keys of the job.
    pub ours: Vec<OpenUpload>,
    /// Of other keys, and of keys under the job's prefix that are none of its.
    pub others: usize,
}

/// Counts what is pending: evidence, and nothing is done about it. The bucket is listed without a prefix, since
/// some stores list nothing under one.
///
/// # Errors
/// The outcome of the page that was not answered.
pub async fn pending_uploads(store: &dyn MultipartStore, root: &JobRoot) -> Result<Pendings, Outcome<()>> {
    let mut found = Pendings::default();
    let mut after: Option<(String, UploadId)> = None;
    loop {
        let page: Pending<'_, _> = store.list_uploads(after.as_ref(), PAGE);
        let page = match page.await {
            Outcome::Done(page) => page,
            Outcome::Missing => return Err(Outcome::Missing),
            Outcome::Refused(refusal) => return Err(Outcome::Refused(refusal)),
            Outcome::Unknown(why) => return Err(Outcome::Unknown(why)),
        };
        for open in page.uploads {
            if root.parse(&open.key).is_some() { found.ours.push(open) } else { found.others += 1 }
        }
        match page.next {
            Some(next) if after.as_ref().is_none_or(|last| next > *last) => after = Some(next),
            _ => return Ok(found),
        }
    }
}
