//! Races of many writers on one key, round after round: each round must have exactly one winner, and the
//! winner's body is what GET returns.

use assay_checks::{Answer, Call, Client, Connection, xml};
use assay_ci::clock;
use assay_ci::process::{Recipe, client, make_bucket};
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use http::Method;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::Barrier;

/// Races writers on one key: exactly one winner a round, and GET returns the winner's body. Bounded.
#[derive(Parser)]
struct Options {
    /// A server to start, `NAME KEY SECRET COMMAND`; `{port}` and `{dir}` in the command are filled in.
    /// May be given several times.
    #[arg(long, required = true, value_parser = Recipe::parse)]
    server: Vec<Recipe>,
    /// Writers at once, each on a connection of its own.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=1024))]
    writers: u32,
    /// Rounds of each kind.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// What to race.
    #[arg(long, value_delimiter = ',', default_values = ["create", "swap", "complete", "copy"])]
    kinds: Vec<Kind>,
}

/// The write that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// PutObject with `If-None-Match: *` on an absent key.
    Create,
    /// PutObject with `If-Match` of the current ETag.
    Swap,
    /// CompleteMultipartUpload with `If-None-Match: *`, each writer with an upload of its own.
    Complete,
    /// CopyObject with `If-None-Match: *`, each writer from a source of its own.
    Copy,
}

/// What the rounds of one kind came to.
#[derive(Debug, Default)]
struct Tally {
    rounds: u32,
    bad: Vec<String>,
    answers: BTreeMap<String, u64>,
}

struct Race {
    client: Client,
    kind: Kind,
    writers: Vec<Connection>,
}

fn body(kind: Kind, round: u32, writer: usize) -> Bytes {
    format!("{kind:?} round {round} writer {writer}").into()
}

impl Race {
    async fn new(client: &Client, kind: Kind, writers: u32) -> Result<Race, String> {
        let mut connections = Vec::new();
        for _ in 0..writers {
            connections.push(client.connect().await.map_err(|lost| lost.to_string())?);
        }
        Ok(Race { client: client.clone(), kind, writers: connections })
    }

    async fn ask(&self, call: Call) -> Result<Answer, String> {
        let answer = self.client.send(call).await.map_err(|lost| lost.to_string())?;
        if answer.succeeded() {
            return Ok(answer);
        }
        Err(format!("{}: {}", answer.exchange.line(), String::from_utf8_lossy(&answer.body)))
    }

    fn key(&self, round: u32) -> String {
        match self.kind {
            Kind::Swap => "swap".to_owned(),
            kind => format!("{kind:?}/{round}").to_lowercase(),
        }
    }

    /// What the writer needs before the race, and its deciding call.
    async fn prepare(&self, round: u32, writer: usize, etag: &str) -> Result<Call, String> {
        let (key, body) = (self.key(round), body(self.kind, round, writer));
        Ok(match self.kind {
            Kind::Create => Call::put(&key, body).if_none_match("*"),
            Kind::Swap => Call::put(&key, body).if_match(etag),
            Kind::Copy => {
                let source = format!("source/{writer}");
                self.ask(Call::put(&source, body)).await?;
                self.client.copy(&source, &key).if_none_match("*")
            }
            Kind::Complete => {
                let created = self.ask(Call::new(Method::POST, Some(&key)).query("uploads", "")).await?;
                let upload =
                    created.element("UploadId").ok_or("CreateMultipartUpload answers no UploadId")?;
                let part = Call::put(&key, body).query("partNumber", "1").query("uploadId", &upload);
                let part = self.ask(part).await?.etag().to_owned();
                let list = format!(
                    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part>\
                     </CompleteMultipartUpload>"
                );
                Call::new(Method::POST, Some(&key)).query("uploadId", &upload).body(list).if_none_match("*")
            }
        })
    }

