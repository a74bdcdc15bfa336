//! The staged sink over a bucket and a checkpoint directory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::mutant::{Chosen, Mutant};
use super::{CommitOutcome, Handle, JobRoot, Ledger, Record, StageError, TwoPhaseSink};
use crate::env::{Clock, Env, Ids};
use crate::error::SinkError;
use crate::model::ids::{Digest, Nonce};
use crate::plan::stage::Step;
use crate::point::{self, Point};
use crate::run::stage::{Counts, Interval, Resolved, Staging, Turn};
use crate::store::MultipartStore;
use crate::store::multipart::{MAX_PARTS, MIN_PART_BYTES};

/// How often the end of a stream looks whether another checkpoint counts, in milliseconds.
const END_POLL_MS: u64 = 100;

/// How a subtask stages.
#[derive(Clone, Debug)]
pub struct Options {
    /// The job's keys.
    pub root: JobRoot,
    /// The bucket's name, for the handle.
    pub bucket: String,
    /// Which subtask of the job this is.
    pub subtask: u32,
    /// The engine's attempt at running it.
    pub attempt: u32,
    /// Bytes of a part: at least [`MIN_PART_BYTES`], and of at most [`MAX_PARTS`] each.
    pub part_bytes: usize,
    /// Most bytes of an interval, all of which is in memory.
    pub max_interval_bytes: u64,
    /// How long each question to the store is asked, in milliseconds.
    pub patience_ms: u64,
    /// How long an upload that is nowhere is looked for before it counts as lost, in milliseconds: longer than a
    /// Complete may take to assemble the object.
    pub settle_ms: u64,
    /// In how many rounds; at least 3.
    pub settle_rounds: u32,
    /// Whether the parts are listed before a handle is given.
    pub check_parts: bool,
    /// For tests: a mistake to make on purpose.
    pub mutant: Chosen,
}

impl Options {
    /// Parts of 8 MiB, intervals of 1 GiB at most, a minute for each question, and 15 seconds in 3 rounds until
    /// an upload counts as lost.
    #[must_use]
    pub fn new(root: JobRoot, bucket: &str, subtask: u32) -> Self {
        Self {
            root,
            bucket: bucket.to_owned(),
            subtask,
            attempt: 0,
            part_bytes: 8 << 20,
            max_interval_bytes: 1 << 30,
            patience_ms: 60_000,
            settle_ms: 15_000,
            settle_rounds: 3,
            check_parts: true,
            mutant: Chosen::default(),
        }
    }

    fn check(&self) -> Result<(), StageError> {
        let most = self.part_bytes as u64 * u64::from(MAX_PARTS);
        let wrong = if self.part_bytes < MIN_PART_BYTES {
            format!("part_bytes is {}, S3 takes parts from {MIN_PART_BYTES} on", self.part_bytes)
        } else if self.max_interval_bytes > most {
            format!("max_interval_bytes is {}, {MAX_PARTS} parts hold {most}", self.max_interval_bytes)
        } else if self.settle_rounds < 3 {
            format!("settle_rounds is {}, at least 3 are wanted", self.settle_rounds)
        } else {
            return Ok(());
        };
        Err(StageError::Store(SinkError::Configuration(wrong)))
    }
}

/// What a sink is opened with: [`TwoPhaseSink::recover`] makes one of it.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The bucket.
    pub uploads: Arc<dyn MultipartStore>,
    /// The clock of what is written down.
    pub clock: Arc<dyn Clock>,
    /// Identities; of each process its own.
    pub ids: Arc<Ids>,
    /// The checkpoint directory.
    pub ledger: Ledger,
    /// How it stages.
    pub options: Options,
}

/// Records of the open interval: whole parts, and what is not yet one.
#[derive(Debug, Default)]
struct Pane {
    whole: Vec<Bytes>,
    tail: BytesMut,
    bytes: u64,
    records: u64,
    first: String,
    last: String,
}

