//! A vendor as it was measured: what a report of `assay-certify` says of it. Read by its versioned JSON form alone.

use serde::Deserialize;

use super::{Deviation, DeviationError};

/// The version of the form that is read: `schema` of the report.
const SCHEMA: u64 = 2;

/// What of a report is needed; everything else in it is for others.
#[derive(Deserialize)]
struct Report {
    schema: u64,
    #[serde(default)]
    deviations: Vec<String>,
}

impl Deviation {
    /// The deviations with which this server fails the checks that a vendor failed: from the JSON text of the report of
    /// `assay-certify` about that vendor.
    ///
    /// # Errors
    /// A text that is no report of schema 2, or a deviation in it that this server does not have.
    pub fn measured(report: &str) -> Result<Vec<Self>, DeviationError> {
        let failed = |why: String| DeviationError { text: "the report".to_owned(), why };
        let report: Report =
            serde_json::from_str(report).map_err(|error| failed(format!("it is not read: {error}")))?;
        if report.schema != SCHEMA {
            return Err(failed(format!(
                "it has schema {}, and {SCHEMA} is read: certify again",
                report.schema
            )));
        }
        report.deviations.iter().map(|name| name.parse()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_deviations_of_a_report() {
        let read = Deviation::measured(r#"{"schema": 2, "line": "x", "deviations": ["failed-write-304"]}"#);
        let names: Vec<_> = read.expect("a report").iter().map(Deviation::to_string).collect();
        assert_eq!(names, ["failed-write-304"]);
        assert_eq!(Deviation::measured(r#"{"schema": 2}"#).map(|all| all.len()), Ok(0));
        for (text, why) in [
            (r#"{"schema": 1}"#, "schema 1"),
            ("{}", "schema"),
            ("no", "not read"),
            (r#"{"schema": 2, "deviations": ["bends-time"]}"#, "no deviation has this name"),
        ] {
            let error = Deviation::measured(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
