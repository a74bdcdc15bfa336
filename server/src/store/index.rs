//! One ordered map of byte strings: all that the store asks of a backend.
//!
//! Everything S3 (buckets, versions, uploads, small bodies) is rows of this map, and its rules are written
//! once above it. A backend gives consistent snapshots to readers and runs writers one after the other.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;

/// Why rows could not be read or written. Each kind says what the caller knows and does next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IndexError {
    /// Nothing was read, or nothing of the write is stored: answer "unavailable"; the caller may try again.
    #[error("index unavailable while {doing}: {cause}")]
    Unavailable {
        /// What the index was doing, as in "reading a row".
        doing: &'static str,
        /// What the backend said.
        #[source]
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The flush failed part-way: the write is wholly stored or not at all, and only opening the index again
    /// tells which. Answer with an error, never with success or a refusal.
    #[error("outcome of the write unknown, the index failed while {doing}: {cause}")]
    Unknown {
        /// What the index was doing, as in "committing a batch".
        doing: &'static str,
        /// What the backend said.
        #[source]
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// A row is not what was written there: an integrity alarm; trying again does not help.
    #[error("row {row:?} is damaged: {cause}")]
    Damaged {
        /// The key of the row.
        row: Bytes,
        /// What is wrong with it.
        cause: String,
    },
}

impl IndexError {
    /// [`IndexError::Unavailable`] from a backend's own error.
    pub fn unavailable(doing: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable { doing, cause: cause.into().into() }
    }

    /// [`IndexError::Unknown`] from a backend's own error.
    pub fn unknown(doing: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unknown { doing, cause: cause.into().into() }
    }
}

/// Rows in ascending order of their keys' bytes, as they were at one moment.
pub trait Rows {
    /// The value at exactly `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError>;

    /// The first row whose key is `key` or comes after it. Costs a descent of the tree, never a scan.
    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError>;
}

/// Rows as the running job sees them: everything stored, and its own changes.
pub trait RowsMut: Rows {
    /// Stores `value` at `key`, in place of what was there.
    fn put(&mut self, key: &[u8], value: Bytes) -> Result<(), IndexError>;

    /// Removes the row at `key`; no row there is no error.
    fn remove(&mut self, key: &[u8]) -> Result<(), IndexError>;
}

/// A write: reads what it must, decides, and changes rows or leaves them as they are.
///
/// A decision against the write is not an error: the job changes nothing and returns `Ok` (see
/// [`apply`](trait.Index.html#method.apply), which carries the answer out). `Err`, or a panic, discards all
/// that the job changed and nothing else: jobs that share its flush go on.
pub type Job = Box<dyn FnOnce(&mut dyn RowsMut) -> Result<(), IndexError> + Send>;

/// An ordered map with consistent snapshots and one writer at a time.
pub trait Index: Send + Sync {
    /// The rows as they are now; later writes do not change what the snapshot shows. Cheap: taken once a
    /// request. It may be held while a write runs, but not for long: a backend keeps old rows for it.
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError>;

    /// Runs `job` alone among all writers. All its changes become visible at once; the future resolves when
    /// they are as durable as the backend makes them. The job runs even if the future is dropped.
    fn write(&self, job: Job) -> Written;

    /// Like [`Index::write`], but lasts only once a later write does: for what means nothing without one.
    fn write_ahead(&self, job: Job) -> Written {
        self.write(job)
    }
}

impl dyn Index + '_ {
    /// Like [`Index::write`], and hands out what `job` returned once its changes are durable.
    pub async fn apply<T, F>(&self, job: F) -> Result<T, IndexError>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn RowsMut) -> Result<T, IndexError> + Send + 'static,
    {
        let (job, answer) = answering(job);
        answered(self.write(job), answer).await
    }

    /// Like [`Index::write_ahead`], and hands out what `job` returned.
    pub async fn apply_ahead<T, F>(&self, job: F) -> Result<T, IndexError>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn RowsMut) -> Result<T, IndexError> + Send + 'static,
    {
        let (job, answer) = answering(job);
        answered(self.write_ahead(job), answer).await
    }
}

/// A job that sends on what `job` returns.
fn answering<T, F>(job: F) -> (Job, oneshot::Receiver<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut dyn RowsMut) -> Result<T, IndexError> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let job: Job = Box::new(move |rows| {
        // The receiver is gone when the caller no longer waits; its write stands all the same.
        let _ = answer.send(job(rows)?);
        Ok(())
    });
    (job, answered)
}

async fn answered<T>(written: Written, mut answer: oneshot::Receiver<T>) -> Result<T, IndexError> {
    written.await?;
    answer.try_recv().map_err(|error| IndexError::unavailable("taking a job's answer", error))
}

/// Resolves when a write is durable, or has failed.
#[derive(Debug)]
#[must_use = "a write counts only once this has resolved"]
pub struct Written(State);

#[derive(Debug)]
enum State {
    Done(Result<(), IndexError>),
    Waiting(oneshot::Receiver<Result<(), IndexError>>),
}

impl Written {
    /// A write that is already over.
    pub fn done(result: Result<(), IndexError>) -> Self {
        Self(State::Done(result))
    }

    /// A write whose end is sent by another thread.
    pub fn waiting(end: oneshot::Receiver<Result<(), IndexError>>) -> Self {
        Self(State::Waiting(end))
    }
}

impl Future for Written {
    type Output = Result<(), IndexError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Done(result) => Poll::Ready(result.clone()),
            State::Waiting(end) => Pin::new(end).poll(context).map(|end| {
                end.unwrap_or_else(|gone| Err(IndexError::unknown("waiting for the writer thread", gone)))
            }),
        }
    }
}

/// What a backend lends to the job it runs.
pub(super) trait Base: Rows {
    /// Stores `value` at `key`, or removes the row where there is none, and returns what was there.
    fn set(&mut self, key: &[u8], value: Option<Bytes>) -> Result<Option<Bytes>, IndexError>;
}

/// Runs `job` over `base` and, unless it returns `Ok`, puts back what it changed. A panic becomes an error, so
/// that one bad request does not end a writer. The outer error says that putting back failed: the caller must
/// then discard everything done to `base`.
pub(super) fn run(job: Job, base: &mut dyn Base) -> Result<Result<(), IndexError>, IndexError> {
    let mut draft = Draft { base, before: Vec::new() };
    let result = catch_unwind(AssertUnwindSafe(|| job(&mut draft)))
        .unwrap_or_else(|panic| Err(IndexError::unavailable("running a write", said(&*panic))));
    if result.is_err() {
        draft.undo()?;
    }
    Ok(result)
}

/// The words of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", words.unwrap_or("no message"))
}

/// Changes in place and remembers what was there.
struct Draft<'a> {
    base: &'a mut dyn Base,
    before: Vec<(Bytes, Option<Bytes>)>,
}

impl Draft<'_> {
    fn set(&mut self, key: &[u8], value: Option<Bytes>) -> Result<(), IndexError> {
        let before = self.base.set(key, value)?;
        self.before.push((Bytes::copy_from_slice(key), before));
        Ok(())
    }

    fn undo(mut self) -> Result<(), IndexError> {
        while let Some((key, before)) = self.before.pop() {
            self.base.set(&key, before)?;
        }
        Ok(())
    }
}

impl Rows for Draft<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        self.base.get(key)
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        self.base.seek(key)
    }
}

impl RowsMut for Draft<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) -> Result<(), IndexError> {
        self.set(key, Some(value))
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), IndexError> {
        self.set(key, None)
    }
}

#[cfg(test)]
mod tests;
