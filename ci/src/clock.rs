//! The clock of the bench and the campaigns: they are the harness, so they own it.

use assay_checks::Clock;
use std::sync::Arc;
use std::time::Instant;
use time::OffsetDateTime;

/// The present moment, for durations.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a bench and a campaign are the harness, which owns the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for signatures.
#[must_use]
pub fn wall() -> Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "a bench and a campaign are the harness, which owns the clock"
    )]
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}
