//! Compares S3 servers in one run: start, memory, and throughput of small objects.
//!
//! Every figure is the median over the runs, and the servers take turns within each run (A B C, A B C), so
//! that a slow minute of the machine meets them all.

mod load;
mod report;
mod scenario;

use assay_checks::Client;
use assay_ci::process::{self, Recipe, Running, rss_kib};
use clap::Parser;
use report::{Row, median};
use scenario::{Load, Scenario};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares S3 servers in one run: start, memory, throughput of 4 KiB objects. Loopback only, bounded.
#[derive(Parser)]
struct Options {
    /// A server to start, `NAME KEY SECRET COMMAND`; `{port}` and `{dir}` in the command are filled in.
    /// May be given several times.
    #[arg(long, value_parser = Recipe::parse)]
    server: Vec<Recipe>,
    /// A server that already runs, `NAME ENDPOINT KEY SECRET [PID]`; start is not measured, memory only
    /// with the process number. May be given several times.
    #[arg(long, value_parser = Attached::parse)]
    attach: Vec<Attached>,
    /// The column in which the start of the embedded server, in this process, is shown.
    #[arg(long, value_name = "NAME")]
    embedded: Option<String>,
    /// Runs per figure; the median is shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Connections, each a column of the table.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    connections: Vec<usize>,
    /// Requests per run and connection count (a quarter of it with one connection).
    #[arg(long, default_value_t = 8_000)]
    requests: usize,
    /// Objects of 1 KiB stored before memory is read again; 0 leaves that figure out.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Writes every figure of every run there, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A server that somebody else started.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attached {
    name: String,
    endpoint: String,
    access_key: String,
    secret_key: String,
    pid: Option<u32>,
}

impl Attached {
    fn parse(text: &str) -> Result<Attached, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let [name, endpoint, access_key, secret_key, pid @ ..] = words.as_slice() else {
            return Err(format!("server {text:?}: write 'NAME ENDPOINT KEY SECRET [PID]'"));
        };
        let pid = match pid {
            [] => None,
            [pid] => Some(pid.parse().map_err(|why| format!("process number {pid:?}: {why}"))?),
            _ => return Err(format!("server {text:?}: words after the process number")),
        };
        let own = str::to_owned;
        Ok(Attached {
            name: own(name),
            endpoint: own(endpoint),
            access_key: own(access_key),
            secret_key: own(secret_key),
            pid,
        })
    }
}

/// A server under load: where it answers and who signs.
struct Target {
    name: String,
    client: Client,
    authority: String,
    pid: Option<u32>,
    process: Option<Running>,
}

impl Target {
    fn new(server: Attached, running: Option<Running>) -> Result<Target, String> {
        let authority = server.endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let client = process::client(&server.endpoint, &server.access_key, &server.secret_key, "bench")?;
        Ok(Target { name: server.name, client, authority, pid: server.pid, process: running })
    }

    async fn start(recipe: &Recipe, scratch: &tempfile::TempDir, run: u32) -> Result<Target, String> {
        let dir = scratch.path().join(format!("{}-{run}", recipe.name.replace(['/', ' '], "_")));
        std::fs::create_dir_all(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
        let process = recipe.start(&dir).await.map_err(|why| format!("{}: {why}", recipe.name))?;
        let attached = Attached {
            name: recipe.name.clone(),
            endpoint: process.endpoint(),
            access_key: recipe.access_key.clone(),
            secret_key: recipe.secret_key.clone(),
            pid: process.pid(),
        };
        Target::new(attached, Some(process))
    }

    async fn stop(self) -> Result<(), String> {
        match self.process {
            None => Ok(()),
            Some(process) => process.kill().await.map_err(|why| format!("{}: {why}", self.name)),
        }
    }

    fn rss_mib(&self) -> Option<f64> {
        Some(rss_kib(self.pid?)? as f64 / 1024.0)
    }
}

/// Start and memory of each server, each time in a fresh process; the servers take turns.
async fn starts_and_memory(options: &Options, rows: &mut Vec<Row>) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|why| why.to_string())?;
    for run in 0..options.runs {
        for recipe in &options.server {
            let target = Target::start(recipe, &scratch, run).await?;
            let start = target.process.as_ref().map(|process| process.start.as_secs_f64() * 1e3);
            report::add(rows, "start to first answer, process", "ms", &recipe.name, start);
            report::add(rows, "memory after start", "MiB", &recipe.name, target.rss_mib());
            if options.objects > 0 && run == 0 {
                eprintln!("bench: {} stores {} objects", recipe.name, options.objects);
                let measure = scenario::fill(&target.client, &target.authority, options.objects).await;
                measure.map_err(|why| format!("{}: {why}", recipe.name))?;
                let what = format!("memory with {} objects of 1 KiB", options.objects);
                report::add(rows, &what, "MiB", &recipe.name, target.rss_mib());
            }
            target.stop().await?;
        }
        if let Some(name) = &options.embedded {
            let elapsed = scenario::start_in_process().await?.as_secs_f64() * 1e3;
            report::add(rows, "start to first answer, in process", "ms", name, Some(elapsed));
        }
    }
    Ok(())
}

