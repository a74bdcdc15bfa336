//! The start of a sink: scan, one step, scan again, until no step is due. What the session starts from is a
//! projection of the last scan.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::local::Checkpoints;
use crate::metrics::Metrics;
use crate::model::checkpoint::Checkpoint;
use crate::model::entry::EntryKind;
use crate::model::frame;
use crate::model::head::Head;
use crate::model::ids::Nonce;
use crate::model::key::PipelineRoot;
use crate::model::position::{Position, PositionRecord};
use crate::model::view::View;
use crate::plan::commit::Draft;
use crate::plan::ownership::{self, Identity};
use crate::plan::reconcile::{self, Baseline, Bucket, Cfg, Evidence, Latches, Step, Stream};
use crate::run::acquire::Acquisition;
use crate::run::in_flight::InFlight;
use crate::run::patience::Patience;
use crate::run::publish::{Publisher, Uploaded, acknowledged};
use crate::run::recover::{self, Committed, Depth, Recovered};
use crate::run::swap::{Swap, Swapped};

/// Steps of one start at most. Each fires at most once, so this is a backstop against one that does not clear.
const MAX_STEPS: u32 = 12;

/// What decides about the next step: [`reconcile::reconcile`], but for tests of what surrounds it.
pub type Planner = fn(&Baseline, &Latches, &Cfg) -> Result<Option<Step>, SinkError>;

/// A start.
#[derive(Debug)]
pub struct Start {
    /// What it runs in.
    pub env: Env,
    /// Whose HEAD.
    pub root: PipelineRoot,
    /// As whom.
    pub me: Identity,
    /// This host's record.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// What it counts.
    pub metrics: Metrics,
    /// How far the closure is verified.
    pub depth: Depth,
    /// How long each question to the store is asked, in milliseconds.
    pub patience_ms: u64,
    /// See [`Acquisition::quiet_ms`].
    pub quiet_ms: u64,
    /// Whether an older minor version of HEAD is replaced.
    pub upgrade: bool,
}

/// Where a session starts: the owner's view of a verified stream.
#[derive(Clone, Debug)]
pub struct Session {
    /// Everything that is committed.
    pub recovered: Recovered,
    /// This host's record.
    pub local: Checkpoint,
    /// The steps that were due, in order.
    pub steps: Vec<Step>,
}

/// What one scan found.
struct Scan {
    baseline: Baseline,
    recovered: Option<Recovered>,
}

/// What a start keeps between its scans.
#[derive(Default)]
struct Memory {
    latches: Latches,
    /// The last verified closure: what has not moved is not read again.
    known: Option<Recovered>,
    /// The lease that HEAD has, by identity and revision of its grant, and when it was first seen here. A grant
    /// that was renewed is another: its holder counts from when it asked for it.
    lease: Option<((Nonce, u64), Instant)>,
}

impl Start {
    /// Reconciles until nothing is due.
    ///
    /// # Errors
    /// The guards of [`reconcile::reconcile`], what a step's action ends with, and [`SinkError::Internal`] with
    /// the step that does not clear its trigger.
    pub async fn run(&self) -> Result<Session, SinkError> {
        self.run_with(reconcile::reconcile).await
    }

    pub(crate) async fn run_with(&self, planner: Planner) -> Result<Session, SinkError> {
        let cfg = Cfg {
            writer_id: self.me.writer_id,
            pipeline: self.me.pipeline.clone(),
            prefix: self.me.prefix.clone(),
            minor: frame::MINOR,
            upgrade: self.upgrade,
        };
        let mut memory = Memory::default();
        let mut steps = Vec::new();
        for iteration in 1..=MAX_STEPS + 1 {
            let Scan { baseline, recovered } = self.scan(&mut memory).await?;
            let head_rev = recovered.as_ref().map(|recovered| recovered.view.head.rev);
            tracing::info!(iteration, head_rev, "scanned");
            match planner(&baseline, &memory.latches, &cfg)? {
                None => {
                    let recovered = recovered
                        .ok_or_else(|| SinkError::Internal("a fixed point without HEAD".to_owned()))?;
                    return Ok(Session { recovered, local: baseline.local, steps });
                }
                Some(step) if iteration > MAX_STEPS => steps.push(step),
                Some(step) => {
                    tracing::info!(iteration, %step, "reconciling, then scanning again");
                    self.apply(&step, recovered, &baseline.local, &mut memory).await?;
                    steps.push(step);
                }
            }
        }
        let step = steps.last().map_or_else(String::new, Step::to_string);
        Err(SinkError::Internal(format!(
            "start-up did not converge in {MAX_STEPS} steps: {step} does not clear"
        )))
    }

