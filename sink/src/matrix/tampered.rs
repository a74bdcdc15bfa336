//! Area 2, on a bucket that somebody has had hands on: hard alarms that stop, and formats of other releases.

use bytes::Bytes;
use serde_json::{Value, json};

use super::data::{self, EXTENSION, NAMESPACE, TABLES};
use super::ground::Ground;
use super::publish::settled;
use super::{Checked, Failure, Scenario, equal};
use crate::error::{Alarm, SinkError};
use crate::model::entry::{EntryKind, Layout, ObjectRecord};
use crate::model::frame::{self, Kind};
use crate::model::head::Head;
use crate::model::ids::Digest;
use crate::model::key::TableSegment;
use crate::plan::commit::{self, Draft};
use crate::sink::Sink;
use crate::store::{Condition, Outcome};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "2.8",
        name: "an_object_under_another_position_is_never_accepted",
        proves: "an entry whose object's key has another position's digest stops the start as a conflicting object",
        needs: &[],
        run: |ground| Box::pin(other_position(ground)),
    },
    Scenario {
        id: "2.9",
        name: "other_bytes_at_a_content_hash_stop_the_sink",
        proves: "bytes that do not have the hash in their key are never adopted nor overwritten",
        needs: &[],
        run: |ground| Box::pin(other_bytes(ground)),
    },
    Scenario {
        id: "2.10",
        name: "a_missing_object_blocks_acquisition",
        proves: "a start that finds a referenced object missing ends with the hard alarm and leaves HEAD alone",
        needs: &[],
        run: |ground| Box::pin(missing_object(ground)),
    },
    Scenario {
        id: "2.11",
        name: "a_deleted_head_is_never_recreated",
        proves: "HEAD deleted under a running sink, or before a start, is a hard alarm",
        needs: &[],
        run: |ground| Box::pin(deleted_head(ground)),
    },
    Scenario {
        id: "2.12",
        name: "a_corrupted_head_is_refused",
        proves: "one wrong byte in HEAD stops the start",
        needs: &[],
        run: |ground| Box::pin(corrupted_head(ground)),
    },
    Scenario {
        id: "2.13",
        name: "fields_of_a_newer_minor_version_survive",
        proves: "unknown fields of a newer minor version survive rewrites of HEAD, and a newer major version is refused",
        needs: &[],
        run: |ground| Box::pin(newer_versions(ground)),
    },
    Scenario {
        id: "2.14",
        name: "both_key_layouts_are_readable",
        proves: "a stream with wm- objects of earlier releases is recovered and continued with wm2- keys",
        needs: &[],
        run: |ground| Box::pin(legacy_keys(ground)),
    },
];

pub(super) async fn overwrite(ground: &Ground, key: &str, bytes: Bytes) -> Checked {
    match ground.store()?.put(key, bytes, Condition::None, &[]).await {
        Outcome::Done(_) => Ok(()),
        other => Err(Failure(format!("PUT of {key:?}: {other:?}"))),
    }
}

pub(super) async fn delete(ground: &Ground, key: &str) -> Checked {
    match ground.store()?.delete(key, None).await {
        Outcome::Done(()) => Ok(()),
        other => Err(Failure(format!("DELETE of {key:?}: {other:?}"))),
    }
}

/// The error that a start ends with.
async fn refused(ground: &Ground) -> Checked<SinkError> {
    match Sink::start(ground.env(9)?, ground.settings("b")).await {
        Ok(_) => Err(Failure("the sink started".to_owned())),
        Err(error) => Ok(error),
    }
}

fn alarm(error: &SinkError, wanted: &str) -> Checked {
    match error {
        SinkError::Integrity(alarm) => equal("the alarm", alarm.name(), wanted),
        other => Err(Failure(format!("expected the alarm {wanted}, got {other}"))),
    }
}

/// The record of an object with batch `n`'s rows of one table, under any key.
fn record(n: u64, table: &str, key: String, layout: Layout) -> (ObjectRecord, Bytes) {
    let object = data::object(table, &data::rows(n, table));
    let record = ObjectRecord {
        namespace: object.namespace,
        table: object.table,
        key,
        layout,
        sha256: Digest::of(&object.bytes),
        size: object.bytes.len() as u64,
        rows: object.rows,
        format: object.format.to_owned(),
        compression: object.compression.to_owned(),
        schema_fingerprint: object.schema_fingerprint,
        row_seq_digest: object.row_seq_digest,
        etag: None,
    };
    (record, object.bytes)
}

/// Commits batch `n` behind everybody's back, with its objects at the keys that `key` gives.
async fn plant(
    ground: &Ground,
    n: u64,
    layout: Layout,
    key: impl Fn(&str, Digest) -> Checked<String>,
) -> Checked {
    let (head, _) = ground.head().await?;
    let mut objects = Vec::new();
    for table in TABLES {
        let content = Digest::of(&data::object(table, &data::rows(n, table)).bytes);
        let (record, bytes) = record(n, table, key(table, content)?, layout);
        overwrite(ground, &record.key, bytes).await?;
        objects.push(record);
    }
    let draft = Draft {
        position: data::position(n)?,
        kind: EntryKind::Batch,
        reason: None,
        objects,
        events: 6,
        min_ts_ms: None,
        max_ts_ms: None,
    };
    let env = ground.env(0xface)?;
    let planned = commit::commit(&ground.root, &head, vec![draft], || env.ids.nonce(), 0)?;
    for entry in &planned.entries {
        overwrite(ground, &entry.key, entry.bytes.clone()).await?;
    }
    overwrite(ground, &ground.root.head(), planned.head.encode()).await
}

async fn published(ground: &Ground, upto: u64) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, upto).await?;
    Ok(sink.close().await?)
}

