//! What a line of JSON says: the sink's own envelope, DeltaForge's events, Debezium's of PostgreSQL and MySQL.
//!
//! All three are one object with `op`, `before`, `after` and `source`, the last two perhaps within `payload`.
//! The own envelope is known by `source.position`, the others by `source.connector`.

mod source;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{At, Change, EventError, Line, Mark, Op, What};
use crate::config::Source;
use crate::format::Columns;
use crate::model::position::{Point, Position, SnapshotPhase, SnapshotPoint};

use source::{Lineages, SourceBlock, Streamed};

#[derive(Deserialize)]
struct Envelope<'a> {
    /// Of the payload, as Kafka Connect's JSON converter writes it.
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    op: Option<Scalar<'a>>,
    #[serde(borrow)]
    before: Option<&'a RawValue>,
    #[serde(borrow)]
    after: Option<&'a RawValue>,
    #[serde(borrow)]
    ts_ms: Option<Scalar<'a>>,
    #[serde(borrow)]
    tx_end: Option<Scalar<'a>>,
    #[serde(borrow)]
    source: Option<SourceBlock<'a>>,
    #[serde(borrow)]
    transaction: Option<Transaction<'a>>,
    /// Of Debezium's own events about transactions.
    #[serde(borrow)]
    status: Option<Scalar<'a>>,
}

#[derive(Deserialize)]
struct Transaction<'a> {
    #[serde(borrow)]
    id: Option<Scalar<'a>>,
    #[serde(borrow)]
    total_order: Option<Scalar<'a>>,
}

/// A value of one field, so that a wrong one can be shown with the field's name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Scalar<'a> {
    Number(u64),
    Flag(bool),
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Object(BTreeMap<String, serde_json::Value>),
    Other(IgnoredAny),
}

impl Scalar<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Object(_) => "an object".to_owned(),
            Self::Other(_) => "a value of this type".to_owned(),
        }
    }

    fn wrong(&self, field: &'static str, wanted: &'static str) -> What {
        What::Value { field, found: self.shown(), wanted }
    }

    fn text(&self, field: &'static str) -> Result<&str, What> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(self.wrong(field, "a text is wanted")),
        }
    }

    /// A text, or a number as its digits.
    fn word(&self, field: &'static str) -> Result<String, What> {
        match self {
            Self::Text(text) => Ok(text.clone().into_owned()),
            Self::Number(number) => Ok(number.to_string()),
            _ => Err(self.wrong(field, "a text or a number is wanted")),
        }
    }

    /// A number, or its digits as a text.
    fn number(&self, field: &'static str) -> Result<u64, What> {
        let parsed = match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        parsed.ok_or_else(|| self.wrong(field, "a number from 0 to 18446744073709551615 is wanted"))
    }
}

/// Reads lines. It counts rows of a snapshot whose events don't say how far it is.
#[derive(Debug)]
pub struct Decoder {
    lineages: Lineages,
    /// Rows read of each table, once the snapshot's first row was seen.
    counted: Option<BTreeMap<(String, String), u64>>,
    resumes_in_snapshot: bool,
    /// Schemas by their text: events of one table bring the same again and again.
    schemas: HashMap<String, Arc<Columns>>,
}

/// Schemas that are remembered: more than a source has tables and versions of them at a time.
const MAX_SCHEMAS: usize = 1024;

impl Decoder {
    /// For events of one configured source, of a stream that is durable up to `resume`.
    #[must_use]
    pub fn new(source: &Source, resume: Option<&Position>) -> Self {
        let running = |position: &Position| match &position.point {
            Point::Snapshot(point) => point.phase == SnapshotPhase::Running,
            _ => false,
        };
        Self {
            lineages: Lineages::new(source),
            counted: None,
            resumes_in_snapshot: resume.is_some_and(running),
            schemas: HashMap::new(),
        }
    }

    /// Reads line `number`, without its line break.
    ///
    /// # Errors
    /// What can't be taken, with the field's name.
    pub fn read(&mut self, number: u64, line: &[u8]) -> Result<Line, EventError> {
        self.line(number, line).map_err(|what| EventError { line: number, what })
    }

    fn line(&mut self, number: u64, line: &[u8]) -> Result<Line, What> {
        let json = |error: serde_json::Error| What::Json(error.to_string());
        let text = str::from_utf8(line).map_err(|error| What::Json(error.to_string()))?.trim();
        if text.is_empty() || text == "null" {
            return Ok(Line::Nothing);
        }
        let mut envelope: Envelope = serde_json::from_str(text).map_err(json)?;
        let mut columns = None;
        if let Some(payload) = envelope.payload {
            if payload.get() == "null" {
                return Ok(Line::Nothing);
            }
            columns = envelope.schema.and_then(|schema| self.columns(schema.get()));
            envelope = serde_json::from_str(payload.get()).map_err(json)?;
        }
        let mut line = self.envelope(number, &envelope)?;
        if let Line::Change { change, .. } = &mut line {
            change.columns = columns;
        }
        Ok(line)
    }

    /// Types that a schema declares, if it declares any.
    fn columns(&mut self, schema: &str) -> Option<Arc<Columns>> {
        if let Some(known) = self.schemas.get(schema) {
            return Some(Arc::clone(known)).filter(|known| **known != Columns::default());
        }
        if self.schemas.len() >= MAX_SCHEMAS {
            self.schemas.clear();
        }
        let columns = Arc::new(Columns::of_schema(schema));
        self.schemas.insert(schema.to_owned(), Arc::clone(&columns));
        Some(columns).filter(|columns| **columns != Columns::default())
    }

