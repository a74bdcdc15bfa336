//! One try of one check: its keys, its clients, and what it may conclude from an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::ProbeSettings;
use super::clients::Clients;
use super::ground::{Counted, Ledger};
use crate::env::Env;
use crate::store::{BodyGate, Condition, ETag, Object, Outcome, Refusal, Store as _, Unanswered};

/// Times that a write which a store calls contended is sent again: nothing landed, so it is the same question.
const CONFLICTS: u32 = 12;

/// Longest wait before such a write, in milliseconds.
const CONFLICT_WAIT_MS: u64 = 400;

/// Why a check ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The store did otherwise.
    Refused { expected: String, got: String },
    /// It let nobody do it at all: credentials, bucket, permissions, or a verb that it does not have.
    Denied { expected: String, got: String },
    /// It said nothing that can be judged; a later try may.
    Unanswered(Unanswered),
}

/// How a check ended well: with a note, or as a record of something that nothing depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed(Option<String>),
    Recorded(String),
}

pub(super) type Checked = Result<Ended, Halt>;

/// It passed, and there is nothing to say.
pub(super) const PASSED: Checked = Ok(Ended::Passed(None));

/// What a store said to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done(Option<ETag>),
    Precondition,
    Missing,
    Denied(String),
}

impl Reply {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Done(Some(etag)) => format!("done, ETag {etag}"),
            Self::Done(None) => "done, without an ETag".to_owned(),
            Self::Precondition => "412, or 304".to_owned(),
            Self::Missing => "404".to_owned(),
            Self::Denied(text) => text.clone(),
        }
    }
}

pub(super) fn refused<T>(expected: impl Into<String>, got: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Refused { expected: expected.into(), got: got.into() })
}

fn denied(status: u16, code: &str, message: &str) -> String {
    format!("{status} {code}: {message}")
}

/// One try of one check.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) env: &'a Env,
    pub(super) clients: &'a dyn Clients,
    pub(super) settings: &'a ProbeSettings,
    pub(super) ledger: Arc<Ledger>,
    /// The client that the sink will use.
    pub(super) main: Counted,
    /// What the keys of this try begin with, with a slash at its end.
    pub(super) directory: String,
}

