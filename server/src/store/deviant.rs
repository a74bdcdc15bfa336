//! What a store with deviations takes for the state of a key.

use std::sync::Arc;

use super::buckets::{find, missing};
use super::index::{IndexError, Rows};
use super::model::Object;
use super::objects::{current_etag, last_change};
use super::{Store, StoreError, rows, seek_within};
use crate::deviation::Deviation;
use crate::names::{BucketName, Key};
use crate::precondition::{Bent, WriteCondition};

/// An ETag that no object has.
const NOBODYS: &str = "-";

/// The ETag of what counts as the key's object.
pub(super) fn etag_that_counts(
    rows: &dyn Rows,
    bucket: &BucketName,
    key: &Key,
    object: Option<Object>,
    bent: &Bent,
) -> Result<Option<String>, IndexError> {
    let acts = |deviation| bent.acting.acts(&deviation);
    if bent.asked == WriteCondition::Always {
        return Ok(None); // nobody compares it, so nothing acts
    }
    Ok(match object {
        Some(object) if object.size == 0 && acts(Deviation::EmptyCountsAsAbsent) => None,
        Some(object) if object.part_count.is_some() && acts(Deviation::MultipartCountsAsAbsent) => None,
        Some(object) => Some(object.etag),
        None if bent.asked == WriteCondition::Absent => {
            let uploads = rows::uploads_of(bucket, key);
            let uploading = bent.acting.set().has(&Deviation::OpenUploadCountsAsPresent)
                && seek_within(rows, &uploads, &uploads)?.is_some()
                && acts(Deviation::OpenUploadCountsAsPresent);
            let deleted = bent.acting.set().has(&Deviation::DeletedCountsAsPresent)
                && rows.get(&rows::trace(bucket, key))?.is_some()
                && acts(Deviation::DeletedCountsAsPresent);
            (uploading || deleted).then(|| NOBODYS.to_owned())
        }
        None => None,
    })
}

/// Whether a delete is remembered though no upload needs it.
pub(super) fn keeps_trace(condition: &WriteCondition) -> bool {
    condition.bent().is_some_and(|bent| bent.acting.set().has(&Deviation::DeletedCountsAsPresent))
}

impl Store {
    /// Decides a condition now, and commits nothing.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Refused`.
    pub(crate) fn check(
        &self,
        bucket: &BucketName,
        key: &Key,
        condition: &WriteCondition,
    ) -> Result<(), StoreError> {
        let rows = &*self.index.snapshot()?;
        if find(rows, bucket)?.is_none() {
            return Err(missing(bucket));
        }
        let changed = match condition.bent().and_then(|bent| bent.since) {
            Some(since) => last_change(rows, bucket, key)? > since,
            None => false,
        };
        let etag = current_etag(rows, bucket, key, condition)?;
        condition
            .decide(etag.as_deref(), changed)
            .map_err(|refusal| StoreError::Refused { refusal, key: key.as_str().to_owned() })
    }

    /// The place of the key's last write or delete in the order of commits.
    ///
    /// # Errors
    /// `Index`.
    pub(crate) fn changed_at(&self, bucket: &BucketName, key: &Key) -> Result<u64, StoreError> {
        Ok(last_change(&*self.index.snapshot()?, bucket, key)?)
    }

    /// Whether the key has a current object.
    pub(crate) fn has(self: &Arc<Self>, bucket: &BucketName, key: &Key) -> bool {
        self.find(bucket, key, None).is_ok()
    }
}
