//! The same server for tests without a runtime of their own.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::{self, Runtime};

use crate::journal::{Record, Unmet};
use crate::server::{self, Builder, Error, Snapshot};

/// A server that listens, with a runtime of its own. It stops when it is dropped.
///
/// ```
/// let server = assay_server::blocking::start(assay_server::Server::builder().bucket("data"))?;
/// assert!(server.endpoint().starts_with("http://127.0.0.1:"));
/// # Ok::<(), assay_server::Error>(())
/// ```
pub struct Server {
    server: Option<server::Server>,
    runtime: Option<Runtime>,
}

/// Builds and starts a server. Not for use within an async runtime: there, await [`Builder::start`].
///
/// # Errors
/// Those of [`Builder::start`], and [`Error::Setting`] where no runtime can be had.
pub fn start(builder: Builder) -> Result<Server, Error> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("assay-server")
        .enable_all()
        .build()
        .map_err(|error| Error::Setting(format!("cannot start a runtime: {error}")))?;
    let server = runtime.block_on(builder.start())?;
    Ok(Server { server: Some(server), runtime: Some(runtime) })
}

impl Server {
    /// Makes a bucket.
    ///
    /// # Errors
    /// Those of [`crate::Engine::create_bucket`].
    pub fn create_bucket(&self, name: &str) -> Result<(), Error> {
        self.wait(self.deref().create_bucket(name))
    }

    /// Makes everything as it was at the start.
    ///
    /// # Errors
    /// Those of [`crate::Engine::reset`].
    pub fn reset(&self) -> Result<(), Error> {
        self.wait(self.deref().reset())
    }

    /// Makes everything what it was.
    ///
    /// # Errors
    /// Those of [`crate::Engine::restore`].
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.wait(self.deref().restore(snapshot))
    }

    /// Writes everything stored to one file.
    ///
    /// # Errors
    /// Those of [`crate::Engine::save`].
    pub fn save(&self, file: impl AsRef<Path>) -> Result<(), Error> {
        self.wait(self.deref().save(file))
    }

    /// Makes everything stored what a file says.
    ///
    /// # Errors
    /// Those of [`crate::Engine::load`].
    pub fn load(&self, file: impl AsRef<Path>) -> Result<(), Error> {
        self.wait(self.deref().load(file))
    }

    /// The next request after number `after` that fits; it may have come already.
    ///
    /// # Errors
    /// Those of [`crate::Journal::wait_for`].
    pub fn wait_for(
        &self,
        after: u64,
        within: Duration,
        fits: impl Fn(&Record) -> bool,
    ) -> Result<Record, Unmet> {
        self.wait(self.journal().wait_for(after, within, fits))
    }

    fn wait<T>(&self, job: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("the runtime goes only when the server is dropped");
        runtime.block_on(job)
    }
}

impl Deref for Server {
    type Target = server::Server;

    fn deref(&self) -> &server::Server {
        self.server.as_ref().expect("the server goes only when this is dropped")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // waits for nothing, so it may be dropped anywhere
        }
    }
}
