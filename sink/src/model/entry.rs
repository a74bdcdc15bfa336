//! Manifest entries: one for each committed batch, create-only, linked to the one before by hash.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::frame::{self, FrameError, Kind};
use super::ids::{Digest, Nonce, StreamId, WriterId, push_length_prefixed};
use super::json::{Extra, decimal, optional_decimal};
use super::key::TableSegment;
use super::position::{Position, PositionError, PositionRecord};

/// An entry's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// Its place in the chain, from 1.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// The epoch under which it was written.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// Who wrote it.
    pub writer_id: WriterId,
    /// Its identity.
    pub nonce: Nonce,
    /// The entry before it.
    pub prev: Option<EntryLink>,
    /// What it stands for.
    pub kind: EntryKind,
    /// Why the position jumps; only of a rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The position up to which the stream is durable with this entry.
    pub position: PositionRecord,
    /// Digest of the position before it.
    pub prev_digest: Option<Digest>,
    /// What the batch wrote, sorted by the bytes of the key.
    pub objects: Vec<ObjectRecord>,
    /// The batch as a whole.
    pub batch: BatchRecord,
    /// Milliseconds since 1970, by the writer's clock.
    #[serde(with = "decimal")]
    pub created_at_ms: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The entry before, found by key and known by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryLink {
    /// Its place in the chain.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
}

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A batch of events.
    Batch,
    /// A jump of the position outside its order, made visible.
    Rebase,
    /// Nothing.
    Noop,
}

/// How an object's key is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// `wm2-{digest of the position}`.
    Wm2,
    /// `wm-{position in hexadecimal}`, which older releases wrote.
    Wm,
}

/// One data object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// The database or schema.
    pub namespace: String,
    /// The table.
    pub table: String,
    /// The whole key, verbatim.
    pub key: String,
    /// How the key is laid out.
    pub layout: Layout,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Rows in it.
    #[serde(with = "decimal")]
    pub rows: u64,
    /// How rows are written: `jsonl`, `parquet`.
    pub format: String,
    /// How bytes are compressed: `none`, `gzip`, `zstd`.
    pub compression: String,
    /// Of the columns.
    pub schema_fingerprint: Digest,
    /// Of the rows in order.
    pub row_seq_digest: Digest,
    /// As the store gave it; a hint, no proof.
    pub etag: Option<String>,
}

impl ObjectRecord {
    /// The table's segment of keys.
    #[must_use]
    pub fn segment(&self) -> String {
        match TableSegment::new(&self.namespace, &self.table) {
            Ok(segment) => segment.as_str().to_owned(),
            // A table that does not fit a segment has no objects, unless somebody else wrote them.
            Err(_) => format!("{}.{}", self.namespace, self.table),
        }
    }
}

/// What is said of the batch as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Events in it.
    #[serde(with = "decimal")]
    pub events: u64,
    /// The earliest event, in milliseconds since 1970 by the source's clock.
    #[serde(with = "optional_decimal")]
    pub min_ts_ms: Option<u64>,
    /// The latest.
    #[serde(with = "optional_decimal")]
    pub max_ts_ms: Option<u64>,
    /// See [`batch_digest`].
    pub batch_digest: Digest,
}

/// The identity of a batch's content, whoever writes it: over keys and hashes of its objects, sorted by key.
pub fn batch_digest<'a>(objects: impl IntoIterator<Item = (&'a str, &'a Digest)>) -> Digest {
    let mut preimage = Vec::new();
    for (key, sha256) in objects {
        push_length_prefixed(&mut preimage, key.as_bytes());
        push_length_prefixed(&mut preimage, sha256.as_bytes());
    }
    Digest::of(&preimage)
}

impl Entry {
    /// Reads a frame.
    ///
    /// # Errors
    /// See [`frame::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        frame::decode(Kind::Entry, bytes).map(|(_, entry)| entry)
    }

    /// The frame to store.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        frame::encode(Kind::Entry, frame::MINOR, self)
    }

    /// Its position, whose digest is computed anew.
    ///
    /// # Errors
    /// A position that is none, or one with another digest than the record says.
    pub fn position(&self) -> Result<Position, PositionError> {
        Position::try_from(&self.position)
    }
}
