//! Certificates side by side: vendors × checks, and what changed between two dates of one vendor. Pure.

use crate::report::{Entry, Outcome, Report};
use assay_checks::{Condition, Severity};
use std::collections::BTreeSet;

/// Reports in columns.
pub struct Matrix<'a> {
    /// One for each report, in the order of names and dates.
    pub columns: Vec<Column<'a>>,
    /// One for each check that any of them has, in the suite's order.
    pub rows: Vec<Row<'a>>,
    /// The conditions that any of them tried.
    pub conditions: Vec<Condition>,
    /// What any of them measured.
    pub measured: Vec<&'a str>,
    /// What changed, for vendors with more than one report.
    pub changes: Vec<Change<'a>>,
}

/// A report and what stands above it.
pub struct Column<'a> {
    /// The vendor's name, with the day where that alone tells its reports apart.
    pub title: String,
    /// The report.
    pub report: &'a Report,
}

/// A check and its end in each column.
pub struct Row<'a> {
    /// The check's id.
    pub id: &'a str,
    /// What a pass shows.
    pub proves: &'a str,
    /// What a failure costs.
    pub severity: Severity,
    /// The entries; `None` where a report does not have the check.
    pub cells: Vec<Option<&'a Entry>>,
}

/// What is different between a vendor's report and its next one.
pub struct Change<'a> {
    /// The earlier report.
    pub before: &'a Report,
    /// The later one.
    pub after: &'a Report,
    /// Each difference: what, before, after.
    pub differences: Vec<(String, String, String)>,
}

impl<'a> Matrix<'a> {
    /// Puts the reports in columns.
    pub fn of(reports: &'a [Report]) -> Matrix<'a> {
        let mut sorted: Vec<&Report> = reports.iter().collect();
        sorted.sort_by(|a, b| (a.head.title(), &a.head.started).cmp(&(b.head.title(), &b.head.started)));
        let title = |report: &Report| {
            let several = sorted.iter().filter(|other| other.head.title() == report.head.title()).count() > 1;
            match several {
                true => format!("{} {}", report.head.title(), report.head.started.trim_end_matches('Z')),
                false => report.head.title().to_owned(),
            }
        };
        let columns = sorted.iter().map(|report| Column { title: title(report), report }).collect();
        let conditions: BTreeSet<Condition> =
            reports.iter().flat_map(|report| report.conditions.keys().copied()).collect();
        let measured: BTreeSet<&str> =
            reports.iter().flat_map(|report| report.measured.keys().map(String::as_str)).collect();
        let pairs = sorted.windows(2).filter(|pair| pair[0].head.title() == pair[1].head.title());
        Matrix {
            columns,
            rows: rows(&sorted),
            conditions: conditions.into_iter().collect(),
            measured: measured.into_iter().collect(),
            changes: pairs.map(|pair| change(pair[0], pair[1])).collect(),
        }
    }
}

fn rows<'a>(reports: &[&'a Report]) -> Vec<Row<'a>> {
    // The suite's own order first; what only an older report has comes after.
    let mut ids: Vec<&str> = assay_checks::all().map(|check| check.id).collect();
    for entry in reports.iter().flat_map(|report| &report.checks) {
        if !ids.contains(&&*entry.id) {
            ids.push(&entry.id);
        }
    }
    ids.into_iter()
        .filter_map(|id| {
            let cells: Vec<Option<&Entry>> = reports.iter().map(|report| report.entry(id)).collect();
            let entry = cells.iter().flatten().last()?;
            Some(Row { id: &entry.id, proves: &entry.proves, severity: entry.severity, cells })
        })
        .collect()
}

/// How a check ended, in a word for people: an informative check differs, it does not fail.
pub fn word(entry: &Entry) -> &'static str {
    match (&entry.outcome, entry.severity) {
        (Outcome::Fail(_), Severity::Informative) => "differs",
        (outcome, _) => outcome.word(),
    }
}

fn change<'a>(before: &'a Report, after: &'a Report) -> Change<'a> {
    let none = || "-".to_owned();
    let mut differences = Vec::new();
    let mut note = |what: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            differences.push((what.to_owned(), old.unwrap_or_else(none), new.unwrap_or_else(none)));
        }
    };
    note("verdict", Some(before.verdict.word().to_owned()), Some(after.verdict.word().to_owned()));
    let conditions: BTreeSet<_> = before.conditions.keys().chain(after.conditions.keys()).collect();
    for condition in conditions {
        let class = |report: &Report| report.conditions.get(condition).map(ToString::to_string);
        note(&condition.to_string(), class(before), class(after));
    }
    let measured: BTreeSet<_> = before.measured.keys().chain(after.measured.keys()).collect();
    for name in measured {
        let value = |report: &Report| report.measured.get(name).map(ToString::to_string);
        note(name, value(before), value(after));
    }
    for row in rows(&[before, after]) {
        let [old, new] = [0, 1].map(|at| row.cells[at].map(|entry| word(entry).to_owned()));
        note(row.id, old, new);
    }
    Change { before, after, differences }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{entry, example, failure, head};
    use crate::report::{Head, draw_up};

    #[test]
    fn vendors_stand_side_by_side() {
        let moto = Report { head: Head { name: Some("moto".into()), ..head() }, ..example() };
        let weed = Head { name: Some("SeaweedFS".into()), ..head() };
        let weed = draw_up(weed, vec![entry("put.create.present", Severity::Required, Outcome::Pass)]);
        let reports = [moto, weed];
        let matrix = Matrix::of(&reports);
        let titles: Vec<_> = matrix.columns.iter().map(|column| &*column.title).collect();
        assert_eq!(titles, ["SeaweedFS", "moto"]);
        let row = matrix.rows.iter().find(|row| row.id == "put.create.present").expect("both have it");
        let words: Vec<_> = row.cells.iter().map(|cell| cell.map(word)).collect();
        assert_eq!(words, [Some("pass"), Some("fail")]);
        let only = matrix.rows.iter().find(|row| row.id == "copy.create.absent").expect("one has it");
        assert!(only.cells[0].is_none() && only.cells[1].is_some());
        assert!(matrix.changes.is_empty());
    }

    #[test]
    fn two_dates_of_one_vendor_are_compared() {
        let later = Head { started: "2026-12-06T20:00:00Z".into(), ..head() };
        let fixed = entry("put.create.present", Severity::Required, Outcome::Pass);
        let broken = entry("put.create.etag-value", Severity::Informative, failure());
        let reports = [draw_up(later, vec![fixed, broken]), example()];
        let matrix = Matrix::of(&reports);
        let titles: Vec<_> = matrix.columns.iter().map(|column| &*column.title).collect();
        assert_eq!(titles, ["127.0.0.1:9000 2026-11-29T20:00:00", "127.0.0.1:9000 2026-12-06T20:00:00"]);
        let [change] = &matrix.changes[..] else { panic!("one pair") };
        let seen: Vec<_> =
            change.differences.iter().map(|(what, old, new)| format!("{what}: {old} > {new}")).collect();
        insta::assert_snapshot!(seen.join("\n"), @r"
        verdict: REFUSED > CERTIFIED
        PUT If-None-Match: races > -
        put.create.present: fail > pass
        copy.create.absent: skip > -
        consistency.read-on-another-connection: inconclusive > -
        race.put.create: pass > -
        ");
    }
}
