//! The server as a value: built, started, used, stopped.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::auth::{AuthMode, Keys};
use crate::control::Access;
use crate::deviation::{Deviation, Deviations, Profile};
use crate::fault::{FaultStatus, Loss, Outage, Rule};
use crate::http as edge;
use crate::instant::Instant;
use crate::journal::Journal;
use crate::names::BucketName;
use crate::service::{Clock, Door, Ending, Service, Settings};
use crate::store::disk::{Disk, OpenError};
use crate::store::index::Index;
use crate::store::memory::Memory;
use crate::store::{Files, Flush, Image, Store, StoreError};
use crate::stream::Body;
use crate::tenant::Tenants;
use crate::upstream::Upstream;

mod doors;

/// Why a server could not be started or told to do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can't be listened on: choose another port, or stop what listens there.
    #[error("cannot listen on {address}: {cause}; choose another address, or port 0 for any free one")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The data directory can't be opened: what is wrong with it and the way out are in the cause.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// A setting is not valid: which, why and what is.
    #[error("{0}")]
    Setting(String),
    /// A file can't be read or written, or is not what it should be: which and why.
    #[error("{0}")]
    File(String),
    /// A file of this server has another checksum than it should.
    #[error("{0}")]
    DamagedFile(String),
    /// The store failed; the server is as it was.
    #[error("the store failed: {0}")]
    Store(String),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// What a server is to be. Every setting has a default that suits a test: memory, loopback, any free port,
