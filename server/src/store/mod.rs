//! What the server stores: S3's rules over one ordered map of rows, written once for every backend.
//!
//! Each verb that writes is one job of the index: it reads the current state, decides the condition, and
//! changes rows, all inside the one critical section. Bodies are written before and handed to the job.

mod bent;
mod blob;
mod buckets;
mod deviant;
pub(crate) mod disk;
mod file;
pub(crate) mod index;
mod lifecycle;
mod listing;
pub(crate) mod memory;
pub(crate) mod model;
mod multipart;
mod objects;
mod reading;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use self::blob::Blobs;
use self::index::{Index, IndexError, Rows, RowsMut};
use self::lifecycle::Swept;
use self::model::{Blob, Part};
use crate::instant::Instant;
use crate::names::VersionId;
use crate::precondition::Refusal;

pub(crate) use self::blob::{Draft, Writer};
pub(crate) use self::file::{LoadError, Source};
pub(crate) use self::listing::{Entry, ListedVersion, Page, Query};
pub(crate) use self::multipart::{CompleteRequest, Completed, Completion, Listed, MIN_PART_BYTES};
pub(crate) use self::objects::{Deleted, Doomed, NewObject, Placed};
pub(crate) use self::reading::{Found, Pins, Segment};

/// Why the store did not do what was asked. Nothing was written, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("no bucket {0:?}")]
    NoSuchBucket(String),
    #[error("bucket {0:?} exists")]
    BucketExists(String),
    #[error("bucket {name:?} is not empty")]
    BucketNotEmpty { name: String, versioned: bool },
    /// No current object; `marker` is the delete marker that stands in its place.
    #[error("no object at {key:?}")]
    NoSuchKey { key: String, marker: Option<VersionId> },
    #[error("no version {version:?} of {key:?}")]
    NoSuchVersion { key: String, version: String },
    /// The version asked for is a delete marker.
    #[error("version {0:?} is a delete marker")]
    IsMarker(VersionId, Instant),
    #[error("no upload {0:?}")]
    NoSuchUpload(String),
    #[error("the condition refuses: {refusal:?}")]
    Refused { refusal: Refusal, key: String },
    /// A listed part is not there or has another ETag or checksum.
    #[error("part {number} of upload {upload:?} is not as listed")]
    InvalidPart { upload: String, number: u16, etag: String },
    /// A part before the last is too small to stay.
    #[error("part {number} has {size} bytes")]
    PartTooSmall { number: u16, size: u64, etag: String },
    /// The parts together are not what the request says they are.
    #[error("{0}")]
    Completion(Completion),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("the file of a body: {0}")]
    Blob(#[from] std::io::Error),
}

/// When a write is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Before it is acknowledged: it survives the end of the machine.
    BeforeAnswer,
    /// When the system likes: it survives the end of the process, and what the end of the machine leaves may be damaged.
    Never,
}

/// Where the files of large bodies go.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Made with the first of them.
    pub(crate) directory: PathBuf,
    pub(crate) flush: Flush,
}

/// A decision that a job carries out of the critical section.
type Decided<T> = Result<Result<T, StoreError>, IndexError>;

/// All state of one server.
pub(crate) struct Store {
    index: Arc<dyn Index>,
    blobs: Arc<Blobs>,
    /// Whether what its writes do does not last.
    forgets: bool,
    swept: Mutex<Swept>,
}

impl Store {
    /// Over an index and, for a store on disk, the directory for the files of large bodies. Files that
    /// no record names, left by writes that never committed, are removed.
    ///
    /// # Errors
    /// What the index or the file system says.
    pub(crate) async fn open(index: Arc<dyn Index>, files: Option<Files>) -> Result<Arc<Self>, StoreError> {
        // Without a later write this opening gave no id to anything that lasts, and the next may have its number.
        let generation = index
            .apply_ahead(|rows| {
                let next = number(rows.get(rows::GENERATION)?) + 1;
                rows.put(rows::GENERATION, Bytes::copy_from_slice(&next.to_be_bytes()))?;
                Ok(next)
            })
            .await?;
        let store = Self::new(index, Arc::new(Blobs::new(files, generation)), false);
        let snapshot = store.index.snapshot()?;
        let swept =
            store.blobs.sweep(|id| Ok::<_, StoreError>(snapshot.get(&rows::piece(id, 0))?.is_some()))?;
        if swept > 0 {
            tracing::info!(swept, "removed the files of bodies that were never committed");
        }
        drop(snapshot);
        Ok(Arc::new(store))
    }

    fn new(index: Arc<dyn Index>, blobs: Arc<Blobs>, forgets: bool) -> Self {
        Self { index, blobs, forgets, swept: Mutex::default() }
    }

    /// Takes in a body of about `expected` bytes.
    pub(crate) fn writer(&self, expected: u64) -> Writer {
        self.blobs.writer(expected)
    }

