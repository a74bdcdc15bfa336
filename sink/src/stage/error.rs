//! Why staging stops, and what whoever runs the job must do next: the kind decides the exit code.

use crate::error::SinkError;
use crate::model::frame::FrameError;
use crate::model::stage::Handle;

/// Why a staged sink, its directory or its coordinator did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// The store is away, or refuses for good: see the kinds of [`SinkError`]. Every handle is kept.
    #[error(transparent)]
    Store(#[from] SinkError),
    /// The checkpoint directory can't be read or written: mend the disk or its permissions, then start again.
    #[error(
        "checkpoint directory, {name}: {reason}; nothing is concluded from it: mend it, then start again"
    )]
    Directory {
        /// The file.
        name: String,
        /// What the system says.
        reason: String,
    },
    /// A file of the directory is not what was written, or is gone and counted on: restore it from a copy, or restore
    /// an older snapshot.
    #[error(
        "checkpoint directory, {name} is damaged: {error}; files are written once and never change: put it back from a \
         copy, or restore an older snapshot into an empty prefix"
    )]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong with it.
        error: FrameError,
    },
    /// Another coordinator took over. Only a new process may claim again.
    #[error(
        "fenced: epoch {found} was claimed, this coordinator has epoch {mine}; one job has one coordinator"
    )]
    Fenced {
        /// This one's.
        mine: u64,
        /// The highest.
        found: u64,
    },
    /// The checkpoint has another verdict already: it fails, the job goes on.
    #[error("checkpoint {checkpoint} is decided already, by the coordinator of epoch {epoch}")]
    Decided {
        /// Its number.
        checkpoint: u64,
        /// Who decided.
        epoch: u64,
    },
    /// The number was used: the checkpoint fails, the next has a higher one.
    #[error("checkpoint {checkpoint} is not above every number in use; the next is {next} or later")]
    NumberInUse {
        /// The number that was asked for.
        checkpoint: u64,
        /// The least that is free.
        next: u64,
    },
    /// Commit was asked for before the marker was durable: the engine broadcast too early, or to a handle of a
    /// checkpoint that was abandoned. Nothing was sent.
    #[error("{handle} may not be committed: no completed checkpoint from {checkpoint} on is durable")]
    NotCompleted {
        /// The handle's name.
        handle: String,
        /// Its checkpoint.
        checkpoint: u64,
    },
    /// A snapshot that counts does not have a handle that it must have: it was taken before the sink's barrier.
    /// Page; a restore from it loses this interval.
    #[error(
        "{handle} is not in snapshot {checkpoint}, and what is staged must be in the snapshot of its own checkpoint: it \
         was taken before the sink's barrier; mend the engine, and restore an older snapshot into an empty prefix, or \
         the interval is lost"
    )]
    NotInSnapshot {
        /// The handle's name.
        handle: String,
        /// The snapshot.
        checkpoint: u64,
    },
    /// Data that a durable checkpoint counts on is gone. Page; the job must not go on.
    #[error(
        "lost: {handle} at {key:?}: {reason}; a completed checkpoint counts on it, so never start over it: put the \
         object back, or restore an older snapshot into an empty prefix"
    )]
    Lost {
        /// The handle's name.
        handle: String,
        /// The key.
        key: String,
        /// What was seen.
        reason: String,
    },
    /// Another object or receipt stands where this upload's must be. Page; nothing is overwritten.
    #[error(
        "conflict: {handle} at {key:?}: {reason}; only this upload may stand there, and nothing was overwritten: move \
         the other job to a prefix or name of its own, or take away what somebody else wrote there"
    )]
    Conflict {
        /// The handle's name.
        handle: String,
        /// The key.
        key: String,
        /// What is there.
        reason: String,
    },
    /// The interval is full: nothing more is taken until a checkpoint is prepared.
    #[error("the interval has {bytes} bytes, {limit} at most; take a checkpoint first")]
    IntervalFull {
        /// Bytes with the record that did not fit.
        bytes: u64,
        /// Most bytes.
        limit: u64,
    },
    /// The stream ended, and not everything staged is visible yet: start again, recovery finishes it.
    #[error("the stream ended with {handles} staged uploads not committed within {waited_ms} ms")]
    StillStaged {
        /// How many.
        handles: usize,
        /// How long it was waited.
        waited_ms: u64,
    },
    /// Our own fault: keep the logs.
    #[error("internal error: {0}")]
    Internal(String),
}

impl StageError {
    /// The exit code of a process that ends for this.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Damaged { error: FrameError::NewerWriter { .. }, .. } => 2,
            Self::Directory { .. }
            | Self::Decided { .. }
            | Self::NumberInUse { .. }
            | Self::NotCompleted { .. }
            | Self::Internal(_) => 4,
            Self::Damaged { .. } | Self::NotInSnapshot { .. } | Self::Lost { .. } | Self::Conflict { .. } => {
                5
            }
            Self::Fenced { .. } => 6,
            Self::IntervalFull { .. } | Self::StillStaged { .. } => 7,
        }
    }

    pub(crate) fn lost(handle: &Handle, reason: impl Into<String>) -> Self {
        Self::Lost { handle: handle.name(), key: handle.key.clone(), reason: reason.into() }
    }

    pub(crate) fn conflict(handle: &Handle, reason: impl Into<String>) -> Self {
        Self::Conflict { handle: handle.name(), key: handle.key.clone(), reason: reason.into() }
    }
}
