//! The actors of the background, and why one stops before it is done. After a stop nothing is deleted in that run.

use crate::error::SinkError;

/// One actor; the word is in logs, reports and the label `actor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// Rolls entries up into inventories.
    Rollup,
    /// Marks entries that may go.
    Mark,
    /// Deletes marked entries.
    Expire,
    /// Writes adjacent objects as one.
    Compact,
    /// Deletes what a compaction has superseded.
    Originals,
    /// Deletes orphans.
    Reconcile,
}

impl Actor {
    /// All of them, in the order of a round: each finds what the ones before it have made possible.
    pub const ALL: [Self; 6] =
        [Self::Rollup, Self::Mark, Self::Expire, Self::Compact, Self::Originals, Self::Reconcile];

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollup => "rollup",
            Self::Mark => "mark",
            Self::Expire => "expire",
            Self::Compact => "compact",
            Self::Originals => "originals",
            Self::Reconcile => "reconcile",
        }
    }
}

/// Why; the word is in logs, reports and the label `reason` of `deltaforge_sink_s3_gc_stopped_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Another process owns the stream.
    EpochChanged,
    /// HEAD no longer allows what was planned.
    StalePlan,
    /// A listing that can't be trusted.
    ListingUncertain,
    /// An answer that says nothing about what happened, or none.
    AmbiguousResponse,
    /// The bucket does not hold what it must.
    IntegrityFailure,
    /// The clocks of store and process are too far apart, or the store tells none.
    ClockUncertain,
    /// The time of the lease is over.
    LeaseLost,
    /// The plan is implausible: a person must look at it.
    Brake,
}

impl StopReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::EpochChanged,
        Self::StalePlan,
        Self::ListingUncertain,
        Self::AmbiguousResponse,
        Self::IntegrityFailure,
        Self::ClockUncertain,
        Self::LeaseLost,
        Self::Brake,
    ];

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EpochChanged => "epoch_changed",
            Self::StalePlan => "stale_plan",
            Self::ListingUncertain => "listing_uncertain",
            Self::AmbiguousResponse => "ambiguous_response",
            Self::IntegrityFailure => "integrity_failure",
            Self::ClockUncertain => "clock_uncertain",
            Self::LeaseLost => "lease_lost",
            Self::Brake => "brake",
        }
    }
}

/// An early stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped, {}: {detail}", reason.name())]
pub struct Stopped {
    /// Why.
    pub reason: StopReason,
    /// What was seen, with its values.
    pub detail: String,
    /// The error behind it, where there was one.
    pub cause: Option<Box<SinkError>>,
}

impl Stopped {
    /// For `reason`, with what was seen.
    pub fn new(reason: StopReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), cause: None }
    }

    /// The exit code of a one-shot command that ends for this.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (self.reason, &self.cause) {
            // What the store refused for good, a newer release's object and our own faults are no silence.
            (StopReason::AmbiguousResponse | StopReason::StalePlan, Some(cause)) => cause.exit_code(),
            (StopReason::Brake, _) => 1,
            (
                StopReason::StalePlan
                | StopReason::ListingUncertain
                | StopReason::ClockUncertain
                | StopReason::LeaseLost,
                _,
            ) => 3,
            (StopReason::IntegrityFailure, _) => 5,
            (StopReason::EpochChanged, _) => 6,
            (StopReason::AmbiguousResponse, None) => 7,
        }
    }
}

impl From<SinkError> for Stopped {
    fn from(error: SinkError) -> Self {
        let reason = match &error {
            SinkError::Fenced { .. } => StopReason::EpochChanged,
            SinkError::Integrity(_) => StopReason::IntegrityFailure,
            SinkError::NewerWriter { .. } | SinkError::Closed => StopReason::StalePlan,
            _ => StopReason::AmbiguousResponse,
        };
        Self { reason, detail: error.to_string(), cause: Some(Box::new(error)) }
    }
}
