//! The life of bodies: whole while they are read, gone when nobody needs them, and never half there.

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};

use crate::client::{Answer, Clock, On, Rig, files_in, settings};

/// Large enough for a file of its own and for several pieces.
fn large(byte: u8) -> Vec<u8> {
    (0..1_000_000_u32).map(|n| byte ^ (n % 251) as u8).collect()
}

/// Waits until the server has removed what it no longer needs: readers end on tasks of their own.
async fn files_become(rig: &Rig, count: usize) {
    let become_so = async {
        while rig.files().len() != count {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), become_so).await;
    assert!(waited.is_ok(), "expected {count} files, there are {:?}", rig.files());
}

async fn a_reader_gets_the_old_bytes_whole(on: On) {
    let rig = Rig::new(on).await;
    type Change = fn(&Rig) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
    let changes: [Change; 2] =
        [|rig| Box::pin(rig.put("k", large(9))), |rig| Box::pin(rig.call("DELETE", "k"))];
    for change in changes {
        rig.put("k", large(1)).await.expect(200);
        let request = || {
            let request = Request::get("/bucket/k").header("host", "localhost");
            request.body(Empty::<Bytes>::new()).unwrap()
        };
        let (first, second) = (rig.engine.call(request()).await, rig.engine.call(request()).await);
        let mut second = second.into_body();
        let begun = second.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!change(&rig).await.status.to_string().starts_with('4'));
        let answer = Answer::of(first).await;
        assert!(answer.body == large(1), "{} bytes", answer.body.len());
        let rest = second.collect().await.unwrap().to_bytes();
        assert!([begun, rest].concat() == large(1));
    }
    files_become(&rig, 0).await;
}

async fn what_is_overwritten_or_deleted_leaves_no_file(on: On) {
    let rig = Rig::new(on).await;
    let one = usize::from(on == On::Disk);
    for byte in 0..3 {
        rig.put("k", large(byte)).await.expect(200);
        assert_eq!(rig.files().len(), one);
    }
    rig.send("PUT", "k2", &[("x-amz-copy-source", "bucket/k")], "").await.expect(200);
    assert_eq!(rig.files().len(), 2 * one);
    rig.put("k", "small").await.expect(200);
    rig.call("DELETE", "k2").await.expect(204);
    files_become(&rig, 0).await;

    rig.send("PUT", "?versioning", &[], crate::ENABLE).await.expect(200);
    let version = rig.put("k", large(1)).await.header("x-amz-version-id").unwrap();
    rig.put("k", large(2)).await.expect(200);
    rig.call("DELETE", "k").await.expect(204);
    assert_eq!(rig.files().len(), 2 * one);
    rig.call("DELETE", &format!("k?versionId={version}")).await.expect(204);
    assert_eq!(rig.files().len(), one);
}

async fn what_is_refused_leaves_no_file(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "there").await.expect(200);
    let body = large(3);
    for (target, headers, status) in [
        ("k", ("if-none-match", "*"), 412),
        ("k", ("if-match", "\"x\""), 412),
        ("gone", ("if-match", "\"x\""), 404),
        ("k", ("x-amz-checksum-crc32", "AAAAAA=="), 400),
        ("k", ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), 400),
        ("k?partNumber=1&uploadId=none", ("x-amz-meta-a", "b"), 404),
    ] {
        rig.send("PUT", target, &[headers], body.clone()).await.expect(status);
        assert!(rig.files().is_empty(), "{target} {headers:?}");
    }
    assert_eq!(rig.call("GET", "k").await.text(), "there");
}

async fn sizes_around_every_limit_come_back_whole(on: On) {
    let rig = Rig::new(on).await;
    let piece = 256 * 1024;
    for size in
        [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, piece - 1, piece, piece + 1, 3 * piece, 3 * piece + 7]
    {
        let body: Vec<u8> = (0..size).map(|n: usize| (n % 253) as u8).collect();
        rig.put("k", body.clone()).await.expect(200);
        let answer = rig.call("GET", "k").await.expect(200);
        assert!(answer.body == body, "{size} bytes");
        assert_eq!(answer.header("content-length"), Some(size.to_string()));
        if size > 2 {
            let range = format!("bytes={}-{}", size / 2, size - 2);
            let answer = rig.send("GET", "k", &[("range", &range)], "").await.expect(206);
            assert!(answer.body == body[size / 2..size - 1], "{range} of {size} bytes");
        }
    }
}

/// Whoever calls may go at any moment: as often as it is asked, a call is dropped one wake-up later than before,
/// until it comes to its end.
async fn what_is_given_up_leaves_no_file_that_nobody_needs(on: On) {
    let rig = Rig::new(on).await;
    let one = usize::from(on == On::Disk);
    rig.put("k", large(0)).await.expect(200);
    for wakes in 0.. {
        let mut call = std::pin::pin!(rig.put("k", large(wakes as u8)));
        let mut left = wakes;
        let ended = std::future::poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        })
        .await;
        if let Some(answer) = ended {
            answer.expect(200);
            break;
        }
    }
    files_become(&rig, one).await;
    assert_eq!(rig.call("GET", "k").await.expect(200).body.len(), large(0).len());
    rig.call("DELETE", "k").await.expect(204);
    files_become(&rig, 0).await;
}

crate::on_both_stores![
    a_reader_gets_the_old_bytes_whole,
    what_is_given_up_leaves_no_file_that_nobody_needs,
    what_is_overwritten_or_deleted_leaves_no_file,
    what_is_refused_leaves_no_file,
    sizes_around_every_limit_come_back_whole,
];

#[tokio::test]
async fn a_restart_sweeps_what_never_committed_and_keeps_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let open = async || Rig {
        engine: std::sync::Arc::new(settings(&Clock::new()).data(directory.path()).build().await.unwrap()),
        clock: Clock::new(),
        directory: None,
    };
    let rig = open().await;
    rig.put("large", large(1)).await.expect(200);
    rig.put("small", "small").await.expect(200);
    rig.send("PUT", "tagged", &[("x-amz-tagging", "a=b"), ("x-amz-meta-m", "v")], "t").await.expect(200);
    let id = rig.call("POST", "up?uploads").await.expect(200).only("UploadId");
    let part = rig.put(&format!("up?partNumber=1&uploadId={id}"), large(2)).await.expect(200).etag();
    let versions = rig.call("GET", "?versions").await.text();
    drop(rig);

    let kept = files_in(directory.path());
    assert_eq!(kept.len(), 2);
    let orphan = kept[0].with_file_name("00000000deadbeef");
    std::fs::write(&orphan, "half a body").unwrap();

    let rig = open().await;
    assert!(!orphan.exists());
    assert!(rig.call("GET", "large").await.expect(200).body == large(1));
    assert_eq!(rig.call("GET", "small").await.text(), "small");
    let tagged = rig.call("HEAD", "tagged").await.expect(200);
    assert_eq!(tagged.header("x-amz-meta-m").as_deref(), Some("v"));
    assert_eq!(rig.call("GET", "tagged?tagging").await.only("TagSet/Tag/Value"), "b");
    let without_ids = |text: &str| text.split("<Name>").nth(1).unwrap().to_owned();
    assert_eq!(without_ids(&rig.call("GET", "?versions").await.text()), without_ids(&versions));
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>"
    );
    rig.send("POST", &format!("up?uploadId={id}"), &[("if-none-match", "*")], list).await.expect(200);
    assert!(rig.call("GET", "up").await.expect(200).body == large(2));
}
