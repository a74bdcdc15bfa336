//! The judges: one that reads along while faults happen, and a fresh process that reads everything once more.

use std::io::Write as _;
use std::time::Duration;

use assay_oracle::bucket::{Bucket, ReadError};
use assay_oracle::durable;
use assay_oracle::report::{Report, Verdict};
use assay_oracle::visible::{self, Ledger};
use serde::{Deserialize, Serialize};
use sinks::model::stage::files::Verdict as Marked;
use sinks::run::stage::pending_uploads;
use sinks::stage::StageError;
use tokio::time::Instant;

use crate::clock;
use crate::failure::Failure;
use crate::plan::{Plan, Sink};

/// A judge that takes no sample for so long is stuck: longer than a store is away in any fault.
pub const STUCK: Duration = Duration::from_secs(150);

/// One sample, a line of `oracle.jsonl`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Distinct events that are visible.
    pub distinct: u64,
    /// Objects.
    pub objects: u64,
    /// Findings so far.
    pub findings: u64,
    /// Why this sample could not be taken.
    pub error: Option<String>,
}

fn findings(report: &Report) -> u64 {
    report.counts.values().copied().sum()
}

/// Samples the bucket every second until the file `stop-oracle` is there. Whether nothing was found and it was not
/// stuck for so long.
///
/// # Errors
/// Of its own file.
pub async fn observe(plan: &Plan, stuck: Duration) -> Result<bool, String> {
    let path = plan.directory.join("oracle.jsonl");
    let failed = |why: std::io::Error| format!("{}: {why}", path.display());
    let mut lines = std::fs::File::create(&path).map_err(failed)?;
    let bucket = Bucket::impatient(&plan.judged());
    let mut ledger = Ledger::new(plan.workload(), plan.scope());
    let stop = plan.directory.join("stop-oracle");
    let mut taken = Instant::now();
    loop {
        let last = stop.exists();
        let error = ledger.sample(&bucket).await.err().map(|error| error.to_string());
        let failed_now = error.is_some();
        if !failed_now {
            taken = Instant::now();
        }
        let sample = Sample {
            at_ms: clock::now_ms(),
            distinct: ledger.distinct(),
            objects: ledger.report().statistics.listed,
            findings: findings(ledger.report()),
            error,
        };
        let line = serde_json::to_string(&sample).map_err(|why| why.to_string())?;
        writeln!(lines, "{line}").and_then(|()| lines.sync_data()).map_err(failed)?;
        if taken.elapsed() >= stuck {
            eprintln!("assay-campaign: stuck: no sample of the bucket for {} s", taken.elapsed().as_secs());
            return Ok(false);
        }
        if last && !failed_now {
            let clean = findings(ledger.report()) == 0;
            if !clean {
                eprintln!("{}", ledger.report().text());
            }
            return Ok(clean);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What the fresh process says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Judgement {
    /// What is wrong, in words; nothing of a clean bucket.
    pub findings: Vec<String>,
    /// Why nothing can be said, if so.
    pub inconclusive: Vec<String>,
    /// Events that were produced.
    pub produced: u64,
    /// Distinct events that are visible.
    pub visible: u64,
    /// Visible objects.
    pub objects: u64,
    /// Checkpoints that count; of `durable_v2`, entries.
    pub completed: u64,
    /// Of these, entries that are gone, and that inventories stand for.
    pub expired: u64,
    /// Of the visible objects, those that a compaction wrote.
    pub compacted: u64,
    /// Checkpoints that were abandoned.
    pub abandoned: u64,
    /// Receipts.
    pub receipts: u64,
    /// Uploads that nobody completes: evidence, no finding.
    pub pending_uploads: u64,
}

/// Reads the settled bucket and the checkpoint directory from scratch.
///
/// # Errors
/// Where either can't be read: a store that is not there, our own faults.
pub async fn judge(plan: &Plan, produced: &[u64]) -> Result<Judgement, Failure> {
    let bucket = Bucket::new(&plan.judged());
    let judged = visible::judge(&bucket, plan.scope(), plan.workload(), produced);
    let of_store = |error: ReadError| {
        let Failure(code, why) = Failure::from(error);
        let (bucket, at) = (plan.bucket_name(), &plan.store);
        Failure(
            code,
            format!("bucket {bucket:?} of the store at {at}: {why}; a judge needs the store to run"),
        )
    };
    let report = judged.await.map_err(of_store)?;
    let mut judgement = Judgement {
        inconclusive: report.inconclusive.clone(),
        produced: produced.iter().sum(),
        visible: report.statistics.rows.values().sum(),
        objects: report.statistics.listed,
        ..Judgement::default()
    };
    if report.verdict() == Verdict::Findings {
        judgement.findings = report.text().lines().map(str::to_owned).collect();
    }
    match plan.sink {
        Sink::Staged => audit(plan, &mut judgement).await?,
        Sink::DurableV2 => chains(plan, &bucket, &mut judgement).await.map_err(of_store)?,
    }
    let (root, store) = (plan.root().map_err(Failure::own)?, plan.bucket().map_err(Failure::own)?);
    match pending_uploads(&store, &root).await {
        Ok(pending) => judgement.pending_uploads = (pending.ours.len() + pending.others) as u64,
        Err(outcome) => judgement.inconclusive.push(format!("open uploads: {outcome:?}")),
    }
    Ok(judgement)
}

/// Every pipeline's HEAD, entries, digests, objects and rows.
async fn chains(plan: &Plan, bucket: &Bucket, judgement: &mut Judgement) -> Result<(), ReadError> {
    for subject in plan.subjects() {
        let report = durable::judge(bucket, &subject, None).await?;
        judgement.completed += report.statistics.entries + report.statistics.entries_gone;
        judgement.expired += report.statistics.entries_gone;
        judgement.compacted += report.statistics.compacted;
        judgement.inconclusive.extend(report.inconclusive.iter().cloned());
        if report.verdict() == Verdict::Findings {
            judgement.findings.extend(report.text().lines().map(str::to_owned));
        }
    }
    Ok(())
}

/// Every upload of a checkpoint that counts has its receipt.
async fn audit(plan: &Plan, judgement: &mut Judgement) -> Result<(), StageError> {
    let ledger = plan.ledger()?;
    for checkpoint in 1..ledger.numbers().await?.next() {
        match ledger.marker(checkpoint).await?.map(|marker| marker.verdict) {
            Some(Marked::Completed { .. }) => judgement.completed += 1,
            Some(Marked::Abandoned) => judgement.abandoned += 1,
            None => {}
        }
        let Some(completed) = ledger.completed(checkpoint).await? else { continue };
        for handle in &completed.snapshot.handles {
            let receipt = ledger.receipt(handle).await?;
            if receipt.is_none_or(|receipt| receipt.commit_token != handle.commit_token) {
                judgement
                    .findings
                    .push(format!("no receipt of {}, which checkpoint {checkpoint} has", handle.name()));
            }
        }
    }
    judgement.receipts = ledger.receipts().await? as u64;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AWAY;
    use crate::plan::tests::plan;

    /// Nobody listens at the plan's store.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_judge_that_can_not_read_is_stuck_and_a_fresh_one_says_that_the_store_is_away() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path());
        // It was told to end already, and must not before it has read everything.
        std::fs::write(dir.path().join("stop-oracle"), "").unwrap();
        assert_eq!(observe(&plan, Duration::from_secs(2)).await, Ok(false));
        let lines = std::fs::read_to_string(dir.path().join("oracle.jsonl")).unwrap();
        let samples: Vec<Sample> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(samples.len() >= 2 && samples.iter().all(|sample| sample.error.is_some()), "{lines}");
        let Err(Failure(code, why)) = judge(&plan, &[0, 0]).await else { panic!("nothing can be read") };
        assert_eq!(code, AWAY, "{why}");
        assert!(why.contains(&plan.store), "{why}");
    }
}
