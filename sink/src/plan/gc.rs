//! Which entries may be collected: marked within the horizon after the safety window, on two clocks; then deleted,
//! exactly as marked, below a floor that HEAD has published.

use serde::Serialize;

use crate::model::head::Head;
use crate::model::mark::{Mark, MarkedEntry};
use crate::plan::clocks;
use crate::stop::{StopReason, Stopped};

/// Longest time that this process itself must have known a generation, in milliseconds: its own clock guards
/// against a store's that jumps, and needs not be as long as the window for that.
const MOST_SEEN_MS: u64 = 60_000;

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long the current generation must have been published before entries are marked, in milliseconds:
    /// longer than any restart and recovery takes.
    pub safety_window_ms: u64,
    /// How far the clocks of store and owner may be apart, in milliseconds.
    pub max_clock_skew_ms: u64,
}

/// What the clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The owner's, in milliseconds since 1970.
    pub owner_ms: u64,
    /// The store's, if it told.
    pub store_ms: Option<u64>,
    /// How long this process has known the current generation, by its monotonic clock.
    pub seen_ms: u64,
}

impl Clocks {
    /// The store's time, if it can be relied on.
    ///
    /// # Errors
    /// [`StopReason::ClockUncertain`].
    pub fn certain(&self, policy: &Policy) -> Result<u64, Stopped> {
        clocks::certain(self.owner_ms, self.store_ms, policy.max_clock_skew_ms)
    }
}

/// What may be marked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkPlan {
    /// The last entry that may be collected: the end of the rollup before the current one.
    pub horizon: u64,
    /// The first and the last entry to mark; none if there is nothing, or it is too early.
    pub range: Option<(u64, u64)>,
    /// Why.
    pub reason: String,
    /// How long until the window is over, in milliseconds; 0 if it is, or there is nothing.
    pub wait_ms: u64,
}

/// What may be marked after entry `marked`, the last that any mark has.
///
/// # Errors
/// [`StopReason::ClockUncertain`].
pub fn mark(head: &Head, marked: u64, clocks: &Clocks, policy: &Policy) -> Result<MarkPlan, Stopped> {
    let nothing =
        |horizon, reason: &str| Ok(MarkPlan { horizon, range: None, reason: reason.to_owned(), wait_ms: 0 });
    let (Some(current), Some(prev)) = (&head.rollup, &head.prev_rollup) else {
        return nothing(0, "fewer than two rollups");
    };
    // Below the last entry in any case, whatever a rollup says.
    let horizon = prev.end_seq.min(head.seq.saturating_sub(1));
    let from = head.entry_floor.max(marked + 1);
    if from > horizon {
        return nothing(horizon, "everything up to the horizon is marked");
    }
    let store_ms = clocks.certain(policy)?;
    let age_ms = store_ms.saturating_sub(current.published_at_ms).saturating_sub(policy.max_clock_skew_ms);
    let by_store = policy.safety_window_ms.saturating_sub(age_ms);
    let by_us = policy.safety_window_ms.min(MOST_SEEN_MS).saturating_sub(clocks.seen_ms);
    let wait_ms = by_store.max(by_us);
    if wait_ms > 0 {
        let reason = format!(
            "rollup {} is published for {age_ms} ms by the store's clock less the skew, and known here for {} ms; \
             the window is {} ms",
            current.generation, clocks.seen_ms, policy.safety_window_ms
        );
        return Ok(MarkPlan { horizon, range: None, reason, wait_ms });
    }
    let reason =
        format!("rollups {} and {} both cover them for the window", prev.generation, current.generation);
    Ok(MarkPlan { horizon, range: Some((from, horizon)), reason, wait_ms: 0 })
}

/// What of a mark is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpirePlan {
    /// The mark.
    pub mark: String,
    /// The floor that must be published before; none if HEAD has it.
    pub floor: Option<u64>,
    /// The entries, in order.
    pub deletes: Vec<Delete>,
}

