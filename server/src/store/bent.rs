//! Indexes that misbehave on purpose, around one that does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Image;
use super::index::{Index, IndexError, Job, Rows, RowsMut, Written};

/// Runs every write and keeps nothing of it: what was acknowledged is lost.
pub(super) struct Forgetting(pub(super) Arc<dyn Index>);

impl Index for Forgetting {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError> {
        self.0.snapshot()
    }

    fn write(&self, job: Job) -> Written {
        self.0.write(Box::new(|rows| job(&mut Scratch { rows: &*rows, changed: BTreeMap::new() })))
    }
}

/// Rows with changes on top that go when the job ends.
struct Scratch<'a> {
    rows: &'a dyn Rows,
    changed: BTreeMap<Bytes, Option<Bytes>>,
}

impl Rows for Scratch<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        match self.changed.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.rows.get(key),
        }
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        let mut from = Bytes::copy_from_slice(key);
        loop {
            let below = self.rows.seek(&from)?;
            let above = self.changed.range(from.clone()..).next();
            match (below, above) {
                (Some(row), Some((key, _))) if row.0 < *key => return Ok(Some(row)),
                (Some(row), None) => return Ok(Some(row)),
                (_, Some((key, Some(value)))) => return Ok(Some((key.clone(), value.clone()))),
                (_, Some((key, None))) => from = super::successor(key),
                (None, None) => return Ok(None),
            }
        }
    }
}

impl RowsMut for Scratch<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) -> Result<(), IndexError> {
        self.changed.insert(Bytes::copy_from_slice(key), Some(value));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), IndexError> {
        self.changed.insert(Bytes::copy_from_slice(key), None);
        Ok(())
    }
}

/// Rows as they were once. The image keeps the files that they name.
pub(super) struct Frozen {
    rows: BTreeMap<Bytes, Bytes>,
    _image: Image,
}

impl Frozen {
    pub(super) fn new(image: Image) -> Self {
        Self { rows: image.rows.iter().cloned().collect(), _image: image }
    }
}

impl Index for Frozen {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send + '_>, IndexError> {
        Ok(Box::new(&self.rows))
    }

    fn write(&self, _job: Job) -> Written {
        Written::done(Err(IndexError::unavailable("writing", "the state of another time takes no writes")))
    }
}

impl Rows for &BTreeMap<Bytes, Bytes> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        Ok(BTreeMap::get(self, key).cloned())
    }

    fn seek(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        let first = self.range(Bytes::copy_from_slice(key)..).next();
        Ok(first.map(|(key, value)| (key.clone(), value.clone())))
    }
}
