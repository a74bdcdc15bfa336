//! What the source says it wrote: every row version, and whether each is there once and in order.
//!
//! One JSON object a line: `{"namespace":"public","table":"t","row":{"/op":"u","/after":{"id":1}}}`. `row` maps
//! JSON pointers (RFC 6901) into the stored row to the values that must stand there; a pointer to nothing reads
//! as null, and numbers are compared as they are written. The lines of one table are in the order in which the source logged them; lines of several tables may
//! be mixed in any way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufRead;

use serde::Deserialize;

use crate::exact::Exact;
use crate::json;
use crate::report::{Kind, Report};

/// Pointers and values.
type Fields = BTreeMap<String, Exact>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    namespace: String,
    table: String,
    row: Fields,
}

/// What is expected of one table.
#[derive(Debug, Default)]
struct Table {
    /// The sets of pointers that its lines look at; mostly one for each operation.
    views: Vec<Vec<String>>,
    /// By view and values: the lines that want them and were not seen yet, in order.
    wanted: HashMap<(usize, json::Sha), VecDeque<u64>>,
    /// The latest line that was seen.
    latest: u64,
}

/// Expected row versions, ticked off one by one.
#[derive(Debug, Default)]
pub struct Expected {
    tables: BTreeMap<String, Table>,
    lines: u64,
}

/// The values that stand at a view's pointers, as one text.
fn identity<'a>(values: impl Iterator<Item = Option<&'a Exact>>) -> json::Sha {
    let values: Vec<String> =
        values.map(|value| value.map_or_else(|| "null".to_owned(), ToString::to_string)).collect();
    json::sha256(values.join("\n").as_bytes())
}

impl Expected {
    /// Reads the list.
    ///
    /// # Errors
    /// The number of the line that is no such object, and why.
    pub fn read(list: impl BufRead) -> Result<Self, String> {
        let mut expected = Self::default();
        for line in list.lines() {
            expected.lines += 1;
            let number = expected.lines;
            let line = line.map_err(|why| format!("line {number}: {why}"))?;
            let line: Line = serde_json::from_str(&line).map_err(|why| format!("line {number}: {why}"))?;
            if line.row.is_empty() {
                return Err(format!("line {number}: row names no pointer, so that any row would do"));
            }
            let table = expected.tables.entry(format!("{}.{}", line.namespace, line.table)).or_default();
            let pointers: Vec<String> = line.row.keys().cloned().collect();
            let view = table.views.iter().position(|view| *view == pointers).unwrap_or_else(|| {
                table.views.push(pointers);
                table.views.len() - 1
            });
            table.wanted.entry((view, identity(line.row.values().map(Some)))).or_default().push_back(number);
        }
        Ok(expected)
    }

    /// How many row versions are expected.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.lines
    }

    /// Whether nothing is expected at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Ticks off a row of the bucket; rows of one table come in their order. `at` says where it stands.
    pub fn see(&mut self, table: &str, row: &Exact, at: &str, report: &mut Report) {
        let Some(wanted) = self.tables.get_mut(table) else {
            report.find(Kind::Foreign, at, format!("no row of table {table} is expected"));
            return;
        };
        let mut seen_before = false;
        for (view, pointers) in wanted.views.iter().enumerate() {
            let identity = identity(pointers.iter().map(|pointer| row.pointer(pointer)));
            match wanted.wanted.get_mut(&(view, identity)).map(VecDeque::pop_front) {
                Some(Some(line)) => {
                    if line < wanted.latest {
                        let detail = format!("expected line {line} comes after line {}", wanted.latest);
                        report.find(Kind::Order, at, detail);
                    }
                    wanted.latest = wanted.latest.max(line);
                    return;
                }
                Some(None) => seen_before = true,
                None => {}
            }
        }
        if seen_before {
            report.find(Kind::Duplicate, at, "this row version is there already");
        } else {
            report.find(Kind::Foreign, at, "no expected row version is like this row");
        }
    }

    /// What was never seen.
    pub fn finish(self, report: &mut Report) {
        for (table, expected) in self.tables {
            let mut lines: Vec<u64> = expected.wanted.into_values().flatten().collect();
            lines.sort_unstable();
            for line in lines {
                report.find(Kind::Gap, format!("expected line {line}"), format!("no such row of {table}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(expected: &[Value], rows: &[Value]) -> Vec<(Kind, String)> {
        let list: String = expected.iter().map(|line| format!("{line}\n")).collect();
        let mut expected = Expected::read(list.as_bytes()).unwrap();
        let mut report = Report::default();
        for (number, row) in rows.iter().enumerate() {
            let row = Exact::read(row.to_string().as_bytes()).unwrap();
            expected.see("p.t", &row, &format!("row {number}"), &mut report);
        }
        expected.finish(&mut report);
        report.findings.into_iter().map(|finding| (finding.kind, finding.at)).collect()
    }

    fn update(id: u64) -> (Value, Value) {
        (
            json!({"namespace": "p", "table": "t", "row": {"/op": "u", "/after": {"id": id}}}),
            json!({"op": "u", "before": null, "after": {"id": id}, "more": 1}),
        )
    }

    #[test]
    fn each_row_once_and_in_order_is_clean() {
        let (one, first) = update(1);
        let (two, second) = update(2);
        let gone =
            json!({"namespace": "p", "table": "t", "row": {"/op": "d", "/before/id": 1, "/after": null}});
        let deleted = json!({"op": "d", "before": {"id": 1}});
        assert_eq!(judged(&[one.clone(), two, one, gone], &[first.clone(), second, first, deleted]), []);
    }

    #[test]
    fn what_differs_is_named() {
        let (one, first) = update(1);
        let (two, second) = update(2);
        let (_, third) = update(3);
        let list = [one, two];
        assert_eq!(judged(&list, std::slice::from_ref(&first)), [(Kind::Gap, "expected line 2".to_owned())]);
        assert_eq!(
            judged(&list, &[first.clone(), second.clone(), second.clone()]),
            [(Kind::Duplicate, "row 2".to_owned())]
        );
        assert_eq!(
            judged(&list, &[first.clone(), third, second.clone()]),
            [(Kind::Foreign, "row 1".to_owned())]
        );
        assert_eq!(judged(&list, &[second, first]), [(Kind::Order, "row 1".to_owned())]);
    }

    #[test]
    fn a_list_that_is_none_is_refused_with_its_line() {
        for line in ["{}", "[]", r#"{"namespace":"p","table":"t","row":{}}"#, r#"{"namespace":"p"}"#, ""] {
            let list = format!("{}\n{line}\n", update(1).0);
            let error = Expected::read(list.as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }
}
