//! From the entries of a run to a report and its verdict. Pure.

use crate::emulation;
use assay_checks::{Class, Condition, Doubt, Exchange, Failure, Severity, Traffic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of the report's JSON form; raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 2;

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
    /// Limits and figures that the check measured; a name ends in its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, u64>,
    /// Of a check that did not pass: all its requests in order, if they are few enough to be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Arc<Exchange>>,
    /// Requests sent.
    pub requests: u64,
    /// What they were; counted into the report's.
    #[serde(skip)]
    pub traffic: Traffic,
    /// Milliseconds taken.
    pub duration_ms: u64,
}

impl Entry {
    /// The exchange that decided, of a check that did not pass.
    pub fn exchange(&self) -> Option<&Exchange> {
        match &self.outcome {
            Outcome::Fail(failure) => failure.exchange.as_deref(),
            Outcome::Inconclusive(doubt) => doubt.exchange.as_deref(),
            _ => None,
        }
    }
}

/// The circumstances of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// What the provider is called, with its version, where that was said.
    #[serde(default)]
    pub name: Option<String>,
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
    /// How many checks the whole suite has; a run of fewer certifies nothing.
    pub suite_checks: usize,
    /// Milliseconds from the first check's start to the last one's end.
    pub duration_ms: u64,
}

impl Head {
    /// The provider's name, or its address.
    pub fn title(&self) -> &str {
        match &self.name {
            Some(name) => name,
            None if self.embedded => "embedded server",
            None => self.endpoint.split_once("://").map_or(&self.endpoint, |(_, host)| host),
        }
    }

    /// The day on which the run began.
    pub fn date(&self) -> &str {
        self.started.split('T').next().unwrap_or_default()
    }
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
    /// Every required check passed.
    Certified,
    /// A required check failed.
    Refused,
    /// No required check failed, and one was not decided.
    Inconclusive,
    /// No required check failed, but not every check was run: this certifies nothing.
    Partial,
}

impl Verdict {
    /// Its word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Certified => "CERTIFIED",
            Verdict::Refused => "REFUSED",
            Verdict::Inconclusive => "INCONCLUSIVE",
            Verdict::Partial => "PARTIAL",
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
    /// Limits and figures that the checks measured; a name ends in its unit.
    #[serde(default)]
    pub measured: BTreeMap<String, u64>,
    /// Deviations of `assay-server` that fail the same checks: what its `--emulate` reads.
    #[serde(default)]
    pub deviations: Vec<String>,
    /// Requests sent in all.
    pub requests: u64,
    /// Requests and bytes of each class.
    pub traffic: Traffic,
    /// The checks, in the suite's order. The last field: its JSON form has a line for each.
    pub checks: Vec<Entry>,
}

impl Report {
    /// The process's exit code: 4 where the suite itself was at fault in any check, else the verdict's.
    pub fn exit_code(&self) -> u8 {
        match self.verdict {
            _ if self.counts.values().any(|count| count.broken > 0) => 4,
            Verdict::Refused => 1,
            Verdict::Inconclusive => 3,
            Verdict::Certified | Verdict::Partial => 0,
        }
    }

    /// Whether the area `sink` was run, in part at least. Reports of before November 30, 2026 are without it.
    pub fn has_sink(&self) -> bool {
        self.checks.iter().any(|entry| entry.id.starts_with("sink."))
    }

    /// How the sink's probe ended, in a word.
    pub fn sink_probe(&self) -> &'static str {
        self.entry("sink.probe").map_or("not run", |entry| entry.outcome.word())
    }

    /// How many scenarios of the sink's live matrix passed, of those that could be played.
    pub fn sink_matrix(&self) -> String {
        let scenarios = self.checks.iter().filter(|entry| entry.id.starts_with("sink.matrix."));
        let played: Vec<&Entry> =
            scenarios.filter(|entry| !matches!(entry.outcome, Outcome::Skip { .. })).collect();
        match played.iter().filter(|entry| entry.outcome == Outcome::Pass).count() {
            _ if played.is_empty() => "not run".to_owned(),
            passed => format!("{passed} of {}", played.len()),
        }
    }

    /// The entry of a check, if it was run.
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        self.checks.iter().find(|entry| entry.id == id)
    }
}