    /// Runs `job` in the critical section and takes its decision out.
    async fn decide<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn RowsMut) -> Decided<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.index.apply(job).await?
    }

    /// The same store, in which every write decides and answers and leaves nothing behind.
    pub(crate) fn forgetting(&self) -> Arc<Self> {
        let index = Arc::new(bent::Forgetting(self.index.clone()));
        Arc::new(Self::new(index, self.blobs.clone(), true))
    }

    /// The state as it is now, for good.
    pub(crate) fn frozen(self: &Arc<Self>) -> Result<Arc<Self>, StoreError> {
        let index = bent::Frozen::new(self.image()?);
        Ok(Arc::new(Self::new(Arc::new(index), self.blobs.clone(), false)))
    }

    /// Removes the files of bodies whose records are gone. Where nothing lasts, no record is; the file of a body
    /// that was forgotten goes with the sweep of the next start.
    fn release(&self, files: &[u64]) {
        if !self.forgets {
            self.blobs.remove(files);
        }
    }

    /// Whether there is no bucket.
    pub(crate) fn is_empty(&self) -> Result<bool, StoreError> {
        let prefix = rows::bucket_prefix("");
        Ok(seek_within(&*self.index.snapshot()?, &prefix, &prefix)?.is_none())
    }

    /// Everything stored, for [`Store::restore`].
    pub(crate) fn image(self: &Arc<Self>) -> Result<Image, StoreError> {
        let snapshot = self.index.snapshot()?;
        let mut rows = Vec::new();
        let mut from = Bytes::new();
        while let Some((key, value)) = snapshot.seek(&from)? {
            from = successor(&key);
            rows.push((key, value));
        }
        let files =
            rows.iter().filter(|(_, value)| value.is_empty()).filter_map(|(key, _)| rows::blob_of(key));
        let pins = Pins::new(self.clone(), files.collect());
        Ok(Image { rows, pins })
    }

    /// Makes the state what it was when `image` was taken; `None` is a new store's.
    pub(crate) async fn restore(&self, image: Option<&Image>) -> Result<(), StoreError> {
        let wanted: Vec<_> = image.map(|image| image.rows.clone()).unwrap_or_default();
        let gone = self
            .index
            .apply(move |rows| {
                let mut gone = clear(rows)?;
                for (key, value) in wanted {
                    if key != rows::SEQUENCE && key != rows::GENERATION {
                        rows.put(&key, value)?;
                    }
                }
                gone.retain(|id| !matches!(rows.get(&rows::piece(*id, 0)), Ok(Some(_))));
                Ok(gone)
            })
            .await?;
        self.release(&gone);
        self.look_again();
        Ok(())
    }
}

/// Removes all rows but those that say which numbers were used, and tells the bodies that are files.
fn clear(rows: &mut dyn RowsMut) -> Result<Vec<u64>, IndexError> {
    let mut gone = Vec::new();
    let mut from = Bytes::new();
    while let Some((key, value)) = rows.seek(&from)? {
        from = successor(&key);
        if key == rows::SEQUENCE || key == rows::GENERATION {
            continue; // names and sequence numbers are never used twice
        }
        if let (Some(id), true) = (rows::blob_of(&key), value.is_empty()) {
            gone.push(id);
        }
        rows.remove(&key)?;
    }
    Ok(gone)
}

/// All rows of a store at one moment; the files that they name stay while it lives.
pub(crate) struct Image {
    rows: Vec<(Bytes, Bytes)>,
    pins: Pins,
}

impl Image {
    /// Whether it was taken from this store.
    pub(crate) fn is_of(&self, store: &Arc<Store>) -> bool {
        self.pins.are_of(store)
    }
}

/// The next number in the order of commits.
fn next_seq(rows: &mut dyn RowsMut) -> Result<u64, IndexError> {
    let next = number(rows.get(rows::SEQUENCE)?) + 1;
    rows.put(rows::SEQUENCE, Bytes::copy_from_slice(&next.to_be_bytes()))?;
    Ok(next)
}

fn number(value: Option<Bytes>) -> u64 {
    value.and_then(|v| v[..].try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// The least key above `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The first row at or after `from` whose key begins with `prefix`.
fn seek_within(rows: &dyn Rows, prefix: &[u8], from: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
    Ok(rows.seek(from)?.filter(|(key, _)| key.starts_with(prefix)))
}

/// Stores a new body's rows beside the record that names it.
fn keep(rows: &mut dyn RowsMut, draft: Draft) -> Result<Blob, IndexError> {
    let (blob, pieces) = draft.keep();
    for (number, piece) in (0..).zip(pieces) {
        rows.put(&rows::piece(blob.id, number), piece)?;
    }
    Ok(blob)
}

/// Removes the bodies' rows; the files among them are to be removed once this is durable.
fn forget(rows: &mut dyn RowsMut, parts: &[Part], files: &mut Vec<u64>) -> Result<(), IndexError> {
    for Part { blob, .. } in parts {
        if blob.is_file() {
            files.push(blob.id);
        }
        for number in 0..blob.pieces.max(1) {
            rows.remove(&rows::piece(blob.id, number))?;
        }
    }
    Ok(())
}
