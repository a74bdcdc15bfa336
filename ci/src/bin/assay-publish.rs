//! What an acknowledged batch costs: requests and bytes of the real sink, and its throughput beside plain PUTs of the same
//! bytes to the same server, with latency added to every request.
//!
//! All ways take turns against one embedded server over sockets, whose journal counts the requests. A plain PUT is what
//! the sink's own client sends, without condition, entry or HEAD: the least that storing the bytes can cost.

use std::process::ExitCode;
use std::sync::Arc;

use assay_ci::clock;
use assay_server::Server;
use bytes::Bytes;
use clap::Parser;
use serde::Serialize;
use sinks::env::{Clock, Env, Ids};
use sinks::model::ids::Digest;
use sinks::model::key::PipelineRoot;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::sink::{Batch, EncodedObject, Settings, Sink, Ticket};
use sinks::store::{Access, Condition, Outcome, S3Settings, S3Store, Store};
use tokio::task::JoinSet;

/// The bucket.
const BUCKET: &str = "data";

/// Objects that are written at once, of whatever way.
const PARALLEL: usize = 16;

/// Batches that one swap commits at most, with group commit.
const GROUP: usize = 16;

/// Compares the durable sink's publish path with plain PUTs of the same bytes.
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 done, 2 usage, 4 own fault.")]
struct Options {
    /// Latency added to every request, in milliseconds; each value is a part of the table
    #[arg(long, value_delimiter = ',', default_value = "0,5,50")]
    latency_ms: Vec<u64>,
    /// Batches of each turn
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batches: u64,
    /// Batches of each turn of those ways that wait for every batch
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    waited: u64,
    /// Objects of a batch, one a table
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    objects: u64,
    /// Bytes of an object
    #[arg(long, default_value_t = 32 << 10, value_parser = clap::value_parser!(u64).range(64..=16 << 20))]
    object_bytes: u64,
    /// Turns of each way; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    runs: u64,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
}

/// A way to store a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Plain PUTs of its objects; `waits` for one batch before the next begins.
    Plain { waits: bool },
    /// The sink, with so many batches a swap; `waits` for each acknowledgement.
    Sink { group: usize, waits: bool },
}

const WAYS: [Way; 5] = [
    Way::Plain { waits: true },
    Way::Sink { group: 1, waits: true },
    Way::Plain { waits: false },
    Way::Sink { group: 1, waits: false },
    Way::Sink { group: GROUP, waits: false },
];

impl Way {
    fn waits(self) -> bool {
        matches!(self, Way::Plain { waits: true } | Way::Sink { waits: true, .. })
    }

    fn name(self) -> &'static str {
        match self {
            Way::Plain { waits: true } => "plain PUTs, batch after batch",
            Way::Sink { waits: true, .. } => "sink, batch after batch",
            Way::Plain { waits: false } => "plain PUTs, many at once",
            Way::Sink { group: 1, .. } => "sink, a swap a batch",
            Way::Sink { .. } => "sink, group commit",
        }
    }
}

/// One turn.
#[derive(Clone, Copy)]
struct Turn {
    seconds: f64,
    requests: u64,
    bytes: u64,
}

/// One line of the table: medians over the turns.
#[derive(Serialize)]
struct Row {
    latency_ms: u64,
    way: &'static str,
    batches_per_second: f64,
    megabytes_per_second: f64,
    /// Against plain PUTs that wait, or do not wait, as it does; the median of the turns' own ratios, in percent.
    of_plain_percent: f64,
    requests_per_batch: f64,
    /// Bytes of request bodies beside the objects'.
    extra_bytes_per_batch: f64,
    ms_per_batch: f64,
}

#[derive(Debug)]
struct WallClock;

impl Clock for WallClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(clock::wall()().unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
    }
}

