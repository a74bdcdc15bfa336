//! Two processes and one stream: one owns it, the other is fenced, and neither raises an alarm.

use std::sync::Arc;

use sinks::error::{Alarm, SinkError};
use sinks::local::MemoryCheckpoints;
use sinks::model::head::{Head, Intent};
use sinks::model::ids::Nonce;
use sinks::run::recover::Content;
use sinks::sink::Sink;
use sinks::store::{Condition, Outcome, Store as _};

use crate::world::{BATCHES, Pace, World, batch, paused, root, settings};

fn fenced_or_done(end: &Result<(), SinkError>, context: &str) -> bool {
    match end {
        Ok(()) => true,
        Err(SinkError::Fenced { .. }) => false,
        Err(other) => panic!("{other}: {context}"),
    }
}

/// Epochs never fall along the chain, and each has one writer.
fn check_epochs(world: &Arc<World>, context: &str) {
    let entries = world.recovered().map(|recovered| recovered.entries).unwrap_or_default();
    let owners: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.content {
            Content::Entry(entry) => Some((entry.epoch, entry.writer_id)),
            Content::Inventory(_) => None,
        })
        .collect();
    for pair in owners.windows(2) {
        assert!(pair[0].0 <= pair[1].0, "{owners:?}: {context}");
        assert_eq!(pair[0].0 == pair[1].0, pair[0].1 == pair[1].1, "{owners:?}: {context}");
    }
}

#[test]
fn a_process_frozen_at_any_call_comes_back_fenced() {
    let mut fenced = 0;
    for at in 0.. {
        let world = World::new();
        world.live(&[], Pace::OneByOne, 1);
        let context = format!("frozen at call {at}");
        let Some((frozen, other)) = world.frozen_while_another_lives(at) else { break };
        assert!(matches!(other, Ok(())), "{other:?}: {context}");
        fenced += u64::from(!fenced_or_done(&frozen, &context));
        assert_eq!(world.check(&context), BATCHES, "{context}");
        check_epochs(&world, &context);
        world.check_end(&context);
    }
    assert!(fenced >= 10, "only {fenced} of the freezes ended fenced");
}

#[test]
fn processes_that_start_together_end_with_one_owner() {
    for (seed, lost) in (0..200).flat_map(|seed| [(seed, 0), (seed, 30)]) {
        let world = World::new();
        let context = format!("seed {seed}, {lost} of 100 answers lost");
        let writers = 2 + usize::try_from(seed % 2).unwrap();
        let ended = world.race(writers, lost, seed);
        let done = ended.iter().filter(|end| fenced_or_done(end, &context)).count();
        assert!(done >= 1, "{ended:?}: {context}");
        assert_eq!(world.check(&context), BATCHES, "{context}");
        check_epochs(&world, &context);
        // No process acquires twice, so there are no more epochs than processes.
        let epoch = world.recovered().unwrap().view.head.epoch;
        assert!(epoch <= writers as u64, "epoch {epoch} of {writers} processes: {context}");
    }
}

#[test]
fn a_fenced_sink_stays_fenced_and_acknowledges_nothing() {
    let world = World::new();
    paused(async {
        let record = || Arc::new(MemoryCheckpoints::default());
        let first = Sink::start_on(world.env(world.store.clone()), settings(), record()).await.unwrap();
        first.submit(batch(1)).await.unwrap().acknowledged().await.unwrap();
        let second = Sink::start_on(world.env(world.store.clone()), settings(), record()).await.unwrap();
        let mut ticket = first.submit(batch(2)).await.unwrap();
        let error = ticket.acknowledged().await.unwrap_err();
        assert!(matches!(error, SinkError::Fenced { mine: 1, epoch: 2, .. }), "{error}");
        assert_eq!(error.exit_code(), 6);
        assert!(matches!(first.submit(batch(3)).await, Err(SinkError::Fenced { .. })));
        assert!(first.status().fenced);
        assert!(matches!(first.close().await, Err(SinkError::Fenced { .. })));
        for n in 2..=BATCHES {
            assert_eq!(second.submit(batch(n)).await.unwrap().acknowledged().await.unwrap().epoch, 2);
        }
        second.close().await.unwrap();
    });
    assert_eq!(world.check("after the hand-over"), BATCHES);
}

/// What a store does that does not compare: HEAD becomes another write of the same revision.
async fn overwrite(world: &World, change: impl FnOnce(Head) -> Head) {
    let Outcome::Done(object) = world.store.get(&root().head()).await else { panic!("no HEAD") };
    let head = change(Head::decode(&object.bytes).unwrap());
    world.store.put(&root().head(), head.encode(), Condition::None, &[]).await;
}

#[test]
fn a_store_that_loses_a_confirmed_write_is_found_out() {
    let one_back = |head: Head| Head { rev: head.rev - 1, ..head };
    let other = |head: Head| Head {
        rev: head.rev - 1,
        ..head.successor(Nonce::from_bytes([7; 16]), Intent::Publish, 0)
    };
    for change in [&one_back as &dyn Fn(Head) -> Head, &other] {
        let world = World::new();
        let error = paused(async {
            let record = Arc::new(MemoryCheckpoints::default());
            let sink = Sink::start_on(world.env(world.store.clone()), settings(), record).await.unwrap();
            sink.submit(batch(1)).await.unwrap().acknowledged().await.unwrap();
            overwrite(&world, change).await;
            sink.submit(batch(2)).await.unwrap().acknowledged().await.unwrap_err()
        });
        assert!(matches!(error, SinkError::Integrity(Alarm::LostUpdate { .. })), "{error}");
        assert_eq!(error.exit_code(), 5);
    }
}
