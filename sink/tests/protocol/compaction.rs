//! Compaction, and the deletion of what it replaced: whatever happens on the way, every table keeps its rows, each
//! once and in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sinks::error::SinkError;
use sinks::format::{DecodeError, Encoding, for_each_row};
use sinks::local::MemoryCheckpoints;
use sinks::model::compaction::CompactionRecord;
use sinks::model::frame::{self, Kind};
use sinks::model::head::RecordRef;
use sinks::model::ids::Digest;
use sinks::model::json::Extra;
use sinks::plan::change::Change;
use sinks::plan::{compact as policy, originals as window, rollup as cadence};
use sinks::run::patience::Patience;
use sinks::run::recover::Depth;
use sinks::run::{compact, originals, recover, rollup};
use sinks::sink::{Keeper, Sink};
use sinks::stop::{StopReason, Stopped};
use sinks::store::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Store};
use tokio::time::{Duration, sleep};

use crate::calls::{Bend, BentStore, Calls};
use crate::world::{World, batch, paused, position, root, settings};

const POLICY: policy::Policy = policy::Policy { min_inputs: 3, ..policy::Policy::new(Encoding::JsonlZstd) };

/// At once: time stands still here.
const AT_ONCE: window::Policy = window::Policy { retention_ms: 0, max_clock_skew_ms: 0 };

const EACH: cadence::Policy = cadence::Policy { every_entries: 1, every_ms: 600_000 };

async fn started(world: &Arc<World>, store: Arc<dyn Store>) -> Result<Sink, SinkError> {
    Sink::start_on(world.env(store), settings(), world.checkpoints.clone()).await
}

async fn publish(sink: &Sink, numbers: impl IntoIterator<Item = u64>) -> Result<(), SinkError> {
    for n in numbers {
        sink.submit(batch(n)).await?.acknowledged().await?;
    }
    Ok(())
}

/// A stream of so many batches, and nothing else.
fn published(upto: u64) -> Arc<World> {
    let world = World::new();
    paused(async {
        let sink = started(&world, world.store.clone()).await.unwrap();
        publish(&sink, 1..=upto).await.unwrap();
        sink.close().await.unwrap();
    });
    world
}

/// Does something with the keeper of a sink on `store`.
fn with_keeper<T, F: Future<Output = T>>(
    world: &Arc<World>,
    store: Arc<dyn Store>,
    work: impl FnOnce(Keeper) -> F,
) -> T {
    paused(async {
        let sink = started(world, store).await.unwrap();
        work(sink.keeper()).await
    })
}

fn compacted(world: &Arc<World>) -> compact::Report {
    with_keeper(world, world.store.clone(), async |keeper| compact::run(&keeper, &POLICY).await.unwrap())
}

fn deleted(world: &Arc<World>) -> Result<originals::Report, Stopped> {
    with_keeper(world, world.store.clone(), async |keeper| originals::run(&keeper, &AT_ONCE).await)
}

/// Every table's rows, as a reader of the live view has them, once all of it is verified to the last byte.
fn rows(world: &Arc<World>) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let recovered = world.recovered().unwrap();
    for object in recovered.live() {
        let Outcome::Done(stored) = paused(world.store.get(&object.key)) else { panic!("{}", object.key) };
        let encoding = Encoding::named(&object.format, &object.compression).unwrap();
        let of_table = rows.entry(object.table).or_default();
        for_each_row(encoding, &stored.bytes, |row| {
            of_table.push(String::from_utf8(row.to_vec()).unwrap());
            Ok::<_, DecodeError>(())
        })
        .unwrap();
    }
    rows
}

fn keys(world: &World, part: &str) -> Vec<String> {
    world.store.keys().into_iter().filter(|key| key.contains(part)).collect()
}

fn records(world: &Arc<World>) -> u64 {
    world.recovered().unwrap().view.head.compaction.map_or(0, |of| of.count)
}

#[test]
fn rows_are_the_same_with_and_without_compaction() {
    let (plain, world) = (published(20), published(4));
    for upto in [8, 9, 12, 20] {
        paused(async {
            let sink = started(&world, world.store.clone()).await.unwrap();
            let from = sink.keeper().status().seq + 1;
            let keeper = sink.keeper();
            compact::run(&keeper, &POLICY).await.unwrap();
            publish(&sink, from..=upto).await.unwrap();
            rollup::run(&keeper, &EACH).await.unwrap();
            let report = compact::run(&keeper, &POLICY).await.unwrap();
            // Planning again after applying changes nothing.
            let again = compact::run(&keeper, &POLICY).await.unwrap();
            assert_eq!((again.compacted.len(), again.lag), (0, report.lag));
            let planned = compact::plan(&keeper.env, &root(), &POLICY, &Patience::limited(1_000)).await;
            assert_eq!(planned.unwrap().groups, []);
            originals::run(&keeper, &AT_ONCE).await.unwrap();
            sink.close().await.unwrap();
        });
        let mut expected = rows(&plain);
        expected.values_mut().for_each(|rows| rows.truncate(upto.try_into().unwrap()));
        assert_eq!(rows(&world), expected, "up to {upto}");
    }
    // Outputs were compacted too, and what they replaced is gone.
    let live = world.recovered().unwrap().live();
    assert!(live.len() < 12, "{}", live.len());
    assert_eq!(keys(&world, "/public.").len(), live.len());
    assert_eq!(world.check("compacted"), 20);
}

