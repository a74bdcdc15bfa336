//! The faults, one function each: every one is seen to happen, healed, and followed by a checkpoint that counts.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use sinks::point::Point;
use sinks::store::{Condition, Outcome, Store as _};
use tokio::time::Instant;

use crate::campaign::{produced, samples};
use crate::clock;
use crate::loss::Loss;
use crate::plan::Sink;
use crate::relay::Link;
use crate::rig::{Dead, Rig, Role};

/// How long a fault may take to be followed by a checkpoint, in seconds.
const RECOVERY_S: u64 = 60;

/// How long an armed process may take to reach its point, in seconds.
const POINT_S: u64 = 40;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of a worker.
    WorkerKill,
    /// A process ends at a named point.
    At(Point),
    /// The store's process is killed and started again: connections are refused meanwhile.
    StoreRefuses,
    /// The store's process is stopped and continued: connections hang.
    StoreHangs,
    /// The store is away while the recovery of a lost worker needs it.
    StoreAwayInRecovery,
    /// A worker is cut off its coordinator.
    Partition,
    /// Everything between the workers and the coordinator is late.
    Delay,
    /// Packets between all processes are lost.
    Loss,
    /// SIGKILL of the coordinator; the workers stay.
    CoordinatorKill,
    /// SIGKILL of the log.
    LogRestart,
    /// The log's process is stopped and continued: what it was asked meanwhile it may do late.
    LogHangs,
    /// A worker is stopped for longer than it may be silent, then goes on.
    Zombie,
    /// While a worker is away, someone else writes at the keys that it is to commit. It can't be healed: no campaign
    /// may pass, and a sink that is worth anything stops.
    ForeignObject,
}

impl Fault {
    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::WorkerKill => "worker SIGKILL".to_owned(),
            Self::At(point) => format!("point {}", point.name()),
            Self::StoreRefuses => "store away, refusing".to_owned(),
            Self::StoreHangs => "store away, hanging".to_owned(),
            Self::StoreAwayInRecovery => "store away while a recovery needs it".to_owned(),
            Self::Partition => "partition from the coordinator".to_owned(),
            Self::Delay => "delay to the coordinator".to_owned(),
            Self::Loss => "loss of packets".to_owned(),
            Self::CoordinatorKill => "coordinator SIGKILL".to_owned(),
            Self::LogRestart => "log SIGKILL and restart".to_owned(),
            Self::LogHangs => "log away, hanging".to_owned(),
            Self::Zombie => "worker stopped and continued".to_owned(),
            Self::ForeignObject => "foreign objects at keys to be committed".to_owned(),
        }
    }

    /// The mechanism that this machine has for it.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::WorkerKill | Self::CoordinatorKill | Self::LogRestart | Self::StoreRefuses => {
                "kill -9 of the process"
            }
            Self::At(_) => "exit at the armed point, code 86 and a record",
            Self::StoreHangs | Self::LogHangs | Self::Zombie => "SIGSTOP, SIGCONT",
            Self::ForeignObject => "exit before the commit, then a PUT at each of its keys",
            Self::StoreAwayInRecovery => "exit before the commit, then kill -9 of the store",
            Self::Partition => "a relay that forwards nothing",
            Self::Delay => "a relay that forwards 300 ms later",
            Self::Loss => "a rule of the kernel's packet filter drops one packet in ten",
        }
    }

    /// Every fault that a gate must show, in order. The short form leaves out points that others are close to, and
    /// what takes long. Packets are lost where the machine can: [`Loss`].
    #[must_use]
    pub fn mandatory(sink: Sink, short: bool, lossy: bool) -> Vec<Self> {
        let mut all = Self::of_sink(sink, short);
        if lossy && !short {
            all.push(Self::Loss);
        }
        all
    }

    /// Whether it needs the log to be a process of the campaign.
    #[must_use]
    pub const fn of_log(self) -> bool {
        matches!(self, Self::LogRestart | Self::LogHangs)
    }

    fn of_sink(sink: Sink, short: bool) -> Vec<Self> {
        if sink == Sink::DurableV2 {
            return Self::of_pipelines(short);
        }
        let points = Point::ALL.into_iter().filter(|point| {
            let name = point.name();
            let close = [
                Point::SinkBeforePrepare,
                Point::SinkAfterCreateUpload,
                Point::SinkMidParts,
                Point::SinkAfterHandlePut,
                Point::CoordinatorBeforeCommitBroadcast,
                Point::SinkBeforeReceipt,
                Point::SinkAfterReceipt,
            ];
            (name.starts_with("sink.") || name.starts_with("coordinator."))
                && !(short && close.contains(point))
        });
        let mut all = vec![Self::WorkerKill];
        all.extend(points.map(Self::At));
        all.extend([Self::StoreAwayInRecovery, Self::StoreRefuses, Self::CoordinatorKill]);
        if !short {
            all.extend([Self::StoreHangs, Self::Partition, Self::Delay, Self::LogRestart, Self::LogHangs]);
            all.push(Self::Zombie);
        }
        all
    }

    /// The same where there is no coordinator.
    fn of_pipelines(short: bool) -> Vec<Self> {
        let close = [
            Point::PubAfterData,
            Point::PubBeforeCas,
            Point::PubBeforeAck,
            Point::AcqBeforeCas,
            Point::RollupAfterInventory,
            Point::RollupAfterRollup,
            Point::GcAfterMark,
            Point::GcMidDelete,
            Point::CompAfterOutput,
            Point::RecAfterListing,
            Point::RecMidDelete,
        ];
        let points = Point::ALL.into_iter().filter(|point| {
            let areas = ["pub.", "acq.", "rollup.", "gc.", "comp.", "rec."];
            areas.iter().any(|area| point.name().starts_with(area)) && !(short && close.contains(point))
        });
        let mut all = vec![Self::WorkerKill];
        all.extend(points.map(Self::At));
        all.push(Self::StoreAwayInRecovery);
        if !short {
            all.extend([
                Self::StoreRefuses,
                Self::StoreHangs,
                Self::LogRestart,
                Self::LogHangs,
                Self::Zombie,
            ]);
        }
        all
    }
}

