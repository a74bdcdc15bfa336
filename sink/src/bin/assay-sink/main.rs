//! `assay-sink`: a pipeline's sink as a process, and what people ask of its bucket.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use sinks::config::ConfigError;
use sinks::error::SinkError;
use sinks::stop::Actor;
use sinks::store::SettingsError;
use tracing_subscriber::filter::LevelFilter;

mod actors;
mod ask;
mod digest;
mod input;
mod line;
mod open;
mod probe;
mod read;
mod rolling;
mod run;
mod source;
mod stop;

/// Exit codes, the same in every binary of this workspace.
const DONE: u8 = 0;
const REFUSED: u8 = 1;
const USAGE: u8 = 2;
const OWN_FAULT: u8 = 4;
const INTEGRITY: u8 = 5;
const FENCED: u8 = 6;
const UNAVAILABLE: u8 = 7;
const INTERRUPTED: u8 = 130;

/// A build that ends itself at named points of the protocol says so: a campaign refuses any other, and an
/// operator this one.
const VERSION: &str = if sinks::point::ARMABLE {
    concat!(env!("CARGO_PKG_VERSION"), "+protocol-points")
} else {
    env!("CARGO_PKG_VERSION")
};

const AFTER_HELP: &str = "\
Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or
the rest of AWS's default chain. Answers go to standard output, logs to standard error.

Exit codes:
  0    done; of run, the input ended or SIGTERM came, and all of it is acknowledged
  1    refused: the provider failed the probe, another process owns the stream, or the brake
  2    usage or configuration, or an event that can't be taken
  3    inconclusive: the probe could not be finished, or an actor stopped in doubt
  4    a fault of the sink itself
  5    integrity alarm: the bucket does not hold what it must; page
  6    fenced: another process owns the pipeline
  7    the store is unavailable
  130  interrupted";

/// Crash-durable S3 sink for change streams.
#[derive(Parser)]
#[command(name = "assay-sink", version = VERSION, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Logs from this level on
    #[arg(long, global = true, value_name = "LEVEL", env = "ASSAY_SINK_LOG", default_value = "info")]
    log: LevelFilter,
    /// How logs are written
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Write a pipeline's events to its bucket, and acknowledge them on standard output
    Run(run::Run),
    /// Ask the provider for everything that durable_v2 needs of it
    Probe(probe::Probe),
    /// What HEAD says: epoch, last entry, watermark
    Status(ask::Ask),
    /// Verify everything that HEAD reaches
    Verify(ask::Verify),
    /// Committed rows in order, table by table
    Read(read::Read),
    /// Mark entries that may go, delete marked ones, delete originals that a compaction superseded
    Gc(actors::Gc),
    /// Write adjacent objects of a table as one
    Compact(actors::Once),
    /// Delete orphans: objects that HEAD does not reach
    Reconcile(actors::Once),
    /// Roll entries up into inventories
    Rollup(actors::Rollup),
    /// The digest of a position: what stands behind wm2- in a key
    Digest(digest::Digest),
}

/// What a script sees, and one line for the person at the terminal.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(USAGE, error.to_string())
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::new(USAGE, format!("sinks[0]: {error}"))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse(); // a bad flag ends here, with 2
    log(cli.log, cli.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(Err(Failure::new(OWN_FAULT, format!("no runtime: {error}")))),
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Run(run) => run.run().await,
            Command::Probe(probe) => probe.run().await,
            Command::Status(ask) => ask.status().await,
            Command::Verify(verify) => verify.run().await,
            Command::Read(read) => read.run().await,
            Command::Gc(gc) => gc.run().await,
            Command::Compact(once) => once.run(&[Actor::Compact]).await,
            Command::Reconcile(once) => once.run(&[Actor::Reconcile]).await,
            Command::Rollup(rollup) => rollup.run().await,
            Command::Digest(digest) => digest.run(),
        }
    });
    // Reading a terminal or a FIFO may block for ever; nothing waits for it.
    runtime.shutdown_background();
    end(result)
}

fn end(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("assay-sink: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn log(level: LevelFilter, format: LogFormat) {
    let terminal = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(terminal);
    let logs = logs.with_max_level(level);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

/// Writes an answer. Whoever closed the pipe does not want the rest.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Writes an answer as one JSON document.
fn print_json(answer: &impl serde::Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string_pretty(answer)
        .map_err(|error| Failure::new(OWN_FAULT, format!("an answer can't be written: {error}")))?;
    print(&format!("{text}\n"));
    Ok(DONE)
}