/// region `us-east-1`, credentials `test`/`test`, strict signatures.
#[derive(Clone)]
#[must_use = "nothing is built until `start` or `build` is awaited"]
pub struct Builder {
    listen: SocketAddr,
    data: Option<PathBuf>,
    flush: Flush,
    buckets: Vec<String>,
    access_key: String,
    secret_key: String,
    region: String,
    any_region: bool,
    auth: AuthMode,
    domains: Vec<String>,
    clock: Clock,
    seed: Option<u64>,
    faults: Vec<Rule>,
    request_faults: bool,
    hook: bool,
    journal: bool,
    control_listen: Option<SocketAddr>,
    control_token: Option<String>,
    tenant_per_key: bool,
    load: Option<PathBuf>,
    deviations: Vec<Deviation>,
    upstream: Option<Upstream>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data: None,
            flush: Flush::BeforeAnswer,
            buckets: Vec::new(),
            access_key: "test".to_owned(),
            secret_key: "test".to_owned(),
            region: "us-east-1".to_owned(),
            any_region: false,
            auth: AuthMode::Strict,
            domains: Vec::new(),
            clock: Arc::new(system_clock),
            seed: None,
            faults: Vec::new(),
            request_faults: true,
            hook: true,
            journal: true,
            control_listen: None,
            control_token: None,
            tenant_per_key: false,
            load: None,
            deviations: Vec::new(),
            upstream: None,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the default clock; a builder takes another")]
fn system_clock() -> Instant {
    let since =
        std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant::from_epoch_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A seed that nobody chose: std's hasher keys come from the system's randomness.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

impl Builder {
    /// Listens here; the default is a free port of 127.0.0.1.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Keeps everything in this directory, which is made if it is not there. The default keeps it in memory.
    pub fn data(mut self, directory: impl AsRef<Path>) -> Self {
        self.data = Some(directory.as_ref().to_owned());
        self
    }

    /// Whether a write to the directory is on the device before it is answered; the default is yes. Without that, what
    /// was acknowledged survives the end of the process, `kill -9` as well, but not that of the machine, which may
    /// leave a directory that no longer opens.
    pub fn flush(mut self, flush: bool) -> Self {
        self.flush = if flush { Flush::BeforeAnswer } else { Flush::Never };
        self
    }

    /// Has this bucket from the start; may be called more than once.
    pub fn bucket(mut self, name: impl Into<String>) -> Self {
        self.buckets.push(name.into());
        self
    }

    /// The one pair of credentials.
    pub fn credentials(mut self, access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        self.access_key = access_key.into();
        self.secret_key = secret_key.into();
        self
    }

    /// The region of the endpoint.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// Lets the one endpoint stand for those of all regions: a request is then answered as by the endpoint of
    /// the region that it is signed for, and by that of [`Builder::region`] where the signature names none. The
    /// default refuses signatures for another region, as each of AWS's endpoints does.
    pub fn any_region(mut self, any: bool) -> Self {
        self.any_region = any;
        self
    }

    /// How much of a request's credentials is checked.
    pub fn auth(mut self, mode: AuthMode) -> Self {
        self.auth = mode;
        self
    }

    /// A domain under which `bucket.domain` names a bucket; may be called more than once. The domain itself
    /// and every other host name is path-style.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domains.push(domain.into().to_ascii_lowercase());
        self
    }

    /// Where the server takes the time from.
    pub fn clock(mut self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes every id that the server gives out, and every fault that it draws, a function of this seed and of the
    /// order of requests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Differs from AWS in this way, for good; may be called more than once.
    ///
    /// ```
    /// # fn main() -> Result<(), assay_server::DeviationError> {
    /// let server = assay_server::Server::builder().deviation("segment-limit=255:InvalidArgument".parse()?);
    /// # Ok(()) }
    /// ```
    pub fn deviation(mut self, deviation: Deviation) -> Self {
        self.deviations.push(deviation);
        self
    }

    /// Differs from AWS as this vendor does, beside the deviations that are set.
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.deviations.extend(profile.entries.iter().map(|entry| entry.deviation.clone()));
        self
    }

    /// Builds the engine, without a socket.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that is none, [`Error::Data`], [`Error::File`], [`Error::DamagedFile`],
    /// [`Error::Store`].
    pub async fn build(self) -> Result<Engine, Error> {
        let buckets = self
            .buckets
            .iter()
            .map(|name| BucketName::new(name).map_err(|_| bad_bucket(name)))
            .collect::<Result<Vec<_>, _>>()?;
        if self.region.is_empty() || self.access_key.is_empty() || self.secret_key.is_empty() {
            return Err(Error::Setting("region, access key and secret key must not be empty".to_owned()));
        }
        if self.tenant_per_key && self.data.is_some() {
            return Err(Error::Setting(
                "a data directory holds one namespace, and tenant-per-key wants many: leave one of the two"
                    .to_owned(),
            ));
        }
        if self.control_token.as_ref().is_some_and(String::is_empty) {
            return Err(Error::Setting(
                "an empty control token lets everyone in: give one, or none".to_owned(),
            ));
        }
        self.check_upstream()?;
        let upstream = self.upstream.map(Upstream::open).transpose().map_err(Error::Setting)?;
        let (index, files): (Arc<dyn Index>, _) = match &self.data {
            None => (Arc::new(Memory::new()), None),
            // The index first: it knows whether the directory is ours.
            Some(directory) => {
                let files = Files { directory: directory.join("blobs"), flush: self.flush };
                (Arc::new(Disk::open(directory, self.flush)?), Some(files))
            }
        };
        let store = Store::open(index, files).await?;
        let settings = Settings {
            keys: match Keys::new([(self.access_key.clone(), self.secret_key.clone())]) {
                keys if self.tenant_per_key => keys.and_any(self.secret_key.clone()),
                keys => keys,
            },
            access_key: self.access_key.clone(),
            auth: self.auth,
            region: self.region.clone(),
            any_region: self.any_region,
            domains: self.domains,
            clock: self.clock,
            deviations: Deviations::new(&self.deviations),
            buckets,
            first_faults: self.faults.clone(),
            request_faults: self.request_faults,
            hook: self.hook,
            journal: self.journal,
            control: Access { token: self.control_token, own_port: self.control_listen.is_some() },
        };
        let tenants = self.tenant_per_key.then(Tenants::default);
        let seed = self.seed.unwrap_or_else(any_seed);
        let engine = Engine {
            service: Arc::new(Service::new(store, tenants, upstream, settings, seed)),
            access_key: self.access_key,
            secret_key: self.secret_key,
            region: self.region,
        };
        if let Some(file) = self.load {
            if !engine.service.store.is_empty()? {
                return Err(Error::Setting(format!(
                    "the data directory holds buckets, and {} would take their place; load it into an empty one, or \
                     PUT it to /_assay/state",
                    file.display()
                )));
            }
            engine.load(file).await?;
        }
        engine.service.create_first_buckets(&engine.service.store).await?;
        engine.service.set_faults(self.faults, false)?;
        Ok(engine)
    }

    /// Builds the server and listens.
    ///
    /// # Errors
    /// Those of [`Builder::build`], and [`Error::Listen`].
    pub async fn start(self) -> Result<Server, Error> {
        let bind =
            async |address| edge::bind(address).await.map_err(|cause| Error::Listen { address, cause });
        // The sockets first: where one can't be had, a data directory stays untouched.
        let (listener, address) = bind(self.listen).await?;
        let control = match self.control_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let engine = self.build().await?;
        let (stop, stopped) = watch::channel(false);
        let serve = |listener, door| {
            tokio::spawn(edge::serve(listener, door, engine.service.clone(), stopped.clone()))
        };
        let control = control.map(|(listener, address)| Control {
            endpoint: format!("http://{address}"),
            serving: serve(listener, Door::Control),
        });
        let serving = Some(serve(listener, Door::S3));
        Ok(Server { engine, address, endpoint: format!("http://{address}"), control, stop, serving })
    }
}

fn bad_bucket(name: &str) -> Error {
    Error::Setting(format!(
        "{name:?} is no bucket name: 3 to 63 characters of a-z, 0-9, '.' and '-', a letter or digit at both ends"
    ))
}

/// The server without a socket: requests are handed to [`Engine::call`], on the caller's task.
pub struct Engine {
    service: Arc<Service>,
    access_key: String,
    secret_key: String,
    region: String,
}

impl Engine {
    /// The access key that requests are signed with.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// The secret key that requests are signed with.
    pub fn secret_key(&self) -> &str {
        &self.secret_key
    }

