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
use sinks::matrix::{Ending, Scenario};
use sinks::probe::{ProbeSettings, Report as Probe, Verdict};
use tokio::task::JoinSet;
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

/// Runs the parts, and gives their entries in order: the probe and what it agrees with, then scenarios side by side,
/// one on each of `fronts`. `suite` are the entries of the other checks, which the probe must agree with.
pub async fn run(
    area: &Area,
    suite: &[Entry],
    mut fronts: Vec<Front>,
    mut on: impl FnMut(Event<'_>),
) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(area.parts.len());
    let mut waiting = Vec::new();
    let mut probed = None;
    for (place, part) in area.parts.iter().copied().enumerate() {
        if let Part::Scenario(scenario) = part {
            waiting.push((place, scenario));
            continue;
        }
        on(Event::Started(&part.id()));
        let entry = match part {
            Part::Probe => {
                let (entry, report) = asked(area, fronts.first()).await;
                probed = report;
                entry
            }
            _ => Entry { outcome: agreement::outcome(suite, probed.as_ref()), ..begun(part) },
        };
        on(Event::Finished(&entry));
        entries.push((place, entry));
    }
    let refusal = probed.as_ref().and_then(refusal);
    let somewhere = fronts.iter().any(Front::keeps_the_bucket);
    let mut running = JoinSet::new();
    loop {
        let mut idle = Vec::new();
        while let Some(front) = fronts.pop() {
            let Some(place) = next(&waiting, front.keeps_the_bucket(), somewhere) else {
                idle.push(front);
                continue;
            };
            let (place, scenario) = waiting.remove(place);
            on(Event::Started(&Part::Scenario(scenario).id()));
            let (area, refusal) = (area.clone(), refusal.clone());
            running.spawn(async move {
                let entry = played(&area, scenario, &front, refusal).await;
                (place, entry, front)
            });
        }
        fronts = idle;
        let Some(ended) = running.join_next().await else { break };
        let (place, entry, front) = ended.expect("a panic of a scenario is this program's own fault");
        on(Event::Finished(&entry));
        entries.push((place, entry));
        fronts.push(front);
    }
    entries.sort_by_key(|(place, _)| *place);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// Which scenario a front plays next: the one that keeps the bucket itself is there for those that need it.
fn next(waiting: &[(usize, &Scenario)], keeps_the_bucket: bool, somewhere: bool) -> Option<usize> {
    let first = |wanted: fn(&Scenario) -> bool| waiting.iter().position(|(_, scenario)| wanted(scenario));
    match (keeps_the_bucket, somewhere) {
        (true, _) => first(|scenario| !scenario.needs.is_empty()).or_else(|| first(|_| true)),
        (false, true) => first(|scenario| scenario.needs.is_empty()),
        (false, false) => first(|_| true),
    }
}

/// The probe's entry, and what it reported.
async fn asked(area: &Area, front: Option<&Front>) -> (Entry, Option<Probe>) {
    let journal = front.filter(|front| front.keeps_the_bucket()).map(Front::journal);
    let (start, before) = ((area.clock)(), journal.as_ref().map_or(0, Journal::last));
    let left = left(area);
    let report = match left.is_zero() {
        true => None,
        false => tokio::time::timeout(left, probe(area)).await.ok(),
    };
    let mut entry = begun(Part::Probe);
    (entry.outcome, entry.note) = found(&report);
    let report = report.and_then(Result::ok);
    match journal {
        Some(journal) => (entry.requests, entry.traffic) = counted(journal, before),
        None => entry.requests = report.as_ref().map_or(0, |report| report.requests),
    }
    entry.duration_ms = since(area, start);
    (entry, report)
}

fn since(area: &Area, start: time::OffsetDateTime) -> u64 {
    u64::try_from(((area.clock)() - start).whole_milliseconds()).unwrap_or_default()
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

/// How long the next part may take.
fn left(area: &Area) -> Duration {
    area.deadline
        .map_or(area.limit, |deadline| deadline.saturating_duration_since(Instant::now()).min(area.limit))
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

/// Why no scenario is played: on a provider that the sink does not start on there is nothing to play.
fn refusal(probed: &Probe) -> Option<String> {
    let word = match probed.verdict {
        Verdict::Ready => return None,
        Verdict::Refused(_) => "refuses it",
        Verdict::Inconclusive(_) => "is inconclusive",
    };
    Some(format!("durable_v2 does not start on this provider: its probe {word}"))
}

/// A scenario's entry.
async fn played(area: &Area, scenario: &'static Scenario, front: &Front, refusal: Option<String>) -> Entry {
    let mut entry = begun(Part::Scenario(scenario));
    let (start, before, left) = ((area.clock)(), front.journal().last(), left(area));
    entry.outcome = match refusal {
        Some(reason) => Outcome::Skip { reason },
        None if left.is_zero() => undecided(OUT_OF_TIME),
        None => match scenario.run(&front.rig(area), left).await {
            Ending::OutOfTime => undecided(OUT_OF_TIME),
            Ending::Pass => Outcome::Pass,
            Ending::Skip(need) => Outcome::Skip { reason: format!("it needs {need}") },
            Ending::Fail(failure) => Outcome::Fail(Failure {
                expected: scenario.proves.to_owned(),
                got: failure.to_string(),
                exchange: None,
            }),
        },
    };
    (entry.requests, entry.traffic) = counted(front.journal(), before);
    entry.duration_ms = since(area, start);
    entry
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
