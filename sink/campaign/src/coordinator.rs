//! The coordinator: checkpoints every few seconds; a marker is durable before anybody hears of it.

use std::collections::BTreeMap;
use std::time::Duration;

use sinks::model::stage::Handle;
use sinks::model::stage::files::Snapshot;
use sinks::point::{self, Point};
use sinks::stage::mutant::{Chosen, Mutant};
use sinks::stage::{Coordinator, StageError, TakenOver};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock;
use crate::plan::Plan;
use crate::wire::{FromWorker, ToWorker, halves, listen};

/// A worker or coordinator that says nothing for so long is gone, in milliseconds.
pub const SILENCE_MS: u64 = 3_000;

/// How often a process says that it lives, in milliseconds.
pub const ALIVE_MS: u64 = 500;

/// A checkpoint that takes longer is abandoned, in milliseconds.
const CHECKPOINT_LIMIT_MS: u64 = 10_000;

/// What happened on a connection.
enum Event {
    Opened(u64, mpsc::UnboundedSender<ToWorker>),
    Said(u64, FromWorker),
    Closed(u64),
}

/// A worker that is connected.
struct Connected {
    connection: u64,
    to: mpsc::UnboundedSender<ToWorker>,
    ready: bool,
}

/// The checkpoint that is under way.
struct InFlight {
    checkpoint: u64,
    since: Instant,
    parts: BTreeMap<u32, (BTreeMap<u32, u64>, Vec<Handle>)>,
}

struct Job {
    plan: Plan,
    rights: Coordinator,
    mutant: Chosen,
    next: u64,
    opened: BTreeMap<u64, mpsc::UnboundedSender<ToWorker>>,
    workers: BTreeMap<u32, Connected>,
    in_flight: Option<InFlight>,
    last_end: Instant,
    stopping: bool,
}

/// Coordinates until the stream ended, or the process is killed.
///
/// # Errors
/// Of the directory or the port; fenced, where another took over.
pub async fn run(plan: &Plan) -> Result<(), StageError> {
    let internal = |why: &dyn std::fmt::Display| StageError::Internal(format!("coordinator: {why}"));
    let mutant = plan.chosen().map_err(|why| internal(&why))?;
    let over = plan.ledger()?.take_over(clock::ids().nonce(), clock::now_ms()).await?;
    let listener = listen(&plan.coordinator).await.map_err(|why| internal(&why))?;
    tracing::info!(epoch = over.coordinator.epoch(), next = over.next_checkpoint, "coordinates");
    let (events, mut happened) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for connection in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(serve(stream, connection, events.clone()));
        }
    });
    let mut job = Job::new(plan.clone(), over, mutant);
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            Some(event) = happened.recv() => job.take(event).await?,
            _ = tick.tick() => job.tick().await?,
        }
        if job.stopping && job.workers.is_empty() {
            return Ok(());
        }
    }
}

