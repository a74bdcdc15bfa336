//! The server as a whole: reset, snapshots, two in one process, and answers that are a function of the seed.

use std::time::Duration;

use assay_server::Server;

use crate::client::{Answer, On, Rig};

fn large(byte: u8) -> Vec<u8> {
    vec![byte; 300_000]
}

async fn reset_leaves_the_named_buckets_empty(on: On) {
    let rig = Rig::with(on, |builder| builder.bucket("second")).await;
    rig.call("PUT", "/third").await.expect(200);
    rig.send("PUT", "?versioning", &[], crate::ENABLE).await.expect(200);
    rig.put("k", large(1)).await.expect(200);
    let id = rig.call("POST", "k?uploads").await.expect(200).only("UploadId");
    rig.put(&format!("k?partNumber=1&uploadId={id}"), large(2)).await.expect(200);
    rig.engine.reset().await.unwrap();
    assert_eq!(rig.call("GET", "/").await.all("Buckets/Bucket/Name"), ["bucket", "second"]);
    let versions = rig.call("GET", "?versions").await;
    assert!(versions.all("Version").is_empty());
    assert!(rig.call("GET", "?versioning").await.all("Status").is_empty());
    rig.call("GET", &format!("k?uploadId={id}")).await.expect_code(404, "NoSuchUpload");
    assert!(rig.files().is_empty());
    rig.send("PUT", "k", &[("if-none-match", "*")], "again").await.expect(200);
}

async fn a_snapshot_is_restored_as_often_as_wanted(on: On) {
    let rig = Rig::new(on).await;
    rig.send("PUT", "?versioning", &[], crate::ENABLE).await.expect(200);
    rig.put("large", large(1)).await.expect(200);
    rig.put("small", "one").await.expect(200);
    let id = rig.call("POST", "up?uploads").await.expect(200).only("UploadId");
    let part = rig.put(&format!("up?partNumber=1&uploadId={id}"), large(3)).await.expect(200).etag();
    let snapshot = rig.engine.snapshot().unwrap();
    let versions = rig.call("GET", "?versions").await.all("Version/VersionId");
    for round in 0..3_u8 {
        rig.put("large", large(10 + round)).await.expect(200);
        rig.put("small", "two").await.expect(200);
        rig.put("new", large(round)).await.expect(200);
        for version in rig.call("GET", "?versions&prefix=large").await.all("Version/VersionId") {
            rig.call("DELETE", &format!("large?versionId={version}")).await.expect(204);
        }
        rig.call("DELETE", &format!("up?uploadId={id}")).await.expect(204);
        rig.engine.restore(&snapshot).await.unwrap();
        assert_eq!(rig.call("GET", "?versions").await.all("Version/VersionId"), versions);
        assert!(rig.call("GET", "large").await.expect(200).body == large(1));
        assert_eq!(rig.call("GET", "small").await.text(), "one");
        rig.call("GET", "new").await.expect(404);
        assert_eq!(rig.call("GET", &format!("up?uploadId={id}")).await.only("Part/ETag"), part);
        assert_eq!(rig.files().len(), if on == On::Disk { 2 } else { 0 });
    }
    // Once the snapshot is gone its bodies go with their objects.
    drop(snapshot);
    for version in rig.call("GET", "?versions&prefix=large").await.all("Version/VersionId") {
        rig.call("DELETE", &format!("large?versionId={version}")).await.expect(204);
    }
    rig.call("DELETE", &format!("up?uploadId={id}")).await.expect(204);
    assert!(rig.files().is_empty());
}

async fn a_dropped_snapshot_takes_the_bodies_that_only_it_kept(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", large(1)).await.expect(200);
    let snapshot = rig.engine.snapshot().unwrap();
    rig.call("DELETE", "k").await.expect(204);
    assert_eq!(rig.files().len(), usize::from(on == On::Disk));
    drop(snapshot);
    assert!(rig.files().is_empty());
}

