//! What a running sink tells of itself, and whether it still runs.

use parking_lot::Mutex;
use serde::Serialize;

use super::missing_kind;
use crate::error::SinkError;
use crate::metrics::Metrics;
use crate::model::head::{Head, RollupRef};
use crate::model::ids::{Digest, WriterId};

/// The operational snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The epoch of this process.
    pub epoch: u64,
    /// This process.
    pub writer_id: WriterId,
    /// The last entry that it committed, or found committed.
    pub seq: u64,
    /// HEAD's revision.
    pub rev: u64,
    /// Digest of the last committed position.
    pub watermark: Option<Digest>,
    /// Its type.
    pub watermark_type: Option<String>,
    /// The last entry that the current rollup covers; 0 without one.
    pub rollup_end_seq: u64,
    /// The last entry that the rollup before it covers; 0 without one.
    pub prev_rollup_end_seq: u64,
    /// The last entry that may be collected.
    pub gc_horizon: u64,
    /// The first entry that must exist.
    pub entry_floor: u64,
    /// Batches that are queued or being written.
    pub in_flight: u64,
    /// Another process took over.
    pub fenced: bool,
    /// Why the sink stopped, if it did.
    pub last_error: Option<String>,
}

impl Status {
    /// Of HEAD alone, as a reader sees it.
    #[must_use]
    pub fn of_head(head: &Head) -> Self {
        let end = |rollup: &Option<RollupRef>| rollup.as_ref().map_or(0, |r| r.end_seq);
        Self {
            epoch: head.epoch,
            writer_id: head.owner.writer_id,
            seq: head.seq,
            rev: head.rev,
            watermark: head.watermark.as_ref().map(|watermark| watermark.digest),
            watermark_type: head.watermark.as_ref().map(|watermark| watermark.position_type.clone()),
            rollup_end_seq: end(&head.rollup),
            prev_rollup_end_seq: end(&head.prev_rollup),
            gc_horizon: end(&head.prev_rollup),
            entry_floor: head.entry_floor,
            in_flight: 0,
            fenced: false,
            last_error: None,
        }
    }
}

/// What handle, tickets and task share.
#[derive(Debug)]
pub(super) struct Shared {
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: Status,
    /// Why nothing more is committed.
    stopped: Option<SinkError>,
    /// Why nothing more is accepted.
    refusing: Option<SinkError>,
}

impl Shared {
    pub(super) fn new(metrics: Metrics, head: &Head) -> Self {
        export(&metrics, head);
        let state = State { status: Status::of_head(head), stopped: None, refusing: None };
        Self { metrics, state: Mutex::new(state) }
    }

    pub(super) fn status(&self) -> Status {
        self.state.lock().status.clone()
    }

    pub(super) fn stopped(&self) -> Option<SinkError> {
        self.state.lock().stopped.clone()
    }

    pub(super) fn refusing(&self) -> Option<SinkError> {
        let state = self.state.lock();
        state.stopped.clone().or_else(|| state.refusing.clone())
    }

    /// Accepts nothing more; what was accepted goes on.
    pub(super) fn refuse(&self, error: &SinkError) {
        tracing::error!(%error, "the sink takes no more batches");
        let mut state = self.state.lock();
        state.status.last_error = Some(error.to_string());
        state.refusing.get_or_insert_with(|| error.clone());
    }

    /// Commits nothing more.
    pub(super) fn stop(&self, error: &SinkError) {
        tracing::error!(%error, exit_code = error.exit_code(), "the sink stopped");
        count_stop(&self.metrics, error);
        let mut state = self.state.lock();
        state.status.last_error = Some(error.to_string());
        state.status.fenced = matches!(error, SinkError::Fenced { .. });
        state.stopped.get_or_insert_with(|| error.clone());
    }

    pub(super) fn queued(&self) {
        self.state.lock().status.in_flight += 1;
    }

    pub(super) fn answered(&self) {
        let status = &mut self.state.lock().status;
        status.in_flight = status.in_flight.saturating_sub(1);
    }

    pub(super) fn committed(&self, head: &Head) {
        export(&self.metrics, head);
        let mut state = self.state.lock();
        let in_flight = state.status.in_flight;
        state.status =
            Status { in_flight, last_error: state.status.last_error.take(), ..Status::of_head(head) };
    }
}

/// Counts why a sink stopped, or did not start.
pub(super) fn count_stop(metrics: &Metrics, error: &SinkError) {
    if let SinkError::Fenced { .. } = error {
        metrics.fenced_total.inc();
    }
    if let Some(kind) = missing_kind(error) {
        metrics.missing_referenced_total.with_label_values(&[kind]).inc();
    }
}

fn export(metrics: &Metrics, head: &Head) {
    let status = Status::of_head(head);
    for (gauge, value) in [
        (&metrics.epoch, status.epoch),
        (&metrics.seq, status.seq),
        (&metrics.head_rev, status.rev),
        (&metrics.rollup_end_seq, status.rollup_end_seq),
        (&metrics.prev_rollup_end_seq, status.prev_rollup_end_seq),
        (&metrics.gc_horizon, status.gc_horizon),
        (&metrics.entry_floor, status.entry_floor),
    ] {
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    if let Some(digest) = &status.watermark {
        metrics.set_watermark(digest);
    }
}
