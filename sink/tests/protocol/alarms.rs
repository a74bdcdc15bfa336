//! A damaged bucket: the start names what is wrong, acquires nothing, and changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use sinks::error::{Alarm, SinkError};
use sinks::model::entry::{Entry, Layout, ObjectRecord};
use sinks::model::frame::{self, Kind};
use sinks::model::head::Head;
use sinks::model::ids::{Digest, Nonce, WriterId};
use sinks::model::key::ObjectName;
use sinks::plan::commit::{self, Draft};
use sinks::sink::{Batch, EncodedObject};
use sinks::store::{Condition, Outcome, Store as _};

use crate::calls::Bend;
use crate::stores::DeletesOnAdoption;
use crate::world::{BATCHES, Pace, World, batch, paused, position, root};

fn committed() -> Arc<World> {
    let world = World::new();
    let lived = world.live(&[], Pace::OneByOne, BATCHES);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}", lived.end);
    world
}

fn get(world: &World, key: &str) -> Bytes {
    match paused(world.store.get(key)) {
        Outcome::Done(object) => object.bytes,
        other => panic!("{key}: {other:?}"),
    }
}

fn put(world: &World, key: &str, bytes: impl Into<Bytes>) {
    let done = paused(world.store.put(key, bytes.into(), Condition::None, &[]));
    assert!(matches!(done, Outcome::Done(_)), "{key}: {done:?}");
}

fn delete(world: &World, key: &str) {
    assert_eq!(paused(world.store.delete(key, None)), Outcome::Done(()));
}

