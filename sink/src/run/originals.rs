//! Deleting what compactions have replaced: record by record, after the outputs were read once more.
//!
//! What a run costs does not grow with the stream's age. One listing for each table that was compacted tells what
//! is there; records are read from the newest back, and no further than there are objects that one of them may
//! have replaced.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Duration, Instant};

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::compaction::CompactionRecord;
use crate::model::frame::{self, Kind};
use crate::model::head::{CompactionRef, RecordRef};
use crate::model::ids::Digest;
use crate::model::key::PipelineRoot;
use crate::plan::clocks;
use crate::plan::originals::{self, Input, Output, Plan, Policy, Reached, Since};
use crate::run::compact::stored;
use crate::run::patience::{Patience, deleted};
use crate::run::read;
use crate::run::recover::live::LiveObject;
use crate::run::recover::{Depth, Recovered, recover, recover_from};
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};
use crate::store::ObjectMeta;

/// Objects that are deleted before HEAD is read again.
const BATCH: usize = 100;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Objects that were deleted.
    pub deleted: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Objects that were being written at that moment, and were left.
    pub skipped: u64,
    /// What stays for now, and why.
    pub kept: Vec<originals::Kept>,
}

/// What would be deleted now. Only reads, and needs no ownership.
///
/// # Errors
/// [`StopReason::ClockUncertain`]; those of [`recover`].
pub async fn plan(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Plan, Stopped> {
    let Some((_, date_ms)) = read::dated_view(env, root, patience).await? else { return Ok(Plan::default()) };
    let Some(found) = recover(env, root, Depth::Manifest, patience).await? else {
        return Ok(Plan::default());
    };
    let now_ms = clocks::certain(env.clock.now_ms(), date_ms, policy.max_clock_skew_ms)?;
    Ok(planned(env, root, &found, now_ms, policy, patience).await?)
}

/// Deletes what may go.
///
/// # Errors
/// Why it stopped early; nothing was deleted after that. The next run does the rest.
pub async fn run(keeper: &Keeper, policy: &Policy) -> Result<Report, Stopped> {
    let mut known = keeper.turn().await;
    let (_, date_ms) = keeper.confirm().await?;
    let (env, root, patience) = (&keeper.env, &keeper.root, keeper.patience());
    let now_ms = clocks::certain(env.clock.now_ms(), date_ms, policy.max_clock_skew_ms)?;
    let found = recover_from(env, root, Depth::Manifest, &patience, known.take()).await?;
    let found = found.ok_or(SinkError::from(Alarm::HeadDeleted))?;
    let plan = planned(env, root, &found, now_ms, policy, &patience).await?;
    if plan.replaced.is_empty() {
        *known = Some(found);
        return Ok(Report { kept: plan.kept, ..Report::default() });
    }
    // Before anything is deleted everything is verified once more.
    let found = recover(env, root, Depth::Manifest, &patience).await?;
    let found = found.ok_or(SinkError::from(Alarm::HeadDeleted))?;
    let plan = planned(env, root, &found, now_ms, policy, &patience).await?;
    let newest = found.view.head.compaction.as_ref();
    let mut report = Report { kept: plan.kept, ..Report::default() };
    // All of them before anything is deleted; records may share them.
    let outputs: BTreeSet<&Output> = plan.replaced.iter().flat_map(|of| &of.outputs).collect();
    for output in outputs {
        check(keeper, output).await?;
    }
    for of in &plan.replaced {
        tracing::info!(table = of.table, inputs = of.inputs.len(), reason = of.reason, "deleting originals");
        for batch in of.inputs.chunks(BATCH) {
            delete(keeper, newest, batch, &mut report).await?;
        }
    }
    Ok(report)
}

/// Gathers what a plan needs.
async fn planned(
    env: &Env,
    root: &PipelineRoot,
    found: &Recovered,
    now_ms: u64,
    policy: &Policy,
    patience: &Patience,
) -> Result<Plan, SinkError> {
    let live = found.live();
    let present = present(env, root, &live, patience).await?;
    let records = reached(env, found, sought(found, &live, &present), patience).await?;
    let sizes = present.into_iter().map(|(key, meta)| (key, meta.size)).collect();
    Ok(originals::plan(&records, &live, &sizes, now_ms, policy))
}

/// Every data object of the tables that were compacted.
async fn present(
    env: &Env,
    root: &PipelineRoot,
    live: &[LiveObject],
    patience: &Patience,
) -> Result<BTreeMap<String, ObjectMeta>, SinkError> {
    let compacted = live.iter().filter(|object| !object.is_original());
    let tables: BTreeSet<&str> = compacted.map(|object| object.table.as_str()).collect();
    let mut present = BTreeMap::new();
    for table in tables {
        read::list(env, &root.table(table), patience, |meta| {
            present.insert(meta.key.clone(), meta);
            false
        })
        .await?;
    }
    Ok(present)
}

/// Objects in the bucket that a record may have replaced, with the time of each: originals under an output, and
/// outputs that readers do not read. Among the latter are orphans, which no record names.
fn sought<'a>(
    found: &Recovered,
    live: &[LiveObject],
    present: &'a BTreeMap<String, ObjectMeta>,
) -> BTreeMap<&'a str, u64> {
    let read: HashSet<&str> = live.iter().map(|object| object.key.as_str()).collect();
    let originals: HashSet<&str> =
        found.entries.iter().flat_map(|entry| entry.objects()).map(|object| object.key).collect();
    let replaced = |key: &str| {
        !read.contains(key) && (originals.contains(key) || key.rsplit('/').nth(1) == Some("compacted"))
    };
    present
        .iter()
        .filter(|(key, _)| replaced(key))
        .map(|(key, meta)| (key.as_str(), meta.last_modified_ms))
        .collect()
}

