//! Who may control the server, where, and what is said to whom.

use std::net::{Ipv4Addr, SocketAddr};

use assay_server::{AuthMode, Server};
use serde_json::Value;

use crate::client::wire::Wire;
use crate::process::{Process, command};
use crate::{control, exchange, json};

const TOKEN: &str = "token-of-the-test";

/// Every path and method that the server names.
async fn index(address: SocketAddr) -> Vec<(String, Vec<String>)> {
    let index = json(control(address, "GET", "", "").await, 200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = index["paths"].as_array().unwrap().iter();
    rows.map(|row| (text(&row["path"]), row["methods"].as_array().unwrap().iter().map(text).collect()))
        .collect()
}

#[tokio::test]
async fn every_path_and_method_that_is_named_is_there_and_no_other() {
    let server = Server::builder().start().await.unwrap();
    let rows = index(server.address()).await;
    assert!(rows.len() > 10, "{rows:?}");
    for (path, methods) in rows {
        let path = path.replace("NAME", "nobody").replace("ID", "77");
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            if path.ends_with("/stream") && method == "GET" {
                continue; // it has no end
            }
            let target = if path.ends_with("/wait") { format!("{path}?within-ms=1") } else { path.clone() };
            let answer = exchange(server.address(), method, &target, &[], "").await;
            let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(status != 405, methods.contains(&method.to_owned()), "{method} {path}: {answer}");
            if status == 405 {
                assert!(
                    answer.contains(&format!("allow: {}\r\n", methods.join(", "))),
                    "{method} {path}: {answer}"
                );
            }
            assert!(status < 500, "{method} {path}: {answer}");
        }
    }
    let refused = json(control(server.address(), "GET", "fault", "").await, 404);
    assert!(refused["error"].as_str().unwrap().contains("/_assay/faults"), "{refused}");
    for (method, path, body, named) in [
        ("GET", "requests?keys=a", "", "keys"),
        ("GET", "requests?status=ok", "", "status"),
        ("GET", "requests/wait?within-ms=99999999", "", "within-ms"),
        ("DELETE", "faults?name=x", "", "name"),
        ("POST", "outage", r#"{"outage": "gone"}"#, "outage"),
        ("POST", "outage", r#"{"outage": "hang", "for": 3}"#, "for"),
        ("POST", "outage", r#"{"outage": "hang", "for-ms": 0}"#, "for-ms"),
        ("POST", "outage", "hang", "outage"),
        ("PUT", "clock", r#"{"offset-ms": "soon"}"#, "offset-ms"),
        ("PUT", "clock", r#"{"offset-ms": 9223372036854775807}"#, "offset-ms"),
        ("PUT", "clock", "[]", "clock"),
    ] {
        let refused = json(control(server.address(), method, path, body).await, 400);
        assert_eq!(refused["field"], named, "{method} {path} {body}: {refused}");
    }
    let large = format!("# {}", "x".repeat(1024 * 1024));
    json(control(server.address(), "POST", "faults", &large).await, 413);
}

#[tokio::test]
async fn with_a_token_nobody_else_is_let_in() {
    let mut with_token = command(&["--listen", "127.0.0.1:0", "--auth", "none", "--log", "trace"]);
    with_token.env("ASSAY_CONTROL_TOKEN", TOKEN);
    let process = Process::of(with_token);
    let mut wire = Wire::connect(process.address).await;
    for path in ["/_assay/faults", "/_localstack/chaos/faults", "/_assay/", "/_assay/nothing"] {
        for headers in [&[][..], &[("x-assay-token", "another")], &[("x-assay-token", "")]] {
            let refused = json(wire.ask("GET", path, headers, b"").await, 403);
            assert!(refused["error"].as_str().unwrap().contains("x-assay-token"), "{refused}");
            assert!(!refused.to_string().contains(TOKEN));
        }
    }
    let token = [("x-assay-token", TOKEN)];
    json(wire.ask("GET", "/_assay/faults", &token, b"").await, 200);
    json(wire.ask("GET", "/_assay/health", &[], b"").await, 200);
    process.signal("-TERM");
    let ended = process.ended();
    assert!(!(ended.stdout + &ended.stderr).contains(TOKEN), "a token is a secret");
}

#[tokio::test]
async fn from_elsewhere_nobody_is_let_in_without_a_token() {
    // An address of this machine that is not loopback: a connection to it comes from it.
    let probe = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let outside = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
    let Some(outside) = outside.ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback()) else {
        return; // no other address here; the unit test of `Access` judges addresses without one
    };
    let builder = || Server::builder().listen(SocketAddr::from((outside, 0))).auth(AuthMode::None);
    let server = builder().start().await.unwrap();
    let refused = json(control(server.address(), "GET", "faults", "").await, 403);
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains(&outside.to_string()) && why.contains("--control-token"), "{why}");
    json(control(server.address(), "GET", "health", "").await, 200);
    let server = builder().control_token(TOKEN).start().await.unwrap();
    let token = [("x-assay-token", TOKEN)];
    json(Wire::connect(server.address()).await.ask("GET", "/_assay/faults", &token, b"").await, 200);
}

#[tokio::test]
async fn a_port_of_their_own_is_the_only_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ready");
    let ready = file.to_str().unwrap();
    let process =
        Process::start(&["--bucket", "bucket", "--control-listen", "127.0.0.1:0", "--ready-file", ready]);
    let lines = std::fs::read_to_string(&file).unwrap();
    let (endpoint, own) = lines.trim().split_once('\n').unwrap();
    assert_eq!(endpoint, format!("http://{}", process.address));
    let own: SocketAddr = own.strip_prefix("http://").unwrap().parse().unwrap();
    json(control(own, "GET", "faults", "").await, 200);
    let rule = "name=x operation=HeadBucket effect=refuse code=SlowDown";
    json(control(own, "POST", "faults", rule).await, 200);
    assert!(exchange(process.address, "HEAD", "/bucket", &[], "").await.starts_with("HTTP/1.1 503 "));
    // On the S3 port they are what any other path is, and on theirs nothing else is.
    let answer = exchange(process.address, "GET", "/_assay/faults", &[], "").await;
    assert!(answer.contains("<Error><Code>") && !answer.contains("SlowDown"), "{answer}");
    let other = Wire::connect(own).await.ask("GET", "/bucket", &[], b"").await;
    json(other, 404);
    let exports = crate::process::run(command(&["env", "--ready-file", ready]));
    assert!(exports.stdout.contains(&format!("AWS_ENDPOINT_URL='{endpoint}'\n")), "{exports:?}");
    process.signal("-TERM");
    let ended = process.ended();
    assert!(ended.stdout.contains(&format!("control on http://{own}\n")), "{ended:?}");
}
