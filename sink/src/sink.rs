//! The handle of a running sink: open, submit batches, wait for their acknowledgements, close.
//!
//! One task owns HEAD. Batches are accepted in order and their objects written at once, side by side; the task
//! takes what is written, in order, and commits it: one entry a batch, one swap of HEAD for as many batches as
//! are ready. A caller may give up waiting at any time; what it submitted goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::env::Env;
use crate::error::SinkError;
use crate::local::{Checkpoints, DiskCheckpoints, MemoryCheckpoints};
use crate::metrics::Metrics;
use crate::model::entry::{EntryKind, Layout, ObjectRecord};
use crate::model::ids::{Digest, StreamId};
use crate::model::key::{PipelineRoot, TableSegment};
use crate::model::position::{Position, TableOrder};
use crate::plan::accept::{Acceptance, Acceptor};
use crate::plan::commit::Draft;
use crate::plan::compact;
use crate::plan::ownership::Identity;
use crate::plan::reconcile::Step;
use crate::probe::{Clients, Found, Line, Probe, ProbeSettings, Report, Verdict};
use crate::run::in_flight::InFlight;
use crate::run::publish::{self, PlannedBatch, PlannedObject, Publisher};
use crate::run::recover::{Content, Depth};
use crate::run::start::{Session, Start};

mod keeper;
mod status;
mod task;

pub use keeper::Keeper;
use status::Shared;
pub use status::{ActorStatus, LeaseStatus, Status};
use task::{Committer, Item, Upload};

/// How a sink is set up. Made by [`Settings::new`], then changed field by field.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What every key begins with.
    pub root: PipelineRoot,
    /// The pipeline as it is configured; HEAD keeps it.
    pub pipeline: String,
    /// The prefix as it is configured; HEAD keeps it.
    pub prefix: String,
    /// What people call this process.
    pub instance: String,
    /// Where this host's record is kept; nowhere, if it keeps none.
    pub checkpoint: Option<PathBuf>,
    /// How long a caller waits for an acknowledgement before it is told of back-pressure, and how long each
    /// question to the store is asked during start-up, in milliseconds.
    pub send_timeout_ms: u64,
    /// Least time between two swaps of HEAD, in milliseconds: some providers limit writes of one key.
    pub min_commit_interval_ms: u64,
    /// Most batches that one swap commits.
    pub group_commit_max_batches: usize,
    /// Batches that wait or are being written, before `submit` waits.
    pub queue_batches: usize,
    /// Data objects that are being written at once.
    pub parallel_puts: usize,
    /// If another owner wrote within so many milliseconds, a start waits as long before it takes over.
    pub takeover_quiet_ms: u64,
    /// How far a start verifies what is committed.
    pub depth: Depth,
    /// Whether a HEAD of an older minor version is rewritten at the start.
    pub upgrade_head: bool,
    /// Whether deletes name the tag of what they delete: where the probe found that the store honours it.
    pub conditional_deletes: bool,
    /// How the tables of a snapshot follow each other.
    pub tables: TableOrder,
    /// What the sink counts.
    pub metrics: Metrics,
}

impl Settings {
    /// The least that must be said; the rest has defaults for one process on one host.
    #[must_use]
    pub fn new(root: PipelineRoot, pipeline: &str, prefix: &str, instance: &str) -> Self {
        Self {
            root,
            pipeline: pipeline.to_owned(),
            prefix: prefix.to_owned(),
            instance: instance.to_owned(),
            checkpoint: None,
            send_timeout_ms: 30_000,
            min_commit_interval_ms: 0,
            group_commit_max_batches: 16,
            queue_batches: 32,
            parallel_puts: 16,
            takeover_quiet_ms: 0,
            depth: Depth::Objects,
            upgrade_head: true,
            conditional_deletes: false,
            tables: TableOrder::any(),
            metrics: Metrics::new(pipeline, "s3"),
        }
    }
}

/// Encoded events up to a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Up to where the source is durable with it.
    pub position: Position,
    /// One object a table; none if no event of the batch is kept.
    pub objects: Vec<EncodedObject>,
    /// Events in it.
    pub events: u64,
    /// The earliest event, in milliseconds since 1970 by the source's clock.
    pub min_ts_ms: Option<u64>,
    /// The latest.
    pub max_ts_ms: Option<u64>,
}

