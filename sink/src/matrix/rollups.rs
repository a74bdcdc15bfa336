//! Area 4: a stream is recovered from its rollups and the entries after them, and from nothing less.

use bytes::Bytes;

use super::ground::Ground;
use super::publish::settled;
use super::tampered::{delete, overwrite};
use super::{Checked, Failure, Scenario, data, equal};
use crate::error::{Alarm, SinkError};
use crate::model::key::ObjectName;
use crate::plan::{gc, rollup};
use crate::run;
use crate::run::gc::Memory;
use crate::run::patience::Patience;
use crate::run::recover::{Content, Depth, recover};
use crate::sink::{Batch, Keeper, Settings, Sink};
use crate::stop::{StopReason, Stopped};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "4.1",
        name: "expired_entries_come_from_inventories",
        proves: "after rollup, mark, expire and restart the state is the one of before, read from inventories",
        needs: &[],
        run: |ground| Box::pin(from_inventories(ground)),
    },
    Scenario {
        id: "4.2",
        name: "both_rollups_and_the_tail_are_verified",
        proves: "entries above the floor are all there, those below are all gone, and both rollups are checked",
        needs: &[],
        run: |ground| Box::pin(both_rollups(ground)),
    },
    Scenario {
        id: "4.3",
        name: "a_missing_entry_above_the_floor_blocks_acquisition",
        proves: "an entry at the floor or above that is missing is a hard alarm, though an inventory has it",
        needs: &[],
        run: |ground| Box::pin(missing_entry(ground)),
    },
    Scenario {
        id: "4.4",
        name: "a_corrupted_rollup_is_recoverable_by_an_operator_only",
        proves: "a corrupted current rollup stops the start and says that the one before reproduces the chain",
        needs: &[],
        run: |ground| Box::pin(corrupted(ground)),
    },
    Scenario {
        id: "4.5",
        name: "a_rollup_that_is_not_published_is_an_orphan",
        proves: "an end between inventory, rollup and swap leaves objects that nothing refers to, and the next one is fine",
        needs: &[],
        run: |ground| Box::pin(unpublished(ground)),
    },
    Scenario {
        id: "4.6",
        name: "a_quiet_stream_rolls_up_once",
        proves: "a stream with one new entry rolls up by time, and not again before there is another",
        needs: &[],
        run: |ground| Box::pin(quiet(ground)),
    },
    Scenario {
        id: "4.7",
        name: "recovery_reads_inventories_and_the_tail",
        proves: "a long stream is recovered with requests bounded by inventories, retained entries and listed pages",
        needs: &[],
        run: |ground| Box::pin(bounded(ground)),
    },
];

/// Rolls up whatever is new.
pub(super) const EACH: rollup::Policy = rollup::Policy { every_entries: 1, every_ms: 600_000 };

/// Collects as soon as the horizon allows it. Dates have whole seconds, and machines their own.
pub(super) const AT_ONCE: gc::Policy = gc::Policy { safety_window_ms: 0, max_clock_skew_ms: 30_000 };

pub(super) fn why(stopped: Stopped) -> Failure {
    Failure(stopped.to_string())
}

/// Rolls up, and gives the generation.
pub(super) async fn rolled_up(keeper: &Keeper) -> Checked<Option<u64>> {
    let report = run::rollup::run(keeper, &EACH).await.map_err(why)?;
    Ok(report.plan.map(|plan| plan.generation))
}

/// A sink that has published up to `upto`, with a rollup after each of `ends`.
pub(super) async fn published(ground: &Ground, ends: &[u64], upto: u64) -> Checked<Sink> {
    let sink = ground.start("a", 1).await?;
    let mut last = 0;
    for (&end, generation) in ends.iter().zip(1..) {
        ground.publish(&sink, last + 1, end).await?;
        equal("the generation", rolled_up(&sink.keeper()).await?, Some(generation))?;
        last = end;
    }
    ground.publish(&sink, last + 1, upto).await?;
    Ok(sink)
}

/// Marks and expires; how many entries went.
pub(super) async fn collected(keeper: &Keeper, memory: &mut Memory) -> Result<u64, Stopped> {
    run::gc::mark(keeper, &AT_ONCE, memory).await?;
    Ok(run::gc::expire(keeper, &AT_ONCE, memory).await?.deleted)
}

/// The numbers of the entries that a listing shows.
pub(super) async fn entries(ground: &Ground) -> Checked<Vec<u64>> {
    let listed = ground.listed().await?;
    let number = |key: &str| match ground.root.parse(key) {
        Some(ObjectName::Entry { seq, .. }) => Some(seq),
        _ => None,
    };
    Ok(listed.iter().filter_map(|object| number(&object.key)).collect())
}

