//! The actors, how they are set up here, and what stops each.

use sinks::format::Encoding;
use sinks::plan::orphans::{Brake, LeaseTimes, Policy};
use sinks::plan::{compact, gc, originals, rollup};
use sinks::run;
use sinks::run::gc::Memory;
use sinks::sink::Keeper;
use sinks::stop::{StopReason, Stopped};

use crate::Case;
use crate::stage::{Fault, Stage};

/// An actor of the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Rollup,
    Mark,
    Expire,
    Compact,
    Originals,
    Reconcile,
}

/// The lease of deletes: 4.5 seconds to send them in.
const LEASE: LeaseTimes = LeaseTimes { ttl_ms: 6_500, request_ms: 1_500, margin_ms: 500 };

/// Policies under which each actor finds work on a small stage.
pub struct Plain {
    rollup: rollup::Policy,
    gc: gc::Policy,
    compact: compact::Policy,
    originals: originals::Policy,
    orphans: Policy,
}

impl Plain {
    /// With a brake for a stage of some twenty objects.
    pub fn new() -> Self {
        Self {
            rollup: rollup::Policy { every_entries: 1, every_ms: 1 },
            gc: gc::Policy { safety_window_ms: 0, max_clock_skew_ms: 30_000 },
            compact: compact::Policy {
                min_inputs: 2,
                ..compact::Policy::new(Encoding::named("jsonl", "none").unwrap())
            },
            originals: originals::Policy { retention_ms: 1, max_clock_skew_ms: 30_000 },
            orphans: Policy {
                brake: Brake { from: 20, percent: 50, most: 1_000 },
                lease: LEASE,
                ..Policy::new(200_000, 1_000, LEASE.request_ms).unwrap()
            },
        }
    }

    /// As a person sets it who has looked at the plan.
    pub fn released() -> Self {
        let mut plain = Self::new();
        plain.orphans.brake.from = 1_000;
        plain
    }
}

impl Actor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollup => "rollup",
            Self::Mark => "mark entries",
            Self::Expire => "expire entries",
            Self::Compact => "compaction",
            Self::Originals => "delete originals",
            Self::Reconcile => run::orphans::ACTOR,
        }
    }

    /// One run. Boxed, since these are large and there are many of them in one test.
    pub async fn run(self, keeper: &Keeper, plain: &Plain) -> Result<(), Stopped> {
        match self {
            Self::Rollup => Box::pin(run::rollup::run(keeper, &plain.rollup)).await.map(drop),
            Self::Mark => Box::pin(run::gc::mark(keeper, &plain.gc, &mut Memory::default())).await.map(drop),
            Self::Expire => {
                Box::pin(run::gc::expire(keeper, &plain.gc, &mut Memory::default())).await.map(drop)
            }
            Self::Compact => Box::pin(run::compact::run(keeper, &plain.compact)).await.map(drop),
            Self::Originals => Box::pin(run::originals::run(keeper, &plain.originals)).await.map(drop),
            Self::Reconcile => Box::pin(run::orphans::run(keeper, &plain.orphans)).await.map(drop),
        }
    }

    /// Batches 1 to 3, and what the actor works on.
    pub async fn prepare(self, stage: &Stage) {
        let (keeper, plain) = (stage.keeper(), Plain::new());
        stage.publish(1..=2).await;
        match self {
            Self::Mark | Self::Expire => {
                Self::Rollup.run(&keeper, &plain).await.unwrap();
                stage.publish(3..=3).await;
                Self::Rollup.run(&keeper, &plain).await.unwrap();
            }
            _ => stage.publish(3..=3).await,
        }
        match self {
            Self::Expire => Box::pin(Self::Mark.run(&keeper, &plain)).await.unwrap(),
            Self::Originals => Box::pin(Self::Compact.run(&keeper, &plain)).await.unwrap(),
            _ => {}
        }
    }

    /// Something that moves HEAD in a way that this actor must notice.
    pub async fn meanwhile(self, stage: &Stage) {
        Self::Rollup.run(&stage.keeper(), &Plain::new()).await.unwrap();
        if self == Self::Rollup {
            stage.publish(4..=4).await;
        }
    }
}

const fn case(actor: Actor, reason: StopReason, before: usize, how: &'static str, fault: Fault) -> Case {
    Case { actor, reason, fault, how, before }
}

/// All of them, in the order of the table.
pub fn cases() -> Vec<Case> {
    [rollups(), entries(), compactions(), orphans()].into_iter().flatten().collect()
}

fn rollups() -> Vec<Case> {
    use Actor::Rollup;
    use StopReason::*;
    vec![
        case(
            Rollup,
            EpochChanged,
            0,
            "a takeover while its inventory is written",
            Fault::Takeover(
                "operation=PutObject key=ROOT/_manifest/inventory/* nth=1 effect=delay until=lifted",
            ),
        ),
        case(Rollup, StalePlan, 0, "a stale HEAD, from before the last rollup", Fault::Stale(2)),
        case(
            Rollup,
            AmbiguousResponse,
            0,
            "500 for every write of an inventory",
            Fault::Rules(
                "operation=PutObject key=ROOT/_manifest/inventory/* effect=refuse code=InternalError",
            ),
        ),
        case(
            Rollup,
            IntegrityFailure,
            0,
            "an inventory that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/inventory/* effect=corrupt"),
        ),
    ]
}

