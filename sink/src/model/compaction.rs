//! Compaction records: the proof, made from bytes read back, that outputs hold the rows of inputs in order.

use serde::{Deserialize, Serialize};

use super::head::RecordRef;
use super::ids::{Digest, StreamId};
use super::json::{Extra, decimal};

/// The one method of proof that there is: the rows of both sides in order, see `row_seq_digest` of an entry.
pub const METHOD: &str = "row-seq-v1";

/// That outputs replace all objects of one table in a range of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRecord {
    /// The stream that it belongs to.
    pub stream_id: StreamId,
    /// Its place among the records, from 1.
    #[serde(with = "decimal")]
    pub ordinal: u64,
    /// The epoch under which it was written.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// The table's segment of keys.
    pub table: String,
    /// The first entry whose objects of the table it covers.
    #[serde(with = "decimal")]
    pub seq_from: u64,
    /// The last.
    #[serde(with = "decimal")]
    pub seq_to: u64,
    /// What is replaced, in the order of rows: originals, or outputs of earlier records.
    pub inputs: Vec<CompactedInput>,
    /// What replaces it, in the order of rows.
    pub outputs: Vec<CompactedOutput>,
    /// That both are the same.
    pub equivalence: Equivalence,
    /// The record before it.
    pub prev: Option<RecordRef>,
    /// What wrote it.
    pub tool_version: String,
    /// Milliseconds since 1970, by the owner's clock.
    #[serde(with = "decimal")]
    pub created_at_ms: u64,
    /// Fields of newer minor versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An object that is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedInput {
    /// The entry of an original; the last entry that an earlier output covers.
    #[serde(with = "decimal")]
    pub seq: u64,
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
    /// Of its rows in order, as they were read back.
    pub row_seq_digest: Digest,
}

/// An object that replaces others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedOutput {
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
    /// Of its rows in order, as they were read back.
    pub row_seq_digest: Digest,
}

/// The proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equivalence {
    /// How it was made: [`METHOD`].
    pub method: String,
    /// Of all rows of the inputs, one after the other.
    pub inputs_digest: Digest,
    /// Of all rows of the outputs.
    pub outputs_digest: Digest,
    /// Rows of the inputs.
    #[serde(with = "decimal")]
    pub rows_in: u64,
    /// Rows of the outputs.
    #[serde(with = "decimal")]
    pub rows_out: u64,
    /// Whether they are the same. Nothing is ever deleted for a record where they are not.
    pub equal: bool,
}