async fn from_inventories(ground: &Ground) -> Checked {
    let sink = published(ground, &[2, 4, 6], 7).await?;
    let before = ground.recovered().await?;
    equal("deleted entries", collected(&sink.keeper(), &mut Memory::default()).await.map_err(why)?, 4)?;
    sink.close().await?;
    let after = ground.recovered().await?;
    equal("the entries", &after.entries, &before.entries)?;
    equal("live objects", after.live(), before.live())?;
    equal("position", &after.position, &before.position)?;
    let sink = ground.start("b", 2).await?;
    ground.publish(&sink, 8, 9).await?;
    sink.close().await?;
    equal("what is there", ground.exactly(9).await?, settled(9))
}

async fn both_rollups(ground: &Ground) -> Checked {
    let sink = published(ground, &[3, 5], 7).await?;
    collected(&sink.keeper(), &mut Memory::default()).await.map_err(why)?;
    sink.close().await?;
    let (head, _) = ground.head().await?;
    equal("the floor", head.entry_floor, 4)?;
    equal("entries", entries(ground).await?, vec![4, 5, 6, 7])?;
    let found = ground.recovered().await?;
    let from: Vec<bool> =
        found.entries.iter().map(|entry| matches!(entry.content, Content::Inventory(_))).collect();
    equal("read from inventories", from, [[true; 5].as_slice(), &[false; 2]].concat())?;
    let prev = head.prev_rollup.ok_or_else(|| Failure("there is no rollup before".to_owned()))?;
    delete(ground, &prev.key).await?;
    let wanted = Alarm::MissingReferenced { what: "rollup", key: prev.key, hint: "" };
    equal("the alarm", refused(ground).await?, SinkError::Integrity(wanted))
}

/// The error that a start ends with; it leaves HEAD alone.
async fn refused(ground: &Ground) -> Checked<SinkError> {
    let before = ground.head().await?;
    match Sink::start(ground.env(9)?, ground.settings("b")).await {
        Ok(_) => Err(Failure("the sink started".to_owned())),
        Err(error) => {
            equal("HEAD", ground.head().await?, before)?;
            Ok(error)
        }
    }
}

async fn missing_entry(ground: &Ground) -> Checked {
    let sink = published(ground, &[2, 4], 5).await?;
    collected(&sink.keeper(), &mut Memory::default()).await.map_err(why)?;
    sink.close().await?;
    let found = ground.recovered().await?;
    equal("the floor", found.view.head.entry_floor, 3)?;
    let entry = found.at(3).ok_or_else(|| Failure("there is no entry 3".to_owned()))?;
    delete(ground, &entry.key).await?;
    let wanted = Alarm::MissingReferenced { what: "entry", key: entry.key.clone(), hint: "" };
    equal("the alarm", refused(ground).await?, SinkError::Integrity(wanted))
}

async fn corrupted(ground: &Ground) -> Checked {
    let sink = published(ground, &[2, 4], 5).await?;
    collected(&sink.keeper(), &mut Memory::default()).await.map_err(why)?;
    sink.close().await?;
    let (head, _) = ground.head().await?;
    let (Some(current), Some(prev)) = (head.rollup, head.prev_rollup) else {
        return Err(Failure("there are not two rollups".to_owned()));
    };
    let (bytes, _) = ground.get(&current.key).await?;
    let mut other = bytes.to_vec();
    other.pop();
    overwrite(ground, &current.key, Bytes::from(other)).await?;
    match refused(ground).await? {
        SinkError::Integrity(Alarm::Recoverable { cause, rollup })
            if rollup == prev.key && matches!(*cause, Alarm::DigestMismatch { what: "rollup", .. }) => {}
        other => return Err(Failure(format!("expected what an operator can recover, got {other}"))),
    }
    // The bytes that were there make it good; nothing was repaired meanwhile.
    overwrite(ground, &current.key, bytes).await?;
    equal("what is there", ground.exactly(5).await?, settled(5))
}

async fn count(ground: &Ground, what: &str) -> Checked<usize> {
    Ok(ground.listed().await?.iter().filter(|object| object.key.contains(what)).count())
}

