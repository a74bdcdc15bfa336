//! Rebuilding the current rollup: for a person, where it or one of its inventories is damaged or gone, and the rollup
//! before it and the entries that are left still prove what it said. No start and no actor does it by itself.
//!
//! New objects are written beside what is damaged, and nothing is overwritten or deleted. What HEAD would reach with
//! them is verified as by a start; then one swap of HEAD makes this process the owner and puts the rebuilt rollup in
//! the place of the other, so that whoever owned the stream is fenced.

use serde::Serialize;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::metrics::Metrics;
use crate::model::frame::{self, Kind};
use crate::model::head::{Head, RollupRef};
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::model::key::PipelineRoot;
use crate::model::rollup::{Inventory, InventoryRef, PrevRollup, Rollup};
use crate::model::view::View;
use crate::plan::ownership::{self, Identity};
use crate::plan::{reconcile, rollup};
use crate::run::create;
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::recover::{self, Content, Reproduced};
use crate::run::swap::{Swap, Swapped, metadata};
use crate::stop::{StopReason, Stopped};

/// The field of an inventory that names the damaged one in whose place it stands: without it, both had one name.
const IN_PLACE_OF: &str = "x_in_place_of";

/// What would be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What can't be read.
    pub cause: String,
    /// The generation, which stays.
    pub generation: u64,
    /// The first entry of which the entry itself tells; of those before, inventories of the rollup before do.
    pub from_seq: u64,
    /// The last entry that the rollup covers.
    pub to_seq: u64,
    /// What proves it.
    pub reason: String,
}

/// What was rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was planned, if there was anything to rebuild; all of it is done.
    pub plan: Option<Plan>,
    /// The rollup that HEAD reaches now.
    pub rollup: Option<String>,
    /// Inventories that were written, or were there with the same bytes.
    pub inventories: usize,
    /// The epoch that this process acquired.
    pub epoch: Option<u64>,
}

struct Survey {
    view: View,
    current: RollupRef,
    source: Reproduced,
    plan: Plan,
}

/// What would be rebuilt now; nothing, if the stream verifies. Only reads, and needs no ownership.
///
/// # Errors
/// [`StopReason::IntegrityFailure`] if something else is wrong, or nothing proves what the rollup said.
pub async fn plan(env: &Env, root: &PipelineRoot, patience: &Patience) -> Result<Option<Plan>, Stopped> {
    Ok(survey(env, root, patience).await?.map(|survey| survey.plan))
}

/// Rebuilds the current rollup as `me`, which becomes the owner; nothing, if the stream verifies.
///
/// # Errors
/// Those of [`plan`]; [`StopReason::StalePlan`] if HEAD moved meanwhile. What was written then is kept for ever, and
/// HEAD does not reach it.
pub async fn run(
    env: &Env,
    root: &PipelineRoot,
    me: &Identity,
    metrics: &Metrics,
    patience: &Patience,
) -> Result<Report, Stopped> {
    let Some(Survey { view, current, source, plan }) = survey(env, root, patience).await? else {
        return Ok(Report::default());
    };
    let head = &view.head;
    reconcile::writable(head, &me.pipeline, &me.prefix, frame::MINOR)?;
    tracing::warn!(cause = plan.cause, generation = plan.generation, reason = plan.reason, "rebuilding");
    let kept = source.entries.iter().filter_map(|entry| match &entry.content {
        Content::Entry(record) => Some(rollup::kept(&entry.key, entry.sha256, record)),
        Content::Inventory(_) => None,
    });
    let new = rollup::inventories(head, source.chain, kept.collect());
    let mut report = Report { inventories: new.len(), ..Report::default() };
    let mut refs = source.inventories.clone();
    for inventory in new {
        refs.push(put(env, root, head, inventory, patience).await?);
    }
    let now_ms = env.clock.now_ms();
    let next = ownership::acquisition(head, me, env.ids.nonce(), now_ms);
    let rollup = again(&next, &current, source, refs)?;
    let bytes = frame::encode(Kind::Rollup, frame::MINOR, &rollup);
    let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
    let key = root.rollup(rollup.generation, rollup.end_seq, sha256);
    create::and_read_back(env, &key, &bytes, &metadata(Kind::Rollup, &next), patience).await?;
    let next = ownership::rebuilt(next, &current, (key.clone(), sha256, size), now_ms);
    let rebuilt = View { head: next.clone(), etag: view.etag.clone() };
    recover::verify(env, root, rebuilt, patience).await?;
    let swap = Swap { env, root, metrics, base: &view, next: &next };
    if let Swapped::Conflict(seen) = swap.apply(patience.renewed()).await? {
        let detail =
            format!("HEAD moved to revision {} meanwhile: look at it, then run again", seen.head.rev);
        return Err(Stopped::new(StopReason::StalePlan, detail));
    }
    (report.plan, report.rollup, report.epoch) = (Some(plan), Some(key), Some(next.epoch));
    Ok(report)
}

