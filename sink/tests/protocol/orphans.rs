//! Reconciliation: what is unreachable and old is deleted, and whatever happens meanwhile, nothing else ever is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sinks::env::Env;
use sinks::error::{Alarm, SinkError};
use sinks::local::MemoryCheckpoints;
use sinks::model::entry::Entry;
use sinks::model::ids::{Digest, Nonce};
use sinks::model::key::TableSegment;
use sinks::plan::change::Change;
use sinks::plan::orphans::{LeaseTimes, Policy};
use sinks::probe::{OneStore, Probe, ProbeSettings};
use sinks::run::orphans::{self, Report};
use sinks::run::patience::Patience;
use sinks::sink::{Settings, Sink};
use sinks::stop::{StopReason, Stopped};
use sinks::store::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Store, Unanswered};
use tokio::time::Instant;

use crate::calls::{Bend, BentStore, Calls};
use crate::stores::SlowStore;
use crate::world::{Pace, World, batch, paused, position, root, settings};

const GRACE_MS: u64 = 3_600_000;
const HOUR_MS: u64 = 3_600_000;

fn policy() -> Policy {
    Policy::new(GRACE_MS, 60_000, 30_000).unwrap()
}

fn put(world: &World, key: &str, bytes: Bytes) {
    let answer = paused(world.store.put(key, bytes, Condition::Absent, &[]));
    assert!(matches!(answer, Outcome::Done(_)), "{key}: {answer:?}");
}

/// Data that no batch has: of a source that went another way.
fn plant_data(world: &World, n: u8) -> String {
    let table = TableSegment::new("public", "orders").unwrap();
    let bytes = Bytes::from(vec![b'x', n, b'\n']);
    let key = root().data(&table, Digest::of(&[n]), Digest::of(&bytes), "jsonl");
    put(world, &key, bytes);
    key
}

/// An entry that HEAD never came to.
fn plant_entry(world: &Arc<World>, n: u8) -> String {
    let last = world.recovered().unwrap().last.unwrap();
    let entry = Entry { nonce: Nonce::from_bytes([n; 16]), seq: last.seq + 1, ..last };
    let bytes = entry.encode();
    let key = root().entry(entry.seq, entry.epoch, Digest::of(&bytes));
    put(world, &key, bytes);
    key
}

/// A stream of one batch with orphans of every kind, two hours old, and with things that must stay. The keys of
/// the orphans, sorted.
fn littered() -> (Arc<World>, Vec<String>) {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, 1).end, Some(Ok(()))));
    let probe = format!("{}0123/k", root().probe());
    put(&world, &probe, Bytes::from_static(b"probe"));
    let mut orphans = vec![plant_data(&world, 1), plant_data(&world, 2), plant_entry(&world, 3), probe];
    orphans.sort();
    for (key, bytes) in [
        ("p/orders/_manifest/rollups/x.rollup", "no rollup, and kept"),
        ("p/orders/_manifest/marks/x.mark", "no mark, and kept"),
        ("p/orders/_manifest/entries/x.entry", "no entry"),
        ("p/orders/_manifest/notes.txt", "somebody's"),
        ("p/orders2/shop.orders/x.jsonl", "another pipeline's"),
        ("p/table=orders/year=2026/x.jsonl", "of legacy_rolling"),
    ] {
        put(&world, key, Bytes::from_static(bytes.as_bytes()));
    }
    world.clock.advance_ms(2 * HOUR_MS);
    plant_data(&world, 4);
    *world.orphans_only.lock() = Some(GRACE_MS);
    (world, orphans)
}

/// A process that reconciles once. Its calls, and how it ended; nothing, if the world stopped.
fn reconcile(world: &Arc<World>, bends: &[(u64, Bend)]) -> (u64, Option<Result<Report, Stopped>>) {
    let calls = Calls::new(world, bends);
    let env = world.env(Arc::new(BentStore(Arc::clone(&calls))));
    let end = paused(async {
        let session = async {
            let sink = Sink::start_on(env, settings(), Arc::new(MemoryCheckpoints::default())).await?;
            let before = world.deleted.lock().len();
            let ended = orphans::run(&sink.keeper(), &policy()).await;
            if let Ok(report) = &ended {
                // A proxy may have repeated one.
                let deleted: BTreeSet<_> = world.deleted.lock()[before..].iter().cloned().collect();
                assert_eq!(report.deleted, deleted.len() as u64);
                assert_eq!((report.candidates, report.mpu_aborts), (report.deleted + report.skipped, 0));
            }
            let closed = sink.close().await;
            ended.and_then(|report| closed.map(|()| report).map_err(Stopped::from))
        };
        tokio::select! {
            biased;
            () = calls.stop.notified() => None,
            end = session => Some(end),
        }
    });
    (calls.made.load(Ordering::Relaxed), end)
}

