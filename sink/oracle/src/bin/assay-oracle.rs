//! `assay-oracle`: judges what a sink left in a bucket. Exit code 0 clean, 1 findings, 2 wrong usage or a store
//! that refuses, 3 inconclusive, 7 the store does not answer.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use assay_oracle::bucket::{Access, Bucket, ReadError};
use assay_oracle::durable::{self, Subject};
use assay_oracle::events::Workload;
use assay_oracle::expected::Expected;
use assay_oracle::history;
use assay_oracle::reach::Reach;
use assay_oracle::report::{Report, Verdict};
use assay_oracle::visible::{self, Scope};
use clap::{Args, Parser, Subcommand};

/// Judges what a sink left in a bucket, with a decoder of its own.
///
/// Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    judge: Judge,
}

#[derive(Subcommand)]
enum Judge {
    /// A settled durable_v2 pipeline: HEAD, entries, digests, objects, rows.
    Durable(Durable),
    /// Every delete in the history of a durable_v2 pipeline, judged by what HEAD reached at that moment: for a bucket
    /// that has had versions since before the stream, on a store whose version ids tell the order of commits.
    History(History),
    /// What a consumer sees below a prefix after a campaign: every produced event once, and nothing else.
    Visible(Visible),
}

/// Where the bucket is.
#[derive(Args)]
struct Place {
    /// The store, `http://host:port` or `https://…`; without it, AWS.
    #[arg(long)]
    endpoint: Option<String>,
    /// The region to sign for.
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
    /// The bucket.
    #[arg(long)]
    bucket: String,
    /// The bucket in the host's name; otherwise it is in the path wherever an endpoint is given.
    #[arg(long)]
    virtual_host: bool,
    /// The report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Which pipeline.
#[derive(Args)]
struct Of {
    /// The sink's prefix, as configured.
    #[arg(long, default_value = "")]
    prefix: String,
    /// The pipeline's name, as configured.
    #[arg(long)]
    pipeline: String,
}

impl Of {
    fn subject(&self) -> Subject {
        Subject { prefix: self.prefix.clone(), pipeline: self.pipeline.clone() }
    }
}

#[derive(Args)]
struct History {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    of: Of,
}

#[derive(Args)]
struct Durable {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    of: Of,
    /// Every row version that must be there once, one JSON object a line:
    /// {"namespace":"public","table":"t","row":{"/op":"u","/after":{"id":1}}}; row maps JSON pointers to values.
    #[arg(long)]
    expected: Option<PathBuf>,
}

#[derive(Args)]
struct Visible {
    #[command(flatten)]
    place: Place,
    /// What every object's key begins with; of pipelines, their prefix.
    #[arg(long)]
    prefix: String,
    /// A durable_v2 pipeline, given once for each: only what their HEADs reach is visible then.
    #[arg(long)]
    pipeline: Vec<String>,
    /// The seed of the events.
    #[arg(long)]
    seed: u64,
    /// Distinct keys.
    #[arg(long, default_value_t = 50_000)]
    keys: u32,
    /// How many events each partition has, from partition 0 on, with commas between.
    #[arg(long, value_delimiter = ',', required = true)]
    produced: Vec<u64>,
}

/// Wrong usage or configuration.
const USAGE: u8 = 2;

fn access(options: &Place) -> Result<Access, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let needed = |name: &str| variable(name).ok_or(format!("{name} is not set: credentials come from there"));
    if let Some(endpoint) = &options.endpoint
        && !endpoint.starts_with("http://")
        && !endpoint.starts_with("https://")
    {
        return Err(format!("endpoint {endpoint:?} is no URL: write http://host:port"));
    }
    Ok(Access {
        endpoint: options.endpoint.clone(),
        region: options.region.clone(),
        bucket: options.bucket.clone(),
        path_style: options.endpoint.is_some() && !options.virtual_host,
        access_key: needed("AWS_ACCESS_KEY_ID")?,
        secret_key: needed("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}

fn expected(path: &PathBuf) -> Result<Expected, String> {
    let file = File::open(path).map_err(|why| format!("{}: {why}", path.display()))?;
    Expected::read(BufReader::new(file)).map_err(|why| format!("{}: {why}", path.display()))
}

async fn durable(options: &Durable) -> Result<Report, (u8, String)> {
    let usage = |why| (USAGE, why);
    let bucket = Bucket::new(&access(&options.place).map_err(usage)?);
    let expected = options.expected.as_ref().map(expected).transpose().map_err(usage)?;
    durable::judge(&bucket, &options.of.subject(), expected).await.map_err(|error| unread(&error))
}

async fn history(options: &History) -> Result<Report, (u8, String)> {
    let bucket = Bucket::new(&access(&options.place).map_err(|why| (USAGE, why))?);
    history::judge(&bucket, &options.of.subject()).await.map_err(|error| unread(&error))
}

async fn visible(options: &Visible) -> Result<Report, (u8, String)> {
    let bucket = Bucket::new(&access(&options.place).map_err(|why| (USAGE, why))?);
    let partitions = u32::try_from(options.produced.len()).map_err(|why| (USAGE, why.to_string()))?;
    let workload = Workload { seed: options.seed, partitions, keys: options.keys };
    let scope = if options.pipeline.is_empty() {
        Scope::Prefix(options.prefix.clone())
    } else {
        let subject =
            |pipeline: &String| Subject { prefix: options.prefix.clone(), pipeline: pipeline.clone() };
        Scope::Pipelines(options.pipeline.iter().map(|pipeline| Reach::new(&subject(pipeline))).collect())
    };
    let judged = visible::judge(&bucket, scope, workload, &options.produced);
    judged.await.map_err(|error| unread(&error))
}

fn unread(error: &ReadError) -> (u8, String) {
    let code = match error {
        ReadError::Refused { .. } => USAGE,
        ReadError::Untrusted { .. } => 3,
        ReadError::Unavailable { .. } => 7,
    };
    (code, error.to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let (judged, json) = match Options::parse().judge {
        Judge::Durable(options) => (durable(&options).await, options.place.json),
        Judge::History(options) => (history(&options).await, options.place.json),
        Judge::Visible(options) => (visible(&options).await, options.place.json),
    };
    match judged {
        Ok(report) => {
            let text = if json { report.json() + "\n" } else { report.text() };
            // Whoever closed the pipe does not want the rest; the exit code is the answer.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::from(match report.verdict() {
                Verdict::Clean => 0,
                Verdict::Findings => 1,
                Verdict::Inconclusive => 3,
            })
        }
        Err((code, why)) => {
            eprintln!("assay-oracle: {why}");
            ExitCode::from(code)
        }
    }
}
