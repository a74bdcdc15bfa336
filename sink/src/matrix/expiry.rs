//! Area 6, entries: marked after the window, expired below the floor, by the owner alone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ground::Ground;
use super::rollups::{AT_ONCE, EACH, collected, entries, published, rolled_up, why};
use super::{Checked, Failure, Need, Scenario, equal};
use crate::model::frame::{self, Kind};
use crate::model::mark::Mark;
use crate::plan::gc::Policy;
use crate::plan::originals;
use crate::run;
use crate::run::gc::Memory;
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "6.1",
        name: "nothing_is_marked_before_the_window_on_both_clocks",
        proves: "entries are marked only once the generation is old enough by the store's clock and by the process's own",
        needs: &[],
        run: |ground| Box::pin(window(ground)),
    },
    Scenario {
        id: "6.2",
        name: "marks_end_at_the_horizon",
        proves: "a mark lists exactly the entries up to the end of the rollup before the current one",
        needs: &[],
        run: |ground| Box::pin(horizon(ground)),
    },
    Scenario {
        id: "6.3",
        name: "the_floor_is_published_before_the_first_delete",
        proves: "without a mark nothing is deleted, and the journal has HEAD's floor before any delete of an entry",
        needs: &[],
        run: |ground| Box::pin(floor_first(ground)),
    },
    Scenario {
        id: "6.4",
        name: "an_expiry_that_dies_is_finished_by_the_next",
        proves: "an end after some deletes leaves a floor and marks, from which the next process deletes the rest",
        needs: &[],
        run: |ground| Box::pin(dies(ground)),
    },
    Scenario {
        id: "6.5",
        name: "a_takeover_between_deletes_stops_them",
        proves: "an owner that is fenced while it deletes sends no delete after it has seen that",
        needs: &[],
        run: |ground| Box::pin(takeover(ground)),
    },
    Scenario {
        id: "6.6",
        name: "deletes_of_a_zombie_change_nothing_that_is_needed",
        proves: "deletes that land after a takeover are of entries below the floor: the state still verifies",
        needs: &[],
        run: |ground| Box::pin(zombie(ground)),
    },
    Scenario {
        id: "6.8",
        name: "clocks_too_far_apart_stop_marking_and_expiring",
        proves: "with the store's clock off by more than is allowed nothing is marked, and nothing deleted",
        needs: &[Need::OwnStore],
        run: |ground| Box::pin(skewed(ground)),
    },
    Scenario {
        id: "6.9",
        name: "older_rollups_inventories_and_marks_stay",
        proves: "whatever is rolled up, marked and expired, no rollup, inventory or mark ever goes or changes",
        needs: &[],
        run: |ground| Box::pin(kept_for_ever(ground)),
    },
];

async fn window(ground: &Ground) -> Checked {
    const WINDOW: Policy = Policy { safety_window_ms: 2_000, max_clock_skew_ms: 2_000 };
    let sink = published(ground, &[2, 4], 5).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    let clock = ground.env(3)?.clock;
    let published_at_ms = ground.head().await?.0.rollup.map_or(0, |rollup| rollup.published_at_ms);
    let mut waits = 0;
    let marked = loop {
        let report = run::gc::mark(&keeper, &WINDOW, &mut memory).await.map_err(why)?;
        if report.plan.range.is_some() {
            break report;
        }
        equal("marks before the window", report.marks.len(), 0)?;
        waits += 1;
        if waits > 20 {
            return Err(Failure(format!("nothing is marked: {}", report.plan.reason)));
        }
        tokio::time::sleep(Duration::from_millis(report.plan.wait_ms.clamp(1, 10_000))).await;
    };
    equal("marked entries", marked.plan.range, Some((1, 2)))?;
    // Window and skew, less the second that a date is cut to.
    let age_ms = clock.now_ms().saturating_sub(published_at_ms);
    if age_ms < 3_000 || waits == 0 {
        return Err(Failure(format!(
            "marked {age_ms} ms after the rollup was published, after {waits} waits"
        )));
    }
    // A process that has just come to know the generation waits by its own clock.
    ground.publish(&sink, 6, 6).await?;
    rolled_up(&keeper).await?;
    let long: Policy = Policy { safety_window_ms: 60_000, ..AT_ONCE };
    let report = run::gc::mark(&keeper, &long, &mut Memory::default()).await.map_err(why)?;
    equal("marked by a process that knows it not long enough", report.plan.range, None)?;
    sink.close().await?;
    equal("committed", ground.exactly(6).await?.seq, 6)
}

