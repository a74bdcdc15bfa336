//! Bodies that are cut, unwanted, late or large.

use std::time::Duration;

use assay_server::{AuthMode, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::files_in;
use crate::client::wire::{Wire, head, within};
use crate::server;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_connection_cut_within_a_body_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().bucket("bucket").auth(AuthMode::None).data(directory.path());
    let server = server.start().await.unwrap();
    let mut other = Wire::connect(server.address()).await;
    other.ask("PUT", "/bucket/k", &[], b"old").await.expect(200);
    for sent in [0, 10, MIB] {
        let mut wire = Wire::connect(server.address()).await;
        wire.send(head("PUT", "/bucket/k", &[], 2 * MIB as u64)).await;
        wire.send(vec![b'x'; sent]).await;
        if sent > 0 {
            // What the server has begun to write goes again.
            wire.stream.shutdown().await.unwrap();
            let refused = wire.answer(false).await;
            refused.expect_code(400, "IncompleteBody");
        }
        drop(wire);
    }
    assert_eq!(other.ask("GET", "/bucket/k", &[], b"").await.expect(200).text(), "old");
    within(async {
        while !files_in(directory.path()).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_that_nobody_wants_is_read_and_the_connection_goes_on() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    // A client that first sends everything and then reads.
    let body = vec![b'x'; 8 * MIB];
    wire.ask("PUT", "/no-such-bucket-here/k", &[], &body).await.expect_code(404, "NoSuchBucket");
    wire.ask("PUT", "/bucket/k", &[("if-match", "*")], &body).await.expect_code(501, "NotImplemented");
    assert_eq!(wire.ask("PUT", "/bucket/k", &[], b"x").await.status, 200);
}

#[tokio::test]
async fn a_client_with_a_huge_unwanted_body_is_not_left_hanging() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    wire.send(head("PUT", "/no-such-bucket-here/k", &[], 1 << 40)).await;
    let (mut reader, mut writer) = wire.stream.into_split();
    let piece = vec![b'x'; MIB];
    let sending = async { while writer.write_all(&piece).await.is_ok() {} };
    let mut said = Vec::new();
    let reading = reader.read_to_end(&mut said);
    // Both end: the server answers, or resets the connection, after reading as much as it is willing to.
    let (_, _ended) = within(async { tokio::join!(sending, reading) }).await;
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 404"), "{:?}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn a_client_that_waits_for_the_refusal_gets_it() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    wire.send(head("PUT", "/no-such-bucket-here/k", &[], 1000)).await;
    let answer = tokio::time::timeout(Duration::from_secs(8), wire.answer(false)).await;
    answer.expect("the refusal does not wait for a body that nobody wants").expect_code(404, "NoSuchBucket");
}

#[tokio::test]
async fn a_large_body_comes_back_whole_in_many_pieces() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    let body: Vec<u8> = (0..9 * MIB).map(|n| (n % 251) as u8).collect();
    wire.send(head("PUT", "/bucket/k", &[], body.len() as u64)).await;
    for piece in body.chunks(777_777) {
        wire.send(piece).await;
    }
    wire.answer(false).await.expect(200);
    let found = wire.ask("GET", "/bucket/k", &[], b"").await.expect(200);
    assert!(found.body == body, "{} bytes", found.body.len());
    let range = format!("bytes={}-{}", 2 * MIB - 3, 7 * MIB);
    let found = wire.ask("GET", "/bucket/k", &[("range", &range)], b"").await.expect(206);
    assert!(found.body == body[2 * MIB - 3..=7 * MIB]);
}

#[tokio::test]
async fn a_reader_that_goes_away_harms_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().bucket("bucket").auth(AuthMode::None).data(directory.path());
    let server = server.start().await.unwrap();
    let mut wire = Wire::connect(server.address()).await;
    wire.ask("PUT", "/bucket/k", &[], &vec![b'x'; 8 * MIB]).await.expect(200);
    for _ in 0..5 {
        let mut reader = Wire::connect(server.address()).await;
        reader.request("GET", "/bucket/k", &[], b"").await;
        assert_eq!(reader.head().await.status, 200);
    }
    wire.ask("DELETE", "/bucket/k", &[], b"").await.expect(204);
    within(async {
        while !files_in(directory.path()).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// HTTP's own chunked coding is not implemented, as on AWS.
#[tokio::test]
async fn a_body_in_http_chunks_is_refused() {
    let server = server().await;
    let mut wire = Wire::connect(server.address()).await;
    wire.send("PUT /bucket/k HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        .await;
    let refused = wire.answer(false).await.expect_code(501, "NotImplemented");
    assert_eq!(refused.only("Header"), "Transfer-Encoding");
    assert_eq!(wire.ask("GET", "/bucket/k", &[], b"").await.status, 404);
}

/// A client that goes away while its write commits: the write stands or not, and either way no file is left over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_go_away_while_they_write_leave_nothing_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().bucket("bucket").auth(AuthMode::None).data(directory.path());
    let server = server.start().await.unwrap();
    let body = vec![b'x'; 100_000];
    for _ in 0..20 {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (address, body) = (server.address(), body.clone());
            clients.spawn(async move {
                let mut wire = Wire::connect(address).await;
                wire.request("PUT", "/bucket/k", &[], &body).await;
                wire.stream.set_zero_linger().unwrap(); // the connection is reset, not closed
            });
        }
        clients.join_all().await;
    }
    let mut wire = Wire::connect(server.address()).await;
    wire.ask("PUT", "/bucket/k", &[], &body).await.expect(200);
    within(async {
        while files_in(directory.path()).len() != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(wire.ask("GET", "/bucket/k", &[], b"").await.expect(200).body == body);
}
