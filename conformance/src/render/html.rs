//! One self-contained page for one report or several: the matrix, filters, and each failure with its exchange.
//!
//! Nothing is fetched: style and script stand in the page, and a policy forbids anything else. The page is whole
//! without its script, which only filters. Every text that a provider could have made is escaped.

use crate::matrix::{Change, Matrix, Row, word};
use crate::render::curl;
use crate::report::{Entry, Outcome, Report, Verdict};
use assay_checks::{Class, Exchange, Severity};
use std::collections::BTreeSet;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn page(reports: &[Report]) -> String {
    let matrix = Matrix::of(reports);
    let title = match &matrix.columns[..] {
        [one] => format!("S3 conformance of {}", one.report.head.title()),
        several => format!("S3 conformance of {} runs", several.len()),
    };
    let title = escaped(&title);
    let mut body = format!("<h1>{title}</h1>\n");
    let runs: String = matrix.columns.iter().map(|column| about(&column.title, column.report)).collect();
    // Of a few the runs say it all; of many the table is what fits a screen.
    body += &if matrix.columns.len() <= 2 {
        runs + &overview("The provider", &matrix)
    } else {
        overview("The providers", &matrix) + "<h2>The runs</h2>\n" + &runs
    };
    body += &matrix.changes.iter().map(changes).collect::<String>();
    body += &checks(&matrix);
    body += &failures(&matrix);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n"
    )
}

/// The verdict and the circumstances of one report.
fn about(title: &str, report: &Report) -> String {
    let head = &report.head;
    let facts = format!(
        "{}, bucket {}, region {}, {} addressing; suite {}, {}, seed {}, {} writers × {} rounds, {} requests in {:.1} s",
        head.endpoint,
        head.bucket,
        head.region,
        head.addressing,
        head.suite,
        head.started,
        head.seed,
        head.writers,
        head.rounds,
        report.requests,
        head.duration_ms as f64 / 1000.0
    );
    format!(
        "<div class=\"line {}\"><b>{}</b>: {}<br><span class=\"dim\">{}</span></div>\n",
        report.verdict.word().to_lowercase(),
        escaped(title),
        escaped(&report.line),
        escaped(&facts)
    )
}

/// Conditions, limits and numbers, vendor by vendor.
fn overview(heading: &str, matrix: &Matrix<'_>) -> String {
    let mut rows = String::new();
    let mut row = |name: &str, value: &dyn Fn(&Report) -> (String, &'static str)| {
        rows += &format!("<tr><th scope=\"row\">{}</th>", escaped(name));
        for column in &matrix.columns {
            let (text, class) = value(column.report);
            rows += &format!("<td class=\"{class}\">{}</td>", escaped(&text));
        }
        rows += "</tr>\n";
    };
    row("verdict", &|report| {
        let class = match report.verdict {
            Verdict::Certified => "good",
            Verdict::Refused => "bad",
            Verdict::Inconclusive | Verdict::Partial => "warn",
        };
        (report.verdict.word().to_owned(), class)
    });
    row("the sink's probe", &|report| {
        let word = report.sink_probe();
        (
            word.to_owned(),
            match word {
                "pass" => "good",
                "fail" => "bad",
                _ => "",
            },
        )
    });
    row("the sink's live matrix", &|report| (report.sink_matrix(), ""));
    for (severity, name) in [
        (Severity::Required, "required checks passed"),
        (Severity::Expected, "expected checks passed"),
        (Severity::Informative, "informative checks as on AWS"),
    ] {
        row(name, &|report| {
            let count = report.counts.get(&severity).copied().unwrap_or_default();
            let class = if count.fail > 0 && severity == Severity::Required { "bad" } else { "" };
            (format!("{} of {}", count.pass, count.of), class)
        });
    }
    for condition in &matrix.conditions {
        row(&condition.to_string(), &|report| match report.conditions.get(condition) {
            None => ("-".to_owned(), ""),
            Some(class) => (class.to_string(), class_colour(*class)),
        });
    }
    for name in &matrix.measured {
        row(name, &|report| (report.measured.get(*name).map_or("-".to_owned(), u64::to_string), ""));
    }
    table(heading, matrix, &rows, "")
}

fn class_colour(class: Class) -> &'static str {
    match class {
        Class::Enforces => "good",
        Class::Refuses => "warn",
        Class::Races | Class::Ignores => "bad",
    }
}

