//! The whole life of one request, with or without a socket.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, SERVER};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use parking_lot::Mutex;

use crate::auth::{self, AuthMode, Context, Keys, Verified};
use crate::control;
use crate::error::{Code, S3Error};
use crate::instant::Instant;
use crate::names::REGIONS;
use crate::op;
use crate::route::{Address, Operation, Query, Target, route};
use crate::store::Store;
use crate::stream::Body;
use crate::xml::Writer;

/// Bytes of all header names and values of one request (S3 User Guide, "Request headers": 8 KB).
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// A request's body, from a socket or not.
pub(crate) type RequestBody =
    http_body_util::combinators::BoxBody<bytes::Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Gives the time.
pub(crate) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// What the server was told when it was built.
pub(crate) struct Settings {
    pub(crate) keys: Keys,
    pub(crate) auth: AuthMode,
    pub(crate) region: String,
    /// Whether the endpoint stands for those of all regions: a request is then for the one it is signed for.
    pub(crate) any_region: bool,
    pub(crate) domains: Vec<String>,
    pub(crate) clock: Clock,
}

/// Everything that one request may touch.
pub(crate) struct Service {
    pub(crate) store: Arc<Store>,
    pub(crate) settings: Settings,
    random: Mutex<fastrand::Rng>,
}

/// A request that has been routed and authenticated.
pub(crate) struct Call<'a> {
    pub(crate) service: &'a Service,
    pub(crate) now: Instant,
    pub(crate) head: &'a Parts,
    pub(crate) query: Query,
    pub(crate) verified: Verified,
    pub(crate) body: &'a mut RequestBody,
}

impl Service {
    pub(crate) fn new(store: Arc<Store>, settings: Settings, seed: u64) -> Self {
        Self { store, settings, random: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }

    /// Random bytes for ids.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.lock().fill(&mut bytes);
        bytes
    }

    /// Answers one request. A refusal may leave some of the body unread.
    pub(crate) async fn call(&self, mut head: Parts, body: &mut RequestBody) -> Response<Body> {
        let now = (self.settings.clock)();
        let id = RequestId(self.random());
        let mut response = match self.answer(&mut head, body, now).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = render_error(&error, &head, &id);
                if head.headers.contains_key(EXPECT) && !body.is_end_stream() {
                    // A client that waits for `100 Continue` and gets this instead sends no body, so the next
                    // request on the connection would be taken for it (RFC 9110 section 10.1.1).
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        finish(&mut response, &head, now, &id);
        tracing::info!(
            id = id.header(),
            method = %head.method,
            path = head.uri.path(),
            status = response.status().as_u16(),
            "request"
        );
        response
    }

    async fn answer(
        &self,
        head: &mut Parts,
        body: &mut RequestBody,
        now: Instant,
    ) -> Result<Response<Body>, S3Error> {
        let address = Address::parse(head, &self.settings.domains)?;
        if address.host_bucket.is_none()
            && let Some(response) = control::answer(head)
        {
            return Ok(response);
        }
        let size: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if size > MAX_HEADER_BYTES {
            return Err(S3Error::new(Code::RequestHeaderSectionTooLarge)
                .extra("MaxSizeAllowed", MAX_HEADER_BYTES.to_string()));
        }
        let query = Query::parse(head.uri.query());
        let host_bucket = address.host_bucket.clone();
        let routed = route(head, address, &query);
        let context = Context {
            keys: &self.settings.keys,
            mode: self.settings.auth,
            region: Some(&self.settings.region),
            other_regions: if self.settings.any_region { &REGIONS } else { &[] },
            host_bucket: host_bucket.as_deref(),
            now: now.datetime(),
        };
        let mut verified = match &routed {
            Ok((operation, _)) if operation.comes_unsigned() => Verified::anonymous(&head.headers),
            _ => auth::verify(head, &context).map_err(|error| self.denial(error, head, &routed))?,
        };
        // Who sent a request comes before what is wrong with it.
        let (operation, target) = routed?;
        head.headers.extend(verified.hoisted.drain(..));
        tracing::debug!(operation = operation.name(), "routed");
        let mut call = Call { service: self, now, head, query, verified, body };
        op::perform(operation, target, &mut call).await
    }

    /// What a request that is not let in learns: of a bucket that is not there even an anonymous one is told.
    fn denial(&self, error: S3Error, head: &Parts, routed: &Result<(Operation, Target), S3Error>) -> S3Error {
        match routed {
            Ok((_, Target::Bucket(bucket) | Target::Object(bucket, _))) if auth::is_anonymous(head) => {
                self.store.bucket(bucket).map_or_else(S3Error::from, |_| error)
            }
            _ => error,
        }
    }
}

impl Call<'_> {
    /// The region of the endpoint that the client speaks to.
    pub(crate) fn region(&self) -> &str {
        let settings = &self.service.settings;
        self.verified.region.as_deref().filter(|_| settings.any_region).unwrap_or(&settings.region)
    }
}

/// The two ids that AWS gives each answer.
struct RequestId([u8; 10]);

impl RequestId {
    /// 16 characters of A-Z and 0-9.
    fn header(&self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        let bits = self.0.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        (0..16).map(|i| char::from(ALPHABET[(bits >> (5 * i)) as usize & 31])).collect()
    }

    fn host(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode([self.0, self.0].concat())
    }
}

fn render_error(error: &S3Error, head: &Parts, id: &RequestId) -> Response<Body> {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if error.code == Code::InternalError {
        tracing::error!(%error, method = %head.method, path = head.uri.path(), "internal error");
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    for (name, value) in &error.headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    // A 304 and an answer to HEAD have no body; a path that climbs out of the bucket gets none on AWS.
    if head.method == Method::HEAD || status == StatusCode::NOT_MODIFIED || error.bare {
        return response;
    }
    let document = Writer::error(|w| {
        w.text("Code", error.code.as_str());
        w.text("Message", &error.message);
        for (name, value) in &error.extra {
            w.text(name, value);
        }
        w.text("RequestId", id.header());
        w.text("HostId", id.host());
    });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    *response.body_mut() = Body::from(document);
    response
}

/// What every answer has.
fn finish(response: &mut Response<Body>, head: &Parts, now: Instant, id: &RequestId) {
    let length = response.body().size_hint().exact();
    let bodiless = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(value)) {
            headers.insert(name, value);
        }
    };
    set(HeaderName::from_static("x-amz-request-id"), id.header());
    set(HeaderName::from_static("x-amz-id-2"), id.host());
    set(DATE, now.http_date());
    headers.insert(SERVER, HeaderValue::from_static("AmazonS3"));
    if let (Some(length), false) = (length, bodiless || head.method == Method::HEAD) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}
