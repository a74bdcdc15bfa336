//! A job of two subtasks in one process, whose world can be stopped at any call: the bucket and the checkpoint
//! directory outlive it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sinks::env::{Clock, Ids};
use sinks::model::stage::files::{Snapshot, StageFile as _};
use sinks::model::stage::{JobRoot, TOKEN_METADATA};
use sinks::run::stage::restored;
use sinks::stage::mutant::{Chosen, Mutant};
use sinks::stage::{
    Completed, Coordinator, Directory as _, Ledger, MemoryDirectory, Opening, Options, Record, StageError,
    StagedSink, TwoPhaseSink,
};
use sinks::store::{MemoryStore, Outcome, RepeatedComplete, Store as _};

use crate::bent::{Bend, BentDirectory, BentStore, Calls, LateComplete};

/// Records of each partition.
pub const RECORDS: u64 = 4;

/// Records of a partition in one interval.
const STEP: u64 = 2;

/// What is durable, and what is on its way.
#[derive(Debug)]
pub struct World {
    pub store: Arc<MemoryStore>,
    pub directory: Arc<MemoryDirectory>,
    pub late: Mutex<Vec<LateComplete>>,
    pub mutant: Chosen,
    /// Subtasks, each with a partition of its own.
    pub subtasks: u32,
    lives: AtomicU64,
}

#[derive(Debug)]
pub struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        1_764_417_600_000
    }
}

/// How a life ended.
#[derive(Debug)]
pub struct Lived {
    /// Calls that it made.
    pub calls: u64,
    /// Nothing, if the world stopped.
    pub end: Option<Result<(), StageError>>,
}

pub fn root() -> JobRoot {
    JobRoot::new("out", "job", "jsonl").unwrap()
}

pub fn options(subtask: u32, mutant: Chosen) -> Options {
    Options { patience_ms: 20_000, mutant, ..Options::new(root(), "data", subtask) }
}

/// The record's line, the same for the same number, whoever asks.
pub fn line(subtask: u32, n: u64) -> String {
    format!("p{subtask}-{n}")
}

impl World {
    pub fn new(subtasks: u32, repeated: RepeatedComplete, mutant: Chosen) -> Arc<Self> {
        Arc::new(Self {
            subtasks,
            store: Arc::new(MemoryStore::new(Arc::new(Noon)).repeating(repeated)),
            directory: Arc::new(MemoryDirectory::default()),
            late: Mutex::default(),
            mutant,
            lives: AtomicU64::new(0),
        })
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.directory.clone(), root().job_id())
    }

    pub fn ids(&self) -> Arc<Ids> {
        Arc::new(Ids::seeded(1 + self.lives.fetch_add(1, Ordering::Relaxed)))
    }

    /// What a sink of this world opens with, on calls of its own.
    pub fn opening(self: &Arc<Self>, calls: &Arc<Calls>, subtask: u32) -> Opening {
        let directory = Arc::new(BentDirectory(Arc::clone(calls)));
        Opening {
            uploads: Arc::new(BentStore(Arc::clone(calls))),
            clock: Arc::new(Noon),
            ids: self.ids(),
            ledger: Ledger::new(directory, root().job_id()),
            options: options(subtask, self.mutant),
        }
    }

    /// A process that does what is left to do, to the end of the stream.
    pub fn live(self: &Arc<Self>, bends: &[(u64, Bend)]) -> Lived {
        let calls = Calls::new(self, bends);
        let end = paused(async {
            let job = job(self, &calls);
            tokio::select! {
                biased;
                () = calls.stop.notified() => None,
                end = job => Some(end),
            }
        });
        Lived { calls: calls.made.load(Ordering::Relaxed), end }
    }

    /// Every visible object, read: key, commit token and lines.
    pub fn visible(self: &Arc<Self>) -> Vec<(String, String, Vec<String>)> {
        let read = |key: String| {
            let Outcome::Done(object) = now(self.store.get(&key)) else { panic!("{key} is listed") };
            let token = object.metadata.into_iter().find(|(name, _)| name == TOKEN_METADATA);
            let text = String::from_utf8(object.bytes.to_vec()).unwrap();
            (key, token.expect("a commit token").1, text.lines().map(str::to_owned).collect())
        };
        self.store.keys().into_iter().map(read).collect()
    }

    /// What counts, latest last.
    fn completed(self: &Arc<Self>) -> Vec<Completed> {
        let (ledger, names) = (self.ledger(), now(self.directory.list("markers")).unwrap());
        let numbers = names.iter().map(|name| name.parse().unwrap());
        numbers.filter_map(|n| now(ledger.completed(n)).unwrap()).collect()
    }

    /// What a reader sees is of checkpoints that count, and is a prefix of each partition, each record once.
    pub fn check(self: &Arc<Self>, context: &str) -> BTreeMap<u32, u64> {
        let completed = self.completed();
        let staged: BTreeSet<String> = completed
            .iter()
            .flat_map(|one| &one.snapshot.handles)
            .map(|handle| format!("{} {}", handle.key, handle.commit_token))
            .collect();
        let mut seen: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (key, token, lines) in self.visible() {
            let name = format!("{key} {token}");
            assert!(staged.contains(&name), "{name} is visible without its marker: {context}");
            let subtask = root().parse(&key).unwrap_or_else(|| panic!("{key}: {context}")).subtask;
            seen.entry(subtask).or_default().extend(lines);
        }
        let count = |(subtask, lines): (u32, Vec<String>)| {
            let expected: Vec<_> = (1..=lines.len() as u64).map(|n| line(subtask, n)).collect();
            assert_eq!(lines, expected, "not the first records, each once: {context}");
            (subtask, lines.len() as u64)
        };
        seen.into_iter().map(count).collect()
    }

    /// A last, undisturbed life finishes; then everything is visible once, with its receipt.
    pub fn check_end(self: &Arc<Self>, context: &str) {
        let lived = self.live(&[]);
        assert!(matches!(lived.end, Some(Ok(()))), "{:?}: {context}", lived.end);
        self.check_complete(context);
        // Whatever is still on its way may arrive now.
        for complete in std::mem::take(&mut *self.late.lock()) {
            now(complete.land(&self.store));
        }
        self.check_complete(context);
    }

    pub fn check_complete(self: &Arc<Self>, context: &str) {
        let all = (0..self.subtasks).map(|subtask| (subtask, RECORDS)).collect();
        assert_eq!(self.check(context), all, "{context}");
        let ledger = self.ledger();
        for handle in self.completed().iter().flat_map(|one| &one.snapshot.handles) {
            let receipt = now(ledger.receipt(handle)).unwrap();
            let of = receipt.as_ref().map(|receipt| (receipt.commit_token, receipt.name()));
            let name = format!("receipts/{}", handle.name());
            assert_eq!(of, Some((handle.commit_token, name)), "{context}");
        }
        assert_eq!(now(ledger.receipts()).unwrap(), self.store.keys().len(), "{context}");
    }
}