/// The marks there are.
async fn marks(ground: &Ground) -> Checked<Vec<Mark>> {
    let mut marks = Vec::new();
    for object in ground.listed().await?.iter().filter(|object| object.key.contains("/marks/")) {
        marks.push(frame::decode(Kind::Mark, &ground.get(&object.key).await?.0)?.1);
    }
    Ok(marks)
}

async fn horizon(ground: &Ground) -> Checked {
    let sink = published(ground, &[3, 5], 7).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    let ranges = async || -> Checked<Vec<(u64, u64, u64, usize)>> {
        let of = |mark: &Mark| (mark.from_seq, mark.to_seq, mark.horizon, mark.entries.len());
        Ok(marks(ground).await?.iter().map(of).collect())
    };
    for _ in 0..2 {
        run::gc::mark(&keeper, &AT_ONCE, &mut memory).await.map_err(why)?;
        equal("marks", ranges().await?, vec![(1, 3, 3, 3)])?;
    }
    rolled_up(&keeper).await?;
    run::gc::mark(&keeper, &AT_ONCE, &mut memory).await.map_err(why)?;
    equal("marks", ranges().await?, vec![(1, 3, 3, 3), (4, 5, 5, 2)])?;
    equal("entries", entries(ground).await?, (1..=7).collect())?;
    sink.close().await?;
    equal("committed", ground.exactly(7).await?.seq, 7)
}

async fn floor_first(ground: &Ground) -> Checked {
    let sink = published(ground, &[3, 5], 6).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    let after = ground.rig.last_request().await?;
    let report = run::gc::expire(&keeper, &AT_ONCE, &mut memory).await.map_err(why)?;
    equal("without a mark", (report.floor, report.deleted), (None, 0))?;
    equal("deleted", collected(&keeper, &mut memory).await.map_err(why)?, 3)?;
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    let swap = seen.iter().position(|seen| seen.operation == "PutObject" && seen.key == ground.root.head());
    let deletes: Vec<usize> = seen
        .iter()
        .enumerate()
        .filter(|(_, seen)| seen.operation == "DeleteObject")
        .map(|(at, _)| at)
        .collect();
    equal("deletes", deletes.len(), 3)?;
    let first = deletes.iter().min().copied();
    if swap.is_none() || swap > first {
        return Err(Failure(format!("HEAD was swapped at request {swap:?}, the first delete was {first:?}")));
    }
    sink.close().await?;
    equal("committed", ground.exactly(6).await?.seq, 6)
}

/// A rule for deletes of entries.
fn of_deletes(ground: &Ground, rest: &str) -> String {
    format!("name=held operation=DeleteObject key={}/_manifest/entries/* {rest}", ground.root.as_str())
}

/// Twenty entries below the horizon, marked.
async fn marked(ground: &Ground) -> Checked<(crate::sink::Sink, Keeper, Memory)> {
    let sink = published(ground, &[20, 21], 22).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    run::gc::mark(&keeper, &AT_ONCE, &mut memory).await.map_err(why)?;
    Ok((sink, keeper, memory))
}

async fn dies(ground: &Ground) -> Checked {
    let (sink, keeper, mut memory) = marked(ground).await?;
    let faults = ground.rig.faults(&of_deletes(ground, "nth=18 effect=freeze")).await?;
    let expiring = tokio::spawn(async move { run::gc::expire(&keeper, &AT_ONCE, &mut memory).await });
    ground.rig.fired("held", 1).await?;
    expiring.abort();
    // It is gone before the rule is: nothing is asked again.
    if let Ok(ended) = expiring.await {
        return Err(Failure(format!("the expiry ended by itself: {ended:?}")));
    }
    faults.lift().await?;
    equal("the floor", ground.head().await?.0.entry_floor, 21)?;
    let left = entries(ground).await?.len();
    if !(3..=6).contains(&left) {
        return Err(Failure(format!("{left} of 22 entries are left after 16 deletes and some")));
    }
    equal("committed", ground.exactly(22).await?.seq, 22)?;
    drop(sink);
    let sink = ground.start("b", 2).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    run::gc::expire(&keeper, &AT_ONCE, &mut memory).await.map_err(why)?;
    equal("entries", entries(ground).await?, vec![21, 22])?;
    let again = run::gc::expire(&keeper, &AT_ONCE, &mut Memory::default()).await.map_err(why)?;
    equal("deleted again", again.deleted, 0)?;
    sink.close().await?;
    equal("committed", ground.exactly(22).await?.seq, 22)
}

