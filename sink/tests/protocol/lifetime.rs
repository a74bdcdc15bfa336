//! A stream over its lifetime: rolled up, its entries marked and expired, by processes that die anywhere, meet bad
//! answers, and lose the stream to each other.

use std::sync::Arc;

use sinks::env::Env;
use sinks::error::SinkError;
use sinks::local::Checkpoints;
use sinks::model::frame::{self, Kind};
use sinks::model::head::{Intent, RollupRef};
use sinks::model::ids::Nonce;
use sinks::model::key::ObjectName;
use sinks::model::rollup::Rollup;
use sinks::plan::gc;
use sinks::plan::rollup::Policy;
use sinks::run::gc::{Memory, expire, mark};
use sinks::run::patience::Patience;
use sinks::run::recover::{Content, Depth, Recovered, recover};
use sinks::run::rollup;
use sinks::sink::{Keeper, Sink};
use sinks::stop::{StopReason, Stopped};
use sinks::store::{Condition, Outcome, Store as _};

use crate::calls::Bend;
use crate::stores::ReadBefore;
use crate::world::{BATCHES, Pace, World, batch, paused, position, root, settings};

const EACH: Policy = Policy { every_entries: 1, every_ms: 600_000 };
const AT_ONCE: gc::Policy = gc::Policy { safety_window_ms: 0, max_clock_skew_ms: 1_000 };

async fn publish(sink: &Sink, numbers: impl IntoIterator<Item = u64>) -> Result<(), SinkError> {
    for n in numbers {
        let ack = sink.submit(batch(n)).await?.acknowledged().await?;
        assert_eq!(ack.seq, n);
    }
    Ok(())
}

/// All three actors, once.
async fn collect(keeper: &Keeper, memory: &mut Memory) -> Result<u64, Stopped> {
    rollup::run(keeper, &EACH).await?;
    mark(keeper, &AT_ONCE, memory).await?;
    Ok(expire(keeper, &AT_ONCE, memory).await?.deleted)
}

/// A process that publishes up to batch `last`, with all actors after each.
async fn live(world: &World, env: Env, record: Arc<dyn Checkpoints>, last: u64) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let sink = Sink::start_on(env, settings(), record).await.map_err(|error| text(&error))?;
    let (keeper, mut memory) = (sink.keeper(), Memory::default());
    let resume = sink.resume().map(|position| position.digest());
    let first = 1 + (1..=last).find(|&n| Some(position(n).digest()) == resume).unwrap_or(0);
    collect(&keeper, &mut memory).await.map_err(|error| text(&error))?;
    for n in first..=last {
        publish(&sink, [n]).await.map_err(|error| text(&error))?;
        world.acked.lock().insert(n);
        collect(&keeper, &mut memory).await.map_err(|error| text(&error))?;
    }
    sink.close().await.map_err(|error| text(&error))
}

fn lives(world: &Arc<World>, bends: &[(u64, Bend)], last: u64) -> (u64, Option<Result<(), String>>) {
    let session = async |env, record| live(world, env, record, last).await;
    world.live_doing(bends, world.checkpoints.clone(), session)
}

/// An undisturbed life ends with everything collected that may be, and nothing else.
fn converges(world: &Arc<World>, context: &str) {
    let whole = world.recovered();
    assert_eq!(lives(world, &[], BATCHES).1, Some(Ok(())), "{context}");
    assert_eq!(world.check(context), BATCHES);
    let recovered = world.recovered().unwrap();
    let head = &recovered.view.head;
    assert_eq!(head.rollup.as_ref().map(|of| of.end_seq), Some(BATCHES), "{context}");
    let horizon = head.prev_rollup.as_ref().map_or(0, |of| of.end_seq);
    assert_eq!(head.entry_floor, horizon + 1, "{context}");
    let keys = world.store.keys();
    for entry in &recovered.entries {
        assert_eq!(keys.contains(&entry.key), entry.seq > horizon, "entry {}: {context}", entry.seq);
    }
    for (before, after) in whole.iter().flat_map(|whole| &whole.entries).zip(&recovered.entries) {
        assert_eq!((before.seq, &before.key, before.digest()), (after.seq, &after.key, after.digest()));
        assert_eq!(before.objects(), after.objects());
    }
    world.check_end(context);
}

/// Two batches that are rolled up, and nothing marked.
fn rolled_up() -> Arc<World> {
    let world = World::new();
    let (_, end) = world.live_doing(&[], world.checkpoints.clone(), async |env, record| {
        let sink = Sink::start_on(env, settings(), record).await.unwrap();
        for n in 1..=2 {
            publish(&sink, [n]).await.unwrap();
            world.acked.lock().insert(n);
            rollup::run(&sink.keeper(), &EACH).await.unwrap();
        }
        sink.close().await
    });
    assert_eq!(end, Some(Ok(())));
    world
}

