//! Writers in processes of their own: killed at each crash point, and frozen.

use super::ground::{Ground, Settled};
use super::publish::settled;
use super::writer::Writer;
use super::{Checked, Failure, Scenario, equal};
use crate::sink::Sink;

pub(super) const SCENARIOS: &[Scenario] = &[
    killed("2.3c0", "a_kill_before_any_data_write", |g| Box::pin(kill(g, &BEFORE_DATA))),
    killed("2.3c1", "a_kill_among_data_writes", |g| Box::pin(kill(g, &AMONG_DATA))),
    killed("2.3c2", "a_kill_before_the_entry", |g| Box::pin(kill(g, &BEFORE_ENTRY))),
    killed("2.3c3", "a_kill_after_the_entry", |g| Box::pin(kill(g, &AFTER_ENTRY))),
    killed("2.3c4", "a_kill_before_the_swap", |g| Box::pin(kill(g, &BEFORE_SWAP))),
    killed("2.3c5", "a_kill_after_the_swap", |g| Box::pin(kill(g, &AFTER_SWAP))),
    killed("2.3c7", "a_kill_after_the_acknowledgement", |g| Box::pin(kill(g, &AFTER_ACK))),
    Scenario {
        id: "3.4",
        name: "a_frozen_writer_wakes_up_fenced",
        proves: "a process frozen in the middle of a publish, while another takes over and publishes ten batches, \
                 ends fenced with exit code 6 and changes nothing",
        needs: &[],
        run: |ground| Box::pin(frozen(ground)),
    },
];

type Run = for<'a> fn(&'a Ground) -> crate::store::Pending<'a, Checked>;

const fn killed(id: &'static str, name: &'static str, run: Run) -> Scenario {
    let proves = "a process killed there leaves a committed batch or an orphan: the next one converges, and every \
                  row is there once";
    Scenario { id, name, proves, needs: &[], run }
}

/// Where a process is held when it is killed, and what that leaves. Each point is in batch 2: data writes 4 to 6,
/// the second entry, the third write of HEAD, whose first creates it.
struct Point {
    /// Which write is held.
    what: &'static str,
    fault: &'static str,
    /// Batches that the killed process has committed.
    committed: u64,
    /// Entries that nothing reaches once the next process is done.
    orphaned_entries: usize,
}

const BEFORE_DATA: Point =
    Point { what: "*wm2-*", fault: "after=3 effect=freeze", committed: 1, orphaned_entries: 0 };
const AMONG_DATA: Point =
    Point { what: "*wm2-*", fault: "nth=5 effect=freeze", committed: 1, orphaned_entries: 0 };
const BEFORE_ENTRY: Point =
    Point { what: "_manifest/entries/*", fault: "nth=2 effect=freeze", committed: 1, orphaned_entries: 0 };
const AFTER_ENTRY: Point = Point {
    what: "_manifest/entries/*",
    fault: "nth=2 effect=lose-answer how=never",
    committed: 1,
    orphaned_entries: 1,
};
const BEFORE_SWAP: Point =
    Point { what: "_manifest/HEAD", fault: "nth=3 effect=freeze", committed: 1, orphaned_entries: 1 };
const AFTER_SWAP: Point = Point {
    what: "_manifest/HEAD",
    fault: "nth=3 effect=lose-answer how=never",
    committed: 2,
    orphaned_entries: 0,
};
const AFTER_ACK: Point =
    Point { what: "*wm2-*", fault: "after=6 effect=freeze", committed: 2, orphaned_entries: 0 };

async fn kill(ground: &Ground, point: &Point) -> Checked {
    let faults = ground.rig.faults(&ground.rule("held", point.what, point.fault)).await?;
    let mut writer = Writer::new(ground.rig.spawn(&ground.order("a", 1, 3)).await?)?;
    writer.says("acked 1").await?;
    ground.rig.fired("held", 1).await?;
    let entries = usize::try_from(point.committed)? + point.orphaned_entries;
    ground.landed(point.committed, entries).await?;
    writer.kill().await?;
    faults.lift().await?;
    equal("committed when it was killed", ground.head().await?.0.seq, point.committed)?;
    let writer = Writer::new(ground.rig.spawn(&ground.order("a", 2, 3)).await?)?;
    equal("the next writer's exit code", writer.ended().await?, 0)?;
    let wanted = Settled { orphaned_entries: point.orphaned_entries, ..settled(3) };
    equal("what is there", ground.exactly(3).await?, wanted)
}

async fn frozen(ground: &Ground) -> Checked {
    let faults = ground
        .rig
        .faults(&ground.rule("held", "_manifest/entries/*", "nth=3 effect=delay until=lifted"))
        .await?;
    let mut writer = Writer::new(ground.rig.spawn(&ground.order("a", 1, 9)).await?)?;
    writer.says("acked 2").await?;
    ground.rig.fired("held", 1).await?;
    writer.signal("STOP").await?;
    let sink: Sink = ground.start("b", 2).await?;
    ground.publish(&sink, 3, 12).await?;
    // Its entry lands now.
    faults.lift().await?;
    let before = ground.head().await?;
    writer.signal("CONT").await?;
    equal("the frozen writer's exit code", writer.ended().await?, 6)?;
    if ground.head().await? != before {
        return Err(Failure("a fenced writer changed HEAD".to_owned()));
    }
    ground.publish(&sink, 13, 13).await?;
    sink.close().await?;
    let Settled { seq, orphaned_data, .. } = ground.exactly(13).await?;
    equal("committed batches, orphaned data", (seq, orphaned_data), (13, 0))
}
