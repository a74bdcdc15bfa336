//! Bodies on their way in: small ones and all of a memory store become rows of the index, the others
//! files beside it. A file is complete and flushed before the record that names it is committed, and is
//! removed after the record is gone and nobody reads it any more.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::model::Blob;

/// Size of a row that holds a piece of a body: large enough that rows are few, small enough that a
/// body's memory is close to its size.
const PIECE_BYTES: usize = 256 * 1024;

/// Bodies up to this size stay in the index of a disk store: one flush for record and body, and no
/// file for each of many small objects.
const INLINE_BYTES: usize = 32 * 1024;

/// Files in one directory: enough to need few, few enough to list one quickly.
const FILES_PER_DIRECTORY: u64 = 4096;

/// Gives out blobs and looks after their files.
#[derive(Debug)]
pub(super) struct Blobs {
    /// `None` keeps every body in rows.
    directory: Option<PathBuf>,
    next: AtomicU64,
    pins: Mutex<HashMap<u64, Pin>>,
}

#[derive(Debug, Default)]
struct Pin {
    readers: u32,
    doomed: bool,
}

impl Blobs {
    /// `generation` is higher at each opening of the same store, so that no id is given out twice.
    pub(super) fn new(directory: Option<PathBuf>, generation: u64) -> Self {
        Self { directory, next: AtomicU64::new(generation << 32), pins: Mutex::default() }
    }

    pub(super) fn writer(self: &Arc<Self>, expected: u64) -> Writer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let first = usize::try_from(expected).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        Writer {
            blobs: self.clone(),
            blob: Blob { id, size: 0, pieces: 0 },
            piece: BytesMut::with_capacity(first),
            pieces: Vec::new(),
            file: None,
        }
    }

    /// The file of a blob of a store that has a directory.
    pub(super) fn path(&self, id: u64) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?;
        Some(directory.join(format!("{:x}", id / FILES_PER_DIRECTORY)).join(format!("{id:016x}")))
    }

    /// Keeps the files of `ids` from being removed until they are unpinned.
    pub(super) fn pin(&self, ids: &[u64]) {
        let mut pins = self.pins.lock();
        for id in ids {
            pins.entry(*id).or_default().readers += 1;
        }
    }

    /// Undoes one [`Blobs::pin`], and gives back the ids whose records went meanwhile.
    pub(super) fn unpin(&self, ids: &[u64]) -> Vec<u64> {
        let mut pins = self.pins.lock();
        let mut doomed = Vec::new();
        for id in ids {
            let Some(pin) = pins.get_mut(id) else { continue };
            pin.readers -= 1;
            if pin.readers == 0 && pins.remove(id).is_some_and(|pin| pin.doomed) {
                doomed.push(*id);
            }
        }
        doomed
    }

    /// Removes the files of blobs whose records are gone; those being read go when the last reader ends.
    pub(super) fn remove(&self, ids: &[u64]) {
        let free: Vec<u64> = {
            let mut pins = self.pins.lock();
            ids.iter().filter(|id| pins.get_mut(id).map(|pin| pin.doomed = true).is_none()).copied().collect()
        };
        for path in free.iter().filter_map(|id| self.path(*id)) {
            discard(&path);
        }
    }

    /// Removes every file that `is_known` does not know: what writes that never committed left behind.
    pub(super) fn sweep<E: From<io::Error>>(
        &self,
        is_known: impl Fn(u64) -> Result<bool, E>,
    ) -> Result<u64, E> {
        let Some(directory) = &self.directory else { return Ok(0) };
        let mut removed = 0;
        for folder in std::fs::read_dir(directory)? {
            for file in std::fs::read_dir(folder?.path())? {
                let file = file?;
                let id = file.file_name().to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
                if let Some(id) = id
                    && !is_known(id)?
                {
                    std::fs::remove_file(file.path())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

fn discard(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        // The next start sweeps it: a file without a record is an orphan.
        tracing::warn!(path = %path.display(), %error, "could not remove the file of a removed body");
    }
}

/// Takes a body in and becomes a [`Draft`].
pub(crate) struct Writer {
    blobs: Arc<Blobs>,
    blob: Blob,
    piece: BytesMut,
    pieces: Vec<Bytes>,
    file: Option<(File, Unkept)>,
}

impl Writer {
    /// Adds bytes; holds at most one piece of a body that goes to a file.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.blob.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.piece.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_BYTES {
                self.end_piece().await?;
            }
        }
        Ok(())
    }

    async fn end_piece(&mut self) -> io::Result<()> {
        let to_file = self.blob.size > INLINE_BYTES as u64;
        if let (Some(path), None, true) = (self.blobs.path(self.blob.id), &self.file, to_file) {
            if let Some(folder) = path.parent() {
                tokio::fs::create_dir_all(folder).await?;
            }
            let mut file = File::create_new(&path).await?;
            file.set_max_buf_size(PIECE_BYTES);
            self.file = Some((file, Unkept(Some(path))));
        }
        match &mut self.file {
            Some((file, _)) => {
                file.write_all(&self.piece).await?;
                self.piece.clear();
            }
            None => {
                self.pieces.push(self.piece.split().freeze());
                self.piece.reserve(PIECE_BYTES);
            }
        }
        Ok(())
    }

    /// Ends the body: its file, if it has one, is flushed to the device with its directory.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn finish(mut self) -> io::Result<Draft> {
        let large = self.blobs.directory.is_some() && self.blob.size > INLINE_BYTES as u64;
        if self.file.is_some() || large {
            self.end_piece().await?;
        } else if !self.piece.is_empty() {
            // An exact copy: the buffer may have grown beyond what the body needs.
            let exact = self.piece.capacity() == self.piece.len();
            let last = self.piece.split();
            self.pieces.push(if exact { last.freeze() } else { Bytes::copy_from_slice(&last) });
        }
        let Some((mut file, unkept)) = self.file else {
            self.blob.pieces = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
            return Ok(Draft { blob: self.blob, pieces: self.pieces, unkept: None });
        };
        file.flush().await?;
        file.sync_data().await?;
        if let Some(folder) = unkept.0.as_deref().and_then(Path::parent) {
            File::open(folder).await?.sync_all().await?;
        }
        Ok(Draft { blob: self.blob, pieces: Vec::new(), unkept: Some(unkept) })
    }
}

/// A body that is complete but belongs to nothing yet: dropped, it leaves nothing behind.
pub(crate) struct Draft {
    blob: Blob,
    pieces: Vec<Bytes>,
    unkept: Option<Unkept>,
}

impl Draft {
    /// Hands the body over to the record that is being committed: where it will be, and its rows
    /// (one empty row for a file).
    pub(super) fn keep(mut self) -> (Blob, Vec<Bytes>) {
        match self.unkept.take() {
            Some(mut file) => {
                file.0 = None;
                (self.blob, vec![Bytes::new()])
            }
            None => (self.blob, std::mem::take(&mut self.pieces)),
        }
    }
}

/// A file that goes unless its body is kept.
struct Unkept(Option<PathBuf>);

impl Drop for Unkept {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            discard(path);
        }
    }
}
