//! A campaign from its first process to its verdict.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use sinks::model::ids::Digest;
use tokio::time::Instant;

use crate::chaos::{Applied, Chaos};
use crate::coverage::{self, CLAIM_MINUTES, Count};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::judge::{Judgement, Sample};
use crate::loss::Loss;
use crate::plan::{Plan, Sink};
use crate::report;
use crate::rig::{Halt, Rig, Role};
use crate::source;

/// How long the job may take to work for the first time, in seconds.
const START_S: u64 = 120;

/// How long the drain may take, in seconds.
const DRAIN_S: u64 = 90;

/// How much of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// The short form of the mandatory faults.
    pub short: bool,
    /// Faults by chance after the mandatory ones, for so many minutes.
    pub minutes: u64,
    /// Someone else's objects first of all, so that it must fail.
    pub foreign: bool,
}

/// What a campaign says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Everything was shown, and nothing was found.
    Pass,
    /// Something was found, or the job died.
    Fail,
    /// Nothing was found, and not everything was shown.
    Inconclusive,
}

/// Everything that the report says.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is no pass.
    pub reasons: Vec<String>,
    /// What was agreed upon.
    pub plan: Plan,
    /// How much of a campaign.
    pub extent: Extent,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// The machine and the build, in words.
    pub rig: String,
    /// SHA-256 of the binary of every process.
    pub binary: Digest,
    /// What git calls the sources, where the campaign was started among them.
    pub revision: String,
    /// Seconds from the first process to the verdict.
    pub seconds: u64,
    /// What was seen of the job before the first fault.
    pub gate: Option<String>,
    /// The mandatory faults that are not made here, and why.
    pub left_out: Vec<LeftOut>,
    /// The faults.
    pub faults: Vec<Applied>,
    /// Of a soak: how often it shows what a soak of two hours must.
    pub counts: Vec<Count>,
    /// How often a worker was started again because the store was away.
    pub restarts: u64,
    /// The judge's samples.
    pub samples: u64,
    /// Those that failed.
    pub failed_samples: u64,
    /// The fresh process's word.
    pub judgement: Option<Judgement>,
}

impl Outcome {
    /// Whether the reasons or what the fresh judge found have these words.
    #[must_use]
    pub fn says(&self, words: &str) -> bool {
        let found = self.judgement.iter().flat_map(|judgement| &judgement.findings);
        self.reasons.iter().chain(found).any(|line| line.contains(words))
    }
}

/// A mandatory fault that this machine or this source can't have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub fault: String,
    /// Why.
    pub why: String,
}

/// What is known on the way.
#[derive(Debug, Default)]
struct Course {
    reasons: Vec<String>,
    gate: Option<String>,
    left_out: Vec<LeftOut>,
    counts: Vec<Count>,
}

