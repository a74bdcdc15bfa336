//! The capability probe: whether a bucket may hold a durable stream, asked before anything else, on every start.
//!
//! Twenty-seven checks ([`CHECKS`]) run under `{root}/_manifest/probe/{random}/`, through the client that the
//! sink will use and, for races, through clients with connections of their own. Each check ends with a read that
//! compares bytes. A surprise refuses the store by the check's number; silence and 5xx are inconclusive and refuse
//! the start all the same. What was written is removed on every way out.

mod at;
mod catalog;
mod clients;
mod create;
mod ground;
mod race;
mod report;
mod semantics;
mod swap;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::catalog::{CHECKS, Check, required};
pub use self::clients::{Clients, OneStore, S3Clients};
pub use self::report::{Found, Line, Report, Verdict};

use self::at::{At, Checked, Ended, Halt};
use self::ground::{Counted, Ledger};
use crate::env::Env;
use crate::model::key::PipelineRoot;
use crate::store::Pending;

/// Rounds and writers of a race below which it shows too little.
const FEWEST_ROUNDS: usize = 8;
const FEWEST_WRITERS: usize = 16;

/// Rounds that a race makes even where each takes seconds and its budget is used up.
const MINIMUM_ROUNDS: usize = 3;

/// How long and how often a probe asks. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Rounds of a race where its budget lasts; fewer than 8 count as 8.
    pub race_rounds: usize,
    /// Requests that race at once; fewer than 16 count as 16.
    pub race_writers: usize,
    /// After so long a race begins no further round; three it makes in any case.
    pub race_budget_ms: u64,
    /// Tries of a check that got no answer.
    pub tries: u32,
    /// The wait before the second try; each further one is twice as long.
    pub retry_wait_ms: u64,
    /// After so long no further check begins, and the probe is inconclusive.
    pub limit_ms: u64,
    /// How far local and store clock may be apart before actors that delete by age stay off.
    pub max_clock_skew_ms: u64,
    /// The age at which a directory of an earlier probe is removed, by the store's clock.
    pub sweep_after_ms: u64,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self {
            race_rounds: FEWEST_ROUNDS,
            race_writers: FEWEST_WRITERS,
            race_budget_ms: 20_000,
            tries: 3,
            retry_wait_ms: 250,
            limit_ms: 300_000,
            max_clock_skew_ms: 30_000,
            sweep_after_ms: 3_600_000,
        }
    }
}

impl ProbeSettings {
    fn race_rounds(&self) -> usize {
        self.race_rounds.max(FEWEST_ROUNDS)
    }

    fn race_minimum_rounds(&self) -> usize {
        MINIMUM_ROUNDS
    }

    fn race_writers(&self) -> usize {
        self.race_writers.max(FEWEST_WRITERS)
    }
}

/// A probe of one bucket for one pipeline. Two of them may run at once: each has a directory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// What the sink will run in; its store is the production client.
    pub env: &'a Env,
    /// Clients with connections of their own.
    pub clients: &'a dyn Clients,
    /// Where the pipeline's keys begin.
    pub root: &'a PipelineRoot,
    /// How long and how often it asks.
    pub settings: &'a ProbeSettings,
}

impl Probe<'_> {
    /// Runs all checks, or as many as come before `stop` ends, and removes what it wrote: after success, refusal,
    /// error and stop alike. If the process dies, or this future is dropped, a probe of an hour later removes it.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Report {
        let began = Instant::now();
        let parent = self.root.probe();
        let directory = format!("{parent}{}/", self.env.ids.nonce());
        let ledger = Arc::new(Ledger::default());
        let main = Counted { store: self.env.store.clone(), ledger: ledger.clone() };
        let mut progress = Progress::default();
        let interrupted = {
            let checks = self.checks(&main, &parent, &directory, began, &mut progress);
            tokio::select! {
                biased;
                () = stop => true,
                () = checks => false,
            }
        };
        let left = ground::clear(&main, &directory).await;
        let lines = progress.lines();
        let report = Report {
            verdict: Verdict::of(&lines),
            directory,
            lines,
            places: self.clients.places(),
            race_writers: self.settings.race_writers(),
            race_rounds: self.settings.race_rounds(),
            race_budget_ms: self.settings.race_budget_ms,
            clock_skew_ms: progress.clock_skew_ms,
            clock_within_limit: progress
                .clock_skew_ms
                .is_some_and(|skew| skew.unsigned_abs() <= self.settings.max_clock_skew_ms),
            requests: ledger.requests(),
            elapsed_ms: elapsed_ms(began),
            swept: progress.swept,
            left,
            interrupted,
        };
        tracing::info!(verdict = ?report.verdict, requests = report.requests, ms = report.elapsed_ms, "probe");
        report
    }

    /// The sweep, then each check in turn until one ends the probe.
    async fn checks(
        &self,
        main: &Counted,
        parent: &str,
        directory: &str,
        began: Instant,
        progress: &mut Progress,
    ) {
        let at = |name: &str| At {
            env: self.env,
            clients: self.clients,
            settings: self.settings,
            ledger: main.ledger.clone(),
            main: main.clone(),
            directory: format!("{directory}{name}/"),
        };
        // Where not even this works, the checks tell why.
        if let Ok(now) = semantics::store_now_ms(&at("sweep")).await {
            progress.swept = ground::sweep(main, parent, now, self.settings.sweep_after_ms).await;
        }
        for check in &CHECKS {
            let (requests, start) = (main.ledger.requests(), Instant::now());
            let mut tries = 0;
            let ended = loop {
                if elapsed_ms(began) >= self.settings.limit_ms {
                    break Err(Halt::Unanswered(silence(format!(
                        "the probe's {} ms were up",
                        self.settings.limit_ms
                    ))));
                }
                let at = at(&format!("{:02}-{tries}", check.number));
                let ended = match check.number {
                    27 => self.clock(&at, progress).await,
                    number => run(number, &at).await,
                };
                tries += 1;
                match ended {
                    Err(Halt::Unanswered(_)) if tries < self.settings.tries.max(1) => {
                        let wait_ms = self.settings.retry_wait_ms << (tries - 1).min(10);
                        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    }
                    ended => break ended,
                }
            };
            let last = ends_the_probe(check.number, &ended);
            progress.done.push(line(check, ended, main.ledger.requests() - requests, elapsed_ms(start)));
            if last {
                return;
            }
        }
    }

    /// Check 27: both clocks, the local one in the middle of the request, the store's in the middle of its second.
    async fn clock(&self, at: &At<'_>, progress: &mut Progress) -> Checked {
        let before = self.env.clock.now_ms();
        let store = semantics::store_now_ms(at).await?;
        let local = before.midpoint(self.env.clock.now_ms());
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let skew = signed(local).saturating_sub(signed(store).saturating_add(500));
        progress.clock_skew_ms = Some(skew);
        let limit = self.settings.max_clock_skew_ms;
        let what = if skew.unsigned_abs() <= limit {
            format!("{skew} ms apart, within {limit} ms")
        } else {
            format!("{skew} ms apart, more than {limit} ms: actors that delete by age stay off")
        };
        Ok(Ended::Recorded(what))
    }
}

