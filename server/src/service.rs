//! The whole life of one request, with or without a socket.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, SERVER};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty, Full};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::auth::{self, AuthMode, Context, Keys, Verified};
use crate::control::{self, Access, Chaos, Snapshots};
use crate::deviation::{Acting, Deviations};
use crate::error::{Code, S3Error};
use crate::fault::{Facts, Faults, Hold, InFlight, Loss, Outages, Plan, Rule, RuleError, Shaped, Stop};
use crate::instant::Instant;
use crate::journal::{Hit, Journal, Record};
use crate::names::{BucketName, REGIONS};
use crate::op;
use crate::route::{Address, Operation, Query, Target, operation, route};
use crate::store::Store;
use crate::stream::Body;
use crate::tenant::Tenants;
use crate::upstream::{FromUpstream, Provider};
use crate::xml::Writer;

/// The header by which one request brings a fault along.
const FAULT_HEADER: &str = "x-assay-fault";

/// Bytes of a body that is sent twice, at the most.
const MAX_COPIED_BYTES: usize = 64 * 1024 * 1024;

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
    /// The configured one.
    pub(crate) access_key: String,
    pub(crate) auth: AuthMode,
    pub(crate) region: String,
    /// Whether the endpoint stands for those of all regions: a request is then for the one it is signed for.
    pub(crate) any_region: bool,
    pub(crate) domains: Vec<String>,
    pub(crate) clock: Clock,
    /// The buckets that are there from the start, and again after a reset.
    pub(crate) buckets: Vec<BucketName>,
    /// The faults that are set from the start, and again after a reset.
    pub(crate) first_faults: Vec<Rule>,
    /// Whether a request may bring a fault along.
    pub(crate) request_faults: bool,
    /// Whether faults and outages are asked about at all.
    pub(crate) hook: bool,
    pub(crate) journal: bool,
    pub(crate) control: Access,
    pub(crate) deviations: Deviations,
}

/// Which listener a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    S3,
    /// The port of the control paths, where they have one.
    Control,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Counts connections from 1.
    pub(crate) connection: u64,
    pub(crate) address: IpAddr,
    pub(crate) door: Door,
}

/// Everything that one request may touch.
pub(crate) struct Service {
    pub(crate) store: Arc<Store>,
    /// The stores of the other access keys, where each has its own.
    pub(crate) tenants: Option<Tenants>,
    pub(crate) settings: Settings,
    pub(crate) faults: Faults,
    pub(crate) outage: Outages,
    pub(crate) journal: Journal,
    /// Who performs the operations in this server's place; the store is then empty.
    pub(crate) upstream: Option<Provider>,
    pub(crate) seed: u64,
    /// How far the server's clock is off, in milliseconds.
    pub(crate) clock_offset_ms: AtomicI64,
    pub(crate) snapshots: Snapshots,
    pub(crate) chaos: Chaos,
    /// Turns true when the server stops: what follows or waits must end.
    pub(crate) stopping: watch::Sender<bool>,
    /// What the deviations remember.
    pub(crate) deviant: op::State,
    random: Mutex<fastrand::Rng>,
}

/// A request that has been routed and authenticated.
pub(crate) struct Call<'a> {
    pub(crate) service: &'a Service,
    pub(crate) store: Arc<Store>,
    pub(crate) now: Instant,
    pub(crate) head: &'a Parts,
    pub(crate) query: Query,
    pub(crate) verified: Verified,
    pub(crate) body: &'a mut RequestBody,
    pub(crate) plan: &'a Plan,
    /// The server's deviations, and which of them acted.
    pub(crate) acting: Acting,
    pub(crate) connection: Option<u64>,
    /// What its write waits for before it commits.
    pub(crate) late: Option<Hold>,
}

/// Who performs an operation.
#[derive(Clone)]
enum Performer<'a> {
    /// This server, on what the request is about.
    Here(Target),
    Upstream(&'a Provider),
}