    /// The region that requests are signed for.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Answers one request on the same path as one from a socket. Where a fault loses the answer this never
    /// resolves: see [`Engine::try_call`].
    pub async fn call<B>(&self, request: http::Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.try_call(request).await {
            Ok(response) => response,
            Err(_) => std::future::pending().await,
        }
    }

    /// Answers one request on the same path as one from a socket.
    ///
    /// # Errors
    /// Where a fault loses the answer: how. The request may have been done.
    pub async fn try_call<B>(&self, request: http::Request<B>) -> Result<http::Response<Body>, Loss>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        match self.service.call(head, &mut body.map_err(Into::into).boxed(), None).await {
            Ending::Answer(response) => Ok(response),
            Ending::Reset => Err(Loss::Reset),
            Ending::Never => Err(Loss::Never),
        }
    }

    /// Sets a fault; it is taken back when the guard is dropped.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = assay_server::Server::builder().bucket("data").start().await?;
    /// let guard = server.fault("operation=PutObject condition=If-None-Match nth=1 effect=lose-answer".parse()?)?;
    /// // … the first conditional create is done, and its answer never arrives …
    /// drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] where the effect needs the state as it is now and that can't be read; [`Error::Setting`]
    /// where there are too many, or nobody knows whose state.
    pub fn fault(&self, rule: Rule) -> Result<FaultGuard, Error> {
        let ids = self.service.set_faults(vec![rule], false)?;
        Ok(FaultGuard { service: self.service.clone(), ids })
    }

    /// Begins an outage; it is lifted when the guard is dropped.
    pub fn outage(&self, outage: Outage) -> OutageGuard {
        self.service.outage.begin(outage, None);
        OutageGuard { service: self.service.clone() }
    }

    /// The faults that are set, in their order, and what they hit so far.
    pub fn faults(&self) -> Vec<FaultStatus> {
        self.service.faults.list()
    }

    /// # Errors
    /// The rules, set or taken back, that never hit a request: a test that meant to meet them has not.
    pub fn assert_all_faults_fired(&self) -> Result<(), UnfiredFaults> {
        let unfired = self.service.faults.unfired();
        if unfired.is_empty() { Ok(()) } else { Err(UnfiredFaults(unfired)) }
    }

    /// The requests so far.
    pub fn journal(&self) -> Journal {
        self.service.journal.clone()
    }

