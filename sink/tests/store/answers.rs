//! What comes of a request under each fault: an outcome that says no more than the answer did.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use sinks::store::multipart::{MultipartStore as _, PartRef, UploadId};
use sinks::store::{
    Access, BodyGate, Condition, ETag, Outcome, Refusal, S3Settings, S3Store, Store, Unanswered,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{REFUSED, connect, read, settings, start, tag, write};

async fn under(rule: &str) -> (Outcome<Option<ETag>>, usize) {
    let server = start().await;
    let store = connect(&server);
    let guard = server.fault(rule.parse().expect("a rule")).expect("a fault");
    let outcome = write(&store, "k", "x", Condition::Absent).await;
    drop(guard);
    let asked = server.journal().count(|record| record.operation == Some("PutObject"));
    server.stop().await;
    (outcome, asked)
}

#[tokio::test]
async fn each_refusal_and_each_silence_is_one_request() {
    let denied = |status, code: &str| Some((status, code.to_owned()));
    for (effect, expected) in [
        ("refuse code=SlowDown", Err(Some(503))),
        ("refuse code=InternalError", Err(Some(500))),
        ("refuse code=TooManyRequests", Err(Some(429))),
        ("fail-after code=InternalError", Err(Some(500))),
        ("lose-answer", Err(None)),
        ("drop", Err(None)),
        ("refuse code=RequestTimeTooSkewed", Ok(denied(403, "RequestTimeTooSkewed"))),
        ("refuse code=AccessDenied", Ok(denied(403, "AccessDenied"))),
        ("refuse code=ConditionalRequestConflict", Ok(None)),
    ] {
        let (outcome, asked) = under(&format!("operation=PutObject effect={effect}")).await;
        assert_eq!(asked, 1, "{effect}: the store does not ask again by itself");
        let got = match outcome {
            Outcome::Unknown(Unanswered { status, .. }) => Err(status),
            Outcome::Refused(Refusal::Denied { status, code, .. }) => Ok(Some((status, code))),
            Outcome::Refused(Refusal::Conflict) => Ok(None),
            other => panic!("{effect}: {other:?}"),
        };
        assert_eq!(got, expected, "{effect}");
    }
}

#[tokio::test]
async fn a_store_that_hangs_is_unknown_within_the_request_timeout() {
    let server = start().await;
    let patience = S3Settings { request_timeout_ms: 200, ..settings(&server) };
    let access = Access::keys(server.access_key(), server.secret_key(), None);
    let store = S3Store::new(&patience, &access).unwrap();
    let guard = server.fault("operation=PutObject effect=freeze".parse().unwrap()).unwrap();
    match write(&store, "k", "x", Condition::Absent).await {
        Outcome::Unknown(Unanswered { status: None, reason }) => {
            assert_eq!(reason, "no answer within 200 ms")
        }
        other => panic!("{other:?}"),
    }
    drop(guard);
    server.stop().await;
}

#[tokio::test]
async fn reads_that_are_cut_and_pages_without_a_token_are_unknown() {
    let server = start().await;
    let store = connect(&server);
    for key in ["a", "b"] {
        tag(store.put(key, vec![1; 10_000].into(), Condition::None, &[]).await);
    }
    let _cut = server.fault("operation=GetObject effect=cut at=1000".parse().unwrap()).unwrap();
    assert!(matches!(store.get("a").await, Outcome::Unknown(Unanswered { status: Some(200), .. })));
    let _truncate = server.fault("operation=ListObjectsV2 effect=truncate".parse().unwrap()).unwrap();
    match store.list("", None, 10).await {
        Outcome::Unknown(Unanswered { reason, .. }) => {
            assert!(reason.contains("without a token"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bucket_that_is_not_there_and_a_wrong_secret_are_denied() {
    let server = start().await;
    let code = async |bucket: &str, secret: &str| {
        let settings = S3Settings { bucket: bucket.to_owned(), ..settings(&server) };
        let store = S3Store::new(&settings, &Access::keys(server.access_key(), secret, None)).unwrap();
        match (store.get("k").await, write(&store, "k", "x", Condition::Absent).await) {
            (
                Outcome::Refused(Refusal::Denied { code: read, message, .. }),
                Outcome::Refused(Refusal::Denied { code: written, .. }),
            ) => {
                assert_eq!(read, written);
                assert!(!message.contains(secret), "{message}");
                written
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code("other", server.secret_key()).await, "NoSuchBucket");
    assert_eq!(code("data", "wrong-secret-of-someone").await, "SignatureDoesNotMatch");
    server.stop().await;
}

#[tokio::test]
async fn nobody_there_is_unknown() {
    let server = start().await;
    let store = connect(&server);
    server.stop().await;
    match write(&store, "k", "x", Condition::Absent).await {
        Outcome::Unknown(Unanswered { status: None, reason }) => {
            assert!(reason.starts_with("no answer:"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

/// Answers each request on each connection with `answer`, whatever is asked.
pub async fn parrot(answer: &'static str) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            if connection.read(&mut request).await.is_ok() {
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_success_whose_body_is_no_success_is_unknown() {
    let error = "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 46\r\n\r\n\
                 <Error><Code>InternalError</Code></Error>     ";
    let portal = "HTTP/1.1 200 OK\r\ncontent-length: 27\r\n\r\n<html>please log in</html>\n";
    let untagged = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n<ListBucketResult>";
    for (answer, written) in [(error, false), (portal, false), (untagged, true), (cut, false)] {
        let endpoint = format!("http://{}", parrot(answer).await);
        let settings = S3Settings::new(Some(endpoint), "us-east-1", "data");
        let store = S3Store::new(&settings, &Access::keys("a", "b", None)).unwrap();
        let unknown =
            |outcome: &Outcome<Option<ETag>>| matches!(outcome, Outcome::Unknown(u) if u.status == Some(200));
        let outcome = write(&store, "k", "x", Condition::Absent).await;
        assert!(if written { outcome == Outcome::Done(None) } else { unknown(&outcome) }, "{outcome:?}");
        let deleted = store.delete("k", None).await;
        assert_eq!(matches!(deleted, Outcome::Done(())), written, "{answer}: {deleted:?}");
        assert!(matches!(store.list("", None, 10).await, Outcome::Unknown(_)), "{answer}");
        assert!(matches!(store.head("k").await, Outcome::Unknown(_)), "{answer}");
        assert!(matches!(store.get("k").await, Outcome::Unknown(_)), "{answer}");
    }
}

/// An outcome without what it brings.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Done,
    Refused,
    Missing,
    Unknown(Option<u16>),
}

fn told<T>(outcome: Outcome<T>) -> Told {
    match outcome {
        Outcome::Done(_) => Told::Done,
        Outcome::Refused(_) => Told::Refused,
        Outcome::Missing => Told::Missing,
        Outcome::Unknown(why) => Told::Unknown(why.status),
    }
}

/// A 404 is the store's only with the store's code in it: an ingress without a backend has one of its own.
#[tokio::test]
async fn a_404_is_an_absence_in_s3s_own_words_alone() {
    let foreign = [
        "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 36\r\n\r\n\
         <html><h1>404 Not Found</h1></html>\n",
        "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\r\ndefault backend - 404",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    ];
    let own = [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 38\r\n\r\n<Error><Code>NoSuchKey</Code></Error>\n",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 41\r\n\r\n<Error><Code>NoSuchUpload</Code></Error>\n",
    ];
    let parts = [PartRef { number: 1, etag: ETag("\"e\"".to_owned()) }];
    for (answer, absent) in
        foreign.map(|answer| (answer, false)).into_iter().chain(own.map(|answer| (answer, true)))
    {
        let endpoint = format!("http://{}", parrot(answer).await);
        let settings = S3Settings::new(Some(endpoint), "us-east-1", "data");
        let store = S3Store::new(&settings, &Access::keys("a", "b", None)).unwrap();
        let upload = UploadId("u".to_owned());
        let absences = [
            told(store.get("k").await),
            told(write(&store, "k", "x", Condition::Matches(parts[0].etag.clone())).await),
            told(store.delete("k", Some(parts[0].etag.clone())).await),
            told(store.list("", None, 10).await),
            told(store.complete("k", &upload, &parts).await),
            told(store.upload_part("k", &upload, 1, Bytes::from_static(b"x")).await),
            told(store.list_parts("k", &upload, None, 10).await),
            told(store.list_uploads(None, 10).await),
        ];
        assert_eq!(absences, [if absent { Told::Missing } else { Told::Unknown(Some(404)) }; 8], "{answer}");
        let gone = [told(store.delete("k", None).await), told(store.abort("k", &upload).await)];
        assert_eq!(gone, [if absent { Told::Done } else { Told::Unknown(Some(404)) }; 2], "{answer}");
        // HEAD's has no body: the one 404 that is taken as it is, and confirmed by a GET where it matters.
        assert_eq!(
            [told(store.head("k").await), told(store.describe("k").await)],
            [Told::Missing; 2],
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_body_behind_a_gate_is_late_and_whole() {
    let server = start().await;
    let store = connect(&server);
    let gate = Arc::new(BodyGate::default());
    let slow = store.gated(gate.clone());
    let writing = tokio::spawn(async move { write(&slow, "k", "slow and signed", Condition::Absent).await });
    gate.reached(1).await;
    tag(write(&store, "k", "fast", Condition::Absent).await);
    gate.open();
    assert_eq!(writing.await.expect("no panic"), REFUSED);
    assert_eq!(read(&store, "k").await.bytes, "fast");
    tag(write(&store.gated(gate), "other", "slow and signed", Condition::Absent).await);
    assert_eq!(read(&store, "other").await.bytes, "slow and signed");
    server.stop().await;
}
