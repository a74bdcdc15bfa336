//! Lines to rows of whole transactions, behind what the bucket already has.
//!
//! A source replays from its last acknowledged position or from before it, so events come again. Each is
//! judged by its own transaction's place: what is at or below the position up to which the stream was read is
//! left out, event by event, and never a whole batch by where it ends.

use std::sync::Arc;

use super::{At, Change, EventError, Line, Mark, What};
use crate::config::Source;
use crate::format::Columns;
use crate::model::position::{GtidSet, Order, Point, Position, PositionType, SnapshotPhase, TableOrder};

/// One row as it is stored: a line of JSON without its line break. These bytes are the row's canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Database (MySQL) or schema (PostgreSQL).
    pub namespace: String,
    /// The table.
    pub table: String,
    /// `{"op":…,"ts_ms":…,"position":…,"index":…,"before":…,"after":…}`.
    pub bytes: Vec<u8>,
    /// Time of the source, in milliseconds since 1970.
    pub ts_ms: Option<u64>,
    /// Types of its columns, if its event brought a schema.
    pub columns: Option<Arc<Columns>>,
}

impl Row {
    /// `index` counts the events of the transaction, from 0.
    fn new(change: Change, at: &At, index: u64) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let image = |image: &Option<String>| image.clone().unwrap_or_else(|| "null".to_owned());
        let ts_ms = change.ts_ms.map_or_else(|| "null".to_owned(), |time| time.to_string());
        let bytes = format!(
            r#"{{"op":"{}","ts_ms":{ts_ms},"position":{},"index":{index},"before":{},"after":{}}}"#,
            change.op.as_str(),
            quoted(&at.text()),
            image(&change.before),
            image(&change.after),
        );
        let Change { namespace, table, ts_ms, columns, .. } = change;
        Self { namespace, table, bytes: bytes.into_bytes(), ts_ms, columns }
    }
}

/// What came of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A row of the transaction that is open.
    Row(Row),
    /// An event that the bucket already has, or that this process has read before.
    Trimmed,
    /// The source started over within the open transaction: its rows come again.
    Abandoned,
    /// The transaction is over; [`Transactions::position`] is behind it. `fresh` if any of it was not known.
    End {
        /// Whether it moved the position.
        fresh: bool,
    },
}

/// Whether an open transaction is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Only the next transaction tells where it is: its changes wait.
    Waits,
    /// It is, but for as many events at its beginning.
    Fresh { skip: u64 },
    /// All of it is known.
    Known,
}

#[derive(Debug)]
struct Open {
    line: u64,
    unit: String,
    mark: Option<Mark>,
    fate: Fate,
    held: Vec<Change>,
    events: u64,
    /// The highest place that an event named.
    order: Option<u64>,
}

/// Groups events into transactions and trims them.
#[derive(Debug)]
pub struct Transactions {
    position: Option<Position>,
    /// Events behind `position` that are durable, of the one transaction that was split.
    skip: u64,
    /// Events of the open transaction behind which a batch has ended.
    written: u64,
    gtid_start: Option<GtidSet>,
    tables: TableOrder,
    /// Whether a row of another table than the one that the snapshot stopped in may be an old one.
    old_tables: bool,
    open: Option<Open>,
}

impl Transactions {
    /// Of a stream that is durable up to `resume`.
    #[must_use]
    pub fn new(source: &Source, resume: Option<Position>) -> Self {
        let mut tables = source.tables.clone();
        let in_snapshot = |position: &Position| position.position_type() == PositionType::Snapshot;
        let undeclared = source.tables == TableOrder::any();
        if let Some(position) = &resume {
            tables.observe(position);
        }
        let skip = resume.as_ref().map_or(0, |position| position.sub);
        Self {
            old_tables: undeclared && resume.as_ref().is_some_and(in_snapshot),
            position: resume.map(|position| Position { sub: 0, ..position }),
            skip,
            written: 0,
            gtid_start: source.gtid_start.clone(),
            tables,
            open: None,
        }
    }

    /// Behind the last whole transaction; with [`Transactions::sub`] a batch may end within the next.
    #[must_use]
    pub const fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Events of the open transaction that were read, if a batch may end behind them: not before the stream
    /// has a position for them to be counted from.
    #[must_use]
    pub fn sub(&self) -> Option<u64> {
        let (open, position) = (self.open.as_ref()?, self.position.as_ref()?);
        let mark = open.mark.as_ref()?;
        let same = mark.lineage == position.lineage && open.fate != Fate::Known;
        (same && open.events > 0).then_some(open.events)
    }

    /// Takes note that a batch ends behind so many events of the open transaction.
    pub const fn ends_within(&mut self, sub: u64) {
        self.written = sub;
    }