    /// What random faults and ids are drawn from: the same seed and the same order of requests give the same
    /// faults.
    pub fn seed(&self) -> u64 {
        self.service.seed
    }

    /// Lets the server's clock run this many milliseconds fast, or slow where it is negative.
    pub fn set_clock_offset_ms(&self, offset_ms: i64) {
        self.service.clock_offset_ms.store(offset_ms, Ordering::Relaxed);
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// [`Error::Setting`] where the name is no bucket name or is taken.
    pub async fn create_bucket(&self, name: &str) -> Result<(), Error> {
        self.service.has_store()?;
        let bucket = BucketName::new(name).map_err(|_| bad_bucket(name))?;
        match self.service.store.create_bucket(&bucket, self.service.new_bucket()).await {
            Err(StoreError::BucketExists(name)) => {
                Err(Error::Setting(format!("there is a bucket {name:?} already")))
            }
            created => Ok(created?),
        }
    }

    /// Makes everything as it was at the start: only the first buckets, empty; the first faults and no others, and
    /// their draws from the seed again; no outage, the right time, an empty journal. What an upstream has stays.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn reset(&self) -> Result<(), Error> {
        Ok(self.service.reset().await?)
    }

    /// Everything stored, as it is now. Large bodies of a server on disk are kept, not copied.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Setting`] in front of an upstream.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.service.has_store()?;
        Ok(Snapshot(self.service.store.image()?))
    }

    /// Makes everything what it was. A snapshot can be restored any number of times, to the server it was
    /// taken from.
    ///
    /// # Errors
    /// [`Error::Setting`] for another server's snapshot, [`Error::Store`].
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<(), Error> {
        if !snapshot.0.is_of(&self.service.store) {
            return Err(Error::Setting("the snapshot was taken from another server".to_owned()));
        }
        Ok(self.service.store.restore(Some(&snapshot.0)).await?)
    }
}

/// Rules that never hit anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfiredFaults(
    /// What is known of each.
    pub Vec<FaultStatus>,
);

impl std::fmt::Display for UnfiredFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} fault(s) never fired:", self.0.len())?;
        for FaultStatus { rule, seen, .. } in &self.0 {
            write!(f, " [{rule}; {seen} request(s) matched]")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnfiredFaults {}

/// A fault that is set until this is dropped.
#[must_use = "the fault is taken back when the guard is dropped"]
pub struct FaultGuard {
    service: Arc<Service>,
    ids: Vec<u64>,
}

impl FaultGuard {
    /// What became of it so far.
    pub fn status(&self) -> Option<FaultStatus> {
        self.ids.first().and_then(|id| self.service.faults.status(*id))
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        for id in &self.ids {
            self.service.faults.heal(*id);
        }
    }
}

/// An outage that lasts until this is dropped.
#[must_use = "the outage is lifted when the guard is dropped"]
pub struct OutageGuard {
    service: Arc<Service>,
}

impl Drop for OutageGuard {
    fn drop(&mut self) {
        self.service.outage.lift();
    }
}

/// What [`Engine::snapshot`] took.
pub struct Snapshot(Image);

/// A server that listens. It stops when it is dropped; [`Server::stop`] also waits until it has.
pub struct Server {
    engine: Engine,
    address: SocketAddr,
    endpoint: String,
    /// There where the control paths have a port of their own.
    control: Option<Control>,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
}

/// The port of the control paths.
struct Control {
    endpoint: String,
    serving: JoinHandle<()>,
}

impl Server {
    /// The settings of a new server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`, as clients want it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Stops: no new connections, requests under way get up to ten seconds to end, a store on disk is closed.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(serving) = self.serving.take() {
            // It ends by returning; a panic in it has been reported and there is nothing left to stop.
            let _ = serving.await;
        }
        if let Some(control) = self.control.take() {
            let _ = control.serving.await;
        }
    }
}

impl Deref for Server {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.engine.service.stop();
        if let Some(serving) = self.serving.take() {
            serving.abort(); // with it go the connections
        }
        if let Some(control) = self.control.take() {
            control.serving.abort();
        }
    }
}