    /// One round; returns the winner's ETag, and in `tally` whatever was wrong.
    async fn round(&mut self, round: u32, etag: &str, tally: &mut Tally) -> Result<String, String> {
        let mut calls = Vec::new();
        for writer in 0..self.writers.len() {
            calls.push(self.prepare(round, writer, etag).await?);
        }
        let start = Arc::new(Barrier::new(self.writers.len()));
        let racers =
            std::mem::take(&mut self.writers).into_iter().zip(calls).map(|(mut connection, call)| {
                let (client, start) = (self.client.clone(), start.clone());
                tokio::spawn(async move {
                    let signed = client.sign(call);
                    start.wait().await;
                    let answer = connection.deliver(&client, signed).await;
                    (connection, answer)
                })
            });
        let racers: Vec<_> = racers.collect();
        let mut winners = Vec::new();
        let mut wrong = Vec::new();
        for (writer, racer) in racers.into_iter().enumerate() {
            let (connection, answer) = racer.await.map_err(|why| why.to_string())?;
            let label = match &answer {
                Err(lost) => format!("lost: {lost}"),
                Ok(answer) if answer.succeeded() => {
                    winners.push((writer, answer.etag().to_owned(), answer.element("ETag")));
                    "won".to_owned()
                }
                Ok(answer) => {
                    format!("{} {}", answer.status.as_u16(), answer.element("Code").unwrap_or_default())
                }
            };
            if !matches!(label.as_str(), "won" | "412 PreconditionFailed" | "409 ConditionalRequestConflict")
            {
                wrong.push(label.clone());
            }
            *tally.answers.entry(label).or_default() += 1;
            self.writers.push(if answer.is_ok() {
                connection
            } else {
                self.client.connect().await.map_err(|lost| lost.to_string())?
            });
        }
        tally.rounds += 1;
        let read = self.ask(Call::get(&self.key(round))).await?;
        if let [(writer, header, element)] = winners.as_slice() {
            let expected = body(self.kind, round, *writer);
            if read.body != expected {
                wrong.push(format!("the winner wrote {expected:?}, GET returns {:?}", read.body));
            }
            let etag = element.as_deref().map_or_else(|| header.clone(), xml::unescape);
            if etag != read.etag() {
                wrong.push(format!("the winner was told ETag {etag}, GET says {}", read.etag()));
            }
        } else {
            wrong.push(format!("{} winners", winners.len()));
        }
        if !wrong.is_empty() {
            tally.bad.push(format!("round {round}: {}", wrong.join("; ")));
        }
        Ok(read.etag().to_owned())
    }
}

async fn race(client: &Client, kind: Kind, writers: u32, rounds: u32) -> Result<Tally, String> {
    let mut race = Race::new(client, kind, writers).await?;
    let mut tally = Tally::default();
    let mut etag = String::new();
    if kind == Kind::Swap {
        etag = race.ask(Call::put("swap", "start")).await?.etag().to_owned();
    }
    for round in 0..rounds {
        etag = race.round(round, &etag, &mut tally).await?;
    }
    Ok(tally)
}

async fn run(options: &Options) -> Result<bool, String> {
    let scratch = tempfile::tempdir().map_err(|why| why.to_string())?;
    let mut good = true;
    println!("| server | kind | rounds x writers | rounds not with one winner | answers | seconds |");
    println!("| --- | --- | --- | ---: | --- | ---: |");
    for (number, recipe) in options.server.iter().enumerate() {
        let dir = scratch.path().join(number.to_string());
        std::fs::create_dir_all(&dir).map_err(|why| why.to_string())?;
        let server = recipe.start(&dir).await.map_err(|why| why.to_string())?;
        let client = client(&server.endpoint(), &recipe.access_key, &recipe.secret_key, "races")?;
        make_bucket(&client).await?;
        for &kind in &options.kinds {
            let began = clock::now();
            let tally = race(&client, kind, options.writers, options.rounds).await;
            let tally = tally.map_err(|why| format!("{} {kind:?}: {why}", recipe.name))?;
            let answers: Vec<String> =
                tally.answers.iter().map(|(answer, count)| format!("{count} {answer}")).collect();
            println!(
                "| {} | {kind:?} | {} x {} | {} | {} | {:.1} |",
                recipe.name,
                tally.rounds,
                options.writers,
                tally.bad.len(),
                answers.join(", "),
                began.elapsed().as_secs_f64()
            );
            for bad in tally.bad.iter().take(3) {
                eprintln!("races: {} {kind:?} {bad}", recipe.name);
            }
            good &= tally.bad.is_empty();
        }
        server.kill().await.map_err(|why| why.to_string())?;
    }
    Ok(good)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("races: {why}");
            ExitCode::from(7)
        }
    }
}
