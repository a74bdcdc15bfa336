//! The report for programs. Its form is versioned by the field `schema`.

use crate::report::Report;

/// One JSON document, indented, ending in a newline.
///
/// # Errors
/// None that a report can cause; serde's signature has one.
pub fn report(report: &Report) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{entry, failure, head};
    use crate::report::{Report, draw_up};
    use assay_checks::Severity;

    #[test]
    fn a_report_round_trips() {
        let written = draw_up(head(), vec![entry("put.create.present", Severity::Required, failure())]);
        let json = super::report(&written).expect("a report is plain data");
        let read: Report = serde_json::from_str(&json).expect("what was written can be read");
        assert_eq!(read, written);
        assert!(json.contains("\"schema\": 2") && json.contains("\"outcome\": \"fail\""), "{json}");
    }
}
