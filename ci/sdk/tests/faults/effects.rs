//! Every effect as one request of the AWS SDK for Rust meets it, retries off. The table is the guide's table: what
//! the last column says is put together from what happened, and compared with the row.

use std::time::Duration;

use assay_server::{Outage, Record, Rule, Server};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    BucketVersioningStatus, CompletedMultipartUpload, CompletedPart, VersioningConfiguration,
};
use tokio::time::Instant;

/// One effect: in words, as a rule, and what a client sees.
pub struct Row {
    pub effect: &'static str,
    pub rule: &'static str,
    pub sees: &'static str,
}

const fn row(effect: &'static str, rule: &'static str, sees: &'static str) -> Row {
    Row { effect, rule, sees }
}

/// How long the client of the rows waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Rows that are tried at one time: what a client waits for is not to wait for all the others.
const AT_ONCE: usize = 4;

/// Bytes of the object that every row writes or reads.
const SIZE: usize = 10_000;

pub const EFFECTS: &[Row] = &[
    // before the commit
    row("answer delayed", "operation=PutObject effect=delay ms=1000", "200, a second later; stored"),
    row(
        "held until it is lifted",
        "operation=PutObject effect=delay until=lifted",
        "no answer in 3 s; not stored, then stored",
    ),
    row(
        "refused, told when to come back",
        "operation=PutObject effect=refuse code=SlowDown retry-after=7",
        "503 SlowDown, retry-after 7; not stored",
    ),
    row(
        "refused for an error inside",
        "operation=PutObject effect=refuse code=InternalError",
        "500 InternalError; not stored",
    ),
    row(
        "refused for a conflict",
        "operation=PutObject effect=refuse code=ConditionalRequestConflict",
        "409 ConditionalRequestConflict; not stored",
    ),
    row(
        "refused for a wrong clock",
        "operation=PutObject effect=refuse code=RequestTimeTooSkewed",
        "403 RequestTimeTooSkewed; not stored",
    ),
    row(
        "refused for too many requests",
        "operation=PutObject effect=refuse code=TooManyRequests",
        "429 TooManyRequests; not stored",
    ),
    row("connection dropped", "operation=PutObject effect=drop", "connection lost; not stored"),
    row("never answered", "operation=PutObject effect=freeze", "no answer in 3 s; not stored"),
    row(
        "body read slowly",
        "operation=PutObject effect=slow-body bytes-per-s=10000",
        "200, a second later; stored",
    ),
    row(
        "body not read to its end",
        "operation=PutObject effect=stop-reading at=1000",
        "no answer in 3 s; not stored",
    ),
    // after the commit
    row("applied, connection reset", "operation=PutObject effect=lose-answer", "connection lost; stored"),
    row(
        "applied, answer never sent",
        "operation=PutObject effect=lose-answer how=never",
        "no answer in 3 s; stored",
    ),
    row(
        "applied, answered 500",
        "operation=PutObject effect=fail-after code=InternalError",
        "500 InternalError; stored",
    ),
    row(
        "applied after the client gave up",
        "operation=PutObject effect=late until=lifted",
        "no answer in 3 s; not stored, then stored",
    ),
    row("applied twice", "operation=PutObject effect=twice", "200; stored twice"),
    row("acknowledged, but lost", "operation=PutObject effect=forget", "200; not stored"),
    row("answered with a wrong ETag", "operation=PutObject effect=wrong-etag", "200, not the ETag; stored"),
    row(
        "Complete: 200 with an error document",
        "operation=CompleteMultipartUpload effect=error-document code=InternalError",
        "200 InternalError; stored",
    ),
    row(
        "Copy: 200 with an error document",
        "operation=CopyObject effect=error-document code=SlowDown",
        "200 SlowDown; stored",
    ),
    row(
        "Complete: landed, NoSuchUpload",
        "operation=CompleteMultipartUpload effect=fail-after code=NoSuchUpload",
        "404 NoSuchUpload; stored",
    ),
    // reads
    row(
        "first byte delayed",
        "operation=GetObject effect=first-byte ms=1000",
        "200; 10000 bytes, a second later",
    ),
    row(
        "bandwidth limited",
        "operation=GetObject effect=bandwidth bytes-per-s=10000",
        "200; 10000 bytes, a second later",
    ),
    row("cut at a byte", "operation=GetObject effect=cut at=1000", "200; 1000 bytes, then connection lost"),
    row("a wrong byte", "operation=GetObject effect=corrupt", "200; checksum does not match"),
    row("stale object", "operation=GetObject effect=stale", "200; the bytes of before"),
    row("stale list", "operation=ListObjectsV2 effect=stale", "keys a b c"),
    row("newest key left out", "operation=ListObjectsV2 effect=omit-newest", "keys a b c"),
    row("a key twice", "operation=ListObjectsV2 effect=repeat-key", "keys a b c d d"),
    row("truncated without a token", "operation=ListObjectsV2 effect=truncate", "keys a b, more, no token"),
];

