//! One process's calls to the store and to its host's record, any of which can bend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sinks::error::SinkError;
use sinks::local::Checkpoints;
use sinks::model::checkpoint::Checkpoint;
use sinks::store::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Refusal, Store, Unanswered};
use tokio::sync::Notify;

use crate::world::World;

/// What happens at one call of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bend {
    /// The world stops before it.
    StopBefore,
    /// It takes effect, and the world stops before its answer.
    StopAfter,
    /// The world stops, and the request takes effect so many calls of later lives on.
    StopLate(u64),
    /// It takes effect and its answer is lost.
    AnswerLost,
    /// It is lost.
    RequestLost,
    /// No answer, and it takes effect so many calls later.
    Late(u64),
    /// 409.
    Conflict,
    /// The status of a store that is in trouble, without effect.
    Status(u16),
    /// It takes effect twice: a proxy repeats it.
    Twice,
    /// Done, without a tag.
    NoTag,
    /// A write is acknowledged, and forgotten.
    Forgotten,
    /// 403.
    Denied,
    /// The process is frozen before it, until it is thawed.
    Freeze,
}

/// Calls until a write takes effect, and the write.
pub type LatePut = (u64, String, Bytes, Condition);

/// One process's calls, counted, and where they bend.
#[derive(Debug)]
pub struct Calls {
    world: Arc<World>,
    bends: BTreeMap<u64, Bend>,
    pub made: AtomicU64,
    stopped: Mutex<bool>,
    pub stop: Notify,
    pub frozen: Notify,
    pub thaw: Notify,
}

impl Calls {
    pub fn new(world: &Arc<World>, bends: &[(u64, Bend)]) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            bends: bends.iter().copied().collect(),
            made: AtomicU64::new(0),
            stopped: Mutex::new(false),
            stop: Notify::new(),
            frozen: Notify::new(),
            thaw: Notify::new(),
        })
    }

    fn begin(&self) -> Option<Bend> {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        self.bends.get(&nth).copied()
    }

    /// Ends everything that this life does: nothing returns any more.
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

    async fn freeze(&self) {
        self.frozen.notify_one();
        self.thaw.notified().await;
    }

    /// Puts that are due take effect.
    pub async fn deliver(&self) {
        let due: Vec<LatePut> = {
            let mut late = self.world.late.lock();
            late.iter_mut().for_each(|(calls, ..)| *calls = calls.saturating_sub(1));
            late.extract_if(.., |(calls, ..)| *calls == 0).collect()
        };
        for (_, key, bytes, condition) in due {
            self.world.put(&key, bytes, condition, &[]).await;
        }
    }

    async fn bent<'a, T>(
        &'a self,
        call: impl Fn() -> Pending<'a, Outcome<T>>,
        late: Option<LatePut>,
    ) -> Outcome<T> {
        self.halted().await;
        self.deliver().await;
        let unknown =
            |status, reason: &str| Outcome::Unknown(Unanswered { status, reason: reason.to_owned() });
        let late_in = |calls: u64| {
            if let Some((_, key, bytes, condition)) = late.clone() {
                self.world.late.lock().push((calls, key, bytes, condition));
            }
        };
        match self.begin() {
            None | Some(Bend::NoTag | Bend::Forgotten) => {
                let answer = call().await;
                self.halted().await;
                answer
            }
            Some(Bend::Freeze) => {
                self.freeze().await;
                call().await
            }
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
                unknown(None, "the connection was reset")
            }
            Some(Bend::RequestLost) => unknown(None, "the connection timed out"),
            Some(Bend::Late(calls)) => {
                late_in(calls);
                unknown(None, "the connection timed out")
            }
            Some(Bend::Conflict) => Outcome::Refused(Refusal::Conflict),
            Some(Bend::Status(status)) => unknown(Some(status), "the store is in trouble"),
            Some(Bend::Denied) => Outcome::Refused(Refusal::Denied {
                status: 403,
                code: "AccessDenied".to_owned(),
                message: "Access Denied".to_owned(),
            }),
            Some(Bend::Twice) => {
                call().await;
                call().await
            }
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
        Box::pin(async move {
            let bend = self.0.bends.get(&self.0.made.load(Ordering::Relaxed));
            let (untagged, forgotten) = (bend == Some(&Bend::NoTag), bend == Some(&Bend::Forgotten));
            let late = (0, key.to_owned(), bytes.clone(), condition.clone());
            let call = || -> Pending<'_, _> {
                if forgotten {
                    return Box::pin(self.0.world.forget(key, bytes.clone()));
                }
                Box::pin(self.0.world.put(key, bytes.clone(), condition.clone(), metadata))
            };
            match self.0.bent(call, Some(late)).await {
                Outcome::Done(_) if untagged => Outcome::Done(None),
                answer => answer,
            }
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(self.0.bent(move || self.0.world.store.get(key), None))
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        Box::pin(self.0.bent(move || self.0.world.store.head(key), None))
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        let call = move || -> Pending<'a, _> { Box::pin(self.0.world.delete(key, only.clone())) };
        Box::pin(self.0.bent(call, None))
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        Box::pin(self.0.bent(move || self.0.world.store.list(prefix, token, limit), None))
    }
}

#[derive(Debug)]
pub struct BentCheckpoints {
    pub calls: Arc<Calls>,
    pub inner: Arc<dyn Checkpoints>,
}

impl BentCheckpoints {
    async fn bent<T>(&self, call: Pending<'_, T>) -> T {
        self.calls.halted().await;
        match self.calls.begin() {
            Some(Bend::Freeze) => {
                self.calls.freeze().await;
                call.await
            }
            Some(Bend::StopBefore | Bend::StopLate(_)) => self.calls.stop().await,
            Some(Bend::StopAfter) => {
                call.await;
                self.calls.stop().await
            }
            _ => call.await,
        }
    }
}

impl Checkpoints for BentCheckpoints {
    fn load(&self) -> Pending<'_, Result<Checkpoint, SinkError>> {
        Box::pin(self.bent(self.inner.load()))
    }

    fn save(&self, checkpoint: Checkpoint) -> Pending<'_, Result<(), SinkError>> {
        Box::pin(self.bent(self.inner.save(checkpoint)))
    }
}
