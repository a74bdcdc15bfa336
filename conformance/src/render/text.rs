//! The report for people: a table that fits 80 columns, then what went wrong, then the verdict.

use crate::render::curl;
use crate::report::{Entry, Outcome, Report, Verdict};
use crate::selection::Declared;
use assay_checks::{Class, Exchange, Severity};

/// Columns of a terminal that everything but URLs and values fits.
const WIDTH: usize = 80;

/// Whether to colour: only on a terminal, and never against `NO_COLOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// ANSI colours.
    On,
    /// Plain text.
    Off,
}

impl Colour {
    /// `terminal`: whether the output is one; `no_color`: the variable's value, which counts unless empty.
    pub fn choose(terminal: bool, no_color: Option<&str>) -> Colour {
        let refused = no_color.is_some_and(|value| !value.is_empty());
        if terminal && !refused { Colour::On } else { Colour::Off }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Colour::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Colour::Off => text.to_owned(),
        }
    }
}

const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";
const DIM: &str = "2";
const BOLD: &str = "1";

/// The whole report.
pub fn report(report: &Report, colour: Colour) -> String {
    let head = &report.head;
    let mut out = format!(
        "assay-certify {} against {}{}{}\nbucket {}, region {}, {} addressing, {}\n{} writers x {} rounds, seed {}\n\n",
        head.suite,
        head.name.as_ref().map(|name| format!("{name}, ")).unwrap_or_default(),
        head.endpoint,
        if head.embedded { " (embedded server)" } else { "" },
        head.bucket,
        head.region,
        head.addressing,
        head.started,
        head.writers,
        head.rounds,
        head.seed
    );
    out = printable(&out);
    for entry in &report.checks {
        out += &row(entry, colour);
        if let Some(note) = &entry.note {
            out += &colour.paint(DIM, &wrapped(note, "             "));
        }
    }
    for entry in report.checks.iter().filter(|entry| !matches!(entry.outcome, Outcome::Pass)) {
        out += &details(entry, colour);
    }
    if report.checks.iter().any(|entry| entry.exchange().is_some()) {
        out += &format!("\nthe requests again, with\n{}\n", curl::function(&printable(&head.region)));
    }
    out += &conditions(report, colour);
    out += &measured(report);
    out += &summary(report);
    let code = match report.verdict {
        Verdict::Certified => GREEN,
        Verdict::Partial => BOLD,
        Verdict::Refused | Verdict::Inconclusive => RED,
    };
    out + &colour.paint(code, &wrapped(&report.line, ""))
}

/// One check's line: outcome, id, severity, time.
pub fn row(entry: &Entry, colour: Colour) -> String {
    let (word, code) = word(entry);
    let time = format!("{} ms", entry.duration_ms);
    format!(
        "{} {:<40} {:<11} {time:>10}\n",
        colour.paint(code, &format!("{word:<12}")),
        printable(&entry.id),
        severity(entry.severity)
    )
}

/// An informative check that fails is a difference, not a fault.
fn word(entry: &Entry) -> (&'static str, &'static str) {
    match (&entry.outcome, entry.severity) {
        (Outcome::Pass, _) => ("pass", GREEN),
        (Outcome::Fail(_), Severity::Informative) => ("differs", YELLOW),
        (Outcome::Fail(_), _) => ("FAIL", RED),
        (Outcome::Broken { .. }, _) => ("BROKEN", RED),
        (outcome, _) => (outcome.word(), YELLOW),
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Required => "required",
        Severity::Expected => "expected",
        Severity::Informative => "informative",
    }
}

