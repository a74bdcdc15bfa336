//! A report against an earlier one: a gate that lets through what was known and nothing else. Pure.

use crate::report::{Entry, Outcome, Report};
use assay_checks::Severity;

/// What is not as the baseline says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Required and expected checks that fail and that the baseline does not have failing.
    pub regressions: Vec<String>,
    /// Checks that fail in the baseline and no longer do: the baseline is to be renewed.
    pub stale: Vec<String>,
    /// Checks that were decided in the baseline and no longer are.
    pub undecided: Vec<String>,
}

/// Compares the run with the baseline. Informative checks stay out of it, as they never fail a provider. A check that
/// was not run, as with a selection, is not compared.
pub fn compare(baseline: &Report, now: &Report) -> Gate {
    let counts = |entry: &&Entry| entry.severity != Severity::Informative;
    let failed = |entry: &Entry| matches!(entry.outcome, Outcome::Fail(_));
    let decided = |entry: &Entry| failed(entry) || entry.outcome == Outcome::Pass;
    let mut gate = Gate::default();
    for entry in now.checks.iter().filter(counts) {
        let before = baseline.entry(&entry.id);
        let (failed_before, decided_before) = (before.is_some_and(failed), before.is_some_and(decided));
        if failed(entry) && !failed_before {
            gate.regressions.push(entry.id.clone());
        } else if failed_before && entry.outcome == Outcome::Pass {
            gate.stale.push(entry.id.clone());
        } else if decided_before && !decided(entry) {
            gate.undecided.push(entry.id.clone());
        }
    }
    gate
}

impl Gate {
    /// The process's exit code with a baseline, in place of the verdict's; `broken` says that the suite was at fault.
    pub fn exit_code(&self, broken: bool) -> u8 {
        match self {
            _ if broken => 4,
            gate if !gate.regressions.is_empty() || !gate.stale.is_empty() => 1,
            gate if !gate.undecided.is_empty() => 3,
            _ => 0,
        }
    }

    /// What is not as it was, a line each, and what to do.
    pub fn text(&self) -> String {
        let lines = |ids: &[String], what: &str| -> String {
            ids.iter().map(|id| format!("baseline: {id} {what}\n")).collect()
        };
        let text = lines(&self.regressions, "fails, and the baseline does not have it failing")
            + &lines(&self.stale, "no longer fails: renew the baseline with this run's --write json=FILE")
            + &lines(&self.undecided, "was decided and no longer is");
        if text.is_empty() { "baseline: all as it was\n".to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::draw_up;
    use crate::report::tests::{entry, failure, head};

    fn skip() -> Outcome {
        Outcome::Skip { reason: "copy is not claimed".into() }
    }

    /// One check, before and now.
    #[track_caller]
    fn check(severity: Severity, before: Option<Outcome>, now: Outcome, code: u8, says: &str) {
        let before = before.into_iter().map(|outcome| entry("a.b", severity, outcome)).collect();
        let gate = compare(&draw_up(head(), before), &draw_up(head(), vec![entry("a.b", severity, now)]));
        assert_eq!(gate.exit_code(false), code, "{gate:?}");
        assert_eq!(gate.exit_code(true), 4);
        assert!(gate.text().contains(says), "{}", gate.text());
    }

    #[test]
    fn gates() {
        use Outcome::Pass;
        use Severity::{Expected, Informative, Required};
        check(Required, Some(Pass), Pass, 0, "all as it was");
        check(Required, Some(failure()), failure(), 0, "all as it was");
        check(Required, Some(Pass), failure(), 1, "a.b fails");
        check(Expected, None, failure(), 1, "a.b fails");
        check(Expected, Some(skip()), failure(), 1, "a.b fails");
        check(Expected, Some(failure()), Pass, 1, "a.b no longer fails");
        check(Expected, Some(Pass), skip(), 3, "a.b was decided");
        check(Expected, Some(failure()), skip(), 3, "a.b was decided");
        check(Expected, None, Pass, 0, "all as it was");
        check(Informative, Some(Pass), failure(), 0, "all as it was");
    }
}
