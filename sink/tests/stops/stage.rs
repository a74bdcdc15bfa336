//! A server that misbehaves on request, a sink on it, and enough in the bucket for every actor to have work.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use assay_server::{FaultGuard, Record, Server};
use bytes::Bytes;
use sinks::env::{Clock, Env, Ids};
use sinks::error::SinkError;
use sinks::local::MemoryCheckpoints;
use sinks::model::ids::{Digest, push_length_prefixed};
use sinks::model::key::PipelineRoot;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::run::patience::Patience;
use sinks::run::recover::{Depth, Recovered, recover};
use sinks::sink::{Ack, Batch, EncodedObject, Keeper, Settings, Sink};
use sinks::stop::Stopped;
use sinks::store::{Access, Condition, Outcome, S3Settings, S3Store};

use crate::actors::{Actor, Plain};

/// How old everything is that an actor finds.
const AGE_MS: i64 = 300_000;

/// How long a sink asks a store that refuses before it calls it unavailable.
const PATIENCE_MS: u64 = 3_000;

/// How long one answer may take: longer than anything here holds one back.
const ANSWER_MS: u64 = 90_000;

/// Longest wait for what comes by itself.
const SOON: Duration = Duration::from_secs(60);

/// What goes wrong.
#[derive(Clone, Copy)]
pub enum Fault {
    /// Rules, one a line; `ROOT` stands for the pipeline's root.
    Rules(&'static str),
    /// One that holds a request until it is lifted: another process takes over meanwhile.
    Takeover(&'static str),
    /// The store's clock jumps by so many milliseconds.
    Clock(i64),
    /// The entry of a batch of many tables is refused: its data are orphans, more than all the rest.
    Litter(&'static str),
    /// HEAD moves, and so many reads of it do not show it.
    Stale(usize),
}

/// Whoever took over, if somebody did.
pub type Rival = Option<Sink>;

/// A clock that runs with the store's, and so many milliseconds ahead of the machine's.
#[derive(Debug, Default)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this test is the harness, which owns the clock")]
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap().strict_add_signed(self.0.load(Ordering::Relaxed))
    }
}

pub struct Stage {
    server: Server,
    clock: Arc<Hands>,
    sink: Sink,
    lives: AtomicU64,
}

fn root() -> PipelineRoot {
    PipelineRoot::new("p", "orders", "jsonl").unwrap()
}

fn object(n: u64, table: &str) -> EncodedObject {
    let rows = [format!("{{\"n\":{n},\"table\":\"{table}\"}}")];
    let mut preimage = Vec::new();
    push_length_prefixed(&mut preimage, b"dfs3/rows/v1");
    rows.iter().for_each(|row| push_length_prefixed(&mut preimage, row.as_bytes()));
    preimage.extend_from_slice(&(rows.len() as u64).to_be_bytes());
    EncodedObject {
        namespace: "shop".to_owned(),
        table: table.to_owned(),
        bytes: Bytes::from(rows.iter().map(|row| format!("{row}\n")).collect::<String>()),
        rows: rows.len() as u64,
        format: "jsonl",
        compression: "none",
        extension: "jsonl",
        schema_fingerprint: Digest::of(b"schema"),
        row_seq_digest: Digest::of(&preimage),
    }
}

fn batch(n: u64, tables: u64) -> Batch {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
    let position = Position::parse(PositionType::PgLsn, lineage, &format!("0/{n:X}"), 0).unwrap();
    let objects = (0..tables).map(|table| object(n, &format!("t{table:02}"))).collect();
    Batch { position, objects, events: tables, min_ts_ms: None, max_ts_ms: None }
}

impl Stage {
    /// Everything an actor needs, [`AGE_MS`] old.
    pub async fn set(actor: Actor) -> Self {
        let server = Server::builder().bucket("data").start().await.unwrap();
        let clock = Arc::new(Hands::default());
        let env = env(&server, &clock, 0);
        let sink = start(env).await.unwrap();
        let stage = Self { server, clock, sink, lives: AtomicU64::new(1) };
        for n in 0..3 {
            let key = format!("p/orders/shop.t00/wm2-{}/{n}.jsonl", Digest::of(b"nowhere"));
            stage.put(&key, Bytes::from(vec![b'x', n])).await;
        }
        actor.prepare(&stage).await;
        stage.age();
        stage
    }

    /// Batches of two tables, each acknowledged.
    pub async fn publish(&self, batches: std::ops::RangeInclusive<u64>) {
        for n in batches {
            self.settled(batch(n, 2)).await.unwrap();
        }
    }

    /// What becomes of a batch, however long the machine takes for it.
    async fn settled(&self, batch: Batch) -> Result<Ack, SinkError> {
        let mut ticket = self.sink.submit(batch).await?;
        loop {
            match ticket.acknowledged().await {
                Err(SinkError::Backpressure { .. }) => {}
                settled => return settled,
            }
        }
    }

    pub async fn put(&self, key: &str, bytes: Bytes) {
        let answer = self.env().store.put(key, bytes, Condition::Absent, &[]).await;
        assert!(matches!(answer, Outcome::Done(_)), "{key}: {answer:?}");
    }

    /// Lets time go by, for the store as for everybody else.
    pub fn age(&self) {
        self.clock.0.fetch_add(AGE_MS, Ordering::Relaxed);
        self.skew_store(0);
    }

