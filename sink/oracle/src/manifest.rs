//! HEAD and entries as they are stored, and the hash chain over entries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::json::{Decimal, Hex, Sha, length_prefixed, sha256};
use crate::lifetime::{CompactionRef, RollupRef};
use crate::position::{Lineage, Point};

/// A reference to an entry: where it is and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EntryRef {
    /// Its number.
    pub seq: Decimal,
    /// Its key.
    pub key: String,
    /// SHA-256 of the whole object, frame included.
    pub sha256: Sha,
    /// Its size in bytes, where the reference has one.
    pub size: Option<Decimal>,
}

/// The body of `_manifest/HEAD`, as far as it is judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Head {
    /// The stream.
    pub stream_id: Hex<16>,
    /// The pipeline as configured.
    pub pipeline: String,
    /// The prefix as configured.
    pub prefix: String,
    /// Revision: one more at each write.
    pub rev: Decimal,
    /// Generation of owners.
    pub epoch: Decimal,
    /// The write that made this revision.
    pub write: Write,
    /// The latest writes, newest last.
    pub recent: Vec<Recent>,
    /// The last committed entry's number; 0 is none.
    pub seq: Decimal,
    /// The chain up to it.
    pub chain: Sha,
    /// The last committed entry.
    pub last_entry: Option<EntryRef>,
    /// Its position.
    pub watermark: Option<Watermark>,
    /// Entries below may be absent.
    pub entry_floor: Decimal,
    /// The current rollup.
    pub rollup: Option<RollupRef>,
    /// The one before.
    pub prev_rollup: Option<RollupRef>,
    /// The newest compaction record.
    pub compaction: Option<CompactionRef>,
}

/// Identity of the write that made a revision of HEAD.
#[derive(Clone, Debug, Deserialize)]
pub struct Write {
    /// Its nonce.
    pub nonce: Hex<16>,
}

/// One of the latest writes of HEAD.
#[derive(Clone, Debug, Deserialize)]
pub struct Recent {
    /// The revision that it made.
    pub rev: Decimal,
    /// Its nonce.
    pub nonce: Hex<16>,
    /// Its owner's epoch.
    pub epoch: Decimal,
}

/// The last entry's position, in short.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Watermark {
    /// The kind of position.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its digest.
    pub digest: Sha,
}

/// An entry: one committed batch, or a visible gap.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// The stream.
    pub stream_id: Hex<16>,
    /// Its number.
    pub seq: Decimal,
    /// Its writer's epoch.
    pub epoch: Decimal,
    /// The entry before it.
    pub prev: Option<EntryRef>,
    /// `batch`, `rebase` or `noop`.
    pub kind: String,
    /// Where the source is after it.
    pub position: PositionRecord,
    /// The digest of the position before it.
    pub prev_digest: Option<Sha>,
    /// Its data objects.
    pub objects: Vec<ObjectRecord>,
    /// What the batch holds; a rebase may have none.
    pub batch: Option<BatchRecord>,
}

/// A position as an entry records it.
#[derive(Clone, Debug, Deserialize)]
pub struct PositionRecord {
    /// The kind of position.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it comes from.
    pub lineage: Lineage,
    /// Its text.
    pub text: String,
    /// Its canonical bytes, as base64.
    pub canonical_b64: String,
    /// Events of the next transaction that are included.
    pub sub: Decimal,
    /// Its digest.
    pub digest: Sha,
}

impl PositionRecord {
    /// Reads the position from its text and checks bytes and digest against it.
    ///
    /// # Errors
    /// What does not follow from the text.
    pub fn verified(&self) -> Result<Point, String> {
        let point = Point::parse(&self.kind, &self.text)?;
        if STANDARD.decode(&self.canonical_b64).ok() != Some(point.canonical()) {
            return Err("the canonical bytes are not those of the text".to_owned());
        }
        let digest = point.digest(&self.lineage, self.sub.0);
        if digest != self.digest {
            return Err(format!("the entry says digest {}, its position has {digest}", self.digest));
        }
        Ok(point)
    }
}

/// A data object as an entry records it.
#[derive(Clone, Debug, Deserialize)]
pub struct ObjectRecord {
    /// The table's namespace.
    pub namespace: String,
    /// The table.
    pub table: String,
    /// Its key.
    pub key: String,
    /// `wm2`, or `wm` of releases before it.
    pub layout: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha,
    /// Stored bytes.
    pub size: Decimal,
    /// Rows in it.
    pub rows: Decimal,
    /// `jsonl` or `parquet`.
    pub format: String,
    /// `none`, `gzip` or `zstd`.
    pub compression: String,
    /// Hash over its rows in order.
    pub row_seq_digest: Sha,
}

/// A batch as an entry records it.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchRecord {
    /// Hash over keys and contents of its objects.
    pub batch_digest: Sha,
}

/// The hash over keys and contents of sorted objects: the identity of a replay.
#[must_use]
pub fn batch_digest(objects: &[ObjectRecord]) -> Sha {
    let mut preimage = Vec::new();
    for object in objects {
        length_prefixed(&mut preimage, object.key.as_bytes());
        length_prefixed(&mut preimage, &object.sha256.0);
    }
    sha256(&preimage)
}

/// The chain before the first entry.
#[must_use]
pub fn chain_start(stream_id: Hex<16>) -> Sha {
    let mut preimage = Vec::new();
    length_prefixed(&mut preimage, b"dfs3/chain/v1");
    length_prefixed(&mut preimage, &stream_id.0);
    sha256(&preimage)
}

/// The chain after the entry of number `seq` whose stored bytes have this hash.
#[must_use]
pub fn chain_next(chain: Sha, seq: u64, entry: Sha) -> Sha {
    let mut preimage = Vec::new();
    length_prefixed(&mut preimage, b"dfs3/chain/v1");
    preimage.extend(chain.0);
    preimage.extend(seq.to_be_bytes());
    preimage.extend(entry.0);
    sha256(&preimage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_the_protocol_holds() {
        let stream_id = Hex::read("000102030405060708090a0b0c0d0e0f").unwrap();
        let start = chain_start(stream_id);
        assert_eq!(start.to_string(), "ab5eedd330ea946bde42e87d32995da7c38a99afed1503ca5066efcc38956c10");
        let one = chain_next(start, 1, sha256(b"entry-1"));
        assert_eq!(one.to_string(), "2cd8c43714367b30518f5f8ffecad2db9fe2de686dde11426b62bb08812619f5");
        let two = chain_next(one, 2, sha256(b"entry-2"));
        assert_eq!(two.to_string(), "d129c59c94f4fdd028b7ae420bac7989e4e309cfcc53f51b52fda39873eeb765");
    }
}
