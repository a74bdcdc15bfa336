//! `assay-certify`: runs the suite against one provider and says what it found.

use assay_checks::{Addressing, Call, Check, Client, Clock, Need, Race, Settings, Surroundings};
use assay_conformance::render::Format;
use assay_conformance::render::progress::Progress;
use assay_conformance::render::text::Colour;
use assay_conformance::report::{Entry, Head, Report, draw_up};
use assay_conformance::runner::Plan;
use assay_conformance::selection::Selected;
use assay_conformance::sink::{Area, Front, Part};
use assay_conformance::target::{Provider, Target};
use assay_conformance::{baseline, buckets, cost, embedded, render, runner, selection, sink, sweep, target};
use assay_server::Server;
use clap::{Parser, Subcommand, ValueEnum};
use http::Method;
use sinks::probe::ProbeSettings;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const AFTER_HELP: &str = "\
The provider is read from the environment: all of DELTAFORGE_IT_S3_ENDPOINT, _BUCKET,
_ACCESS_KEY and _SECRET_KEY, or none of them for the embedded server; a partial set is
refused. Beside the four may stand _REGION, _SESSION_TOKEN, _ADDRESSING (path, virtual),
_ENDPOINT_2 (another address of the same store) and _VERSIONED_BUCKET.
The bucket must exist and may be shared: everything is written under one prefix and removed.

Examples:
  assay-certify                               certify the embedded server
  assay-certify --only 'put.*' --only 'race.put.*'
  assay-certify --except 'sink.*'             without the sink's probe and live matrix
  assay-certify --rounds 200 --writers 64     race harder
  assay-certify --json > report.json
  assay-certify --dry-run                     what it would send, and the price
  assay-certify --write html=a.html --write json=a.json
  assay-certify --baseline a.json             fail only on what is new
  assay-certify matrix a.json b.json --format html
  assay-certify --list

Exit codes:
  0    certified, or no check refused  3    inconclusive: a required check undecided
  1    refused: a required one failed  4    a fault of the suite itself
  2    usage or configuration          7    the provider cannot be reached
  130  interrupted; the bucket was cleaned up";

/// Certifies an S3 provider: which conditional requests it enforces, refuses, ignores or lets race.
#[derive(Parser)]
#[command(name = "assay-certify", version, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Run nothing on the provider: run on the embedded server, and tell what was sent
    #[arg(long, conflicts_with_all = ["list", "json", "format", "write", "baseline"])]
    dry_run: bool,
    /// How to print the report
    #[arg(long, default_value = "text", conflicts_with = "list")]
    format: Format,
    /// Also write the report to a file; may be given several times
    #[arg(long, value_name = "FORMAT=FILE", value_parser = written, conflicts_with = "list")]
    write: Vec<(Format, PathBuf)>,
    /// An earlier report as JSON: exit 1 on what fails only now, or no longer fails
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    baseline: Option<PathBuf>,
    /// List the checks and run nothing
    #[arg(long)]
    list: bool,
    /// Run only checks whose id matches; * stands for anything; may be given several times
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Leave out checks whose id matches, such as 'sink.*'; may be given several times
    #[arg(long, value_name = "GLOB")]
    except: Vec<String>,
    /// What the provider does not claim to offer; its checks are skipped
    #[arg(long, value_name = "NEED", value_delimiter = ',', value_parser = need)]
    without: Vec<Need>,
    /// Print the report as JSON; the same as --format json
    #[arg(long, conflicts_with_all = ["list", "format"])]
    json: bool,
    /// With --list: print a Markdown table, without the scenarios of the sink's live matrix
    #[arg(long, requires = "list")]
    markdown: bool,
    /// Rounds of each race
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Writers in each round
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=512))]
    writers: u16,
    /// What the provider is called in reports, with its version
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Checks at once; races run alone
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// At most this many requests a second, but for the area sink; a race starts together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Longest time for the run, in seconds; what is cut off is inconclusive
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    budget_s: Option<u64>,
    /// Seed of bodies and names; drawn if not given, and printed in the report
    #[arg(long)]
    seed: Option<u64>,
    /// Longest wait for one answer, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout_seconds: u64,
    /// Longest time for one check, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    check_limit_seconds: u64,
}

/// What there is beside a run.
#[derive(Subcommand)]
enum Command {
    /// Show reports side by side, and what changed between two of one vendor
    Matrix {
        /// Reports as JSON
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// text, markdown or html
        #[arg(long, default_value = "markdown")]
        format: Format,
    },
    /// Show one report in another form
    Show {
        /// A report as JSON
        file: PathBuf,
        /// The form
        #[arg(long, default_value = "text")]
        format: Format,
    },
}

