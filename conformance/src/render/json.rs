//! The report for programs. Its form is versioned by the field `schema` and described in conformance/schema.md.

use crate::report::{Report, SCHEMA};

/// One JSON document, ending in a newline: the head indented, and each check on a line of its own, so that reports are
/// small and differ by lines.
pub fn report(report: &Report) -> String {
    const PLAIN: &str = "a report has only text, numbers and maps with text keys";
    let checks: Vec<String> = report
        .checks
        .iter()
        .map(|check| format!("    {}", serde_json::to_string(check).expect(PLAIN)))
        .collect();
    let head = serde_json::to_string_pretty(&Report { checks: Vec::new(), ..report.clone() }).expect(PLAIN);
    let head = head.strip_suffix("[]\n}").expect("the checks are the last field");
    format!("{head}[\n{}\n  ]\n}}\n", checks.join(",\n"))
}

/// Reads one again.
///
/// # Errors
/// What is wrong with the text; a report of another schema is refused by its number.
pub fn read(text: &str) -> Result<Report, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|why| format!("no JSON: {why}"))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(format!("schema {schema}, and this version reads {SCHEMA}: certify again"));
        }
        None => return Err("no report of assay-certify: it has no schema".to_owned()),
    }
    serde_json::from_value(value).map_err(|why| format!("no report of schema {SCHEMA}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{example, hostile};

    #[test]
    fn a_report_round_trips() {
        for written in [example(), hostile()] {
            let json = report(&written);
            assert_eq!(read(&json).as_ref(), Ok(&written));
            assert!(json.contains("\"schema\": 2") && json.contains("\"outcome\":\"fail\""), "{json}");
        }
    }

    #[test]
    fn other_documents_are_refused() {
        let old = report(&example()).replace("\"schema\": 2", "\"schema\": 1");
        for (text, says) in
            [(&*old, "schema 1, and"), ("{}", "no schema"), ("[", "no JSON"), ("{\"schema\":2}", "missing")]
        {
            assert!(read(text).is_err_and(|why| why.contains(says)), "{says}");
        }
    }
}
