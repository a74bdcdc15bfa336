//! One request to the upstream and its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Notify;

use super::body::{Answered, Fed, Source, fed};
use super::connect::Failure;
use super::request::{Framing, Onward, onward};
use super::{Provider, answer};
use crate::auth::Payload;
use crate::error::{Code, S3Error};
use crate::fault::Hold;
use crate::op;
use crate::route::{Address, Operation};
use crate::service::Call;
use crate::stream::Body;

/// How long a client that waits for `100 Continue` is kept waiting for an upstream that does not say it (RFC 9110
/// section 10.1.1 lets nobody wait forever).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

impl Provider {
    /// Performs an operation by asking the upstream, as a server with the deviations that are set.
    ///
    /// # Errors
    /// Those of [`Provider::ask`], and what a deviation refuses.
    pub(crate) async fn perform(
        &self,
        operation: Operation,
        call: &mut Call<'_>,
    ) -> Result<Response<Body>, S3Error> {
        match call.acting.set().is_empty() {
            true => self.ask(operation, call).await,
            false => op::ask(self, operation, call).await,
        }
    }

    /// Asks the upstream what the client asks, once, and answers what it answers.
    ///
    /// # Errors
    /// Where the client's body is not what it says, or the upstream gives no answer.
    pub(crate) async fn ask(
        &self,
        operation: Operation,
        call: &mut Call<'_>,
    ) -> Result<Response<Body>, S3Error> {
        let changed = !(call.plan.fired().is_empty() && call.acting.set().is_empty());
        let response = self.forward(operation, call).await?;
        // An object's bytes pass as they come; any other answer is seen whole by what may change it.
        if changed && operation != Operation::GetObject {
            return answer::settle(response, operation, call.plan.effects()).await;
        }
        Ok(response)
    }

    async fn forward(&self, operation: Operation, call: &mut Call<'_>) -> Result<Response<Body>, S3Error> {
        if operation == Operation::Unsupported("PostObject") {
            return Err(S3Error::new(Code::NotImplemented)
                .message("a form is signed inside, with keys that the upstream does not know")
                .extra("Operation", operation.name()));
        }
        let settings = &call.service.settings;
        let address = Address::parse(call.head, &settings.domains)?;
        let Onward { mut head, payload, framing } =
            onward(call.head, &address, &call.verified, &self.endpoint, self.addressing)?;
        let late = call.late.clone().filter(|_| !matches!(call.head.method, Method::GET | Method::HEAD));
        let trailer = matches!(call.verified.payload, Payload::Streaming { trailer: true, .. });
        let signer = call.verified.chunk_signer.take();
        let mut source = Source::new(call.body, framing, signer, trailer);
        if framing == Framing::Plain(0) {
            // No last piece waits for the signatures, so the request does.
            source.next().await?;
        }
        let mut sign = || self.signer.sign(&mut head, &payload, (settings.clock)().datetime());
        if source.is_empty() {
            if let Some(late) = late {
                late.over().await;
            }
            sign();
            let response = self.pool.send(Request::from_parts(head, Fed::empty())).await;
            return self.answer(response, |incoming| Answered::new(incoming, None));
        }
        sign();
        self.exchange(Request::from_parts(head, ()), source, late).await
    }

    /// Sends a request with a body and waits for the answer, which may come before all of the body is gone.
    async fn exchange(
        &self,
        request: Request<()>,
        mut source: Source<'_>,
        late: Option<Hold>,
    ) -> Result<Response<Body>, S3Error> {
        let waits = request.headers().contains_key(EXPECT);
        let (feed, fed) = fed(length(request.headers()));
        let mut request = request.map(|()| fed);
        let go_on = waits.then(|| said_continue(&mut request));
        let (response, all_sent) = {
            let mut send = pin!(self.pool.send(request));
            let pump = async {
                if let Some(go_on) = go_on {
                    // Said or not: the body goes now.
                    let _ = tokio::time::timeout(CONTINUE_TIMEOUT, go_on.notified()).await;
                }
                source.pump(&feed, late).await
            };
            tokio::select! {
                biased;
                response = &mut send => (response, false),
                pumped = pump => {
                    pumped?;
                    (send.await, true)
                }
            }
        };
        let unwanted = (!all_sent).then_some(feed);
        let mut response = self.answer(response, |incoming| Answered::new(incoming, unwanted))?;
        if waits && !source.is_empty() {
            // A client that got this instead of `100 Continue` sends no body: the connection can't go on.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }

    fn answer(
        &self,
        response: Result<Response<Incoming>, Failure>,
        body: impl FnOnce(Incoming) -> Answered,
    ) -> Result<Response<Body>, S3Error> {
        response.map(|response| answer::onward(response, body)).map_err(|failure| self.failed(&failure))
    }
}

/// The length of the body for the upstream, unless the client does not know it either.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Tells when the upstream says `100 Continue`.
fn said_continue(request: &mut Request<Fed>) -> Arc<Notify> {
    let said = Arc::new(Notify::new());
    let say = said.clone();
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            say.notify_one();
        }
    });
    said
}
