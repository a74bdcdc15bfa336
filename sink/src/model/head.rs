//! `_manifest/HEAD`: the one object that is ever overwritten. What it reaches is committed, nothing else is.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::frame::{self, FrameError, Kind};
use super::ids::{Digest, Nonce, StreamId, WriterId};
use super::json::{Extra, decimal, optional_decimal};

/// How many former writes HEAD remembers: what lets an owner find a write of its own that was built upon, and
/// notice within as many revisions that the store lost one.
pub const RECENT: usize = 64;

/// HEAD's body, and the minor version of the frame that it came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Minor version of the frame; a rewrite keeps it, but for the one whose purpose is to raise it.
    #[serde(skip)]
    pub minor: u16,
    /// Drawn at creation.
    pub stream_id: StreamId,
    /// The pipeline as it is configured.
    pub pipeline: String,
    /// The prefix as it is configured.
    pub prefix: String,
    /// Least minor version that may read this.
    pub min_reader: u32,
    /// Least minor version that may replace this.
    pub min_writer: u32,
    /// One more with every write.
    #[serde(with = "decimal")]
    pub rev: u64,
    /// One more with every acquisition.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// Who may publish.
    pub owner: Owner,
    /// The write that made this revision.
    pub write: Write,
    /// The writes before it, at most [`RECENT`], newest last.
    pub recent: Vec<PastWrite>,
    /// The last committed entry; 0 is none.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Hash chain over all entries up to `seq`.
    pub chain: Digest,
    /// The last committed entry, which always exists.
    pub last_entry: Option<EntryRef>,
    /// Position of the last committed entry.
    pub watermark: Option<Watermark>,
    /// Entries below may be absent, all others exist.
    #[serde(with = "decimal")]
    pub entry_floor: u64,
    /// The current generation of rollup.
    pub rollup: Option<RollupRef>,
    /// The generation before it, whose end is the horizon of entry expiry.
    pub prev_rollup: Option<RollupRef>,
    /// The newest compaction record.
    pub compaction: Option<CompactionRef>,
    /// Who may delete what reconciliation finds unreachable, and until when.
    pub lease: Option<Lease>,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Who owns the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The life of a process.
    pub writer_id: WriterId,
    /// What people call it.
    pub instance: String,
    /// Revision of the acquisition.
    #[serde(with = "decimal")]
    pub acquired_rev: u64,
    /// Milliseconds since 1970, by the owner's clock.
    #[serde(with = "decimal")]
    pub acquired_at_ms: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why HEAD was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Intent {
    /// The stream was created.
    Init,
    /// A process became its owner.
    Acquire,
    /// Entries were committed.
    Publish,
    /// A rollup was published.
    Rollup,
    /// The floor of the entries rose.
    Floor,
    /// The lease changed.
    Lease,
    /// A compaction was published.
    Compaction,
    /// The position jumped, and an entry says so.
    Rebase,
}

impl Intent {
    /// Its word, as it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Acquire => "acquire",
            Self::Publish => "publish",
            Self::Rollup => "rollup",
            Self::Floor => "floor",
            Self::Lease => "lease",
            Self::Compaction => "compaction",
            Self::Rebase => "rebase",
        }
    }
}

/// The write that made a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Its identity.
    pub nonce: Nonce,
    /// What it was for.
    pub intent: Intent,
    /// When it was first tried, in milliseconds since 1970, by the writer's clock.
    #[serde(with = "decimal")]
    pub attempt_at_ms: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A former write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastWrite {
    /// The revision that it made.
    #[serde(with = "decimal")]
    pub rev: u64,
    /// Its identity.
    pub nonce: Nonce,
    /// Under which epoch.
    #[serde(with = "decimal")]
    pub epoch: u64,
}

