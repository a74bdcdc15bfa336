//! Golden bytes of HEAD and entries, and that what is written is read back.

use proptest::prelude::*;
use serde_json::json;

use super::chain;
use super::entry::{BatchRecord, Entry, EntryKind, EntryLink, Layout, ObjectRecord, batch_digest};
use super::frame::{self, FrameError, Kind};
use super::head::{
    CompactionRef, Descent, EntryRef, Head, Intent, Lease, PastWrite, RECENT, RecordRef, RollupRef, Watermark,
};
use super::ids::{Digest, Nonce, StreamId, WriterId};
use super::json::Extra;
use super::position::{Lineage, Position, PositionRecord, PositionType};
use crate::plan::ownership::{self, Identity};

fn position() -> Position {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
    Position::parse(PositionType::PgLsn, lineage, "16/B374D848", 0).unwrap()
}

fn entry() -> Entry {
    let (content, position) = (Digest::of(b"{}\n"), position());
    let object = ObjectRecord {
        namespace: "public".to_owned(),
        table: "orders".to_owned(),
        key: format!("p/orders/public.orders/wm2-{}/{content}.jsonl", position.digest()),
        layout: Layout::Wm2,
        sha256: content,
        size: 3,
        rows: 1,
        format: "jsonl".to_owned(),
        compression: "none".to_owned(),
        schema_fingerprint: Digest::of(b"schema"),
        row_seq_digest: Digest::of(b"rows"),
        etag: Some("\"8a80554c91d9fca8acb82f023de02f11\"".to_owned()),
    };
    Entry {
        stream_id: StreamId::from_bytes([1; 16]),
        seq: 2,
        epoch: 3,
        writer_id: WriterId::from_bytes([2; 16]),
        nonce: Nonce::from_bytes([3; 16]),
        prev: Some(EntryLink { seq: 1, key: "p/orders/before".to_owned(), sha256: Digest::of(b"before") }),
        kind: EntryKind::Batch,
        reason: None,
        position: PositionRecord::from(&position),
        prev_digest: None,
        batch: BatchRecord {
            events: 1,
            min_ts_ms: Some(1_764_417_600_000),
            max_ts_ms: None,
            batch_digest: batch_digest([(object.key.as_str(), &object.sha256)]),
        },
        objects: vec![object],
        created_at_ms: 1_764_417_600_001,
        extra: Extra::new(),
    }
}

fn head() -> Head {
    let me = Identity {
        writer_id: WriterId::from_bytes([2; 16]),
        instance: "host-1".to_owned(),
        pipeline: "orders".to_owned(),
        prefix: "p".to_owned(),
    };
    let first = ownership::creation(&me, StreamId::from_bytes([1; 16]), Nonce::from_bytes([4; 16]), 5);
    let mut head = ownership::acquisition(&first, &me, Nonce::from_bytes([5; 16]), 6);
    let (frame, extra) = (entry().encode(), Extra::new);
    head.seq = 2;
    head.chain = chain::extend(head.chain, 2, Digest::of(&frame));
    head.last_entry = Some(EntryRef {
        seq: 2,
        key: "p/orders/last".to_owned(),
        sha256: Digest::of(&frame),
        size: frame.len() as u64,
        extra: extra(),
    });
    head.watermark = Some(Watermark {
        position_type: "pg-lsn".to_owned(),
        digest: position().digest(),
        lineage_digest: position().lineage_digest(),
        extra: extra(),
    });
    head.rollup = Some(RollupRef {
        generation: 1,
        key: "p/orders/rollup".to_owned(),
        sha256: Digest::of(b"rollup"),
        size: 7,
        end_seq: 1,
        end_chain: Digest::of(b"chain"),
        published_at_ms: 8,
        published_rev: 1,
        extra: extra(),
    });
    head.compaction = Some(CompactionRef {
        count: 1,
        last: RecordRef {
            ordinal: 1,
            key: "p/orders/c".to_owned(),
            sha256: Digest::of(b"c"),
            extra: extra(),
        },
        published_at_ms: None,
        extra: extra(),
    });
    head.lease = Some(Lease {
        lease_id: Nonce::from_bytes([6; 16]),
        actor: "orphans".to_owned(),
        epoch: 1,
        ttl_ms: 60_000,
        granted_rev: 1,
        extra: extra(),
    });
    head
}

#[test]
fn an_entry_has_its_golden_bytes() {
    let golden = include_str!("golden/entry.txt");
    assert_eq!(String::from_utf8(entry().encode().to_vec()).unwrap(), golden.trim_end());
    assert_eq!(Entry::decode(golden.trim_end().as_bytes()).unwrap(), entry());
    assert_eq!(entry().position().unwrap(), position());
}

#[test]
fn head_has_its_golden_bytes() {
    let golden = include_str!("golden/head.txt");
    assert_eq!(String::from_utf8(head().encode().to_vec()).unwrap(), golden.trim_end());
    assert_eq!(Head::decode(golden.trim_end().as_bytes()).unwrap(), head());
}

