//! A bucket in memory, with the answers of AWS for the verbs of [`Store`]: for tests and simulations.

mod multipart;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use parking_lot::Mutex;

pub use self::multipart::RepeatedComplete;
use self::multipart::Upload;
use super::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Refusal, Store};
use crate::env::Clock;

/// Longest key of S3, in bytes (S3 User Guide, "Naming Amazon S3 objects").
const MAX_KEY_BYTES: usize = 1024;

/// Keys that a page of a listing has at most (S3 API reference, ListObjectsV2).
const MAX_PAGE: u16 = 1000;

#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    etag: ETag,
    last_modified_ms: u64,
    metadata: Vec<(String, String)>,
}

/// A bucket in memory. Each verb decides and commits in one step when it is first polled, so that calls take
/// effect in the order in which the caller drives them.
#[derive(Debug)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Stored>>,
    /// Locked before the objects where both are.
    uploads: Mutex<Vec<Upload>>,
    repeated_complete: RepeatedComplete,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty bucket whose dates are of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            objects: Mutex::default(),
            uploads: Mutex::default(),
            repeated_complete: RepeatedComplete::default(),
            clock,
        }
    }

    /// The same bucket, with another answer to a Complete that it has done before.
    #[must_use]
    pub fn repeating(self, repeated_complete: RepeatedComplete) -> Self {
        Self { repeated_complete, ..self }
    }

    /// Every key, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Milliseconds since 1970, in whole seconds as HTTP has them.
    fn date_ms(&self) -> u64 {
        self.clock.now_ms() / 1000 * 1000
    }

    fn commit(
        &self,
        key: &str,
        bytes: Bytes,
        condition: &Condition,
        metadata: &[(String, String)],
    ) -> Written {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            let code = if key.is_empty() { "InvalidRequest" } else { "KeyTooLongError" };
            return denied(400, code, format!("a key has 1 to {MAX_KEY_BYTES} bytes and not {}", key.len()));
        }
        let mut objects = self.objects.lock();
        let current = objects.get(key).map(|object| &object.etag);
        match (condition, current) {
            (Condition::Absent, Some(_)) => return Outcome::Refused(Refusal::Precondition),
            (Condition::Matches(_), None) => return Outcome::Missing,
            (Condition::Matches(wanted), Some(current)) if !same(wanted, current) => {
                return Outcome::Refused(Refusal::Precondition);
            }
            _ => {}
        }
        let etag = ETag(format!("\"{}\"", hex::encode(Md5::digest(&bytes))));
        let mut metadata: Vec<_> =
            metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        metadata.sort();
        let stored = Stored { bytes, etag: etag.clone(), last_modified_ms: self.date_ms(), metadata };
        objects.insert(key.to_owned(), stored);
        Outcome::Done(Some(etag))
    }

    fn remove(&self, key: &str, only: Option<&ETag>) -> Outcome<()> {
        let mut objects = self.objects.lock();
        match (only, objects.get(key)) {
            (Some(_), None) => return Outcome::Missing,
            (Some(wanted), Some(current)) if !same(wanted, &current.etag) => {
                return Outcome::Refused(Refusal::Precondition);
            }
            _ => {}
        }
        objects.remove(key);
        Outcome::Done(())
    }

    fn page(&self, prefix: &str, token: Option<&str>, limit: u16) -> Page {
        let limit = usize::from(limit.min(MAX_PAGE));
        let objects = self.objects.lock();
        // Where the last page ended, and not at the beginning: pages cost the same however many there are.
        let from = match token {
            Some(last) if last > prefix => Bound::Excluded(last),
            _ => Bound::Included(prefix),
        };
        let mut rest =
            objects.range::<str, _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        let page: Vec<_> = rest.by_ref().take(limit).map(|(key, object)| meta(key, object)).collect();
        let more = !page.is_empty() && rest.next().is_some();
        Page { next: page.last().filter(|_| more).map(|last| last.key.clone()), objects: page }
    }
}

type Written = Outcome<Option<ETag>>;

fn denied<T>(status: u16, code: &str, message: String) -> Outcome<T> {
    Outcome::Refused(Refusal::Denied { status, code: code.to_owned(), message })
}

/// S3 compares the tags of a condition without regard to their quotes.
fn same(wanted: &ETag, current: &ETag) -> bool {
    wanted.0.trim_matches('"') == current.0.trim_matches('"')
}

fn meta(key: &str, object: &Stored) -> ObjectMeta {
    ObjectMeta {
        key: key.to_owned(),
        etag: object.etag.clone(),
        size: object.bytes.len() as u64,
        last_modified_ms: object.last_modified_ms,
    }
}

impl Store for MemoryStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move { self.commit(key, bytes, &condition, metadata) })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(async move {
            let date = self.date_ms();
            self.objects.lock().get(key).map_or(Outcome::Missing, |object| {
                Outcome::Done(Object {
                    bytes: object.bytes.clone(),
                    meta: meta(key, object),
                    metadata: object.metadata.clone(),
                    store_date_ms: Some(date),
                })
            })
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        Box::pin(async move {
            let objects = self.objects.lock();
            objects.get(key).map_or(Outcome::Missing, |object| Outcome::Done(meta(key, object)))
        })
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(async move { self.remove(key, only.as_ref()) })
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        Box::pin(async move { Outcome::Done(self.page(prefix, token, limit)) })
    }
}
