//! What a stream costs over its lifetime: requests, bytes and time of a recovery, and the space that it takes, of
//! entries alone, rolled up, with entries expired, compacted, and with originals deleted.
//!
//! The real sink and all its actors run on a store in memory that counts requests: no network is in the times.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_ci::clock;
use bytes::Bytes;
use clap::Parser;
use serde::Serialize;
use sinks::env::{Clock, Env, Ids};
use sinks::format::{Encoding, row_seq_digest};
use sinks::model::head::{Head, Intent};
use sinks::model::ids::{Digest, Nonce};
use sinks::model::key::PipelineRoot;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::plan::{compact, gc, originals, rollup};
use sinks::run;
use sinks::run::gc::Memory;
use sinks::run::patience::Patience;
use sinks::run::recover::{Depth, Recovered, recover};
use sinks::sink::{Batch, EncodedObject, Settings, Sink, Ticket};
use sinks::store::{Condition, ETag, MemoryStore, Object, ObjectMeta, Outcome, Page, Pending, Store};

/// Entries between two rollups: the default.
const ROLLUP_EVERY: u64 = 256;

/// Batches that one swap commits at most.
const GROUP: usize = 64;

/// Compares what recovery and space cost over a stream's lifetime.
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 done, 2 usage, 4 own fault.")]
struct Options {
    /// Entries of the stream, each with one object; each value is a part of the table
    #[arg(long, value_delimiter = ',', default_value = "10000,100000")]
    entries: Vec<u64>,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
}

type Fault = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let mut lines = Vec::new();
    for &entries in &options.entries {
        let measured = match &runtime {
            Ok(runtime) => runtime.block_on(lifetime(entries)),
            Err(error) => Err(error.to_string().into()),
        };
        match measured {
            Ok(measured) => lines.extend(measured),
            Err(error) => {
                eprintln!("assay-lifetime: {error}");
                return ExitCode::from(4);
            }
        }
    }
    if options.json {
        println!("{}", serde_json::json!({ "lines": lines }));
    } else {
        print!("{}", table(&lines));
    }
    ExitCode::SUCCESS
}

/// A stream in one of its states.
#[derive(Clone, Debug, Serialize)]
struct Line {
    entries: u64,
    state: &'static str,
    /// Of one recovery that verifies every object's presence.
    requests: u64,
    read_bytes: u64,
    time_ms: u64,
    inventories: u64,
    /// In the bucket: data objects, entries that are retained, everything, and its bytes.
    data_objects: u64,
    entry_objects: u64,
    all_objects: u64,
    bytes: u64,
    /// Requests of one round of the actors that finds nothing to do, where it was measured.
    round_requests: Option<u64>,
}

fn table(lines: &[Line]) -> String {
    let mut out = String::from(
        "entries  state               requests  read MiB       ms     data  retained      all  space MiB  round\n",
    );
    let mib = |bytes: u64| {
        let hundredths = bytes * 100 / (1 << 20);
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    };
    for line in lines {
        out.push_str(&format!(
            "{:>7}  {:<18} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8} {:>10} {:>6}\n",
            line.entries,
            line.state,
            line.requests,
            mib(line.read_bytes),
            line.time_ms,
            line.data_objects,
            line.entry_objects,
            line.all_objects,
            mib(line.bytes),
            line.round_requests.map_or_else(|| "-".to_owned(), |requests| requests.to_string())
        ));
    }
    out
}

#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    fn now_ms(&self) -> u64 {
        let ms = clock::wall()().unix_timestamp_nanos() / 1_000_000;
        u64::try_from(ms).unwrap_or(0)
    }
}

/// A bucket that counts.
#[derive(Debug)]
struct Counting {
    inner: MemoryStore,
    requests: AtomicU64,
    read_bytes: AtomicU64,
}

impl Counting {
    fn new() -> Self {
        let inner = MemoryStore::new(Arc::new(Wall));
        Self { inner, requests: AtomicU64::new(0), read_bytes: AtomicU64::new(0) }
    }

    fn one(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests and bytes read since it was last asked.
    fn take(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.read_bytes.swap(0, Ordering::Relaxed))
    }
}

