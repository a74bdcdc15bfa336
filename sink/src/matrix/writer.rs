//! A writer in a process of its own, so that it can be killed and frozen.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tracing::instrument::WithSubscriber as _;

use super::data::{self, EXTENSION};
use super::ground::{PIPELINE, REQUEST_TIMEOUT_MS};
use super::{Checked, Failure};
use crate::env::{Clock, Env, Ids};
use crate::error::SinkError;
use crate::model::key::PipelineRoot;
use crate::plan::orphans::{Brake, LeaseTimes, Policy};
use crate::run::orphans;
use crate::sink::{Settings, Sink};
use crate::stop::Stopped;
use crate::store::{Access, Addressing, S3Settings, S3Store};

/// What each line of a writer begins with; whoever starts it may print lines of its own.
const MARK: &str = "writer: ";

/// Longest that a writer may be silent.
const SILENCE: Duration = Duration::from_secs(60);

/// What a writer is to do. It carries a secret, so it is neither shown nor logged.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) endpoint: String,
    pub(super) bucket: String,
    pub(super) region: String,
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) prefix: String,
    pub(super) checkpoint: PathBuf,
    pub(super) seed: u64,
    pub(super) upto: u64,
    /// Whether it reconciles once everything is published, and how.
    pub(super) sweep: Option<Sweep>,
}

/// How a writer reconciles.
#[derive(Serialize, Deserialize)]
pub(super) struct Sweep {
    pub(super) grace_period_ms: u64,
    /// Milliseconds of the lease: all, of a request, of the margin.
    pub(super) lease_ms: [u64; 3],
}

impl Sweep {
    fn policy(&self) -> Policy {
        let [ttl_ms, request_ms, margin_ms] = self.lease_ms;
        Policy {
            grace_period_ms: self.grace_period_ms,
            max_clock_skew_ms: 30_000,
            brake: Brake::default(),
            conditional_deletes: false,
            require_stamp: false,
            lease: LeaseTimes { ttl_ms, request_ms, margin_ms },
        }
    }
}

/// Carries out the order in `text` (the standard input of a process that a [`super::WriterCommand`] starts),
/// and gives the exit code of the process.
pub async fn run(text: &str, clock: Arc<dyn Clock>) -> u8 {
    let order: Order = match serde_json::from_str(text) {
        Ok(order) => order,
        Err(error) => {
            eprintln!("a writer is started by the live matrix, with its order on standard input: {error}");
            return 2;
        }
    };
    // What a start decides is told to whoever started this process.
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stderr)
        .finish();
    match write(order, clock).with_subscriber(log).await {
        Ok(None) => 0,
        Ok(Some(stopped)) => {
            eprintln!("{stopped}");
            stopped.exit_code()
        }
        Err(error) => {
            eprintln!("{error}");
            error.exit_code()
        }
    }
}

/// Why the actor stopped, if it was to act and did.
async fn write(order: Order, clock: Arc<dyn Clock>) -> Result<Option<Stopped>, SinkError> {
    let internal = |error: &dyn std::fmt::Display| SinkError::Internal(error.to_string());
    let settings = S3Settings {
        addressing: Addressing::Path,
        request_timeout_ms: REQUEST_TIMEOUT_MS,
        ..S3Settings::new(Some(order.endpoint), order.region, order.bucket)
    };
    let access = Access::keys(&order.access_key, &order.secret_key, None);
    let store = S3Store::new(&settings, &access).map_err(|error| internal(&error))?;
    let env = Env { store: Arc::new(store), clock, ids: Arc::new(Ids::seeded(order.seed)) };
    let root = PipelineRoot::new(&order.prefix, PIPELINE, EXTENSION)?;
    let settings = Settings {
        checkpoint: Some(order.checkpoint),
        ..Settings::new(root, PIPELINE, &order.prefix, "a writer of the matrix")
    };
    let sink = Sink::start(env, settings).await?;
    let resume = data::number(sink.resume().as_ref()).map_err(|error| internal(&error))?;
    tracing::info!(resume, "the start is done");
    say("started");
    for n in resume + 1..=order.upto {
        let batch = data::batch(n).map_err(|error| internal(&error))?;
        let mut ticket = sink.submit(batch).await?;
        while let Err(error) = ticket.acknowledged().await {
            if !matches!(error, SinkError::Backpressure { .. }) {
                return Err(error);
            }
        }
        say(&format!("acked {n}"));
    }
    if let Some(sweep) = order.sweep {
        say("sweeping");
        if let Err(stopped) = orphans::run(&sink.keeper(), &sweep.policy()).await {
            return Ok(Some(stopped));
        }
    }
    sink.close().await.map(|()| None)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started this writer may be gone; it goes on.
    let _ = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
}

