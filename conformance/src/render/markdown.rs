//! Tables for README files.

use assay_checks::Check;

/// The checks as a Markdown table: id, severity, what it proves, source.
pub fn checks(checks: &[&Check]) -> String {
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
