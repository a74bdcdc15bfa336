//! What to do with objects that HEAD does not reach. A name alone only ever protects an object: what is deleted was
//! unreachable after it was listed, is older than the grace period by the store's clock, and has been looked into.

use std::fmt;

use serde::Serialize;

use crate::model::entry::Entry;
use crate::model::ids::StreamId;
use crate::model::key::PipelineRoot;
use crate::store::{ETag, Object, ObjectMeta};

/// What every frame of a manifest object begins with.
const FRAME: &[u8] = b"DFS3 ";

/// How long a lease holds, and how much of that is left for requests that are under way. All in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// From when it was asked for until the next owner may write.
    pub ttl_ms: u64,
    /// Longest that one request takes, from when it is sent.
    pub request_ms: u64,
    /// For clocks that run at different speeds, and for what a network holds back.
    pub margin_ms: u64,
}

impl LeaseTimes {
    /// For requests that take at most `request_ms`: as long again to work in, and margins of a tenth, at least a
    /// second.
    #[must_use]
    pub const fn of_requests(request_ms: u64) -> Self {
        let margin_ms = if request_ms / 10 < 1_000 { 1_000 } else { request_ms / 10 };
        Self { ttl_ms: 2 * request_ms + 2 * margin_ms, request_ms, margin_ms }
    }

    /// How long after it was asked for a delete may still be sent.
    #[must_use]
    pub const fn usable_ms(&self) -> u64 {
        self.ttl_ms.saturating_sub(self.request_ms).saturating_sub(self.margin_ms)
    }
}

/// When a plan is so large that a person must look at it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    /// So many deletes are never too many of a hundred.
    pub from: u64,
    /// Of a hundred listed objects.
    pub percent: u64,
    /// Deletes of one run.
    pub most: u64,
}

impl Default for Brake {
    fn default() -> Self {
        Self { from: 100, percent: 50, most: 10_000 }
    }
}

/// How orphans are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Age by the store's clock above which an unreachable object is one, in milliseconds.
    pub grace_period_ms: u64,
    /// How far local and store clock may be apart, in milliseconds.
    pub max_clock_skew_ms: u64,
    /// When to stop and ask.
    pub brake: Brake,
    /// Whether deletes name the tag that was listed even where no probe has found that the store honours it.
    pub conditional_deletes: bool,
    /// Whether only data that carries this stream's id in its metadata is deleted. For buckets into which others
    /// write below the pipeline's own prefix.
    pub require_stamp: bool,
    /// The lease under which deletes are sent.
    pub lease: LeaseTimes,
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The grace period might end between the write of an object and the commit that reaches it.
    #[error(
        "a grace_period_ms of {grace_period_ms} is less than twice the send_timeout_ms of {send_timeout_ms}: an object \
         could be taken for an orphan before its batch is committed; set at least {least}"
    )]
    Grace {
        /// As it is configured.
        grace_period_ms: u64,
        /// As it is configured.
        send_timeout_ms: u64,
        /// What it must be at least.
        least: u64,
    },
}

impl Policy {
    /// With the defaults for all that is not said.
    ///
    /// # Errors
    /// [`PolicyError::Grace`] for a grace period below twice the send timeout.
    pub fn new(
        grace_period_ms: u64,
        send_timeout_ms: u64,
        request_timeout_ms: u64,
    ) -> Result<Self, PolicyError> {
        let least = send_timeout_ms.saturating_mul(2);
        if grace_period_ms < least {
            return Err(PolicyError::Grace { grace_period_ms, send_timeout_ms, least });
        }
        Ok(Self {
            grace_period_ms,
            max_clock_skew_ms: 30_000,
            brake: Brake::default(),
            conditional_deletes: false,
            require_stamp: false,
            lease: LeaseTimes::of_requests(request_timeout_ms),
        })
    }
}

/// An object that HEAD does not reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// As it was listed.
    pub meta: ObjectMeta,
    /// What it was found to hold.
    pub content: Content,
}

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It was not looked into.
    Unread,
    /// A verified entry of this stream.
    Entry(StreamId),
    /// Something that begins as manifest objects do, and is no verified entry.
    Frame,
    /// Anything else.
    Bytes {
        /// The stream's id that its metadata names.
        stamp: Option<StreamId>,
    },
}

impl Content {
    /// Of an object that was read whole.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        if let Ok(entry) = Entry::decode(&object.bytes) {
            return Self::Entry(entry.stream_id);
        }
        if object.bytes.starts_with(FRAME) {
            return Self::Frame;
        }
        let stamp = object.metadata.iter().find(|(name, _)| name == "dfs3-stream");
        Self::Bytes { stamp: stamp.and_then(|(_, id)| id.parse().ok()) }
    }
}

/// What becomes of a stray, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Unreachable and older than the grace period.
    Delete,
    /// It may be about to be reached.
    Young,
    /// A rollup, an inventory, a mark or a compaction record: kept for ever.
    Retained,
    /// Below `_manifest/`, and nothing that is known.
    Unknown,
    /// An entry of another stream.
    OtherStream,
    /// A manifest object outside `_manifest/`.
    Misplaced,
    /// Without this stream's id, which the policy asks for.
    Unstamped,
    /// Its content must be known first.
    Unread,
}

