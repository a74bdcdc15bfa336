//! Where a probe gets clients with connections of their own from: races are between connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::store::{
    Access, BodyGate, Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, S3Settings, S3Store,
    SettingsError, Store,
};

/// Makes clients of one bucket that share no connection.
pub trait Clients: fmt::Debug + Send + Sync {
    /// A client whose connections are its own; one after the other they go to every place that the bucket has.
    fn fresh(&self) -> Arc<dyn Store>;

    /// Such a client in which the bodies of writes stop half way until the gate is opened.
    fn gated(&self, gate: Arc<BodyGate>) -> Arc<dyn Store>;

    /// How many places there are: addresses of the endpoint, and further endpoints.
    fn places(&self) -> usize;
}

/// Clients of an S3 provider: of each address of its endpoint and of each further endpoint.
#[derive(Debug)]
pub struct S3Clients {
    places: Vec<S3Settings>,
    access: Access,
    next: AtomicUsize,
}

impl S3Clients {
    /// Looks the endpoint's addresses up. Those that take no connection are left out, as a client leaves them out.
    ///
    /// # Errors
    /// [`SettingsError`] of the settings or of a further endpoint.
    pub async fn new(
        settings: &S3Settings,
        access: &Access,
        further_endpoints: &[String],
    ) -> Result<Self, SettingsError> {
        let endpoints = std::iter::once(settings.endpoint.clone())
            .chain(further_endpoints.iter().map(|endpoint| Some(endpoint.clone())));
        let mut places = Vec::new();
        for endpoint in endpoints {
            let place = S3Settings { endpoint, ..settings.clone() };
            S3Store::new(&place, access)?;
            // A name that cannot be looked up is the production client's to complain about.
            let found = place.addresses().await.unwrap_or_default();
            let patience = Duration::from_millis(place.connect_timeout_ms);
            let mut taking = Vec::new();
            for address in found {
                if takes_connections(address, patience).await {
                    taking.push(address.ip());
                }
            }
            places.extend(pinned(&place, &taking));
        }
        Ok(Self { places, access: access.clone(), next: AtomicUsize::new(0) })
    }

    fn connect(&self) -> S3Store {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.places.len();
        S3Store::new(&self.places[turn], &self.access).expect("the settings were checked when this was made")
    }
}

/// One place an address; a name with a single one needs no pin.
fn pinned(place: &S3Settings, addresses: &[IpAddr]) -> Vec<S3Settings> {
    match addresses {
        [] | [_] => vec![place.clone()],
        many => many.iter().map(|ip| S3Settings { pinned: Some(*ip), ..place.clone() }).collect(),
    }
}

async fn takes_connections(address: SocketAddr, patience: Duration) -> bool {
    let connecting = tokio::net::TcpStream::connect(address);
    matches!(tokio::time::timeout(patience, connecting).await, Ok(Ok(_)))
}

impl Clients for S3Clients {
    fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(self.connect())
    }

    fn gated(&self, gate: Arc<BodyGate>) -> Arc<dyn Store> {
        Arc::new(self.connect().gated(gate))
    }

    fn places(&self) -> usize {
        self.places.len()
    }
}

/// A store without connections, such as one in memory, as all its clients.
#[derive(Clone, Debug)]
pub struct OneStore(pub Arc<dyn Store>);

impl Clients for OneStore {
    fn fresh(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn gated(&self, gate: Arc<BodyGate>) -> Arc<dyn Store> {
        Arc::new(Late { store: self.0.clone(), gate })
    }

    fn places(&self) -> usize {
        1
    }
}

/// Without a wire, a body that is still on its way is a write that has not begun.
#[derive(Debug)]
struct Late {
    store: Arc<dyn Store>,
    gate: Arc<BodyGate>,
}

impl Store for Late {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            self.gate.pass().await;
            self.store.put(key, bytes, condition, metadata).await
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.store.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.store.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.store.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.store.list(prefix, token, limit)
    }
}
