//! What a scenario runs on: a bucket, the server in front of it that can misbehave, and a way to start writers.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::Failure;
use super::writer::Order;
use crate::env::{Clock, Env, Ids};
use crate::store::{Access, Addressing, Pending, S3Settings, S3Store};

/// Longest that one request to the control paths may take.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a rule may take to act once its request is on the way.
pub(super) const FIRES_WITHIN: Duration = Duration::from_secs(20);

/// How often the server is asked whether it has.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// The bucket that scenarios share; each has a prefix of its own there.
#[derive(Clone)]
pub struct Rig {
    /// `http://host:port` of the server that requests go through.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// What every key that a scenario writes begins with, without a slash at its end.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The key id that requests are signed with.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// Whether the server keeps the bucket itself, or stands in front of a provider that does.
    pub own_store: bool,
    /// Starts a server that deviates.
    pub deviant: StartDeviant,
    /// How this program is started again as a writer.
    pub writer: WriterCommand,
    /// What identities and prefixes are drawn from.
    pub seed: u64,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}

/// Does not show the secret.
impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("own_store", &self.own_store)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Starts a server of our own whose store has the named deviation, or none if the name is empty.
pub type StartDeviant = Arc<dyn Fn(&str) -> Pending<'static, Result<Deviant, String>> + Send + Sync>;

/// A server with a bucket of its own; it ends when `guard` is dropped.
pub struct Deviant {
    /// `http://host:port`.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The key id that requests are signed with.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// What keeps it running.
    pub guard: Box<dyn Any + Send + Sync>,
}

/// A program that hands its standard input to [`super::writer::run`].
#[derive(Clone, Debug)]
pub struct WriterCommand {
    /// The program.
    pub program: PathBuf,
    /// What it is started with.
    pub arguments: Vec<String>,
    /// What its environment has besides.
    pub environment: Vec<(String, String)>,
}

impl Rig {
    /// The same on a server with this deviation; it ends with the guard.
    pub(super) async fn deviating(
        &self,
        deviation: &str,
    ) -> Result<(Self, Box<dyn Any + Send + Sync>), Failure> {
        let Deviant { endpoint, bucket, region, access_key, secret_key, guard } =
            (self.deviant)(deviation).await.map_err(Failure)?;
        Ok((
            Self { endpoint, bucket, region, access_key, secret_key, own_store: true, ..self.clone() },
            guard,
        ))
    }

    /// The bucket, as a client with connections of its own sees it.
    pub(super) fn settings(&self) -> S3Settings {
        S3Settings {
            addressing: Addressing::Path,
            ..S3Settings::new(Some(self.endpoint.clone()), self.region.clone(), self.bucket.clone())
        }
    }

    pub(super) fn access(&self) -> Access {
        Access::keys(&self.access_key, &self.secret_key, None)
    }

    /// An environment with a client of its own, whose requests may take `request_timeout_ms`.
    pub(super) fn env(&self, request_timeout_ms: u64, salt: u64) -> Result<Env, Failure> {
        let settings = S3Settings { request_timeout_ms, ..self.settings() };
        let settings = S3Settings {
            connect_timeout_ms: settings.connect_timeout_ms.min(request_timeout_ms),
            ..settings
        };
        let store = S3Store::new(&settings, &self.access())?;
        Ok(Env {
            store: Arc::new(store),
            clock: Arc::clone(&self.clock),
            ids: Arc::new(Ids::seeded(self.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
        })
    }

    /// Sets fault rules, one a line, until the guard is taken back.
    pub(super) async fn faults(&self, rules: &str) -> Result<Faults<'_>, Failure> {
        self.control(Method::POST, "faults", rules).await?;
        Ok(Faults { rig: self })
    }

    /// Puts the server away as a whole: `hang` or `unavailable`.
    pub(super) async fn outage(&self, mode: &str) -> Result<Outage<'_>, Failure> {
        let body = serde_json::json!({ "outage": mode }).to_string();
        self.control(Method::POST, "outage", &body).await?;
        Ok(Outage { rig: self })
    }