/// A running writer process, as its scenario sees it.
pub(super) struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    log: Arc<Mutex<Vec<String>>>,
    logging: JoinHandle<()>,
}

/// What a writer logged until its start was done.
pub(super) struct Started {
    pub(super) log: Vec<String>,
}

impl Writer {
    pub(super) fn new(mut child: Child) -> Checked<Self> {
        let out = child.stdout.take().ok_or_else(|| Failure("the writer has no output".to_owned()))?;
        let errors = child.stderr.take().ok_or_else(|| Failure("the writer has no errors".to_owned()))?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let logged = Arc::clone(&log);
        // Read at once, so that a writer with much to tell is not held up.
        let logging = tokio::spawn(async move {
            let mut lines = BufReader::new(errors).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                logged.lock().push(line);
            }
        });
        Ok(Self { child, lines: BufReader::new(out).lines(), log, logging })
    }

    /// Reads on until the writer's start is done, and gives what it logged. The line that says so comes behind the
    /// log's, but through another pipe.
    pub(super) async fn started(&mut self) -> Checked<Started> {
        self.says("started").await?;
        let waiting = async {
            loop {
                let log = self.log.lock().clone();
                if log.iter().any(|line| line.contains("the start is done")) {
                    return Started { log };
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(SILENCE, waiting).await {
            Ok(started) => Ok(started),
            Err(_) => Err(Failure(format!("the writer logged no end of its start within {SILENCE:?}"))),
        }
    }

    /// Reads on until the writer says `line`.
    pub(super) async fn says(&mut self, line: &str) -> Checked {
        let reading = async {
            while let Some(said) = self.lines.next_line().await? {
                if said.split_once(MARK).is_some_and(|(_, said)| said == line) {
                    return Ok(());
                }
            }
            Err(Failure(format!("the writer ended before it said {line:?}")))
        };
        match tokio::time::timeout(SILENCE, reading).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(self.complain(failure).await),
            Err(_) => Err(Failure(format!("the writer did not say {line:?} within {SILENCE:?}"))),
        }
    }

    async fn complain(&mut self, failure: Failure) -> Failure {
        // It has ended, so its log does too.
        let _ = (&mut self.logging).await;
        Failure(format!("{failure}; its errors: {}", self.log.lock().join("\n")))
    }

    /// Kills it as `kill -9` does.
    pub(super) async fn kill(mut self) -> Checked {
        self.child.kill().await?;
        Ok(())
    }

    /// Sends `STOP` or `CONT`.
    pub(super) async fn signal(&self, name: &str) -> Checked {
        let id = self.child.id().ok_or_else(|| Failure("the writer has ended".to_owned()))?;
        let status = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().await?;
        super::equal("kill's status", status.code(), Some(0))
    }

    /// Waits until it ends, and gives its exit code and what it said last.
    pub(super) async fn ended(mut self) -> Checked<i32> {
        let waiting = async {
            while self.lines.next_line().await?.is_some() {}
            Ok::<_, Failure>(self.child.wait().await?.code())
        };
        match tokio::time::timeout(SILENCE, waiting).await {
            Ok(code) => code?.ok_or_else(|| Failure("the writer ended by a signal".to_owned())),
            Err(_) => Err(Failure(format!("the writer did not end within {SILENCE:?}"))),
        }
    }
}
