//! Inventories and rollups: what makes the manifest verifiable without every entry that ever was.

use serde::{Deserialize, Serialize};

use super::ids::{Digest, StreamId};
use super::json::{Extra, decimal};
use super::position::PositionRecord;

/// The entries of a contiguous range, copied together; immutable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// The first entry.
    #[serde(with = "decimal")]
    pub from_seq: u64,
    /// The last entry.
    #[serde(with = "decimal")]
    pub to_seq: u64,
    /// The chain up to `to_seq`.
    pub end_chain: Digest,
    /// The entries, in order.
    pub entries: Vec<InventoryEntry>,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What an inventory keeps of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// Its place in the chain.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// The epoch under which it was written.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// Its whole key.
    pub entry_key: String,
    /// SHA-256 of its frame.
    pub entry_sha256: Digest,
    /// Digest of its position.
    pub digest: Digest,
    /// Its objects, sorted by the bytes of the key.
    pub objects: Vec<InventoryObject>,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What an inventory keeps of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryObject {
    /// The whole key, verbatim.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Rows in it.
    #[serde(with = "decimal")]
    pub rows: u64,
    /// The table's segment of the key.
    pub table: String,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// All inventories of the stream up to an entry; cumulative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollup {
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// Its generation, from 1.
    #[serde(rename = "gen", with = "decimal")]
    pub generation: u64,
    /// The epoch under which it was written.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// Always 1.
    #[serde(with = "decimal")]
    pub start_seq: u64,
    /// The last entry that it covers.
    #[serde(with = "decimal")]
    pub end_seq: u64,
    /// The chain up to there.
    pub end_chain: Digest,
    /// The position of that entry.
    pub end_position: PositionRecord,
    /// The generation before it.
    pub prev: Option<PrevRollup>,
    /// What it covers, in order, without gap or overlap.
    pub inventories: Vec<InventoryRef>,
    /// The compaction records that it knows of.
    pub compactions: Option<serde_json::Value>,
    /// What it amounts to.
    pub totals: Totals,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The generation before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrevRollup {
    /// Its generation.
    #[serde(rename = "gen", with = "decimal")]
    pub generation: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// The last entry that it covers.
    #[serde(with = "decimal")]
    pub end_seq: u64,
}

/// An inventory, found by key and known by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRef {
    /// The first entry.
    #[serde(with = "decimal")]
    pub from: u64,
    /// The last entry.
    #[serde(with = "decimal")]
    pub to: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Bytes of its frame.
    #[serde(with = "decimal")]
    pub size: u64,
}

/// Sums over everything that a rollup covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Data objects.
    #[serde(with = "decimal")]
    pub objects: u64,
    /// Rows.
    #[serde(with = "decimal")]
    pub rows: u64,
    /// Stored bytes.
    #[serde(with = "decimal")]
    pub bytes: u64,
}
