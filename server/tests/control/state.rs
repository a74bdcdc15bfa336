//! What is stored as a whole: reset, snapshots, and the file.

use std::net::SocketAddr;
use std::path::Path;

use assay_server::{AuthMode, Builder, Error, Server};

use crate::client::wire::Wire;
use crate::client::{BOTH, On, Rig};
use crate::process::{Process, command, run};
use crate::{control, exchange, json};

fn builder() -> Builder {
    Server::builder().bucket("bucket").auth(AuthMode::None)
}

async fn keys(address: SocketAddr) -> Vec<String> {
    let list = Wire::connect(address).await.ask("GET", "/bucket?list-type=2", &[], b"").await;
    list.expect(200).all("Contents/Key")
}

async fn put(address: SocketAddr, key: &str) {
    Wire::connect(address).await.ask("PUT", &format!("/bucket/{key}"), &[], b"v").await.expect(200);
}

#[tokio::test]
async fn a_reset_brings_back_the_start() {
    let first = "name=first key=never effect=drop";
    let server = builder().fault(first.parse().unwrap()).seed(3).start().await.unwrap();
    let address = server.address();
    let guard = server.fault("name=later method=PUT effect=delay ms=0".parse().unwrap()).unwrap();
    json(control(address, "PUT", "clock", r#"{"offset-ms": 5}"#).await, 200);
    put(address, "k").await;
    json(control(address, "POST", "outage", r#"{"outage": "unavailable"}"#).await, 200);
    json(control(address, "POST", "reset", "").await, 200);
    assert!(keys(address).await.is_empty());
    let faults = server.faults();
    assert_eq!(faults.iter().map(|fault| fault.rule.as_str()).collect::<Vec<_>>(), [first]);
    assert_eq!(json(control(address, "GET", "clock", "").await, 200)["offset-ms"], 0);
    let told = json(control(address, "GET", "requests", "").await, 200);
    assert_eq!(told["count"], 1, "only the list of keys: {told}");
    drop(guard);
    assert_eq!(server.faults().len(), 1);
    // The one of the start is told once, however often it was set anew.
    let unfired = server.assert_all_faults_fired().unwrap_err().0;
    assert_eq!(unfired.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), ["first"]);
    json(control(address, "POST", "reset?access-key=a", "").await, 400);
}

#[tokio::test]
async fn after_a_reset_the_same_requests_meet_the_same_faults() {
    let rule = "probability=0.5 effect=refuse code=SlowDown";
    let server = builder().fault(rule.parse().unwrap()).seed(11).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(exchange(server.address(), "GET", "/bucket", &[], "").await[9..12].to_owned());
        }
        runs.push(seen);
        server.reset().await.unwrap();
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].iter().any(|status| status == "503") && runs[0].iter().any(|status| status == "200"));
}

#[tokio::test]
async fn snapshots_are_kept_by_number() {
    let server = builder().start().await.unwrap();
    let address = server.address();
    put(address, "a").await;
    assert_eq!(json(control(address, "POST", "snapshots", "").await, 200)["id"], 1);
    put(address, "b").await;
    assert_eq!(json(control(address, "POST", "snapshots", "").await, 200)["id"], 2);
    json(control(address, "POST", "reset", "").await, 200);
    for (id, expected) in [(2, &["a", "b"][..]), (1, &["a"]), (2, &["a", "b"])] {
        json(control(address, "POST", &format!("snapshots/{id}"), "").await, 200);
        assert_eq!(keys(address).await, expected);
    }
    json(control(address, "DELETE", "snapshots/1", "").await, 200);
    json(control(address, "POST", "snapshots/1", "").await, 404);
    json(control(address, "DELETE", "snapshots/x", "").await, 404);
    assert_eq!(
        json(control(address, "GET", "snapshots", "").await, 200)["snapshots"],
        serde_json::json!([2])
    );
    for _ in 1..16 {
        json(control(address, "POST", "snapshots", "").await, 200);
    }
    let full = json(control(address, "POST", "snapshots", "").await, 409);
    assert!(full["error"].as_str().unwrap().contains("DELETE"), "{full}");
}

