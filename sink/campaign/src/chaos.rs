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
use crate::failure::{AWAY, Failure, NOT_PROVEN};
use crate::fault::Fault;
use crate::loss::Loss;
use crate::plan::Sink;
use crate::relay::Link;
use crate::rig::{Halt, Rig, Role};
use crate::seen;

/// How long each step of a recovery may take, in seconds: that the source grows, that a checkpoint counts, that the
/// next one does.
pub const RECOVERY_S: u64 = 60;

/// How long a worker may take to find that its store is away, in seconds: it probes first, and removes what it left.
const AWAY_S: u64 = 90;

/// How long an armed process may take to reach its point, in seconds.
const POINT_S: u64 = 120;

/// What a worker ends with that was fenced.
const FENCED: i32 = 6;

/// What came of a fault, a line of `faults.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    /// Which.
    #[serde(skip)]
    pub kind: Fault,
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
    /// From its end until then, in milliseconds, where it was healed.
    pub recovered_ms: Option<u64>,
    /// Of the coordinator's faults: whether every worker is, after the recovery, the process that it was.
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

impl Applied {
    /// Whether it happened, and the job worked after it.
    #[must_use]
    pub const fn shown(&self) -> bool {
        self.fired && self.healed
    }
}

/// How one fault went.
#[derive(Default)]
struct Fired {
    fired: bool,
    /// The workers' processes before it, where they must be the same after it.
    pids: Option<Vec<Option<u32>>>,
    note: String,
}

