//! An upstream that is not there, breaks off, or does not know our keys: told once, and nothing is sent twice.

use assay_server::{AuthMode, Error, Server, Upstream};

use crate::client::wire::Wire;
use crate::peer::Peer;
use crate::{Pair, provider, proxy_to, standing, upstream};

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named() {
    let port = {
        let peer = Peer::new().await;
        peer.address().port()
    };
    let endpoint = format!("http://127.0.0.1:{port}");
    let proxy = proxy_to(&endpoint).await;
    let mut wire = Wire::connect(proxy.address()).await;
    let answer = wire.ask("PUT", "/bucket/k", &[], b"hello").await.expect_code(502, "BadGateway");
    assert_eq!(answer.only("Upstream"), endpoint);
    let message = answer.only("Message");
    assert!(
        message.contains("cannot be reached") && message.contains("nothing was asked of it"),
        "{message}"
    );
    assert!(!answer.text().contains("secret"), "{}", answer.text());
    let record = proxy.journal().filter(|_| true).remove(0);
    assert_eq!(
        (record.status, record.operation, record.key.as_deref()),
        (Some(502), Some("PutObject"), Some("k"))
    );
    assert_eq!(answer.header("x-amz-request-id").as_deref(), Some(record.id.as_str()));
    assert_eq!(wire.ask("HEAD", "/bucket/k", &[], b"").await.status, 502);
}

#[tokio::test]
async fn an_upstream_that_breaks_off_is_not_asked_again() {
    let peer = Peer::new().await;
    let proxy = proxy_to(&peer.endpoint()).await;
    let mut wire = Wire::connect(proxy.address()).await;
    wire.request("PUT", "/bucket/k", &[("if-none-match", "*")], b"hello").await;
    let mut line = peer.accept().await;
    line.head().await;
    assert_eq!(line.body(5).await, b"hello");
    drop(line);
    let answer = wire.answer(false).await.expect_code(502, "BadGateway");
    let message = answer.only("Message");
    assert!(message.contains("whether it did what was asked is not known"), "{message}");
    // The next thing that the peer hears is the next request.
    wire.request("GET", "/bucket/other", &[], b"").await;
    let mut line = peer.accept().await;
    assert!(line.head().await.starts_with("GET /bucket/other "));
    // Within a body it can only break off too.
    line.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
    let head = wire.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(&wire.take(5).await[..], b"hello");
    drop(line);
    assert!(wire.ends().await);
}

#[tokio::test]
async fn a_client_that_goes_away_within_a_body_leaves_nothing() {
    let pair = Pair::open().await;
    let mut wire = Wire::connect(pair.proxy.address()).await;
    wire.send(crate::client::wire::head("PUT", "/bucket/k", &[], 100)).await;
    wire.send("half").await;
    drop(wire);
    let within = std::time::Duration::from_secs(20);
    let ended = pair.proxy.journal().wait_for(0, within, |record| record.key.as_deref() == Some("k")).await;
    assert_eq!(ended.unwrap().status, Some(400));
    pair.stored("/bucket/k").await.expect_code(404, "NoSuchKey");
}

#[tokio::test]
async fn keys_that_the_upstream_does_not_know() {
    let provider = provider().start().await.unwrap();
    for (upstream, code) in [
        (Upstream::new(provider.endpoint(), "real", "wrong").region("eu-west-1"), "SignatureDoesNotMatch"),
        (Upstream::new(provider.endpoint(), "nobody", "secret").region("eu-west-1"), "InvalidAccessKeyId"),
        (Upstream::new(provider.endpoint(), "real", "secret"), "AuthorizationHeaderMalformed"),
    ] {
        let proxy =
            standing(Server::builder()).auth(AuthMode::None).upstream(upstream).start().await.unwrap();
        let mut wire = Wire::connect(proxy.address()).await;
        let answer = wire.ask("GET", "/bucket/k", &[], b"").await;
        assert_eq!(answer.code(), code);
        assert!(answer.header("x-amz-request-id").is_some());
    }
    assert_eq!(provider.journal().last(), 3);
}

#[tokio::test]
async fn settings_that_don_t_go_with_an_upstream() {
    let up = || upstream("http://127.0.0.1:1");
    let about = async |builder: assay_server::Builder| match builder.build().await {
        Err(Error::Setting(message)) => message,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was built"),
    };
    let both = about(Server::builder().bucket("data").upstream(up())).await;
    assert!(both.contains("nothing is stored here"), "{both}");
    let bad = about(Server::builder().upstream(Upstream::new("gopher://x", "a", "b"))).await;
    assert!(bad.contains("gopher") && bad.contains("http://HOST"), "{bad}");
    let engine = Server::builder().upstream(up()).build().await.unwrap();
    for refused in [
        engine.snapshot().err(),
        engine.create_bucket("data").await.err(),
        engine.save("nowhere").await.err(),
        engine.fault("effect=forget".parse().unwrap()).err(),
        engine.fault("effect=stale".parse().unwrap()).err(),
    ] {
        assert!(
            matches!(&refused, Some(Error::Setting(message)) if message.contains("upstream")),
            "{refused:?}"
        );
    }
    engine.reset().await.unwrap();
}
