//! Expiring: the floor is published before the first delete, so that whoever deletes late deletes only what nobody
//! needs any more.

use serde::Serialize;

use super::mark::replaced;
use super::{Memory, Pending};
use crate::error::{Alarm, SinkError};
use crate::model::head::Head;
use crate::plan::change::Change;
use crate::plan::gc::{self, Clocks, Delete, ExpirePlan, Policy};
use crate::point::{self, Point};
use crate::run::parallel::in_parallel;
use crate::run::patience::deleted;
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};

/// Deletes between two looks at HEAD, all of them under way at once.
const BATCH: usize = 16;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExpireReport {
    /// What was planned, mark by mark; all of it is done.
    pub plans: Vec<ExpirePlan>,
    /// The floor that HEAD has now, if this run raised it.
    pub floor: Option<u64>,
    /// Entries that were deleted, or were gone already.
    pub deleted: u64,
}

/// Deletes the entries of all marks there are.
///
/// # Errors
/// Why it stopped early: nothing was deleted after that, and the next run repeats what is left.
pub async fn expire(keeper: &Keeper, policy: &Policy, memory: &mut Memory) -> Result<ExpireReport, Stopped> {
    let _turn = keeper.turn().await;
    let (view, store_ms) = keeper.confirm().await?;
    let clocks =
        Clocks { owner_ms: keeper.env.clock.now_ms(), store_ms, seen_ms: memory.seen_ms(&view.head) };
    memory.look(&keeper.env, &keeper.root, &view.head, &keeper.patience()).await?;
    let mut report = ExpireReport::default();
    loop {
        let pending = memory.pending.get_or_insert_default();
        let Some(next) = pending.first_mut() else { return Ok(report) };
        clocks.certain(policy)?;
        let plan = of_mark(keeper, next, &mut report).await?;
        report.plans.push(plan);
        pending.remove(0);
    }
}

/// One mark: floor, then deletes.
async fn of_mark(
    keeper: &Keeper,
    pending: &mut Pending,
    report: &mut ExpireReport,
) -> Result<ExpirePlan, Stopped> {
    let (view, _) = keeper.confirm().await?;
    let plan = gc::expire(&view.head, &pending.key, &pending.mark, &pending.left)?;
    verify(keeper, &view.head, pending).await?;
    if let Some(floor) = plan.floor {
        keeper.change(Change::Floor(floor)).await?;
        report.floor = Some(floor);
    }
    point::reach(Point::GcAfterFloor);
    tracing::info!(mark = plan.mark, entries = plan.deletes.len(), "deleting marked entries");
    for batch in plan.deletes.chunks(BATCH) {
        let (view, _) = keeper.confirm().await?;
        still_below(&view.head, batch)?;
        in_parallel(BATCH, batch.to_vec(), |Delete { key, .. }| {
            let store = keeper.env.store.clone();
            async move { Ok(deleted(&key, store.delete(&key, None).await)) }
        })
        .await?
        .into_iter()
        .collect::<Result<Vec<()>, Stopped>>()?;
        report.deleted += batch.len() as u64;
        point::reach(Point::GcMidDelete);
    }
    Ok(plan)
}

/// A mark that this process did not write: the current rollup says the same of every entry.
async fn verify(keeper: &Keeper, head: &Head, pending: &mut Pending) -> Result<(), Stopped> {
    let mark = &pending.mark;
    let Some(current) = head.rollup.as_ref().filter(|_| !pending.verified) else { return Ok(()) };
    let range = (mark.from_seq, mark.to_seq);
    if replaced(&keeper.env, head, current, range, &keeper.patience()).await? != mark.entries {
        let reason = "its entries are not those that the rollup has".to_owned();
        return Err(SinkError::from(Alarm::Contradiction { key: pending.key.clone(), reason }).into());
    }
    pending.verified = true;
    Ok(())
}

/// HEAD, read just now, still has the floor above what is about to be deleted.
fn still_below(head: &Head, batch: &[Delete]) -> Result<(), Stopped> {
    let last = head.last_entry.as_ref().map(|last| last.key.as_str());
    match batch.iter().find(|delete| delete.seq >= head.entry_floor || Some(delete.key.as_str()) == last) {
        None => Ok(()),
        Some(delete) => {
            let detail = format!("entry {} is not below HEAD's floor {}", delete.seq, head.entry_floor);
            Err(Stopped::new(StopReason::StalePlan, detail))
        }
    }
}