/// Outages and the clock, which are no rules but states of the server.
pub const STATES: &[Row] = &[
    row("connections refused", "outage(Outage::Refuse)", "connection lost; not stored"),
    row("hangs", "outage(Outage::Hang)", "no answer in 3 s; not stored"),
    row("503 for everything", "outage(Outage::Unavailable)", "503 ServiceUnavailable; not stored"),
    row("clock an hour fast", "set_clock_offset_ms(3600000)", "403 RequestTimeTooSkewed; not stored"),
];

fn body(fill: u8) -> ByteStream {
    ByteStream::from(vec![fill; SIZE])
}

/// A client that sends each request once.
fn once(server: &Server) -> Client {
    let timeouts = TimeoutConfig::builder().operation_timeout(PATIENCE).build();
    let config = assay_sdk::defaults(server).retry_config(RetryConfig::disabled()).timeout_config(timeouts);
    Client::from_conf(config.build())
}

/// What a row says of an answer that takes a second.
const LATER: &str = ", a second later";

/// That, where the row says it and it took so long. Of the others a slow machine makes no other rows.
fn later(row: &Row, began: Instant) -> &'static str {
    if row.sees.contains(LATER) && began.elapsed() >= Duration::from_millis(950) { LATER } else { "" }
}

/// An answer in words.
fn told<T, E>(answer: &Result<T, SdkError<E>>) -> String
where
    E: ProvideErrorMetadata,
{
    match answer {
        Ok(_) => "200".to_owned(),
        Err(SdkError::ServiceError(error)) => {
            let (status, headers) = (error.raw().status().as_u16(), error.raw().headers());
            let wait = headers.get("retry-after").map_or_else(String::new, |s| format!(", retry-after {s}"));
            format!("{status} {}{wait}", error.err().code().unwrap_or_default())
        }
        Err(SdkError::TimeoutError(_)) => "no answer in 3 s".to_owned(),
        Err(SdkError::DispatchFailure(_)) => "connection lost".to_owned(),
        Err(_) => "an answer that is none".to_owned(),
    }
}

/// How often the key is there, asked of the healed server.
async fn stored(s3: &Client, key: &str) -> &'static str {
    let versions = s3.list_object_versions().bucket("data").prefix(key).send().await.unwrap();
    match versions.versions().len() {
        0 => "not stored",
        1 => "stored",
        _ => "stored twice",
    }
}

/// A server whose one bucket keeps every version, and a client of it that has time, for all but the row's request.
async fn start() -> (Server, Client) {
    let server = Server::builder().bucket("data").start().await.unwrap();
    let s3 = assay_sdk::client(&server);
    let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    s3.put_bucket_versioning().bucket("data").versioning_configuration(enabled).send().await.unwrap();
    (server, s3)
}

async fn put(s3: &Client, row: &Row) -> String {
    let began = Instant::now();
    let answer = s3.put_object().bucket("data").key("k").body(body(b'n')).send().await;
    // The MD5 of those bytes, from another program.
    let md5 = "\"6108737b37d84b719c2ad0cbaa703b9f\"";
    let lies = answer.as_ref().is_ok_and(|put| put.e_tag() != Some(md5));
    let etag = if lies { ", not the ETag" } else { "" };
    format!("{}{etag}{}", told(&answer), if answer.is_ok() { later(row, began) } else { "" })
}

/// One write under a rule: what is answered, and what is there then.
async fn write(operation: &str, row: &Row) -> String {
    let (server, s3) = start().await;
    let once = once(&server);
    let before = server.journal().last();
    let set = || server.fault(row.rule.parse().unwrap()).unwrap();
    let (fault, answer) = match operation {
        "PutObject" => (set(), put(&once, row).await),
        "CopyObject" => {
            s3.put_object().bucket("data").key("source").body(body(b'n')).send().await.unwrap();
            let copy = once.copy_object().bucket("data").key("k").copy_source("data/source");
            (set(), told(&copy.send().await))
        }
        _ => {
            let upload = s3.create_multipart_upload().bucket("data").key("k").send().await.unwrap();
            let id = upload.upload_id.unwrap();
            let part = s3.upload_part().bucket("data").key("k").upload_id(&id).part_number(1);
            let etag = part.body(body(b'n')).send().await.unwrap().e_tag.unwrap();
            let part = CompletedPart::builder().part_number(1).e_tag(etag).build();
            let parts = CompletedMultipartUpload::builder().parts(part).build();
            let complete = once.complete_multipart_upload().bucket("data").key("k").upload_id(id);
            (set(), told(&complete.multipart_upload(parts).send().await))
        }
    };
    if !row.rule.contains("until=lifted") {
        drop(fault);
        return format!("{answer}; {}", stored(&s3, "k").await);
    }
    let held = stored(&s3, "k").await;
    drop(fault);
    let landed = |record: &Record| record.operation == Some("PutObject");
    server.journal().wait_for(before, Duration::from_secs(30), landed).await.unwrap();
    format!("{answer}; {held}, then {}", stored(&s3, "k").await)
}

