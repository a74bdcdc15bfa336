//! Deletion of originals: objects that a compaction has replaced, once nobody needs them any more.
//!
//! Only an input of a record that HEAD reaches and that proves both sides equal is ever deleted, and the proof is
//! never made again. Its rows are then in outputs that HEAD reaches too. Both facts stay true for ever: records are
//! never unpublished, and positions only advance, so no object is written anew at the key of an input. A process
//! that lost its ownership and still deletes does what the next owner would do.
//!
//! One exception: an output's key is the hash of its rows, and a raised generation may bring the same rows again.
//! Whoever raises it must know that no process of the generation before still runs (README, `source.generation`).

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

use crate::model::compaction::CompactionRecord;
use crate::model::ids::Digest;
use crate::run::recover::live::{LiveObject, Source};

/// How long replaced objects stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Milliseconds from when HEAD reached the record: longer than any reader takes that looked at HEAD before.
    pub retention_ms: u64,
    /// How far the owner's clock may be from the store's, in milliseconds.
    pub max_clock_skew_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { retention_ms: 86_400_000, max_clock_skew_ms: 300_000 }
    }
}

/// A record that HEAD reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// What it says.
    pub record: CompactionRecord,
    /// By when HEAD reached it.
    pub since: Since,
}

/// By when something was there, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// By the store's clock: its successor, which was written after, has this time.
    Store(u64),
    /// By the owner's clock, in HEAD.
    Owner(u64),
    /// Nobody wrote it down; its successor will tell.
    Unknown,
}

/// What is deleted and what stays, each with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Record by record.
    pub replaced: Vec<Replaced>,
    /// What stays for now.
    pub kept: Vec<Kept>,
}

/// Inputs of one record that may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replaced {
    /// The record.
    pub ordinal: u64,
    /// The table's segment of keys.
    pub table: String,
    /// The first entry.
    pub seq_from: u64,
    /// The last.
    pub seq_to: u64,
    /// The live outputs that hold the rows; checked before anything is deleted.
    pub outputs: Vec<Output>,
    /// What goes, with its bytes.
    pub inputs: Vec<Input>,
    /// Why.
    pub reason: String,
}

/// A live output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Output {
    /// Its whole key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    pub size: u64,
}

/// An object that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its whole key.
    pub key: String,
    /// Stored bytes.
    pub size: u64,
}

/// An input that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its whole key.
    pub key: String,
    /// Why it does.
    pub reason: Stay,
}

/// Why an input stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stay {
    /// Readers read it.
    Live,
    /// The record does not prove that outputs hold its rows.
    Unproven,
    /// The retention window is not over.
    Retained,
    /// Nothing tells yet since when HEAD reaches the record.
    Undated,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "readers read it",
            Self::Unproven => "the record does not prove that outputs hold its rows",
            Self::Retained => "the retention window is not over",
            Self::Undated => "nothing tells yet since when HEAD reaches the record",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Replaced { table, seq_from, seq_to, inputs, reason, .. } in &self.replaced {
            writeln!(f, "delete of {table}, entries {seq_from} to {seq_to}: {reason}")?;
            inputs.iter().try_for_each(|input| writeln!(f, "  {}", input.key))?;
        }
        self.kept.iter().try_for_each(|Kept { key, reason }| writeln!(f, "keep {key}: {reason}"))
    }
}

/// Which inputs of `records` may go, of those in the bucket (`present`, with their bytes). `live` is what readers
/// read, `now_ms` the store's time.
#[must_use]
pub fn plan(
    records: &[Reached],
    live: &[LiveObject],
    present: &BTreeMap<String, u64>,
    now_ms: u64,
    policy: &Policy,
) -> Plan {
    let read: HashSet<&str> = live.iter().map(|object| object.key.as_str()).collect();
    let outputs: Vec<_> = records.iter().map(|reached| holding(&reached.record, live)).collect();
    // By key: the record that lets it go, or why it stays. One reason against is enough.
    let mut verdicts: BTreeMap<&str, (usize, Option<Stay>)> = BTreeMap::new();
    for (at, reached) in records.iter().enumerate().filter(|(_, of)| of.record.equivalence.equal) {
        let stay = stays(reached, &outputs[at], now_ms, policy);
        // What is not there was deleted before.
        for input in reached.record.inputs.iter().filter(|input| present.contains_key(&input.key)) {
            let stay = if read.contains(input.key.as_str()) { Some(Stay::Live) } else { stay };
            let verdict = verdicts.entry(&input.key).or_insert((at, None));
            verdict.1 = verdict.1.or(stay);
        }
    }
    for (at, reached) in records.iter().enumerate().filter(|(_, of)| !of.record.equivalence.equal) {
        for input in reached.record.inputs.iter().filter(|input| present.contains_key(&input.key)) {
            verdicts.entry(&input.key).or_insert((at, Some(Stay::Unproven)));
        }
    }
    let mut plan = Plan::default();
    for (at, outputs) in outputs.into_iter().enumerate() {
        let of_record = |key: &str| verdicts.get(key).filter(|(of, _)| *of == at);
        let record = &records[at].record;
        let (mut inputs, mut listed) = (Vec::new(), HashSet::new());
        for (key, size) in record.inputs.iter().filter_map(|input| present.get_key_value(&input.key)) {
            let Some((_, stay)) = of_record(key).filter(|_| listed.insert(key)) else { continue };
            match stay {
                Some(reason) => plan.kept.push(Kept { key: key.clone(), reason: *reason }),
                None => inputs.push(Input { key: key.clone(), size: *size }),
            }
        }
        if !inputs.is_empty() {
            plan.replaced.push(Replaced {
                ordinal: record.ordinal,
                table: record.table.clone(),
                seq_from: record.seq_from,
                seq_to: record.seq_to,
                outputs,
                inputs,
                reason: format!(
                    "HEAD has reached record {} for {} ms and more",
                    record.ordinal, policy.retention_ms
                ),
            });
        }
    }
    plan
}

/// The live outputs of the range that a record covers: its own, or those of a later one that has replaced them.
fn holding(record: &CompactionRecord, live: &[LiveObject]) -> Vec<Output> {
    live.iter()
        .filter(|object| {
            matches!(object.source, Source::Compacted { ordinal } if ordinal >= record.ordinal)
                && object.table == record.table
                && object.seq_from <= record.seq_from
                && object.seq_to >= record.seq_to
        })
        .map(|object| Output { key: object.key.clone(), sha256: object.sha256, size: object.size })
        .collect()
}

/// Why all inputs of a proven record stay, if they do.
fn stays(reached: &Reached, outputs: &[Output], now_ms: u64, policy: &Policy) -> Option<Stay> {
    let since_ms = match reached.since {
        _ if outputs.is_empty() => return Some(Stay::Unproven),
        Since::Unknown => return Some(Stay::Undated),
        Since::Store(ms) => ms,
        Since::Owner(ms) => ms.saturating_add(policy.max_clock_skew_ms),
    };
    (now_ms < since_ms.saturating_add(policy.retention_ms)).then_some(Stay::Retained)
}

#[cfg(test)]
mod tests;
