//! Of many writers under one condition exactly one wins, and its body is what is there.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Answer, On, Rig, send};

const WRITERS: usize = 16;

fn rounds(on: On) -> usize {
    if on == On::Memory { 25 } else { 8 }
}

/// Sends one request of each writer at once and gives their answers back.
async fn race(
    rig: &Rig,
    request: impl Fn(usize) -> (&'static str, String, Vec<(&'static str, String)>, String),
) -> Vec<Answer> {
    let start = Arc::new(Barrier::new(WRITERS));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (engine, start) = (Arc::clone(&rig.engine), Arc::clone(&start));
        let (method, target, headers, body) = request(writer);
        writers.spawn(async move {
            start.wait().await;
            let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            (writer, send(&engine, method, &target, &headers, body).await)
        });
    }
    let mut answers = writers.join_all().await;
    answers.sort_by_key(|(writer, _)| *writer);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The one writer that won; all others were refused for the condition.
#[track_caller]
fn winner(answers: &[Answer], refusals: &[u16]) -> usize {
    let winners: Vec<usize> = (0..answers.len()).filter(|writer| answers[*writer].status == 200).collect();
    assert_eq!(winners.len(), 1, "winners of {WRITERS}");
    for (writer, answer) in answers.iter().enumerate() {
        assert!(answer.status == 200 || refusals.contains(&answer.status), "{writer}: {answer:?}");
    }
    winners[0]
}

fn body_of(round: usize, writer: usize) -> String {
    format!("round {round} writer {writer} ").repeat(200)
}

async fn put_create(on: On) {
    let rig = Rig::new(on).await;
    for round in 0..rounds(on) {
        let key = format!("k{round}");
        let answers = race(&rig, |writer| {
            ("PUT", key.clone(), vec![("if-none-match", "*".to_owned())], body_of(round, writer))
        })
        .await;
        let winner = winner(&answers, &[412]);
        assert_eq!(rig.call("GET", &key).await.text(), body_of(round, winner));
    }
}

async fn put_swap(on: On) {
    let rig = Rig::new(on).await;
    let mut etag = rig.put("k", "first").await.expect(200).etag();
    for round in 0..rounds(on) {
        let answers = race(&rig, |writer| {
            ("PUT", "k".to_owned(), vec![("if-match", etag.clone())], body_of(round, writer))
        })
        .await;
        let winner = winner(&answers, &[412]);
        etag = answers[winner].etag();
        let found = rig.call("GET", "k").await;
        assert_eq!((found.text(), found.etag()), (body_of(round, winner), etag.clone()));
    }
}

