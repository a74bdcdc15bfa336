//! Revisions of HEAD that commit no entry: what the actors of the background publish, by the owner alone.

use crate::model::head::{CompactionRef, Head, Intent, Lease, RecordRef, RollupRef};
use crate::model::ids::{Digest, Nonce};
use crate::model::json::Extra;
use crate::stop::{StopReason, Stopped};

/// One change of HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The next generation of rollup, which is in the bucket and was read back.
    Rollup(NewRollup),
    /// Entries below it may be absent from now on.
    Floor(u64),
    /// A compaction record, which is in the bucket and was read back.
    Compaction(RecordRef),
    /// The right to delete orphans, granted to `actor` or, under the same identity, renewed.
    Lease {
        /// Its identity.
        lease_id: Nonce,
        /// Who holds it.
        actor: &'static str,
        /// How long it holds, in milliseconds from when this was asked for.
        ttl_ms: u64,
    },
    /// The lease given back by its holder.
    EndLease(Nonce),
}

/// A rollup that is about to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRollup {
    /// Its generation.
    pub generation: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Bytes of its frame.
    pub size: u64,
    /// The last entry that it covers.
    pub end_seq: u64,
    /// The chain up to there.
    pub end_chain: Digest,
}

impl Change {
    /// Why HEAD is written.
    #[must_use]
    pub const fn intent(&self) -> Intent {
        match self {
            Self::Rollup(_) => Intent::Rollup,
            Self::Floor(_) => Intent::Floor,
            Self::Compaction(_) => Intent::Compaction,
            Self::Lease { .. } | Self::EndLease(_) => Intent::Lease,
        }
    }
}

/// The next revision of `base`, which this process owns.
///
/// # Errors
/// [`StopReason::StalePlan`] if `base` is not what the change was planned for: generations, ordinals and the
/// floor only ever rise, and a floor stays within the horizon.
pub fn change(base: &Head, change: &Change, nonce: Nonce, now_ms: u64) -> Result<Head, Stopped> {
    let mut next = base.successor(nonce, change.intent(), now_ms);
    match change {
        Change::Rollup(new) => {
            let (generation, end) = base.rollup.as_ref().map_or((0, 0), |of| (of.generation, of.end_seq));
            let follows = new.generation == generation + 1 && new.end_seq > end && new.end_seq <= base.seq;
            if !follows {
                return Err(stale(format!(
                    "rollup {} up to entry {} does not follow {generation} up to {end} with HEAD at {}",
                    new.generation, new.end_seq, base.seq
                )));
            }
            next.prev_rollup = next.rollup.take();
            next.rollup = Some(RollupRef {
                generation: new.generation,
                key: new.key.clone(),
                sha256: new.sha256,
                size: new.size,
                end_seq: new.end_seq,
                end_chain: new.end_chain,
                published_at_ms: now_ms,
                published_rev: next.rev,
                extra: Extra::new(),
            });
        }
        Change::Floor(floor) => {
            let horizon = base.prev_rollup.as_ref().map_or(0, |prev| prev.end_seq);
            if *floor <= base.entry_floor || *floor > horizon + 1 {
                return Err(stale(format!(
                    "floor {floor} is not between {} and the horizon {horizon}",
                    base.entry_floor
                )));
            }
            next.entry_floor = *floor;
        }
        Change::Compaction(record) => {
            let count = base.compaction.as_ref().map_or(0, |of| of.count);
            if record.ordinal != count + 1 {
                return Err(stale(format!("record {} does not follow record {count}", record.ordinal)));
            }
            let extra = base.compaction.as_ref().map_or_else(Extra::new, |of| of.extra.clone());
            next.compaction = Some(CompactionRef {
                count: record.ordinal,
                last: record.clone(),
                published_at_ms: Some(now_ms),
                extra,
            });
        }
        Change::Lease { lease_id, actor, ttl_ms } => {
            if let Some(held) = base.lease.as_ref().filter(|held| held.lease_id != *lease_id) {
                return Err(stale(format!("{} holds lease {}", held.actor, held.lease_id)));
            }
            next.lease = Some(Lease {
                lease_id: *lease_id,
                actor: (*actor).to_owned(),
                epoch: base.epoch,
                ttl_ms: *ttl_ms,
                granted_rev: next.rev,
                extra: Extra::new(),
            });
        }
        Change::EndLease(lease_id) => {
            if base.lease.as_ref().is_none_or(|held| held.lease_id != *lease_id) {
                return Err(stale(format!("lease {lease_id} is not held")));
            }
            next.lease = None;
        }
    }
    Ok(next)
}