/// What a run would delete now.
fn due(world: &Arc<World>) -> Vec<String> {
    let env = world.env(world.store.clone());
    let patience = Patience::limited(1_000);
    let plan = paused(async { orphans::plan(&env, &root(), &policy(), &patience).await }).unwrap();
    plan.deletes().map(|row| row.key.clone()).collect()
}

#[test]
fn what_is_unreachable_and_old_is_deleted_and_nothing_else() {
    let (world, orphans) = littered();
    assert_eq!(due(&world), orphans);
    let before = world.store.keys();
    let (_, end) = reconcile(&world, &[]);
    let report = end.unwrap().unwrap();
    assert_eq!((report.candidates, report.deleted, report.skipped), (4, 4, 0));
    assert_eq!(report.listed, before.iter().filter(|key| key.starts_with("p/orders/")).count() as u64);
    let after = world.store.keys();
    let gone: Vec<_> = before.into_iter().filter(|key| !after.contains(key)).collect();
    assert_eq!(gone, orphans);
    assert_eq!(world.recovered().unwrap().view.head.lease, None);
    // Once more: nothing is left to do, and HEAD is not even written.
    let rev = world.recovered().unwrap().view.head.rev;
    let (_, again) = reconcile(&world, &[]);
    assert_eq!(again.unwrap().unwrap().candidates, 0);
    assert_eq!(world.recovered().unwrap().view.head.rev, rev + 1, "an acquisition and nothing else");
    // What was young then is old now.
    world.clock.advance_ms(2 * HOUR_MS);
    let (_, later) = reconcile(&world, &[]);
    assert_eq!(later.unwrap().unwrap().deleted, 1);
    assert_eq!(world.check("after reconciliation"), 1);
}

#[test]
fn deletes_name_the_tag_where_the_probe_found_it_honoured() {
    let (world, orphans) = littered();
    paused(async {
        let (plain, probe) = (world.env(world.store.clone()), ProbeSettings::default());
        let clients = OneStore(plain.store.clone());
        let probe = Probe { env: &plain, clients: &clients, root: &root(), settings: &probe };
        let report = probe.run(std::future::pending()).await;
        let settings = Settings { conditional_deletes: report.conditional_deletes(), ..settings() };
        let env = world.env(Arc::new(BentStore(Calls::new(&world, &[]))));
        let sink = Sink::start_on(env, settings, Arc::new(MemoryCheckpoints::default())).await.unwrap();
        let report = orphans::run(&sink.keeper(), &policy()).await.unwrap();
        assert_eq!(report.deleted, orphans.len() as u64);
        assert_eq!(world.conditional.load(Ordering::Relaxed), report.deleted);
        sink.close().await.unwrap();
    });
    assert_eq!(world.check("after conditional deletes"), 1);
}

#[test]
fn a_missing_object_is_an_alarm_and_nothing_is_deleted() {
    for what in ["/public.", "/_manifest/entries/"] {
        let (world, _) = littered();
        let reached = world.recovered().unwrap();
        let entry = &reached.entries[0];
        let keys = [entry.key.as_str(), entry.objects()[0].key];
        let key = keys.into_iter().find(|key| key.contains(what)).unwrap();
        paused(async {
            let sink = start(world.env(world.store.clone())).await.unwrap();
            world.store.delete(key, None).await;
            let stopped = orphans::run(&sink.keeper(), &policy()).await.unwrap_err();
            assert_eq!(stopped.reason, StopReason::IntegrityFailure, "{stopped}");
            assert!(stopped.detail.contains(key), "{stopped}");
            let kind = stopped.cause.as_deref().and_then(SinkError::missing_kind);
            assert_eq!(kind, Some(if what == "/public." { "data" } else { "entry" }));
        });
        assert_eq!(world.deleted.lock().len(), 0, "{what}");
    }
}

