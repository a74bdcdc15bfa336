//! `assay-campaign`: real processes, real kills, an independent judge. Exit code 0 pass, 1 fail, 2 usage or a build
//! without points, 3 inconclusive, 4 our own fault, 7 a provider or brokers that do not answer; of a role also 5
//! integrity, 6 fenced.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sinks::matrix::provider::{self, Provider};
use sinks::stage::mutant::Mutant;
use sinks::store::{Access, Addressing, Outcome as Answer, S3Settings, S3Store, Store as _};
use tokio::time::Instant;

mod campaign;
mod chaos;
mod clock;
mod coordinator;
mod coverage;
mod durable;
mod failure;
mod fault;
mod generator;
mod judge;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
mod loss;
mod page;
mod plan;
mod relay;
mod report;
mod rig;
mod seen;
mod source;
mod wire;
mod worker;

use assay_server::{Deviation, Rule, Server};
use campaign::{Extent, Outcome};
use failure::Failure;
use plan::{ADDRESS, BUCKET, KEYS, Kafka, PARTITIONS, Plan, Sink, Upstream};

/// Faults by chance of a rehearsal, in minutes.
const SMOKE_MINUTES: u64 = 30;

const INTERRUPTED: i32 = 130;

/// The topic of Kafka's protocol, where no other is named.
const TOPIC: &str = "assay-campaign";

/// Proves staged commits with real processes, real kills and an independent judge.
#[derive(Parser)]
#[command(name = "assay-campaign", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every mandatory fault once
    Gate(Run),
    /// Every mandatory fault once, then faults by chance for half an hour
    Smoke(Run),
    /// Every mandatory fault once, then faults by chance
    Soak {
        #[command(flatten)]
        run: Run,
        /// For how many minutes after the mandatory ones
        #[arg(long, default_value_t = 120)]
        minutes: u64,
    },
    /// The short gate once with each mistake that can be made on purpose: each must fail
    Mutants(Run),
    /// One of a campaign's processes
    #[command(hide = true)]
    Role(RoleOf),
}

#[derive(Clone, Args)]
struct Run {
    /// Which sink
    #[arg(long, default_value = "staged")]
    sink: Sink,
    /// How much of the mandatory faults
    #[arg(long, default_value = "full")]
    profile: Profile,
    /// From which events and chance follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// An empty directory for the evidence
    #[arg(long)]
    evidence: PathBuf,
    /// Events a second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Worker processes; each partition is of one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS)))]
    workers: u32,
    /// From one checkpoint to the next, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    checkpoint_ms: u64,
    /// A mistake to make on purpose: the campaign must fail
    #[arg(long)]
    mutant: Option<String>,
    /// Someone else writes at keys of the staged job, first of all faults: the campaign must fail
    #[arg(long)]
    foreign_object: bool,
    /// A lasting misbehaviour of the store: the campaign must fail; may be given several times
    #[arg(long, value_name = "NAME")]
    deviate: Vec<String>,
    /// A fault of the store that is never healed, as a rule of the server: the campaign must fail
    #[arg(long, value_name = "RULE")]
    store_fault: Vec<String>,
    /// Brokers of Kafka's protocol in place of the campaign's own log, with commas between: they run already and are not
    /// disturbed
    #[arg(long, value_name = "HOST:PORT,...", conflicts_with = "broker_command")]
    brokers: Option<String>,
    /// The topic there: new, or empty
    #[arg(long, value_name = "NAME", requires = "brokers", default_value = TOPIC)]
    topic: String,
    /// A broker of Kafka's protocol that the campaign starts and kills: its words, with spaces between, and {address}
    /// for where it listens; in a directory of its own
    #[arg(long, value_name = "COMMAND")]
    broker_command: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    Short,
    Full,
}

#[derive(Args)]
struct RoleOf {
    role: Process,
    #[arg(long)]
    plan: PathBuf,
    #[arg(long, default_value_t = 0)]
    index: u32,
    #[arg(long, default_value = "")]
    coordinator: String,
    #[arg(long, default_value_t = 0)]
    host: u32,
    #[arg(long, value_delimiter = ',')]
    produced: Vec<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Process {
    Store,
    Log,
    Generator,
    Coordinator,
    Worker,
    Oracle,
    Judge,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => return end(Err(Failure::own(format!("no runtime: {why}")))),
    };
    end(runtime.block_on(async {
        match cli.command {
            Command::Gate(run) => said(drive(run, 0).await),
            Command::Smoke(run) => said(drive(run, SMOKE_MINUTES).await),
            Command::Soak { run, minutes } => said(drive(run, minutes).await),
            Command::Mutants(run) => mutants(run).await,
            Command::Role(role) => {
                tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
                play(role).await
            }
        }
    }))
}

fn end(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure(code, why)) => {
            eprintln!("assay-campaign: {why}");
            ExitCode::from(code)
        }
    }
}

/// A port of loopback that nobody listens on.
fn free_port() -> std::io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The exit code of a campaign.
fn said(outcome: Result<Outcome, Failure>) -> Result<u8, Failure> {
    outcome.map(|outcome| report::end(&outcome).1)
}

