//! How long to go on asking a store that gives no answer, and how long to wait between two questions.

use std::time::Duration;

use tokio::time::Instant;

use crate::env::Env;
use crate::error::SinkError;
use crate::stop::{StopReason, Stopped};
use crate::store::{Outcome, Refusal, Unanswered};

/// First wait between two tries, in milliseconds: a lost packet costs little.
const FIRST_MS: u64 = 50;

/// First wait after 429 or 503, in milliseconds: some providers allow one write a second to one key.
const FIRST_THROTTLED_MS: u64 = 500;

/// Longest wait, in milliseconds: an outage that ended is noticed within as long.
const LONGEST_MS: u64 = 5_000;

/// One question to the store, however often it is asked.
#[derive(Debug)]
pub struct Patience {
    started: Instant,
    limit: Option<Duration>,
    wait_ms: u64,
}

impl Patience {
    /// Asks for at most `limit_ms` from now on.
    #[must_use]
    pub fn limited(limit_ms: u64) -> Self {
        Self { limit: Some(Duration::from_millis(limit_ms)), ..Self::unlimited() }
    }

    /// Asks until there is an answer.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { started: Instant::now(), limit: None, wait_ms: FIRST_MS }
    }

    /// The same for another question.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { limit: self.limit, ..Self::unlimited() }
    }

    /// Waits before the next try: exponentially longer, and by chance up to half of it shorter.
    ///
    /// # Errors
    /// [`SinkError::StoreUnavailable`] once the limit is reached.
    pub async fn pause(
        &mut self,
        env: &Env,
        request: &'static str,
        key: &str,
        why: &Unanswered,
    ) -> Result<(), SinkError> {
        let waited = self.started.elapsed();
        if self.limit.is_some_and(|limit| waited >= limit) {
            return Err(SinkError::StoreUnavailable {
                request,
                key: key.to_owned(),
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                reason: why.reason.clone(),
            });
        }
        if matches!(why.status, Some(429 | 503)) {
            self.wait_ms = self.wait_ms.max(FIRST_THROTTLED_MS);
        }
        tracing::debug!(request, key, reason = why.reason, wait_ms = self.wait_ms, "asking again");
        let jitter = env.ids.below(self.wait_ms / 2 + 1);
        tokio::time::sleep(Duration::from_millis(self.wait_ms - jitter)).await;
        self.wait_ms = (self.wait_ms * 2).min(LONGEST_MS);
        Ok(())
    }
}

/// A wait for something that was seen, not for an answer that is missing.
#[must_use]
pub fn because(reason: &str) -> Unanswered {
    Unanswered { status: None, reason: reason.to_owned() }
}

/// What a refusal that no repetition changes is.
#[must_use]
pub fn denied(request: &'static str, key: &str, refusal: Refusal) -> SinkError {
    let (status, code, message) = match refusal {
        Refusal::Denied { status, code, message } => (status, code, message),
        Refusal::Precondition => {
            (412, String::new(), "a condition that was not set does not hold".to_owned())
        }
        Refusal::Conflict => (409, String::new(), "a conflict with another request".to_owned()),
    };
    SinkError::Denied { request, key: key.to_owned(), status, code, message }
}

/// What came of the delete of an object that may be gone already.
///
/// # Errors
/// [`StopReason::AmbiguousResponse`]: it may be gone, or it was refused.
pub fn deleted(key: &str, answer: Outcome<()>) -> Result<(), Stopped> {
    let unknown =
        |why: &str| Err(Stopped::new(StopReason::AmbiguousResponse, format!("DELETE of {key:?}: {why}")));
    match answer {
        Outcome::Done(()) | Outcome::Missing => Ok(()),
        Outcome::Unknown(why) => unknown(&why.reason),
        Outcome::Refused(refusal @ Refusal::Denied { .. }) => Err(denied("DELETE", key, refusal).into()),
        Outcome::Refused(_) => unknown("a conflict with another request"),
    }
}