#[test]
fn a_crash_anywhere_deletes_nothing_that_is_reached() {
    let calls = reconcile(&littered().0, &[]).0;
    // Crashes of a start are enumerated elsewhere.
    let begins = littered().0.live(&[], Pace::OneByOne, 1).calls - 2;
    let (mut once, mut twice) = (0, 0);
    for (first, bend) in (begins..calls).flat_map(|at| [(at, Bend::StopBefore), (at, Bend::StopAfter)]) {
        let context = format!("{bend:?} at call {first}");
        let crashed = || {
            let (world, orphans) = littered();
            assert!(reconcile(&world, &[(first, bend)]).1.is_none(), "{context}");
            world.check(&context);
            (world, orphans)
        };
        let settle = |world: &Arc<World>, orphans: &[String], context: &str| {
            let (_, end) = reconcile(world, &[]);
            assert!(matches!(end, Some(Ok(_))), "{end:?}: {context}");
            let left = world.store.keys();
            assert!(orphans.iter().all(|key| !left.contains(key)), "{context}");
            assert_eq!(world.check(context), 1, "{context}");
        };
        let (world, orphans) = crashed();
        settle(&world, &orphans, &context);
        once += 1;
        for second in (begins + first % 4..).step_by(4) {
            let (world, orphans) = crashed();
            let (made, end) = reconcile(&world, &[(second, Bend::StopAfter)]);
            if end.is_some() {
                assert!(made <= second);
                break;
            }
            let context = format!("{context}, then after call {second}");
            world.check(&context);
            settle(&world, &orphans, &context);
            twice += 1;
        }
    }
    assert!(once >= 50 && twice >= 300, "{once} single and {twice} double crashes are not all");
}

/// The calls that write to the store or delete from it, bent at every place in every way: a run that is not done
/// says why, and the next one is.
#[test]
fn every_answer_that_is_not_a_clear_one_is_survived() {
    let calls = reconcile(&littered().0, &[]).0;
    let bends = [
        Bend::AnswerLost,
        Bend::RequestLost,
        Bend::Conflict,
        Bend::Status(500),
        Bend::Status(503),
        Bend::Denied,
        Bend::Twice,
        Bend::NoTag,
    ];
    let mut stopped = BTreeMap::<&str, u32>::new();
    for (at, bend) in (0..calls).flat_map(|at| bends.map(|bend| (at, bend))) {
        let context = format!("{bend:?} at call {at}");
        let (world, orphans) = littered();
        match reconcile(&world, &[(at, bend)]).1 {
            Some(Ok(_)) => {}
            Some(Err(why)) => *stopped.entry(why.reason.name()).or_default() += 1,
            None => panic!("{context}"),
        }
        assert_eq!(world.check(&context), 1);
        let (_, end) = reconcile(&world, &[]);
        assert!(matches!(end, Some(Ok(_))), "{end:?}: {context}");
        let left = world.store.keys();
        assert!(orphans.iter().all(|key| !left.contains(key)), "{context}");
    }
    let reasons: Vec<_> = stopped.keys().copied().collect();
    assert_eq!(reasons, ["ambiguous_response", "listing_uncertain"], "{stopped:?}");
}

/// Batch 2 was written up to its data once, long ago.
fn abandoned() -> Arc<World> {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, 1).end, Some(Ok(()))));
    for object in batch(2).objects {
        let table = TableSegment::new(&object.namespace, &object.table).unwrap();
        let key = root().data(&table, position(2).digest(), Digest::of(&object.bytes), object.extension);
        put(&world, &key, object.bytes);
    }
    world.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(due(&world).len(), 2);
    *world.orphans_only.lock() = Some(GRACE_MS);
    world
}

/// Deletes as the world judges them.
#[derive(Debug)]
struct Judged {
    world: Arc<World>,
    slow: SlowStore,
}

