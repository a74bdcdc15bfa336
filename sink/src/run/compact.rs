//! Compacting: inputs read and verified, their rows written as one object, that object read back, and only then
//! the record that says so, and the swap of HEAD.
//!
//! The proof is made from bytes that the store gave: rows of the inputs on one side, rows of the output as it was
//! read back on the other. Where they differ there is no record. Until HEAD reaches the record, inputs are what
//! readers read; an output that it never reaches is an orphan.

use bytes::Bytes;
use serde::Serialize;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::format::{DecodeError, Encoding, RowDigest, Writer, declared, digest, for_each_row};
use crate::model::compaction::{CompactedInput, CompactedOutput, CompactionRecord, Equivalence, METHOD};
use crate::model::frame::{self, Kind};
use crate::model::head::{Head, RecordRef};
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::model::key::PipelineRoot;
use crate::plan::change::Change;
use crate::plan::compact::{self, Group, Lag, Plan, Policy};
use crate::point::{self, Point};
use crate::run::create;
use crate::run::in_flight::Held;
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::recover::live::LiveObject;
use crate::run::recover::{Depth, recover, recover_from};
use crate::run::swap::metadata;
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};

/// What writes records.
const TOOL_VERSION: &str = concat!("assay-sink ", env!("CARGO_PKG_VERSION"));

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What became one, in the order of records.
    pub compacted: Vec<Compacted>,
    /// What is left for later runs.
    pub lag: Lag,
}

/// Objects that became one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// The record.
    pub ordinal: u64,
    /// The table's segment of keys.
    pub table: String,
    /// The first entry.
    pub seq_from: u64,
    /// The last.
    pub seq_to: u64,
    /// How many objects.
    pub inputs: usize,
    /// Their stored bytes.
    pub bytes_in: u64,
    /// Stored bytes of the one.
    pub bytes_out: u64,
    /// Rows in it.
    pub rows: u64,
    /// Its key.
    pub output: String,
}