/// What came of a fault, a line of `faults.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    /// Its name.
    pub fault: String,
    /// How.
    pub mechanism: &'static str,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// The latest checkpoint that counted before it; of `durable_v2`, how many events were visible.
    pub before: u64,
    /// Whether it was seen to happen.
    pub fired: bool,
    /// Whether two checkpoints counted after it was healed; of `durable_v2`, whether everything became visible
    /// that was produced until then.
    pub healed: bool,
    /// The second one, or how many events.
    pub after: u64,
    /// Of the coordinator's faults: whether every worker is the process that it was.
    pub pids_stable: Option<bool>,
    /// What went wrong, if anything did.
    pub note: String,
}

/// Applies faults to a rig.
#[derive(Debug)]
pub struct Chaos {
    /// The processes.
    pub rig: Rig,
    /// Everything that was applied.
    pub applied: Vec<Applied>,
    /// When the faults end, where time decides.
    pub until: Option<Instant>,
    chance: fastrand::Rng,
    started: Instant,
}

/// How one fault went: whether it fired, and whether the workers are the processes they were, where that is asked.
struct Fired {
    fired: bool,
    pids_stable: Option<bool>,
}

impl From<bool> for Fired {
    fn from(fired: bool) -> Self {
        Self { fired, pids_stable: None }
    }
}

impl Chaos {
    /// With chance of the plan's seed.
    #[must_use]
    pub fn new(rig: Rig) -> Self {
        let chance = fastrand::Rng::with_seed(rig.plan.seed);
        Self { rig, applied: Vec::new(), until: None, chance, started: Instant::now() }
    }

    /// That the job works again after a fault.
    async fn recovered(&mut self) -> Result<Option<u64>, Dead> {
        if self.rig.plan.sink == Sink::DurableV2 {
            let until = Instant::now() + Duration::from_secs(RECOVERY_S);
            while Instant::now() < until {
                if let Some(produced) = produced(&self.rig.plan).await {
                    return self.progress(produced.iter().sum::<u64>().saturating_sub(1)).await;
                }
                pause(100).await;
            }
            return Ok(None);
        }
        // What was in flight while it healed may count; the one after that shows that all of it works.
        let first = self.latest().await?;
        match self.progress(first).await? {
            Some(next) => self.progress(next).await,
            None => Ok(None),
        }
    }

    /// The latest checkpoint that counts, 0 before the first; of `durable_v2`, how many events are visible.
    ///
    /// # Errors
    /// Of the directory.
    pub async fn latest(&self) -> Result<u64, Dead> {
        if self.rig.plan.sink == Sink::DurableV2 {
            return Ok(samples(&self.rig.plan.directory).last().map_or(0, |last| last.distinct));
        }
        let ledger = self.rig.plan.ledger().map_err(|why| Dead(why.to_string()))?;
        let latest = ledger.latest().await.map_err(|why| Dead(why.to_string()))?;
        Ok(latest.map_or(0, |latest| latest.marker.checkpoint_id))
    }