/// An entry to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delete {
    /// Its place in the chain.
    pub seq: u64,
    /// Its whole key, as it is marked.
    pub key: String,
    /// Why.
    pub reason: String,
}

/// What of the mark at `key` is to be deleted, of which `left` may still be there.
///
/// # Errors
/// [`StopReason::StalePlan`] if the rollups of HEAD do not cover the mark, [`StopReason::IntegrityFailure`] if it
/// is no mark of this stream.
pub fn expire(head: &Head, key: &str, mark: &Mark, left: &[MarkedEntry]) -> Result<ExpirePlan, Stopped> {
    sound(head, key, mark)?;
    let covered =
        |rollup: &Option<_>, end: fn(&_) -> u64| rollup.as_ref().is_some_and(|of| end(of) >= mark.to_seq);
    let both = covered(&head.rollup, |of| of.end_seq) && covered(&head.prev_rollup, |of| of.end_seq);
    if !both || mark.to_seq >= head.seq {
        let detail = format!("the rollups of HEAD do not cover entry {} of mark {key:?}", mark.to_seq);
        return Err(Stopped::new(StopReason::StalePlan, detail));
    }
    let deletes = left.iter().map(|entry| Delete {
        seq: entry.seq,
        key: entry.key.clone(),
        reason: format!("marked under rollup {}, within the horizon {}", mark.generation, mark.horizon),
    });
    let floor = (head.entry_floor <= mark.to_seq).then_some(mark.to_seq + 1);
    Ok(ExpirePlan { mark: key.to_owned(), floor, deletes: deletes.collect() })
}

