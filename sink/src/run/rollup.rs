//! Rolling up: inventory, rollup, both read back, then one swap of HEAD.

use serde::Serialize;

use crate::env::Env;
use crate::error::SinkError;
use crate::model::frame::{self, Kind};
use crate::model::head::Head;
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::model::key::PipelineRoot;
use crate::model::rollup::{Inventory, InventoryRef, PrevRollup, Rollup, Totals};
use crate::plan::change::{Change, NewRollup};
use crate::plan::rollup::{self, Plan, Policy};
use crate::point::{self, Point};
use crate::run::create;
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::recover::since::{Since, since_rollup};
use crate::run::recover::{Committed, Content, framed};
use crate::run::swap::metadata;
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was due, if anything was; all of it is done.
    pub plan: Option<Plan>,
    /// Inventories that were written.
    pub inventories: usize,
    /// Bytes of what was written.
    pub bytes: u64,
}

/// What would be rolled up now. Only reads, and needs no ownership.
///
/// # Errors
/// Those of [`read::view`] and of reading the current rollup.
pub async fn plan(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Option<Plan>, SinkError> {
    let Some(view) = read::view(env, root, patience).await? else { return Ok(None) };
    let (head, now_ms) = (&view.head, env.clock.now_ms());
    // Whether it is due does not depend on the inventories, which cost a request.
    let due = rollup::plan(head, &[], policy, now_ms);
    let Some(current) = head.rollup.as_ref().filter(|_| due.is_some()) else { return Ok(due) };
    let rollup: Rollup = framed(env, patience, Kind::Rollup, &current.key, current.sha256).await?;
    Ok(rollup::plan(head, &rollup.inventories, policy, now_ms))
}

/// Rolls up if it is due.
///
/// # Errors
/// Why it stopped early; the rollup that it was about may be in the bucket then, and HEAD decides whether it is
/// one.
pub async fn run(keeper: &Keeper, policy: &Policy) -> Result<Report, Stopped> {
    let _turn = keeper.turn().await;
    let (view, _) = keeper.confirm().await?;
    let (env, head, patience) = (&keeper.env, &view.head, keeper.patience());
    let now_ms = env.clock.now_ms();
    // Whether it is due does not depend on the inventories, which cost requests.
    if rollup::plan(head, &[], policy, now_ms).is_none() {
        return Ok(Report::default());
    }
    let since = since_rollup(env, &keeper.root, head, &patience).await?;
    let Some(plan) = rollup::plan(head, since.inventories(), policy, now_ms) else {
        return Ok(Report::default());
    };
    tracing::info!(generation = plan.generation, to_seq = plan.to_seq, reason = plan.reason, "rolling up");
    let new = inventories(env, head, &plan, &since, &patience).await?;
    let mut report = Report { inventories: new.len(), ..Report::default() };
    let mut refs = since.inventories().to_vec();
    refs.retain(|of| new.first().is_none_or(|first| of.to < first.from_seq));
    for inventory in new {
        let bytes = frame::encode(Kind::Inventory, frame::MINOR, &inventory);
        let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
        let (from, to) = (inventory.from_seq, inventory.to_seq);
        let key = keeper.root.inventory(from, to, sha256);
        create::and_read_back(env, &key, &bytes, &metadata(Kind::Inventory, head), &patience).await?;
        refs.push(InventoryRef { from, to, key, sha256, size });
        report.bytes += size;
    }
    point::reach(Point::RollupAfterInventory);
    let rollup = cumulative(head, &plan, since, refs)?;
    let bytes = frame::encode(Kind::Rollup, frame::MINOR, &rollup);
    let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
    let key = keeper.root.rollup(rollup.generation, rollup.end_seq, sha256);
    create::and_read_back(env, &key, &bytes, &metadata(Kind::Rollup, head), &patience).await?;
    point::reach(Point::RollupAfterRollup);
    let Rollup { generation, end_seq, end_chain, .. } = rollup;
    keeper.change(Change::Rollup(NewRollup { generation, key, sha256, size, end_seq, end_chain })).await?;
    report.bytes += size;
    Ok(Report { plan: Some(plan), ..report })
}

/// The inventories of the new entries, merged with earlier ones as it is planned.
async fn inventories(
    env: &Env,
    head: &Head,
    plan: &Plan,
    since: &Since,
    patience: &Patience,
) -> Result<Vec<Inventory>, SinkError> {
    let kept = since.entries.iter().filter_map(|entry| match &entry.content {
        Content::Entry(record) => Some(rollup::kept(&entry.key, entry.sha256, record)),
        Content::Inventory(_) => None,
    });
    let mut new = rollup::inventories(head, since.chain, kept.collect());
    let old = since.inventories();
    if let ([only], true) = (new.as_mut_slice(), plan.merges > 0) {
        let mut merged = Vec::new();
        for of in old.get(old.len().saturating_sub(plan.merges)..).unwrap_or_default() {
            let inventory: Inventory = framed(env, patience, Kind::Inventory, &of.key, of.sha256).await?;
            only.from_seq = only.from_seq.min(inventory.from_seq);
            merged.extend(inventory.entries);
        }
        merged.append(&mut only.entries);
        only.entries = merged;
    }
    Ok(new)
}

/// The next generation over `inventories`.
fn cumulative(
    head: &Head,
    plan: &Plan,
    since: Since,
    inventories: Vec<InventoryRef>,
) -> Result<Rollup, Stopped> {
    let Some(Content::Entry(last)) = since.entries.last().map(|entry| &entry.content) else {
        return Err(Stopped::new(StopReason::StalePlan, "there is no new entry"));
    };
    let totals = with(since.rollup.map(|rollup| rollup.totals), &since.entries);
    Ok(Rollup {
        stream_id: head.stream_id,
        generation: plan.generation,
        epoch: head.epoch,
        start_seq: 1,
        end_seq: plan.to_seq,
        end_chain: head.chain,
        end_position: last.position.clone(),
        prev: head.rollup.as_ref().map(|prev| PrevRollup {
            generation: prev.generation,
            key: prev.key.clone(),
            sha256: prev.sha256,
            end_seq: prev.end_seq,
        }),
        inventories,
        compactions: since.compacted.folded(),
        totals,
        extra: Extra::new(),
    })
}

/// What `before` counted, and the objects of `entries`.
pub(super) fn with(before: Option<Totals>, entries: &[Committed]) -> Totals {
    let mut totals = before.unwrap_or(Totals { objects: 0, rows: 0, bytes: 0 });
    for object in entries.iter().flat_map(Committed::objects) {
        totals.objects += 1;
        totals.rows += object.rows;
        totals.bytes += object.size;
    }
    totals
}