impl Pane {
    fn add(&mut self, record: Record<'_>, part_bytes: usize) {
        if self.records == 0 {
            record.id.clone_into(&mut self.first);
        }
        record.id.clone_into(&mut self.last);
        self.records += 1;
        for mut rest in [record.line, b"\n"] {
            self.bytes += rest.len() as u64;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(part_bytes - self.tail.len()));
                self.tail.extend_from_slice(now);
                rest = later;
                if self.tail.len() == part_bytes {
                    self.whole.push(self.tail.split().freeze());
                }
            }
        }
    }

    fn interval(&self) -> Interval {
        let mut parts = self.whole.clone();
        if !self.tail.is_empty() {
            parts.push(Bytes::copy_from_slice(&self.tail));
        }
        let (first_event, last_event) = (self.first.clone(), self.last.clone());
        Interval { parts, records: self.records, first_event, last_event }
    }
}

/// One subtask's sink. What it is between two calls is one of: open, with records in memory; and any number of
/// uploads that are staged and not released.
#[derive(Debug)]
pub struct StagedSink {
    staging: Staging,
    options: Options,
    run_id: Nonce,
    pane: Pane,
    staged: BTreeMap<(u64, u32), Handle>,
    next_checkpoint: u64,
    recovered: Vec<Step>,
    /// What the mutant shows in place of what is staged.
    before_barrier: Vec<Handle>,
}

impl StagedSink {
    /// This start's identity.
    #[must_use]
    pub const fn run_id(&self) -> Nonce {
        self.run_id
    }

    /// What it has seen since its start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.staging.counts.lock()
    }

    /// What its start put right, in order.
    #[must_use]
    pub fn recovered(&self) -> &[Step] {
        &self.recovered
    }

    /// Bytes of the open interval.
    #[must_use]
    pub const fn open_bytes(&self) -> u64 {
        self.pane.bytes
    }

    /// Records of the open interval.
    #[must_use]
    pub const fn open_records(&self) -> u64 {
        self.pane.records
    }

    /// Commits everything that is staged and counts, in order. What came of each; it stops at the first in doubt.
    ///
    /// # Errors
    /// As of [`TwoPhaseSink::commit`], [`StageError::Lost`] and [`StageError::Conflict`] among them; an upload that
    /// does not count yet is none.
    pub async fn commit_completed(&mut self) -> Result<Vec<CommitOutcome>, StageError> {
        let mut outcomes = Vec::new();
        for handle in self.staged.values().cloned().collect::<Vec<_>>() {
            let outcome = match self.commit(&handle).await {
                Err(StageError::NotCompleted { .. }) => break,
                outcome => outcome?,
            };
            match outcome {
                CommitOutcome::Committed(_) | CommitOutcome::AlreadyCommitted => outcomes.push(outcome),
                CommitOutcome::InDoubt { .. } => {
                    outcomes.push(outcome);
                    break;
                }
                CommitOutcome::Lost { reason } => return Err(StageError::lost(&handle, reason)),
                CommitOutcome::Conflict { reason } => return Err(StageError::conflict(&handle, reason)),
            }
        }
        Ok(outcomes)
    }

    fn forget(&mut self, token: Digest) {
        self.staged.retain(|_, handle| handle.commit_token != token);
    }
}

impl TwoPhaseSink for StagedSink {
    type Opening = Opening;

    async fn recover(opening: Opening, handles: Vec<Handle>) -> Result<Self, StageError> {
        let Opening { uploads, clock, ids, ledger, options } = opening;
        options.check()?;
        let run_id = ids.nonce();
        let store = Arc::<dyn MultipartStore>::clone(&uploads);
        let staging = Staging {
            env: Env { store, clock, ids },
            uploads,
            ledger,
            root: options.root.clone(),
            patience_ms: options.patience_ms,
            settle_ms: options.settle_ms,
            settle_rounds: options.settle_rounds,
            check_parts: options.check_parts,
            mutant: options.mutant,
            counts: Mutex::default(),
        };
        let (job, subtask) = (options.root.job_id(), options.subtask);
        tracing::info!(sink = "staged", job, subtask, %run_id, restored = handles.len(), "staged sink opens");
        let handles = if options.mutant.is(Mutant::RecoveryForgotten) { Vec::new() } else { handles };
        let recovery = staging.recover(handles).await?;
        tracing::info!(sink = "staged", job, subtask, steps = recovery.steps.len(), "staged sink is open");
        Ok(Self {
            staging,
            options,
            run_id,
            pane: Pane::default(),
            staged: BTreeMap::new(),
            next_checkpoint: recovery.next_checkpoint,
            recovered: recovery.steps,
            before_barrier: Vec::new(),
        })
    }