/// That a mark is one of this stream and says of itself what it must.
fn sound(head: &Head, key: &str, mark: &Mark) -> Result<(), Stopped> {
    let contiguous = mark.entries.iter().map(|entry| entry.seq).eq(mark.from_seq..=mark.to_seq);
    if mark.stream_id == head.stream_id && contiguous && mark.to_seq <= mark.horizon && mark.from_seq > 0 {
        return Ok(());
    }
    let detail = format!("mark {key:?} is not of this stream, or contradicts itself");
    Err(Stopped::new(StopReason::IntegrityFailure, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Digest, Nonce, StreamId};
    use crate::model::json::Extra;
    use crate::model::mark::MarkedRollup;
    use crate::plan::samples;

    const WINDOW: Policy = Policy { safety_window_ms: 100_000, max_clock_skew_ms: 5_000 };

    /// 30 entries, rolled up to 10 and to 20, the second time at 1,000,000 ms.
    fn head() -> Head {
        Head {
            rollup: Some(samples::rollup(2, 20, 1_000_000)),
            prev_rollup: Some(samples::rollup(1, 10, 500_000)),
            ..samples::head(30)
        }
    }

    fn clocks(store_ms: u64, seen_ms: u64) -> Clocks {
        Clocks { owner_ms: store_ms, store_ms: Some(store_ms), seen_ms }
    }

    #[test]
    fn entries_up_to_the_horizon_are_marked_once_both_clocks_agree() {
        let range =
            |marked, clocks| mark(&head(), marked, &clocks, &WINDOW).map(|plan| (plan.range, plan.wait_ms));
        // The window, and the skew that the publisher's clock may have had.
        assert_eq!(range(0, clocks(1_104_999, 60_000)), Ok((None, 1)));
        assert_eq!(range(0, clocks(1_105_000, 60_000)), Ok((Some((1, 10)), 0)));
        assert_eq!(range(0, clocks(9_105_000, 59_999)), Ok((None, 1)));
        assert_eq!(range(0, clocks(0, 60_000)), Ok((None, 100_000)));
        assert_eq!(range(4, clocks(1_105_000, 60_000)), Ok((Some((5, 10)), 0)));
        assert_eq!(range(10, clocks(1_105_000, 60_000)), Ok((None, 0)));
        let collected = Head { entry_floor: 8, ..head() };
        let plan = mark(&collected, 0, &clocks(1_105_000, 60_000), &WINDOW).unwrap();
        assert_eq!(plan.range, Some((8, 10)));
        let young = Head { prev_rollup: None, ..head() };
        assert_eq!(mark(&young, 0, &clocks(1_105_000, 60_000), &WINDOW).unwrap().range, None);
        // Whatever a rollup says, the last entry stays.
        let odd = Head { seq: 10, ..head() };
        assert_eq!(mark(&odd, 0, &clocks(1_105_000, 60_000), &WINDOW).unwrap().range, Some((1, 9)));
    }

    #[test]
    fn clocks_that_are_apart_or_unknown_stop() {
        for (owner_ms, store_ms) in
            [(1_200_000, None), (1_200_000, Some(1_205_001)), (1_206_000, Some(1_200_000))]
        {
            let apart = Clocks { owner_ms, store_ms, seen_ms: 60_000 };
            assert_eq!(mark(&head(), 0, &apart, &WINDOW).unwrap_err().reason, StopReason::ClockUncertain);
        }
        let allowed = Clocks { owner_ms: 1_200_000, store_ms: Some(1_205_000), seen_ms: 60_000 };
        assert_eq!(mark(&head(), 0, &allowed, &WINDOW).unwrap().range, Some((1, 10)));
    }

    fn marked(from: u64, to: u64) -> Mark {
        let entry = |seq| MarkedEntry { seq, key: format!("entry-{seq}"), sha256: Digest::of(b"") };
        let of = MarkedRollup { key: String::new(), sha256: Digest::of(b"") };
        Mark {
            stream_id: head().stream_id,
            mark_id: Nonce::from_bytes([4; 16]),
            epoch: 1,
            generation: 2,
            horizon: 10,
            from_seq: from,
            to_seq: to,
            entries: (from..=to).map(entry).collect(),
            rollup: of.clone(),
            prev_rollup: of,
            store_date_ms: 0,
            created_at_ms: 0,
            extra: Extra::new(),
        }
    }

    #[test]
    fn a_mark_raises_the_floor_and_then_deletes_what_it_lists() {
        let mark = marked(3, 10);
        let plan = expire(&head(), "m", &mark, &mark.entries).unwrap();
        assert_eq!((plan.floor, plan.deletes.len()), (Some(11), 8));
        assert_eq!(plan.deletes.first().map(|delete| delete.key.as_str()), Some("entry-3"));
        let risen = Head { entry_floor: 11, ..head() };
        let again = expire(&risen, "m", &mark, &[]).unwrap();
        assert_eq!((again.floor, again.deletes.len()), (None, 0));
    }

    #[test]
    fn a_mark_that_head_does_not_cover_stops() {
        let stop = |head: &Head, mark: &Mark| expire(head, "m", mark, &mark.entries).unwrap_err().reason;
        assert_eq!(stop(&Head { prev_rollup: None, ..head() }, &marked(3, 10)), StopReason::StalePlan);
        let shorter = Head { prev_rollup: Some(samples::rollup(1, 9, 0)), ..head() };
        assert_eq!(stop(&shorter, &marked(3, 10)), StopReason::StalePlan);
        assert_eq!(stop(&Head { seq: 10, ..head() }, &marked(3, 10)), StopReason::StalePlan);
        let other = Mark { stream_id: StreamId::from_bytes([9; 16]), ..marked(3, 10) };
        assert_eq!(stop(&head(), &other), StopReason::IntegrityFailure);
        let mut gap = marked(3, 10);
        gap.entries.remove(2);
        assert_eq!(stop(&head(), &gap), StopReason::IntegrityFailure);
        let beyond = Mark { horizon: 9, ..marked(3, 10) };
        assert_eq!(stop(&head(), &beyond), StopReason::IntegrityFailure);
    }
}