    /// Puts the store's clock so far ahead of everybody else's.
    fn skew_store(&self, skew_ms: i64) {
        self.server.set_clock_offset_ms(self.clock.0.load(Ordering::Relaxed) + skew_ms);
    }

    pub fn keeper(&self) -> Keeper {
        self.sink.keeper()
    }

    fn env(&self) -> Env {
        env(&self.server, &self.clock, self.lives.fetch_add(1, Ordering::Relaxed))
    }

    pub fn requests(&self) -> u64 {
        self.server.journal().last()
    }

    /// Deletes after request `from`.
    pub fn deletes(&self, from: u64) -> usize {
        let delete = |operation: Option<&str>| operation.is_some_and(|name| name.starts_with("Delete"));
        self.server.journal().count(|request| request.number > from && delete(request.operation))
    }

    /// One run of the actor under the fault, which must act.
    pub async fn run(&self, actor: Actor, fault: &Fault) -> (Result<(), Stopped>, Rival) {
        let (keeper, plain) = (self.keeper(), Plain::new());
        match fault {
            Fault::Rules(rules) => {
                let guards = self.faults(rules);
                let ended = actor.run(&keeper, &plain).await;
                self.server.assert_all_faults_fired().unwrap();
                drop(guards);
                (ended, None)
            }
            Fault::Takeover(rules) => {
                let holding = self.faults(rules);
                let (ended, rival) = tokio::join!(actor.run(&keeper, &plain), self.rival(holding));
                (ended, Some(rival))
            }
            Fault::Clock(skew_ms) => {
                self.skew_store(*skew_ms);
                let ended = actor.run(&keeper, &plain).await;
                self.skew_store(0);
                (ended, None)
            }
            Fault::Litter(rules) => {
                let guards = self.faults(rules);
                let lost = self.settled(batch(9, 60)).await;
                assert!(matches!(lost, Err(SinkError::Denied { .. })), "{lost:?}");
                drop(guards);
                self.age();
                let next = start(self.env()).await.unwrap();
                (actor.run(&next.keeper(), &plain).await, Some(next))
            }
            Fault::Stale(reads) => {
                let head = root().head();
                let guards =
                    self.faults(&format!("operation=GetObject key={head} first={reads} effect=stale"));
                actor.meanwhile(self).await;
                let ended = actor.run(&keeper, &plain).await;
                self.server.assert_all_faults_fired().unwrap();
                drop(guards);
                (ended, None)
            }
        }
    }

    /// Takes over once a request is held, and lets go of that as soon as HEAD has its new owner.
    async fn rival(&self, holding: Vec<FaultGuard>) -> Sink {
        let held = async {
            while self.server.faults().iter().all(|fault| fault.fired == 0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, held).await.expect("no request was held");
        let (journal, from, head) = (self.server.journal(), self.requests(), root().head());
        let taken = |request: &Record| {
            let what = (request.operation, request.key.as_deref(), request.status);
            what == (Some("PutObject"), Some(&*head), Some(200))
        };
        let lift = async {
            journal.wait_for(from, SOON, taken).await.unwrap();
            drop(holding);
        };
        let (rival, ()) = tokio::join!(start(self.env()), lift);
        rival.unwrap()
    }

    fn faults(&self, rules: &str) -> Vec<FaultGuard> {
        let rule = |line: &str| line.replace("ROOT", root().as_str()).parse().unwrap();
        rules.lines().map(|line| self.server.fault(rule(line)).unwrap()).collect()
    }

    /// The stage with an owner that can go on.
    pub async fn heal(self, rival: Rival) -> Self {
        let Self { server, clock, sink, lives } = self;
        let fresh = match rival {
            Some(rival) => Some(rival),
            None if sink.status().last_error.is_some() => {
                let env = env(&server, &clock, lives.fetch_add(1, Ordering::Relaxed));
                Some(start(env).await.unwrap())
            }
            None => None,
        };
        let sink = match fresh {
            Some(fresh) => {
                drop(sink);
                fresh
            }
            None => sink,
        };
        Self { server, clock, sink, lives }
    }

    pub async fn recovered(&self, depth: Depth) -> Recovered {
        let patience = Patience::limited(PATIENCE_MS);
        Box::pin(recover(&self.env(), &root(), depth, &patience)).await.unwrap().unwrap()
    }

    pub async fn end(self) {
        self.sink.close().await.unwrap();
        let within = tokio::time::timeout(SOON, self.server.stop());
        within.await.unwrap();
    }
}

fn env(server: &Server, clock: &Arc<Hands>, life: u64) -> Env {
    let settings = S3Settings {
        request_timeout_ms: ANSWER_MS,
        connect_timeout_ms: ANSWER_MS,
        ..S3Settings::new(Some(server.endpoint().to_owned()), server.region(), "data")
    };
    let access = Access::keys(server.access_key(), server.secret_key(), None);
    let store = Arc::new(S3Store::new(&settings, &access).unwrap());
    Env { store, clock: clock.clone(), ids: Arc::new(Ids::seeded(life + 1)) }
}

async fn start(env: Env) -> Result<Sink, SinkError> {
    let mut settings = Settings::new(root(), "orders", "p", "stage");
    settings.send_timeout_ms = PATIENCE_MS;
    Box::pin(Sink::start_on(env, settings, Arc::new(MemoryCheckpoints::default()))).await
}
