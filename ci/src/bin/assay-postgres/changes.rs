//! Transactions as wal2json prints them (format version 2): a begin, changes, a commit, each one line.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;
use std::str::FromStr;

/// A place in PostgreSQL's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let half = |half: &str| u32::from_str_radix(half, 16).map_err(|why| format!("LSN {text:?}: {why}"));
        let (high, low) = text.split_once('/').ok_or_else(|| format!("{text:?} is no LSN"))?;
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

/// What a change did to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// There was no such row.
    Insert,
    /// It was another before.
    Update,
    /// It is gone.
    Delete,
}

/// One row version that PostgreSQL logged.
#[derive(Clone, Debug)]
pub struct Change {
    /// What was done.
    pub action: Action,
    /// The table's schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The row as it was, as far as the log holds it.
    pub before: Option<Row>,
    /// The row as it is.
    pub after: Option<Row>,
}

/// Columns and values of a row as a JSON object, numbers as wal2json writes them.
pub type Row = Box<RawValue>;

/// One committed transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The place behind its commit record: what a slot is advanced to once it is durable elsewhere.
    pub end: Lsn,
    /// Its changes, in order.
    pub changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Shown {
    lsn: String,
    data: String,
}

#[derive(Deserialize)]
struct Message {
    action: String,
    #[serde(default)]
    schema: String,
    #[serde(default)]
    table: String,
    columns: Option<Vec<Column>>,
    identity: Option<Vec<Column>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    value: Box<RawValue>,
}

fn row(columns: Vec<Column>) -> Result<Row, serde_json::Error> {
    let columns: Vec<String> = columns
        .into_iter()
        .map(|column| format!("{}:{}", serde_json::Value::from(column.name), column.value))
        .collect();
    RawValue::from_string(format!("{{{}}}", columns.join(",")))
}

/// The query that shows a slot's changes without moving it, as [`parse`] reads them.
pub fn peek(slot: &str, most_changes: Option<u32>) -> String {
    let most = most_changes.map_or("NULL".to_owned(), |most| most.to_string());
    format!(
        "SELECT json_build_object('lsn', lsn, 'data', data) FROM pg_logical_slot_peek_changes(\
         '{slot}', NULL, {most}, 'format-version', '2', 'include-types', '0')"
    )
}

/// Reads the lines of [`peek`].
///
/// # Errors
/// A line that is none of wal2json's, or a transaction without an end.
pub fn parse(lines: &str) -> Result<Vec<Transaction>, String> {
    let mut transactions = Vec::new();
    let mut changes = Vec::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let wrong = |why: &dyn fmt::Display| format!("wal2json printed {line:?}: {why}");
        let logged: Shown = serde_json::from_str(line).map_err(|why| wrong(&why))?;
        let message: Message = serde_json::from_str(&logged.data).map_err(|why| wrong(&why))?;
        let lsn: Lsn = logged.lsn.parse()?;
        let action = match message.action.as_str() {
            "B" => {
                changes.clear();
                continue;
            }
            "C" => {
                transactions.push(Transaction { end: lsn, changes: std::mem::take(&mut changes) });
                continue;
            }
            "I" => Action::Insert,
            "U" => Action::Update,
            "D" => Action::Delete,
            other => return Err(wrong(&format!("action {other:?} is none of a row"))),
        };
        changes.push(Change {
            action,
            schema: message.schema,
            table: message.table,
            before: message.identity.map(row).transpose().map_err(|why| wrong(&why))?,
            after: message.columns.map(row).transpose().map_err(|why| wrong(&why))?,
        });
    }
    if changes.is_empty() { Ok(transactions) } else { Err("the last transaction has no commit".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_ends_behind_its_commit_record() {
        let message =
            |lsn: &str, data: &str| serde_json::json!({"lsn": lsn, "data": data}).to_string() + "\n";
        let lines = [
            message("0/1539588", r#"{"action":"B"}"#),
            message(
                "0/1539588",
                r#"{"action":"U","schema":"p","table":"t","columns":[{"name":"a\"b","value":1.10}],
                    "identity":[{"name":"id","value":1}]}"#,
            ),
            message("0/1539658", r#"{"action":"D","schema":"p","table":"t","identity":[]}"#),
            message("1/1539710", r#"{"action":"C"}"#),
        ];
        let read = parse(&lines.concat()).unwrap();
        let [transaction] = &read[..] else { panic!("{read:?}") };
        assert_eq!((transaction.end, transaction.changes.len()), (Lsn(0x1_0153_9710), 2));
        assert_eq!(transaction.end.to_string(), "1/1539710");
        let after = transaction.changes[0].after.as_ref().map(|row| row.get());
        assert_eq!(after, Some(r#"{"a\"b":1.10}"#), "no digit is lost");
        assert!(transaction.changes[1].after.is_none());
        assert!(parse(&lines[..2].concat()).unwrap_err().contains("no commit"));
    }
}