async fn takeover(ground: &Ground) -> Checked {
    let (_a, keeper, mut memory) = marked(ground).await?;
    let faults = ground.rig.faults(&of_deletes(ground, "nth=1 effect=delay until=lifted")).await?;
    let after = ground.rig.last_request().await?;
    let expiring = tokio::spawn(async move { run::gc::expire(&keeper, &AT_ONCE, &mut memory).await });
    ground.rig.fired("held", 1).await?;
    let b = ground.start("b", 2).await?;
    faults.lift().await?;
    stopped(expiring.await?, StopReason::EpochChanged)?;
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    equal("deletes", seen.iter().filter(|seen| seen.operation == "DeleteObject").count(), 16)?;
    ground.publish(&b, 23, 23).await?;
    run::gc::expire(&b.keeper(), &AT_ONCE, &mut Memory::default()).await.map_err(why)?;
    b.close().await?;
    equal("entries", entries(ground).await?, vec![21, 22, 23])?;
    equal("committed", ground.exactly(23).await?.seq, 23)
}

fn stopped<T: std::fmt::Debug>(ended: Result<T, Stopped>, reason: StopReason) -> Checked {
    match ended {
        Err(stopped) => equal("the stop's reason", stopped.reason, reason),
        Ok(done) => Err(Failure(format!("expected a stop for {}, got {done:?}", reason.name()))),
    }
}

async fn zombie(ground: &Ground) -> Checked {
    let (_a, keeper, mut memory) = marked(ground).await?;
    let faults = ground.rig.faults(&of_deletes(ground, "first=16 effect=delay until=lifted")).await?;
    let expiring = tokio::spawn(async move { run::gc::expire(&keeper, &AT_ONCE, &mut memory).await });
    ground.rig.fired("held", 16).await?;
    let b = ground.start("b", 2).await?;
    ground.publish(&b, 23, 24).await?;
    equal("entries while they are held", entries(ground).await?.len(), 24)?;
    // They land now, and their process finds that it is fenced.
    faults.lift().await?;
    stopped(expiring.await?, StopReason::EpochChanged)?;
    equal("entries once they have landed", entries(ground).await?.len(), 8)?;
    equal("committed", ground.exactly(24).await?.seq, 24)?;
    b.close().await?;
    let c = ground.start("c", 3).await?;
    ground.publish(&c, 25, 25).await?;
    c.close().await?;
    equal("committed", ground.exactly(25).await?.seq, 25)
}

async fn skewed(ground: &Ground) -> Checked {
    let (sink, keeper, mut memory) = marked(ground).await?;
    let originals = originals::Policy { retention_ms: 0, max_clock_skew_ms: AT_ONCE.max_clock_skew_ms };
    let after = ground.rig.last_request().await?;
    for (n, offset_ms) in (23..).zip([-120_000, 120_000]) {
        let clock = ground.rig.clock_off(offset_ms).await?;
        stopped(run::gc::expire(&keeper, &AT_ONCE, &mut memory).await, StopReason::ClockUncertain)?;
        stopped(run::originals::run(&keeper, &originals).await, StopReason::ClockUncertain)?;
        ground.publish(&sink, n, n).await?;
        rolled_up(&keeper).await?;
        stopped(run::gc::mark(&keeper, &AT_ONCE, &mut memory).await, StopReason::ClockUncertain)?;
        clock.right().await?;
    }
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    equal("deletes", seen.iter().filter(|seen| seen.operation == "DeleteObject").count(), 0)?;
    equal("deleted with the clocks right", collected(&keeper, &mut memory).await.map_err(why)?, 23)?;
    sink.close().await?;
    equal("committed", ground.exactly(24).await?.seq, 24)
}

async fn kept_for_ever(ground: &Ground) -> Checked {
    let sink = published(ground, &[1], 1).await?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    let kept = async || -> Checked<BTreeMap<String, String>> {
        let kinds = ["/rollups/", "/inventory/", "/marks/"];
        let listed = ground.listed().await?.into_iter();
        let kept = listed.filter(|object| kinds.iter().any(|kind| object.key.contains(kind)));
        Ok(kept.map(|object| (object.key, object.etag.0)).collect())
    };
    let mut seen = BTreeMap::new();
    for n in 2..=20 {
        ground.publish(&sink, n, n).await?;
        run::rollup::run(&keeper, &EACH).await.map_err(why)?;
        equal("deleted entries", collected(&keeper, &mut memory).await.map_err(why)?, 1)?;
        let now = kept().await?;
        if let Some((key, _)) = seen.iter().find(|(key, etag)| now.get(*key) != Some(*etag)) {
            return Err(Failure(format!("{key:?} is gone, or is another object")));
        }
        seen = now;
    }
    // 20 rollups, 20 inventories of which one is merged of 16, 19 marks.
    equal("kept objects", seen.len(), 59)?;
    sink.close().await?;
    equal("committed", ground.exactly(20).await?.seq, 20)
}
