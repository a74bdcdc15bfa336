//! The doors of the faults and the control paths, over sockets and as a process.

#[path = "../client/mod.rs"]
mod client;
#[allow(dead_code, reason = "each test crate uses a part of it")]
#[path = "../cli/process.rs"]
mod process;

mod access;
mod chaos;
mod doors;
mod guide;
mod journal;
mod outage;
mod state;
mod tenants;

use std::net::SocketAddr;

use client::wire::{Wire, head, within};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A control request and its document, which has the status that is expected.
#[track_caller]
fn json(answer: client::Answer, status: u16) -> Value {
    let answer = answer.expect(status);
    assert_eq!(answer.headers["content-type"], "application/json", "{answer:?}");
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

/// Sends a control request over a connection of its own.
async fn control(address: SocketAddr, method: &str, path: &str, body: &str) -> client::Answer {
    Wire::connect(address).await.ask(method, &format!("/_assay/{path}"), &[], body.as_bytes()).await
}

/// The whole answer to one request as text, its head in lower case; empty where the connection ends without one.
async fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let headers = [headers, &[("connection", "close")]].concat();
    let request = head(method, path, &headers, body.len() as u64) + body;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = within(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}
