//! The swap of HEAD, and what its answer means: applied, lost to another, or a question that goes on.
//!
//! A conditional write without an answer may land as long as HEAD has the tag that it names; so the identical
//! request is sent again until HEAD shows its nonce, or has another tag. A read that still shows the old HEAD
//! proves nothing.

use bytes::Bytes;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::metrics::Metrics;
use crate::model::frame::Kind;
use crate::model::head::{Descent, Head};
use crate::model::key::PipelineRoot;
use crate::model::view::View;
use crate::run::patience::{Patience, because, denied};
use crate::run::read;
use crate::store::{Condition, ETag, Outcome, Refusal};

/// How often HEAD may show what can't be, as a stale read does, before it is taken for the truth.
const PUZZLES: u32 = 8;

/// What came of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// HEAD is, or was, what was written; nobody built upon it yet.
    Applied(View),
    /// HEAD moved before: the write was not applied, and can't be any more.
    Conflict(View),
}

/// A swap of HEAD.
#[derive(Debug)]
pub struct Swap<'a> {
    /// What it runs in.
    pub env: &'a Env,
    /// Whose HEAD.
    pub root: &'a PipelineRoot,
    /// Counts conflicts and unanswered tries.
    pub metrics: &'a Metrics,
    /// HEAD as it was last seen or written.
    pub base: &'a View,
    /// What it becomes.
    pub next: &'a Head,
}

/// What a look at HEAD tells of the swap.
enum Look {
    Over(Box<Swapped>),
    /// HEAD has not moved: the write may still land.
    Unmoved,
    /// An older HEAD than is known, or the same under another tag: a stale read, or, if it stays so, an alarm.
    Puzzle(Alarm),
}