/// One table's rows of a batch, encoded. The same rows must give the same bytes, or a replay leaves an orphan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedObject {
    /// The database or schema.
    pub namespace: String,
    /// The table.
    pub table: String,
    /// What is stored.
    pub bytes: Bytes,
    /// Rows in it.
    pub rows: u64,
    /// How rows are written: `jsonl`.
    pub format: &'static str,
    /// How bytes are compressed: `none`, `gzip`, `zstd`.
    pub compression: &'static str,
    /// The end of the key, without its dot.
    pub extension: &'static str,
    /// Of the columns.
    pub schema_fingerprint: Digest,
    /// Of the rows in order.
    pub row_seq_digest: Digest,
}

/// That a batch is durable, and everything before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The batch's position.
    pub position: Position,
    /// Its digest.
    pub digest: Digest,
    /// The entry that made it durable.
    pub seq: u64,
    /// The epoch under which this process acknowledges.
    pub epoch: u64,
}

/// A batch's acknowledgement to come.
#[derive(Debug)]
pub struct Ticket {
    answer: oneshot::Receiver<Result<Ack, SinkError>>,
    shared: Arc<Shared>,
    limit: Duration,
}

impl Ticket {
    /// Waits for the acknowledgement, for at most `send_timeout_ms`; dropping the wait, or the ticket, changes
    /// nothing for the batch.
    ///
    /// # Errors
    /// [`SinkError::Backpressure`] if it takes longer: the sink goes on, and one may wait again. Otherwise why
    /// the sink stopped: the batch may be committed all the same, and a later start finds out.
    pub async fn acknowledged(&mut self) -> Result<Ack, SinkError> {
        match tokio::time::timeout(self.limit, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.shared.stopped().unwrap_or(SinkError::Closed)),
            Err(_) => {
                let waited_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
                Err(SinkError::Backpressure { waited_ms })
            }
        }
    }
}

/// A running sink: the owner of its pipeline, until it is fenced, stopped or closed.
#[derive(Debug)]
pub struct Sink {
    env: Env,
    settings: Settings,
    stream_id: StreamId,
    resume: Option<Position>,
    reconciled: Vec<Step>,
    acceptor: Mutex<Acceptor>,
    queue: mpsc::Sender<Item>,
    permits: Arc<Semaphore>,
    shared: Arc<Shared>,
    keeper: Keeper,
    task: JoinHandle<()>,
}

impl Sink {
    /// Probes the bucket, and starts if it keeps its promises: before that nothing asks for HEAD.
    ///
    /// # Errors
    /// [`SinkError::ProbeRefused`] and [`SinkError::ProbeInconclusive`], then those of [`Sink::start`].
    pub async fn open(
        env: Env,
        settings: Settings,
        clients: &dyn Clients,
        probe: &ProbeSettings,
    ) -> Result<Self, SinkError> {
        let probe = Probe { env: &env, clients, root: &settings.root, settings: probe };
        let report = probe.run(std::future::pending()).await;
        report.count(&settings.metrics);
        match &report.verdict {
            Verdict::Ready => {
                let conditional_deletes = report.conditional_deletes();
                Self::start(env, Settings { conditional_deletes, ..settings }).await
            }
            Verdict::Refused(checks) => Err(SinkError::ProbeRefused(of_checks(&report, checks))),
            Verdict::Inconclusive(checks) => Err(SinkError::ProbeInconclusive(of_checks(&report, checks))),
        }
    }

    /// Reconciles what the bucket and this host's record hold, and becomes the owner. The capability probe must
    /// have passed before: nothing here asks whether the store keeps its promises.
    ///
    /// # Errors
    /// Whatever keeps a start from its fixed point: see [`Start::run`].
    pub async fn start(env: Env, settings: Settings) -> Result<Self, SinkError> {
        let checkpoints: Arc<dyn Checkpoints> = match settings.checkpoint.clone() {
            None => Arc::new(MemoryCheckpoints::default()),
            Some(path) => {
                let opened = tokio::task::spawn_blocking(move || DiskCheckpoints::open(&path)).await;
                Arc::new(opened.map_err(|error| SinkError::Internal(error.to_string()))??)
            }
        };
        Self::start_on(env, settings, checkpoints).await
    }

