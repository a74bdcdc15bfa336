//! Markdown: the report, the matrix of several, and tables for README files.

use crate::matrix::{Matrix, word};
use crate::render::curl;
use crate::report::{Entry, Outcome, Report};
use crate::selection::Declared;
use assay_checks::Class;

/// The checks as a Markdown table: id, severity, what it proves, source.
pub fn checks(checks: &[Declared]) -> String {
    let rows = checks.iter().map(|check| {
        format!(
            "| `{}` | {} | {} | {} |\n",
            check.id,
            format!("{:?}", check.severity).to_lowercase(),
            check.proves.replace('|', "\\|"),
            check.source.replace('|', "\\|")
        )
    });
    format!(
        "| check | severity | a pass shows that | source |\n| --- | --- | --- | --- |\n{}",
        rows.collect::<String>()
    )
}

/// One report: the verdict, the classes, the numbers, and each check that did not pass with its exchange.
pub fn report(report: &Report) -> String {
    let head = &report.head;
    let mut out = format!(
        "# {}\n\n**{}**\n\n{}, bucket {}, region {}; suite {}, {}, seed {}, {} requests in {:.1} s\n\n",
        cell(head.title()),
        cell(&report.line),
        cell(&head.endpoint),
        cell(&head.bucket),
        cell(&head.region),
        cell(&head.suite),
        cell(&head.started),
        head.seed,
        report.requests,
        head.duration_ms as f64 / 1000.0
    );
    out += "| condition | class |\n| --- | --- |\n";
    for (condition, class) in &report.conditions {
        out += &format!("| {condition} | {class} |\n");
    }
    if !report.measured.is_empty() {
        out += "\n| measured | value |\n| --- | --- |\n";
        for (name, value) in &report.measured {
            out += &format!("| {} | {value} |\n", cell(name));
        }
    }
    out += "\n| severity | checks | passed | failed | skipped | inconclusive | broken |\n\
            | --- | --- | --- | --- | --- | --- | --- |\n";
    for (severity, count) in &report.counts {
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            format!("{severity:?}").to_lowercase(),
            count.of,
            count.pass,
            count.fail,
            count.skip,
            count.inconclusive,
            count.broken
        );
    }
    for entry in report.checks.iter().filter(|entry| entry.outcome != Outcome::Pass) {
        out += &details(entry, &head.region);
    }
    out
}

fn details(entry: &Entry, region: &str) -> String {
    let mut out = format!(
        "\n## {}: {}\n\n{}; a pass shows that {} (source: {}).\n\n",
        word(entry),
        cell(&entry.id),
        format!("{:?}", entry.severity).to_lowercase(),
        cell(&entry.proves),
        cell(&entry.source)
    );
    match &entry.outcome {
        Outcome::Pass => {}
        Outcome::Fail(failure) => {
            out += &format!("- expected: {}\n- got: {}\n", cell(&failure.expected), cell(&failure.got));
        }
        Outcome::Skip { reason } | Outcome::Broken { reason } => out += &format!("{}\n", cell(reason)),
        Outcome::Inconclusive(doubt) => out += &format!("{}\n", cell(&doubt.reason)),
    }
    if let Some(script) = curl::script(entry, region) {
        out += &fenced("sh", &script);
    }
    out
}

/// Several reports: the classes of each, the checks of each, and what changed between two of one vendor.
pub fn matrix(matrix: &Matrix<'_>) -> String {
    let titles: String = matrix.columns.iter().map(|column| format!(" {} |", cell(&column.title))).collect();
    let rule = " --- |".repeat(matrix.columns.len());
    let mut out = format!("| |{titles}\n| --- |{rule}\n");
    let mut row = |name: &str, value: &dyn Fn(&Report) -> String| {
        let cells: String =
            matrix.columns.iter().map(|column| format!(" {} |", value(column.report))).collect();
        out += &format!("| {} |{cells}\n", cell(name));
    };
    row("verdict", &|report| report.verdict.word().to_owned());
    row("date", &|report| cell(report.head.date()));
    row("the sink's probe", &|report| report.sink_probe().to_owned());
    row("the sink's live matrix", &Report::sink_matrix);
    for condition in &matrix.conditions {
        row(&condition.to_string(), &|report| match report.conditions.get(condition) {
            Some(class @ (Class::Races | Class::Ignores)) => format!("**{class}**"),
            Some(class) => class.to_string(),
            None => "-".to_owned(),
        });
    }
    for name in &matrix.measured {
        row(name, &|report| report.measured.get(*name).map_or("-".to_owned(), u64::to_string));
    }
    for (severity, name) in [
        (assay_checks::Severity::Required, "required checks passed"),
        (assay_checks::Severity::Expected, "expected checks passed"),
    ] {
        row(name, &|report| {
            let count = report.counts.get(&severity).copied().unwrap_or_default();
            format!("{} of {}", count.pass, count.of)
        });
    }
    out += &format!("\n| check |{titles}\n| --- |{rule}\n");
    for row in &matrix.rows {
        let cells: String = row
            .cells
            .iter()
            .map(|entry| format!(" {} |", entry.map_or("-", |entry| marked(entry))))
            .collect();
        out += &format!("| `{}` |{cells}\n", cell(row.id));
    }
    for change in &matrix.changes {
        let (before, after) = (&change.before.head, &change.after.head);
        out += &format!(
            "\n{}, what changed from {} to {}:\n\n",
            cell(after.title()),
            cell(&before.started),
            cell(&after.started)
        );
        for (what, old, new) in &change.differences {
            out += &format!("- {}: {} → {}\n", cell(what), cell(old), cell(new));
        }
        if change.differences.is_empty() {
            out += "- nothing\n";
        }
    }
    out
}

/// What fails stands out.
fn marked(entry: &Entry) -> &'static str {
    match word(entry) {
        "fail" => "**fail**",
        "broken" => "**broken**",
        other => other,
    }
}

/// Text in a table cell or a sentence, whatever a provider put into it.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '|' | '`' | '*' | '[' | ']' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A block of code with a fence that its text cannot close.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '~').map(str::len).max().unwrap_or_default();
    let fence = "~".repeat(longest.max(2) + 1);
    let text: String =
        text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    format!("\n{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Head;
    use crate::report::tests::{example, head, hostile};

    #[test]
    fn shows_a_report() {
        insta::assert_snapshot!("markdown", report(&example()));
    }

    #[test]
    fn shows_a_matrix() {
        let moto = Report { head: Head { name: Some("moto 5".into()), ..head() }, ..example() };
        let later = Report { head: Head { started: "2026-12-06T20:00:00Z".into(), ..head() }, ..example() };
        insta::assert_snapshot!("markdown-matrix", matrix(&Matrix::of(&[example(), moto, later])));
    }

    #[test]
    fn hostile_answers_stay_text() {
        let text = report(&hostile()) + &matrix(&Matrix::of(&[hostile()]));
        let outside: String = text
            .split("\n~~~")
            .step_by(2)
            .map(|part| part.split_once('\n').map_or("", |(_, rest)| rest))
            .collect();
        assert!(outside.contains("&lt;script>") && !outside.contains("<script"), "{outside}");
    }

    #[test]
    fn a_fence_is_longer_than_any_in_its_text() {
        assert_eq!(fenced("sh", "a\n~~~~\nb"), "\n~~~~~sh\na\n~~~~\nb\n~~~~~\n");
    }
}
