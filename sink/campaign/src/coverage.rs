//! How often each fault must be shown by a soak that claims two hours, and how often it was.

use serde::Serialize;

use crate::chaos::Applied;
use crate::fault::Fault;
use crate::plan::Sink;

/// A soak of so many minutes must show every count.
pub const CLAIM_MINUTES: u64 = 120;

/// One count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Of what.
    pub what: &'static str,
    /// How often, at least.
    pub asked: u64,
    /// How often it happened and the job worked after it.
    pub shown: u64,
}

impl Count {
    /// Whether there are enough.
    #[must_use]
    pub const fn met(&self) -> bool {
        self.shown >= self.asked
    }
}

/// Every count that a sink's soak is asked for: pipelines have no coordinator.
#[must_use]
pub fn counts(sink: Sink, applied: &[Applied]) -> Vec<Count> {
    let count = |what, asked, is: fn(Fault) -> bool| {
        let shown = applied.iter().filter(|one| one.shown() && is(one.kind)).count() as u64;
        Count { what, asked, shown }
    };
    let mut counts = vec![
        count("worker SIGKILL", 6, |fault| fault == Fault::WorkerKill),
        count("exit at a named point", 10, |fault| matches!(fault, Fault::At(_))),
        count("store away", 4, |fault| matches!(fault, Fault::StoreRefuses | Fault::StoreHangs)),
        count("store away while a recovery needs it", 4, |fault| {
            matches!(fault, Fault::StoreRefusesRecovery | Fault::StoreHangsRecovery)
        }),
        count("log SIGKILL and restart", 3, |fault| fault == Fault::LogRestart),
        count("loss of packets", 2, |fault| fault == Fault::Loss),
    ];
    if sink == Sink::Staged {
        let stable = applied.iter().filter(|one| one.shown() && one.pids_stable == Some(true)).count();
        counts.extend([
            count("partition from the coordinator", 4, |fault| fault == Fault::Partition),
            count("coordinator SIGKILL", 3, |fault| fault == Fault::CoordinatorKill),
            Count { what: "workers the same processes after it", asked: 7, shown: stable as u64 },
        ]);
    }
    counts
}

#[cfg(test)]
mod tests {
    use sinks::point::Point;

    use super::*;
    use crate::chaos::tests::applied;

    #[test]
    fn only_what_was_shown_counts() {
        let stable = |fault| Applied { pids_stable: Some(true), ..applied(fault) };
        let unfired = Applied { fired: false, ..applied(Fault::WorkerKill) };
        let unhealed = Applied { healed: false, ..applied(Fault::Partition) };
        let all = [
            unfired,
            unhealed,
            applied(Fault::StoreHangs),
            applied(Fault::StoreRefuses),
            applied(Fault::StoreHangsRecovery),
            stable(Fault::At(Point::CoordinatorBeforeCompletedMarker)),
            stable(Fault::CoordinatorKill),
            Applied { pids_stable: Some(false), ..applied(Fault::CoordinatorKill) },
        ];
        let shown =
            |sink| counts(sink, &all).iter().map(|count| (count.shown, count.asked)).collect::<Vec<_>>();
        let common = [(0, 6), (1, 10), (2, 4), (1, 4), (0, 3), (0, 2)];
        assert_eq!(shown(Sink::DurableV2), common);
        assert_eq!(shown(Sink::Staged), [common.as_slice(), &[(0, 4), (2, 3), (2, 7)]].concat());
        assert!(counts(Sink::Staged, &all).iter().all(|count| !count.met()));
        assert!(Count { what: "", asked: 2, shown: 2 }.met());
    }

    /// Each count can be met by the full gate's faults, which a soak chooses from.
    #[test]
    fn every_count_is_of_faults_that_a_soak_makes() {
        for sink in [Sink::Staged, Sink::DurableV2] {
            let one = |fault| Applied { pids_stable: Some(true), ..applied(fault) };
            let all: Vec<_> = Fault::mandatory(sink, false, 1).into_iter().map(one).collect();
            assert!(counts(sink, &all).iter().all(|count| count.shown > 0), "{:?}", counts(sink, &all));
        }
    }
}
