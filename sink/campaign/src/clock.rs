//! The clock and the randomness of the campaign's processes: they are the harness, so they own both.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use sinks::env::{Clock, Ids};

/// Milliseconds since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a campaign is the harness, which owns the clock")]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
