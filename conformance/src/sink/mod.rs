//! The area `sink`: the durable sink's own capability probe and its live matrix, run as parts of the suite.
//!
//! The other checks ask a provider as any client could; these run the sink itself. What they find must agree: see
//! [`agreement`].

pub mod agreement;
mod probe;
mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use assay_checks::{Clock, Doubt, Failure, Severity, Traffic};
use assay_server::Journal;
use sinks::matrix::{Ending, Rig, Scenario};
use sinks::probe::{ProbeSettings, Report as Probe, Verdict};
use tokio::time::Instant;

use crate::report::{Entry, Outcome};
use crate::target::Provider;

pub use self::probe::probe;
pub use self::rig::{Front, WRITER, is_writer, write};

/// The protocol that the area is about.
const SOURCE: &str = "operations guide of durable_v2: probe, rollout";

/// One part of the area, with a line of its own in the report.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The capability probe, as the sink runs it on every start.
    Probe,
    /// Whether the probe and the rest of the suite come to the same verdict.
    Agreement,
    /// A scenario of the live matrix.
    Scenario(&'static Scenario),
}

/// Every part, in the order in which they run.
pub fn parts() -> impl Iterator<Item = Part> {
    [Part::Probe, Part::Agreement].into_iter().chain(sinks::matrix::scenarios().map(Part::Scenario))
}

impl Part {
    /// Dotted words, `sink` first; a scenario's area and number last.
    pub fn id(self) -> String {
        match self {
            Part::Probe => "sink.probe".to_owned(),
            Part::Agreement => "sink.agreement".to_owned(),
            Part::Scenario(scenario) => format!("sink.matrix.{}", scenario.id),
        }
    }

    /// What a pass shows.
    pub fn proves(self) -> &'static str {
        match self {
            Part::Probe => "the sink's capability probe passes: durable_v2 would start here",
            Part::Agreement => "the suite's required checks and the sink's probe come to one verdict",
            Part::Scenario(scenario) => scenario.proves,
        }
    }

    /// A scenario that not every rig can play decides nothing; nor does what is about the suite and not the provider.
    pub fn severity(self) -> Severity {
        match self {
            Part::Probe => Severity::Required,
            Part::Agreement => Severity::Informative,
            Part::Scenario(scenario) if scenario.needs.is_empty() => Severity::Required,
            Part::Scenario(_) => Severity::Expected,
        }
    }

    /// Where the right answer is from.
    pub fn source(self) -> &'static str {
        SOURCE
    }
}

/// What the area runs on.
#[derive(Clone)]
pub struct Area {
    /// The parts to run, in order.
    pub parts: Vec<Part>,
    /// The provider, which the probe asks as the sink would.
    pub provider: Provider,
    /// What its keys begin with, without a slash at its end.
    pub prefix: String,
    /// What identities are drawn from.
    pub seed: u64,
    /// How long and how often the probe asks.
    pub probe: ProbeSettings,
    /// The longest time for one part; what is cut off is inconclusive.
    pub limit: Duration,
    /// When the run's time is up; what has not begun by then is inconclusive.
    pub deadline: Option<Instant>,
    /// The clock of durations, and of what the sink writes down.
    pub clock: Clock,
}

