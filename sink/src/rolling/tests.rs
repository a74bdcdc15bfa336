use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::*;
use crate::env::{Clock, Ids};
use crate::local::MemoryCheckpoints;
use crate::model::position::{Lineage, PositionType};
use crate::sink::EncodedObject;
use crate::store::{MemoryStore, Store as _};

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Scene {
    store: Arc<MemoryStore>,
    checkpoints: Arc<MemoryCheckpoints>,
    env: Env,
    metrics: Metrics,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(Hand::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let env = Env { store: store.clone(), clock, ids: Arc::new(Ids::seeded(7)) };
        let metrics = Metrics::new("orders", "s3");
        Self { store, checkpoints: Arc::default(), env, metrics }
    }

    async fn open(&self, max_bytes: u64) -> Rolling {
        let settings = Settings {
            prefix: "lake".to_owned(),
            max_bytes,
            max_age_ms: 1_000,
            part_bytes: 5 << 20,
            patience_ms: 1_000,
            metrics: self.metrics.clone(),
        };
        let checkpoints: Arc<dyn Checkpoints> = self.checkpoints.clone();
        Rolling::open(self.env.clone(), self.store.clone(), settings, checkpoints).await.unwrap()
    }

    async fn files(&self) -> Vec<(String, Bytes)> {
        let mut files = Vec::new();
        for key in self.store.keys() {
            let crate::store::Outcome::Done(object) = self.store.get(&key).await else { panic!("{key}") };
            files.push((key, object.bytes));
        }
        files
    }
}

fn batch(n: u64, table: &str, bytes: usize) -> Batch {
    let lineage = Lineage::new("shop", "7301/1", 1).unwrap();
    let text =
        format!("{}\n", char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string().repeat(bytes - 1));
    Batch {
        position: Position::parse(PositionType::PgLsn, lineage, &format!("0/{n:X}"), 0).unwrap(),
        objects: vec![EncodedObject {
            namespace: "public".to_owned(),
            table: table.to_owned(),
            bytes: Bytes::from(text),
            rows: 1,
            format: "jsonl",
            compression: "none",
            extension: "jsonl",
            schema_fingerprint: Digest::of(b"columns"),
            row_seq_digest: Digest::of(b"rows"),
        }],
        events: 1,
        min_ts_ms: None,
        max_ts_ms: None,
    }
}

#[tokio::test(start_paused = true)]
async fn rows_are_acknowledged_before_their_file_is_there() {
    let scene = Scene::new();
    let mut sink = scene.open(1 << 20).await;
    assert_eq!(scene.metrics.non_durable_ack_mode.get(), 1);
    assert_eq!(sink.resume().unwrap(), None);
    for n in 1..=3 {
        sink.accept(batch(n, "orders", 10)).await.unwrap();
        sink.roll_due(Instant::now()).await.unwrap();
    }
    assert_eq!(scene.files().await, []);
    assert_eq!(sink.status().unrolled_rows, 3);
    let record = scene.checkpoints.load().await.unwrap();
    assert_eq!((record.mode, record.acked.unwrap().position.text), (Mode::LegacyRolling, "0/3".to_owned()));
    // A crash: the rows are gone, and the source goes on behind them.
    drop(sink);
    let mut sink = scene.open(1 << 20).await;
    assert_eq!(sink.resume().unwrap().unwrap().canonical_text(), "0/3");
    sink.accept(batch(4, "orders", 10)).await.unwrap();
    sink.close().await.unwrap();
    let files = scene.files().await;
    let [(key, bytes)] = &files[..] else { panic!("{files:?}") };
    assert!(key.starts_with("lake/table=public.orders/year=1970/month=01/day=01/"), "{key}");
    assert_eq!(bytes.as_ref(), b"eeeeeeeee\n");
    assert_eq!((scene.metrics.unrolled_rows.get(), scene.metrics.rolled_files_total.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn files_roll_by_size_and_by_age() {
    let scene = Scene::new();
    let mut sink = scene.open(25).await;
    for n in 1..=3 {
        sink.accept(batch(n, "orders", 10)).await.unwrap();
        sink.roll_due(Instant::now()).await.unwrap();
    }
    sink.accept(batch(4, "items", 10)).await.unwrap();
    let files = scene.files().await;
    assert_eq!(files.len(), 1, "three rows have 30 bytes");
    assert_eq!(files[0].1.as_ref(), b"bbbbbbbbb\nccccccccc\nddddddddd\n");
    let due = sink.due().unwrap();
    assert_eq!(due - Instant::now(), Duration::from_millis(1_000));
    sink.roll_due(due - Duration::from_millis(1)).await.unwrap();
    assert_eq!(scene.files().await.len(), 1);
    sink.roll_due(due).await.unwrap();
    assert_eq!((scene.files().await.len(), sink.due()), (2, None));
}

#[tokio::test(start_paused = true)]
async fn large_files_go_in_parts_and_stay_in_order() {
    let scene = Scene::new();
    let mut sink = scene.open(1 << 30).await;
    let mut expected = Vec::new();
    for n in 1..=4 {
        let batch = batch(n, "orders", 3 << 20);
        expected.extend_from_slice(&batch.objects[0].bytes);
        sink.accept(batch).await.unwrap();
        sink.roll_due(Instant::now()).await.unwrap();
    }
    assert_eq!(scene.files().await, []);
    sink.close().await.unwrap();
    let files = scene.files().await;
    assert!(files.len() == 1 && files[0].1 == expected, "{} files", files.len());
}

#[tokio::test]
async fn members_behind_each_other_are_one_stream() {
    use crate::events::transaction::Row;
    use crate::format::{Encoding, encode, for_each_row};
    for encoding in [Encoding::Jsonl, Encoding::JsonlGzip, Encoding::JsonlZstd] {
        let row = |text: &str| Row {
            namespace: "public".to_owned(),
            table: "orders".to_owned(),
            bytes: text.as_bytes().to_vec(),
            ts_ms: None,
            columns: None,
        };
        let mut bytes = encode(&[row("{\"a\":1}")], encoding).bytes.to_vec();
        bytes.extend_from_slice(&encode(&[row("{\"a\":2}")], encoding).bytes);
        let mut rows = Vec::new();
        let keep = |row: &[u8]| {
            rows.push(row.to_vec());
            Ok::<_, crate::format::DecodeError>(())
        };
        for_each_row(encoding, &bytes, keep).unwrap();
        assert_eq!(rows, [b"{\"a\":1}".to_vec(), b"{\"a\":2}".to_vec()], "{encoding:?}");
    }
}
