//! HTTP by hand, over a socket: what an HTTP library would hide can be seen and done here.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Answer;

/// No answer of these tests takes longer, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(20);

pub struct Wire {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

/// The head of an answer, and whether it says that the connection ends.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub headers: HeaderMap,
}

pub async fn within<T>(job: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, job).await.expect("no answer within the limit")
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), unread: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request with a body whose length is announced.
    pub async fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        self.send(head(method, path, headers, body.len() as u64)).await;
        self.send(body).await;
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.request(method, path, headers, body).await;
        self.answer(method == "HEAD").await
    }

    pub async fn head(&mut self) -> Head {
        within(async {
            loop {
                if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                    let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                    return parse(&String::from_utf8(head).unwrap());
                }
                assert!(self.fill().await, "the connection ended within a head: {:?}", self.unread);
            }
        })
        .await
    }

    /// Reads an answer; one to HEAD, a 204 and a 304 have no body whatever their head says.
    pub async fn answer(&mut self, to_head: bool) -> Answer {
        let head = self.head().await;
        let bodiless = to_head || matches!(head.status, 100..200 | 204 | 304);
        let length = head.headers.get("content-length").map_or(0, |v| v.to_str().unwrap().parse().unwrap());
        let body = if bodiless { Bytes::new() } else { self.take(length).await };
        Answer { status: head.status, headers: head.headers, body }
    }

    /// The next bytes of a body.
    pub async fn take(&mut self, length: usize) -> Bytes {
        let all = async {
            while self.unread.len() < length {
                assert!(
                    self.fill().await,
                    "the connection ended after {} of {length} bytes",
                    self.unread.len()
                );
            }
        };
        within(all).await;
        self.unread.drain(..length).collect::<Vec<_>>().into()
    }

    async fn fill(&mut self) -> bool {
        self.unread.reserve(64 * 1024);
        self.stream.read_buf(&mut self.unread).await.unwrap_or(0) > 0
    }

    /// Whether anything comes before the connection ends.
    pub async fn says(&mut self) -> bool {
        !self.unread.is_empty() || within(self.fill()).await
    }

    /// Whether the server closes the connection, with nothing more to say.
    pub async fn ends(&mut self) -> bool {
        !within(self.fill()).await && self.unread.is_empty()
    }
}

/// The head of a request.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)], length: u64) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if length > 0 || matches!(method, "PUT" | "POST") {
        head += &format!("content-length: {length}\r\n");
    }
    head + "\r\n"
}

fn parse(head: &str) -> Head {
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), value.trim().parse::<HeaderValue>().unwrap())
        })
        .collect();
    Head { status, headers }
}
