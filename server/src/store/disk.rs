//! The index on disk: a redb file, one writer thread, one flush for all writers that wait.
//!
//! Why redb: of three candidates it alone keeps every promise. Measured on two cores and a quiet disk whose
//! fdatasync took 0.1 to 0.2 ms, with 100,000 rows of 300 bytes, one in twenty of 4 KiB, the caches set to
//! 4 MiB (fjall: 2 MiB, and 2 MiB of new rows):
//!
//! | | redb 4.6 | fjall 3.1 | sled 0.34.7 |
//! | --- | --- | --- | --- |
//! | before the answer | fdatasync | fdatasync | `sync_file_range`, which leaves the disk's cache unflushed |
//! | snapshot of several rows | yes | yes | no |
//! | first row after 100,000 removed ones | 8 us | 34 to 120 ms | 9 us |
//! | memory added by filling | 6 MiB | 31 MiB | 34 MiB |
//! | and by 10 s of writes after that | 13 to 18 MiB | 60 MiB | 75 to 98 MiB |
//! | acknowledged writes a second, by 1 writer | 4,400 | 8,600 | 4,900 |
//! | by 16 | 17,500 | 34,900 | 19,500 |
//! | by 64 | 24,700 | 45,600 | 30,500 |
//! | opening after `kill -9`, lost rows | 80 to 140 ms, 0 | 210 to 370 ms, 0 | 50 ms, 0 |
//! | size after 100,000 overwrites of one row | 72 KiB | 64 MiB, 3 in use | 0.2 MiB |
//!
//! fjall is twice as fast, but a listing after many removals reads every removed row, and it needs three to
//! five times the memory; sled's speed comes without a flush.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use bytes::Bytes;
use redb::{
    CommitError, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageError, Table,
    TableDefinition,
};
use tokio::sync::oneshot;

use super::Flush;
use super::index::{Base, Index, IndexError, Job, Rows, Written, run};

mod file;
mod open;
#[cfg(test)]
mod tests;

pub use open::OpenError;

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");

/// Jobs under one flush at most: bounds what a batch holds in memory; far above the writers of a busy server.
const BATCH: usize = 256;

/// An index that survives the process. At most one [`Disk`] holds a directory, in this process or any other.
///
/// Dropping it runs the writes that were handed in, then closes the file; it waits for the flush.
#[derive(Debug)]
pub struct Disk {
    database: Arc<Database>,
    /// `None` only while dropping: without a sender, the thread ends.
    queue: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    /// Held, not read: its lock keeps others out of the directory until the database is closed.
    _lock: File,
}

struct Request {
    job: Job,
    /// Whether its batch is flushed.
    flush: bool,
    end: oneshot::Sender<Result<(), IndexError>>,
}

impl Disk {
    /// Opens the index in `dir`, which it makes where there is none, and takes hold of the directory.
    ///
    /// The directory must be new, empty, or one that this opened before; it may then hold files of other
    /// parts of the store as well. After a kill the file is checked first: about a second for each
    /// million rows. Blocks the calling thread.
    pub fn open(dir: &Path, flush: Flush) -> Result<Self, OpenError> {
        let (lock, database) = open::open(dir, flush)?;
        let database = Arc::new(database);
        let (queue, requests) = channel();
        let thread = Builder::new()
            .name("assay-index".into())
            .spawn({
                let database = Arc::clone(&database);
                move || serve(&database, &requests)
            })
            .map_err(OpenError::unusable(dir, "starting the writer thread"))?;
        Ok(Self { database, queue: Some(queue), thread: Some(thread), _lock: lock })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been answered to every writer as an unknown outcome.
            let _ = thread.join();
        }
    }
}

impl Index for Disk {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError> {
        let reading = |cause: redb::Error| IndexError::unavailable("taking a snapshot", cause);
        let transaction = self.database.begin_read().map_err(|cause| reading(cause.into()))?;
        // The table keeps its transaction alive.
        Ok(Box::new(Snapshot(transaction.open_table(ROWS).map_err(|cause| reading(cause.into()))?)))
    }

    /// Hands the job to the writer thread now. The future resolves once the batch with the job has been
    /// flushed, and snapshots show its rows only from then on.
    fn write(&self, job: Job) -> Written {
        self.hand_in(job, true)
    }

