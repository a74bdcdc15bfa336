//! Taking hold of a data directory: its lock, its format, its index file.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{DirEntry, File, OpenOptions, TryLockError, create_dir_all, read_dir, remove_file};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageError};

use super::ROWS;
use super::file::{IndexFile, Stage};
use crate::store::Flush;

/// Says whose directory this is and in which format; the holder of its lock holds the directory.
pub(super) const MARKER: &str = "assay-format";
pub(super) const INDEX: &str = "index.redb";
/// The index until its first flush: a kill before that leaves no half index behind.
pub(super) const NEW_INDEX: &str = "index.redb.new";

/// The words before the number in the marker.
const FORMAT_WORDS: &str = "assay-server data, format ";
/// The format of the directory that this version reads and writes.
const FORMAT: u32 = 1;

/// The file's pages in memory. The system's page cache holds them as well, so a larger one buys little.
const CACHE_BYTES: usize = 512 << 10;

/// Why a data directory cannot be opened. Each kind is a matter of configuration, except damage.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path leads to something other than a directory.
    #[error("data path {dir:?} is not a directory; name a directory, or a path where one can be made")]
    NotADirectory {
        /// The path asked for.
        dir: PathBuf,
    },
    /// The directory cannot be read or written, or the system refused something else.
    #[error("data directory {dir:?} cannot be used, {doing}: {cause}; it must be readable and writable here")]
    Unusable {
        /// The directory asked for.
        dir: PathBuf,
        /// What was refused.
        doing: &'static str,
        /// What the system said.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// Another server, here or in another process, holds the directory.
    #[error("data directory {dir:?} is in use by another server; stop that one, or name another directory")]
    InUse {
        /// The directory asked for.
        dir: PathBuf,
    },
    /// Something is there, and it was not written by this software.
    #[error("data directory {dir:?} holds {found:?}, which is not ours; name a new or an empty directory")]
    Foreign {
        /// The directory asked for.
        dir: PathBuf,
        /// What was found.
        found: String,
    },
    /// A version with another format wrote the directory.
    #[error(
        "data directory {dir:?} has format {found}, this version reads format {FORMAT}; \
         use the version that wrote it, or name a new directory"
    )]
    Format {
        /// The directory asked for.
        dir: PathBuf,
        /// The format it has.
        found: u32,
    },
    /// The index does not pass its checks: an integrity alarm. Nothing was changed.
    #[error("the index in data directory {dir:?} is damaged: {cause}; restore the directory from a copy")]
    Damaged {
        /// The directory asked for.
        dir: PathBuf,
        /// What is wrong.
        cause: String,
    },
}

impl OpenError {
    /// [`OpenError::Unusable`] from what was refused in `dir`.
    pub(super) fn unusable<E: Into<Box<dyn Error + Send + Sync>>>(
        dir: &Path,
        doing: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |cause| Self::Unusable { dir: dir.to_owned(), doing, cause: cause.into() }
    }
}

/// Makes the directory if there is none, locks it, checks its format and opens its index.
pub(super) fn open(dir: &Path, flush: Flush) -> Result<(File, Database), OpenError> {
    create_dir_all(dir).map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            OpenError::NotADirectory { dir: dir.to_owned() }
        }
        _ => OpenError::unusable(dir, "making it")(cause),
    })?;
    let lock = lock(dir)?;
    let database = open_index(dir, flush)?;
    Ok((lock, database))
}