impl From<bool> for Fired {
    fn from(fired: bool) -> Self {
        Self { fired, ..Self::default() }
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
    async fn recovered(&mut self) -> Result<Option<u64>, Halt> {
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
    pub async fn latest(&self) -> Result<u64, Halt> {
        if self.rig.plan.sink == Sink::DurableV2 {
            return Ok(samples(&self.rig.plan.directory).last().map_or(0, |last| last.distinct));
        }
        let latest = self.rig.plan.ledger()?.latest().await?;
        Ok(latest.map_or(0, |latest| latest.marker.checkpoint_id))
    }

    /// Waits until more than `above` counts, with every process alive: of what [`Self::latest`] says.
    ///
    /// # Errors
    /// [`Halt`].
    pub async fn progress(&mut self, above: u64) -> Result<Option<u64>, Halt> {
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
    /// [`Halt`].
    pub async fn apply(&mut self, fault: Fault) -> Result<(), Halt> {
        self.rig.supervise()?;
        let before = self.latest().await?;
        let at_ms = clock::now_ms();
        let worker = self.chance.u32(..self.rig.plan.workers);
        let Fired { fired, pids, mut note } = self.inflict(fault, worker).await?;
        let ended = Instant::now();
        // Checkpoints count without any events.
        let grows = !fault.of_log() || self.grows().await;
        let after = if grows { self.recovered().await? } else { None };
        let recovered_ms = after.map(|_| ended.elapsed().as_millis() as u64);
        if after.is_none() {
            note.push_str(" nothing more became visible after it");
        }
        let applied = Applied {
            kind: fault,
            fault: fault.name(),
            mechanism: fault.mechanism(),
            at_ms,
            before,
            fired,
            healed: after.is_some(),
            after: after.unwrap_or(0),
            recovered_ms,
            pids_stable: pids.map(|pids| self.same(&pids)),
            note,
        };
        let visible = samples(&self.rig.plan.directory).last().map_or(0, |last| last.distinct);
        let produced = produced(&self.rig.plan).await.map_or(visible, |produced| produced.iter().sum());
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
        let left = left.map_or_else(String::new, |left| format!(", {} min left", left.div_ceil(60)));
        let note = match applied.note.trim() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
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

    async fn inflict(&mut self, fault: Fault, worker: u32) -> Result<Fired, Halt> {
        let victim = Role::Worker(worker);
        Ok(match fault {
            Fault::WorkerKill => {
                let killed = self.rig.kill(victim)?;
                pause(500).await;
                self.rig.start(victim, None)?;
                killed.into()
            }
            Fault::At(point) if point.name().starts_with("coordinator.") => {
                let pids = self.rig.worker_pids();
                let fired = self.at(point, Role::Coordinator).await?;
                self.rig.start(Role::Coordinator, None)?;
                Fired { fired, pids: Some(pids), ..Fired::default() }
            }
            Fault::At(point) => {
                // An orphan is deleted only where there is one: a commit that was cut short leaves it.
                let ready = point != Point::RecMidDelete || self.at(Point::PubAfterEntry, victim).await?;
                let fired = ready && self.at(point, victim).await?;
                self.rig.start(victim, None)?;
                fired.into()
            }
            Fault::StoreRefuses => self.restart(Role::Store, 3_000).await?.into(),
            Fault::StoreHangs => self.hang(Role::Store).await?.into(),
            Fault::StoreRefusesRecovery | Fault::StoreHangsRecovery => {
                self.away_in_recovery(victim, fault == Fault::StoreHangsRecovery).await?.into()
            }
            Fault::ForeignObject => {
                let fired = self.at(Point::SinkBeforeCommit, victim).await?;
                let written = self.write_foreign(worker).await?;
                self.rig.start(victim, None)?;
                (fired && written).into()
            }
            Fault::Partition => self.disturb(&[worker], Link::Cut).await.into(),
            Fault::Delay => {
                let all: Vec<u32> = (0..self.rig.plan.workers).collect();
                self.disturb(&all, Link::Slow(300)).await.into()
            }
            Fault::Loss => match lose(&self.rig.plan.ports()).await {
                Ok(dropped) => (dropped > 0).into(),
                Err(why) => Fired { note: why.to_string(), ..Fired::default() },
            },
            Fault::CoordinatorKill => {
                let pids = self.rig.worker_pids();
                let fired = self.rig.kill(Role::Coordinator)?;
                pause(1_000).await;
                self.rig.start(Role::Coordinator, None)?;
                Fired { fired, pids: Some(pids), ..Fired::default() }
            }
            Fault::LogRestart => self.restart(Role::Log, 1_000).await?.into(),
            Fault::LogHangs => self.hang(Role::Log).await?.into(),
            Fault::Zombie => self.zombie(worker).await?,
        })
    }

    /// Where a process that is killed or stopped listens.
    fn address(&self, role: Role) -> String {
        if role == Role::Store { self.rig.plan.store.clone() } else { self.rig.plan.log.clone() }
    }

    /// Kills a process and starts it again. Whether it lived, and its port refused meanwhile.
    async fn restart(&mut self, role: Role, away_ms: u64) -> Result<bool, Halt> {
        let killed = self.rig.kill(role)?;
        pause(away_ms).await;
        let refused = seen::refuses(&self.address(role)).await;
        self.rig.start(role, None)?;
        Ok(killed && refused)
    }

    /// Stops a process and continues it. Whether it was stopped all the time, and did not answer meanwhile.
    async fn hang(&mut self, role: Role) -> Result<bool, Halt> {
        let stopped = self.rig.freeze(role).await?;
        let silent = seen::silent(&self.address(role)).await;
        pause(3_000).await;
        Ok(self.rig.thaw(role)? && stopped && silent)
    }

    /// Cuts workers off their coordinator, or slows them. Whether each had something held back.
    async fn disturb(&self, workers: &[u32], link: Link) -> bool {
        let withheld = || workers.iter().map(|worker| self.rig.relay(*worker).withheld()).collect::<Vec<_>>();
        let before = withheld();
        workers.iter().for_each(|worker| self.rig.link(*worker, link));
        pause(5_000).await;
        workers.iter().for_each(|worker| self.rig.link(*worker, Link::Sound));
        before.iter().zip(withheld()).all(|(before, after)| after > *before)
    }

    /// A worker is stopped; another process takes its place and works; then the first goes on. A pipeline's must be
    /// fenced; that of a job finds that its coordinator has another, asks again and again, and is killed.
    async fn zombie(&mut self, worker: u32) -> Result<Fired, Halt> {
        let stopped = self.rig.freeze(Role::Worker(worker)).await?;
        self.rig.succeed(worker)?;
        let worked = self.recovered().await?.is_some();
        let connections = self.rig.relay(worker).connections();
        let asleep = self.rig.thaw(Role::Zombie)? && stopped;
        let fenced = match self.rig.wait(Role::Zombie, self.awake()).await {
            Some(status) if status.code() == Some(FENCED) => true,
            Some(status) => return self.rig.excuse(Role::Zombie, status).map(|()| false.into()),
            None => {
                let asked = self.rig.relay(worker).connections() > connections;
                let went_on = self.recovered().await?.is_some();
                self.rig.kill(Role::Zombie)? && self.rig.plan.sink == Sink::Staged && asked && went_on
            }
        };
        let note = match (worked, fenced) {
            (false, _) => "nothing became visible while it was stopped".to_owned(),
            (true, false) => "it was not kept out after it went on".to_owned(),
            (true, true) => String::new(),
        };
        Ok(Fired { fired: asleep && worked && fenced, note, pids: None })
    }

    /// How long a zombie is waited for: one that is to be fenced tries to commit, one of a job never ends by itself.
    const fn awake(&self) -> Duration {
        match self.rig.plan.sink {
            Sink::Staged => Duration::from_secs(3),
            Sink::DurableV2 => Duration::from_secs(RECOVERY_S),
        }
    }

    /// Whether the log, back again, takes more events.
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
    async fn at(&mut self, point: Point, role: Role) -> Result<bool, Halt> {
        let record: PathBuf =
            self.rig.plan.directory.join(format!("fired-{}-{}", self.applied.len(), point.name()));
        self.rig.kill(role)?;
        let until = Instant::now() + Duration::from_secs(POINT_S);
        loop {
            self.rig.start(role, Some((point, &record)))?;
            let Some(status) = self.rig.wait(role, until.saturating_duration_since(Instant::now())).await
            else {
                // Still armed: it must not go off during another fault.
                self.rig.kill(role)?;
                return Ok(false);
            };
            if Rig::fired(status, &record) {
                return Ok(true);
            }
            // What was cut short since the store was away is tried again.
            self.rig.excuse(role, status)?;
            self.rig.restarts += 1;
        }
    }

    /// Writes at the keys of all that a worker has staged and not committed.
    async fn write_foreign(&self, worker: u32) -> Result<bool, Halt> {
        let plan = &self.rig.plan;
        let (ledger, store) = (plan.ledger()?, plan.bucket().map_err(Failure::own)?);
        let Some(latest) = ledger.latest().await? else { return Ok(false) };
        let mut written = false;
        for handle in latest.snapshot.handles {
            let committed = ledger.receipt(&handle).await?.is_some();
            if committed || !plan.subtasks(worker).contains(&handle.subtask) {
                continue;
            }
            let line = Bytes::from_static(b"{\"of\":\"someone else\"}\n");
            written |= matches!(store.put(&handle.key, line, Condition::None, &[]).await, Outcome::Done(_));
        }
        Ok(written)
    }

    /// A worker dies with a marker durable and its upload not completed, or with its HEAD not swapped; then the store
    /// is killed, or stopped; then the worker starts, and can't finish what it must. Only then the store comes back.
    async fn away_in_recovery(&mut self, victim: Role, hangs: bool) -> Result<bool, Halt> {
        let point = match self.rig.plan.sink {
            Sink::Staged => Point::SinkBeforeCommit,
            Sink::DurableV2 => Point::PubBeforeCas,
        };
        if !self.at(point, victim).await? {
            self.rig.start(victim, None)?;
            return Ok(false);
        }
        let away = if hangs { self.rig.freeze(Role::Store).await? } else { self.rig.kill(Role::Store)? };
        self.rig.start(victim, None)?;
        let status = self.rig.wait(victim, Duration::from_secs(AWAY_S)).await;
        let back = if hangs {
            self.rig.thaw(Role::Store)?
        } else {
            self.rig.start(Role::Store, None)?;
            true
        };
        let Some(status) = status else { return Ok(false) };
        self.rig.excuse(victim, status)?;
        self.rig.start(victim, None)?;
        // The probe comes first where there is one.
        let needed =
            status.code().is_some_and(|code| [i32::from(NOT_PROVEN), i32::from(AWAY)].contains(&code));
        Ok(away && back && needed)
    }
}

/// Loses packets for a while; how many.
async fn lose(ports: &[u16]) -> std::io::Result<u64> {
    let loss = Loss::begin(ports).await?;
    pause(5_000).await;
    loss.end().await
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use sinks::model::stage::files::Snapshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::plan::Plan;
    use crate::rig::tests::scripted;

    /// One that happened and was healed.
    pub fn applied(kind: Fault) -> Applied {
        Applied {
            kind,
            fault: kind.name(),
            mechanism: kind.mechanism(),
            at_ms: 1_500,
            before: 0,
            fired: true,
            healed: true,
            after: 2,
            recovered_ms: Some(2_500),
            pids_stable: None,
            note: String::new(),
        }
    }

    /// A campaign whose processes are a script.
    async fn chaos(directory: &std::path::Path, script: &str) -> Chaos {
        let mut rig = scripted(directory, script).await;
        for role in [Role::Store, Role::Worker(0)] {
            rig.start(role, None).unwrap();
        }
        Chaos::new(rig)
    }

    #[tokio::test]
    async fn an_armed_process_ends_at_its_point_or_the_job_is_dead() {
        let point = Point::SinkBeforeCommit;
        let at = "if [ -n \"$ASSAY_PROTOCOL_POINT\" ]; then";
        for (script, wanted) in [
            ("echo fired > \"$ASSAY_PROTOCOL_POINT_FIRED\"; exit 86", Ok(true)),
            // Away at first: armed again.
            (
                "[ -e once ] || { touch once; exit 7; }; touch \"$ASSAY_PROTOCOL_POINT_FIRED\"; exit 86",
                Ok(true),
            ),
            ("exit 4", Err(Halt::Dead("worker-0 ended with exit status: 4".to_owned()))),
            ("exit 0", Err(Halt::Dead("worker-0 ended with exit status: 0".to_owned()))),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let script = format!("cd {}; {at} {script}; fi; exec sleep 60", dir.path().display());
            let mut chaos = chaos(dir.path(), &script).await;
            assert_eq!(chaos.at(point, Role::Worker(0)).await, wanted, "{script}");
        }
    }

    /// Nothing listens and nobody works: what can't be seen has not fired, though the signals were sent.
    #[tokio::test]
    async fn a_fault_without_evidence_has_not_fired() {
        let dir = tempfile::tempdir().unwrap();
        let mut chaos = chaos(dir.path(), "exec sleep 60").await;
        for (fault, fired) in [
            (Fault::StoreHangs, false),
            (Fault::Partition, false),
            (Fault::StoreRefuses, true),
            (Fault::WorkerKill, true),
        ] {
            assert_eq!(chaos.inflict(fault, 0).await.unwrap().fired, fired, "{}", fault.name());
        }
        let listener = std::net::TcpListener::bind(&chaos.rig.plan.store).unwrap();
        assert!(!chaos.inflict(Fault::StoreRefuses, 0).await.unwrap().fired, "somebody else listens");
        drop(listener);
    }

    /// A job that works whatever is done to its processes: a checkpoint counts every half second.
    fn works(plan: &Plan) -> JoinHandle<()> {
        let ledger = plan.ledger().unwrap();
        tokio::spawn(async move {
            let over = ledger.take_over(clock::ids().nonce(), 0).await.unwrap();
            for checkpoint_id in 1.. {
                let (positions, handles) = (BTreeMap::new(), Vec::new());
                let job_id = "campaign".to_owned();
                let snapshot = Snapshot { job_id, checkpoint_id, epoch: 0, positions, handles, at_ms: 0 };
                over.coordinator.put_snapshot(snapshot).await.unwrap();
                over.coordinator.complete(checkpoint_id, 0).await.unwrap();
                pause(500).await;
            }
        })
    }

    /// A worker that ends once the coordinator is back is another process after the recovery.
    #[tokio::test]
    async fn process_ids_are_compared_after_the_recovery() {
        let ends = "if [ $2 = worker ] && [ ! -e ended ]; then \
                    until [ -e back ]; do sleep 0.05; done; touch ended; exit 7; fi";
        for (worker, stable) in [(ends, false), (":", true)] {
            let dir = tempfile::tempdir().unwrap();
            let coordinator = "if [ $2 = coordinator ]; then [ -e first ] && touch back; touch first; fi";
            let script = format!("cd {}; {coordinator}; {worker}; exec sleep 60", dir.path().display());
            let mut chaos = chaos(dir.path(), &script).await;
            chaos.rig.start(Role::Coordinator, None).unwrap();
            while !dir.path().join("first").exists() {
                pause(10).await;
            }
            let works = works(&chaos.rig.plan);
            chaos.apply(Fault::CoordinatorKill).await.unwrap();
            let applied = &chaos.applied[0];
            assert!(applied.shown() && applied.recovered_ms.is_some(), "{applied:?}");
            assert_eq!(applied.pids_stable, Some(stable), "{applied:?}");
            assert_eq!(chaos.rig.restarts, u64::from(!stable));
            works.abort();
        }
    }

    /// A worker that goes on and never asks for its place was not seen to be kept out of it.
    #[tokio::test]
    async fn a_zombie_that_nobody_kept_out_has_not_fired() {
        let dir = tempfile::tempdir().unwrap();
        let mut chaos = chaos(dir.path(), "exec sleep 60").await;
        let works = works(&chaos.rig.plan);
        chaos.apply(Fault::Zombie).await.unwrap();
        let applied = &chaos.applied[0];
        assert!(!applied.fired && applied.healed, "{applied:?}");
        assert_eq!(applied.note, "it was not kept out after it went on");
        assert_eq!(chaos.rig.pid(Role::Zombie), None, "it is gone");
        works.abort();
    }
}