    fn patience(&self) -> Patience {
        Patience::limited(self.patience_ms)
    }

    async fn scan(&self, memory: &mut Memory) -> Result<Scan, SinkError> {
        let local = self.checkpoints.load().await?;
        let known = memory.known.take();
        let found = recover::recover_from(&self.env, &self.root, self.depth, &self.patience(), known).await;
        let (bucket, recovered) = match found {
            Ok(None) => (Bucket::Empty, None),
            Ok(Some(recovered)) => (Bucket::Stream(Box::new(stream(&recovered, &local))), Some(recovered)),
            Err(SinkError::Integrity(Alarm::ManifestWithoutHead { key })) => (Bucket::Headless { key }, None),
            // A read without an answer says nothing about the bucket: no conclusion is drawn from it.
            Err(error @ (SinkError::StoreUnavailable { .. } | SinkError::Denied { .. })) => {
                return Err(error);
            }
            Err(error) => (Bucket::Unverified(error), None),
        };
        for warning in recovered.iter().flat_map(|recovered| &recovered.warnings) {
            tracing::warn!("{warning}");
        }
        memory.known.clone_from(&recovered);
        let lease = recovered.as_ref().and_then(|recovered| recovered.view.head.lease.as_ref());
        memory.lease =
            lease.map(|lease| (lease.lease_id, lease.granted_rev)).map(|grant| match memory.lease {
                Some((seen, since)) if seen == grant => (seen, since),
                _ => (grant, Instant::now()),
            });
        Ok(Scan { baseline: Baseline { bucket, local }, recovered })
    }

    /// One step: one atomic durable action.
    async fn apply(
        &self,
        step: &Step,
        recovered: Option<Recovered>,
        local: &Checkpoint,
        memory: &mut Memory,
    ) -> Result<(), SinkError> {
        let patience = self.patience();
        let acquisition = Acquisition {
            env: &self.env,
            root: &self.root,
            me: &self.me,
            metrics: &self.metrics,
            patience: &patience,
            depth: self.depth,
            quiet_ms: self.quiet_ms,
        };
        if matches!(step, Step::CreateStream) {
            let created = acquisition.create(&mut memory.latches.written).await?;
            memory.latches.acquired = created.map(|view| view.head.epoch);
            return Ok(());
        }
        let recovered =
            recovered.ok_or_else(|| SinkError::Internal(format!("{step} without a verified stream")))?;
        match step {
            Step::CreateStream => Ok(()),
            Step::AdoptStreamId { stream_id } => {
                let local = Checkpoint { stream_id: Some(*stream_id), ..local.clone() };
                self.checkpoints.save(local).await
            }
            Step::Acquire { .. } => {
                let view = acquisition.acquire(recovered, &mut memory.latches.written).await?;
                memory.latches.acquired = Some(view.head.epoch);
                Ok(())
            }
            Step::UpgradeMinor { to, .. } => {
                let (nonce, now_ms) = (self.env.ids.nonce(), self.env.clock.now_ms());
                let next = ownership::upgraded(&recovered.view.head, *to, nonce, now_ms);
                self.swap(&recovered.view, &next, memory).await
            }
            Step::EndLease { ttl_ms, .. } => {
                let since = memory.lease.map_or_else(Instant::now, |(_, since)| since);
                tokio::time::sleep_until(since + Duration::from_millis(*ttl_ms)).await;
                let (nonce, now_ms) = (self.env.ids.nonce(), self.env.clock.now_ms());
                let next = ownership::lease_ended(&recovered.view.head, nonce, now_ms);
                self.swap(&recovered.view, &next, memory).await
            }
            Step::RecordLegacyWindow { to, .. } => self.rebase(to, recovered.view, local, memory).await,
            Step::Fold { .. } | Step::AdoptAhead { .. } => {
                let last = recovered
                    .last
                    .ok_or_else(|| SinkError::Internal(format!("{step} without a committed entry")))?;
                self.checkpoints.save(acknowledged(local, last.position, last.seq)).await
            }
            Step::DropDeadHint { .. } => {
                self.checkpoints.save(Checkpoint { hint: None, ..local.clone() }).await
            }
        }
    }

