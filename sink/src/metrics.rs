//! What a sink counts, under the names that alerts are written for.
//!
//! Every metric carries the labels `pipeline` and `sink`. Names are exported as they stand here: nothing
//! appends `_total` or a unit. Label values that are known beforehand exist from the start with 0, since an
//! absent series is not a 0 (Prometheus, "Instrumentation: avoid missing metrics").

use std::collections::HashMap;

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

use crate::model::ids::Digest;
use crate::plan::compact::Lag;
use crate::stop::{Actor, StopReason};

/// Why HEAD was written: the values of the label `intent`.
pub const INTENTS: [&str; 8] =
    ["init", "acquire", "publish", "rollup", "floor", "lease", "compaction", "rebase"];

/// Kinds of objects that HEAD refers to: the values of the label `kind`.
pub const REFERENCED: [&str; 5] = ["data", "entry", "inventory", "rollup", "compaction"];

/// Parts of a publish: the values of the label `stage`.
pub const STAGES: [&str; 3] = ["data", "entry", "cas"];

/// Upper bounds of the latency buckets, in seconds: from loopback to a store that is about to time out.
const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// All metrics of one sink. A clone counts into the same series.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// 1 where acknowledged data can be lost before a roll, an explicit 0 in durable mode. Alert on 1.
    pub non_durable_ack_mode: IntGauge,
    /// Hard alarm, by `kind` of object: HEAD refers to an object that is absent.
    pub missing_referenced_total: IntCounterVec,
    /// Swaps of HEAD lost to another writer, by `intent`.
    pub cas_conflicts: IntCounterVec,
    /// Refused swaps that turned out to be our own that had landed, by `intent`: normal on a bad network.
    pub cas_self_conflicts: IntCounterVec,
    /// Swaps without a usable answer, by `intent`.
    pub cas_ambiguous: IntCounterVec,
    /// Times that this writer lost its ownership.
    pub fenced_total: IntCounter,
    /// The epoch that this process owns; 0 before it acquired one.
    pub epoch: IntGauge,
    /// The last committed entry; 0 where there is none.
    pub seq: IntGauge,
    /// The revision of HEAD.
    pub head_rev: IntGauge,
    /// The last entry that the current rollup covers.
    pub rollup_end_seq: IntGauge,
    /// The last entry that the rollup before it covers.
    pub prev_rollup_end_seq: IntGauge,
    /// The last entry that may be collected.
    pub gc_horizon: IntGauge,
    /// The first entry that must exist.
    pub entry_floor: IntGauge,
    /// What compaction has not caught up with, by `unit`: live originals (`objects`), entries (`seqs`).
    pub compaction_lag: IntGaugeVec,
    /// Early stops, by `actor` and `reason`.
    pub gc_stopped_total: IntCounterVec,
    /// Runs of an actor of the background, by `actor`, early stops included.
    pub actor_runs_total: IntCounterVec,
    /// 1 once an integrity failure turned all actors off, until a restart.
    pub actors_off: IntGauge,
    /// Orphans deleted by reconciliation.
    pub reconcile_deleted_total: IntCounter,
    /// Unreachable objects in the last listing.
    pub orphans_seen: IntGauge,
    /// The last probe, by the number of its `check`: 1 passed, 0 not.
    pub probe_result: IntGaugeVec,
    /// Time of each `stage` of a publish, in seconds.
    pub publish_seconds: HistogramVec,
    watermark_info: IntGaugeVec,
    /// Events read from the source.
    pub events_read_total: IntCounter,
    /// Events left out since the bucket already had them.
    pub events_trimmed_total: IntCounter,
    /// Events of acknowledged batches.
    pub events_acknowledged_total: IntCounter,
    /// Acknowledged batches.
    pub batches_acknowledged_total: IntCounter,
    /// `legacy_rolling`: rows that were acknowledged and are lost if the process ends now.
    pub unrolled_rows: IntGauge,
    /// `legacy_rolling`: files that are in the bucket.
    pub rolled_files_total: IntCounter,
}

