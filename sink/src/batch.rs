//! Rows to batches: by transactions, rows, bytes and age.
//!
//! A batch ends at a transaction's boundary, or within one where the configuration allows it; then its position
//! counts how many events of that transaction are in (`sub`). Time comes from whoever asks, as an instant.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

use crate::config::BatchLimits;
use crate::events::transaction::{Row, Step, Transactions};
use crate::events::{EventError, Line};
use crate::format::{self, Encoding};
use crate::model::key::{KeyError, TableSegment};
use crate::model::position::Position;
use crate::sink::Batch;

/// Rows by table, in order, and what is said of all of them.
#[derive(Debug, Default)]
struct Rows {
    tables: BTreeMap<TableSegment, Vec<Row>>,
    rows: u64,
    bytes: u64,
    min_ts_ms: Option<u64>,
    max_ts_ms: Option<u64>,
}

impl Rows {
    fn push(&mut self, row: Row) -> Result<(), KeyError> {
        let table = TableSegment::new(&row.namespace, &row.table)?;
        self.rows += 1;
        self.bytes += row.bytes.len() as u64 + 1;
        self.min_ts_ms = self.min_ts_ms.into_iter().chain(row.ts_ms).min();
        self.max_ts_ms = self.max_ts_ms.max(row.ts_ms);
        self.tables.entry(table).or_default().push(row);
        Ok(())
    }

    fn append(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.min_ts_ms = self.min_ts_ms.into_iter().chain(other.min_ts_ms).min();
        self.max_ts_ms = self.max_ts_ms.max(other.max_ts_ms);
        for (table, rows) in other.tables {
            self.tables.entry(table).or_default().extend(rows);
        }
    }

    fn into_batch(self, position: Position, encoding: Encoding) -> Batch {
        let objects = self.tables.values().map(|rows| format::encode(rows, encoding)).collect();
        Batch { position, objects, events: self.rows, min_ts_ms: self.min_ts_ms, max_ts_ms: self.max_ts_ms }
    }
}

/// Why a line stops the sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The line can't be taken.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Its table has no key.
    #[error("line {line}: {error}")]
    Key {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        error: KeyError,
    },
}

/// How many events came of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Events that will be written.
    pub rows: u64,
    /// Events left out since they are known.
    pub trimmed: u64,
    /// Transactions that ended and were known.
    pub known: u64,
}

/// Gathers rows until a batch is full or old.
#[derive(Debug)]
pub struct Batcher {
    transactions: Transactions,
    limits: BatchLimits,
    encoding: Encoding,
    /// Of whole transactions.
    whole: Rows,
    whole_transactions: u64,
    /// Of the open one.
    open: Rows,
    since: Option<Instant>,
    steps: Vec<Step>,
}

impl Batcher {
    /// An empty one.
    #[must_use]
    pub fn new(transactions: Transactions, limits: BatchLimits, encoding: Encoding) -> Self {
        Self {
            transactions,
            limits,
            encoding,
            whole: Rows::default(),
            whole_transactions: 0,
            open: Rows::default(),
            since: None,
            steps: Vec::new(),
        }
    }

    /// Takes line `number` at `now`.
    ///
    /// # Errors
    /// A line that can't be taken; nothing of its transaction is written.
    pub fn push(&mut self, number: u64, line: Line, now: Instant) -> Result<Taken, BatchError> {
        let mut steps = std::mem::take(&mut self.steps);
        self.transactions.push(number, line, &mut steps)?;
        let mut taken = Taken::default();
        for step in steps.drain(..) {
            match step {
                Step::Row(row) => {
                    self.open.push(row).map_err(|error| BatchError::Key { line: number, error })?;
                    self.since.get_or_insert(now);
                    taken.rows += 1;
                }
                Step::Trimmed => taken.trimmed += 1,
                Step::Abandoned => {
                    self.open = Rows::default();
                    self.since = self.since.filter(|_| self.whole_transactions > 0);
                }
                Step::End { fresh } => {
                    self.whole.append(std::mem::take(&mut self.open));
                    if fresh {
                        self.whole_transactions += 1;
                        self.since.get_or_insert(now);
                    } else {
                        taken.known += 1;
                    }
                }
            }
        }
        self.steps = steps;
        Ok(taken)
    }

    /// The batch, if it is full.
    pub fn full(&mut self) -> Option<Batch> {
        let BatchLimits { max_transactions, max_rows, max_bytes, .. } = self.limits;
        let splits = self.splits();
        let open = if splits { (self.open.rows, self.open.bytes) } else { (0, 0) };
        let full = self.whole_transactions >= max_transactions
            || self.whole.rows + open.0 >= max_rows
            || self.whole.bytes + open.1 >= max_bytes;
        full.then(|| self.take()).flatten()
    }

    /// When the batch must be closed for its age; nothing while there is nothing to close.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let closable = self.whole_transactions > 0 || (self.splits() && self.open.rows > 0);
        self.since.filter(|_| closable).map(|since| since + Duration::from_millis(self.limits.max_age_ms))
    }

    /// Closes the batch, whatever is in it; nothing if no transaction is, and none that a batch may end in. A
    /// batch without rows moves the position past transactions of which nothing is captured.
    pub fn take(&mut self) -> Option<Batch> {
        let position = self.transactions.position()?.clone();
        let sub = self.transactions.sub().filter(|_| self.splits() && self.open.rows > 0);
        if self.whole_transactions == 0 && sub.is_none() {
            return None;
        }
        let mut rows = std::mem::take(&mut self.whole);
        if let Some(sub) = sub {
            rows.append(std::mem::take(&mut self.open));
            self.transactions.ends_within(sub);
        }
        self.whole_transactions = 0;
        // Rows of the open transaction that stay are younger than the batch; their age begins again.
        self.since = self.since.filter(|_| self.open.rows > 0);
        Some(rows.into_batch(Position { sub: sub.unwrap_or_default(), ..position }, self.encoding))
    }

    /// The line that a transaction began in which has not ended: its rows were not written.
    #[must_use]
    pub fn unfinished(&self) -> Option<u64> {
        self.transactions.open_since().filter(|_| self.transactions.sub().is_none() || self.open.rows > 0)
    }

    /// Whether a batch may end where the open transaction is.
    fn splits(&self) -> bool {
        !self.limits.respect_source_tx && self.transactions.sub().is_some()
    }
}

#[cfg(test)]
mod tests;
