//! Runs checks one after the other, each isolated from the next.

use crate::report::{Entry, Outcome};
use assay_checks::{Check, Client, Clock, Doubt, Need, Race, Stop, Trial};
use std::time::Duration;
use tokio::task::JoinSet;

/// What to run, and how.
pub struct Plan {
    /// The checks, in order.
    pub checks: Vec<&'static Check>,
    /// What the provider does not claim; checks that need it are skipped.
    pub without: Vec<Need>,
    /// How hard the races are.
    pub race: Race,
    /// The seed of every check's bodies and names.
    pub seed: u64,
    /// The longest time for one check.
    pub limit: Duration,
    /// The clock of durations.
    pub clock: Clock,
}

/// What happens during a run.
pub enum Event<'a> {
    /// A check begins: its place among all of them, from 1.
    Started {
        /// The check's place.
        index: usize,
        /// How many there are.
        of: usize,
        /// The check.
        check: &'static Check,
    },
    /// A check has ended.
    Finished(&'a Entry),
}

/// Runs the plan with keys under `prefix`, which ends in a slash.
pub async fn run(plan: &Plan, client: &Client, prefix: &str, mut on: impl FnMut(Event<'_>)) -> Vec<Entry> {
    let of = plan.checks.len();
    let mut entries = Vec::with_capacity(of);
    for (index, check) in (1..).zip(plan.checks.iter().copied()) {
        on(Event::Started { index, of, check });
        let entry = run_one(plan, check, client, prefix).await;
        on(Event::Finished(&entry));
        entries.push(entry);
    }
    entries
}

async fn run_one(plan: &Plan, check: &'static Check, client: &Client, prefix: &str) -> Entry {
    let start = (plan.clock)();
    let client = client.with_own_journal();
    let mut entry = Entry {
        id: check.id.to_owned(),
        proves: check.proves.to_owned(),
        severity: check.severity,
        source: check.source.to_owned(),
        outcome: Outcome::Pass,
        class: None,
        note: None,
        requests: 0,
        duration_ms: 0,
    };
    if let Some(need) = check.needs.iter().find(|need| plan.without.contains(need)) {
        entry.outcome = Outcome::Skip { reason: format!("{} is not claimed", need.name()) };
        return entry;
    }
    let trial =
        Trial::new(client.clone(), format!("{prefix}{}/", check.id), plan.race, seed_of(plan.seed, check.id));
    // A task of its own, so that a panic is this check's end alone; dropped with this function, it is aborted.
    let mut task = JoinSet::new();
    task.spawn(async move {
        let done = (check.run)(&trial).await;
        (done, trial.class(), trial.remark())
    });
    entry.outcome = match tokio::time::timeout(plan.limit, task.join_next()).await {
        Err(_) => Outcome::Inconclusive(Doubt {
            reason: format!("not done within {:?}", plan.limit),
            exchange: client.latest(),
        }),
        Ok(Some(Ok((done, class, note)))) => {
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