/// What would be compacted now. Only reads, and needs no ownership.
///
/// # Errors
/// Those of [`recover`].
pub async fn plan(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Plan, SinkError> {
    let found = recover(env, root, Depth::Manifest, patience).await?;
    Ok(found.map(|found| compact::plan(&found.live(), found.view.head.seq, policy)).unwrap_or_default())
}

/// How far compaction is behind, for the metric: while it is off, nobody else finds out.
///
/// # Errors
/// Why that can't be told.
pub async fn measure(keeper: &Keeper) -> Result<(), Stopped> {
    let mut known = keeper.turn().await;
    keeper.confirm().await?;
    let found =
        recover_from(&keeper.env, &keeper.root, Depth::Manifest, &keeper.patience(), known.take()).await?;
    let found = found.ok_or(SinkError::from(Alarm::HeadDeleted))?;
    keeper.metrics.set_compaction_lag(&compact::lag(&found.live()));
    *known = Some(found);
    Ok(())
}

/// Compacts until nothing is left that is worth it. Entries that this process has not acknowledged yet are left
/// alone: their writer may be about to write an object of theirs anew.
///
/// # Errors
/// Why it stopped early. Nothing was deleted; an output without a record is an orphan.
pub async fn run(keeper: &Keeper, policy: &Policy) -> Result<Report, Stopped> {
    let mut known = keeper.turn().await;
    let mut report = Report::default();
    loop {
        keeper.confirm().await?;
        let found =
            recover_from(&keeper.env, &keeper.root, Depth::Manifest, &keeper.patience(), known.take())
                .await?;
        let found = found.ok_or(SinkError::from(Alarm::HeadDeleted))?;
        let live = found.live();
        report.lag = compact::lag(&live);
        keeper.metrics.set_compaction_lag(&report.lag);
        let plan = compact::plan(&live, keeper.status().seq, policy);
        drop(live);
        let mut head = found.view.head.clone();
        *known = Some(found);
        if plan.groups.is_empty() {
            return Ok(report);
        }
        for group in &plan.groups {
            tracing::info!(table = group.table, seq_to = group.seq_to, reason = group.reason, "compacting");
            let (done, next) = compact(keeper, &head, group, policy.encoding).await?;
            report.compacted.push(done);
            head = next;
        }
    }
}

/// One group: what was done, and HEAD with its record.
async fn compact(
    keeper: &Keeper,
    head: &Head,
    group: &Group,
    encoding: Encoding,
) -> Result<(Compacted, Head), Stopped> {
    let merged = merge(keeper, group, encoding).await?;
    let content = Digest::of(&merged.bytes);
    let key = keeper.root.compacted(&group.table, content, encoding.extension());
    let mut held = keeper.in_flight.hold(vec![key.clone()]).await;
    let output = write_output(keeper, head, &key, &merged.bytes, encoding).await?;
    point::reach(Point::CompAfterOutput);
    let equivalence = equivalence((merged.rows, merged.rows_digest), (output.rows, output.row_seq_digest));
    if !equivalence.equal {
        return Err(Stopped::new(
            StopReason::IntegrityFailure,
            format!(
                "{key:?} holds {} rows with digest {}, its inputs {} with {}: no record is written",
                equivalence.rows_out,
                equivalence.outputs_digest,
                equivalence.rows_in,
                equivalence.inputs_digest
            ),
        ));
    }
    let record = CompactionRecord {
        stream_id: head.stream_id,
        ordinal: head.compaction.as_ref().map_or(0, |of| of.count) + 1,
        epoch: keeper.epoch,
        table: group.table.clone(),
        seq_from: group.seq_from,
        seq_to: group.seq_to,
        inputs: merged.inputs,
        outputs: vec![output],
        equivalence,
        prev: head.compaction.as_ref().map(|of| of.last.clone()),
        tool_version: TOOL_VERSION.to_owned(),
        created_at_ms: keeper.env.clock.now_ms(),
        extra: Extra::new(),
    };
    let next = publish(keeper, head, &record, &mut held).await?;
    secure(keeper, head, &record, &merged.bytes).await?;
    held.release();
    let bytes_out = record.outputs.iter().map(|output| output.size).sum();
    let done = Compacted {
        ordinal: record.ordinal,
        table: record.table,
        seq_from: record.seq_from,
        seq_to: record.seq_to,
        inputs: record.inputs.len(),
        bytes_in: group.bytes,
        bytes_out,
        rows: record.equivalence.rows_out,
        output: key,
    };
    Ok((done, next))
}

/// The rows of all inputs, as they were read, and the one object that they make.
struct Merged {
    inputs: Vec<CompactedInput>,
    rows: u64,
    rows_digest: Digest,
    bytes: Bytes,
}

/// Reads one input after the other: in memory are its stored bytes, one row, and the output so far.
async fn merge(keeper: &Keeper, group: &Group, encoding: Encoding) -> Result<Merged, Stopped> {
    let (mut inputs, mut writer, mut all) = (Vec::new(), Writer::new(encoding), RowDigest::new());
    for object in &group.inputs {
        let bytes = input(keeper, object).await?;
        let damaged = |error: DecodeError| {
            Stopped::new(StopReason::IntegrityFailure, format!("{:?}: {error}", object.key))
        };
        if object.format == Encoding::Parquet.format() {
            writer.declare(&declared(&bytes).map_err(damaged)?);
        }
        let mut digest = RowDigest::new();
        let read = Encoding::named(&object.format, &object.compression).and_then(|encoding| {
            for_each_row(encoding, &bytes, |row| {
                digest.push(row);
                all.push(row);
                writer.push(row);
                Ok(())
            })
        });
        read.map_err(damaged)?;
        let (rows, row_seq_digest) = (digest.rows(), digest.finish());
        if rows != object.rows || object.row_seq_digest.is_some_and(|recorded| recorded != row_seq_digest) {
            return Err(Stopped::new(
                StopReason::IntegrityFailure,
                format!(
                    "{:?} holds {rows} rows with digest {row_seq_digest}, others are recorded: {} with {:?}",
                    object.key, object.rows, object.row_seq_digest
                ),
            ));
        }
        inputs.push(CompactedInput {
            seq: object.seq_to,
            key: object.key.clone(),
            sha256: object.sha256,
            size: object.size,
            rows,
            row_seq_digest,
        });
    }
    let bytes = Bytes::from(writer.finish().bytes);
    Ok(Merged { inputs, rows: all.rows(), rows_digest: all.finish(), bytes })
}

/// An input's bytes, which are those that were recorded. One that is missing is an alarm, unless another owner
/// has compacted it in the meantime and deleted it.
async fn input(keeper: &Keeper, object: &LiveObject) -> Result<Bytes, Stopped> {
    let LiveObject { key, sha256, size, .. } = object;
    match stored(&keeper.env, key, (*size, *sha256), &keeper.patience()).await? {
        Some(bytes) => Ok(bytes),
        None => {
            keeper.confirm().await?;
            Err(SinkError::from(Alarm::MissingReferenced { what: "data", key: key.clone(), hint: "" }).into())
        }
    }
}

/// The bytes of an object, if they are those of this size and hash; nothing if there is none.
///
/// # Errors
/// [`Alarm::SizeMismatch`], [`Alarm::DigestMismatch`], and those of [`read::get`].
pub(super) async fn stored(
    env: &Env,
    key: &str,
    (size, sha256): (u64, Digest),
    patience: &Patience,
) -> Result<Option<Bytes>, SinkError> {
    read::verified(env, key, patience, |bytes| {
        let (found, key) = (bytes.len() as u64, || key.to_owned());
        if found != size {
            return Err(Alarm::SizeMismatch { key: key(), found, recorded: size }.into());
        }
        let found = Digest::of(bytes);
        if found != sha256 {
            return Err(Alarm::DigestMismatch { what: "data", key: key(), found, recorded: sha256 }.into());
        }
        Ok(bytes.clone())
    })
    .await
}

/// Writes the output, reads it back, and counts the rows that came.
async fn write_output(
    keeper: &Keeper,
    head: &Head,
    key: &str,
    bytes: &Bytes,
    encoding: Encoding,
) -> Result<CompactedOutput, Stopped> {
    let (sha256, size) = (Digest::of(bytes), bytes.len() as u64);
    let back = written(keeper, key, bytes, sha256, &of_stream(head)).await?;
    let (rows, row_seq_digest) = digest(encoding, &back)
        .map_err(|error| Stopped::new(StopReason::IntegrityFailure, format!("{key:?}: {error}")))?;
    Ok(CompactedOutput { key: key.to_owned(), sha256, size, rows, row_seq_digest })
}

/// Writes an object, and what comes back when it is read.
async fn written(
    keeper: &Keeper,
    key: &str,
    bytes: &Bytes,
    sha256: Digest,
    metadata: &[(String, String)],
) -> Result<Bytes, Stopped> {
    let (env, patience) = (&keeper.env, keeper.patience());
    create::create(env, key, bytes, metadata, patience.renewed()).await?;
    stored(env, key, (bytes.len() as u64, sha256), &patience).await?.ok_or_else(|| {
        Stopped::new(StopReason::IntegrityFailure, format!("{key:?} was written, and is not there"))
    })
}

/// Whether rows of both sides are the same, in number and order.
#[must_use]
pub fn equivalence(
    (rows_in, inputs_digest): (u64, Digest),
    (rows_out, outputs_digest): (u64, Digest),
) -> Equivalence {
    let equal = rows_in == rows_out && inputs_digest == outputs_digest;
    Equivalence { method: METHOD.to_owned(), inputs_digest, outputs_digest, rows_in, rows_out, equal }
}

/// Writes the record, reads it back, and has HEAD reach it.
async fn publish(
    keeper: &Keeper,
    head: &Head,
    record: &CompactionRecord,
    held: &mut Held,
) -> Result<Head, Stopped> {
    let frame = frame::encode(Kind::Compaction, frame::MINOR, record);
    if frame.len() > Kind::Compaction.max_bytes() {
        let (found, most) = (frame.len(), Kind::Compaction.max_bytes());
        return Err(SinkError::Internal(format!("a record of {found} bytes, {most} at most")).into());
    }
    let sha256 = Digest::of(&frame);
    let key = keeper.root.compaction(record.ordinal, sha256);
    written(keeper, &key, &frame, sha256, &metadata(Kind::Compaction, head)).await?;
    point::reach(Point::CompAfterRecord);
    let of = RecordRef { ordinal: record.ordinal, key, sha256, extra: Extra::new() };
    held.pin();
    Ok(keeper.change(Change::Compaction(of)).await?.head)
}

/// An output that was there before may have been old, unreachable until now, and about to be deleted for it: it
/// is looked for once more, and written again if it is gone.
async fn secure(
    keeper: &Keeper,
    head: &Head,
    record: &CompactionRecord,
    bytes: &Bytes,
) -> Result<(), Stopped> {
    for CompactedOutput { key, size, .. } in &record.outputs {
        loop {
            match read::meta(&keeper.env, key, keeper.patience()).await? {
                Some(meta) if meta.size == *size => break,
                Some(meta) => {
                    let (key, found, recorded) = (key.clone(), meta.size, *size);
                    return Err(SinkError::from(Alarm::SizeMismatch { key, found, recorded }).into());
                }
                None => {
                    tracing::warn!(key, "an output was deleted, writing it again");
                    create::create(&keeper.env, key, bytes, &of_stream(head), keeper.patience()).await?;
                }
            }
        }
    }
    Ok(())
}

fn of_stream(head: &Head) -> [(String, String); 1] {
    [("dfs3-stream".to_owned(), head.stream_id.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::row_seq_digest;

    #[test]
    fn rows_in_another_order_or_number_are_not_the_same() {
        let of = |rows: &[&str]| (rows.len() as u64, row_seq_digest(rows.iter().map(|row| row.as_bytes())));
        let (one, two) = (r#"{"id":1}"#, r#"{"id":2}"#);
        let whole = of(&[one, two]);
        assert!(equivalence(whole, of(&[one, two])).equal);
        for other in [of(&[two, one]), of(&[one]), of(&[one, two, two]), (2, of(&[]).1), (1, whole.1)] {
            assert!(!equivalence(whole, other).equal, "{other:?}");
        }
    }
}
