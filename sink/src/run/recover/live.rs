//! The live view of every table: the objects whose rows are the table, in the order of its events. These are what
//! readers read and compaction compacts: originals that no record has replaced, and outputs.

use serde::Serialize;

use super::{Committed, Content, Recovered};
use crate::format;
use crate::model::ids::Digest;
use crate::model::rollup::LiveOutput;

/// An object that holds rows which no other live object holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveObject {
    /// The table's segment of keys.
    pub table: String,
    /// The entry of an original; the first entry that an output covers.
    pub seq_from: u64,
    /// The entry of an original; the last entry that an output covers.
    pub seq_to: u64,
    /// Its whole key, verbatim.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    pub size: u64,
    /// Rows in it.
    pub rows: u64,
    /// Of its rows in order, if that was recorded.
    pub row_seq_digest: Option<Digest>,
    /// How rows are written: `jsonl`, `parquet`.
    pub format: String,
    /// How bytes are compressed: `none`, `gzip`, `zstd`.
    pub compression: String,
    /// What wrote it.
    pub source: Source,
}

/// What wrote a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A batch.
    Original,
    /// A compaction.
    Compacted {
        /// Its record.
        ordinal: u64,
    },
}

impl LiveObject {
    /// Whether a batch wrote it.
    #[must_use]
    pub fn is_original(&self) -> bool {
        self.source == Source::Original
    }
}

impl Recovered {
    /// Every live object, by table, first entry, and its place in the entry or the record.
    #[must_use]
    pub fn live(&self) -> Vec<LiveObject> {
        let originals = self
            .entries
            .iter()
            .flat_map(originals)
            .filter(|object| self.compacted.covering(&object.table, object.seq_from).is_none());
        let mut live: Vec<LiveObject> =
            originals.chain(self.compacted.outputs().iter().map(LiveObject::from)).collect();
        // Stable: objects of one table in one entry, and outputs of one record, keep their order.
        live.sort_by(|a, b| (&a.table, a.seq_from).cmp(&(&b.table, b.seq_from)));
        live
    }
}

impl From<&LiveOutput> for LiveObject {
    fn from(output: &LiveOutput) -> Self {
        let (format, compression) = format::of_key(&output.key);
        Self {
            table: output.table.clone(),
            seq_from: output.seq_from,
            seq_to: output.seq_to,
            key: output.key.clone(),
            sha256: output.sha256,
            size: output.size,
            rows: output.rows,
            row_seq_digest: Some(output.row_seq_digest),
            format: format.to_owned(),
            compression: compression.to_owned(),
            source: Source::Compacted { ordinal: output.ordinal },
        }
    }
}

/// An entry's objects, in its order, as if nothing had replaced them.
pub fn originals(entry: &Committed) -> Vec<LiveObject> {
    let seq = entry.seq;
    let original = |object: super::Object<'_>, digest, format, compression| LiveObject {
        table: object.table.into_owned(),
        seq_from: seq,
        seq_to: seq,
        key: object.key.to_owned(),
        sha256: object.sha256,
        size: object.size,
        rows: object.rows,
        row_seq_digest: digest,
        format,
        compression,
        source: Source::Original,
    };
    match &entry.content {
        Content::Entry(entry) => entry
            .objects
            .iter()
            .map(|object| {
                let (format, compression) = (object.format.clone(), object.compression.clone());
                original(object.into(), Some(object.row_seq_digest), format, compression)
            })
            .collect(),
        Content::Inventory(entry) => entry
            .objects
            .iter()
            .map(|object| {
                let (format, compression) = format::of_key(&object.key);
                let format = object.format.clone().unwrap_or_else(|| format.to_owned());
                let compression = object.compression.clone().unwrap_or_else(|| compression.to_owned());
                original(object.into(), object.row_seq_digest, format, compression)
            })
            .collect(),
    }
}
