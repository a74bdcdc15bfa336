//! Starts that wait, that take over what another mode left, that contend, and that get no answer.

use std::sync::Arc;

use sinks::env::Env;
use sinks::error::{Alarm, SinkError};
use sinks::local::{Checkpoints as _, MemoryCheckpoints};
use sinks::model::checkpoint::{Acked, Checkpoint, Mode};
use sinks::model::entry::EntryKind;
use sinks::model::head::{Head, Lease};
use sinks::model::ids::Nonce;
use sinks::model::json::Extra;
use sinks::plan::reconcile::Step;
use sinks::run::patience::Patience;
use sinks::run::recover::{Content, Depth, recover};
use sinks::sink::{Settings, Sink};
use sinks::store::{Condition, Outcome, Store as _};

use crate::calls::Bend;
use crate::stores::Contested;
use crate::world::{BATCHES, Pace, World, batch, paused, position, root, settings};

fn left_behind() -> Arc<World> {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, BATCHES).end, Some(Ok(()))));
    world
}

fn head(world: &World) -> Head {
    match paused(world.store.get(&root().head())) {
        Outcome::Done(object) => Head::decode(&object.bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn start(world: &Arc<World>, settings: Settings) -> Result<Sink, SinkError> {
    Sink::start_on(world.env(world.store.clone()), settings, world.checkpoints.clone()).await
}

fn steps(sink: &Sink) -> Vec<&'static str> {
    sink.reconciled().iter().map(Step::name).collect()
}

#[test]
fn the_lease_of_an_earlier_owner_is_waited_out() {
    let world = left_behind();
    let lease = Lease {
        lease_id: Nonce::from_bytes([5; 16]),
        actor: "orphans".to_owned(),
        epoch: 1,
        ttl_ms: 60_000,
        granted_rev: 1,
        extra: Extra::new(),
    };
    let leased = Head { lease: Some(lease), ..head(&world) };
    paused(async {
        world.store.put(&root().head(), leased.encode(), Condition::None, &[]).await;
        let begun = tokio::time::Instant::now();
        let sink = start(&world, settings()).await.unwrap();
        assert_eq!(steps(&sink), ["S3 acquire", "S5 end lease"]);
        assert_eq!(begun.elapsed().as_millis(), 60_000);
        sink.close().await.unwrap();
    });
    assert_eq!(head(&world).lease, None);
    world.check_end("after a lease");
}

#[test]
fn an_owner_that_wrote_just_now_is_waited_for_once() {
    let world = left_behind();
    paused(async {
        let mut settings = settings();
        settings.takeover_quiet_ms = 5_000;
        let begun = tokio::time::Instant::now();
        start(&world, settings).await.unwrap().close().await.unwrap();
        assert_eq!(begun.elapsed().as_millis(), 5_000);
    });
}

/// This host acknowledged up to batch 9 without the manifest, which ends with the last batch.
fn legacy_window() -> Arc<World> {
    let world = left_behind();
    paused(async {
        let stream_id = Some(world.checkpoints.load().await.unwrap().stream_id.unwrap());
        let acked = Some(Acked { position: (&position(9)).into(), seq: BATCHES });
        let record = Checkpoint { stream_id, acked, mode: Mode::LegacyRolling, hint: None };
        world.checkpoints.save(record).await.unwrap();
    });
    world
}

fn check_rebased(world: &Arc<World>, context: &str) {
    let recovered = world.recovered().unwrap();
    assert_eq!(recovered.entries.len() as u64, BATCHES + 1, "{context}");
    let Content::Entry(last) = &recovered.entries.last().unwrap().content else { panic!("{context}") };
    assert_eq!(last.kind, EntryKind::Rebase, "{context}");
    assert!(last.reason.as_ref().unwrap().contains("legacy_rolling"), "{context}");
    assert_eq!(recovered.position, Some(position(9)), "{context}");
    let local = paused(world.checkpoints.load()).unwrap();
    assert_eq!((local.mode, local.hint), (Mode::DurableV2, None), "{context}");
    assert_eq!(local.acked.unwrap().seq, BATCHES + 1, "{context}");
}

#[test]
fn what_was_acknowledged_without_the_manifest_becomes_visible_in_it() {
    let world = legacy_window();
    let lived = world.live(&[], Pace::OneByOne, 0);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}", lived.end);
    assert_eq!(lived.steps, ["S3 acquire", "S6 record legacy window"]);
    check_rebased(&world, "undisturbed");
    for call in 0..lived.calls {
        for bend in [Bend::StopBefore, Bend::StopAfter] {
            let world = legacy_window();
            assert!(world.live(&[(call, bend)], Pace::OneByOne, 0).end.is_none());
            assert!(matches!(world.live(&[], Pace::OneByOne, 0).end, Some(Ok(()))));
            check_rebased(&world, &format!("{bend:?} at call {call}"));
        }
    }
}

#[test]
fn a_head_that_moves_at_every_attempt_is_given_up() {
    let world = left_behind();
    let store = Arc::new(Contested::new(world.store.clone()));
    let error = paused(async {
        let env = Env { store: store.clone(), ..world.env(world.store.clone()) };
        Sink::start_on(env, settings(), Arc::new(MemoryCheckpoints::default())).await.unwrap_err()
    });
    assert_eq!(error, SinkError::Contended { attempts: 20 });
    assert_eq!((error.exit_code(), store.swaps()), (7, 20));
    world.check_end("after contention");
}

#[test]
fn a_start_without_answers_says_so_and_one_without_permission_too() {
    let world = left_behind();
    let silence: Vec<_> = (0..1_000).map(|call| (call, Bend::RequestLost)).collect();
    match world.live(&silence, Pace::OneByOne, BATCHES).end {
        Some(Err(error @ SinkError::StoreUnavailable { .. })) => assert_eq!(error.exit_code(), 7),
        other => panic!("{other:?}"),
    }
    let calls = world.live(&[], Pace::OneByOne, BATCHES).calls;
    // The first and the last call are of the local record.
    for call in 1..calls {
        match world.live(&[(call, Bend::Denied)], Pace::OneByOne, BATCHES).end {
            Some(Err(error @ SinkError::Denied { status: 403, .. })) => assert_eq!(error.exit_code(), 2),
            Some(Ok(())) => {}
            other => panic!("call {call}: {other:?}"),
        }
        world.check("after a refusal");
    }
    world.check_end("after refusals");
}

#[test]
fn long_tails_and_many_objects_are_verified_with_listings() {
    let world = World::new();
    let last = 510;
    assert!(matches!(world.live(&[], Pace::Together, last).end, Some(Ok(()))));
    // A name is no entry: this one is nobody's.
    let orphan = root().entry(7, 1, sinks::model::ids::Digest::of(b"orphan"));
    paused(world.store.put(&orphan, "orphan".into(), Condition::None, &[]));
    assert_eq!(world.recovered().unwrap().entries.len(), 510);
    let key = world.store.keys().into_iter().find(|key| key.contains("/public.items/")).unwrap();
    paused(world.store.delete(&key, None));
    let error = paused(async {
        let patience = Patience::limited(1_000);
        recover(&world.env(world.store.clone()), &root(), Depth::Objects, &patience).await.unwrap_err()
    });
    match error {
        SinkError::Integrity(Alarm::MissingReferenced { what: "data", key: found, .. }) => {
            assert_eq!(found, key)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_host_without_a_record_takes_the_stream_as_it_is() {
    let world = left_behind();
    paused(async {
        let env = world.env(world.store.clone());
        let sink = Sink::start_on(env, settings(), Arc::new(MemoryCheckpoints::default())).await.unwrap();
        assert_eq!(steps(&sink), ["S2 adopt stream id", "S3 acquire", "S9 adopt ahead"]);
        assert_eq!(sink.resume(), Some(position(BATCHES)));
        sink.submit(batch(BATCHES + 1)).await.unwrap().acknowledged().await.unwrap();
        sink.close().await.unwrap();
    });
    // The first host comes back behind.
    let lived = world.live(&[], Pace::OneByOne, BATCHES + 1);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}", lived.end);
    assert_eq!(lived.steps, ["S3 acquire", "S9 adopt ahead"]);
}
