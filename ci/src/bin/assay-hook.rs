//! What the hook costs: the same requests to the same server with the hook and without, in one process, in turns.
//!
//! Requests go to the engine without a socket, so that nothing but the server is measured: over sockets the hook's
//! share is smaller still. Both engines are of one build and keep everything in memory; no rule is set. They take
//! turns of a few milliseconds, first one and then the other ahead, and each pair of turns gives one ratio.

use std::process::ExitCode;
use std::time::Duration;

use assay_checks::{Call, Client};
use assay_ci::{clock, process};
use assay_server::{Engine, Server};
use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;

/// Bytes of each object.
const OBJECT_BYTES: usize = 4096;

/// Keys that are written and read in turn.
const KEYS: usize = 256;

/// Compares throughput with the fault hook and journal in the path, and with both bypassed.
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 the cost is within the limit, 1 it is not, 2 usage, 4 own fault.")]
struct Options {
    /// Pairs of turns for each kind of request.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pairs: u32,
    /// The most that the hook may cost, in percent of the time without it.
    #[arg(long, default_value_t = 2.0)]
    limit: f64,
}

type Request = http::Request<Full<Bytes>>;

fn signed(client: &Client, call: Call, body: &Bytes) -> Request {
    let (head, _) = client.sign(call.body(body.clone())).into_request().into_parts();
    Request::from_parts(head, Full::new(body.clone()))
}

/// Sends every request once; how long that took.
async fn turn(engine: &Engine, requests: &[Request]) -> Result<Duration, String> {
    let requests = requests.to_vec();
    let began = clock::now();
    for request in requests {
        let answer = engine.call(request).await;
        if !answer.status().is_success() {
            return Err(format!("the engine answers {}", answer.status()));
        }
    }
    Ok(began.elapsed())
}

/// What one kind of request costs with the hook and without.
struct Cost {
    with_us: f64,
    without_us: f64,
    /// The median over the pairs of turns, in percent.
    percent: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn compare(engines: [&Engine; 2], requests: &[Request], pairs: u32) -> Result<Cost, String> {
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (one, other);
        if pair % 2 == 0 {
            one = turn(engines[0], requests).await?.as_secs_f64();
            other = turn(engines[1], requests).await?.as_secs_f64();
        } else {
            other = turn(engines[1], requests).await?.as_secs_f64();
            one = turn(engines[0], requests).await?.as_secs_f64();
        }
        let each_us = 1e6 / requests.len() as f64;
        with.push(one * each_us);
        without.push(other * each_us);
        ratios.push(one / other);
    }
    Ok(Cost { with_us: median(with), without_us: median(without), percent: (median(ratios) - 1.0) * 100.0 })
}

async fn run(options: &Options) -> Result<bool, String> {
    let build = async |hook, journal| {
        let builder = Server::builder().bucket("data").hook(hook).journal(journal);
        builder.build().await.map_err(|why| why.to_string())
    };
    let (both, journal, neither) =
        (build(true, true).await?, build(false, true).await?, build(false, false).await?);
    let client = process::client("http://127.0.0.1:9000", both.access_key(), both.secret_key(), "data")?;
    let body = Bytes::from(vec![b'x'; OBJECT_BYTES]);
    let requests = |call: &dyn Fn(&str) -> Call, body: &Bytes| -> Vec<Request> {
        (0..KEYS).map(|key| signed(&client, call(&format!("bench/{key:04}")), body)).collect()
    };
    let put = |key: &str| Call::new(http::Method::PUT, Some(key));
    let mut within = true;
    println!("| request | what | with, µs | without, µs | cost |\n| --- | --- | ---: | ---: | ---: |");
    for (name, requests) in
        [("PUT 4 KiB", requests(&put, &body)), ("GET 4 KiB", requests(&Call::get, &Bytes::new()))]
    {
        compare([&both, &neither], &requests, options.pairs / 10).await?; // warm
        for (what, engines) in [("hook", [&both, &journal]), ("journal", [&journal, &neither])] {
            let cost = compare(engines, &requests, options.pairs).await?;
            println!(
                "| {name} | {what} | {:.2} | {:.2} | {:+.2} % |",
                cost.with_us, cost.without_us, cost.percent
            );
            within &= what != "hook" || cost.percent <= options.limit;
        }
    }
    Ok(within)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("hook: {why}");
            ExitCode::from(4)
        }
    }
}
