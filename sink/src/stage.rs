//! The staged sink: records become visible exactly once, when the checkpoint that they are in is durable.
//!
//! An engine drives it through [`TwoPhaseSink`]: it writes records, and at a barrier has them staged as one upload
//! ([`TwoPhaseSink::prepare`]), whose [`Handle`] it puts into the snapshot of that same checkpoint. Once the
//! snapshot counts ([`Coordinator::complete`]) it has the upload completed ([`TwoPhaseSink::commit`]). A start
//! finishes first whatever an earlier one left ([`TwoPhaseSink::recover`]); there is no other way to a sink.

mod directory;
mod error;
mod ledger;
pub mod mutant;
mod prune;
mod sink;

pub use self::directory::{Created, Directory, LocalDirectory, MemoryDirectory};
pub use self::error::StageError;
pub use self::ledger::{Completed, Coordinator, Ledger, Numbers, TakenOver};
pub use self::prune::Pruned;
pub use self::sink::{Opening, Options, StagedSink};
use crate::model::stage::files::Proof;
pub use crate::model::stage::{Handle, JobRoot};

/// One record, as a line of the object: what stands between two line feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its id, for people: the first and the last of an interval stand in its handle.
    pub id: &'a str,
    /// Its bytes, without a line feed.
    pub line: &'a [u8],
}

/// What came of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The object is visible, and its receipt durable.
    Committed(Proof),
    /// It was, before this call.
    AlreadyCommitted,
    /// The store gave no answer in time. The handle is kept: call again, or start again.
    InDoubt {
        /// The last that was seen.
        reason: String,
    },
    /// Neither object nor upload is there. The job must fail for good; nothing continues after it.
    Lost {
        /// What was seen.
        reason: String,
    },
    /// Another object is at the key. The job must fail for good; nothing was overwritten.
    Conflict {
        /// What is there.
        reason: String,
    },
}

/// What an engine drives.
pub trait TwoPhaseSink: Sized {
    /// What a sink is opened with.
    type Opening;

    /// Opens a sink and finishes the handles that the engine restored, ascending by checkpoint. Records are only
    /// taken after that: a reader sees each source's records in order.
    ///
    /// # Errors
    /// [`StageError::Store`] while the store is away: start again. [`StageError::Lost`] and
    /// [`StageError::Conflict`]: never start again without a person.
    fn recover(
        opening: Self::Opening,
        handles: Vec<Handle>,
    ) -> impl Future<Output = Result<Self, StageError>> + Send;

    /// Takes a record into the open interval, in memory.
    ///
    /// # Errors
    /// [`StageError::IntervalFull`]: prepare first.
    fn write(&mut self, record: Record<'_>) -> Result<(), StageError>;

    /// Stages the open interval, invisibly and durably. Nothing of an empty one.
    ///
    /// # Errors
    /// The checkpoint fails and the job goes on: the records stay in the interval, for the next.
    fn prepare(&mut self, checkpoint: u64)
    -> impl Future<Output = Result<Option<Handle>, StageError>> + Send;

    /// What a snapshot must hold of this sink: every handle that is not released, that of the last prepare among
    /// them. To be read after [`Self::prepare`] and never before.
    fn staged(&self) -> Vec<Handle>;

    /// Makes a staged upload visible, once its checkpoint, or a later one that has it, counts.
    ///
    /// # Errors
    /// [`StageError::NotCompleted`], [`StageError::NotInSnapshot`]: nothing was sent. [`StageError::Store`] if
    /// the store refuses for good: mend it, the handle is kept.
    fn commit(&mut self, handle: &Handle) -> impl Future<Output = Result<CommitOutcome, StageError>> + Send;

    /// Gives up an upload that no snapshot has, or abandoned ones alone: the engine restores from an earlier one,
    /// and puts it into none from now on. Best effort: what remains is invisible, and expires.
    ///
    /// # Errors
    /// [`StageError::Internal`] if a snapshot that counts has it, or one of a checkpoint that is not decided: nothing
    /// was sent.
    fn abort(&mut self, handle: &Handle) -> impl Future<Output = Result<(), StageError>> + Send;

    /// Waits until nothing is staged any more, committing whatever counts.
    ///
    /// # Errors
    /// [`StageError::StillStaged`] after `limit_ms`: no success of the job.
    fn end_of_stream(&mut self, limit_ms: u64) -> impl Future<Output = Result<(), StageError>> + Send;

    /// Lets go of the open interval, and of nothing else: what is staged is never aborted.
    ///
    /// # Errors
    /// None of a sound sink.
    fn close(self) -> impl Future<Output = Result<(), StageError>> + Send;
}
