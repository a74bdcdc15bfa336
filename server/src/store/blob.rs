//! Bodies on their way in: small ones and all of a memory store become rows of the index, the others
//! files beside it. A file is complete and flushed before the record that names it is committed, and is
//! removed after the record is gone and nobody reads it any more.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::model::Blob;
use super::{Files, Flush};

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
    files: Option<Files>,
    next: AtomicU64,
    pins: Mutex<HashMap<u64, Pin>>,
    /// Folders whose own names are known to be on the device.
    flushed: Mutex<HashSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct Pin {
    readers: u32,
    doomed: bool,
}

impl Blobs {
    /// `generation` is higher at each opening of the same store, so that no id is given out twice.
    pub(super) fn new(files: Option<Files>, generation: u64) -> Self {
        Self {
            files,
            next: AtomicU64::new(generation << 32),
            pins: Mutex::default(),
            flushed: Mutex::default(),
        }
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
        let directory = &self.files.as_ref()?.directory;
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

    /// Flushes the name of a folder, which stands in the directory above it, and that directory's, once.
    async fn flush_name(&self, folder: &Path) -> io::Result<()> {
        if self.flushed.lock().contains(folder) {
            return Ok(());
        }
        for above in folder.ancestors().skip(1).take(2) {
            File::open(above).await?.sync_all().await?;
        }
        self.flushed.lock().insert(folder.to_owned());
        Ok(())
    }

    /// Removes every file that `is_known` does not know: what writes that never committed left behind.
    pub(super) fn sweep<E: From<io::Error>>(
        &self,
        is_known: impl Fn(u64) -> Result<bool, E>,
    ) -> Result<u64, E> {
        let Some(Files { directory, .. }) = &self.files else { return Ok(0) };
        let mut removed = 0;
        let folders = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue; // not ours
            }
            for file in std::fs::read_dir(folder.path())? {
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
            // In one step, so that the file goes again also where nobody waits for it any more.
            let made = tokio::task::spawn_blocking(move || {
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                let file = std::fs::File::create_new(&path)?;
                io::Result::Ok((file, Unkept(Some(path))))
            });
            let (file, unkept) = made.await.map_err(io::Error::other)??;
            let mut file = File::from_std(file);
            file.set_max_buf_size(PIECE_BYTES);
            self.file = Some((file, unkept));
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

    /// Ends the body: its file, if it has one, is flushed to the device with its directory, where files are flushed.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn finish(mut self) -> io::Result<Draft> {
        let large = self.blobs.files.is_some() && self.blob.size > INLINE_BYTES as u64;
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
        if self.blobs.files.as_ref().is_some_and(|files| files.flush == Flush::BeforeAnswer) {
            file.sync_data().await?;
            if let Some(folder) = unkept.0.as_deref().and_then(Path::parent) {
                File::open(folder).await?.sync_all().await?;
                self.blobs.flush_name(folder).await?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk() -> (tempfile::TempDir, Arc<Blobs>) {
        let directory = tempfile::tempdir().unwrap();
        let files = Files { directory: directory.path().to_owned(), flush: Flush::BeforeAnswer };
        let blobs = Arc::new(Blobs::new(Some(files), 1));
        (directory, blobs)
    }

    /// A kept body of a file's size and its id.
    async fn kept(blobs: &Arc<Blobs>) -> u64 {
        let mut writer = blobs.writer(40_000);
        writer.write(&[7; 40_000]).await.unwrap();
        let (blob, pieces) = writer.finish().await.unwrap().keep();
        assert_eq!((blob.is_file(), pieces), (true, vec![Bytes::new()]));
        blob.id
    }

    fn is_there(blobs: &Blobs, id: u64) -> bool {
        blobs.path(id).unwrap().exists()
    }

    #[tokio::test]
    async fn a_body_is_rows_or_a_file_by_its_size_and_its_store() {
        let (_directory, on_disk) = on_disk();
        let in_memory = Arc::new(Blobs::new(None, 1));
        for (size, file, pieces) in [
            (0, false, 0),
            (1, false, 1),
            (INLINE_BYTES, false, 1),
            (INLINE_BYTES + 1, true, 1),
            (2 * PIECE_BYTES, true, 2),
            (2 * PIECE_BYTES + 1, true, 3),
        ] {
            for (blobs, has_files) in [(&on_disk, true), (&in_memory, false)] {
                let mut writer = blobs.writer(size as u64);
                for part in vec![9; size].chunks(10_000) {
                    writer.write(part).await.unwrap();
                }
                let (blob, rows) = writer.finish().await.unwrap().keep();
                assert_eq!(blob.size, size as u64);
                if has_files && file {
                    assert!(blob.is_file() && rows == [Bytes::new()], "{size}");
                    assert_eq!(std::fs::read(blobs.path(blob.id).unwrap()).unwrap(), vec![9; size]);
                } else {
                    assert_eq!((blob.pieces as usize, rows.len()), (pieces, pieces), "{size}");
                    assert_eq!(rows.concat(), vec![9; size]);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_draft_that_nobody_keeps_leaves_no_file() {
        let (_directory, blobs) = on_disk();
        let mut writer = blobs.writer(0);
        writer.write(&vec![1; 2 * PIECE_BYTES]).await.unwrap();
        let id = writer.blob.id;
        assert!(is_there(&blobs, id), "large bodies go to their file while they come");
        drop(writer);
        assert!(!is_there(&blobs, id));
        let mut writer = blobs.writer(0);
        writer.write(&vec![1; PIECE_BYTES]).await.unwrap();
        let draft = writer.finish().await.unwrap();
        assert!(is_there(&blobs, id + 1));
        drop(draft);
        assert!(!is_there(&blobs, id + 1));
    }

    #[tokio::test]
    async fn a_file_goes_with_its_last_reader() {
        let (_directory, blobs) = on_disk();
        let (read, unread) = (kept(&blobs).await, kept(&blobs).await);
        blobs.pin(&[read]);
        blobs.pin(&[read]);
        blobs.remove(&[read, unread]);
        assert_eq!((is_there(&blobs, read), is_there(&blobs, unread)), (true, false));
        assert!(blobs.unpin(&[read]).is_empty());
        assert_eq!(blobs.unpin(&[read]), [read], "the last reader is told to remove it");
        blobs.remove(&[read]);
        assert!(!is_there(&blobs, read));
        blobs.pin(&[unread]);
        assert!(blobs.unpin(&[unread]).is_empty(), "a reader of what stays is told nothing");
    }

    #[tokio::test]
    async fn the_sweep_removes_what_nobody_knows_and_nothing_that_is_not_ours() {
        let (directory, blobs) = on_disk();
        let (known, orphan) = (kept(&blobs).await, kept(&blobs).await);
        let beside = directory.path().join("notes.txt");
        let within = blobs.path(known).unwrap().with_file_name("README");
        for path in [&beside, &within] {
            std::fs::write(path, "not ours").unwrap();
        }
        assert_eq!(blobs.sweep(|id| Ok::<_, io::Error>(id == known)).unwrap(), 1);
        assert_eq!((is_there(&blobs, known), is_there(&blobs, orphan)), (true, false));
        assert!(beside.exists() && within.exists());
        let refused = blobs.sweep(|_| Err::<bool, _>(io::Error::other("the index is damaged")));
        assert!(refused.is_err() && is_there(&blobs, known), "what can't be judged stays");
    }

    #[test]
    fn ids_of_one_opening_are_never_those_of_another() {
        let first = Blobs::new(None, 1).next.into_inner();
        let second = Blobs::new(None, 2).next.into_inner();
        assert!(second - first >= 1 << 32);
    }
}