/// How a request ends.
pub(crate) enum Ending {
    Answer(Response<Body>),
    /// The connection is reset.
    Reset,
    /// The connection stays open and nothing ever comes.
    Never,
}

impl Service {
    pub(crate) fn new(
        store: Arc<Store>,
        tenants: Option<Tenants>,
        upstream: Option<Provider>,
        settings: Settings,
        seed: u64,
    ) -> Self {
        Self {
            store,
            tenants,
            settings,
            faults: Faults::new(seed),
            outage: Outages::default(),
            journal: Journal::default(),
            upstream,
            seed,
            clock_offset_ms: AtomicI64::new(0),
            snapshots: Snapshots::default(),
            chaos: Chaos::default(),
            stopping: watch::Sender::new(false),
            deviant: op::State::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        }
    }

    /// Ends what follows or waits: the server stops. What a rule holds goes on, as when the rule is taken back.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
        self.faults.clear();
    }

    /// Random bytes for ids.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.lock().fill(&mut bytes);
        bytes
    }

    /// The time as this server tells it.
    pub(crate) fn now(&self) -> Instant {
        let true_ms = (self.settings.clock)().epoch_ms();
        Instant::from_epoch_ms(true_ms + self.clock_offset_ms.load(Ordering::Relaxed))
    }

    /// Answers one request, or leaves it without an answer. A refusal may leave some of the body unread.
    pub(crate) async fn call(&self, mut head: Parts, body: &mut RequestBody, peer: Option<Peer>) -> Ending {
        let began = tokio::time::Instant::now();
        let now = self.now();
        let id = RequestId(self.random());
        let mut record = match self.settings.journal {
            true => Record::begin(now, peer.map(|peer| peer.connection), &head),
            false => Record::left_out(now),
        };
        let ending = match self.answer(&mut head, body, now, peer, &mut record).await {
            Ok(response) => Ending::Answer(response),
            Err(Stop::Lost(Loss::Reset)) => Ending::Reset,
            Err(Stop::Lost(Loss::Never)) => Ending::Never,
            Err(Stop::Error(error)) => Ending::Answer(refuse(&error, &head, body, &id)),
        };
        let ending = match ending {
            Ending::Answer(mut response) => {
                finish(&mut response, &head, now, &id);
                record.answered(response.status().as_u16(), response.headers());
                Ending::Answer(response)
            }
            lost => {
                record.lost(id.header());
                lost
            }
        };
        if let Some(record) = record.end(began.elapsed()) {
            tracing::info!(
                id = record.id,
                operation = record.operation,
                path = head.uri.path(),
                status = record.status,
                "request"
            );
            self.journal.add(&record);
        }
        ending
    }

    async fn answer(
        &self,
        head: &mut Parts,
        body: &mut RequestBody,
        now: Instant,
        peer: Option<Peer>,
        record: &mut Record,
    ) -> Result<Response<Body>, Stop> {
        if peer.is_some_and(|peer| peer.door == Door::Control) {
            record.leave_out();
            return Ok(control::answer(self, head, body, peer).await);
        }
        let address = Address::parse(head, &self.settings.domains)?;
        let controls = address.host_bucket.is_none() && !self.settings.control.own_port;
        if controls && control::is_control(head) {
            record.leave_out();
            return Ok(control::answer(self, head, body, peer).await);
        }
        if self.settings.hook || self.settings.journal {
            record.name(address.bucket.as_deref(), &address.key); // rules go by them too
        }
        if self.settings.hook {
            self.outage.check((self.settings.clock)())?;
        }
        let size: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        // An upstream has limits of its own.
        if size > MAX_HEADER_BYTES && self.upstream.is_none() {
            return Err(Stop::Error(
                S3Error::new(Code::RequestHeaderSectionTooLarge)
                    .extra("MaxSizeAllowed", MAX_HEADER_BYTES.to_string()),
            ));
        }
        let query = Query::parse(head.uri.query());
        let host_bucket = address.host_bucket.clone();
        let named = operation(head, &address, &query);
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
        let (operation, performer) = match &self.upstream {
            None => routed.map(|(operation, target)| (operation, Performer::Here(target)))?,
            // What is wrong with a name is for the upstream to say.
            Some(upstream) => (named, Performer::Upstream(upstream)),
        };
        record.admit(operation.name(), verified.access_key.as_deref());
        head.headers.extend(verified.hoisted.drain(..));
        let (plan, _in_flight) = self.plan(operation, record, head, &query, &verified)?;
        record.faults = plan.fired().iter().map(Hit::from).collect();
        for Hit { rule, effect } in &record.faults {
            tracing::info!(rule, effect, method = %head.method, path = head.uri.path(), "injected");
        }
        plan.before(&self.faults).await?;
        let acting = Acting::new(&self.settings.deviations);
        let (connection, plan) = (record.connection, &plan);
        let job = Job { head, query, verified, body, now, plan, acting: acting.clone(), connection };
        let answer = self.perform(operation, performer, job).await;
        record.deviations = acting.names();
        answer
    }

    /// What the faults do to this request, and its place among the conditional writes under way.
    fn plan(
        &self,
        operation: Operation,
        record: &Record,
        head: &Parts,
        query: &Query,
        verified: &Verified,
    ) -> Result<(Plan, Option<InFlight>), S3Error> {
        if !self.settings.hook {
            return Ok((Plan::default(), None));
        }
        let brought = head.headers.get_all(FAULT_HEADER).iter();
        let own: Vec<&HeaderValue> = brought.filter(|_| self.settings.request_faults).collect();
        if !self.faults.any() && own.is_empty() {
            return Ok((Plan::default(), None));
        }
        let names = (record.bucket.as_deref(), record.key.as_deref());
        let in_flight = self.faults.enter(names, &head.headers);
        let facts = Facts::of(operation, names, head, query, verified, in_flight.as_ref());
        let mut fired = self.faults.ask(&facts, (self.settings.clock)());
        for text in own {
            let rule = Rule::of_request(text.to_str().unwrap_or_default());
            let fits = |rule: Rule| match self.upstream {
                Some(_) => rule.check_for_upstream().map(|()| rule),
                None => Ok(rule),
            };
            let rule = rule.and_then(fits).map_err(|error: RuleError| {
                S3Error::new(Code::InvalidArgument)
                    .message(error.to_string())
                    .extra("ArgumentName", FAULT_HEADER)
                    .extra("ArgumentValue", error.value)
            })?;
            fired.extend(self.faults.ask_once(&rule, &facts));
        }
        Ok((Plan::new(fired), in_flight))
    }

    /// Performs the operation under its plan.
    async fn perform(
        &self,
        operation: Operation,
        performer: Performer<'_>,
        job: Job<'_>,
    ) -> Result<Response<Body>, Stop> {
        let Job { head, query, verified, body, now, plan, acting, connection } = job;
        let shape = plan.request_shape();
        if !shape.is_plain() {
            let plain = std::mem::replace(body, empty());
            *body = Shaped::new(plain, shape, || "a fault broke the body off".into()).boxed();
        }
        let home = self.store_of(verified.access_key.as_deref()).await.map_err(S3Error::from)?;
        if operation.is_about_uploads()
            && let Performer::Here(Target::Bucket(bucket) | Target::Object(bucket, _)) = &performer
            && let Some(abort) = home.abort_due(bucket, now)
        {
            op::to_its_end(abort).await.map_err(S3Error::from)?;
        }
        let store = plan.store(&home, matches!(head.method, Method::GET | Method::HEAD));
        let late = plan.late(&self.faults);
        let again = if plan.twice() { Some(copy(body, &verified).await?) } else { None };
        let mut call =
            Call { service: self, store, now, head, query, verified, body, plan, acting, connection, late };
        let result = performer.clone().perform(operation, &mut call).await;
        if let Some((mut body, verified)) = again {
            // As a duplicate in the network: it is done, and its answer goes nowhere.
            let mut second = Call { verified, body: &mut body, ..call };
            let _ = performer.perform(operation, &mut second).await;
        }
        let shape = plan.answer_shape(&self.faults);
        plan.after(result).map(|response| response.map(|body| body.shaped(shape)))
    }

    /// What a request that is not let in learns: of a bucket that is not there even an anonymous one is told.
    fn denial(&self, error: S3Error, head: &Parts, routed: &Result<(Operation, Target), S3Error>) -> S3Error {
        match routed {
            _ if self.upstream.is_some() => error,
            Ok((_, Target::Bucket(bucket) | Target::Object(bucket, _))) if auth::is_anonymous(head) => {
                self.store.bucket(bucket).map_or_else(S3Error::from, |_| error)
            }
            _ => error,
        }
    }
}