    /// A swap by the owner, which nobody else may have made in vain.
    async fn swap(&self, base: &View, next: &Head, memory: &mut Memory) -> Result<(), SinkError> {
        memory.latches.written.push(next.write.nonce);
        let swap = Swap { env: &self.env, root: &self.root, metrics: &self.metrics, base, next };
        match swap.apply(self.patience()).await? {
            Swapped::Applied(_) => Ok(()),
            Swapped::Conflict(view) => Err(Alarm::UnknownWrite { rev: view.head.rev }.into()),
        }
    }

    /// Commits an entry without objects that carries the position on, with the hint that the fold will find.
    async fn rebase(
        &self,
        to: &PositionRecord,
        view: View,
        local: &Checkpoint,
        memory: &mut Memory,
    ) -> Result<(), SinkError> {
        let position = Position::try_from(to)
            .map_err(|error| SinkError::Configuration(format!("the local checkpoint: {error}")))?;
        let reason = "acknowledged in legacy_rolling, without the manifest".to_owned();
        let draft = Draft {
            position,
            kind: EntryKind::Rebase,
            reason: Some(reason),
            objects: Vec::new(),
            events: 0,
            min_ts_ms: None,
            max_ts_ms: None,
        };
        let mut publisher = Publisher {
            env: self.env.clone(),
            root: self.root.clone(),
            checkpoints: Arc::clone(&self.checkpoints),
            metrics: self.metrics.clone(),
            in_flight: InFlight::default(),
            view,
            local: local.clone(),
        };
        let held = publisher.in_flight.hold(Vec::new()).await;
        let batch = Uploaded { draft, adopted: Vec::new(), held };
        publisher.commit(vec![batch], &self.patience()).await?;
        memory.latches.written.push(publisher.view.head.write.nonce);
        Ok(())
    }
}

/// What of a verified stream a start is concerned with.
fn stream(recovered: &Recovered, local: &Checkpoint) -> Stream {
    let evidence = |seq: u64| {
        recovered.at(seq).map(|entry: &Committed| Evidence {
            nonce: entry.nonce(),
            digest: entry.digest(),
            batch_digest: entry.batch_digest(),
        })
    };
    Stream {
        head: recovered.view.head.clone(),
        watermark: recovered.position.clone(),
        at_hint: local.hint.as_ref().and_then(|hint| evidence(hint.seq)),
        at_acked: local.acked.as_ref().and_then(|acked| evidence(acked.seq)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Clock, Ids};
    use crate::local::MemoryCheckpoints;
    use crate::model::ids::StreamId;
    use crate::store::MemoryStore;

    #[derive(Debug)]
    struct Noon;

    impl Clock for Noon {
        fn now_ms(&self) -> u64 {
            43_200_000
        }
    }

    fn start() -> Start {
        let env = Env {
            store: Arc::new(MemoryStore::new(Arc::new(Noon))),
            clock: Arc::new(Noon),
            ids: Arc::new(Ids::seeded(1)),
        };
        Start {
            me: Identity {
                writer_id: env.ids.writer_id(),
                instance: "test".to_owned(),
                pipeline: "orders".to_owned(),
                prefix: String::new(),
            },
            env,
            root: PipelineRoot::new("", "orders", "jsonl").unwrap(),
            checkpoints: Arc::new(MemoryCheckpoints::default()),
            metrics: Metrics::new("orders", "s3"),
            depth: Depth::Objects,
            patience_ms: 1_000,
            quiet_ms: 0,
            upgrade: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_does_not_clear_is_named() {
        let never: Planner = |baseline, latches, cfg| match &baseline.bucket {
            Bucket::Empty => reconcile::reconcile(baseline, latches, cfg),
            _ => Ok(Some(Step::AdoptStreamId { stream_id: StreamId::from_bytes([3; 16]) })),
        };
        let error = start().run_with(never).await.unwrap_err();
        let id = "03".repeat(16);
        assert_eq!(
            error.to_string(),
            format!(
                "internal error: start-up did not converge in 12 steps: \
                 S2 adopt stream id: local=none head={id} does not clear"
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_becomes_a_stream_in_two_steps() {
        let session = start().run().await.unwrap();
        let names: Vec<_> = session.steps.iter().map(Step::name).collect();
        assert_eq!(names, ["S1 create stream", "S2 adopt stream id"]);
        let head = &session.recovered.view.head;
        assert_eq!((head.rev, head.epoch, head.seq), (1, 1, 0));
        assert_eq!(session.local.stream_id, Some(head.stream_id));
    }
}
