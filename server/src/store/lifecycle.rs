//! Carries out what a bucket's lifecycle says of uploads.
//!
//! What is due changes at midnight UTC and with the configuration, and at no other time. So the uploads of a bucket are
//! looked through once a day, before the first request about one of them, and every other request costs a look at a
//! table: no thread waits for midnight.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::buckets::find;
use super::index::{IndexError, RowsMut};
use super::model::Upload;
use super::multipart::{end_upload, open_upload};
use super::{Decided, Store, StoreError, rows, seek_within, successor};
use crate::instant::Instant;
use crate::lifecycle::{Lifecycle, day_of};
use crate::names::{BucketName, Key};

/// Uploads that one commit ends at the most: bounds how long other writers wait for it.
const ENDED_AT_ONCE: usize = 100;

/// Uploads that are looked at without a pause: bounds how long other requests wait for it.
const LOOKED_AT_ONCE: usize = 1000;

/// Which buckets were looked through on which day.
#[derive(Debug, Default)]
pub(super) struct Swept {
    days: HashMap<String, i64>,
    /// Counts changes of configurations: whoever looked by an older one has not seen to the newer.
    changes: u64,
}

impl Store {
    /// Sets a bucket's lifecycle, or removes it. It counts for the uploads that are open too.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn set_lifecycle(
        &self,
        bucket: &BucketName,
        lifecycle: Option<Lifecycle>,
    ) -> Result<(), StoreError> {
        let lifecycle = lifecycle.map(Arc::new);
        self.update_bucket(bucket, move |record| record.lifecycle = lifecycle).await?;
        self.look_again();
        Ok(())
    }

    /// Forgets which buckets were looked through.
    pub(super) fn look_again(&self) {
        let mut swept = self.swept.lock();
        swept.days.clear();
        swept.changes += 1;
    }

    /// The work of ending the uploads that the bucket's lifecycle aborts by now, where nobody has done it today.
    pub(crate) fn abort_due(
        self: &Arc<Self>,
        bucket: &BucketName,
        now: Instant,
    ) -> Option<impl Future<Output = Result<(), StoreError>> + Send + use<>> {
        let changes = {
            let swept = self.swept.lock();
            if swept.days.get(bucket.as_str()) == Some(&day_of(now)) {
                return None;
            }
            swept.changes
        };
        let (store, bucket) = (self.clone(), bucket.clone());
        Some(async move {
            let mut from = Some(rows::within(b'U', &bucket));
            while let Some(first) = from {
                let Some(page) = store.due(&bucket, &first, now)? else { return Ok(()) };
                from = page.next;
                if !page.due.is_empty() {
                    let of = bucket.clone();
                    let files = store.decide(move |rows| end(rows, &of, &page.due, now)).await?;
                    store.release(&files);
                }
                tokio::task::yield_now().await;
            }
            let mut swept = store.swept.lock();
            if swept.changes == changes {
                swept.days.insert(bucket.as_str().to_owned(), day_of(now));
            }
            Ok(())
        })
    }

    /// The next uploads from the row `from` on that are due; `None` where there is no such bucket.
    fn due(&self, bucket: &BucketName, from: &[u8], now: Instant) -> Result<Option<DuePage>, StoreError> {
        let snapshot = self.index.snapshot()?;
        let Some(record) = find(&*snapshot, bucket)? else { return Ok(None) };
        let mut page = DuePage { due: Vec::new(), next: None };
        if !record.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.aborts_uploads()) {
            return Ok(Some(page));
        }
        let within = rows::within(b'U', bucket);
        let mut from = Bytes::copy_from_slice(from);
        let mut looked_at = 0;
        while let Some((row, value)) = seek_within(&*snapshot, &within, &from)? {
            if page.due.len() == ENDED_AT_ONCE || looked_at == LOOKED_AT_ONCE {
                page.next = Some(row);
                break;
            }
            let key = rows::key_of(&row, &within).and_then(|key| Key::new(key).ok());
            let no_key = || IndexError::Damaged { row: row.clone(), cause: "no key of an upload".into() };
            let key = key.ok_or_else(no_key)?;
            let (upload, _) = rows::decode::<Upload>(&row, &value)?;
            if record.abort_of(&key, upload.initiated).is_some_and(|due| due.at <= now) {
                page.due.push((key, upload.id));
            }
            from = successor(&row);
            looked_at += 1;
        }
        Ok(Some(page))
    }
}

/// Uploads that are due, and the row from which on there may be more.
struct DuePage {
    due: Vec<(Key, String)>,
    next: Option<Bytes>,
}

/// Ends those of the uploads that are still open and still due. Gives the files of their parts back.
fn end(
    rows: &mut dyn RowsMut,
    bucket: &BucketName,
    due: &[(Key, String)],
    now: Instant,
) -> Decided<Vec<u64>> {
    let mut files = Vec::new();
    let Some(record) = find(rows, bucket)? else { return Ok(Ok(files)) };
    for (key, id) in due {
        let Some(upload) = open_upload(rows, bucket, key, id)? else { continue };
        if record.abort_of(key, upload.initiated).is_some_and(|due| due.at <= now) {
            tracing::info!(
                bucket = bucket.as_str(),
                key = key.as_str(),
                id,
                "a lifecycle rule ended an upload"
            );
            end_upload(rows, bucket, key, upload.seq, &mut files)?;
        }
    }
    Ok(Ok(files))
}
