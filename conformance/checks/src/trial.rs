//! One run of one check: its corner of the bucket, its client, and the steps that checks are made of.

use crate::call::Call;
use crate::check::{Class, Done, Stop, describe};
use crate::client::{Answer, Client};
use crate::endpoint::Endpoint;
use crate::expect::{excerpt, expect_status};
use bytes::Bytes;
use fastrand::Rng;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How hard the races are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Race {
    /// Writers at once, at least 2.
    pub writers: usize,
    /// Rounds of each race, at least 1.
    pub rounds: usize,
}

/// What the harness has beside the bucket.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Another address of the same store.
    pub endpoint_2: Option<Endpoint>,
    /// A bucket that has versioning; without it the harness makes one.
    pub versioned_bucket: Option<String>,
}

/// What a check works with.
pub struct Trial {
    client: Client,
    other: Option<Client>,
    prefix: String,
    race: Race,
    rng: Mutex<Rng>,
    class: Mutex<Option<Class>>,
    note: Mutex<Option<String>>,
    measured: Mutex<BTreeMap<String, u64>>,
}

impl Trial {
    /// A trial whose keys all begin with `prefix`, which ends in a slash and is nobody else's.
    pub fn new(client: Client, surroundings: &Surroundings, prefix: String, race: Race, seed: u64) -> Trial {
        let other = surroundings.endpoint_2.as_ref().map(|endpoint| client.at(endpoint.clone()));
        let rng = Mutex::new(Rng::with_seed(seed));
        let (class, note, measured) = (Mutex::default(), Mutex::default(), Mutex::default());
        Trial { client, other, prefix, race, rng, class, note, measured }
    }

    /// The client at the store's second address.
    ///
    /// # Errors
    /// A skip where none is known.
    pub(crate) fn other(&self) -> Result<&Client, Stop> {
        self.other.as_ref().ok_or_else(|| Stop::Skip("no second endpoint is given".to_owned()))
    }

    /// What the check measured: names that end in a unit, and values.
    pub fn measured(&self) -> BTreeMap<String, u64> {
        self.measured.lock().clone()
    }

    /// A measured value for the report.
    pub(crate) fn measure(&self, name: &str, value: u64) {
        self.measured.lock().insert(name.to_owned(), value);
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        self.rng.lock().usize(..end)
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How hard to race.
    pub fn race(&self) -> Race {
        self.race
    }

    /// The worst class that was seen.
    pub fn class(&self) -> Option<Class> {
        *self.class.lock()
    }

    /// What the check had to remark.
    pub fn remark(&self) -> Option<String> {
        self.note.lock().clone()
    }

    /// A remark for the report; the last one stays.
    pub(crate) fn note(&self, text: String) {
        *self.note.lock() = Some(text);
    }

    pub(crate) fn classify(&self, seen: Class) {
        let mut class = self.class.lock();
        *class = Some(class.map_or(seen, |worst| worst.max(seen)));
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A body that no other write of this trial has: `label`, random text, and padding up to `length` bytes.
    pub(crate) fn body(&self, label: &str, length: usize) -> Bytes {
        let mut text = format!("{label} {:016x} ", self.rng.lock().u64(..));
        let pad = length.saturating_sub(text.len());
        text.extend(std::iter::repeat_n('.', pad));
        Bytes::from(text)
    }

    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Stop> {
        Ok(self.client.send(call).await?)
    }

    /// Writes without a condition, as preparation; gives the ETag as sent.
    pub(crate) async fn put(&self, key: &str, body: &Bytes) -> Result<String, Stop> {
        let answer = self.send(Call::put(key, body.clone())).await?;
        if !answer.succeeded() || answer.etag().is_empty() {
            return Err(Stop::unprepared("a plain PUT", &answer));
        }
        Ok(answer.etag().to_owned())
    }

    /// Deletes without a condition, as preparation.
    pub(crate) async fn delete(&self, key: &str) -> Done {
        let answer = self.send(Call::delete(key)).await?;
        if answer.succeeded() { Ok(()) } else { Err(Stop::unprepared("a plain DELETE", &answer)) }
    }

    /// The key must hold exactly these bytes.
    pub(crate) async fn holds(&self, key: &str, body: &Bytes) -> Done {
        let answer = self.send(Call::get(key)).await?;
        expect_status(&answer, &[200])?;
        if answer.body != body {
            // Whatever the conditional request was answered, the bytes are not those that it decides.
            if self.class().is_some() {
                self.classify(Class::Ignores);
            }
            let wanted = format!("the key holds {}", excerpt(body));
            return Err(Stop::fail(wanted, format!("it holds {}", excerpt(&answer.body)), &answer));
        }
        Ok(())
    }

    /// The key must be absent.
    pub(crate) async fn lacks(&self, key: &str) -> Done {
        expect_status(&self.send(Call::get(key)).await?, &[404])
    }

    /// A condition that does not hold must have stopped the request with one of `statuses`.
    pub(crate) fn stopped(&self, answer: &Answer, statuses: &[u16]) -> Done {
        let status = answer.status.as_u16();
        match status {
            _ if answer.succeeded() => self.classify(Class::Ignores),
            304 | 404 | 409 | 412 => self.classify(Class::Enforces),
            400 | 405 | 501 => self.classify(Class::Refuses),
            _ => {}
        }
        expect_status(answer, statuses)
    }

    /// The same of a PUT, as `durable_v2` needs it: 412, or 304 as MinIO answered before 2024 (its issue 19442).
    pub(crate) fn beaten(&self, answer: &Answer) -> Done {
        self.stopped(answer, &[412, 304])
    }

    /// A condition that holds must have let the request through.
    pub(crate) fn let_through(&self, answer: &Answer, statuses: &[u16]) -> Done {
        if matches!(answer.status.as_u16(), 400 | 405 | 501) {
            self.classify(Class::Refuses);
        }
        expect_status(answer, statuses)?;
        if !answer.succeeded() {
            return Err(Stop::fail("a result", format!("an error document: {}", describe(answer)), answer));
        }
        Ok(())
    }
}
