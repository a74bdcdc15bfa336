//! What the SDK does not do by itself: read an answer's date and stray body, hold a body back, pin an address.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_sdk_s3::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextMut,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::answer::contradicts;

/// What one answer showed besides what the SDK returns.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<Answer>>);

#[derive(Debug, Default)]
struct Answer {
    date_ms: Option<u64>,
    contradicted: bool,
}

impl Seen {
    /// The `Date` of the answer (RFC 9110, section 6.6.1).
    pub(super) fn date_ms(&self) -> Option<u64> {
        self.0.lock().date_ms
    }

    /// Whether the body of a success said that it was none.
    pub(super) fn contradicted(&self) -> bool {
        self.0.lock().contradicted
    }
}

impl Intercept for Seen {
    fn name(&self) -> &'static str {
        "answer seen"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let date = response.headers().get("date").and_then(|text| httpdate::parse_http_date(text).ok());
        let since = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        *self.0.lock() = Answer {
            date_ms: since.and_then(|since| u64::try_from(since.as_millis()).ok()),
            contradicted: response.body().bytes().is_some_and(contradicts),
        };
        Ok(())
    }
}

/// Holds the second half of each body back until it is opened. Of use to a probe that wants a slow writer.
#[derive(Debug)]
pub struct BodyGate {
    open: watch::Sender<bool>,
    /// Bodies that have sent their first half.
    waiting: watch::Sender<usize>,
}

impl Default for BodyGate {
    fn default() -> Self {
        Self { open: watch::Sender::new(false), waiting: watch::Sender::new(0) }
    }
}

impl BodyGate {
    /// Lets the bodies go on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits at the gate, as one body that has sent its first half.
    pub(crate) async fn pass(&self) {
        self.waiting.send_modify(|count| *count += 1);
        let mut open = self.open.subscribe();
        // The sender is in `self`, so the wait ends only with the gate's opening.
        let _ = open.wait_for(|open| *open).await;
    }

    /// Returns once `bodies` have sent their first half and wait.
    pub async fn reached(&self, bodies: usize) {
        let mut waiting = self.waiting.subscribe();
        // The sender is in `self`, so the wait ends only with the count.
        let _ = waiting.wait_for(|count| *count >= bodies).await;
    }
}

/// Replaces the body of a signed request by the same bytes behind a gate.
#[derive(Debug)]
pub(super) struct Gated(pub(super) Arc<BodyGate>);

impl Intercept for Gated {
    fn name(&self) -> &'static str {
        "body behind a gate"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.request_mut().body_mut();
        let Some(bytes) = body.bytes().map(Bytes::copy_from_slice) else { return Ok(()) };
        *body = SdkBody::from_body_1_x(GatedBody::new(bytes, self.0.clone()));
        Ok(())
    }
}

struct GatedBody {
    first: Option<Bytes>,
    second: Option<Bytes>,
    gate: Arc<BodyGate>,
    counted: bool,
    passage: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl GatedBody {
    fn new(mut bytes: Bytes, gate: Arc<BodyGate>) -> Self {
        let first = bytes.split_to(bytes.len() / 2);
        let mut open = gate.open.subscribe();
        let passage = Box::pin(async move {
            // A gate that is gone holds nobody back.
            let _ = open.wait_for(|open| *open).await;
        });
        Self { first: Some(first), second: Some(bytes), gate, counted: false, passage }
    }
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.second.is_none() {
            return Poll::Ready(None);
        }
        if self.passage.as_mut().poll(context).is_pending() {
            if !std::mem::replace(&mut self.counted, true) {
                self.gate.waiting.send_modify(|count| *count += 1);
            }
            return Poll::Pending;
        }
        Poll::Ready(self.second.take().map(|second| Ok(Frame::data(second))))
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.first.as_ref().map_or(0, Bytes::len) + self.second.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(left as u64)
    }
}

/// Every name stands for this one address.
#[derive(Clone, Debug)]
pub(super) struct Pinned(pub(super) IpAddr);

impl ResolveDns for Pinned {
    fn resolve_dns<'a>(&'a self, _name: &'a str) -> DnsFuture<'a> {
        DnsFuture::ready(Ok(vec![self.0]))
    }
}
