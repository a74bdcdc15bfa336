//! The actors, how they are set up here, and what stops each.

use sinks::plan::orphans::{self, Brake, LeaseTimes};
use sinks::plan::rollup;
use sinks::run;
use sinks::sink::Keeper;
use sinks::stop::{StopReason, Stopped};

use crate::Case;
use crate::stage::{Fault, Stage};

/// An actor of the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Rollup,
    Reconcile,
}

/// Policies under which each actor finds work on a small stage.
pub struct Plain {
    rollup: rollup::Policy,
    orphans: orphans::Policy,
}

impl Plain {
    /// With a brake for a stage of some twenty objects.
    pub fn new() -> Self {
        Self {
            rollup: rollup::Policy { every_entries: 1, every_ms: 1 },
            orphans: orphans::Policy {
                brake: Brake { from: 20, percent: 50, most: 1_000 },
                lease: LeaseTimes { ttl_ms: 4_500, request_ms: 1_500, margin_ms: 500 },
                ..orphans::Policy::new(200_000, 1_000, 1_500).unwrap()
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
            Self::Reconcile => run::orphans::ACTOR,
        }
    }

    /// One run. Boxed, since these are large and there are many of them in one test.
    pub async fn run(self, keeper: &Keeper, plain: &Plain) -> Result<(), Stopped> {
        match self {
            Self::Rollup => Box::pin(run::rollup::run(keeper, &plain.rollup)).await.map(drop),
            Self::Reconcile => Box::pin(run::orphans::run(keeper, &plain.orphans)).await.map(drop),
        }
    }

    /// Something that moves HEAD in a way that this actor must notice.
    pub async fn meanwhile(self, stage: &Stage) {
        Box::pin(run::rollup::run(&stage.keeper(), &Plain::new().rollup)).await.unwrap();
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
    use Actor::{Reconcile, Rollup};
    use StopReason::*;
    vec![
        case(
            Rollup,
            EpochChanged,
            0,
            "a takeover while its inventory is written",
            Fault::Takeover("operation=PutObject key=ROOT/_manifest/inventory/* nth=1 effect=delay ms=1000"),
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
        case(
            Reconcile,
            EpochChanged,
            1,
            "a takeover while the first of three deletes is under way",
            Fault::Takeover("operation=DeleteObject nth=1 effect=delay ms=1000"),
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
            "HEAD and the second of three orphans are answered after 1.3 seconds each",
            Fault::Rules(
                "operation=GetObject key=ROOT/_manifest/HEAD nth=7 effect=delay ms=1300\n\
                 operation=HeadObject nth=2 effect=delay ms=1300",
            ),
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
