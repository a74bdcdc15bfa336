//! Who coordinates, and what counts.

use std::collections::BTreeMap;

use super::*;
use crate::stage::{LocalDirectory, MemoryDirectory};

fn ledger() -> Ledger {
    Ledger::new(Arc::new(MemoryDirectory::default()), "j")
}

fn nonce(n: u8) -> Nonce {
    Nonce::from_bytes([n; 16])
}

fn snapshot(checkpoint_id: u64) -> Snapshot {
    Snapshot {
        job_id: String::new(),
        checkpoint_id,
        epoch: 0,
        positions: BTreeMap::from([("0".to_owned(), checkpoint_id.to_string())]),
        handles: Vec::new(),
        at_ms: 0,
    }
}

#[tokio::test]
async fn a_job_restores_the_latest_checkpoint_that_counts_and_takes_no_number_twice() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(Arc::new(LocalDirectory::open(dir.path(), nonce(0)).unwrap()), "j");
    let first = ledger.take_over(nonce(1), 0).await.unwrap();
    assert_eq!((first.coordinator.epoch(), first.next_checkpoint), (1, 1));
    assert_eq!(first.restored, None);
    for n in [1, 2, 3] {
        first.coordinator.put_snapshot(snapshot(n)).await.unwrap();
    }
    first.coordinator.complete(1, 0).await.unwrap();
    let marker = first.coordinator.complete(1, 9).await.unwrap();
    assert_eq!(marker.at_ms, 0, "the first decision stays");
    first.coordinator.abandon(2, 0).await.unwrap();
    let decided = first.coordinator.complete(2, 0).await.unwrap_err();
    assert_eq!(decided, StageError::Decided { checkpoint: 2, epoch: 1 });
    let used = first.coordinator.put_snapshot(snapshot(3)).await.unwrap_err();
    assert_eq!(used, StageError::NumberInUse { checkpoint: 3, next: 4 });
    // Number 3 has a snapshot and no marker: whoever comes next abandons it.
    let second = ledger.take_over(nonce(2), 0).await.unwrap();
    assert_eq!((second.coordinator.epoch(), second.next_checkpoint), (2, 4));
    let restored = second.restored.unwrap();
    assert_eq!((restored.snapshot.checkpoint_id, &restored.snapshot.positions["0"]), (1, &"1".to_owned()));
    assert_eq!(ledger.marker(3).await.unwrap().unwrap().verdict, Verdict::Abandoned);
}

/// A coordinator that was frozen at any of its calls comes back after another took over.
#[tokio::test]
async fn a_frozen_coordinator_completes_nothing() {
    let ledger = ledger();
    let old = ledger.take_over(nonce(1), 0).await.unwrap().coordinator;
    old.put_snapshot(snapshot(1)).await.unwrap();
    let new = ledger.take_over(nonce(2), 0).await.unwrap();
    // Frozen after its look at the claims: the slot is taken.
    let late = Coordinator { ledger: ledger.clone(), epoch: u64::MAX };
    assert_eq!(late.abandon(1, 0).await.unwrap_err(), StageError::Decided { checkpoint: 1, epoch: 2 });
    // Frozen before it.
    let fenced = StageError::Fenced { mine: 1, found: 2 };
    assert_eq!(old.complete(1, 0).await.unwrap_err(), fenced);
    assert_eq!(old.put_snapshot(snapshot(2)).await.unwrap_err(), fenced);
    assert_eq!(fenced.exit_code(), 6);
    // Frozen between its look and its snapshot: that is there, but of an epoch that counts no more.
    let slipped = Snapshot { epoch: 1, job_id: "j".to_owned(), ..snapshot(new.next_checkpoint) };
    assert_eq!(ledger.create(&slipped).await.unwrap(), Created::Now);
    assert_eq!(old.complete(new.next_checkpoint, 0).await.unwrap_err(), fenced);
    let mine = new.coordinator.complete(new.next_checkpoint, 0).await.unwrap_err();
    assert!(matches!(mine, StageError::Internal(_)), "{mine}");
    assert_eq!(ledger.latest().await.unwrap(), None);
    assert_eq!(ledger.take_over(nonce(3), 0).await.unwrap().next_checkpoint, new.next_checkpoint + 1);
}

#[tokio::test]
async fn a_snapshot_that_is_gone_or_another_is_no_snapshot() {
    let directory = Arc::new(MemoryDirectory::default());
    let ledger = Ledger::new(directory.clone(), "j");
    let coordinator = ledger.take_over(nonce(1), 0).await.unwrap().coordinator;
    coordinator.put_snapshot(snapshot(1)).await.unwrap();
    let verdict = Verdict::Completed { snapshot: Digest::of(b"another") };
    coordinator.decide(1, verdict, 0).await.unwrap();
    let error = ledger.latest().await.unwrap_err();
    assert!(error.to_string().contains("its marker is of") && error.exit_code() == 5, "{error}");
    coordinator.decide(2, verdict, 0).await.unwrap();
    let error = ledger.latest().await.unwrap_err();
    assert!(error.to_string().contains("it is gone") && error.exit_code() == 5, "{error}");
    // One below the latest that counts may be pruned while it is read: no alarm.
    directory.remove(&numbered(SNAPSHOTS, 1)).await.unwrap();
    let error = ledger.completed(1).await.unwrap_err();
    assert!(error.to_string().contains("it was pruned") && error.exit_code() == 4, "{error}");
    directory.create("markers/00000000000000000003", "half".into()).await.unwrap();
    let error = ledger.latest().await.unwrap_err();
    assert!(matches!(error, StageError::Damaged { .. }) && error.exit_code() == 5, "{error}");
}