/// What is wrong with the stream, and what proves the rollup if it is that.
async fn survey(env: &Env, root: &PipelineRoot, patience: &Patience) -> Result<Option<Survey>, Stopped> {
    let Some(view) = read::view(env, root, patience).await? else {
        // Either there is nothing at all, or what there is lacks HEAD: that is an alarm.
        recover::recover(env, root, recover::Depth::Objects, patience).await?;
        let detail = format!("there is no stream below {:?}", root.as_str());
        return Err(Stopped::new(StopReason::StalePlan, detail));
    };
    let alarm = match recover::verify(env, root, view.clone(), patience).await {
        Ok(_) => return Ok(None),
        Err(SinkError::Integrity(alarm)) => alarm,
        Err(error) => return Err(error.into()),
    };
    let refused = |why: &dyn std::fmt::Display| {
        Stopped::new(StopReason::IntegrityFailure, format!("{alarm}; this can't be rebuilt: {why}"))
    };
    let Some(current) = view.head.rollup.clone().filter(|_| of_rollup(&alarm, &view.head)) else {
        return Err(refused(&"it is neither the current rollup nor one of its inventories"));
    };
    let source = match recover::reproduced(env, root, &view.head, patience).await {
        Ok(source) => source,
        Err(SinkError::Integrity(why)) => return Err(refused(&why)),
        Err(error) => return Err(error.into()),
    };
    let from_seq = source.inventories.last().map_or(0, |last| last.to) + 1;
    let reason = match &source.prev {
        Some(prev) if from_seq > 1 => {
            format!("rollup {} and the entries from {from_seq} on reproduce HEAD's chain", prev.generation)
        }
        _ => "every entry is there, and together they reproduce HEAD's chain".to_owned(),
    };
    let cause = alarm.to_string();
    let plan = Plan { cause, generation: current.generation, from_seq, to_seq: current.end_seq, reason };
    Ok(Some(Survey { view, current, source, plan }))
}

/// Whether what can't be read is the current rollup or an inventory.
fn of_rollup(alarm: &Alarm, head: &Head) -> bool {
    let before = head.prev_rollup.as_ref().map(|prev| prev.key.as_str());
    match alarm {
        Alarm::Recoverable { cause, .. } => of_rollup(cause, head),
        Alarm::MissingReferenced { what, key, .. } | Alarm::DigestMismatch { what, key, .. } => {
            [Kind::Rollup.name(), Kind::Inventory.name()].contains(what) && Some(key.as_str()) != before
        }
        _ => false,
    }
}

/// Writes an inventory. Where another object stands in its place, which is damaged then, it says so and has another
/// name for it.
async fn put(
    env: &Env,
    root: &PipelineRoot,
    head: &Head,
    mut inventory: Inventory,
    patience: &Patience,
) -> Result<InventoryRef, SinkError> {
    loop {
        let bytes = frame::encode(Kind::Inventory, frame::MINOR, &inventory);
        let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
        let (from, to) = (inventory.from_seq, inventory.to_seq);
        let key = root.inventory(from, to, sha256);
        match create::and_read_back(env, &key, &bytes, &metadata(Kind::Inventory, head), patience).await {
            Ok(()) => return Ok(InventoryRef { from, to, key, sha256, size }),
            Err(SinkError::Integrity(Alarm::ConflictingObject { .. })) if inventory.extra.is_empty() => {
                tracing::warn!(
                    key,
                    "a damaged inventory stands here and stays; another is written beside it"
                );
                inventory.extra.insert(IN_PLACE_OF.to_owned(), key.into());
            }
            Err(error) => return Err(error),
        }
    }
}

/// The rollup once more, over `inventories`. Of compaction records it has folded what the one before had: whoever
/// verifies reads the rest.
fn again(
    next: &Head,
    current: &RollupRef,
    source: Reproduced,
    inventories: Vec<InventoryRef>,
) -> Result<Rollup, Stopped> {
    let Some(Content::Entry(last)) = source.entries.last().map(|entry| &entry.content) else {
        let detail = format!("entry {} is not there, which has the rollup's position", current.end_seq);
        return Err(Stopped::new(StopReason::IntegrityFailure, detail));
    };
    let before = source.prev.as_ref().filter(|_| !source.inventories.is_empty());
    let totals = super::rollup::with(before.map(|prev| prev.totals.clone()), &source.entries);
    Ok(Rollup {
        stream_id: next.stream_id,
        generation: current.generation,
        epoch: next.epoch,
        start_seq: 1,
        end_seq: current.end_seq,
        end_chain: current.end_chain,
        end_position: last.position.clone(),
        prev: next.prev_rollup.as_ref().map(|prev| PrevRollup {
            generation: prev.generation,
            key: prev.key.clone(),
            sha256: prev.sha256,
            end_seq: prev.end_seq,
        }),
        inventories,
        compactions: source.prev.and_then(|prev| prev.compactions),
        totals,
        extra: Extra::new(),
    })
}
