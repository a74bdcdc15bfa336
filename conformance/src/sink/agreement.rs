//! Two ways to one question: the suite's required checks and the sink's probe both decide whether `durable_v2` may
//! run on a provider. Where one says yes and the other no, one of them has a hole, and certifying ends as a fault of
//! the suite (exit 4) with both findings. Pure.
//!
//! Only a decision contradicts a decision. A probe or a suite that is inconclusive, and a suite that was asked in
//! part and refused nothing, says nothing about the provider and contradicts nobody.

use assay_checks::Severity;
use sinks::probe::{Report as Probe, Verdict};

use super::probe;
use crate::report::{Entry, Outcome};

/// Required checks that the probe need not know of: what they are about the sink never does, or notices by itself.
/// They refuse a provider alone, and the probe is not wrong to pass it.
pub const BEYOND_THE_PROBE: [(&str, &str); 0] = [];

/// What one of the two says of `durable_v2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It may run here.
    Fit,
    /// It may not, for this.
    Unfit(String),
    /// Nothing is decided, for this.
    Open(String),
}

/// What the suite says: unfit exactly when a required check failed, fit when all of them passed.
pub fn of_suite(entries: &[Entry]) -> Finding {
    let required: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.severity == Severity::Required && !is_of_area(&entry.id))
        .collect();
    let beyond = |entry: &Entry| BEYOND_THE_PROBE.iter().any(|(id, _)| *id == entry.id);
    let ids = |wanted: &dyn Fn(&Entry) -> bool| -> Vec<&str> {
        required.iter().filter(|entry| wanted(entry)).map(|entry| &*entry.id).collect()
    };
    let failed = ids(&|entry| matches!(entry.outcome, Outcome::Fail(_)) && !beyond(entry));
    if !failed.is_empty() {
        return Finding::Unfit(format!("{} failed", failed.join(", ")));
    }
    let open = ids(&|entry| entry.outcome != Outcome::Pass && !beyond(entry));
    if !open.is_empty() {
        return Finding::Open(format!("{} not decided", open.join(", ")));
    }
    Finding::Fit
}

/// What the probe says.
pub fn of_probe(report: &Probe) -> Finding {
    match &report.verdict {
        _ if report.interrupted => Finding::Open("the probe was interrupted".to_owned()),
        Verdict::Ready => Finding::Fit,
        Verdict::Refused(checks) => {
            let (expected, got) = probe::first_refusal(report, checks);
            Finding::Unfit(format!("expected {expected}, got {got}"))
        }
        Verdict::Inconclusive(checks) => Finding::Open(probe::first_doubt(report, checks)),
    }
}

/// Both findings where they contradict each other.
pub fn contradiction(suite: &Finding, probe: &Finding) -> Option<String> {
    let (suite, probe) = match (suite, probe) {
        (Finding::Fit, Finding::Unfit(why)) => {
            ("CERTIFIED, every required check passed", format!("refused: {why}"))
        }
        (Finding::Unfit(why), Finding::Fit) => (&*format!("REFUSED, {why}"), "ready".to_owned()),
        _ => return None,
    };
    Some(format!(
        "suite and probe disagree about durable_v2, so one of them has a hole; the suite: {suite}; the probe: {probe}"
    ))
}

/// The part's end: broken where they disagree, skipped where one of them decided nothing.
pub(super) fn outcome(suite: &[Entry], probed: Option<&Probe>) -> Outcome {
    let skip = |reason: String| Outcome::Skip { reason };
    let Some(probed) = probed else { return skip("the probe was not run".to_owned()) };
    let asked = suite.iter().filter(|entry| entry.severity == Severity::Required).count();
    let all = assay_checks::all().filter(|check| check.severity == Severity::Required).count();
    let suite = match of_suite(suite) {
        Finding::Fit if asked < all => {
            Finding::Open(format!("{asked} of {all} required checks were run, and none failed"))
        }
        finding => finding,
    };
    let probe = of_probe(probed);
    if let Some(reason) = contradiction(&suite, &probe) {
        return Outcome::Broken { reason };
    }
    match (suite, probe) {
        (Finding::Open(why), _) => skip(format!("the suite decided nothing: {why}")),
        (_, Finding::Open(why)) => skip(format!("the probe decided nothing: {why}")),
        _ => Outcome::Pass,
    }
}