/// Draws the report up.
pub fn draw_up(head: Head, checks: Vec<Entry>) -> Report {
    let mut counts: BTreeMap<Severity, Count> = BTreeMap::new();
    let mut conditions: BTreeMap<Condition, Class> = BTreeMap::new();
    let mut traffic = Traffic::new();
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
        for (class, volume) in &entry.traffic {
            let sum = traffic.entry(*class).or_default();
            sum.requests += volume.requests;
            sum.bytes_sent += volume.bytes_sent;
            sum.bytes_received += volume.bytes_received;
        }
    }
    let (verdict, why) = decide(&head, &checks);
    Report {
        schema: SCHEMA,
        verdict,
        line: line(verdict, &why, &counts),
        head,
        deviations: emulation::deviations(&conditions, &checks),
        conditions,
        measured: checks.iter().flat_map(|entry| entry.measured.clone()).collect(),
        requests: checks.iter().map(|entry| entry.requests).sum(),
        traffic,
        counts,
        checks,
    }
}

/// Refused exactly when a required check failed; inconclusive when none did and one was not decided.
fn decide(head: &Head, checks: &[Entry]) -> (Verdict, String) {
    let required = || checks.iter().filter(|entry| entry.severity == Severity::Required);
    let failed: Vec<&str> = required()
        .filter(|entry| matches!(entry.outcome, Outcome::Fail(_)))
        .map(|entry| &*entry.id)
        .collect();
    let open: Vec<&str> =
        required().filter(|entry| entry.outcome != Outcome::Pass).map(|entry| &*entry.id).collect();
    if !failed.is_empty() {
        (Verdict::Refused, format!(" ({} failed)", listed(&failed)))
    } else if !open.is_empty() {
        (Verdict::Inconclusive, format!(" ({} not decided)", listed(&open)))
    } else if checks.len() < head.suite_checks {
        (Verdict::Partial, format!(" ({} of the suite's {} checks)", checks.len(), head.suite_checks))
    } else {
        (Verdict::Certified, String::new())
    }
}

