//! Named points of the protocol, at which a process can be made to end: after one durable action, before the
//! next. Without the feature `protocol-points` reaching one does nothing.
//!
//! With it, the environment variable `ASSAY_PROTOCOL_POINT` arms one point of a process, which then ends with
//! exit code 86 there, once. `ASSAY_PROTOCOL_POINT_FIRED` may name a file: the point fires only if it can
//! create it, so that a restart with the same environment runs on, and the file proves that it fired.

/// A point, between two durable actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Data objects are written, the entry is not.
    PubAfterData,
    /// The entry is written, HEAD is not.
    PubAfterEntry,
    /// The hint is known to be written too, HEAD is about to be swapped.
    PubBeforeCas,
    /// HEAD is swapped, and the answer known.
    PubAfterCas,
    /// Everything is done but the acknowledgement.
    PubBeforeAck,
    /// The closure is verified, the epoch is about to be acquired.
    AcqBeforeCas,
    /// The epoch is acquired.
    AcqAfterCas,
    /// The inventories are written and read back, the rollup is not written.
    RollupAfterInventory,
    /// The rollup is written and read back, HEAD is not swapped.
    RollupAfterRollup,
    /// A mark is written, and nothing of it deleted.
    GcAfterMark,
    /// The floor is published, and no entry below it deleted.
    GcAfterFloor,
    /// Some entries below the floor are deleted.
    GcMidDelete,
    /// A compaction's output is written and read back, its record is not written.
    CompAfterOutput,
    /// A compaction's record is written and read back, HEAD is not swapped.
    CompAfterRecord,
    /// An interval is about to be staged.
    SinkBeforePrepare,
    /// The upload is created, no part is stored.
    SinkAfterCreateUpload,
    /// The first part is stored; whether others are to come or not.
    SinkMidParts,
    /// All parts are stored, and no handle exists.
    SinkAfterPrepare,
    /// The handle is in the sink's state, and in no snapshot.
    SinkAfterHandlePut,
    /// The snapshot is durable, its marker is not.
    CoordinatorBeforeCompletedMarker,
    /// The marker is durable.
    CoordinatorAfterCompletedMarker,
    /// Nobody is told of the marker yet.
    CoordinatorBeforeCommitBroadcast,
    /// The upload may be completed, and Complete is about to be sent.
    SinkBeforeCommit,
    /// The object is visible, and nothing of ours says so.
    SinkAfterExternalCommit,
    /// The receipt is about to be written.
    SinkBeforeReceipt,
    /// The receipt is durable, the handle is not forgotten.
    SinkAfterReceipt,
    /// The bucket is listed, what HEAD reaches is about to be read.
    RecAfterListing,
    /// One orphan is deleted, the next is not.
    RecMidDelete,
}

impl Point {
    /// Every point.
    pub const ALL: [Self; 28] = [
        Self::PubAfterData,
        Self::PubAfterEntry,
        Self::PubBeforeCas,
        Self::PubAfterCas,
        Self::PubBeforeAck,
        Self::AcqBeforeCas,
        Self::AcqAfterCas,
        Self::RollupAfterInventory,
        Self::RollupAfterRollup,
        Self::GcAfterMark,
        Self::GcAfterFloor,
        Self::GcMidDelete,
        Self::CompAfterOutput,
        Self::CompAfterRecord,
        Self::SinkBeforePrepare,
        Self::SinkAfterCreateUpload,
        Self::SinkMidParts,
        Self::SinkAfterPrepare,
        Self::SinkAfterHandlePut,
        Self::CoordinatorBeforeCompletedMarker,
        Self::CoordinatorAfterCompletedMarker,
        Self::CoordinatorBeforeCommitBroadcast,
        Self::SinkBeforeCommit,
        Self::SinkAfterExternalCommit,
        Self::SinkBeforeReceipt,
        Self::SinkAfterReceipt,
        Self::RecAfterListing,
        Self::RecMidDelete,
    ];

