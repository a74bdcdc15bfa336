//! GC marks: which entries may be deleted, by key and hash; written before anything is.

use serde::{Deserialize, Serialize};

use super::ids::{Digest, Nonce, StreamId};
use super::json::{Extra, decimal};

/// Entries that the horizon covers. Immutable, and never deleted: expiry never derives a key from a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// Its identity.
    pub mark_id: Nonce,
    /// The epoch under which it was written.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// The generation of rollup that was current.
    #[serde(rename = "gen", with = "decimal")]
    pub generation: u64,
    /// The end of the rollup before it.
    #[serde(with = "decimal")]
    pub horizon: u64,
    /// The first entry.
    #[serde(with = "decimal")]
    pub from_seq: u64,
    /// The last entry, at most the horizon.
    #[serde(with = "decimal")]
    pub to_seq: u64,
    /// The entries, in order.
    pub entries: Vec<MarkedEntry>,
    /// The current rollup.
    pub rollup: MarkedRollup,
    /// The rollup before it.
    pub prev_rollup: MarkedRollup,
    /// Milliseconds since 1970, by the store's clock.
    #[serde(with = "decimal")]
    pub store_date_ms: u64,
    /// Milliseconds since 1970, by the owner's clock.
    #[serde(with = "decimal")]
    pub created_at_ms: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An entry that may be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedEntry {
    /// Its place in the chain.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
}

/// A rollup that replaces the entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedRollup {
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
}
