//! Where one position lies, seen from another.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::snapshot::SnapshotPhase;
use super::{Point, Position, PositionError, SnapshotPoint};

/// Where the next position lies, seen from the one before it. Not every two positions can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The next one is ahead.
    Greater,
    /// The same position.
    Equal,
    /// The next one is behind.
    Less,
    /// Neither is ahead: GTID sets that each have something of their own, another lineage, another server.
    Incomparable,
}

impl Order {
    pub(super) fn of<T: Ord>(previous: T, next: T) -> Self {
        match next.cmp(&previous) {
            Ordering::Greater => Self::Greater,
            Ordering::Equal => Self::Equal,
            Ordering::Less => Self::Less,
        }
    }

    /// Seen from the other side.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Greater => Self::Less,
            Self::Less => Self::Greater,
            same => same,
        }
    }
}

impl Position {
    /// Where `next` is, seen from here.
    ///
    /// GTID sets are ordered by inclusion, LSNs by number, binlog coordinates by the file's number and the
    /// offset, a snapshot by phase and then within its table; at one point the transaction of which more
    /// events are included (`sub`) is ahead. Another lineage can't be compared, with one exception: a stream
    /// of the same source and generation follows a snapshot that is done. It does not follow one that runs.
    ///
    /// Two tables of a running snapshot are incomparable here: a publisher compares with
    /// [`TableOrder::compare`], which knows how tables follow each other.
    #[must_use]
    pub fn compare(&self, next: &Self) -> Order {
        if self.lineage != next.lineage || self.position_type() != next.position_type() {
            return self.hand_over(next);
        }
        let points = match (&self.point, &next.point) {
            (Point::MysqlGtid(here), Point::MysqlGtid(there)) => here.compare(there),
            (Point::MysqlBinlog(here), Point::MysqlBinlog(there)) => here.compare(there),
            (Point::PgLsn(here), Point::PgLsn(there)) => Order::of(here, there),
            (Point::Snapshot(here), Point::Snapshot(there)) => here.compare(there),
            _ => Order::Incomparable,
        };
        if points == Order::Equal { Order::of(self.sub, next.sub) } else { points }
    }

    /// From a snapshot that is done to a stream of the same source.
    fn hand_over(&self, next: &Self) -> Order {
        let one_source = self.lineage.source_id() == next.lineage.source_id()
            && self.lineage.generation() == next.lineage.generation();
        match (&self.point, &next.point) {
            (Point::Snapshot(_), Point::Snapshot(_)) => Order::Incomparable,
            (Point::Snapshot(done), _) if one_source && done.phase == SnapshotPhase::Done => Order::Greater,
            (_, Point::Snapshot(done)) if one_source && done.phase == SnapshotPhase::Done => Order::Less,
            _ => Order::Incomparable,
        }
    }
}

/// Namespace and table.
type Table = (String, String);

/// How the tables of a snapshot follow each other: in the order of a list, or in any order with each table at
/// most once a run. In the second case it remembers the tables that it was shown by [`TableOrder::observe`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOrder {
    declared: Option<Vec<Table>>,
    /// Run that `left` belongs to: source, scope and generation.
    run: Option<super::Lineage>,
    /// Tables of this run that are over.
    left: BTreeSet<Table>,
    /// The table being read.
    current: Option<Table>,
}

impl TableOrder {
    /// In any order, each table at most once a run.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// In the order of `tables` (namespace and table), from configuration or a run's first event. A table that
    /// is not in the list can't be compared.
    ///
    /// # Errors
    /// [`PositionError::TableTwice`].
    pub fn declared(tables: Vec<(String, String)>) -> Result<Self, PositionError> {
        let mut seen = BTreeSet::new();
        if let Some((namespace, table)) = tables.iter().find(|table| !seen.insert(*table)) {
            return Err(PositionError::TableTwice { table: format!("{namespace}.{table}") });
        }
        Ok(Self { declared: Some(tables), ..Self::default() })
    }

