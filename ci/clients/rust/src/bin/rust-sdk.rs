//! The AWS SDK for Rust with its default checksums: what a Rust program that uses S3 does, end to end.

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, retry::RetryConfig};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier};
use aws_sdk_s3::{Client, Config};
use std::error::Error;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn client() -> Outcome<Client> {
    let var = std::env::var;
    let credentials = Credentials::new(var("ASSAY_ACCESS_KEY")?, var("ASSAY_SECRET_KEY")?, None, None, "env");
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(var("ASSAY_ENDPOINT")?)
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .force_path_style(true)
        .retry_config(RetryConfig::disabled())
        .build();
    Ok(Client::from_conf(config))
}

async fn body_of(s3: &Client, bucket: &str, key: &str) -> Outcome<Vec<u8>> {
    Ok(s3.get_object().bucket(bucket).key(key).send().await?.body.collect().await?.to_vec())
}

/// The code of a refusal; a success is an error here.
fn refused<T: std::fmt::Debug, E: ProvideErrorMetadata>(answer: Result<T, E>) -> Outcome<String> {
    match answer {
        Ok(value) => Err(format!("expected a refusal, got {value:?}").into()),
        Err(error) => Ok(error.code().unwrap_or("no code").to_owned()),
    }
}

/// Pseudo-random bytes, so that no two parts are equal.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

async fn put_get_list(s3: &Client, bucket: &str) -> Outcome {
    println!("create_bucket, put, get, head, list");
    s3.create_bucket().bucket(bucket).send().await?;
    let put = s3
        .put_object()
        .bucket(bucket)
        .key("a b/ü+&.txt")
        .body(ByteStream::from_static(b"hello"))
        .metadata("colour", "blue")
        .send()
        .await?;
    assert!(put.checksum_crc32().is_some() || put.checksum_crc64_nvme().is_some(), "no checksum in {put:?}");
    assert_eq!(body_of(s3, bucket, "a b/ü+&.txt").await?, b"hello");
    let head = s3.head_object().bucket(bucket).key("a b/ü+&.txt").send().await?;
    assert_eq!(head.e_tag(), put.e_tag());
    assert_eq!(head.metadata().and_then(|m| m.get("colour")).map(String::as_str), Some("blue"));
    let listed = s3.list_objects_v2().bucket(bucket).send().await?;
    assert_eq!(listed.contents().iter().filter_map(|o| o.key()).collect::<Vec<_>>(), ["a b/ü+&.txt"]);
    let code = refused(s3.get_object().bucket(bucket).key("absent").send().await.map_err(|e| e.into_service_error()))?;
    assert_eq!(code, "NoSuchKey");
    Ok(())
}

async fn multipart(s3: &Client, bucket: &str) -> Outcome {
    println!("multipart of 20 MB");
    let large = noise(20_000_000);
    let upload = s3.create_multipart_upload().bucket(bucket).key("large").send().await?;
    let id = upload.upload_id().ok_or("no upload id")?;
    let mut parts = Vec::new();
    for (part, number) in large.chunks(6 << 20).zip(1..) {
        let sent = s3
            .upload_part()
            .bucket(bucket)
            .key("large")
            .upload_id(id)
            .part_number(number)
            .body(ByteStream::from(part.to_vec()))
            .send()
            .await?;
        parts.push(CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag().map(Into::into)).build());
    }
    let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let complete = s3.complete_multipart_upload().bucket(bucket).key("large").upload_id(id);
    complete.multipart_upload(parts).if_none_match("*").send().await?;
    assert!(body_of(s3, bucket, "large").await? == large, "the multipart object differs");
    let range = s3.get_object().bucket(bucket).key("large").range("bytes=19999990-").send().await?;
    assert_eq!(range.body.collect().await?.to_vec(), &large[19_999_990..]);
    Ok(())
}

async fn conditions(s3: &Client, bucket: &str) -> Outcome {
    println!("conditional create and swap, 16 racers x 20 rounds");
    let put = |key: &str, body: String| s3.put_object().bucket(bucket).key(key).body(body.into_bytes().into());
    let mut etag = put("c", "0".into()).if_none_match("*").send().await?.e_tag().ok_or("no etag")?.to_owned();
    let again = put("c", "1".into()).if_none_match("*").send().await.map_err(|e| e.into_service_error());
    assert_eq!(refused(again)?, "PreconditionFailed");
    for round in 0..20 {
        for swap in [false, true] {
            let key = if swap { "c".to_owned() } else { format!("race/{round}") };
            let racers = (0..16).map(|writer| {
                let request = put(&key, format!("round {round} writer {writer}"));
                let request = if swap { request.if_match(&etag) } else { request.if_none_match("*") };
                async move { (writer, request.send().await.map_err(|e| e.into_service_error())) }
            });
            let mut winners = Vec::new();
            for (writer, answer) in futures::future::join_all(racers).await {
                match answer {
                    Ok(won) => winners.push((writer, won.e_tag().unwrap_or_default().to_owned())),
                    Err(lost) => {
                        let code = lost.code().unwrap_or("no code");
                        assert!(matches!(code, "PreconditionFailed" | "ConditionalRequestConflict"), "loser: {code}");
                    }
                }
            }
            assert_eq!(winners.len(), 1, "round {round}, swap {swap}: winners {winners:?}");
            let expected = format!("round {round} writer {}", winners[0].0);
            assert_eq!(body_of(s3, bucket, &key).await?, expected.as_bytes());
            if swap {
                etag.clone_from(&winners[0].1);
            }
        }
    }
    Ok(())
}

async fn copy_presign_delete(s3: &Client, bucket: &str) -> Outcome {
    println!("copy, presigned GET, delete_objects, delete_bucket");
    s3.copy_object().bucket(bucket).key("copied").copy_source(format!("{bucket}/large")).send().await?;
    assert_eq!(body_of(s3, bucket, "copied").await?.len(), 20_000_000);
    let valid = PresigningConfig::expires_in(Duration::from_secs(60))?;
    let url = s3.get_object().bucket(bucket).key("c").presigned(valid).await?;
    assert!(url.uri().contains("X-Amz-Signature="), "{}", url.uri());
    let mut keys = Vec::new();
    let mut pages = s3.list_objects_v2().bucket(bucket).max_keys(7).into_paginator().send();
    while let Some(page) = pages.next().await {
        keys.extend(page?.contents().iter().filter_map(|o| o.key().map(ToOwned::to_owned)));
    }
    assert_eq!(keys.len(), 24);
    let objects = keys.iter().map(|k| ObjectIdentifier::builder().key(k).build()).collect::<Result<Vec<_>, _>>()?;
    let delete = Delete::builder().set_objects(Some(objects)).build()?;
    let deleted = s3.delete_objects().bucket(bucket).delete(delete).send().await?;
    assert_eq!((deleted.deleted().len(), deleted.errors().len()), (keys.len(), 0));
    s3.delete_bucket().bucket(bucket).send().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let bucket = std::env::args().nth(1).ok_or("usage: rust-sdk BUCKET")?;
    let s3 = client()?;
    put_get_list(&s3, &bucket).await?;
    multipart(&s3, &bucket).await?;
    conditions(&s3, &bucket).await?;
    copy_presign_delete(&s3, &bucket).await
}
