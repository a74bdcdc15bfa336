//! Each known mistake, made on purpose, is found by what finds it here; without it nothing is found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sinks::model::stage::TOKEN_METADATA;
use sinks::run::stage::restored;
use sinks::stage::mutant::{Chosen, Mutant};
use sinks::stage::{CommitOutcome, StageError, StagedSink, TwoPhaseSink as _};
use sinks::store::{Condition, MultipartStore as _, Outcome, RepeatedComplete, Store as _};

use crate::bent::{Bend, Calls};
use crate::world::{World, now, paused};

fn world(chosen: Chosen) -> Arc<World> {
    World::new(2, RepeatedComplete::NoSuchUpload, chosen)
}

/// What `look` finds wrong, if anything.
fn finding<T>(look: impl FnOnce() -> T) -> Option<String> {
    let found = catch_unwind(AssertUnwindSafe(look)).err()?;
    Some(found.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without words".to_owned()))
}

/// What is found at the end of a life that is stopped after each call in turn, and of the next.
fn finding_after_any_crash(chosen: Chosen) -> Option<String> {
    (0..).find_map(|at| {
        let stopped = world(chosen);
        if stopped.live(&[(at, Bend::StopAfter)]).end.is_some() {
            return Some(finding(|| stopped.check_complete("the end")));
        }
        let found =
            finding(|| stopped.check("a crash")).or_else(|| finding(|| stopped.check_end("a restart")));
        found.map(Some)
    })?
}

#[test]
fn sound_code_shows_no_finding() {
    assert_eq!(finding_after_any_crash(Chosen::default()), None);
}

#[test]
fn a_commit_before_its_marker_is_seen_by_a_reader() {
    let found = finding_after_any_crash(Chosen::one(Mutant::CommitBeforeMarker)).unwrap();
    assert!(found.contains("is visible without its marker"), "{found}");
}

#[test]
fn a_skipped_receipt_is_missed_by_the_audit() {
    let world = world(Chosen::one(Mutant::ReceiptSkipped));
    assert!(matches!(world.live(&[]).end, Some(Ok(()))));
    let found = finding(|| world.check_complete("the end")).unwrap();
    assert!(found.contains("left: None"), "{found}");
}

#[test]
fn a_forgotten_recovery_leaves_a_gap() {
    let found = finding_after_any_crash(Chosen::one(Mutant::RecoveryForgotten)).unwrap();
    assert!(found.contains("not the first records, each once") || found.contains("left: {"), "{found}");
}

#[test]
fn a_snapshot_of_before_the_barrier_is_refused_at_the_commit() {
    let ended = world(Chosen::one(Mutant::SnapshotBeforeBarrier)).live(&[]).end;
    assert!(matches!(ended, Some(Err(StageError::NotInSnapshot { .. }))), "{ended:?}");
}

/// A life that stopped after its first marker, with nothing committed, and the handles that it left.
fn sealed(chosen: Chosen) -> Arc<World> {
    let found = (0..).find_map(|at| {
        let stopped = World::new(1, RepeatedComplete::NoSuchUpload, chosen);
        assert!(stopped.live(&[(at, Bend::StopAfter)]).end.is_none(), "no marker at any call");
        let sealed = now(stopped.ledger().latest()).unwrap().is_some();
        sealed.then_some(stopped)
    });
    let found = found.expect("a marker");
    assert_eq!(found.visible(), []);
    found
}

#[test]
fn an_object_of_another_is_taken_for_ones_own() {
    for (chosen, fooled) in [(Chosen::default(), false), (Chosen::one(Mutant::AnyObjectAccepted), true)] {
        let world = sealed(chosen);
        let handle = paused(restored(&world.ledger(), 0)).unwrap().remove(0);
        now(world.store.abort(&handle.key, &handle.upload_id));
        let metadata = [(TOKEN_METADATA.to_owned(), "00".repeat(32))];
        let put = now(world.store.put(&handle.key, "p0-9\n".into(), Condition::None, &metadata));
        assert!(matches!(put, Outcome::Done(_)));
        let calls = Calls::new(&world, &[]);
        let recovered = paused(StagedSink::recover(world.opening(&calls, 0), vec![handle]));
        assert_eq!(recovered.is_ok(), fooled, "{recovered:?}");
        let found = finding(|| world.check("after")).unwrap();
        assert!(found.contains("is visible without its marker"), "{found}");
    }
}

#[test]
fn an_upload_aborted_at_close_is_lost() {
    for (chosen, lost) in [(Chosen::default(), false), (Chosen::one(Mutant::PreparedAbortedOnClose), true)] {
        let world = World::new(1, RepeatedComplete::SameAnswer, chosen);
        let calls = Calls::new(&world, &[]);
        let ledger = world.ledger();
        let (end, handle) = paused(async {
            let over = ledger.take_over(world.ids().nonce(), 0).await.unwrap();
            let mut sink = StagedSink::recover(world.opening(&calls, 0), Vec::new()).await.unwrap();
            let record = sinks::stage::Record { id: "p0-1", line: b"p0-1" };
            sink.write(record).unwrap();
            let handle = sink.prepare(1).await.unwrap().unwrap();
            let snapshot = sinks::model::stage::files::Snapshot {
                job_id: String::new(),
                checkpoint_id: 1,
                epoch: 0,
                positions: Default::default(),
                handles: sink.staged(),
                at_ms: 0,
            };
            over.coordinator.put_snapshot(snapshot).await.unwrap();
            over.coordinator.complete(1, 0).await.unwrap();
            sink.close().await.unwrap();
            let mut sink = match StagedSink::recover(world.opening(&calls, 0), vec![handle.clone()]).await {
                Ok(sink) => sink,
                Err(error) => return (Err(error), handle),
            };
            (sink.commit(&handle).await, handle)
        });
        match end {
            Err(StageError::Lost { handle: name, .. }) if lost => assert_eq!(name, handle.name()),
            Ok(CommitOutcome::AlreadyCommitted) if !lost => {}
            other => panic!("{other:?}"),
        }
    }
}