/// One connection: what is said on it, until it ends or is silent for too long.
async fn serve(stream: TcpStream, connection: u64, events: mpsc::UnboundedSender<Event>) {
    let (mut reading, mut writing) = halves(stream);
    let (to, mut from) = mpsc::unbounded_channel();
    let _ = events.send(Event::Opened(connection, to));
    let silence = Duration::from_millis(SILENCE_MS);
    let hears = async {
        while let Ok(Some(said)) = tokio::time::timeout(silence, reading.next()).await {
            let _ = events.send(Event::Said(connection, said));
        }
    };
    let speaks = async {
        let mut alive = tokio::time::interval(Duration::from_millis(ALIVE_MS));
        loop {
            let said = tokio::select! {
                said = from.recv() => match said { Some(said) => said, None => return },
                _ = alive.tick() => ToWorker::Alive,
            };
            if writing.send(&said).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = hears => {}, () = speaks => {} }
    let _ = events.send(Event::Closed(connection));
}

impl Job {
    fn new(plan: Plan, over: TakenOver, mutant: Chosen) -> Self {
        Self {
            plan,
            rights: over.coordinator,
            mutant,
            next: over.next_checkpoint,
            opened: BTreeMap::new(),
            workers: BTreeMap::new(),
            in_flight: None,
            last_end: Instant::now(),
            stopping: false,
        }
    }

    async fn take(&mut self, event: Event) -> Result<(), StageError> {
        match event {
            Event::Opened(connection, to) => {
                self.opened.insert(connection, to);
            }
            Event::Said(connection, FromWorker::Hello { worker }) => {
                let Some(to) = self.opened.remove(&connection) else { return Ok(()) };
                if self.workers.contains_key(&worker) {
                    let _ = to.send(ToWorker::Busy);
                    return Ok(());
                }
                // Nothing that its predecessor staged may count after it restored.
                self.abandon("a worker restores").await?;
                let _ = to.send(ToWorker::Restore);
                self.workers.insert(worker, Connected { connection, to, ready: false });
            }
            Event::Said(connection, said) => {
                let found = self.workers.iter_mut().find(|(_, known)| known.connection == connection);
                if let Some((worker, known)) = found {
                    let worker = *worker;
                    known.ready |= matches!(said, FromWorker::Ready);
                    self.part(worker, said).await?;
                }
            }
            Event::Closed(connection) => {
                self.opened.remove(&connection);
                let before = self.workers.len();
                self.workers.retain(|_, known| known.connection != connection);
                if self.workers.len() < before {
                    self.abandon("a worker is gone").await?;
                }
            }
        }
        Ok(())
    }

    async fn part(&mut self, worker: u32, said: FromWorker) -> Result<(), StageError> {
        let Some(in_flight) = &mut self.in_flight else { return Ok(()) };
        match said {
            FromWorker::Prepared { checkpoint, positions, handles } if checkpoint == in_flight.checkpoint => {
                in_flight.parts.insert(worker, (positions, handles));
                if in_flight.parts.len() < self.plan.workers as usize {
                    return Ok(());
                }
                match self.in_flight.take() {
                    Some(whole) => self.complete(whole).await,
                    None => Ok(()),
                }
            }
            FromWorker::Failed { checkpoint } if checkpoint == in_flight.checkpoint => {
                self.abandon("a part could not be staged").await
            }
            _ => Ok(()),
        }
    }

    /// Snapshot, marker, and only then a word to anybody.
    async fn complete(&mut self, whole: InFlight) -> Result<(), StageError> {
        let checkpoint = whole.checkpoint;
        if self.mutant.is(Mutant::CommitBeforeMarker) {
            self.tell(&ToWorker::Commit(checkpoint));
        }
        let (mut positions, mut handles) = (BTreeMap::new(), Vec::new());
        for (of, staged) in whole.parts.into_values() {
            positions
                .extend(of.into_iter().map(|(partition, next)| (partition.to_string(), next.to_string())));
            handles.extend(staged);
        }
        let at_ms = clock::now_ms();
        let job_id = "campaign".to_owned();
        let snapshot = Snapshot { job_id, checkpoint_id: checkpoint, epoch: 0, positions, handles, at_ms };
        if let Err(why) = self.rights.put_snapshot(snapshot).await {
            return self.failed(checkpoint, why).await;
        }
        point::reach(Point::CoordinatorBeforeCompletedMarker);
        if let Err(why) = self.rights.complete(checkpoint, clock::now_ms()).await {
            return self.failed(checkpoint, why).await;
        }
        point::reach(Point::CoordinatorAfterCompletedMarker);
        tracing::info!(checkpoint, "completed");
        point::reach(Point::CoordinatorBeforeCommitBroadcast);
        self.tell(&ToWorker::Commit(checkpoint));
        self.last_end = Instant::now();
        Ok(())
    }

    async fn abandon(&mut self, why: &str) -> Result<(), StageError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(()) };
        self.give_up(in_flight.checkpoint, why).await
    }

    /// What a predecessor that was frozen wrote late has the checkpoint's number: the checkpoint fails, and what was
    /// staged for it belongs to the next.
    async fn failed(&mut self, checkpoint: u64, why: StageError) -> Result<(), StageError> {
        match &why {
            StageError::NumberInUse { next, .. } => self.next = self.next.max(*next),
            StageError::Decided { .. } => {}
            _ => return Err(why),
        }
        self.give_up(checkpoint, &why.to_string()).await
    }

    async fn give_up(&mut self, checkpoint: u64, why: &str) -> Result<(), StageError> {
        tracing::warn!(checkpoint, why, "abandoned");
        match self.rights.abandon(checkpoint, clock::now_ms()).await {
            Ok(_) | Err(StageError::Decided { .. }) => {}
            Err(error) => return Err(error),
        }
        self.last_end = Instant::now();
        Ok(())
    }

    fn tell(&self, what: &ToWorker) {
        for worker in self.workers.values() {
            let _ = worker.to.send(what.clone());
        }
    }

    async fn tick(&mut self) -> Result<(), StageError> {
        if self
            .in_flight
            .as_ref()
            .is_some_and(|one| one.since.elapsed().as_millis() as u64 > CHECKPOINT_LIMIT_MS)
        {
            return self.abandon("it took too long").await;
        }
        if !self.stopping && self.plan.directory.join("stop-job").exists() {
            self.stopping = true;
            self.abandon("the stream ended").await?;
            self.tell(&ToWorker::Stop);
        }
        let all = self.workers.len() == self.plan.workers as usize
            && self.workers.values().all(|worker| worker.ready);
        let due = self.last_end.elapsed().as_millis() as u64 >= self.plan.checkpoint_ms;
        if all && due && self.in_flight.is_none() && !self.stopping {
            let checkpoint = self.next;
            self.next += 1;
            self.in_flight = Some(InFlight { checkpoint, since: Instant::now(), parts: BTreeMap::new() });
            self.tell(&ToWorker::Checkpoint(checkpoint));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sinks::model::ids::Nonce;
    use sinks::model::stage::files::{StageFile as _, Verdict};
    use sinks::stage::{Directory as _, Ledger, MemoryDirectory};

    use super::*;

    /// A predecessor that was frozen between its look at the claims and its snapshot wakes up and writes it.
    #[tokio::test]
    async fn a_snapshot_that_comes_late_costs_one_checkpoint_and_not_the_job() {
        let directory = Arc::new(MemoryDirectory::default());
        let ledger = Ledger::new(directory.clone(), "campaign");
        let nonce = |n| Nonce::from_bytes([n; 16]);
        let old = ledger.take_over(nonce(1), 0).await.unwrap();
        let over = ledger.take_over(nonce(2), 0).await.unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let mut job = Job::new(crate::plan::tests::plan(scratch.path()), over, Chosen::default());
        let late = Snapshot {
            job_id: "campaign".to_owned(),
            checkpoint_id: 1,
            epoch: old.coordinator.epoch(),
            positions: BTreeMap::new(),
            handles: Vec::new(),
            at_ms: 0,
        };
        directory.create(&late.name(), late.encode()).await.unwrap();
        for checkpoint in [1, 2] {
            assert_eq!(job.next, checkpoint);
            job.next += 1;
            job.complete(InFlight { checkpoint, since: Instant::now(), parts: BTreeMap::new() })
                .await
                .unwrap();
        }
        assert_eq!(ledger.marker(1).await.unwrap().unwrap().verdict, Verdict::Abandoned);
        assert_eq!(ledger.latest().await.unwrap().unwrap().snapshot.checkpoint_id, 2);
        // Decided already, by whoever: no end of the job either.
        job.in_flight = Some(InFlight { checkpoint: 2, since: Instant::now(), parts: BTreeMap::new() });
        job.abandon("it took too long").await.unwrap();
        assert_eq!(ledger.latest().await.unwrap().unwrap().snapshot.checkpoint_id, 2);
        // Another coordinator ends it.
        ledger.take_over(nonce(3), 0).await.unwrap();
        let fenced =
            job.complete(InFlight { checkpoint: 3, since: Instant::now(), parts: BTreeMap::new() }).await;
        assert!(matches!(fenced, Err(StageError::Fenced { mine: 2, found: 3 })), "{fenced:?}");
    }
}