fn keys(world: &World, wanted: impl Fn(&ObjectName<'_>) -> bool) -> Vec<String> {
    let keys = world.store.keys();
    keys.into_iter().filter(|key| root().parse(key).is_some_and(|name| wanted(&name))).collect()
}

fn entries(world: &World) -> Vec<String> {
    keys(world, |name| matches!(name, ObjectName::Entry { .. }))
}

fn data(world: &World) -> Vec<String> {
    keys(world, |name| matches!(name, ObjectName::Data { .. }))
}

/// What a start says after `damage`. Whatever it is, the bucket is as it was.
fn start_after(damage: impl FnOnce(&World)) -> SinkError {
    let world = committed();
    damage(&world);
    let content = |world: &World| {
        let keys = world.store.keys();
        keys.into_iter().map(|key| (get(world, &key), key)).collect::<Vec<_>>()
    };
    let before = content(&world);
    let lived = world.live(&[], Pace::OneByOne, BATCHES);
    assert_eq!(content(&world), before, "a refused start wrote");
    match lived.end {
        Some(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn alarm_after(damage: impl FnOnce(&World)) -> Alarm {
    let error = start_after(damage);
    assert_eq!(error.exit_code(), 5, "{error}");
    match error {
        SinkError::Integrity(alarm) => alarm,
        other => panic!("{other}"),
    }
}

#[test]
fn missing_objects_are_told_apart() {
    let missing = |alarm: Alarm| match alarm {
        Alarm::MissingReferenced { what, .. } => what,
        other => panic!("{other}"),
    };
    assert_eq!(missing(alarm_after(|world| delete(world, &data(world)[3]))), "data");
    for at in 0..3 {
        assert_eq!(missing(alarm_after(|world| delete(world, &entries(world)[at]))), "entry");
    }
    let alarm = alarm_after(|world| entries(world).iter().for_each(|key| delete(world, key)));
    assert_eq!(alarm, Alarm::HeadWithoutManifest { seq: BATCHES });
    let alarm = alarm_after(|world| delete(world, &root().head()));
    assert!(matches!(alarm, Alarm::ManifestWithoutHead { .. }), "{alarm}");
    // All of it, on a host that acknowledged from it.
    let alarm = alarm_after(|world| world.store.keys().iter().for_each(|key| delete(world, key)));
    assert!(matches!(alarm, Alarm::AcknowledgedAheadOfHead { seq: BATCHES, .. }), "{alarm}");
}

/// A store that confirms one write of a life and forgets it. Whichever it is: an alarm before the next acknowledgement
/// or at the next start, or else it was written again and nothing is missing.
#[test]
fn a_write_that_the_store_acknowledges_and_forgets_is_an_alarm_and_never_a_loss() {
    let calls = World::new().live(&[], Pace::OneByOne, BATCHES).calls;
    let (mut alarms, mut mended) = (BTreeSet::new(), BTreeSet::new());
    for at in 0..calls {
        let world = World::new();
        let lived = world.live(&[(at, Bend::Forgotten)], Pace::OneByOne, BATCHES);
        let Some(key) = world.forgotten.lock().pop() else { continue };
        let kind = match root().parse(&key) {
            Some(ObjectName::Data { .. }) => "data",
            Some(ObjectName::Entry { .. }) => "entry",
            Some(ObjectName::Head) => "HEAD",
            other => panic!("{key}: {other:?}"),
        };
        let end = match lived.end {
            Some(Ok(())) => world.live(&[], Pace::OneByOne, BATCHES).end,
            end => end,
        };
        match end {
            Some(Ok(())) => {
                world.check_end(&format!("{key} was forgotten at call {at}"));
                mended.insert(kind);
            }
            Some(Err(SinkError::Integrity(alarm))) => {
                assert_eq!(SinkError::from(alarm.clone()).exit_code(), 5, "{alarm}");
                alarms.insert((kind, alarm.name()));
            }
            other => panic!("{key} was forgotten at call {at}: {other:?}"),
        }
    }
    let expected = [
        ("HEAD", "acknowledged_ahead_of_head"),
        ("HEAD", "lost_update"),
        ("data", "missing_referenced"),
        ("entry", "missing_referenced"),
    ];
    assert_eq!(alarms, BTreeSet::from(expected));
    // Of HEAD the creation and the takeover, before anything was acknowledged.
    assert_eq!(mended, BTreeSet::from(["HEAD"]));
}

#[test]
fn a_deleted_head_is_never_recreated_by_its_owner() {
    let calls = World::new().live(&[], Pace::OneByOne, BATCHES).calls;
    // Frozen before the last swap, while somebody deletes HEAD.
    let world = World::new();
    assert!(world.live(&[(calls - 2, Bend::StopBefore)], Pace::OneByOne, BATCHES).end.is_none());
    delete(&world, &root().head());
    let lived = world.live(&[], Pace::OneByOne, BATCHES);
    assert!(
        matches!(lived.end, Some(Err(SinkError::Integrity(Alarm::ManifestWithoutHead { .. })))),
        "{lived:?}"
    );
    assert!(!world.store.keys().contains(&root().head()));
}

#[test]
fn damaged_objects_are_named() {
    let flip = |world: &World, key: &str, at: usize| {
        let mut bytes = get(world, key).to_vec();
        bytes[at] ^= 1;
        put(world, key, bytes);
    };
    for at in [0, 40, 200] {
        let alarm = alarm_after(|world| flip(world, &root().head(), at));
        assert!(matches!(alarm, Alarm::Damaged { kind: Kind::Head, .. }), "{alarm}");
        let alarm = alarm_after(|world| flip(world, &entries(world)[1], at));
        assert!(matches!(alarm, Alarm::DigestMismatch { what: "entry", .. }), "{alarm}");
    }
    let alarm = alarm_after(|world| put(world, &data(world)[0], "short"));
    assert!(matches!(alarm, Alarm::SizeMismatch { found: 5, .. }), "{alarm}");
    let alarm = alarm_after(|world| {
        let entry = get(world, &entries(world)[0]);
        put(world, &root().head(), entry);
    });
    assert!(matches!(alarm, Alarm::Damaged { kind: Kind::Head, .. }), "{alarm}");
}

#[test]
fn other_bytes_at_a_content_hash_stop_the_sink() {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, 1).end, Some(Ok(()))));
    let copy = World::new();
    copy.live(&[], Pace::OneByOne, BATCHES);
    // The next batch's object, with other bytes of the same length.
    let key = data(&copy).into_iter().find(|key| !data(&world).contains(key)).unwrap();
    let other = vec![b'x'; get(&copy, &key).len()];
    put(&world, &key, other);
    let lived = world.live(&[], Pace::OneByOne, BATCHES);
    match lived.end {
        Some(Err(SinkError::Integrity(Alarm::ConflictingObject { key: found, .. }))) => {
            assert_eq!(found, key)
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.check("after a conflicting object"), 1);
}

/// HEAD after one more entry, as somebody with another idea of the rules would write it.
fn plant(world: &World, change: impl FnOnce(&mut Entry)) {
    let key = root().head();
    let head = Head::decode(&get(world, &key)).unwrap();
    let draft = Draft {
        position: position(BATCHES + 1),
        kind: sinks::model::entry::EntryKind::Batch,
        reason: None,
        objects: Vec::new(),
        events: 0,
        min_ts_ms: None,
        max_ts_ms: None,
    };
    let mut byte = 100;
    let nonce = || {
        byte += 1;
        Nonce::from_bytes([byte; 16])
    };
    let mut planned = commit::commit(&root(), &head, vec![draft], nonce, 0).unwrap();
    let mut entry = planned.entries.remove(0).entry;
    change(&mut entry);
    entry.batch.batch_digest = sinks::model::entry::batch_digest(
        entry.objects.iter().map(|object| (object.key.as_str(), &object.sha256)),
    );
    let bytes = entry.encode();
    let sha256 = Digest::of(&bytes);
    let at = root().entry(entry.seq, entry.epoch, sha256);
    put(world, &at, bytes.clone());
    let mut next = planned.head;
    next.chain = sinks::model::chain::extend(head.chain, entry.seq, sha256);
    let last = next.last_entry.as_mut().unwrap();
    (last.key, last.sha256, last.size) = (at, sha256, bytes.len() as u64);
    put(world, &key, next.encode());
}

fn object(world: &World, key: String, layout: Layout) -> ObjectRecord {
    put(world, &key, "{}\n");
    ObjectRecord {
        namespace: "public".to_owned(),
        table: "orders".to_owned(),
        key,
        layout,
        sha256: Digest::of(b"{}\n"),
        size: 3,
        rows: 1,
        format: "jsonl".to_owned(),
        compression: "none".to_owned(),
        schema_fingerprint: Digest::of(b"schema"),
        row_seq_digest: Digest::of(b"rows"),
        etag: None,
    }
}

#[test]
fn a_key_for_another_position_is_a_conflicting_object() {
    let content = Digest::of(b"{}\n");
    let other = position(9).digest();
    for key in [
        format!("{}/public.orders/wm2-{other}/{content}.jsonl", root()),
        format!("{}/public.orders/wm2-{}/{other}.jsonl", root(), position(BATCHES + 1).digest()),
        format!("{}/public.orders/wm-{}/x.jsonl", root(), hex::encode("0/9")),
        format!("elsewhere/wm2-{other}/{content}.jsonl"),
    ] {
        let alarm = alarm_after(|world| {
            let record = object(world, key.clone(), Layout::Wm2);
            plant(world, |entry| entry.objects = vec![record]);
        });
        assert!(matches!(&alarm, Alarm::ConflictingObject { key: found, .. } if *found == key), "{alarm}");
    }
}

#[test]
fn keys_of_older_releases_are_read_beside_new_ones() {
    let world = committed();
    let text = hex::encode(position(BATCHES + 1).canonical_text());
    let legacy = format!("{}/public.orders/wm-{text}/part-1.jsonl", root());
    let opaque = format!("{}/public.orders/wm-{}/part-1.jsonl", root(), hex::encode("who knows"));
    let mut records = vec![object(&world, legacy, Layout::Wm), object(&world, opaque, Layout::Wm)];
    records.sort_by(|a, b| a.key.cmp(&b.key));
    plant(&world, |entry| entry.objects = records);
    let recovered = world.recovered().unwrap();
    assert_eq!(recovered.entries.last().unwrap().objects().len(), 2);
    assert_eq!(recovered.warnings.len(), 1, "{:?}", recovered.warnings);
    paused(async {
        let env = world.env(world.store.clone());
        let record = Arc::new(sinks::local::MemoryCheckpoints::default());
        let sink = sinks::sink::Sink::start_on(env, crate::world::settings(), record).await.unwrap();
        let mut next = batch(BATCHES + 2);
        next.position = position(BATCHES + 2);
        assert_eq!(sink.submit(next).await.unwrap().acknowledged().await.unwrap().seq, BATCHES + 2);
        sink.close().await.unwrap();
    });
    assert_eq!(world.recovered().unwrap().entries.len() as u64, BATCHES + 2);
}

#[test]
fn an_entry_that_contradicts_is_named() {
    let changes: [&dyn Fn(&mut Entry); 5] = [
        &|entry| entry.seq += 1,
        &|entry| entry.epoch += 7,
        &|entry| entry.stream_id = sinks::model::ids::StreamId::from_bytes([9; 16]),
        &|entry| entry.prev_digest = None,
        &|entry| entry.prev = None,
    ];
    for change in changes {
        let alarm = alarm_after(|world| plant(world, change));
        assert!(matches!(alarm, Alarm::Contradiction { .. }), "{alarm}");
    }
    let alarm = alarm_after(|world| plant(world, |entry| entry.position.sub = 5));
    assert!(matches!(alarm, Alarm::BadPosition { .. }), "{alarm}");
    let error = start_after(|world| plant(world, |entry| entry.position.r#type = "tides".to_owned()));
    assert!(matches!(error, SinkError::NewerWriter { .. }), "{error}");
}

#[test]
fn a_newer_head_is_kept_or_refused() {
    let rewrite = |world: &World, minor: u16, change: &dyn Fn(&mut serde_json::Value)| {
        let bytes = get(world, &root().head());
        let body = bytes.split(|&byte| byte == b'\n').next_back().unwrap();
        let mut body: serde_json::Value = serde_json::from_slice(body).unwrap();
        change(&mut body);
        put(world, &root().head(), frame::encode(Kind::Head, minor, &body));
    };
    let world = committed();
    rewrite(&world, 3, &|body| body["x_new"] = serde_json::json!({"kept": "1"}));
    world.check_end("under a newer minor version");
    let head = Head::decode(&get(&world, &root().head())).unwrap();
    assert_eq!((head.minor, &head.extra["x_new"]["kept"]), (3, &serde_json::json!("1")));
    for field in ["min_reader", "min_writer"] {
        let error = start_after(|world| rewrite(world, 3, &|body| body[field] = serde_json::json!(1)));
        assert!(matches!(error, SinkError::NewerWriter { .. }), "{field}: {error}");
        assert_eq!(error.exit_code(), 2);
    }
    let error = start_after(|world| {
        let text = String::from_utf8(get(world, &root().head()).to_vec()).unwrap();
        put(world, &root().head(), text.replacen("head 1.0", "head 2.0", 1));
    });
    assert!(matches!(error, SinkError::NewerWriter { .. }), "{error}");
}

#[test]
fn two_writers_under_one_epoch_are_found_out() {
    let world = World::new();
    let error = paused(async {
        let env = world.env(world.store.clone());
        let record = Arc::new(sinks::local::MemoryCheckpoints::default());
        let sink = sinks::sink::Sink::start_on(env, crate::world::settings(), record).await.unwrap();
        let Outcome::Done(object) = world.store.get(&root().head()).await else { panic!("no HEAD") };
        let head = Head::decode(&object.bytes).unwrap();
        let mut other = head.successor(Nonce::from_bytes([9; 16]), sinks::model::head::Intent::Publish, 0);
        other.owner.writer_id = WriterId::from_bytes([8; 16]);
        world.store.put(&root().head(), other.encode(), Condition::None, &[]).await;
        sink.submit(batch(1)).await.unwrap().acknowledged().await.unwrap_err()
    });
    assert!(matches!(error, SinkError::Integrity(Alarm::SplitBrain { epoch: 1, .. })), "{error}");
}

#[test]
fn an_adopted_object_that_is_deleted_before_the_swap_is_written_again() {
    let calls = World::new().live(&[], Pace::OneByOne, 1).calls;
    // Everything but the swap is done, then the process dies: the objects are orphans, and old.
    let world = World::new();
    assert!(world.live(&[(calls - 2, Bend::StopBefore)], Pace::OneByOne, 1).end.is_none());
    let orphans = data(&world);
    assert_eq!(orphans.len(), 2);
    paused(async {
        let env = world.env(world.store.clone());
        let record = Arc::new(sinks::local::MemoryCheckpoints::default());
        let deleting = Arc::new(DeletesOnAdoption::new(world.store.clone()));
        let env = sinks::env::Env { store: deleting, ..env };
        let sink = sinks::sink::Sink::start_on(env, crate::world::settings(), record).await.unwrap();
        sink.submit(batch(1)).await.unwrap().acknowledged().await.unwrap();
        sink.close().await.unwrap();
    });
    assert_eq!(data(&world), orphans);
    assert_eq!(world.check("after an adoption"), 1);
}

#[test]
fn two_objects_of_one_batch_with_one_key_are_our_own_fault() {
    let world = World::new();
    let mut twice: Batch = batch(1);
    let again: EncodedObject = twice.objects[0].clone();
    twice.objects.push(again);
    let error = paused(async {
        let env = world.env(world.store.clone());
        let record = Arc::new(sinks::local::MemoryCheckpoints::default());
        let sink = sinks::sink::Sink::start_on(env, crate::world::settings(), record).await.unwrap();
        sink.submit(twice).await.unwrap_err()
    });
    assert!(matches!(error, SinkError::Internal(_)), "{error}");
}
