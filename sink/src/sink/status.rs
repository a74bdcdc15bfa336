//! What a running sink tells of itself, and whether it still runs.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use crate::error::SinkError;
use crate::metrics::Metrics;
use crate::model::head::{Head, RollupRef};
use crate::model::ids::{Digest, WriterId};
use crate::stop::Stopped;

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
    /// Generation of the current rollup; 0 without one.
    pub rollup_generation: u64,
    /// The last entry that the current rollup covers; 0 without one.
    pub rollup_end_seq: u64,
    /// When it was published, in milliseconds since 1970 by its writer's clock.
    pub rollup_published_at_ms: Option<u64>,
    /// How long ago that is, in milliseconds.
    pub rollup_age_ms: Option<u64>,
    /// The last entry that the rollup before it covers; 0 without one.
    pub prev_rollup_end_seq: u64,
    /// The last entry that may be collected.
    pub gc_horizon: u64,
    /// The first entry that must exist.
    pub entry_floor: u64,
    /// The right to delete orphans, if somebody has it.
    pub lease: Option<LeaseStatus>,
    /// Batches that are queued or being written.
    pub in_flight: u64,
    /// Another process took over.
    pub fenced: bool,
    /// Why the sink stopped, if it did.
    pub last_error: Option<String>,
    /// The actors of the background, by name; none where none were started.
    pub actors: BTreeMap<&'static str, ActorStatus>,
}

/// Who may delete orphans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseStatus {
    /// Its actor.
    pub actor: String,
    /// The epoch of its holder.
    pub epoch: u64,
    /// How long it holds, in milliseconds.
    pub ttl_ms: u64,
}

/// What one actor of the background did last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActorStatus {
    /// Whether it is turned on.
    pub on: bool,
    /// Runs of it, early stops included.
    pub runs: u64,
    /// When the last one ended, in milliseconds since 1970.
    pub last_run_ms: Option<u64>,
    /// When it stopped early the last time.
    pub last_stop_ms: Option<u64>,
    /// Why, as a word of `gc_stopped_total`.
    pub last_stop_reason: Option<&'static str>,
    /// What was seen.
    pub last_stop_detail: Option<String>,
}

impl Status {
    /// The same at `now_ms`, which ages the rollup.
    #[must_use]
    pub fn at(self, now_ms: u64) -> Self {
        let rollup_age_ms = self.rollup_published_at_ms.map(|at| now_ms.saturating_sub(at));
        Self { rollup_age_ms, ..self }
    }

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
            rollup_generation: head.rollup.as_ref().map_or(0, |rollup| rollup.generation),
            rollup_end_seq: end(&head.rollup),
            rollup_published_at_ms: head.rollup.as_ref().map(|rollup| rollup.published_at_ms),
            rollup_age_ms: None,
            prev_rollup_end_seq: end(&head.prev_rollup),
            gc_horizon: end(&head.prev_rollup),
            entry_floor: head.entry_floor,
            lease: head.lease.as_ref().map(|lease| LeaseStatus {
                actor: lease.actor.clone(),
                epoch: lease.epoch,
                ttl_ms: lease.ttl_ms,
            }),
            in_flight: 0,
            fenced: false,
            last_error: None,
            actors: BTreeMap::new(),
        }
    }
}

/// What handle, tickets and task share.
#[derive(Debug)]
pub(super) struct Shared {
    metrics: Metrics,
    state: Mutex<State>,
    /// Why nothing more is committed or acknowledged.
    stopped: watch::Sender<Option<SinkError>>,
}

#[derive(Debug)]
struct State {
    status: Status,
    /// Why nothing more is accepted.
    refusing: Option<SinkError>,
}

impl Shared {
    pub(super) fn new(metrics: Metrics, head: &Head) -> Self {
        export(&metrics, head);
        let state = State { status: Status::of_head(head), refusing: None };
        Self { metrics, state: Mutex::new(state), stopped: watch::Sender::new(None) }
    }

    pub(super) fn status(&self) -> Status {
        self.state.lock().status.clone()
    }

    pub(super) fn stopped(&self) -> Option<SinkError> {
        self.stopped.borrow().clone()
    }

    /// Waits until the sink stopped, and says why.
    pub(super) async fn ended(&self) -> SinkError {
        let mut stopped = self.stopped.subscribe();
        let error = stopped.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        // The sender is here, so that the wait ends with an error only.
        error.unwrap_or(SinkError::Closed)
    }

    pub(super) fn refusing(&self) -> Option<SinkError> {
        self.stopped().or_else(|| self.state.lock().refusing.clone())
    }

    /// Accepts nothing more; what was accepted goes on.
    pub(super) fn refuse(&self, error: &SinkError) {
        tracing::error!(%error, "the sink takes no more batches");
        let mut state = self.state.lock();
        state.status.last_error = Some(error.to_string());
        state.refusing.get_or_insert_with(|| error.clone());
    }

    /// Commits and acknowledges nothing more. The first reason stays.
    pub(super) fn stop(&self, error: &SinkError) {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert_with(|| error.clone());
            first
        });
        if !first {
            return;
        }
        tracing::error!(%error, exit_code = error.exit_code(), "the sink stopped");
        count_stop(&self.metrics, error);
        let status = &mut self.state.lock().status;
        status.last_error = Some(error.to_string());
        status.fenced = matches!(error, SinkError::Fenced { .. });
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
        let before = &mut state.status;
        let (in_flight, fenced, last_error) = (before.in_flight, before.fenced, before.last_error.take());
        let actors = std::mem::take(&mut before.actors);
        state.status = Status { in_flight, fenced, last_error, actors, ..Status::of_head(head) };
    }

    pub(super) fn turned(&self, actor: &'static str, on: bool) {
        self.state.lock().status.actors.entry(actor).or_default().on = on;
    }

    pub(super) fn ran(&self, actor: &'static str, now_ms: u64, stopped: Option<&Stopped>) {
        let mut state = self.state.lock();
        let status = state.status.actors.entry(actor).or_default();
        status.runs += 1;
        status.last_run_ms = Some(now_ms);
        if let Some(stopped) = stopped {
            status.last_stop_ms = Some(now_ms);
            status.last_stop_reason = Some(stopped.reason.name());
            status.last_stop_detail = Some(stopped.detail.clone());
        }
    }
}

/// Counts why a sink stopped, or did not start.
pub(super) fn count_stop(metrics: &Metrics, error: &SinkError) {
    if let SinkError::Fenced { .. } = error {
        metrics.fenced_total.inc();
    }
    if let Some(kind) = error.missing_kind() {
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
