//! The whole store away, and the clock off.

use std::io::ErrorKind;
use std::net::SocketAddr;

use assay_server::{AuthMode, Builder, Server};
use tokio::net::TcpStream;

use crate::client::Clock;
use crate::client::wire::{Wire, within};
use crate::{control, exchange, json};

fn builder() -> Builder {
    Server::builder().bucket("bucket").auth(AuthMode::None)
}

/// Returns once a connection is refused, or once one is answered again.
async fn until(address: SocketAddr, refused: bool) {
    within(async {
        loop {
            match TcpStream::connect(address).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && refused => return,
                Ok(_) if !refused => return,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
}

#[tokio::test]
async fn refused_for_a_time_and_then_the_same_port_answers_again() {
    let clock = Clock::new();
    let of_server = clock.clone();
    let now =
        move || assay_server::Instant::from_epoch_ms(1000 * i64::try_from(of_server.epoch_s()).unwrap());
    let server = builder().clock(now).start().await.unwrap();
    let address = server.address();
    let mut open = Wire::connect(address).await;
    open.ask("GET", "/bucket", &[], b"").await.expect(200);
    // Without an end nobody could lift it.
    let refused = json(control(address, "POST", "outage", r#"{"outage": "refuse"}"#).await, 400);
    assert!(refused["error"].as_str().unwrap().contains("--control-listen"), "{refused}");
    // The request that begins it is answered.
    let begun =
        json(control(address, "POST", "outage", r#"{"outage": "refuse", "for-ms": 2000}"#).await, 200);
    assert_eq!(begun["outage"], "refuse");
    assert!(open.ends().await, "connections that were open are cut");
    until(address, true).await;
    clock.pass_s(2);
    until(address, false).await;
    assert!(exchange(address, "GET", "/bucket", &[], "").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(json(control(address, "GET", "outage", "").await, 200)["outage"], serde_json::Value::Null);
}

#[tokio::test]
async fn refused_until_it_is_lifted_at_a_port_of_its_own() {
    let server = builder().control_listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
    let own: SocketAddr = server.control_endpoint().strip_prefix("http://").unwrap().parse().unwrap();
    let mut wire = Wire::connect(own).await;
    for _ in 0..2 {
        json(wire.ask("POST", "/_assay/outage", &[], br#"{"outage": "refuse"}"#).await, 200);
        until(server.address(), true).await;
        json(wire.ask("DELETE", "/_assay/outage", &[], b"").await, 200);
        until(server.address(), false).await;
        assert!(exchange(server.address(), "GET", "/bucket", &[], "").await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn unavailable_and_hanging_leave_the_control_paths_alone() {
    let server = builder().start().await.unwrap();
    let address = server.address();
    let begin = async |body: &str| json(control(address, "POST", "outage", body).await, 200);
    begin(r#"{"outage": "unavailable"}"#).await;
    let answer = exchange(address, "GET", "/bucket", &[], "").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("ServiceUnavailable"), "{answer}");
    let told = begin(r#"{"outage": "hang", "for-ms": 60000}"#).await;
    let left = told["for-ms"].as_i64().unwrap();
    assert!((1..=60_000).contains(&left), "{told}");
    let mut hanging = Wire::connect(address).await;
    hanging.request("GET", "/bucket", &[], b"").await;
    json(control(address, "DELETE", "outage", "").await, 200);
    // What hung goes on hanging; who comes now is answered.
    exchange(address, "GET", "/bucket", &[], "").await.starts_with("HTTP/1.1 200 ").then_some(()).unwrap();
    let silence = tokio::time::timeout(std::time::Duration::from_millis(50), hanging.head()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn the_clock_runs_fast_and_is_put_right() {
    let server = builder().start().await.unwrap();
    let day_ms = 86_400_000;
    let date = |answer: &str| {
        let line = answer.lines().find(|line| line.starts_with("date: ")).unwrap();
        httpdate::parse_http_date(&line["date: ".len()..]).unwrap()
    };
    let before = date(&exchange(server.address(), "GET", "/bucket", &[], "").await);
    let put = control(server.address(), "PUT", "clock", &format!(r#"{{"offset-ms": {day_ms}}}"#)).await;
    assert_eq!(json(put, 200)["offset-ms"], day_ms);
    let after = date(&exchange(server.address(), "GET", "/bucket", &[], "").await);
    assert!(after.duration_since(before).unwrap().as_millis() >= u128::try_from(day_ms).unwrap());
    json(control(server.address(), "PUT", "clock", r#"{"offset-ms": 0}"#).await, 200);
    assert_eq!(json(control(server.address(), "GET", "clock", "").await, 200)["offset-ms"], 0);
}
