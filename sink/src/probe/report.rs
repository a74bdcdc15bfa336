//! What a probe found, for programs (serde) and for people: a table of 80 columns.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::catalog::CHECKS;
use super::semantics::CONDITIONAL_DELETES;
use crate::metrics::Metrics;

/// Columns of a terminal that every table fits.
const COLUMNS: usize = 80;

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Found {
    /// As it must be.
    Pass,
    /// The store did otherwise: no durable sink on it.
    Refused {
        /// What was expected.
        expected: String,
        /// What the store did.
        got: String,
    },
    /// No answer, or 5xx: says nothing about the store.
    Inconclusive {
        /// What was seen.
        reason: String,
    },
    /// Nothing depends on it.
    Recorded {
        /// What the store does.
        what: String,
    },
    /// An earlier check ended the probe.
    NotRun,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Number of the check, from 1.
    pub check: u8,
    /// Its name.
    pub name: String,
    /// Whether durable mode needs it.
    pub required: bool,
    /// What it found.
    #[serde(flatten)]
    pub found: Found,
    /// What was noted besides: how many rounds, what else the store accepts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Requests that it sent, repetitions included.
    pub requests: u64,
    /// Milliseconds that it took.
    pub elapsed_ms: u64,
}

/// Whether a durable sink may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "checks")]
pub enum Verdict {
    /// Every required check passed.
    Ready,
    /// These required checks were refused: never start here.
    Refused(Vec<u8>),
    /// These could not be decided: start later, not now.
    Inconclusive(Vec<u8>),
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether a durable sink may start.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The prefix of every key that the probe wrote.
    pub directory: String,
    /// All checks, by number.
    pub lines: Vec<Line>,
    /// Addresses and endpoints that the races went to.
    pub places: usize,
    /// Writers of a race.
    pub race_writers: usize,
    /// Rounds of a race, where its budget lasts.
    pub race_rounds: usize,
    /// Milliseconds after which a race begins no further round.
    pub race_budget_ms: u64,
    /// Local clock less the store's, in milliseconds, where an answer had a date.
    pub clock_skew_ms: Option<i64>,
    /// Whether that is little enough for actors that delete by age.
    pub clock_within_limit: bool,
    /// Requests of the whole probe, cleaning up included.
    pub requests: u64,
    /// Milliseconds of the whole probe.
    pub elapsed_ms: u64,
    /// Directories of earlier probes that were removed.
    pub swept: Vec<String>,
    /// Keys of this probe that could not be removed; the next one tries again after an hour.
    pub left: Vec<String>,
    /// Whether the probe was asked to stop.
    pub interrupted: bool,
}

impl Verdict {
    pub(super) fn of(lines: &[Line]) -> Self {
        let those = |wanted: fn(&Found) -> bool| -> Vec<u8> {
            let required = lines.iter().filter(|line| line.required && wanted(&line.found));
            required.map(|line| line.check).collect()
        };
        let refused = those(|found| matches!(found, Found::Refused { .. }));
        let open = those(|found| !matches!(found, Found::Pass | Found::Refused { .. }));
        match (refused.is_empty(), open.is_empty()) {
            (false, _) => Self::Refused(refused),
            (true, false) => Self::Inconclusive(open),
            (true, true) => Self::Ready,
        }
    }
}

impl Report {
    /// Sets the metric of each check, by its number: 1 where it passed or is only recorded, else 0.
    pub fn count(&self, metrics: &Metrics) {
        for Line { check, found, .. } in &self.lines {
            let passed = matches!(found, Found::Pass | Found::Recorded { .. });
            metrics.probe_result.with_label_values(&[&check.to_string()]).set(i64::from(passed));
        }
    }

    /// Whether the store honours `If-Match` of a delete: reconciliation then deletes only what it has looked at.
    #[must_use]
    pub fn conditional_deletes(&self) -> bool {
        self.lines.iter().any(|line| line.note.as_deref() == Some(CONDITIONAL_DELETES))
    }