async fn complete(on: On) {
    let rig = Rig::new(on).await;
    for round in 0..rounds(on) {
        let key = format!("k{round}");
        let mut uploads = Vec::new();
        for writer in 0..WRITERS {
            let id = rig.call("POST", &format!("{key}?uploads")).await.expect(200).only("UploadId");
            let target = format!("{key}?partNumber=1&uploadId={id}");
            let etag = rig.put(&target, body_of(round, writer)).await.expect(200).etag();
            let part = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>");
            uploads.push((id, format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>")));
        }
        let answers = race(&rig, |writer| {
            let (id, document) = &uploads[writer];
            let condition = vec![("if-none-match", "*".to_owned())];
            ("POST", format!("{key}?uploadId={id}"), condition, document.clone())
        })
        .await;
        let winner = winner(&answers, &[412]);
        assert_eq!(rig.call("GET", &key).await.text(), body_of(round, winner));
        assert_eq!(rig.call("GET", "?uploads").await.all("Upload/Key").len(), WRITERS - 1);
        for (writer, (id, _)) in uploads.iter().enumerate().filter(|(writer, _)| *writer != winner) {
            let answer = rig.call("DELETE", &format!("{key}?uploadId={id}")).await;
            assert_eq!(answer.status, 204, "the upload of loser {writer} is still there");
        }
    }
}

async fn copy(on: On) {
    let rig = Rig::new(on).await;
    for writer in 0..WRITERS {
        rig.put(&format!("source{writer}"), body_of(0, writer)).await.expect(200);
    }
    for round in 0..rounds(on) {
        let key = format!("k{round}");
        let answers = race(&rig, |writer| {
            let headers = vec![
                ("x-amz-copy-source", format!("bucket/source{writer}")),
                ("if-none-match", "*".to_owned()),
            ];
            ("PUT", key.clone(), headers, String::new())
        })
        .await;
        let winner = winner(&answers, &[412]);
        assert_eq!(rig.call("GET", &key).await.text(), body_of(0, winner));
    }
}

async fn delete(on: On) {
    let rig = Rig::new(on).await;
    for round in 0..rounds(on) {
        let etag = rig.put("k", body_of(round, 0)).await.expect(200).etag();
        let answers =
            race(&rig, |_| ("DELETE", "k".to_owned(), vec![("if-match", etag.clone())], String::new())).await;
        let deleted = answers.iter().filter(|answer| answer.status == 204).count();
        assert_eq!(deleted, 1);
        assert!(answers.iter().all(|answer| matches!(answer.status, 204 | 404)));
    }
}

/// Creating by PUT, by Complete and by Copy exclude each other.
async fn every_way_to_create(on: On) {
    let rig = Rig::new(on).await;
    rig.put("source", "copied").await.expect(200);
    for round in 0..rounds(on) {
        let key = format!("k{round}");
        let id = rig.call("POST", &format!("{key}?uploads")).await.expect(200).only("UploadId");
        let etag = rig.put(&format!("{key}?partNumber=1&uploadId={id}"), "completed").await.etag();
        let document = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
        );
        let condition = ("if-none-match", "*".to_owned());
        let answers = race(&rig, |writer| match writer {
            0 => ("POST", format!("{key}?uploadId={id}"), vec![condition.clone()], document.clone()),
            odd if odd % 2 == 1 => ("PUT", key.clone(), vec![condition.clone()], format!("put by {writer}")),
            _ => {
                let source = ("x-amz-copy-source", "bucket/source".to_owned());
                ("PUT", key.clone(), vec![condition.clone(), source], String::new())
            }
        })
        .await;
        let expected = match winner(&answers, &[412]) {
            0 => "completed".to_owned(),
            odd if odd % 2 == 1 => format!("put by {odd}"),
            _ => "copied".to_owned(),
        };
        assert_eq!(rig.call("GET", &key).await.text(), expected);
    }
}

/// A body that says by its first byte what all of it must be.
fn even_body(byte: u8) -> Vec<u8> {
    vec![byte; [10, 40_000, 700_000][usize::from(byte) % 3] + usize::from(byte)]
}

/// Whoever reads while others overwrite, copy, delete, snapshot and restore gets one body, whole, or none.
async fn readers_among_writers(on: On) {
    let rig = Arc::new(Rig::new(on).await);
    rig.send("PUT", "?versioning", &[], crate::SUSPEND).await.expect(200);
    let writes = if on == On::Memory { 120_u8 } else { 50 };
    let mut tasks = JoinSet::new();
    for writer in 0..3_u8 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for n in 0..writes {
                let key = format!("k{}", n % 2);
                match (n + writer) % 5 {
                    0 => rig.call("DELETE", &key).await.expect(204),
                    1 => {
                        let source = format!("bucket/k{}", (n + 1) % 2);
                        rig.send("PUT", &key, &[("x-amz-copy-source", &source)], "").await
                    }
                    _ => rig.put(&key, even_body(n.wrapping_mul(7).wrapping_add(writer))).await.expect(200),
                };
            }
        });
    }
    {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for _ in 0..writes / 8 {
                let snapshot = rig.engine.snapshot().unwrap();
                rig.call("GET", "?list-type=2").await.expect(200);
                rig.engine.restore(&snapshot).await.unwrap();
            }
        });
    }
    for reader in 0..4_u8 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for n in 0..writes {
                let key = format!("k{}", (n + reader) % 2);
                let found = rig.call("GET", &key).await;
                match found.status {
                    404 => {}
                    200 => assert!(
                        found.body == even_body(found.body[0]),
                        "{} bytes of one body",
                        found.body.len()
                    ),
                    other => panic!("{other} {}", found.text()),
                }
                let range = rig.send("GET", &key, &[("range", "bytes=5-250000")], "").await;
                if range.status == 206 {
                    let body = even_body(range.body[0]);
                    assert!(range.body == body[5..body.len().min(250_001)], "{} bytes", range.body.len());
                }
            }
        });
    }
    tasks.join_all().await;
    for key in ["k0", "k1"] {
        rig.call("DELETE", &format!("{key}?versionId=null")).await.expect(204);
    }
    let gone = async {
        while !rig.files().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(10), gone).await;
    assert!(waited.is_ok(), "left over: {:?}", rig.files());
}

macro_rules! raced {
    ($($race:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $race() { super::$race(crate::client::On::Memory).await })+
        }
        mod on_disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $race() { super::$race(crate::client::On::Disk).await })+
        }
    };
}

raced![put_create, put_swap, complete, copy, delete, every_way_to_create, readers_among_writers];
