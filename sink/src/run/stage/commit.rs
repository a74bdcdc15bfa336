//! Commit: Complete, and what its answer means; then the receipt.

use std::time::Duration;

use super::Staging;
use crate::error::SinkError;
use crate::model::stage::Handle;
use crate::model::stage::files::Proof;
use crate::model::stage::state::{Committable, Committed, InDoubt, Lost, Orphan, Prepared, Released};
use crate::plan::stage::{Action, Answer, Standing, resolve};
use crate::point::{self, Point};
use crate::run::patience::{because, denied};
use crate::stage::StageError;
use crate::stage::mutant::Mutant;
use crate::store::{ETag, Outcome, Refusal, Unanswered};

/// What came of completing an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It is an object.
    Committed(Committed),
    /// Nobody knows yet.
    InDoubt(InDoubt, String),
    /// Data is gone.
    Lost(Lost, String),
    /// Another object is at its key.
    Conflict(InDoubt, String),
}

/// One answer to Complete.
struct Answered {
    answer: Answer,
    etag: String,
    why: Unanswered,
    denial: Option<SinkError>,
}

impl Staging {
    /// The proof that an upload may be committed: the marker of its checkpoint, or else of the latest that
    /// counts, and that upload in the snapshot that it is of.
    ///
    /// # Errors
    /// [`StageError::NotCompleted`], [`StageError::NotInSnapshot`]; of the directory.
    pub async fn permit(&self, handle: Handle) -> Result<Committable, StageError> {
        #[cfg(feature = "mutants")]
        if self.mutant.is(Mutant::CommitBeforeMarker) {
            return Ok(Committable::unproven(handle));
        }
        let (name, checkpoint) = (handle.name(), handle.checkpoint_id);
        let completed = match self.ledger.completed(checkpoint).await? {
            Some(completed) => completed,
            None => match self.ledger.latest().await? {
                Some(latest) if latest.marker.checkpoint_id > checkpoint => latest,
                _ => return Err(StageError::NotCompleted { handle: name, checkpoint }),
            },
        };
        let checkpoint = completed.snapshot.checkpoint_id;
        let sealed = Prepared::new(handle).sealed(&completed.snapshot);
        let sealed = sealed.map_err(|_| StageError::NotInSnapshot { handle: name.clone(), checkpoint })?;
        sealed
            .committable(&completed.marker)
            .map_err(|_| StageError::NotCompleted { handle: name, checkpoint })
    }

    /// The proof that an upload may be given up: no snapshot that counts, or yet may, has it.
    ///
    /// # Errors
    /// [`StageError::Internal`] if one has; of the directory.
    pub async fn disown(&self, handle: Handle) -> Result<Orphan, StageError> {
        let snapshots = self.ledger.standing().await?;
        Prepared::new(handle).given_up(&snapshots).map_err(|held| {
            let name = held.handle().name();
            let by = snapshots.iter().find(|snapshot| snapshot.holds(held.handle()));
            let number = by.map_or(held.handle().checkpoint_id, |snapshot| snapshot.checkpoint_id);
            StageError::Internal(format!(
                "{name} is in snapshot {number}, which counts or yet may, and is never aborted: abandon that \
                 checkpoint first, if it is not completed"
            ))
        })
    }

    /// Aborts an upload. Best effort: what remains is invisible, and expires.
    pub async fn discard(&self, orphan: Orphan) {
        let handle = orphan.handle();
        let aborted = self.uploads.abort(&handle.key, &handle.upload_id).await;
        tracing::info!(handle = handle.name(), ?aborted, "given up");
    }

    /// Completes an upload, and finds out what became of it: the identical request is sent until it is answered,
    /// and where the answer does not tell, the key does.
    ///
    /// # Errors
    /// [`SinkError::Denied`], where the store refuses for good.
    pub async fn complete(&self, committable: Committable) -> Result<Resolved, SinkError> {
        point::reach(Point::SinkBeforeCommit);
        let resolved = self.resolved(committable).await?;
        if matches!(resolved, Resolved::Committed(_)) {
            point::reach(Point::SinkAfterExternalCommit);
        }
        Ok(resolved)
    }

    async fn resolved(&self, mut committable: Committable) -> Result<Resolved, SinkError> {
        let mut patience = self.patience();
        let mut absences = 0;
        loop {
            let Answered { answer, etag, why, denial } = self.ask(committable.handle()).await;
            let doubt = match resolve(answer, None) {
                Action::Commit(_) => {
                    self.compare(committable.handle(), &etag);
                    return Ok(Resolved::Committed(committable.answered(etag)));
                }
                Action::Stop => {
                    return Err(
                        denial.unwrap_or_else(|| SinkError::Internal("a denial without one".to_owned()))
                    );
                }
                Action::Complete => Ok((committable.in_doubt(), why)),
                _ => self.after_look(answer, committable.in_doubt(), &mut absences).await,
            };
            let (doubt, why) = match doubt {
                Ok(doubt) => doubt,
                Err(resolved) => return Ok(*resolved),
            };
            let key = doubt.handle().key.clone();
            if let Err(error) = patience.pause(&self.env, "CompleteMultipartUpload", &key, &why).await {
                return Ok(self.doubtful(doubt, &error));
            }
            self.counts.lock().resent += 1;
            committable = doubt.again();
        }
    }

