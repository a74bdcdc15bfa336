//! The gate in its short form, with real processes; a mistake that it must find; and what it refuses.

use std::path::Path;
use std::process::{Command, Output};

use sinks::store::{Access, Condition, Outcome, S3Settings, S3Store, Store as _};

fn campaign(arguments: &[&str], evidence: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-campaign"));
    command.args(arguments).arg("--evidence").arg(evidence).output().expect("the binary starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[cfg(not(feature = "protocol-points"))]
#[test]
fn a_build_without_points_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = campaign(&["gate"], &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--features protocol-points"), "{}", said(&output));
}

#[cfg(feature = "protocol-points")]
#[test]
fn the_short_gate_passes_and_leaves_its_evidence() {
    let dir = tempfile::tempdir().expect("a directory");
    let evidence = dir.path().join("evidence");
    let output = campaign(&["gate", "--profile", "short", "--rate", "400"], &evidence);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("PASS: 9 of 9 faults fired and healed"), "{}", said(&output));
    let report = std::fs::read_to_string(evidence.join("report.md")).expect("a report");
    assert!(report.starts_with("# Staged commits under faults: PASS\n"), "{report}");
    assert!(report.contains("Workers were the same processes in 3 of 3 checks."), "{report}");
    let page = std::fs::read_to_string(evidence.join("report.html")).expect("a page");
    assert!(page.contains("<polyline") && page.contains("<h2>Faults</h2>"), "{page}");
    for file in ["verdict.json", "faults.jsonl", "oracle.jsonl", "coordinator.log", "worker-2.log"] {
        assert!(evidence.join(file).exists(), "{file}");
    }
    let again = campaign(&["gate"], &evidence);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(said(&again).contains("is not empty"), "{}", said(&again));
}

#[cfg(feature = "protocol-points")]
#[test]
fn a_provider_that_is_named_in_part_or_whose_bucket_is_used_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store =
        assay_server::blocking::start(assay_server::Server::builder().bucket("used")).expect("a server");
    let settings = [
        ("DELTAFORGE_IT_S3_BUCKET", "used"),
        ("DELTAFORGE_IT_S3_ENDPOINT", store.endpoint()),
        ("DELTAFORGE_IT_S3_ACCESS_KEY", store.access_key()),
        ("DELTAFORGE_IT_S3_SECRET_KEY", store.secret_key()),
    ];
    let refused = |set: &[(&str, &str)], evidence: &str, wanted: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay-campaign"));
        command
            .args(["gate", "--profile", "short", "--rate", "400", "--evidence"])
            .arg(dir.path().join(evidence));
        let output = command.envs(set.iter().copied()).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(wanted.iter().all(|wanted| said(&output).contains(wanted)), "{}", said(&output));
    };
    refused(&settings[..1], "partial", &["DELTAFORGE_IT_S3_ENDPOINT"]);
    let client = S3Settings::new(Some(store.endpoint().to_owned()), "us-east-1", "used");
    let client = S3Store::new(&client, &Access::keys(store.access_key(), store.secret_key(), None));
    let client = client.expect("settings");
    let put = async { client.put("left/over", "x".into(), Condition::None, &[]).await };
    let put = tokio::runtime::Runtime::new().expect("a runtime").block_on(put);
    assert!(matches!(put, Outcome::Done(_)), "{put:?}");
    refused(&settings, "used", &["is not empty", "left/over", "DELTAFORGE_IT_S3_BUCKET"]);
}

#[cfg(all(feature = "protocol-points", feature = "mutants"))]
#[test]
fn a_snapshot_of_before_the_barrier_fails_the_gate() {
    let dir = tempfile::tempdir().expect("a directory");
    let mutant = ["gate", "--profile", "short", "--mutant", "snapshot-before-barrier", "--rate", "400"];
    let output = campaign(&mutant, &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("dead job: worker-"), "{}", said(&output));
    let unknown = campaign(&["gate", "--mutant", "none"], &dir.path().join("other"));
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    assert!(said(&unknown).contains("known: commit-before-marker"), "{}", said(&unknown));
}

