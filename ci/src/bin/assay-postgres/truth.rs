//! What PostgreSQL logged, as the sink is fed with it and as the oracle expects it.

use crate::changes::{Action, Change, Row, Transaction};
use serde_json::{Value, json};
use std::path::Path;

const fn letter(action: Action) -> &'static str {
    match action {
        Action::Insert => "c",
        Action::Update => "u",
        Action::Delete => "d",
    }
}

/// A row's image, or null.
fn image(row: Option<&Row>) -> &str {
    row.map_or("null", |row| row.get())
}

/// A transaction as the lines that the sink reads: its own envelope, the place behind the commit as position.
pub fn lines(transaction: &Transaction) -> String {
    let most = transaction.changes.len();
    let line = |(number, change): (usize, &Change)| {
        let source = json!({
            "namespace": change.schema, "table": change.table, "type": "pg-lsn", "position": transaction.end.to_string(),
        });
        let (before, after) = (image(change.before.as_ref()), image(change.after.as_ref()));
        let (op, last) = (letter(change.action), number == most);
        format!(r#"{{"op":"{op}","before":{before},"after":{after},"tx_end":{last},"source":{source}}}"#)
            + "\n"
    };
    (1..).zip(&transaction.changes).map(line).collect()
}

/// A transaction as the lines that the oracle compares: operation, both versions of the row, the transaction's
/// place, and the change's number in it.
pub fn expected(transaction: &Transaction) -> String {
    let line = |(index, change): (usize, &Change)| {
        let (namespace, table) = (Value::from(change.schema.as_str()), Value::from(change.table.as_str()));
        let (before, after) = (image(change.before.as_ref()), image(change.after.as_ref()));
        let (op, end) = (letter(change.action), transaction.end);
        format!(
            r#"{{"namespace":{namespace},"table":{table},"row":{{"/op":"{op}","/position":"{end}","/index":{index},"/before":{before},"/after":{after}}}}}"#
        ) + "\n"
    };
    (0..).zip(&transaction.changes).map(line).collect()
}

/// The sink's configuration: small batches and a short age, so that kills find many of them under way.
pub fn pipeline(
    endpoint: &str,
    (bucket, prefix, pipeline): (&str, &str, &str),
    (system_identifier, timeline): (&str, &str),
    scratch: &Path,
) -> String {
    format!(
        "pipeline: {pipeline}
source:
  id: show
  position: pg-lsn
  system_identifier: {system_identifier}
  timeline: {timeline}
sinks:
  - type: s3
    bucket: {bucket}
    endpoint: {endpoint}
    prefix: {prefix}
    compression: zstd
    local_checkpoint: {checkpoint}
    batch:
      max_transactions: 5
      max_age_ms: 200
metrics:
  listen: \"off\"
",
        checkpoint = scratch.join("checkpoint.redb").display()
    )
}
