//! The faults that there are, what each is called and made by, and which ones a gate must show.

use sinks::point::Point;

use crate::plan::Sink;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of a worker.
    WorkerKill,
    /// A process ends at a named point.
    At(Point),
    /// The store's process is killed and started again: connections are refused meanwhile.
    StoreRefuses,
    /// The store's process is stopped and continued: connections hang.
    StoreHangs,
    /// The store refuses connections while the recovery of a lost worker needs it.
    StoreRefusesRecovery,
    /// The store hangs while the recovery of a lost worker needs it.
    StoreHangsRecovery,
    /// A worker is cut off its coordinator.
    Partition,
    /// Everything between the workers and the coordinator is late.
    Delay,
    /// Packets between all processes are lost.
    Loss,
    /// SIGKILL of the coordinator; the workers stay.
    CoordinatorKill,
    /// SIGKILL of the log.
    LogRestart,
    /// The log's process is stopped and continued: what it was asked meanwhile it may do late.
    LogHangs,
    /// A worker is stopped for longer than it may be silent, another takes its place, then it goes on.
    Zombie,
    /// While a worker is away, someone else writes at the keys that it is to commit. It can't be healed: no campaign
    /// may pass, and a sink that is worth anything stops.
    ForeignObject,
}

impl Fault {
    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::WorkerKill => "worker SIGKILL".to_owned(),
            Self::At(point) => format!("point {}", point.name()),
            Self::StoreRefuses => "store away, refusing".to_owned(),
            Self::StoreHangs => "store away, hanging".to_owned(),
            Self::StoreRefusesRecovery => "store away while a recovery needs it, refusing".to_owned(),
            Self::StoreHangsRecovery => "store away while a recovery needs it, hanging".to_owned(),
            Self::Partition => "partition from the coordinator".to_owned(),
            Self::Delay => "delay to the coordinator".to_owned(),
            Self::Loss => "loss of packets".to_owned(),
            Self::CoordinatorKill => "coordinator SIGKILL".to_owned(),
            Self::LogRestart => "log SIGKILL and restart".to_owned(),
            Self::LogHangs => "log away, hanging".to_owned(),
            Self::Zombie => "worker stopped, succeeded and continued".to_owned(),
            Self::ForeignObject => "foreign objects at keys to be committed".to_owned(),
        }
    }

    /// The mechanism that this machine has for it.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::WorkerKill | Self::CoordinatorKill | Self::LogRestart | Self::StoreRefuses => {
                "kill -9 of the process"
            }
            Self::At(_) => "exit at the armed point, code 86 and a record",
            Self::StoreHangs | Self::LogHangs => "SIGSTOP, SIGCONT",
            Self::Zombie => "SIGSTOP, another process in its place, SIGCONT",
            Self::ForeignObject => "exit before the commit, then a PUT at each of its keys",
            Self::StoreRefusesRecovery => "exit before the commit, then kill -9 of the store",
            Self::StoreHangsRecovery => "exit before the commit, then SIGSTOP of the store",
            Self::Partition => "a relay that forwards nothing",
            Self::Delay => "a relay that forwards 300 ms later",
            Self::Loss => "a rule of the kernel's packet filter drops one packet in ten",
        }
    }

    /// Every fault that a gate must show, in order. The short form leaves out points that others are close to, and
    /// what takes long; of the two ways to be away in a recovery it has the one that the seed says. Packets are lost
    /// where the machine can: [`crate::loss::Loss`].
    #[must_use]
    pub fn mandatory(sink: Sink, short: bool, seed: u64) -> Vec<Self> {
        let mut all = Self::of_sink(sink, short);
        let left_out = match seed % 2 {
            0 => Self::StoreRefusesRecovery,
            _ => Self::StoreHangsRecovery,
        };
        all.retain(|fault| !short || *fault != left_out);
        all
    }

    /// Whether it needs the log to be a process of the campaign.
    #[must_use]
    pub const fn of_log(self) -> bool {
        matches!(self, Self::LogRestart | Self::LogHangs)
    }

    fn of_sink(sink: Sink, short: bool) -> Vec<Self> {
        if sink == Sink::DurableV2 {
            return Self::of_pipelines(short);
        }
        let points = Point::ALL.into_iter().filter(|point| {
            let name = point.name();
            let close = [
                Point::SinkAfterCreateUpload,
                Point::SinkMidParts,
                Point::SinkAfterHandlePut,
                Point::CoordinatorBeforeCommitBroadcast,
                Point::SinkBeforeReceipt,
                Point::SinkAfterReceipt,
            ];
            (name.starts_with("sink.") || name.starts_with("coordinator."))
                && !(short && close.contains(point))
        });
        let mut all = vec![Self::WorkerKill];
        all.extend(points.map(Self::At));
        all.extend([Self::StoreRefusesRecovery, Self::StoreHangsRecovery]);
        all.extend([Self::StoreRefuses, Self::CoordinatorKill]);
        if !short {
            all.extend([Self::StoreHangs, Self::Partition, Self::Delay, Self::LogRestart, Self::LogHangs]);
            all.extend([Self::Zombie, Self::Loss]);
        }
        all
    }

    /// The same where there is no coordinator.
    fn of_pipelines(short: bool) -> Vec<Self> {
        let close = [
            Point::PubAfterData,
            Point::PubBeforeCas,
            Point::PubBeforeAck,
            Point::AcqBeforeCas,
            Point::RollupAfterInventory,
            Point::RollupAfterRollup,
            Point::GcAfterMark,
            Point::GcMidDelete,
            Point::CompAfterOutput,
            Point::RecAfterListing,
            Point::RecMidDelete,
        ];
        let points = Point::ALL.into_iter().filter(|point| {
            let areas = ["pub.", "acq.", "rollup.", "gc.", "comp.", "rec."];
            areas.iter().any(|area| point.name().starts_with(area)) && !(short && close.contains(point))
        });
        let mut all = vec![Self::WorkerKill];
        all.extend(points.map(Self::At));
        all.extend([Self::StoreRefusesRecovery, Self::StoreHangsRecovery]);
        if !short {
            all.extend([
                Self::StoreRefuses,
                Self::StoreHangs,
                Self::LogRestart,
                Self::LogHangs,
                Self::Zombie,
                Self::Loss,
            ]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gates_of_both_sinks_show_every_point() {
        let shown = [Sink::Staged, Sink::DurableV2].map(|sink| Fault::mandatory(sink, false, 1)).concat();
        for point in Point::ALL {
            assert!(shown.contains(&Fault::At(point)), "{}", point.name());
        }
    }

    #[test]
    fn the_short_gate_has_the_points_on_both_sides_and_one_outage_in_a_recovery() {
        for (seed, away) in [(1, Fault::StoreRefusesRecovery), (2, Fault::StoreHangsRecovery)] {
            let short = Fault::mandatory(Sink::Staged, true, seed);
            for point in [
                Point::SinkBeforePrepare,
                Point::SinkAfterPrepare,
                Point::CoordinatorBeforeCompletedMarker,
                Point::CoordinatorAfterCompletedMarker,
                Point::SinkBeforeCommit,
                Point::SinkAfterExternalCommit,
            ] {
                assert!(short.contains(&Fault::At(point)), "{}", point.name());
            }
            let both = [Fault::StoreRefusesRecovery, Fault::StoreHangsRecovery];
            let found: Vec<_> = short.iter().filter(|fault| both.contains(fault)).collect();
            assert_eq!(found, [&away]);
            let full = Fault::mandatory(Sink::Staged, false, seed);
            assert!(both.iter().all(|fault| full.contains(fault)));
        }
    }
}