/// Records from the newest back, until each of the sought objects is an input of one, or all that are left are
/// younger than the record: it can't have read them.
async fn reached(
    env: &Env,
    found: &Recovered,
    mut sought: BTreeMap<&str, u64>,
    patience: &Patience,
) -> Result<Vec<Reached>, SinkError> {
    let newest = found.view.head.compaction.as_ref();
    let published = newest.and_then(|of| of.published_at_ms);
    let mut since = published.map_or(Since::Unknown, Since::Owner);
    let mut link = newest.map(|of| of.last.clone());
    let mut records = Vec::new();
    while let Some(of) = link.take_if(|_| !sought.is_empty()) {
        let (record, written_ms) = record(env, &of, patience).await?;
        let oldest_ms = sought.values().min().copied().unwrap_or_default();
        for input in record.inputs.iter().filter(|_| record.equivalence.equal) {
            sought.remove(input.key.as_str());
        }
        // A listing may tell milliseconds where the record's own header tells whole seconds, as MiniStack's do.
        link = record.prev.clone().filter(|_| written_ms.saturating_add(999) >= oldest_ms);
        records.push(Reached { record, since });
        // It was written once HEAD reached the one before it.
        since = Since::Store(written_ms);
    }
    Ok(records)
}

/// A record, and when it was written by the store's clock.
async fn record(
    env: &Env,
    of: &RecordRef,
    patience: &Patience,
) -> Result<(CompactionRecord, u64), SinkError> {
    let (what, key) = (Kind::Compaction.name(), of.key.clone());
    let verify = |bytes: &Bytes| {
        let found = Digest::of(bytes);
        if found != of.sha256 {
            return Err(Alarm::DigestMismatch { what, key: key.clone(), found, recorded: of.sha256 }.into());
        }
        let (_, record) = frame::decode::<CompactionRecord>(Kind::Compaction, bytes)
            .map_err(|error| SinkError::of_frame(Kind::Compaction, &key, error))?;
        Ok(record)
    };
    let read = read::verified(env, &key, patience, verify).await?;
    let meta = read::meta(env, &key, patience.renewed()).await?;
    let (Some(record), Some(meta)) = (read, meta) else {
        return Err(Alarm::MissingReferenced { what, key, hint: "" }.into());
    };
    Ok((record, meta.last_modified_ms))
}

/// That an output is there and holds what was recorded. One that is missing is an alarm, unless another owner has
/// replaced and deleted it in the meantime.
async fn check(keeper: &Keeper, output: &Output) -> Result<(), Stopped> {
    let Output { key, sha256, size } = output;
    if stored(&keeper.env, key, (*size, *sha256), &keeper.patience()).await?.is_some() {
        return Ok(());
    }
    keeper.confirm().await?;
    Err(SinkError::from(Alarm::MissingReferenced { what: "data", key: key.clone(), hint: "" }).into())
}

/// Deletes a few objects under a HEAD that was read right before.
async fn delete(
    keeper: &Keeper,
    newest: Option<&CompactionRef>,
    batch: &[Input],
    report: &mut Report,
) -> Result<(), Stopped> {
    // First the keys, then HEAD.
    let taken: Vec<_> = batch.iter().map(|input| (input, keeper.in_flight.delete(&input.key))).collect();
    let (view, _) = keeper.confirm().await?;
    if view.head.compaction.as_ref() != newest {
        let detail = "HEAD reaches other compaction records than the plan was made for";
        return Err(Stopped::new(StopReason::StalePlan, detail));
    }
    for (input, deleting) in taken {
        let Some(mut deleting) = deleting else {
            report.skipped += 1;
            continue;
        };
        deleting.sent(Instant::now() + Duration::from_millis(keeper.patience_ms));
        deleted(&input.key, keeper.env.store.delete(&input.key, None).await)?;
        deleting.answered();
        report.deleted += 1;
        report.bytes += input.size;
    }
    Ok(())
}