#[test]
fn a_stream_is_the_same_from_its_rollups() {
    let world = World::new();
    paused(async {
        let env = world.env(world.store.clone());
        let sink = Sink::start_on(env, settings(), world.checkpoints.clone()).await.unwrap();
        let keeper = sink.keeper();
        for n in 1..=40 {
            publish(&sink, [n]).await.unwrap();
            let report = rollup::run(&keeper, &EACH).await.unwrap();
            assert_eq!(
                report.plan.map(|plan| (plan.generation, plan.from_seq, plan.to_seq)),
                Some((n, n, n))
            );
            // A second run finds nothing to do.
            assert_eq!(rollup::run(&keeper, &EACH).await.unwrap().plan, None);
        }
        publish(&sink, [41]).await.unwrap();
        sink.close().await.unwrap();
    });
    assert_eq!(world.check("rolled up 40 times"), 41);
    let recovered = world.recovered().unwrap();
    let inventories =
        recovered.rollup.as_ref().map(|rollup| (rollup.inventories.len(), rollup.totals.objects));
    // Two of 16 entries, and the rest one by one.
    assert_eq!(inventories, Some((10, 80)));
    let from = |seq: usize| matches!(recovered.entries[seq - 1].content, Content::Inventory(_));
    assert_eq!([from(1), from(40), from(41)], [true, true, false]);
    assert_eq!(recovered.position, Some(position(41)));
    let live: Vec<_> =
        recovered.live().into_iter().map(|object| (object.table, object.seq_from, object.format)).collect();
    let of =
        |table: &str| (1..=41).map(|seq| (table.to_owned(), seq, "jsonl".to_owned())).collect::<Vec<_>>();
    assert_eq!(live, [of("public.items"), of("public.orders")].concat());
    world.check_end_at(41, "after rollups");
}

/// The stream as the rollup before the current one has it, with the entries after.
fn by_the_rollup_before(world: &Arc<World>) -> Recovered {
    let recovered = world.recovered().unwrap();
    let head = &recovered.view.head;
    let mut older = head.successor(Nonce::from_bytes([9; 16]), Intent::Rollup, 0);
    older.rollup = head.prev_rollup.clone();
    let read = |key: &str| -> Rollup {
        let Outcome::Done(object) = paused(world.store.get(key)) else { panic!("{key} is not there") };
        frame::decode(Kind::Rollup, &object.bytes).unwrap().1
    };
    let prev = older.rollup.as_ref().and_then(|of| read(&of.key).prev);
    older.prev_rollup = prev.map(|of| RollupRef {
        generation: of.generation,
        end_chain: read(&of.key).end_chain,
        key: of.key,
        sha256: of.sha256,
        end_seq: of.end_seq,
        ..older.rollup.clone().unwrap()
    });
    paused(world.store.put(&root().head(), older.encode(), Condition::None, &[]));
    world.recovered().unwrap()
}

#[test]
fn either_rollup_and_the_entries_after_it_are_the_same_stream() {
    let world = rolled_up();
    assert!(matches!(world.live(&[], Pace::OneByOne, BATCHES).end, Some(Ok(()))));
    let current = world.recovered().unwrap();
    let before = by_the_rollup_before(&world);
    let from = |recovered: &Recovered| recovered.rollup.as_ref().map(|rollup| rollup.end_seq);
    assert_eq!((from(&current), from(&before)), (Some(2), Some(1)));
    assert_eq!(before.live(), current.live());
    assert_eq!((&before.position, &before.last), (&current.position, &current.last));
    for (one, other) in before.entries.iter().zip(&current.entries) {
        assert_eq!((one.seq, &one.key, one.sha256), (other.seq, &other.key, other.sha256));
        assert_eq!((one.nonce(), one.objects()), (other.nonce(), other.objects()));
    }
}

#[test]
fn every_crash_while_collecting_converges() {
    let stops = [Bend::StopBefore, Bend::StopAfter];
    let (calls, _) = lives(&rolled_up(), &[], BATCHES);
    let (mut once, mut twice) = (0, 0);
    for (first, bend) in (0..calls).flat_map(|at| stops.map(|bend| (at, bend))) {
        let context = format!("{bend:?} at call {first}");
        let world = rolled_up();
        assert!(lives(&world, &[(first, bend)], BATCHES).1.is_none(), "{context}");
        world.check(&context);
        converges(&world, &context);
        once += 1;
        // The second life stops at every 31st call, each time at others.
        for second in (first % 31..).step_by(31) {
            let context = format!("{context}, then at call {second}");
            let world = rolled_up();
            lives(&world, &[(first, bend)], BATCHES);
            if lives(&world, &[(second, bend)], BATCHES).1.is_some() {
                break;
            }
            world.check(&context);
            converges(&world, &context);
            twice += 1;
        }
    }
    assert!(once >= 110 && twice >= 150, "{once} single and {twice} double crashes are not all");
}