/// Throughput and latency; all servers are up, and only one of them has work at a time.
async fn throughput(options: &Options, rows: &mut Vec<Row>) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|why| why.to_string())?;
    let mut targets = Vec::new();
    for recipe in &options.server {
        targets.push(Target::start(recipe, &scratch, 0).await?);
    }
    for attached in &options.attach {
        let target = Target::new(attached.clone(), None)?;
        report::add(rows, "memory after start", "MiB", &target.name, target.rss_mib());
        targets.push(target);
    }
    for target in &targets {
        let prepared = scenario::prepare(&target.client, &target.authority).await;
        prepared.map_err(|why| format!("{}: {why}", target.name))?;
    }
    for scenario in [Scenario::Put, Scenario::Get, Scenario::Swap] {
        for &connections in &options.connections {
            let requests = if connections == 1 { options.requests / 4 } else { options.requests };
            for run in 0..options.runs {
                for target in &targets {
                    let load = Load { scenario, connections, requests, run };
                    eprintln!("bench: {} {} run {run}", target.name, load.title());
                    let measure = load.run(&target.client, &target.authority).await;
                    let measure =
                        measure.map_err(|why| format!("{} {}: {why}", target.name, load.title()))?;
                    report::add(rows, &load.title(), "req/s", &target.name, Some(measure.per_second));
                    report::add(
                        rows,
                        &format!("{} p50", load.title()),
                        "µs",
                        &target.name,
                        Some(measure.p50_us as f64),
                    );
                    report::add(
                        rows,
                        &format!("{} p99", load.title()),
                        "µs",
                        &target.name,
                        Some(measure.p99_us as f64),
                    );
                }
            }
        }
    }
    for target in targets {
        target.stop().await?;
    }
    Ok(())
}

async fn bench(options: &Options) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    starts_and_memory(options, &mut rows).await?;
    throughput(options, &mut rows).await?;
    Ok(rows)
}

// One thread: the load must leave the other core to the server.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    if options.server.is_empty() && options.attach.is_empty() {
        eprintln!("bench: no server; give --server or --attach, see --help");
        return ExitCode::from(2);
    }
    let rows = match bench(&options).await {
        Ok(rows) => rows,
        Err(why) => {
            eprintln!("bench: {why}");
            return ExitCode::from(7);
        }
    };
    let servers: Vec<&str> = options
        .server
        .iter()
        .map(|r| r.name.as_str())
        .chain(options.attach.iter().map(|a| a.name.as_str()))
        .collect();
    print!("{}", report::table(&rows, &servers, median));
    if let Some(path) = &options.json
        && let Err(why) = std::fs::write(path, report::json(&rows))
    {
        eprintln!("bench: cannot write {}: {why}", path.display());
        return ExitCode::from(4);
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_server_may_have_a_process_number() {
        let server = Attached::parse("peer http://127.0.0.1:1 k s 42").unwrap();
        assert_eq!((server.name.as_str(), server.pid), ("peer", Some(42)));
        assert_eq!(Attached::parse("peer http://127.0.0.1:1 k s").unwrap().pid, None);
        assert!(Attached::parse("peer http://127.0.0.1:1 k").unwrap_err().contains("ENDPOINT"));
        assert!(Attached::parse("peer http://127.0.0.1:1 k s many").unwrap_err().contains("many"));
    }
}