    /// Puts the server's clock so many milliseconds before ours, or behind it if they are below 0.
    pub(super) async fn clock_off(&self, offset_ms: i64) -> Result<ClockOff<'_>, Failure> {
        let body = serde_json::json!({ "offset-ms": offset_ms }).to_string();
        self.control(Method::PUT, "clock", &body).await?;
        Ok(ClockOff { rig: self })
    }

    /// Number of the last request that the journal has.
    pub(super) async fn last_request(&self) -> Result<u64, Failure> {
        let document = self.control(Method::GET, "requests?limit=1", "").await?;
        document["last"]
            .as_u64()
            .ok_or_else(|| Failure(format!("the journal has no last request: {document}")))
    }

    /// Requests after number `after` whose key begins with `prefix`, in order.
    pub(super) async fn requests(&self, after: u64, prefix: &str) -> Result<Vec<Seen>, Failure> {
        let path = format!("requests?after={after}&limit=100000&key={}*", escaped(prefix));
        let document = self.control(Method::GET, &path, "").await?;
        let rows = document["requests"].as_array().cloned().unwrap_or_default();
        Ok(rows.iter().map(Seen::of).collect())
    }

    /// Waits until the rule of this name has acted `times` times; a request that it holds counts.
    pub(super) async fn fired(&self, rule: &str, times: u64) -> Result<(), Failure> {
        let waiting = async {
            loop {
                let document = self.control(Method::GET, "faults", "").await?;
                let rows = document["faults"].as_array().cloned().unwrap_or_default();
                if rows.iter().any(|row| row["name"] == rule && row["fired"].as_u64() >= Some(times)) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(FIRES_WITHIN, waiting).await {
            Ok(ended) => ended,
            Err(_) => {
                Err(Failure(format!("rule {rule:?} did not act {times} times within {FIRES_WITHIN:?}")))
            }
        }
    }

    /// How many requests the rules that are set have hit.
    pub(super) async fn hits(&self) -> Result<u64, Failure> {
        let document = self.control(Method::GET, "faults", "").await?;
        let rows = document["faults"].as_array().into_iter().flatten();
        Ok(rows.filter_map(|row| row["fired"].as_u64()).sum())
    }

    async fn control(&self, method: Method, path: &str, body: &str) -> Result<Value, Failure> {
        let call = self.ask(method, path, body);
        match tokio::time::timeout(CONTROL_TIMEOUT, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure(format!("no answer from the control path {path:?}"))),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> Result<Value, Failure> {
        let uri: Uri = format!("{}/_assay/{path}", self.endpoint).parse().map_err(Failure::of)?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let stream = TcpStream::connect(&host).await.map_err(Failure::of)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Failure::of)?;
        let connection = tokio::spawn(connection);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(http::header::HOST, host)
            .body(Full::new(Bytes::from(body.to_owned())))
            .map_err(Failure::of)?;
        let answer = sender.send_request(request).await.map_err(Failure::of)?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await.map_err(Failure::of)?.to_bytes();
        connection.abort();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&bytes);
            return Err(Failure(format!("control path {path:?} answered {status}: {text}")));
        }
        serde_json::from_slice(&bytes).map_err(Failure::of)
    }

    /// Starts a writer process on `order`.
    pub(super) async fn spawn(&self, order: &Order) -> Result<Child, Failure> {
        let mut child = Command::new(&self.writer.program)
            .args(&self.writer.arguments)
            .envs(self.writer.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::of)?;
        let mut input = child.stdin.take().ok_or_else(|| Failure("the writer has no input".to_owned()))?;
        let text = serde_json::to_vec(order).map_err(Failure::of)?;
        input.write_all(&text).await.map_err(Failure::of)?;
        Ok(child)
    }
}

/// One request, as the server's journal has it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) operation: String,
    pub(super) key: String,
}

impl Seen {
    fn of(row: &Value) -> Self {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        Self { operation: text("operation"), key: text("key") }
    }
}

/// Rules that are set; a scenario takes them back when it is done, and the runner after each in any case.
#[must_use = "rules stand until they are lifted"]
pub(super) struct Faults<'a> {
    rig: &'a Rig,
}

impl Faults<'_> {
    /// Takes the rule of this name back.
    pub(super) async fn lift_one(&self, name: &str) -> Result<(), Failure> {
        self.rig.control(Method::DELETE, &format!("faults/{name}"), "").await.map(drop)
    }

    /// Takes every rule back.
    pub(super) async fn lift(self) -> Result<(), Failure> {
        self.rig.control(Method::DELETE, "faults", "").await.map(drop)
    }
}

/// An outage that lasts until it is ended.
#[must_use = "an outage lasts until it is ended"]
pub(super) struct Outage<'a> {
    rig: &'a Rig,
}

impl Outage<'_> {
    /// The server is there again.
    pub(super) async fn end(self) -> Result<(), Failure> {
        self.rig.control(Method::DELETE, "outage", "").await.map(drop)
    }
}

/// A clock that is off until it is put right.
#[must_use = "a clock is off until it is put right"]
pub(super) struct ClockOff<'a> {
    rig: &'a Rig,
}

impl ClockOff<'_> {
    /// The server's clock is right again.
    pub(super) async fn right(self) -> Result<(), Failure> {
        self.rig.control(Method::PUT, "clock", r#"{"offset-ms":0}"#).await.map(drop)
    }
}

impl Rig {
    /// Lifts whatever a scenario that failed has left.
    pub(super) async fn heal(&self) -> Result<(), Failure> {
        self.control(Method::PUT, "clock", r#"{"offset-ms":0}"#).await?;
        self.control(Method::DELETE, "outage", "").await?;
        self.control(Method::DELETE, "faults", "").await.map(drop)
    }
}

/// A prefix in a query: what matrix prefixes consist of needs no more than that.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}