    /// Takes note of a committed position, in order of commits; after a restart, of those that recovery
    /// found. Another run starts with no table read.
    pub fn observe(&mut self, committed: &Position) {
        let Point::Snapshot(point) = &committed.point else { return };
        if self.run.as_ref() != Some(&committed.lineage) {
            self.run = Some(committed.lineage.clone());
            self.left.clear();
            self.current = None;
        }
        let is_current = self.current.as_ref().is_some_and(|table| table_is(table, point));
        if point.phase == SnapshotPhase::Running && !is_current {
            let table = (point.namespace.clone(), point.table.clone());
            self.left.extend(self.current.replace(table));
        }
    }

    /// [`Position::compare`], where two tables of one running snapshot can be compared as well.
    #[must_use]
    pub fn compare(&self, previous: &Position, next: &Position) -> Order {
        match (&previous.point, &next.point) {
            (Point::Snapshot(here), Point::Snapshot(there))
                if previous.lineage == next.lineage
                    && here.phase == SnapshotPhase::Running
                    && there.phase == SnapshotPhase::Running
                    && !here.same_table(there) =>
            {
                self.compare_tables(&previous.lineage, here, there)
            }
            _ => previous.compare(next),
        }
    }

    fn compare_tables(&self, run: &super::Lineage, here: &SnapshotPoint, there: &SnapshotPoint) -> Order {
        if let Some(tables) = &self.declared {
            let place = |point| tables.iter().position(|table| table_is(table, point));
            return match (place(here), place(there)) {
                (Some(here), Some(there)) => Order::of(here, there),
                _ => Order::Incomparable,
            };
        }
        let over = self.run.as_ref() == Some(run) && self.left.iter().any(|table| table_is(table, there));
        if over { Order::Less } else { Order::Greater }
    }
}

