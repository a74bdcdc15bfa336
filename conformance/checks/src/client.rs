//! A raw S3 client: it signs, sends one request, and keeps what happened.
//!
//! It never retries, never follows a redirect and never reads meaning into an answer. A request whose
//! answer did not come is [`Lost`]: it may have taken effect.

use crate::call::Call;
use crate::endpoint::{Addressing, Endpoint};
use crate::exchange::{Excerpt, Exchange, Reply, milliseconds, shown};
use crate::pace::Pace;
use crate::payload::Payload;
use crate::sign::{self, Credentials};
use crate::traffic::{self, Traffic};
use crate::xml;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};

/// Exchanges kept per journal: more than the longest sequence of a check outside its races.
const JOURNAL_LENGTH: usize = 64;

/// A body of more bytes than a provider is sure to have read when it refuses by the head alone.
const LONG_BODY: u64 = 64 << 10;

/// The clock of signatures and durations, given by the harness.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Everything a client needs to know.
#[derive(Clone)]
pub struct Settings {
    /// The provider.
    pub endpoint: Endpoint,
    /// Where the bucket stands in a URL.
    pub addressing: Addressing,
    /// The bucket of every request.
    pub bucket: String,
    /// The region that signatures name.
    pub region: String,
    /// Who signs.
    pub credentials: Credentials,
    /// The longest wait for one answer, body included.
    pub timeout: Duration,
    /// The time of signatures.
    pub clock: Clock,
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The evidence.
    pub exchange: Arc<Exchange>,
}

impl Answer {
    /// A header's text, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
    /// The ETag header as sent, quotes and all; empty if there is none.
    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_default()
    }
    /// The text of the first element of that name in an XML body.
    pub fn element(&self, name: &str) -> Option<String> {
        xml::element(&String::from_utf8_lossy(&self.body), name)
    }
    /// A 2xx that is no error document in disguise, as Copy and Complete may send one.
    pub fn succeeded(&self) -> bool {
        self.status.is_success() && !xml::root_is(&String::from_utf8_lossy(&self.body), "Error")
    }
}

/// No answer came: the request may or may not have taken effect.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Lost {
    /// What happened on the connection.
    pub reason: String,
    /// The evidence; `None` when not even a connection was made.
    pub exchange: Option<Arc<Exchange>>,
}

/// What a client has sent: how much of what, and the latest exchanges.
#[derive(Debug, Default)]
struct Journal {
    sent: AtomicU64,
    latest: Mutex<VecDeque<Arc<Exchange>>>,
    traffic: Mutex<Traffic>,
}

struct Shared {
    settings: Settings,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<Connection>>,
}

/// The client. Clones share their idle connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    pace: Option<Arc<Pace>>,
}

/// One connection to the provider, kept alive between requests.
pub struct Connection {
    sender: SendRequest<Payload>,
    /// A long body was refused: the provider may not have read it to its end, and closes a moment later.
    cut_short: bool,
}

/// A request that is signed and ready to go.
#[derive(Debug)]
pub struct Signed {
    request: Request<Payload>,
    record: Exchange,
}

impl Signed {
    /// What will be sent, for a caller with a connection of its own.
    pub fn request(&self) -> &Request<Payload> {
        &self.request
    }

    /// The same, to keep.
    pub fn into_request(self) -> Request<Payload> {
        self.request
    }
}

impl Client {
    /// A client that has connected to nothing yet.
    pub fn new(settings: Settings) -> Client {
        let tls = settings.endpoint.tls.then(|| {
            let mut roots = RootCertStore::empty();
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring offers the default versions of TLS")
                .with_root_certificates(roots)
                .with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        });
        let shared = Arc::new(Shared { settings, tls, idle: Mutex::default() });
        Client { shared, journal: Arc::default(), pace: None }
    }

    /// The same client with a journal of its own.
    pub fn with_own_journal(&self) -> Client {
        Client { journal: Arc::default(), ..self.clone() }
    }

    /// The same client, which sends at most this many requests a second. The writers of a race start together, and
    /// what comes after them waits for all of them.
    pub fn at_rate(self, per_second: u32) -> Client {
        Client { pace: Some(Arc::new(Pace::new(per_second))), ..self }
    }

    /// Waits until `count` requests may go.
    pub(crate) async fn turn(&self, count: usize) {
        if let Some(pace) = &self.pace {
            pace.wait(u32::try_from(count).unwrap_or(u32::MAX)).await;
        }
    }

    /// The same client for another bucket, with the same journal and connections of its own. An empty name stands
    /// for no bucket: the service itself.
    pub fn in_bucket(&self, bucket: &str) -> Client {
        self.with_settings(Settings { bucket: bucket.to_owned(), ..self.shared.settings.clone() })
    }

    /// The same client at another address of the same store, with the same journal.
    pub fn at(&self, endpoint: Endpoint) -> Client {
        match endpoint.tls == self.shared.settings.endpoint.tls {
            true => self.with_settings(Settings { endpoint, ..self.shared.settings.clone() }),
            false => Client {
                shared: Client::new(Settings { endpoint, ..self.shared.settings.clone() }).shared,
                ..self.clone()
            },
        }
    }

