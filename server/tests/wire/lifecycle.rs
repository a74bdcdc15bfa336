//! A server starts, stops and goes.

use std::time::Duration;

use assay_server::{AuthMode, Server};
use tokio::net::TcpStream;

use crate::client::wire::{Wire, head, within};
use crate::server;

#[tokio::test]
async fn a_stop_waits_for_the_request_under_way_and_for_nobody_else() {
    let server = server().await;
    let address = server.address();
    let mut idle = Wire::connect(address).await;
    idle.ask("PUT", "/bucket/idle", &[], b"x").await.expect(200);
    let mut busy = Wire::connect(address).await;
    busy.send(head("PUT", "/bucket/k", &[("expect", "100-continue")], 10)).await;
    assert_eq!(busy.head().await.status, 100, "the request is under way");
    let stopping = tokio::spawn(server.stop());
    // The idle connection ends at once, and nobody is let in any more.
    assert!(idle.ends().await);
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    assert!(!stopping.is_finished());
    busy.send("0123456789").await;
    busy.answer(false).await.expect(200);
    assert!(busy.ends().await);
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn a_stop_lets_go_of_what_a_rule_holds() {
    for effect in ["delay", "late"] {
        let server = server().await;
        let rule = format!("effect={effect} until=lifted").parse().unwrap();
        let fault = server.fault(rule).unwrap();
        let mut held = Wire::connect(server.address()).await;
        held.request("PUT", "/bucket/k", &[], b"x").await;
        within(async {
            while fault.status().is_some_and(|fault| fault.fired == 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // One that waited for it would take ten seconds.
        tokio::time::timeout(Duration::from_secs(9), server.stop()).await.expect(effect);
        held.answer(false).await.expect(200);
    }
}

#[tokio::test]
async fn a_stopped_server_on_disk_leaves_everything_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Server::builder().bucket("bucket").auth(AuthMode::None).data(directory.path()).start();
    let server = start().await.unwrap();
    let Err(taken) = start().await else { panic!("two servers on one directory") };
    assert!(taken.to_string().contains("in use by another server"), "{taken}");
    let mut wire = Wire::connect(server.address()).await;
    wire.ask("PUT", "/bucket/k", &[], b"kept").await.expect(200);
    server.stop().await;
    let server = start().await.unwrap();
    let mut wire = Wire::connect(server.address()).await;
    assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.expect(200).text(), "kept");
}

#[tokio::test]
async fn a_dropped_server_frees_its_port_and_its_connections() {
    let first = server().await;
    let address = first.address();
    let mut wire = Wire::connect(address).await;
    wire.ask("PUT", "/bucket/k", &[], b"x").await.expect(200);
    drop(first);
    assert!(wire.ends().await);
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    let again =
        Server::builder().bucket("bucket").auth(AuthMode::None).listen(address).start().await.unwrap();
    assert_eq!(again.address(), address);
    let mut wire = Wire::connect(address).await;
    wire.ask("GET", "/bucket/k", &[], b"").await.expect_code(404, "NoSuchKey");
}

#[tokio::test]
async fn a_port_in_use_is_said_and_the_directory_stays_untouched() {
    let first = server().await;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let second = Server::builder().listen(first.address()).data(&data).start().await;
    let Err(refused) = second else { panic!("two servers on one port") };
    assert!(refused.to_string().contains(&first.address().to_string()), "{refused}");
    assert!(!data.exists());
}

#[tokio::test]
async fn settings_that_are_none_are_refused() {
    for (builder, word) in [
        (Server::builder().bucket("Bad_Name"), "Bad_Name"),
        (Server::builder().region(""), "region"),
        (Server::builder().credentials("a", ""), "secret key"),
    ] {
        let Err(refused) = builder.start().await else { panic!("{word} was taken") };
        assert!(refused.to_string().contains(word), "{refused}");
    }
}