#[test]
fn formats_are_compacted_into_each_other() {
    let (plain, world) = (published(13), published(4));
    let formats = [Encoding::ParquetSnappy, Encoding::ParquetZstd, Encoding::JsonlGzip];
    for (upto, encoding) in [6, 9, 13].into_iter().zip(formats) {
        paused(async {
            let sink = started(&world, world.store.clone()).await.unwrap();
            let (keeper, from) = (sink.keeper(), sink.keeper().status().seq + 1);
            publish(&sink, from..=upto).await.unwrap();
            // Larger than the few rows of a batch: what a file's footer weighs.
            let policy = policy::Policy { encoding, min_inputs: 2, ..POLICY };
            let report = compact::run(&keeper, &policy).await.unwrap();
            assert!(!report.compacted.is_empty(), "up to {upto}");
            originals::run(&keeper, &AT_ONCE).await.unwrap();
        });
        let mut expected = rows(&plain);
        expected.values_mut().for_each(|rows| rows.truncate(upto.try_into().unwrap()));
        assert_eq!(rows(&world), expected, "up to {upto}");
        let live = world.recovered().unwrap().live();
        let newest = live.iter().find(|object| object.seq_to == upto).unwrap();
        assert_eq!(newest.format, encoding.format(), "up to {upto}");
    }
}

