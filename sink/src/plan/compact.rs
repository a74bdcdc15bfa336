//! Compaction: which adjacent live objects of a table become one.
//!
//! Objects of half the target size stay as they are. Between them, adjacent objects that fit into one output stand
//! in a window. Where more objects can still come, rows are rewritten seldom: none is if its object is larger than
//! all the rest of the window, so what is rewritten ends in an object at least twice as large. Where none can, at
//! the left of such an object and in a window that the next object does not fit into, all become one, which no row
//! meets twice without its object doubling in between.
//!
//! So a table of `B` live bytes comes to rest with at most `4 B / target + 2 log2(target / s) + min_inputs`
//! objects, `s` being the smallest, and no row is written more often than `2 log2(target / s) + 2` times; both as
//! far as outputs are as large as their inputs together. Rows of a larger format may grow beyond the target.

use std::fmt;

use serde::Serialize;

use crate::format::Encoding;
use crate::run::recover::live::LiveObject;

/// What is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fewest objects that become one where more can come; at least 2.
    pub min_inputs: usize,
    /// Most objects that become one: what bounds a record.
    pub max_inputs: usize,
    /// Stored bytes of the inputs of one output, at most; objects of half of it are left alone.
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
    /// It has at least half the target size.
    Large,
    /// Too few neighbours that may be compacted with it.
    Few,
    /// It is larger than all its neighbours together: it waits until it is not.
    Outweighs,
    /// Its format is of a newer release.
    Unknown,
    /// Its entry is not acknowledged yet: its writer may still be looking after its objects.
    Recent,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Large => "it has at least half the target size",
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
    let mut window = Window::default();
    for unit in live.chunk_by(together) {
        if window.units.last().is_some_and(|before| before[0].table != unit[0].table) {
            plan.window(&mut window, More::MayCome, policy);
        }
        match stays(unit, upto, policy) {
            Some(reason) => {
                let more = if reason == Stay::Recent { More::MayCome } else { More::Never };
                plan.window(&mut window, more, policy);
                plan.keep(unit, reason);
            }
            None => {
                if window.bytes + size(unit) > policy.target_bytes {
                    plan.window(&mut window, More::Never, policy);
                }
                window.bytes += size(unit);
                window.units.push(unit);
            }
        }
    }
    plan.window(&mut window, More::MayCome, policy);
    plan
}

/// Adjacent units of one table that fit into one output.
#[derive(Default)]
struct Window<'a> {
    units: Vec<Unit<'a>>,
    bytes: u64,
}

/// Whether units can come to those that stand together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    MayCome,
    Never,
}

fn size(unit: Unit<'_>) -> u64 {
    unit.iter().map(|object| object.size).sum()
}

fn objects(units: &[Unit<'_>]) -> usize {
    units.iter().map(|unit| unit.len()).sum()
}

/// Why a unit is left alone whatever is beside it.
fn stays(unit: Unit<'_>, upto: u64, policy: &Policy) -> Option<Stay> {
    let known = |object: &LiveObject| Encoding::named(&object.format, &object.compression).is_ok();
    if unit.iter().any(|object| object.seq_to > upto) {
        Some(Stay::Recent)
    } else if !unit.iter().all(known) {
        Some(Stay::Unknown)
    } else if size(unit) >= policy.target_bytes.div_ceil(2) {
        Some(Stay::Large)
    } else {
        None
    }
}

impl Plan {
    fn window(&mut self, window: &mut Window<'_>, more: More, policy: &Policy) {
        self.split(&window.units, more, policy);
        *window = Window::default();
    }

    /// Takes all units, or what is on either side of one that is larger than the rest.
    fn split(&mut self, units: &[Unit<'_>], more: More, policy: &Policy) {
        let enough = if more == More::Never { 2 } else { policy.min_inputs.max(2) };
        if objects(units) < enough {
            units.iter().for_each(|unit| self.keep(unit, Stay::Few));
            return;
        }
        let bytes: u64 = units.iter().map(|unit| size(unit)).sum();
        let largest = units.iter().enumerate().max_by_key(|(_, unit)| size(unit));
        match largest {
            Some((at, unit)) if more == More::MayCome && size(unit) * 2 > bytes => {
                self.split(&units[..at], More::Never, policy);
                self.keep(unit, Stay::Outweighs);
                self.split(&units[at + 1..], more, policy);
            }
            _ => self.join(units, more, policy),
        }
    }

    /// Takes all units, in as many groups as the limit of a record needs; the next plan takes their outputs.
    fn join(&mut self, mut units: &[Unit<'_>], more: More, policy: &Policy) {
        while !units.is_empty() {
            let mut inputs = 0;
            let fit = units.iter().take_while(|unit| {
                inputs += unit.len();
                inputs <= policy.max_inputs
            });
            let (taken, rest) = units.split_at(fit.count().max(1));
            match objects(taken) {
                1 => self.keep(taken[0], Stay::Few),
                _ => self.groups.extend(group(taken, more, policy)),
            }
            units = rest;
        }
    }

    fn keep(&mut self, unit: Unit<'_>, reason: Stay) {
        self.kept.extend(unit.iter().map(|object| Kept { key: object.key.clone(), reason }));
    }
}

fn group(units: &[Unit<'_>], more: More, policy: &Policy) -> Option<Group> {
    let inputs = objects(units);
    let (first, last) = (units.first()?.first()?, units.last()?.last()?);
    Some(Group {
        table: first.table.clone(),
        seq_from: first.seq_from,
        seq_to: last.seq_to,
        bytes: units.iter().map(|unit| size(unit)).sum(),
        inputs: units.concat(),
        reason: match more {
            More::MayCome => format!("{inputs} adjacent objects, {} are enough", policy.min_inputs.max(2)),
            More::Never => format!("{inputs} adjacent objects, and no more can come to them"),
        },
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