impl Store for Counting {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.one();
        self.inner.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.one();
        Box::pin(async move {
            let answer = self.inner.get(key).await;
            if let Outcome::Done(object) = &answer {
                self.read_bytes.fetch_add(object.bytes.len() as u64, Ordering::Relaxed);
            }
            answer
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.one();
        self.inner.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.one();
        self.inner.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.one();
        self.inner.list(prefix, token, limit)
    }
}

/// Batch `n`: two rows of one table.
fn batch(n: u64) -> Result<Batch, Fault> {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1)?;
    let position = Position::parse(PositionType::PgLsn, lineage, &format!("0/{n:X}"), 0)?;
    let rows: Vec<String> = (0..2)
        .map(|row| {
            format!("{{\"op\":\"c\",\"after\":{{\"id\":{},\"note\":\"order {n}, row {row}\"}}}}", 2 * n + row)
        })
        .collect();
    let object = EncodedObject {
        namespace: "public".to_owned(),
        table: "orders".to_owned(),
        bytes: Bytes::from(rows.iter().map(|row| format!("{row}\n")).collect::<String>()),
        rows: rows.len() as u64,
        format: "jsonl",
        compression: "none",
        extension: "jsonl",
        schema_fingerprint: Digest::of(b"id note"),
        row_seq_digest: row_seq_digest(rows.iter().map(|row| row.as_bytes())),
    };
    Ok(Batch { position, objects: vec![object], events: 2, min_ts_ms: None, max_ts_ms: None })
}

/// One stream, measured in each state.
struct Measured {
    env: Env,
    store: Arc<Counting>,
    root: PipelineRoot,
    entries: u64,
    lines: Vec<Line>,
}

