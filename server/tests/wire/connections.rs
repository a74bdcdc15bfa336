//! Several requests on one connection, whatever the answers are.

use crate::client::wire::{Wire, head, within};
use crate::server;

#[tokio::test]
async fn one_connection_carries_every_kind_of_answer() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    let etag = wire.ask("PUT", "/bucket/k", &[], b"hello").await.expect(200).etag();
    for _ in 0..3 {
        assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.expect(200).text(), "hello");
        let found = wire.ask("HEAD", "/bucket/k", &[], b"").await.expect(200);
        assert_eq!(found.header("content-length").as_deref(), Some("5"));
        for path in ["/bucket/gone", "/no-such-bucket-here/k", "/Bad_Name/k"] {
            let refused = wire.ask("HEAD", path, &[], b"").await;
            assert!(refused.status >= 400, "{path}: {refused:?}");
        }
        wire.ask("HEAD", "/bucket/k", &[("if-match", "\"x\"")], b"").await.expect(412);
        wire.ask("GET", "/bucket/k", &[("if-none-match", &etag)], b"").await.expect(304);
        wire.ask("GET", "/bucket/k", &[("range", "bytes=1-2")], b"").await.expect(206);
        wire.ask("GET", "/bucket/gone", &[], b"").await.expect_code(404, "NoSuchKey");
        wire.ask("PUT", "/bucket/k", &[("if-none-match", "*")], b"other").await.expect(412);
        wire.ask("PUT", "/bucket/k", &[("if-match", "*")], b"other").await.expect(501);
        wire.ask("DELETE", "/bucket/gone", &[], b"").await.expect(204);
        wire.ask("PATCH", "/bucket/k", &[], b"").await.expect(405);
    }
    assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.expect(200).text(), "hello");
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    let mut ahead = Vec::new();
    for n in 0..5 {
        ahead.extend_from_slice(head("PUT", &format!("/bucket/k{n}"), &[], 1).as_bytes());
        ahead.extend_from_slice(n.to_string().as_bytes());
        ahead.extend_from_slice(head("GET", &format!("/bucket/k{n}"), &[], 0).as_bytes());
    }
    wire.send(ahead).await;
    for n in 0..5 {
        wire.answer(false).await.expect(200);
        assert_eq!(wire.answer(false).await.expect(200).text(), n.to_string());
    }
}

#[tokio::test]
async fn a_client_that_waits_is_told_to_go_on() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    let expect = [("expect", "100-continue")];
    for round in 0..2 {
        wire.send(head("PUT", &format!("/bucket/k{round}"), &expect, 5)).await;
        assert_eq!(wire.head().await.status, 100);
        wire.send("hello").await;
        wire.answer(false).await.expect(200);
    }
    // Decided when the body is complete, so the body is asked for and then refused; the connection goes on.
    let create = [("expect", "100-continue"), ("if-none-match", "*")];
    wire.send(head("PUT", "/bucket/k0", &create, 5)).await;
    assert_eq!(wire.head().await.status, 100);
    wire.send("other").await;
    wire.answer(false).await.expect_code(412, "PreconditionFailed");
    assert_eq!(wire.ask("GET", "/bucket/k0", &[], b"").await.text(), "hello");
}

#[tokio::test]
async fn a_client_that_waits_is_refused_before_it_sends() {
    let server = server().await;
    for (path, header, status) in [
        ("/no-such-bucket-here/k", ("x-amz-meta-a", "b"), 404),
        ("/bucket/k", ("if-match", "*"), 501),
        ("/bucket/k", ("content-md5", "MTIz"), 400),
        ("/bucket/k?partNumber=1&uploadId=none", ("x-amz-meta-a", "b"), 404),
    ] {
        let mut wire = Wire::connect(server.address()).await;
        wire.send(head("PUT", path, &[("expect", "100-continue"), header], 5_000_000)).await;
        let refused = wire.answer(false).await;
        assert_eq!(refused.status, status, "{path}: {refused:?}");
        assert!(wire.ends().await, "a body may or may not follow, so the connection ends");
    }
}

#[tokio::test]
async fn heads_have_limits() {
    let server = server().await;
    let long = "v".repeat(9000);
    let mut wire = Wire::connect(server.address()).await;
    let refused = wire.ask("PUT", "/bucket/k", &[("x-amz-meta-long", &long)], b"hello").await;
    refused.expect_code(400, "RequestHeaderSectionTooLarge");
    assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.status, 404);

    let endless = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "v".repeat(200_000));
    for nonsense in [endless.as_str(), "nonsense\r\n\r\n", "GET /k HTTP/9.9\r\n\r\n"] {
        let mut wire = Wire::connect(server.address()).await;
        // The server may answer and close before it has read all of this.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut wire.stream, nonsense.as_bytes()).await;
        let mut said = Vec::new();
        let _ = within(tokio::io::AsyncReadExt::read_to_end(&mut wire.stream, &mut said)).await;
        let said = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    assert_eq!(
        Wire::connect(server.address()).await.ask("GET", "/_assay/health", &[], b"").await.status,
        200
    );
}

#[tokio::test]
async fn control_paths_match_only_where_the_host_names_no_bucket() {
    let server = assay_server::Server::builder()
        .bucket("bucket")
        .auth(assay_server::AuthMode::None)
        .domain("s3.test")
        .start()
        .await
        .unwrap();
    let mut wire = Wire::connect(server.address()).await;
    let health = wire.ask("GET", "/_assay/health", &[], b"").await.expect(200);
    assert!(health.text().contains(r#""status":"ok""#), "{health:?}");
    assert_eq!(health.header("content-type").as_deref(), Some("application/json"));
    wire.ask("HEAD", "/_assay/health", &[], b"").await.expect(200);
    wire.ask("POST", "/_assay/health", &[], b"").await.expect(405);
    wire.ask("GET", "/_assay/nothing", &[], b"").await.expect(404);
    wire.ask("GET", "/_assay/health", &[("host", "s3.test")], b"").await.expect(200);

    let virtual_host = [("host", "bucket.s3.test")];
    wire.ask("GET", "/_assay/health", &virtual_host, b"").await.expect_code(404, "NoSuchKey");
    wire.ask("PUT", "/_assay/health", &virtual_host, b"an object").await.expect(200);
    assert_eq!(wire.ask("GET", "/_assay/health", &virtual_host, b"").await.text(), "an object");
    assert_eq!(wire.ask("GET", "/bucket/_assay/health", &[], b"").await.text(), "an object");
    let health = wire.ask("GET", "/_assay/health", &[], b"").await.text();
    assert!(health.contains(r#""status":"ok""#), "{health}");
}
