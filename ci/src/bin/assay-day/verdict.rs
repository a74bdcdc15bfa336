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

/// Asks everybody; what does not hold is returned as findings, with what the oracle counted.
pub async fn judge(
    programs: &Programs,
    host: &Path,
    oracle: &mut Command,
    harvest: &Harvest,
    last: &Sample,
    bounds: Bounds,
) -> Result<(Vec<String>, Value), String> {
    let mut findings = Vec::new();
    let (code, verified) = answer(programs.command(host, &["verify", "--deep", "--json"])).await?;
    if code != 0 {
        findings.push(format!("verify --deep ended with {code}: {verified}"));
    }
    let orphans = orphans(programs, host).await?;
    if orphans > 0 {
        findings.push(format!("reconcile --dry-run finds {orphans} orphans older than the grace"));
    }
    let output = oracle.output().await.map_err(|why| why.to_string())?;
    let judged: Value = serde_json::from_slice(&output.stdout)
        .map_err(|why| format!("the oracle: {why}: {}", String::from_utf8_lossy(&output.stderr)))?;
    if output.status.code() != Some(0) {
        findings.push(format!("assay-oracle ended with {:?}: {}", output.status.code(), judged["findings"]));
    }
    let statistics = judged["statistics"].clone();
    let count = |name: &str| statistics[name].as_u64().unwrap_or(u64::MAX);
    if count("orphans") > 0 {
        findings.push(format!("{} unreachable objects are left after the grace", count("orphans")));
    }
    let live = last.originals + last.compacted;
    for (what, found, most) in
        [("data objects", live, bounds.objects), ("entries", last.entries, bounds.entries)]
    {
        if found > most {
            findings.push(format!("{found} {what} are left, {most} at most were expected"));
        }
    }
    let kept: Vec<&String> = harvest.deleted.iter().filter(|key| may_never_go(key)).collect();
    if !kept.is_empty() {
        findings.push(format!("deleted, and must be kept for ever: {kept:?}"));
    }
    if harvest.missed > 0 {
        findings.push(format!(
            "{} requests were dropped from the journal before they were looked at",
            harvest.missed
        ));
    }
    Ok((findings, statistics))
}

/// HEAD, and the kinds that nothing ever deletes.
fn may_never_go(key: &str) -> bool {
    let kinds = ["HEAD", "rollups/", "inventory/", "marks/", "compactions/"];
    kinds.iter().any(|kind| key.contains(&format!("/_manifest/{kind}")))
}

async fn answer(mut command: Command) -> Result<(i32, Value), String> {
    let Output { status, stdout, stderr } = command.output().await.map_err(|why| why.to_string())?;
    let said = serde_json::from_slice(&stdout);
    Ok((
        status.code().unwrap_or(128),
        said.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&stderr).as_ref())),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_and_data_may_go() {
        for (key, never) in [
            ("day/orders/_manifest/HEAD", true),
            ("day/orders/_manifest/marks/1.mark", true),
            ("day/orders/_manifest/entries/1.entry", false),
            ("day/orders/shop.orders/wm2-1/1.jsonl", false),
            ("day/orders/shop.orders/compacted/1.jsonl", false),
        ] {
            assert_eq!(may_never_go(key), never, "{key}");
        }
    }
}
