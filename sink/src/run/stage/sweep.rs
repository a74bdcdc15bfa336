//! Aborting uploads that nobody will complete: for a job that can't wait for the bucket's lifecycle rule. Nothing does
//! it by itself.

use crate::model::ids::Nonce;
use crate::model::stage::JobRoot;
use crate::plan::stage::{Known, orphan};
use crate::run::stage::{Pendings, pending_uploads};
use crate::stage::{Coordinator, StageError};
use crate::store::multipart::{MultipartStore, OpenUpload};
use crate::store::{Outcome, Refusal};

/// What a sweep may abort, besides what the directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The starts of subtasks that may still stage: what they have is in no snapshot yet.
    pub live: Vec<Nonce>,
    /// The store's time, in milliseconds since 1970.
    pub store_ms: u64,
    /// Age by the store's clock above which an upload may be aborted, in milliseconds: longer than any checkpoint takes.
    pub grace_ms: u64,
}

/// What was swept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Uploads that were aborted. Some stores must be asked again before the parts are gone.
    pub aborted: Vec<OpenUpload>,
    /// Uploads of this job that stay, and why.
    pub kept: Vec<(OpenUpload, &'static str)>,
    /// Uploads of others in the bucket, which are left alone.
    pub others: usize,
    /// Why it ended early: nothing was aborted after that.
    pub stopped: Option<String>,
}

/// Aborts the uploads of this job that no snapshot names and no subtask may still complete.
///
/// # Errors
/// [`StageError::Fenced`]; of the directory.
pub async fn sweep(
    coordinator: &Coordinator,
    store: &dyn MultipartStore,
    root: &JobRoot,
    sweep: &Sweep,
) -> Result<Swept, StageError> {
    let mut swept = Swept::default();
    // Uploads first: whatever a snapshot names was open before that snapshot.
    let Pendings { ours, others } = match pending_uploads(store, root).await {
        Ok(pending) => pending,
        Err(outcome) => {
            return Ok(Swept { stopped: Some(format!("ListMultipartUploads: {outcome:?}")), ..swept });
        }
    };
    swept.others = others;
    let ledger = coordinator.ledger();
    let known = Known {
        root,
        marker: ledger.latest().await?.map(|latest| latest.marker.checkpoint_id),
        handles: ledger.handles().await?,
        live: &sweep.live,
        store_ms: sweep.store_ms,
        grace_ms: sweep.grace_ms,
    };
    for open in ours {
        if let Err(why) = orphan(&open, &known) {
            swept.kept.push((open, why));
            continue;
        }
        coordinator.check().await?;
        let why = match store.abort(&open.key, &open.upload).await {
            Outcome::Done(()) | Outcome::Missing => {
                tracing::info!(key = open.key, "aborted an upload that nobody will complete");
                swept.aborted.push(open);
                continue;
            }
            Outcome::Unknown(why) => why.reason,
            Outcome::Refused(Refusal::Denied { status, code, .. }) => format!("{status} {code}"),
            Outcome::Refused(other) => format!("{other:?}"),
        };
        swept.stopped = Some(format!("AbortMultipartUpload of {:?}: {why}", open.key));
        break;
    }
    Ok(swept)
}
