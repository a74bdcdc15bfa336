//! The checkpoint directory of one job, typed: who coordinates, what a job restores from, which checkpoints count,
//! and which uploads became objects.
//!
//! A coordinator is fenced without locks. It claims the next epoch, then reads the directory, and decides every
//! checkpoint that it finds undecided: abandoned. One that was frozen meanwhile may still write a snapshot, but
//! no marker: of a snapshot that was there at the claim the marker is taken, and before any other marker it looks
//! at the claims and finds itself fenced.

use std::sync::Arc;

use super::StageError;
use super::directory::{Created, Directory};
use crate::model::frame::{FrameError, Kind};
use crate::model::ids::{Digest, Nonce};
use crate::model::stage::Handle;
use crate::model::stage::files::{
    CLAIMS, Claim, MARKERS, Marker, RECEIPTS, Receipt, SNAPSHOTS, Snapshot, StageFile, Verdict, number_of,
    numbered,
};

/// A job's checkpoint directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(super) directory: Arc<dyn Directory>,
    job_id: String,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// That it counts.
    pub marker: Marker,
    /// What is restored.
    pub snapshot: Snapshot,
}

/// The directory's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The highest of any snapshot or marker.
    pub highest: Option<u64>,
}

impl Numbers {
    /// The least number that no checkpoint has.
    #[must_use]
    pub fn next(self) -> u64 {
        self.highest.map_or(1, |highest| highest + 1)
    }
}

impl Ledger {
    /// Of this job.
    #[must_use]
    pub fn new(directory: Arc<dyn Directory>, job_id: &str) -> Self {
        Self { directory, job_id: job_id.to_owned() }
    }

    /// The job.
    #[must_use]
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    pub(super) async fn read<F: StageFile>(&self, name: &str) -> Result<Option<F>, StageError> {
        let Some(bytes) = self.directory.read(name).await? else { return Ok(None) };
        let file = F::decode(name, &bytes);
        file.map(Some).map_err(|error| StageError::Damaged { name: name.to_owned(), error })
    }

    async fn create<F: StageFile>(&self, file: &F) -> Result<Created, StageError> {
        self.directory.create(&file.name(), file.encode()).await
    }

    pub(super) async fn numbers_in(&self, folder: &str) -> Result<Vec<u64>, StageError> {
        let names = self.directory.list(folder).await?;
        Ok(names.iter().filter_map(|name| number_of(name)).collect())
    }

    /// The directory's numbers, of counted and uncounted checkpoints alike.
    ///
    /// # Errors
    /// Of the directory.
    pub async fn numbers(&self) -> Result<Numbers, StageError> {
        let mut all = self.numbers_in(SNAPSHOTS).await?;
        all.extend(self.numbers_in(MARKERS).await?);
        Ok(Numbers { highest: all.into_iter().max() })
    }

    /// What became of a checkpoint, if it is decided.
    ///
    /// # Errors
    /// Of the directory, or of the file.
    pub async fn marker(&self, checkpoint: u64) -> Result<Option<Marker>, StageError> {
        self.read(&numbered(MARKERS, checkpoint)).await
    }

    /// A checkpoint, if it counts.
    ///
    /// # Errors
    /// Of the directory; [`StageError::Damaged`] if the snapshot is gone, or not the one that was decided about.
    pub async fn completed(&self, checkpoint: u64) -> Result<Option<Completed>, StageError> {
        let Some(marker) = self.marker(checkpoint).await? else { return Ok(None) };
        let Verdict::Completed { snapshot: digest } = marker.verdict else { return Ok(None) };
        let name = numbered(SNAPSHOTS, checkpoint);
        let snapshot: Option<Snapshot> = self.read(&name).await?;
        let damaged = |name, reason| {
            Err(StageError::Damaged { name, error: FrameError::Body { kind: Kind::Snapshot, reason } })
        };
        let Some(snapshot) = snapshot else {
            if self.counts_above(checkpoint).await? {
                let reason =
                    "a later checkpoint counts, and it was pruned while it was looked for".to_owned();
                return Err(StageError::Directory { name, reason });
            }
            return damaged(name, format!("its marker counts on SHA-256 {digest}, and it is gone"));
        };
        let found = Digest::of(&snapshot.encode());
        if found != digest || snapshot.job_id != self.job_id {
            let reason = format!("job {:?}, SHA-256 {found}; its marker is of {digest}", snapshot.job_id);
            return damaged(name, reason);
        }
        Ok(Some(Completed { marker, snapshot }))
    }

