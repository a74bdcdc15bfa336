//! One run of one check: its corner of the bucket, its client, and the steps that checks are made of.

use crate::check::{Class, Done, Stop, describe, says_nothing};
use crate::client::{Answer, Call, Client};
use crate::xml;
use bytes::Bytes;
use fastrand::Rng;
use http::Method;
use parking_lot::Mutex;

/// How hard the races are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Race {
    /// Writers at once, at least 2.
    pub writers: usize,
    /// Rounds of each race, at least 1.
    pub rounds: usize,
}

/// What a check works with.
pub struct Trial {
    client: Client,
    prefix: String,
    race: Race,
    rng: Mutex<Rng>,
    class: Mutex<Option<Class>>,
    note: Mutex<Option<String>>,
}

impl Trial {
    /// A trial whose keys all begin with `prefix`, which ends in a slash and is nobody else's.
    pub fn new(client: Client, prefix: String, race: Race, seed: u64) -> Trial {
        let rng = Mutex::new(Rng::with_seed(seed));
        Trial { client, prefix, race, rng, class: Mutex::default(), note: Mutex::default() }
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

/// The status must be one of `statuses`. Where it is not, a 5xx other than 501 is a doubt, not a failure.
pub(crate) fn expect_status(answer: &Answer, statuses: &[u16]) -> Done {
    let status = answer.status.as_u16();
    let wanted = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" or ");
    if statuses.contains(&status) {
        Ok(())
    } else if says_nothing(status) {
        Err(Stop::doubt(format!("expected {wanted}, got {}", describe(answer)), answer))
    } else {
        Err(Stop::fail(wanted, describe(answer), answer))
    }
}

/// An element of the answer's XML must have this text.
pub(crate) fn expect_element(answer: &Answer, name: &str, text: &str) -> Done {
    match answer.element(name) {
        Some(got) if got == text => Ok(()),
        Some(got) => Err(Stop::fail(format!("<{name}>{text}"), format!("<{name}>{got}"), answer)),
        None => Err(Stop::fail(format!("<{name}>{text}"), format!("no <{name}>"), answer)),
    }
}

/// Two texts must be equal; `what` names them.
pub(crate) fn expect_equal(what: &str, expected: &str, got: &str, answer: &Answer) -> Done {
    if expected == got {
        return Ok(());
    }
    Err(Stop::fail(
        format!("{what} {expected}"),
        format!("{what} {}", if got.is_empty() { "missing" } else { got }),
        answer,
    ))
}

pub(crate) fn excerpt(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
    format!("{} bytes, {:?}", body.len(), start.trim_end_matches(['.', ' ']))
}

/// A multipart upload of one part, as far as checks need one.
pub(crate) struct Upload {
    pub key: String,
    pub id: String,
    pub part: String,
}

impl Upload {
    /// Creates an upload and sends its one part, as preparation.
    pub(crate) async fn start(t: &Trial, key: &str, body: &Bytes) -> Result<Upload, Stop> {
        let answer = t.send(Call::new(Method::POST, Some(key)).query("uploads", "")).await?;
        let id = answer.element("UploadId").unwrap_or_default();
        if !answer.succeeded() || id.is_empty() {
            return Err(Stop::unprepared("CreateMultipartUpload", &answer));
        }
        let part = Call::put(key, body.clone()).query("partNumber", "1").query("uploadId", &id);
        let answer = t.send(part).await?;
        if !answer.succeeded() || answer.etag().is_empty() {
            return Err(Stop::unprepared("UploadPart", &answer));
        }
        Ok(Upload { key: key.to_owned(), id, part: answer.etag().to_owned() })
    }

    /// CompleteMultipartUpload, to which the check adds its condition.
    pub(crate) fn complete(&self) -> Call {
        let etag = xml::escape(&self.part);
        let document = format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
        );
        Call::new(Method::POST, Some(&self.key)).query("uploadId", &self.id).body(document)
    }

    /// AbortMultipartUpload.
    pub(crate) fn abort(&self) -> Call {
        Call::delete(&self.key).query("uploadId", &self.id)
    }

    /// Makes an object by multipart, as preparation; gives its ETag.
    pub(crate) async fn whole(t: &Trial, key: &str, body: &Bytes) -> Result<String, Stop> {
        let upload = Upload::start(t, key, body).await?;
        let answer = t.send(upload.complete()).await?;
        match answer.element("ETag") {
            Some(etag) if answer.succeeded() => Ok(etag),
            _ => Err(Stop::unprepared("CompleteMultipartUpload", &answer)),
        }
    }
}
