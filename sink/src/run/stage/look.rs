//! What a key shows of a staged upload: its object, the pending upload, or neither.

use super::Staging;
use crate::error::SinkError;
use crate::model::stage::files::Proof;
use crate::model::stage::{Handle, JobRoot};
use crate::plan::stage::{Standing, own};
use crate::run::patience::because;
use crate::stage::mutant::Mutant;
use crate::store::Outcome;
use crate::store::multipart::{Described, MultipartStore, OpenUpload, UploadId, UploadPage};

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
    /// HEAD, the open uploads, then GET, whose 404 has the store's word in it: that of HEAD may be any proxy's. A
    /// question without an answer is an error, and never "not there".
    pub(super) async fn look(&self, handle: &Handle) -> Result<Seen, SinkError> {
        let key = handle.key.as_str();
        let bare = |standing| Seen { standing, etag: String::new(), foreign: String::new() };
        let object = match self.asked("HeadObject", key, || self.uploads.describe(key)).await? {
            Some(object) => object,
            None if self.listed(handle).await? => return Ok(bare(Standing::Pending)),
            None => match self.asked("GetObject", key, || self.uploads.get(key)).await? {
                Some(object) => Described { meta: object.meta, metadata: object.metadata },
                None => return Ok(bare(Standing::Absent { settled: false })),
            },
        };
        let etag = object.meta.etag.0.clone();
        if self.mutant.is(Mutant::AnyObjectAccepted) {
            return Ok(Seen { etag, ..bare(Standing::Own(Proof::Token)) });
        }
        Ok(match own(handle, &object) {
            Ok(proof) => Seen { etag, ..bare(Standing::Own(proof)) },
            Err(foreign) => Seen { standing: Standing::Foreign, etag, foreign },
        })
    }

    /// Whether the upload is open.
    async fn listed(&self, handle: &Handle) -> Result<bool, SinkError> {
        let ours = |open: &OpenUpload| open.key == handle.key && open.upload == handle.upload_id;
        let mut passed = Vec::new();
        loop {
            let ask = || page(&*self.uploads, &passed);
            let asked = self.asked("ListMultipartUploads", &handle.key, || Box::pin(ask())).await?;
            let Some(UploadPage { uploads, next }) = asked else {
                return Err(SinkError::Internal("a listing that is absent".to_owned()));
            };
            if uploads.iter().any(ours) {
                return Ok(true);
            }
            let Some(next) = next else { return Ok(false) };
            passed.push(next);
        }
    }
}

/// One page of a bucket's open uploads, after those whose markers are `passed`. A 404 is none, for a listing asks for
/// nothing that could be absent; neither is a page that leads back. Ids of one key's uploads come in no order of
/// theirs, so that a marker that was there before is all that tells.
async fn page(store: &dyn MultipartStore, passed: &[(String, UploadId)]) -> Outcome<UploadPage> {
    match store.list_uploads(passed.last(), PAGE).await {
        Outcome::Missing => Outcome::Unknown(because("404 to a listing")),
        Outcome::Done(UploadPage { next: Some(next), .. }) if passed.contains(&next) => {
            Outcome::Unknown(because("a page that leads back to one before it"))
        }
        answer => answer,
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
    let mut passed = Vec::new();
    loop {
        let page = match page(store, &passed).await {
            Outcome::Done(page) => page,
            Outcome::Missing => return Err(Outcome::Missing),
            Outcome::Refused(refusal) => return Err(Outcome::Refused(refusal)),
            Outcome::Unknown(why) => return Err(Outcome::Unknown(why)),
        };
        for open in page.uploads {
            if root.parse(&open.key).is_some() { found.ours.push(open) } else { found.others += 1 }
        }
        let Some(next) = page.next else { return Ok(found) };
        passed.push(next);
    }
}
