//! The area `sink` as a part of a run: on the embedded server, on a provider behind a proxy, and on one that is refused.

use assay_checks::{Call, Client, Settings, xml};
use assay_conformance::report::{Entry, Outcome, Report};
use assay_conformance::target::{Provider, REQUIRED};
use assay_conformance::{embedded, render};
use assay_server::Server;
use http::Method;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::process::Command;

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn now() -> OffsetDateTime {
    OffsetDateTime::from(std::time::SystemTime::now())
}

/// `assay-certify --json` of these checks, on `provider` or the embedded server: its report and exit code.
async fn certify(provider: Option<&Provider>, checks: &[&str]) -> (Report, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-certify"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DELTAFORGE_") {
            command.env_remove(name);
        }
    }
    if let Some(Provider { endpoint, bucket, credentials, .. }) = provider {
        let values = [&endpoint.url(), bucket, &credentials.access_key, &credentials.secret_key];
        command.envs(REQUIRED.iter().zip(values));
    }
    let only = checks.iter().flat_map(|check| ["--only", check]);
    let output = command.args(only).args(["--json", "--seed", "7"]).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(240), output).await.expect("it ends");
    let output = output.expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let report = render::json::read(&text)
        .unwrap_or_else(|why| panic!("{why}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (report, output.status.code())
}

#[track_caller]
fn entry<'a>(report: &'a Report, id: &str) -> &'a Entry {
    report.entry(id).unwrap_or_else(|| panic!("{id} was to be run"))
}

async fn keys(provider: &Provider) -> Vec<String> {
    let client = Client::new(Settings {
        endpoint: provider.endpoint.clone(),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(10),
        clock: Arc::new(now),
    });
    let listing = client.send(Call::new(Method::GET, None).query("list-type", "2")).await.expect("an answer");
    let entries = xml::elements(&String::from_utf8_lossy(&listing.body), "Contents");
    entries.iter().filter_map(|entry| xml::element(entry, "Key")).collect()
}

/// A kill, so that this program is started again as a writer, and what only the embedded store can play.
const SOME: [&str; 4] = ["sink.probe", "sink.agreement", "sink.matrix.2.3c5", "sink.matrix.3.8"];

#[tokio::test(flavor = "multi_thread")]
async fn probe_and_matrix_run_on_the_embedded_server() {
    let (report, code) = certify(None, &SOME).await;
    assert_eq!(code, Some(0), "{}", report.line);
    for id in ["sink.probe", "sink.matrix.2.3c5", "sink.matrix.3.8"] {
        let entry = entry(&report, id);
        assert_eq!(entry.outcome, Outcome::Pass, "{id}");
        assert!(entry.requests > 20, "{id} sent {} requests", entry.requests);
    }
    // The rest of the suite was not asked, so there is nothing to agree with.
    assert!(matches!(&entry(&report, "sink.agreement").outcome, Outcome::Skip { reason }
        if reason.starts_with("the suite decided nothing: 0 of ")));
    assert_eq!((report.sink_probe(), report.sink_matrix().as_str()), ("pass", "2 of 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_asked_through_a_server_that_misbehaves_and_left_as_it_was() {
    let (_server, provider) = embedded::start().await.expect("the server starts");
    let (report, code) = certify(Some(&provider), &SOME).await;
    assert_eq!(code, Some(0), "{}", report.line);
    assert_eq!(entry(&report, "sink.probe").outcome, Outcome::Pass);
    assert_eq!(entry(&report, "sink.matrix.2.3c5").outcome, Outcome::Pass);
    let missing = &entry(&report, "sink.matrix.3.8").outcome;
    assert!(
        matches!(missing, Outcome::Skip { reason } if reason == "it needs a store that confirms and forgets"),
        "{missing:?}"
    );
    assert_eq!(keys(&provider).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_the_probe_refuses_is_refused_and_its_matrix_skipped() {
    let builder = Server::builder().deviation("ignore-if-match-put".parse().expect("a deviation"));
    let (_server, provider) = embedded::start_as(builder).await.expect("the server starts");
    let checks = ["put.swap.wrong", "sink.probe", "sink.agreement", "sink.matrix.2.1"];
    let (report, code) = certify(Some(&provider), &checks).await;
    assert_eq!(code, Some(1), "{}", report.line);
    assert!(report.line.contains("REFUSED (put.swap.wrong, sink.probe failed)"), "{}", report.line);
    let Outcome::Fail(failure) = &entry(&report, "sink.probe").outcome else {
        panic!("the probe refuses it")
    };
    assert!(failure.expected.contains("the probe's check 9"), "{}", failure.expected);
    assert!(failure.got.contains("also refused by check 10, 11, 12, 15"), "{}", failure.got);
    assert_eq!(entry(&report, "sink.agreement").outcome, Outcome::Pass);
    assert!(matches!(&entry(&report, "sink.matrix.2.1").outcome, Outcome::Skip { reason }
        if reason.ends_with("its probe refuses it")));
}