async fn other_position(ground: &Ground) -> Checked {
    published(ground, 1).await?;
    let elsewhere = data::position(7)?.digest();
    plant(ground, 2, Layout::Wm2, |table, content| {
        Ok(ground.root.data(&TableSegment::new(NAMESPACE, table)?, elsewhere, content, EXTENSION))
    })
    .await?;
    let before = ground.head().await?;
    alarm(&refused(ground).await?, "conflicting_object")?;
    equal("HEAD", ground.head().await?, before)
}

async fn other_bytes(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let (watermark, table) = (data::position(2)?.digest(), TABLES[1]);
    let content = Digest::of(&data::object(table, &data::rows(2, table)).bytes);
    let key = ground.root.data(&TableSegment::new(NAMESPACE, table)?, watermark, content, EXTENSION);
    overwrite(ground, &key, Bytes::from_static(b"not what the key says")).await?;
    let mut ticket = sink.submit(data::batch(2)?).await?;
    let error = ticket.acknowledged().await.err();
    let error = error.ok_or_else(|| Failure("other bytes were adopted and acknowledged".to_owned()))?;
    alarm(&error, "conflicting_object")?;
    equal("the planted bytes", ground.get(&key).await?.0, Bytes::from_static(b"not what the key says"))?;
    equal("committed", ground.head().await?.0.seq, 1)
}

async fn missing_object(ground: &Ground) -> Checked {
    published(ground, 3).await?;
    let recovered = ground.recovered().await?;
    let key = recovered.entries[1].objects()[0].key.to_owned();
    delete(ground, &key).await?;
    let before = ground.head().await?;
    match refused(ground).await? {
        SinkError::Integrity(Alarm::MissingReferenced { key: found, .. }) => {
            equal("the missing key", found, key)?
        }
        other => return Err(Failure(format!("expected the alarm of a missing object, got {other}"))),
    }
    equal("HEAD", ground.head().await?, before)
}

async fn deleted_head(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    delete(ground, &ground.root.head()).await?;
    let error = sink.submit(data::batch(2)?).await?.acknowledged().await.err();
    alarm(&error.ok_or_else(|| Failure("acknowledged without HEAD".to_owned()))?, "head_deleted")?;
    alarm(&refused(ground).await?, "manifest_without_head")?;
    match ground.store()?.head(&ground.root.head()).await {
        Outcome::Missing => Ok(()),
        other => Err(Failure(format!("HEAD was recreated: {other:?}"))),
    }
}

async fn corrupted_head(ground: &Ground) -> Checked {
    published(ground, 1).await?;
    let (bytes, _) = ground.get(&ground.root.head()).await?;
    let mut bytes = bytes.to_vec();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    overwrite(ground, &ground.root.head(), bytes.into()).await?;
    alarm(&refused(ground).await?, "damaged")
}

async fn newer_versions(ground: &Ground) -> Checked {
    published(ground, 1).await?;
    let (bytes, _) = ground.get(&ground.root.head()).await?;
    let body = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut document: Value = serde_json::from_slice(&bytes[body..])?;
    let future = json!({ "of": ["a", "newer", "release"], "count": "18446744073709551615" });
    document["x_future"] = future.clone();
    let newer = frame::encode(Kind::Head, frame::MINOR + 1, &document);
    overwrite(ground, &ground.root.head(), newer.clone()).await?;
    let sink = ground.start("b", 2).await?;
    ground.publish(&sink, 2, 3).await?;
    sink.close().await?;
    let (bytes, _) = ground.get(&ground.root.head()).await?;
    let body = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let document: Value = serde_json::from_slice(&bytes[body..])?;
    equal("the unknown field after three rewrites", &document["x_future"], &future)?;
    equal(
        "the minor version",
        bytes.starts_with(format!("DFS3 head 1.{} ", frame::MINOR + 1).as_bytes()),
        true,
    )?;
    let text = String::from_utf8(bytes.to_vec())?;
    let major = text.replacen("DFS3 head 1.", "DFS3 head 2.", 1);
    overwrite(ground, &ground.root.head(), Bytes::from(major)).await?;
    match refused(ground).await? {
        SinkError::NewerWriter { .. } => {}
        other => return Err(Failure(format!("expected a newer writer, got {other}"))),
    }
    let restored = Bytes::from(text);
    Head::decode(&restored)?;
    overwrite(ground, &ground.root.head(), restored).await?;
    equal("what is there", ground.exactly(3).await?, settled(3))
}

/// Where a release before `wm2-` put an object of batch `n`.
pub(super) fn legacy_key(ground: &Ground, n: u64, table: &str, content: Digest) -> Checked<String> {
    let text = hex::encode(data::position(n)?.canonical_text());
    let table = TableSegment::new(NAMESPACE, table)?;
    Ok(format!("{}/{table}/wm-{text}/{content}.{EXTENSION}", ground.root.as_str()))
}

/// Commits batch `n` as a release before `wm2-` did.
pub(super) async fn legacy(ground: &Ground, n: u64) -> Checked {
    plant(ground, n, Layout::Wm, |table, content| legacy_key(ground, n, table, content)).await
}

async fn legacy_keys(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    sink.close().await?;
    legacy(ground, 1).await?;
    let sink = ground.start("a", 2).await?;
    equal("the resume position", data::number(sink.resume().as_ref())?, 1)?;
    ground.publish(&sink, 2, 3).await?;
    sink.close().await?;
    equal("what is there", ground.exactly(3).await?, settled(3))?;
    let recovered = ground.recovered().await?;
    let layouts: Vec<bool> =
        recovered.entries.iter().map(|entry| entry.objects()[0].key.contains("/wm2-")).collect();
    equal("entries with wm2- keys", layouts, vec![false, true, true])
}
