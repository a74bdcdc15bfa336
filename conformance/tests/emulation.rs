//! The loop closed: the embedded server, told by a vendor's certificate how to differ, is certified to the same classes.

use assay_checks::{Client, Clock, Race, Settings};
use assay_conformance::report::{Entry, Report, draw_up};
use assay_conformance::runner::Plan;
use assay_conformance::{embedded, render, runner, selection};
use assay_server::{Deviation, Server};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

async fn run(deviations: Vec<Deviation>) -> Vec<Entry> {
    let builder =
        deviations.into_iter().fold(Server::builder().seed(1), |builder, one| builder.deviation(one));
    let (_server, provider) = embedded::start_as(builder).await.expect("the embedded server starts");
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
    // Those that classify a condition or measure a key: the others decide nothing that is compared.
    let mut checks = selection::select(&[]).expect("all of them");
    checks.retain(|check| check.condition.is_some() || check.id.starts_with("key.limit."));
    let plan = Plan {
        checks,
        without: Vec::new(),
        surroundings,
        race: Race { writers: 8, rounds: 6 },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 4,
        budget: None,
        clock: clock(),
    };
    // As long as that of a real run: what is measured of keys counts it.
    runner::run(&plan, &client, "assay-certify/20261129T000000Z-00000000/", |_| {}).await
}

/// Certificates of real servers, by their file's name.
fn certificates() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/certificates");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of certificates")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a text"))
        })
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_vendor_has_the_classes_and_limits_of_its_certificate() {
    let certificates = certificates();
    assert!(certificates.len() >= 5, "{} certificates", certificates.len());
    let mut wrong = Vec::new();
    for (name, text) in certificates {
        let vendor: Report = render::json::read(&text).expect("a certificate");
        let deviations = Deviation::measured(&text).expect("deviations that the server has");
        let emulated = draw_up(vendor.head.clone(), run(deviations).await);
        for (condition, class) in &vendor.conditions {
            let seen = emulated.conditions.get(condition);
            if seen != Some(class) {
                wrong.push(format!(
                    "{name}: {condition} is {class}, and emulated {seen:?}; {:?}",
                    vendor.deviations
                ));
            }
        }
        for limit in ["key-total-bytes", "key-segment-bytes", "key-segments"] {
            let (of, seen) = (vendor.measured.get(limit), emulated.measured.get(limit));
            if of != seen {
                wrong.push(format!(
                    "{name}: {limit} is {of:?}, and emulated {seen:?}; {:?}",
                    vendor.deviations
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