    fn write_ahead(&self, job: Job) -> Written {
        self.hand_in(job, false)
    }
}

impl Disk {
    fn hand_in(&self, job: Job, flush: bool) -> Written {
        let (end, ended) = oneshot::channel();
        match self.queue.as_ref().map(|queue| queue.send(Request { job, flush, end })) {
            Some(Ok(())) => Written::waiting(ended),
            _ => Written::done(Err(IndexError::unavailable(
                "handing in a write",
                "the writer thread has ended",
            ))),
        }
    }
}

/// The writer thread's life: everything that waits becomes one batch, until nobody can send.
fn serve(database: &Database, requests: &Receiver<Request>) {
    while let Ok(first) = requests.recv() {
        let waiting = requests.try_iter().take(BATCH - 1);
        let mut flush = false;
        let apart = |request: Request| {
            flush |= request.flush;
            (request.job, request.end)
        };
        let (jobs, ends): (Vec<_>, Vec<_>) = std::iter::once(first).chain(waiting).map(apart).unzip();
        let results = match store(database, jobs, flush) {
            Ok(results) => results,
            Err(error) => vec![Err(error); ends.len()],
        };
        for (end, result) in ends.into_iter().zip(results) {
            // A caller that no longer waits has dropped its end; its write stands all the same.
            let _ = end.send(result);
        }
    }
}

/// Runs all jobs in one transaction and flushes at most once; each job's own result, or why the whole batch failed.
fn store(
    database: &Database,
    jobs: Vec<Job>,
    flush: bool,
) -> Result<Vec<Result<(), IndexError>>, IndexError> {
    let beginning = |cause: redb::Error| IndexError::unavailable("beginning a batch", cause);
    let mut transaction = database.begin_write().map_err(|cause| beginning(cause.into()))?;
    if !flush {
        transaction.set_durability(Durability::None).map_err(|cause| beginning(cause.into()))?;
    }
    let mut batch = Batch {
        rows: transaction.open_table(ROWS).map_err(|cause| beginning(cause.into()))?,
        changed: false,
    };
    let results = jobs.into_iter().map(|job| run(job, &mut batch)).collect::<Result<Vec<_>, _>>()?;
    let changed = batch.changed;
    drop(batch);
    if changed {
        transaction.commit().map_err(|cause| match cause {
            CommitError::TransactionPoisoned => IndexError::unavailable("committing a batch", cause),
            cause => IndexError::unknown("committing a batch", cause),
        })?;
    } else {
        transaction
            .abort()
            .map_err(|cause| IndexError::unavailable("ending a batch without changes", cause))?;
    }
    Ok(results)
}

/// The rows as the jobs of one batch see and change them.
struct Batch<'a> {
    rows: Table<'a, &'static [u8], &'static [u8]>,
    /// Whether anything is there to flush.
    changed: bool,
}

impl Rows for Batch<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        get(&self.rows, key)
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        seek(&self.rows, key)
    }
}

impl Base for Batch<'_> {
    fn set(&mut self, key: &[u8], value: Option<Bytes>) -> Result<Option<Bytes>, IndexError> {
        self.changed = true;
        let before = match &value {
            Some(value) => self.rows.insert(key, &value[..]),
            None => self.rows.remove(key),
        };
        let before = before.map_err(|cause| failed("changing a row", key, cause))?;
        Ok(before.map(|value| Bytes::copy_from_slice(value.value())))
    }
}

struct Snapshot(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Rows for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        get(&self.0, key)
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        seek(&self.0, key)
    }
}

fn get(
    rows: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Option<Bytes>, IndexError> {
    let value = rows.get(key).map_err(|cause| failed("reading a row", key, cause))?;
    Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
}

fn seek(
    rows: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Option<(Bytes, Bytes)>, IndexError> {
    let row = rows.range(key..).and_then(|mut range| range.next().transpose());
    let row = row.map_err(|cause| failed("seeking a row", key, cause))?;
    Ok(row.map(|(key, value)| (Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value()))))
}

/// A failure at the row with `key`: damage when redb's checks found some, else the store's own trouble.
fn failed(doing: &'static str, key: &[u8], cause: StorageError) -> IndexError {
    match cause {
        StorageError::Corrupted(cause) => IndexError::Damaged { row: Bytes::copy_from_slice(key), cause },
        cause => IndexError::unavailable(doing, cause),
    }
}
