//! Connections to the upstream: made when needed, kept for a moment, never used to send anything twice.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Endpoint;
use super::body::Fed;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection is kept without use: less than the 5 s after which common servers close one, since a request
/// that meets the close is one whose outcome is not known.
const IDLE: Duration = Duration::from_secs(3);

/// Connections that are kept.
const MAX_IDLE: usize = 64;

/// Bytes of an answer's head that are taken.
const MAX_HEAD_BYTES: usize = 256 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Nothing was sent.
    #[error("cannot be reached: {0}; nothing was asked of it")]
    NotReached(String),
    /// The request may have been done.
    #[error("broke off before it answered: {0}; whether it did what was asked is not known")]
    Unknown(String),
}

/// All causes of an error in one line.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Connections to one endpoint.
pub(super) struct Pool {
    endpoint: Endpoint,
    tls: Tls,
    idle: Arc<Mutex<Vec<Idle>>>,
}

/// A connection without a request, and since when.
type Idle = (Instant, SendRequest<Fed>);

impl Pool {
    /// # Errors
    /// Where the certificates can't be used.
    pub(super) fn new(endpoint: &Endpoint, ca_file: Option<&Path>) -> Result<Self, String> {
        Ok(Self { endpoint: endpoint.clone(), tls: Tls::new(endpoint, ca_file)?, idle: Arc::default() })
    }

    /// Sends a request once and gives its answer's head. What was never written to a connection that turned out
    /// to be closed goes over another one.
    pub(super) async fn send(&self, mut request: Request<Fed>) -> Result<Response<Incoming>, Failure> {
        loop {
            let kept = self.take();
            let fresh = kept.is_none();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    self.keep_when_ready(sender);
                    return Ok(answer);
                }
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    Some(_) => return Err(Failure::NotReached(causes(refused.error()))),
                    None => return Err(Failure::Unknown(causes(refused.error()))),
                },
            }
        }
    }

    fn take(&self) -> Option<SendRequest<Fed>> {
        let mut idle = self.idle.lock();
        idle.retain(|(since, sender)| since.elapsed() < IDLE && sender.is_ready());
        idle.pop().map(|(_, sender)| sender)
    }

    /// Puts a connection back once the answer's body has been read; one whose body is dropped closes.
    fn keep_when_ready(&self, mut sender: SendRequest<Fed>) {
        let idle = self.idle.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let mut idle = idle.lock();
                if idle.len() < MAX_IDLE {
                    idle.push((Instant::now(), sender));
                }
            }
        });
    }

    async fn connect(&self) -> Result<SendRequest<Fed>, Failure> {
        let connecting = async {
            let address = (self.endpoint.host.as_str(), self.endpoint.port);
            let socket = TcpStream::connect(address).await.map_err(|error| causes(&error))?;
            socket.set_nodelay(true).map_err(|error| causes(&error))?;
            self.tls.shake_hands(socket).await
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(Failure::NotReached),
            Err(_) => {
                Err(Failure::NotReached(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))
            }
        }
    }
}

/// HTTP over a socket; the connection lives in a task of its own until it is closed or no longer wanted.
async fn speak_http<S>(socket: S) -> Result<SendRequest<Fed>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(|error| causes(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the upstream ended early");
        }
    });
    Ok(sender)
}

/// What an `https` upstream needs.
#[cfg(feature = "tls")]
struct Tls(Option<(tokio_rustls::TlsConnector, tokio_rustls::rustls::pki_types::ServerName<'static>)>);

#[cfg(feature = "tls")]
impl Tls {
    fn new(endpoint: &Endpoint, ca_file: Option<&Path>) -> Result<Self, String> {
        use tokio_rustls::rustls::pki_types::pem::PemObject as _;
        use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

        if !endpoint.tls {
            return Ok(Self(None));
        }
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(file) = ca_file {
            let fault = |error: &(dyn std::error::Error + 'static)| {
                format!("no certificates in PEM can be read from {}: {}", file.display(), causes(error))
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(|error| fault(&error))? {
                let certificate = certificate.map_err(|error| fault(&error))?;
                roots.add(certificate).map_err(|error| fault(&error))?;
            }
        }
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|_| {
            format!("the upstream's host {:?} is no name that a certificate can have", endpoint.host)
        })?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| causes(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Some((Arc::new(config).into(), name))))
    }

    async fn shake_hands(&self, socket: TcpStream) -> Result<SendRequest<Fed>, String> {
        match &self.0 {
            None => speak_http(socket).await,
            Some((connector, name)) => {
                let socket = connector.connect(name.clone(), socket).await.map_err(|error| causes(&error))?;
                speak_http(socket).await
            }
        }
    }
}

/// No `https` in this build.
#[cfg(not(feature = "tls"))]
struct Tls;

#[cfg(not(feature = "tls"))]
impl Tls {
    fn new(endpoint: &Endpoint, _ca_file: Option<&Path>) -> Result<Self, String> {
        if endpoint.tls {
            return Err(format!("the upstream {endpoint} needs TLS: build with the feature `tls`"));
        }
        Ok(Self)
    }

    async fn shake_hands(&self, socket: TcpStream) -> Result<SendRequest<Fed>, String> {
        speak_http(socket).await
    }
}
