//! A forwarder before a clean server that misbehaves in one way. What a deviation leaves alone goes on byte for
//! byte, with its signature; what it changes is signed anew for the server.

pub mod areas;

use assay_checks::{Answer, Call, Client, Form, Signing};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use md5::{Digest, Md5};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A request on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub method: Method,
    pub bucket: String,
    pub key: Option<String>,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether to sign anew although nothing is changed.
    pub resign: bool,
    /// Whether the body broke off.
    pub torn: bool,
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
    pub fn asked(&self, parameter: &str) -> &str {
        self.query.iter().find(|(name, _)| name == parameter).map_or("", |(_, value)| value)
    }
    pub fn unask(&mut self, parameter: &str) {
        self.query.retain(|(name, _)| name != parameter);
    }
    pub fn ask(&mut self, parameter: &str, value: &str) {
        self.unask(parameter);
        self.query.push((parameter.to_owned(), value.to_owned()));
    }
    pub fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
    pub fn is_copy(&self) -> bool {
        self.method == Method::PUT && self.has("x-amz-copy-source")
    }
    pub fn is_part(&self) -> bool {
        self.method == Method::PUT && self.asks("partNumber")
    }
    pub fn is_complete(&self) -> bool {
        self.method == Method::POST && self.asks("uploadId")
    }
    pub fn is_listing(&self) -> bool {
        self.method == Method::GET && self.key.is_none() && self.asks("prefix")
    }
    pub fn is_presigned(&self) -> bool {
        self.asks("X-Amz-Signature")
    }
    pub fn is_chunked(&self) -> bool {
        self.value("x-amz-content-sha256").starts_with("STREAMING-")
    }

    /// Takes the framing of chunks off the body. A trailer becomes a header, unless it is to be dropped.
    pub fn unchunk(&mut self, keep_trailer: bool) {
        let (mut out, mut rest) = (Vec::new(), self.body.clone());
        while let Some(line) = rest.windows(2).position(|pair| pair == b"\r\n") {
            let head = String::from_utf8_lossy(&rest[..line]).into_owned();
            let size = usize::from_str_radix(head.split(';').next().unwrap_or_default(), 16).unwrap_or(0);
            rest = rest.slice(line + 2..);
            if size == 0 {
                break;
            }
            out.extend_from_slice(&rest[..size]);
            rest = rest.slice(size + 2..);
        }
        for line in String::from_utf8_lossy(&rest).lines().filter(|_| keep_trailer) {
            if let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.ends_with("signature"))
            {
                let name = HeaderName::try_from(name).expect("a header");
                self.headers.insert(name, HeaderValue::from_str(value.trim()).expect("a value"));
            }
        }
        for name in ["content-encoding", "x-amz-decoded-content-length", "x-amz-trailer"] {
            self.headers.remove(name);
        }
        self.headers.insert("x-amz-content-sha256", HeaderValue::from_static(""));
        self.body = out.into();
    }

    fn unsign(&mut self) {
        if self.is_chunked() {
            self.unchunk(true);
        }
        for name in SIGNATURE {
            self.headers.remove(*name);
        }
        self.query.retain(|(name, _)| !name.starts_with("X-Amz-"));
        // A document that was changed has another digest.
        if self.asks("delete") {
            let digest = BASE64_STANDARD.encode(Md5::digest(&self.body));
            self.headers.insert("content-md5", HeaderValue::from_str(&digest).expect("base64"));
        }
    }
}

const SIGNATURE: &[&str] = &[
    "authorization",
    "host",
    "content-length",
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-security-token",
];

/// One way to misbehave.
#[derive(Clone, Copy)]
pub struct Deviation {
    pub name: &'static str,
    /// Changes a request; a status here is answered at once, with nothing forwarded.
    pub request: fn(&mut Seen) -> Option<u16>,
    /// Changes an answer.
    pub answer: fn(&Seen, &mut Answer),
    /// Reads that are answered again as they were the first time.
    pub remembers: fn(&Seen) -> bool,
}