    /// Its name, as it is armed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PubAfterData => "pub.after_data",
            Self::PubAfterEntry => "pub.after_entry",
            Self::PubBeforeCas => "pub.before_cas",
            Self::PubAfterCas => "pub.after_cas",
            Self::PubBeforeAck => "pub.before_ack",
            Self::AcqBeforeCas => "acq.before_cas",
            Self::AcqAfterCas => "acq.after_cas",
            Self::RollupAfterInventory => "rollup.after_inventory",
            Self::RollupAfterRollup => "rollup.after_rollup",
            Self::GcAfterMark => "gc.after_mark",
            Self::GcAfterFloor => "gc.after_floor",
            Self::GcMidDelete => "gc.mid_delete",
            Self::CompAfterOutput => "comp.after_output",
            Self::CompAfterRecord => "comp.after_record",
            Self::SinkBeforePrepare => "sink.before_prepare",
            Self::SinkAfterCreateUpload => "sink.after_create_upload",
            Self::SinkMidParts => "sink.mid_parts",
            Self::SinkAfterPrepare => "sink.after_prepare",
            Self::SinkAfterHandlePut => "sink.after_handle_put",
            Self::CoordinatorBeforeCompletedMarker => "coordinator.before_completed_marker",
            Self::CoordinatorAfterCompletedMarker => "coordinator.after_completed_marker",
            Self::CoordinatorBeforeCommitBroadcast => "coordinator.before_commit_broadcast",
            Self::SinkBeforeCommit => "sink.before_commit",
            Self::SinkAfterExternalCommit => "sink.after_external_commit",
            Self::SinkBeforeReceipt => "sink.before_receipt",
            Self::SinkAfterReceipt => "sink.after_receipt",
            Self::RecAfterListing => "rec.after_listing",
            Self::RecMidDelete => "rec.mid_delete",
        }
    }

    /// The point of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }

    /// The package whose code reaches it: once, which a test of that package shows.
    #[must_use]
    pub const fn package(self) -> &'static str {
        match self {
            Self::CoordinatorBeforeCompletedMarker
            | Self::CoordinatorAfterCompletedMarker
            | Self::CoordinatorBeforeCommitBroadcast => "assay-campaign",
            _ => "sinks",
        }
    }
}

/// Whether this build can be armed.
pub const ARMABLE: bool = cfg!(feature = "protocol-points");

/// Exit code of a process that ended at a point: none of a panic, a signal or the sink's own.
pub const EXIT_CODE: i32 = 86;

/// Ends the process if `point` is armed.
pub fn reach(point: Point) {
    #[cfg(feature = "protocol-points")]
    armed::reach(point);
    #[cfg(not(feature = "protocol-points"))]
    let _ = point;
}

#[cfg(feature = "protocol-points")]
mod armed {
    use super::{EXIT_CODE, Point};

    pub(super) fn reach(point: Point) {
        let armed = std::env::var("ASSAY_PROTOCOL_POINT");
        if armed.as_deref() != Ok(point.name()) {
            return;
        }
        if let Ok(record) = std::env::var("ASSAY_PROTOCOL_POINT_FIRED") {
            let Ok(file) = std::fs::File::create_new(record) else { return };
            // The record is the proof: without it on the disk the point has not fired.
            if file.sync_all().is_err() {
                return;
            }
        }
        std::process::exit(EXIT_CODE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_reached_by_the_code() {
        let run = [
            include_str!("run/publish.rs"),
            include_str!("run/acquire.rs"),
            include_str!("run/gc/expire.rs"),
            include_str!("run/gc/mark.rs"),
            include_str!("run/rollup.rs"),
            include_str!("run/compact.rs"),
            include_str!("run/orphans.rs"),
            include_str!("sink.rs"),
            include_str!("run/stage/prepare.rs"),
            include_str!("run/stage/commit.rs"),
            include_str!("stage/sink.rs"),
        ];
        for point in Point::ALL.into_iter().filter(|point| point.package() == "sinks") {
            assert_eq!(Point::named(point.name()), Some(point));
            let call = format!("point::reach(Point::{point:?})");
            assert_eq!(run.iter().map(|text| text.matches(&call).count()).sum::<usize>(), 1, "{call}");
        }
        let names: std::collections::BTreeSet<&str> = Point::ALL.map(Point::name).into();
        assert_eq!(names.len(), Point::ALL.len());
    }
}