/// A committed entry, found by key and known by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRef {
    /// Its place in the chain.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Bytes of its frame.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The position of the last committed entry, which has it in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// Name of the position's type.
    #[serde(rename = "type")]
    pub position_type: String,
    /// Its digest, as in keys.
    pub digest: Digest,
    /// Digest of its lineage alone.
    pub lineage_digest: Digest,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A published rollup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollupRef {
    /// Its generation.
    #[serde(rename = "gen", with = "decimal")]
    pub generation: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Bytes of its frame.
    #[serde(with = "decimal")]
    pub size: u64,
    /// The last entry that it covers.
    #[serde(with = "decimal")]
    pub end_seq: u64,
    /// The chain up to there.
    pub end_chain: Digest,
    /// Milliseconds since 1970.
    #[serde(with = "decimal")]
    pub published_at_ms: u64,
    /// The revision that published it.
    #[serde(with = "decimal")]
    pub published_rev: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The newest compaction record; older ones are linked from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRef {
    /// How many records there are.
    #[serde(with = "decimal")]
    pub count: u64,
    /// The newest.
    pub last: RecordRef,
    /// When it was published, in milliseconds since 1970 by the owner's clock. Older writers left it out.
    #[serde(default, with = "optional_decimal", skip_serializing_if = "Option::is_none")]
    pub published_at_ms: Option<u64>,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A compaction record, found by key and known by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRef {
    /// Its place among the records.
    #[serde(with = "decimal")]
    pub ordinal: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The right to delete orphans, bounded in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its identity.
    pub lease_id: Nonce,
    /// Which actor holds it.
    pub actor: String,
    /// Under which epoch.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// How long it holds, from when its holder sent the write.
    #[serde(with = "decimal")]
    pub ttl_ms: u64,
    /// The revision that granted it.
    #[serde(with = "decimal")]
    pub granted_rev: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How one revision of HEAD stands to another that was known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// The same write.
    Same,
    /// Built upon the known one, directly or over others.
    Descendant,
    /// Newer by more revisions than HEAD remembers: nothing can be said.
    TooFar,
    /// An older revision, of which the known one may be a descendant: a stale read, or the store went back.
    Older,
    /// The known one is not among its ancestors: the store lost a write that it had confirmed.
    Foreign,
}

impl Head {
    /// Reads a frame.
    ///
    /// # Errors
    /// See [`frame::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (minor, head) = frame::decode::<Self>(Kind::Head, bytes)?;
        Ok(Self { minor, ..head })
    }

    /// The frame to store.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        frame::encode(Kind::Head, self.minor, self)
    }

    /// The next revision, so far with the same content: another write, under the same or a higher epoch.
    #[must_use]
    pub fn successor(&self, nonce: Nonce, intent: Intent, now_ms: u64) -> Self {
        let mut next = self.clone();
        next.recent.push(PastWrite { rev: self.rev, nonce: self.write.nonce, epoch: self.epoch });
        let surplus = next.recent.len().saturating_sub(RECENT);
        next.recent.drain(..surplus);
        next.rev += 1;
        next.write = Write { nonce, intent, attempt_at_ms: now_ms, extra: Extra::new() };
        next
    }

    /// Whether `nonce` made this revision.
    #[must_use]
    pub fn is_write(&self, nonce: Nonce) -> bool {
        self.write.nonce == nonce
    }

    /// Whether `nonce` made one of the revisions that this one remembers.
    #[must_use]
    pub fn remembers(&self, nonce: Nonce) -> bool {
        self.recent.iter().any(|past| past.nonce == nonce)
    }

    /// How this revision stands to `known`, which was HEAD once.
    #[must_use]
    pub fn descent(&self, known: &Self) -> Descent {
        if self.rev == known.rev && self.is_write(known.write.nonce) {
            Descent::Same
        } else if self.rev < known.rev {
            Descent::Older
        } else if self.recent.iter().any(|past| past.rev == known.rev && past.nonce == known.write.nonce) {
            Descent::Descendant
        } else if self.rev - known.rev > RECENT as u64 {
            Descent::TooFar
        } else {
            Descent::Foreign
        }
    }
}