/// A forwarder that changes nothing.
pub const CLEAN: Deviation =
    Deviation { name: "clean", request: |_| None, answer: |_, _| {}, remembers: |_| false };

/// The forwarder's own state.
struct Forwarder {
    deviation: Deviation,
    server: Client,
    buckets: Mutex<HashMap<String, Client>>,
    memory: Mutex<HashMap<String, Answer>>,
}

/// Starts a forwarder on loopback; it ends with the set that it runs in.
pub async fn start(deviation: Deviation, server: Client, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let forwarder =
        Arc::new(Forwarder { deviation, server, buckets: Mutex::default(), memory: Mutex::default() });
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP socket");
            let forwarder = forwarder.clone();
            // A task of its own: a request goes on although its client went away.
            let service = hyper::service::service_fn(move |request| {
                let forwarded = tokio::spawn(forward(forwarder.clone(), request));
                async { forwarded.await.expect("the forwarder does not panic") }
            });
            connections.spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    format!("http://{address}")
}

async fn forward(
    forwarder: Arc<Forwarder>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let deviation = forwarder.deviation;
    let (head, mut body) = request.into_parts();
    let (bucket, key) = bucket_and_key(head.uri.path());
    let mut seen = Seen {
        bucket,
        key,
        query: query_of(head.uri.query().unwrap_or_default()),
        method: head.method,
        headers: head.headers,
        body: Bytes::new(),
        resign: false,
        torn: false,
    };
    let server = forwarder.server_for(&seen.bucket);
    let mut original = seen.clone();
    let mut received = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => received.extend(frame.into_data().unwrap_or_default()),
            Err(_) => seen.torn = true,
        }
        if seen.torn {
            break;
        }
    }
    seen.body = received.into();
    (original.body, original.torn) = (seen.body.clone(), seen.torn);
    if let Some(status) = (deviation.request)(&mut seen) {
        return Ok(plain(status));
    }
    if seen.torn {
        return Ok(plain(400));
    }
    let memory =
        format!("{} {} {:?} {:?} {}", seen.method, seen.bucket, seen.key, seen.query, seen.value("range"));
    let remembered = (deviation.remembers)(&seen).then(|| forwarder.memory.lock().expect("unpoisoned"));
    if let Some(answer) = remembered.and_then(|known| known.get(&memory).cloned()) {
        return Ok(back(&seen, answer));
    }
    let changed = seen != original;
    if changed {
        seen.unsign();
    }
    match server.send(onward(&seen, changed)).await {
        Err(_) => Ok(plain(502)),
        Ok(mut answer) => {
            (deviation.answer)(&seen, &mut answer);
            if (deviation.remembers)(&seen) {
                forwarder.memory.lock().expect("unpoisoned").insert(memory, answer.clone());
            }
            Ok(back(&seen, answer))
        }
    }
}

impl Forwarder {
    fn server_for(&self, bucket: &str) -> Client {
        if bucket == self.server.settings().bucket {
            return self.server.clone();
        }
        let mut buckets = self.buckets.lock().expect("unpoisoned");
        buckets.entry(bucket.to_owned()).or_insert_with(|| self.server.in_bucket(bucket)).clone()
    }
}

fn onward(seen: &Seen, changed: bool) -> Call {
    let call = Call::new(seen.method.clone(), seen.key.as_deref());
    let call = seen.query.iter().fold(call, |call, (name, value)| call.query(name, value));
    let call = call.headers(seen.headers.clone()).body(seen.body.clone());
    match changed {
        true => call,
        false => call.signing(Signing { form: Form::Absent, ..Signing::default() }),
    }
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

/// The bucket and key of a path-style path, decoded.
fn bucket_and_key(path: &str) -> (String, Option<String>) {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    (decoded(bucket), (!key.is_empty()).then(|| decoded(key)))
}

fn query_of(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect()
}

pub fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
