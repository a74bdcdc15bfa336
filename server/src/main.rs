//! `assay-server`: the embeddable server as a process.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_server::{AuthMode, Builder, Error, OpenError, Server};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit codes, the same in every binary of this workspace.
const STOPPED: u8 = 0;
const USAGE: u8 = 2;
const OWN_FAULT: u8 = 4;
const DAMAGED: u8 = 5;
const INTERRUPTED: u8 = 130;

/// A local S3 server that answers as AWS does.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  assay-server --bucket data\n  assay-server --listen 127.0.0.1:0 --ready-file endpoint --data ./s3\n  eval \"$(assay-server env)\"; aws s3 ls\n\nExit codes: 0 stopped by SIGTERM, 2 usage or configuration, 4 own fault, 5 damaged data directory, 130 interrupted (SIGINT)."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the exports that the AWS tools and SDKs read.
    Env(Env),
}

#[derive(Args)]
struct Credentials {
    /// The access key that requests are signed with.
    #[arg(long, env = "ASSAY_ACCESS_KEY", default_value = "test")]
    access_key: String,
    /// The secret key that requests are signed with.
    #[arg(long, env = "ASSAY_SECRET_KEY", default_value = "test", hide_env_values = true)]
    secret_key: String,
    /// The region of the endpoint.
    #[arg(long, env = "ASSAY_REGION", default_value = "us-east-1")]
    region: String,
}

#[derive(Args)]
struct Serve {
    /// Address and port to listen on; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Writes the endpoint's URL to this file once requests are answered.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Keeps everything in this directory; without it, in memory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A bucket to have from the start; repeatable.
    #[arg(long = "bucket", value_name = "NAME")]
    buckets: Vec<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// Stands for the endpoints of all regions: takes signatures for any region, and answers as that
    /// region's endpoint does.
    #[arg(long)]
    any_region: bool,
    /// What is checked of a request's credentials: everything; only that there are any; nothing.
    #[arg(long, value_enum, default_value_t = Auth::Strict)]
    auth: Auth,
    /// A domain under which BUCKET.DOMAIN names a bucket, beside path style; repeatable.
    #[arg(long = "domain", value_name = "DOMAIN")]
    domains: Vec<String>,
    /// What is logged to standard error: a level (error, warn, info, debug), or filters such as
    /// `assay_server=debug`.
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    log: String,
    /// Logs as JSON, a line an event.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Auth {
    Strict,
    Any,
    None,
}

#[derive(Args)]
struct Env {
    /// The endpoint's URL.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9000", conflicts_with = "ready_file")]
    endpoint: String,
    /// Takes the endpoint's URL from the file that `--ready-file` wrote.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    credentials: Credentials,
}

fn main() -> ExitCode {
    let cli = Cli::parse(); // a bad flag ends here, with 2
    let result = match cli.command {
        Some(Command::Env(env)) => print_env(&env),
        None => serve(&cli.serve),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("assay-server: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// One line for the person at the terminal, and what a script sees.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Data(OpenError::Damaged { .. }) => DAMAGED,
            Error::Store(_) => OWN_FAULT,
            _ => USAGE,
        };
        Self { code, message: error.to_string() }
    }
}

fn print_env(env: &Env) -> Result<u8, Failure> {
    let endpoint = match &env.ready_file {
        None => env.endpoint.clone(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}; is the server running?", file.display()))
            })?
            .trim()
            .to_owned(),
    };
    let Credentials { access_key, secret_key, region } = &env.credentials;
    let mut out = std::io::stdout().lock();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ENDPOINT_URL_S3", &endpoint),
        ("AWS_ACCESS_KEY_ID", access_key),
        ("AWS_SECRET_ACCESS_KEY", secret_key),
        ("AWS_REGION", region),
        ("AWS_DEFAULT_REGION", region),
    ] {
        let quoted = value.replace('\'', r"'\''");
        // Whoever closed the pipe does not want the rest.
        let _ = writeln!(out, "export {name}='{quoted}'");
    }
    Ok(STOPPED)
}

fn serve(options: &Serve) -> Result<u8, Failure> {
    start_log(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure { code: OWN_FAULT, message: format!("cannot start a runtime: {error}") })?;
    runtime.block_on(async {
        // Before the server, so that no signal finds it half started.
        let listen_for = |kind| {
            signal(kind).map_err(|error| Failure {
                code: OWN_FAULT,
                message: format!("cannot listen for signals: {error}"),
            })
        };
        let mut terminate = listen_for(SignalKind::terminate())?;
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        let server = builder(options).start().await?;
        // The file before the lines: whoever has read them finds it.
        if let Some(file) = &options.ready_file {
            announce(file, server.endpoint()).map_err(|error| {
                Failure::usage(format!("cannot write the ready file {}: {error}", file.display()))
            })?;
        }
        // Whoever closed the pipe does not want them, and the server goes on.
        let mut out = std::io::stdout();
        let _ = writeln!(out, "assay-server listening on {}", server.endpoint());
        let _ = writeln!(out, "region {}, access key {}", server.region(), server.access_key());
        let code = tokio::select! {
            _ = terminate.recv() => STOPPED,
            _ = interrupt.recv() => INTERRUPTED,
        };
        server.stop().await;
        Ok(code)
    })
}

fn builder(options: &Serve) -> Builder {
    let Credentials { access_key, secret_key, region } = &options.credentials;
    let mut builder =
        Server::builder().listen(options.listen).credentials(access_key, secret_key).region(region).auth(
            match options.auth {
                Auth::Strict => AuthMode::Strict,
                Auth::Any => AuthMode::Any,
                Auth::None => AuthMode::None,
            },
        );
    builder = builder.any_region(options.any_region);
    if let Some(data) = &options.data {
        builder = builder.data(data);
    }
    for bucket in &options.buckets {
        builder = builder.bucket(bucket);
    }
    for domain in &options.domains {
        builder = builder.domain(domain);
    }
    builder
}

/// Writes the endpoint so that a reader finds all of it or no file.
fn announce(file: &Path, endpoint: &str) -> std::io::Result<()> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, format!("{endpoint}\n"))?;
    std::fs::rename(&part, file)
}

fn start_log(options: &Serve) -> Result<(), Failure> {
    let filter: Targets = options.log.parse().map_err(|error| {
        Failure::usage(format!(
            "--log {:?} is no filter: {error}; try error, warn, info or debug",
            options.log
        ))
    })?;
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let registry = tracing_subscriber::registry().with(filter);
    if options.json {
        registry.with(log.json()).init()
    } else {
        registry.with(log).init()
    }
    Ok(())
}
