//! A pipeline's file to everything that a command runs in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use sinks::config::{Bucket, Config};
use sinks::env::{Clock, Env, Ids};
use sinks::run::patience::Patience;
use sinks::store::multipart::MultipartStore;
use sinks::store::{Access, Addressing, S3Settings, S3Store};

use crate::{Failure, USAGE};

/// Which pipeline.
#[derive(Args)]
pub(crate) struct Pipeline {
    /// The pipeline's YAML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// A pipeline, and what its commands run in.
pub(crate) struct Opened {
    pub(crate) config: Config,
    pub(crate) env: Env,
    /// The same bucket, for uploads in parts.
    pub(crate) uploads: Arc<dyn MultipartStore>,
    pub(crate) bucket: S3Settings,
    pub(crate) access: Access,
}

/// The system's wall clock.
#[derive(Debug)]
struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the process is the harness and owns the clock")]
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Pipeline {
    /// Reads the configuration and finds credentials; nothing is asked of the bucket yet.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let config = read(&self.config)?;
        let Bucket { name, endpoint, region, virtual_host, request_timeout_ms, connect_timeout_ms } =
            &config.bucket;
        let bucket = S3Settings {
            addressing: if *virtual_host { Addressing::Virtual } else { Addressing::Path },
            request_timeout_ms: *request_timeout_ms,
            connect_timeout_ms: *connect_timeout_ms,
            ..S3Settings::new(endpoint.clone(), region.clone(), name.clone())
        };
        let access = Access::default_chain(region).await;
        let store = S3Store::new(&bucket, &access)?;
        let key = access.access_key().await.map_err(|error| {
            Failure::new(
                USAGE,
                format!("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; {error}"),
            )
        })?;
        tracing::info!(
            pipeline = config.pipeline,
            bucket = name,
            endpoint = endpoint.as_deref().unwrap_or("AWS"),
            root = config.root.as_str(),
            access_key = key,
            "opened"
        );
        let uploads = Arc::new(store.clone());
        let env =
            Env { store: Arc::new(store), clock: Arc::new(SystemClock), ids: Arc::new(Ids::seeded(seed())) };
        Ok(Opened { config, env, uploads, bucket, access })
    }
}

impl Opened {
    /// How long one question is asked by the commands that only read.
    pub(crate) fn patience(&self) -> Patience {
        Patience::limited(self.config.send_timeout_ms)
    }
}

fn read(path: &Path) -> Result<Config, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(USAGE, format!("can't read {shown}: {error}")))?;
    Config::read(&text, |name| std::env::var(name).ok())
        .map_err(|error| Failure::new(USAGE, format!("{shown}: {error}")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the process is the harness: its seed is the system's randomness"
)]
fn seed() -> u64 {
    fastrand::Rng::new().u64(..)
}