/// Whatever one answer is, the actors end, stop for one of their reasons, or the sink does; nothing is lost.
#[test]
fn one_bad_answer_while_collecting_costs_nothing() {
    let (calls, _) = lives(&rolled_up(), &[], BATCHES);
    let trouble = [Bend::AnswerLost, Bend::Late(2), Bend::Conflict, Bend::Twice];
    let mut ambiguous = 0;
    for (at, bend) in (0..calls).flat_map(|at| trouble.map(|bend| (at, bend))) {
        let (context, world) = (format!("{bend:?} at call {at}"), rolled_up());
        match lives(&world, &[(at, bend)], BATCHES).1 {
            Some(Ok(())) => {}
            // Only a delete is not asked again.
            Some(Err(error)) if error.starts_with("stopped, ambiguous_response: DELETE") => ambiguous += 1,
            other => panic!("{other:?}: {context}"),
        }
        world.check(&context);
        converges(&world, &context);
    }
    assert_eq!(ambiguous, 6, "three answers to each of two deletes say nothing");
}

#[test]
fn after_an_ambiguous_delete_nothing_more_is_deleted_in_that_run() {
    let entries = |world: &World| {
        let keys = world.store.keys();
        keys.iter().filter(|key| matches!(root().parse(key), Some(ObjectName::Entry { .. }))).count()
    };
    let run = |bends: &[(u64, Bend)]| {
        let world = World::new();
        assert!(matches!(world.live(&[], Pace::OneByOne, 40).end, Some(Ok(()))));
        world.live_doing(bends, world.checkpoints.clone(), async |env, record| {
            let sink = Sink::start_on(env, settings(), record).await.unwrap();
            let (keeper, mut memory) = (sink.keeper(), Memory::default());
            rollup::run(&keeper, &EACH).await.unwrap();
            publish(&sink, [41]).await.unwrap();
            rollup::run(&keeper, &EACH).await.unwrap();
            mark(&keeper, &AT_ONCE, &mut memory).await.unwrap();
            let first = expire(&keeper, &AT_ONCE, &mut memory).await.map(|report| report.deleted);
            let left = entries(&world);
            let again = expire(&keeper, &AT_ONCE, &mut memory).await.map(|report| report.deleted);
            (first, left, again, entries(&world))
        })
    };
    let (calls, undisturbed) = run(&[]);
    assert_eq!(undisturbed, Some((Ok(40), 1, Ok(0), 1)));
    // The last calls are: look at HEAD, 16 deletes, look, 16 deletes, look, 8 deletes, and the second run's look.
    let in_the_second_batch = calls - 1 - 9 - 6;
    let (_, disturbed) = run(&[(in_the_second_batch, Bend::Status(503))]);
    let Some((Err(stopped), left, Ok(40), 1)) = disturbed else { panic!("{disturbed:?}") };
    assert_eq!(stopped.reason, StopReason::AmbiguousResponse);
    assert!((9..=24).contains(&left), "{left} of 41 entries are left, and the third batch has 8");
}

#[test]
fn what_the_owner_expires_while_it_is_verified_is_no_alarm() {
    let world = World::new();
    paused(async {
        let env = world.env(world.store.clone());
        let sink = Sink::start_on(env, settings(), world.checkpoints.clone()).await.unwrap();
        let (keeper, mut memory) = (sink.keeper(), Memory::default());
        publish(&sink, 1..=3).await.unwrap();
        let Outcome::Done(before) = world.store.get(&root().head()).await else { panic!("no HEAD") };
        let mut deleted = 0;
        for n in 4..=5 {
            deleted += collect(&keeper, &mut memory).await.unwrap();
            publish(&sink, [n]).await.unwrap();
        }
        deleted += collect(&keeper, &mut memory).await.unwrap();
        assert!(deleted >= 3, "{deleted} entries are gone that HEAD reached before");
        let patience = Patience::limited(1_000);
        let late = || world.env(Arc::new(ReadBefore::new(world.store.clone(), before.clone())));
        let found = recover(&late(), &root(), Depth::Deep, &patience).await.unwrap().unwrap();
        assert_eq!(found.view.head.seq, 5);
        // Whatever is missing of the HEAD of now is still an alarm.
        let last = found.view.head.last_entry.unwrap().key;
        world.store.delete(&last, None).await;
        let alarm = recover(&late(), &root(), Depth::Manifest, &patience).await.unwrap_err();
        assert!(matches!(alarm, SinkError::Integrity(_)), "{alarm}");
        sink.close().await.unwrap();
    });
}
