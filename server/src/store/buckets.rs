//! Buckets.

use std::sync::Arc;

use bytes::Bytes;

use super::model::{Bucket, Part, Upload, Version};
use super::{
    Decided, Store, StoreError, forget, index::IndexError, index::Rows, index::RowsMut, rows, seek_within,
    successor,
};
use crate::names::BucketName;

impl Store {
    /// # Errors
    /// `BucketExists`.
    pub(crate) async fn create_bucket(&self, name: &BucketName, bucket: Bucket) -> Result<(), StoreError> {
        let name = name.clone();
        self.decide(move |rows| {
            let row = rows::bucket(name.as_str());
            if rows.get(&row)?.is_some() {
                return Ok(Err(StoreError::BucketExists(name.as_str().to_owned())));
            }
            rows.put(&row, encode(&bucket)?)?;
            Ok(Ok(()))
        })
        .await
    }

    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) fn bucket(&self, name: &BucketName) -> Result<Bucket, StoreError> {
        find(&*self.index.snapshot()?, name)?.ok_or_else(|| missing(name))
    }

    /// Changes what `change` changes.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn update_bucket(
        &self,
        name: &BucketName,
        change: impl FnOnce(&mut Bucket) + Send + 'static,
    ) -> Result<(), StoreError> {
        let name = name.clone();
        self.decide(move |rows| {
            let Some(mut bucket) = find(rows, &name)? else { return Ok(Err(missing(&name))) };
            change(&mut bucket);
            rows.put(&rows::bucket(name.as_str()), encode(&bucket)?)?;
            Ok(Ok(()))
        })
        .await
    }

    /// Removes an empty bucket with the uploads that are open in it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`.
    pub(crate) fn delete_bucket(
        self: &Arc<Self>,
        name: &BucketName,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (store, name) = (self.clone(), name.clone());
        async move {
            let files = store.decide(move |rows| remove(rows, &name)).await?;
            store.release(&files);
            store.look_again(); // keeps no day of a bucket that is gone
            Ok(())
        }
    }

    /// Buckets in the order of their names: at most `max` that begin with `prefix` and come after
    /// `after`, and whether there are more.
    pub(crate) fn buckets(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<(Vec<(String, Bucket)>, bool), StoreError> {
        let snapshot = self.index.snapshot()?;
        let first = rows::bucket_prefix(prefix);
        let mut from =
            after.map_or_else(|| first.clone(), |name| successor(&rows::bucket(name)).max(first.clone()));
        let mut found = Vec::new();
        while let Some((key, value)) = seek_within(&*snapshot, &first, &from)? {
            if found.len() == max {
                return Ok((found, true));
            }
            let name = rows::bucket_of(&key)
                .ok_or_else(|| IndexError::Damaged { row: key.clone(), cause: "no bucket name".into() })?;
            found.push((name.to_owned(), decode(&key, &value)?));
            from = successor(&key);
        }
        Ok((found, false))
    }
}

pub(super) fn find(rows: &(impl Rows + ?Sized), name: &BucketName) -> Result<Option<Bucket>, IndexError> {
    let row = rows::bucket(name.as_str());
    rows.get(&row)?.map(|value| decode(&row, &value)).transpose()
}

fn encode(bucket: &Bucket) -> Result<Bytes, IndexError> {
    let record = rows::encode(bucket)?;
    match &bucket.lifecycle {
        None => Ok(record),
        Some(lifecycle) => Ok([record, rows::encode(&**lifecycle)?].concat().into()),
    }
}

fn decode(row: &[u8], value: &[u8]) -> Result<Bucket, IndexError> {
    let (mut bucket, rest) = rows::decode::<Bucket>(row, value)?;
    if !rest.is_empty() {
        bucket.lifecycle = Some(Arc::new(rows::decode(row, rest)?.0));
    }
    Ok(bucket)
}

pub(super) fn missing(name: &BucketName) -> StoreError {
    StoreError::NoSuchBucket(name.as_str().to_owned())
}

fn remove(rows: &mut dyn RowsMut, name: &BucketName) -> Decided<Vec<u64>> {
    let Some(bucket) = find(rows, name)? else { return Ok(Err(missing(name))) };
    for tag in [b'O', b'V'] {
        let within = rows::within(tag, name);
        if seek_within(rows, &within, &within)?.is_some() {
            let versioned = bucket.versioning != super::model::Versioning::Off;
            return Ok(Err(StoreError::BucketNotEmpty { name: name.as_str().to_owned(), versioned }));
        }
    }
    let mut files = Vec::new();
    for tag in [b'U', b'D', b'T', b'N'] {
        let within = rows::within(tag, name);
        while let Some((key, value)) = seek_within(rows, &within, &within)? {
            if tag == b'U' {
                let (upload, _) = rows::decode::<Upload>(&key, &value)?;
                for part in super::multipart::take_parts(rows, upload.seq)? {
                    forget(rows, &[part], &mut files)?;
                }
            }
            rows.remove(&key)?;
        }
    }
    rows.remove(&rows::bucket(name.as_str()))?;
    Ok(Ok(files))
}

/// A version's record and the parts that follow it.
pub(super) fn version_record(row: &[u8], value: &[u8]) -> Result<(Version, Vec<Part>), IndexError> {
    let (version, rest) = rows::decode::<Version>(row, value)?;
    let parts = if rest.is_empty() { Vec::new() } else { rows::decode(row, rest)?.0 };
    Ok((version, parts))
}
