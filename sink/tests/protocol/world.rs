//! A world that can be stopped at any call: what is durable outlives the processes in it, one after another.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parking_lot::Mutex;
use sinks::env::{Clock, Env, Ids};
use sinks::error::SinkError;
use sinks::format::row_seq_digest;
use sinks::local::{Checkpoints, MemoryCheckpoints};
use sinks::model::frame::{self, Kind};
use sinks::model::head::{Descent, Head};
use sinks::model::ids::Digest;
use sinks::model::key::{ObjectName, PipelineRoot};
use sinks::model::mark::Mark;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::plan::reconcile::Step;
use sinks::run::patience::Patience;
use sinks::run::recover::reach::Reach;
use sinks::run::recover::{self, Depth, Recovered};
use sinks::sink::{Batch, EncodedObject, Settings, Sink};
use sinks::store::{Condition, ETag, MemoryStore, Outcome, Store};

use crate::calls::{Bend, BentCheckpoints, BentStore, Calls, LatePut};
use crate::stores::SlowStore;

/// What is durable, and what is on its way.
#[derive(Debug)]
pub struct World {
    pub store: Arc<MemoryStore>,
    pub checkpoints: Arc<MemoryCheckpoints>,
    pub acked: Mutex<BTreeSet<u64>>,
    pub late: Mutex<Vec<LatePut>>,
    /// The grace period that every delete must have respected, if only orphans may be deleted.
    pub orphans_only: Mutex<Option<u64>>,
    /// Every key that was deleted.
    pub deleted: Mutex<Vec<String>>,
    /// Every key whose write was acknowledged and forgotten.
    pub forgotten: Mutex<Vec<String>>,
    /// How many of the deletes named a tag.
    pub conditional: AtomicU64,
    /// What the store and all processes have for the time of day.
    pub clock: Arc<Hands>,
    lives: AtomicU64,
}

/// A clock that a test sets.
#[derive(Debug)]
pub struct Hands(AtomicU64);

impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Hands {
    /// Lets time go by.
    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

/// How a life ended.
#[derive(Debug)]
pub struct Lived {
    /// Calls that it made.
    pub calls: u64,
    /// What its start put right, if it got that far.
    pub steps: Vec<&'static str>,
    /// Nothing, if the world stopped.
    pub end: Option<Result<(), SinkError>>,
}

/// How a life submits.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Each batch once the one before it is acknowledged.
    OneByOne,
    /// All at once, for one swap.
    Together,
}

pub const BATCHES: u64 = 3;

pub fn root() -> PipelineRoot {
    PipelineRoot::new("p", "orders", "jsonl").unwrap()
}

pub fn position(n: u64) -> Position {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
    Position::parse(PositionType::PgLsn, lineage, &format!("0/{n:X}"), 0).unwrap()
}

/// The same batch for the same number, whoever asks.
pub fn batch(n: u64) -> Batch {
    let row = |table: &str| format!("{{\"n\":{n},\"table\":\"{table}\"}}");
    let object = |table: &str| EncodedObject {
        namespace: "public".to_owned(),
        table: table.to_owned(),
        bytes: Bytes::from(row(table) + "\n"),
        rows: 1,
        format: "jsonl",
        compression: "none",
        extension: "jsonl",
        schema_fingerprint: Digest::of(b"schema"),
        row_seq_digest: row_seq_digest([row(table).as_bytes()]),
    };
    let objects = vec![object("orders"), object("items")];
    Batch { position: position(n), objects, events: 2, min_ts_ms: Some(n), max_ts_ms: None }
}

pub fn settings() -> Settings {
    // Made once: thousands of lives share what they count.
    static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
        let mut settings = Settings::new(root(), "orders", "p", "test");
        // Longer than any outage here: what is told of back-pressure is tested elsewhere.
        settings.send_timeout_ms = 600_000;
        settings
    });
    SETTINGS.clone()
}

impl World {
    pub fn new() -> Arc<Self> {
        let clock = Arc::new(Hands(AtomicU64::new(1_764_417_600_000)));
        Arc::new(Self {
            store: Arc::new(MemoryStore::new(clock.clone())),
            checkpoints: Arc::new(MemoryCheckpoints::default()),
            acked: Mutex::default(),
            late: Mutex::default(),
            orphans_only: Mutex::default(),
            deleted: Mutex::default(),
            forgotten: Mutex::default(),
            conditional: AtomicU64::new(0),
            clock,
            lives: AtomicU64::new(0),
        })
    }