fn details(entry: &Entry, colour: Colour) -> String {
    let (word, code) = word(entry);
    let mut out =
        format!("\n{} {} ({})\n", colour.paint(code, word), printable(&entry.id), severity(entry.severity));
    out += &wrapped(&entry.proves, "  ");
    out += &wrapped(&format!("source: {}", entry.source), "  ");
    let exchange = match &entry.outcome {
        Outcome::Pass => &None,
        Outcome::Fail(failure) => {
            let (expected, got) = (printable(&failure.expected), printable(&failure.got));
            out += &format!("  expected {expected}\n  got      {got}\n");
            &failure.exchange
        }
        Outcome::Skip { reason } | Outcome::Broken { reason } => {
            out += &wrapped(reason, "  ");
            &None
        }
        Outcome::Inconclusive(doubt) => {
            out += &wrapped(&doubt.reason, "  ");
            &doubt.exchange
        }
    };
    if let Some(exchange) = exchange {
        out += &evidence(exchange, colour);
        out += &colour.paint(DIM, &(printable(&curl::told(exchange)) + "\n"));
    }
    out
}

fn evidence(exchange: &Exchange, colour: Colour) -> String {
    let mut out = format!("  {}\n", printable(&exchange.line()));
    if let Ok(reply) = &exchange.answer
        && !reply.body.text.is_empty()
    {
        let start: String = reply.body.text.chars().filter(|c| !c.is_control()).take(240).collect();
        out += &colour.paint(DIM, &wrapped(&start, "    "));
    }
    out
}

/// Text without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn measured(report: &Report) -> String {
    if report.measured.is_empty() {
        return String::new();
    }
    let rows = report.measured.iter().map(|(name, value)| format!("  {:<40} {value:>10}\n", printable(name)));
    format!("\nmeasured\n{}", rows.collect::<String>())
}

fn conditions(report: &Report, colour: Colour) -> String {
    if report.conditions.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{:<28} the provider\n", "condition");
    for (condition, class) in &report.conditions {
        let code = match class {
            Class::Enforces => GREEN,
            Class::Refuses => YELLOW,
            Class::Races | Class::Ignores => RED,
        };
        out += &format!("{:<28} {}\n", condition.to_string(), colour.paint(code, &class.to_string()));
    }
    out
}

fn summary(report: &Report) -> String {
    let mut out = format!(
        "\n{:<12} {:>6} {:>7} {:>7} {:>8} {:>13} {:>7}\n",
        "severity", "checks", "passed", "failed", "skipped", "inconclusive", "broken"
    );
    for (name, count) in &report.counts {
        out += &format!(
            "{:<12} {:>6} {:>7} {:>7} {:>8} {:>13} {:>7}\n",
            severity(*name),
            count.of,
            count.pass,
            count.fail,
            count.skip,
            count.inconclusive,
            count.broken
        );
    }
    if !report.has_sink() {
        out += "the sink's probe and live matrix were not run\n";
    }
    out + &format!("{} requests in {:.1} s\n\n", report.requests, report.head.duration_ms as f64 / 1000.0)
}

/// The list of checks: id and severity, then what a pass shows.
pub fn checks(checks: &[Declared], colour: Colour) -> String {
    let mut out = String::new();
    for check in checks {
        out += &format!("{:<40} {}\n", colour.paint(BOLD, &check.id), severity(check.severity));
        out += &wrapped(check.proves, "    ");
    }
    out + &format!("{} checks\n", checks.len())
}