/// What happens during a run.
pub enum Event<'a> {
    /// The part of this id begins.
    Started(&'a str),
    /// A part has ended.
    Finished(&'a Entry),
}

/// Runs the parts one after the other. `suite` are the entries of the other checks, which the probe must agree with;
/// `front` is the server that the matrix sends its requests through.
pub async fn run(area: &Area, suite: &[Entry], front: &Front, mut on: impl FnMut(Event<'_>)) -> Vec<Entry> {
    let rig = front.rig(area);
    let mut entries = Vec::with_capacity(area.parts.len());
    let mut probed = None;
    for part in &area.parts {
        let id = part.id();
        on(Event::Started(&id));
        let (start, before) = ((area.clock)(), front.journal().last());
        let mut entry = begun(*part);
        entry.outcome = match part {
            Part::Agreement => agreement::outcome(suite, probed.as_ref()),
            Part::Probe => {
                let report = limited(area, probe(area)).await;
                let (outcome, note) = found(&report);
                entry.note = note;
                probed = report.and_then(Result::ok);
                outcome
            }
            Part::Scenario(scenario) => played(area, scenario, &rig, probed.as_ref()).await,
        };
        match &probed {
            Some(report) if matches!(part, Part::Probe) && !front.keeps_the_bucket() => {
                entry.requests = report.requests;
            }
            _ => (entry.requests, entry.traffic) = counted(front.journal(), before),
        }
        let taken = ((area.clock)() - start).whole_milliseconds();
        entry.duration_ms = u64::try_from(taken).unwrap_or_default();
        on(Event::Finished(&entry));
        entries.push(entry);
    }
    entries
}

fn begun(part: Part) -> Entry {
    Entry {
        id: part.id(),
        proves: part.proves().to_owned(),
        severity: part.severity(),
        source: part.source().to_owned(),
        outcome: Outcome::Pass,
        class: None,
        note: None,
        measured: BTreeMap::new(),
        steps: Vec::new(),
        requests: 0,
        traffic: Traffic::new(),
        duration_ms: 0,
    }
}

/// Runs it within what is left of the time; `None` where that was not enough.
async fn limited<T>(area: &Area, running: impl Future<Output = T>) -> Option<T> {
    let left = area
        .deadline
        .map_or(area.limit, |deadline| deadline.saturating_duration_since(Instant::now()).min(area.limit));
    if left.is_zero() {
        return None;
    }
    tokio::time::timeout(left, running).await.ok()
}

fn undecided(reason: impl Into<String>) -> Outcome {
    Outcome::Inconclusive(Doubt { reason: reason.into(), exchange: None })
}

const OUT_OF_TIME: &str = "not done within the time limit";

/// The probe's end, and a remark.
fn found(report: &Option<Result<Probe, String>>) -> (Outcome, Option<String>) {
    let report = match report {
        None => return (undecided(OUT_OF_TIME), None),
        Some(Err(reason)) => return (Outcome::Broken { reason: reason.clone() }, None),
        Some(Ok(report)) => report,
    };
    let note = format!("{} checks, {} requests", report.lines.len(), report.requests);
    let outcome = match &report.verdict {
        Verdict::Ready => Outcome::Pass,
        Verdict::Refused(checks) => {
            let (expected, got) = probe::first_refusal(report, checks);
            Outcome::Fail(Failure { expected, got, exchange: None })
        }
        Verdict::Inconclusive(checks) => undecided(probe::first_doubt(report, checks)),
    };
    (outcome, Some(note))
}

/// A scenario's end. On a provider that the sink does not start on there is nothing to play.
async fn played(area: &Area, scenario: &Scenario, rig: &Rig, probed: Option<&Probe>) -> Outcome {
    if let Some(Probe { verdict: verdict @ (Verdict::Refused(_) | Verdict::Inconclusive(_)), .. }) = probed {
        let word = if let Verdict::Refused(_) = verdict { "refuses it" } else { "is inconclusive" };
        return Outcome::Skip {
            reason: format!("durable_v2 does not start on this provider: its probe {word}"),
        };
    }
    match limited(area, scenario.run(rig)).await {
        None => undecided(OUT_OF_TIME),
        Some(Ending::Pass) => Outcome::Pass,
        Some(Ending::Skip(need)) => Outcome::Skip { reason: format!("it needs {need}") },
        Some(Ending::Fail(failure)) => Outcome::Fail(Failure {
            expected: scenario.proves.to_owned(),
            got: failure.to_string(),
            exchange: None,
        }),
    }
}

/// Requests of the journal behind number `before`. It has no sizes of answers.
fn counted(journal: Journal, before: u64) -> (u64, Traffic) {
    let mut traffic = Traffic::new();
    let records = journal.filter(|record| record.number > before && record.operation.is_some());
    for record in &records {
        let volume = traffic.entry(rig::class(record)).or_default();
        volume.requests += 1;
        volume.bytes_sent += record.body_size;
    }
    (u64::try_from(records.len()).unwrap_or(u64::MAX), traffic)
}

/// The harness's clock as the sink has it.
#[derive(Clone)]
struct SinkClock(Clock);

impl std::fmt::Debug for SinkClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SinkClock")
    }
}

impl sinks::env::Clock for SinkClock {
    fn now_ms(&self) -> u64 {
        u64::try_from((self.0)().unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
    }
}

fn sink_clock(clock: &Clock) -> Arc<dyn sinks::env::Clock> {
    Arc::new(SinkClock(clock.clone()))
}
