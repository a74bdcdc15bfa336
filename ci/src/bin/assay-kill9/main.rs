//! Kills a server under write load, again and again on one directory: every acknowledged write must be there
//! and whole, and an unanswered one wholly there or not at all.

mod model;
mod verify;
mod writer;

use assay_ci::clock;
use assay_ci::process::{Recipe, client, make_bucket};
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use writer::Writer;

/// Kills a server with SIGKILL under write load and checks what it holds when started again. Bounded.
#[derive(Parser)]
struct Options {
    /// The server, `NAME KEY SECRET COMMAND`; the command keeps its data below `{dir}` and listens on `{port}`.
    #[arg(long, value_parser = Recipe::parse)]
    server: Recipe,
    /// How often it is killed.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// Writers at once, each on keys of its own.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    writers: u64,
    /// Every choice of the load follows from it; where a kill strikes depends on the machine as well.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest that the load runs before a kill, in milliseconds; the shortest is a twentieth of it.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    load_ms: u64,
}

/// What the campaign came to.
#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    acknowledged: u64,
    unanswered: usize,
    slowest_start: Duration,
    findings: Vec<String>,
}

struct Campaign<'a> {
    options: &'a Options,
    dir: &'a Path,
    writers: Vec<Writer>,
    random: fastrand::Rng,
    tally: Tally,
}

impl Campaign<'_> {
    /// One life of the server: start, judge what is there, load, kill.
    async fn life(&mut self, last: bool) -> Result<(), String> {
        let recipe = &self.options.server;
        let server = recipe.start(self.dir).await.map_err(|why| why.to_string())?;
        self.tally.slowest_start = self.tally.slowest_start.max(server.start);
        let client = client(&server.endpoint(), &recipe.access_key, &recipe.secret_key, "kill9")?;
        make_bucket(&client).await?;
        for writer in &mut self.writers {
            let findings = verify::verify(writer, &client).await?;
            self.tally.findings.extend(
                findings.into_iter().map(|finding| format!("after kill {}: {finding}", self.tally.kills)),
            );
        }
        if last || !self.tally.findings.is_empty() {
            return server.kill().await.map_err(|why| why.to_string());
        }
        let load = Duration::from_millis(self.random.u64(self.options.load_ms / 20..=self.options.load_ms));
        let writers = std::mem::take(&mut self.writers).into_iter().map(|mut writer| {
            let client = client.with_own_journal();
            tokio::spawn(async move {
                let ended = writer.work(&client).await;
                (writer, ended)
            })
        });
        let writers: Vec<_> = writers.collect();
        tokio::time::sleep(load).await;
        server.kill().await.map_err(|why| why.to_string())?;
        self.tally.kills += 1;
        for task in writers {
            let (writer, ended) = task.await.map_err(|why| why.to_string())?;
            self.tally.findings.extend(ended.err());
            self.tally.unanswered += writer.model.pending();
            self.writers.push(writer);
        }
        Ok(())
    }
}

async fn run(options: &Options) -> Result<Tally, String> {
    let scratch = tempfile::tempdir().map_err(|why| why.to_string())?;
    let dir = scratch.path().join("server");
    std::fs::create_dir_all(&dir).map_err(|why| why.to_string())?;
    let mut campaign = Campaign {
        options,
        dir: &dir,
        writers: (0..options.writers).map(|number| Writer::new(number, options.seed)).collect(),
        random: fastrand::Rng::with_seed(options.seed),
        tally: Tally::default(),
    };
    for life in 0..=options.kills {
        campaign.life(life == options.kills).await?;
        if !campaign.tally.findings.is_empty() {
            break; // what is broken once would be found again after every kill
        }
    }
    let mut tally = campaign.tally;
    tally.acknowledged = campaign.writers.iter().map(|writer| writer.acknowledged).sum();
    if !tally.findings.is_empty() {
        let kept = scratch.keep();
        eprintln!("kill9: the server's directory is kept: {}", kept.display());
    }
    Ok(tally)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let began = clock::now();
    let again = format!(
        "assay-kill9 --kills {} --writers {} --seed {} --load-ms {}",
        options.kills, options.writers, options.seed, options.load_ms
    );
    eprintln!("kill9: {again}");
    let tally = match run(&options).await {
        Ok(tally) => tally,
        Err(why) => {
            eprintln!("kill9: {why}; to run it again: {again}");
            return ExitCode::from(7);
        }
    };
    for finding in tally.findings.iter().take(20) {
        eprintln!("kill9: {finding}");
    }
    println!(
        "{}: {} kills, {} acknowledged requests, {} writes unanswered at a kill, {} findings, slowest start {:.0} ms, {:.0} s, seed {}",
        options.server.name,
        tally.kills,
        tally.acknowledged,
        tally.unanswered,
        tally.findings.len(),
        tally.slowest_start.as_secs_f64() * 1e3,
        began.elapsed().as_secs_f64(),
        options.seed
    );
    if tally.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(5) }
}