    /// Whether a transaction is open, and the line that it began in.
    #[must_use]
    pub fn open_since(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.line)
    }

    /// Takes line `number`, and appends what came of it.
    ///
    /// # Errors
    /// A place that can't be ordered, or none at all.
    pub fn push(&mut self, number: u64, line: Line, out: &mut Vec<Step>) -> Result<(), EventError> {
        self.take(number, line, out).map_err(|what| EventError { line: number, what })
    }

    fn take(&mut self, number: u64, line: Line, out: &mut Vec<Step>) -> Result<(), What> {
        match line {
            Line::Nothing => Ok(()),
            Line::Commit { mark } => match &self.open {
                // Debezium's END of a PostgreSQL transaction does not say where it is.
                Some(open) if open.mark.is_none() && mark.is_none() => Ok(()),
                Some(_) => self.close(mark, out),
                None => self.empty(mark, out),
            },
            Line::Change { change, unit, mark, committed, order, last } => {
                if self.open.as_ref().is_some_and(|open| open.unit != unit) {
                    if self.starts_over(mark.as_ref()) {
                        self.abandon(out);
                    } else {
                        self.close(committed.map(|mark| *mark), out)?;
                    }
                }
                if self.repeats(order) {
                    out.push(Step::Trimmed);
                } else {
                    self.change(number, *change, unit, mark, out)?;
                    if let Some(open) = &mut self.open {
                        open.order = order;
                    }
                }
                if last { self.close(None, out) } else { Ok(()) }
            }
        }
    }

    fn change(
        &mut self,
        line: u64,
        change: Change,
        unit: String,
        mark: Option<Mark>,
        out: &mut Vec<Step>,
    ) -> Result<(), What> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let fate = mark.as_ref().map_or(Ok(Fate::Waits), |mark| self.fate(mark))?;
                if let Fate::Fresh { skip } = fate {
                    self.written = skip;
                }
                Open { line, unit, mark: None, fate, held: Vec::new(), events: 0, order: None }
            }
        };
        if mark.is_some() {
            open.mark = mark;
        }
        open.emit(change, out);
        self.open = Some(open);
        Ok(())
    }

    /// Whether the open transaction has had the event at this place.
    fn repeats(&self, order: Option<u64>) -> bool {
        let last = self.open.as_ref().and_then(|open| open.order);
        last.zip(order).is_some_and(|(last, order)| order <= last)
    }

    /// Whether an event of another transaction is one of before the open one: then that one has not ended, but
    /// its source started over, and sends it again.
    fn starts_over(&self, next: Option<&Mark>) -> bool {
        let open = self.open.as_ref().filter(|open| open.fate != Fate::Known);
        let (Some(here), Some(next)) = (open.and_then(|open| open.mark.as_ref()), next) else { return false };
        if here.lineage != next.lineage {
            return false;
        }
        match (&here.at, &next.at, &self.position) {
            (At::Gtid(_), At::Gtid(next), Some(Position { point: Point::MysqlGtid(set), .. })) => {
                set.contains_gtid(next)
            }
            (At::Binlog(here), At::Binlog(next), _) => here.compare(next) == Order::Less,
            (At::Lsn(here), At::Lsn(next), _) => next < here,
            _ => false,
        }
    }

    fn abandon(&mut self, out: &mut Vec<Step>) {
        if let Some(open) = self.open.take() {
            tracing::warn!(line = open.line, "the source started over within the transaction of this line");
        }
        self.skip = std::mem::take(&mut self.written);
        out.push(Step::Abandoned);
    }

    /// Ends the open transaction; `mark` is where, if it did not say so itself.
    fn close(&mut self, mark: Option<Mark>, out: &mut Vec<Step>) -> Result<(), What> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let mark = match (open.mark.take(), mark) {
            (Some(own), Some(said)) if own != said => {
                return Err(What::Incomparable {
                    last: own.at.text(),
                    next: said.at.text(),
                    why: "the commit is of another transaction than the changes before it",
                });
            }
            (Some(mark), _) | (None, Some(mark)) => mark,
            (None, None) => {
                let why = "the next transaction says where this one was committed; the first of a connector \
                           may not";
                return Err(What::Missing { field: "source.sequence", why });
            }
        };
        open.mark = Some(mark.clone());
        if open.fate == Fate::Waits {
            open.fate = self.fate(&mark)?;
            for change in std::mem::take(&mut open.held) {
                open.emit(change, out);
            }
        }
        let fresh = open.fate != Fate::Known;
        if fresh {
            self.written = 0;
            self.advance(mark)?;
        }
        out.push(Step::End { fresh });
        Ok(())
    }

    /// A transaction without rows moves the position too: what it changed is not captured.
    fn empty(&mut self, mark: Option<Mark>, out: &mut Vec<Step>) -> Result<(), What> {
        let Some(mark) = mark else { return Ok(()) };
        let fresh = self.fate(&mark)? != Fate::Known;
        if fresh {
            self.advance(mark)?;
        }
        out.push(Step::End { fresh });
        Ok(())
    }

    /// Whether a transaction at `mark` is known.
    fn fate(&mut self, mark: &Mark) -> Result<Fate, What> {
        let Some(position) = &self.position else {
            let before = match (&mark.at, &self.gtid_start) {
                (At::Gtid(gtid), Some(start)) => start.contains_gtid(gtid),
                _ => false,
            };
            return Ok(if before { Fate::Known } else { Fate::Fresh { skip: 0 } });
        };
        let order = match (&mark.at, &position.point) {
            (At::Gtid(gtid), Point::MysqlGtid(set)) if mark.lineage == position.lineage => {
                if set.contains_gtid(gtid) { Order::Less } else { Order::Greater }
            }
            (at, _) => {
                let point = at.point().unwrap_or_else(|| Point::MysqlGtid(GtidSet::new()));
                let next = Position { lineage: mark.lineage.clone(), point, sub: 0 };
                match other_table(position, &next) {
                    Some(true) if self.old_tables => return Err(unknown_table()),
                    Some(false) => self.old_tables = false,
                    _ => {}
                }
                self.tables.compare(position, &next)
            }
        };
        match order {
            Order::Greater => Ok(Fate::Fresh { skip: std::mem::take(&mut self.skip) }),
            Order::Less | Order::Equal => Ok(Fate::Known),
            Order::Incomparable => Err(What::Incomparable {
                last: position.canonical_text(),
                next: mark.at.text(),
                why: "another lineage, or a snapshot that is not done; a stream that starts over needs another \
                      pipeline or prefix",
            }),
        }
    }

    fn advance(&mut self, mark: Mark) -> Result<(), What> {
        self.old_tables = false;
        let Mark { lineage, at } = mark;
        let point = match at.point() {
            Some(point) => point,
            None => {
                self.accumulate(&lineage, &at)?;
                return Ok(());
            }
        };
        let position = Position { lineage, point, sub: 0 };
        self.tables.observe(&position);
        self.position = Some(position);
        Ok(())
    }

    /// Adds one GTID to the set that was read, which begins with the configured one.
    fn accumulate(&mut self, lineage: &crate::model::position::Lineage, at: &At) -> Result<(), What> {
        let At::Gtid(gtid) = at else { return Ok(()) };
        if let Some(Position { point: Point::MysqlGtid(set), lineage: same, .. }) = &mut self.position
            && same == lineage
        {
            set.insert(gtid);
            return Ok(());
        }
        let Some(mut set) = self.gtid_start.clone() else {
            return Err(What::NotConfigured {
                key: "source.gtid_start",
                field: "a set",
                why: "an event names its own transaction only; the sets of a new stream begin with those that the \
                      server had executed before, or with \"\"",
            });
        };
        set.insert(gtid);
        self.position = Some(Position { lineage: lineage.clone(), point: Point::MysqlGtid(set), sub: 0 });
        Ok(())
    }
}

