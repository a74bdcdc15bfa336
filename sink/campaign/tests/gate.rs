//! The gate in its short form, with real processes; a mistake that it must find; and what it refuses.

use std::path::Path;
use std::process::{Command, Output};

#[cfg(feature = "protocol-points")]
use sinks::model::ids::Digest;
#[cfg(feature = "protocol-points")]
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
    // An even seed: the store hangs in a recovery.
    let output = campaign(&["gate", "--profile", "short", "--rate", "400", "--seed", "2"], &evidence);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("PASS: 10 of 10 faults fired and healed"), "{}", said(&output));
    let report = std::fs::read_to_string(evidence.join("report.md")).expect("a report");
    assert!(report.starts_with("# Staged commits under faults: PASS\n"), "{report}");
    assert!(report.contains("Workers were the same processes in 3 of 3 checks."), "{report}");
    let page = std::fs::read_to_string(evidence.join("report.html")).expect("a page");
    assert!(page.contains("<polyline") && page.contains("<h2>Faults</h2>"), "{page}");
    for part in [
        "each of ",
        "| profile | gate, short |",
        "4 of 4 partitions have a worker whose log says that it opened",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert_eq!(page.matches("<polyline").count(), 2, "{page}");
    for file in ["verdict.json", "faults.jsonl", "oracle.jsonl", "coordinator.log", "worker-2.log"] {
        assert!(evidence.join(file).exists(), "{file}");
    }
    let ours = std::fs::read(env!("CARGO_BIN_EXE_assay-campaign")).expect("the binary");
    let copy = std::fs::read(evidence.join("assay-campaign")).expect("its copy");
    assert!(ours == copy, "every process is of the binary that was started");
    assert!(report.contains(&format!("SHA-256 | {} |", Digest::of(&copy))), "{report}");
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
    let refused = |set: &[(&str, &str)], evidence: &str, code: i32, wanted: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay-campaign"));
        command
            .args(["gate", "--profile", "short", "--rate", "400", "--evidence"])
            .arg(dir.path().join(evidence));
        let output = command.envs(set.iter().copied()).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(wanted.iter().all(|wanted| said(&output).contains(wanted)), "{}", said(&output));
    };
    refused(&settings[..1], "partial", 2, &["DELTAFORGE_IT_S3_ENDPOINT"]);
    let client = S3Settings::new(Some(store.endpoint().to_owned()), "us-east-1", "used");
    let client = S3Store::new(&client, &Access::keys(store.access_key(), store.secret_key(), None));
    let client = client.expect("settings");
    let put = async { client.put("left/over", "x".into(), Condition::None, &[]).await };
    let put = tokio::runtime::Runtime::new().expect("a runtime").block_on(put);
    assert!(matches!(put, Outcome::Done(_)), "{put:?}");
    refused(&settings, "used", 2, &["is not empty", "left/over", "DELTAFORGE_IT_S3_BUCKET"]);
    let nobody = "http://127.0.0.1:1";
    let away = settings.map(|(name, value)| (name, if name.ends_with("ENDPOINT") { nobody } else { value }));
    refused(
        &away,
        "away",
        7,
        &["DELTAFORGE_IT_S3_ENDPOINT", nobody, "does not answer", "start it, or name another"],
    );
    let denied =
        settings.map(|(name, value)| (name, if name.ends_with("SECRET_KEY") { "wrong" } else { value }));
    refused(&denied, "denied", 2, &["can't be listed", "SignatureDoesNotMatch"]);
}

/// Each mistake is found by what it does, and a report of a failure claims nothing.
#[cfg(all(feature = "protocol-points", feature = "mutants"))]
#[test]
fn every_mistake_is_found_by_its_own_finding() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = campaign(&["mutants", "--rate", "400"], dir.path());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let mutants = sinks::stage::mutant::Mutant::ALL;
    assert_eq!(said(&output).matches("\nfound: ").count(), mutants.len(), "{}", said(&output));
    for mutant in mutants {
        let report =
            std::fs::read_to_string(dir.path().join(mutant.name()).join("report.md")).expect("a report");
        assert!(report.contains("- **Demonstrated**: nothing: the run failed"), "{report}");
        assert!(!report.contains("exactly once"), "{report}");
    }
    let unknown = campaign(&["gate", "--mutant", "none"], &dir.path().join("other"));
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    assert!(said(&unknown).contains("known: commit-before-marker"), "{}", said(&unknown));
}

/// Someone else's objects at the job's keys: the sink stops at them.
#[cfg(feature = "protocol-points")]
#[test]
fn foreign_objects_fail_the_gate() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = ["gate", "--profile", "short", "--foreign-object", "--rate", "400"];
    let output = campaign(&arguments, &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let dead = said(&output).lines().find(|line| line.contains("dead job: worker-")).map(str::to_owned);
    let dead = dead.unwrap_or_default();
    assert!(
        dead.contains("exit status: 5: conflict: sub") && dead.contains("without a commit token"),
        "{dead}"
    );
    let pipelines = ["gate", "--foreign-object", "--sink", "durable_v2"];
    let refused = campaign(&pipelines, &dir.path().join("pipelines"));
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

/// With fewer workers, so that each has several partitions.
#[cfg(feature = "protocol-points")]
#[test]
fn the_short_gate_of_pipelines_passes() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = ["gate", "--sink", "durable_v2", "--profile", "short", "--rate", "400"];
    let arguments = [arguments.as_slice(), &["--workers", "2"]].concat();
    let output = campaign(&arguments, &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("PASS: 7 of 7 faults fired and healed"), "{}", said(&output));
    let report = std::fs::read_to_string(dir.path().join("evidence/report.md")).expect("a report");
    assert!(report.contains("| store away while a recovery needs it, refusing | "), "{report}");
    assert!(report.contains("| partitions, workers | 4, 2 |"), "{report}");
}

#[cfg(feature = "protocol-points")]
#[test]
fn more_workers_than_partitions_or_none_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for workers in ["0", "5"] {
        let output = campaign(&["gate", "--workers", workers], dir.path());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(&format!("'{workers}' for '--workers")), "{}", said(&output));
        assert!(said(&output).contains("1..=4"), "{}", said(&output));
    }
}

/// Stores that break a promise: one that ignores conditions, and one that loses what it acknowledged.
#[cfg(feature = "protocol-points")]
#[test]
fn a_store_that_breaks_a_promise_fails_the_gate() {
    let lost = "operation=CompleteMultipartUpload nth=9 effect=forget";
    for (sink, option, value, finding) in [
        ("durable_v2", "--deviate", "ignore-if-match-put", "the provider failed the probe: checks [9,"),
        ("durable_v2", "--deviate", "ignore-if-none-match-put", "the provider failed the probe: checks [2,"),
        ("staged", "--store-fault", lost, "gap: 1"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let arguments = ["gate", "--sink", sink, "--profile", "short", "--rate", "400", option, value];
        let output = campaign(&arguments, &dir.path().join("evidence"));
        assert_eq!(output.status.code(), Some(1), "{value}: {}", said(&output));
        assert!(said(&output).contains(finding), "{value}: {}", said(&output));
    }
}

#[cfg(not(feature = "kafka"))]
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

/// No verdict on the job: there was none.
#[cfg(all(feature = "protocol-points", feature = "kafka"))]
#[test]
fn a_broker_that_does_not_start_is_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = campaign(&["gate", "--broker-command", "false {address}"], &dir.path().join("evidence"));
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    for part in
        ["ended with exit status: 1 before it answered", "\"false {address}\" must serve at 127.0.0.1:"]
    {
        assert!(said(&output).contains(part), "{}", said(&output));
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
