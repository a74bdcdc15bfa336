//! Removing files of the checkpoint directory that no start needs any more.
//!
//! What is needed only ever moves up, so that whoever removes late removes what nobody needs. A snapshot goes before
//! its marker: a coordinator that was frozen at its marker may still write that, and then it counts on a snapshot that
//! is gone, below the latest, and nothing is committed for it.

use std::collections::BTreeSet;

use super::{Coordinator, Ledger, StageError};
use crate::model::stage::Handle;
use crate::model::stage::files::{MARKERS, RECEIPTS, SNAPSHOTS, Snapshot, Verdict, numbered};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Snapshots.
    pub snapshots: usize,
    /// Markers.
    pub markers: usize,
    /// Receipts.
    pub receipts: usize,
}

impl Coordinator {
    /// Removes snapshots, markers and receipts that nothing needs. What stays: the latest `keep` checkpoints that
    /// count, at least one; everything above them; everything from the first checkpoint on of which an upload that
    /// counts has no receipt; and the receipts of every handle that a snapshot that stays has. Claims stay.
    ///
    /// `keep` is how far back a person may want to restore; a start needs the latest alone.
    ///
    /// # Errors
    /// [`StageError::Fenced`]; of the directory. The next call removes what is left.
    pub async fn prune(&self, keep: usize) -> Result<Pruned, StageError> {
        self.check().await?;
        let mut pruned = Pruned::default();
        let Some(first) = self.ledger.first_needed(keep).await? else { return Ok(pruned) };
        let below = |numbers: Vec<u64>| numbers.into_iter().filter(move |number| *number < first);
        let snapshots: BTreeSet<u64> = below(self.ledger.numbers_in(SNAPSHOTS).await?).collect();
        let markers: BTreeSet<u64> = below(self.ledger.numbers_in(MARKERS).await?).collect();
        for number in snapshots.union(&markers) {
            if snapshots.contains(number) {
                self.ledger.directory.remove(&numbered(SNAPSHOTS, *number)).await?;
                pruned.snapshots += 1;
            }
            if markers.contains(number) {
                self.ledger.directory.remove(&numbered(MARKERS, *number)).await?;
                pruned.markers += 1;
            }
        }
        // Only now: a snapshot that was there still had its handles' receipts.
        let held: BTreeSet<String> = self.ledger.handles().await?.iter().map(Handle::name).collect();
        for name in self.ledger.directory.list(RECEIPTS).await? {
            let number = name.split_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
            if number.is_some_and(|number| number < first) && !held.contains(&name) {
                self.ledger.directory.remove(&format!("{RECEIPTS}/{name}")).await?;
                pruned.receipts += 1;
            }
        }
        if pruned != Pruned::default() {
            tracing::info!(?pruned, first, "pruned the checkpoint directory");
        }
        Ok(pruned)
    }
}

impl Ledger {
    /// The first checkpoint that may be needed; nothing, if all may be.
    async fn first_needed(&self, keep: usize) -> Result<Option<u64>, StageError> {
        let there: BTreeSet<u64> = self.numbers_in(SNAPSHOTS).await?.into_iter().collect();
        let receipts: BTreeSet<String> = self.directory.list(RECEIPTS).await?.into_iter().collect();
        let mut counting = Vec::new();
        for number in there {
            let marker = self.marker(number).await?;
            if marker.is_some_and(|marker| matches!(marker.verdict, Verdict::Completed { .. })) {
                counting.push(number);
            }
        }
        let Some(kept) = counting.len().checked_sub(keep.max(1)) else { return Ok(None) };
        let mut first = counting[kept];
        for number in counting {
            let Some(completed) = self.completed(number).await? else { continue };
            let unsettled =
                completed.snapshot.handles.iter().filter(|handle| !receipts.contains(&handle.name()));
            first = unsettled.map(|handle| handle.checkpoint_id).fold(first, u64::min);
        }
        Ok(Some(first))
    }

    /// The snapshots that count or yet may: every one whose checkpoint was not abandoned.
    ///
    /// # Errors
    /// Of the directory, or of a file.
    pub async fn standing(&self) -> Result<Vec<Snapshot>, StageError> {
        let mut standing = Vec::new();
        for number in self.numbers_in(SNAPSHOTS).await? {
            let snapshot = self.read(&numbered(SNAPSHOTS, number)).await?;
            let marker = self.marker(number).await?;
            if marker.is_none_or(|marker| marker.verdict != Verdict::Abandoned) {
                standing.extend(snapshot);
            }
        }
        Ok(standing)
    }

    /// The handles of every snapshot that is there, whether it counts or not.
    ///
    /// # Errors
    /// Of the directory, or of a file.
    pub async fn handles(&self) -> Result<Vec<Handle>, StageError> {
        let mut handles = Vec::new();
        for number in self.numbers_in(SNAPSHOTS).await? {
            let snapshot: Option<Snapshot> = self.read(&numbered(SNAPSHOTS, number)).await?;
            handles.extend(snapshot.into_iter().flat_map(|snapshot| snapshot.handles));
        }
        Ok(handles)
    }
}
