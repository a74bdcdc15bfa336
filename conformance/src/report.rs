//! From the entries of a run to a report and its verdict. Pure.

use assay_checks::{Class, Condition, Doubt, Failure, Severity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the report's JSON form; raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The provider answered as it should.
    Pass,
    /// It answered otherwise.
    Fail(Failure),
    /// It does not claim what the check needs.
    Skip {
        /// What is not claimed.
        reason: String,
    },
    /// The network, a 5xx or the time limit: nothing is known.
    Inconclusive(Doubt),
    /// The suite's own fault.
    Broken {
        /// What went wrong.
        reason: String,
    },
}

impl Outcome {
    /// Its word in tables.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail(_) => "fail",
            Outcome::Skip { .. } => "skip",
            Outcome::Inconclusive(_) => "inconclusive",
            Outcome::Broken { .. } => "broken",
        }
    }
}

/// One check's line in the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The check's id.
    pub id: String,
    /// What a pass shows.
    pub proves: String,
    /// What a failure costs.
    pub severity: Severity,
    /// Where the right answer is from.
    pub source: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The condition it is about, and how the provider was seen to treat it.
    pub class: Option<(Condition, Class)>,
    /// A remark, such as the losers' statuses of a race.
    pub note: Option<String>,
    /// Requests sent.
    pub requests: u64,
    /// Milliseconds taken.
    pub duration_ms: u64,
}

/// The circumstances of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The suite's version.
    pub suite: String,
    /// The provider's address.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The region of signatures.
    pub region: String,
    /// Where the bucket stood in URLs: `path` or `virtual`.
    pub addressing: String,
    /// Whether the provider was the embedded server.
    pub embedded: bool,
    /// When the run began: UTC, RFC 3339.
    pub started: String,
    /// The seed of bodies and names.
    pub seed: u64,
    /// Rounds of each race.
    pub rounds: usize,
    /// Writers of each round.
    pub writers: usize,
}

/// How many checks of one severity ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// All of them.
    pub of: usize,
    /// Passed.
    pub pass: usize,
    /// Failed.
    pub fail: usize,
    /// Skipped.
    pub skip: usize,
    /// Inconclusive.
    pub inconclusive: usize,
    /// Broken.
    pub broken: usize,
}

/// The answer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No required check failed; the suite is not full yet, so this certifies nothing.
    Partial,
    /// A required check failed.
    Fail,
    /// None failed, and a required one was not decided.
    Inconclusive,
    /// The suite itself is at fault.
    Broken,
}

impl Verdict {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Partial => 0,
            Verdict::Fail => 1,
            Verdict::Inconclusive => 3,
            Verdict::Broken => 4,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Partial => "PARTIAL",
            Verdict::Fail => "FAIL",
            Verdict::Inconclusive => "INCONCLUSIVE",
            Verdict::Broken => "BROKEN",
        }
    }
}

/// A whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The answer.
    pub verdict: Verdict,
    /// The answer as a line.
    pub line: String,
    /// The circumstances.
    #[serde(flatten)]
    pub head: Head,
    /// Counts by severity.
    pub counts: BTreeMap<Severity, Count>,
    /// Each condition that was tried and the worst class seen.
    pub conditions: BTreeMap<Condition, Class>,
    /// Requests sent in all.
    pub requests: u64,
    /// Milliseconds in all.
    pub duration_ms: u64,
    /// The checks, in the suite's order.
    pub checks: Vec<Entry>,
}

/// Draws the report up.
pub fn draw_up(head: Head, checks: Vec<Entry>) -> Report {
    let mut counts: BTreeMap<Severity, Count> = BTreeMap::new();
    let mut conditions: BTreeMap<Condition, Class> = BTreeMap::new();
    for entry in &checks {
        let count = counts.entry(entry.severity).or_default();
        count.of += 1;
        *match entry.outcome {
            Outcome::Pass => &mut count.pass,
            Outcome::Fail(_) => &mut count.fail,
            Outcome::Skip { .. } => &mut count.skip,
            Outcome::Inconclusive(_) => &mut count.inconclusive,
            Outcome::Broken { .. } => &mut count.broken,
        } += 1;
        if let Some((condition, class)) = entry.class {
            let worst = conditions.entry(condition).or_insert(class);
            *worst = class.max(*worst);
        }
    }
    let verdict = decide(&counts);
    Report {
        schema: SCHEMA,
        verdict,
        line: line(verdict, &counts),
        head,
        conditions,
        requests: checks.iter().map(|entry| entry.requests).sum(),
        duration_ms: checks.iter().map(|entry| entry.duration_ms).sum(),
        counts,
        checks,
    }
}