fn written(pair: &str) -> Result<(Format, PathBuf), String> {
    let (format, file) = pair.split_once('=').ok_or("give FORMAT=FILE, such as html=report.html")?;
    Ok((Format::from_str(format, false)?, PathBuf::from(file)))
}

fn need(name: &str) -> Result<Need, String> {
    let names: Vec<_> = Need::ALL.iter().map(|need| need.name()).collect();
    let found = Need::ALL.into_iter().find(|need| need.name() == name);
    found.ok_or_else(|| format!("{name:?} is none of {}", names.join(", ")))
}

/// Why there is no report: what to say, and the exit code.
struct Ended(String, u8);

const USAGE: u8 = 2;
const OWN_FAULT: u8 = 4;
const UNAVAILABLE: u8 = 7;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let is_writer = sink::is_writer(|name| std::env::var(name).ok());
    let cli = (!is_writer).then(Cli::parse);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => return ended(Ended(format!("cannot start: {why}"), OWN_FAULT)),
    };
    let Some(cli) = cli else {
        return match std::io::read_to_string(std::io::stdin()) {
            Ok(order) => ExitCode::from(runtime.block_on(sink::write(&order, &clock()))),
            Err(why) => ended(Ended(format!("cannot read a writer's order: {why}"), OWN_FAULT)),
        };
    };
    match runtime.block_on(run(&cli)) {
        Ok(code) => ExitCode::from(code),
        Err(end) => ended(end),
    }
}

fn ended(Ended(text, code): Ended) -> ExitCode {
    eprintln!("assay-certify: {text}");
    ExitCode::from(code)
}

/// The whole run: select, find the provider, clean up after earlier runs, check, clean up, report.
async fn run(cli: &Cli) -> Result<u8, Ended> {
    let usage = |why| Ended(why, USAGE);
    let colour = |terminal| Colour::choose(terminal, std::env::var("NO_COLOR").ok().as_deref());
    match &cli.command {
        None => {}
        Some(Command::Matrix { files, format }) => {
            let reports = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
            return show(&format.matrix(&reports).map_err(usage)?).map(|()| 0);
        }
        Some(Command::Show { file, format }) => {
            return show(&format.report(&read(file)?, colour(std::io::stdout().is_terminal()))).map(|()| 0);
        }
    }
    let baseline = cli.baseline.as_deref().map(read).transpose()?;
    let selected = selection::choose(&cli.only, &cli.except).map_err(usage)?;
    if cli.list {
        let (checks, terminal) = (selected.declared(), std::io::stdout().is_terminal());
        let text = match cli.markdown {
            true => render::markdown::checks(&checks[..checks.len() - selected.scenarios()]),
            false => render::text::checks(&checks, colour(terminal)),
        };
        return show(&text).map(|()| 0);
    }
    let target = target::from_environment(|name| std::env::var(name).ok()).map_err(usage)?;
    let clock = clock();
    if cli.dry_run {
        return show(&dry_run(selected, cli, &clock).await?).map(|()| 0);
    }
    let (server, provider) = match target {
        Target::Provider(provider) => (None, *provider),
        Target::Embedded => {
            let (server, provider) = embedded::start().await.map_err(|why| Ended(why, OWN_FAULT))?;
            (Some(Arc::new(server)), provider)
        }
    };
    let mut rng = entropy();
    let seed = cli.seed.unwrap_or_else(|| rng.u64(..));
    let mut head = Head {
        name: cli.name.clone(),
        suite: env!("CARGO_PKG_VERSION").to_owned(),
        endpoint: provider.endpoint.url(),
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        addressing: if provider.addressing == Addressing::Path { "path" } else { "virtual" }.to_owned(),
        embedded: server.is_some(),
        started: clock()
            .replace_nanosecond(0)
            .ok()
            .and_then(|now| now.format(&Rfc3339).ok())
            .unwrap_or_default(),
        seed,
        rounds: cli.rounds.into(),
        writers: cli.writers.into(),
        suite_checks: selection::size(),
        duration_ms: 0,
    };
    let surroundings = provider.surroundings();
    let client = Client::new(settings(provider.clone(), cli, &clock));
    let client = match cli.rate {
        Some(rate) => client.at_rate(rate),
        None => client,
    };
    bucket_exists(&client).await?;
    for swept in [sweep::leftovers(&client, clock()).await, buckets::leftovers(&client, clock()).await] {
        if let Err(why) = swept {
            eprintln!("assay-certify: leftovers of earlier runs may remain: {why}");
        }
    }
    let prefix = sweep::prefix(clock(), &mut rng);
    let mut plan = plan(selected.checks, cli, seed, &clock);
    plan.surroundings = surroundings;
    let area = area(selected.parts, provider, &prefix, &plan);
    let start = clock();
    let entries = tokio::select! {
        entries = checked(&plan, &area, server.as_ref(), &client, &prefix) => Some(entries?),
        () = interrupted() => None,
    };
    head.duration_ms = u64::try_from((clock() - start).whole_milliseconds()).unwrap_or_default();
    let emptied = match &entries {
        Some(_) => sweep::empty(&client, &prefix).await,
        None => sweep::empty_of_stragglers(&client, &prefix).await,
    };
    if let Err(why) = emptied {
        eprintln!("assay-certify: keys under {prefix} may remain: {why}");
    }
    if let Err(why) = buckets::remove_all(&plan, &client, &prefix).await {
        eprintln!("assay-certify: buckets of this run may remain: {why}");
    }
    let Some(entries) = entries else {
        return Err(Ended("interrupted; what it wrote was removed".to_owned(), INTERRUPTED));
    };
    let report = draw_up(head, entries);
    for (format, file) in &cli.write {
        std::fs::write(file, format.report(&report, Colour::Off))
            .map_err(|why| Ended(format!("cannot write {}: {why}", file.display()), USAGE))?;
    }
    let format = if cli.json { Format::Json } else { cli.format };
    show(&format.report(&report, colour(std::io::stdout().is_terminal())))?;
    let Some(baseline) = baseline else { return Ok(report.exit_code()) };
    let gate = baseline::compare(&baseline, &report);
    eprint!("{}", gate.text());
    Ok(gate.exit_code(report.exit_code() == OWN_FAULT))
}

