//! A pipeline's configuration: YAML, checked as a whole before anything is opened.
//!
//! [`keys::KEYS`] is the one table of keys, defaults and units; the guide prints it. Secrets have no key: they
//! come from the environment or the rest of AWS's default chain.

pub mod keys;
mod lifecycle;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::format::Encoding;
use crate::model::key::{KeyError, PipelineRoot, TableSegment};
use crate::model::position::{GtidSet, Lineage, PositionError, PositionType, TableOrder};

pub use lifecycle::Lifecycle;
use values::Values;

/// Why a pipeline can't be started as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no YAML, or not a mapping.
    #[error("not a pipeline's YAML: {0}")]
    Yaml(String),
    /// A key that nothing reads: most likely a slip.
    #[error("unknown key {path}; known here: {known}")]
    UnknownKey {
        /// Where it stands.
        path: String,
        /// Keys of that place.
        known: String,
    },
    /// A key must be there.
    #[error("{path} is missing")]
    Missing {
        /// Where it would stand.
        path: String,
    },
    /// A value that its key does not take.
    #[error("{path}: {found:?} can't be it: {wanted}")]
    Value {
        /// Where it stands.
        path: String,
        /// What stands there.
        found: String,
        /// What may.
        wanted: String,
    },
    /// A secret in a file.
    #[error(
        "{path} is refused: secrets come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, \
         or the rest of AWS's default chain, never from this file"
    )]
    Secret {
        /// Where it stands.
        path: String,
    },
    /// Not one sink.
    #[error(
        "sinks has {found} sinks, one is wanted: each sink keeps its own position, so give each a pipeline of its own"
    )]
    Sinks {
        /// How many there are.
        found: usize,
    },
    /// Prefix and pipeline can't be part of keys.
    #[error("sinks[0].prefix and pipeline: {0}")]
    Key(#[from] KeyError),
    /// A part of the lineage or a position is none.
    #[error("{path}: {error}")]
    Position {
        /// Where it stands.
        path: &'static str,
        /// What is wrong.
        error: PositionError,
    },
    /// An object could be taken for an orphan before its batch is committed.
    #[error(
        "sinks[0].grace_period_ms: {found_ms} is less than twice send_timeout_ms, which is {send_timeout_ms}: an object \
         could be taken for an orphan before its batch is committed; set at least {least_ms}"
    )]
    GracePeriod {
        /// As it is configured.
        found_ms: u64,
        /// As it is configured.
        send_timeout_ms: u64,
        /// What it must be at least.
        least_ms: u64,
    },
    /// Keys that only work together.
    #[error("{path}: {rule}")]
    Together {
        /// One of them.
        path: &'static str,
        /// The rule.
        rule: &'static str,
    },
}

/// When a batch is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is committed to HEAD.
    DurableV2,
    /// Before it is in the bucket: for rollback only.
    LegacyRolling,
}

/// When `legacy_rolling` rolls a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollingLimits {
    /// Bytes at which it is rolled.
    pub max_bytes: u64,
    /// Age of its first row at which it is rolled, in milliseconds.
    pub max_age_ms: u64,
}

/// When a batch is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most transactions.
    pub max_transactions: u64,
    /// Rows at which it is closed.
    pub max_rows: u64,
    /// Bytes of rows at which it is closed.
    pub max_bytes: u64,
    /// Age of its first event at which it is closed, in milliseconds.
    pub max_age_ms: u64,
    /// Whether it ends at a transaction's boundary only.
    pub respect_source_tx: bool,
}

/// What is known of the source beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Source id of the lineage; nothing if events bring it.
    pub id: Option<String>,
    /// Which position orders the stream; nothing if events say so.
    pub position: Option<PositionType>,
    /// Scope of an LSN.
    pub pg_scope: Option<String>,
    /// Scope of a binlog coordinate.
    pub server_uuid: Option<String>,
    /// Scope of a snapshot's rows.
    pub snapshot_id: Option<String>,
    /// Generation of the lineage.
    pub generation: u64,
    /// GTIDs before the first event of a new stream.
    pub gtid_start: Option<GtidSet>,
    /// How the snapshot's tables follow each other.
    pub tables: TableOrder,
    /// A file or FIFO; nothing is standard input.
    pub input: Option<PathBuf>,
}

