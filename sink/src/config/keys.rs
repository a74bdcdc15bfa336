//! Every key of a pipeline's YAML: the one table that the reader checks against and the guide prints.

use std::fmt::Write as _;

/// What a key's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text; numbers are taken as they are written.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number in these bounds, both included.
    Number(u64, u64),
    /// `true` or `false`.
    Flag,
    /// A list of texts.
    Texts,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Where it stands: names with dots between, `sinks[]` for the one sink.
    pub path: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is where it is left out, as the guide prints it; [`REQUIRED`] or another text in parentheses
    /// stands for a rule.
    pub default: &'static str,
    /// Unit of the number, or nothing.
    pub unit: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// The default of a key that must be there.
pub const REQUIRED: &str = "(required)";

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const YEAR_MS: u64 = 365 * DAY_MS;

const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    meaning: &'static str,
) -> Key {
    Key { path, kind, default, unit, meaning }
}

/// All keys, in the order of the guide.
pub const KEYS: &[Key] = &[
    key(
        "pipeline",
        Kind::Text,
        "default",
        "",
        "Name of the pipeline: a segment of every key, and a label of every metric. Never changed once data is written.",
    ),
    key(
        "instance",
        Kind::Text,
        "(`HOSTNAME`, or empty)",
        "",
        "Name of this process for people: in HEAD's owner and in logs.",
    ),
    key(
        "source.id",
        Kind::Text,
        "(from the events)",
        "",
        "Source id of the lineage. Events that name another one are refused.",
    ),
    key(
        "source.position",
        Kind::Choice(&["mysql-gtid", "mysql-binlog", "pg-lsn"]),
        "(from the events)",
        "",
        "Which position the stream is ordered by. Debezium's MySQL events may carry two.",
    ),
    key(
        "source.system_identifier",
        Kind::Text,
        "(from the events)",
        "",
        "PostgreSQL: `system_identifier` of `pg_control_system()`. With `source.timeline` the scope of an LSN.",
    ),
    key(
        "source.timeline",
        Kind::Number(1, 4_294_967_295),
        "(from the events)",
        "",
        "PostgreSQL: the timeline of the slot, in decimal.",
    ),
    key(
        "source.server_uuid",
        Kind::Text,
        "(from the events)",
        "",
        "MySQL: `@@server_uuid`, the scope of a binlog coordinate. Not used with GTIDs.",
    ),
    key(
        "source.generation",
        Kind::Number(0, u64::MAX),
        "1",
        "",
        "One more whenever positions may be seen a second time: a new snapshot, RESET BINARY LOGS, a repaired timeline. No process of the one before may still run.",
    ),
    key(
        "source.snapshot_id",
        Kind::Text,
        "(from the events)",
        "",
        "Id of the snapshot's run, the scope of its rows' positions. Another one for each run.",
    ),
    key(
        "source.snapshot_tables",
        Kind::Texts,
        "(any order)",
        "",
        "Tables of the snapshot as `namespace.table`, in the order in which they are read.",
    ),
    key(
        "source.gtid_start",
        Kind::Text,
        "(required for a new stream of GTIDs)",
        "",
        "GTID set that the first event comes after, from which sets are accumulated; `\"\"` for an empty server.",
    ),
    key(
        "source.input",
        Kind::Text,
        "-",
        "",
        "Where events are read from: a file or FIFO, or `-` for standard input.",
    ),
    key(
        "sinks[].type",
        Kind::Choice(&["s3"]),
        REQUIRED,
        "",
        "Kind of the sink. There is one sink in a pipeline.",
    ),
    key("sinks[].name", Kind::Text, "s3", "", "Name of the sink: the label `sink` of every metric."),
    key("sinks[].bucket", Kind::Text, REQUIRED, "", "The bucket. It exists beforehand."),
    key(
        "sinks[].durability",
        Kind::Choice(&["durable_v2", "legacy_rolling"]),
        "durable_v2",
        "",
        "When a batch is acknowledged: `durable_v2`, once HEAD's swap committed it; `legacy_rolling`, before it is in the bucket (see Rollback).",
    ),
    key(
        "sinks[].endpoint",
        Kind::Text,
        "(`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or AWS)",
        "",
        "`http://` or `https://`, host and port of the provider.",
    ),
    key(
        "sinks[].region",
        Kind::Text,
        "(`AWS_REGION`, `AWS_DEFAULT_REGION`, or `us-east-1`)",
        "",
        "Region that requests are signed for.",
    ),
    key(
        "sinks[].addressing",
        Kind::Choice(&["path", "virtual"]),
        "path",
        "",
        "Where the bucket's name goes: in the path, or in the host.",
    ),
    key(
        "sinks[].prefix",
        Kind::Text,
        "\"\"",
        "",
        "What every key begins with, without a slash at either end.",
    ),
    key(
        "sinks[].format",
        Kind::Choice(&["jsonl", "parquet"]),
        "jsonl",
        "",
        "Format of data objects: JSON Lines, or Parquet with typed columns.",
    ),
    key(
        "sinks[].compression",
        Kind::Choice(&["none", "gzip", "snappy", "zstd"]),
        "none",
        "",
        "Compression of data objects: `gzip` of JSON Lines, `snappy` of Parquet's pages, `zstd` and `none` of both. Extensions are `.jsonl`, `.jsonl.gz`, `.jsonl.zst`, `.parquet`.",
    ),
    key(
        "sinks[].local_checkpoint",
        Kind::Text,
        "(`assay-sink.` and the pipeline's encoded name `.redb`)",
        "",
        "File of the local checkpoint: what this host acknowledged. HEAD decides; without the file a start is safe too.",
    ),
    key(
        "sinks[].batch.max_transactions",
        Kind::Number(1, 1_000_000),
        "1000",
        "transactions",
        "Most transactions in a batch.",
    ),
    key(
        "sinks[].batch.max_rows",
        Kind::Number(1, 10_000_000),
        "10000",
        "rows",
        "Rows at which a batch is closed.",
    ),
    key(
        "sinks[].batch.max_bytes",
        Kind::Number(1, 1 << 30),
        "8388608",
        "bytes",
        "Bytes of rows, before compression, at which a batch is closed.",
    ),
    key(
        "sinks[].batch.max_age_ms",
        Kind::Number(1, DAY_MS),
        "1000",
        "ms",
        "Age of its first event at which a batch is closed.",
    ),
    key(
        "sinks[].batch.respect_source_tx",
        Kind::Flag,
        "true",
        "",
        "Whether a batch ends at a transaction's boundary only. A transaction then stays in memory until it is whole, whatever its size.",
    ),
    key(
        "sinks[].send_timeout_ms",
        Kind::Number(1, DAY_MS),
        "60000",
        "ms",
        "How long a request is repeated until the store counts as unavailable.",
    ),
    key(
        "sinks[].request_timeout_ms",
        Kind::Number(1, DAY_MS),
        "30000",
        "ms",
        "How long one request may take, its body included.",
    ),
    key(
        "sinks[].connect_timeout_ms",
        Kind::Number(1, DAY_MS),
        "5000",
        "ms",
        "How long a connection may take until it stands.",
    ),
    key(
        "sinks[].min_commit_interval_ms",
        Kind::Number(0, DAY_MS),
        "0",
        "ms",
        "Least time between two swaps of HEAD, for stores that limit writes to one key.",
    ),
    key(
        "sinks[].group_commit_max_batches",
        Kind::Number(1, 1024),
        "16",
        "batches",
        "Most batches that one swap of HEAD commits.",
    ),
    key(
        "sinks[].queue_batches",
        Kind::Number(1, 1024),
        "32",
        "batches",
        "Batches that wait for the store before reading stops.",
    ),
    key(
        "sinks[].takeover_quiet_ms",
        Kind::Number(0, DAY_MS),
        "0",
        "ms",
        "How long HEAD must have rested before another owner's stream is taken over.",
    ),
    key(
        "sinks[].max_clock_skew_ms",
        Kind::Number(0, DAY_MS),
        "300000",
        "ms",
        "How far this clock may be from the store's `Date`.",
    ),
    key(
        "sinks[].actors_every_ms",
        Kind::Number(1, DAY_MS),
        "10000",
        "ms",
        "Least time between two rounds of the background actors, up to a tenth more by chance.",
    ),
    key(
        "sinks[].rollup_every_entries",
        Kind::Number(1, 1_000_000),
        "256",
        "entries",
        "Entries after which a rollup is due.",
    ),
    key(
        "sinks[].rollup_every_ms",
        Kind::Number(1, DAY_MS),
        "600000",
        "ms",
        "Time after which a rollup is due that has at least one new entry.",
    ),
    key(
        "sinks[].mark_entries",
        Kind::Flag,
        "true",
        "",
        "Mark manifest entries that may go. Deletes nothing.",
    ),
    key(
        "sinks[].safety_window_ms",
        Kind::Number(0, YEAR_MS),
        "3600000",
        "ms",
        "How long the current rollup generation must have been published before entries are marked: longer than any restart or recovery takes.",
    ),
    key(
        "sinks[].expire_entries",
        Kind::Flag,
        "false",
        "",
        "Delete marked entries. Recovery then reads their inventories.",
    ),
    key(
        "sinks[].compact",
        Kind::Flag,
        "false",
        "",
        "Write adjacent objects of a table as one. Deletes nothing.",
    ),
    key(
        "sinks[].compaction.min_inputs",
        Kind::Number(2, 10_000),
        "8",
        "objects",
        "Fewest adjacent objects that become one where more can come; where none can, two are enough.",
    ),
    key(
        "sinks[].compaction.max_inputs",
        Kind::Number(2, 10_000),
        "4096",
        "objects",
        "Most objects that become one.",
    ),
    key(
        "sinks[].compaction.target_bytes",
        Kind::Number(1, 1 << 30),
        "67108864",
        "bytes",
        "Stored bytes of the objects that become one, at most. Objects of half that size are left alone. They are read into memory.",
    ),
    key(
        "sinks[].delete_originals",
        Kind::Flag,
        "false",
        "",
        "Delete originals that an equivalent compaction has superseded.",
    ),
    key(
        "sinks[].originals_retention_ms",
        Kind::Number(0, YEAR_MS),
        "86400000",
        "ms",
        "How long originals stay after HEAD reached the compaction: longer than any reader works with an older HEAD.",
    ),
    key("sinks[].reconcile", Kind::Flag, "false", "", "Delete orphans: objects that HEAD does not reach."),
    key(
        "sinks[].grace_period_ms",
        Kind::Number(1, YEAR_MS),
        "86400000",
        "ms",
        "Age by the store's clock above which an unreachable object is an orphan: longer than the longest gap between an object's write and its commit. At least twice `send_timeout_ms`.",
    ),
    key(
        "sinks[].reconcile_every_ms",
        Kind::Number(1, YEAR_MS),
        "3600000",
        "ms",
        "Least time between two reconciliations: each lists everything.",
    ),
    key(
        "sinks[].brake.percent",
        Kind::Number(1, 100),
        "50",
        "%",
        "Share of the listed objects above which a reconciliation of more than 100 orphans stops and asks.",
    ),
    key(
        "sinks[].brake.objects",
        Kind::Number(1, 1_000_000_000),
        "10000",
        "objects",
        "Orphans above which a reconciliation stops and asks.",
    ),
    key(
        "sinks[].require_owner_stamp",
        Kind::Flag,
        "false",
        "",
        "Delete only orphaned data that carries this stream's id in its metadata: for buckets where others write below the pipeline's prefix.",
    ),
    key(
        "sinks[].rolling.max_bytes",
        Kind::Number(1, 1 << 36),
        "134217728",
        "bytes",
        "`legacy_rolling`: bytes at which a table's file is rolled.",
    ),
    key(
        "sinks[].rolling.max_age_ms",
        Kind::Number(1, DAY_MS),
        "300000",
        "ms",
        "`legacy_rolling`: age of its first row at which a table's file is rolled. What a crash may lose is no older.",
    ),
    key("metrics.listen", Kind::Text, "127.0.0.1:9464", "", "Address of `/metrics` and `/status`, or `off`."),
    key(
        "metrics.linger_ms",
        Kind::Number(0, 3_600_000),
        "60000",
        "ms",
        "How long both stay readable before a process ends that was refused, fenced or found an integrity failure: two intervals of the scraper. A signal ends it at once.",
    ),
];

/// Keys that hold a secret elsewhere: refused, and their value never shown.
pub const SECRETS: [&str; 12] = [
    "access_key",
    "access_key_id",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "credentials",
    "password",
    "secret",
    "secret_access_key",
    "secret_key",
    "session_token",
    "token",
];

/// The guide's table of keys, in Markdown.
#[must_use]
pub fn table() -> String {
    let mut out =
        String::from("| key | values | default | unit | meaning |\n| --- | --- | --- | --- | --- |\n");
    for Key { path, kind, default, unit, meaning } in KEYS {
        let values = match kind {
            Kind::Text => "text".to_owned(),
            Kind::Texts => "list of texts".to_owned(),
            Kind::Flag => "`true`, `false`".to_owned(),
            Kind::Number(least, u64::MAX) => format!("from {least}"),
            Kind::Number(least, most) => format!("{least} to {most}"),
            Kind::Choice(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
        };
        let default = match default.strip_prefix('(').and_then(|rule| rule.strip_suffix(')')) {
            Some(rule) => rule.to_owned(),
            None => format!("`{default}`"),
        };
        // Writing to a String succeeds.
        let _ = writeln!(out, "| `{path}` | {values} | {default} | {unit} | {meaning} |");
    }
    out
}