/// Someone else's objects at the job's keys: the sink stops at them, and one that takes them for its own is found by
/// what a reader sees.
#[cfg(all(feature = "protocol-points", feature = "mutants"))]
#[test]
fn foreign_objects_fail_the_gate() {
    for (mutant, code, found) in
        [(None, "exit status: 5", None), (Some("any-object-accepted"), "", Some("foreign: "))]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let mut arguments = vec!["gate", "--profile", "short", "--foreign-object", "--rate", "400"];
        arguments.extend(mutant.into_iter().flat_map(|mutant| ["--mutant", mutant]));
        let output = campaign(&arguments, &dir.path().join("evidence"));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(code), "{}", said(&output));
        assert!(found.is_none_or(|found| said(&output).contains(found)), "{}", said(&output));
    }
    let pipelines = ["gate", "--foreign-object", "--sink", "durable_v2"];
    let refused = campaign(&pipelines, &tempfile::tempdir().expect("a directory").path().join("evidence"));
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[cfg(feature = "protocol-points")]
#[test]
fn the_short_gate_of_pipelines_passes() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = ["gate", "--sink", "durable_v2", "--profile", "short", "--rate", "400"];
    let output = campaign(&arguments, &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("PASS: 7 of 7 faults fired and healed"), "{}", said(&output));
}

/// Stores that break a promise: one that ignores conditions, and one that loses what it acknowledged.
#[cfg(feature = "protocol-points")]
#[test]
fn a_store_that_breaks_a_promise_fails_the_gate() {
    let lost = "operation=CompleteMultipartUpload nth=9 effect=forget";
    for (sink, option, value, finding) in [
        ("durable_v2", "--deviate", "ignore-if-match-put", "dead job: worker-"),
        ("durable_v2", "--deviate", "ignore-if-none-match-put", "dead job: worker-"),
        ("staged", "--store-fault", lost, "gap: 1"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let arguments = ["gate", "--sink", sink, "--profile", "short", "--rate", "400", option, value];
        let output = campaign(&arguments, &dir.path().join("evidence"));
        assert_eq!(output.status.code(), Some(1), "{value}: {}", said(&output));
        assert!(said(&output).contains(finding), "{value}: {}", said(&output));
    }
}

#[cfg(all(feature = "protocol-points", not(feature = "kafka")))]
#[test]
fn a_build_without_the_protocol_of_kafka_refuses_brokers() {
    let dir = tempfile::tempdir().expect("a directory");
    for option in [["--brokers", "127.0.0.1:9092"], ["--broker-command", "broker --listen {address}"]] {
        let output = campaign(&["gate", option[0], option[1]], &dir.path().join(option[0]));
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("build with --features kafka"), "{}", said(&output));
    }
}

#[cfg(feature = "protocol-points")]
#[test]
fn brokers_that_are_named_wrong_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (arguments, finding) in [
        (&["--broker-command", "broker --listen 127.0.0.1:9092"][..], "has no {address}"),
        (&["--broker-command", "broker {address}", "--brokers", "127.0.0.1:9092"], "cannot be used with"),
        (&["--topic", "events"], "--brokers"),
    ] {
        let output = campaign(&[&["gate"], arguments].concat(), &dir.path().join("evidence"));
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(finding), "{}", said(&output));
        let _ = std::fs::remove_dir_all(dir.path().join("evidence"));
    }
}

/// Each point that only the campaign can reach is reached once in its code.
#[test]
fn every_point_of_the_coordinator_is_reached_by_the_code() {
    let code = include_str!("../src/coordinator.rs");
    let ours: Vec<_> =
        sinks::point::Point::ALL.into_iter().filter(|point| point.package() == "assay-campaign").collect();
    assert_eq!(ours.len(), 3);
    for point in ours {
        assert_eq!(code.matches(&format!("point::reach(Point::{point:?})")).count(), 1, "{point:?}");
    }
}

/// Nothing of it is on by default.
#[test]
fn a_plain_build_has_no_points_and_no_mutants() {
    let manifest = include_str!("../Cargo.toml");
    let (_, features) = manifest.split_once("[features]").expect("features");
    let features = features.split("\n[").next().unwrap_or_default();
    assert!(features.contains("protocol-points = ") && features.contains("mutants = "));
    assert!(!features.contains("default"), "{features}");
}
