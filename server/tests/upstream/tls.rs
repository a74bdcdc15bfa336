//! An upstream on https, with a certificate that a test made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assay_server::{AuthMode, Server};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::client::wire::Wire;
use crate::{provider, standing, upstream};

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/certificates").join(name)
}

/// Ends TLS in front of a server, on a port of its own.
async fn with_tls(server: &Server) -> String {
    let chain = CertificateDer::pem_file_iter(certificate("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let (acceptor, behind) = (TlsAcceptor::from(Arc::new(config)), server.address());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever does not trust the certificate hangs up.
                let Ok(mut front) = acceptor.accept(socket).await else { return };
                let mut back = TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
            });
        }
    });
    format!("https://localhost:{port}")
}

#[tokio::test]
async fn an_upstream_on_https_must_be_trusted() {
    let provider = provider().start().await.unwrap();
    let endpoint = with_tls(&provider).await;
    let proxy = |upstream| standing(Server::builder()).auth(AuthMode::None).upstream(upstream).start();
    let trusting = proxy(upstream(&endpoint).ca_file(certificate("ca.pem"))).await.unwrap();
    let mut wire = Wire::connect(trusting.address()).await;
    let body = vec![b'x'; 300_000];
    wire.ask("PUT", "/bucket/k", &[], &body).await.expect(200);
    assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.expect(200).body, body);
    let careful = proxy(upstream(&endpoint)).await.unwrap();
    let mut wire = Wire::connect(careful.address()).await;
    let refused = wire.ask("GET", "/bucket/k", &[], b"").await.expect_code(502, "BadGateway");
    assert!(refused.only("Message").contains("certificate"), "{}", refused.text());
    let nowhere = proxy(upstream(&endpoint).ca_file(certificate("none.pem"))).await.err().unwrap();
    assert!(nowhere.to_string().contains("none.pem"), "{nowhere}");
}