/// What is ready at once: every call of the bucket and the directory in memory.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

/// Runs to the end in a runtime of its own, under a clock that never waits.
pub fn paused<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let hour = std::time::Duration::from_secs(3600);
        tokio::time::timeout(hour, future).await.expect("it neither ends nor fails")
    })
}

/// Coordinator and subtasks: take over, recover, then an interval, a snapshot, a marker and commits at a time.
async fn job(world: &Arc<World>, calls: &Arc<Calls>) -> Result<(), StageError> {
    let ledger = Ledger::new(Arc::new(BentDirectory(Arc::clone(calls))), root().job_id());
    let over = ledger.take_over(world.ids().nonce(), 0).await?;
    let mut sinks = Vec::new();
    for subtask in 0..world.subtasks {
        let handles = restored(&ledger, subtask).await?;
        sinks.push(StagedSink::recover(world.opening(calls, subtask), handles).await?);
    }
    let positions = over.restored.map(|restored| restored.snapshot.positions).unwrap_or_default();
    let at = |subtask: u32| positions.get(&subtask.to_string()).map_or(1, |next| next.parse().unwrap());
    let mut next: Vec<u64> = (0..world.subtasks).map(at).collect();
    let mut checkpoint = over.next_checkpoint;
    let left = |sink: &StagedSink| sink.open_records() > 0 || !sink.staged().is_empty();
    while next.iter().any(|next| *next <= RECORDS) || sinks.iter().any(left) {
        for (subtask, (sink, next)) in (0..).zip(sinks.iter_mut().zip(&mut next)) {
            let until = RECORDS.min(*next + STEP - 1);
            for n in *next..=until {
                let id = line(subtask, n);
                sink.write(Record { id: &id, line: id.as_bytes() })?;
            }
            *next = until + 1;
        }
        take(&over.coordinator, &mut sinks, &next, checkpoint, world.mutant).await?;
        checkpoint += 1;
    }
    for mut sink in sinks {
        sink.end_of_stream(60_000).await?;
        sink.close().await?;
    }
    Ok(())
}

/// One checkpoint: one that can't be staged is abandoned, and its records go into the next.
pub async fn take(
    coordinator: &Coordinator,
    sinks: &mut [StagedSink],
    next: &[u64],
    checkpoint: u64,
    mutant: Chosen,
) -> Result<(), StageError> {
    let mut handles = Vec::new();
    for sink in &mut *sinks {
        match sink.prepare(checkpoint).await {
            Ok(_) => handles.extend(sink.staged()),
            Err(StageError::Store(_)) => {
                coordinator.abandon(checkpoint, 0).await?;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    let positions = next.iter().enumerate().map(|(at, next)| (at.to_string(), next.to_string())).collect();
    let snapshot = Snapshot {
        job_id: root().job_id().to_owned(),
        checkpoint_id: checkpoint,
        epoch: 0,
        positions,
        handles,
        at_ms: 0,
    };
    if mutant.is(Mutant::CommitBeforeMarker) {
        for sink in &mut *sinks {
            sink.commit_completed().await?;
        }
    }
    coordinator.put_snapshot(snapshot).await?;
    coordinator.complete(checkpoint, 0).await?;
    for sink in sinks {
        sink.commit_completed().await?;
    }
    Ok(())
}