#[test]
fn a_lag_is_what_is_left() {
    let world = published(5);
    let report = compacted(&world);
    let of: Vec<_> =
        report.compacted.iter().map(|of| (of.ordinal, of.table.as_str(), of.seq_from, of.seq_to)).collect();
    assert_eq!(of, [(1, "public.items", 1, 5), (2, "public.orders", 1, 5)]);
    assert_eq!(report.lag, policy::Lag::default());
    paused(async {
        let sink = started(&world, world.store.clone()).await.unwrap();
        publish(&sink, [6]).await.unwrap();
        let keeper = sink.keeper();
        let report = compact::run(&keeper, &POLICY).await.unwrap();
        assert_eq!(report.lag, policy::Lag { objects: 2, seqs: 1 });
        let text = keeper.metrics.text();
        assert!(text.contains(r#"compaction_lag{pipeline="orders",sink="s3",unit="objects"} 2"#), "{text}");
    });
}

/// A life that compacts and deletes, stopped at a call.
fn life(world: &Arc<World>, bends: &[(u64, Bend)]) -> (u64, Option<Result<(), Stopped>>) {
    let calls = Calls::new(world, bends);
    let store = Arc::new(BentStore(Arc::clone(&calls)));
    let end = paused(async {
        let work = async {
            let sink = started(world, store).await?;
            let keeper = sink.keeper();
            compact::run(&keeper, &POLICY).await?;
            originals::run(&keeper, &AT_ONCE).await?;
            Ok(())
        };
        tokio::select! {
            biased;
            () = calls.stop.notified() => None,
            end = work => Some(end),
        }
    });
    (calls.made.load(std::sync::atomic::Ordering::Relaxed), end)
}

#[test]
fn a_crash_at_any_call_leaves_every_row() {
    let plain = rows(&published(4));
    let (calls, end) = life(&published(4), &[]);
    assert_eq!(end, Some(Ok(())));
    assert!(calls > 40, "{calls}");
    for at in 0..calls {
        for bend in [Bend::StopBefore, Bend::StopAfter] {
            let context = format!("{bend:?} at call {at}");
            let world = published(4);
            assert_eq!(life(&world, &[(at, bend)]).1, None, "{context}");
            assert_eq!(rows(&world), plain, "{context}");
            assert_eq!(life(&world, &[]).1, Some(Ok(())), "{context}");
            assert_eq!(rows(&world), plain, "after another life: {context}");
            assert_eq!(keys(&world, "/wm2-"), [""; 0], "{context}");
            assert_eq!(records(&world), 2, "{context}");
            world.check(&context);
        }
    }
}

#[test]
fn an_answer_that_is_lost_stops_deletion_and_loses_no_row() {
    let plain = rows(&published(4));
    let (calls, _) = life(&published(4), &[]);
    for at in 0..calls {
        for bend in [Bend::AnswerLost, Bend::RequestLost, Bend::Conflict] {
            let context = format!("{bend:?} at call {at}");
            let world = published(4);
            match life(&world, &[(at, bend)]).1 {
                Some(Ok(())) => {}
                // A delete is asked once; the next run does the rest.
                Some(Err(stopped)) => {
                    assert_eq!(stopped.reason, StopReason::AmbiguousResponse, "{context}: {stopped}");
                    assert!(stopped.detail.starts_with("DELETE"), "{context}: {stopped}");
                }
                None => panic!("{context}"),
            }
            assert_eq!(rows(&world), plain, "{context}");
            assert_eq!(life(&world, &[]).1, Some(Ok(())), "{context}");
            assert_eq!((rows(&world), keys(&world, "/wm2-").len()), (plain.clone(), 0), "{context}");
        }
    }
}

/// A start reads originals, and without a retention window they may go under its hands.
fn calls_of_a_start() -> u64 {
    let world = published(4);
    let calls = Calls::new(&world, &[]);
    with_keeper(&world, Arc::new(BentStore(Arc::clone(&calls))), async |_| ());
    calls.made.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn another_owner_in_between_ends_the_run_and_nothing_more_is_written() {
    let plain = rows(&published(4));
    let (calls, _) = life(&published(4), &[]);
    let mut stopped_at = BTreeMap::new();
    for at in calls_of_a_start()..calls {
        let world = published(4);
        let calls = Calls::new(&world, &[(at, Bend::Freeze)]);
        let store = Arc::new(BentStore(Arc::clone(&calls)));
        let end = paused(async {
            let frozen = async {
                let sink = started(&world, store).await?;
                let keeper = sink.keeper();
                compact::run(&keeper, &POLICY).await?;
                originals::run(&keeper, &AT_ONCE).await?;
                Ok::<_, Stopped>(())
            };
            let other = async {
                calls.frozen.notified().await;
                let elsewhere = Arc::new(MemoryCheckpoints::default());
                let sink = Sink::start_on(world.env(world.store.clone()), settings(), elsewhere).await?;
                compact::run(&sink.keeper(), &POLICY).await?;
                originals::run(&sink.keeper(), &AT_ONCE).await?;
                calls.thaw.notify_one();
                std::future::pending::<Result<(), Stopped>>().await
            };
            tokio::select! { end = frozen => end, other = other => other }
        });
        if let Err(stopped) = end {
            *stopped_at.entry(stopped.reason.name()).or_insert(0) += 1;
        }
        assert_eq!(rows(&world), plain, "frozen at call {at}");
        assert_eq!(records(&world), 2, "frozen at call {at}");
    }
    assert_eq!(stopped_at.keys().copied().collect::<Vec<_>>(), ["epoch_changed"], "{stopped_at:?}");
}

/// What a store does to outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    /// Reads of outputs have one wrong byte.
    Corrupt,
    /// Outputs are gone once HEAD reaches them.
    Forget,
}

#[derive(Debug)]
struct Tricky(Arc<World>, Trick);

impl Store for Tricky {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            let answer = self.0.put(key, bytes, condition, metadata).await;
            if key.ends_with("/HEAD") && self.1 == Trick::Forget {
                for key in keys(&self.0, "/compacted/") {
                    self.0.store.delete(&key, None).await;
                }
            }
            answer
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(async move {
            match self.0.store.get(key).await {
                Outcome::Done(mut object) if key.contains("/compacted/") && self.1 == Trick::Corrupt => {
                    let mut bytes = object.bytes.to_vec();
                    bytes[0] ^= 1;
                    object.bytes = bytes.into();
                    Outcome::Done(object)
                }
                answer => answer,
            }
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.0.store.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.0.store.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.0.store.list(prefix, token, limit)
    }
}

#[test]
fn an_output_that_reads_back_wrong_gets_no_record() {
    let world = published(4);
    let store = Arc::new(Tricky(Arc::clone(&world), Trick::Corrupt));
    let stopped =
        with_keeper(&world, store, async |keeper| compact::run(&keeper, &POLICY).await.unwrap_err());
    assert_eq!(stopped.reason, StopReason::IntegrityFailure, "{stopped}");
    assert_eq!((records(&world), keys(&world, "/compactions/").len()), (0, 0));
    assert_eq!(rows(&world), rows(&published(4)));
}

#[test]
fn an_output_that_was_deleted_while_it_was_published_is_written_again() {
    let world = published(4);
    let store = Arc::new(Tricky(Arc::clone(&world), Trick::Forget));
    let report = with_keeper(&world, store, async |keeper| {
        let one = policy::Policy { max_inputs: 4, ..POLICY };
        compact::run(&keeper, &one).await
    });
    // The second record's swap took the first one's output, which nobody looks after any more.
    assert_eq!(report.map(|report| report.compacted.len()), Ok(2));
    assert_eq!(keys(&world, "/compacted/").len(), 1);
}

#[test]
fn nothing_is_deleted_while_an_output_is_missing_or_damaged() {
    for damage in [None, Some(Bytes::from_static(b"<Error/>"))] {
        let world = published(4);
        compacted(&world);
        let output = keys(&world, "/compacted/").remove(0);
        paused(async {
            world.store.delete(&output, None).await;
            if let Some(bytes) = damage {
                world.store.put(&output, bytes, Condition::None, &[]).await;
            }
            let env = world.env(world.store.clone());
            // The start would not get as far: it stops at the missing object itself.
            let sought = originals::plan(&env, &root(), &AT_ONCE, &Patience::limited(1_000)).await.unwrap();
            assert_eq!(sought.replaced.len(), 2);
            let end = recover::recover(&env, &root(), Depth::Objects, &Patience::limited(1_000)).await;
            assert!(matches!(end, Err(SinkError::Integrity(_))), "{end:?}");
        });
        assert_eq!(keys(&world, "/wm2-").len(), 8);
    }
}

#[test]
fn an_output_that_goes_missing_under_a_running_sink_stops_deletion() {
    let world = published(4);
    let stopped = with_keeper(&world, world.store.clone(), async |keeper| {
        compact::run(&keeper, &POLICY).await.unwrap();
        world.store.delete(&keys(&world, "/compacted/")[0], None).await;
        originals::run(&keeper, &AT_ONCE).await.unwrap_err()
    });
    assert_eq!(stopped.reason, StopReason::IntegrityFailure, "{stopped}");
    assert_eq!(keys(&world, "/wm2-").len(), 8);
}

#[test]
fn an_unequal_record_is_ignored_by_readers_and_lets_nothing_go() {
    let (plain, world) = (published(4), published(4));
    let honest = published(4);
    compacted(&honest);
    let key = keys(&honest, "/compactions/").remove(0);
    let Outcome::Done(record) = paused(honest.store.get(&key)) else { panic!("{key}") };
    let (_, mut record) = frame::decode::<CompactionRecord>(Kind::Compaction, &record.bytes).unwrap();
    record.stream_id = world.recovered().unwrap().view.head.stream_id;
    // A compactor that mixes up rows, and says so.
    record.equivalence.outputs_digest = Digest::of(b"another order");
    record.equivalence.equal = false;
    let frame = frame::encode(Kind::Compaction, frame::MINOR, &record);
    let sha256 = Digest::of(&frame);
    let of = RecordRef { ordinal: 1, key: root().compaction(1, sha256), sha256, extra: Extra::new() };
    with_keeper(&world, world.store.clone(), async |keeper| {
        world.store.put(&of.key, frame, Condition::Absent, &[]).await;
        keeper.change(Change::Compaction(of)).await.unwrap();
        let report = originals::run(&keeper, &AT_ONCE).await.unwrap();
        assert_eq!((report.deleted, report.kept), (0, Vec::new()));
    });
    assert_eq!((rows(&world), records(&world)), (rows(&plain), 1));
    // What it names is compacted as if it were not there, and only then let go.
    assert_eq!(compacted(&world).compacted.len(), 2);
    let report = deleted(&world).unwrap();
    assert_eq!((report.deleted, rows(&world)), (8, rows(&plain)));
}

#[test]
fn originals_stay_for_the_retention_window() {
    let world = published(4);
    compacted(&world);
    let tomorrow = window::Policy { retention_ms: 1, ..AT_ONCE };
    let report = with_keeper(&world, world.store.clone(), async |keeper| {
        originals::run(&keeper, &tomorrow).await.unwrap()
    });
    assert_eq!((report.deleted, report.kept.len()), (0, 8));
    assert!(report.kept.iter().all(|kept| kept.reason == window::Stay::Retained), "{report:?}");
    assert_eq!(deleted(&world).map(|report| report.deleted), Ok(8));
    // A second run finds nothing, and reads no record.
    let calls = Calls::new(&world, &[]);
    let report = with_keeper(&world, Arc::new(BentStore(calls)), async |keeper| {
        originals::run(&keeper, &AT_ONCE).await.unwrap()
    });
    assert_eq!(report, originals::Report::default());
}

#[test]
fn actors_take_turns() {
    let world = published(4);
    with_keeper(&world, world.store.clone(), async |keeper| {
        let turn = keeper.turn().await;
        let other = keeper.clone();
        let waiting = tokio::spawn(async move { compact::run(&other, &POLICY).await });
        sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        drop(turn);
        assert_eq!(waiting.await.unwrap().unwrap().compacted.len(), 2);
    });
    assert_eq!(world.recovered().unwrap().position, Some(position(4)));
}
