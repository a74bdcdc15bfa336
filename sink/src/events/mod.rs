//! Change events as lines of JSON: what they say ([`envelope`]), and which transactions they form
//! ([`transaction`]).

pub mod envelope;
pub mod transaction;

use std::sync::Arc;

use crate::format::Columns;
use crate::model::position::{BinlogPoint, Gtid, GtidSet, Lineage, Lsn, Point, PositionError, SnapshotPoint};

/// Longest line that is read, in bytes: a row is held in memory several times over.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Why a line can't be taken. Nothing of its transaction is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct EventError {
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: What,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// The line is no JSON, or not an object.
    #[error("no event as a JSON object: {0}")]
    Json(String),
    /// A line above [`MAX_LINE_BYTES`].
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// A field that must be there.
    #[error("field {field} is missing: {why}")]
    Missing {
        /// Its path.
        field: &'static str,
        /// What it is wanted for.
        why: &'static str,
    },
    /// A field whose value can't be it.
    #[error("field {field}: {found} can't be it: {wanted}")]
    Value {
        /// Its path.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What may.
        wanted: &'static str,
    },
    /// A field that is no position, or no part of a lineage.
    #[error("field {field}: {error}")]
    Position {
        /// Its path.
        field: &'static str,
        /// What is wrong.
        error: PositionError,
    },
    /// The event is of another source than the configured one.
    #[error("field {field} says {found:?}, {key} is configured as {configured:?}: another source, or a slip")]
    OtherSource {
        /// Its path.
        field: &'static str,
        /// What stands there.
        found: String,
        /// The key of the configuration.
        key: &'static str,
        /// What it says.
        configured: String,
    },
    /// Neither the event nor the configuration says it.
    #[error("{key} is not configured and {field} is not in the event: {why}")]
    NotConfigured {
        /// Its key.
        key: &'static str,
        /// The field that could say it.
        field: &'static str,
        /// What it is wanted for.
        why: &'static str,
    },
    /// The event's position can't be ordered against what was read or committed before.
    #[error("its position {next} can't be compared with {last}, up to which the stream was read: {why}")]
    Incomparable {
        /// What was read before.
        last: String,
        /// The event's.
        next: String,
        /// What to do.
        why: &'static str,
    },
}

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It was inserted.
    Create,
    /// It was changed.
    Update,
    /// It was deleted.
    Delete,
    /// A snapshot read it.
    Read,
    /// Its whole table was emptied.
    Truncate,
}

impl Op {
    /// The letter that stands for it, as Debezium writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Read => "r",
            Self::Truncate => "t",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Create, Self::Update, Self::Delete, Self::Read, Self::Truncate]
            .into_iter()
            .find(|op| op.as_str() == text)
    }
}

/// One change of one row. The images are JSON objects as the source wrote them, without whitespace between
/// tokens: no number is rounded and no name is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number of the line that it came from.
    pub line: u64,
    /// Database (MySQL) or schema (PostgreSQL).
    pub namespace: String,
    /// The table.
    pub table: String,
    /// What happened.
    pub op: Op,
    /// The row before.
    pub before: Option<String>,
    /// The row after.
    pub after: Option<String>,
    /// Time of the source, in milliseconds since 1970.
    pub ts_ms: Option<u64>,
    /// Types of its columns, if the event brought a schema.
    pub columns: Option<Arc<Columns>>,
}

/// The transaction that an event belongs to, by its place in the source's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Whose history.
    pub lineage: Lineage,
    /// Which transaction.
    pub at: At,
}

/// One transaction's place: a GTID names it, all others are its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Its GTID.
    Gtid(Gtid),
    /// Where it ends in the binlog.
    Binlog(BinlogPoint),
    /// Where its commit is in the log.
    Lsn(Lsn),
    /// The row of a snapshot, which is a transaction of its own.
    Snapshot(SnapshotPoint),
}

impl At {
    /// Its one text, as rows carry it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Gtid(gtid) => {
                let mut set = GtidSet::new();
                set.insert(gtid);
                set.to_string()
            }
            Self::Binlog(point) => point.to_string(),
            Self::Lsn(lsn) => lsn.to_string(),
            Self::Snapshot(point) => point.to_string(),
        }
    }

    /// The point behind it, where that does not depend on what came before.
    fn point(&self) -> Option<Point> {
        match self {
            Self::Gtid(_) => None,
            Self::Binlog(point) => Some(Point::MysqlBinlog(point.clone())),
            Self::Lsn(lsn) => Some(Point::PgLsn(*lsn)),
            Self::Snapshot(point) => Some(Point::Snapshot(point.clone())),
        }
    }
}

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A row changed.
    Change {
        /// How.
        change: Box<Change>,
        /// What all events of its transaction share.
        unit: String,
        /// Its transaction's place; nothing while only the next transaction can tell.
        mark: Option<Mark>,
        /// Where the transaction before it was committed, if the line says so.
        committed: Option<Box<Mark>>,
        /// Its place among the events of its transaction, if the line says so: it grows.
        order: Option<u64>,
        /// Whether its transaction ends with it.
        last: bool,
    },
    /// The transaction that was read last is over.
    Commit {
        /// Its place, if the line says so.
        mark: Option<Mark>,
    },
    /// Nothing that is written: an empty line, a tombstone, a heartbeat, a message, a change of schema.
    Nothing,
}