impl Verdict {
    /// As one reads it in a plan.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Delete => "unreachable and older than the grace period",
            Self::Young => "unreachable, and younger than the grace period",
            Self::Retained => "a rollup, inventory, mark or compaction record: kept for ever",
            Self::Unknown => "below _manifest/ and no entry: what is not known is kept",
            Self::OtherStream => "an entry of another stream",
            Self::Misplaced => "a manifest object that does not belong here",
            Self::Unstamped => "without this stream's id in its metadata",
            Self::Unread => "its content is not known",
        }
    }
}

/// One stray and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Age by the store's clock, in milliseconds.
    pub age_ms: u64,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: &'static str,
    /// Its tag.
    #[serde(skip)]
    pub etag: ETag,
    /// Milliseconds since 1970 by the store's clock.
    #[serde(skip)]
    pub last_modified_ms: u64,
}

/// What a reconciliation would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Objects below the pipeline's root.
    pub listed: u64,
    /// Of these, reached from HEAD.
    pub reachable: u64,
    /// All others, in the order of keys.
    pub rows: Vec<Row>,
    /// Why nothing is deleted without a person's word.
    pub brake: Option<String>,
}

/// When, and under which HEAD, strays were found.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// What every key begins with.
    pub root: &'a PipelineRoot,
    /// The stream.
    pub stream_id: StreamId,
    /// Milliseconds since 1970 by the store's clock, before the listing began.
    pub store_date_ms: u64,
    /// Objects that were listed.
    pub listed: u64,
}

/// What becomes of one stray.
#[must_use]
pub fn verdict(stray: &Stray, sight: &Sight<'_>, policy: &Policy) -> Verdict {
    let age_ms = sight.store_date_ms.saturating_sub(stray.meta.last_modified_ms);
    let young = age_ms <= policy.grace_period_ms;
    let manifest = sight.root.manifest();
    let folder = stray.meta.key.strip_prefix(&manifest).map(|rest| rest.split('/').next().unwrap_or(rest));
    match (folder, stray.content) {
        (Some("rollups" | "inventory" | "marks" | "compactions"), _) => Verdict::Retained,
        (Some("entries" | "probe") | None, _) if young => Verdict::Young,
        (Some("probe"), _) => Verdict::Delete,
        (Some("entries") | None, Content::Unread) => Verdict::Unread,
        (Some("entries"), Content::Entry(stream_id)) if stream_id == sight.stream_id => Verdict::Delete,
        (Some("entries"), Content::Entry(_)) => Verdict::OtherStream,
        (Some(_), _) => Verdict::Unknown,
        (None, Content::Entry(_) | Content::Frame) => Verdict::Misplaced,
        (None, Content::Bytes { stamp }) if policy.require_stamp && stamp != Some(sight.stream_id) => {
            Verdict::Unstamped
        }
        (None, Content::Bytes { .. }) => Verdict::Delete,
    }
}

/// What becomes of all strays, which are in the order of keys.
#[must_use]
pub fn plan(strays: &[Stray], sight: &Sight<'_>, policy: &Policy) -> Plan {
    let row = |stray: &Stray| {
        let verdict = verdict(stray, sight, policy);
        Row {
            key: stray.meta.key.clone(),
            size: stray.meta.size,
            age_ms: sight.store_date_ms.saturating_sub(stray.meta.last_modified_ms),
            verdict,
            reason: verdict.reason(),
            etag: stray.meta.etag.clone(),
            last_modified_ms: stray.meta.last_modified_ms,
        }
    };
    let rows: Vec<Row> = strays.iter().map(row).collect();
    let deletes = rows.iter().filter(|row| row.verdict == Verdict::Delete).count() as u64;
    Plan {
        listed: sight.listed,
        reachable: sight.listed.saturating_sub(rows.len() as u64),
        rows,
        brake: policy.brake.on(deletes, sight.listed),
    }
}

impl Brake {
    fn on(&self, deletes: u64, listed: u64) -> Option<String> {
        let Self { from, percent, most } = *self;
        if deletes > most {
            return Some(format!("{deletes} objects would be deleted, one run may delete {most}"));
        }
        (deletes > from && deletes.saturating_mul(100) > listed.saturating_mul(percent)).then(|| {
            format!("{deletes} of {listed} objects would be deleted, more than {percent} of a hundred")
        })
    }
}

impl Plan {
    /// What is to be deleted.
    pub fn deletes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.verdict == Verdict::Delete)
    }
}

/// One line for each stray, then the sums.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { key, size, age_ms, verdict, reason, .. } in &self.rows {
            let what = if *verdict == Verdict::Delete { "delete" } else { "keep" };
            writeln!(f, "{what} {key:?}: {reason}; {size} bytes, {age_ms} ms old")?;
        }
        let (listed, reachable, deletes) = (self.listed, self.reachable, self.deletes().count());
        write!(f, "{listed} objects, {reachable} reachable, {deletes} to delete")?;
        match &self.brake {
            Some(why) => write!(f, "; the brake is on: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
