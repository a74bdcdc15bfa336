//! The checkpoint directory gets small again: whatever a process does not need any more goes, at whichever call one
//! dies; and uploads that nobody will complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sinks::model::ids::{Digest, Nonce};
use sinks::model::stage::files::{Marker, Snapshot, StageFile as _, Verdict};
use sinks::run::stage::{Sweep, Swept, restored, sweep};
use sinks::stage::mutant::Chosen;
use sinks::stage::{
    Coordinator, Directory as _, Ledger, Pruned, Record, StageError, StagedSink, TwoPhaseSink as _,
};
use sinks::store::multipart::MultipartStore as _;
use sinks::store::{Outcome, RepeatedComplete};

use crate::bent::{Bend, BentDirectory, Calls};
use crate::world::{World, line, now, paused, root};

fn world() -> Arc<World> {
    World::new(1, RepeatedComplete::NoSuchUpload, Chosen::default())
}

/// What becomes of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Abandoned,
    /// It counts, and its uploads are not completed.
    Counts,
    /// They are.
    Visible,
}
use Fate::{Abandoned, Counts, Visible};

/// A coordinator and its one subtask after these checkpoints, of a record each.
fn aged(world: &Arc<World>, fates: &[Fate]) -> Coordinator {
    paused(async {
        let calls = Calls::new(world, &[]);
        let over = world.ledger().take_over(world.ids().nonce(), 0).await.unwrap();
        let mut sink = StagedSink::recover(world.opening(&calls, 0), Vec::new()).await.unwrap();
        for (n, fate) in (1..).zip(fates) {
            let text = line(0, n);
            sink.write(Record { id: &text, line: text.as_bytes() }).unwrap();
            sink.prepare(n).await.unwrap();
            let snapshot = Snapshot {
                job_id: root().job_id().to_owned(),
                checkpoint_id: n,
                epoch: 0,
                positions: BTreeMap::new(),
                handles: sink.staged(),
                at_ms: 0,
            };
            over.coordinator.put_snapshot(snapshot).await.unwrap();
            if *fate == Abandoned {
                over.coordinator.abandon(n, 0).await.unwrap();
                continue;
            }
            over.coordinator.complete(n, 0).await.unwrap();
            if *fate == Visible {
                sink.commit_completed().await.unwrap();
            }
        }
        over.coordinator
    })
}

/// The numbers of snapshots, markers and receipts.
fn files(world: &World) -> [Vec<u64>; 3] {
    ["snapshots", "markers", "receipts"].map(|folder| {
        let names = now(world.directory.list(folder)).unwrap();
        names.iter().map(|name| name.rsplit('-').next().unwrap().parse().unwrap()).collect()
    })
}

/// A coordinator that takes over and prunes. Its calls, and how it ended, if the world did not stop.
fn prune(world: &Arc<World>, bends: &[(u64, Bend)]) -> (u64, Option<Result<Pruned, StageError>>) {
    let calls = Calls::new(world, bends);
    let end = paused(async {
        let ledger = Ledger::new(Arc::new(BentDirectory(Arc::clone(&calls))), root().job_id());
        let pruned = async { ledger.take_over(world.ids().nonce(), 0).await?.coordinator.prune(1).await };
        tokio::select! {
            biased;
            () = calls.stop.notified() => None,
            end = pruned => Some(end),
        }
    });
    (calls.made.load(Ordering::Relaxed), end)
}

/// A start finds everything that it needs, and every record is visible once.
fn restarts(world: &Arc<World>, checkpoints: u64, context: &str) {
    paused(async {
        let calls = Calls::new(world, &[]);
        let ledger = world.ledger();
        let over = ledger.take_over(world.ids().nonce(), 0).await.unwrap();
        assert_eq!(over.next_checkpoint, checkpoints + 1, "{context}");
        let latest = over.restored.map(|restored| restored.snapshot.checkpoint_id);
        assert_eq!(latest, Some(checkpoints), "{context}");
        let handles = restored(&ledger, 0).await.unwrap();
        let sink = StagedSink::recover(world.opening(&calls, 0), handles).await;
        assert!(sink.is_ok_and(|sink| sink.staged().is_empty()), "{context}");
    });
    let lines: Vec<String> = world.visible().into_iter().flat_map(|(_, _, lines)| lines).collect();
    assert_eq!(lines, (1..=checkpoints).map(|n| line(0, n)).collect::<Vec<_>>(), "{context}");
}

const AGED: [Fate; 6] = [Visible, Visible, Abandoned, Visible, Visible, Counts];

#[test]
fn only_what_a_start_needs_is_kept() {
    let world = world();
    let coordinator = aged(&world, &AGED);
    assert_eq!(files(&world), [vec![1, 2, 3, 4, 5, 6], vec![1, 2, 3, 4, 5, 6], vec![1, 2, 3, 4, 5]]);
    // A person may want to restore one of the latest three.
    let pruned = now(coordinator.prune(3)).unwrap();
    assert_eq!(pruned, Pruned { snapshots: 3, markers: 3, receipts: 2 });
    // The upload of the abandoned checkpoint went into the next, which has its receipt.
    assert_eq!(files(&world), [vec![4, 5, 6], vec![4, 5, 6], vec![3, 4, 5]]);
    assert_eq!(now(coordinator.prune(3)).unwrap(), Pruned::default());
    assert_eq!(now(coordinator.prune(0)).unwrap(), Pruned { snapshots: 2, markers: 2, receipts: 3 });
    assert_eq!(files(&world), [vec![6], vec![6], vec![]]);
    restarts(&world, 6, "pruned");
    assert_eq!(files(&world), [vec![6], vec![6], vec![6]]);
    let fenced = now(coordinator.prune(1)).unwrap_err();
    assert!(matches!(fenced, StageError::Fenced { mine: 1, .. }), "{fenced}");
}

