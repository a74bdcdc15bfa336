//! Reading one object: its record and its bytes from one snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::buckets::{find, missing, version_record};
use super::index::Rows;
use super::model::{Object, Part, Version, Versioning};
use super::objects::locate;
use super::{IndexError, Store, StoreError, rows};
use crate::lifecycle::Due;
use crate::names::{BucketName, Key, VersionId};

/// A version that was found, and the snapshot in which its bytes stand.
pub(crate) struct Found<'a> {
    pub(crate) version: Version,
    pub(crate) parts: Vec<Part>,
    /// Whether versioning was ever enabled on the bucket.
    pub(crate) versioned: bool,
    /// When it expires under the bucket's lifecycle. Of a version that was named nothing is told (recorded).
    pub(crate) expiry: Option<Due>,
    snapshot: Box<dyn Rows + Send + 'a>,
    store: &'a Store,
    pins: Option<Pins>,
}

/// A stretch of an object's bytes.
pub(crate) enum Segment {
    Bytes(Bytes),
    /// `length` bytes of a file from `offset` on.
    File {
        path: PathBuf,
        offset: u64,
        length: u64,
    },
}

impl Segment {
    /// Its length in bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

impl Store {
    /// Finds a version, or the current object.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, and `IsMarker` where the version is a delete marker.
    pub(crate) fn find(
        self: &Arc<Self>,
        bucket: &BucketName,
        key: &Key,
        version: Option<&VersionId>,
    ) -> Result<Found<'_>, StoreError> {
        loop {
            let snapshot = self.index.snapshot()?;
            let Some(record) = find(&*snapshot, bucket)? else { return Err(missing(bucket)) };
            let (row, value) = locate(&*snapshot, bucket, key, version)??;
            let named = version.is_some();
            let (version, parts) = version_record(&row, &value)?;
            let Some(object) = &version.object else {
                return Err(StoreError::IsMarker(version.id, version.last_modified));
            };
            let expiry = if named { None } else { record.expiry_of(key, object, version.last_modified) };
            let files: Vec<u64> = parts.iter().filter(|p| p.blob.is_file()).map(|p| p.blob.id).collect();
            let versioned = record.versioning != Versioning::Off;
            let Some(first) = files.first().copied() else {
                return Ok(Found { version, parts, versioned, expiry, snapshot, store: self, pins: None });
            };
            // Files are not in the snapshot. Once pinned they stay, if they are still there after that: a
            // version's files go together, and their rows go before them.
            let pins = Pins::new(self.clone(), files);
            if self.index.snapshot()?.get(&rows::piece(first, 0))?.is_some() {
                return Ok(Found {
                    version,
                    parts,
                    versioned,
                    expiry,
                    snapshot,
                    store: self,
                    pins: Some(pins),
                });
            }
        }
    }
}

impl Found<'_> {
    /// The object; [`Store::find`] gives no delete markers out.
    pub(crate) fn object(&self) -> Result<&Object, StoreError> {
        let marker = || StoreError::IsMarker(self.version.id.clone(), self.version.last_modified);
        self.version.object.as_ref().ok_or_else(marker)
    }

    /// The bytes from `first` to before `end`, and what keeps their files while they are read.
    ///
    /// # Errors
    /// `Index` where a piece is missing: an integrity alarm.
    pub(crate) fn open(self, first: u64, end: u64) -> Result<(Vec<Segment>, Option<Pins>), StoreError> {
        let mut segments = Vec::new();
        let mut start = 0;
        for part in &self.parts {
            let (from, to) = (first.max(start), end.min(start + part.size));
            if from < to {
                self.open_part(part, from - start, to - start, &mut segments)?;
            }
            start += part.size;
        }
        Ok((segments, self.pins))
    }

    fn open_part(
        &self,
        part: &Part,
        from: u64,
        to: u64,
        segments: &mut Vec<Segment>,
    ) -> Result<(), StoreError> {
        let blob = part.blob;
        if let (true, Some(path)) = (blob.is_file(), self.store.blobs.path(blob.id)) {
            segments.push(Segment::File { path, offset: from, length: to - from });
            return Ok(());
        }
        let mut start = 0;
        for number in 0..blob.pieces {
            let row = rows::piece(blob.id, number);
            let piece = self
                .snapshot
                .get(&row)?
                .ok_or(IndexError::Damaged { row, cause: "a piece of a stored body is missing".into() })?;
            let length = piece.len() as u64;
            let (first, last) = (from.max(start), to.min(start + length));
            if first < last {
                // Within one piece, so both fit.
                segments.push(Segment::Bytes(piece.slice((first - start) as usize..(last - start) as usize)));
            }
            start += length;
        }
        Ok(())
    }
}

/// Files that stay while this lives, even if their records go.
pub(crate) struct Pins {
    store: Arc<Store>,
    ids: Vec<u64>,
}

impl Pins {
    pub(super) fn new(store: Arc<Store>, ids: Vec<u64>) -> Self {
        store.blobs.pin(&ids);
        Self { store, ids }
    }

    pub(super) fn are_of(&self, store: &Arc<Store>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let doomed = self.store.blobs.unpin(&self.ids);
        if doomed.is_empty() {
            return;
        }
        // A restore may have brought the record back. Where the index can't tell, the file stays for the sweep.
        let Ok(snapshot) = self.store.index.snapshot() else { return };
        let gone: Vec<u64> =
            doomed.into_iter().filter(|id| matches!(snapshot.get(&rows::piece(*id, 0)), Ok(None))).collect();
        self.store.blobs.remove(&gone);
    }
}
