//! Uploads in parts: one body of tests for memory and our server, then answers that are none.

use std::sync::Arc;

use assay_server::{Deviation, Server};
use bytes::Bytes;
use sinks::store::multipart::{MIN_PART_BYTES, MultipartStore, PartRef, StoredPart, UploadId};
use sinks::store::{
    Access, ETag, MemoryStore, Outcome, Refusal, RepeatedComplete, S3Settings, S3Store, Unanswered,
};

use super::answers::parrot;
use super::{Fixed, NOW_MS, connect, fixed, read};

async fn part(
    store: &dyn MultipartStore,
    key: &str,
    upload: &UploadId,
    number: u16,
    bytes: &Bytes,
) -> PartRef {
    match store.upload_part(key, upload, number, bytes.clone()).await {
        Outcome::Done(etag) => PartRef { number, etag },
        other => panic!("{other:?}"),
    }
}

async fn begin(store: &dyn MultipartStore, key: &str) -> UploadId {
    let metadata = [("Dfs3-Commit".to_owned(), "00ff".to_owned())];
    match store.create_upload(key, &metadata).await {
        Outcome::Done(upload) => upload,
        other => panic!("{other:?}"),
    }
}

fn code<T: std::fmt::Debug>(outcome: Outcome<T>) -> String {
    match outcome {
        Outcome::Refused(Refusal::Denied { status: 400, code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

/// An upload's whole life.
async fn life(store: &dyn MultipartStore, repeated: RepeatedComplete) {
    let (big, small) = (Bytes::from(vec![b'a'; MIN_PART_BYTES]), Bytes::from_static(b"tail"));
    let upload = begin(store, "u/k").await;
    let wrong = part(store, "u/k", &upload, 2, &Bytes::from_static(b"replaced")).await;
    let second = part(store, "u/k", &upload, 2, &small).await;
    let first = part(store, "u/k", &upload, 1, &big).await;
    assert_ne!(wrong.etag, second.etag);
    let stored = |part: &PartRef, size| StoredPart { number: part.number, etag: part.etag.clone(), size };
    let both = [stored(&first, 5 << 20), stored(&second, 4)];
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let Outcome::Done(page) = store.list_parts("u/k", &upload, after, 1).await else { panic!("a page") };
        found.extend(page.parts);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, both);
    assert_eq!(store.describe("u/k").await, Outcome::Missing, "staged is invisible");
    let complete = |parts: Vec<PartRef>| {
        let upload = upload.clone();
        async move { store.complete("u/k", &upload, &parts).await }
    };
    assert_eq!(code(complete(vec![second.clone(), first.clone()]).await), "InvalidPartOrder");
    assert_eq!(code(complete(vec![first.clone(), wrong]).await), "InvalidPart");
    assert_eq!(
        code(complete(vec![second.clone(), PartRef { number: 3, ..second.clone() }]).await),
        "InvalidPart"
    );
    let tag = ETag("\"30dcfd3901d1c613b7fb532281748544-2\"".to_owned());
    let list = vec![first, second];
    assert_eq!(complete(list.clone()).await, Outcome::Done(tag.clone()));
    let again = match repeated {
        RepeatedComplete::SameAnswer => Outcome::Done(tag.clone()),
        RepeatedComplete::NoSuchUpload => Outcome::Missing,
    };
    assert_eq!(complete(list).await, again);
    let Outcome::Done(described) = store.describe("u/k").await else { panic!("it is there") };
    assert_eq!((&described.meta.etag, described.meta.size), (&tag, (5 << 20) + 4));
    assert_eq!((described.metadata("dfs3-commit"), described.metadata("other")), (Some("00ff"), None));
    assert_eq!(read(store, "u/k").await.bytes, [&big[..], &small[..]].concat());
}

async fn small_parts_and_gone_uploads(store: &dyn MultipartStore) {
    let upload = begin(store, "u/small").await;
    let mut parts = Vec::new();
    for number in 1..=2 {
        parts.push(part(store, "u/small", &upload, number, &Bytes::from_static(b"small")).await);
    }
    assert_eq!(code(store.complete("u/small", &upload, &parts).await), "EntityTooSmall");
    assert_eq!(store.complete("u/other", &upload, &parts).await, Outcome::Missing);
    assert_eq!(store.abort("u/small", &upload).await, Outcome::Done(()));
    assert_eq!(store.abort("u/small", &upload).await, Outcome::Done(()), "of one that is gone, done");
    assert_eq!(store.complete("u/small", &upload, &parts).await, Outcome::Missing);
    assert_eq!(store.list_parts("u/small", &upload, None, 10).await, Outcome::Missing);
    let late = store.upload_part("u/small", &upload, 1, Bytes::from_static(b"late")).await;
    assert_eq!(late, Outcome::Missing);
}

async fn lists_of_uploads(store: &dyn MultipartStore) {
    let mut open = Vec::new();
    for key in ["l/a", "l/b c", "l/a", "m"] {
        open.push((key.to_owned(), begin(store, key).await));
    }
    for limit in [1, 2, 1000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let Outcome::Done(page) = store.list_uploads(after.as_ref(), limit).await else {
                panic!("a page")
            };
            assert!(page.uploads.len() <= usize::from(limit));
            for upload in page.uploads {
                assert!(upload.initiated_ms.is_some_and(|ms| ms / 1000 == NOW_MS / 1000), "{upload:?}");
                found.push((upload.key, upload.upload));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let (mut found, mut expected) = (found, open.clone());
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{limit}");
    }
    for (key, upload) in open {
        assert_eq!(store.abort(&key, &upload).await, Outcome::Done(()));
    }
    assert_eq!(store.list_uploads(None, 10).await, Outcome::Done(Default::default()));
}

async fn all(store: Arc<dyn MultipartStore>, repeated: RepeatedComplete) {
    life(store.as_ref(), repeated).await;
    small_parts_and_gone_uploads(store.as_ref()).await;
    lists_of_uploads(store.as_ref()).await;
}

#[tokio::test]
async fn uploads_in_memory() {
    for repeated in [RepeatedComplete::SameAnswer, RepeatedComplete::NoSuchUpload] {
        all(Arc::new(MemoryStore::new(Arc::new(Fixed(NOW_MS))).repeating(repeated)), repeated).await;
    }
}

#[tokio::test]
async fn uploads_to_the_server() {
    for (deviation, repeated) in [
        (None, RepeatedComplete::SameAnswer),
        (Some(Deviation::RepeatedCompleteNoSuchUpload), RepeatedComplete::NoSuchUpload),
    ] {
        let builder = Server::builder().bucket("data").clock(fixed).auth(assay_server::AuthMode::Any);
        let builder = match deviation {
            Some(deviation) => builder.deviation(deviation),
            None => builder,
        };
        let server = builder.start().await.expect("the server starts");
        all(Arc::new(connect(&server)), repeated).await;
        server.stop().await;
    }
}

/// What a Complete may be answered with that is no result, though its status is 200.
#[tokio::test]
async fn a_complete_whose_200_is_no_result_is_unknown() {
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 46\r\n\r\n<Error><Code>InternalError</Code></Error>     ",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n<CompleteMultipartUploadResult><ETag>\"e-1\"</ETag>",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n<CompleteMultipartUploadResult>\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 63\r\n\r\n\
         <CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
        "HTTP/1.1 200 OK\r\ncontent-length: 27\r\n\r\n<html>please log in</html>\n",
    ];
    let parts = [PartRef { number: 1, etag: ETag("\"e\"".to_owned()) }];
    for answer in answers {
        let endpoint = format!("http://{}", parrot(answer).await);
        let settings = S3Settings::new(Some(endpoint), "us-east-1", "data");
        let settings = S3Settings { request_timeout_ms: 500, ..settings };
        let store = S3Store::new(&settings, &Access::keys("a", "b", None)).unwrap();
        let upload = UploadId("u".to_owned());
        let outcome = store.complete("k", &upload, &parts).await;
        assert!(matches!(outcome, Outcome::Unknown(Unanswered { .. })), "{answer}: {outcome:?}");
        let part = store.upload_part("k", &upload, 1, Bytes::from_static(b"x")).await;
        assert!(matches!(part, Outcome::Unknown(_)), "{answer}: {part:?}");
        let created = store.create_upload("k", &[]).await;
        assert!(matches!(created, Outcome::Unknown(_)), "{answer}: {created:?}");
    }
}