/// Where the bucket is, and how patient its requests are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The provider; nothing is AWS.
    pub endpoint: Option<String>,
    /// Region to sign for.
    pub region: String,
    /// Whether the bucket's name goes into the host.
    pub virtual_host: bool,
    /// Milliseconds of one request.
    pub request_timeout_ms: u64,
    /// Milliseconds until a connection stands.
    pub connect_timeout_ms: u64,
}

/// A pipeline that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The pipeline's name.
    pub pipeline: String,
    /// Name of this process for people.
    pub instance: String,
    /// The sink's name, a label of metrics.
    pub sink: String,
    /// The source.
    pub source: Source,
    /// The bucket.
    pub bucket: Bucket,
    /// The prefix as it was configured.
    pub prefix: String,
    /// What every key begins with.
    pub root: PipelineRoot,
    /// When batches are acknowledged.
    pub durability: Durability,
    /// When files are rolled, where they are.
    pub rolling: RollingLimits,
    /// How data objects hold rows.
    pub encoding: Encoding,
    /// When batches are closed.
    pub limits: BatchLimits,
    /// File of the local checkpoint.
    pub local_checkpoint: PathBuf,
    /// Milliseconds until the store counts as unavailable.
    pub send_timeout_ms: u64,
    /// Least milliseconds between two swaps of HEAD.
    pub min_commit_interval_ms: u64,
    /// Most batches of one swap.
    pub group_commit_max_batches: u64,
    /// Batches that wait before reading stops.
    pub queue_batches: u64,
    /// Milliseconds that HEAD must have rested before a takeover.
    pub takeover_quiet_ms: u64,
    /// Most milliseconds between this clock and the store's.
    pub max_clock_skew_ms: u64,
    /// The actors of the background.
    pub lifecycle: Lifecycle,
    /// Where metrics are read; nothing if nowhere.
    pub metrics: Option<SocketAddr>,
    /// How long they stay readable before an end that pages somebody, in milliseconds.
    pub metrics_linger_ms: u64,
}

impl Config {
    /// Reads a pipeline's YAML. `variable` looks up an environment variable.
    ///
    /// # Errors
    /// The first thing that is wrong, with the path of its key.
    pub fn read(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let values = Values::read(text)?;
        let set =
            |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
        let text = |path: &str| values.text(path).unwrap_or_default();
        let number = |path: &str| values.number(path).unwrap_or_default();
        let durability = match &*text("sinks[].durability") {
            "legacy_rolling" => Durability::LegacyRolling,
            _ => Durability::DurableV2,
        };
        let encoding = encoding(&text("sinks[].format"), &text("sinks[].compression"))?;
        if durability == Durability::LegacyRolling && encoding.format() == Encoding::Parquet.format() {
            return Err(ConfigError::Together {
                path: "sinks[0].format",
                rule: "legacy_rolling appends to its files, and a Parquet file can't be appended to: use jsonl",
            });
        }
        let (pipeline, prefix) = (text("pipeline"), text("sinks[].prefix"));
        let root = PipelineRoot::new(&prefix, &pipeline, encoding.extension())?;
        let file = root.as_str().rsplit('/').next().unwrap_or_default();
        let checkpoint =
            values.text("sinks[].local_checkpoint").unwrap_or_else(|| format!("assay-sink.{file}.redb"));
        Ok(Self {
            instance: values.text("instance").or_else(|| set(&["HOSTNAME"])).unwrap_or_default(),
            sink: text("sinks[].name"),
            source: source(&values)?,
            bucket: Bucket {
                name: not_empty(&values, "sinks[].bucket", "sinks[0].bucket")?,
                endpoint: values
                    .text("sinks[].endpoint")
                    .or_else(|| set(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])),
                region: values
                    .text("sinks[].region")
                    .or_else(|| set(&["AWS_REGION", "AWS_DEFAULT_REGION"]))
                    .unwrap_or_else(|| "us-east-1".to_owned()),
                virtual_host: text("sinks[].addressing") == "virtual",
                request_timeout_ms: number("sinks[].request_timeout_ms"),
                connect_timeout_ms: number("sinks[].connect_timeout_ms"),
            },
            limits: BatchLimits {
                max_transactions: number("sinks[].batch.max_transactions"),
                max_rows: number("sinks[].batch.max_rows"),
                max_bytes: number("sinks[].batch.max_bytes"),
                max_age_ms: number("sinks[].batch.max_age_ms"),
                respect_source_tx: values.flag("sinks[].batch.respect_source_tx"),
            },
            durability,
            rolling: RollingLimits {
                max_bytes: number("sinks[].rolling.max_bytes"),
                max_age_ms: number("sinks[].rolling.max_age_ms"),
            },
            local_checkpoint: checkpoint.into(),
            send_timeout_ms: number("sinks[].send_timeout_ms"),
            min_commit_interval_ms: number("sinks[].min_commit_interval_ms"),
            group_commit_max_batches: number("sinks[].group_commit_max_batches"),
            queue_batches: number("sinks[].queue_batches"),
            takeover_quiet_ms: number("sinks[].takeover_quiet_ms"),
            max_clock_skew_ms: number("sinks[].max_clock_skew_ms"),
            lifecycle: Lifecycle::read(&values, number("sinks[].send_timeout_ms"))?,
            metrics: listen(&text("metrics.listen"))?,
            metrics_linger_ms: number("metrics.linger_ms"),
            pipeline,
            prefix,
            root,
            encoding,
        })
    }
}