impl Store for Judged {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.slow.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.slow.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.slow.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(async move {
            // As slow as anything: a head is.
            self.slow.head(key).await;
            self.world.delete(key, only).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.slow.list(prefix, token, limit)
    }
}

#[test]
fn an_orphan_that_is_adopted_meanwhile_stays() {
    let (mut deleted, mut adopted) = (0, 0);
    for seed in 0..300 {
        let world = abandoned();
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        let slow = SlowStore::new(world.store.clone(), Arc::clone(&chance), 0);
        let env = world.env(Arc::new(Judged { world: Arc::clone(&world), slow }));
        paused(async {
            let sink = Sink::start_on(env, settings(), Arc::new(MemoryCheckpoints::default())).await.unwrap();
            let keeper = sink.keeper();
            let wait = Duration::from_millis(chance.lock().u64(..1_000));
            let publish = async {
                tokio::time::sleep(wait).await;
                for n in 2..=3 {
                    sink.submit(batch(n)).await.unwrap().acknowledged().await.unwrap();
                }
            };
            let policy = policy();
            let (report, ()) = tokio::join!(orphans::run(&keeper, &policy), publish);
            let report = report.unwrap_or_else(|stopped| panic!("{stopped}: seed {seed}"));
            deleted += report.deleted;
            adopted += 2 - report.deleted;
            sink.close().await.unwrap();
        });
        assert_eq!(world.check(&format!("seed {seed}")), 3);
    }
    assert!(deleted >= 50 && adopted >= 50, "{deleted} deleted and {adopted} adopted: the race was not run");
}

/// A network that holds deletes back, and loses their answers once the client has given up.
#[derive(Debug)]
struct LateDeletes {
    world: Arc<World>,
    late_ms: u64,
    request_ms: u64,
}

impl Store for LateDeletes {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(self.world.put(key, bytes, condition, metadata))
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.world.store.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.world.store.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        let (world, late, of) =
            (Arc::clone(&self.world), Duration::from_millis(self.late_ms), key.to_owned());
        let arrives = tokio::spawn(async move {
            tokio::time::sleep(late).await;
            world.delete(&of, only).await
        });
        Box::pin(async move {
            let limit = Duration::from_millis(self.request_ms);
            match tokio::time::timeout(limit, arrives).await {
                Ok(answer) => answer.expect("a delete is not cancelled"),
                Err(_) => Outcome::Unknown(Unanswered { status: None, reason: "no answer".to_owned() }),
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.world.store.list(prefix, token, limit)
    }
}

fn start(env: Env) -> impl Future<Output = Result<Sink, SinkError>> {
    Sink::start_on(env, settings(), Arc::new(MemoryCheckpoints::default()))
}

/// One process reconciles and sends a delete that arrives `late_ms` later; another takes over `after_ms` after the
/// first has begun and publishes the very batch that the orphans are of. When it published, and whether it held.
fn taken_over(late_ms: u64, after_ms: u64, conditional_deletes: bool) -> (u64, Result<u64, SinkError>) {
    let world = abandoned();
    let LeaseTimes { request_ms, .. } = policy().lease;
    *world.orphans_only.lock() = None;
    let first = world.env(Arc::new(LateDeletes { world: Arc::clone(&world), late_ms, request_ms }));
    let second = world.env(world.store.clone());
    let published_ms = paused(async {
        let begun = Instant::now();
        let sink = start(first).await.unwrap();
        let policy = Policy { conditional_deletes, ..policy() };
        let keeper = sink.keeper();
        let reconciling = tokio::spawn(async move { orphans::run(&keeper, &policy).await });
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        let next = start(second).await.unwrap();
        next.submit(batch(2)).await.unwrap().acknowledged().await.unwrap();
        let published_ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
        next.close().await.unwrap();
        // The first one ends in its own time, whatever is on its way arrives.
        let ended = reconciling.await.unwrap();
        assert!(ended.is_err() || after_ms > late_ms, "{ended:?}");
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        published_ms
    });
    let env = world.env(world.store.clone());
    let patience = Patience::limited(1_000);
    let depth = sinks::run::recover::Depth::Deep;
    let found = paused(async { sinks::run::recover::recover(&env, &root(), depth, &patience).await });
    (published_ms, found.map(|found| found.unwrap().view.head.seq))
}

#[test]
fn the_next_owner_waits_until_deletes_of_the_last_one_are_over() {
    let LeaseTimes { ttl_ms, request_ms, margin_ms } = policy().lease;
    for late_ms in [0, 1, request_ms / 2, request_ms - 1, request_ms, request_ms + margin_ms] {
        for after_ms in
            [1, request_ms / 2, request_ms, request_ms + margin_ms, ttl_ms - 1, ttl_ms, 2 * ttl_ms]
        {
            for conditional in [false, true] {
                let (published_ms, held) = taken_over(late_ms, after_ms, conditional);
                let context = format!("a delete {late_ms} ms late, a takeover after {after_ms} ms");
                assert_eq!(held, Ok(2), "{context}");
                assert!(published_ms <= after_ms + ttl_ms + 1_000, "{published_ms}: {context}");
            }
        }
    }
}

/// What no lease can bound: a network that delivers a delete after the lease is over. It is found out.
#[test]
fn a_delete_that_arrives_after_the_lease_is_an_alarm_of_the_next_start() {
    let LeaseTimes { ttl_ms, .. } = policy().lease;
    let (_, held) = taken_over(2 * ttl_ms, 1, false);
    assert!(
        matches!(held, Err(SinkError::Integrity(Alarm::MissingReferenced { what: "data", .. }))),
        "{held:?}"
    );
}

#[test]
fn a_lease_is_granted_renewed_and_waited_out_from_its_last_grant() {
    let world = World::new();
    paused(async {
        let first = start(world.env(world.store.clone())).await.unwrap();
        let keeper = first.keeper();
        let lease_id = Nonce::from_bytes(*keeper.writer_id.as_bytes());
        let lease = || Change::Lease { lease_id, actor: "reconcile", ttl_ms: 60_000 };
        keeper.change(lease()).await.unwrap();
        // The next owner sees the first grant, and takes over after the second.
        let second = world.env(world.store.clone());
        let mut patient = settings();
        patient.takeover_quiet_ms = 40_000;
        let taking = tokio::spawn(async move {
            let begun = Instant::now();
            let sink = Sink::start_on(second, patient, Arc::new(MemoryCheckpoints::default())).await.unwrap();
            let steps: Vec<_> = sink.reconciled().iter().map(|step| step.name()).collect();
            assert!(steps.contains(&"S5 end lease"), "{steps:?}");
            begun.elapsed().as_secs()
        });
        tokio::time::sleep(Duration::from_secs(30)).await;
        let renewed = keeper.change(lease()).await.unwrap();
        assert_eq!(renewed.head.lease.unwrap().granted_rev, 3);
        let waited = taking.await.unwrap();
        assert!((100..=101).contains(&waited), "{waited} s after the first sight of the lease");
        let stopped = keeper.change(lease()).await.unwrap_err();
        assert_eq!(stopped.reason, StopReason::EpochChanged);
    });
    assert_eq!(world.recovered().unwrap().view.head.lease, None);
}

/// One history of publishing, crashing, taking over, littering and reconciling; this line runs one: `history(SEED)`.
/// Its deletes and its early stops.
fn history(seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new();
    *world.orphans_only.lock() = Some(GRACE_MS);
    let (mut last, mut stops, mut planted) = (1, 0, 0);
    assert!(matches!(world.live(&[], Pace::OneByOne, last).end, Some(Ok(()))));
    for step in 0..random.u64(4..14) {
        let bends: Vec<_> =
            (0..random.u64(..4)).map(|_| (random.u64(..40), crate::random::bend(&mut random))).collect();
        let context = format!("seed {seed}, step {step}, {bends:?}");
        match random.u8(..8) {
            0 | 1 => world.clock.advance_ms(random.u64(..2 * HOUR_MS)),
            2 => {
                planted += 1;
                if random.bool() {
                    plant_data(&world, planted);
                } else {
                    plant_entry(&world, planted);
                }
            }
            3 | 4 => {
                last += random.u64(..2);
                let pace = if random.bool() { Pace::OneByOne } else { Pace::Together };
                let lived = world.live(&bends, pace, last);
                assert!(!matches!(lived.end, Some(Err(_))), "{:?}: {context}", lived.end);
            }
            _ => stops += usize::from(matches!(reconcile(&world, &bends).1, Some(Err(_)))),
        }
        world.check(&context);
    }
    let context = format!("seed {seed}");
    let lived = world.live(&[], Pace::OneByOne, last);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}: {context}", lived.end);
    world.clock.advance_ms(2 * HOUR_MS);
    let (_, end) = reconcile(&world, &[]);
    assert!(matches!(end, Some(Ok(_))), "{end:?}: {context}");
    assert_eq!(due(&world), [""; 0], "{context}");
    let entries = world.store.keys().iter().filter(|key| key.starts_with(&root().entries())).count();
    assert_eq!(entries as u64, last, "{context}");
    world.check_end_at(last, &context);
    let deleted = world.deleted.lock().len();
    (deleted, stops)
}

#[test]
fn any_history_keeps_what_is_reached_and_loses_what_is_not() {
    let (deleted, stops) = (0..250).map(history).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(deleted >= 200 && stops >= 15, "{deleted} deletes and {stops} stops in 250 histories are few");
}