/// Reads a report that an earlier run wrote.
fn read(file: &Path) -> Result<Report, Ended> {
    let usage = |why: String| Ended(format!("{}: {why}", file.display()), USAGE);
    let text = std::fs::read_to_string(file).map_err(|why| usage(why.to_string()))?;
    render::json::read(&text).map_err(usage)
}

/// The checks, then the area `sink`, which disturbs none of them.
async fn checked(
    plan: &Plan,
    area: &Area,
    embedded: Option<&Arc<Server>>,
    client: &Client,
    prefix: &str,
) -> Result<Vec<Entry>, Ended> {
    let mut line = ProgressLine::new(plan, &area.parts);
    let mut entries = runner::run(plan, client, prefix, |event| match event {
        runner::Event::Started(check) => line.started(check.id),
        runner::Event::Finished(entry, _) => line.finished(&entry.id),
    })
    .await;
    if area.parts.is_empty() {
        return Ok(entries);
    }
    let own = |why: String| Ended(why, OWN_FAULT);
    let program = std::env::current_exe().map_err(|why| own(format!("this program's path: {why}")))?;
    let mut fronts = Vec::new();
    fronts.extend(embedded.map(|server| Front::embedded(server.clone(), program.clone())));
    while fronts.len() < plan.jobs.min(area.parts.len()) {
        fronts.push(Front::of(&area.provider, program.clone()).await.map_err(own)?);
    }
    let parts = sink::run(area, &entries, fronts, |event| match event {
        sink::Event::Started(id) => line.started(id),
        sink::Event::Finished(entry) => line.finished(&entry.id),
    })
    .await;
    entries.extend(parts);
    Ok(entries)
}

/// Runs the checks on an embedded server, and tells what they and the removal of their keys sent.
async fn dry_run(selected: Selected, cli: &Cli, clock: &Clock) -> Result<String, Ended> {
    let (server, provider) = embedded::start().await.map_err(|why| Ended(why, OWN_FAULT))?;
    // It ends with this handle, after the removal of the keys.
    let server = Arc::new(server);
    let surroundings = provider.surroundings();
    let client = Client::new(settings(provider.clone(), cli, clock));
    let prefix = sweep::prefix(clock(), &mut entropy());
    let mut plan = plan(selected.checks, cli, cli.seed.unwrap_or_default(), clock);
    plan.surroundings = surroundings;
    let area = area(selected.parts, provider, &prefix, &plan);
    let entries = checked(&plan, &area, Some(&server), &client, &prefix).await?;
    sweep::empty(&client, &prefix).await.map_err(|why| Ended(why.to_string(), OWN_FAULT))?;
    let mut traffic = client.traffic();
    entries.iter().for_each(|entry| cost::add(&mut traffic, &entry.traffic));
    let ids: String =
        entries.iter().map(|entry| format!("{:<44} {:>6}\n", entry.id, entry.requests)).collect();
    Ok(format!(
        "{:<44} {:>6}\n{ids}\n{} checks, counted on the embedded server; nothing was sent to a provider.\n\
         A provider that refuses or fails earlier is asked less. What the area sink receives is not counted.\n\n{}",
        "check",
        "requests",
        entries.len(),
        cost::table(&traffic)
    ))
}

