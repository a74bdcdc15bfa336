//! In front of a provider: one embedded server stands in front of another, or of a peer that the test plays by hand.

#[path = "../client/mod.rs"]
mod client;

mod failures;
mod faults;
mod heads;
mod passage;
mod peer;
#[cfg(feature = "tls")]
mod tls;

use assay_server::{AuthMode, Builder, Instant, Record, Server, Upstream};
use client::START_MS;
use client::sign::Signer;
use client::wire::Wire;

/// The time of both servers.
const NOW: &str = "20261129T120000Z";

/// A server that checks every signature against keys of its own, and one in front of it with other keys.
struct Pair {
    provider: Server,
    proxy: Server,
    wire: Wire,
}

fn standing(builder: Builder) -> Builder {
    builder.clock(|| Instant::from_epoch_ms(START_MS)).seed(7)
}

fn provider() -> Builder {
    standing(Server::builder()).bucket("bucket").credentials("real", "secret").region("eu-west-1")
}

fn upstream(endpoint: &str) -> Upstream {
    Upstream::new(endpoint, "real", "secret").region("eu-west-1")
}

/// A proxy to this endpoint that lets everyone in.
async fn proxy_to(endpoint: &str) -> Server {
    standing(Server::builder()).auth(AuthMode::None).upstream(upstream(endpoint)).start().await.unwrap()
}

impl Pair {
    /// A proxy that lets everyone in.
    async fn open() -> Self {
        let provider = provider().start().await.unwrap();
        let proxy = proxy_to(provider.endpoint()).await;
        Self::of(provider, proxy).await
    }

    /// A proxy that checks signatures too.
    async fn strict() -> Self {
        let provider = provider().start().await.unwrap();
        let proxy =
            standing(Server::builder()).upstream(upstream(provider.endpoint())).start().await.unwrap();
        Self::of(provider, proxy).await
    }

    async fn of(provider: Server, proxy: Server) -> Self {
        let wire = Wire::connect(proxy.address()).await;
        Self { provider, proxy, wire }
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> client::Answer {
        self.wire.ask(method, path, headers, body).await
    }

    /// What the provider has, asked of it and not of the proxy.
    async fn stored(&self, path: &str) -> client::Answer {
        let signer =
            Signer { access_key: "real".into(), region: "eu-west-1".into(), ..Signer::new("secret", NOW) };
        let host = [("host", "localhost")];
        let headers = signer.headers("GET", path, &host, "UNSIGNED-PAYLOAD");
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        Wire::connect(self.provider.address()).await.ask("GET", path, &headers, b"").await
    }

    /// The statuses of the provider's writes of a key, in their order.
    fn provider_saw(&self, key: &str) -> Vec<Option<u16>> {
        let writes = |record: &Record| record.operation == Some("PutObject");
        let records =
            self.provider.journal().filter(|record| record.key.as_deref() == Some(key) && writes(record));
        records.iter().map(|record| record.status).collect()
    }
}