async fn a_snapshot_belongs_to_its_server(on: On) {
    let (one, other) = (Rig::new(on).await, Rig::new(on).await);
    let snapshot = one.engine.snapshot().unwrap();
    let refused = other.engine.restore(&snapshot).await.unwrap_err();
    assert!(refused.to_string().contains("another server"), "{refused}");
}

async fn two_servers_share_nothing(on: On) {
    let (one, other) = (Rig::new(on).await, Rig::with(on, |builder| builder.region("eu-west-1")).await);
    one.put("k", "one").await.expect(200);
    one.call("PUT", "/only-here").await.expect(200);
    other.call("GET", "k").await.expect(404);
    other.call("HEAD", "/only-here").await.expect(404);
    let id = one.call("POST", "k?uploads").await.expect(200).only("UploadId");
    other.put(&format!("k?partNumber=1&uploadId={id}"), "x").await.expect_code(404, "NoSuchUpload");
    other.engine.reset().await.unwrap();
    assert_eq!(one.call("GET", "k").await.text(), "one");
    one.clock.pass_s(1000);
    let times = (one.call("GET", "k").await.header("date"), other.call("GET", "k").await.header("date"));
    assert_ne!(times.0, times.1, "each has its own clock");
}

/// Everything that a client can tell answers apart by.
fn bytes_of(answer: &Answer) -> String {
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v.as_bytes())))
        .collect();
    headers.sort();
    format!("{} {headers:?} {}", answer.status, answer.text())
}

async fn script(on: On, seed: u64) -> Vec<String> {
    let rig = Rig::with(on, |builder| builder.seed(seed)).await;
    let mut answers = Vec::new();
    let mut note = |answer: Answer| {
        answers.push(bytes_of(&answer));
        answer
    };
    note(rig.send("PUT", "?versioning", &[], crate::ENABLE).await);
    note(rig.put("k", "one").await);
    rig.clock.pass_s(1);
    note(rig.put("k", large(1)).await);
    note(rig.call("DELETE", "k").await);
    let id = note(rig.call("POST", "up?uploads").await).only("UploadId");
    let etag = note(rig.put(&format!("up?partNumber=1&uploadId={id}"), "part").await).etag();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    note(rig.send("POST", &format!("up?uploadId={id}"), &[], list).await);
    note(rig.send("PUT", "copy", &[("x-amz-copy-source", "bucket/up")], "").await);
    for target in ["?versions", "?list-type=2", "?uploads", "gone", "copy", "/"] {
        note(rig.call("GET", target).await);
    }
    answers
}

async fn answers_are_a_function_of_seed_clock_and_requests(on: On) {
    let (first, again, other) = (script(on, 1).await, script(on, 1).await, script(on, 2).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    // The store has no part in it.
    assert_eq!(first, script(On::Memory, 1).await);
}

crate::on_both_stores![
    reset_leaves_the_named_buckets_empty,
    a_snapshot_is_restored_as_often_as_wanted,
    a_dropped_snapshot_takes_the_bodies_that_only_it_kept,
    a_snapshot_belongs_to_its_server,
    two_servers_share_nothing,
    answers_are_a_function_of_seed_clock_and_requests,
];

#[test]
fn the_blocking_server_is_used_without_a_runtime() {
    let server = assay_server::blocking::start(Server::builder().bucket("data")).unwrap();
    server.create_bucket("more").unwrap();
    let taken = server.create_bucket("more").unwrap_err();
    assert!(taken.to_string().contains("more"), "{taken}");
    let snapshot = server.snapshot().unwrap();
    server.reset().unwrap();
    server.restore(&snapshot).unwrap();
    let address = server.address();
    drop(server);
    // Its threads end on their own; then nobody listens.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let refused = async {
            while tokio::net::TcpStream::connect(address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), refused).await
    });
    assert!(refused.is_ok(), "{address} still answers");
}