fn is_of_area(id: &str) -> bool {
    id.starts_with("sink.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::draw_up;
    use crate::report::tests::{entry, failure, head};

    /// A probe that ended so.
    fn probed(verdict: Verdict) -> Probe {
        Probe {
            verdict,
            directory: String::new(),
            lines: Vec::new(),
            places: 1,
            race_writers: 16,
            race_rounds: 8,
            race_budget_ms: 0,
            clock_skew_ms: Some(0),
            clock_within_limit: true,
            requests: 1,
            elapsed_ms: 1,
            swept: Vec::new(),
            left: Vec::new(),
            interrupted: false,
        }
    }

    /// The whole suite, of which this check ended so.
    fn suite(id: &str, outcome: &Outcome) -> Vec<Entry> {
        let ended =
            |check: &assay_checks::Check| if check.id == id { outcome.clone() } else { Outcome::Pass };
        assay_checks::all().map(|check| entry(check.id, check.severity, ended(check))).collect()
    }

    /// What the part says of a suite in which one check ended so, and of a probe.
    fn said(id: &str, outcome: &Outcome, verdict: Verdict) -> Outcome {
        self::outcome(&suite(id, outcome), Some(&probed(verdict)))
    }

    #[test]
    fn a_contradiction_is_the_suites_own_fault_with_both_findings() {
        let refused = || Verdict::Refused(vec![9, 17]);
        for (id, outcome, verdict, both) in [
            ("", Outcome::Pass, refused(), ["CERTIFIED, every", "got 9, 17"]),
            (
                "put.swap.wrong",
                failure(),
                Verdict::Ready,
                ["REFUSED, put.swap.wrong failed", "the probe: ready"],
            ),
        ] {
            let broken = said(id, &outcome, verdict);
            let Outcome::Broken { reason } = &broken else { panic!("{broken:?}") };
            assert!(both.iter().all(|finding| reason.contains(finding)), "{reason}");
            let mut entries = suite(id, &outcome);
            entries.push(entry("sink.agreement", Severity::Informative, broken.clone()));
            assert_eq!(draw_up(head(), entries).exit_code(), 4);
        }
        assert_eq!(said("put.swap.wrong", &failure(), refused()), Outcome::Pass);
        assert_eq!(said("", &Outcome::Pass, Verdict::Ready), Outcome::Pass);
        // A check that is not required decides nothing.
        assert_eq!(said("put.swap.same-bytes", &failure(), Verdict::Ready), Outcome::Pass);
    }

    #[test]
    fn what_is_undecided_contradicts_nobody() {
        let skipped = |outcome: Outcome| matches!(outcome, Outcome::Skip { .. });
        let open = || Outcome::Skip { reason: "not claimed".to_owned() };
        for verdict in [Verdict::Ready, Verdict::Refused(vec![2]), Verdict::Inconclusive(vec![2])] {
            assert!(skipped(said("put.swap.wrong", &open(), verdict)));
        }
        assert!(skipped(said("put.swap.wrong", &failure(), Verdict::Inconclusive(vec![2]))));
        assert!(skipped(outcome(&suite("", &Outcome::Pass), None)));
        // Of a part of the suite only a refusal counts.
        let some = |outcome: Outcome| [entry("put.swap.wrong", Severity::Required, outcome)];
        assert!(skipped(outcome(&some(Outcome::Pass), Some(&probed(Verdict::Refused(vec![2]))))));
        let ready = probed(Verdict::Ready);
        assert!(matches!(outcome(&some(failure()), Some(&ready)), Outcome::Broken { .. }));
    }

    /// The suite's finding, the probe's, and whether they contradict.
    #[track_caller]
    fn check(suite: &Finding, probe: &Finding, disagree: bool) {
        let said = contradiction(suite, probe);
        assert_eq!(said.is_some(), disagree, "{suite:?} {probe:?}");
        assert!(said.is_none_or(|text| text.contains("because")), "both findings are told");
    }

    #[test]
    fn only_a_decision_contradicts_a_decision() {
        let (fit, unfit, open) = (
            Finding::Fit,
            Finding::Unfit("because of this".to_owned()),
            Finding::Open("because of that".to_owned()),
        );
        check(&fit, &fit, false);
        check(&unfit, &unfit, false);
        check(&fit, &unfit, true);
        check(&unfit, &fit, true);
        for other in [&fit, &unfit, &open] {
            check(&open, other, false);
            check(other, &open, false);
        }
    }

    #[test]
    fn exceptions_name_required_checks() {
        for (id, reason) in BEYOND_THE_PROBE {
            let check = assay_checks::all().find(|check| check.id == id);
            assert!(check.is_some_and(|check| check.severity == Severity::Required), "{id}");
            assert!(!reason.is_empty());
        }
    }
}