    fn envelope(&mut self, number: u64, envelope: &Envelope) -> Result<Line, What> {
        if let Some(status) = &envelope.status {
            // Debezium's transaction metadata: BEGIN says nothing that the first event does not.
            let ends = envelope.op.is_none() && status.text("status")? == "END";
            return Ok(if ends { Line::Commit { mark: None } } else { Line::Nothing });
        }
        let op = match (&envelope.op, &envelope.source) {
            (Some(op), _) => op.text("op")?,
            // Heartbeats and changes of schema have no operation.
            (None, _) => return Ok(Line::Nothing),
        };
        if op == "commit" {
            let mark =
                envelope.source.as_ref().map(|source| self.lineages.own(source)).transpose()?.flatten();
            return Ok(Line::Commit { mark });
        }
        if op == "m" {
            return Ok(Line::Nothing);
        }
        let Some(kind) = Op::parse(op) else {
            let wanted = "c, u, d, r, t or commit is wanted";
            return Err(What::Value { field: "op", found: format!("{op:?}"), wanted });
        };
        let source = envelope.source.as_ref().ok_or(What::Missing {
            field: "source",
            why: "it says where the event is in the source's history",
        })?;
        let change = change(number, envelope, source, kind)?;
        let last = match &envelope.tx_end {
            Some(Scalar::Flag(flag)) => *flag,
            Some(other) => return Err(other.wrong("tx_end", "true or false is wanted")),
            None => false,
        };
        if let Some(mark) = self.lineages.own(source)? {
            return Ok(own(change, mark, source.order()?, last));
        }
        if source.connector.is_none() {
            let why = "it says where the event's transaction is in the source's history";
            return Err(What::Missing { field: "source.position", why });
        }
        if let Some(word) = source.snapshot()? {
            return self.snapshot(change, source, &word);
        }
        let transaction = envelope.transaction.as_ref();
        let id = transaction.and_then(|transaction| transaction.id.as_ref());
        let unit = id.map(|id| id.word("transaction.id")).transpose()?;
        let order = transaction.and_then(|transaction| transaction.total_order.as_ref());
        let order = order.map(|order| order.number("transaction.total_order")).transpose()?;
        let order = order.or(source.order()?);
        self.lineages.streamed(source, Streamed { change, unit, order, last })
    }

    /// A row of a snapshot: Debezium's events do not say how far it is, so rows of each table are counted
    /// from the first. A snapshot that starts over reads other rows, so counts of two runs can't be compared.
    fn snapshot(&mut self, change: Box<Change>, source: &SourceBlock, word: &str) -> Result<Line, What> {
        let wrong = |wanted| What::Value { field: "source.snapshot", found: format!("{word:?}"), wanted };
        if self.resumes_in_snapshot {
            return Err(wrong(
                "the stream stopped within a snapshot, which this source can only start over: write it under \
                 another pipeline or prefix",
            ));
        }
        if word == "first" {
            self.counted = Some(BTreeMap::new());
        }
        let counted = match &mut self.counted {
            Some(counted) => counted,
            // A snapshot of one row.
            none if word == "last" => none.insert(BTreeMap::new()),
            None => {
                return Err(wrong(
                    "a snapshot is read from its row \"first\" on, from which rows are counted",
                ));
            }
        };
        let rows = counted.entry((change.namespace.clone(), change.table.clone())).or_default();
        *rows += 1;
        let point = SnapshotPoint {
            phase: if word == "last" { SnapshotPhase::Done } else { SnapshotPhase::Running },
            namespace: change.namespace.clone(),
            table: change.table.clone(),
            chunk: 0,
            offset: *rows,
            cursor: String::new(),
        };
        let lineage = self.lineages.snapshot(source)?;
        Ok(own(change, Mark { lineage, at: At::Snapshot(point) }, None, true))
    }
}

fn own(change: Box<Change>, mark: Mark, order: Option<u64>, last: bool) -> Line {
    // A row of a snapshot is a transaction of its own.
    let last = last || matches!(mark.at, At::Snapshot(_));
    Line::Change { change, unit: mark.at.text(), mark: Some(mark), committed: None, order, last }
}

fn change(line: u64, envelope: &Envelope, source: &SourceBlock, op: Op) -> Result<Box<Change>, What> {
    let before = image(envelope.before, "before")?;
    let after = image(envelope.after, "after")?;
    if matches!(op, Op::Create | Op::Update | Op::Read) && after.is_none() {
        return Err(What::Missing { field: "after", why: "c, u and r bring the row as it is now" });
    }
    let (namespace, table) = source.table()?;
    let ts_ms = match (&source.ts_ms, &envelope.ts_ms) {
        (Some(time), _) => Some(time.number("source.ts_ms")?),
        // At the top Debezium and DeltaForge put the time of reading, which differs with each.
        (None, Some(time)) if source.connector.is_none() => Some(time.number("ts_ms")?),
        _ => None,
    };
    Ok(Box::new(Change { line, namespace, table, op, before, after, ts_ms, columns: None }))
}

fn image(raw: Option<&RawValue>, field: &'static str) -> Result<Option<String>, What> {
    let Some(raw) = raw else { return Ok(None) };
    let text = raw.get();
    if !text.starts_with('{') {
        let found: String = text.chars().take(40).collect();
        return Err(What::Value { field, found, wanted: "an object or null is wanted" });
    }
    Ok(Some(compact(text)))
}

/// The same JSON without whitespace between tokens; strings, numbers and the order of names stay as they are.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        if inside {
            (inside, escaped) = (c != '"' || escaped, c == '\\' && !escaped);
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            inside = c == '"';
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests;
