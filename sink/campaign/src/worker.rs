//! A worker: reads its partitions, stages them at each barrier, commits what counts. When it loses its coordinator
//! it drops what it has in memory and restores, as the same process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sinks::run::stage::restored;
use sinks::stage::{Opening, Options, Record, StageError, StagedSink, TwoPhaseSink as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock;
use crate::coordinator::{ALIVE_MS, SILENCE_MS};
use crate::plan::Plan;
use crate::source::{self, Source};
use crate::wire::{FromWorker, ToWorker, halves};

/// Lines of a partition that are read at once.
const FETCH: u64 = 2_000;

/// How a session with a coordinator ended.
enum Ended {
    /// It is gone: restore, with another.
    Lost,
    /// The stream is finished.
    Stopped,
}

/// What a worker does next.
enum Happened {
    Heard(Option<ToWorker>),
    Tick,
}

/// A subtask: its sink, and what its partition gives next.
struct Subtask {
    sink: StagedSink,
    next: u64,
}

/// Works until the stream ended, or the process is killed.
///
/// # Errors
/// [`StageError`], whose exit code is the process's: 7 while the store is away.
pub async fn run(plan: &Plan, worker: u32, coordinator: &str) -> Result<(), StageError> {
    loop {
        match session(plan, worker, coordinator).await? {
            Ended::Stopped => return Ok(()),
            Ended::Lost => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Everything that is said and heard, beside what the worker does.
struct Coordinators {
    heard: mpsc::UnboundedReceiver<ToWorker>,
    said: mpsc::UnboundedSender<FromWorker>,
}

async fn connect(coordinator: &str, worker: u32) -> Option<Coordinators> {
    let connected = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(coordinator)).await;
    let (mut reading, mut writing) = halves(connected.ok()?.ok()?);
    writing.send(&FromWorker::Hello { worker }).await.ok()?;
    let (to, heard) = mpsc::unbounded_channel();
    let (said, mut from) = mpsc::unbounded_channel::<FromWorker>();
    tokio::spawn(async move {
        let hears = async {
            let silence = Duration::from_millis(SILENCE_MS);
            while let Ok(Some(said)) = tokio::time::timeout(silence, reading.next::<ToWorker>()).await {
                if !matches!(said, ToWorker::Alive) && to.send(said).is_err() {
                    return;
                }
            }
        };
        let speaks = async {
            let mut alive = tokio::time::interval(Duration::from_millis(ALIVE_MS));
            loop {
                let said = tokio::select! {
                    said = from.recv() => match said { Some(said) => said, None => return },
                    _ = alive.tick() => FromWorker::Alive,
                };
                if writing.send(&said).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = hears => {}, () = speaks => {} }
    });
    Some(Coordinators { heard, said })
}

async fn session(plan: &Plan, worker: u32, coordinator: &str) -> Result<Ended, StageError> {
    let Some(mut link) = connect(coordinator, worker).await else { return Ok(Ended::Lost) };
    match link.heard.recv().await {
        Some(ToWorker::Restore) => {}
        Some(ToWorker::Busy) => {
            tracing::info!(worker, "another process of this worker is connected");
            return Ok(Ended::Lost);
        }
        _ => return Ok(Ended::Lost),
    }
    let mut subtasks = restore(plan, worker).await?;
    let _ = link.said.send(FromWorker::Ready);
    let ended = work(plan, &mut link, &mut subtasks).await?;
    match ended {
        Ended::Stopped => stop(subtasks).await?,
        // What is staged stays: the next session restores it.
        Ended::Lost => close(subtasks).await?,
    }
    Ok(ended)
}

async fn work(
    plan: &Plan,
    link: &mut Coordinators,
    subtasks: &mut BTreeMap<u32, Subtask>,
) -> Result<Ended, StageError> {
    let mut source = source::open(plan).map_err(StageError::Internal)?;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let mut ticks = 0_u64;
    loop {
        let before = Instant::now();
        let happened = tokio::select! {
            biased;
            heard = link.heard.recv() => Happened::Heard(heard),
            _ = tick.tick() => Happened::Tick,
        };
        if before.elapsed() > Duration::from_millis(SILENCE_MS) {
            // It slept between two ticks: somebody else may work in its place by now.
            return Ok(Ended::Lost);
        }
        match happened {
            Happened::Heard(heard) => match heard {
                None | Some(ToWorker::Busy | ToWorker::Restore) => return Ok(Ended::Lost),
                Some(ToWorker::Alive) => {}
                Some(ToWorker::Checkpoint(checkpoint)) => {
                    let said = prepare(subtasks, checkpoint).await?;
                    let _ = link.said.send(said);
                }
                Some(ToWorker::Commit(_)) => commit(subtasks).await?,
                Some(ToWorker::Stop) => return Ok(Ended::Stopped),
            },
            Happened::Tick => {
                ticks += 1;
                // A commit that was in doubt, or whose word was lost.
                if ticks.is_multiple_of(40) {
                    commit(subtasks).await?;
                }
                read(subtasks, source.as_mut()).await?;
            }
        }
    }
}

/// The worker's subtasks, each from the latest checkpoint that counts.
async fn restore(plan: &Plan, worker: u32) -> Result<BTreeMap<u32, Subtask>, StageError> {
    let internal = |why: &dyn std::fmt::Display| StageError::Internal(why.to_string());
    let ledger = plan.ledger()?;
    let (uploads, ids) = (Arc::new(plan.bucket().map_err(|why| internal(&why))?), Arc::new(clock::ids()));
    let mutant = plan.chosen().map_err(|why| internal(&why))?;
    let positions = ledger.latest().await?.map(|latest| latest.snapshot.positions).unwrap_or_default();
    let mut subtasks = BTreeMap::new();
    for subtask in plan.subtasks(worker) {
        let root = plan.root().map_err(|why| internal(&why))?;
        let options = Options {
            patience_ms: plan.patience_ms,
            settle_ms: 3_000,
            mutant,
            ..Options::new(root, plan.bucket_name(), subtask)
        };
        let opening = Opening {
            uploads: uploads.clone(),
            clock: Arc::new(clock::Wall),
            ids: Arc::clone(&ids),
            ledger: ledger.clone(),
            options,
        };
        let sink = StagedSink::recover(opening, restored(&ledger, subtask).await?).await?;
        let next = positions.get(&subtask.to_string()).map_or(Ok(0), |next| next.parse());
        let next = next.map_err(|why| internal(&format!("position of {subtask}: {why}")))?;
        tracing::info!(subtask, next, steps = ?sink.recovered(), "restored");
        subtasks.insert(subtask, Subtask { sink, next });
    }
    Ok(subtasks)
}

async fn prepare(subtasks: &mut BTreeMap<u32, Subtask>, checkpoint: u64) -> Result<FromWorker, StageError> {
    let (mut positions, mut handles) = (BTreeMap::new(), Vec::new());
    for (partition, subtask) in subtasks {
        match subtask.sink.prepare(checkpoint).await {
            Ok(_) => {}
            Err(StageError::Store(why)) if why.exit_code() == 7 => {
                tracing::warn!(partition, checkpoint, %why, "not staged");
                return Ok(FromWorker::Failed { checkpoint });
            }
            Err(other) => return Err(other),
        }
        positions.insert(*partition, subtask.next);
        handles.extend(subtask.sink.staged());
    }
    Ok(FromWorker::Prepared { checkpoint, positions, handles })
}

async fn commit(subtasks: &mut BTreeMap<u32, Subtask>) -> Result<(), StageError> {
    for subtask in subtasks.values_mut() {
        let outcomes = subtask.sink.commit_completed().await?;
        if !outcomes.is_empty() {
            tracing::info!(?outcomes, "commits");
        }
    }
    Ok(())
}

async fn read(subtasks: &mut BTreeMap<u32, Subtask>, source: &mut dyn Source) -> Result<(), StageError> {
    for (partition, subtask) in subtasks {
        let lines = source.fetch(*partition, subtask.next, FETCH).await.map_err(StageError::Internal)?;
        for line in lines.unwrap_or_default() {
            let id = format!("p{partition}-{}", subtask.next);
            match subtask.sink.write(Record { id: &id, line: line.as_bytes() }) {
                Ok(()) => subtask.next += 1,
                // Until a checkpoint makes room.
                Err(StageError::IntervalFull { .. }) => break,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

async fn close(subtasks: BTreeMap<u32, Subtask>) -> Result<(), StageError> {
    for subtask in subtasks.into_values() {
        subtask.sink.close().await?;
    }
    Ok(())
}

async fn stop(subtasks: BTreeMap<u32, Subtask>) -> Result<(), StageError> {
    for (subtask, Subtask { mut sink, .. }) in subtasks {
        if sink.open_records() > 0 {
            return Err(StageError::Internal(format!(
                "subtask {subtask} was stopped with records in memory"
            )));
        }
        sink.end_of_stream(30_000).await?;
        tracing::info!(subtask, counts = ?sink.counts(), "finished");
        sink.close().await?;
    }
    Ok(())
}
