//! The report as JUnit XML, for CI systems that show tests.

use crate::render::curl;
use crate::report::{Entry, Outcome, Report};
use assay_checks::Severity;

/// One test suite with one case per check. An informative check that differs counts as skipped, since it never fails
/// a provider; an undecided one is an error, as JUnit has no better word.
pub fn report(report: &Report) -> String {
    let is = |wanted: &str| report.checks.iter().filter(|entry| kind(entry) == wanted).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\" timestamp=\"{}\">\n\
         <properties>\n{}</properties>\n",
        escaped(report.head.title()),
        report.checks.len(),
        is("failure"),
        is("error"),
        is("skipped"),
        seconds(report.head.duration_ms),
        escaped(report.head.started.trim_end_matches('Z')),
        properties(report)
    );
    for entry in &report.checks {
        out += &case(entry, &report.head.region);
    }
    out + &format!("<system-out>{}</system-out>\n</testsuite>\n", escaped(&report.line))
}

fn properties(report: &Report) -> String {
    let head = &report.head;
    let own =
        [("suite", head.suite.clone()), ("endpoint", head.endpoint.clone()), ("seed", head.seed.to_string())];
    let classes =
        report.conditions.iter().map(|(condition, class)| (condition.to_string(), class.to_string()));
    let measured = report.measured.iter().map(|(name, value)| (name.clone(), value.to_string()));
    let all = own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(classes).chain(measured);
    all.map(|(name, value)| {
        format!("<property name=\"{}\" value=\"{}\"/>\n", escaped(&name), escaped(&value))
    })
    .collect()
}

/// The element of a case that is no plain pass.
fn kind(entry: &Entry) -> &'static str {
    match (&entry.outcome, entry.severity) {
        (Outcome::Pass, _) => "",
        (Outcome::Fail(_), Severity::Informative) | (Outcome::Skip { .. }, _) => "skipped",
        (Outcome::Fail(_), _) => "failure",
        (Outcome::Inconclusive(_) | Outcome::Broken { .. }, _) => "error",
    }
}

fn case(entry: &Entry, region: &str) -> String {
    let (area, name) = entry.id.split_once('.').unwrap_or(("", &entry.id));
    let start = format!(
        "<testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
        escaped(area),
        escaped(name),
        seconds(entry.duration_ms)
    );
    let message = match &entry.outcome {
        Outcome::Pass => return start + "/>\n",
        Outcome::Fail(failure) => format!("expected {}, got {}", failure.expected, failure.got),
        Outcome::Skip { reason } | Outcome::Broken { reason } => reason.clone(),
        Outcome::Inconclusive(doubt) => doubt.reason.clone(),
    };
    let command = curl::script(entry, region).unwrap_or_default();
    format!(
        "{start}>\n<{kind} message=\"{}\" type=\"{}\">{}</{kind}>\n</testcase>\n",
        escaped(&message),
        entry.outcome.word(),
        escaped(&format!("{}\nsource: {}\n{command}", entry.proves, entry.source)),
        kind = kind(entry),
    )
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// Text for an element or an attribute. What XML 1.0 cannot carry at all becomes the replacement character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out += "&#10;",
            '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{HOSTILE, example, hostile};

    #[test]
    fn shows_a_report() {
        insta::assert_snapshot!("junit", super::report(&example()));
    }

    #[test]
    fn hostile_answers_stay_text() {
        let xml = super::report(&hostile());
        assert!(!xml.contains(HOSTILE) && !xml.contains("<script") && !xml.contains('\0'), "{xml}");
        assert!(xml.contains("&lt;script&gt;"), "{xml}");
        // Every `<` begins one of this renderer's own elements.
        for tag in xml.split('<').skip(1) {
            let name = tag.trim_start_matches('/').split([' ', '>', '/']).next().unwrap_or_default();
            let own = [
                "?xml",
                "testsuite",
                "properties",
                "property",
                "testcase",
                "failure",
                "error",
                "skipped",
                "system-out",
            ];
            assert!(own.contains(&name), "<{tag}");
        }
    }
}