    async fn counts_above(&self, checkpoint: u64) -> Result<bool, StageError> {
        for number in self.numbers_in(MARKERS).await?.into_iter().filter(|number| *number > checkpoint) {
            let marker = self.marker(number).await?;
            if marker.is_some_and(|marker| marker.verdict != Verdict::Abandoned) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The latest checkpoint that counts: what a job restores from.
    ///
    /// # Errors
    /// As of [`Self::completed`].
    pub async fn latest(&self) -> Result<Option<Completed>, StageError> {
        for checkpoint in self.numbers_in(MARKERS).await?.into_iter().rev() {
            if let Some(completed) = self.completed(checkpoint).await? {
                return Ok(Some(completed));
            }
        }
        Ok(None)
    }

    /// The receipt of a handle's name; whether it is of this handle, its token tells.
    ///
    /// # Errors
    /// Of the directory, or of the file.
    pub async fn receipt(&self, handle: &Handle) -> Result<Option<Receipt>, StageError> {
        self.read(&format!("{RECEIPTS}/{}", handle.name())).await
    }

    /// Makes a receipt durable. One that is there of the same upload is as good.
    ///
    /// # Errors
    /// Of the directory; [`StageError::Conflict`] if the receipt that is there is of another upload.
    pub async fn put_receipt(&self, receipt: &Receipt) -> Result<(), StageError> {
        if self.create(receipt).await? == Created::Now {
            return Ok(());
        }
        let there: Option<Receipt> = self.read(&receipt.name()).await?;
        match there {
            Some(there) if there.commit_token == receipt.commit_token => Ok(()),
            there => Err(StageError::Conflict {
                handle: receipt.name(),
                key: receipt.key.clone(),
                reason: format!("a receipt is there already: {there:?}"),
            }),
        }
    }

    /// How many receipts there are.
    ///
    /// # Errors
    /// Of the directory.
    pub async fn receipts(&self) -> Result<usize, StageError> {
        Ok(self.directory.list(RECEIPTS).await?.len())
    }

    /// Takes over as the job's coordinator: claims the next epoch, abandons every undecided checkpoint, and says
    /// what to restore.
    ///
    /// # Errors
    /// Of the directory; [`StageError::Fenced`] if another claims at the same time and is ahead.
    pub async fn take_over(&self, coordinator: Nonce, at_ms: u64) -> Result<TakenOver, StageError> {
        let epoch = loop {
            let epoch = self.numbers_in(CLAIMS).await?.last().map_or(1, |last| last + 1);
            let claim = Claim { job_id: self.job_id.clone(), epoch, coordinator, at_ms };
            if self.create(&claim).await? == Created::Now {
                break epoch;
            }
        };
        let coordinator = Coordinator { ledger: self.clone(), epoch };
        let decided = self.numbers_in(MARKERS).await?;
        let undecided = self.numbers_in(SNAPSHOTS).await?.into_iter().filter(|n| !decided.contains(n));
        for checkpoint in undecided.collect::<Vec<_>>() {
            match coordinator.decide(checkpoint, Verdict::Abandoned, at_ms).await {
                // Another decided it a moment ago: as good, since nobody decides it again.
                Ok(_) | Err(StageError::Decided { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let restored = self.latest().await?;
        Ok(TakenOver { next_checkpoint: self.numbers().await?.next(), coordinator, restored })
    }
}

/// What a coordinator starts with.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// Its rights.
    pub coordinator: Coordinator,
    /// What the job restores; nothing for a job that never completed a checkpoint.
    pub restored: Option<Completed>,
    /// The least number of the next checkpoint.
    pub next_checkpoint: u64,
}

/// The rights of the coordinator of one epoch, until another claims.
#[derive(Clone, Debug)]
pub struct Coordinator {
    pub(super) ledger: Ledger,
    epoch: u64,
}

impl Coordinator {
    /// The directory.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Looks whether it still coordinates.
    ///
    /// # Errors
    /// [`StageError::Fenced`] if it does not.
    pub async fn check(&self) -> Result<(), StageError> {
        match self.ledger.numbers_in(CLAIMS).await?.last() {
            Some(&found) if found > self.epoch => Err(StageError::Fenced { mine: self.epoch, found }),
            _ => Ok(()),
        }
    }

    /// Makes a snapshot durable, under this coordinator's epoch. It does not count yet.
    ///
    /// # Errors
    /// [`StageError::Fenced`]; [`StageError::NumberInUse`] if a snapshot of its number is there; of the directory.
    pub async fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), StageError> {
        self.check().await?;
        let snapshot = Snapshot { epoch: self.epoch, job_id: self.ledger.job_id.clone(), ..snapshot };
        snapshot.check().map_err(StageError::Internal)?;
        match self.ledger.create(&snapshot).await? {
            Created::Now => Ok(()),
            Created::Before => {
                let next = self.ledger.numbers().await?.next();
                Err(StageError::NumberInUse { checkpoint: snapshot.checkpoint_id, next })
            }
        }
    }

    /// Decides that a checkpoint counts: what is staged in its snapshot must become visible from now on, and may.
    ///
    /// # Errors
    /// [`StageError::Fenced`]; [`StageError::Decided`] if it was abandoned; [`StageError::Internal`] without a
    /// snapshot of this coordinator; of the directory.
    pub async fn complete(&self, checkpoint: u64, at_ms: u64) -> Result<Marker, StageError> {
        let snapshot: Option<Snapshot> = self.ledger.read(&numbered(SNAPSHOTS, checkpoint)).await?;
        let snapshot = snapshot.filter(|snapshot| snapshot.epoch == self.epoch).ok_or_else(|| {
            StageError::Internal(format!("checkpoint {checkpoint} has no snapshot of epoch {}", self.epoch))
        })?;
        let verdict = Verdict::Completed { snapshot: Digest::of(&snapshot.encode()) };
        self.decide(checkpoint, verdict, at_ms).await
    }

    /// Decides that a checkpoint does not count: what is staged in it goes into the next.
    ///
    /// # Errors
    /// As of [`Self::complete`].
    pub async fn abandon(&self, checkpoint: u64, at_ms: u64) -> Result<Marker, StageError> {
        self.decide(checkpoint, Verdict::Abandoned, at_ms).await
    }

    async fn decide(&self, checkpoint: u64, verdict: Verdict, at_ms: u64) -> Result<Marker, StageError> {
        self.check().await?;
        let job_id = self.ledger.job_id.clone();
        let marker = Marker { job_id, checkpoint_id: checkpoint, epoch: self.epoch, verdict, at_ms };
        if self.ledger.create(&marker).await? == Created::Now {
            return Ok(marker);
        }
        match self.ledger.marker(checkpoint).await? {
            Some(there) if there.verdict == verdict && there.epoch == self.epoch => Ok(there),
            Some(there) => Err(StageError::Decided { checkpoint, epoch: there.epoch }),
            None => Err(StageError::Internal(format!("the marker of {checkpoint} came and went"))),
        }
    }
}

#[cfg(test)]
mod tests;