fn encoding(format: &str, compression: &str) -> Result<Encoding, ConfigError> {
    Encoding::named(format, compression).map_err(|_| ConfigError::Value {
        path: "sinks[0].compression".to_owned(),
        found: compression.to_owned(),
        wanted: format!("no compression that {format} is written with"),
    })
}

fn not_empty(values: &Values, path: &str, shown: &str) -> Result<String, ConfigError> {
    values
        .text(path)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| ConfigError::Missing { path: shown.to_owned() })
}

fn listen(text: &str) -> Result<Option<SocketAddr>, ConfigError> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| ConfigError::Value {
        path: "metrics.listen".to_owned(),
        found: text.to_owned(),
        wanted: "an IP address and a port are wanted, as in 127.0.0.1:9464, or off".to_owned(),
    })
}

fn source(values: &Values) -> Result<Source, ConfigError> {
    let text = |path: &str| values.text(path);
    let position = |path| move |error| ConfigError::Position { path, error };
    let id = text("source.id");
    if let Some(id) = &id {
        Lineage::new(id.clone(), "", 0).map_err(position("source.id"))?;
    }
    let pg_scope = match (text("source.system_identifier"), values.number("source.timeline")) {
        (Some(system), Some(timeline)) => Some(format!("{system}/{timeline}")),
        (None, None) => None,
        _ => {
            return Err(ConfigError::Together {
                path: "source.timeline",
                rule: "system_identifier and timeline are set both or neither: an LSN repeats across timelines",
            });
        }
    };
    let (server_uuid, snapshot_id) = (text("source.server_uuid"), text("source.snapshot_id"));
    for (path, kind, scope) in [
        ("source.system_identifier", PositionType::PgLsn, &pg_scope),
        ("source.server_uuid", PositionType::MysqlBinlog, &server_uuid),
        ("source.snapshot_id", PositionType::Snapshot, &snapshot_id),
    ] {
        scope.as_ref().map_or(Ok(()), |scope| kind.check_scope(scope)).map_err(position(path))?;
    }
    let gtid_start = text("source.gtid_start").map(|set| set.parse()).transpose();
    let tables = values.texts("source.snapshot_tables").map_or_else(|| Ok(TableOrder::any()), tables)?;
    Ok(Source {
        id,
        position: text("source.position")
            .map(|kind| kind.parse())
            .transpose()
            .map_err(position("source.position"))?,
        pg_scope,
        server_uuid,
        snapshot_id,
        generation: values.number("source.generation").unwrap_or_default(),
        gtid_start: gtid_start.map_err(position("source.gtid_start"))?,
        tables,
        input: text("source.input").filter(|input| input != "-").map(PathBuf::from),
    })
}

fn tables(names: &[String]) -> Result<TableOrder, ConfigError> {
    const PATH: &str = "source.snapshot_tables";
    let split = |name: &String| match name.split_once('.') {
        Some((namespace, table)) => {
            TableSegment::new(namespace, table)?;
            Ok((namespace.to_owned(), table.to_owned()))
        }
        None => Err(ConfigError::Value {
            path: PATH.to_owned(),
            found: name.clone(),
            wanted: "namespace.table is wanted".to_owned(),
        }),
    };
    let tables = names.iter().map(split).collect::<Result<_, ConfigError>>()?;
    TableOrder::declared(tables).map_err(|error| ConfigError::Position { path: PATH, error })
}

#[cfg(test)]
mod tests;