/// The first three ids and how many more there are.
fn listed(ids: &[&str]) -> String {
    let shown = &ids[..ids.len().min(3)];
    match ids.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Informative checks stay out of the numbers: they never fail a provider.
fn line(verdict: Verdict, why: &str, counts: &BTreeMap<Severity, Count>) -> String {
    let of = |severity| counts.get(&severity).copied().unwrap_or_default();
    let (required, expected) = (of(Severity::Required), of(Severity::Expected));
    format!(
        "durable_v2: {}{why}; passed {} of {} required and {} of {} expected checks",
        verdict.word(),
        required.pass,
        required.of,
        expected.pass,
        expected.of
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use assay_checks::{Excerpt, Reply};

    pub(crate) fn head() -> Head {
        Head {
            name: None,
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
            suite_checks: 1,
            duration_ms: 60,
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
            measured: BTreeMap::new(),
            steps: Vec::new(),
            requests: 3,
            traffic: Traffic::new(),
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

    /// A report with every kind of end.
    pub(crate) fn example() -> Report {
        let race = Entry {
            class: Some((Condition::PutCreate, Class::Races)),
            note: Some("16 writers, 20 rounds; losers 290 x 412, 10 x 409".into()),
            ..entry("race.put.create", Severity::Required, Outcome::Pass)
        };
        let copy = Outcome::Skip { reason: "copy is not claimed".into() };
        draw_up(
            head(),
            vec![
                race,
                entry("put.create.present", Severity::Required, failure()),
                entry("put.create.etag-value", Severity::Informative, failure()),
                entry("consistency.read-on-another-connection", Severity::Required, doubt()),
                entry("copy.create.absent", Severity::Expected, copy),
            ],
        )
    }

    /// What a provider might answer to whoever shows its answers.
    pub(crate) const HOSTILE: &str =
        "\"'><script>alert(1)</script><img src=x onerror=\"alert(2)\">|`~~~`]]>\0&amp;";

    /// A report with it in every text that comes from outside.
    pub(crate) fn hostile() -> Report {
        let text = || HOSTILE.to_owned();
        let exchange = Arc::new(Exchange {
            method: "PUT".into(),
            url: format!("http://h/{HOSTILE}"),
            headers: vec![(text(), text())],
            body: Excerpt::of(HOSTILE.as_bytes()),
            answer: Ok(Reply {
                status: 200,
                headers: vec![(text(), text())],
                body: Excerpt::of(HOSTILE.as_bytes()),
            }),
            duration_ms: 2,
        });
        let fail = Outcome::Fail(Failure { expected: text(), got: text(), exchange: Some(exchange.clone()) });
        let doubt = Outcome::Inconclusive(Doubt { reason: text(), exchange: Some(exchange.clone()) });
        let head = Head {
            name: Some(text()),
            endpoint: text(),
            bucket: text(),
            region: text(),
            started: text(),
            ..head()
        };
        let entries = [fail, doubt, Outcome::Skip { reason: text() }].map(|outcome| Entry {
            proves: text(),
            source: text(),
            note: Some(text()),
            steps: vec![exchange.clone(), exchange.clone()],
            measured: BTreeMap::from([(text(), 1)]),
            ..entry(HOSTILE, Severity::Required, outcome)
        });
        draw_up(head, entries.into())
    }

    fn doubt() -> Outcome {
        Outcome::Inconclusive(Doubt { reason: "no answer within 30s".into(), exchange: None })
    }

    /// The verdict of a suite that is full, its reason, and the exit code.
    #[track_caller]
    fn check(entries: &[(Severity, Outcome)], verdict: Verdict, why: &str, code: u8) {
        let entries: Vec<Entry> =
            entries.iter().map(|(severity, outcome)| entry("a.b", *severity, outcome.clone())).collect();
        assert_eq!(decide(&head(), &entries), (verdict, why.to_owned()));
        let report = Report { verdict, ..draw_up(head(), entries) };
        assert_eq!(report.exit_code(), code);
    }

    #[test]
    fn decides() {
        use Outcome::Pass;
        use Severity::{Expected, Informative, Required};
        use Verdict::{Certified, Inconclusive, Refused};
        let broken = || Outcome::Broken { reason: "panicked".into() };
        let skip = || Outcome::Skip { reason: "copy is not claimed".into() };
        check(&[(Required, Pass), (Expected, Pass)], Certified, "", 0);
        check(&[(Required, Pass), (Expected, failure())], Certified, "", 0);
        check(&[(Required, Pass), (Informative, failure())], Certified, "", 0);
        check(&[(Required, Pass), (Expected, doubt())], Certified, "", 0);
        check(&[(Required, failure()), (Required, doubt())], Refused, " (a.b failed)", 1);
        check(&[(Required, doubt()), (Expected, Pass)], Inconclusive, " (a.b not decided)", 3);
        check(&[(Required, skip())], Inconclusive, " (a.b not decided)", 3);
        // Of several exit codes the highest of 4, 1, 3 stands; the verdict keeps to its rule.
        check(&[(Required, failure()), (Informative, broken())], Refused, " (a.b failed)", 4);
        check(&[(Required, Pass), (Expected, broken())], Certified, "", 4);
        check(&[(Required, broken())], Inconclusive, " (a.b not decided)", 4);
        check(&vec![(Required, failure()); 5], Refused, " (a.b, a.b, a.b and 2 more failed)", 1);
    }

    #[test]
    fn a_part_of_the_suite_certifies_nothing() {
        let pass = || vec![entry("a.b", Severity::Required, Outcome::Pass)];
        let whole = Head { suite_checks: 100, ..head() };
        assert_eq!(decide(&whole, &pass()), (Verdict::Partial, " (1 of the suite's 100 checks)".to_owned()));
        let report = draw_up(head(), pass());
        assert!(report.line.starts_with("durable_v2: CERTIFIED;"), "{}", report.line);
        assert!(
            report.line.ends_with("; passed 1 of 1 required and 0 of 0 expected checks"),
            "{}",
            report.line
        );
        let failed = draw_up(head(), vec![entry("a.b", Severity::Required, failure())]);
        assert!(failed.line.starts_with("durable_v2: REFUSED (a.b failed); "), "{}", failed.line);
    }

    #[test]
    fn a_provider_is_called_by_its_name_or_host() {
        assert_eq!(head().title(), "127.0.0.1:9000");
        assert_eq!(Head { embedded: true, ..head() }.title(), "embedded server");
        assert_eq!(Head { name: Some("moto 5".into()), ..head() }.title(), "moto 5");
        assert_eq!(head().date(), "2026-11-29");
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