    /// Waits until more than `above` counts, with every process alive: of what [`Self::latest`] says.
    ///
    /// # Errors
    /// [`Dead`].
    pub async fn progress(&mut self, above: u64) -> Result<Option<u64>, Dead> {
        let until = Instant::now() + Duration::from_secs(RECOVERY_S);
        while Instant::now() < until {
            self.rig.supervise()?;
            let latest = self.latest().await?;
            if latest > above {
                return Ok(Some(latest));
            }
            pause(100).await;
        }
        Ok(None)
    }

    /// Any fault of these, by chance.
    pub fn any(&mut self, faults: &[Fault]) -> Fault {
        faults[self.chance.usize(..faults.len())]
    }

    /// Applies a fault, heals it, and waits for a checkpoint that began after that.
    ///
    /// # Errors
    /// [`Dead`].
    pub async fn apply(&mut self, fault: Fault) -> Result<(), Dead> {
        let before = self.latest().await?;
        let at_ms = clock::now_ms();
        let worker = self.chance.u32(..self.rig.plan.workers);
        let (done, mut note) = match self.inflict(fault, worker).await {
            Ok(done) => (done, String::new()),
            Err(why) => (Fired::from(false), why.to_string()),
        };
        let after = self.recovered().await?;
        if after.is_none() {
            note.push_str(" nothing more became visible after it");
        }
        let applied = Applied {
            fault: fault.name(),
            mechanism: fault.mechanism(),
            at_ms,
            before,
            fired: done.fired,
            healed: after.is_some(),
            after: after.unwrap_or(0),
            pids_stable: done.pids_stable,
            note,
        };
        let visible = samples(&self.rig.plan.directory).last().map_or(0, |last| last.distinct);
        let produced = produced(&self.rig.plan).await.map_or(visible, |produced| produced.iter().sum());
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
        let left = left.map_or_else(String::new, |left| format!(", {} min left", left.div_ceil(60)));
        let note = if applied.note.is_empty() { String::new() } else { format!(" ({})", applied.note) };
        eprintln!(
            "{:>4}  {:>5} s  {}: fired {}, healed {}, {before} to {}, {visible} of {produced} events visible\
             {left}{note}",
            self.applied.len() + 1,
            self.started.elapsed().as_secs(),
            applied.fault,
            applied.fired,
            applied.healed,
            applied.after,
        );
        self.applied.push(applied);
        Ok(())
    }

    async fn inflict(&mut self, fault: Fault, worker: u32) -> std::io::Result<Fired> {
        let victim = Role::Worker(worker);
        Ok(match fault {
            Fault::WorkerKill => {
                self.rig.kill(victim)?;
                pause(500).await;
                self.rig.start(victim, None)?;
                true.into()
            }
            Fault::At(point) if point.name().starts_with("coordinator.") => {
                let pids = self.rig.worker_pids();
                let fired = self.at(point, Role::Coordinator).await?;
                self.rig.start(Role::Coordinator, None)?;
                Fired { fired, pids_stable: Some(self.same(&pids)) }
            }
            Fault::At(point) => {
                // An orphan is deleted only where there is one: a commit that was cut short leaves it.
                let ready = point != Point::RecMidDelete || self.at(Point::PubAfterEntry, victim).await?;
                let fired = ready && self.at(point, victim).await?;
                self.rig.start(victim, None)?;
                fired.into()
            }
            Fault::StoreRefuses => {
                self.rig.kill(Role::Store)?;
                pause(3_000).await;
                self.rig.start(Role::Store, None)?;
                true.into()
            }
            Fault::StoreHangs => {
                self.rig.freeze(Role::Store, true)?;
                pause(4_000).await;
                self.rig.freeze(Role::Store, false)?;
                true.into()
            }
            Fault::StoreAwayInRecovery => self.away_in_recovery(victim).await?.into(),
            Fault::ForeignObject => {
                let fired = self.at(Point::SinkBeforeCommit, victim).await?;
                let written = self.write_foreign(worker).await?;
                self.rig.start(victim, None)?;
                (fired && written).into()
            }
            Fault::Partition => {
                self.rig.link(worker, Link::Cut);
                pause(5_000).await;
                self.rig.link(worker, Link::Sound);
                true.into()
            }
            Fault::Delay => {
                (0..self.rig.plan.workers).for_each(|worker| self.rig.link(worker, Link::Slow(300)));
                pause(5_000).await;
                (0..self.rig.plan.workers).for_each(|worker| self.rig.link(worker, Link::Sound));
                true.into()
            }
            Fault::Loss => {
                let loss = Loss::begin(&self.rig.plan.ports()).await?;
                pause(5_000).await;
                (loss.end().await? > 0).into()
            }
            Fault::CoordinatorKill => {
                let pids = self.rig.worker_pids();
                self.rig.kill(Role::Coordinator)?;
                pause(1_000).await;
                self.rig.start(Role::Coordinator, None)?;
                Fired { fired: true, pids_stable: Some(self.same(&pids)) }
            }
            Fault::LogRestart => {
                self.rig.kill(Role::Log)?;
                pause(1_000).await;
                self.rig.start(Role::Log, None)?;
                self.grows().await.into()
            }
            Fault::LogHangs => {
                self.rig.freeze(Role::Log, true)?;
                pause(4_000).await;
                self.rig.freeze(Role::Log, false)?;
                self.grows().await.into()
            }
            Fault::Zombie => {
                self.rig.freeze(victim, true)?;
                pause(5_000).await;
                self.rig.freeze(victim, false)?;
                true.into()
            }
        })
    }

