//! What of a server is about faults, control, whole states and an upstream: settings of the builder, verbs of the
//! handle.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::{Builder, Engine, Error, Server};
use crate::deviation::Deviation;
use crate::fault::{self, Rule, RuleError};
use crate::op;
use crate::state::StateError;
use crate::store::{LoadError, Source};
use crate::stream::Reader;
use crate::upstream::Upstream;

/// Pieces of a file that wait between store and disk.
const PIECES_AHEAD: usize = 2;

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Store(error) => error.into(),
            other => Self::Setting(other.to_string()),
        }
    }
}

impl Rule {
    /// Reads many rules: from lines in the form of flags, in which `#` begins a comment; from JSON, an object or an
    /// array of them; or from TOML, tables named `[[fault]]`.
    ///
    /// # Errors
    /// With the field of the first rule that does not parse, and what it accepts.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, RuleError> {
        fault::rules(text)
    }
}

impl Builder {
    /// Sets a fault from the start, for as long as its text says; may be called more than once.
    pub fn fault(mut self, rule: Rule) -> Self {
        self.faults.push(rule);
        self
    }

    /// Sets faults from the start.
    pub fn faults(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.faults.extend(rules);
        self
    }

    /// Whether a request may bring a fault of its own along in the header `x-assay-fault`; the default is yes.
    pub fn request_faults(mut self, may: bool) -> Self {
        self.request_faults = may;
        self
    }

    /// Whether requests pass the hook of the faults; the default is yes. Without it no rule and no outage acts: what
    /// the hook costs is measured against such a server.
    pub fn hook(mut self, hook: bool) -> Self {
        self.hook = hook;
        self
    }

    /// Whether requests are journalled; the default is yes.
    pub fn journal(mut self, journal: bool) -> Self {
        self.journal = journal;
        self
    }

    /// Gives the control paths a port of their own; they are then gone from the S3 port. An outage that refuses
    /// connections leaves this port alone.
    pub fn control_listen(mut self, address: SocketAddr) -> Self {
        self.control_listen = Some(address);
        self
    }

    /// Lets everyone control the server who sends this in the header `x-assay-token`, and no one else. Without a
    /// token, connections from loopback may and no others.
    pub fn control_token(mut self, token: impl Into<String>) -> Self {
        self.control_token = Some(token.into());
        self
    }

    /// Gives each access key a store of its own in memory, with the first buckets in it; every access key is then
    /// known, with the one secret. Faults, journal, outage and clock stay those of the server: a rule with
    /// `access-key` is about one of them.
    pub fn tenant_per_key(mut self, own: bool) -> Self {
        self.tenant_per_key = own;
        self
    }

    /// Stands in front of this provider: a request is checked here, meets the faults that are set, is signed anew
    /// and asked of the provider, and gets the provider's answer. Nothing is stored here, so neither
    /// [`Builder::data`] nor [`Builder::bucket`] goes with it.
    ///
    /// A fault that acts after the commit then acts after the provider has committed. Those that only this server's own
    /// store can do are refused where they are set.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use assay_server::{Server, Upstream};
    ///
    /// let provider = Server::builder().bucket("data").credentials("real", "secret").start().await?;
    /// let proxy = Server::builder()
    ///     .upstream(Upstream::new(provider.endpoint(), "real", "secret"))
    ///     .start()
    ///     .await?;
    /// let _lost = proxy.fault("operation=PutObject nth=1 effect=lose-answer".parse()?)?;
    /// // … the first PUT that comes here is stored there, and its answer never arrives …
    /// # Ok(()) }
    /// ```
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// # Errors
    /// Where a setting is about what is stored here, and that is nothing.
    pub(super) fn check_upstream(&self) -> Result<(), Error> {
        let set = [
            ("a data directory", self.data.is_some()),
            ("a file to load", self.load.is_some()),
            ("a bucket", !self.buckets.is_empty()),
            ("tenant-per-key", self.tenant_per_key),
        ];
        match set.iter().find(|(_, set)| *set && self.upstream.is_some()) {
            Some((what, _)) => Err(Error::Setting(format!(
                "in front of an upstream nothing is stored here, so {what} does not go with it"
            ))),
            None => Ok(()),
        }?;
        // What neither a request's head tells nor an answer shows, only a store of our own can do otherwise.
        let mut all = self.deviations.iter().flat_map(Deviation::parts);
        match all.find(|deviation| self.upstream.is_some() && !op::needs_no_store(deviation)) {
            Some(deviation) => Err(Error::Setting(format!(
                "in front of an upstream a deviation can change heads and what answers show, and no store, so {deviation} \
                 does not go with it"
            ))),
            None => Ok(()),
        }
    }

    /// Starts with what [`Engine::save`] wrote; a data directory must be empty then. A reset does not bring it back.
    pub fn load(mut self, file: impl Into<PathBuf>) -> Self {
        self.load = Some(file.into());
        self
    }
}

impl Engine {
    /// Writes everything stored to one file, large bodies included, in constant memory. Whoever reads finds the old
    /// file or all of the new one.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Store`]; [`Error::Setting`] in front of an upstream.
    pub async fn save(&self, file: impl AsRef<Path>) -> Result<(), Error> {
        self.service.has_store()?;
        let file = file.as_ref();
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let writing = async {
            let store = self.service.store.clone();
            let image = store.image().map_err(std::io::Error::other)?;
            let (sender, mut pieces) = mpsc::channel(PIECES_AHEAD);
            tokio::spawn(async move { store.save(&image, &sender).await });
            let mut out = tokio::fs::File::create(&part).await?;
            while let Some(piece) = pieces.recv().await {
                out.write_all(&piece?).await?;
            }
            out.flush().await?;
            out.sync_all().await?;
            tokio::fs::rename(&part, file).await
        };
        writing.await.map_err(|cause| Error::File(format!("cannot write {}: {cause}", file.display())))
    }

    /// Makes everything stored what [`Engine::save`] wrote, of this server or another, in memory or on disk.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::DamagedFile`] where its checksum is not right, [`Error::Store`], [`Error::Setting`]
    /// in front of an upstream. Nothing has changed then.
    pub async fn load(&self, file: impl AsRef<Path>) -> Result<(), Error> {
        self.service.has_store()?;
        let file = file.as_ref();
        let about = |error: LoadError| match error {
            LoadError::Store(error) => error.into(),
            LoadError::Damaged(_) => Error::DamagedFile(format!("{}: {error}", file.display())),
            other => Error::File(format!("{}: {other}", file.display())),
        };
        let reader = Reader::of_file(file).await.map_err(|cause| about(cause.into()))?;
        self.service.store.load(Source::File(reader)).await.map_err(about)
    }
}

impl Server {
    /// Where the control paths are, as `http://127.0.0.1:PORT`: a port of their own, or the endpoint.
    pub fn control_endpoint(&self) -> &str {
        self.control.as_ref().map_or(&self.endpoint, |control| &control.endpoint)
    }
}
