//! LocalStack's faults at LocalStack's path.

use std::net::SocketAddr;

use assay_server::{AuthMode, Server};
use serde_json::{Value, json as document};

use crate::client::wire::Wire;
use crate::{control, exchange, json};

async fn chaos(address: SocketAddr, method: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut wire = Wire::connect(address).await;
    json(wire.ask(method, "/_localstack/chaos/faults", &[], body.as_bytes()).await, 200)
}

async fn rules(address: SocketAddr) -> Vec<String> {
    let listed = json(control(address, "GET", "faults", "").await, 200);
    let faults = listed["faults"].as_array().unwrap().iter();
    faults.map(|fault| fault["rule"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_configuration_for_localstack_works_here() {
    let server = Server::builder().bucket("bucket").auth(AuthMode::None).start().await.unwrap();
    let address = server.address();
    let status =
        async |method: &str, path: &str| exchange(address, method, path, &[], "").await[9..12].to_owned();
    json(control(address, "POST", "faults", "name=mine key=nowhere effect=drop").await, 200);
    assert_eq!(chaos(address, "GET", &Value::Null).await, document!([]));

    let slow = document!({
        "service": "s3", "region": "us-east-1", "operation": "PutObject", "probability": 1.0,
        "error": { "statusCode": 503, "code": "SlowDown" }
    });
    let kinesis = document!({ "service": "kinesis", "error": { "statusCode": 418, "code": "Teapot" } });
    assert_eq!(chaos(address, "POST", &document!([slow, kinesis])).await, document!([slow, kinesis]));
    assert_eq!(
        rules(address).await,
        [
            "name=mine key=nowhere effect=drop",
            "name=chaos-1 operation=PutObject probability=1 effect=refuse code=SlowDown"
        ]
    );
    assert_eq!(
        (status("PUT", "/bucket/k").await, status("GET", "/bucket").await),
        ("503".into(), "200".into())
    );

    let all = document!({});
    assert_eq!(chaos(address, "PATCH", &document!([all])).await, document!([slow, kinesis, all]));
    assert_eq!(status("GET", "/bucket").await, "503");
    assert_eq!(chaos(address, "DELETE", &document!([all, slow])).await, document!([kinesis]));
    assert_eq!(status("PUT", "/bucket/k").await, "200");

    // POST takes the place of what was there; a bad one changes nothing.
    chaos(address, "POST", &document!([slow])).await;
    let mut wire = Wire::connect(address).await;
    for (body, field) in
        [(r#"[{"service": 3}]"#, "service"), (r#"[{"error": {"code": "None"}}]"#, "code"), ("{", "faults")]
    {
        let refused = wire.ask("POST", "/_localstack/chaos/faults", &[], body.as_bytes()).await;
        assert_eq!(json(refused, 400)["field"], field, "{body}");
    }
    let refused = json(wire.ask("PUT", "/_localstack/chaos/faults", &[], b"[]").await, 405);
    assert!(refused["error"].as_str().unwrap().contains("PATCH"), "{refused}");
    assert_eq!(chaos(address, "GET", &Value::Null).await, document!([slow]));

    // The names are shared: what is taken back there is gone here, and the other way round.
    json(control(address, "DELETE", "faults/chaos-4", "").await, 200);
    assert_eq!(chaos(address, "GET", &Value::Null).await, document!([]));
    chaos(address, "POST", &document!([slow, all])).await;
    assert_eq!(chaos(address, "POST", &document!([])).await, document!([]));
    assert_eq!(rules(address).await, ["name=mine key=nowhere effect=drop"]);
}
