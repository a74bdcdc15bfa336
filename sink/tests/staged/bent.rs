//! One process's calls to the bucket and to its directory, any of which can bend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sinks::stage::{Created, Directory, StageError};
use sinks::store::multipart::{Described, PartPage, PartRef, UploadId, UploadPage};
use sinks::store::{
    Condition, ETag, MemoryStore, MultipartStore, Object, ObjectMeta, Outcome, Page, Pending, Refusal, Store,
    Unanswered,
};
use tokio::sync::Notify;

use crate::world::World;

/// What happens at one call of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bend {
    /// The world stops before it.
    StopBefore,
    /// It takes effect, and the world stops before its answer.
    StopAfter,
    /// The world stops, and a Complete lands so many calls of later lives on.
    StopLate(u64),
    /// It takes effect and its answer is lost.
    AnswerLost,
    /// It is lost, with no answer.
    RequestLost,
    /// No answer, and a Complete lands so many calls later.
    Late(u64),
    /// It takes effect, and the answer is NoSuchUpload.
    DoneAndMissing,
    /// It takes effect twice: a proxy repeats it.
    Twice,
    /// 403.
    Denied,
    /// From here on the store is away, for so many calls.
    Away(u64),
}

/// A Complete that is still on its way.
#[derive(Clone, Debug)]
pub struct LateComplete {
    calls: u64,
    key: String,
    upload: UploadId,
    parts: Vec<PartRef>,
}

impl LateComplete {
    pub async fn land(self, store: &MemoryStore) {
        let _ = store.complete(&self.key, &self.upload, &self.parts).await;
    }
}

/// One process's calls, counted, and where they bend.
#[derive(Debug)]
pub struct Calls {
    world: Arc<World>,
    bends: BTreeMap<u64, Bend>,
    pub made: AtomicU64,
    away_until: AtomicU64,
    stopped: Mutex<bool>,
    pub stop: Notify,
}

impl Calls {
    pub fn new(world: &Arc<World>, bends: &[(u64, Bend)]) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            bends: bends.iter().copied().collect(),
            made: AtomicU64::new(0),
            away_until: AtomicU64::new(0),
            stopped: Mutex::new(false),
            stop: Notify::new(),
        })
    }

    fn begin(&self) -> (u64, Option<Bend>) {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        (nth, self.bends.get(&nth).copied())
    }

    async fn stop<T>(&self) -> T {
        *self.stopped.lock() = true;
        self.stop.notify_one();
        std::future::pending().await
    }

    async fn halted(&self) {
        if *self.stopped.lock() {
            std::future::pending().await
        }
    }

    async fn deliver(&self) {
        let due: Vec<LateComplete> = {
            let mut late = self.world.late.lock();
            late.iter_mut().for_each(|late| late.calls = late.calls.saturating_sub(1));
            late.extract_if(.., |late| late.calls == 0).collect()
        };
        for complete in due {
            complete.land(&self.world.store).await;
        }
    }

    async fn bent<'a, T>(
        &'a self,
        call: impl Fn() -> Pending<'a, Outcome<T>>,
        late: Option<LateComplete>,
    ) -> Outcome<T> {
        self.halted().await;
        self.deliver().await;
        let unknown = |reason: &str| Outcome::Unknown(Unanswered { status: None, reason: reason.to_owned() });
        let late_in = |calls: u64| {
            self.world.late.lock().extend(late.clone().map(|late| LateComplete { calls, ..late }));
        };
        let (nth, bend) = self.begin();
        if nth < self.away_until.load(Ordering::Relaxed) {
            return unknown("connection refused");
        }
        match bend {
            None => call().await,
            Some(Bend::StopBefore) => self.stop().await,
            Some(Bend::StopAfter) => {
                call().await;
                self.stop().await
            }
            Some(Bend::StopLate(calls)) => {
                late_in(calls);
                self.stop().await
            }
            Some(Bend::AnswerLost) => {
                call().await;
                unknown("the connection was reset")
            }
            Some(Bend::RequestLost) => unknown("the connection timed out"),
            Some(Bend::Late(calls)) => {
                late_in(calls);
                unknown("the connection timed out")
            }
            Some(Bend::DoneAndMissing) => {
                call().await;
                Outcome::Missing
            }
            Some(Bend::Twice) => {
                call().await;
                call().await
            }
            Some(Bend::Denied) => Outcome::Refused(Refusal::Denied {
                status: 403,
                code: "AccessDenied".to_owned(),
                message: "Access Denied".to_owned(),
            }),
            Some(Bend::Away(calls)) => {
                self.away_until.store(nth + calls, Ordering::Relaxed);
                unknown("connection refused")
            }
        }
    }

    async fn bent_file<T>(&self, call: Pending<'_, Result<T, StageError>>) -> Result<T, StageError> {
        self.halted().await;
        self.deliver().await;
        match self.begin().1 {
            Some(Bend::StopBefore | Bend::StopLate(_)) => self.stop().await,
            Some(Bend::StopAfter) => {
                call.await?;
                self.stop().await
            }
            _ => call.await,
        }
    }
}