/// A store with everything that rows can be: versions and markers, an upload with parts, tags, empty and large bodies.
async fn filled(on: On) -> Rig {
    let rig = Rig::new(on).await;
    for (key, size) in [("empty", 0), ("small", 9), ("large", 400_000)] {
        rig.put(key, "x".repeat(size)).await.expect(200);
    }
    let enable = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    rig.send("PUT", "/bucket?versioning", &[], enable).await.expect(200);
    rig.put("small", "second").await.expect(200);
    rig.call("DELETE", "large").await.expect(204);
    rig.send("PUT", "tagged", &[("x-amz-tagging", "a=b"), ("x-amz-meta-m", "n")], "v").await.expect(200);
    let upload = rig.call("POST", "parts?uploads").await.expect(200).only("UploadId");
    rig.put(&format!("parts?uploadId={upload}&partNumber=1"), "p".repeat(6_000_000)).await.expect(200);
    rig.put(&format!("parts?uploadId={upload}&partNumber=2"), "q").await.expect(200);
    rig
}

/// Everything that a client can see of a store.
async fn seen(rig: &Rig) -> Vec<String> {
    let versions = rig.call("GET", "/bucket?versions").await.expect(200);
    let mut seen = vec![versions.text()];
    for (key, id) in versions.all("Version/Key").iter().zip(versions.all("Version/VersionId")) {
        for target in [format!("{key}?versionId={id}"), format!("{key}?tagging&versionId={id}")] {
            let answer = rig.call("GET", &target).await.expect(200);
            seen.push(format!(
                "{target} {:?} {:?} {}",
                answer.header("etag"),
                answer.header("x-amz-meta-m"),
                answer.text()
            ));
        }
    }
    let uploads = rig.call("GET", "/bucket?uploads").await.expect(200);
    for id in uploads.all("Upload/UploadId") {
        seen.push(rig.call("GET", &format!("parts?uploadId={id}")).await.expect(200).text());
    }
    seen.push(uploads.text());
    seen
}

#[tokio::test]
async fn a_file_holds_everything_and_any_store_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state");
    for from in BOTH {
        let original = filled(from).await;
        original.engine.save(&file).await.unwrap();
        let expected = seen(&original).await;
        assert!(expected.len() > 10, "{}", expected.len());
        for to in BOTH {
            let other = Rig::new(to).await;
            other.put("large", "z".repeat(100_000)).await.expect(200);
            other.put("gone", "z".repeat(100_000)).await.expect(200);
            other.engine.load(&file).await.unwrap();
            assert_eq!(seen(&other).await, expected, "{from:?} to {to:?}");
            // The files of what was there before are gone; those of what came are one for each large body.
            assert_eq!(other.files().len(), if to == On::Disk { 2 } else { 0 }, "{from:?} to {to:?}");
            // The store goes on: the upload is completed, and nothing collides.
            let upload = other.call("GET", "/bucket?uploads").await.only("Upload/UploadId");
            let parts = other.call("GET", &format!("parts?uploadId={upload}")).await.all("Part/ETag");
            let listed: String = (1..)
                .zip(parts)
                .map(|(n, etag)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"))
                .collect();
            let complete = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
            let done = other.send("POST", &format!("parts?uploadId={upload}"), &[], complete).await;
            done.expect(200);
            other.put("new", "z".repeat(100_000)).await.expect(200);
            assert_eq!(other.call("GET", "parts").await.expect(200).body.len(), 6_000_001);
            assert_eq!(other.call("GET", "small").await.text(), "second");
            other.engine.save(directory.path().join("again")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_same_state_is_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (name, on) in [("a", On::Memory), ("b", On::Memory), ("c", On::Disk)] {
        let file = directory.path().join(name);
        filled(on).await.engine.save(&file).await.unwrap();
        files.push(std::fs::read(&file).unwrap());
    }
    assert!(files[0] == files[1], "two servers with one seed, one clock and the same requests");
    assert!(files[0].starts_with(b"assay state, format 1\n"));
    assert_eq!(files[0].len(), files[2].len(), "memory and disk");
}

#[tokio::test]
async fn a_file_that_is_damaged_or_foreign_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let rig = filled(On::Memory).await;
    rig.engine.save(path("good")).await.unwrap();
    let good = std::fs::read(path("good")).unwrap();
    let other = Rig::new(On::Disk).await;
    other.put("kept", "z".repeat(100_000)).await.expect(200);
    let files = other.files();
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("cut before its end".to_owned(), good[..good.len() - 1].to_vec()),
        ("more after its end".to_owned(), [&good[..], b"x"].concat()),
        ("empty".to_owned(), Vec::new()),
        ("foreign".to_owned(), b"PK\x03\x04".to_vec()),
        ("newer".to_owned(), [b"assay state, format 2\n", &good[22..]].concat()),
    ];
    for at in [
        22,
        23,
        31,
        40,
        5000,
        good.len() / 2,
        good.len() - 3000,
        good.len() - 40,
        good.len() - 33,
        good.len() - 1,
    ] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        cases.push((format!("byte {at}"), bad));
        cases.push((format!("cut at {at}"), good[..at].to_vec()));
    }
    for (what, bytes) in cases {
        std::fs::write(path("bad"), bytes).unwrap();
        let error = other.engine.load(path("bad")).await.unwrap_err();
        let is_foreign = ["empty", "foreign", "newer"].contains(&what.as_str());
        match error {
            Error::File(why) => {
                assert!(is_foreign && why.contains("not a file of this server"), "{what}: {why}")
            }
            Error::DamagedFile(why) => assert!(!is_foreign && why.contains("damaged"), "{what}: {why}"),
            other => panic!("{what}: {other}"),
        }
        assert_eq!(other.call("GET", "kept").await.expect(200).body.len(), 100_000, "{what}");
        assert_eq!(other.files(), files, "{what}: nothing is left over");
    }
    let missing = other.engine.load(path("missing")).await.unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
}

