//! Load over raw keep-alive connections: requests are signed and written out before the clock starts, so that
//! what is measured is the server and as little else as possible.

use assay_checks::{Call, Client};
use assay_ci::clock;
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One request, ready to be written.
#[derive(Clone)]
pub struct Shot {
    head: Bytes,
    body: Bytes,
}

impl Shot {
    /// Signs a call and writes out its head.
    pub fn new(client: &Client, call: Call, body: &Bytes) -> Shot {
        let signed = client.sign(call.body(body.clone()));
        let request = signed.request();
        let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
        for (name, value) in request.headers() {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        Shot { head: head.into(), body: body.clone() }
    }
}

/// What one run measured.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Requests a second over all connections.
    pub per_second: f64,
    /// Latency that half of the requests stay within, in microseconds.
    pub p50_us: u64,
    /// Latency that 99 of 100 requests stay within, in microseconds.
    pub p99_us: u64,
}

impl Measure {
    fn of(mut latencies: Vec<Duration>, elapsed: Duration) -> Measure {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
            latencies.get(index).map_or(0, |latency| latency.as_micros() as u64)
        };
        Measure {
            per_second: latencies.len() as f64 / elapsed.as_secs_f64(),
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }
}

/// Sends every connection's shots one after the other, all connections at once.
///
/// # Errors
/// A connection broke, or an answer was not 2xx: a figure of refusals would say nothing.
pub async fn run(authority: &str, connections: Vec<Vec<Shot>>) -> io::Result<Measure> {
    let mut sockets = Vec::new();
    for shots in connections {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        sockets.push((stream, shots));
    }
    let began = clock::now();
    let tasks: Vec<_> =
        sockets.into_iter().map(|(stream, shots)| tokio::spawn(fire(stream, shots))).collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.map_err(io::Error::other)??);
    }
    Ok(Measure::of(latencies, began.elapsed()))
}

async fn fire(mut stream: TcpStream, shots: Vec<Shot>) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(shots.len());
    let (mut out, mut read) = (Vec::with_capacity(8192), Vec::with_capacity(8192));
    for shot in shots {
        out.clear();
        out.extend_from_slice(&shot.head);
        out.extend_from_slice(&shot.body);
        let began = clock::now();
        stream.write_all(&out).await?;
        let status = answer(&mut stream, &mut read).await?;
        latencies.push(began.elapsed());
        if !(200..300).contains(&status) {
            let head = String::from_utf8_lossy(&shot.head);
            let line = head.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("{line} -> {status}: {}", String::from_utf8_lossy(&read))));
        }
    }
    Ok(latencies)
}

/// Reads one whole answer into `read` and returns its status.
async fn answer(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<u16> {
    read.clear();
    let head = loop {
        more(stream, read).await?;
        if let Some(end) = find(read, b"\r\n\r\n", 0) {
            break Head::parse(&read[..end + 4])?;
        }
    };
    match head.body {
        Length::Exactly(length) => {
            while read.len() < head.length + length {
                more(stream, read).await?;
            }
        }
        // Every chunked answer here is short and ends with an empty chunk without trailers.
        Length::Chunked => {
            while !read.ends_with(b"\r\n0\r\n\r\n") && !read[head.length..].starts_with(b"0\r\n\r\n") {
                more(stream, read).await?;
            }
        }
    }
    Ok(head.status)
}

async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<()> {
    if stream.read_buf(read).await? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed a keep-alive connection",
        ));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: usize,
    body: Length,
}

#[derive(Debug, PartialEq, Eq)]
enum Length {
    Exactly(usize),
    Chunked,
}

impl Head {
    fn parse(head: &[u8]) -> io::Result<Head> {
        let text = String::from_utf8_lossy(head);
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {text}"));
        let status: u16 = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
        let mut body = Length::Exactly(0);
        for line in text.lines().skip(1) {
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                body = Length::Exactly(value.trim().parse().map_err(|_| bad())?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                body = Length::Chunked;
            }
        }
        Ok(Head { status, length: head.len(), body })
    }
}

fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    haystack.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|at| at + from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_status_and_length() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(
            Head::parse(head).unwrap(),
            Head { status: 200, length: head.len(), body: Length::Exactly(5) }
        );
        let chunked = Head::parse(b"HTTP/1.1 403 No\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        assert_eq!((chunked.status, chunked.body), (403, Length::Chunked));
        assert!(Head::parse(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn percentiles_are_of_the_sorted_latencies() {
        let latencies = (1..=100).rev().map(Duration::from_micros).collect();
        let measure = Measure::of(latencies, Duration::from_secs(2));
        assert_eq!((measure.p50_us, measure.p99_us), (51, 100));
        assert!((measure.per_second - 50.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn a_refusal_ends_the_run() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = [0; 64];
            let _ = stream.read(&mut read).await.unwrap();
            stream.write_all(b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        });
        let shot = Shot { head: Bytes::from_static(b"GET /k HTTP/1.1\r\n\r\n"), body: Bytes::new() };
        let error = run(&authority, vec![vec![shot]]).await.unwrap_err().to_string();
        assert!(error.contains("GET /k HTTP/1.1 -> 503"), "{error}");
    }
}
