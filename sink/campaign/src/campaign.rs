//! A campaign from its first process to its verdict.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use sinks::model::ids::Digest;
use tokio::time::Instant;

use crate::chaos::{Applied, Chaos, Fault};
use crate::judge::{Judgement, Sample};
use crate::loss::Loss;
use crate::plan::{Plan, Sink};
use crate::report;
use crate::rig::{Dead, Rig, Role};
use crate::source;

/// How long the drain may take, in seconds.
const DRAIN_S: u64 = 90;

/// How much of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// SHA-256 of the binary of every process.
    pub binary: Digest,
    /// What git calls the sources, where the campaign was started among them.
    pub revision: String,
    /// Seconds from the first process to the verdict.
    pub seconds: u64,
    /// The faults.
    pub faults: Vec<Applied>,
    /// How often a worker was started again because the store was away.
    pub restarts: u64,
    /// The judge's samples.
    pub samples: u64,
    /// Those that failed.
    pub failed_samples: u64,
    /// The fresh process's word.
    pub judgement: Option<Judgement>,
}

/// Runs a campaign in `plan.directory`, which is empty.
///
/// # Errors
/// Our own faults: files, ports, processes that can't be started.
pub async fn run(plan: Plan, extent: Extent) -> Result<Outcome, String> {
    // Of now: hours later the sources may be others.
    let (started, revision) = (Instant::now(), revision());
    let rig = Rig::new(plan.clone()).await.map_err(|why| format!("the rig: {why}"))?;
    let binary = std::fs::read(rig.binary()).map_err(|why| format!("the binary: {why}"))?;
    let mut chaos = Chaos::new(rig);
    let mut reasons = Vec::new();
    let mut failed = false;
    match drive(&mut chaos, extent, &mut reasons).await {
        Ok(clean) => failed |= !clean,
        Err(Dead(why)) => {
            reasons.push(format!("dead job: {why}"));
            failed = true;
        }
    }
    // What was seen decides also of a job that died: the store is needed for that.
    if matches!(chaos.rig.ended(Role::Store), Ok(Some(_))) || chaos.rig.pid(Role::Store).is_none() {
        chaos.rig.start(Role::Store, None).map_err(|why| why.to_string())?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let judgement = fresh(&chaos.rig, &mut reasons).await;
    let taken = samples(&plan.directory);
    let found = found(&taken);
    if found > 0 {
        reasons.push(format!("the judge that read along has {found} findings"));
    }
    failed |= found > 0 || judgement.as_ref().is_some_and(|judgement| !judgement.findings.is_empty());
    let verdict = match (failed, reasons.is_empty() && judgement.is_some()) {
        (true, _) => Verdict::Fail,
        (false, true) => Verdict::Pass,
        (false, false) => Verdict::Inconclusive,
    };
    let outcome = Outcome {
        verdict,
        reasons,
        plan,
        binary: Digest::of(&binary),
        revision,
        seconds: started.elapsed().as_secs(),
        faults: chaos.applied.clone(),
        restarts: chaos.rig.restarts,
        samples: taken.len() as u64,
        failed_samples: taken.iter().filter(|sample| sample.error.is_some()).count() as u64,
        judgement,
    };
    report::write(&outcome).map_err(|why| format!("the report: {why}"))?;
    Ok(outcome)
}

/// Start, gate, faults, drain. Whether nothing was found on the way.
async fn drive(chaos: &mut Chaos, extent: Extent, reasons: &mut Vec<String>) -> Result<bool, Dead> {
    let died = |why: std::io::Error| Dead(why.to_string());
    chaos.rig.start(Role::Store, None).map_err(died)?;
    if chaos.rig.plan.starts_log() {
        chaos.rig.start(Role::Log, None).map_err(died)?;
        source::prepare(&chaos.rig.plan).await.map_err(Dead)?;
    }
    if chaos.rig.plan.sink == Sink::Staged {
        chaos.rig.start(Role::Coordinator, None).map_err(died)?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for index in 0..chaos.rig.plan.workers {
        chaos.rig.start(Role::Worker(index), None).map_err(died)?;
    }
    chaos.rig.start(Role::Generator, None).map_err(died)?;
    chaos.rig.start(Role::Oracle, None).map_err(died)?;
    eprintln!("gate: input flows, checkpoints count, objects are committed");
    if chaos.progress(2).await?.is_none() {
        reasons.push("nothing became visible before the first fault".to_owned());
        return Ok(true);
    }
    let lossy = match Loss::begin(&[1]).await {
        Ok(loss) => loss.end().await.is_ok(),
        Err(why) => {
            eprintln!("gate: packets are not lost on purpose, since this machine can't: {why}");
            false
        }
    };
    let mut mandatory = Fault::mandatory(chaos.rig.plan.sink, extent.short, lossy);
    if extent.foreign {
        mandatory.insert(0, Fault::ForeignObject);
    }
    if !chaos.rig.plan.starts_log() {
        eprintln!("gate: the brokers are not this campaign's, and are not disturbed");
        mandatory.retain(|fault| !fault.of_log());
    }
    for fault in &mandatory {
        chaos.apply(*fault).await?;
        if found(&samples(&chaos.rig.plan.directory)) > 0 {
            // No more faults: what is there is the evidence.
            break;
        }
    }
    let until = Instant::now() + Duration::from_secs(60 * extent.minutes);
    if extent.minutes > 0 {
        eprintln!("soak: faults by chance for {} minutes", extent.minutes);
        chaos.until = Some(until);
    }
    while Instant::now() < until && found(&samples(&chaos.rig.plan.directory)) == 0 {
        let fault = chaos.any(&mandatory);
        chaos.apply(fault).await?;
    }
    for applied in &chaos.applied {
        if !(applied.fired && applied.healed) {
            reasons.push(format!("{}: fired {}, healed {}", applied.fault, applied.fired, applied.healed));
        }
        if applied.pids_stable == Some(false) {
            reasons.push(format!("{}: the workers are not the processes that they were", applied.fault));
        }
    }
    drain(chaos, reasons).await
}

/// Stops the input, waits until everything is committed, and ends the job as a job ends.
async fn drain(chaos: &mut Chaos, reasons: &mut Vec<String>) -> Result<bool, Dead> {
    eprintln!("drain: the input stops, everything becomes visible");
    let stop = |chaos: &Chaos, what: &str| {
        std::fs::write(chaos.rig.plan.directory.join(what), "").map_err(|why| Dead(why.to_string()))
    };
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
    stop(chaos, "stop-oracle")?;
    let end = chaos.rig.wait(Role::Oracle, Duration::from_secs(40)).await.and_then(|end| end.code());
    if end != Some(0) {
        reasons.push(format!("the judge that read along ended with {end:?}"));
    }
    Ok(end == Some(0))
}

/// Whether the latest checkpoint that counts has everything that the log has, and every receipt; of `durable_v2`,
/// whether everything is visible.
async fn settled(plan: &Plan) -> Result<bool, Dead> {
    if plan.sink == Sink::DurableV2 {
        let visible = samples(&plan.directory).last().map_or(0, |last| last.distinct);
        return Ok(produced(plan).await.is_some_and(|produced| produced.iter().sum::<u64>() <= visible));
    }
    let died = |why: sinks::stage::StageError| Dead(why.to_string());
    let ledger = plan.ledger().map_err(died)?;
    let Some(latest) = ledger.latest().await.map_err(died)? else { return Ok(false) };
    let Some(produced) = produced(plan).await else { return Ok(false) };
    for (partition, end) in produced.iter().enumerate() {
        if latest.snapshot.positions.get(&partition.to_string()) != Some(&end.to_string()) {
            return Ok(false);
        }
    }
    for handle in &latest.snapshot.handles {
        if ledger.receipt(handle).await.map_err(died)?.is_none() && plan.mutant.is_none() {
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
