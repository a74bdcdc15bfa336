//! Whether the store's time can be relied on: whatever deletes by age asks this first.

use crate::stop::{StopReason, Stopped};

/// The store's time in milliseconds since 1970, if it told one that is at most `max_clock_skew_ms` from the owner's.
/// It is the `Date` of an answer, which stands for a whole second.
///
/// # Errors
/// [`StopReason::ClockUncertain`].
pub fn certain(owner_ms: u64, store_ms: Option<u64>, max_clock_skew_ms: u64) -> Result<u64, Stopped> {
    let uncertain = |detail: String| Stopped::new(StopReason::ClockUncertain, detail);
    let store_ms = store_ms.ok_or_else(|| uncertain("the store's answer has no Date".to_owned()))?;
    let nearest_ms = owner_ms.clamp(store_ms, store_ms.saturating_add(999));
    let apart_ms = owner_ms.abs_diff(nearest_ms);
    if apart_ms > max_clock_skew_ms {
        return Err(uncertain(format!(
            "this clock and the store's are {apart_ms} ms apart, {max_clock_skew_ms} are allowed; set both by NTP"
        )));
    }
    Ok(store_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_stands_for_its_whole_second() {
        for (owner_ms, store_ms, certainly) in [
            (10_000, Some(10_000), Some(10_000)),
            (12_999, Some(10_000), Some(10_000)),
            (8_000, Some(10_000), Some(10_000)),
            (13_000, Some(10_000), None),
            (7_999, Some(10_000), None),
            (10_500, None, None),
            (0, Some(u64::MAX), None),
        ] {
            let found = certain(owner_ms, store_ms, 2_000).ok();
            assert_eq!(found, certainly, "{owner_ms} {store_ms:?}");
        }
        assert_eq!(certain(10_999, Some(10_000), 0), Ok(10_000));
        assert_eq!(certain(0, None, 0).unwrap_err().reason, StopReason::ClockUncertain);
    }
}
