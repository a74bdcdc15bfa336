//! A limit on the rate of requests.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Lets requests go at a steady rate. Who asks for several at once gets them together, and the next one waits for
/// all of them.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// When the next request may go.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(per_second: u32) -> Pace {
        Pace { interval: Duration::from_secs(1) / per_second.max(1), next: Mutex::default() }
    }

    /// Waits until `count` more requests may go.
    pub(crate) async fn wait(&self, count: u32) {
        let turn = {
            let mut next = self.next.lock();
            let now = Instant::now();
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.interval * count);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keeps_the_rate() {
        let pace = Pace::new(10);
        let start = Instant::now();
        for (count, starts_after_ms) in [(1, 0), (1, 100), (5, 200), (1, 700)] {
            pace.wait(count).await;
            assert_eq!(start.elapsed(), Duration::from_millis(starts_after_ms));
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        pace.wait(1).await;
        pace.wait(1).await;
        assert_eq!(start.elapsed(), Duration::from_millis(60_800), "a pause earns no burst");
    }
}
