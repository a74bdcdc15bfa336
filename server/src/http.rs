//! The edge: sockets in, hyper between, sockets out.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::service::{RequestBody, Service};

/// How long a client may take to send the head of a request. An idle connection counts as one that is late.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long requests under way may still take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a body that nobody wants is read: enough for most uploads, and no more than a moment on loopback.
const MAX_DRAIN_BYTES: u64 = 64 * 1024 * 1024;

/// How long such a body may stop arriving before the connection is given up.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// A pause after the system refused a connection, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a request's head that hyper takes; S3's own, smaller limit answers before that.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Accepts until `stop` changes, then lets requests under way end.
pub(crate) async fn serve(listener: TcpListener, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(connection(socket, service.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = stop.changed() => break,
        }
    }
    drop(listener);
    let ended = timeout(STOP_TIMEOUT, async { while connections.join_next().await.is_some() {} });
    if ended.await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections whose requests did not end");
    }
}

async fn connection(socket: TcpStream, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    // Head and body leave at once; without this a small answer can wait for the client's delayed ACK.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let service = service.clone();
        async move {
            let (head, body) = request.into_parts();
            let mut body: RequestBody = body.map_err(Into::into).boxed();
            // Reading would ask a client that waits for a `100 Continue` to send what nobody wants.
            let waits = head.headers.contains_key(http::header::EXPECT);
            let response = service.call(head, &mut body).await;
            if !waits && !body.is_end_stream() {
                tokio::spawn(drain(body));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .auto_date_header(false) // the service sets it, by its own clock
        .serve_connection(TokioIo::new(socket), answer);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Reads the rest of a body that the answer did not need, while that is on its way: a client that sends all before
/// it reads then finds the answer, and the connection can be used again.
async fn drain(mut body: RequestBody) {
    let mut left = MAX_DRAIN_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(DRAIN_TIMEOUT, body.frame()).await {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}

/// A listener on `address` and what it is bound to.
///
/// # Errors
/// What the system says, most often that the port is in use.
pub(crate) async fn bind(address: std::net::SocketAddr) -> io::Result<(TcpListener, std::net::SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}
