//! Runs checks side by side, each isolated from the others, and races alone.

use crate::buckets::Buckets;
use crate::report::{Entry, Outcome};
use assay_checks::{Check, Client, Clock, Doubt, Exchange, Need, Race, Stop, Surroundings, Traffic, Trial};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A check of more requests than this is not told step by step.
const TELLABLE: u64 = 12;

/// What to run, and how.
#[derive(Clone)]
pub struct Plan {
    /// The checks, in order.
    pub checks: Vec<&'static Check>,
    /// What the provider does not claim; checks that need it are skipped.
    pub without: Vec<Need>,
    /// What else there is around the bucket.
    pub surroundings: Surroundings,
    /// How hard the races are.
    pub race: Race,
    /// The seed of every check's bodies and names.
    pub seed: u64,
    /// The longest time for one check.
    pub limit: Duration,
    /// Checks at once, at least 1. Races run alone, after the others, so that only their own requests compete.
    pub jobs: usize,
    /// The longest time for all of them; what it cuts off is inconclusive.
    pub budget: Option<Duration>,
    /// The clock of durations.
    pub clock: Clock,
}

/// What happens during a run.
pub enum Event<'a> {
    /// A check begins.
    Started(&'static Check),
    /// A check has ended; the latest of its exchanges, oldest first.
    Finished(&'a Entry, &'a [Arc<Exchange>]),
}

/// Runs the plan with keys under `prefix`, which ends in a slash. Gives the entries in the plan's order, whatever
/// the order of the checks' ends.
pub async fn run(plan: &Plan, client: &Client, prefix: &str, mut on: impl FnMut(Event<'_>)) -> Vec<Entry> {
    let deadline = plan.budget.map(|budget| Instant::now() + budget);
    let buckets = Arc::new(Buckets::prepare(plan, client, prefix).await);
    let (alone, together): (Vec<_>, Vec<_>) =
        plan.checks.iter().copied().enumerate().partition(|(_, check)| runs_alone(check));
    let mut entries: Vec<(usize, Entry)> = Vec::with_capacity(plan.checks.len());
    for (group, jobs) in [(together, plan.jobs.max(1)), (alone, 1)] {
        let mut waiting = group.into_iter();
        let mut running = JoinSet::new();
        loop {
            while running.len() < jobs
                && let Some((place, check)) = waiting.next()
            {
                on(Event::Started(check));
                let (plan, client, prefix) = (plan.clone(), client.with_own_journal(), prefix.to_owned());
                let buckets = buckets.clone();
                running.spawn(async move {
                    let entry = run_one(&plan, check, &buckets, &client, &prefix, deadline).await;
                    (place, entry, client.exchanges())
                });
            }
            let Some(ended) = running.join_next().await else { break };
            let (place, entry, exchanges) =
                ended.expect("a check's panic ends its own task, one level below");
            on(Event::Finished(&entry, &exchanges));
            entries.push((place, entry));
        }
    }
    entries.sort_by_key(|(place, _)| *place);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// A race is about requests that meet: those of other checks would only take its place on the wire.
fn runs_alone(check: &Check) -> bool {
    check.id.starts_with("race.")
}

async fn run_one(
    plan: &Plan,
    check: &'static Check,
    buckets: &Buckets,
    client: &Client,
    prefix: &str,
    deadline: Option<Instant>,
) -> Entry {
    let start = (plan.clock)();
    let mut entry = Entry {
        id: check.id.to_owned(),
        proves: check.proves.to_owned(),
        severity: check.severity,
        source: check.source.to_owned(),
        outcome: Outcome::Pass,
        class: None,
        note: None,
        measured: BTreeMap::new(),
        steps: Vec::new(),
        requests: 0,
        traffic: Traffic::new(),
        duration_ms: 0,
    };
    if let Some(need) = check.needs.iter().find(|need| plan.without.contains(need)) {
        entry.outcome = Outcome::Skip { reason: format!("{} is not claimed", need.name()) };
        return entry;
    }
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        let reason = "not begun within the time budget".to_owned();
        entry.outcome = Outcome::Inconclusive(Doubt { reason, exchange: None });
        return entry;
    }
    let limit = left.map_or(plan.limit, |left| left.min(plan.limit));
    let client = match buckets.for_check(check) {
        Ok(None) => client.clone(),
        Ok(Some(bucket)) => client.in_bucket(bucket),
        Err(reason) => {
            entry.outcome = Outcome::Skip { reason };
            return entry;
        }
    };
    let trial = Trial::new(
        client.clone(),
        &plan.surroundings,
        format!("{prefix}{}/", check.id),
        plan.race,
        seed_of(plan.seed, check.id),
    );
    // A task of its own, so that a panic is this check's end alone; dropped with this function, it is aborted.
    let mut task = JoinSet::new();
    task.spawn(async move {
        let done = (check.run)(&trial).await;
        (done, trial.class(), trial.remark(), trial.measured())
    });
    entry.outcome = match tokio::time::timeout(limit, task.join_next()).await {
        Err(_) => Outcome::Inconclusive(Doubt {
            reason: format!("not done within {limit:?}"),
            exchange: client.latest(),
        }),
        Ok(Some(Ok((done, class, note, measured)))) => {
            entry.measured = measured;
            entry.class = check.condition.zip(class);
            entry.note = note;
            match done {
                Ok(()) => Outcome::Pass,
                Err(Stop::Fail(failure)) => Outcome::Fail(failure),
                Err(Stop::Skip(reason)) => Outcome::Skip { reason },
                Err(Stop::Inconclusive(doubt)) => Outcome::Inconclusive(doubt),
            }
        }
        Ok(Some(Err(why))) => Outcome::Broken { reason: why.to_string() },
        Ok(None) => Outcome::Broken { reason: "the check did not start".to_owned() },
    };
    entry.requests = client.requests();
    entry.traffic = client.traffic();
    if entry.outcome != Outcome::Pass && entry.requests <= TELLABLE {
        entry.steps = client.exchanges();
    }
    let taken = ((plan.clock)() - start).whole_milliseconds();
    entry.duration_ms = u64::try_from(taken).unwrap_or_default();
    entry
}

/// A check's own seed, so that it draws the same alone as among others: FNV-1a over the id, from the run's seed.
fn seed_of(seed: u64, id: &str) -> u64 {
    id.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