    fn with_settings(&self, settings: Settings) -> Client {
        let shared = Shared { settings, tls: self.shared.tls.clone(), idle: Mutex::default() };
        Client { shared: Arc::new(shared), ..self.clone() }
    }

    /// What it was built with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Requests sent through this client since its journal began.
    pub fn requests(&self) -> u64 {
        self.journal.sent.load(Ordering::Relaxed)
    }

    /// The newest exchange of its journal.
    pub fn latest(&self) -> Option<Arc<Exchange>> {
        self.journal.latest.lock().back().cloned()
    }

    /// The exchanges that its journal still has, oldest first.
    pub fn exchanges(&self) -> Vec<Arc<Exchange>> {
        self.journal.latest.lock().iter().cloned().collect()
    }

    /// What was sent since its journal began, by class.
    pub fn traffic(&self) -> Traffic {
        self.journal.traffic.lock().clone()
    }

    /// CopyObject from one key of the bucket to another.
    pub fn copy(&self, from: &str, to: &str) -> Call {
        let source = sign::encode_path(&format!("/{}/{from}", self.shared.settings.bucket));
        Call::new(Method::PUT, Some(to)).header("x-amz-copy-source", &source)
    }

    /// CopyObject of one version.
    pub fn copy_version(&self, from: &str, version: &str, to: &str) -> Call {
        let source = sign::encode_path(&format!("/{}/{from}", self.shared.settings.bucket));
        let version = sign::encode_query(&[("versionId".to_owned(), version.to_owned())]);
        Call::new(Method::PUT, Some(to)).header("x-amz-copy-source", &format!("{source}?{version}"))
    }

    /// CreateBucket in the client's region.
    pub fn create_bucket(&self) -> Call {
        let call = Call::new(Method::PUT, None);
        match self.shared.settings.region.as_str() {
            "us-east-1" => call,
            region => call.body(format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                 <LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            )),
        }
    }

    /// Sends on an idle connection, or a new one.
    ///
    /// # Errors
    /// [`Lost`] when no whole answer came within the timeout.
    pub async fn send(&self, call: Call) -> Result<Answer, Lost> {
        let mut connection = self.idle_or_new().await?;
        let answer = connection.deliver(self, self.sign(call)).await?;
        self.shared.idle.lock().push(connection);
        Ok(answer)
    }

    async fn idle_or_new(&self) -> Result<Connection, Lost> {
        loop {
            let idle = self.shared.idle.lock().pop();
            match idle {
                None => return self.connect().await,
                Some(mut connection) => {
                    if connection.is_usable().await {
                        return Ok(connection);
                    }
                }
            }
        }
    }

    /// Opens a connection of its own, for a racer or for a check about connections.
    ///
    /// # Errors
    /// [`Lost`] when the provider cannot be reached within the timeout.
    pub async fn connect(&self) -> Result<Connection, Lost> {
        let settings = &self.shared.settings;
        let lost = |reason: String| Lost { reason, exchange: None };
        let open = async {
            let (host, port) = (self.host(), settings.endpoint.port);
            let stream = TcpStream::connect((host.as_str(), port))
                .await
                .map_err(|why| lost(format!("cannot connect to {host}:{port}: {why}")))?;
            stream.set_nodelay(true).map_err(|why| lost(why.to_string()))?;
            match &self.shared.tls {
                None => handshake(stream).await.map_err(|why| lost(why.to_string())),
                Some(tls) => {
                    let name =
                        ServerName::try_from(host.clone()).map_err(|why| lost(format!("{host}: {why}")))?;
                    let stream = tls
                        .connect(name, stream)
                        .await
                        .map_err(|why| lost(format!("no TLS with {host}:{port}: {why}")))?;
                    handshake(stream).await.map_err(|why| lost(why.to_string()))
                }
            }
        };
        tokio::time::timeout(settings.timeout, open)
            .await
            .unwrap_or_else(|_| Err(lost(format!("no connection within {:?}", settings.timeout))))
    }

    /// The host to connect to.
    fn host(&self) -> String {
        let Settings { endpoint, addressing, bucket, .. } = &self.shared.settings;
        match addressing {
            Addressing::Virtual if bucket.is_empty() => endpoint.host.clone(),
            Addressing::Path => endpoint.host.clone(),
            Addressing::Virtual => format!("{bucket}.{}", endpoint.host),
        }
    }

    /// Signs a call at this moment.
    pub fn sign(&self, call: Call) -> Signed {
        let Settings { endpoint, region, credentials, clock, .. } = &self.shared.settings;
        let (authority, path) = self.address(call.key.as_deref());
        let (mut headers, mut query, mut content) = (call.headers, call.query, call.content);
        if let Ok(host) = HeaderValue::from_str(&authority) {
            headers.entry(HOST).or_insert(host);
        }
        let payload_sha256 = match &call.chunked {
            None => sign::sha256_hex(&content),
            Some(chunked) => chunked.announce(content.len(), &mut headers).to_owned(),
        };
        let request =
            sign::Request { method: call.method.as_str(), path: &path, payload_sha256: &payload_sha256 };
        let seal = call.signing.apply(&request, &mut query, &mut headers, credentials, region, clock());
        if let Some(chunked) = &call.chunked {
            content = chunked.encode(&content, &seal);
        }
        if matches!(call.method, Method::PUT | Method::POST) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
        }
        headers.extend(call.unsigned);
        let target = match query.as_slice() {
            [] => path,
            query => format!("{path}?{}", sign::encode_query(query)),
        };
        let record = Exchange {
            method: call.method.to_string(),
            url: format!(
                "{}://{authority}{}",
                if endpoint.tls { "https" } else { "http" },
                unsealed(&target)
            ),
            headers: shown(&headers),
            body: Excerpt::of(&content),
            answer: Err("not sent".to_owned()),
            duration_ms: 0,
        };
        let mut request = Request::new(call.payload.unwrap_or_else(|| Payload::whole(content)));
        *request.method_mut() = call.method;
        // The path is percent-encoded above, so it always parses; `/` would be answered, never a wrong key.
        *request.uri_mut() = target.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        Signed { request, record }
    }

    /// The `Host` of a request, and its path, percent-encoded.
    fn address(&self, key: Option<&str>) -> (String, String) {
        let Settings { endpoint, addressing, bucket, .. } = &self.shared.settings;
        let key = key.map(|key| format!("/{key}")).unwrap_or_default();
        let (authority, path) = match addressing {
            _ if bucket.is_empty() => (endpoint.authority.clone(), "/".to_owned()),
            Addressing::Path => (endpoint.authority.clone(), format!("/{bucket}{key}")),
            Addressing::Virtual if key.is_empty() => {
                (format!("{bucket}.{}", endpoint.authority), "/".to_owned())
            }
            Addressing::Virtual => (format!("{bucket}.{}", endpoint.authority), key),
        };
        (authority, sign::encode_path(&path))
    }

    fn keep(&self, exchange: Exchange) -> Arc<Exchange> {
        let exchange = Arc::new(exchange);
        self.journal.sent.fetch_add(1, Ordering::Relaxed);
        traffic::count(&mut self.journal.traffic.lock(), &exchange);
        let mut latest = self.journal.latest.lock();
        if latest.len() == JOURNAL_LENGTH {
            latest.pop_front();
        }
        latest.push_back(exchange.clone());
        exchange
    }
}

