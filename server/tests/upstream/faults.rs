//! Faults in front of a provider: before it is asked, after it has committed, and on its answers.

use std::time::Duration;

use assay_server::FaultGuard;

use crate::Pair;
use crate::client::Answer;
use crate::client::wire::{Wire, within};

const CREATE: &[(&str, &str)] = &[("if-none-match", "*")];

fn fault(pair: &Pair, rule: &str) -> FaultGuard {
    pair.proxy.fault(rule.parse().unwrap()).unwrap()
}

/// Returns once the fault has hit a request.
async fn hit(fault: &FaultGuard) {
    within(async {
        while fault.status().is_some_and(|fault| fault.fired == 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Asks on a connection of its own; nothing where the connection ends without an answer.
async fn ask(pair: &Pair, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
    let mut wire = Wire::connect(pair.proxy.address()).await;
    wire.request(method, path, headers, body).await;
    if wire.says().await { Some(wire.answer(method == "HEAD").await) } else { None }
}

#[tokio::test]
async fn an_answer_is_lost_after_the_upstream_has_committed() {
    let pair = Pair::open().await;
    let lost = fault(&pair, "operation=PutObject condition=If-None-Match nth=1 effect=lose-answer");
    assert!(ask(&pair, "PUT", "/bucket/lock", CREATE, b"mine").await.is_none());
    assert_eq!(pair.stored("/bucket/lock").await.expect(200).text(), "mine");
    // The client's own write is what its retry meets.
    let retry = ask(&pair, "PUT", "/bucket/lock", CREATE, b"mine").await.unwrap();
    retry.expect_code(412, "PreconditionFailed");
    assert_eq!(lost.status().unwrap().fired, 1);
    let records = pair.proxy.journal().filter(|record| record.key.as_deref() == Some("lock"));
    let seen: Vec<_> = records.iter().map(|record| (record.status, record.faults.len())).collect();
    assert_eq!(seen, [(None, 1), (Some(412), 0)]);
    assert_eq!(pair.provider_saw("lock"), [Some(200), Some(412)]);
}

#[tokio::test]
async fn before_the_upstream_is_asked() {
    let pair = Pair::open().await;
    let seen = |key: &str| pair.provider_saw(key).len();
    {
        let _drop = fault(&pair, "effect=drop");
        assert!(ask(&pair, "PUT", "/bucket/dropped", &[], b"v").await.is_none());
    }
    {
        let _slow = fault(&pair, "effect=refuse code=SlowDown retry-after=2");
        let refused = ask(&pair, "PUT", "/bucket/refused", &[], b"v").await.unwrap();
        assert_eq!(refused.header("retry-after").as_deref(), Some("2"));
        refused.expect_code(503, "SlowDown");
    }
    {
        let _stop = fault(&pair, "effect=stop-reading at=3");
        let mut wire = Wire::connect(pair.proxy.address()).await;
        wire.request("PUT", "/bucket/stopped", &[], b"hello").await;
        let silence = tokio::time::timeout(Duration::from_millis(100), wire.head()).await;
        assert!(silence.is_err(), "{silence:?}");
    }
    assert_eq!((seen("dropped"), seen("refused"), seen("stopped")), (0, 0, 0));
    pair.stored("/bucket/stopped").await.expect(404);
    let _slow = fault(&pair, "effect=slow-body bytes-per-s=1000");
    assert_eq!(ask(&pair, "PUT", "/bucket/slow", &[], &[b'x'; 100]).await.unwrap().status, 200);
    assert_eq!(pair.stored("/bucket/slow").await.body.len(), 100);
}

#[tokio::test]
async fn after_the_upstream_has_committed() {
    let pair = Pair::open().await;
    {
        let _fail = fault(&pair, "method=PUT effect=fail-after code=InternalError");
        let failed = ask(&pair, "PUT", "/bucket/failed", &[], b"v").await.unwrap();
        failed.expect_code(500, "InternalError");
        assert_eq!(pair.stored("/bucket/failed").await.text(), "v");
        // What the upstream refused was not done, so there is nothing to hide.
        ask(&pair, "PUT", "/bucket/failed", CREATE, b"v").await.unwrap().expect(412);
    }
    let copy = [
        ("x-amz-copy-source", "bucket/failed"),
        ("x-assay-fault", "effect=error-document code=InternalError"),
    ];
    let document = ask(&pair, "PUT", "/bucket/copy", &copy, b"").await.unwrap().expect(200);
    assert_eq!(document.code(), "InternalError");
    assert_eq!(document.header("content-length").unwrap(), document.body.len().to_string());
    assert_eq!(pair.stored("/bucket/copy").await.text(), "v");
    let lied =
        ask(&pair, "PUT", "/bucket/copy", &[copy[0], ("x-assay-fault", "effect=wrong-etag")], b"").await;
    let (told, real) = (lied.unwrap().only("ETag"), pair.stored("/bucket/copy").await.etag());
    assert!(told != real && told[2..] == real[2..], "{told} {real}");
    let enable = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    ask(&pair, "PUT", "/bucket?versioning", &[], enable).await.unwrap().expect(200);
    ask(&pair, "PUT", "/bucket/twice", &[("x-assay-fault", "effect=twice")], b"v").await.unwrap().expect(200);
    assert_eq!(pair.provider_saw("twice"), [Some(200), Some(200)]);
}

#[tokio::test]
async fn a_request_is_held_before_the_upstream_is_asked() {
    let pair = Pair::open().await;
    let held = fault(&pair, "method=PUT nth=1 effect=delay until=lifted");
    let mut wire = Wire::connect(pair.proxy.address()).await;
    wire.request("PUT", "/bucket/lock", CREATE, b"held").await;
    hit(&held).await;
    ask(&pair, "PUT", "/bucket/lock", CREATE, b"between").await.unwrap().expect(200);
    drop(held);
    wire.answer(false).await.expect_code(412, "PreconditionFailed");
    assert_eq!(pair.provider_saw("lock"), [Some(200), Some(412)]);
    // Nobody could take it back: the request is refused, with the way out.
    let brought = [("x-assay-fault", "effect=late until=lifted")];
    let refused = ask(&pair, "PUT", "/bucket/lock", &brought, b"v").await.unwrap();
    assert!(refused.text().contains("set it beforehand"), "{}", refused.text());
    refused.expect_code(400, "InvalidArgument");
}

#[tokio::test]
async fn late_is_after_the_client_has_gone() {
    let pair = Pair::open().await;
    for (key, body) in [("late", &b"body"[..]), ("empty", b"")] {
        let late = fault(&pair, "effect=late until=lifted");
        let path = format!("/bucket/{key}");
        let mut wire = Wire::connect(pair.proxy.address()).await;
        let after = pair.provider.journal().last();
        wire.request("PUT", &path, &[], body).await;
        hit(&late).await;
        let gave_up = tokio::time::timeout(Duration::from_millis(100), wire.head()).await;
        assert!(gave_up.is_err());
        drop(wire);
        pair.stored(&path).await.expect_code(404, "NoSuchKey");
        drop(late);
        let limit = Duration::from_secs(20);
        let put = |record: &assay_server::Record| record.operation == Some("PutObject");
        pair.provider.journal().wait_for(after, limit, put).await.unwrap();
        assert_eq!(pair.stored(&path).await.expect(200).body, body, "{key}");
    }
}

#[tokio::test]
async fn what_is_read_of_the_upstream() {
    let pair = Pair::open().await;
    for key in ["a", "b", "c"] {
        ask(&pair, "PUT", &format!("/bucket/{key}"), &[], b"hello world").await.unwrap().expect(200);
    }
    let read = async |effect: &str| ask(&pair, "GET", "/bucket/a", &[("x-assay-fault", effect)], b"").await;
    assert_eq!(read("effect=corrupt").await.unwrap().text(), "Hello world");
    assert_eq!(read("effect=first-byte ms=20").await.unwrap().text(), "hello world");
    assert_eq!(read("effect=bandwidth bytes-per-s=1000").await.unwrap().text(), "hello world");
    let real = read("effect=delay ms=1").await.unwrap().etag();
    assert_ne!(read("effect=wrong-etag").await.unwrap().etag(), real);
    let mut wire = Wire::connect(pair.proxy.address()).await;
    wire.request("GET", "/bucket/a", &[("x-assay-fault", "effect=cut at=5")], b"").await;
    assert_eq!(wire.head().await.headers["content-length"], "11");
    assert_eq!(wire.take(5).await, "hello");
    assert!(wire.ends().await);
    let keys = async |effect: &str| {
        let list = ask(&pair, "GET", "/bucket?list-type=2", &[("x-assay-fault", effect)], b"").await.unwrap();
        assert_eq!(list.header("content-length").unwrap(), list.body.len().to_string(), "{effect}");
        (list.all("Contents/Key").concat(), list.only("IsTruncated"))
    };
    assert_eq!(keys("effect=omit-newest").await.0.len(), 2);
    assert_eq!(keys("effect=repeat-key").await.0, "abcc");
    assert_eq!(keys("effect=truncate").await, ("a".to_owned(), "true".to_owned()));
    let refused = ask(&pair, "GET", "/bucket/a", &[("x-assay-fault", "effect=forget")], b"").await.unwrap();
    assert!(refused.text().contains("in front of an upstream"), "{}", refused.text());
    refused.expect_code(400, "InvalidArgument");
}

#[tokio::test]
async fn an_outage_is_the_proxy_s_own() {
    let pair = Pair::open().await;
    let outage = pair.proxy.outage(assay_server::Outage::Unavailable);
    ask(&pair, "GET", "/bucket/a", &[], b"").await.unwrap().expect(503);
    drop(outage);
    ask(&pair, "GET", "/bucket/a", &[], b"").await.unwrap().expect(404);
    assert_eq!(pair.provider.journal().last(), 1);
    let mut wire = Wire::connect(pair.proxy.address()).await;
    let forget = wire.ask("POST", "/_assay/faults", &[], b"effect=forget").await;
    assert_eq!(forget.status, 400, "{}", forget.text());
    assert!(forget.text().contains("\"field\":\"effect\""), "{}", forget.text());
    assert_eq!(within(wire.ask("POST", "/_assay/snapshots", &[], b"")).await.status, 409);
    assert_eq!(wire.ask("POST", "/_assay/reset", &[], b"").await.status, 200);
}