    /// Whether the log, back again, takes more events: checkpoints count without any.
    async fn grows(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(RECOVERY_S);
        let mut first = None;
        while Instant::now() < until {
            match (produced(&self.rig.plan).await, &first) {
                (Some(ends), None) => first = Some(ends),
                (Some(ends), Some(first)) if ends > *first => return true,
                _ => {}
            }
            pause(100).await;
        }
        false
    }

    fn same(&mut self, pids: &[Option<u32>]) -> bool {
        let alive =
            (0..self.rig.plan.workers).all(|index| matches!(self.rig.ended(Role::Worker(index)), Ok(None)));
        alive && self.rig.worker_pids() == pids
    }

    /// Kills a process, starts it armed, and sees it end at the point.
    async fn at(&mut self, point: Point, role: Role) -> std::io::Result<bool> {
        let record: PathBuf =
            self.rig.plan.directory.join(format!("fired-{}-{}", self.applied.len(), point.name()));
        self.rig.kill(role)?;
        self.rig.start(role, Some((point, &record)))?;
        let status = self.rig.wait(role, Duration::from_secs(POINT_S)).await;
        let fired = Rig::fired(status, &record);
        if status.is_none() {
            // Still armed: it must not go off during another fault.
            self.rig.kill(role)?;
        }
        Ok(fired)
    }

    /// Writes at the keys of all that a worker has staged and not committed.
    async fn write_foreign(&self, worker: u32) -> std::io::Result<bool> {
        let plan = &self.rig.plan;
        let (ledger, store) = (plan.ledger().map_err(io)?, plan.bucket().map_err(io)?);
        let Some(latest) = ledger.latest().await.map_err(io)? else { return Ok(false) };
        let mut written = false;
        for handle in latest.snapshot.handles {
            let committed = ledger.receipt(&handle).await.map_err(io)?.is_some();
            if committed || !plan.subtasks(worker).contains(&handle.subtask) {
                continue;
            }
            let line = Bytes::from_static(b"{\"of\":\"someone else\"}\n");
            written |= matches!(store.put(&handle.key, line, Condition::None, &[]).await, Outcome::Done(_));
        }
        Ok(written)
    }

    /// A worker dies with a marker durable and its upload not completed, or with its HEAD not swapped; then the store dies; then the worker
    /// starts, and can't finish what it must. Only then the store comes back.
    async fn away_in_recovery(&mut self, victim: Role) -> std::io::Result<bool> {
        let point = match self.rig.plan.sink {
            Sink::Staged => Point::SinkBeforeCommit,
            Sink::DurableV2 => Point::PubBeforeCas,
        };
        if !self.at(point, victim).await? {
            self.rig.start(victim, None)?;
            return Ok(false);
        }
        self.rig.kill(Role::Store)?;
        self.rig.start(victim, None)?;
        let status = self.rig.wait(victim, Duration::from_secs(RECOVERY_S)).await;
        let needed = matches!(status.and_then(|status| status.code()), Some(3 | 7));
        self.rig.start(Role::Store, None)?;
        if status.is_some() {
            self.rig.start(victim, None)?;
        }
        Ok(needed)
    }
}

fn io(why: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(why.to_string())
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gates_of_both_sinks_show_every_point() {
        let shown = [Sink::Staged, Sink::DurableV2].map(|sink| Fault::mandatory(sink, false, true)).concat();
        for point in Point::ALL {
            assert!(shown.contains(&Fault::At(point)), "{}", point.name());
        }
    }
}
