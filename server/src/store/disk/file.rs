//! The index file as redb sees it: when it is flushed, and when it gets its name.

use std::fs::{File, OpenOptions, rename};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;

use super::open::{INDEX, MARKER, NEW_INDEX};
use crate::store::Flush;

/// How far the file is. A new one is flushed for the first time when there is something to keep, so that a start
/// costs no flush; it has the name of an index only then.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is nothing in it yet.
    Making,
    /// In this directory it has the name that the next start removes.
    Unnamed(PathBuf),
    /// An index under its name.
    Named,
}

/// redb's file, without its locks: the marker's keeps others out.
#[derive(Debug)]
pub(super) struct IndexFile {
    file: FileBackend,
    flush: Flush,
    stage: Arc<Mutex<Stage>>,
}

impl IndexFile {
    /// The file at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(path: &Path, flush: Flush, stage: Arc<Mutex<Stage>>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file: FileBackend::new(file).map_err(io::Error::other)?, flush, stage })
    }

    /// Flushes everything that makes a directory ours, the names last.
    fn name(&self, dir: &Path) -> io::Result<()> {
        if self.flush == Flush::BeforeAnswer {
            File::open(dir.join(MARKER))?.sync_all()?;
            self.file.sync_data()?;
        }
        rename(dir.join(NEW_INDEX), dir.join(INDEX))?;
        match self.flush {
            Flush::BeforeAnswer => File::open(dir)?.sync_all(),
            Flush::Never => Ok(()),
        }
    }
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut stage = self.stage.lock();
        match &*stage {
            Stage::Making => return Ok(()),
            Stage::Unnamed(dir) => {
                self.name(dir)?;
                *stage = Stage::Named;
                return Ok(());
            }
            Stage::Named => drop(stage),
        }
        match self.flush {
            Flush::BeforeAnswer => self.file.sync_data(),
            Flush::Never => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}
