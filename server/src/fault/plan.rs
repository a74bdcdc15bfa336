//! What the rules that hit one request ask for, sorted by when they act.

use std::sync::Arc;

use http::{HeaderValue, Response};

use super::effect::{Effect, Loss};
use super::shape::Shape;
use super::{Faults, Fired, Hold};
use crate::error::{Code, S3Error};
use crate::store::{Page, Store};
use crate::stream::Body;
use crate::xml::Writer;

/// Why a request gets no ordinary answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It gets this error.
    Error(S3Error),
    /// It gets none.
    Lost(Loss),
}

impl From<S3Error> for Stop {
    fn from(error: S3Error) -> Self {
        Self::Error(error)
    }
}

/// The effects on one request.
#[derive(Default)]
pub(crate) struct Plan {
    fired: Vec<Fired>,
    /// The state that a stale read sees.
    stale: Option<Arc<Store>>,
}

impl Plan {
    pub(crate) fn new(fired: Vec<Fired>) -> Self {
        let stale = fired.iter().find_map(|fired| fired.frozen.clone());
        Self { fired, stale }
    }

    pub(crate) fn fired(&self) -> &[Fired] {
        &self.fired
    }

    pub(crate) fn effects(&self) -> impl Iterator<Item = Effect> {
        self.fired.iter().map(|fired| fired.effect)
    }

    /// Acts before anything is done.
    ///
    /// # Errors
    /// Where nothing is to be done.
    pub(crate) async fn before(&self, faults: &Faults) -> Result<(), Stop> {
        for fired in &self.fired {
            match fired.effect {
                Effect::Delay(wait) => faults.hold(fired, wait).over().await,
                Effect::Drop => return Err(Stop::Lost(Loss::Reset)),
                Effect::Freeze => return Err(Stop::Lost(Loss::Never)),
                Effect::Refuse(code, retry_after) => {
                    let error = S3Error::new(code);
                    return Err(Stop::Error(match retry_after {
                        Some(seconds) => error.header("retry-after", seconds.to_string()),
                        None => error,
                    }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How the request's body is read.
    pub(crate) fn request_shape(&self) -> Shape {
        self.effects().fold(Shape::default(), |shape, effect| match effect {
            Effect::SlowBody(rate) => Shape { rate: Some(rate), ..shape },
            Effect::StopReading(at) => Shape { stop_at: Some(at), ..shape },
            _ => shape,
        })
    }

    /// How the answer's body is sent.
    pub(crate) fn answer_shape(&self, faults: &Faults) -> Shape {
        self.effects().fold(Shape::default(), |shape, effect| match effect {
            Effect::FirstByte(time) => Shape { first_byte: Some(faults.draw(time)), ..shape },
            Effect::Bandwidth(rate) => Shape { rate: Some(rate), ..shape },
            Effect::Cut(at) => Shape { cut_at: Some(at), ..shape },
            Effect::Corrupt => Shape { corrupt: true, ..shape },
            _ => shape,
        })
    }

    /// The store that the request sees in place of the server's; only a read sees a stale one.
    pub(crate) fn store(&self, store: &Arc<Store>, reads: bool) -> Arc<Store> {
        if let Some(stale) = self.stale.as_ref().filter(|_| reads) {
            return stale.clone();
        }
        if self.effects().any(|effect| effect == Effect::Forget) { store.forgetting() } else { store.clone() }
    }

    /// What its write waits for before it commits.
    pub(crate) fn late(&self, faults: &Faults) -> Option<Hold> {
        self.fired.iter().find_map(|fired| match fired.effect {
            Effect::Late(wait) => Some(faults.hold(fired, wait)),
            _ => None,
        })
    }

    /// Whether it is done a second time.
    pub(crate) fn twice(&self) -> bool {
        self.effects().any(|effect| effect == Effect::Twice)
    }

    /// Changes a page of a list; `newest` tells of an entry when it was written.
    pub(crate) fn bend<T: Clone>(&self, page: &mut Page<T>, newest: impl Fn(&T) -> u64) {
        for effect in self.effects() {
            match effect {
                Effect::OmitNewest => drop(page.omit_newest(&newest)),
                Effect::RepeatKey => page.entries.extend(page.entries.last().cloned()),
                Effect::Truncate => {
                    page.entries.truncate(page.entries.len() / 2);
                    page.truncated = true;
                    page.without_token = true;
                }
                _ => {}
            }
        }
    }

    /// Acts on what came of the request.
    ///
    /// # Errors
    /// Where the answer is another than that, or none.
    pub(crate) fn after(&self, result: Result<Response<Body>, S3Error>) -> Result<Response<Body>, Stop> {
        let mut response = result;
        for effect in self.effects() {
            match effect {
                Effect::LoseAnswer(loss) => return Err(Stop::Lost(loss)),
                Effect::StopReading(_) => return Err(Stop::Lost(Loss::Never)),
                // What was refused was not done, so there is nothing to hide; an upstream refuses with an answer.
                Effect::FailAfter(_) | Effect::ErrorDocument(_)
                    if response.as_ref().is_ok_and(|answer| !answer.status().is_success()) => {}
                Effect::FailAfter(code) => response = response.and(Err(S3Error::new(code))),
                Effect::ErrorDocument(code) => response = response.map(|answer| error_document(answer, code)),
                Effect::WrongEtag => response = response.map(wrong_etag),
                _ => {}
            }
        }
        response.map_err(Stop::Error)
    }
}

fn error_document(mut response: Response<Body>, code: Code) -> Response<Body> {
    let error = S3Error::new(code);
    *response.body_mut() = Body::from(Writer::error(|w| {
        w.text("Code", error.code.as_str());
        w.text("Message", &error.message);
    }));
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(http::header::CONTENT_TYPE, xml);
    response
}

/// Changes the first digit of the ETag, in the header and in a document.
fn wrong_etag(mut response: Response<Body>) -> Response<Body> {
    let wrong = |digit: u8| if digit == b'0' { b'1' } else { b'0' };
    if let Some(etag) = response.headers().get("etag") {
        let mut bytes = etag.as_bytes().to_vec();
        if let Some(digit) = bytes.get_mut(1) {
            *digit = wrong(*digit);
        }
        if let Ok(etag) = HeaderValue::from_bytes(&bytes) {
            response.headers_mut().insert("etag", etag);
        }
    }
    let mark: &[u8] = b"<ETag>";
    if let Some(document) = response.body().at_hand()
        && let Some(at) = document.windows(mark.len()).position(|window| window == mark)
    {
        let mut document = document.to_vec();
        let at = at + mark.len();
        // The quote may be written in any way that XML has.
        let quotes: [&[u8]; 3] = [b"&quot;", b"&#34;", b"\""];
        let quote =
            quotes.iter().find(|quote| document[at..].starts_with(quote)).map_or(0, |quote| quote.len());
        if let Some(digit) = document.get_mut(at + quote) {
            *digit = wrong(*digit);
        }
        *response.body_mut() = Body::from(document);
    }
    response
}