#[test]
fn what_is_not_settled_stays_and_everything_after_it() {
    let world = world();
    let coordinator = aged(&world, &[Visible, Counts, Abandoned, Counts, Counts]);
    assert_eq!(now(coordinator.prune(1)).unwrap(), Pruned { snapshots: 1, markers: 1, receipts: 1 });
    assert_eq!(files(&world), [vec![2, 3, 4, 5], vec![2, 3, 4, 5], vec![]]);
    restarts(&world, 5, "with uploads of four checkpoints to complete");
    // Nothing counts yet: nothing is old.
    let young = self::world();
    assert_eq!(now(aged(&young, &[Abandoned, Abandoned]).prune(1)).unwrap(), Pruned::default());
}

#[test]
fn a_crash_between_any_two_deletions_converges() {
    let undisturbed = world();
    aged(&undisturbed, &AGED);
    let (calls, end) = prune(&undisturbed, &[]);
    assert_eq!(end.unwrap().unwrap(), Pruned { snapshots: 5, markers: 5, receipts: 5 });
    let expected = files(&undisturbed);
    let mut between = 0;
    for call in 0..calls {
        for bend in [Bend::StopBefore, Bend::StopAfter] {
            let (world, context) = (world(), format!("{bend:?} {call}"));
            aged(&world, &AGED);
            assert!(prune(&world, &[(call, bend)]).1.is_none(), "{context}");
            let left: usize = files(&world).iter().map(Vec::len).sum();
            between += u32::from(left > 2 && left < 17);
            // Another comes and finishes it, or the job goes on first.
            if call % 2 == 0 {
                assert!(matches!(prune(&world, &[]).1, Some(Ok(_))), "{context}");
                assert_eq!(files(&world), expected, "{context}");
                restarts(&world, 6, &context);
            } else {
                restarts(&world, 6, &context);
                assert!(matches!(prune(&world, &[]).1, Some(Ok(_))), "{context}");
                assert_eq!(files(&world), [vec![6], vec![6], vec![6]], "{context}");
            }
        }
    }
    assert!(between >= 28, "{between} crashes lie between two deletions");
}

/// One that was frozen right before its marker writes it after everything was pruned: it counts on nothing.
#[test]
fn a_marker_that_comes_late_changes_nothing() {
    let world = world();
    let coordinator = aged(&world, &AGED);
    now(coordinator.prune(1)).unwrap();
    let late = Marker {
        job_id: root().job_id().to_owned(),
        checkpoint_id: 3,
        epoch: 1,
        verdict: Verdict::Completed { snapshot: Digest::of(b"a snapshot that is gone") },
        at_ms: 0,
    };
    now(world.directory.create(&late.name(), late.encode())).unwrap();
    assert_eq!(now(coordinator.prune(1)).unwrap(), Pruned { markers: 1, ..Pruned::default() });
    now(world.directory.create(&late.name(), late.encode())).unwrap();
    restarts(&world, 6, "with a marker that came late");
}

#[test]
fn uploads_that_nobody_will_complete_are_aborted_and_no_others() {
    let world = world();
    let coordinator = aged(&world, &[Visible, Counts]);
    let (dead, live) = (Nonce::from_bytes([1; 16]), Nonce::from_bytes([2; 16]));
    let begin = |key: &str| match now(world.store.create_upload(key, &[])) {
        Outcome::Done(_) => key.to_owned(),
        other => panic!("{other:?}"),
    };
    let orphan = begin(&root().key(0, 1, dead));
    begin(&root().key(0, 2, live));
    begin(&root().key(0, 3, dead));
    begin("elsewhere/of-another");
    let swept = |grace_ms: u64, age_ms: u64| {
        let when = Sweep { live: vec![live], store_ms: 1_764_417_600_000 + age_ms, grace_ms };
        now(sweep(&coordinator, &*world.store, &root(), &when)).unwrap()
    };
    let young = swept(60_000, 60_000);
    assert_eq!((young.aborted.len(), young.kept.len(), young.others, young.stopped), (0, 4, 1, None));
    let Swept { aborted, kept, others, stopped } = swept(60_000, 60_001);
    let keys: Vec<_> = aborted.into_iter().map(|open| open.key).collect();
    assert_eq!((keys, others, stopped), (vec![orphan], 1, None));
    let mut why: Vec<_> = kept.into_iter().map(|(_, why)| why).collect();
    why.sort_unstable();
    let reasons = [
        "a snapshot names it",
        "its checkpoint is above the latest that counts",
        "its subtask may still put it into a snapshot",
    ];
    assert_eq!(why, reasons);
    assert_eq!(swept(60_000, 60_001).aborted, [], "once");
    restarts(&world, 2, "the upload that counts was left alone");
    let fenced = now(sweep(
        &coordinator,
        &*world.store,
        &root(),
        &Sweep { live: Vec::new(), store_ms: u64::MAX, grace_ms: 0 },
    ));
    assert!(matches!(fenced, Err(StageError::Fenced { .. })), "{fenced:?}");
}
