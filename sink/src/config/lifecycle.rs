//! Settings of the actors that keep a stream small over its lifetime, with the guide's names.

use super::ConfigError;
use super::values::Values;

/// Which actors of the background run, and when.
///
/// Rolling up and marking delete nothing and run unless they are turned off; whatever deletes or rewrites is off
/// unless it is turned on (operations guide, "Lifecycle and garbage-collection settings").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// Milliseconds between two rounds of the actors.
    pub actors_every_ms: u64,
    /// Entries after which a rollup is due.
    pub rollup_every_entries: u64,
    /// Milliseconds after which a rollup is due that has at least one new entry.
    pub rollup_every_ms: u64,
    /// Whether entries are marked.
    pub mark_entries: bool,
    /// Milliseconds that a rollup generation must have been published before entries are marked.
    pub safety_window_ms: u64,
    /// Whether marked entries are deleted.
    pub expire_entries: bool,
    /// Whether adjacent objects are compacted.
    pub compact: bool,
    /// Fewest objects that become one.
    pub compaction_min_inputs: u64,
    /// Most objects that become one.
    pub compaction_max_inputs: u64,
    /// Stored bytes of the inputs of one output, at most.
    pub compaction_target_bytes: u64,
    /// Whether originals that a compaction superseded are deleted.
    pub delete_originals: bool,
    /// Milliseconds from a compaction's publication until its originals may go.
    pub originals_retention_ms: u64,
    /// Whether orphans are deleted.
    pub reconcile: bool,
    /// Age above which an unreachable object is an orphan, in milliseconds.
    pub grace_period_ms: u64,
    /// Milliseconds between two reconciliations: each lists everything.
    pub reconcile_every_ms: u64,
    /// Share of the listed objects above which a reconciliation stops and asks, in percent.
    pub brake_percent: u64,
    /// Deletes above which a reconciliation stops and asks.
    pub brake_objects: u64,
    /// Whether only data that carries this stream's id is deleted as an orphan.
    pub require_owner_stamp: bool,
}

impl Lifecycle {
    pub(super) fn read(values: &Values, send_timeout_ms: u64) -> Result<Self, ConfigError> {
        let number = |name: &str| values.number(&format!("sinks[].{name}")).unwrap_or_default();
        let flag = |name: &str| values.flag(&format!("sinks[].{name}"));
        let lifecycle = Self {
            actors_every_ms: number("actors_every_ms"),
            rollup_every_entries: number("rollup_every_entries"),
            rollup_every_ms: number("rollup_every_ms"),
            mark_entries: flag("mark_entries"),
            safety_window_ms: number("safety_window_ms"),
            expire_entries: flag("expire_entries"),
            compact: flag("compact"),
            compaction_min_inputs: number("compaction.min_inputs"),
            compaction_max_inputs: number("compaction.max_inputs"),
            compaction_target_bytes: number("compaction.target_bytes"),
            delete_originals: flag("delete_originals"),
            originals_retention_ms: number("originals_retention_ms"),
            reconcile: flag("reconcile"),
            grace_period_ms: number("grace_period_ms"),
            reconcile_every_ms: number("reconcile_every_ms"),
            brake_percent: number("brake.percent"),
            brake_objects: number("brake.objects"),
            require_owner_stamp: flag("require_owner_stamp"),
        };
        lifecycle.check(send_timeout_ms)
    }

    fn check(self, send_timeout_ms: u64) -> Result<Self, ConfigError> {
        let least_ms = send_timeout_ms.saturating_mul(2);
        if self.grace_period_ms < least_ms {
            return Err(ConfigError::GracePeriod {
                found_ms: self.grace_period_ms,
                send_timeout_ms,
                least_ms,
            });
        }
        if self.compaction_max_inputs < self.compaction_min_inputs {
            return Err(ConfigError::Together {
                path: "sinks[0].compaction.max_inputs",
                rule: "it is at least compaction.min_inputs",
            });
        }
        Ok(self)
    }
}
