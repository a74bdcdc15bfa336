//! The situations of server/docs/faults.md in Rust; the page shows each function as it stands here.

use std::error::Error;
use std::time::Duration;

use assay_sdk::{client, defaults};
use assay_server::{FaultGuard, Record, Server};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::put_object::{PutObjectError, PutObjectOutput};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    BucketVersioningStatus, CompletedMultipartUpload, CompletedPart, VersioningConfiguration,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

async fn start() -> Outcome<(Server, Client)> {
    let server = Server::builder().bucket("data").start().await?;
    let s3 = client(&server);
    Ok((server, s3))
}

fn code<T, E: ProvideErrorMetadata>(answer: &Result<T, E>) -> &str {
    answer.as_ref().err().map_or("none", |error| error.code().unwrap_or("no answer"))
}

async fn hit(fault: &FaultGuard) {
    while fault.status().is_some_and(|fault| fault.fired == 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn read(s3: &Client, key: &str) -> Outcome<String> {
    let object = s3.get_object().bucket("data").key(key).send().await?;
    Ok(String::from_utf8(object.body.collect().await?.to_vec())?)
}

async fn put(s3: &Client, key: &str, body: &'static str) -> Outcome {
    s3.put_object().bucket("data").key(key).body(ByteStream::from_static(body.as_bytes())).send().await?;
    Ok(())
}

async fn lock(s3: &Client, owner: &'static str) -> Result<PutObjectOutput, SdkError<PutObjectError>> {
    let create = s3.put_object().bucket("data").key("lock").if_none_match("*");
    create.body(ByteStream::from_static(owner.as_bytes())).send().await
}

fn impatient(server: &Server, patience: Duration) -> Client {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(patience).build();
    Client::from_conf(defaults(server).timeout_config(timeouts).build())
}

async fn upload(s3: &Client, key: &str, parts: u8) -> Outcome<(String, CompletedMultipartUpload)> {
    let id = s3.create_multipart_upload().bucket("data").key(key).send().await?.upload_id.unwrap();
    let mut done = CompletedMultipartUpload::builder();
    for number in 1..=parts {
        let body = ByteStream::from(vec![b'a' + number; 5 * 1024 * 1024]);
        let part = s3.upload_part().bucket("data").key(key).upload_id(&id).part_number(number.into());
        let etag = part.body(body).send().await?.e_tag.unwrap();
        done = done.parts(CompletedPart::builder().part_number(number.into()).e_tag(etag).build());
    }
    Ok((id, done.build()))
}

#[tokio::test]
async fn applied_then_lost() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject condition=If-None-Match nth=1 effect=lose-answer";
    let _fault = server.fault(rule.parse()?)?;
    assert_eq!(code(&lock(&s3, "owner=me").await), "PreconditionFailed"); // the retry met the first attempt's object
    assert_eq!(read(&s3, "lock").await?, "owner=me"); // so the name in it decides, not the 412
    assert_eq!(server.journal().count(|request| request.operation == Some("PutObject")), 2);
    Ok(())
}

#[tokio::test]
async fn applied_late() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject condition=If-None-Match effect=late until=lifted";
    let fault = server.fault(rule.parse()?)?;
    let created = lock(&impatient(&server, Duration::from_secs(1)), "owner=me").await;
    assert_eq!(code(&created), "no answer"); // each of three attempts took too long
    assert!(read(&s3, "lock").await.is_err()); // and nothing is there, yet
    drop(fault); // now they land, and the first of them wins
    let landed = |request: &Record| request.status == Some(200);
    server.journal().wait_for(0, Duration::from_secs(20), landed).await?;
    assert_eq!(read(&s3, "lock").await?, "owner=me"); // absence was no proof
    Ok(())
}

#[tokio::test]
async fn not_applied() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject condition=If-None-Match effect=drop";
    let fault = server.fault(rule.parse()?)?;
    assert_eq!(code(&lock(&s3, "owner=me").await), "no answer"); // as if it were applied and lost
    assert_eq!(fault.status().map(|fault| fault.fired), Some(3)); // three attempts by default
    drop(fault);
    assert_eq!(code(&lock(&s3, "owner=me").await), "none"); // nobody holds the lock: it is created now
    Ok(())
}

