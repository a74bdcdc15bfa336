//! Presigned requests: what their signature covers, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use assay_server::{Instant, Server};

use crate::client::sign::Signer;
use crate::client::wire::Wire;
use crate::client::{Answer, START_MS};

struct Rig {
    _server: Server,
    wire: Wire,
    now: Arc<AtomicI64>,
}

impl Rig {
    async fn new() -> Self {
        let now = Arc::new(AtomicI64::new(START_MS));
        let clock = Arc::clone(&now);
        let clock = move || Instant::from_epoch_ms(clock.load(Ordering::Relaxed));
        let server = Server::builder().bucket("bucket").clock(clock).start().await.unwrap();
        let wire = Wire::connect(server.address()).await;
        Self { _server: server, wire, now }
    }

    async fn ask(&mut self, method: &str, query: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.wire.ask(method, &format!("/bucket/k?{query}"), headers, body).await
    }
}

fn signer() -> Signer {
    Signer::new("test", "20261129T120000Z")
}

#[tokio::test]
async fn a_presigned_request_is_good_until_it_expires() {
    let mut rig = Rig::new().await;
    let put = signer().presigned("PUT", "/bucket/k", 60, &[]);
    let get = signer().presigned("GET", "/bucket/k", 60, &[]);
    rig.ask("PUT", &put, &[], b"hello").await.expect(200);
    assert_eq!(rig.ask("GET", &get, &[], b"").await.expect(200).text(), "hello");
    rig.now.fetch_add(60_000, Ordering::Relaxed);
    rig.ask("GET", &get, &[], b"").await.expect(200);
    rig.now.fetch_add(1000, Ordering::Relaxed);
    let expired = rig.ask("GET", &get, &[], b"").await.expect_code(403, "AccessDenied");
    assert_eq!(expired.only("Message"), "Request has expired");
    assert_eq!(expired.only("X-Amz-Expires"), "60");
    assert!(!expired.only("Expires").is_empty() && !expired.only("ServerTime").is_empty());
}

#[tokio::test]
async fn nothing_of_it_can_be_changed() {
    let mut rig = Rig::new().await;
    let put = signer().presigned("PUT", "/bucket/k", 60, &[]);
    rig.ask("GET", &put, &[], b"").await.expect_code(403, "SignatureDoesNotMatch");
    let longer = put.replace("X-Amz-Expires=60", "X-Amz-Expires=6000");
    rig.ask("PUT", &longer, &[], b"x").await.expect_code(403, "SignatureDoesNotMatch");
    let other = format!("{put}&versionId=null");
    rig.ask("PUT", &other, &[], b"x").await.expect_code(403, "SignatureDoesNotMatch");
    let without = put.replace("X-Amz-Expires=60&", "");
    rig.ask("PUT", &without, &[], b"x").await.expect_code(400, "AuthorizationQueryParametersError");
    let wrong = Signer::new("wrong", "20261129T120000Z").presigned("PUT", "/bucket/k", 60, &[]);
    rig.ask("PUT", &wrong, &[], b"x").await.expect_code(403, "SignatureDoesNotMatch");
    let week = signer().presigned("PUT", "/bucket/k", 604_801, &[]);
    rig.ask("PUT", &week, &[], b"x").await.expect_code(400, "AuthorizationQueryParametersError");
    let get = signer().presigned("GET", "/bucket/k", 60, &[]);
    rig.ask("GET", &get, &[], b"").await.expect_code(404, "NoSuchKey");
}

/// Recorded: of headers that are sent and not signed only `x-amz-*` are refused. So whoever gives out an upload that
/// must create has to sign the condition.
#[tokio::test]
async fn headers_beside_the_signature() {
    let mut rig = Rig::new().await;
    let put = signer().presigned("PUT", "/bucket/k", 60, &[]);
    let refused = rig.ask("PUT", &put, &[("x-amz-meta-a", "b")], b"x").await;
    assert_eq!(refused.expect_code(403, "AccessDenied").only("HeadersNotSigned"), "x-amz-meta-a");
    rig.ask("PUT", &put, &[("content-type", "text/plain"), ("if-none-match", "*")], b"one").await.expect(200);
    rig.ask("PUT", &put, &[("if-none-match", "*")], b"two").await.expect_code(412, "PreconditionFailed");
    rig.ask("PUT", &put, &[], b"three").await.expect(200);

    let create = signer().presigned("PUT", "/bucket/k", 60, &[("if-none-match", "*")]);
    rig.ask("PUT", &create, &[], b"four").await.expect_code(403, "SignatureDoesNotMatch");
    rig.ask("PUT", &create, &[("if-none-match", "*")], b"four").await.expect_code(412, "PreconditionFailed");
    let get = signer().presigned("GET", "/bucket/k", 60, &[]);
    assert_eq!(rig.ask("GET", &get, &[], b"").await.text(), "three");
}
