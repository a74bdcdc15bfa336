//! Rebuilding the current rollup: from what still proves it and never from less, beside what is damaged, by one swap of
//! HEAD, and whatever happens on the way.

use std::sync::Arc;

use bytes::Bytes;
use sinks::error::SinkError;
use sinks::metrics::Metrics;
use sinks::model::head::Head;
use sinks::plan::ownership::Identity;
use sinks::run::patience::Patience;
use sinks::run::rebuild::{self, Report};
use sinks::sink::Sink;
use sinks::stop::{StopReason, Stopped};
use sinks::store::{Condition, Outcome, Store as _};

use crate::calls::Bend;
use crate::rollups::rolled_up;
use crate::world::{BATCHES, World, batch, paused, root, settings};

/// Of both generations, in order: inventories, then rollups.
fn keys(world: &World) -> Vec<String> {
    let of =
        |key: &String| ["/_manifest/rollups/", "/_manifest/inventory/"].iter().any(|name| key.contains(name));
    world.store.keys().into_iter().filter(of).collect()
}

fn head(world: &World) -> Head {
    let Outcome::Done(object) = paused(world.store.get(&root().head())) else { panic!("no HEAD") };
    Head::decode(&object.bytes).unwrap()
}

fn put(world: &World, key: &str, bytes: Bytes) {
    paused(world.store.put(key, bytes, Condition::None, &[]));
}

#[derive(Clone, Copy, Debug)]
enum Spoiled {
    Missing,
    Damaged,
}

fn spoil(world: &World, key: &str, how: Spoiled) {
    match how {
        Spoiled::Missing => drop(paused(world.store.delete(key, None))),
        Spoiled::Damaged => put(world, key, Bytes::from_static(b"<Error/>")),
    }
}

/// A process that rebuilds. Its calls, and how it ended, if the world did not stop.
fn rebuild(world: &Arc<World>, bends: &[(u64, Bend)]) -> (u64, Option<Result<Report, Stopped>>) {
    world.live_doing(bends, world.checkpoints.clone(), async |env, _| {
        let me = Identity {
            writer_id: env.ids.writer_id(),
            instance: "test".to_owned(),
            pipeline: "orders".to_owned(),
            prefix: "p".to_owned(),
        };
        let metrics = Metrics::new("orders", "s3");
        rebuild::run(&env, &root(), &me, &metrics, &Patience::limited(600_000)).await
    })
}

/// The stream verifies to the last byte and goes on, and there is nothing left to rebuild.
fn is_whole(world: &Arc<World>, context: &str) {
    let again = rebuild(world, &[]).1.expect("the world goes on");
    assert_eq!(again, Ok(Report::default()), "{context}");
    world.check_end(context);
}

#[test]
fn the_current_rollup_is_rebuilt_from_the_one_before_and_the_entries_after_it() {
    for how in [Spoiled::Missing, Spoiled::Damaged] {
        let mut rebuilt = Vec::new();
        for nth in 0..4 {
            let world = rolled_up();
            let key = keys(&world).swap_remove(nth);
            spoil(&world, &key, how);
            let (before, there) = (head(&world), world.store.keys());
            let found = paused(world.store.get(&key));
            let context = format!("{how:?} {key}");
            match rebuild(&world, &[]).1.expect("the world goes on") {
                Ok(report) => {
                    rebuilt.push(true);
                    let after = head(&world);
                    let (old, new) = (before.rollup.unwrap(), after.rollup.unwrap());
                    assert_eq!((after.epoch, after.rev), (before.epoch + 1, before.rev + 1), "{context}");
                    assert_eq!(
                        (report.epoch, report.rollup),
                        (Some(after.epoch), Some(new.key)),
                        "{context}"
                    );
                    let same = |of: (u64, u64, _)| of;
                    assert_eq!(
                        same((old.generation, old.end_seq, old.end_chain)),
                        same((new.generation, new.end_seq, new.end_chain)),
                        "{context}"
                    );
                    assert_eq!(after.prev_rollup, before.prev_rollup, "{context}");
                    assert!(there.iter().all(|key| world.store.keys().contains(key)), "{context}");
                    assert_eq!(paused(world.store.get(&key)), found, "nothing is overwritten: {context}");
                    is_whole(&world, &context);
                }
                Err(stopped) => {
                    rebuilt.push(false);
                    assert_eq!(stopped.reason, StopReason::IntegrityFailure, "{context}");
                    assert!(stopped.detail.contains("this can't be rebuilt: "), "{stopped}");
                    assert_eq!((head(&world), world.store.keys()), (before, there), "{context}");
                }
            }
        }
        // Entry 1 may be gone: of what the first generation said there is no other proof.
        assert_eq!(rebuilt, [false, true, false, true], "{how:?}");
    }
}

