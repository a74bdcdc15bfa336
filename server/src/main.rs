//! `assay-server`: the embeddable server as a process.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use assay_server::{Error, OpenError, Server, UnfiredFaults};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

mod cli;
mod listing;

use cli::{Cli, Command, Credentials, Env, Listing, Serve, builder};

/// Exit codes, the same in every binary of this workspace.
const STOPPED: u8 = 0;
const USAGE: u8 = 2;
const UNFIRED: u8 = 3;
const OWN_FAULT: u8 = 4;
const DAMAGED: u8 = 5;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse(); // a bad flag ends here, with 2
    let result = match cli.command {
        Some(Command::Env(env)) => print_env(&env),
        Some(Command::Deviations(Listing { json: false })) => Ok(print(&listing::deviations())),
        Some(Command::Deviations(_)) => Ok(print(&format!("{:#}\n", listing::deviations_json()))),
        Some(Command::Profiles(Listing { json: false })) => Ok(print(&listing::profiles())),
        Some(Command::Profiles(_)) => Ok(print(&format!("{:#}\n", listing::profiles_json()))),
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
            Error::Data(OpenError::Damaged { .. }) | Error::DamagedFile(_) => DAMAGED,
            Error::Store(_) => OWN_FAULT,
            _ => USAGE,
        };
        Self { code, message: error.to_string() }
    }
}

/// Whoever closed the pipe does not want the rest.
fn print(text: &str) -> u8 {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    STOPPED
}

fn print_env(env: &Env) -> Result<u8, Failure> {
    let endpoint = match &env.ready_file {
        None => env.endpoint.clone(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}; is the server running?", file.display()))
            })?
            .lines()
            .next()
            .unwrap_or_default()
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
        let server = builder(options).map_err(Failure::usage)?.start().await?;
        // The file before the lines: whoever has read them finds it.
        if let Some(file) = &options.ready_file {
            announce(file, &server).map_err(|error| {
                Failure::usage(format!("cannot write the ready file {}: {error}", file.display()))
            })?;
        }
        // Whoever closed the pipe does not want them, and the server goes on.
        let mut out = std::io::stdout();
        let _ = writeln!(out, "assay-server listening on {}", server.endpoint());
        let (region, access_key, seed) = (server.region(), server.access_key(), server.seed());
        let _ = writeln!(out, "region {region}, access key {access_key}, seed {seed}");
        if options.control.control_listen.is_some() {
            let _ = writeln!(out, "control on {}", server.control_endpoint());
        }
        let code = tokio::select! {
            _ = terminate.recv() => STOPPED,
            _ = interrupt.recv() => INTERRUPTED,
        };
        let fired = if options.faults.strict_faults { server.assert_all_faults_fired() } else { Ok(()) };
        server.stop().await;
        match fired {
            Ok(()) => Ok(code),
            Err(UnfiredFaults(unfired)) => {
                for fault in unfired {
                    eprintln!("assay-server: never fired: {}; {} request(s) matched", fault.rule, fault.seen);
                }
                Ok(UNFIRED)
            }
        }
    })
}

/// Writes the endpoint, and below it that of the control paths where they have one, so that a reader finds all of it
/// or no file.
fn announce(file: &Path, server: &Server) -> std::io::Result<()> {
    let (endpoint, control) = (server.endpoint(), server.control_endpoint());
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let lines =
        if control == endpoint { format!("{endpoint}\n") } else { format!("{endpoint}\n{control}\n") };
    std::fs::write(&part, lines)?;
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