async fn drive(run: Run, minutes: u64) -> Result<Outcome, Failure> {
    let usage = |why: String| Failure::usage(why);
    let brokers = run.brokers.is_some() || run.broker_command.is_some();
    if brokers && !cfg!(feature = "kafka") {
        return Err(usage(source::BUILD.to_owned()));
    }
    if !sinks::point::ARMABLE {
        return Err(usage(
            "this build has no protocol points, so that no fault would fire; build with --features protocol-points"
                .to_owned(),
        ));
    }
    if run.foreign_object && run.sink != Sink::Staged {
        return Err(usage("--foreign-object is about keys of staged uploads; give --sink staged".to_owned()));
    }
    let directory = empty(&run.evidence).map_err(usage)?;
    let port = || free_port().map_err(Failure::own);
    let upstream = match provider().map_err(usage)? {
        None => None,
        Some(of) => {
            unused(&of).await?;
            Some(Upstream { endpoint: of.endpoint, bucket: of.bucket })
        }
    };
    let kafka = brokers.then_some(Kafka { topic: run.topic, command: run.broker_command });
    let plan = Plan {
        sink: run.sink,
        seed: run.seed,
        partitions: PARTITIONS,
        keys: 50_000,
        workers: run.workers,
        rate: run.rate,
        checkpoint_ms: run.checkpoint_ms,
        patience_ms: 3_000,
        store: port()?,
        log: run.brokers.clone().map_or_else(port, Ok)?,
        kafka,
        coordinator: port()?,
        directory,
        mutant: run.mutant,
        deviations: run.deviate,
        store_faults: run.store_fault,
        upstream,
    };
    plan.chosen().map_err(usage)?;
    deviations(&plan).map_err(usage)?;
    faults(&plan).map_err(usage)?;
    broker(&plan).await?;
    let extent = Extent { short: run.profile == Profile::Short, minutes, foreign: run.foreign_object };
    let outcome = campaign::run(plan, extent, clock::now_ms()).await?;
    for reason in &outcome.reasons {
        eprintln!("  {reason}");
    }
    println!("{}", report::end(&outcome).0);
    println!("evidence: {}", outcome.plan.directory.display());
    Ok(outcome)
}

/// Whether this build and the named brokers can serve as the plan's source.
async fn broker(plan: &Plan) -> Result<(), Failure> {
    let command = plan.kafka.as_ref().and_then(|kafka| kafka.command.as_deref());
    if command.is_some_and(|command| !command.contains(ADDRESS)) {
        return Err(Failure::usage(format!(
            "the broker's command has no {ADDRESS}: it would listen elsewhere"
        )));
    }
    source::open(plan).map_err(Failure::usage)?;
    if plan.starts_log() { Ok(()) } else { source::prepare(plan).await }
}

/// One short gate for each mistake that can be made on purpose: it must fail by what that mistake does.
async fn mutants(run: Run) -> Result<u8, Failure> {
    let mut unfound = Vec::new();
    for mutant in Mutant::ALL {
        let evidence = run.evidence.join(mutant.name());
        let name = Some(mutant.name().to_owned());
        // Only where there is another's object can it be taken for one's own.
        let foreign_object = run.foreign_object || mutant == Mutant::AnyObjectAccepted;
        let one = Run { profile: Profile::Short, evidence, mutant: name, foreign_object, ..run.clone() };
        println!("{}:", mutant.name());
        let outcome = drive(one, 0).await?;
        let found = report::end(&outcome).1 == 1 && outcome.says(finding(mutant));
        println!("{}: {:?}", if found { "found" } else { "NOT found" }, finding(mutant));
        if !found {
            unfound.push(mutant.name());
        }
    }
    if unfound.is_empty() {
        println!("every mistake was found");
        return Ok(0);
    }
    println!("not found: {}", unfound.join(" "));
    Ok(1)
}

/// Words of the finding that a mistake must lead to.
const fn finding(mutant: Mutant) -> &'static str {
    match mutant {
        Mutant::CommitBeforeMarker => "duplicate: ",
        Mutant::ReceiptSkipped => "no receipt of sub",
        Mutant::AnyObjectAccepted => "foreign: ",
        Mutant::RecoveryForgotten => "gap: ",
        Mutant::PreparedAbortedOnClose => "lost: sub",
        Mutant::SnapshotBeforeBarrier => " is not in snapshot ",
    }
}

/// The provider that the store stands in front of, if the environment names one.
fn provider() -> Result<Option<Provider>, String> {
    provider::from_environment(|name| std::env::var(name).ok())
}

