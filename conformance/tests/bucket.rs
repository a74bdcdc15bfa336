//! The bucket is left as it was found: after a run, after Ctrl-C, after a run that was killed.

use assay_checks::{Call, Client, Settings, xml};
use assay_conformance::embedded;
use assay_conformance::report::{Report, Verdict};
use assay_conformance::target::{Provider, REQUIRED};
use http::Method;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::process::{Child, Command};

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn now() -> OffsetDateTime {
    OffsetDateTime::from(std::time::SystemTime::now())
}

fn client(provider: &Provider) -> Client {
    Client::new(Settings {
        endpoint: provider.endpoint.clone(),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(10),
        clock: Arc::new(now),
    })
}

fn certify(provider: &Provider, arguments: &[&str]) -> Child {
    let Provider { endpoint, bucket, credentials, .. } = provider;
    let values = [&endpoint.url(), bucket, &credentials.access_key, &credentials.secret_key];
    Command::new(env!("CARGO_BIN_EXE_assay-certify"))
        .args(arguments)
        .envs(REQUIRED.iter().zip(values))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary runs")
}

async fn keys(client: &Client) -> Vec<String> {
    let listing = client.send(Call::new(Method::GET, None).query("list-type", "2")).await.expect("an answer");
    let entries = xml::elements(&String::from_utf8_lossy(&listing.body), "Contents");
    entries.iter().filter_map(|entry| xml::element(entry, "Key")).collect()
}

async fn uploads(client: &Client) -> usize {
    let listing = client.send(Call::new(Method::GET, None).query("uploads", "")).await.expect("an answer");
    xml::elements(&String::from_utf8_lossy(&listing.body), "Upload").len()
}

async fn put(client: &Client, key: &str) {
    let answer = client.send(Call::put(key, "kept")).await.expect("an answer");
    assert!(answer.succeeded(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_removes_its_keys_and_stale_ones_and_nothing_else() {
    let (_server, provider) = embedded::start().await.expect("the server starts");
    let client = client(&provider);
    put(&client, "somebody/else").await;
    put(&client, "assay-certify/20200101T000000Z-00000000/put.create.absent/new").await;
    let stale_upload =
        Call::new(Method::POST, Some("assay-certify/20200101T000000Z-00000001/k")).query("uploads", "");
    assert!(client.send(stale_upload).await.expect("an answer").succeeded());
    let young = young_key();
    put(&client, &young).await;

    let output = certify(
        &provider,
        &["--json", "--seed", "9", "--rounds", "1", "--only", "put.*", "--only", "complete.*"],
    )
    .wait_with_output()
    .await
    .expect("it ends");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report on standard output");
    assert_eq!((output.status.code(), report.verdict), (Some(0), Verdict::Partial), "{}", report.line);
    assert_eq!((report.head.seed, report.head.embedded), (9, false));
    assert!(report.checks.iter().all(|check| check.requests > 0), "{report:#?}");
    assert_eq!(keys(&client).await, [young.as_str(), "somebody/else"]);
    assert_eq!(uploads(&client).await, 0);
}

/// A key of a run that began a moment ago.
fn young_key() -> String {
    assay_conformance::sweep::prefix(now(), &mut fastrand::Rng::with_seed(3)) + "put.create.absent/new"
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_removes_what_was_written() {
    let (_server, provider) = embedded::start().await.expect("the server starts");
    let client = client(&provider);
    let child = certify(&provider, &["--rounds", "10000", "--only", "race.complete.create"]);
    let pid = child.id().expect("it runs").to_string();
    let seen = async { while keys(&client).await.is_empty() {} };
    tokio::time::timeout(Duration::from_secs(30), seen).await.expect("the run writes something");
    let sent = Command::new("kill").args(["-INT", &pid]).status().await.expect("kill runs");
    assert!(sent.success());
    let output = tokio::time::timeout(Duration::from_secs(30), child.wait_with_output()).await;
    let output = output.expect("it ends soon").expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(keys(&client).await, Vec::<String>::new());
    assert_eq!(uploads(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_or_secret_that_is_wrong_is_a_matter_of_configuration() {
    let (_server, provider) = embedded::start().await.expect("the server starts");
    let no_bucket = Provider { bucket: "missing".into(), ..provider.clone() };
    let mut wrong_secret = provider.clone();
    wrong_secret.credentials.secret_key = "not-the-secret".into();
    for (provider, says) in [(no_bucket, "does not exist"), (wrong_secret, "refuses these credentials")] {
        let output = certify(&provider, &[]).wait_with_output().await.expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && !error.contains("not-the-secret"), "{error}");
    }
}