#[tokio::test]
async fn second_racer_gets_409() -> Outcome {
    let (server, s3) = start().await?;
    let slow = "condition=If-None-Match nth=1 effect=delay until=lifted";
    let rule = "contended=true effect=refuse code=ConditionalRequestConflict";
    let (slow, _conflict) = (server.fault(slow.parse()?)?, server.fault(rule.parse()?)?);
    let second = async {
        hit(&slow).await; // the first is under way, and not done
        let second = lock(&s3, "owner=second").await;
        drop(slow);
        second
    };
    let (first, second) = tokio::join!(lock(&s3, "owner=first"), second);
    assert_eq!(code(&second), "ConditionalRequestConflict"); // which says nothing about who holds the lock
    assert_eq!(code(&first), "none");
    Ok(())
}

#[tokio::test]
async fn lock_lost_to_a_racing_vendor() -> Outcome {
    let rule = "race-create-put=4000"; // a deviation: it lasts
    let server = Server::builder().bucket("data").deviation(rule.parse()?).start().await?;
    let s3 = client(&server);
    let (first, second) = tokio::join!(lock(&s3, "owner=first"), lock(&s3, "owner=second"));
    assert_eq!((code(&first), code(&second)), ("none", "none")); // each was told that the lock is its own
    let owner = read(&s3, "lock").await?; // and one of them is not in it
    assert!(["owner=first", "owner=second"].contains(&owner.as_str()), "{owner}");
    Ok(())
}

#[tokio::test]
async fn outage_while_recovering() -> Outcome {
    let (server, s3) = start().await?;
    put(&s3, "log/1", "one").await?;
    let rule = "effect=refuse code=ServiceUnavailable";
    let outage = server.fault(rule.parse()?)?;
    let list = s3.list_objects_v2().bucket("data").prefix("log/");
    assert_eq!(code(&list.clone().send().await), "ServiceUnavailable"); // and that is not an empty log
    drop(outage);
    assert_eq!(list.send().await?.key_count(), Some(1));
    Ok(())
}

#[tokio::test]
async fn slow_down_burst() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject first=2 effect=refuse code=SlowDown retry-after=1";
    let fault = server.fault(rule.parse()?)?;
    put(&s3, "report", "v").await?; // the third attempt
    assert_eq!(fault.status().map(|fault| (fault.seen, fault.fired)), Some((3, 2)));
    Ok(())
}

#[tokio::test]
async fn conflict_on_create() -> Outcome {
    let (server, s3) = start().await?;
    let rule =
        "operation=PutObject condition=If-None-Match nth=1 effect=refuse code=ConditionalRequestConflict";
    let _fault = server.fault(rule.parse()?)?;
    assert_eq!(code(&lock(&s3, "owner=me").await), "ConditionalRequestConflict"); // not retried for you
    assert_eq!(code(&lock(&s3, "owner=me").await), "none"); // nobody held the lock
    Ok(())
}

#[tokio::test]
async fn complete_says_200_and_fails() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=CompleteMultipartUpload nth=1 effect=error-document code=InternalError";
    let fault = server.fault(rule.parse()?)?;
    let (id, parts) = upload(&s3, "big", 1).await?;
    let complete = s3.complete_multipart_upload().bucket("data").key("big").upload_id(id);
    complete.multipart_upload(parts).send().await?; // the SDK read the document and repeated the call
    assert_eq!(fault.status().map(|fault| (fault.seen, fault.fired)), Some((2, 1)));
    Ok(())
}

#[tokio::test]
async fn no_such_upload_though_it_landed() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=CompleteMultipartUpload effect=fail-after code=NoSuchUpload";
    let _fault = server.fault(rule.parse()?)?;
    let (id, parts) = upload(&s3, "big", 2).await?;
    let complete = s3.complete_multipart_upload().bucket("data").key("big").upload_id(id);
    assert_eq!(code(&complete.multipart_upload(parts).send().await), "NoSuchUpload");
    let head = s3.head_object().bucket("data").key("big").send().await?; // the object tells what became of it
    assert_eq!(head.content_length(), Some(10 * 1024 * 1024));
    assert!(head.e_tag().is_some_and(|etag| etag.ends_with("-2\"")));
    Ok(())
}

