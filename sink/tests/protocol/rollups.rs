//! Recovery from rollups: entries below the floor come from inventories, all others must still be there.

use std::sync::Arc;

use bytes::Bytes;
use sinks::error::{Alarm, SinkError};
use sinks::model::chain;
use sinks::model::frame::{self, Kind};
use sinks::model::head::{Intent, RollupRef};
use sinks::model::ids::{Digest, Nonce};
use sinks::model::json::Extra;
use sinks::model::rollup::{
    Inventory, InventoryEntry, InventoryObject, InventoryRef, PrevRollup, Rollup, Totals,
};
use sinks::run::patience::Patience;
use sinks::run::recover::{Committed, Content, Depth, recover};
use sinks::store::{Condition, Store as _};

use crate::world::{BATCHES, Pace, World, paused, position, root};

fn put(world: &World, key: &str, bytes: Bytes) {
    paused(world.store.put(key, bytes, Condition::None, &[]));
}

fn kept(entry: &Committed) -> InventoryEntry {
    let Content::Entry(record) = &entry.content else { panic!("entry {} is rolled up", entry.seq) };
    let object = |object: &sinks::model::entry::ObjectRecord| InventoryObject {
        key: object.key.clone(),
        sha256: object.sha256,
        size: object.size,
        rows: object.rows,
        table: format!("{}.{}", object.namespace, object.table),
        // As an older writer left it.
        format: None,
        compression: None,
        schema_fingerprint: None,
        row_seq_digest: None,
        extra: Extra::new(),
    };
    InventoryEntry {
        seq: entry.seq,
        epoch: record.epoch,
        entry_key: entry.key.clone(),
        entry_sha256: entry.sha256,
        digest: entry.digest(),
        objects: record.objects.iter().map(object).collect(),
        nonce: None,
        kind: None,
        reason: None,
        extra: Extra::new(),
    }
}

/// Rolls up entries 1 to 2 in two generations, the first of which ends with entry 1, and raises the floor to 2.
pub fn rolled_up() -> Arc<World> {
    let world = World::new();
    assert!(matches!(world.live(&[], Pace::OneByOne, BATCHES).end, Some(Ok(()))));
    let recovered = world.recovered().unwrap();
    let mut head = recovered.view.head.successor(Nonce::from_bytes([9; 16]), Intent::Rollup, 0);
    let mut end_chain = chain::origin(head.stream_id);
    let (mut inventories, mut prev) = (Vec::new(), None);
    for entry in &recovered.entries[..2] {
        let (seq, generation) = (entry.seq, entry.seq);
        end_chain = chain::extend(end_chain, seq, entry.sha256);
        let inventory = Inventory {
            stream_id: head.stream_id,
            from_seq: seq,
            to_seq: seq,
            end_chain,
            entries: vec![kept(entry)],
            extra: Extra::new(),
        };
        let bytes = frame::encode(Kind::Inventory, 0, &inventory);
        let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
        let key = root().inventory(seq, seq, sha256);
        put(&world, &key, bytes);
        inventories.push(InventoryRef { from: seq, to: seq, key, sha256, size });
        let rollup = Rollup {
            stream_id: head.stream_id,
            generation,
            epoch: head.epoch,
            start_seq: 1,
            end_seq: seq,
            end_chain,
            end_position: (&position(seq)).into(),
            prev: prev.take(),
            inventories: inventories.clone(),
            compactions: None,
            totals: Totals { objects: 2 * seq, rows: 2 * seq, bytes: 0 },
            extra: Extra::new(),
        };
        let bytes = frame::encode(Kind::Rollup, 0, &rollup);
        let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
        let key = root().rollup(generation, seq, sha256);
        put(&world, &key, bytes);
        prev = Some(PrevRollup { generation, key: key.clone(), sha256, end_seq: seq });
        head.prev_rollup = head.rollup.take();
        head.rollup = Some(RollupRef {
            generation,
            key,
            sha256,
            size,
            end_seq: seq,
            end_chain,
            published_at_ms: 0,
            published_rev: head.rev,
            extra: Extra::new(),
        });
    }
    head.entry_floor = 2;
    put(&world, &root().head(), head.encode());
    world
}

fn entry_keys(world: &World) -> Vec<String> {
    let prefix = root().entries();
    world.store.keys().into_iter().filter(|key| key.starts_with(&prefix)).collect()
}

fn refused(world: &Arc<World>) -> SinkError {
    let env = world.env(world.store.clone());
    let patience = Patience::limited(1_000);
    paused(async { recover(&env, &root(), Depth::Deep, &patience).await }).unwrap_err()
}

#[test]
fn entries_below_the_floor_come_from_inventories() {
    let world = rolled_up();
    let whole = world.recovered().unwrap();
    paused(world.store.delete(&entry_keys(&world)[0], None));
    let recovered = world.recovered().unwrap();
    assert_eq!(recovered, whole);
    let from: Vec<_> =
        recovered.entries.iter().map(|entry| matches!(entry.content, Content::Inventory(_))).collect();
    assert_eq!(from, [true, true, false]);
    assert_eq!(recovered.position, Some(position(BATCHES)));
    world.check_end("on a stream that was rolled up");
}

#[test]
fn an_entry_at_the_floor_must_exist() {
    let world = rolled_up();
    paused(world.store.delete(&entry_keys(&world)[1], None));
    assert!(matches!(refused(&world), SinkError::Integrity(Alarm::MissingReferenced { what: "entry", .. })));
}

#[test]
fn every_rollup_and_inventory_is_needed_and_checked() {
    let names = ["/_manifest/rollups/", "/_manifest/inventory/"];
    let keys: Vec<_> = rolled_up()
        .store
        .keys()
        .into_iter()
        .filter(|key| names.iter().any(|name| key.contains(name)))
        .collect();
    assert_eq!(keys.len(), 4);
    let mut recoverable = Vec::new();
    for key in keys {
        let world = rolled_up();
        paused(world.store.delete(&key, None));
        let mut found = Vec::new();
        found.push(alarm(&world));
        put(&world, &key, Bytes::from_static(b"<Error/>"));
        found.push(alarm(&world));
        let kind = if key.contains("rollups") { "rollup" } else { "inventory" };
        let missing = Alarm::MissingReferenced { what: kind, key: key.clone(), hint: "" };
        assert_eq!(found[0].0, missing);
        assert!(matches!(&found[1].0, Alarm::DigestMismatch { what, .. } if *what == kind), "{:?}", found[1]);
        assert_eq!(found[0].1, found[1].1);
        recoverable.push(found[0].1);
    }
    // Inventories of both generations, then their rollups. The second generation's can be made again from the
    // first and the entries after it, the first's not: entry 1 may be gone. Nothing is taken for it by itself.
    assert_eq!(recoverable, [false, true, false, true]);
}

/// Why a start is refused, and whether the alarm says that a person can recover from it.
fn alarm(world: &Arc<World>) -> (Alarm, bool) {
    match refused(world) {
        SinkError::Integrity(Alarm::Recoverable { cause, rollup }) => {
            assert!(rollup.contains("/rollups/0000000001-"), "{rollup}");
            (*cause, true)
        }
        SinkError::Integrity(alarm) => (alarm, false),
        other => panic!("{other}"),
    }
}
