//! What the show came to: figures, findings, one exit code.

use serde_json::Value;
use std::fmt::Write as _;

/// Fewer kills prove little.
const FEWEST_KILLS: u32 = 5;

/// Figures and findings.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How long workload and sink took.
    pub seconds: u64,
    /// Starts of the sink.
    pub lives: u32,
    /// Lives that ended by SIGKILL.
    pub kills: u32,
    /// Places that the sink acknowledged.
    pub acknowledged: u64,
    /// Of these, said at a start of what a killed life had committed.
    pub resumed: u64,
    /// How often the slot was moved.
    pub advances: u64,
    /// Where the slot is at the end.
    pub slot: String,
    /// Events that were given to the sink, over all lives.
    pub fed: u64,
    /// Of these, given to a life before.
    pub fed_again: u64,
    /// Transactions that PostgreSQL logged.
    pub transactions: u64,
    /// Row versions in them.
    pub logged: u64,
    /// The oracle's exit code.
    pub oracle: u8,
    report: Value,
    wrong: Vec<String>,
}

impl Verdict {
    /// Notes what is wrong.
    pub fn wrong(&mut self, why: String) {
        self.wrong.push(why);
    }

    /// Takes the oracle's report.
    pub fn judged(&mut self, report: &str) {
        self.report = serde_json::from_str(report).unwrap_or_default();
    }

    fn rows(&self) -> u64 {
        let tables = self.report["statistics"]["rows"].as_object();
        tables.map_or(0, |tables| tables.values().filter_map(Value::as_u64).sum())
    }

    fn unproven(&self) -> Option<String> {
        if self.kills < FEWEST_KILLS {
            return Some(format!("{} kills, {FEWEST_KILLS} at least: give it more seconds", self.kills));
        }
        if self.fed_again == 0 {
            return Some("no kill struck between a write and its acknowledgement".to_owned());
        }
        (self.logged == 0).then(|| "PostgreSQL logged no row".to_owned())
    }

    /// 0 right, 1 wrong, 3 not proven, and what the oracle could not read as its code says.
    pub fn code(&self) -> u8 {
        match self.oracle {
            _ if !self.wrong.is_empty() => 1,
            0 if self.unproven().is_some() => 3,
            code => code,
        }
    }

    /// The table for people, and one line that says it.
    pub fn table(&self) -> String {
        let statistics = &self.report["statistics"];
        let number = |name: &str| statistics[name].as_u64().unwrap_or_default();
        let findings: u64 = self.report["counts"]
            .as_object()
            .map_or(0, |counts| counts.values().filter_map(Value::as_u64).sum());
        let rows = [
            ("sink: starts, of these ended by SIGKILL", format!("{}, {}", self.lives, self.kills)),
            (
                "sink: places acknowledged, of these at a start",
                format!("{}, {}", self.acknowledged, self.resumed),
            ),
            ("slot: moved, and where it is", format!("{} times, {}", self.advances, self.slot)),
            ("events given to the sink, of these again", format!("{}, {}", self.fed, self.fed_again)),
            ("PostgreSQL: transactions with rows", self.transactions.to_string()),
            ("PostgreSQL: row versions logged", self.logged.to_string()),
            ("bucket: row versions that HEAD reaches", self.rows().to_string()),
            ("bucket: entries, objects", format!("{}, {}", number("entries"), number("objects"))),
            ("bucket: epoch, revision", format!("{}, {}", number("epoch"), number("rev"))),
            ("bucket: left behind by kills", format!("{} objects", number("orphans"))),
            ("oracle: findings", findings.to_string()),
        ];
        let mut out = "| what | figure |\n| --- | --- |\n".to_owned();
        for (what, figure) in rows {
            let _ = writeln!(out, "| {what} | {figure} |");
        }
        for finding in self.report["findings"].as_array().into_iter().flatten().take(20) {
            let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
            let _ = writeln!(out, "{}: {}: {}", text("kind"), text("at"), text("detail"));
        }
        for reason in self.report["inconclusive"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "not judged: {}", reason.as_str().unwrap_or_default());
        }
        for why in &self.wrong {
            let _ = writeln!(out, "wrong: {why}");
        }
        let answer = match self.code() {
            0 => "every row version that PostgreSQL logged is in the bucket once".to_owned(),
            3 => format!(
                "not proven: {}",
                self.unproven().unwrap_or_else(|| "the oracle is inconclusive".to_owned())
            ),
            code => format!("no (exit code {code})"),
        };
        let _ = writeln!(out, "{answer}; {} kills in {} s", self.kills, self.seconds);
        out
    }
}
