use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::{Config, Source};
use crate::events::envelope::Decoder;
use crate::model::position::Order;

const LIMITS: BatchLimits = BatchLimits {
    max_transactions: 2,
    max_rows: 100,
    max_bytes: 1 << 20,
    max_age_ms: 1000,
    respect_source_tx: true,
};

fn source() -> Source {
    let yaml = "source: {id: shop, position: pg-lsn, system_identifier: 7301, timeline: 1}\n\
                sinks: [{type: s3, bucket: b}]\n";
    Config::read(yaml, |_| None).unwrap().source
}

struct Feed {
    decoder: Decoder,
    batcher: Batcher,
    line: u64,
    now: Instant,
}

impl Feed {
    #[expect(clippy::disallowed_methods, reason = "a test owns its clock")]
    fn of(source: &Source, limits: BatchLimits, resume: Option<Position>) -> Self {
        let transactions = Transactions::new(source, resume.clone());
        Self {
            decoder: Decoder::new(source, resume.as_ref()),
            batcher: Batcher::new(transactions, limits, Encoding::Jsonl),
            line: 0,
            now: Instant::from_std(std::time::Instant::now()),
        }
    }

    fn new(limits: BatchLimits, resume: Option<Position>) -> Self {
        Self::of(&source(), limits, resume)
    }

    /// One change of transaction `lsn`; returns the batch, if it is full with it.
    fn change(&mut self, lsn: &str, id: u64, end: bool) -> Option<Batch> {
        self.line += 1;
        let line = format!(
            r#"{{"op":"c","after":{{"id":{id}}},"tx_end":{end},"ts_ms":{id},
                "source":{{"namespace":"public","table":"t{}","position":"{lsn}"}}}}"#,
            id % 2
        );
        let line = self.decoder.read(self.line, line.as_bytes()).unwrap();
        self.batcher.push(self.line, line, self.now).unwrap();
        self.batcher.full()
    }
}

/// Position, `sub`, and rows of each table.
fn shape(batch: &Batch) -> (String, u64, BTreeMap<&str, u64>) {
    let tables = batch.objects.iter().map(|object| (object.table.as_str(), object.rows)).collect();
    (batch.position.canonical_text(), batch.position.sub, tables)
}

#[test]
fn a_batch_is_full_of_transactions() {
    let mut feed = Feed::new(LIMITS, None);
    assert_eq!(feed.change("0/10", 1, false), None);
    assert_eq!(feed.change("0/10", 2, true), None);
    let batch = feed.change("0/20", 3, true).unwrap();
    assert_eq!(shape(&batch), ("0/20".to_owned(), 0, BTreeMap::from([("t0", 1), ("t1", 2)])));
    assert_eq!((batch.events, batch.min_ts_ms, batch.max_ts_ms), (3, Some(1), Some(3)));
    assert_eq!(feed.batcher.take(), None);
}

#[test]
fn a_transaction_is_whole_whatever_its_size() {
    let mut feed = Feed::new(BatchLimits { max_rows: 2, ..LIMITS }, None);
    assert_eq!(feed.change("0/10", 1, false), None);
    assert_eq!(feed.change("0/10", 2, false), None);
    assert_eq!(feed.change("0/10", 3, false), None);
    assert_eq!(feed.batcher.deadline(), None, "nothing can be closed");
    assert_eq!(feed.batcher.take(), None);
    assert_eq!(feed.batcher.unfinished(), Some(1));
    let batch = feed.change("0/10", 4, true).unwrap();
    assert_eq!((batch.events, batch.position.sub), (4, 0));
    assert_eq!(feed.batcher.unfinished(), None);
}

