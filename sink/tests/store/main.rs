//! One body of tests for every store: in memory, and through the SDK the embedded server in memory and on disk.

mod answers;
mod multipart;

use std::sync::Arc;

use assay_server::Server;
use bytes::Bytes;
use sinks::env::Clock;
use sinks::store::{
    Access, Addressing, Condition, ETag, MemoryStore, Object, Outcome, Refusal, S3Settings, S3Store, Store,
};

#[derive(Debug)]
struct Fixed(u64);

impl Clock for Fixed {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

const NOW_MS: u64 = 1_790_000_000_123;

fn settings(server: &Server) -> S3Settings {
    S3Settings::new(Some(server.endpoint().to_owned()), server.region(), "data")
}

fn connect(server: &Server) -> S3Store {
    let access = Access::keys(server.access_key(), server.secret_key(), None);
    S3Store::new(&settings(server), &access).expect("settings of a running server")
}

async fn start() -> Server {
    Server::builder().bucket("data").start().await.expect("the server starts")
}

const REFUSED: Outcome<Option<ETag>> = Outcome::Refused(Refusal::Precondition);

async fn write(
    store: &dyn Store,
    key: &str,
    body: &'static str,
    condition: Condition,
) -> Outcome<Option<ETag>> {
    store.put(key, Bytes::from_static(body.as_bytes()), condition, &[]).await
}

/// The tag of a write that must have worked.
#[track_caller]
fn tag(outcome: Outcome<Option<ETag>>) -> ETag {
    match outcome {
        Outcome::Done(Some(etag)) => etag,
        other => panic!("a write with a tag is wanted, got {other:?}"),
    }
}

async fn read(store: &dyn Store, key: &str) -> Object {
    match store.get(key).await {
        Outcome::Done(object) => object,
        other => panic!("{key}: {other:?}"),
    }
}

async fn conditions(store: &dyn Store) {
    let first = tag(write(store, "c/k", "one", Condition::Absent).await);
    assert_eq!(write(store, "c/k", "two", Condition::Absent).await, REFUSED);
    assert_eq!(write(store, "c/k", "one", Condition::Absent).await, REFUSED);
    let second = tag(write(store, "c/k", "two", Condition::Matches(first.clone())).await);
    assert_ne!(first, second);
    assert_eq!(write(store, "c/k", "three", Condition::Matches(first.clone())).await, REFUSED);
    assert_eq!(write(store, "c/absent", "x", Condition::Matches(first.clone())).await, Outcome::Missing);
    assert_eq!(store.get("c/absent").await, Outcome::Missing);
    assert_eq!(store.head("c/absent").await, Outcome::Missing);
    let object = read(store, "c/k").await;
    assert_eq!((object.bytes, &object.meta.etag), (Bytes::from_static(b"two"), &second));
    // An MD5 in quotes, as AWS has it for bodies of one PUT.
    assert_eq!(second.0, "\"b8a9f715dbb64fd5c56e7783c6820a61\"");
    assert_eq!(store.delete("c/k", Some(first)).await, Outcome::Refused(Refusal::Precondition));
    assert_eq!(store.delete("c/k", Some(second.clone())).await, Outcome::Done(()));
    assert_eq!(store.delete("c/k", Some(second)).await, Outcome::Missing);
    assert_eq!(store.delete("c/k", None).await, Outcome::Done(()));
    tag(write(store, "c/k", "again", Condition::Absent).await);
    tag(write(store, "c/k", "and again", Condition::None).await);
    assert_eq!(read(store, "c/k").await.bytes, "and again");
}

async fn what_is_known_of_an_object(store: &dyn Store) {
    let metadata =
        [("dfs3-nonce".to_owned(), "00ff".to_owned()), ("Dfs3-Kind".to_owned(), "entry".to_owned())];
    let body = Bytes::from(vec![7; 2 << 20]);
    let etag = tag(store.put("m/k", body.clone(), Condition::None, &metadata).await);
    let object = read(store, "m/k").await;
    assert_eq!(object.bytes, body);
    let known = [("dfs3-kind".to_owned(), "entry".to_owned()), ("dfs3-nonce".to_owned(), "00ff".to_owned())];
    assert_eq!(object.metadata, known);
    assert_eq!((object.meta.size, &object.meta.etag), (2 << 20, &etag));
    assert_eq!(
        (object.meta.last_modified_ms, object.store_date_ms),
        (NOW_MS / 1000 * 1000, Some(NOW_MS / 1000 * 1000))
    );
    assert_eq!(store.head("m/k").await, Outcome::Done(object.meta.clone()));
    match store.list("m/", None, 10).await {
        Outcome::Done(page) => assert_eq!(page.objects, [object.meta]),
        other => panic!("{other:?}"),
    }
    tag(store.put("m/empty", Bytes::new(), Condition::Absent, &[]).await);
    assert_eq!(read(store, "m/empty").await.bytes, "");
}

async fn lists(store: &dyn Store) {
    let mut keys = vec!["l/a", "l/a b+c%d&<e", "l/b/", "l/b/ä", "l/c", "l/Z"];
    for key in &keys {
        tag(write(store, key, "x", Condition::None).await);
        assert_eq!(read(store, key).await.bytes, "x", "{key}");
    }
    keys.sort_unstable();
    for limit in [1, 2, 6, 1000] {
        let (mut found, mut token) = (Vec::new(), None);
        loop {
            let Outcome::Done(page) = store.list("l/", token.as_deref(), limit).await else {
                panic!("a page")
            };
            assert!(page.objects.len() <= usize::from(limit));
            found.extend(page.objects.into_iter().map(|object| object.key));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(found, keys, "{limit}");
    }
    assert_eq!(store.list("nothing/", None, 10).await, Outcome::Done(Default::default()));
}

async fn refusals(store: &dyn Store) {
    match write(store, &"k".repeat(1025), "x", Condition::None).await {
        Outcome::Refused(Refusal::Denied { status: 400, code, .. }) => assert_eq!(code, "KeyTooLongError"),
        other => panic!("{other:?}"),
    }
}

async fn races(store: Arc<dyn Store>) {
    let contend = async |condition: Condition, round: usize| {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..16_usize {
            let (store, condition) = (store.clone(), condition.clone());
            writers.spawn(async move {
                let body = Bytes::from(format!("{round} {writer}"));
                (writer, store.put("r/k", body, condition, &[]).await)
            });
        }
        let mut winners = Vec::new();
        while let Some(done) = writers.join_next().await {
            match done.expect("no writer panics") {
                (writer, Outcome::Done(Some(etag))) => winners.push((writer, etag)),
                (_, Outcome::Refused(Refusal::Precondition)) => {}
                (writer, other) => panic!("{writer}: {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "{winners:?}");
        let object = read(store.as_ref(), "r/k").await;
        assert_eq!(object.bytes, format!("{round} {}", winners[0].0));
        assert_eq!(object.meta.etag, winners[0].1);
        object.meta.etag
    };
    let mut etag = contend(Condition::Absent, 0).await;
    for round in 1..4 {
        etag = contend(Condition::Matches(etag), round).await;
    }
}

async fn all(store: Arc<dyn Store>) {
    conditions(store.as_ref()).await;
    what_is_known_of_an_object(store.as_ref()).await;
    lists(store.as_ref()).await;
    refusals(store.as_ref()).await;
    races(store).await;
}

fn fixed() -> assay_server::Instant {
    assay_server::Instant::from_epoch_ms(i64::try_from(NOW_MS).expect("this century"))
}

/// A server whose clock stands: signatures are of today, so it must not look at their dates.
async fn standing_still(builder: assay_server::Builder) -> Server {
    let builder = builder.bucket("data").clock(fixed).auth(assay_server::AuthMode::Any);
    builder.start().await.expect("the server starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory() {
    all(Arc::new(MemoryStore::new(Arc::new(Fixed(NOW_MS))))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_in_memory() {
    let server = standing_still(Server::builder()).await;
    all(Arc::new(connect(&server))).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = standing_still(Server::builder().data(directory.path())).await;
    all(Arc::new(connect(&server))).await;
    server.stop().await;
}

#[tokio::test]
async fn the_bucket_in_the_host() {
    let server =
        Server::builder().bucket("data").domain("localhost").start().await.expect("the server starts");
    let port = server.address().port();
    let settings = S3Settings {
        endpoint: Some(format!("http://localhost:{port}")),
        addressing: Addressing::Virtual,
        pinned: Some(server.address().ip()),
        ..settings(&server)
    };
    let store =
        S3Store::new(&settings, &Access::keys(server.access_key(), server.secret_key(), None)).unwrap();
    tag(write(&store, "k", "x", Condition::Absent).await);
    assert_eq!(read(&store, "k").await.bytes, "x");
    assert!(settings.addresses().await.unwrap().contains(&server.address()));
    server.stop().await;
}
