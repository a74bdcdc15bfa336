//! Where a job's checkpoints are kept, outside the bucket: files that are created once, durably, never replaced, and
//! removed once nothing needs them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::StageError;
use crate::model::ids::Nonce;
use crate::model::stage::files::{CLAIMS, MARKERS, RECEIPTS, SNAPSHOTS};
use crate::store::Pending;

/// What came of creating a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there, durably, with these bytes.
    Now,
    /// One of this name was there before, and is as it was.
    Before,
}

/// A directory of folders with files. Names are `folder/file`.
pub trait Directory: fmt::Debug + Send + Sync {
    /// Creates a file whole and durably, or not at all.
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Pending<'a, Result<Created, StageError>>;

    /// Reads a file; nothing if it is not there.
    fn read<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Option<Bytes>, StageError>>;

    /// Removes a file, durably; one that is not there is as good.
    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, Result<(), StageError>>;

    /// The names of a folder's files, without the folder's, sorted.
    fn list<'a>(&'a self, folder: &'a str) -> Pending<'a, Result<Vec<String>, StageError>>;
}

/// For tests and simulations.
#[derive(Debug, Default)]
pub struct MemoryDirectory(Mutex<BTreeMap<String, Bytes>>);

impl Directory for MemoryDirectory {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Pending<'a, Result<Created, StageError>> {
        Box::pin(async move {
            let mut files = self.0.lock();
            if files.contains_key(name) {
                return Ok(Created::Before);
            }
            files.insert(name.to_owned(), bytes);
            Ok(Created::Now)
        })
    }

    fn read<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Option<Bytes>, StageError>> {
        Box::pin(async move { Ok(self.0.lock().get(name).cloned()) })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, Result<(), StageError>> {
        Box::pin(async move {
            self.0.lock().remove(name);
            Ok(())
        })
    }

    fn list<'a>(&'a self, folder: &'a str) -> Pending<'a, Result<Vec<String>, StageError>> {
        Box::pin(async move {
            let files = self.0.lock();
            let file = |name: &String| Some(name.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
            Ok(files.keys().filter_map(file).collect())
        })
    }
}

/// A directory of this machine. A file is written beside its place, under a name that nobody can know and nobody
/// has, flushed, linked to its name, which fails if one is there, and the folder is flushed: after a crash it is there
/// whole or not at all. What a dead process left beside begins with a dot and is no file.
#[derive(Debug)]
pub struct LocalDirectory {
    root: Arc<PathBuf>,
    run: Nonce,
    written: AtomicU64,
}

impl LocalDirectory {
    /// Opens the directory, or makes it with its folders, durably. `run` is drawn for this opening. Blocks on the disk.
    ///
    /// # Errors
    /// [`StageError::Directory`].
    pub fn open(root: &Path, run: Nonce) -> Result<Self, StageError> {
        let made = || -> io::Result<()> {
            for folder in [CLAIMS, SNAPSHOTS, MARKERS, RECEIPTS] {
                fs::create_dir_all(root.join(folder))?;
            }
            File::open(root)?.sync_all()?;
            root.parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        };
        made().map_err(|error| failed(&root.display().to_string(), &error))?;
        Ok(Self { root: Arc::new(root.to_owned()), run, written: AtomicU64::new(0) })
    }
}

fn failed(name: &str, error: &dyn fmt::Display) -> StageError {
    StageError::Directory { name: name.to_owned(), reason: error.to_string() }
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| failed(&name, &error)),
        Err(stopped) => Err(failed(&name, &stopped)),
    }
}

fn create(path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<Created> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file without a folder"))?;
    let mut file = File::create_new(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let created = match fs::hard_link(beside, path) {
        Ok(()) => Created::Now,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Created::Before,
        Err(error) => return Err(error),
    };
    fs::remove_file(beside)?;
    // Also of a file that was there before: whoever linked it may have died before this.
    File::open(folder)?.sync_all()?;
    Ok(created)
}

fn remove(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file without a folder"))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // Also of a file that was gone: whoever removed it may have died before this.
        _ => File::open(folder)?.sync_all(),
    }
}

impl Directory for LocalDirectory {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Pending<'a, Result<Created, StageError>> {
        let nth = self.written.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(name);
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        let beside = path.with_file_name(format!(".{file}.{}.{nth}", self.run));
        Box::pin(blocking(name.to_owned(), move || create(&path, &beside, &bytes)))
    }

    fn read<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Option<Bytes>, StageError>> {
        let path = self.root.join(name);
        Box::pin(blocking(name.to_owned(), move || match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, Result<(), StageError>> {
        let path = self.root.join(name);
        Box::pin(blocking(name.to_owned(), move || remove(&path)))
    }

    fn list<'a>(&'a self, folder: &'a str) -> Pending<'a, Result<Vec<String>, StageError>> {
        let path = self.root.join(folder);
        Box::pin(blocking(folder.to_owned(), move || {
            let mut names = Vec::new();
            for entry in fs::read_dir(path)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.retain(|name| !name.starts_with('.'));
            names.sort();
            Ok(names)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn keeps(directory: &dyn Directory) {
        assert_eq!(directory.read("markers/1").await.unwrap(), None);
        assert_eq!(directory.create("markers/1", "one".into()).await.unwrap(), Created::Now);
        assert_eq!(directory.create("markers/1", "two".into()).await.unwrap(), Created::Before);
        for name in ["markers/2", "markers/3"] {
            assert_eq!(directory.create(name, "".into()).await.unwrap(), Created::Now);
        }
        assert_eq!(directory.read("markers/1").await.unwrap().unwrap(), "one");
        assert_eq!(directory.list("markers").await.unwrap(), ["1", "2", "3"]);
        assert_eq!(directory.list("receipts").await.unwrap(), [""; 0]);
        for _ in 0..2 {
            directory.remove("markers/3").await.unwrap();
            assert_eq!(directory.read("markers/3").await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_file_is_created_once_and_outlives_the_process() {
        keeps(&MemoryDirectory::default()).await;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("checkpoints");
        let run = |n| Nonce::from_bytes([n; 16]);
        keeps(&LocalDirectory::open(&root, run(1)).unwrap()).await;
        // What a process left half written is no file.
        fs::write(root.join("markers/.3.77.0"), "half").unwrap();
        let again = LocalDirectory::open(&root, run(2)).unwrap();
        assert_eq!(again.list("markers").await.unwrap(), ["1", "2"]);
        assert_eq!(again.read("markers/1").await.unwrap().unwrap(), "one");
        // What stands beside under its own name is somebody else's, and is not written into.
        let beside = root.join(format!("markers/.3.{}.0", run(2)));
        fs::write(&beside, "else").unwrap();
        let error = again.create("markers/3", "three".into()).await.unwrap_err();
        assert!(matches!(&error, StageError::Directory { name, .. } if name == "markers/3"), "{error}");
        assert_eq!(fs::read(&beside).unwrap(), b"else");
        assert_eq!(again.create("markers/3", "three".into()).await.unwrap(), Created::Now);
        assert_eq!(again.read("markers/3").await.unwrap().unwrap(), "three");
        let error = again.read("markers").await.unwrap_err();
        assert!(matches!(&error, StageError::Directory { name, .. } if name == "markers"), "{error}");
    }
}