/// The golden bodies with one field changed, framed anew.
fn changed(golden: &str, kind: Kind, minor: u16, pointer: &str, value: serde_json::Value) -> Vec<u8> {
    let body = golden.split_once('\n').unwrap().1.trim_end();
    let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
    let (object, field) = pointer.rsplit_once('/').unwrap();
    let object = if object.is_empty() { &mut body } else { body.pointer_mut(object).unwrap() };
    object[field] = value;
    frame::encode(kind, minor, &body).to_vec()
}

#[test]
fn fields_of_newer_minors_survive_any_number_of_rewrites() {
    let golden = include_str!("golden/head.txt");
    let newer = changed(golden, Kind::Head, 7, "/x_new", json!({"deep": ["1", null, true]}));
    let newer = changed(str::from_utf8(&newer).unwrap(), Kind::Head, 7, "/rollup/x_too", json!("kept"));
    let mut head = Head::decode(&newer).unwrap();
    for n in 0..200 {
        head = head.successor(Nonce::from_bytes([n; 16]), Intent::Publish, 0);
        head = Head::decode(&head.encode()).unwrap();
    }
    assert_eq!((head.minor, head.recent.len()), (7, RECENT));
    assert_eq!(head.extra["x_new"], json!({"deep": ["1", null, true]}));
    assert_eq!(head.rollup.unwrap().extra["x_too"], json!("kept"));
}

#[test]
fn what_only_a_newer_release_understands_is_refused_as_such() {
    let (head, entry) = (include_str!("golden/head.txt"), include_str!("golden/entry.txt"));
    for frame in [
        changed(head, Kind::Head, 0, "/write/intent", json!("teleport")),
        changed(head, Kind::Head, 1, "/min_reader", json!(1)),
    ] {
        assert!(matches!(Head::decode(&frame), Err(FrameError::NewerWriter { .. })));
    }
    let frame = changed(entry, Kind::Entry, 0, "/objects/0/layout", json!("wm3"));
    assert!(matches!(Entry::decode(&frame), Err(FrameError::NewerWriter { .. })));
    let frame = changed(head, Kind::Head, 0, "/rev", json!(2));
    assert!(matches!(Head::decode(&frame), Err(FrameError::Body { .. })));
}

#[test]
fn a_write_is_found_among_the_last_sixty_four() {
    let known = head();
    let mut heads = vec![known.clone()];
    for n in 0..=RECENT as u64 {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&n.to_be_bytes());
        heads.push(heads[heads.len() - 1].successor(Nonce::from_bytes(nonce), Intent::Publish, 0));
    }
    assert_eq!(heads[0].descent(&known), Descent::Same);
    for (distance, head) in heads.iter().enumerate().skip(1) {
        let expected = if distance <= RECENT { Descent::Descendant } else { Descent::TooFar };
        assert_eq!(head.descent(&known), expected, "{distance}");
        assert_eq!(known.descent(head), Descent::Older);
        assert_eq!(head.remembers(known.write.nonce), distance <= RECENT, "{distance}");
    }
    // Another write in its place, directly or some revisions ago: the store lost it.
    let other =
        Head { write: head().successor(Nonce::from_bytes([9; 16]), Intent::Publish, 0).write, ..head() };
    assert_eq!(other.descent(&known), Descent::Foreign);
    let next = other.successor(Nonce::from_bytes([8; 16]), Intent::Publish, 0);
    assert_eq!(next.descent(&known), Descent::Foreign);
}

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

proptest! {
    #[test]
    fn head_is_read_back(
        numbers in any::<[u64; 6]>(),
        digest in digests(),
        nonces in proptest::collection::vec(any::<([u8; 16], u64)>(), 0..RECENT),
        text in any::<String>(),
        some in any::<bool>(),
    ) {
        let mut head = head();
        [head.rev, head.epoch, head.seq, head.entry_floor] = [numbers[0], numbers[1], numbers[2], numbers[3]];
        head.chain = digest;
        head.pipeline = text;
        head.recent = nonces
            .into_iter()
            .map(|(nonce, rev)| PastWrite { rev, nonce: Nonce::from_bytes(nonce), epoch: numbers[4] })
            .collect();
        if some {
            (head.prev_rollup, head.lease, head.compaction) = (head.rollup.clone(), None, None);
        }
        prop_assert_eq!(Head::decode(&head.encode()).unwrap(), head);
    }

    #[test]
    fn an_entry_is_read_back(
        numbers in any::<[u64; 5]>(),
        names in any::<[String; 3]>(),
        ts in any::<Option<u64>>(),
        sub in any::<u64>(),
    ) {
        let mut entry = entry();
        [entry.seq, entry.epoch, entry.created_at_ms] = [numbers[0], numbers[1], numbers[2]];
        (entry.batch.min_ts_ms, entry.batch.events) = (ts, numbers[3]);
        let position = Position { sub, ..position() };
        entry.position = PositionRecord::from(&position);
        let [namespace, table, key] = names;
        entry.objects[0] = ObjectRecord { namespace, table, key, etag: None, ..entry.objects[0].clone() };
        let read = Entry::decode(&entry.encode()).unwrap();
        prop_assert_eq!(read.position().unwrap(), position);
        prop_assert_eq!(read, entry);
    }
}