/// Words in lines of at most [`WIDTH`] columns, each begun with `indent`. A longer word has a line of its own.
fn wrapped(text: &str, indent: &str) -> String {
    let text = printable(text);
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH {
            out += &format!("{indent}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &format!("{indent}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::draw_up;
    use crate::report::tests::{entry, example, failure, head, hostile};
    use crate::selection::choose;

    #[test]
    fn shows_a_report() {
        insta::assert_snapshot!(report(&example(), Colour::Off), @r###"
        assay-certify 0.1.0 against http://127.0.0.1:9000
        bucket certify, region us-east-1, path addressing, 2026-11-29T20:00:00Z
        16 writers x 20 rounds, seed 7

        pass         race.put.create                          required         12 ms
                     16 writers, 20 rounds; losers 290 x 412, 10 x 409
        FAIL         put.create.present                       required         12 ms
        differs      put.create.etag-value                    informative      12 ms
        inconclusive consistency.read-on-another-connection   required         12 ms
        skip         copy.create.absent                       expected         12 ms

        FAIL put.create.present (required)
          a create on a present key is 412 and leaves its bytes alone, whatever else
          happens
          source: AWS recording 2026-02
          expected 412
          got      200
          PUT http://127.0.0.1:9000/certify/k [if-none-match: *] -> 200
        s3 -X PUT \
          -H 'if-none-match: *' \
          -H 'content-type: application/octet-stream' \
          --data-raw 'new' \
          'http://127.0.0.1:9000/certify/k' # 200

        differs put.create.etag-value (informative)
          a create on a present key is 412 and leaves its bytes alone, whatever else
          happens
          source: AWS recording 2026-02
          expected 412
          got      200
          PUT http://127.0.0.1:9000/certify/k [if-none-match: *] -> 200
        s3 -X PUT \
          -H 'if-none-match: *' \
          -H 'content-type: application/octet-stream' \
          --data-raw 'new' \
          'http://127.0.0.1:9000/certify/k' # 200

        inconclusive consistency.read-on-another-connection (required)
          a create on a present key is 412 and leaves its bytes alone, whatever else
          happens
          source: AWS recording 2026-02
          no answer within 30s

        skip copy.create.absent (expected)
          a create on a present key is 412 and leaves its bytes alone, whatever else
          happens
          source: AWS recording 2026-02
          copy is not claimed

        the requests again, with
        s3() { curl -sS -i --path-as-is --aws-sigv4 'aws:amz:us-east-1:s3' \
          --user "$DELTAFORGE_IT_S3_ACCESS_KEY:$DELTAFORGE_IT_S3_SECRET_KEY" "$@"; }

        condition                    the provider
        PUT If-None-Match            races

        severity     checks  passed  failed  skipped  inconclusive  broken
        required          3       1       1        0             1       0
        expected          1       0       0        1             0       0
        informative       1       0       1        0             0       0
        the sink's probe and live matrix were not run
        15 requests in 0.1 s

        durable_v2: REFUSED (put.create.present failed); passed 1 of 3 required and 0 of
        1 expected checks
        "###);
    }

    #[test]
    fn fits_eighty_columns_but_for_urls() {
        let everything: Vec<Entry> = assay_checks::all()
            .map(|check| Entry {
                proves: check.proves.into(),
                source: check.source.into(),
                duration_ms: 600_000,
                ..entry(check.id, check.severity, failure())
            })
            .collect();
        let text = report(&draw_up(head(), everything), Colour::Off)
            + &checks(&choose(&[], &[]).expect("all of them").declared(), Colour::Off);
        let long: Vec<&str> =
            text.lines().filter(|line| line.chars().count() > WIDTH && !line.contains("://")).collect();
        assert_eq!(long, Vec::<&str>::new());
    }

    #[test]
    fn hostile_answers_do_not_reach_the_terminal() {
        let mut hostile = hostile();
        if let Outcome::Fail(failure) = &mut hostile.checks[0].outcome {
            failure.got = "\u{1b}]0;owned\u{7}".into();
        }
        let text = report(&hostile, Colour::Off);
        assert!(text.contains("]0;owned") && !text.contains(['\u{1b}', '\u{7}', '\0']), "{text:?}");
    }

    #[test]
    fn colours_only_a_terminal_that_wants_them() {
        assert_eq!(Colour::choose(true, None), Colour::On);
        assert_eq!(Colour::choose(true, Some("")), Colour::On);
        assert_eq!(Colour::choose(true, Some("1")), Colour::Off);
        assert_eq!(Colour::choose(false, None), Colour::Off);
        let coloured = report(&example(), Colour::On);
        assert!(coloured.contains("\x1b[31mFAIL"), "{coloured}");
        let plain = coloured
            .split('\x1b')
            .map(|part| part.split_once('m').filter(|_| part.starts_with('[')).map_or(part, |(_, rest)| rest))
            .collect::<String>();
        assert_eq!(plain, report(&example(), Colour::Off));
    }
}