    fn doubtful(&self, doubt: InDoubt, error: &SinkError) -> Resolved {
        self.counts.lock().in_doubt += 1;
        Resolved::InDoubt(doubt, error.to_string())
    }

    /// Looks at the key until it says what became of the upload, or that Complete is to be sent again.
    async fn after_look(
        &self,
        answer: Answer,
        doubt: InDoubt,
        absences: &mut u32,
    ) -> Result<(InDoubt, Unanswered), Box<Resolved>> {
        loop {
            let seen = match self.look(doubt.handle()).await {
                Ok(seen) => seen,
                Err(error) => return Err(Box::new(self.doubtful(doubt, &error))),
            };
            let standing = match seen.standing {
                Standing::Absent { .. } => Standing::Absent { settled: *absences >= self.settle_rounds },
                other => other,
            };
            return Err(Box::new(match resolve(answer, Some(standing)) {
                Action::Commit(proof) => Resolved::Committed(doubt.seen(proof, seen.etag)),
                Action::Settle => {
                    *absences += 1;
                    self.settle().await;
                    continue;
                }
                Action::Conflict => Resolved::Conflict(doubt, seen.foreign),
                Action::Lost => {
                    let reason = format!("{answer:?} of Complete, and {standing:?} at the key");
                    Resolved::Lost(doubt.lost(), reason)
                }
                Action::Complete | Action::Look | Action::Stop => {
                    return Ok((doubt, because("NoSuchUpload, and the upload is listed")));
                }
            }));
        }
    }

    pub(super) async fn settle(&self) {
        let wait = Duration::from_millis(self.settle_ms) / self.settle_rounds.max(1);
        tokio::time::sleep(wait).await;
    }

    async fn ask(&self, handle: &Handle) -> Answered {
        let parts = handle.part_refs();
        let outcome: Outcome<ETag> = self.uploads.complete(&handle.key, &handle.upload_id, &parts).await;
        let told = |answer, reason: &str| Answered {
            answer,
            etag: String::new(),
            why: because(reason),
            denial: None,
        };
        match outcome {
            Outcome::Done(etag) => Answered { etag: etag.0, ..told(Answer::Completed, "done") },
            Outcome::Missing => told(Answer::NoSuchUpload, "NoSuchUpload"),
            Outcome::Unknown(why) => Answered { why, ..told(Answer::Unanswered, "") },
            Outcome::Refused(Refusal::Precondition) => told(Answer::Condition, "412"),
            Outcome::Refused(Refusal::Conflict) => told(Answer::Condition, "409"),
            Outcome::Refused(Refusal::Denied { status, code, message }) => {
                let parts_are_wrong =
                    ["InvalidPart", "InvalidPartOrder", "EntityTooSmall"].contains(&code.as_str());
                let reason = format!("{status} {code}");
                let denial =
                    denied("CompleteMultipartUpload", &handle.key, Refusal::Denied { status, code, message });
                let answer = if parts_are_wrong { Answer::Damaged } else { Answer::Denied };
                Answered { denial: Some(denial), ..told(answer, &reason) }
            }
        }
    }

    fn compare(&self, handle: &Handle, etag: &str) {
        if etag.trim_matches('"') != handle.multipart_etag.trim_matches('"') {
            self.counts.lock().other_etags += 1;
            tracing::warn!(handle = handle.name(), etag, expected = handle.multipart_etag, "another ETag");
        }
    }

    /// Makes the receipt durable; then the handle may be forgotten.
    ///
    /// # Errors
    /// Of the directory; [`StageError::Conflict`] if there is a receipt of another upload.
    pub async fn release(&self, committed: Committed) -> Result<Released, StageError> {
        let receipt = committed.receipt(self.env.clock.now_ms());
        if !self.mutant.is(Mutant::ReceiptSkipped) {
            point::reach(Point::SinkBeforeReceipt);
            self.ledger.put_receipt(&receipt).await?;
            point::reach(Point::SinkAfterReceipt);
        }
        let mut counts = self.counts.lock();
        counts.committed += 1;
        counts.resolved_by_look += u64::from(receipt.proof != Proof::Answer);
        counts.weak_proofs += u64::from(receipt.proof == Proof::Weak);
        drop(counts);
        committed
            .released(&receipt)
            .map_err(|_| StageError::Internal("a receipt of another upload".to_owned()))
    }
}