impl Metrics {
    /// Metrics of one pipeline's sink, in a registry of their own.
    #[must_use]
    pub fn new(pipeline: &str, sink: &str) -> Self {
        let labels = [("pipeline", pipeline), ("sink", sink)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let make = Maker { registry: Registry::new(), labels: HashMap::from(labels) };
        let metrics = Self {
            non_durable_ack_mode: make
                .gauge("non_durable_ack_mode", "1 if acknowledged data can be lost before a roll."),
            missing_referenced_total: make.counters(
                "missing_referenced_total",
                "Referenced objects found absent.",
                &["kind"],
            ),
            cas_conflicts: make.counters(
                "cas_conflicts",
                "Swaps of HEAD lost to another writer.",
                &["intent"],
            ),
            cas_self_conflicts: make.counters(
                "cas_self_conflicts",
                "Refused swaps of HEAD that had landed before.",
                &["intent"],
            ),
            cas_ambiguous: make.counters("cas_ambiguous", "Swaps of HEAD without an answer.", &["intent"]),
            fenced_total: make.counter("fenced_total", "Times that this writer lost its ownership."),
            epoch: make.gauge("epoch", "Epoch that this process owns."),
            seq: make.gauge("seq", "Last committed entry."),
            head_rev: make.gauge("head_rev", "Revision of HEAD."),
            rollup_end_seq: make.gauge("rollup_end_seq", "Last entry of the current rollup."),
            prev_rollup_end_seq: make.gauge("prev_rollup_end_seq", "Last entry of the previous rollup."),
            gc_horizon: make.gauge("gc_horizon", "Last entry that may be collected."),
            entry_floor: make.gauge("entry_floor", "First entry that must exist."),
            compaction_lag: make.gauges("compaction_lag", "What is not compacted yet.", &["unit"]),
            gc_stopped_total: make.counters(
                "gc_stopped_total",
                "Actors that stopped early.",
                &["actor", "reason"],
            ),
            actor_runs_total: make.counters("actor_runs_total", "Runs of an actor.", &["actor"]),
            actors_off: make.gauge("actors_off", "1 if an integrity failure turned all actors off."),
            reconcile_deleted_total: make.counter("reconcile_deleted_total", "Orphans deleted."),
            orphans_seen: make
                .gauge("orphans_seen", "Orphans older than the grace period in the last listing."),
            probe_result: make.gauges("probe_result", "The last probe: 1 passed.", &["check"]),
            publish_seconds: make.seconds("publish_seconds", "Time of each part of a publish.", &["stage"]),
            watermark_info: make.gauges("watermark_info", "Digest of the watermark.", &["digest"]),
            events_read_total: make.counter("events_read_total", "Events read from the source."),
            events_trimmed_total: make.counter("events_trimmed_total", "Events that the bucket already had."),
            events_acknowledged_total: make
                .counter("events_acknowledged_total", "Events of acknowledged batches."),
            batches_acknowledged_total: make.counter("batches_acknowledged_total", "Acknowledged batches."),
            unrolled_rows: make.gauge("unrolled_rows", "Rows acknowledged and not rolled."),
            rolled_files_total: make.counter("rolled_files_total", "Files that were rolled."),
            registry: make.registry,
        };
        metrics.start_at_zero();
        metrics
    }

    fn start_at_zero(&self) {
        for intent in INTENTS {
            for counters in [&self.cas_conflicts, &self.cas_self_conflicts, &self.cas_ambiguous] {
                counters.with_label_values(&[intent]);
            }
        }
        for stage in STAGES {
            self.publish_seconds.with_label_values(&[stage]);
        }
        for kind in REFERENCED {
            self.missing_referenced_total.with_label_values(&[kind]);
        }
        for actor in Actor::ALL.map(Actor::name) {
            self.actor_runs_total.with_label_values(&[actor]);
            for reason in StopReason::ALL.map(StopReason::name) {
                self.gc_stopped_total.with_label_values(&[actor, reason]);
            }
        }
        for unit in ["objects", "seqs"] {
            self.compaction_lag.with_label_values(&[unit]);
        }
    }

    /// Names the watermark; the digest before it is no longer exported.
    pub fn set_watermark(&self, digest: &Digest) {
        self.watermark_info.reset();
        self.watermark_info.with_label_values(&[&digest.to_string()]).set(1);
    }

    /// What compaction has not caught up with.
    pub fn set_compaction_lag(&self, lag: &Lag) {
        for (unit, behind) in [("objects", lag.objects), ("seqs", lag.seqs)] {
            let gauge = self.compaction_lag.with_label_values(&[unit]);
            gauge.set(i64::try_from(behind).unwrap_or(i64::MAX));
        }
    }

    /// The histogram of one of [`STAGES`], in seconds.
    #[must_use]
    pub fn stage_seconds(&self, stage: &str) -> Histogram {
        self.publish_seconds.with_label_values(&[stage])
    }

    /// Prometheus's text format, version 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        // Memory takes every byte, and every family of this registry has a series or is left out.
        TextEncoder::new().encode(&self.registry.gather(), &mut out).expect("text of registered metrics");
        String::from_utf8(out).expect("the text format is UTF-8")
    }
}