/// The lines of a stream of so many entries.
async fn lifetime(entries: u64) -> Result<Vec<Line>, Fault> {
    let store = Arc::new(Counting::new());
    let env = Env { store: store.clone(), clock: Arc::new(Wall), ids: Arc::new(Ids::seeded(entries)) };
    let root = PipelineRoot::new("p", "orders", "jsonl")?;
    let settings = Settings {
        group_commit_max_batches: GROUP,
        queue_batches: 2 * GROUP,
        ..Settings::new(root.clone(), "orders", "p", "lifetime")
    };
    let sink = Sink::start(env.clone(), settings).await?;
    let mut measured = Measured { env, store, root, entries, lines: Vec::new() };
    publish(&sink, 1, entries - 1).await?;
    measured.alone().await?;
    measured.line("rolled up").await?;
    let collecting = gc::Policy { safety_window_ms: 0, max_clock_skew_ms: 60_000 };
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    run::gc::mark(&keeper, &collecting, &mut memory).await?;
    run::gc::expire(&keeper, &collecting, &mut memory).await?;
    measured.line("entries expired").await?;
    let encoding = Encoding::named("jsonl", "none")?;
    let policy = compact::Policy::new(encoding);
    run::compact::run(&keeper, &policy).await?;
    // The next rollup folds the records.
    publish(&sink, entries, entries).await?;
    run::rollup::run(&keeper, &rollup::Policy { every_entries: 1, ..rollup::Policy::default() }).await?;
    measured.line("compacted").await?;
    let at_once = originals::Policy { retention_ms: 0, max_clock_skew_ms: 0 };
    // The store tells whole seconds: in its own, a record has no age, and its originals are retained.
    let retained = |kept: &originals::Kept| kept.reason == originals::Stay::Retained;
    while run::originals::run(&keeper, &at_once).await?.kept.iter().any(retained) {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    measured.line("originals deleted").await?;
    // The first still finds work, and what it verified the next one knows.
    for _ in 0..2 {
        measured.store.take();
        run::rollup::run(&keeper, &rollup::Policy::default()).await?;
        run::gc::mark(&keeper, &collecting, &mut memory).await?;
        run::gc::expire(&keeper, &collecting, &mut memory).await?;
        run::compact::run(&keeper, &policy).await?;
        run::originals::run(&keeper, &at_once).await?;
    }
    let (requests, _) = measured.store.take();
    measured.lines.last_mut().ok_or("nothing was measured")?.round_requests = Some(requests);
    sink.close().await?;
    Ok(measured.lines)
}

/// Publishes batches, many at once, and rolls up when it is due.
async fn publish(sink: &Sink, from: u64, upto: u64) -> Result<(), Fault> {
    let keeper = sink.keeper();
    let mut waiting: VecDeque<Ticket> = VecDeque::new();
    for n in from..=upto {
        waiting.push_back(sink.submit(batch(n)?).await?);
        if n % ROLLUP_EVERY == 0 || n == upto {
            while let Some(mut ticket) = waiting.pop_front() {
                ticket.acknowledged().await?;
            }
            run::rollup::run(&keeper, &rollup::Policy::default()).await?;
        }
    }
    Ok(())
}

impl Measured {
    /// The same stream as if nothing had ever been rolled up.
    async fn alone(&mut self) -> Result<(), Fault> {
        let key = self.root.head();
        let Outcome::Done(object) = self.store.inner.get(&key).await else {
            return Err("there is no HEAD".into());
        };
        let head = Head::decode(&object.bytes)?;
        let mut alone = head.successor(Nonce::from_bytes([9; 16]), Intent::Rollup, 0);
        (alone.rollup, alone.prev_rollup) = (None, None);
        self.store.inner.put(&key, alone.encode(), Condition::None, &[]).await;
        let measured = self.line("entries alone").await;
        self.store.inner.put(&key, object.bytes, Condition::None, &[]).await;
        measured
    }

    async fn line(&mut self, state: &'static str) -> Result<(), Fault> {
        self.store.take();
        let begun = clock::now();
        let found: Option<Recovered> =
            recover(&self.env, &self.root, Depth::Objects, &Patience::limited(60_000)).await?;
        let time_ms = u64::try_from(begun.elapsed().as_millis())?;
        let (requests, read_bytes) = self.store.take();
        let found = found.ok_or("there is no stream")?;
        let mut line = Line {
            entries: self.entries,
            state,
            requests,
            read_bytes,
            time_ms,
            inventories: found.rollup.as_ref().map_or(0, |rollup| rollup.inventories.len() as u64),
            data_objects: 0,
            entry_objects: 0,
            all_objects: 0,
            bytes: 0,
            round_requests: None,
        };
        let rows: u64 = found.live().iter().map(|object| object.rows).sum();
        if rows != 2 * found.view.head.seq {
            return Err(format!("{rows} rows of {} are live", 2 * found.view.head.seq).into());
        }
        let mut token = None;
        loop {
            let page = self.store.inner.list(&self.root.listing(), token.as_deref(), 1000).await;
            let Outcome::Done(page) = page else { return Err("the bucket can't be listed".into()) };
            for object in &page.objects {
                line.all_objects += 1;
                line.bytes += object.size;
                line.data_objects += u64::from(!object.key.starts_with(&self.root.manifest()));
                line.entry_objects += u64::from(object.key.starts_with(&self.root.entries()));
            }
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        self.lines.push(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_of_ten_thousand_entries_is_bounded_and_space_is_given_back() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let lines = runtime.block_on(lifetime(10_000)).unwrap();
        let of = |state: &str| lines.iter().find(|line| line.state == state).cloned().unwrap();
        assert!(of("entries alone").requests > 10_000);
        for state in ["rolled up", "entries expired", "compacted", "originals deleted"] {
            let line = of(state);
            // HEAD, two rollups, the last entry and a record; what no two rollups cover; pages of listings.
            let pages = line.all_objects.div_ceil(1000);
            let most = 5 + line.inventories + 2 * ROLLUP_EVERY + 2 * pages;
            assert!(line.requests <= most, "{} requests, at most {most}: {line:?}", line.requests);
            assert!(line.inventories <= 32, "{line:?}");
        }
        assert_eq!((of("rolled up").entry_objects, of("rolled up").data_objects), (9_999, 9_999));
        assert!(of("entries expired").entry_objects <= 2 * ROLLUP_EVERY);
        let last = of("originals deleted");
        assert!(last.round_requests.is_some_and(|requests| requests <= 24), "{last:?}");
        assert!(last.data_objects <= 16 && last.all_objects < 1_000, "{last:?}");
        assert!(last.bytes < of("rolled up").bytes);
        assert_eq!(table(&lines).lines().count(), 6);
    }
}