fn decide(counts: &BTreeMap<Severity, Count>) -> Verdict {
    let required = counts.get(&Severity::Required).copied().unwrap_or_default();
    if counts.values().any(|count| count.broken > 0) {
        Verdict::Broken
    } else if required.fail > 0 {
        Verdict::Fail
    } else if required.pass < required.of {
        Verdict::Inconclusive
    } else {
        Verdict::Partial
    }
}

/// Informative checks stay out of the numbers: they never fail a provider.
fn line(verdict: Verdict, counts: &BTreeMap<Severity, Count>) -> String {
    let of = |severity| counts.get(&severity).copied().unwrap_or_default();
    let (required, expected) = (of(Severity::Required), of(Severity::Expected));
    format!(
        "{}: {} of {} checks passed (required {}/{})",
        verdict.word(),
        required.pass + expected.pass,
        required.of + expected.of,
        required.pass,
        required.of
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use assay_checks::{Excerpt, Exchange, Reply};
    use std::sync::Arc;

    pub(crate) fn head() -> Head {
        Head {
            suite: "0.1.0".into(),
            endpoint: "http://127.0.0.1:9000".into(),
            bucket: "certify".into(),
            region: "us-east-1".into(),
            addressing: "path".into(),
            embedded: false,
            started: "2026-11-29T20:00:00Z".into(),
            seed: 7,
            rounds: 20,
            writers: 16,
        }
    }

    pub(crate) fn entry(id: &str, severity: Severity, outcome: Outcome) -> Entry {
        Entry {
            id: id.into(),
            proves: "a create on a present key is 412 and leaves its bytes alone, whatever else happens"
                .into(),
            severity,
            source: "AWS recording 2026-02".into(),
            outcome,
            class: None,
            note: None,
            requests: 3,
            duration_ms: 12,
        }
    }

    pub(crate) fn failure() -> Outcome {
        Outcome::Fail(Failure {
            expected: "412".into(),
            got: "200".into(),
            exchange: Some(Arc::new(Exchange {
                method: "PUT".into(),
                url: "http://127.0.0.1:9000/certify/k".into(),
                headers: vec![("if-none-match".into(), "*".into())],
                body: Excerpt::of(b"new"),
                answer: Ok(Reply { status: 200, headers: vec![], body: Excerpt::default() }),
                duration_ms: 2,
            })),
        })
    }

    fn doubt() -> Outcome {
        Outcome::Inconclusive(Doubt { reason: "no answer within 30s".into(), exchange: None })
    }

    #[track_caller]
    fn check(entries: &[(Severity, Outcome)], line: &str, code: u8) {
        let entries =
            entries.iter().map(|(severity, outcome)| entry("a.b", *severity, outcome.clone())).collect();
        let report = draw_up(head(), entries);
        assert_eq!((report.line.as_str(), report.verdict.exit_code()), (line, code));
    }

    #[test]
    fn decides() {
        use Outcome::Pass;
        use Severity::{Expected, Informative, Required};
        let broken = || Outcome::Broken { reason: "panicked".into() };
        let skip = || Outcome::Skip { reason: "copy is not claimed".into() };
        check(&[(Required, Pass), (Expected, Pass)], "PARTIAL: 2 of 2 checks passed (required 1/1)", 0);
        check(&[(Required, Pass), (Expected, failure())], "PARTIAL: 1 of 2 checks passed (required 1/1)", 0);
        check(
            &[(Required, Pass), (Informative, failure())],
            "PARTIAL: 1 of 1 checks passed (required 1/1)",
            0,
        );
        check(&[(Required, failure()), (Required, doubt())], "FAIL: 0 of 2 checks passed (required 0/2)", 1);
        check(
            &[(Required, doubt()), (Expected, Pass)],
            "INCONCLUSIVE: 1 of 2 checks passed (required 0/1)",
            3,
        );
        check(&[(Required, Pass), (Expected, doubt())], "PARTIAL: 1 of 2 checks passed (required 1/1)", 0);
        check(&[(Required, skip())], "INCONCLUSIVE: 0 of 1 checks passed (required 0/1)", 3);
        check(
            &[(Required, failure()), (Informative, broken())],
            "BROKEN: 0 of 1 checks passed (required 0/1)",
            4,
        );
    }

    #[test]
    fn the_worst_class_stands() {
        let with = |class| Entry {
            class: Some((Condition::PutCreate, class)),
            ..entry("a.b", Severity::Required, Outcome::Pass)
        };
        let report = draw_up(head(), vec![with(Class::Races), with(Class::Enforces), with(Class::Refuses)]);
        assert_eq!(report.conditions, BTreeMap::from([(Condition::PutCreate, Class::Races)]));
    }
}