/// A directory that holds buckets is not overwritten by a flag that a restart would give again.
fn loaded_onto(data: &Path, file: &Path, running: Process) -> Option<i32> {
    drop(running);
    let mut arguments = load(file).to_vec();
    arguments.extend(["--data".to_owned(), data.to_str().unwrap().to_owned()]);
    let ended = run(command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(ended.stderr.contains("would take their place"), "{ended:?}");
    ended.code
}

fn load(file: &Path) -> [String; 4] {
    ["--listen", "127.0.0.1:0", "--load", file.to_str().unwrap()].map(str::to_owned)
}

#[tokio::test]
async fn a_process_gives_its_state_away_and_another_starts_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = Process::on(&directory.path().join("data"));
    let large = "y".repeat(3_000_000);
    let mut wire = first.connect().await;
    wire.ask("PUT", "/bucket/large", &[], large.as_bytes()).await.expect(200);
    let answer = exchange(first.address, "GET", "/_assay/state", &[("te", "trailers")], "").await;
    assert!(answer.contains("transfer-encoding: chunked") && answer.contains("assay state, format 1"));
    // As curl would take it: chunks put together.
    let saved = Rig::new(On::Memory).await;
    let file = directory.path().join("state");
    saved.put("from-the-rig", large.clone()).await.expect(200);
    saved.engine.save(&file).await.unwrap();

    let bytes = std::fs::read(&file).unwrap();
    json(wire.ask("PUT", "/_assay/state", &[], &bytes).await, 200);
    assert_eq!(keys(first.address).await, ["from-the-rig"]);
    let refused = json(wire.ask("PUT", "/_assay/state", &[], &bytes[..bytes.len() - 9]).await, 400);
    assert!(refused["error"].as_str().unwrap().contains("ends too early"), "{refused}");
    assert_eq!(keys(first.address).await, ["from-the-rig"]);

    let arguments = load(&file);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--bucket", "more"]).collect();
    let second = Process::of(command(&[&arguments[..], &["--auth", "none"]].concat()));
    let body = second.connect().await.ask("GET", "/bucket/from-the-rig", &[], b"").await.expect(200).text();
    assert!(body == large);
    second.connect().await.ask("GET", "/more", &[], b"").await.expect(200);

    let code = loaded_onto(&directory.path().join("data"), &file, first);
    assert_eq!(code, Some(2));

    let mut bad = bytes.clone();
    bad[1_000_000] ^= 1;
    std::fs::write(&file, bad).unwrap();
    for (file, code) in [(file.clone(), 5), (directory.path().join("missing"), 2)] {
        let arguments = load(&file);
        let ended = run(command(&arguments.each_ref().map(String::as_str)));
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}
