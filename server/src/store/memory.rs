//! The index in memory: a persistent tree, so that a snapshot is one reference and blocks nobody.

use bytes::Bytes;
use imbl::OrdMap;
use parking_lot::RwLock;

use super::index::{Base, Index, IndexError, Job, Rows, Written, run};

type Tree = OrdMap<Bytes, Bytes>;

/// An index that lives as long as the process.
#[derive(Debug, Default)]
pub struct Memory {
    rows: RwLock<Tree>,
}

impl Memory {
    /// An index without rows.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Index for Memory {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError> {
        Ok(Box::new(self.rows.read().clone()))
    }

    /// Runs the job here and now; the future is ready.
    fn write(&self, job: Job) -> Written {
        Written::done(run(job, &mut *self.rows.write()).flatten())
    }
}

impl Rows for Tree {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        Ok(OrdMap::get(self, key).cloned())
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        Ok(self.get_next(key).map(|(key, value)| (key.clone(), value.clone())))
    }
}

impl Base for Tree {
    /// Changes in place: nodes are copied only where a snapshot still shows them.
    fn set(&mut self, key: &[u8], value: Option<Bytes>) -> Result<Option<Bytes>, IndexError> {
        Ok(match value {
            Some(value) => self.insert(Bytes::copy_from_slice(key), value),
            None => OrdMap::remove(self, key),
        })
    }
}