/// One read of an object that was replaced after the rule was set.
async fn read(row: &Row) -> String {
    let (server, s3) = start().await;
    s3.put_object().bucket("data").key("k").body(body(b'o')).send().await.unwrap();
    let _fault = server.fault(row.rule.parse().unwrap()).unwrap();
    s3.put_object().bucket("data").key("k").body(body(b'n')).send().await.unwrap();
    let once = once(&server);
    let began = Instant::now();
    let answer = once.get_object().bucket("data").key("k").send().await;
    let status = told(&answer);
    let mut bytes = Vec::new();
    let mut ending = None;
    let mut object = answer.unwrap().body;
    while let Some(next) = object.next().await {
        match next {
            Ok(next) => bytes.extend_from_slice(&next),
            Err(error) if format!("{error:?}").contains("ChecksumMismatch") => {
                return format!("{status}; checksum does not match");
            }
            Err(_) => {
                ending = Some(", then connection lost");
                break;
            }
        }
    }
    if bytes.first() == Some(&b'o') {
        return format!("{status}; the bytes of before");
    }
    format!("{status}; {} bytes{}", bytes.len(), ending.unwrap_or_else(|| later(row, began)))
}

/// A list of four keys, of which `b` was written last before the rule was set and `d` after it.
async fn list(row: &Row) -> String {
    let (server, s3) = start().await;
    let put = async |key| s3.put_object().bucket("data").key(key).body(body(b'n')).send().await.unwrap();
    for key in ["c", "a", "b"] {
        put(key).await;
    }
    let _fault = server.fault(row.rule.parse().unwrap()).unwrap();
    put("d").await;
    let page = s3.list_objects_v2().bucket("data").send().await.unwrap();
    let keys: Vec<_> = page.contents().iter().filter_map(|object| object.key()).collect();
    let more = if page.is_truncated() == Some(true) { ", more" } else { "" };
    let token = if !more.is_empty() && page.next_continuation_token().is_none() { ", no token" } else { "" };
    format!("keys {}{more}{token}", keys.join(" "))
}

async fn check(row: &'static Row) {
    let rule: Rule = row.rule.parse().unwrap();
    let operation = row.rule.split_whitespace().next().unwrap().strip_prefix("operation=").unwrap();
    let saw = match operation {
        "GetObject" => read(row).await,
        "ListObjectsV2" => list(row).await,
        _ => write(operation, row).await,
    };
    assert_eq!(saw, row.sees, "{rule}");
}

#[tokio::test]
async fn what_a_client_sees_of_each_effect() {
    let mut wrong = 0;
    for rows in EFFECTS.chunks(AT_ONCE) {
        for row in rows.iter().map(|row| tokio::spawn(check(row))).collect::<Vec<_>>() {
            wrong += usize::from(row.await.is_err());
        }
    }
    assert_eq!(wrong, 0, "rows that are not as the table has them");
}

#[tokio::test]
async fn what_a_client_sees_of_each_state() {
    for row in STATES {
        let (server, s3) = start().await;
        let outage = match row.rule {
            "outage(Outage::Refuse)" => Some(Outage::Refuse),
            "outage(Outage::Hang)" => Some(Outage::Hang),
            "outage(Outage::Unavailable)" => Some(Outage::Unavailable),
            _ => None,
        };
        let guard = outage.map(|outage| server.outage(outage));
        if guard.is_none() {
            server.set_clock_offset_ms(3_600_000);
        }
        let answer = put(&once(&server), row).await;
        drop(guard);
        server.set_clock_offset_ms(0);
        // It tries again: after an outage the server listens again within a moment.
        let there = stored(&s3, "k").await;
        assert_eq!(format!("{answer}; {there}"), row.sees, "{}", row.rule);
    }
}
