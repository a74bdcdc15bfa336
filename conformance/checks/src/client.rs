//! A raw S3 client: it signs, sends one request, and keeps what happened.
//!
//! It never retries, never follows a redirect and never reads meaning into an answer. A request whose
//! answer did not come is [`Lost`]: it may have taken effect.

use crate::exchange::{Excerpt, Exchange, Reply, milliseconds, shown};
use crate::pace::Pace;
use crate::payload::Payload;
use crate::sign::{self, Credentials};
use crate::traffic::{self, Traffic};
use crate::xml;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};
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

/// Where the bucket stands in a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// `https://host/bucket/key`
    #[default]
    Path,
    /// `https://bucket.host/key`
    Virtual,
}

/// A provider's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    tls: bool,
    /// As it stands in a `Host` header, with the port when it is not the scheme's own.
    authority: String,
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads `http://host[:port]` or `https://host[:port]`.
    ///
    /// # Errors
    /// Says what of the URL it does not accept: another scheme, a path, a query, no host.
    pub fn parse(url: &str) -> Result<Endpoint, String> {
        let uri: http::Uri = url.parse().map_err(|why| format!("endpoint {url:?} is not a URL: {why}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("endpoint {url:?} must start with http:// or https://")),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(format!(
                "endpoint {url:?} must end after the host and port: the bucket has its own setting"
            ));
        }
        let host = uri.host().unwrap_or_default();
        let (own, port) = (if tls { 443 } else { 80 }, uri.port_u16());
        let port = port.unwrap_or(own);
        let authority = if port == own { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Endpoint { tls, authority, host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    /// The URL again, normalized.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

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

/// One request to come: a method on a key, or on the bucket itself.
#[derive(Debug)]
pub struct Call {
    method: Method,
    key: Option<String>,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    content: Bytes,
    payload: Option<Payload>,
}

impl Call {
    /// A call without query, headers or body.
    pub fn new(method: Method, key: Option<&str>) -> Call {
        let key = key.map(str::to_owned);
        Call {
            method,
            key,
            query: Vec::new(),
            headers: HeaderMap::new(),
            content: Bytes::new(),
            payload: None,
        }
    }
    /// GetObject.
    pub fn get(key: &str) -> Call {
        Call::new(Method::GET, Some(key))
    }
    /// HeadObject.
    pub fn head(key: &str) -> Call {
        Call::new(Method::HEAD, Some(key))
    }
    /// DeleteObject.
    pub fn delete(key: &str) -> Call {
        Call::new(Method::DELETE, Some(key))
    }
    /// PutObject.
    pub fn put(key: &str, body: impl Into<Bytes>) -> Call {
        Call::new(Method::PUT, Some(key)).body(body)
    }
    /// The body, sent at once.
    pub fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.content = body.into();
        self
    }
    /// Sends the body through `payload` instead, which must carry the same bytes.
    pub fn through(mut self, payload: Payload) -> Call {
        self.payload = Some(payload);
        self
    }
    /// One query parameter; an empty value stands for `?name=`.
    pub fn query(mut self, name: &str, value: &str) -> Call {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }
    /// One header. A value that HTTP forbids is left out: checks only send printable ones.
    pub fn header(mut self, name: &'static str, value: &str) -> Call {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }
    /// Any headers, beside those that are there.
    pub fn headers(mut self, headers: HeaderMap) -> Call {
        self.headers.extend(headers);
        self
    }
    /// `If-Match`, as given.
    pub fn if_match(self, etag: &str) -> Call {
        self.header("if-match", etag)
    }
    /// `If-None-Match`, as given.
    pub fn if_none_match(self, etag: &str) -> Call {
        self.header("if-none-match", etag)
    }
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
            Addressing::Path => endpoint.host.clone(),
            Addressing::Virtual => format!("{bucket}.{}", endpoint.host),
        }
    }

    /// Signs a call at this moment.
    pub fn sign(&self, call: Call) -> Signed {
        let Settings { endpoint, addressing, bucket, region, credentials, clock, .. } = &self.shared.settings;
        let key = call.key.map(|key| format!("/{key}")).unwrap_or_default();
        let (authority, path) = match addressing {
            Addressing::Path => (endpoint.authority.clone(), format!("/{bucket}{key}")),
            Addressing::Virtual if key.is_empty() => {
                (format!("{bucket}.{}", endpoint.authority), "/".to_owned())
            }
            Addressing::Virtual => (format!("{bucket}.{}", endpoint.authority), key),
        };
        let path = sign::encode_path(&path);
        let mut headers = call.headers;
        if let Ok(host) = HeaderValue::from_str(&authority) {
            headers.insert(HOST, host);
        }
        let payload_sha256 = sign::sha256_hex(&call.content);
        let request = sign::Request {
            method: call.method.as_str(),
            path: &path,
            query: &call.query,
            payload_sha256: &payload_sha256,
        };
        sign::sign(&request, &mut headers, credentials, region, clock());
        if matches!(call.method, Method::PUT | Method::POST) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(call.content.len()));
        }
        let target = match call.query.as_slice() {
            [] => path,
            query => format!("{path}?{}", sign::encode_query(query)),
        };
        let record = Exchange {
            method: call.method.to_string(),
            url: format!("{}://{authority}{target}", if endpoint.tls { "https" } else { "http" }),
            headers: shown(&headers),
            body: Excerpt::of(&call.content),
            answer: Err("not sent".to_owned()),
            duration_ms: 0,
        };
        let mut request = Request::new(call.payload.unwrap_or_else(|| Payload::whole(call.content)));
        *request.method_mut() = call.method;
        // The path is percent-encoded above, so it always parses; `/` would be answered, never a wrong key.
        *request.uri_mut() = target.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        Signed { request, record }
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
