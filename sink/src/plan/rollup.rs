//! Rollups: when the next generation is due, what it covers, and which inventories it merges.
//!
//! A generation is due after so many entries, or after some time if there is at least one: a quiet stream rolls up
//! too, once, and not again before it has another entry. Its end always grows, so that the generation before it
//! ends below the last entry, which is therefore never collected.

use serde::Serialize;

use crate::model::chain;
use crate::model::entry::Entry;
use crate::model::head::Head;
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::model::rollup::{Inventory, InventoryEntry, InventoryObject, InventoryRef};

/// Inventories of one tier that become one of the next: recovery reads at most one fewer of each tier.
const FAN_IN: u64 = 16;

/// New entries above which nothing is merged with them: a backlog makes inventories of its own.
const MOST_ENTRIES: usize = 4096;

/// Bytes up to which inventories are merged, and at which a new one is cut; a quarter of the longest that there
/// may be, so that what is merged never gets near it.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Entries after which a rollup is due; at least 1.
    pub every_entries: u64,
    /// Milliseconds after which one is due that has at least one new entry.
    pub every_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { every_entries: 256, every_ms: 600_000 }
    }
}

/// The next generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Its generation.
    pub generation: u64,
    /// The first entry that no generation covers yet.
    pub from_seq: u64,
    /// The last committed entry.
    pub to_seq: u64,
    /// Why now.
    pub reason: String,
    /// How many inventories, counted from the newest, are merged with the new entries into one.
    pub merges: usize,
    /// Why these.
    pub merge_reason: String,
}

/// The next generation after the one whose inventories are `inventories`, if it is due by the owner's clock.
#[must_use]
pub fn plan(head: &Head, inventories: &[InventoryRef], policy: &Policy, now_ms: u64) -> Option<Plan> {
    let (generation, end) = head.rollup.as_ref().map_or((0, 0), |of| (of.generation, of.end_seq));
    let new = head.seq.saturating_sub(end);
    let since_ms = head.rollup.as_ref().map_or(head.owner.acquired_at_ms, |of| of.published_at_ms);
    let waited_ms = now_ms.saturating_sub(since_ms);
    let reason = if new == 0 {
        return None;
    } else if new >= policy.every_entries {
        format!("{new} entries, due after {}", policy.every_entries)
    } else if waited_ms >= policy.every_ms {
        format!("{new} entries and {waited_ms} ms, due after {}", policy.every_ms)
    } else {
        return None;
    };
    let merges = merged(inventories, new);
    let merge_reason = match merges {
        0 => format!("fewer than {FAN_IN} inventories of one size"),
        _ => format!("{FAN_IN} inventories of one size become one"),
    };
    let (from_seq, to_seq) = (end + 1, head.seq);
    Some(Plan { generation: generation + 1, from_seq, to_seq, reason, merges, merge_reason })
}

/// How many of the newest inventories become one with `new` entries: as digits carry in a number of base
/// [`FAN_IN`], so that every entry is copied as often as that number has digits.
fn merged(inventories: &[InventoryRef], new: u64) -> usize {
    let tier = |entries: u64| entries.max(1).ilog(FAN_IN);
    let entries = |of: &InventoryRef| of.to.saturating_sub(of.from) + 1;
    let (mut merges, mut total, mut bytes) = (0, new, 0_u64);
    if new > MOST_ENTRIES as u64 {
        return 0;
    }
    loop {
        let rest = inventories.iter().rev().skip(merges);
        let run: Vec<&InventoryRef> = rest.take_while(|of| tier(entries(of)) <= tier(total)).collect();
        bytes += run.iter().map(|of| of.size).sum::<u64>();
        if (run.len() as u64) + 1 < FAN_IN || bytes > MOST_BYTES {
            return merges;
        }
        merges += run.len();
        total += run.iter().map(|of| entries(of)).sum::<u64>();
    }
}

/// What an inventory keeps of the entry at `key`, whose frame has the SHA-256 `sha256`.
#[must_use]
pub fn kept(key: &str, sha256: Digest, entry: &Entry) -> InventoryEntry {
    let objects = entry.objects.iter().map(|object| InventoryObject {
        key: object.key.clone(),
        sha256: object.sha256,
        size: object.size,
        rows: object.rows,
        table: object.segment(),
        format: Some(object.format.clone()),
        compression: Some(object.compression.clone()),
        schema_fingerprint: Some(object.schema_fingerprint),
        row_seq_digest: Some(object.row_seq_digest),
        extra: Extra::new(),
    });
    InventoryEntry {
        seq: entry.seq,
        epoch: entry.epoch,
        entry_key: key.to_owned(),
        entry_sha256: sha256,
        digest: entry.position.digest,
        objects: objects.collect(),
        nonce: Some(entry.nonce),
        kind: Some(entry.kind),
        reason: entry.reason.clone(),
        extra: Extra::new(),
    }
}