    /// 0 ready, 1 refused, 3 not proven, 130 interrupted.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.verdict {
            _ if self.interrupted => 130,
            Verdict::Ready => 0,
            Verdict::Refused(_) => 1,
            Verdict::Inconclusive(_) => 3,
        }
    }
}

/// Breaks `text` into lines that fit behind `indent` blanks.
fn wrapped(out: &mut String, label: &str, indent: usize, text: &str) -> fmt::Result {
    let behind = indent + label.len();
    let mut column = behind;
    write!(out, "{:indent$}{label}", "")?;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > behind && column + 1 + length > COLUMNS {
            write!(out, "\n{:behind$}", "")?;
            column = behind;
        }
        if column > behind {
            out.push(' ');
            column += 1;
        }
        // A word that is no word, such as a long key, is broken where it must be.
        for sign in word.chars() {
            if column == COLUMNS {
                write!(out, "\n{:behind$}", "")?;
                column = behind;
            }
            out.push(sign);
            column += 1;
        }
    }
    out.push('\n');
    Ok(())
}

impl Line {
    fn write(&self, out: &mut String) -> fmt::Result {
        let word = match &self.found {
            Found::Pass => "pass",
            Found::Refused { .. } => "REFUSED",
            Found::Inconclusive { .. } => "INCONCLUSIVE",
            Found::Recorded { .. } => "recorded",
            Found::NotRun => "not run",
        };
        let (number, name) = (self.check, &self.name);
        writeln!(out, "{number:>2}  {name:<30}{:>9}{:>9}  {word}", self.requests, self.elapsed_ms)?;
        if let Some(note) = &self.note {
            wrapped(out, "", 4, note)?;
        }
        let about = CHECKS.iter().find(|check| check.number == self.check);
        match (&self.found, about) {
            (Found::Refused { expected, got }, Some(about)) => {
                wrapped(out, "expected  ", 4, expected)?;
                wrapped(out, "got       ", 4, got)?;
                wrapped(out, "means     ", 4, about.means)?;
                wrapped(out, "do        ", 4, about.remedy)
            }
            (Found::Inconclusive { reason }, _) => wrapped(out, "saw       ", 4, reason),
            (Found::Recorded { what }, _) => wrapped(out, "", 4, what),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        wrapped(&mut out, "probe of ", 0, &self.directory)?;
        let races = format!(
            "up to {} rounds of {} requests each, on {} address(es), for {} s at most",
            self.race_rounds,
            self.race_writers,
            self.places,
            self.race_budget_ms.div_ceil(1000)
        );
        wrapped(&mut out, "races: ", 0, &races)?;
        writeln!(out, "\n #  {:<30}{:>9}{:>9}  outcome", "check", "requests", "ms")?;
        self.lines.iter().try_for_each(|line| line.write(&mut out))?;
        writeln!(out, "\n    {:<30}{:>9}{:>9}", "with cleaning up", self.requests, self.elapsed_ms)?;
        if !self.swept.is_empty() {
            let swept = format!("{} director(ies) that earlier probes left", self.swept.len());
            wrapped(&mut out, "removed   ", 0, &swept)?;
        }
        for key in &self.left {
            wrapped(&mut out, "left      ", 0, key)?;
        }
        let numbers = |checks: &[u8]| checks.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let verdict = match &self.verdict {
            Verdict::Ready => "ready for a durable sink".to_owned(),
            Verdict::Refused(checks) => format!("refused by check {}", numbers(checks)),
            Verdict::Inconclusive(checks) => {
                format!("inconclusive at check {}: nothing is proven, ask again", numbers(checks))
            }
        };
        wrapped(&mut out, "verdict   ", 0, &verdict)?;
        if !self.clock_within_limit {
            wrapped(
                &mut out,
                "clocks    ",
                0,
                "too far apart or unknown: actors that delete by age stay off",
            )?;
        }
        if self.interrupted {
            wrapped(&mut out, "          ", 0, "interrupted before its end")?;
        }
        f.write_str(&out)
    }
}
