//! What callers of a sink see: back-pressure, group commits, repetitions, refusals, and how many requests it costs.

use std::sync::Arc;

use sinks::error::SinkError;
use sinks::local::MemoryCheckpoints;
use sinks::model::key::KeyError;
use sinks::probe::{OneStore, ProbeSettings};
use sinks::sink::{Batch, Settings, Sink};

use crate::calls::Bend;
use crate::stores::{Counted, Unconditional};
use crate::world::{BATCHES, Lived, Pace, World, batch, paused, settings};

async fn started(world: &Arc<World>, settings: Settings) -> (Sink, Arc<Counted>) {
    let store = Arc::new(Counted::new(world.store.clone()));
    let record = Arc::new(MemoryCheckpoints::default());
    let sink = Sink::start_on(world.env(store.clone()), settings, record).await.unwrap();
    store.take();
    (sink, store)
}

#[test]
fn a_batch_costs_three_round_trips_and_no_read() {
    let world = World::new();
    paused(async {
        let (sink, store) = started(&world, settings()).await;
        for n in 1..=BATCHES {
            let ack = sink.submit(batch(n)).await.unwrap().acknowledged().await.unwrap();
            assert_eq!((ack.seq, ack.epoch, ack.digest), (n, 1, batch(n).position.digest()));
            // Two data objects, an entry, HEAD.
            assert_eq!(store.take(), (4, 0), "batch {n}");
        }
        let status = sink.status();
        assert_eq!((status.seq, status.rev, status.in_flight), (BATCHES, 1 + BATCHES, 0));
        sink.close().await.unwrap();
    });
}

#[test]
fn batches_that_are_ready_share_one_swap() {
    let world = World::new();
    paused(async {
        let mut settings = settings();
        settings.min_commit_interval_ms = 1_000;
        let (sink, store) = started(&world, settings).await;
        let mut tickets = Vec::new();
        for n in 1..=9 {
            tickets.push((n, sink.submit(batch(n)).await.unwrap()));
        }
        for (n, ticket) in &mut tickets {
            assert_eq!(ticket.acknowledged().await.unwrap().seq, *n);
        }
        let (puts, reads) = store.take();
        assert_eq!(reads, 0);
        let swaps = puts - 3 * 9;
        assert!((1..=3).contains(&swaps), "{swaps} swaps for nine batches");
        assert_eq!(sink.status().rev, 1 + swaps);
        sink.close().await.unwrap();
    });
    assert_eq!(world.check("after group commits"), 9);
}

#[test]
fn swaps_keep_their_distance() {
    let world = World::new();
    paused(async {
        let mut settings = settings();
        settings.min_commit_interval_ms = 1_000;
        let (sink, _) = started(&world, settings).await;
        let begun = tokio::time::Instant::now();
        for n in 1..=BATCHES {
            sink.submit(batch(n)).await.unwrap().acknowledged().await.unwrap();
        }
        assert_eq!(begun.elapsed().as_millis(), 1_000 * u128::from(BATCHES - 1));
        sink.close().await.unwrap();
    });
}

#[test]
fn the_last_batch_again_is_acknowledged_and_writes_nothing() {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, 1), Lived { end: Some(Ok(())), .. }));
    paused(async {
        let (sink, store) = started(&world, settings()).await;
        for _ in 0..2 {
            let ack = sink.submit(batch(1)).await.unwrap().acknowledged().await.unwrap();
            assert_eq!((ack.seq, ack.epoch), (1, 2));
        }
        assert_eq!(store.take(), (0, 0));
        let mut repeated = [sink.submit(batch(2)).await.unwrap(), sink.submit(batch(2)).await.unwrap()];
        for ticket in &mut repeated {
            assert_eq!(ticket.acknowledged().await.unwrap().seq, 2);
        }
        sink.close().await.unwrap();
    });
    assert_eq!(world.check("after repetitions"), 2);
}

#[test]
fn what_can_not_be_accepted_stops_the_sink_behind_what_was() {
    let oversize = |mut batch: Batch| {
        batch.objects[0].table = "t".repeat(200);
        batch
    };
    for (bad, wanted) in [(oversize(batch(2)), "key"), (batch(1), "position")] {
        let world = World::new();
        paused(async {
            let (sink, store) = started(&world, settings()).await;
            let mut first = if wanted == "key" {
                sink.submit(batch(1)).await.unwrap()
            } else {
                sink.submit(batch(1)).await.unwrap();
                sink.submit(batch(2)).await.unwrap()
            };
            let error = sink.submit(bad).await.unwrap_err();
            match (&error, wanted) {
                (SinkError::Key(KeyError::OversizeTableName { .. }), "key") => {}
                (SinkError::PositionRegression { relation: "behind", .. }, "position") => {}
                _ => panic!("{error}"),
            }
            assert_eq!(error.exit_code(), 2);
            assert_eq!(sink.submit(batch(3)).await.unwrap_err(), error);
            first.acknowledged().await.unwrap();
            assert!(store.take().0 >= 4);
            sink.close().await.unwrap();
        });
    }
}

#[test]
fn a_caller_is_told_of_back_pressure_and_the_batch_goes_on() {
    let calls = World::new().live(&[], Pace::OneByOne, 1).calls;
    // The swap of the first batch is the last call but one.
    let outage: Vec<_> = (calls - 2..calls + 20).map(|call| (call, Bend::RequestLost)).collect();
    let world = World::new();
    let told = world.live_impatient(&outage, 2_000);
    assert!(told >= 5, "told {told} times in an outage of more than ten seconds");
    assert_eq!(world.acked.lock().len() as u64, BATCHES);
    world.check_end("after back-pressure");
}

#[test]
fn a_sink_opens_behind_its_probe_and_not_without_it() {
    let world = World::new();
    paused(async {
        let store = Arc::new(Counted::new(world.store.clone()));
        let clients = OneStore(store.clone());
        let probe = ProbeSettings::default();
        let sink = Sink::open(world.env(store.clone()), settings(), &clients, &probe).await.unwrap();
        sink.submit(batch(1)).await.unwrap().acknowledged().await.unwrap();
        sink.close().await.unwrap();
        let probe = world.store.keys().into_iter().filter(|key| key.contains("/probe/")).count();
        assert_eq!(probe, 0, "the probe left keys behind");
    });
    assert_eq!(world.check("behind a probe"), 1);
    let refusing = World::new();
    let error = paused(async {
        let store = Arc::new(Unconditional(refusing.store.clone()));
        let clients = OneStore(store.clone());
        let (env, probe) = (refusing.env(store.clone()), ProbeSettings::default());
        Sink::open(env, settings(), &clients, &probe).await.unwrap_err()
    });
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("check 2 (create on an existing key)"), "{error}");
    assert_eq!(refusing.store.keys(), [""; 0], "a refused start wrote");
}
