//! Marking: what replaces the entries is read and verified, then the marks are written. Nothing is deleted.

use serde::Serialize;

use super::{Memory, Pending};
use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::frame::{self, Kind};
use crate::model::head::{Head, RollupRef};
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::model::mark::{Mark, MarkedEntry, MarkedRollup};
use crate::model::rollup::{Inventory, InventoryRef, Rollup};
use crate::plan::gc::{self, Clocks, MarkPlan, Policy};
use crate::point::{self, Point};
use crate::run::create;
use crate::run::patience::Patience;
use crate::run::recover::framed;
use crate::run::swap::metadata;
use crate::sink::Keeper;
use crate::stop::Stopped;

/// Entries of one mark at most: with the longest keys it is then below 5 MiB, and a mark may have 8.
const MOST_ENTRIES: usize = 4096;

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkReport {
    /// What was planned; all of it is done.
    pub plan: MarkPlan,
    /// The marks that were written.
    pub marks: Vec<String>,
    /// The entries in them.
    pub entries: u64,
}

/// Marks what the horizon covers, once the window is over on both clocks.
///
/// # Errors
/// Why it stopped early.
pub async fn mark(keeper: &Keeper, policy: &Policy, memory: &mut Memory) -> Result<MarkReport, Stopped> {
    let _turn = keeper.turn().await;
    let (view, store_ms) = keeper.confirm().await?;
    let (env, head, patience) = (&keeper.env, &view.head, keeper.patience());
    memory.look(env, &keeper.root, head, &patience).await?;
    let seen_ms = memory.seen_ms(head);
    let clocks = Clocks { owner_ms: env.clock.now_ms(), store_ms, seen_ms };
    let plan = gc::mark(head, memory.marked(head), &clocks, policy)?;
    let mut report = MarkReport { plan, marks: Vec::new(), entries: 0 };
    let (Some((from, to)), Some(current), Some(prev)) = (report.plan.range, &head.rollup, &head.prev_rollup)
    else {
        return Ok(report);
    };
    let entries = replaced(env, head, current, (from, to), &patience).await?;
    if replaced(env, head, prev, (from, to), &patience).await? != entries {
        let reason = "its inventories and those of the rollup after it disagree".to_owned();
        return Err(SinkError::from(Alarm::Contradiction { key: prev.key.clone(), reason }).into());
    }
    tracing::info!(from, to, horizon = report.plan.horizon, reason = report.plan.reason, "marking entries");
    for entries in entries.chunks(MOST_ENTRIES) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
        let mark = Mark {
            stream_id: head.stream_id,
            mark_id: env.ids.nonce(),
            epoch: head.epoch,
            generation: current.generation,
            horizon: report.plan.horizon,
            from_seq: first.seq,
            to_seq: last.seq,
            entries: entries.to_vec(),
            rollup: MarkedRollup { key: current.key.clone(), sha256: current.sha256 },
            prev_rollup: MarkedRollup { key: prev.key.clone(), sha256: prev.sha256 },
            store_date_ms: store_ms.unwrap_or(0),
            created_at_ms: env.clock.now_ms(),
            extra: Extra::new(),
        };
        let bytes = frame::encode(Kind::Mark, frame::MINOR, &mark);
        let key = keeper.root.mark(current.generation, mark.from_seq, mark.to_seq, Digest::of(&bytes));
        create::and_read_back(env, &key, &bytes, &metadata(Kind::Mark, head), &patience).await?;
        point::reach(Point::GcAfterMark);
        report.marks.push(key.clone());
        report.entries += entries.len() as u64;
        let left = mark.entries.clone();
        memory.pending.get_or_insert_default().push(Pending { key, mark, verified: true, left });
    }
    Ok(report)
}

/// The entries `from..=to` as the inventories of a rollup have them, read and verified now.
pub(super) async fn replaced(
    env: &Env,
    head: &Head,
    of: &RollupRef,
    (from, to): (u64, u64),
    patience: &Patience,
) -> Result<Vec<MarkedEntry>, SinkError> {
    let contradiction = |key: &str, reason: String| -> SinkError {
        Alarm::Contradiction { key: key.to_owned(), reason }.into()
    };
    let rollup: Rollup = framed(env, patience, Kind::Rollup, &of.key, of.sha256).await?;
    if rollup.stream_id != head.stream_id
        || (rollup.generation, rollup.end_seq, rollup.end_chain) != (of.generation, of.end_seq, of.end_chain)
    {
        return Err(contradiction(&of.key, "its stream, generation or end is not what HEAD says".to_owned()));
    }
    let mut entries = Vec::new();
    for InventoryRef { key, sha256, .. } in
        rollup.inventories.iter().filter(|of| of.from <= to && of.to >= from)
    {
        let inventory: Inventory = framed(env, patience, Kind::Inventory, key, *sha256).await?;
        if inventory.stream_id != head.stream_id {
            return Err(contradiction(key, "it is of another stream".to_owned()));
        }
        let wanted = inventory.entries.into_iter().filter(|entry| (from..=to).contains(&entry.seq));
        entries.extend(wanted.map(|entry| MarkedEntry {
            seq: entry.seq,
            key: entry.entry_key,
            sha256: entry.entry_sha256,
        }));
    }
    if entries.iter().map(|entry| entry.seq).eq(from..=to) {
        return Ok(entries);
    }
    Err(contradiction(&of.key, format!("its inventories do not cover entries {from} to {to}")))
}