fn stale(detail: String) -> Stopped {
    Stopped::new(StopReason::StalePlan, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::head;

    fn nonce(n: u8) -> Nonce {
        Nonce::from_bytes([n; 16])
    }

    fn rollup(generation: u64, end_seq: u64) -> Change {
        let sha256 = Digest::of(&end_seq.to_be_bytes());
        let key = format!("rollup-{generation}");
        Change::Rollup(NewRollup { generation, key, sha256, size: 1, end_seq, end_chain: sha256 })
    }

    fn applied(base: &Head, what: &Change) -> Head {
        change(base, what, nonce(9), 20).unwrap()
    }

    #[track_caller]
    fn refused(base: &Head, what: &Change) {
        assert_eq!(change(base, what, nonce(9), 20).unwrap_err().reason, StopReason::StalePlan, "{what:?}");
    }

    #[test]
    fn a_rollup_follows_the_one_before_and_grows() {
        let base = head(10);
        let first = applied(&base, &rollup(1, 4));
        let published = first.rollup.clone().unwrap();
        assert_eq!((published.generation, published.end_seq, published.published_rev), (1, 4, 2));
        assert_eq!((first.write.intent, first.rev, first.prev_rollup.is_none()), (Intent::Rollup, 2, true));
        let second = applied(&first, &rollup(2, 10));
        assert_eq!(second.prev_rollup, first.rollup);
        for what in [rollup(2, 4), rollup(2, 11), rollup(3, 9), rollup(1, 9)] {
            refused(&first, &what);
        }
    }

    #[test]
    fn a_floor_rises_within_the_horizon() {
        let base = applied(&applied(&head(10), &rollup(1, 4)), &rollup(2, 9));
        let risen = applied(&base, &Change::Floor(5));
        assert_eq!((risen.entry_floor, risen.write.intent), (5, Intent::Floor));
        refused(&base, &Change::Floor(6));
        refused(&risen, &Change::Floor(5));
        refused(&risen, &Change::Floor(4));
    }

    #[test]
    fn compaction_records_count_up() {
        let record = |ordinal| {
            let sha256 = Digest::of(&[1]);
            Change::Compaction(RecordRef { ordinal, key: "c".to_owned(), sha256, extra: Extra::new() })
        };
        let first = applied(&head(3), &record(1));
        assert_eq!(first.compaction.as_ref().map(|of| (of.count, of.last.ordinal)), Some((1, 1)));
        refused(&first, &record(1));
        refused(&first, &record(3));
    }

    #[test]
    fn a_lease_has_one_holder() {
        let lease = |n| Change::Lease { lease_id: nonce(n), actor: "reconcile", ttl_ms: 60_000 };
        let held = applied(&head(3), &lease(1));
        assert_eq!(held.lease.as_ref().map(|lease| (lease.lease_id, lease.epoch)), Some((nonce(1), 1)));
        let renewed = applied(&held, &lease(1));
        assert_eq!(renewed.lease.as_ref().map(|lease| lease.granted_rev), Some(3));
        refused(&held, &lease(2));
        refused(&held, &Change::EndLease(nonce(2)));
        assert_eq!(applied(&held, &Change::EndLease(nonce(1))).lease, None);
        refused(&head(3), &Change::EndLease(nonce(1)));
    }
}