    /// The same on another keeper of this host's record.
    ///
    /// # Errors
    /// Those of [`Sink::start`].
    pub async fn start_on(
        env: Env,
        settings: Settings,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> Result<Self, SinkError> {
        let start = Start {
            env: env.clone(),
            root: settings.root.clone(),
            me: Identity {
                writer_id: env.ids.writer_id(),
                instance: settings.instance.clone(),
                pipeline: settings.pipeline.clone(),
                prefix: settings.prefix.clone(),
            },
            checkpoints: Arc::clone(&checkpoints),
            metrics: settings.metrics.clone(),
            depth: settings.depth,
            patience_ms: settings.send_timeout_ms,
            quiet_ms: settings.takeover_quiet_ms,
            upgrade: settings.upgrade_head,
        };
        match start.run().await {
            Ok(session) => Ok(Self::running(env, settings, checkpoints, session)),
            Err(error) => {
                status::count_stop(&settings.metrics, &error);
                Err(error)
            }
        }
    }

    fn running(env: Env, settings: Settings, checkpoints: Arc<dyn Checkpoints>, session: Session) -> Self {
        let Session { recovered, local, steps } = session;
        let mut acceptor = Acceptor::new(settings.tables.clone());
        for entry in &recovered.entries {
            if let Content::Entry(record) = &entry.content
                && let Ok(position) = record.position()
            {
                acceptor.observe(position, record.batch.batch_digest);
            }
        }
        if let (Some(position), Some(last)) = (&recovered.position, &recovered.last) {
            acceptor.observe(position.clone(), last.batch.batch_digest);
        }
        settings.metrics.set_compaction_lag(&compact::lag(&recovered.live()));
        let shared = Arc::new(Shared::new(settings.metrics.clone(), &recovered.view.head));
        let stream_id = recovered.view.head.stream_id;
        let in_flight = InFlight::default();
        let publisher = Publisher {
            env: env.clone(),
            root: settings.root.clone(),
            checkpoints,
            metrics: settings.metrics.clone(),
            in_flight: in_flight.clone(),
            view: recovered.view,
            local,
        };
        let (queue, items) = mpsc::channel(settings.queue_batches.max(1));
        let (changes, requests) = mpsc::channel(1);
        let head = &publisher.view.head;
        let keeper = Keeper {
            env: env.clone(),
            root: settings.root.clone(),
            metrics: settings.metrics.clone(),
            writer_id: head.owner.writer_id,
            epoch: head.epoch,
            patience_ms: settings.send_timeout_ms,
            conditional_deletes: settings.conditional_deletes,
            in_flight,
            changes,
            shared: Arc::clone(&shared),
            turn: Arc::default(),
        };
        let committer = Committer::new(publisher, items, requests, Arc::clone(&shared), &settings);
        let task = tokio::spawn(committer.run());
        let permits = Arc::new(Semaphore::new(settings.parallel_puts.max(1)));
        let (resume, acceptor) = (recovered.position, Mutex::new(acceptor));
        Self {
            env,
            settings,
            stream_id,
            resume,
            reconciled: steps,
            acceptor,
            queue,
            permits,
            shared,
            keeper,
            task,
        }
    }

    /// Where the source resumes: the position of the last committed entry when the sink started.
    #[must_use]
    pub fn resume(&self) -> Option<Position> {
        self.resume.clone()
    }

    /// What the start had to put right, in order.
    #[must_use]
    pub fn reconciled(&self) -> &[Step] {
        &self.reconciled
    }

    /// What actors of the background work with, until the sink is closed or stops.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// Takes a batch into the queue, and begins to write its objects. Waits while the queue is full: that is
    /// the back-pressure. Batches are accepted in the order in which these waits end.
    ///
    /// # Errors
    /// [`SinkError::PositionRegression`] for a position that is not ahead, [`SinkError::Key`] for a table whose
    /// name does not fit: the sink takes no more then, and acknowledges what it has. Otherwise why it stopped.
    pub async fn submit(&self, batch: Batch) -> Result<Ticket, SinkError> {
        let stopped = || self.shared.stopped().unwrap_or(SinkError::Closed);
        let slot = self.queue.reserve().await.map_err(|_| stopped())?;
        let (answered, answer) = oneshot::channel();
        // Accepting, starting the upload and queueing are one step, so that all three have one order.
        let mut acceptor = self.acceptor.lock();
        if let Some(error) = self.shared.refusing() {
            return Err(error);
        }
        let planned = match self.plan(&mut acceptor, batch) {
            Ok(planned) => planned,
            Err(error) => {
                self.shared.refuse(&error);
                return Err(error);
            }
        };
        let upload = planned.map(|batch| {
            let (position, events) = (batch.draft.position.clone(), batch.draft.events);
            let (env, permits) = (self.env.clone(), Arc::clone(&self.permits));
            let (in_flight, metrics) = (self.keeper.in_flight.clone(), self.settings.metrics.clone());
            let written = publish::upload(env, self.stream_id, batch, permits, in_flight, metrics);
            Upload { position, events, written: tokio::spawn(written) }
        });
        slot.send(Item { upload, answer: answered });
        drop(acceptor);
        self.shared.queued();
        let limit = Duration::from_millis(self.settings.send_timeout_ms);
        Ok(Ticket { answer, shared: Arc::clone(&self.shared), limit })
    }

    /// The batch with its keys, or nothing if it is the last one over again.
    fn plan(&self, acceptor: &mut Acceptor, batch: Batch) -> Result<Option<PlannedBatch>, SinkError> {
        let watermark = batch.position.digest();
        let mut objects = Vec::with_capacity(batch.objects.len());
        for object in batch.objects {
            objects.push(self.plan_object(watermark, object)?);
        }
        objects.sort_by(|a, b| a.record.key.as_bytes().cmp(b.record.key.as_bytes()));
        if let Some(pair) = objects.windows(2).find(|pair| pair[0].record.key == pair[1].record.key) {
            let key = &pair[0].record.key;
            return Err(SinkError::Internal(format!(
                "a batch has two objects for {key:?}, with the same rows"
            )));
        }
        let draft = Draft {
            position: batch.position.clone(),
            kind: EntryKind::Batch,
            reason: None,
            objects: Vec::new(),
            events: batch.events,
            min_ts_ms: batch.min_ts_ms,
            max_ts_ms: batch.max_ts_ms,
        };
        let planned = PlannedBatch { draft, objects };
        match acceptor.accept(&batch.position, planned.batch_digest())? {
            Acceptance::New => Ok(Some(planned)),
            Acceptance::Repeat => Ok(None),
        }
    }

    fn plan_object(&self, watermark: Digest, object: EncodedObject) -> Result<PlannedObject, SinkError> {
        let table = TableSegment::new(&object.namespace, &object.table)?;
        let sha256 = Digest::of(&object.bytes);
        let record = ObjectRecord {
            key: self.settings.root.data(&table, watermark, sha256, object.extension),
            namespace: object.namespace,
            table: object.table,
            layout: Layout::Wm2,
            sha256,
            size: object.bytes.len() as u64,
            rows: object.rows,
            format: object.format.to_owned(),
            compression: object.compression.to_owned(),
            schema_fingerprint: object.schema_fingerprint,
            row_seq_digest: object.row_seq_digest,
            etag: None,
        };
        Ok(PlannedObject { record, bytes: object.bytes })
    }

    /// Waits until the sink stops by itself, also while nothing is submitted, and says why: another process took the
    /// stream over, or something that must not be was found.
    pub async fn ended(&self) -> SinkError {
        self.shared.ended().await
    }

    /// The operational snapshot.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status().at(self.env.clock.now_ms())
    }

