//! The journal: what was asked, what acted on it, what was answered. Bounded in bytes, so that it never leaks;
//! it holds no secret, no signature and no body.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::fault::Fired;
use crate::instant::Instant;

mod ring;

use ring::{Copied, Ring};

/// A rule that hit a request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hit {
    /// The rule's name.
    pub rule: String,
    /// The effect's name.
    pub effect: &'static str,
}

impl From<&Fired> for Hit {
    fn from(fired: &Fired) -> Self {
        Self { rule: fired.name.clone(), effect: fired.effect.name() }
    }
}

/// One request and its end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Record {
    /// Counts requests from 1, in the order of their ends.
    pub number: u64,
    /// `x-amz-request-id` of the answer.
    pub id: String,
    /// When it came, by the server's clock; in milliseconds since 1970.
    pub at: Instant,
    /// Counts connections from 1; `None` for a request without a socket.
    pub connection: Option<u64>,
    /// Whose key signed it; `None` where nobody's did or the request was not let in.
    pub access_key: Option<String>,
    /// The operation of the S3 API Reference; `None` where the request was not let in.
    pub operation: Option<&'static str>,
    /// The bucket, as it was named.
    pub bucket: Option<String>,
    /// The key, as it was named.
    pub key: Option<String>,
    /// The conditional headers, names in lower case.
    pub conditions: Vec<(&'static str, String)>,
    /// The body's size in bytes, as its head says.
    pub body_size: u64,
    /// The faults that acted, in their order.
    pub faults: Vec<Hit>,
    /// The names of the deviations that acted, in their order.
    pub deviations: Vec<&'static str>,
    /// The status of the answer; `None` where the connection was reset or nothing was ever sent.
    pub status: Option<u16>,
    /// From the head of the request to the head of the answer, in microseconds.
    pub duration_us: u64,
    /// Whether it is kept out of the journal.
    #[serde(skip)]
    left_out: bool,
}

/// Headers that make a request conditional.
static CONDITIONS: [HeaderName; 4] = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

impl Record {
    pub(crate) fn begin(at: Instant, connection: Option<u64>, head: &Parts) -> Self {
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let condition = |name: &'static HeaderName| Some((name.as_str(), text(name)?.to_owned()));
        Self {
            connection,
            conditions: CONDITIONS.iter().filter_map(condition).collect(),
            body_size: body_size(&head.headers),
            left_out: false,
            ..Self::left_out(at)
        }
    }

    /// The record of a request that is not journalled.
    pub(crate) fn left_out(at: Instant) -> Self {
        Self {
            number: 0,
            id: String::new(),
            at,
            connection: None,
            access_key: None,
            operation: None,
            bucket: None,
            key: None,
            conditions: Vec::new(),
            body_size: 0,
            faults: Vec::new(),
            deviations: Vec::new(),
            status: None,
            duration_us: 0,
            left_out: true,
        }
    }

    pub(crate) fn name(&mut self, bucket: Option<&str>, key: &str) {
        self.bucket = bucket.map(str::to_owned);
        self.key = (!key.is_empty()).then(|| key.to_owned());
    }

    /// The request was let in.
    pub(crate) fn admit(&mut self, operation: &'static str, access_key: Option<&str>) {
        if !self.left_out {
            self.operation = Some(operation);
            self.access_key = access_key.map(str::to_owned);
        }
    }

    /// Takes the status and the id of the answer; an upstream gives its own.
    pub(crate) fn answered(&mut self, status: u16, headers: &HeaderMap) {
        if !self.left_out {
            self.status = Some(status);
            let id = headers.get("x-amz-request-id").and_then(|id| id.to_str().ok());
            id.unwrap_or_default().clone_into(&mut self.id);
        }
    }

    /// The request gets no answer that would tell its id.
    pub(crate) fn lost(&mut self, id: String) {
        self.id = id;
    }

    /// Requests to the control paths are not S3's and are not journalled.
    pub(crate) fn leave_out(&mut self) {
        self.left_out = true;
    }

    pub(crate) fn end(mut self, duration: Duration) -> Option<Self> {
        self.duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        (!self.left_out).then_some(self)
    }
}

/// The size of a body without its framing, as its head says.
pub(crate) fn body_size(headers: &HeaderMap) -> u64 {
    let number = |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()?.parse().ok());
    let decoded = number(headers.get("x-amz-decoded-content-length"));
    decoded.or_else(|| number(headers.get(CONTENT_LENGTH))).unwrap_or(0)
}

/// The requests of one server: the newest, up to 768 KiB of them, which are about 10,000 with keys of 20 characters.
/// Older ones are dropped; their number goes on counting. Clones are handles to the same journal.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ring: Mutex<Ring>,
    grown: watch::Sender<()>,
}

impl Default for Journal {
    fn default() -> Self {
        Self(Arc::new(Inner { ring: Mutex::default(), grown: watch::Sender::new(()) }))
    }
}