impl Connection {
    /// Waits until the next request can go out; false when the connection has ended.
    pub async fn is_usable(&mut self) -> bool {
        !self.cut_short && self.sender.ready().await.is_ok()
    }

    /// Sends one signed request and reads its whole answer; `client` gives the timeout and the journal.
    ///
    /// # Errors
    /// [`Lost`] when no whole answer came within the timeout; the connection is of no use then.
    pub async fn deliver(&mut self, client: &Client, signed: Signed) -> Result<Answer, Lost> {
        client.turn(1).await;
        self.deliver_now(client, signed).await
    }

    /// Sends without waiting for its turn: the caller has.
    pub(crate) async fn deliver_now(&mut self, client: &Client, signed: Signed) -> Result<Answer, Lost> {
        let Signed { request, mut record } = signed;
        let Settings { timeout, clock, .. } = &client.shared.settings;
        let start = clock();
        let exchange = async {
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
        };
        let result = match tokio::time::timeout(*timeout, exchange).await {
            Err(_) => Err(format!("no answer within {timeout:?}")),
            Ok(Err(why)) => Err(with_cause(&why)),
            Ok(Ok(answer)) => Ok(answer),
        };
        record.duration_ms = milliseconds((clock() - start).try_into().unwrap_or_default());
        match result {
            Err(reason) => {
                record.answer = Err(reason.clone());
                Err(Lost { reason, exchange: Some(client.keep(record)) })
            }
            Ok((head, body)) => {
                self.cut_short = record.body.length > LONG_BODY && !head.status.is_success();
                record.answer = Ok(Reply {
                    status: head.status.as_u16(),
                    headers: shown(&head.headers),
                    body: Excerpt::of(&body),
                });
                Ok(Answer { status: head.status, headers: head.headers, body, exchange: client.keep(record) })
            }
        }
    }
}

/// A presigned URL without what makes it work.
fn unsealed(target: &str) -> String {
    match target.split_once("X-Amz-Signature=") {
        Some((before, after)) => {
            format!("{before}X-Amz-Signature=...{}", after.find('&').map_or("", |at| &after[at..]))
        }
        None => target.to_owned(),
    }
}

async fn handshake<S>(stream: S) -> hyper::Result<Connection>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends by itself when the sender is dropped or the peer closes; its error reaches the pending request.
    tokio::spawn(connection);
    Ok(Connection { sender, cut_short: false })
}

fn with_cause(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
