//! The index in memory: a persistent tree, so that a snapshot is one reference and blocks nobody.

use bytes::Bytes;
use imbl::OrdMap;
use parking_lot::RwLock;

use super::index::{Index, IndexError, Job, Rows, RowsMut, Written, run};

type Tree = OrdMap<Bytes, Bytes>;

/// An index that lives as long as the process. A clone is a second index that starts with the same rows and
/// shares only their bytes; it costs one reference, whatever the number of rows.
#[derive(Debug, Default)]
pub struct Memory {
    rows: RwLock<Tree>,
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self { rows: RwLock::new(self.rows.read().clone()) }
    }
}

impl Memory {
    /// An index without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the rows what they are in `other`, for every snapshot and write from now on.
    pub fn restore(&self, other: &Self) {
        let rows = other.rows.read().clone();
        *self.rows.write() = rows;
    }
}

impl Index for Memory {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError> {
        Ok(Box::new(self.rows.read().clone()))
    }

    /// Runs the job here and now; the future is ready.
    fn write(&self, job: Job) -> Written {
        let mut rows = self.rows.write();
        let mut draft = Draft { rows: &mut rows, before: Vec::new() };
        let result = run(job, &mut draft);
        if result.is_err() {
            draft.undo();
        }
        drop(rows);
        Written::done(result)
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

/// Changes in place, which copies nodes only where a snapshot still shows them, and remembers how to undo.
struct Draft<'a> {
    rows: &'a mut Tree,
    before: Vec<(Bytes, Option<Bytes>)>,
}

impl Draft<'_> {
    fn undo(&mut self) {
        for (key, before) in self.before.drain(..).rev() {
            match before {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}

impl Rows for Draft<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        Rows::get(self.rows, key)
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        Rows::seek(self.rows, key)
    }
}

impl RowsMut for Draft<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) -> Result<(), IndexError> {
        let key = Bytes::copy_from_slice(key);
        let before = self.rows.insert(key.clone(), value);
        self.before.push((key, before));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), IndexError> {
        if let Some((key, before)) = self.rows.remove_with_key(key) {
            self.before.push((key, Some(before)));
        }
        Ok(())
    }
}
