//! The journal over HTTP: filtered, waited for, followed.

use std::net::SocketAddr;

use assay_server::{AuthMode, Server};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::client::wire::{Wire, within};
use crate::client::{On, Rig};
use crate::process::Process;
use crate::{control, exchange, json};

async fn server() -> Server {
    Server::builder().bucket("bucket").auth(AuthMode::None).start().await.unwrap()
}

async fn requests(address: SocketAddr, filter: &str) -> Vec<Value> {
    let told = json(control(address, "GET", &format!("requests?{filter}"), "").await, 200);
    told["requests"].as_array().unwrap().clone()
}

#[tokio::test]
async fn requests_are_filtered_and_forgotten() {
    let server = server().await;
    let address = server.address();
    let _lost = server.fault("name=lost key=locks/b effect=lose-answer".parse().unwrap()).unwrap();
    for key in ["locks/a", "locks/b", "data"] {
        exchange(address, "PUT", &format!("/bucket/{key}"), &[("if-none-match", "*")], "body").await;
    }
    exchange(address, "GET", "/bucket/nothing", &[], "").await;
    for (filter, keys) in [
        ("", &["locks/a", "locks/b", "data", "nothing"][..]),
        ("operation=PutObject", &["locks/a", "locks/b", "data"]),
        ("operation=Put*&key=locks/*", &["locks/a", "locks/b"]),
        ("key=locks%2Fa", &["locks/a"]),
        ("bucket=other", &[]),
        ("status=404", &["nothing"]),
        ("status=none", &["locks/b"]),
        ("rule=lost", &["locks/b"]),
        ("after=1&limit=2", &["locks/b", "data"]),
        ("access-key=nobody", &[]),
    ] {
        let found = requests(address, filter).await;
        let found: Vec<&str> = found.iter().map(|record| record["key"].as_str().unwrap()).collect();
        assert_eq!(found, keys, "{filter}");
    }
    let record = &requests(address, "rule=lost").await[0];
    assert_eq!(record["conditions"], serde_json::json!([["if-none-match", "*"]]));
    assert_eq!((&record["number"], &record["body_size"]), (&2.into(), &4.into()));
    assert_eq!(json(control(address, "DELETE", "requests", "").await, 200)["last"], 4);
    assert!(requests(address, "").await.is_empty());
}

#[tokio::test]
async fn a_request_is_waited_for() {
    let server = server().await;
    let address = server.address();
    let missed = json(control(address, "GET", "requests/wait?key=k&within-ms=10", "").await, 404);
    assert!(missed["error"].as_str().unwrap().contains("within 10 ms"), "{missed}");
    let mut wire = Wire::connect(address).await;
    wire.request("GET", "/_assay/requests/wait?key=k&operation=PutObject&within-ms=20000", &[], b"").await;
    exchange(address, "PUT", "/bucket/other", &[], "v").await;
    exchange(address, "PUT", "/bucket/k", &[], "v").await;
    let found = json(wire.answer(false).await, 200);
    assert_eq!((&found["key"], &found["number"], &found["status"]), (&"k".into(), &2.into(), &200.into()));
    // What came already fits too, unless it is left behind.
    json(control(address, "GET", "requests/wait?key=k&within-ms=0", "").await, 200);
    json(control(address, "GET", "requests/wait?key=k&after=2&within-ms=0", "").await, 404);
}

/// A client that follows: lines as they come.
struct Follower {
    wire: Wire,
    text: String,
}

impl Follower {
    async fn new(address: SocketAddr, filter: &str) -> Self {
        let mut wire = Wire::connect(address).await;
        wire.request("GET", &format!("/_assay/requests/stream?{filter}"), &[], b"").await;
        let head = wire.head().await;
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-type"], "application/x-ndjson");
        assert_eq!(head.headers["transfer-encoding"], "chunked");
        Self { wire, text: String::new() }
    }