fn table(heading: &str, matrix: &Matrix<'_>, rows: &str, class: &str) -> String {
    let titles: String = matrix
        .columns
        .iter()
        .map(|column| format!("<th scope=\"col\">{}</th>", escaped(&column.title)))
        .collect();
    let many = if matrix.columns.len() > 6 { " many" } else { "" };
    format!(
        "<h2>{heading}</h2>\n<div class=\"wide{class}{many}\"><table>\n<thead><tr><th></th>{titles}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn changes(change: &Change<'_>) -> String {
    let rows: String = change
        .differences
        .iter()
        .map(|(what, old, new)| format!("<li>{}: {} → {}</li>\n", escaped(what), escaped(old), escaped(new)))
        .collect();
    format!(
        "<h2>{}: from {} to {}</h2>\n<ul>\n{}</ul>\n",
        escaped(change.after.head.title()),
        escaped(&change.before.head.started),
        escaped(&change.after.head.started),
        if rows.is_empty() { "<li>nothing changed</li>\n" } else { &rows }
    )
}

/// The filters and the table of checks.
fn checks(matrix: &Matrix<'_>) -> String {
    let areas: BTreeSet<&str> = matrix.rows.iter().filter_map(|row| row.id.split('.').next()).collect();
    let option = |name: &str| format!("<option>{}</option>", escaped(name));
    let select = |id: &str, options: String| {
        format!("<label>{id} <select id=\"{id}\"><option value=\"\">all</option>{options}</select></label>\n")
    };
    let filters = select("area", areas.into_iter().map(option).collect())
        + &select("severity", ["required", "expected", "informative"].map(option).concat())
        + &select(
            "outcome",
            ["fail", "differs", "inconclusive", "skip", "broken", "pass"].map(option).concat(),
        )
        + "<label>text <input id=\"text\" type=\"search\" placeholder=\"id or sentence\"></label>\n";
    let rows: String = matrix.rows.iter().enumerate().map(|(place, row)| check(matrix, place, row)).collect();
    let (heading, rest) = ("Checks", table("", matrix, &rows, " tall"));
    format!(
        "<h2>{heading}</h2>\n<div class=\"filters\">\n{filters}<span id=\"shown\" class=\"dim\"></span></div>\n{}",
        rest.split_once("</h2>\n").map_or("", |(_, table)| table)
    )
}

/// What the filters look at.
fn data(row: &Row<'_>) -> String {
    let outcomes: BTreeSet<&str> = row.cells.iter().flatten().map(|entry| word(entry)).collect();
    let outcomes: Vec<&str> = outcomes.into_iter().collect();
    format!(
        "data-id=\"{}\" data-severity=\"{}\" data-outcomes=\"{}\" data-text=\"{}\"",
        escaped(row.id),
        severity(row.severity),
        outcomes.join(" "),
        escaped(row.proves)
    )
}

fn check(matrix: &Matrix<'_>, place: usize, row: &Row<'_>) -> String {
    let mut out = format!(
        "<tr {}><th scope=\"row\"><code>{}</code><small>{}: {}</small></th>",
        data(row),
        escaped(row.id).replace('.', ".<wbr>"),
        severity(row.severity),
        escaped(row.proves)
    );
    for (column, cell) in row.cells.iter().enumerate() {
        out += &match cell {
            None => "<td class=\"dim\">-</td>".to_owned(),
            Some(entry) if entry.outcome == Outcome::Pass => "<td class=\"good\">pass</td>".to_owned(),
            Some(entry) => {
                format!(
                    "<td class=\"{}\"><a href=\"#{}\">{}</a></td>",
                    colour(entry),
                    anchor(place, column),
                    word(entry)
                )
            }
        };
    }
    debug_assert_eq!(row.cells.len(), matrix.columns.len());
    out + "</tr>\n"
}

fn colour(entry: &Entry) -> &'static str {
    match word(entry) {
        "fail" | "broken" => "bad",
        "skip" => "dim",
        _ => "warn",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Required => "required",
        Severity::Expected => "expected",
        Severity::Informative => "informative",
    }
}

fn anchor(row: usize, column: usize) -> String {
    format!("c{row}-{column}")
}

