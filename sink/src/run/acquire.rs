//! Becoming the owner: HEAD's first revision, or its next epoch, after everything it reaches was verified.

use std::time::Duration;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::metrics::Metrics;
use crate::model::frame::Kind;
use crate::model::head::Head;
use crate::model::ids::Nonce;
use crate::model::key::PipelineRoot;
use crate::model::view::View;
use crate::plan::ownership::{self, Identity};
use crate::point::{self, Point};
use crate::run::patience::{Patience, because, denied};
use crate::run::read;
use crate::run::recover::{self, Depth, Recovered};
use crate::run::swap::{Swap, Swapped, metadata};
use crate::store::{Condition, Outcome, Refusal};

/// How often an acquisition is tried while HEAD moves: an active owner publishes between two of our requests,
/// but seldom in twenty pairs of them.
const ATTEMPTS: u32 = 20;

/// Longest wait between two attempts, in milliseconds.
const JITTER_MS: u64 = 200;

/// What becoming the owner takes.
#[derive(Debug)]
pub struct Acquisition<'a> {
    /// What it runs in.
    pub env: &'a Env,
    /// Whose HEAD.
    pub root: &'a PipelineRoot,
    /// As whom.
    pub me: &'a Identity,
    /// What it counts.
    pub metrics: &'a Metrics,
    /// How long each question is asked.
    pub patience: &'a Patience,
    /// How far what moved meanwhile is verified.
    pub depth: Depth,
    /// Within how many milliseconds of another owner's last write to wait as long, once.
    pub quiet_ms: u64,
}

impl Acquisition<'_> {
    /// Writes revision 1, owned by this process, unless somebody else was first. `written` hears of the nonce
    /// before it is used. Whether it was this process's is what the next scan tells.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn create(&self, written: &mut Vec<Nonce>) -> Result<Option<View>, SinkError> {
        let (ids, now_ms) = (&self.env.ids, self.env.clock.now_ms());
        let head = ownership::creation(self.me, ids.stream_id(), ids.nonce(), now_ms);
        written.push(head.write.nonce);
        let (key, bytes, metadata) = (self.root.head(), head.encode(), metadata(Kind::Head, &head));
        let mut patience = self.patience.renewed();
        loop {
            let put = self.env.store.put(&key, bytes.clone(), Condition::Absent, &metadata).await;
            let mut refused = None;
            let why = match put {
                Outcome::Done(Some(etag)) => return Ok(Some(View { head, etag })),
                Outcome::Done(None) => because("an answer without a tag"),
                Outcome::Refused(Refusal::Precondition) => because("412"),
                Outcome::Refused(Refusal::Conflict) => because("409"),
                Outcome::Refused(refusal) => {
                    refused = Some(denied("PUT", &key, refusal));
                    because("refused")
                }
                Outcome::Missing => return Err(denied("PUT", &key, read::no_bucket())),
                Outcome::Unknown(why) => why,
            };
            if let Some(view) = read::view(self.env, self.root, &patience).await? {
                return Ok(self.created(&head, view));
            }
            if let Some(refused) = refused {
                return Err(refused);
            }
            patience.pause(self.env, "PUT", &key, &why).await?;
        }
    }

    fn created(&self, head: &Head, view: View) -> Option<View> {
        let mine = view.head.is_write(head.write.nonce) || view.head.remembers(head.write.nonce);
        if !mine {
            let (key, owner) = (self.root.head(), view.head.owner.writer_id);
            tracing::info!(key, %owner, "another process created the stream first");
        }
        mine.then_some(view)
    }

    /// Makes HEAD's next epoch this process's. What moved since `verified` is verified before it is tried again.
    ///
    /// # Errors
    /// [`SinkError::Contended`] if HEAD moved at every attempt, [`SinkError::Fenced`] if the acquisition landed
    /// and was superseded, an alarm, a refusal, or no answer.
    pub async fn acquire(
        &self,
        mut verified: Recovered,
        written: &mut Vec<Nonce>,
    ) -> Result<View, SinkError> {
        self.wait_for_quiet(&verified.view.head).await;
        for _ in 0..ATTEMPTS {
            let (ids, now_ms) = (&self.env.ids, self.env.clock.now_ms());
            let next = ownership::acquisition(&verified.view.head, self.me, ids.nonce(), now_ms);
            written.push(next.write.nonce);
            let swap = Swap {
                env: self.env,
                root: self.root,
                metrics: self.metrics,
                base: &verified.view,
                next: &next,
            };
            point::reach(Point::AcqBeforeCas);
            match swap.apply(self.patience.renewed()).await? {
                Swapped::Applied(view) => {
                    point::reach(Point::AcqAfterCas);
                    return Ok(view);
                }
                Swapped::Conflict(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(ids.below(JITTER_MS))).await;
            let again =
                recover::recover_from(self.env, self.root, self.depth, self.patience, Some(verified)).await?;
            verified = again.ok_or(Alarm::HeadDeleted)?;
        }
        Err(SinkError::Contended { attempts: ATTEMPTS })
    }

    /// Another owner that wrote just now may be about to be stopped by whoever started this process.
    async fn wait_for_quiet(&self, head: &Head) {
        let idle_ms = self.env.clock.now_ms().saturating_sub(head.write.attempt_at_ms);
        if idle_ms >= self.quiet_ms {
            return;
        }
        let (owner, me) = (&head.owner, self.me);
        tracing::warn!(
            owner = %owner.writer_id, instance = owner.instance, epoch = head.epoch, idle_ms,
            successor = %me.writer_id, successor_instance = me.instance, wait_ms = self.quiet_ms,
            "the owner wrote just now, waiting before taking over"
        );
        tokio::time::sleep(Duration::from_millis(self.quiet_ms)).await;
    }
}