    pub fn env(self: &Arc<Self>, store: Arc<dyn Store>) -> Env {
        let seed = 1 + self.lives.fetch_add(1, Ordering::Relaxed);
        Env { store, clock: self.clock.clone(), ids: Arc::new(Ids::seeded(seed)) }
    }

    /// A write that is answered as a store does that keeps it.
    pub async fn forget(&self, key: &str, bytes: Bytes) -> Outcome<Option<ETag>> {
        self.forgotten.lock().push(key.to_owned());
        MemoryStore::new(self.clock.clone()).put(key, bytes, Condition::None, &[]).await
    }

    /// A write, after which HEAD must be a child of what it was, and nothing else may be replaced.
    pub async fn put(
        &self,
        key: &str,
        bytes: Bytes,
        condition: Condition,
        metadata: &[(String, String)],
    ) -> Outcome<Option<ETag>> {
        let before = self.store.get(key).await;
        let answer = self.store.put(key, bytes.clone(), condition.clone(), metadata).await;
        match (&answer, before) {
            (Outcome::Done(_), Outcome::Done(before)) if key == root().head() => {
                let (head, next) = (Head::decode(&before.bytes).unwrap(), Head::decode(&bytes).unwrap());
                assert_eq!((next.descent(&head), next.rev), (Descent::Descendant, head.rev + 1));
                assert_eq!(next.epoch - head.epoch, u64::from(next.owner != head.owner));
                assert!(next.seq >= head.seq && next.entry_floor >= head.entry_floor);
                let generation = |head: &Head| head.rollup.as_ref().map_or(0, |of| of.generation);
                let compactions = |head: &Head| head.compaction.as_ref().map_or(0, |of| of.count);
                assert!(generation(&next) >= generation(&head) && compactions(&next) >= compactions(&head));
                assert_eq!(next.chain == head.chain, next.seq == head.seq);
            }
            (Outcome::Done(_), before) => {
                assert_eq!((before, condition), (Outcome::Missing, Condition::Absent), "{key} was replaced");
            }
            _ => {}
        }
        answer
    }

    /// An entry goes only below HEAD's floor, after a durable mark listed it; of the manifest nothing else.
    async fn may_expire(&self, key: &str) {
        let Outcome::Done(head) = self.store.get(&root().head()).await else { panic!("no HEAD") };
        let head = Head::decode(&head.bytes).unwrap();
        if let Some(ObjectName::Entry { seq, .. }) = root().parse(key) {
            assert!(seq < head.entry_floor && seq < head.seq, "{key} is deleted above the floor");
            let mut marked = false;
            for mark in self.store.keys().into_iter().filter(|key| key.starts_with(&root().marks())) {
                let Outcome::Done(mark) = self.store.get(&mark).await else { panic!("{mark} is gone") };
                let (_, mark): (_, Mark) = frame::decode(Kind::Mark, &mark.bytes).unwrap();
                marked |= mark.entries.iter().any(|entry| entry.key == key) && seq <= mark.horizon;
            }
            assert!(marked, "{key} is deleted without a mark");
        } else {
            assert!(!key.contains("/_manifest/"), "{key} is kept for ever");
        }
    }

    /// A delete: of an orphan, if only these may be deleted, and under a lease that HEAD has; otherwise of what is
    /// marked below the floor.
    pub async fn delete(&self, key: &str, only: Option<ETag>) -> Outcome<()> {
        let grace_ms = *self.orphans_only.lock();
        if let (Some(grace_ms), Outcome::Done(meta)) = (grace_ms, self.store.head(key).await) {
            let ids = Arc::new(Ids::seeded(1));
            let env = Env { store: self.store.clone(), clock: self.clock.clone(), ids };
            let patience = Patience::limited(1_000);
            let found = recover::recover(&env, &root(), Depth::Manifest, &patience).await.unwrap().unwrap();
            let reach = Reach::of(&env, &root(), &patience, &found).await.unwrap();
            assert!(!reach.contains(key), "{key} is reached and was deleted");
            assert!(found.view.head.lease.is_some(), "{key} was deleted without a lease");
            let age_ms = self.clock.now_ms() - meta.last_modified_ms;
            assert!(age_ms > grace_ms, "{key} was deleted at an age of {age_ms} ms");
            let kept = ["rollups", "inventory", "marks", "compactions", "HEAD"];
            let folder = key.strip_prefix(&root().manifest()).and_then(|rest| rest.split('/').next());
            assert!(folder.is_none_or(|folder| !kept.contains(&folder)), "{key} was deleted");
        }
        if grace_ms.is_none() {
            self.may_expire(key).await;
        }
        self.deleted.lock().push(key.to_owned());
        self.conditional.fetch_add(u64::from(only.is_some()), Ordering::Relaxed);
        self.store.delete(key, only).await
    }