impl Performer<'_> {
    async fn perform(self, operation: Operation, call: &mut Call<'_>) -> Result<Response<Body>, S3Error> {
        match self {
            Self::Here(target) => op::perform(operation, target, call).await,
            Self::Upstream(upstream) => upstream.perform(operation, call).await,
        }
    }
}

/// What is needed to perform a request.
struct Job<'a> {
    head: &'a Parts,
    query: Query,
    verified: Verified,
    body: &'a mut RequestBody,
    now: Instant,
    plan: &'a Plan,
    acting: Acting,
    connection: Option<u64>,
}

fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// Reads a body to its end and leaves two that are like it.
async fn copy(body: &mut RequestBody, verified: &Verified) -> Result<(RequestBody, Verified), S3Error> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| S3Error::new(Code::IncompleteBody))?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() > MAX_COPIED_BYTES {
            return Err(S3Error::new(Code::EntityTooLarge)
                .message(format!("the fault twice takes bodies of up to {MAX_COPIED_BYTES} bytes")));
        }
    }
    let bytes = bytes.freeze();
    let whole = || Full::new(bytes.clone()).map_err(|never| match never {}).boxed();
    *body = whole();
    Ok((whole(), verified.clone()))
}

/// The answer that refuses.
fn refuse(error: &S3Error, head: &Parts, body: &RequestBody, id: &RequestId) -> Response<Body> {
    let mut response = render_error(error, head, id);
    if head.headers.contains_key(EXPECT) && !body.is_end_stream() {
        // A client that waits for `100 Continue` and gets this instead sends no body, so the next
        // request on the connection would be taken for it (RFC 9110 section 10.1.1).
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

impl Call<'_> {
    /// The same request with another head.
    pub(crate) fn under<'b>(&'b mut self, head: &'b Parts) -> Call<'b> {
        Call {
            service: self.service,
            store: self.store.clone(),
            now: self.now,
            head,
            query: self.query.clone(),
            verified: self.verified.clone(),
            body: &mut *self.body,
            plan: self.plan,
            acting: self.acting.clone(),
            connection: self.connection,
            late: self.late.clone(),
        }
    }

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

/// What every answer has; one of an upstream has it already, but for the length of what a fault put in its place.
fn finish(response: &mut Response<Body>, head: &Parts, now: Instant, id: &RequestId) {
    let length = response.body().size_hint().exact();
    let bodiless = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ours = response.extensions().get::<FromUpstream>().is_none();
    let headers = response.headers_mut();
    if let (Some(length), false) = (length, bodiless || head.method == Method::HEAD) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if !ours {
        return;
    }
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(value)) {
            headers.insert(name, value);
        }
    };
    set(HeaderName::from_static("x-amz-request-id"), id.header());
    set(HeaderName::from_static("x-amz-id-2"), id.host());
    set(DATE, now.http_date());
    headers.insert(SERVER, HeaderValue::from_static("AmazonS3"));
}