#[test]
fn bytes_and_age_close_a_batch() {
    let mut feed = Feed::new(BatchLimits { max_bytes: 60, ..LIMITS }, None);
    assert!(feed.change("0/10", 1, true).is_some());
    let mut feed = Feed::new(LIMITS, None);
    assert_eq!(feed.batcher.deadline(), None);
    let first = feed.now;
    assert_eq!(feed.change("0/10", 1, true), None);
    feed.now += Duration::from_millis(300);
    assert_eq!(feed.change("0/20", 2, false), None);
    assert_eq!(feed.batcher.deadline(), Some(first + Duration::from_secs(1)), "of its first event");
    let batch = feed.batcher.take().unwrap();
    assert_eq!(shape(&batch), ("0/10".to_owned(), 0, BTreeMap::from([("t1", 1)])));
    assert_eq!(feed.change("0/20", 3, true), None);
    let batch = feed.batcher.take().unwrap();
    assert_eq!((batch.position.canonical_text(), batch.events), ("0/20".to_owned(), 2));
}

#[test]
fn transactions_without_rows_move_the_position_with_age() {
    let mut feed = Feed::new(LIMITS, None);
    let line = feed.decoder.read(1, br#"{"op":"commit","source":{"position":"0/10"}}"#).unwrap();
    feed.batcher.push(1, line, feed.now).unwrap();
    assert_eq!(feed.batcher.deadline(), Some(feed.now + Duration::from_secs(1)));
    let batch = feed.batcher.take().unwrap();
    assert_eq!(
        (batch.position.canonical_text(), batch.objects.len(), batch.events),
        ("0/10".to_owned(), 0, 0)
    );
    assert_eq!(feed.batcher.take(), None);
}

#[test]
fn a_split_transaction_counts_its_events() {
    let limits = BatchLimits { max_rows: 2, max_transactions: 100, respect_source_tx: false, ..LIMITS };
    let mut feed = Feed::new(limits, None);
    // The first transaction has no position before it, from which its events could be counted.
    assert_eq!(feed.change("0/10", 1, false), None);
    assert_eq!(feed.change("0/10", 2, false), None);
    let first = feed.change("0/10", 3, true).unwrap();
    assert_eq!((first.position.sub, first.events), (0, 3));
    assert_eq!(feed.change("0/20", 1, false), None);
    let split = feed.change("0/20", 2, false).unwrap();
    assert_eq!((shape(&split).0, shape(&split).1), ("0/10".to_owned(), 2));
    assert_eq!(feed.change("0/20", 3, false), None);
    let again = feed.change("0/20", 4, false).unwrap();
    assert_eq!((again.position.sub, again.events), (4, 2));
    assert_ne!(again.position.digest(), split.position.digest());

    // Restarted at the split: the source sends the whole transaction again, and two events of it are known.
    let mut feed = Feed::new(limits, Some(split.position));
    assert_eq!(feed.change("0/10", 3, true), None);
    assert_eq!(feed.change("0/20", 1, false), None);
    assert_eq!(feed.change("0/20", 2, false), None);
    assert_eq!(feed.change("0/20", 3, false), None);
    let replayed = feed.change("0/20", 4, false).unwrap();
    assert_eq!(replayed, again, "the same batch, to the byte");
}

#[test]
fn a_split_transaction_that_comes_again_goes_on_where_it_was_split() {
    let limits = BatchLimits { max_rows: 2, max_transactions: 100, respect_source_tx: false, ..LIMITS };
    let mut feed = Feed::new(limits, None);
    assert_eq!(feed.change("0/10", 1, true), None);
    assert_eq!(feed.batcher.take().unwrap().events, 1);
    assert_eq!(feed.change("0/20", 2, false), None);
    let split = feed.change("0/20", 3, false).unwrap();
    assert_eq!((split.position.sub, split.events), (2, 2));
    assert_eq!(feed.change("0/20", 4, false), None);
    // The source starts over: what was split off is known, what was only in memory comes again.
    for (place, id) in [("0/10", 1), ("0/20", 2), ("0/20", 3), ("0/20", 4)] {
        assert_eq!(feed.change(place, id, place == "0/10"), None);
    }
    let rest = feed.change("0/20", 5, true).unwrap();
    assert_eq!((rest.position.sub, rest.events), (0, 2));
}

#[test]
fn what_the_bucket_has_is_left_out_event_by_event() {
    let mut feed = Feed::new(LIMITS, None);
    feed.change("0/10", 1, true);
    let first = feed.change("0/20", 2, true).unwrap();
    let mut feed = Feed::new(LIMITS, Some(first.position));
    // The replayed batch would span the watermark: its head is known, its tail is not.
    assert_eq!(feed.change("0/20", 2, true), None);
    assert_eq!(feed.batcher.take(), None, "all of it is known");
    assert_eq!(feed.change("0/30", 3, true), None);
    let batch = feed.change("0/40", 4, true).unwrap();
    assert_eq!((batch.position.canonical_text(), batch.events), ("0/40".to_owned(), 2));
}

#[test]
fn a_table_without_a_key_stops_the_sink() {
    let mut feed = Feed::new(LIMITS, None);
    let line = format!(
        r#"{{"op":"c","after":{{}},"source":{{"namespace":"public","table":"{}","position":"0/1"}}}}"#,
        "t".repeat(194)
    );
    let line = feed.decoder.read(7, line.as_bytes()).unwrap();
    let error = feed.batcher.push(7, line, feed.now).unwrap_err();
    let oversize =
        matches!(&error, BatchError::Key { line: 7, error: KeyError::OversizeTableName { bytes: 201, .. } });
    assert!(oversize, "{error}");
}

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn gtids() -> Source {
    let yaml = "source: {id: shop, position: mysql-gtid, gtid_start: ''}\nsinks: [{type: s3, bucket: b}]\n";
    Config::read(yaml, |_| None).unwrap().source
}

/// A process's life: how batches are closed in it, and how many of them are committed before it dies.
fn life() -> impl Strategy<Value = (BatchLimits, usize)> {
    (1..4_u64, 1..6_u64, any::<bool>(), 0..4_usize).prop_map(
        |(max_transactions, max_rows, whole, committed)| {
            (BatchLimits { max_transactions, max_rows, respect_source_tx: whole, ..LIMITS }, committed)
        },
    )
}

/// Ids of rows, by table.
type Ids = BTreeMap<String, Vec<u64>>;

fn collect(batch: &Batch, into: &mut Ids) {
    for object in &batch.objects {
        let encoding = Encoding::named(object.format, object.compression).unwrap();
        let ids = into.entry(object.table.clone()).or_default();
        format::for_each_row(encoding, &object.bytes, |row| {
            let row: serde_json::Value = serde_json::from_slice(row).unwrap();
            ids.push(row["after"]["id"].as_u64().unwrap());
            Ok::<_, format::DecodeError>(())
        })
        .unwrap();
    }
}

/// Lives one after another, each of which reads the stream from its beginning; the last commits everything.
fn lives(source: &Source, place: impl Fn(usize) -> String, sizes: &[u64], lives: &[(BatchLimits, usize)]) {
    let (mut committed, mut position) = (Ids::new(), None);
    let endless = (LIMITS, usize::MAX);
    for (limits, most) in lives.iter().chain([&endless]) {
        let mut feed = Feed::of(source, *limits, position.clone());
        let (mut batches, mut id) = (Vec::new(), 0);
        for (number, size) in sizes.iter().enumerate() {
            for event in 1..=*size {
                id += 1;
                batches.extend(feed.change(&place(number), id, event == *size));
            }
        }
        batches.extend(feed.batcher.take());
        for batch in batches.into_iter().take(*most) {
            let order =
                position.as_ref().map_or(Order::Greater, |last: &Position| last.compare(&batch.position));
            assert_eq!(order, Order::Greater, "{:?}, then {:?}", position, batch.position);
            collect(&batch, &mut committed);
            position = Some(batch.position);
        }
    }
    let mut expected = Ids::new();
    for id in 1..=sizes.iter().sum() {
        expected.entry(format!("t{}", id % 2)).or_default().push(id);
    }
    assert_eq!(committed, expected);
}

proptest! {
    #[test]
    fn every_event_is_in_one_batch_whatever_dies(
        sizes in proptest::collection::vec(1..6_u64, 1..12),
        processes in proptest::collection::vec(life(), 0..5),
    ) {
        lives(&source(), |number| format!("0/{:X}", 16 * (number + 1)), &sizes, &processes);
        // Numbers that another server of the topology gave come in another order.
        lives(&gtids(), |number| format!("{UUID}:{}", (number ^ 1) + 1), &sizes, &processes);
    }
}