/// Everything that is no pass, folded, with its exchange.
fn failures(matrix: &Matrix<'_>) -> String {
    let mut out = "<h2>What did not pass</h2>\n".to_owned();
    let mut none = true;
    for (column, Column { title, region }) in matrix
        .columns
        .iter()
        .map(|column| Column { title: &column.title, region: &column.report.head.region })
        .enumerate()
    {
        for (place, row) in matrix.rows.iter().enumerate() {
            let Some(entry) = row.cells[column].filter(|entry| entry.outcome != Outcome::Pass) else {
                continue;
            };
            none = false;
            let vendor =
                if matrix.columns.len() > 1 { format!(", {}", escaped(title)) } else { String::new() };
            out += &format!(
                "<details id=\"{}\" {}><summary><span class=\"{}\">{}</span> <code>{}</code> \
                 <span class=\"dim\">{}{vendor}</span></summary><div>\n{}</div></details>\n",
                anchor(place, column),
                data(row),
                colour(entry),
                word(entry),
                escaped(row.id),
                severity(row.severity),
                story(entry, region)
            );
        }
    }
    if none { out + "<p>Everything passed.</p>\n" } else { out }
}

/// What the list of failures needs of a column.
struct Column<'a> {
    title: &'a str,
    region: &'a str,
}

fn story(entry: &Entry, region: &str) -> String {
    let mut facts = vec![("a pass shows", entry.proves.clone()), ("source", entry.source.clone())];
    match &entry.outcome {
        Outcome::Pass => {}
        Outcome::Fail(failure) => {
            facts.push(("expected", failure.expected.clone()));
            facts.push(("got", failure.got.clone()));
        }
        Outcome::Skip { reason } | Outcome::Broken { reason } => facts.push(("reason", reason.clone())),
        Outcome::Inconclusive(doubt) => facts.push(("reason", doubt.reason.clone())),
    }
    facts.extend(entry.note.clone().map(|note| ("note", note)));
    let facts: String =
        facts.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(text))).collect();
    let mut out = format!("<dl>\n{facts}</dl>\n");
    if let Some(script) = curl::script(entry, region) {
        let heading = if entry.steps.len() > 1 { "The check's requests" } else { "The deciding request" };
        out += &format!("<p>{heading}, each with its status</p>\n<pre>{}</pre>\n", escaped(&script));
    }
    if let Some(exchange) = entry.exchange() {
        out += &format!(
            "<p>The deciding answer</p>\n<pre>{}\n\n{}</pre>\n",
            escaped(&exchange.line()),
            escaped(&answer(exchange))
        );
    }
    out
}

fn answer(exchange: &Exchange) -> String {
    match &exchange.answer {
        Err(why) => format!("no answer: {why}"),
        Ok(reply) => {
            let headers: String =
                reply.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            format!("{}\n{headers}\n{}", reply.status, reply.body.text)
        }
    }
}

/// Text for an element or an attribute in double quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Head;
    use crate::report::tests::{HOSTILE, example, head, hostile};

    /// The page without its style and script, which have no report in them.
    fn body(page: &str) -> String {
        let body = page.split_once("<body>").and_then(|(_, rest)| rest.split_once("<script>"));
        body.expect("a body").0.to_owned()
    }

    #[test]
    fn shows_a_report() {
        insta::assert_snapshot!("html", body(&page(&[example()])));
    }

    #[test]
    fn shows_several() {
        let moto = Report { head: Head { name: Some("moto 5".into()), ..head() }, ..example() };
        let later = Report { head: Head { started: "2026-12-06T20:00:00Z".into(), ..head() }, ..example() };
        insta::assert_snapshot!("html-matrix", body(&page(&[example(), moto, later])));
    }

    #[test]
    fn hostile_answers_stay_text() {
        let page = page(&[hostile(), example()]);
        let body = body(&page);
        assert!(body.contains("&lt;script&gt;"), "{body}");
        assert!(!page.contains(HOSTILE) && !body.contains("<script") && !body.contains("<img"), "{body}");
        assert!(!body.contains(" onerror=\"") && !body.contains('\0'), "{body}");
        assert_eq!(page.matches("<script").count(), 1, "the page's own");
    }

    #[test]
    fn nothing_is_fetched() {
        let page = page(&[example()]);
        assert!(!page.contains(" src=") && !page.contains("@import") && !page.contains("url("), "{page}");
        assert!(!page.contains("href=\"http"), "{page}");
    }
}
