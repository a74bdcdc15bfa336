//! A condition is decided when the body is complete and not when it begins.

use std::sync::Arc;

use http::Request;
use tokio::task::JoinHandle;

use crate::client::slow::{Pieces, slow_body};
use crate::client::{Answer, On, Rig};

/// A PUT of ten bytes whose first five have been read by the server.
async fn begin(rig: &Rig, headers: &[(&str, &str)]) -> (Pieces, JoinHandle<Answer>) {
    let (pieces, body) = slow_body();
    let mut request = Request::put("/bucket/k").header("host", "localhost").header("content-length", "10");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body).unwrap();
    let engine = Arc::clone(&rig.engine);
    let answer = tokio::spawn(async move { Answer::of(engine.call(request).await).await });
    // One piece fits into the channel: when the third has been sent the first has been read.
    for piece in ["01", "23", "4"] {
        pieces.send(piece).await;
    }
    (pieces, answer)
}

async fn end((pieces, answer): (Pieces, JoinHandle<Answer>)) -> Answer {
    pieces.send("56789").await;
    drop(pieces);
    answer.await.unwrap()
}

async fn a_creator_that_began_first_and_ends_last_loses(on: On) {
    let rig = Rig::new(on).await;
    let slow = begin(&rig, &[("if-none-match", "*")]).await;
    rig.send("PUT", "k", &[("if-none-match", "*")], "quick").await.expect(200);
    end(slow).await.expect_code(412, "PreconditionFailed");
    assert_eq!(rig.call("GET", "k").await.text(), "quick");
}

async fn a_swap_that_began_first_and_ends_last_loses(on: On) {
    let rig = Rig::new(on).await;
    let etag = rig.put("k", "old").await.expect(200).etag();
    let slow = begin(&rig, &[("if-match", &etag)]).await;
    rig.send("PUT", "k", &[("if-match", &etag)], "quick").await.expect(200);
    end(slow).await.expect_code(412, "PreconditionFailed");
    assert_eq!(rig.call("GET", "k").await.text(), "quick");

    let etag = rig.call("HEAD", "k").await.etag();
    let slow = begin(&rig, &[("if-match", &etag)]).await;
    rig.call("DELETE", "k").await.expect(204);
    end(slow).await.expect_code(404, "NoSuchKey");
}

async fn a_creator_wins_where_the_key_goes_before_it_ends(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "old").await.expect(200);
    let slow = begin(&rig, &[("if-none-match", "*")]).await;
    rig.call("DELETE", "k").await.expect(204);
    end(slow).await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "0123456789");
}

async fn without_a_condition_the_last_to_end_wins(on: On) {
    let rig = Rig::new(on).await;
    let slow = begin(&rig, &[]).await;
    rig.put("k", "quick").await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "quick");
    end(slow).await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "0123456789");
}

async fn a_bucket_that_goes_meanwhile_takes_nothing(on: On) {
    let rig = Rig::new(on).await;
    let slow = begin(&rig, &[]).await;
    rig.call("DELETE", "?").await.expect(204);
    end(slow).await.expect_code(404, "NoSuchBucket");
}

async fn a_body_that_is_cut_or_short_or_long_stores_nothing(on: On) {
    let rig = Rig::new(on).await;
    let (pieces, answer) = begin(&rig, &[]).await;
    pieces.cut().await;
    answer.await.unwrap().expect_code(400, "IncompleteBody");
    let (pieces, answer) = begin(&rig, &[]).await;
    drop(pieces);
    answer.await.unwrap().expect_code(400, "IncompleteBody");
    let (pieces, answer) = begin(&rig, &[]).await;
    pieces.send("0123456789").await;
    drop(pieces);
    let status = answer.await.unwrap().status;
    assert_eq!(status / 100, 4, "more bytes than announced");
    rig.call("GET", "k").await.expect_code(404, "NoSuchKey");
    assert!(rig.files().is_empty());
}

/// A request whose client went away leaves nothing behind.
async fn a_request_that_is_dropped_stores_nothing(on: On) {
    let rig = Rig::new(on).await;
    let (pieces, answer) = begin(&rig, &[]).await;
    answer.abort();
    assert!(answer.await.unwrap_err().is_cancelled());
    drop(pieces);
    rig.call("GET", "k").await.expect_code(404, "NoSuchKey");
    assert!(rig.files().is_empty());
}

crate::on_both_stores![
    a_creator_that_began_first_and_ends_last_loses,
    a_swap_that_began_first_and_ends_last_loses,
    a_creator_wins_where_the_key_goes_before_it_ends,
    without_a_condition_the_last_to_end_wins,
    a_bucket_that_goes_meanwhile_takes_nothing,
    a_body_that_is_cut_or_short_or_long_stores_nothing,
    a_request_that_is_dropped_stores_nothing,
];
