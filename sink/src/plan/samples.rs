//! What planners are tested on: a HEAD, a rollup, a compaction record.

use crate::model::compaction::{CompactedInput, CompactedOutput, CompactionRecord, Equivalence, METHOD};
use crate::model::head::{Head, RollupRef};
use crate::model::ids::{Digest, Nonce, StreamId, WriterId};
use crate::model::json::Extra;
use crate::plan::ownership::{self, Identity};

/// Revision 1 of a stream, made at 1,000 ms, with `seq` entries that nothing else tells of.
pub(super) fn head(seq: u64) -> Head {
    let me = Identity {
        writer_id: WriterId::from_bytes([1; 16]),
        instance: "test".to_owned(),
        pipeline: "orders".to_owned(),
        prefix: String::new(),
    };
    let created = ownership::creation(&me, StreamId::from_bytes([2; 16]), Nonce::from_bytes([3; 16]), 1_000);
    Head { seq, ..created }
}

/// A published rollup.
pub(super) fn rollup(generation: u64, end_seq: u64, published_at_ms: u64) -> RollupRef {
    RollupRef {
        generation,
        key: format!("rollup-{generation}"),
        sha256: Digest::of(b""),
        size: 1,
        end_seq,
        end_chain: Digest::of(b""),
        published_at_ms,
        published_rev: 1,
        extra: Extra::new(),
    }
}

/// A record of the objects at `inputs`, each of one row, which are one at `output` now.
pub(super) fn compaction(
    ordinal: u64,
    table: &str,
    (seq_from, seq_to): (u64, u64),
    inputs: &[&str],
    output: &str,
) -> CompactionRecord {
    let digest = Digest::of(b"rows");
    let input = |key: &&str| CompactedInput {
        seq: seq_to,
        key: (*key).to_owned(),
        sha256: digest,
        size: 7,
        rows: 1,
        row_seq_digest: digest,
    };
    let rows = inputs.len() as u64;
    CompactionRecord {
        stream_id: StreamId::from_bytes([2; 16]),
        ordinal,
        epoch: 1,
        table: table.to_owned(),
        seq_from,
        seq_to,
        inputs: inputs.iter().map(input).collect(),
        outputs: vec![CompactedOutput {
            key: output.to_owned(),
            sha256: digest,
            size: 9,
            rows,
            row_seq_digest: digest,
        }],
        equivalence: Equivalence {
            method: METHOD.to_owned(),
            inputs_digest: digest,
            outputs_digest: digest,
            rows_in: rows,
            rows_out: rows,
            equal: true,
        },
        prev: None,
        tool_version: "test".to_owned(),
        created_at_ms: 0,
        extra: Extra::new(),
    }
}
