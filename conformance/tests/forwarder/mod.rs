//! A forwarder before a clean server that misbehaves in one way. It signs anew for the server, so it can
//! change headers that the client had signed.

use assay_checks::{Answer, Call, Client};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A request on its way, without its signature.
pub struct Seen {
    pub method: Method,
    pub key: Option<String>,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn has(&self, header: &str) -> bool {
        self.headers.contains_key(header)
    }
    pub fn value(&self, header: &str) -> &str {
        self.headers.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
    pub fn asks(&self, parameter: &str) -> bool {
        self.query.iter().any(|(name, _)| name == parameter)
    }
    pub fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
    pub fn is_copy(&self) -> bool {
        self.method == Method::PUT && self.has("x-amz-copy-source")
    }
    pub fn is_put(&self) -> bool {
        self.method == Method::PUT && !self.is_copy() && !self.asks("uploadId")
    }
    pub fn is_complete(&self) -> bool {
        self.method == Method::POST && self.asks("uploadId")
    }
    pub fn is_delete(&self) -> bool {
        self.method == Method::DELETE && !self.asks("uploadId")
    }
}

/// One way to misbehave.
#[derive(Clone, Copy)]
pub struct Deviation {
    pub name: &'static str,
    /// Changes a request; a status here is answered at once, with nothing forwarded.
    pub request: fn(&mut Seen) -> Option<u16>,
    /// Changes an answer.
    pub answer: fn(&Seen, &mut Answer),
    /// Looks at this condition of a PUT when its head arrives, and forwards it without.
    pub check_then_act: Option<&'static str>,
}

/// A forwarder that changes nothing.
pub const CLEAN: Deviation =
    Deviation { name: "clean", request: |_| None, answer: |_, _| {}, check_then_act: None };

/// Starts a forwarder on loopback; it ends with the set that it runs in.
pub async fn start(deviation: Deviation, server: Client, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP socket");
            let server = server.clone();
            let service =
                hyper::service::service_fn(move |request| forward(deviation, server.clone(), request));
            connections.spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    format!("http://{address}")
}

async fn forward(
    deviation: Deviation,
    server: Client,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut seen = Seen {
        key: key_of(head.uri.path()),
        query: query_of(head.uri.query().unwrap_or_default()),
        method: head.method,
        headers: without_signature(head.headers),
        body: Bytes::new(),
    };
    if let Some(header) = deviation.check_then_act
        && seen.is_put()
        && let Some(refused) = checked(&server, &mut seen, header).await
    {
        return Ok(refused);
    }
    let Ok(body) = body.collect().await else {
        return Ok(plain(400));
    };
    seen.body = body.to_bytes();
    if let Some(status) = (deviation.request)(&mut seen) {
        return Ok(plain(status));
    }
    let call =
        seen.query.iter().fold(Call::new(seen.method.clone(), seen.key.as_deref()), |call, (name, value)| {
            call.query(name, value)
        });
    match server.send(call.headers(seen.headers.clone()).body(seen.body.clone())).await {
        Err(_) => Ok(plain(502)),
        Ok(mut answer) => {
            (deviation.answer)(&seen, &mut answer);
            Ok(back(&seen, answer))
        }
    }
}

/// Checks the condition by a read of its own, and takes it from the request.
async fn checked(server: &Client, seen: &mut Seen, header: &str) -> Option<Response<Full<Bytes>>> {
    // What the server refuses whatever the state is left to it.
    if seen.has("if-match") == seen.has("if-none-match")
        || (seen.value(header) == "*") != (header == "if-none-match")
    {
        return None;
    }
    let value = seen.headers.remove(header)?;
    let key = seen.key.clone()?;
    let current = server.send(Call::head(&key)).await.ok()?;
    let present = current.status == StatusCode::OK;
    let equal = value.to_str().is_ok_and(|value| value.trim_matches('"') == current.etag().trim_matches('"'));
    match (header, present) {
        ("if-none-match", true) => Some(refusal("If-None-Match")),
        ("if-match", true) if !equal => Some(refusal("If-Match")),
        ("if-match", false) => Some(document(404, "<Error><Code>NoSuchKey</Code></Error>".to_owned())),
        _ => None,
    }
}

fn refusal(condition: &str) -> Response<Full<Bytes>> {
    document(412, format!("<Error><Code>PreconditionFailed</Code><Condition>{condition}</Condition></Error>"))
}

fn plain(status: u16) -> Response<Full<Bytes>> {
    document(status, String::new())
}

fn document(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

fn back(seen: &Seen, answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    for name in ["connection", "transfer-encoding"] {
        response.headers_mut().remove(name);
    }
    if seen.method != Method::HEAD {
        response.headers_mut().remove("content-length");
    }
    response
}

fn without_signature(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        "authorization",
        "host",
        "content-length",
        "x-amz-date",
        "x-amz-content-sha256",
        "x-amz-security-token",
    ] {
        headers.remove(name);
    }
    headers
}

/// The key of a path-style path, decoded; `None` for the bucket itself.
fn key_of(path: &str) -> Option<String> {
    let key = path.strip_prefix('/')?.split_once('/')?.1;
    (!key.is_empty()).then(|| decoded(key))
}

fn query_of(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect()
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().expect("the client sends UTF-8").into_owned()
}