fn entries() -> Vec<Case> {
    use Actor::{Expire, Mark};
    use StopReason::*;
    vec![
        case(
            Mark,
            EpochChanged,
            0,
            "a takeover while it asks for HEAD",
            Fault::Takeover("operation=GetObject key=ROOT/_manifest/HEAD nth=1 effect=delay until=lifted"),
        ),
        case(
            Mark,
            AmbiguousResponse,
            0,
            "500 for every read of an inventory",
            Fault::Rules(
                "operation=GetObject key=ROOT/_manifest/inventory/* effect=refuse code=InternalError",
            ),
        ),
        case(
            Mark,
            IntegrityFailure,
            0,
            "an inventory that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/inventory/* effect=corrupt"),
        ),
        case(Mark, ClockUncertain, 0, "a store whose clock is a minute fast", Fault::Clock(60_000)),
        case(
            Expire,
            EpochChanged,
            0,
            "a takeover while the floor is published",
            Fault::Takeover("operation=PutObject key=ROOT/_manifest/HEAD nth=1 effect=delay until=lifted"),
        ),
        case(
            Expire,
            StalePlan,
            0,
            "a stale HEAD, from before the floor was published",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/HEAD effect=stale"),
        ),
        case(
            Expire,
            AmbiguousResponse,
            2,
            "the answer to one of two deletes that are sent together is lost",
            Fault::Rules("operation=DeleteObject nth=1 effect=lose-answer"),
        ),
        case(
            Expire,
            IntegrityFailure,
            0,
            "a rollup that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/rollups/* effect=corrupt"),
        ),
        case(Expire, ClockUncertain, 0, "a store whose clock is a minute fast", Fault::Clock(60_000)),
    ]
}

fn compactions() -> Vec<Case> {
    use Actor::{Compact, Originals};
    use StopReason::*;
    vec![
        case(
            Compact,
            EpochChanged,
            0,
            "a takeover while an output is written",
            Fault::Takeover("operation=PutObject key=ROOT/*/compacted/* nth=1 effect=delay until=lifted"),
        ),
        case(
            Compact,
            StalePlan,
            0,
            "a stale HEAD, from before its records",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/HEAD effect=stale"),
        ),
        case(
            Compact,
            AmbiguousResponse,
            0,
            "500 for every read of an input",
            Fault::Rules("operation=GetObject key=ROOT/shop.t00/* effect=refuse code=InternalError"),
        ),
        case(
            Compact,
            IntegrityFailure,
            0,
            "an output that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/*/compacted/* effect=corrupt"),
        ),
        case(
            Originals,
            EpochChanged,
            0,
            "a takeover while an output is read once more",
            Fault::Takeover("operation=GetObject key=ROOT/*/compacted/* nth=1 effect=delay until=lifted"),
        ),
        case(
            Originals,
            AmbiguousResponse,
            2,
            "the answer to the second of six deletes is lost",
            Fault::Rules("operation=DeleteObject nth=2 effect=lose-answer"),
        ),
        case(
            Originals,
            IntegrityFailure,
            0,
            "an output that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/*/compacted/* effect=corrupt"),
        ),
        case(Originals, ClockUncertain, 0, "a store whose clock is a minute fast", Fault::Clock(60_000)),
    ]
}

fn orphans() -> Vec<Case> {
    use Actor::Reconcile;
    use StopReason::*;
    vec![
        case(
            Reconcile,
            EpochChanged,
            1,
            "a takeover while the first of three deletes is under way",
            Fault::Takeover("operation=DeleteObject nth=1 effect=delay until=lifted"),
        ),
        case(Reconcile, StalePlan, 0, "a stale HEAD, from before a rollup", Fault::Stale(5)),
        case(
            Reconcile,
            ListingUncertain,
            0,
            "a page that is cut without a token",
            Fault::Rules("operation=ListObjectsV2 effect=truncate"),
        ),
        case(
            Reconcile,
            ListingUncertain,
            0,
            "a listing without the newest key",
            Fault::Rules("operation=ListObjectsV2 effect=omit-newest"),
        ),
        case(
            Reconcile,
            ListingUncertain,
            0,
            "a listing with a key twice",
            Fault::Rules("operation=ListObjectsV2 effect=repeat-key"),
        ),
        case(
            Reconcile,
            ListingUncertain,
            0,
            "503 for a page",
            Fault::Rules("operation=ListObjectsV2 nth=1 effect=refuse code=SlowDown"),
        ),
        case(
            Reconcile,
            AmbiguousResponse,
            2,
            "the answer to the second of three deletes is lost",
            Fault::Rules("operation=DeleteObject nth=2 effect=lose-answer"),
        ),
        case(
            Reconcile,
            AmbiguousResponse,
            1,
            "500 for the first delete",
            Fault::Rules("operation=DeleteObject nth=1 effect=refuse code=InternalError"),
        ),
        case(
            Reconcile,
            AmbiguousResponse,
            0,
            "500 for every read of an entry",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/entries/* effect=refuse code=InternalError"),
        ),
        case(
            Reconcile,
            IntegrityFailure,
            0,
            "an entry that comes back with a wrong byte",
            Fault::Rules("operation=GetObject key=ROOT/_manifest/entries/* effect=corrupt"),
        ),
        case(Reconcile, ClockUncertain, 0, "a store whose clock is a minute fast", Fault::Clock(60_000)),
        case(
            Reconcile,
            LeaseLost,
            1,
            "the second of three orphans is looked at for longer than the lease lasts",
            // A hundred milliseconds more than LEASE is usable for, whenever it was renewed.
            Fault::Rules("operation=HeadObject nth=2 effect=delay ms=4600"),
        ),
        case(
            Reconcile,
            Brake,
            0,
            "the entry of a batch of sixty tables is refused, and all its data are orphans",
            Fault::Litter("operation=PutObject key=ROOT/_manifest/entries/* effect=refuse code=AccessDenied"),
        ),
    ]
}