#[test]
fn entries_alone_prove_it_as_long_as_all_of_them_are_there() {
    for (nth, proven) in [(0, true), (2, false)] {
        let world = rolled_up();
        put(&world, &root().head(), Head { entry_floor: 1, ..head(&world) }.encode());
        let key = keys(&world).swap_remove(nth);
        spoil(&world, &key, Spoiled::Damaged);
        let result = rebuild(&world, &[]).1.expect("the world goes on");
        assert_eq!(result.is_ok(), proven, "{key}: {result:?}");
        if proven {
            assert_eq!(result.unwrap().plan.map(|plan| (plan.from_seq, plan.to_seq)), Some((1, 2)));
            is_whole(&world, &key);
        }
    }
}

#[test]
fn what_is_no_rollup_is_not_rebuilt() {
    let world = rolled_up();
    let data = |key: &String| key.contains("/public.orders/");
    let key = world.store.keys().into_iter().find(data).unwrap();
    spoil(&world, &key, Spoiled::Missing);
    let (before, there) = (head(&world), world.store.keys());
    let stopped = rebuild(&world, &[]).1.expect("the world goes on").unwrap_err();
    assert_eq!(stopped.reason, StopReason::IntegrityFailure);
    assert!(stopped.detail.contains("neither the current rollup nor one of its inventories"), "{stopped}");
    // Both at once: the rollup would be proven, and the stream would not be whole.
    spoil(&world, &keys(&world)[3], Spoiled::Missing);
    let stopped = rebuild(&world, &[]).1.expect("the world goes on").unwrap_err();
    assert!(stopped.detail.contains(&key), "{stopped}");
    assert_eq!(head(&world), before, "HEAD reaches nothing new");
    let new: Vec<_> = world.store.keys().into_iter().filter(|key| !there.contains(key)).collect();
    assert!(new.iter().all(|key| key.contains("/rollups/") || key.contains("/inventory/")), "{new:?}");
}

/// A crash after any call, and a lost answer to any: another run finishes it, or this one does.
#[test]
fn every_crash_on_the_way_converges() {
    let spoiled = || {
        let world = rolled_up();
        spoil(&world, &keys(&world)[1], Spoiled::Damaged);
        world
    };
    let calls = rebuild(&spoiled(), &[]).0;
    assert!(calls > 10, "{calls} calls are not all");
    for call in 0..calls {
        for bend in [Bend::StopAfter, Bend::StopLate(3), Bend::AnswerLost] {
            let (world, context) = (spoiled(), format!("{bend:?} at call {call}"));
            let stops = matches!(bend, Bend::StopAfter | Bend::StopLate(_));
            match rebuild(&world, &[(call, bend)]).1 {
                None => assert!(stops, "{context}"),
                Some(result) => assert!(!stops && result.is_ok(), "{context}: {result:?}"),
            }
            if stops {
                let finished = rebuild(&world, &[]).1.expect("the world goes on");
                // A swap that comes late has rebuilt it meanwhile.
                let late = finished.as_ref().is_err_and(|stopped| stopped.reason == StopReason::StalePlan);
                assert!(finished.is_ok() || late, "{context}: {finished:?}");
            }
            is_whole(&world, &context);
        }
    }
}

#[test]
fn whoever_owned_the_stream_is_fenced() {
    let world = rolled_up();
    let env = world.env(world.store.clone());
    let me = Identity {
        writer_id: env.ids.writer_id(),
        instance: "person".to_owned(),
        pipeline: "orders".to_owned(),
        prefix: "p".to_owned(),
    };
    paused(async {
        let sink = Sink::start_on(world.env(world.store.clone()), settings(), world.checkpoints.clone())
            .await
            .unwrap();
        let (metrics, patience) = (Metrics::new("orders", "s3"), Patience::limited(1_000));
        world.store.delete(&keys_now(&world).await, None).await;
        let report = rebuild::run(&env, &root(), &me, &metrics, &patience).await.unwrap();
        assert!(report.plan.is_some_and(|plan| plan.cause.contains("recoverable by operator")));
        let mut ticket = sink.submit(batch(BATCHES + 1)).await.unwrap();
        assert!(matches!(ticket.acknowledged().await, Err(SinkError::Fenced { .. })));
    });
}

/// The current rollup's key.
async fn keys_now(world: &World) -> String {
    let Outcome::Done(object) = world.store.get(&root().head()).await else { panic!("no HEAD") };
    Head::decode(&object.bytes).unwrap().rollup.unwrap().key
}
