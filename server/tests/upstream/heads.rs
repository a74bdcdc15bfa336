//! Heads as they are on the wire, both ways; and who waits for whom before a body is sent.

use crate::client::wire::{Wire, head};
use crate::peer::Peer;
use assay_server::{AuthMode, Record, Server};

use crate::{Pair, provider, proxy_to, standing, upstream};

/// The lines of a head, sorted, without those that are made anew.
fn lines(head: &str) -> Vec<&str> {
    const NEW: [&str; 5] = ["host", "authorization", "x-amz-date", "x-amz-content-sha256", "content-length"];
    let lines = head.lines().skip(1).filter(|line| !line.is_empty());
    let mut lines: Vec<&str> = lines.filter(|line| !NEW.contains(&line.split(':').next().unwrap())).collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn headers_pass_both_ways() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    let kept = [
        ("accept-encoding", "identity"),
        ("cache-control", "no-cache"),
        ("content-type", "text/x-own; charset=\"ü\""),
        ("date", "Sun, 29 Nov 2026 12:00:00 GMT"),
        ("if-match", "\"e\""),
        ("origin", "https://example.com"),
        ("user-agent", "aws-sdk-rust/1"),
        ("x-amz-meta-a", "one"),
        ("x-amz-meta-a", "two  three"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-unknown", "kept"),
    ];
    let dropped = [
        ("connection", "keep-alive, x-hop"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("x-amz-security-token", "theirs"),
        ("x-assay-fault", "key=other effect=drop"),
        ("x-assay-note", "1"),
        ("x-hop", "1"),
    ];
    wire.request("PUT", "/bucket/a%2Fb?x-id=PutObject&+=", &[&kept[..], &dropped].concat(), b"hello").await;
    let mut line = peer.accept().await;
    let sent = line.head().await;
    assert!(sent.starts_with("PUT /bucket/a%2Fb?x-id=PutObject&+= HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("\r\nhost: {}\r\n", peer.address())), "{sent}");
    assert!(sent.contains("\r\ncontent-length: 5\r\n"), "{sent}");
    assert!(
        sent.contains("\r\nauthorization: AWS4-HMAC-SHA256 Credential=real/20261129/eu-west-1/s3/"),
        "{sent}"
    );
    let mut expected: Vec<String> = kept.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    expected.sort();
    assert_eq!(lines(&sent), expected);
    assert_eq!(line.body(5).await, b"hello");

    let answer = "HTTP/1.1 418 I'm a teapot\r\ncontent-length: 3\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
                  etag: \"x\"\r\nserver: Peer/1\r\nx-amz-id-2: two\r\nx-amz-request-id: THEIRS\r\n\
                  x-double: 1\r\nx-double: 2\r\nconnection: x-own-hop\r\nx-own-hop: 1\r\nkeep-alive: timeout=5\r\n\r\nabc";
    line.say(answer).await;
    let got = wire.answer(false).await;
    assert_eq!((got.status, got.text().as_str()), (418, "abc"));
    let mut got: Vec<String> =
        got.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    got.sort();
    let mut expected: Vec<&str> = answer.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    expected
        .retain(|line| !["connection", "x-own-hop", "keep-alive"].contains(&line.split(':').next().unwrap()));
    expected.sort_unstable();
    assert_eq!(got, expected);
    let record = proxy.journal().filter(|_| true).remove(0);
    assert_eq!((record.id.as_str(), record.status, record.body_size), ("THEIRS", Some(418), 5));
}

#[tokio::test]
async fn connections_to_the_upstream_are_used_again() {
    const REQUESTS: usize = 50;
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.request("GET", "/bucket/k", &[], b"").await;
    let mut line = peer.accept().await;
    let mut connections = 1;
    for number in 0..REQUESTS {
        let head = line.head().await;
        assert!(head.starts_with("GET /bucket/k "), "{head}");
        // The transfer's chunks are not the object's.
        line.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
        let head = wire.head().await;
        assert_eq!((head.status, head.headers.get("content-length")), (200, None));
        assert_eq!(&wire.take(13).await[..], b"3\r\nabc\r\n0\r\n\r\n");
        if number + 1 == REQUESTS {
            break;
        }
        wire.request("GET", "/bucket/k", &[], b"").await;
        tokio::select! {
            biased;
            true = line.hears() => {}
            // A request that comes before the connection is free again gets another one.
            other = peer.accept() => {
                connections += 1;
                line = other;
            }
        }
    }
    assert!(connections < REQUESTS / 2, "{connections} connections for {REQUESTS} requests");
}

/// The head of a PUT that waits for `100 Continue`.
fn waiting(length: u64) -> String {
    head("PUT", "/bucket/k", &[("expect", "100-continue")], length)
}

#[tokio::test]
async fn who_waits_to_be_told_to_continue_is_told_by_the_upstream() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(waiting(5)).await;
    let mut line = peer.accept().await;
    assert!(line.head().await.contains("\r\nexpect: 100-continue\r\n"));
    line.say("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(wire.head().await.status, 100);
    wire.send("hello").await;
    assert_eq!(line.body(5).await, b"hello");
    line.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(wire.answer(false).await.status, 200);
}

#[tokio::test]
async fn an_upstream_that_refuses_at_once_spares_the_client_the_body() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(waiting(5)).await;
    let mut line = peer.accept().await;
    line.head().await;
    line.say("HTTP/1.1 412 Precondition Failed\r\ncontent-length: 2\r\n\r\nno").await;
    let refused = wire.answer(false).await;
    assert_eq!((refused.status, refused.text().as_str()), (412, "no"));
    assert_eq!(refused.header("connection").as_deref(), Some("close"));
    assert!(wire.ends().await);
    assert_eq!(line.rest().await, b"", "no body, and not the end of one");
}

#[tokio::test]
async fn an_upstream_that_never_says_continue_gets_the_body_after_a_second() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(waiting(5)).await;
    let mut line = peer.accept().await;
    line.head().await;
    assert_eq!(wire.head().await.status, 100);
    wire.send("hello").await;
    assert_eq!(line.body(5).await, b"hello");
    line.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(wire.answer(false).await.status, 200);
}

#[tokio::test]
async fn an_early_refusal_arrives_though_the_body_is_not_read() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(head("PUT", "/bucket/k", &[], 1_000_000)).await;
    wire.send("x".repeat(100_000)).await;
    let mut line = peer.accept().await;
    line.head().await;
    line.say("HTTP/1.1 503 Slow Down\r\ncontent-length: 4\r\n\r\nslow").await;
    let refused = wire.answer(false).await;
    assert_eq!((refused.status, refused.text().as_str()), (503, "slow"));
    // The rest of the body is read and goes nowhere, so that the connection can be used again.
    wire.send("x".repeat(900_000)).await;
    wire.request("GET", "/bucket/k", &[], b"").await;
    let mut line = peer.accept().await;
    assert!(line.head().await.starts_with("GET "));
    line.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(wire.answer(false).await.status, 200);
}

#[tokio::test]
async fn real_servers_say_continue_through_it() {
    let mut pair = Pair::open().await;
    pair.wire.send(waiting(5)).await;
    assert_eq!(pair.wire.head().await.status, 100);
    pair.wire.send("hello").await;
    assert_eq!(pair.wire.answer(false).await.status, 200);
    assert_eq!(pair.stored("/bucket/k").await.text(), "hello");
}

#[tokio::test]
async fn deviations_that_a_head_tells_are_shown_in_front_of_a_provider() {
    let provider = provider().start().await.unwrap();
    let limited = |text: &str| {
        let proxy = standing(Server::builder()).auth(AuthMode::None).upstream(upstream(provider.endpoint()));
        proxy.deviation(text.parse().unwrap())
    };
    let proxy = limited("ignore-if-none-match-put")
        .deviation("segment-limit=9:InvalidArgument".parse().unwrap())
        .deviation("drop-metadata".parse().unwrap())
        .start()
        .await
        .unwrap();
    let mut pair = Pair::of(provider, proxy).await;
    let create = [("if-none-match", "*"), ("x-amz-meta-a", "1")];
    pair.ask("PUT", "/bucket/k", &create, b"one").await.expect(200);
    pair.ask("PUT", "/bucket/k", &create, b"two").await.expect(200);
    let stored = pair.stored("/bucket/k").await.expect(200);
    assert_eq!((stored.text().as_str(), stored.header("x-amz-meta-a")), ("two", None));
    let refused = pair.ask("PUT", "/bucket/0123456789/k", &[], b"").await.expect(400);
    assert_eq!(refused.code(), "InvalidArgument");
    pair.stored("/bucket/0123456789/k").await.expect(404);
    let named = |record: &Record| record.deviations.clone();
    let acted: Vec<_> = pair.proxy.journal().filter(|_| true).iter().map(named).collect();
    let both = vec!["ignore-if-none-match-put", "drop-metadata"];
    assert_eq!(acted, [both.clone(), both, vec!["segment-limit"]]);

    let why = standing(Server::builder())
        .upstream(upstream(pair.provider.endpoint()))
        .deviation("race-conditions".parse().unwrap())
        .start()
        .await
        .err()
        .map(|error| error.to_string());
    assert!(why.as_deref().is_some_and(|why| why.contains("so race-create-put=20:head does not")), "{why:?}");
}

#[tokio::test]
async fn deviations_of_answers_are_shown_and_the_provider_s_object_is_as_it_was() {
    let provider = provider().start().await.unwrap();
    let proxy = standing(Server::builder()).auth(AuthMode::None).upstream(upstream(provider.endpoint()));
    let proxy = proxy.deviation("weak-etags".parse().unwrap()).deviation("omit-checksums".parse().unwrap());
    let mut pair = Pair::of(provider, proxy.start().await.unwrap()).await;
    let put = pair.ask("PUT", "/bucket/k", &[], b"one").await.expect(200);
    let stored = pair.stored("/bucket/k").await.expect(200);
    assert_eq!(put.etag(), format!("W/{}", stored.etag()));
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), None);
    let list = pair.ask("GET", "/bucket?list-type=2", &[], b"").await.expect(200);
    assert_eq!(list.only("Contents/ETag"), put.etag());
    assert_eq!(list.header("content-length").unwrap(), list.body.len().to_string());
    let read = pair.ask("GET", "/bucket/k", &[], b"").await.expect(200);
    assert_eq!((read.text().as_str(), read.etag()), ("one", put.etag()));
}
