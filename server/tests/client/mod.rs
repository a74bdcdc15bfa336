//! What the tests of the server share: an engine on either store under a clock of their own, and answers in
//! a form that is easy to compare.

#![allow(dead_code, reason = "each test crate uses a part of it")]

pub mod sign;
pub mod slow;
pub mod wire;
pub mod xml;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use assay_server::{AuthMode, Builder, Engine, Instant, Server};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};

/// 2026-11-29 12:00:00 UTC, when every test begins.
pub const START_MS: i64 = 1_795_953_600_000;

/// Which store a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Memory,
    Disk,
}

/// Both stores, for tests with one body.
pub const BOTH: [On; 2] = [On::Memory, On::Disk];

/// A clock that the test moves.
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    pub fn pass_s(&self, seconds: u64) {
        self.0.fetch_add(i64::try_from(seconds).unwrap() * 1000, Ordering::Relaxed);
    }

    pub fn epoch_s(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed) / 1000).unwrap()
    }
}

/// An engine, its clock and, on disk, its directory.
pub struct Rig {
    pub engine: Arc<Engine>,
    pub clock: Clock,
    pub directory: Option<tempfile::TempDir>,
}

impl Rig {
    /// An engine with a bucket named `bucket`, nobody's signature checked.
    pub async fn new(on: On) -> Self {
        Self::with(on, |builder| builder).await
    }

    pub async fn with(on: On, change: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = Clock::new();
        let directory = (on == On::Disk).then(|| tempfile::tempdir().unwrap());
        let mut builder = change(settings(&clock));
        if let Some(directory) = &directory {
            builder = builder.data(directory.path());
        }
        Self { engine: Arc::new(builder.build().await.unwrap()), clock, directory }
    }

    /// The files of bodies in the directory.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        self.directory.as_ref().map_or_else(Vec::new, |directory| files_in(directory.path()))
    }

    pub async fn call(&self, method: &str, target: &str) -> Answer {
        self.send(method, target, &[], "").await
    }

    pub async fn put(&self, target: &str, body: impl Into<Bytes>) -> Answer {
        self.send("PUT", target, &[], body).await
    }

    pub async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        send(&self.engine, method, target, headers, body).await
    }
}

/// The settings that all tests begin with.
pub fn settings(clock: &Clock) -> Builder {
    let now = clock.0.clone();
    Server::builder()
        .bucket("bucket")
        .auth(AuthMode::None)
        .seed(7)
        .clock(move || Instant::from_epoch_ms(now.load(Ordering::Relaxed)))
}

/// The files of bodies below a data directory.
pub fn files_in(data: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(data.join("blobs")).into_iter().flatten() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    files
}

/// Sends one request; a target without a leading slash lies in the bucket named `bucket`.
pub async fn send(
    engine: &Engine,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let body = body.into();
    let mut request =
        Request::builder().method(method).uri(path_of("bucket", target)).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !body.is_empty() || matches!(method, "PUT" | "POST") {
        request = request.header("content-length", body.len());
    }
    Answer::of(engine.call(request.body(Full::new(body)).unwrap()).await).await
}

/// The path of a target within a bucket.
pub fn path_of(bucket: &str, target: &str) -> String {
    match target.chars().next() {
        Some('/') => target.to_owned(),
        Some('?') => format!("/{bucket}{target}"),
        _ => format!("/{bucket}/{target}"),
    }
}

/// An answer with its whole body.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub async fn of(response: http::Response<assay_server::Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header; all values where there are several, joined by a comma.
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        (!values.is_empty()).then(|| values.join(","))
    }

    pub fn etag(&self) -> String {
        self.header("etag").unwrap_or_else(|| self.only("ETag"))
    }

    /// The texts of all elements at a path below the root.
    pub fn all(&self, path: &str) -> Vec<String> {
        xml::parse(&self.text()).map(|root| root.texts(path)).unwrap_or_default()
    }

    /// The text of the one element at a path.
    #[track_caller]
    pub fn only(&self, path: &str) -> String {
        let mut found = self.all(path);
        assert_eq!(found.len(), 1, "elements {path} in {self:?}");
        found.remove(0)
    }

    pub fn code(&self) -> String {
        self.all("Code").concat()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    #[track_caller]
    pub fn expect_code(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.text());
        self
    }
}
