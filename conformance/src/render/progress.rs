//! The line of a run under way: how far it is, what runs now, and about how long it still takes.

use crate::runner::Plan;
use crate::sink::Part;
use std::time::Duration;

/// Requests of a check that is no race, one after the other: near enough for an estimate.
const STEPS: usize = 6;
/// Requests one after the other in one round of a race.
const STEPS_OF_A_ROUND: usize = 7;
/// The same of the sink's probe, and of a scenario of its matrix.
const STEPS_OF_THE_PROBE: usize = 400;
const STEPS_OF_A_SCENARIO: usize = 80;
/// Columns: one less than a terminal's, so that the line never wraps.
const WIDTH: usize = 79;

/// What is known of a run under way.
pub struct Progress {
    of: usize,
    done: usize,
    running: Vec<String>,
    /// Requests one after the other that are behind, and all of them.
    behind: usize,
    all: usize,
    jobs: usize,
    rounds: usize,
}

impl Progress {
    /// A run that has not begun.
    pub fn new(plan: &Plan, parts: &[Part]) -> Progress {
        let (jobs, rounds) = (plan.jobs.max(1), plan.race.rounds);
        let checks = plan.checks.iter().map(|check| weight(check.id, jobs, rounds));
        let all = checks.chain(parts.iter().map(|part| weight(&part.id(), jobs, rounds))).sum();
        let of = plan.checks.len() + parts.len();
        Progress { of, done: 0, running: Vec::new(), behind: 0, all, jobs, rounds }
    }

    /// A check has begun.
    pub fn started(&mut self, id: &str) {
        self.running.push(id.to_owned());
    }

    /// A check has ended.
    pub fn finished(&mut self, id: &str) {
        self.running.retain(|running| *running != id);
        self.behind += weight(id, self.jobs, self.rounds);
        self.done += 1;
    }

    /// Whether every check has ended.
    pub fn is_over(&self) -> bool {
        self.done == self.of
    }

    /// About how long the rest takes, if it goes on as it went; `None` before anything is done.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let rest = self.all.saturating_sub(self.behind);
        (self.behind > 0).then(|| elapsed.mul_f64(rest as f64 / self.behind as f64))
    }

    /// The line, after `elapsed`, in at most 79 columns.
    pub fn line(&self, elapsed: Duration) -> String {
        let left = match self.left(elapsed).map(|left| left.as_secs_f64().ceil() as u64) {
            None => String::new(),
            Some(seconds @ 0..=99) => format!("  about {seconds} s left"),
            Some(seconds) => format!("  about {} min left", seconds.div_ceil(60)),
        };
        let others = match self.running.len() {
            0 | 1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        let count = format!("[{}/{}] ", self.done, self.of);
        let room = WIDTH.saturating_sub(count.len() + others.len() + left.len());
        let now: String = self.running.first().map_or("", String::as_str).chars().take(room).collect();
        format!("{count}{now}{others}{left}")
    }
}

/// Requests one after the other that a check takes of the run's time, in units of a request divided by the jobs.
fn weight(id: &str, jobs: usize, rounds: usize) -> usize {
    match id.split('.').next() {
        Some("race") => STEPS_OF_A_ROUND * rounds * jobs,
        Some("sink") if id == "sink.probe" => STEPS_OF_THE_PROBE * jobs,
        Some("sink") => STEPS_OF_A_SCENARIO,
        _ => STEPS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::select;
    use assay_checks::Race;
    use std::sync::Arc;

    fn plan(globs: &[&str]) -> Plan {
        Plan {
            checks: select(&globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>())
                .expect("they exist"),
            without: Vec::new(),
            surroundings: assay_checks::Surroundings::default(),
            race: Race { writers: 2, rounds: 2 },
            seed: 1,
            limit: Duration::from_secs(1),
            jobs: 4,
            budget: None,
            clock: Arc::new(|| time::OffsetDateTime::UNIX_EPOCH),
        }
    }

    #[test]
    fn tells_what_runs_and_how_long_it_takes() {
        let plan = plan(&["put.create.absent", "put.create.present", "race.put.create"]);
        let mut progress = Progress::new(&plan, &[]);
        progress.started(plan.checks[0].id);
        progress.started(plan.checks[1].id);
        assert_eq!(progress.line(Duration::ZERO), "[0/3] put.create.absent and 1 more");
        progress.finished("put.create.absent");
        assert_eq!(progress.line(Duration::from_secs(1)), "[1/3] put.create.present  about 11 s left");
        progress.finished("put.create.present");
        progress.started(plan.checks[2].id);
        assert_eq!(progress.line(Duration::from_secs(60)), "[2/3] race.put.create  about 5 min left");
        progress.finished("race.put.create");
        assert_eq!(progress.line(Duration::from_secs(70)), "[3/3]   about 0 s left");
    }

    #[test]
    fn fits_a_terminal_whatever_runs() {
        let plan = plan(&["*"]);
        for check in &plan.checks {
            let mut progress = Progress::new(&plan, &[]);
            plan.checks.iter().take(9).for_each(|check| progress.started(check.id));
            progress.running[0] = check.id.to_owned();
            progress.finished(plan.checks[8].id);
            let line = progress.line(Duration::from_secs(86_400));
            assert!(line.chars().count() <= WIDTH && line.contains(" more  about "), "{line}");
        }
    }
}