impl At<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.directory)
    }

    /// A client over connections of its own.
    pub(super) fn fresh(&self) -> Counted {
        Counted { store: self.clients.fresh(), ledger: self.ledger.clone() }
    }

    /// Such a client, whose bodies wait half way.
    pub(super) fn gated(&self, gate: Arc<BodyGate>) -> Counted {
        Counted { store: self.clients.gated(gate), ledger: self.ledger.clone() }
    }

    /// Bytes that nobody wrote before.
    pub(super) fn body(&self) -> Bytes {
        Bytes::from(format!("probe {}", self.env.ids.nonce()))
    }

    /// Such bytes, so many of them.
    pub(super) fn body_of(&self, size: usize) -> Bytes {
        let line = format!("probe {}\n", self.env.ids.nonce());
        let mut bytes = line.repeat(size / line.len() + 1).into_bytes();
        bytes.truncate(size);
        Bytes::from(bytes)
    }

    /// One write, again for as long as the store calls it contended.
    pub(super) async fn put_on(
        &self,
        store: &Counted,
        key: &str,
        bytes: &Bytes,
        condition: Condition,
    ) -> Result<Reply, Halt> {
        for turn in 0..CONFLICTS {
            let reply = match store.put(key, bytes.clone(), condition.clone(), &[]).await {
                Outcome::Done(etag) => Reply::Done(etag),
                Outcome::Missing => Reply::Missing,
                Outcome::Refused(Refusal::Precondition) => Reply::Precondition,
                Outcome::Refused(Refusal::Denied { status, code, message }) => {
                    Reply::Denied(denied(status, &code, &message))
                }
                Outcome::Unknown(unanswered) => return Err(Halt::Unanswered(unanswered)),
                Outcome::Refused(Refusal::Conflict) => {
                    let most = CONFLICT_WAIT_MS.min(5 << turn);
                    tokio::time::sleep(Duration::from_millis(1 + self.env.ids.below(most))).await;
                    continue;
                }
            };
            return Ok(reply);
        }
        Ok(Reply::Denied(format!("409, {CONFLICTS} times in a row")))
    }

    pub(super) async fn put(&self, key: &str, bytes: &Bytes, condition: Condition) -> Result<Reply, Halt> {
        self.put_on(&self.main, key, bytes, condition).await
    }

    /// A write that must be done, and its ETag.
    pub(super) async fn must_write(
        &self,
        key: &str,
        bytes: &Bytes,
        condition: Condition,
    ) -> Result<ETag, Halt> {
        let what = match &condition {
            Condition::Absent => "create on an absent key: 2xx and an ETag",
            Condition::Matches(_) => "swap with the current ETag: 2xx and an ETag",
            Condition::None => "PUT without a condition: 2xx and an ETag",
        };
        match self.put(key, bytes, condition).await? {
            Reply::Done(Some(etag)) => Ok(etag),
            Reply::Denied(got) => Err(Halt::Denied { expected: what.to_owned(), got }),
            other => refused(what, other.text()),
        }
    }

    /// A write that must fail its condition, after which `there` is still the object.
    pub(super) async fn must_fail(
        &self,
        store: &Counted,
        key: &str,
        bytes: &Bytes,
        condition: Condition,
        there: (&Bytes, &ETag),
    ) -> Result<(), Halt> {
        match self.put_on(store, key, bytes, condition).await? {
            Reply::Precondition => {}
            other => return refused("412: the condition does not hold", other.text()),
        }
        self.must_hold_tagged(key, there.0, there.1).await
    }

    /// Reads the object, if there is one.
    pub(super) async fn get_on(&self, store: &Counted, key: &str) -> Result<Option<Object>, Halt> {
        match store.get(key).await {
            Outcome::Done(object) => Ok(Some(object)),
            Outcome::Missing => Ok(None),
            Outcome::Unknown(unanswered) => Err(Halt::Unanswered(unanswered)),
            Outcome::Refused(Refusal::Denied { status, code, message }) => {
                refused("GET: 200 or 404", denied(status, &code, &message))
            }
            Outcome::Refused(other) => refused("GET: 200 or 404", format!("{other:?}")),
        }
    }

    /// The object must be these bytes.
    pub(super) async fn must_hold_on(
        &self,
        store: &Counted,
        key: &str,
        bytes: &Bytes,
    ) -> Result<Object, Halt> {
        let expected = || format!("GET: the {} bytes that were written last", bytes.len());
        match self.get_on(store, key).await? {
            Some(object) if object.bytes == *bytes => Ok(object),
            Some(object) => refused(expected(), format!("{} other bytes", object.bytes.len())),
            None => refused(expected(), "404"),
        }
    }

    pub(super) async fn must_hold(&self, key: &str, bytes: &Bytes) -> Result<Object, Halt> {
        self.must_hold_on(&self.main, key, bytes).await
    }

    /// The object must be these bytes with this ETag.
    pub(super) async fn must_hold_tagged(&self, key: &str, bytes: &Bytes, etag: &ETag) -> Result<(), Halt> {
        let object = self.must_hold(key, bytes).await?;
        if object.meta.etag == *etag {
            return Ok(());
        }
        refused(format!("GET: ETag {etag}, as the write had it"), format!("ETag {}", object.meta.etag))
    }

    /// There must be no object.
    pub(super) async fn must_be_absent(&self, key: &str) -> Result<(), Halt> {
        match self.get_on(&self.main, key).await? {
            None => Ok(()),
            Some(object) => refused("GET: 404", format!("an object of {} bytes", object.bytes.len())),
        }
    }

    /// A delete that must be done.
    pub(super) async fn must_delete(&self, key: &str) -> Result<(), Halt> {
        match self.main.delete(key, None).await {
            Outcome::Done(()) => Ok(()),
            Outcome::Unknown(unanswered) => Err(Halt::Unanswered(unanswered)),
            Outcome::Refused(Refusal::Denied { status, code, message }) => {
                refused("DELETE: 2xx", denied(status, &code, &message))
            }
            other => refused("DELETE: 2xx", format!("{other:?}")),
        }
    }
}
