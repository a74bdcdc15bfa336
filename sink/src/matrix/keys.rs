//! Key limits of stores that keep each part of a key as a file name.

use super::data::{self, EXTENSION, NAMESPACE};
use super::ground::Ground;
use super::{Checked, Failure, Scenario, equal};
use crate::model::ids::Digest;
use crate::store::{Condition, Outcome, Refusal};

pub(super) const SCENARIOS: &[Scenario] = &[Scenario {
    id: "2.20",
    name: "wm2_keys_fit_a_store_of_files_and_legacy_keys_do_not",
    proves: "with file names of at most 255 bytes, wm2- keys are stored and a wm- key of 450 bytes is refused",
    needs: &[],
    run: |ground| Box::pin(file_store(ground)),
}];

async fn file_store(ground: &Ground) -> Checked {
    let (rig, _server) = ground.rig.deviating("segment-limit=255:InvalidArgument").await?;
    let ground = &Ground::new(&rig, "2.20-files")?;
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 2).await?;
    // The longest table name there may be.
    let mut batch = data::batch(3)?;
    batch.objects.iter_mut().for_each(|object| object.namespace = "数".repeat(21));
    sink.submit(batch).await?.acknowledged().await?;
    sink.close().await?;
    equal("committed", ground.head().await?.0.seq, 3)?;
    let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-123456,".repeat(5);
    let legacy = format!("{}/{NAMESPACE}.orders/wm-{}", ground.root.as_str(), hex::encode(gtid));
    let key = format!("{}/{}.{EXTENSION}", &legacy[..legacy.len().min(600)], Digest::of(b"x"));
    match ground.store()?.put(&key, bytes::Bytes::from_static(b"x"), Condition::Absent, &[]).await {
        Outcome::Refused(Refusal::Denied { status: 400, .. }) => {}
        other => return Err(Failure(format!("a wm- key of {} bytes: {other:?}", key.len()))),
    }
    equal("entries", ground.recovered().await?.entries.len(), 3)?;
    ground.clear().await
}
