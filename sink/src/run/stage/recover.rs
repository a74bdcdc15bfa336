//! What a start finishes: scan, plan the first step, apply it, scan again, until nothing is due.

use super::{Resolved, Staging};
use crate::model::stage::Handle;
use crate::plan::stage::{Baseline, Latches, Staged, Standing, Step, max_steps, reconcile};
use crate::stage::{Ledger, StageError};

/// What a start found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The steps that were due, in order.
    pub steps: Vec<Step>,
    /// The least number that the next checkpoint may have.
    pub next_checkpoint: u64,
}

/// The planner that a start runs; tests put others in its place.
pub(crate) type Planner = fn(&Baseline, &Latches, u32) -> Result<Option<Step>, StageError>;

impl Staging {
    /// Finishes these handles: each is receipted, or of a checkpoint that does not count.
    ///
    /// # Errors
    /// The guards of [`reconcile`]; [`StageError::Store`] while the store is away, of which nothing is concluded;
    /// [`StageError::Internal`] with the step that does not clear its trigger.
    pub async fn recover(&self, handles: Vec<Handle>) -> Result<Recovery, StageError> {
        self.recover_with(handles, reconcile).await
    }

    pub(crate) async fn recover_with(
        &self,
        mut handles: Vec<Handle>,
        planner: Planner,
    ) -> Result<Recovery, StageError> {
        handles.sort_by_key(|handle| (handle.checkpoint_id, handle.subtask));
        let most = max_steps(handles.len(), self.settle_rounds);
        let (mut latches, mut steps) = (Latches::default(), Vec::new());
        loop {
            let baseline = self.scan(&handles, &mut latches).await?;
            let Some(step) = planner(&baseline, &latches, self.settle_rounds)? else {
                return Ok(Recovery { steps, next_checkpoint: latches.next_checkpoint });
            };
            if steps.len() == most {
                let reason = format!("recovery did not converge in {most} steps: {step} does not clear");
                return Err(StageError::Internal(reason));
            }
            tracing::info!(%step, "recovering, then scanning again");
            self.apply(&step, &baseline, &mut handles, &mut latches).await?;
            steps.push(step);
        }
    }

    /// The whole baseline, but for keys that do not decide anything. Whatever is without an answer ends it.
    async fn scan(&self, handles: &[Handle], latches: &mut Latches) -> Result<Baseline, StageError> {
        let marker = self.ledger.latest().await?.map(|latest| latest.marker.checkpoint_id);
        let highest = self.ledger.numbers().await?.highest;
        let mut found = Vec::new();
        for handle in handles {
            let receipt = self.ledger.receipt(handle).await?;
            let counts = marker.is_some_and(|marker| handle.checkpoint_id <= marker);
            let (etag, foreign) = (String::new(), String::new());
            let mut staged = Staged { handle: handle.clone(), receipt, standing: None, etag, foreign };
            // The first that is due is decided by its own evidence: the rest is looked at when its turn comes.
            let first = found.is_empty();
            if first && counts && staged.receipt.is_none() {
                let seen = self.look(handle).await?;
                if !matches!(seen.standing, Standing::Absent { .. }) {
                    latches.absences.remove(&handle.commit_token);
                }
                staged.standing = Some(seen.standing);
                (staged.etag, staged.foreign) = (seen.etag, seen.foreign);
            }
            found.push(staged);
        }
        Ok(Baseline { marker, highest, handles: found })
    }

    /// One step: one durable action. Of a Complete that is answered the receipt is written with it, for the answer is
    /// proof that no later look can better.
    async fn apply(
        &self,
        step: &Step,
        baseline: &Baseline,
        handles: &mut Vec<Handle>,
        latches: &mut Latches,
    ) -> Result<(), StageError> {
        let of = |token| {
            let staged = baseline.handles.iter().find(|staged| staged.handle.commit_token == token);
            staged.ok_or_else(|| StageError::Internal(format!("{step}: no such handle")))
        };
        match step {
            Step::Erase(token, _) | Step::Drop(token, _) => {
                handles.retain(|handle| handle.commit_token != *token);
                Ok(())
            }
            Step::WriteReceipt(token, _, proof) => {
                let staged = of(*token)?;
                let doubt = self.permit(staged.handle.clone()).await?.in_doubt();
                self.release(doubt.seen(*proof, staged.etag.clone())).await.map(drop)
            }
            Step::Complete(token, _) => {
                match self.complete(self.permit(of(*token)?.handle.clone()).await?).await? {
                    Resolved::Committed(committed) => self.release(committed).await.map(drop),
                    Resolved::InDoubt(doubt, reason) => {
                        Err(self.away("CompleteMultipartUpload", &doubt.handle().key, reason))
                    }
                    Resolved::Lost(lost, reason) => Err(StageError::lost(lost.handle(), reason)),
                    Resolved::Conflict(doubt, reason) => Err(StageError::conflict(doubt.handle(), reason)),
                }
            }
            Step::Settle(token, _, round) => {
                self.settle().await;
                latches.absences.insert(*token, *round);
                Ok(())
            }
            Step::RaiseNumber(to) => {
                latches.next_checkpoint = *to;
                Ok(())
            }
        }
    }

    fn away(&self, request: &'static str, key: &str, reason: String) -> StageError {
        let (key, waited_ms) = (key.to_owned(), self.patience_ms);
        StageError::Store(crate::error::SinkError::StoreUnavailable { request, key, waited_ms, reason })
    }
}

/// The handles of one subtask in the snapshot that its job restores: what a start finishes.
///
/// # Errors
/// Of the directory.
pub async fn restored(ledger: &Ledger, subtask: u32) -> Result<Vec<Handle>, StageError> {
    let handles = ledger.latest().await?.map(|latest| latest.snapshot.handles).unwrap_or_default();
    Ok(handles.into_iter().filter(|handle| handle.subtask == subtask).collect())
}
