//! Progress of a snapshot: which table is read, and how far.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::ids::push_length_prefixed;

use super::canonical::Reader;
use super::{Order, PositionError, PositionType, decimal};

/// Whether a snapshot goes on. The numbers go into digests and are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum SnapshotPhase {
    /// Tables are being read.
    Running = 0,
    /// Every table was read: what follows is the stream.
    Done = 1,
}

/// How far a snapshot is. Which run's is in the lineage's scope. As text it is a JSON object of these fields,
/// where numbers may be decimal strings, and are when written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPoint {
    /// Whether it goes on.
    pub phase: SnapshotPhase,
    /// Database (MySQL) or schema (PostgreSQL) of the table.
    pub namespace: String,
    /// The table being read.
    pub table: String,
    /// Chunk of the table.
    #[serde(with = "decimal")]
    pub chunk: u64,
    /// Rows of the chunk that are included.
    #[serde(with = "decimal")]
    pub offset: u64,
    /// The source's own note of where to go on; not looked into.
    pub cursor: String,
}

impl SnapshotPoint {
    /// Where `next` is, seen from here, within one run. Two tables of a snapshot that runs can't be compared
    /// by themselves: [`TableOrder`](super::TableOrder) knows which comes first.
    #[must_use]
    pub fn compare(&self, next: &Self) -> Order {
        if self == next {
            return Order::Equal;
        }
        match (self.phase, next.phase) {
            (SnapshotPhase::Running, SnapshotPhase::Done) => Order::Greater,
            (SnapshotPhase::Done, SnapshotPhase::Running) => Order::Less,
            (SnapshotPhase::Running, SnapshotPhase::Running) if self.same_table(next) => {
                match Order::of((self.chunk, self.offset), (next.chunk, next.offset)) {
                    // Another cursor at the same row: neither is ahead.
                    Order::Equal => Order::Incomparable,
                    order => order,
                }
            }
            _ => Order::Incomparable,
        }
    }

    pub(super) fn same_table(&self, other: &Self) -> bool {
        self.table == other.table && self.namespace == other.namespace
    }

    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        out.push(self.phase as u8);
        push_length_prefixed(out, self.namespace.as_bytes());
        push_length_prefixed(out, self.table.as_bytes());
        out.extend_from_slice(&self.chunk.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        push_length_prefixed(out, self.cursor.as_bytes());
    }

    pub(super) fn read_canonical(bytes: &[u8]) -> Result<Self, PositionError> {
        let mut reader = Reader::new(PositionType::Snapshot, bytes);
        let phase = match reader.u8("phase")? {
            0 => SnapshotPhase::Running,
            1 => SnapshotPhase::Done,
            other => return Err(reader.error(format!("phase {other} is neither 0 (running) nor 1 (done)"))),
        };
        let point = Self {
            phase,
            namespace: reader.text("namespace")?.to_owned(),
            table: reader.text("table")?.to_owned(),
            chunk: reader.u64("chunk")?,
            offset: reader.u64("offset")?,
            cursor: reader.text("cursor")?.to_owned(),
        };
        reader.end()?;
        Ok(point)
    }
}

impl fmt::Display for SnapshotPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for SnapshotPoint {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        serde_json::from_str(text).map_err(|error| PositionError::Snapshot { reason: error.to_string() })
    }
}