fn area(parts: Vec<Part>, provider: Provider, prefix: &str, plan: &Plan) -> Area {
    Area {
        parts,
        provider,
        prefix: format!("{prefix}sink"),
        seed: plan.seed,
        probe: ProbeSettings::default(),
        limit: plan.limit,
        deadline: plan.budget.map(|budget| tokio::time::Instant::now() + budget),
        clock: plan.clock.clone(),
    }
}

fn plan(checks: Vec<&'static Check>, cli: &Cli, seed: u64, clock: &Clock) -> Plan {
    Plan {
        checks,
        without: cli.without.clone(),
        surroundings: Surroundings::default(),
        race: Race { writers: cli.writers.into(), rounds: cli.rounds.into() },
        seed,
        limit: Duration::from_secs(cli.check_limit_seconds),
        jobs: cli.jobs.into(),
        budget: cli.budget_s.map(Duration::from_secs),
        clock: clock.clone(),
    }
}

/// Prints to standard output; a closed pipe is the reader's choice, not an error.
fn show(text: &str) -> Result<(), Ended> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => Err(Ended(why.to_string(), OWN_FAULT)),
        _ => Ok(()),
    }
}

fn settings(provider: Provider, cli: &Cli, clock: &Clock) -> Settings {
    let Provider { endpoint, addressing, bucket, region, credentials, .. } = provider;
    let timeout = Duration::from_secs(cli.timeout_seconds);
    Settings { endpoint, addressing, bucket, region, credentials, timeout, clock: clock.clone() }
}

/// The binary is the harness: it alone reads the wall clock.
#[expect(clippy::disallowed_methods, reason = "the harness owns the clock")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

/// The binary is the harness: it alone draws a seed, for the prefix and, if none is given, for the run.
#[expect(clippy::disallowed_methods, reason = "the harness draws the seed and prints it")]
fn entropy() -> fastrand::Rng {
    fastrand::Rng::new()
}

/// Looks whether the bucket can be used at all, so that a wrong setting is not read as a provider's failure.
async fn bucket_exists(client: &Client) -> Result<(), Ended> {
    let bucket = &client.settings().bucket;
    let url = client.settings().endpoint.url();
    let answer = client
        .send(Call::new(Method::HEAD, None))
        .await
        .map_err(|lost| Ended(format!("{url} cannot be reached: {lost}"), UNAVAILABLE))?;
    match answer.status.as_u16() {
        200 => Ok(()),
        404 => Err(Ended(format!("bucket {bucket:?} does not exist at {url}: create it first"), USAGE)),
        403 | 401 => Err(Ended(format!("{url} refuses these credentials for bucket {bucket:?}"), USAGE)),
        status if status >= 500 => {
            Err(Ended(format!("{url} answers {status} to HEAD of the bucket"), UNAVAILABLE))
        }
        status => Err(Ended(
            format!(
                "{url} answers {status} to HEAD of bucket {bucket:?}: check the region and the addressing"
            ),
            USAGE,
        )),
    }
}

/// Resolves on Ctrl-C or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        caught = tokio::signal::ctrl_c() => if caught.is_err() { std::future::pending().await },
        _ = terminated.recv() => {}
    }
}

/// Live progress on standard error, if that is a terminal: one line, rewritten.
struct ProgressLine {
    live: bool,
    progress: Progress,
    clock: Clock,
    start: OffsetDateTime,
}

impl ProgressLine {
    fn new(plan: &Plan, parts: &[Part]) -> Self {
        let (live, clock) = (std::io::stderr().is_terminal(), plan.clock.clone());
        Self { live, progress: Progress::new(plan, parts), start: clock(), clock }
    }

    fn started(&mut self, id: &str) {
        self.progress.started(id);
        self.show();
    }

    fn finished(&mut self, id: &str) {
        self.progress.finished(id);
        self.show();
    }

    fn show(&self) {
        if !self.live {
            return;
        }
        let line = match self.progress.is_over() {
            true => String::new(),
            false => self.progress.line(((self.clock)() - self.start).try_into().unwrap_or_default()),
        };
        // Progress is a courtesy: if it cannot be shown, the run goes on.
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }
}
