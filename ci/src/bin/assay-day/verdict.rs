//! What the day came to: the bucket at rest, judged by the sink's own verification and by the oracle.

use crate::census::{Harvest, Sample};
use crate::life::Programs;
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tokio::process::Command;

/// How many objects there may be, from the settings that bound them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Live data objects at rest.
    pub objects: u64,
    /// Entries at rest.
    pub entries: u64,
}

impl Bounds {
    /// Whether a bucket is as small as that.
    pub const fn hold(&self, sample: &Sample) -> bool {
        sample.originals + sample.compacted <= self.objects && sample.entries <= self.entries
    }
}

/// Orphans that a reconciliation would delete now.
pub async fn orphans(programs: &Programs, host: &Path) -> Result<usize, String> {
    let (code, plan) = answer(programs.command(host, &["reconcile", "--dry-run", "--json"])).await?;
    match plan["actors"][0]["report"]["rows"].as_array() {
        Some(rows) if code == 0 => Ok(rows.iter().filter(|row| row["verdict"] == "delete").count()),
        _ => Err(format!("reconcile --dry-run ended with {code}: {plan}")),
    }
}

/// Entries that only the current rollup covers. Those before it may be collected, and a stream at rest has none after.
pub async fn rolled_up_once(programs: &Programs, host: &Path) -> Result<u64, String> {
    let (code, answer) = answer(programs.command(host, &["status", "--json"])).await?;
    let number = |name: &str| answer["status"][name].as_u64();
    match (number("rollup_end_seq"), number("gc_horizon")) {
        (Some(end), Some(horizon)) if code == 0 => Ok(end.saturating_sub(horizon)),
        _ => Err(format!("status ended with {code}: {answer}")),
    }
}

/// What everybody says.
#[derive(Debug, Default)]
pub struct Judged {
    /// What does not hold.
    pub findings: Vec<String>,
    /// What could not be judged.
    pub unproven: Vec<String>,
    /// What the oracle counted in the bucket.
    pub statistics: Value,
    /// Deletes that were judged by the HEAD of their moment, by what they took.
    pub deletes: Value,
}

/// Asks everybody: `durable` is the oracle's judge of the bucket at rest, `history` that of all its deletes.
pub async fn judge(
    programs: &Programs,
    host: &Path,
    [durable, history]: [Command; 2],
    harvest: &Harvest,
    last: &Sample,
    bounds: Bounds,
) -> Result<Judged, String> {
    let mut judged = Judged::default();
    let (code, verified) = answer(programs.command(host, &["verify", "--deep", "--json"])).await?;
    if code != 0 {
        judged.findings.push(format!("verify --deep ended with {code}: {verified}"));
    }
    let orphans = orphans(programs, host).await?;
    if orphans > 0 {
        judged.findings.push(format!("reconcile --dry-run finds {orphans} orphans older than the grace"));
    }
    judged.statistics = judged.ask(durable).await?;
    judged.deletes = judged.ask(history).await?["deletes"].take();
    let count = |name: &str| judged.statistics[name].as_u64().unwrap_or(u64::MAX);
    let left = count("orphans");
    if left > 0 {
        judged.findings.push(format!("{left} unreachable objects are left after the grace"));
    }
    let live = last.originals + last.compacted;
    for (what, found, most) in
        [("data objects", live, bounds.objects), ("entries", last.entries, bounds.entries)]
    {
        if found > most {
            judged.findings.push(format!("{found} {what} are left, {most} at most were expected"));
        }
    }
    if harvest.missed > 0 {
        let missed = harvest.missed;
        judged.unproven.push(format!("{missed} requests left the journal before they were looked at"));
    }
    Ok(judged)
}

impl Judged {
    /// Asks the oracle, and returns what it counted.
    async fn ask(&mut self, oracle: Command) -> Result<Value, String> {
        let (code, mut said) = answer(oracle).await?;
        match code {
            0 => {}
            1 => self.findings.push(format!("{}: {}", said["subject"], said["findings"])),
            3 => self.unproven.push(format!("{}: {}", said["subject"], said["inconclusive"])),
            _ => return Err(format!("the oracle ended with {code}: {said}")),
        }
        Ok(said["statistics"].take())
    }
}

async fn answer(mut command: Command) -> Result<(i32, Value), String> {
    let Output { status, stdout, stderr } = command.output().await.map_err(|why| why.to_string())?;
    let said = serde_json::from_slice(&stdout);
    Ok((
        status.code().unwrap_or(128),
        said.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&stderr).as_ref())),
    ))
}