#[tokio::test]
async fn stale_list_after_write() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=ListObjectsV2 first=1 effect=stale";
    let _fault = server.fault(rule.parse()?)?; // what was there now is what the list shows
    put(&s3, "log/1", "one").await?;
    let list = s3.list_objects_v2().bucket("data").prefix("log/");
    assert_eq!(list.clone().send().await?.key_count(), Some(0));
    assert_eq!(read(&s3, "log/1").await?, "one"); // by its name it is there
    assert_eq!(list.send().await?.key_count(), Some(1));
    Ok(())
}

#[tokio::test]
async fn list_without_the_newest_key() -> Outcome {
    let (server, s3) = start().await?;
    for key in ["log/1", "log/3", "log/2"] {
        put(&s3, key, "entry").await?;
    }
    let rule = "operation=ListObjectsV2 effect=omit-newest";
    let _fault = server.fault(rule.parse()?)?;
    let list = s3.list_objects_v2().bucket("data").prefix("log/").send().await?;
    let keys: Vec<_> = list.contents().iter().filter_map(|object| object.key()).collect();
    assert_eq!(keys, ["log/1", "log/3"]); // a gap, where the last key written is not the last in order
    Ok(())
}

#[tokio::test]
async fn truncated_list_without_a_token() -> Outcome {
    let (server, s3) = start().await?;
    for key in ["log/1", "log/2", "log/3", "log/4"] {
        put(&s3, key, "entry").await?;
    }
    let rule = "operation=ListObjectsV2 nth=1 effect=truncate";
    let _fault = server.fault(rule.parse()?)?;
    let list = s3.list_objects_v2().bucket("data").prefix("log/");
    let first = list.clone().send().await?;
    assert_eq!((first.is_truncated(), first.next_continuation_token()), (Some(true), None));
    let last = first.contents().last().and_then(|object| object.key()).unwrap_or_default();
    let rest = list.start_after(last).send().await?; // the way on that needs no token
    assert_eq!((first.contents().len(), rest.contents().len()), (2, 2));
    Ok(())
}

#[tokio::test]
async fn slow_first_byte() -> Outcome {
    let (server, s3) = start().await?;
    put(&s3, "report", "v").await?;
    let rule = "operation=GetObject nth=1 effect=first-byte ms=60000";
    let _fault = server.fault(rule.parse()?)?;
    let slow = s3.get_object().bucket("data").key("report").send().await?; // 200
    let patience = Duration::from_millis(300);
    assert!(tokio::time::timeout(patience, slow.body.collect()).await.is_err()); // and then nothing
    assert_eq!(read(&s3, "report").await?, "v"); // a second request beats waiting for the first
    Ok(())
}

#[tokio::test]
async fn stalled_upload() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject nth=1 effect=stop-reading at=1000";
    let _fault = server.fault(rule.parse()?)?;
    let put = impatient(&server, Duration::from_secs(2)).put_object().bucket("data").key("report");
    put.body(ByteStream::from(vec![b'r'; 100_000])).send().await?; // the second attempt
    assert_eq!(read(&s3, "report").await?.len(), 100_000);
    Ok(())
}

#[tokio::test]
async fn cut_download_and_range_resume() -> Outcome {
    let (server, s3) = start().await?;
    put(&s3, "report", "first half, second half").await?;
    let rule = "operation=GetObject nth=1 effect=cut at=12";
    let _fault = server.fault(rule.parse()?)?;
    let mut object = s3.get_object().bucket("data").key("report").send().await?;
    let mut got = Vec::new();
    while let Some(Ok(bytes)) = object.body.next().await {
        got.extend_from_slice(&bytes);
    }
    assert_eq!(got, b"first half, ");
    let rest = s3.get_object().bucket("data").key("report").range(format!("bytes={}-", got.len()));
    let rest = rest.if_match(object.e_tag.unwrap_or_default()).send().await?; // of the same object
    got.extend_from_slice(&rest.body.collect().await?.into_bytes());
    assert_eq!(got, b"first half, second half");
    Ok(())
}