struct Bench<'a> {
    options: &'a Options,
    server: &'a Server,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Bench<'_> {
    fn store(&self) -> Result<S3Store, Failed> {
        let endpoint = self.server.endpoint().to_owned();
        let settings = S3Settings::new(Some(endpoint), self.server.region().to_owned(), BUCKET.to_owned());
        let access = Access::keys(self.server.access_key(), self.server.secret_key(), None);
        Ok(S3Store::new(&settings, &access)?)
    }

    /// Batch `n` of a turn: the same bytes for every way.
    fn batch(&self, n: u64) -> Result<Batch, Failed> {
        let lineage = Lineage::new("bench", "7301234567890123456/1", 1)?;
        let objects = (0..self.options.objects).map(|table| {
            let line = format!("{{\"batch\":{n},\"table\":{table},\"padding\":\"\"}}\n");
            let size = usize::try_from(self.options.object_bytes).unwrap_or_default();
            let padding = "x".repeat(size.saturating_sub(line.len()));
            let bytes = Bytes::from(line.replace("\"\"", &format!("\"{padding}\"")));
            EncodedObject {
                namespace: "bench".to_owned(),
                table: format!("table{table}"),
                rows: 1,
                format: "jsonl",
                compression: "none",
                extension: "jsonl",
                schema_fingerprint: Digest::of(b"bench"),
                row_seq_digest: Digest::of(&bytes),
                bytes,
            }
        });
        Ok(Batch {
            position: Position::parse(PositionType::PgLsn, lineage, &format!("0/{n:X}"), 0)?,
            objects: objects.collect(),
            events: self.options.objects,
            min_ts_ms: None,
            max_ts_ms: None,
        })
    }

    /// One turn of one way, on keys of its own. The sink's start is not counted.
    async fn turn(&self, way: Way, prefix: &str) -> Result<Turn, Failed> {
        let count = if way.waits() { self.options.waited } else { self.options.batches };
        let batches = (1..=count).map(|n| self.batch(n)).collect::<Result<Vec<_>, _>>()?;
        let sink = match way {
            Way::Plain { .. } => None,
            Way::Sink { group, .. } => Some(self.start(group, prefix).await?),
        };
        let store = Arc::new(self.store()?);
        // A connection that stands, as the sink's does.
        stored(&store, &format!("{prefix}/first"), Bytes::new()).await?;
        let (before, began) = (self.server.journal().last(), clock::now());
        match sink {
            None => plain(&store, prefix, batches, way.waits()).await?,
            Some(sink) => published(sink, batches, way.waits()).await?,
        }
        let seconds = began.elapsed().as_secs_f64();
        let records = self.server.journal().filter(|record| record.number > before);
        let bytes = records.iter().map(|record| record.body_size).sum();
        Ok(Turn { seconds, requests: u64::try_from(records.len())?, bytes })
    }

    async fn start(&self, group: usize, prefix: &str) -> Result<Sink, Failed> {
        let env = Env {
            store: Arc::new(self.store()?),
            clock: Arc::new(WallClock),
            ids: Arc::new(Ids::seeded(u64::try_from(prefix.len())?)),
        };
        let root = PipelineRoot::new(prefix, "bench", "jsonl")?;
        let settings = Settings {
            group_commit_max_batches: group,
            parallel_puts: PARALLEL,
            ..Settings::new(root, "bench", prefix, "bench")
        };
        Ok(Sink::start(env, settings).await?)
    }

    /// Every way in turn at one latency, as often as wanted.
    async fn rows(&self, latency_ms: u64) -> Result<Vec<Row>, Failed> {
        let rule = format!("effect=delay ms={latency_ms}");
        let _slow = match latency_ms {
            0 => None,
            _ => Some(self.server.fault(rule.parse()?)?),
        };
        let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); WAYS.len()];
        for run in 0..self.options.runs {
            for (way, turns) in WAYS.into_iter().zip(&mut turns) {
                let place =
                    turns.len() + WAYS.iter().position(|other| *other == way).unwrap_or_default() * 100;
                turns.push(self.turn(way, &format!("{latency_ms}ms/run{run}/way{place}")).await?);
            }
        }
        Ok(WAYS.into_iter().enumerate().map(|(at, way)| self.row(latency_ms, way, &turns, at)).collect())
    }

    fn row(&self, latency_ms: u64, way: Way, turns: &[Vec<Turn>], at: usize) -> Row {
        let count = if way.waits() { self.options.waited } else { self.options.batches } as f64;
        let payload = (self.options.objects * self.options.object_bytes) as f64;
        let plain =
            WAYS.iter().position(|other| *other == Way::Plain { waits: way.waits() }).unwrap_or_default();
        let of = |value: &dyn Fn(&Turn) -> f64| median(turns[at].iter().map(value).collect());
        let seconds = of(&|turn| turn.seconds);
        let ratios =
            turns[at].iter().zip(&turns[plain]).map(|(own, plain)| plain.seconds / own.seconds * 100.0);
        Row {
            latency_ms,
            way: way.name(),
            batches_per_second: count / seconds,
            megabytes_per_second: count * payload / 1e6 / seconds,
            of_plain_percent: median(ratios.collect()),
            requests_per_batch: of(&|turn| turn.requests as f64) / count,
            extra_bytes_per_batch: of(&|turn| turn.bytes as f64) / count - payload,
            ms_per_batch: seconds * 1e3 / count,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn stored(store: &S3Store, key: &str, bytes: Bytes) -> Result<(), Failed> {
    match store.put(key, bytes, Condition::None, &[]).await {
        Outcome::Done(_) => Ok(()),
        other => Err(format!("PUT of {key}: {other:?}").into()),
    }
}

/// Plain PUTs of all objects, [`PARALLEL`] at once at most.
async fn plain(store: &Arc<S3Store>, prefix: &str, batches: Vec<Batch>, waits: bool) -> Result<(), Failed> {
    let mut running = JoinSet::new();
    for (n, batch) in batches.into_iter().enumerate() {
        for object in batch.objects {
            if running.len() == PARALLEL
                && let Some(done) = running.join_next().await
            {
                done??;
            }
            let (store, key) = (store.clone(), format!("{prefix}/{}/{n:06}", object.table));
            running.spawn(async move { stored(&store, &key, object.bytes).await });
        }
        while waits && let Some(done) = running.join_next().await {
            done??;
        }
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}

/// All batches through the sink, each acknowledged.
async fn published(sink: Sink, batches: Vec<Batch>, waits: bool) -> Result<(), Failed> {
    let mut tickets: Vec<Ticket> = Vec::new();
    for batch in batches {
        let mut ticket = sink.submit(batch).await?;
        match waits {
            true => drop(ticket.acknowledged().await?),
            false => tickets.push(ticket),
        }
    }
    for mut ticket in tickets {
        ticket.acknowledged().await?;
    }
    Ok(sink.close().await?)
}

fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "{:>5} {:<30} {:>7} {:>7} {:>6} {:>8} {:>6}\n",
        "ms", "way", "batch/s", "MB/s", "plain", "requests", "extra"
    );
    for row in rows {
        out += &format!(
            "{:>5} {:<30} {:>7.1} {:>7.2} {:>5.0}% {:>8.2} {:>6.0}\n",
            row.latency_ms,
            row.way,
            row.batches_per_second,
            row.megabytes_per_second,
            row.of_plain_percent,
            row.requests_per_batch,
            row.extra_bytes_per_batch
        );
    }
    out
}

async fn run(options: &Options) -> Result<(), Failed> {
    let server = Server::builder().bucket(BUCKET).start().await?;
    let bench = Bench { options, server: &server };
    for way in WAYS {
        bench.turn(way, &format!("warm/{}", way.name().replace([' ', ','], "-"))).await?;
    }
    let mut rows = Vec::new();
    for latency_ms in &options.latency_ms {
        rows.extend(bench.rows(*latency_ms).await?);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!(
        "{} objects of {} bytes a batch; {} batches a turn, {} where each is waited for; medians of {} turns\n",
        options.objects, options.object_bytes, options.batches, options.waited, options.runs
    );
    print!("{}", table(&rows));
    println!(
        "\nms: added to each request; plain: of the throughput of the plain PUTs above;\n\
         requests, extra: a batch's requests, and bytes sent beside its objects'"
    );
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("assay-publish: {why}");
            ExitCode::from(4)
        }
    }
}
