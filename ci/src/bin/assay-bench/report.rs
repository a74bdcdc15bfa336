//! Figures of many runs to one table, and to JSON. Pure.

use std::fmt::Write;

/// One figure: its values per server, one for each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// In which unit.
    pub unit: &'static str,
    /// Server name and value, in the order in which they came.
    pub values: Vec<(String, f64)>,
}

/// Adds a value to the row of that name, which is made if it is new; no value adds nothing.
pub fn add(rows: &mut Vec<Row>, what: &str, unit: &'static str, server: &str, value: Option<f64>) {
    let Some(value) = value else { return };
    let value = (server.to_owned(), value);
    match rows.iter_mut().find(|row| row.what == what) {
        Some(row) => row.values.push(value),
        None => rows.push(Row { what: what.to_owned(), unit, values: vec![value] }),
    }
}

/// The middle of some values; of two in the middle, the higher. `None` of none.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A markdown table: one line a figure, one column a server.
#[must_use]
pub fn table(rows: &[Row], servers: &[&str], over_runs: impl Fn(&mut [f64]) -> Option<f64>) -> String {
    let mut text =
        format!("| | unit | {} |\n| --- | --- |{}\n", servers.join(" | "), " ---: |".repeat(servers.len()));
    for row in rows {
        let cells = servers.iter().map(|server| {
            let of_server = row.values.iter().filter(|(name, _)| name == server);
            let mut values: Vec<f64> = of_server.map(|(_, value)| *value).collect();
            over_runs(&mut values).map_or_else(|| "-".to_owned(), figure)
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} | {} | {} |", row.what, row.unit, cells.join(" | "));
    }
    text
}

/// Three significant digits below a thousand, thousands apart above.
fn figure(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Every value of every run.
#[must_use]
pub fn json(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let values: Vec<_> = row
                .values
                .iter()
                .map(|(server, value)| serde_json::json!({ "server": server, "value": value }))
                .collect();
            serde_json::json!({ "what": row.what, "unit": row.unit, "values": values })
        })
        .collect();
    format!("{:#}\n", serde_json::json!({ "figures": rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_the_median_of_each_server() {
        let mut rows = Vec::new();
        for (server, value) in [("a", 1.0), ("b", 12.34), ("a", 900.0), ("a", 12345.6)] {
            add(&mut rows, "PUT", "req/s", server, Some(value));
        }
        add(&mut rows, "memory", "MiB", "a", None);
        add(&mut rows, "start", "ms", "b", Some(1.234));
        let expected = "| | unit | a | b |\n| --- | --- | ---: | ---: |\n\
                        | PUT | req/s | 900 | 12.3 |\n| start | ms | - | 1.23 |\n";
        assert_eq!(table(&rows, &["a", "b"], median), expected);
        assert_eq!(figure(1234567.8), "1,234,568");
        assert_eq!(median(&mut []), None);
        assert!(json(&rows).contains("12345.6"));
    }
}
