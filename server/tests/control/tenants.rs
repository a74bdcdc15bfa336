//! One store for each access key.

use std::net::SocketAddr;

use assay_server::{Builder, Instant, Server};

use crate::client::sign::Signer;
use crate::client::wire::Wire;
use crate::client::{Answer, START_MS};
use crate::process::{command, run};
use crate::{control, json};

fn builder() -> Builder {
    one_store().bucket("bucket").tenant_per_key(true)
}

fn one_store() -> Builder {
    Server::builder().credentials("main", "secret").clock(|| Instant::from_epoch_ms(START_MS))
}

/// A request that a key signs.
async fn ask(address: SocketAddr, key: &str, secret: &str, method: &str, path: &str) -> Answer {
    let signer = Signer { access_key: key.to_owned(), ..Signer::new(secret, "20261129T120000Z") };
    let headers = signer.headers(method, path, &[("host", "localhost")], "UNSIGNED-PAYLOAD");
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    Wire::connect(address).await.ask(method, path, &headers, b"").await
}

#[tokio::test]
async fn each_key_has_its_own_store_with_the_first_buckets() {
    let server = builder().start().await.unwrap();
    let address = server.address();
    for key in ["main", "worker-1", "worker-2"] {
        ask(address, key, "secret", "PUT", &format!("/bucket/{key}")).await.expect(200);
    }
    let seen =
        async |key: &str| ask(address, key, "secret", "GET", "/bucket").await.expect(200).all("Contents/Key");
    for key in ["main", "worker-1", "worker-2"] {
        assert_eq!(seen(key).await, [key]);
    }
    ask(address, "worker-3", "another", "GET", "/bucket").await.expect_code(403, "SignatureDoesNotMatch");

    // A fault is about one of them where it says so, and the journal tells them apart.
    let rule = "name=one access-key=worker-1 effect=refuse code=SlowDown";
    json(control(address, "POST", "faults", rule).await, 200);
    ask(address, "worker-1", "secret", "GET", "/bucket").await.expect(503);
    ask(address, "worker-2", "secret", "GET", "/bucket").await.expect(200);
    let told = json(control(address, "GET", "requests?access-key=worker-1&status=503", "").await, 200);
    assert_eq!(told["count"], 1, "{told}");
    json(control(address, "DELETE", "faults/one", "").await, 200);

    // Snapshots and resets of one leave the others alone.
    let id = json(control(address, "POST", "snapshots?access-key=worker-1", "").await, 200)["id"].clone();
    json(control(address, "POST", "reset?access-key=worker-1", "").await, 200);
    assert_eq!((seen("worker-1").await.len(), seen("worker-2").await.len()), (0, 1));
    json(control(address, "POST", "reset", "").await, 200);
    assert_eq!((seen("main").await.len(), seen("worker-2").await.len()), (0, 0));
    json(control(address, "DELETE", &format!("snapshots/{id}"), "").await, 200);
}

#[tokio::test]
async fn what_is_stale_is_someones() {
    let server = builder().start().await.unwrap();
    let address = server.address();
    let set = async |rule: &str, status| json(control(address, "POST", "faults", rule).await, status);
    let refused = set("effect=stale", 409).await;
    assert!(refused["error"].as_str().unwrap().contains("access-key="), "{refused}");
    set("access-key=worker effect=stale", 409).await;
    ask(address, "worker", "secret", "PUT", "/bucket/old").await.expect(200);
    set("name=past access-key=worker method=GET effect=stale", 200).await;
    ask(address, "worker", "secret", "PUT", "/bucket/new").await.expect(200);
    let keys = ask(address, "worker", "secret", "GET", "/bucket").await.expect(200).all("Contents/Key");
    assert_eq!(keys, ["old"]);
}

#[tokio::test]
async fn one_store_is_what_others_have() {
    let server = one_store().start().await.unwrap();
    ask(server.address(), "worker", "secret", "GET", "/").await.expect_code(403, "InvalidAccessKeyId");
    json(control(server.address(), "POST", "snapshots?access-key=worker", "").await, 400);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let ended = run(command(&["--tenant-per-key", "--data", data.to_str().unwrap()]));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--tenant-per-key") && !data.exists(), "{ended:?}");
    let error = builder().data(&data).build().await.err().unwrap().to_string();
    assert!(error.contains("one namespace"), "{error}");
}
