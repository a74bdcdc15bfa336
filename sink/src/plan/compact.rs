//! Compaction: which adjacent live objects of a table become one.
//!
//! Rows are rewritten seldom: a group is compacted only if no object in it is larger than all others together, so
//! whatever is rewritten ends in an object at least twice as large as its own, and no row is written more often
//! than sizes double. Objects of the target size stay as they are.

use std::fmt;

use serde::Serialize;

use crate::format::Encoding;
use crate::run::recover::live::LiveObject;

/// What is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fewest objects that become one; at least 2.
    pub min_inputs: usize,
    /// Most objects that become one: what bounds a record.
    pub max_inputs: usize,
    /// Stored bytes of the inputs of one output, at most; larger objects are left alone.
    pub target_bytes: u64,
    /// How outputs hold rows.
    pub encoding: Encoding,
}

impl Policy {
    /// For a pipeline that writes objects of this encoding: eight objects and more become one of up to 64 MiB,
    /// which a reader loads in one request.
    #[must_use]
    pub const fn new(encoding: Encoding) -> Self {
        Self { min_inputs: 8, max_inputs: 4096, target_bytes: 64 * 1024 * 1024, encoding }
    }
}

/// What becomes one, and what stays, each with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Each becomes one object and one record.
    pub groups: Vec<Group>,
    /// What stays.
    pub kept: Vec<Kept>,
}

/// Adjacent live objects of one table: all that it has in a range of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The table's segment of keys.
    pub table: String,
    /// The first entry whose objects of the table are in it.
    pub seq_from: u64,
    /// The last.
    pub seq_to: u64,
    /// Stored bytes of all of them.
    pub bytes: u64,
    /// The objects, in the order of rows.
    pub inputs: Vec<LiveObject>,
    /// Why they.
    pub reason: String,
}

/// A live object that is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its whole key.
    pub key: String,
    /// Why it is.
    pub reason: Stay,
}

/// Why an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stay {
    /// It has the target size.
    Large,
    /// Too few neighbours that may be compacted with it.
    Few,
    /// It is larger than all its neighbours together: they wait until it is not.
    Outweighs,
    /// Its format is of a newer release.
    Unknown,
    /// Its entry is not acknowledged yet: its writer may still be looking after its objects.
    Recent,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Large => "it has the target size",
            Self::Few => "too few neighbours",
            Self::Outweighs => "it is larger than all its neighbours together",
            Self::Unknown => "its format is of a newer release",
            Self::Recent => "its entry is not acknowledged yet",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Group { table, seq_from, seq_to, bytes, inputs, reason } in &self.groups {
            writeln!(f, "compact {table}, entries {seq_from} to {seq_to}, {bytes} bytes: {reason}")?;
            inputs.iter().try_for_each(|input| writeln!(f, "  {}", input.key))?;
        }
        self.kept.iter().try_for_each(|Kept { key, reason }| writeln!(f, "keep {key}: {reason}"))
    }
}

/// All objects that a table has in some entries, of one entry or of one record: never parted.
type Unit<'a> = &'a [LiveObject];

/// The groups among `live` objects, which are sorted by table and order of rows. Entries after `upto` are left
/// alone.
#[must_use]
pub fn plan(live: &[LiveObject], upto: u64, policy: &Policy) -> Plan {
    let mut plan = Plan::default();
    let together =
        |a: &LiveObject, b: &LiveObject| (&a.table, a.seq_from, a.seq_to) == (&b.table, b.seq_from, b.seq_to);
    let mut run: Vec<Unit<'_>> = Vec::new();
    for unit in live.chunk_by(together) {
        if run.last().is_some_and(|before| before[0].table != unit[0].table) {
            plan.run(&mut run, policy);
        }
        if let Some(reason) = stays(unit, upto, policy) {
            plan.run(&mut run, policy);
            plan.keep(unit, reason);
        } else if full(&run, unit, policy) {
            plan.run(&mut run, policy);
            run.push(unit);
        } else {
            run.push(unit);
        }
    }
    plan.run(&mut run, policy);
    plan
}

fn size(unit: Unit<'_>) -> u64 {
    unit.iter().map(|object| object.size).sum()
}

/// Why a unit is left alone whatever is beside it.
fn stays(unit: Unit<'_>, upto: u64, policy: &Policy) -> Option<Stay> {
    let known = |object: &LiveObject| Encoding::named(&object.format, &object.compression).is_ok();
    if unit.iter().any(|object| object.seq_to > upto) {
        Some(Stay::Recent)
    } else if !unit.iter().all(known) {
        Some(Stay::Unknown)
    } else if size(unit) >= policy.target_bytes {
        Some(Stay::Large)
    } else {
        None
    }
}

/// Whether `unit` does not fit into one output with `run`.
fn full(run: &[Unit<'_>], unit: Unit<'_>, policy: &Policy) -> bool {
    let bytes: u64 = run.iter().map(|unit| size(unit)).sum();
    let inputs: usize = run.iter().map(|unit| unit.len()).sum();
    bytes + size(unit) > policy.target_bytes || inputs + unit.len() > policy.max_inputs
}

impl Plan {
    /// Takes units that fit into one output: all of them, or what is on either side of one that is larger than
    /// the rest.
    fn run(&mut self, run: &mut Vec<Unit<'_>>, policy: &Policy) {
        self.split(run, policy);
        run.clear();
    }

    fn split(&mut self, units: &[Unit<'_>], policy: &Policy) {
        let inputs: usize = units.iter().map(|unit| unit.len()).sum();
        if inputs < policy.min_inputs.max(2) {
            units.iter().for_each(|unit| self.keep(unit, Stay::Few));
            return;
        }
        let bytes: u64 = units.iter().map(|unit| size(unit)).sum();
        let largest = units.iter().enumerate().max_by_key(|(_, unit)| size(unit));
        match largest {
            Some((at, unit)) if size(unit) * 2 > bytes => {
                self.split(&units[..at], policy);
                self.keep(unit, Stay::Outweighs);
                self.split(&units[at + 1..], policy);
            }
            _ => self.groups.extend(group(units, bytes, inputs, policy)),
        }
    }

    fn keep(&mut self, unit: Unit<'_>, reason: Stay) {
        self.kept.extend(unit.iter().map(|object| Kept { key: object.key.clone(), reason }));
    }
}

fn group(units: &[Unit<'_>], bytes: u64, inputs: usize, policy: &Policy) -> Option<Group> {
    let (first, last) = (units.first()?.first()?, units.last()?.last()?);
    Some(Group {
        table: first.table.clone(),
        seq_from: first.seq_from,
        seq_to: last.seq_to,
        bytes,
        inputs: units.concat(),
        reason: format!("{inputs} adjacent objects, {} are enough", policy.min_inputs.max(2)),
    })
}

/// What compaction has not caught up with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// Live originals.
    pub objects: u64,
    /// Entries that have at least one.
    pub seqs: u64,
}

/// Counts the originals among `live` objects.
#[must_use]
pub fn lag(live: &[LiveObject]) -> Lag {
    let originals = live.iter().filter(|object| object.is_original());
    let mut seqs: Vec<u64> = originals.map(|object| object.seq_from).collect();
    let objects = seqs.len() as u64;
    seqs.sort_unstable();
    seqs.dedup();
    Lag { objects, seqs: seqs.len() as u64 }
}

#[cfg(test)]
mod tests;