/// Registers metrics under the guide's prefix. Names and labels are literals of this file: a wrong one fails
/// each test of it.
struct Maker {
    registry: Registry,
    labels: HashMap<String, String>,
}

impl Maker {
    fn opts(&self, name: &str, what: &str) -> Opts {
        Opts::new(format!("deltaforge_sink_s3_{name}"), what).const_labels(self.labels.clone())
    }

    fn register<M: prometheus::core::Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect("a legal name and legal labels");
        self.registry.register(Box::new(metric.clone())).expect("each name once");
        metric
    }

    fn gauge(&self, name: &str, what: &str) -> IntGauge {
        self.register(IntGauge::with_opts(self.opts(name, what)))
    }

    fn gauges(&self, name: &str, what: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(self.opts(name, what), labels))
    }

    fn counter(&self, name: &str, what: &str) -> IntCounter {
        self.register(IntCounter::with_opts(self.opts(name, what)))
    }

    fn counters(&self, name: &str, what: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(self.opts(name, what), labels))
    }

    fn seconds(&self, name: &str, what: &str, labels: &[&str]) -> HistogramVec {
        let opts = HistogramOpts { common_opts: self.opts(name, what), buckets: SECONDS.to_vec() };
        self.register(HistogramVec::new(opts, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(metrics: &Metrics) -> Vec<String> {
        metrics.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_guides_names_are_exported_as_printed() {
        let metrics = Metrics::new("orders", "s3");
        metrics.cas_conflicts.with_label_values(&["publish"]).inc();
        let lines = lines(&metrics);
        for line in [
            r#"deltaforge_sink_s3_non_durable_ack_mode{pipeline="orders",sink="s3"} 0"#,
            r#"deltaforge_sink_s3_cas_conflicts{intent="publish",pipeline="orders",sink="s3"} 1"#,
            r#"deltaforge_sink_s3_cas_conflicts{intent="acquire",pipeline="orders",sink="s3"} 0"#,
            r#"deltaforge_sink_s3_compaction_lag{pipeline="orders",sink="s3",unit="objects"} 0"#,
            r#"deltaforge_sink_s3_fenced_total{pipeline="orders",sink="s3"} 0"#,
            r#"deltaforge_sink_s3_missing_referenced_total{kind="data",pipeline="orders",sink="s3"} 0"#,
            r#"deltaforge_sink_s3_gc_stopped_total{actor="reconcile",pipeline="orders",reason="brake",sink="s3"} 0"#,
            r#"deltaforge_sink_s3_publish_seconds_count{pipeline="orders",sink="s3",stage="cas"} 0"#,
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn one_watermark_is_named_at_a_time() {
        let metrics = Metrics::new("orders", "s3");
        let info = || -> Vec<String> {
            lines(&metrics)
                .into_iter()
                .filter(|line| line.starts_with("deltaforge_sink_s3_watermark_info{"))
                .collect()
        };
        assert!(info().is_empty());
        metrics.set_watermark(&Digest::of(b"one"));
        let second = Digest::of(b"two");
        metrics.set_watermark(&second);
        let expected = format!(
            r#"deltaforge_sink_s3_watermark_info{{digest="{second}",pipeline="orders",sink="s3"}} 1"#
        );
        assert_eq!(info(), [expected]);
    }

    #[test]
    fn pipelines_do_not_share_series() {
        let (one, two) = (Metrics::new("one", "s3"), Metrics::new("two", "s3"));
        one.clone().fenced_total.inc();
        assert_eq!((one.fenced_total.get(), two.fenced_total.get()), (1, 0));
    }
}
