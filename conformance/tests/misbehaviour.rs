//! A clean server passes every check; behind a forwarder that misbehaves in one way, exactly the checks that name
//! this deviation fail. A check that cannot fail is decoration.

mod forwarder;

use assay_checks::{Check, Client, Clock, Endpoint, Race, Settings, Surroundings};
use assay_conformance::report::{Entry, Outcome};
use assay_conformance::runner::{self, Plan};
use assay_conformance::target::Provider;
use assay_conformance::{buckets, embedded, sweep};
use forwarder::areas;
use forwarder::{CLEAN, Deviation};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::JoinSet;

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

fn client(provider: &Provider, endpoint: &str) -> Client {
    Client::new(Settings {
        endpoint: Endpoint::parse(endpoint).expect("loopback"),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(10),
        clock: clock(),
    })
}

/// Checks with hundreds of requests: behind a deviation they run only where they name it.
fn is_heavy(check: &Check) -> bool {
    check.id.starts_with("race.") || check.id == "list.page.thousand"
}

/// These checks with short races, through a forwarder, on a server of its own.
async fn run(deviation: Deviation, race: Race, checks: Vec<&'static Check>) -> Vec<Entry> {
    let (_server, provider) = embedded::start().await.expect("the embedded server starts");
    let mut tasks = JoinSet::new();
    let upstream = client(&provider, &provider.endpoint.url());
    let endpoint = forwarder::start(deviation, upstream.clone(), &mut tasks).await;
    let prefix = "assay-certify/test/";
    let plan = Plan {
        checks,
        without: Vec::new(),
        surroundings: Surroundings { endpoint_2: Endpoint::parse(&endpoint).ok(), versioned_bucket: None },
        race,
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 1,
        budget: None,
        clock: clock(),
    };
    let entries = runner::run(&plan, &client(&provider, &endpoint), prefix, |_| {}).await;
    sweep::empty(&upstream, "assay-certify/").await.expect("the bucket is emptied");
    buckets::remove_all(&plan, &upstream, prefix).await.expect("the run's buckets are removed");
    entries
}

/// Ids that did not pass, with what happened where it is no plain failure.
fn failed(entries: &[Entry]) -> BTreeSet<String> {
    entries
        .iter()
        .filter_map(|entry| match &entry.outcome {
            Outcome::Pass => None,
            Outcome::Fail(_) => Some(entry.id.clone()),
            other => Some(format!("{} {other:?}", entry.id)),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_server_passes_every_check() {
    let entries = run(CLEAN, Race { writers: 8, rounds: 4 }, assay_checks::all().collect()).await;
    let wrong: Vec<_> = entries.iter().filter(|entry| entry.outcome != Outcome::Pass).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(entries.len(), assay_checks::all().count());
}

/// For each deviation: the checks that name it, and no others, fail.
async fn exactly_the_named_checks_fail(deviations: &'static [Deviation]) {
    named_checks_fail(deviations, false).await;
}

async fn named_checks_fail(deviations: &'static [Deviation], and_others: bool) {
    let mut wrong = Vec::new();
    for deviation in deviations {
        let names = |check: &&Check| check.broken_by.contains(&deviation.name);
        let named: BTreeSet<String> =
            assay_checks::all().filter(names).map(|check| check.id.to_owned()).collect();
        assert!(!named.is_empty(), "no check names {}", deviation.name);
        let checks = assay_checks::all().filter(|check| names(check) || !(and_others || is_heavy(check)));
        let entries = run(*deviation, Race { writers: 4, rounds: 2 }, checks.collect()).await;
        let seen = failed(&entries);
        let (missed, other): (Vec<_>, Vec<_>) =
            (named.difference(&seen).collect(), seen.difference(&named).collect());
        if !missed.is_empty() || !other.is_empty() {
            wrong.push(format!("{}: passed {missed:?}; not named {other:?}", deviation.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_listings_are_noticed() {
    exactly_the_named_checks_fail(areas::LISTING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_are_noticed() {
    exactly_the_named_checks_fail(areas::KEYS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_uploads_and_versions_are_noticed() {
    exactly_the_named_checks_fail(areas::UPLOADS).await;
    exactly_the_named_checks_fail(areas::VERSIONS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_checksums_and_signatures_are_noticed() {
    exactly_the_named_checks_fail(areas::INTEGRITY).await;
    exactly_the_named_checks_fail(areas::SIGNATURES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_headers_ranges_and_clocks_are_noticed() {
    exactly_the_named_checks_fail(areas::ANSWERS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staleness_is_noticed() {
    named_checks_fail(areas::WIDE, true).await;
}

/// Every name that a check gives is a deviation of the embedded server or of the forwarder.
#[test]
fn every_name_is_a_deviation() {
    let ours = [
        areas::LISTING,
        areas::KEYS,
        areas::UPLOADS,
        areas::VERSIONS,
        areas::INTEGRITY,
        areas::SIGNATURES,
        areas::ANSWERS,
        areas::WIDE,
    ];
    let known: BTreeSet<&str> = ours
        .iter()
        .flat_map(|area| area.iter().map(|deviation| deviation.name))
        .chain(assay_server::Deviation::catalog().iter().map(|described| described.name))
        .collect();
    let named = assay_checks::all().flat_map(|check| check.broken_by.iter().map(|name| (check.id, *name)));
    let unknown: Vec<_> = named.filter(|(_, name)| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
