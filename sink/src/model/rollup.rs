//! Inventories and rollups: what makes the manifest verifiable without every entry that ever was.

use serde::{Deserialize, Serialize};

use super::entry::EntryKind;
use super::head::RecordRef;
use super::ids::{Digest, Nonce, StreamId};
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
    /// Its identity. Inventories of older writers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Nonce>,
    /// What it stands for. Inventories of older writers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<EntryKind>,
    /// Why the position jumps; only of a rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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
    /// How rows are written. Inventories of older writers leave it to the key's extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How bytes are compressed. Inventories of older writers leave it to the key's extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Of the columns. Inventories of older writers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_fingerprint: Option<Digest>,
    /// Of the rows in order. Inventories of older writers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_seq_digest: Option<Digest>,
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
    /// The compaction records up to the one that was the newest, folded; none if there was none.
    pub compactions: Option<Compactions>,
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

/// Compaction records folded into what is left of them, so that nobody reads each of them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compactions {
    /// How many there are.
    #[serde(with = "decimal")]
    pub count: u64,
    /// The newest.
    pub last: RecordRef,
    /// Outputs that no later of these records has replaced, sorted by table, first entry and place. Together
    /// with the objects of entries outside their ranges they are the rows of each table.
    pub outputs: Vec<LiveOutput>,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An output of a compaction record that no later one has replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveOutput {
    /// The table's segment of keys.
    pub table: String,
    /// The first entry whose objects of the table its record replaces.
    #[serde(with = "decimal")]
    pub seq_from: u64,
    /// The last.
    #[serde(with = "decimal")]
    pub seq_to: u64,
    /// Its record.
    #[serde(with = "decimal")]
    pub ordinal: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Rows in it.
    #[serde(with = "decimal")]
    pub rows: u64,
    /// Of its rows in order.
    pub row_seq_digest: Digest,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
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
