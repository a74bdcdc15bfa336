//! Real input under kills: PostgreSQL's log into the sink, the sink killed again and again, and an oracle that
//! compares every row version that PostgreSQL logged with what is in the bucket. `ci/postgres/run` starts it.

mod changes;
mod database;
mod life;
mod show;
mod truth;
mod verdict;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// PostgreSQL under pgbench into assay-sink under SIGKILL, compared by assay-oracle. Bounded.
#[derive(Parser)]
struct Options {
    /// The program `assay-sink`.
    #[arg(long)]
    sink: PathBuf,
    /// The program `assay-oracle`.
    #[arg(long)]
    oracle: PathBuf,
    /// The program `assay-server`.
    #[arg(long)]
    server: PathBuf,
    /// The folder with orders.sql and sweep.sql.
    #[arg(long)]
    workload: PathBuf,
    /// How long pgbench works.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// Transactions a second.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=2000))]
    rate: u32,
    /// The sink is killed after a random time around this, from half to one and a half.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(200..=60_000))]
    kill_ms: u64,
    /// Every choice of workload and kills follows from it; where a kill strikes depends on the machine as well.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Why there is no verdict, with the exit code that says so.
#[derive(Debug)]
struct Stopped {
    code: u8,
    why: String,
}

impl From<String> for Stopped {
    fn from(why: String) -> Self {
        Self { code: 7, why }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let again = format!(
        "ci/postgres/run --seconds {} --rate {} --kill-ms {} --seed {}",
        options.seconds, options.rate, options.kill_ms, options.seed
    );
    eprintln!("postgres: {again}");
    match show::run(&options).await {
        Ok(verdict) => {
            print!("{}", verdict.table());
            ExitCode::from(verdict.code())
        }
        Err(stopped) => {
            eprintln!("postgres: {}; to run it again: {again}", stopped.why);
            ExitCode::from(stopped.code)
        }
    }
}