/// That a provider's bucket has no object: one of another run would be taken for the job's.
async fn unused(of: &Provider) -> Result<(), Failure> {
    let settings = S3Settings::new(Some(of.endpoint.clone()), &of.region, &of.bucket);
    let settings = S3Settings { addressing: of.addressing, ..settings };
    let access = Access::keys(&of.access_key, &of.secret_key, of.session_token.clone());
    let store = S3Store::new(&settings, &access).map_err(Failure::usage)?;
    let Provider { endpoint, bucket, .. } = of;
    match store.list("", None, 1).await {
        Answer::Done(page) => match page.objects.first() {
            None => Ok(()),
            Some(object) => Err(Failure::usage(format!(
                "bucket {bucket:?} is not empty, it has {:?}: name an empty one in DELTAFORGE_IT_S3_BUCKET",
                object.key
            ))),
        },
        Answer::Unknown(why) => Err(Failure::away(format!(
            "DELTAFORGE_IT_S3_ENDPOINT {endpoint:?} does not answer ({}): a campaign needs a provider that lists \
             its bucket {bucket:?}; start it, or name another",
            why.reason
        ))),
        other => Err(Failure::usage(format!(
            "bucket {bucket:?} of {endpoint} can't be listed: {other:?}; mend the bucket's name or the credentials"
        ))),
    }
}

/// The directory, made, absolute, and empty: evidence of another run is none of this one.
fn empty(directory: &Path) -> Result<PathBuf, String> {
    let failed = |why: std::io::Error| format!("{}: {why}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    if std::fs::read_dir(directory).map_err(failed)?.next().is_some() {
        return Err(format!("{} is not empty; name a new directory for the evidence", directory.display()));
    }
    directory.canonicalize().map_err(failed)
}

/// Ends this process when the one that started it is gone: nothing of a campaign outlives it.
fn tether() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(INTERRUPTED);
    });
}

async fn play(role: RoleOf) -> Result<u8, Failure> {
    if !matches!(role.role, Process::Judge) {
        tether();
    }
    let plan = Plan::read(&role.plan).map_err(Failure::usage)?;
    let own = |why: String| Failure::own(why);
    match role.role {
        Process::Store => store(&plan).await.map(|()| 0).map_err(own),
        Process::Log => log::run(&plan).await.map(|()| 0).map_err(own),
        Process::Generator => generator::run(&plan).await.map(|()| 0).map_err(own),
        Process::Coordinator => Ok(coordinator::run(&plan).await.map(|()| 0)?),
        Process::Worker if plan.sink == Sink::DurableV2 => {
            let ended = durable::run(&plan, role.index, role.host).await;
            ended.map(|()| 0).map_err(|error| Failure(error.exit_code(), error.to_string()))
        }
        Process::Worker => Ok(worker::run(&plan, role.index, &role.coordinator).await.map(|()| 0)?),
        Process::Oracle => {
            judge::observe(&plan, judge::STUCK).await.map(|clean| u8::from(!clean)).map_err(own)
        }
        Process::Judge => {
            let judgement = judge::judge(&plan, &role.produced).await?;
            println!("{}", serde_json::to_string(&judgement).map_err(|why| own(why.to_string()))?);
            Ok(u8::from(!judgement.findings.is_empty()))
        }
    }
}

fn deviations(plan: &Plan) -> Result<Vec<Deviation>, String> {
    plan.deviations
        .iter()
        .map(|name| name.parse().map_err(|why| format!("deviation {name:?}: {why}")))
        .collect()
}

fn faults(plan: &Plan) -> Result<Vec<Rule>, String> {
    plan.store_faults.iter().map(|rule| rule.parse().map_err(|why| format!("rule {rule:?}: {why}"))).collect()
}

/// Our server on disk, or in front of a provider, until the process is killed.
async fn store(plan: &Plan) -> Result<(), String> {
    let address = plan.store.parse().map_err(|why| format!("{}: {why}", plan.store))?;
    let builder = Server::builder().listen(address).credentials(KEYS.0, KEYS.1);
    let builder = match &plan.upstream {
        None => builder.data(plan.directory.join("store")).bucket(BUCKET),
        Some(_) => {
            let of = provider()?.ok_or("the environment names no provider any more")?;
            let upstream = assay_server::Upstream::new(of.endpoint, of.access_key, of.secret_key)
                .region(of.region)
                .addressing(match of.addressing {
                    Addressing::Path => assay_server::Addressing::Path,
                    Addressing::Virtual => assay_server::Addressing::Virtual,
                });
            builder.upstream(match of.session_token {
                Some(token) => upstream.session_token(token),
                None => upstream,
            })
        }
    };
    let builder = deviations(plan)?.into_iter().fold(builder, assay_server::Builder::deviation);
    let until = Instant::now() + wire::PORT;
    let server = loop {
        match builder.clone().start().await {
            // The same wait for the port as of every process that is started again.
            Err(assay_server::Error::Listen { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            started => break started.map_err(|why| why.to_string())?,
        }
    };
    let guards: Result<Vec<_>, _> = faults(plan)?.into_iter().map(|rule| server.fault(rule)).collect();
    let guards = guards.map_err(|why| why.to_string())?;
    tracing::info!(endpoint = server.endpoint(), faults = guards.len(), "store serves");
    std::future::pending::<()>().await;
    Ok(())
}
