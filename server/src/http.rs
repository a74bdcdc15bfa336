//! The edge: sockets in, hyper between, sockets out.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::control;
use crate::fault::Outage;
use crate::service::{Door, Ending, Peer, RequestBody, Service};

/// How long a client may take to send the head of a request. An idle connection counts as one that is late.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long requests under way may still take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a body that nobody wants is read: enough for most uploads, and no more than a moment on loopback.
const MAX_DRAIN_BYTES: u64 = 64 * 1024 * 1024;

/// How long such a body may stop arriving before the connection is given up.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// A pause after the system refused something, most likely for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a request's head that hyper takes; S3's own, smaller limit answers before that.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Accepts until `stop` changes, then lets requests under way end.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Door,
    service: Arc<Service>,
    mut stop: watch::Receiver<bool>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let mut outage = service.outage.watch();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut number = 0;
    // Nothing is ever sent: the channel ends with the last write, also of one whose connection is gone.
    let (alive, mut writes) = mpsc::channel::<Infallible>(1);
    loop {
        let refuses = door == Door::S3 && refuses(&service);
        if refuses {
            // Nothing listens, so the system itself refuses; those that are connected cut themselves off.
            listener = None;
        } else if listener.is_none() {
            listener = listen_again(address).await;
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => match accepted {
                Ok((socket, address)) => {
                    number += 1;
                    let peer = Peer { connection: number, address: address.ip(), door };
                    connections.spawn(connection(socket, peer, service.clone(), alive.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = outage.changed() => {}
            // An outage with an end of its own ends by the server's clock, which tells nobody.
            () = tokio::time::sleep(PAUSE), if refuses => {}
            _ = stop.changed() => break,
        }
    }
    service.stop();
    drop((listener, alive));
    let ended = timeout(STOP_TIMEOUT, async {
        while connections.join_next().await.is_some() {}
        writes.recv().await
    });
    if ended.await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections whose requests did not end");
    }
}

fn refuses(service: &Service) -> bool {
    service.outage.at((service.settings.clock)()) == Some(Outage::Refuse)
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// The listener of before the outage. Its port may be taken meanwhile, so it is asked for again and again.
async fn listen_again(address: SocketAddr) -> Option<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%error, %address, "cannot listen again");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

/// A connection that ends without an answer: a fault has it so, or the request failed within.
#[derive(Debug, thiserror::Error)]
#[error("the connection ends without an answer")]
struct Gone;

async fn connection(
    socket: TcpStream,
    peer: Peer,
    service: Arc<Service>,
    alive: mpsc::Sender<Infallible>,
    mut stop: watch::Receiver<bool>,
) {
    // Head and body leave at once; without this a small answer can wait for the client's delayed ACK.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let mut outage = service.outage.watch();
    let watched = service.clone();
    // Whether its last request was for a control path: the one that begins an outage is still answered.
    let controls = Arc::new(AtomicBool::new(false));
    let of_control = controls.clone();
    let requests = service_fn(move |request: hyper::Request<Incoming>| {
        let (service, alive) = (service.clone(), alive.clone());
        of_control.store(control::is_control_path(request.uri().path()), Ordering::Relaxed);
        async move {
            let ending = match *request.method() {
                Method::GET | Method::HEAD => answer(&service, request, peer).await,
                // A write that has begun comes to its end though its client goes away: what it replaced must go.
                _ => tokio::spawn(async move {
                    let _alive = alive;
                    answer(&service, request, peer).await
                })
                .await
                .map_err(|_| Gone)?,
            };
            match ending {
                Ending::Answer(response) => Ok(response),
                Ending::Reset => Err(Gone),
                Ending::Never => std::future::pending().await,
            }
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .auto_date_header(false) // the service sets it, by its own clock
        .serve_connection(TokioIo::new(socket), requests);
    let cut_off = async {
        // The sender lives as long as the service.
        while !(peer.door == Door::S3 && refuses(&watched)) && outage.changed().await.is_ok() {}
    };
    let broken = tokio::select! {
        ended = &mut connection => Some(ended.is_err()),
        _ = stop.changed() => None,
        () = cut_off => (!controls.load(Ordering::Relaxed)).then_some(true),
    };
    let broken = match broken {
        Some(broken) => broken,
        None => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await.is_err()
        }
    };
    if broken {
        tracing::debug!(number = peer.connection, "a connection ended early");
        // What ends early was cut: by the client, or by a fault. With no time to linger the client sees a reset.
        if let Err(error) = connection.into_parts().io.into_inner().set_zero_linger() {
            tracing::debug!(%error, "could not reset a connection");
        }
    }
}

async fn answer(service: &Service, request: hyper::Request<Incoming>, peer: Peer) -> Ending {
    let (head, body) = request.into_parts();
    let mut body: RequestBody = body.map_err(Into::into).boxed();
    // Reading would ask a client that waits for a `100 Continue` to send what nobody wants.
    let waits = head.headers.contains_key(http::header::EXPECT);
    // A request's whole life is 10 KB of state, which would be moved once for every layer around it.
    let ending = Box::pin(service.call(head, &mut body, Some(peer))).await;
    if !waits && !body.is_end_stream() {
        tokio::spawn(drain(body));
    }
    ending
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
pub(crate) async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}
