//! What scenarios write: batches that are a function of their number, so that every reader knows what to expect.

use bytes::Bytes;

use super::Failure;
use crate::model::ids::{Digest, push_length_prefixed};
use crate::model::position::{Lineage, Point, Position, PositionType};
use crate::sink::{Batch, EncodedObject};

/// The namespace of all tables.
pub(super) const NAMESPACE: &str = "shop";

/// Tables that each batch has rows of.
pub(super) const TABLES: [&str; 3] = ["items", "orders", "payments"];

/// The file extension of all objects.
pub(super) const EXTENSION: &str = "jsonl";

/// Log bytes from one batch's position to the next.
const STRIDE: u64 = 0x100;

/// The position of batch `n`, counted from 1.
pub(super) fn position(n: u64) -> Result<Position, Failure> {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1)?;
    let lsn = n * STRIDE;
    Ok(Position::parse(PositionType::PgLsn, lineage, &format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff), 0)?)
}

/// Which batch a position is that of; 0 if there is none.
pub(super) fn number(position: Option<&Position>) -> Result<u64, Failure> {
    let Some(found) = position else { return Ok(0) };
    match &found.point {
        Point::PgLsn(lsn) if *found == self::position(lsn.0 / STRIDE)? => Ok(lsn.0 / STRIDE),
        _ => Err(Failure(format!("{} is no position of a batch", found.canonical_text()))),
    }
}

/// Rows of batch `n` in one table, in order.
pub(super) fn rows(n: u64, table: &str) -> Vec<String> {
    (0..2).map(|row| format!("{{\"batch\":{n},\"table\":\"{table}\",\"row\":{row}}}")).collect()
}

/// Batch `n`.
pub(super) fn batch(n: u64) -> Result<Batch, Failure> {
    Ok(Batch {
        position: position(n)?,
        objects: TABLES.iter().map(|table| object(table, &rows(n, table))).collect(),
        events: 2 * TABLES.len() as u64,
        min_ts_ms: Some(1_000 * n),
        max_ts_ms: Some(1_000 * n + 999),
    })
}

/// Rows as they are stored.
pub(super) fn object(table: &str, rows: &[String]) -> EncodedObject {
    let mut preimage = Vec::new();
    push_length_prefixed(&mut preimage, b"dfs3/rows/v1");
    rows.iter().for_each(|row| push_length_prefixed(&mut preimage, row.as_bytes()));
    preimage.extend_from_slice(&(rows.len() as u64).to_be_bytes());
    EncodedObject {
        namespace: NAMESPACE.to_owned(),
        table: table.to_owned(),
        bytes: Bytes::from(rows.iter().map(|row| format!("{row}\n")).collect::<String>()),
        rows: rows.len() as u64,
        format: "jsonl",
        compression: "none",
        extension: EXTENSION,
        schema_fingerprint: Digest::of(b"batch table row"),
        row_seq_digest: Digest::of(&preimage),
    }
}