    /// Takes no more, and waits until everything that was submitted is committed; for at most
    /// `send_timeout_ms` without any progress.
    ///
    /// # Errors
    /// Why the sink stopped, or [`SinkError::Backpressure`] if it is still trying: what is left is abandoned,
    /// and a later start finds out what became of it.
    pub async fn close(self) -> Result<(), SinkError> {
        let Self { queue, mut task, shared, settings, .. } = self;
        drop(queue);
        let limit = Duration::from_millis(settings.send_timeout_ms);
        loop {
            let before = shared.status().seq;
            match tokio::time::timeout(limit, &mut task).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => return Err(SinkError::Internal(format!("the publisher stopped: {error}"))),
                Err(_) if shared.status().seq > before => {}
                Err(_) => {
                    task.abort();
                    return Err(SinkError::Backpressure { waited_ms: settings.send_timeout_ms });
                }
            }
        }
        match shared.stopped() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// What the probe found in these checks, each with what it was after.
fn of_checks(report: &Report, checks: &[u8]) -> String {
    let lines = report.lines.iter().filter(|line| checks.contains(&line.check));
    let found: Vec<String> = lines
        .map(|Line { check, name, found, .. }| match found {
            Found::Refused { expected, got } => {
                format!("check {check} ({name}): {expected} expected, got {got}")
            }
            Found::Inconclusive { reason } => format!("check {check} ({name}): {reason}"),
            _ => format!("check {check} ({name}) was not run"),
        })
        .collect();
    found.join("; ")
}