    /// The next line; chunks are taken apart by hand, one line each.
    async fn line(&mut self) -> Value {
        while !self.text.contains("}\n\r\n") {
            self.text += std::str::from_utf8(&self.wire.take(1).await).unwrap();
        }
        let (chunk, rest) = self.text.split_once("\n\r\n").unwrap();
        let line = serde_json::from_str(chunk.split_once("\r\n").unwrap().1).unwrap();
        self.text = rest.to_owned();
        line
    }
}

#[tokio::test]
async fn requests_are_followed_and_a_client_that_goes_leaves_nothing() {
    let server = server().await;
    let address = server.address();
    exchange(address, "PUT", "/bucket/before", &[], "v").await;
    let mut all = Follower::new(address, "after=0").await;
    let mut new = Follower::new(address, "key=k*").await;
    assert_eq!(all.line().await["key"], "before");
    for key in ["other", "k1", "k2"] {
        exchange(address, "PUT", &format!("/bucket/{key}"), &[], "v").await;
        assert_eq!(all.line().await["key"], key);
    }
    assert_eq!((&new.line().await["key"], &new.line().await["key"]), (&"k1".into(), &"k2".into()));
    // What was forgotten before it was followed is told as missed.
    server.journal().clear();
    exchange(address, "PUT", "/bucket/after", &[], "v").await;
    let mut late = Follower::new(address, "after=1").await;
    assert_eq!(late.line().await, serde_json::json!({ "missed": 3 }));
    assert_eq!(late.line().await["key"], "after");
    drop((all, new, late));
    // A stop does not wait for those who follow.
    let mut last = Follower::new(address, "").await;
    within(server.stop()).await;
    assert_eq!(last.wire.take(5).await, "0\r\n\r\n");
}

#[tokio::test]
async fn a_follower_that_is_too_slow_holds_little_and_is_told_what_it_missed() {
    const ASKED: u64 = 5_000;
    const KEY_BYTES: usize = 512;
    const JOURNAL_BYTES: usize = 768 * 1024;
    let rig = Rig::new(On::Memory).await;
    let empty = || Full::new(bytes::Bytes::new());
    let request = http::Request::get("/_assay/requests/stream").header("host", "localhost");
    let mut lines = rig.engine.call(request.body(empty()).unwrap()).await.into_body();
    let path = format!("/bucket/{}", "k".repeat(KEY_BYTES));
    for _ in 0..ASKED {
        rig.call("HEAD", &path).await;
    }
    let (mut told, mut missed, mut last) = (0, 0, 0);
    while last < ASKED {
        let line = within(lines.frame()).await.unwrap().unwrap().into_data().unwrap();
        let line: Value = serde_json::from_slice(&line).unwrap();
        match line["missed"].as_u64() {
            Some(count) => missed += count,
            None => {
                told += 1;
                last = line["number"].as_u64().unwrap();
            }
        }
    }
    assert_eq!(told + missed, ASKED, "{told} told");
    let room = (JOURNAL_BYTES / KEY_BYTES) as u64;
    assert!(missed >= ASKED - room - 200, "{missed} missed: more was kept than the journal has room for");
}

#[tokio::test]
async fn nothing_secret_is_recorded() {
    const SECRETS: [&str; 4] =
        ["signature-of-the-test", "name-of-the-header", "private body", "cookie-of-the-test"];
    let process = Process::start(&["--bucket", "bucket", "--log", "trace"]);
    let headers = [
        ("x-assay-fault", "name=x header=name-of-the-header effect=drop"),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=signature-of-the-test",
        ),
        ("cookie", "cookie-of-the-test"),
    ];
    exchange(process.address, "PUT", "/bucket/k", &headers, "private body").await;
    let presigned = "/bucket/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=signature-of-the-test";
    exchange(process.address, "GET", presigned, &[], "").await;
    let told = json(control(process.address, "GET", "requests", "").await, 200).to_string();
    assert!(told.contains("PutObject") && told.contains("GetObject"), "{told}");
    process.signal("-TERM");
    let ended = process.ended();
    for secret in SECRETS {
        assert!(!told.contains(secret), "{secret}: {told}");
        assert!(!ended.stderr.contains(secret), "{secret}: {}", ended.stderr);
    }
}