impl Swap<'_> {
    /// Asks until the outcome is known, for as long as `patience` lasts.
    ///
    /// # Errors
    /// [`SinkError::Fenced`] if another owner took over, an [`Alarm`] for what can't be, a refusal, and
    /// [`SinkError::StoreUnavailable`] if the outcome is still unknown at the limit.
    pub async fn apply(&self, mut patience: Patience) -> Result<Swapped, SinkError> {
        let (key, bytes) = (self.root.head(), self.next.encode());
        let mut puzzles = 0;
        loop {
            let answer = self.put(&key, bytes.clone()).await;
            let refused_the_condition =
                matches!(answer, Outcome::Refused(Refusal::Precondition) | Outcome::Missing);
            let mut denial = None;
            let why = match answer {
                Outcome::Done(Some(etag)) => {
                    return Ok(Swapped::Applied(View { head: self.next.clone(), etag }));
                }
                Outcome::Refused(Refusal::Conflict) => {
                    patience.pause(self.env, "PUT", &key, &because("409")).await?;
                    continue;
                }
                Outcome::Done(None) => because("an answer without a tag"),
                Outcome::Refused(Refusal::Precondition) => because("412"),
                Outcome::Missing => because("404"),
                Outcome::Refused(refusal) => {
                    denial = Some(denied("PUT", &key, refusal));
                    because("refused")
                }
                Outcome::Unknown(why) => {
                    self.metrics.cas_ambiguous.with_label_values(&[self.intent()]).inc();
                    why
                }
            };
            // Whatever the answer, an earlier try of the same request may have landed: HEAD tells.
            let puzzle = match (self.look(&patience).await?, denial) {
                (Look::Over(swapped), _) => {
                    self.count(&swapped, refused_the_condition);
                    return Ok(*swapped);
                }
                (_, Some(denial)) => return Err(denial),
                (Look::Unmoved, None) if !refused_the_condition => {
                    patience.pause(self.env, "PUT", &key, &why).await?;
                    continue;
                }
                (Look::Unmoved, None) => {
                    self.contradiction("the store refuses to swap the tag that it shows")
                }
                (Look::Puzzle(alarm), None) => alarm,
            };
            puzzles += 1;
            if puzzles > PUZZLES {
                return Err(puzzle.into());
            }
            patience.pause(self.env, "PUT", &key, &because(puzzle.name())).await?;
        }
    }

    fn contradiction(&self, reason: &str) -> Alarm {
        Alarm::Contradiction { key: self.root.head(), reason: reason.to_owned() }
    }

    fn intent(&self) -> &'static str {
        self.next.write.intent.name()
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Outcome<Option<ETag>> {
        let condition = Condition::Matches(self.base.etag.clone());
        self.env.store.put(key, bytes, condition, &metadata(Kind::Head, self.next)).await
    }

    fn count(&self, swapped: &Swapped, refused_the_condition: bool) {
        let counter = match swapped {
            Swapped::Applied(_) if !refused_the_condition => return,
            Swapped::Applied(_) => &self.metrics.cas_self_conflicts,
            Swapped::Conflict(_) => &self.metrics.cas_conflicts,
        };
        counter.with_label_values(&[self.intent()]).inc();
    }

    async fn look(&self, patience: &Patience) -> Result<Look, SinkError> {
        let seen = match read::view(self.env, self.root, patience).await? {
            Some(seen) => seen,
            // Asked once more, since nothing is as final as this.
            None => match read::view(self.env, self.root, patience).await? {
                Some(seen) => seen,
                None => return Err(Alarm::HeadDeleted.into()),
            },
        };
        self.judge(seen)
    }

    /// What HEAD, as it is now, says of the swap.
    fn judge(&self, seen: View) -> Result<Look, SinkError> {
        let (mine, head) = (self.next, &seen.head);
        if head.is_write(mine.write.nonce) {
            return Ok(Look::Over(Box::new(Swapped::Applied(seen))));
        }
        if seen.etag == self.base.etag {
            return Ok(Look::Unmoved);
        }
        if head.remembers(mine.write.nonce) {
            return Err(self.superseded(head));
        }
        let base = &self.base.head;
        match head.descent(base) {
            Descent::Same => {
                Ok(Look::Puzzle(self.contradiction("it has another tag than was answered for it")))
            }
            Descent::Older => Ok(Look::Puzzle(Alarm::LostUpdate { rev: base.rev, found: head.rev })),
            Descent::Foreign => Err(Alarm::LostUpdate { rev: base.rev, found: head.rev }.into()),
            _ if head.epoch < base.epoch => Err(Alarm::LostUpdate { rev: base.rev, found: head.rev }.into()),
            _ if base.owner.writer_id == mine.owner.writer_id => Err(self.superseded(head)),
            _ if head.owner.writer_id == mine.owner.writer_id => {
                Err(Alarm::UnknownWrite { rev: head.rev }.into())
            }
            // Beyond what HEAD remembers the acquisition may have been applied, and superseded since.
            Descent::TooFar if head.epoch > mine.epoch => Err(self.superseded(head)),
            _ => Ok(Look::Over(Box::new(Swapped::Conflict(seen)))),
        }
    }

    /// HEAD has moved on from a revision of this process's epoch.
    fn superseded(&self, head: &Head) -> SinkError {
        let (mine, owner) = (self.next.epoch, head.owner.writer_id);
        if head.epoch > mine {
            self.metrics.cas_conflicts.with_label_values(&[self.intent()]).inc();
            SinkError::Fenced { mine, epoch: head.epoch, owner }
        } else if owner == self.next.owner.writer_id {
            Alarm::UnknownWrite { rev: head.rev }.into()
        } else {
            Alarm::SplitBrain { epoch: mine, writer: owner }.into()
        }
    }
}

/// Metadata of a manifest object: for people and tools that list; nothing is decided by it.
#[must_use]
pub fn metadata(kind: Kind, head: &Head) -> Vec<(String, String)> {
    [
        ("dfs3-stream", head.stream_id.to_string()),
        ("dfs3-kind", kind.to_string()),
        ("dfs3-nonce", head.write.nonce.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