#[derive(Debug)]
pub struct BentStore(pub Arc<Calls>);

impl Store for BentStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        let store = &self.0.world.store;
        Box::pin(self.0.bent(move || store.put(key, bytes.clone(), condition.clone(), metadata), None))
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(self.0.bent(move || self.0.world.store.get(key), None))
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        Box::pin(self.0.bent(move || self.0.world.store.head(key), None))
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(self.0.bent(move || self.0.world.store.delete(key, only.clone()), None))
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        Box::pin(self.0.bent(move || self.0.world.store.list(prefix, token, limit), None))
    }
}

impl MultipartStore for BentStore {
    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<UploadId>> {
        Box::pin(self.0.bent(move || self.0.world.store.create_upload(key, metadata), None))
    }

    fn upload_part<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        number: u16,
        bytes: Bytes,
    ) -> Pending<'a, Outcome<ETag>> {
        let store = &self.0.world.store;
        Box::pin(self.0.bent(move || store.upload_part(key, upload, number, bytes.clone()), None))
    }

    fn complete<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        parts: &'a [PartRef],
    ) -> Pending<'a, Outcome<ETag>> {
        let late =
            LateComplete { calls: 0, key: key.to_owned(), upload: upload.clone(), parts: parts.to_vec() };
        Box::pin(self.0.bent(move || self.0.world.store.complete(key, upload, parts), Some(late)))
    }

    fn abort<'a>(&'a self, key: &'a str, upload: &'a UploadId) -> Pending<'a, Outcome<()>> {
        Box::pin(self.0.bent(move || self.0.world.store.abort(key, upload), None))
    }

    fn list_uploads<'a>(
        &'a self,
        after: Option<&'a (String, UploadId)>,
        limit: u16,
    ) -> Pending<'a, Outcome<UploadPage>> {
        Box::pin(self.0.bent(move || self.0.world.store.list_uploads(after, limit), None))
    }

    fn list_parts<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        after: Option<u16>,
        limit: u16,
    ) -> Pending<'a, Outcome<PartPage>> {
        Box::pin(self.0.bent(move || self.0.world.store.list_parts(key, upload, after, limit), None))
    }

    fn describe<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Described>> {
        Box::pin(self.0.bent(move || self.0.world.store.describe(key), None))
    }
}

#[derive(Debug)]
pub struct BentDirectory(pub Arc<Calls>);

impl Directory for BentDirectory {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Pending<'a, Result<Created, StageError>> {
        Box::pin(self.0.bent_file(self.0.world.directory.create(name, bytes)))
    }

    fn read<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Option<Bytes>, StageError>> {
        Box::pin(self.0.bent_file(self.0.world.directory.read(name)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, Result<(), StageError>> {
        Box::pin(self.0.bent_file(self.0.world.directory.remove(name)))
    }

    fn list<'a>(&'a self, folder: &'a str) -> Pending<'a, Result<Vec<String>, StageError>> {
        Box::pin(self.0.bent_file(self.0.world.directory.list(folder)))
    }
}