    fn write(&mut self, record: Record<'_>) -> Result<(), StageError> {
        let (bytes, limit) =
            (self.pane.bytes + record.line.len() as u64 + 1, self.options.max_interval_bytes);
        if bytes > limit {
            return Err(StageError::IntervalFull { bytes, limit });
        }
        self.pane.add(record, self.options.part_bytes);
        Ok(())
    }

    async fn prepare(&mut self, checkpoint: u64) -> Result<Option<Handle>, StageError> {
        if checkpoint < self.next_checkpoint {
            return Err(StageError::NumberInUse { checkpoint, next: self.next_checkpoint });
        }
        self.next_checkpoint = checkpoint + 1;
        self.before_barrier = self.staged.values().cloned().collect();
        if self.pane.records == 0 {
            return Ok(None);
        }
        let turn = Turn {
            run_id: self.run_id,
            subtask: self.options.subtask,
            attempt: self.options.attempt,
            bucket: self.options.bucket.clone(),
            checkpoint,
        };
        let handle = self.staging.prepare(self.pane.interval(), turn).await?;
        self.pane = Pane::default();
        self.staged.insert((checkpoint, handle.subtask), handle.clone());
        point::reach(Point::SinkAfterHandlePut);
        Ok(Some(handle))
    }

    fn staged(&self) -> Vec<Handle> {
        if self.options.mutant.is(Mutant::SnapshotBeforeBarrier) {
            return self.before_barrier.clone();
        }
        self.staged.values().cloned().collect()
    }

    async fn commit(&mut self, handle: &Handle) -> Result<CommitOutcome, StageError> {
        let token = handle.commit_token;
        if let Some(receipt) = self.staging.ledger.receipt(handle).await? {
            if receipt.commit_token != token {
                let reason = format!("its receipt is of commit token {}", receipt.commit_token);
                return Ok(CommitOutcome::Conflict { reason });
            }
            self.forget(token);
            return Ok(CommitOutcome::AlreadyCommitted);
        }
        let committable = self.staging.permit(handle.clone()).await?;
        Ok(match self.staging.complete(committable).await? {
            Resolved::Committed(committed) => {
                let proof = committed.proof();
                let released = self.staging.release(committed).await?;
                self.forget(released.handle().commit_token);
                CommitOutcome::Committed(proof)
            }
            Resolved::InDoubt(_, reason) => CommitOutcome::InDoubt { reason },
            Resolved::Lost(_, reason) => CommitOutcome::Lost { reason },
            Resolved::Conflict(_, reason) => CommitOutcome::Conflict { reason },
        })
    }

    async fn abort(&mut self, handle: &Handle) -> Result<(), StageError> {
        let orphan = self.staging.disown(handle.clone()).await?;
        self.staging.discard(orphan).await;
        self.forget(handle.commit_token);
        Ok(())
    }

    async fn end_of_stream(&mut self, limit_ms: u64) -> Result<(), StageError> {
        let started = Instant::now();
        loop {
            self.commit_completed().await?;
            if self.staged.is_empty() && self.pane.records == 0 {
                return Ok(());
            }
            if started.elapsed() >= Duration::from_millis(limit_ms) {
                let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Err(StageError::StillStaged { handles: self.staged.len(), waited_ms });
            }
            tokio::time::sleep(Duration::from_millis(END_POLL_MS)).await;
        }
    }

    async fn close(self) -> Result<(), StageError> {
        if self.options.mutant.is(Mutant::PreparedAbortedOnClose) {
            for handle in self.staged.values() {
                let _ = self.staging.uploads.abort(&handle.key, &handle.upload_id).await;
            }
        }
        let (records, staged) = (self.pane.records, self.staged.len());
        tracing::info!(sink = "staged", records, staged, "closed; what is staged is kept");
        Ok(())
    }
}