/// Runs a campaign in `plan.directory`, which is empty; `began_ms` is now, in milliseconds since 1970.
///
/// # Errors
/// Our own faults: files, ports, processes that can't be started; a broker that does not answer.
pub async fn run(plan: Plan, extent: Extent, began_ms: u64) -> Result<Outcome, Failure> {
    // Of now: hours later the sources may be others.
    let (started, revision) = (Instant::now(), revision());
    let mut chaos = Chaos::new(Rig::new(plan.clone()).await?);
    let mut course = Course::default();
    let mut failed = false;
    match drive(&mut chaos, extent, &mut course).await {
        Ok(clean) => failed |= !clean,
        Err(Halt::Dead(why)) => {
            course.reasons.push(format!("dead job: {why}"));
            failed = true;
        }
        Err(Halt::NoInput(why)) => course.reasons.push(format!("no input: {why}")),
        Err(Halt::Failed(failure)) => return Err(failure),
    }
    // What was seen decides also of a job that died: the store is needed for that.
    if matches!(chaos.rig.ended(Role::Store), Ok(Some(_))) || chaos.rig.pid(Role::Store).is_none() {
        chaos.rig.start(Role::Store, None)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let Course { mut reasons, gate, left_out, counts } = course;
    let judgement = fresh(&chaos.rig, &mut reasons).await;
    let taken = samples(&plan.directory);
    let found = found(&taken);
    if found > 0 {
        reasons.push(format!("the judge that read along has {found} findings"));
    }
    failed |= found > 0 || judgement.as_ref().is_some_and(|judgement| !judgement.findings.is_empty());
    let outcome = Outcome {
        verdict: verdict(failed, reasons.is_empty() && judgement.is_some()),
        reasons,
        plan,
        extent,
        began_ms,
        rig: machine(),
        binary: chaos.rig.digest(),
        revision,
        seconds: started.elapsed().as_secs(),
        gate,
        left_out,
        faults: chaos.applied.clone(),
        counts,
        restarts: chaos.rig.restarts,
        samples: taken.len() as u64,
        failed_samples: taken.iter().filter(|sample| sample.error.is_some()).count() as u64,
        judgement,
    };
    report::write(&outcome)?;
    Ok(outcome)
}

const fn verdict(failed: bool, shown: bool) -> Verdict {
    match (failed, shown) {
        (true, _) => Verdict::Fail,
        (false, true) => Verdict::Pass,
        (false, false) => Verdict::Inconclusive,
    }
}

/// Start, gate, faults, drain. Whether nothing was found on the way.
async fn drive(chaos: &mut Chaos, extent: Extent, course: &mut Course) -> Result<bool, Halt> {
    start(&mut chaos.rig).await?;
    if !functional(chaos, course).await? {
        return Ok(true);
    }
    let mandatory = mandatory(&chaos.rig.plan, extent, &mut course.left_out).await;
    let clean = |chaos: &Chaos| found(&samples(&chaos.rig.plan.directory)) == 0;
    for fault in &mandatory {
        chaos.apply(*fault).await?;
        if !clean(chaos) {
            // No more faults: what is there is the evidence.
            break;
        }
    }
    if extent.minutes > 0 {
        if clean(chaos) && unshown(&chaos.applied, &[], 0).is_empty() {
            eprintln!("soak: faults by chance for {} minutes", extent.minutes);
            let until = Instant::now() + Duration::from_secs(60 * extent.minutes);
            chaos.until = Some(until);
            while Instant::now() < until && clean(chaos) {
                let fault = chaos.any(&mandatory);
                chaos.apply(fault).await?;
            }
        } else {
            course.reasons.push("no soak: not every mandatory fault was shown before it".to_owned());
        }
        course.counts = coverage::counts(chaos.rig.plan.sink, &chaos.applied);
    }
    course.reasons.extend(unshown(&chaos.applied, &course.counts, extent.minutes));
    drain(chaos, &mut course.reasons).await
}

/// What a campaign had to show and did not.
fn unshown(applied: &[Applied], counts: &[Count], minutes: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    for one in applied {
        if !one.shown() {
            let note = if one.note.is_empty() { String::new() } else { format!(": {}", one.note) };
            reasons.push(format!("{}: fired {}, healed {}{note}", one.fault, one.fired, one.healed));
        }
        if one.pids_stable == Some(false) {
            reasons.push(format!("{}: the workers are not the processes that they were", one.fault));
        }
    }
    if minutes >= CLAIM_MINUTES {
        let unmet = counts.iter().filter(|count| !count.met());
        reasons.extend(unmet.map(|count| {
            format!("{}: shown {} times, {} at least of such a soak", count.what, count.shown, count.asked)
        }));
    }
    reasons
}

/// Starts every process.
async fn start(rig: &mut Rig) -> Result<(), Halt> {
    rig.start(Role::Store, None)?;
    if rig.plan.starts_log() {
        rig.start(Role::Log, None)?;
        ready(rig).await?;
    }
    if rig.plan.sink == Sink::Staged {
        rig.start(Role::Coordinator, None)?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for index in 0..rig.plan.workers {
        rig.start(Role::Worker(index), None)?;
    }
    rig.start(Role::Generator, None)?;
    rig.start(Role::Oracle, None)?;
    Ok(())
}

/// Waits until the log that was started is ready for a campaign.
async fn ready(rig: &mut Rig) -> Result<(), Halt> {
    let plan = rig.plan.clone();
    let mut prepared = std::pin::pin!(source::prepare(&plan));
    loop {
        tokio::select! {
            ended = &mut prepared => return Ok(ended?),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        if let Some(status) = rig.ended(Role::Log)? {
            let command = plan.kafka.as_ref().and_then(|kafka| kafka.command.as_deref()).unwrap_or("log");
            return Err(Halt::Failed(Failure::away(format!(
                "the broker ended with {status} before it answered: {command:?} must serve at {}; log.log says why",
                plan.log
            ))));
        }
    }
}

/// That the job works before anything is broken: the source grows between two looks, checkpoints count, objects are
/// visible, and for each partition a worker has opened the sink that the campaign is of.
async fn functional(chaos: &mut Chaos, course: &mut Course) -> Result<bool, Halt> {
    let until = Instant::now() + Duration::from_secs(START_S);
    let mut first = None;
    loop {
        chaos.rig.supervise()?;
        let counted = chaos.latest().await?;
        let plan = &chaos.rig.plan;
        let now = produced(plan).await.map(|ends| ends.iter().sum::<u64>());
        first = first.or(now);
        let (before, now) = (first.unwrap_or(0), now.unwrap_or(0));
        let objects = samples(&plan.directory).last().map_or(0, |last| last.objects);
        let opened = opened(plan);
        let sink = plan.sink.name();
        let seen = format!(
            "the source went from {before} events to {now}, the job to {counted}, {objects} objects are visible, \
             {opened} of {} partitions have a worker whose log says that it opened sink {sink}",
            plan.partitions
        );
        if now > before && counted > 2 && objects > 0 && opened == plan.partitions {
            eprintln!("gate: {seen}");
            course.gate = Some(seen);
            return Ok(true);
        }
        if Instant::now() > until {
            course.reasons.push(format!("the job did not work before the first fault: {seen}"));
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Of how many partitions a worker's log says that it opened the plan's sink.
fn opened(plan: &Plan) -> u32 {
    let sink = format!("sink=\"{}\"", plan.sink.name());
    let opens = |log: &str, subtask: u32| {
        let of = format!("subtask={subtask}");
        log.lines().any(|line| {
            line.contains(" sink is open ")
                && [&sink, &of].iter().all(|part| line.split(' ').any(|word| word == **part))
        })
    };
    let of_worker = |worker: u32| {
        let log = std::fs::read_to_string(plan.directory.join(format!("worker-{worker}.log")));
        let log = log.unwrap_or_default();
        plan.subtasks(worker).into_iter().filter(|subtask| opens(&log, *subtask)).count() as u32
    };
    (0..plan.workers).map(of_worker).sum()
}

/// The mandatory faults that this machine and this source can have.
async fn mandatory(plan: &Plan, extent: Extent, left_out: &mut Vec<LeftOut>) -> Vec<Fault> {
    let mut all = Fault::mandatory(plan.sink, extent.short, plan.seed);
    if extent.foreign {
        all.insert(0, Fault::ForeignObject);
    }
    let mut without = |fault: Fault, why: &str| {
        eprintln!("gate: without {}: {why}", fault.name());
        left_out.push(LeftOut { fault: fault.name(), why: why.to_owned() });
    };
    if all.contains(&Fault::Loss)
        && let Err(why) = lossy().await
    {
        all.retain(|fault| *fault != Fault::Loss);
        without(Fault::Loss, &format!("this machine can't: {why}"));
    }
    if !plan.starts_log() {
        for fault in all.extract_if(.., |fault| fault.of_log()) {
            without(fault, "the brokers are not this campaign's, and are not disturbed");
        }
    }
    all
}

/// Whether packets can be lost here.
async fn lossy() -> std::io::Result<()> {
    Loss::begin(&[1]).await?.end().await.map(drop)
}

/// Stops the input, waits until everything is committed, and ends the job as a job ends.
async fn drain(chaos: &mut Chaos, reasons: &mut Vec<String>) -> Result<bool, Halt> {
    eprintln!("drain: the input stops, everything becomes visible");
    let stop = |chaos: &Chaos, what: &str| std::fs::write(chaos.rig.plan.directory.join(what), "");
    stop(chaos, "stop-generator")?;
    if chaos.rig.wait(Role::Generator, Duration::from_secs(20)).await.and_then(|end| end.code()) != Some(0) {
        reasons.push("the generator did not end".to_owned());
    }
    let until = Instant::now() + Duration::from_secs(DRAIN_S);
    loop {
        chaos.rig.supervise()?;
        if settled(&chaos.rig.plan).await? {
            break;
        }
        if Instant::now() > until {
            reasons.push(format!("not everything was committed within {DRAIN_S} s of the input's end"));
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stop(chaos, "stop-job")?;
    for index in 0..chaos.rig.plan.workers {
        let end = chaos.rig.wait(Role::Worker(index), Duration::from_secs(40)).await;
        if end.and_then(|end| end.code()) != Some(0) {
            reasons.push(format!("worker {index} did not finish: {end:?}"));
            return Ok(false);
        }
    }
    if chaos.rig.pid(Role::Coordinator).is_some() {
        let end = chaos.rig.wait(Role::Coordinator, Duration::from_secs(20)).await;
        if end.and_then(|end| end.code()) != Some(0) {
            reasons.push(format!("the coordinator did not finish: {end:?}"));
            return Ok(false);
        }
    }
    stop(chaos, "stop-oracle")?;
    let end = chaos.rig.wait(Role::Oracle, Duration::from_secs(40)).await.and_then(|end| end.code());
    if end != Some(0) {
        reasons.push(format!("the judge that read along ended with {end:?}"));
    }
    Ok(end == Some(0))
}

/// Whether the latest checkpoint that counts has everything that the log has, and every receipt; of `durable_v2`,
/// whether everything is visible.
async fn settled(plan: &Plan) -> Result<bool, Halt> {
    if plan.sink == Sink::DurableV2 {
        let visible = samples(&plan.directory).last().map_or(0, |last| last.distinct);
        return Ok(produced(plan).await.is_some_and(|produced| produced.iter().sum::<u64>() <= visible));
    }
    let ledger = plan.ledger()?;
    let Some(latest) = ledger.latest().await? else { return Ok(false) };
    let Some(produced) = produced(plan).await else { return Ok(false) };
    for (partition, end) in produced.iter().enumerate() {
        if latest.snapshot.positions.get(&partition.to_string()) != Some(&end.to_string()) {
            return Ok(false);
        }
    }
    for handle in &latest.snapshot.handles {
        if ledger.receipt(handle).await?.is_none() && plan.mutant.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One more than each partition's last event, as the log has it.
pub async fn produced(plan: &Plan) -> Option<Vec<u64>> {
    let mut source = source::open(plan).ok()?;
    let mut ends = Vec::new();
    for partition in 0..plan.partitions {
        ends.push(source.end(partition).await.ok()??);
    }
    Some(ends)
}

/// A fresh process reads everything once more.
async fn fresh(rig: &Rig, reasons: &mut Vec<String>) -> Option<Judgement> {
    let Some(produced) = produced(&rig.plan).await else {
        reasons.push("the log does not say what was produced".to_owned());
        return None;
    };
    let produced: Vec<String> = produced.iter().map(u64::to_string).collect();
    let mut command = Command::new(rig.binary());
    command.args(["role", "judge", "--plan"]).arg(rig.plan.directory.join("plan.json"));
    command.args(["--produced", &produced.join(",")]).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let Ok(Ok(output)) = output else {
        reasons.push("the fresh judge did not start".to_owned());
        return None;
    };
    let judgement: Option<Judgement> = serde_json::from_slice(&output.stdout).ok();
    match &judgement {
        Some(judgement) => {
            reasons.extend(judgement.findings.iter().chain(&judgement.inconclusive).take(20).cloned());
        }
        None => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            reasons.push(format!("the fresh judge ended with {}: {said}", output.status));
        }
    }
    judgement
}

fn revision() -> String {
    let described = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let described = described.ok().filter(|output| output.status.success());
    let text = described.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// The machine and the build, in words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("one machine of {cores} cores, Linux {}, every process of a {build} build", kernel.trim())
}

/// The samples of the judge that reads along.
#[must_use]
pub fn samples(directory: &Path) -> Vec<Sample> {
    let path: PathBuf = directory.join("oracle.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn found(samples: &[Sample]) -> u64 {
    samples.last().map_or(0, |last| last.findings)
}

#[cfg(test)]
mod tests {
    use sinks::point::Point;

    use super::*;
    use crate::chaos::tests::applied;
    use crate::plan::tests::plan;

    #[test]
    fn a_fault_that_did_not_fire_or_heal_is_inconclusive_and_a_finding_is_not() {
        let clean = [applied(Fault::WorkerKill), applied(Fault::CoordinatorKill)];
        assert_eq!(unshown(&clean, &[], 0), Vec::<String>::new());
        assert_eq!(verdict(false, true), Verdict::Pass);
        for (one, reason) in [
            (
                Applied { fired: false, note: "no right".to_owned(), ..applied(Fault::Loss) },
                "loss of packets: fired false, healed true: no right",
            ),
            (
                Applied { healed: false, ..applied(Fault::At(Point::SinkMidParts)) },
                "point sink.mid_parts: fired true, healed false",
            ),
            (
                Applied { pids_stable: Some(false), ..applied(Fault::CoordinatorKill) },
                "coordinator SIGKILL: the workers are not the processes that they were",
            ),
        ] {
            let reasons = unshown(&[clean[0].clone(), one], &[], 0);
            assert_eq!(reasons, [reason]);
            assert_eq!(verdict(false, reasons.is_empty()), Verdict::Inconclusive);
            assert_eq!(verdict(true, reasons.is_empty()), Verdict::Fail);
        }
    }

    #[test]
    fn a_soak_of_two_hours_must_show_every_count_and_a_shorter_one_claims_none() {
        let counts = |shown| vec![Count { what: "worker SIGKILL", asked: 6, shown }];
        assert_eq!(unshown(&[], &counts(5), CLAIM_MINUTES - 1), Vec::<String>::new());
        assert_eq!(unshown(&[], &counts(6), CLAIM_MINUTES), Vec::<String>::new());
        let unmet = ["worker SIGKILL: shown 5 times, 6 at least of such a soak"];
        assert_eq!(unshown(&[], &counts(5), CLAIM_MINUTES), unmet);
    }

    #[test]
    fn a_sink_is_open_where_a_log_says_so_of_its_partition() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan { partitions: 12, workers: 1, ..plan(dir.path()) };
        assert_eq!(opened(&plan), 0);
        let line = |sink: &str, subtask| {
            format!(
                "INFO x: {sink} sink is open sink=\"{sink}\" job=\"campaign\" subtask={subtask} steps=1\n"
            )
        };
        let log =
            line("staged", 11) + &line("staged", 11) + &line("durable_v2", 0) + "staged sink opens subtask=3";
        std::fs::write(dir.path().join("worker-0.log"), log).unwrap();
        assert_eq!(opened(&plan), 1, "neither partition 1 nor another sink's");
    }

    #[tokio::test]
    async fn what_a_source_can_not_have_is_left_out_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let kafka = Some(crate::plan::Kafka { topic: "events".to_owned(), command: None });
        let plan = Plan { kafka, ..plan(dir.path()) };
        let mut left_out = Vec::new();
        let extent = Extent { short: false, minutes: 0, foreign: false };
        let all = mandatory(&plan, extent, &mut left_out).await;
        for fault in [Fault::LogRestart, Fault::LogHangs] {
            assert!(!all.contains(&fault));
            assert!(left_out.iter().any(|one| one.fault == fault.name() && one.why.contains("brokers")));
        }
        let lossy = all.contains(&Fault::Loss);
        assert!(lossy != left_out.iter().any(|one| one.fault == Fault::Loss.name()), "{left_out:?}");
    }
}