#[tokio::test]
async fn corrupt_bytes() -> Outcome {
    let (server, s3) = start().await?;
    put(&s3, "report", "precious").await?; // the SDK sends a CRC of it
    let rule = "operation=GetObject nth=1 effect=corrupt";
    let _fault = server.fault(rule.parse()?)?;
    let wrong = read(&s3, "report").await.unwrap_err(); // and checks it when reading
    assert!(format!("{wrong:?}").contains("ChecksumMismatch"), "{wrong:?}");
    assert_eq!(read(&s3, "report").await?, "precious");
    Ok(())
}

#[tokio::test]
async fn clock_skew() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject effect=refuse code=RequestTimeTooSkewed";
    let fault = server.fault(rule.parse()?)?;
    let refused = s3.put_object().bucket("data").key("report").send().await;
    assert_eq!(code(&refused), "RequestTimeTooSkewed");
    drop(fault);
    server.set_clock_offset_ms(3_600_000); // now the server's clock is an hour ahead in earnest
    put(&s3, "report", "v").await?; // refused once; then the SDK signs with the time of that answer
    let writes = server.journal().filter(|request| request.operation.is_some_and(|name| name == "PutObject"));
    assert_eq!(writes.len(), 2);
    Ok(())
}

#[tokio::test]
async fn late_write_over_a_newer_one() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject nth=1 effect=late until=lifted";
    let fault = server.fault(rule.parse()?)?;
    put(&impatient(&server, Duration::from_secs(1)), "config", "old").await?; // by its second attempt
    put(&s3, "config", "new").await?;
    drop(fault); // now the first one lands
    let landed = |request: &Record| !request.faults.is_empty();
    server.journal().wait_for(0, Duration::from_secs(20), landed).await?;
    assert_eq!(read(&s3, "config").await?, "old"); // If-Match on every write would have refused it
    Ok(())
}

#[tokio::test]
async fn acknowledged_but_lost() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=PutObject nth=1 effect=forget";
    let _fault = server.fault(rule.parse()?)?;
    put(&s3, "report", "v").await?; // 200 and an ETag
    let head = s3.head_object().bucket("data").key("report").send().await;
    assert_eq!(code(&head), "NotFound"); // so what must not be lost is read back
    Ok(())
}

#[tokio::test]
async fn duplicate_delivery() -> Outcome {
    let (server, s3) = start().await?;
    let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    s3.put_bucket_versioning().bucket("data").versioning_configuration(enabled).send().await?;
    let rule = "operation=PutObject nth=1 effect=twice";
    let _fault = server.fault(rule.parse()?)?;
    put(&s3, "event", "v").await?;
    let versions = s3.list_object_versions().bucket("data").send().await?;
    assert_eq!(versions.versions().len(), 2); // one request by the client's count
    Ok(())
}

#[tokio::test]
async fn one_client_only() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "user-agent=*app/worker-2* effect=refuse code=AccessDenied";
    let _fault = server.fault(rule.parse()?)?;
    let name = aws_sdk_s3::config::AppName::new("worker-2")?;
    let worker_2 = Client::from_conf(defaults(&server).app_name(name).build());
    let refused = worker_2.put_object().bucket("data").key("report").send().await;
    assert_eq!(code(&refused), "AccessDenied");
    put(&s3, "report", "v").await?; // everyone else goes on
    Ok(())
}

#[tokio::test]
async fn one_part_of_an_upload_fails() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "operation=UploadPart part-number=2 nth=1 effect=refuse code=InternalError";
    let fault = server.fault(rule.parse()?)?;
    let (id, parts) = upload(&s3, "big", 2).await?; // part 2 is sent twice
    assert_eq!(fault.status().map(|fault| (fault.seen, fault.fired)), Some((2, 1)));
    let complete = s3.complete_multipart_upload().bucket("data").key("big").upload_id(id);
    assert_eq!(code(&complete.multipart_upload(parts).send().await), "none");
    Ok(())
}

#[tokio::test]
async fn outage_for_a_time() -> Outcome {
    let (server, s3) = start().await?;
    let rule = "ttl-ms=1000 effect=refuse code=ServiceUnavailable";
    let _fault = server.fault(rule.parse()?)?;
    let mut failed = 0;
    while put(&s3, "report", "v").await.is_err() {
        failed += 1; // three attempts each, with pauses in between
    }
    assert!(failed < 100, "{failed}");
    assert!(server.faults().is_empty()); // it died by itself
    Ok(())
}