    /// A process that submits what is not yet committed, up to batch `last`, and closes.
    pub fn live(self: &Arc<Self>, bends: &[(u64, Bend)], pace: Pace, last: u64) -> Lived {
        self.live_on(bends, pace, last, self.checkpoints.clone())
    }

    /// The same on another keeper of the host's record.
    pub fn live_on(
        self: &Arc<Self>,
        bends: &[(u64, Bend)],
        pace: Pace,
        last: u64,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> Lived {
        let steps = Mutex::new(Vec::new());
        let (calls, end) = self.live_doing(bends, checkpoints, async |env, checkpoints| {
            session(self, env, checkpoints, pace, last, &steps).await
        });
        Lived { calls, steps: steps.into_inner(), end }
    }

    /// A process that does something else. Its calls, and how it ended, if the world did not stop.
    pub fn live_doing<T>(
        self: &Arc<Self>,
        bends: &[(u64, Bend)],
        checkpoints: Arc<dyn Checkpoints>,
        session: impl AsyncFnOnce(Env, Arc<dyn Checkpoints>) -> T,
    ) -> (u64, Option<T>) {
        let calls = Calls::new(self, bends);
        let env = self.env(Arc::new(BentStore(Arc::clone(&calls))));
        let checkpoints = Arc::new(BentCheckpoints { calls: Arc::clone(&calls), inner: checkpoints });
        let end = paused(async {
            tokio::select! {
                biased;
                () = calls.stop.notified() => None,
                end = session(env, checkpoints) => Some(end),
            }
        });
        (calls.made.load(Ordering::Relaxed), end)
    }

    /// A process that waits for each acknowledgement in portions of `patience_ms`. How often it was told of
    /// back-pressure.
    pub fn live_impatient(self: &Arc<Self>, bends: &[(u64, Bend)], patience_ms: u64) -> u64 {
        let calls = Calls::new(self, bends);
        let env = self.env(Arc::new(BentStore(Arc::clone(&calls))));
        let mut settings = settings();
        settings.send_timeout_ms = patience_ms;
        let mut told = 0;
        paused(async {
            let sink = Sink::start_on(env, settings, self.checkpoints.clone()).await.unwrap();
            for n in 1..=BATCHES {
                let mut ticket = sink.submit(batch(n)).await.unwrap();
                loop {
                    match ticket.acknowledged().await {
                        Ok(ack) => break acknowledge(self, n, ack.seq),
                        Err(SinkError::Backpressure { waited_ms }) if waited_ms == patience_ms => told += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            sink.close().await.unwrap();
        });
        told
    }

    /// A process that is frozen at one call until another one has lived its whole life. How both ended.
    pub fn frozen_while_another_lives(
        self: &Arc<Self>,
        at: u64,
    ) -> Option<(Result<(), SinkError>, Result<(), SinkError>)> {
        let calls = Calls::new(self, &[(at, Bend::Freeze)]);
        let env = self.env(Arc::new(BentStore(Arc::clone(&calls))));
        let checkpoints =
            Arc::new(BentCheckpoints { calls: Arc::clone(&calls), inner: self.checkpoints.clone() });
        let other_env = self.env(self.store.clone());
        // The other process is on another host, with a record of its own.
        let other_record = Arc::new(MemoryCheckpoints::default());
        let unused = Mutex::new(Vec::new());
        paused(async {
            let frozen = session(self, env, checkpoints, Pace::OneByOne, BATCHES, &unused);
            let other = async {
                calls.frozen.notified().await;
                let ended = session(self, other_env, other_record, Pace::OneByOne, BATCHES, &unused).await;
                calls.thaw.notify_one();
                ended
            };
            tokio::pin!(frozen, other);
            tokio::select! {
                _ = &mut frozen => None,
                other = &mut other => Some((frozen.await, other)),
            }
        })
    }

    /// Several processes at once, on a store whose calls each take their time, and that loses so many of a
    /// hundred answers to writes. How each ended.
    pub fn race(self: &Arc<Self>, writers: usize, lost: u8, seed: u64) -> Vec<Result<(), SinkError>> {
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        let unused = Mutex::new(Vec::new());
        paused(async {
            let mut running = Vec::new();
            for _ in 0..writers {
                let store = SlowStore::new(self.store.clone(), Arc::clone(&chance), lost);
                let (env, record) = (self.env(Arc::new(store)), Arc::new(MemoryCheckpoints::default()));
                running.push(Box::pin(session(self, env, record, Pace::OneByOne, BATCHES, &unused)));
            }
            let mut ended = Vec::new();
            let mut rest = running;
            while !rest.is_empty() {
                let next = std::future::poll_fn(|cx| {
                    let done =
                        rest.iter_mut().enumerate().find_map(|(at, life)| match life.as_mut().poll(cx) {
                            std::task::Poll::Ready(end) => Some((at, end)),
                            std::task::Poll::Pending => None,
                        });
                    done.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
                });
                let (at, end) = next.await;
                drop(rest.swap_remove(at));
                ended.push(end);
            }
            ended
        })
    }

    /// Everything committed, verified to the last byte.
    pub fn recovered(self: &Arc<Self>) -> Option<Recovered> {
        let env = self.env(self.store.clone());
        let patience = Patience::limited(1_000);
        paused(async { recover::recover(&env, &root(), Depth::Deep, &patience).await }).unwrap()
    }

    /// What is committed are the first batches, each once, and among them every acknowledged one.
    pub fn check(self: &Arc<Self>, context: &str) -> u64 {
        let entries = self.recovered().map(|recovered| recovered.entries).unwrap_or_default();
        let committed: Vec<_> = entries.iter().map(|entry| entry.digest()).collect();
        let expected: Vec<_> = (1..=committed.len() as u64).map(|n| position(n).digest()).collect();
        assert_eq!(committed, expected, "not the first batches in order, each once: {context}");
        let acked = self.acked.lock().last().copied().unwrap_or(0);
        assert!(acked <= committed.len() as u64, "batch {acked} was acknowledged and is lost: {context}");
        for (entry, n) in entries.iter().zip(1..) {
            let tables = batch(n).objects.len();
            assert_eq!(entry.objects().len(), tables, "batch {n}: {context}");
        }
        committed.len() as u64
    }

    /// A last, undisturbed life commits and acknowledges all, and nothing is in the bucket twice.
    pub fn check_end(self: &Arc<Self>, context: &str) {
        self.check_end_at(BATCHES, context);
    }

    /// The same for a source of `last` batches.
    pub fn check_end_at(self: &Arc<Self>, last: u64, context: &str) {
        let lived = self.live(&[], Pace::OneByOne, last);
        assert!(matches!(lived.end, Some(Ok(()))), "{:?}: {context}", lived.end);
        assert_eq!(self.check(context), last, "{context}");
        let data = self.store.keys().into_iter().filter(|key| !key.contains("/_manifest/")).count();
        assert_eq!(data as u64, 2 * last, "a batch's objects are there twice: {context}");
        let local = paused(async { self.checkpoints.load().await }).unwrap();
        assert_eq!(local.hint, None, "{context}");
        let acked = local.acked.map(|acked| (acked.position.digest, acked.seq));
        assert_eq!(acked, Some((position(last).digest(), last)), "{context}");
        // Whatever is still on its way may arrive now.
        let calls = Calls::new(self, &[]);
        self.late.lock().iter_mut().for_each(|(calls, ..)| *calls = 1);
        paused(calls.deliver());
        assert_eq!(self.check(context), last, "a late request changed what is committed: {context}");
    }
}

/// Runs to the end in a runtime of its own, whose tasks end with it, under a clock that never waits.
pub fn paused<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let hour = std::time::Duration::from_secs(3600);
        tokio::time::timeout(hour, future).await.expect("it neither ends nor fails")
    })
}

async fn session(
    world: &World,
    env: Env,
    checkpoints: Arc<dyn Checkpoints>,
    pace: Pace,
    last: u64,
    steps: &Mutex<Vec<&'static str>>,
) -> Result<(), SinkError> {
    let sink = Sink::start_on(env, settings(), checkpoints).await?;
    steps.lock().extend(sink.reconciled().iter().map(Step::name));
    let resume = sink.resume().map(|position| position.digest());
    let first = 1 + (1..=last).find(|&n| Some(position(n).digest()) == resume).unwrap_or(0);
    let mut tickets = Vec::new();
    for n in first..=last {
        let mut ticket = sink.submit(batch(n)).await?;
        match pace {
            Pace::OneByOne => acknowledge(world, n, ticket.acknowledged().await?.seq),
            Pace::Together => tickets.push((n, ticket)),
        }
    }
    for (n, mut ticket) in tickets {
        acknowledge(world, n, ticket.acknowledged().await?.seq);
    }
    sink.close().await
}

fn acknowledge(world: &World, n: u64, seq: u64) {
    assert_eq!(seq, n, "batch {n} is entry {seq}");
    world.acked.lock().insert(n);
}
