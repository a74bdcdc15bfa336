//! The object_store crate with conditional put, as table formats and log stores use it.

use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use std::sync::Arc;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const RACERS: usize = 16;
const ROUNDS: usize = 50;

fn store(bucket: &str) -> Outcome<AmazonS3> {
    let var = std::env::var;
    Ok(AmazonS3Builder::new()
        .with_endpoint(var("ASSAY_ENDPOINT")?)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(bucket)
        .with_access_key_id(var("ASSAY_ACCESS_KEY")?)
        .with_secret_access_key(var("ASSAY_SECRET_KEY")?)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .build()?)
}

/// Runs one write per racer at once; returns the one winner, or says how many there were.
async fn race(store: &Arc<AmazonS3>, key: &Path, mode: PutMode, round: usize) -> Outcome<(String, UpdateVersion)> {
    let racers = (0..RACERS).map(|racer| {
        let (store, key, mode) = (store.clone(), key.clone(), mode.clone());
        tokio::spawn(async move {
            let body = format!("round {round} racer {racer}");
            let answer = store.put_opts(&key, PutPayload::from(body.clone().into_bytes()), mode.into()).await;
            (body, answer)
        })
    });
    let mut winners = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        match racer.await? {
            (body, Ok(put)) => winners.push((body, UpdateVersion { e_tag: put.e_tag, version: put.version })),
            (_, Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {}
            (_, Err(other)) => return Err(format!("round {round}: a loser got {other}").into()),
        }
    }
    if winners.len() != 1 {
        return Err(format!("round {round}: {} winners", winners.len()).into());
    }
    let winner = winners.remove(0);
    let read = store.get(key).await?.bytes().await?;
    if read != winner.0.as_bytes() {
        return Err(format!("round {round}: the winner wrote '{}', GET returns {read:?}", winner.0).into());
    }
    Ok(winner)
}

#[tokio::main]
async fn main() -> Outcome {
    let bucket = std::env::args().nth(1).ok_or("usage: object_store BUCKET")?;
    let store = Arc::new(store(&bucket)?);

    println!("put create: {RACERS} tasks x {ROUNDS} rounds");
    for round in 0..ROUNDS {
        race(&store, &Path::from(format!("create/{round}")), PutMode::Create, round).await?;
    }

    println!("put update: {RACERS} tasks x {ROUNDS} rounds");
    let key = Path::from("swap");
    let put = store.put(&key, "start".into()).await?;
    let mut version = UpdateVersion { e_tag: put.e_tag, version: put.version };
    for round in 0..ROUNDS {
        version = race(&store, &key, PutMode::Update(version), round).await?.1;
    }

    println!("multipart, ranges, list, copy");
    let large: Vec<u8> = (0..12_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut upload = store.put_multipart(&Path::from("large")).await?;
    for part in large.chunks(5 << 20) {
        upload.put_part(part.to_vec().into()).await?;
    }
    upload.complete().await?;
    assert!(store.get(&Path::from("large")).await?.bytes().await? == large, "the multipart object differs");
    assert_eq!(store.get_range(&Path::from("large"), 7_000_000..7_000_010).await?, &large[7_000_000..7_000_010]);
    store.copy(&Path::from("large"), &Path::from("copied")).await?;
    assert_eq!(store.head(&Path::from("copied")).await?.size, large.len() as u64);
    let listed: Vec<_> = store.list(Some(&Path::from("create"))).try_collect().await?;
    assert_eq!(listed.len(), ROUNDS);

    println!("delete");
    let all = store.list(None).map_ok(|object| object.location);
    let deleted: Vec<_> = store.delete_stream(Box::pin(all)).try_collect().await?;
    assert_eq!(deleted.len(), ROUNDS + 3);
    Ok(())
}
