//! The pin: what the embedded server answers to the whole suite is a file. A change of its behaviour is a change of that
//! file, made on purpose and seen in review.

use assay_checks::{Client, Clock, Exchange, Race, Settings, xml};
use assay_conformance::report::{Entry, Outcome};
use assay_conformance::runner::{Event, Plan};
use assay_conformance::{embedded, runner, selection};
use assay_server::{Builder, Server};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

const GOLDEN: &str = "golden/embedded.txt";
const RENEW: &str = "ASSAY_RENEW=1 cargo test -p assay-conformance --test pin";

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

/// One request and its answer without what differs from run to run: no key, no date, no id.
fn step(exchange: &Exchange) -> String {
    let path = exchange.url.split_once("://").map_or("", |(_, rest)| rest);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let target = match path.matches('/').count() {
        0 | 1 => "bucket",
        _ => "key",
    };
    let mut query: Vec<&str> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
    query.retain(|name| !name.is_empty() && !name.starts_with("X-Amz-"));
    let conditions = exchange.headers.iter().map(|(name, _)| name.as_str()).filter(|name| {
        name.starts_with("if-") || name.starts_with("x-amz-copy-source") || name.starts_with("x-amz-if-")
    });
    let words: String = query
        .into_iter()
        .map(|name| format!(" ?{name}"))
        .chain(conditions.map(|name| format!(" {name}")))
        .collect();
    let answer = match &exchange.answer {
        Err(_) => "no answer".to_owned(),
        Ok(reply) => {
            let code =
                xml::element(&reply.body.text, "Code").map(|code| format!(" {code}")).unwrap_or_default();
            format!("{}{code}", reply.status)
        }
    };
    format!("{} {target}{words} -> {answer}", exchange.method)
}

/// A check's part of the file. Equal steps one after the other are counted; a race's order is chance,
/// and so is whether a write whose answer nobody awaited came to its end.
fn told(entry: &Entry, exchanges: &[Arc<Exchange>]) -> String {
    let class = entry.class.map(|(condition, class)| format!(" ({condition}: {class})")).unwrap_or_default();
    let mut out = format!("{} {}{class}\n", entry.id, entry.outcome.word());
    if let Outcome::Fail(failure) = &entry.outcome {
        out += &format!("  expected {}, got {}\n", failure.expected, failure.got);
    }
    for (name, value) in &entry.measured {
        out += &format!("  measured {name} {value}\n");
    }
    if entry.id.starts_with("race.") || entry.id == "retry.lost-answer" {
        return out;
    }
    let mut steps: Vec<(String, usize)> = Vec::new();
    for exchange in exchanges {
        let step = step(exchange);
        match steps.last_mut() {
            Some((last, count)) if *last == step => *count += 1,
            _ => steps.push((step, 1)),
        }
    }
    for (step, count) in steps {
        out += &if count > 1 { format!("  {count} x {step}\n") } else { format!("  {step}\n") };
    }
    out
}

async fn report(builder: Builder) -> String {
    let (_server, provider) = embedded::start_as(builder).await.expect("the embedded server starts");
    let surroundings = provider.surroundings();
    let client = Client::new(Settings {
        endpoint: provider.endpoint.clone(),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(30),
        clock: clock(),
    });
    let plan = Plan {
        checks: selection::select(&[]).expect("all of them"),
        without: Vec::new(),
        surroundings,
        race: Race { writers: 4, rounds: 2 },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 4,
        budget: None,
        clock: clock(),
    };
    let mut parts: BTreeMap<String, String> = BTreeMap::new();
    let entries = runner::run(&plan, &client, "assay-certify/pin/", |event| {
        if let Event::Finished(entry, exchanges) = event {
            parts.insert(entry.id.clone(), told(entry, exchanges));
        }
    })
    .await;
    entries.iter().map(|entry| parts[&entry.id].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_as_it_did() {
    let seen = report(Server::builder()).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("ASSAY_RENEW").is_some() {
        std::fs::write(&path, &seen).expect("the golden file can be written");
    }
    check(&seen);
}

/// The store on disk answers all of it as the one in memory does.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_the_same_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    check(&report(Server::builder().data(folder.path())).await);
}

#[track_caller]
fn check(seen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let (old, new): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), seen.lines().collect());
    let gone: Vec<_> = old.iter().filter(|line| !new.contains(line)).take(10).collect();
    let come: Vec<_> = new.iter().filter(|line| !old.contains(line)).take(10).collect();
    assert!(
        golden == seen,
        "the embedded server does not answer as conformance/{GOLDEN} says.\nonly there: {gone:#?}\nonly now: {come:#?}\n\
         If the change is meant, or a check is new, renew the file and commit it: {RENEW}"
    );
}