/// The marker, locked and checked, or written where the directory is new.
fn lock(dir: &Path) -> Result<File, OpenError> {
    let names = names(dir)?;
    if let (false, Some(found)) = (names.contains(MARKER), names.first()) {
        return Err(OpenError::Foreign { dir: dir.to_owned(), found: found.clone() });
    }
    let mut marker = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(dir.join(MARKER))
        .map_err(OpenError::unusable(dir, "opening its marker"))?;
    marker.try_lock().map_err(|refused| match refused {
        TryLockError::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
        TryLockError::Error(cause) => OpenError::unusable(dir, "locking its marker")(cause),
    })?;
    let mut words = Vec::new();
    marker.read_to_end(&mut words).map_err(OpenError::unusable(dir, "reading its marker"))?;
    let words = String::from_utf8_lossy(&words);
    // A kill between making and writing the marker leaves it empty or cut; it is flushed with the first write.
    let whole = format!("{FORMAT_WORDS}{FORMAT}\n");
    if whole != words && whole.starts_with(&*words) {
        marker
            .write_all(&whole.as_bytes()[words.len()..])
            .map_err(OpenError::unusable(dir, "writing its marker"))?;
        return Ok(marker);
    }
    match words.strip_prefix(FORMAT_WORDS).map(str::trim_end).map(str::parse) {
        Some(Ok(FORMAT)) => Ok(marker),
        Some(Ok(found)) => Err(OpenError::Format { dir: dir.to_owned(), found }),
        _ => {
            Err(OpenError::Foreign { dir: dir.to_owned(), found: format!("{MARKER}: {}", words.trim_end()) })
        }
    }
}

/// What is in the directory, except what a file system puts into its root.
fn names(dir: &Path) -> Result<BTreeSet<String>, OpenError> {
    let name = |entry: io::Result<DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let names: io::Result<BTreeSet<_>> = read_dir(dir).and_then(|entries| entries.map(name).collect());
    let mut names = names.map_err(OpenError::unusable(dir, "listing it"))?;
    names.remove("lost+found");
    Ok(names)
}

/// The index file; a new one is complete before its first flush, which gives it its name.
fn open_index(dir: &Path, flush: Flush) -> Result<Database, OpenError> {
    let (index, new) = (dir.join(INDEX), dir.join(NEW_INDEX));
    let exists = index.try_exists().map_err(OpenError::unusable(dir, "looking for its index"))?;
    let stage = Arc::new(Mutex::new(if exists { Stage::Named } else { Stage::Making }));
    let open = |path: &Path| {
        let file = IndexFile::open(path, flush, stage.clone())
            .map_err(OpenError::unusable(dir, "opening its index"))?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES).create_with_backend(file).map_err(|cause| refused(dir, cause))
    };
    if exists {
        // redb would take an empty file for a new one.
        let length = index.metadata().map_err(OpenError::unusable(dir, "looking at its index"))?.len();
        if length == 0 {
            return Err(OpenError::Damaged { dir: dir.to_owned(), cause: format!("{INDEX} is empty") });
        }
        return open(&index);
    }
    match remove_file(&new) {
        // Nothing was ever acknowledged from here: what is beside belongs to nobody.
        Ok(()) => {}
        // Without this, a lost index would look like a new directory, and its bodies like rubbish.
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            if let Some(beside) = names(dir)?.into_iter().find(|name| name != MARKER) {
                let cause = format!("there is no {INDEX}, but there is {beside}");
                return Err(OpenError::Damaged { dir: dir.to_owned(), cause });
            }
        }
        Err(cause) => return Err(OpenError::unusable(dir, "removing a half-made index")(cause)),
    }
    let database = open(&new)?;
    make_rows(&database).map_err(OpenError::unusable(dir, "making its index"))?;
    *stage.lock() = Stage::Unnamed(dir.to_owned());
    Ok(database)
}

fn make_rows(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(ROWS)?;
    Ok(transaction.commit()?)
}

fn refused(dir: &Path, cause: DatabaseError) -> OpenError {
    let dir = dir.to_owned();
    match cause {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => OpenError::InUse { dir },
        DatabaseError::Storage(StorageError::Corrupted(cause)) => OpenError::Damaged { dir, cause },
        DatabaseError::Storage(StorageError::Io(cause)) if cause.kind() == ErrorKind::InvalidData => {
            OpenError::Damaged { dir, cause: cause.to_string() }
        }
        cause => OpenError::unusable(&dir, "opening its index")(cause),
    }
}
