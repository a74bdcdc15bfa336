//! The clock and the randomness of the campaign's processes: they are the harness, so they own both.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use sinks::env::{Clock, Ids};
use time::OffsetDateTime;

/// Milliseconds since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a campaign is the harness, which owns the clock")]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A moment in milliseconds since 1970, as a report says it: to the minute, UTC.
#[must_use]
pub fn date(at_ms: u64) -> String {
    let seconds = i64::try_from(at_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(
        |_| format!("{at_ms} ms after 1970"),
        |at| format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute()),
    )
}

/// The wall clock, for what is written down.
#[derive(Debug)]
pub struct Wall;

impl Clock for Wall {
    fn now_ms(&self) -> u64 {
        now_ms()
    }
}

/// Identities of this process, which no other one draws.
#[must_use]
pub fn ids() -> Ids {
    // Each hasher of the standard library is seeded by the system.
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(now_ms());
    hasher.write_u32(std::process::id());
    Ids::seeded(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_to_the_minute() {
        assert_eq!(date(1_796_035_859_999), "2026-11-30 10:50 UTC");
        assert_eq!(date(u64::MAX), "18446744073709551615 ms after 1970");
    }
}