/// Of two rows of a running snapshot: whether they are of two tables.
fn other_table(here: &Position, there: &Position) -> Option<bool> {
    let (Point::Snapshot(here), Point::Snapshot(there)) = (&here.point, &there.point) else { return None };
    let running = here.phase == SnapshotPhase::Running && there.phase == SnapshotPhase::Running;
    running.then_some((&here.namespace, &here.table) != (&there.namespace, &there.table))
}

/// A snapshot that goes on in another table than it stopped in: whether that one was read before, only the
/// declared order tells.
fn unknown_table() -> What {
    What::NotConfigured {
        key: "source.snapshot_tables",
        field: "the order of tables",
        why: "the snapshot goes on in another table than it stopped in, and that one may be durable already",
    }
}

impl Open {
    fn emit(&mut self, change: Change, out: &mut Vec<Step>) {
        let index = self.events;
        match (self.fate, &self.mark) {
            (Fate::Fresh { skip }, Some(mark)) if index >= skip => {
                out.push(Step::Row(Row::new(change, &mark.at, index)));
            }
            (Fate::Waits, _) | (_, None) => {
                self.held.push(change);
                return;
            }
            _ => out.push(Step::Trimmed),
        }
        self.events += 1;
    }
}

#[cfg(test)]
mod tests;