/// Entries, which follow each other, cut into inventories; `chain` is the chain before the first of them.
#[must_use]
pub fn inventories(head: &Head, mut chain: Digest, entries: Vec<InventoryEntry>) -> Vec<Inventory> {
    let mut cut: Vec<Inventory> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let size = serde_json::to_vec(&entry).map_or(0, |text| text.len() as u64);
        bytes += size;
        chain = chain::extend(chain, entry.seq, entry.entry_sha256);
        match cut.last_mut() {
            Some(last) if bytes <= 2 * MOST_BYTES => {
                (last.to_seq, last.end_chain) = (entry.seq, chain);
                last.entries.push(entry);
            }
            _ => {
                bytes = size;
                cut.push(Inventory {
                    stream_id: head.stream_id,
                    from_seq: entry.seq,
                    to_seq: entry.seq,
                    end_chain: chain,
                    entries: vec![entry],
                    extra: Extra::new(),
                });
            }
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::{self, head};

    fn rolled_up(head: Head, generation: u64, end_seq: u64, published_at_ms: u64) -> Head {
        Head { rollup: Some(samples::rollup(generation, end_seq, published_at_ms)), ..head }
    }

    fn inventory(from: u64, to: u64, size: u64) -> InventoryRef {
        InventoryRef { from, to, key: String::new(), sha256: Digest::of(b""), size }
    }

    const POLICY: Policy = Policy { every_entries: 256, every_ms: 600_000 };

    fn due(head: &Head, now_ms: u64) -> Option<(u64, u64, u64)> {
        plan(head, &[], &POLICY, now_ms).map(|plan| (plan.generation, plan.from_seq, plan.to_seq))
    }

    #[test]
    fn a_rollup_is_due_by_entries_or_by_time() {
        assert_eq!(due(&head(0), u64::MAX), None);
        assert_eq!(due(&head(255), 1_000), None);
        assert_eq!(due(&head(256), 1_000), Some((1, 1, 256)));
        assert_eq!(due(&head(1), 600_999), None);
        assert_eq!(due(&head(1), 601_000), Some((1, 1, 1)));
        let later = rolled_up(head(300), 4, 256, 10_000);
        assert_eq!((due(&later, 609_999), due(&later, 610_000)), (None, Some((5, 257, 300))));
        // Without a new entry never, however long it takes.
        assert_eq!(due(&rolled_up(head(256), 4, 256, 0), u64::MAX), None);
        // A clock that went back is no reason.
        assert_eq!(due(&later, 0), None);
    }

    #[test]
    fn inventories_stay_few_and_every_entry_is_copied_seldom() {
        for (new, size_of_entry, most, most_copies) in
            [(1, 500, 48, 5), (256, 500, 48, 3), (7, 40_000, 400, 3)]
        {
            let (mut refs, mut copied, mut end) = (Vec::new(), 0, 0);
            for generation in 0..20_000_u64.div_ceil(new) {
                let merges = merged(&refs, new);
                let first = refs.len() - merges;
                let from = refs.get(first).map_or(end + 1, |of: &InventoryRef| of.from);
                end += new;
                let size = (end + 1 - from) * size_of_entry;
                assert!(size <= MOST_BYTES + new * size_of_entry, "{size} bytes");
                copied += end + 1 - from;
                refs.truncate(first);
                refs.push(inventory(from, end, size));
                assert!(refs.len() <= most, "{} inventories after {generation} of {new} entries", refs.len());
            }
            assert!(refs.windows(2).all(|pair| pair[0].to + 1 == pair[1].from) && refs[0].from == 1);
            assert!(copied <= most_copies * end, "{copied} copies of {end} entries");
        }
    }

    #[test]
    fn a_backlog_is_cut_and_not_merged() {
        let refs: Vec<_> = (0..15).map(|n| inventory(n * 5_000 + 1, (n + 1) * 5_000, 100)).collect();
        assert_eq!(merged(&refs, 4_096), 15);
        assert_eq!(merged(&refs, 4_097), 0);
        let entry = |seq: u64| InventoryEntry {
            seq,
            epoch: 1,
            entry_key: "k".repeat(1_600_000),
            entry_sha256: Digest::of(&seq.to_be_bytes()),
            digest: Digest::of(b""),
            objects: Vec::new(),
            nonce: None,
            kind: None,
            reason: None,
            extra: Extra::new(),
        };
        let origin = chain::origin(head(0).stream_id);
        let cut = inventories(&head(0), origin, (1..=12).map(entry).collect());
        let ranges: Vec<_> = cut.iter().map(|one| (one.from_seq, one.to_seq, one.entries.len())).collect();
        assert_eq!(ranges, [(1, 10, 10), (11, 12, 2)]);
        let end =
            (1..=12_u64).fold(origin, |chain, seq| chain::extend(chain, seq, Digest::of(&seq.to_be_bytes())));
        assert_eq!(cut.last().map(|last| last.end_chain), Some(end));
    }
}