/// What was waited for did not come, or what was not expected did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// Nothing fitted in the time given.
    #[error("no request fitted within {within_ms} ms; {seen} were seen")]
    NothingCame {
        /// The time given, in milliseconds.
        within_ms: u64,
        /// Requests that did not fit.
        seen: usize,
    },
    /// Something fitted.
    #[error("request {number} fitted, and none should have")]
    SomethingCame {
        /// The request's number in the journal.
        number: u64,
    },
}

impl Journal {
    /// Adds a request; its number is given here.
    pub(crate) fn add(&self, record: &Record) {
        self.0.ring.lock().add(record);
        // Who waits subscribes before it looks, so whoever is not counted yet finds the record.
        if self.0.grown.receiver_count() > 0 {
            self.0.grown.send_replace(());
        }
    }

    /// The requests that are remembered after number `after`, at least the first `most` of them.
    fn copy(&self, after: u64, most: usize) -> Copied {
        self.0.ring.lock().after(after, most)
    }

    /// The requests that are remembered and fit, oldest first.
    pub fn filter(&self, fits: impl Fn(&Record) -> bool) -> Vec<Record> {
        self.copy(0, usize::MAX).records().filter(|record| fits(record)).collect()
    }

    /// The first `most` of the remembered requests after number `after`.
    pub(crate) fn after(&self, after: u64, most: usize) -> Vec<Record> {
        self.copy(after, most).records().take(most).collect()
    }

    /// Returns once there is a request after number `after`.
    pub(crate) async fn grown(&self, after: u64) {
        let mut grown = self.0.grown.subscribe();
        while self.last() <= after {
            // The sender lives as long as this journal.
            if grown.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// How many remembered requests fit.
    pub fn count(&self, fits: impl Fn(&Record) -> bool) -> usize {
        self.copy(0, usize::MAX).records().filter(|record| fits(record)).count()
    }

    /// The number of the last request.
    pub fn last(&self) -> u64 {
        self.0.ring.lock().last()
    }

    /// Forgets the requests so far; their number goes on counting.
    pub fn clear(&self) {
        self.0.ring.lock().clear();
    }

    /// The next request after number `after` that fits; it may have come already.
    ///
    /// # Errors
    /// [`Unmet::NothingCame`] when none has within `within`.
    pub async fn wait_for(
        &self,
        after: u64,
        within: Duration,
        fits: impl Fn(&Record) -> bool,
    ) -> Result<Record, Unmet> {
        let mut grown = self.0.grown.subscribe();
        let search = async {
            let mut seen = after;
            loop {
                for record in self.copy(seen, usize::MAX).records() {
                    if fits(&record) {
                        return record;
                    }
                    seen = record.number;
                }
                // The sender lives as long as this journal, so there is always more to wait for.
                if grown.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(within, search).await.map_err(|_| Unmet::NothingCame {
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
            seen: self.count(|record| record.number > after),
        })
    }

    /// Waits for the whole of `during` and fails at the first request after number `after` that fits.
    ///
    /// # Errors
    /// [`Unmet::SomethingCame`].
    pub async fn expect_none(
        &self,
        after: u64,
        during: Duration,
        fits: impl Fn(&Record) -> bool,
    ) -> Result<(), Unmet> {
        match self.wait_for(after, during, fits).await {
            Ok(record) => Err(Unmet::SomethingCame { number: record.number }),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str) -> Record {
        let (head, ()) = http::Request::new(()).into_parts();
        let mut record = Record::begin(Instant::from_epoch_ms(0), None, &head);
        record.name(Some("data"), key);
        record
    }

    #[test]
    fn a_journal_that_is_cleared_goes_on_counting() {
        let journal = Journal::default();
        for _ in 0..5 {
            journal.add(&record("k"));
        }
        let numbers = |after, most| -> Vec<u64> {
            journal.after(after, most).iter().map(|record| record.number).collect()
        };
        assert_eq!((numbers(0, 2), numbers(3, 9), numbers(5, 9)), (vec![1, 2], vec![4, 5], vec![]));
        journal.clear();
        assert_eq!((journal.count(|_| true), journal.last()), (0, 5));
        journal.add(&record("k"));
        assert_eq!(numbers(0, 9), [6]);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_request_or_with_the_time() {
        let journal = Journal::default();
        let is_b = |record: &Record| record.key.as_deref() == Some("b");
        let waiting = journal.wait_for(0, Duration::from_secs(9), is_b);
        let adding = async {
            journal.add(&record("a"));
            tokio::task::yield_now().await;
            journal.add(&record("b"));
        };
        let (found, ()) = tokio::join!(waiting, adding);
        assert_eq!(found.unwrap().number, 2);
        let missed = journal.wait_for(2, Duration::from_millis(50), is_b).await;
        assert_eq!(missed.unwrap_err(), Unmet::NothingCame { within_ms: 50, seen: 0 });
        let none = journal.expect_none(0, Duration::from_millis(50), is_b).await;
        assert_eq!(none, Err(Unmet::SomethingCame { number: 2 }));
        assert_eq!(journal.expect_none(2, Duration::from_millis(50), is_b).await, Ok(()));
    }
}
