//! Stores that count, that are slow, and that take away what was just found.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sinks::model::head::{Head, Intent};
use sinks::model::ids::Nonce;
use sinks::store::{
    Condition, ETag, MemoryStore, Object, ObjectMeta, Outcome, Page, Pending, Store, Unanswered,
};

/// Counts requests that write, and those that read.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<MemoryStore>,
    puts: AtomicU64,
    reads: AtomicU64,
}

impl Counted {
    pub fn new(inner: Arc<MemoryStore>) -> Self {
        Self { inner, puts: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }

    /// Writes and reads since the last time.
    pub fn take(&self) -> (u64, u64) {
        (self.puts.swap(0, Ordering::Relaxed), self.reads.swap(0, Ordering::Relaxed))
    }
}

impl Store for Counted {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.inner.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.inner.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.list(prefix, token, limit)
    }
}

/// Deletes every data object once, right after it was found to be there: an orphan hunter from before.
#[derive(Debug)]
pub struct DeletesOnAdoption {
    inner: Arc<MemoryStore>,
    deleted: Mutex<BTreeSet<String>>,
}

impl DeletesOnAdoption {
    pub fn new(inner: Arc<MemoryStore>) -> Self {
        Self { inner, deleted: Mutex::default() }
    }
}

impl Store for DeletesOnAdoption {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.inner.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(async move {
            let answer = self.inner.get(key).await;
            if !key.contains("/_manifest/") && self.deleted.lock().insert(key.to_owned()) {
                self.inner.delete(key, None).await;
            }
            answer
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.inner.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.inner.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.inner.list(prefix, token, limit)
    }
}

/// Answers the first read of HEAD with what it was before its owner went on.
#[derive(Debug)]
pub struct ReadBefore {
    inner: Arc<MemoryStore>,
    head: Mutex<Option<Object>>,
}

impl ReadBefore {
    pub fn new(inner: Arc<MemoryStore>, head: Object) -> Self {
        Self { inner, head: Mutex::new(Some(head)) }
    }
}

impl Store for ReadBefore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.inner.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        let before = key.ends_with("/HEAD").then(|| self.head.lock().take()).flatten();
        match before {
            Some(before) => Box::pin(async { Outcome::Done(before) }),
            None => self.inner.get(key),
        }
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.inner.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.inner.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.inner.list(prefix, token, limit)
    }
}

/// Each call waits before and after it takes effect, and some answers to writes are lost.
#[derive(Debug)]
pub struct SlowStore {
    inner: Arc<MemoryStore>,
    chance: Arc<Mutex<fastrand::Rng>>,
    /// Of a hundred answers.
    lost: u8,
}

impl SlowStore {
    pub fn new(inner: Arc<MemoryStore>, chance: Arc<Mutex<fastrand::Rng>>, lost: u8) -> Self {
        Self { inner, chance, lost }
    }

    async fn slow<T>(&self, call: Pending<'_, T>) -> T {
        self.wait().await;
        let answer = call.await;
        self.wait().await;
        answer
    }

    async fn wait(&self) {
        let ms = self.chance.lock().u64(..40);
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

impl Store for SlowStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            let answer = self.slow(self.inner.put(key, bytes, condition, metadata)).await;
            if self.chance.lock().u8(..100) < self.lost {
                // Long enough for another process to build upon it.
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                return Outcome::Unknown(Unanswered {
                    status: None,
                    reason: "the connection was reset".to_owned(),
                });
            }
            answer
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(self.slow(self.inner.get(key)))
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        Box::pin(self.slow(self.inner.head(key)))
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(self.slow(self.inner.delete(key, only)))
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        Box::pin(self.slow(self.inner.list(prefix, token, limit)))
    }
}

/// Before each swap of HEAD somebody else swaps it, under the same owner.
#[derive(Debug)]
pub struct Contested {
    inner: Arc<MemoryStore>,
    swaps: AtomicU64,
}

impl Contested {
    pub fn new(inner: Arc<MemoryStore>) -> Self {
        Self { inner, swaps: AtomicU64::new(0) }
    }

    pub fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Store for Contested {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            if let Condition::Matches(_) = condition {
                let swap = self.swaps.fetch_add(1, Ordering::Relaxed);
                let Outcome::Done(object) = self.inner.get(key).await else { panic!("no HEAD") };
                let head = Head::decode(&object.bytes).unwrap();
                let nonce = Nonce::from_bytes([u8::try_from(swap).unwrap(); 16]);
                let other = head.successor(nonce, Intent::Floor, 0).encode();
                self.inner.put(key, other, Condition::None, &[]).await;
            }
            self.inner.put(key, bytes, condition, metadata).await
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.inner.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.inner.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.inner.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.inner.list(prefix, token, limit)
    }
}

/// Ignores every condition.
#[derive(Debug)]
pub struct Unconditional(pub Arc<MemoryStore>);

impl Store for Unconditional {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        _condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.0.put(key, bytes, Condition::None, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.0.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.0.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.0.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.0.list(prefix, token, limit)
    }
}