fn table_is((namespace, table): &Table, point: &SnapshotPoint) -> bool {
    *table == point.table && *namespace == point.namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::position::{Lineage, PositionType};

    fn position(position_type: PositionType, scope: &str, text: &str, sub: u64) -> Position {
        Position::parse(position_type, Lineage::new("shop", scope, 1).unwrap(), text, sub).unwrap()
    }

    fn snapshot(run: &str, phase: &str, table: &str, chunk: u64, offset: u64) -> Position {
        let text = format!(
            r#"{{"phase":"{phase}","namespace":"public","table":"{table}","chunk":{chunk},"offset":{offset},"cursor":""}}"#
        );
        position(PositionType::Snapshot, run, &text, 0)
    }

    #[track_caller]
    fn check(previous: &Position, next: &Position, expected: Order) {
        assert_eq!(previous.compare(next), expected, "{previous:?} -> {next:?}");
        assert_eq!(next.compare(previous), expected.reversed(), "{next:?} -> {previous:?}");
    }

    #[test]
    fn binlog_files_follow_each_other_by_number() {
        let at = |text| position(PositionType::MysqlBinlog, "server", text, 0);
        for (previous, next, expected) in [
            ("mysql-bin.000042:4", "mysql-bin.000042:5", Order::Greater),
            ("mysql-bin.000042:900", "mysql-bin.000043:4", Order::Greater),
            ("mysql-bin.999999:900", "mysql-bin.1000000:4", Order::Greater),
            ("mysql-bin.000009:900", "mysql-bin.000010:4", Order::Greater),
            ("b.18446744073709551615:1", "b.18446744073709551616:0", Order::Greater),
            ("mysql-bin.000042:4", "mysql-bin.000042:4", Order::Equal),
            ("mysql-bin.000042:4", "mysql-bin.42:5", Order::Incomparable),
            ("mysql-bin.000042:4", "mysql-bin.43:4", Order::Greater),
            ("mysql-bin.000042:4", "binlog.000043:4", Order::Incomparable),
        ] {
            check(&at(previous), &at(next), expected);
        }
    }

    #[test]
    fn lsns_are_ordered_by_number_within_their_timeline() {
        let at = |scope, text, sub| position(PositionType::PgLsn, scope, text, sub);
        check(&at("7/1", "9/0", 0), &at("7/1", "10/0", 0), Order::Greater);
        check(&at("7/1", "0/FFFFFFFF", 9), &at("7/1", "1/0", 0), Order::Greater);
        check(&at("7/1", "1/0", 0), &at("7/1", "1/0", 1), Order::Greater);
        check(&at("7/1", "1/0", 0), &at("7/2", "2/0", 0), Order::Incomparable);
    }

    #[test]
    fn only_a_snapshot_that_is_done_is_followed_by_a_stream() {
        let stream = position(PositionType::PgLsn, "7/1", "16/B374D848", 0);
        check(&snapshot("r", "done", "orders", 3, 0), &stream, Order::Greater);
        check(&snapshot("r", "running", "orders", 3, 0), &stream, Order::Incomparable);
        for (source, generation) in [("shop", 2), ("shed", 1)] {
            let mut other = stream.clone();
            other.lineage = Lineage::new(source, "7/1", generation).unwrap();
            check(&snapshot("r", "done", "orders", 3, 0), &other, Order::Incomparable);
        }
        let coordinate = position(PositionType::MysqlBinlog, "server", "mysql-bin.000042:4", 0);
        check(&stream, &coordinate, Order::Incomparable);
    }

    #[test]
    fn a_snapshot_goes_by_phase_then_chunk_then_row() {
        let at = |phase, chunk, offset| snapshot("r", phase, "orders", chunk, offset);
        check(&at("running", 1, 900), &at("running", 2, 0), Order::Greater);
        check(&at("running", 2, 0), &at("running", 2, 1), Order::Greater);
        check(&at("running", 9, 9), &at("done", 0, 0), Order::Greater);
        check(&at("done", 1, 0), &at("done", 2, 0), Order::Incomparable);
        check(&at("running", 1, 0), &snapshot("s", "running", "orders", 2, 0), Order::Incomparable);
        let mut other_cursor = at("running", 1, 0);
        if let Point::Snapshot(point) = &mut other_cursor.point {
            point.cursor.push('x');
        }
        check(&at("running", 1, 0), &other_cursor, Order::Incomparable);
        let mut other_namespace = at("running", 2, 0);
        if let Point::Snapshot(point) = &mut other_namespace.point {
            point.namespace.push('x');
        }
        check(&at("running", 1, 0), &other_namespace, Order::Incomparable);
    }

    #[test]
    fn tables_follow_their_declared_list() {
        let at = |table| snapshot("r", "running", table, 1, 0);
        let list = ["users", "orders"].map(|table| ("public".to_owned(), table.to_owned()));
        let mut order = TableOrder::declared(list.to_vec()).unwrap();
        check(&at("users"), &at("orders"), Order::Incomparable);
        order.observe(&at("users"));
        assert_eq!(order.compare(&at("users"), &at("orders")), Order::Greater);
        assert_eq!(order.compare(&at("orders"), &at("users")), Order::Less);
        assert_eq!(order.compare(&at("users"), &at("audit")), Order::Incomparable);
        assert_eq!(order.compare(&at("users"), &snapshot("r", "running", "users", 2, 0)), Order::Greater);
        assert_eq!(order.compare(&at("users"), &snapshot("r", "done", "", 0, 0)), Order::Greater);
        assert_eq!(
            TableOrder::declared([list[0].clone(), list[0].clone()].to_vec()),
            Err(PositionError::TableTwice { table: "public.users".to_owned() })
        );
    }

    #[test]
    fn without_a_list_each_table_comes_once_a_run() {
        let at = |run, table, chunk| snapshot(run, "running", table, chunk, 0);
        let mut order = TableOrder::any();
        for (table, chunk) in [("orders", 1), ("orders", 2), ("users", 1)] {
            order.observe(&at("r", table, chunk));
        }
        let now = at("r", "users", 1);
        assert_eq!(order.compare(&now, &at("r", "users", 2)), Order::Greater);
        assert_eq!(order.compare(&now, &at("r", "audit", 1)), Order::Greater);
        assert_eq!(order.compare(&now, &at("r", "orders", 3)), Order::Less);
        // A batch that was refused changes nothing; another run reads every table anew.
        assert_eq!(order.compare(&now, &at("s", "orders", 1)), Order::Incomparable);
        order.observe(&at("s", "users", 1));
        assert_eq!(order.compare(&at("s", "users", 1), &at("s", "orders", 1)), Order::Greater);
    }
}
