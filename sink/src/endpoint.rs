//! The HTTP endpoint for those who watch a sink: `/metrics` for Prometheus, `/status` as JSON.
//!
//! Reads only. It listens on loopback unless the configuration names another address.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::metrics::Metrics;

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections at once: a few scrapers and people, and no more memory than that.
const MAX_CONNECTIONS: usize = 64;

/// A pause after the system refused a connection, most likely for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the JSON of `/status` when it is asked for.
pub type StatusText = Arc<dyn Fn() -> String + Send + Sync>;

/// A listening endpoint; dropping it ends it with its connections.
pub struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.address).finish()
    }
}

impl Endpoint {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be bound: choose another, or none.
    pub async fn listen(address: SocketAddr, metrics: Metrics, status: StatusText) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, metrics, status));
        Ok(Self { address, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, metrics: Metrics, status: StatusText) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(connections.spawn(connection(socket, metrics.clone(), status.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection to the metrics");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(socket: TcpStream, metrics: Metrics, status: StatusText) {
    let answer = service_fn(|request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &metrics, &status);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(socket), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the metrics broke");
    }
}

fn respond(method: &Method, path: &str, metrics: &Metrics, status: &StatusText) -> Response<Full<Bytes>> {
    let (code, kind, body) = match path {
        _ if !matches!(*method, Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned())
        }
        "/metrics" => (StatusCode::OK, prometheus::TEXT_FORMAT, metrics.text()),
        "/status" => (StatusCode::OK, "application/json", status()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "/metrics and /status are here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(address: SocketAddr, method: &str, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_and_status_are_served() {
        let metrics = Metrics::new("orders", "s3");
        let status: StatusText = Arc::new(|| r#"{"epoch":"1"}"#.to_owned());
        let endpoint = Endpoint::listen(([127, 0, 0, 1], 0).into(), metrics.clone(), status).await.unwrap();
        metrics.epoch.set(7);
        for (method, path, head, body) in [
            (
                "GET",
                "/metrics",
                "HTTP/1.1 200",
                "deltaforge_sink_s3_epoch{pipeline=\"orders\",sink=\"s3\"} 7\n",
            ),
            ("GET", "/status", "application/json", "\r\n\r\n{\"epoch\":\"1\"}"),
            ("GET", "/", "HTTP/1.1 404", "/metrics and /status are here"),
            ("POST", "/metrics", "HTTP/1.1 405", "GET only"),
        ] {
            let answer = get(endpoint.address(), method, path).await;
            assert!(answer.contains(head) && answer.contains(body), "{method} {path}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_dropped_endpoint_listens_no_more() {
        let status: StatusText = Arc::new(String::new);
        let endpoint =
            Endpoint::listen(([127, 0, 0, 1], 0).into(), Metrics::new("orders", "s3"), status).await.unwrap();
        let address = endpoint.address();
        drop(endpoint);
        // The task ends at its next poll, which aborting it asked for.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