async fn unpublished(ground: &Ground) -> Checked {
    let sink = published(ground, &[], 2).await?;
    let faults = ground.rig.faults(&ground.rule("held", "_manifest/rollups/*", "effect=freeze")).await?;
    let keeper = sink.keeper();
    let rolling = tokio::spawn(async move { run::rollup::run(&keeper, &EACH).await });
    ground.rig.fired("held", 1).await?;
    rolling.abort();
    // It is gone before the rule is: nothing is asked again.
    if let Ok(ended) = rolling.await {
        return Err(Failure(format!("the rollup ended by itself: {ended:?}")));
    }
    faults.lift().await?;
    equal(
        "rollups, inventories",
        (count(ground, "/rollups/").await?, count(ground, "/inventory/").await?),
        (0, 1),
    )?;
    ground.publish(&sink, 3, 3).await?;
    let slow = ground.rule("slow", "_manifest/HEAD", "nth=1 effect=delay until=lifted");
    let faults = ground.rig.faults(&slow).await?;
    let keeper = sink.keeper();
    let rolling = tokio::spawn(async move { run::rollup::run(&keeper, &EACH).await });
    ground.rig.fired("slow", 1).await?;
    let other = ground.start("b", 2).await?;
    faults.lift().await?;
    match rolling.await? {
        Err(Stopped { reason: StopReason::EpochChanged, .. }) => {}
        other => return Err(Failure(format!("expected a stop, got {other:?}"))),
    }
    let (head, _) = ground.head().await?;
    equal("rollups, published", (count(ground, "/rollups/").await?, head.rollup), (1, None))?;
    equal("the generation", rolled_up(&other.keeper()).await?, Some(1))?;
    ground.publish(&other, 4, 4).await?;
    equal("the generation", rolled_up(&other.keeper()).await?, Some(2))?;
    other.close().await?;
    equal("committed", ground.exactly(4).await?.seq, 4)
}

async fn quiet(ground: &Ground) -> Checked {
    let by_time = rollup::Policy { every_entries: 256, every_ms: 0 };
    let sink = ground.start("a", 1).await?;
    let keeper = sink.keeper();
    let generation = async || -> Checked<Option<u64>> {
        let report = run::rollup::run(&keeper, &by_time).await.map_err(why)?;
        Ok(report.plan.map(|plan| plan.generation))
    };
    equal("without an entry", generation().await?, None)?;
    for n in 1..=2 {
        ground.publish(&sink, n, n).await?;
        equal("with one more", generation().await?, Some(n))?;
        let before = ground.head().await?;
        equal("without another", generation().await?, None)?;
        equal("HEAD", ground.head().await?, before)?;
    }
    sink.close().await?;
    let (head, _) = ground.head().await?;
    equal("the last end", head.rollup.map(|rollup| rollup.end_seq), Some(2))?;
    equal("what is there", ground.exactly(2).await?, settled(2))
}

/// Entries of the long stream; every 50th has objects.
const LONG: u64 = 1_200;

/// Between two rollups of it.
const ROLLED_EVERY: u64 = 64;

async fn bounded(ground: &Ground) -> Checked {
    let settings = Settings { group_commit_max_batches: 64, queue_batches: 64, ..ground.settings("a") };
    let sink = Sink::start(ground.env(1)?, settings).await?;
    let keeper = sink.keeper();
    let mut last = 0;
    while last < LONG {
        let next = (last + ROLLED_EVERY).min(LONG);
        let mut tickets = Vec::new();
        for n in last + 1..=next {
            let batch = data::batch(n)?;
            let objects = if n % 50 == 0 { batch.objects } else { Vec::new() };
            tickets.push(sink.submit(Batch { objects, ..batch }).await?);
        }
        for ticket in &mut tickets {
            ticket.acknowledged().await?;
        }
        run::rollup::run(&keeper, &EACH).await.map_err(why)?;
        last = next;
    }
    collected(&keeper, &mut Memory::default()).await.map_err(why)?;
    sink.close().await?;
    let listed = ground.listed().await?.len() as u64;
    let after = ground.rig.last_request().await?;
    let patience = Patience::limited(60_000);
    let found = recover(&ground.env(2)?, &ground.root, Depth::Objects, &patience).await?;
    let requests = ground.rig.requests(after, &ground.prefix).await?.len() as u64;
    let found = found.ok_or_else(|| Failure("there is no stream".to_owned()))?;
    equal("entries, live objects", (found.entries.len() as u64, found.live().len()), (LONG, 72))?;
    let inventories = found.rollup.as_ref().map_or(0, |rollup| rollup.inventories.len() as u64);
    let retained = LONG - found.view.head.entry_floor + 1;
    // HEAD, both rollups, the last entry, and pages of the listing; those of a listing have no key.
    let most = 4 + inventories + retained + listed / 1000 + 1;
    if inventories <= 16 && requests <= most && retained <= 2 * ROLLED_EVERY {
        return Ok(());
    }
    Err(Failure(format!(
        "{LONG} entries took {requests} requests, at most {most} for {inventories} inventories, {retained} retained \
         entries and {listed} objects"
    )))
}
