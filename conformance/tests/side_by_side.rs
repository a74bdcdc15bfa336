//! Latency costs a run little, since checks that are independent run side by side.

use assay_checks::{Client, Clock, Race, Settings};
use assay_conformance::report::Outcome;
use assay_conformance::runner::Plan;
use assay_conformance::{embedded, runner, selection};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_milliseconds_a_request_are_waited_for_together() {
    let (server, provider) = embedded::start().await.expect("the embedded server starts");
    let _slow = server.fault("effect=delay ms=30".parse().expect("a rule")).expect("a fault");
    let surroundings = provider.surroundings();
    let client = Client::new(Settings {
        endpoint: provider.endpoint,
        addressing: provider.addressing,
        bucket: provider.bucket,
        region: provider.region,
        credentials: provider.credentials,
        timeout: Duration::from_secs(30),
        clock: clock(),
    });
    let clock = clock();
    let plan = Plan {
        checks: selection::select(&["put.*".to_owned(), "delete.*".to_owned()]).expect("they exist"),
        without: Vec::new(),
        surroundings,
        race: Race { writers: 2, rounds: 1 },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 16,
        budget: None,
        clock: clock.clone(),
    };
    let start = clock();
    let entries = runner::run(&plan, &client, "assay-certify/test/", |_| {}).await;
    let took = u64::try_from((clock() - start).whole_milliseconds()).expect("time goes on");
    assert!(entries.iter().all(|entry| entry.outcome == Outcome::Pass), "{entries:#?}");
    let one_by_one: u64 = entries.iter().map(|entry| entry.duration_ms).sum();
    let latency: u64 = entries.iter().map(|entry| entry.requests * 30).sum();
    // Against the checks' own times and not the latency alone: a busy machine slows both sides.
    assert!(
        one_by_one >= latency && took * 3 < one_by_one,
        "{took} ms for checks of {one_by_one} ms, {latency} ms of it latency"
    );
}