fn run<'a>(number: u8, at: &'a At<'_>) -> Pending<'a, Checked> {
    match number {
        1 => Box::pin(create::on_absent(at)),
        2 => Box::pin(create::on_existing(at)),
        3 => Box::pin(create::same_bytes(at)),
        4 => Box::pin(create::same_length(at)),
        5 => Box::pin(create::after_delete(at)),
        6 => Box::pin(create::large_and_empty(at)),
        7 => Box::pin(create::beside_longer(at)),
        8 => Box::pin(swap::current(at)),
        9 => Box::pin(swap::stale(at)),
        10 => Box::pin(swap::stale_with_current_bytes(at)),
        11 => Box::pin(swap::foreign(at)),
        12 => Box::pin(swap::absent(at)),
        13 => Box::pin(swap::forms(at)),
        14 => Box::pin(swap::there_and_back(at)),
        15 => Box::pin(swap::large(at)),
        16 => Box::pin(race::creates(at)),
        17 => Box::pin(race::swaps(at)),
        18 => Box::pin(race::mixed(at)),
        19 => Box::pin(race::slow_create(at)),
        20 => Box::pin(race::chain(at)),
        21 => Box::pin(semantics::read_after_write(at)),
        22 => Box::pin(semantics::list_after_write(at)),
        23 => Box::pin(semantics::one_etag(at)),
        24 => Box::pin(semantics::key_fidelity(at)),
        25 => Box::pin(semantics::delete(at)),
        26 => Box::pin(semantics::metadata(at)),
        _ => unreachable!("the table of checks ends at 27, which is run beside this"),
    }
}

fn silence(reason: String) -> crate::store::Unanswered {
    crate::store::Unanswered { status: None, reason }
}

/// A store that does not answer is not asked further; nor is one that denies the first write.
fn ends_the_probe(number: u8, ended: &Checked) -> bool {
    match ended {
        Ok(_) | Err(Halt::Refused { .. }) => false,
        Err(Halt::Denied { .. }) => number == 1,
        // An answer that is none, time after time, is what the store does.
        Err(Halt::Unanswered(unanswered)) => unanswered.status.is_none_or(|status| status >= 300),
    }
}

fn line(check: &Check, ended: Checked, requests: u64, elapsed_ms: u64) -> Line {
    let (found, note) = match ended {
        Ok(Ended::Passed(note)) => (Found::Pass, note),
        Ok(Ended::Recorded(what)) => (Found::Recorded { what }, None),
        Err(Halt::Refused { expected, got } | Halt::Denied { expected, got }) => {
            (Found::Refused { expected, got }, None)
        }
        Err(Halt::Unanswered(unanswered)) => match unanswered.status {
            Some(status) if status < 300 => {
                let expected = "an answer that says what was done".to_owned();
                (Found::Refused { expected, got: unanswered.reason }, None)
            }
            _ => (Found::Inconclusive { reason: unanswered.reason }, None),
        },
    };
    let (name, required) = (check.name.to_owned(), check.required);
    Line { check: check.number, name, required, found, note, requests, elapsed_ms }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// What is known so far, whenever the probe ends.
#[derive(Debug, Default)]
struct Progress {
    done: Vec<Line>,
    clock_skew_ms: Option<i64>,
    swept: Vec<String>,
}

impl Progress {
    /// A line for each check, of those that did not run too.
    fn lines(&mut self) -> Vec<Line> {
        let mut lines = std::mem::take(&mut self.done);
        lines.extend(CHECKS.iter().skip(lines.len()).map(|check| Line {
            check: check.number,
            name: check.name.to_owned(),
            required: check.required,
            found: Found::NotRun,
            note: None,
            requests: 0,
            elapsed_ms: 0,
        }));
        lines
    }
}
