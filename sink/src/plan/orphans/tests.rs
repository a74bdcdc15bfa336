use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::frame::{self, Kind};
use crate::model::ids::Digest;

const NOW_MS: u64 = 1_764_417_600_000;
const GRACE_MS: u64 = 3_600_000;

fn root() -> PipelineRoot {
    PipelineRoot::new("p", "orders", "jsonl").unwrap()
}

fn stream(n: u8) -> StreamId {
    StreamId::from_bytes([n; 16])
}

fn policy() -> Policy {
    Policy::new(GRACE_MS, 60_000, 30_000).unwrap()
}

fn stray(key: &str, age_ms: u64, content: Content) -> Stray {
    let meta = ObjectMeta {
        key: format!("p/orders/{key}"),
        etag: ETag("\"e\"".to_owned()),
        size: 7,
        last_modified_ms: NOW_MS - age_ms,
    };
    Stray { meta, content }
}

fn sight(root: &PipelineRoot, listed: u64) -> Sight<'_> {
    Sight { root, stream_id: stream(1), store_date_ms: NOW_MS, listed }
}

#[test]
fn each_stray_has_one_verdict() {
    let (old, young) = (GRACE_MS + 1, GRACE_MS);
    let ours = Content::Bytes { stamp: Some(stream(1)) };
    let entry = "_manifest/entries/1-1-x.entry";
    for (key, age_ms, content, expected) in [
        ("shop.orders/wm2-1/x.jsonl", old, ours, Verdict::Delete),
        ("shop.orders/wm2-1/x.jsonl", young, ours, Verdict::Young),
        ("shop.orders/wm2-1/x.jsonl", old, Content::Unread, Verdict::Unread),
        ("shop.orders/wm2-1/x.jsonl", old, Content::Frame, Verdict::Misplaced),
        ("shop.orders/wm2-1/x.jsonl", old, Content::Entry(stream(1)), Verdict::Misplaced),
        ("shop.orders/wm-00ff/x.jsonl", old, Content::Bytes { stamp: None }, Verdict::Delete),
        ("shop.orders/compacted/x.jsonl", old, ours, Verdict::Delete),
        ("anything at all", old, ours, Verdict::Delete),
        ("_manifest", old, ours, Verdict::Delete),
        (entry, old, Content::Entry(stream(1)), Verdict::Delete),
        (entry, young, Content::Entry(stream(1)), Verdict::Young),
        (entry, old, Content::Unread, Verdict::Unread),
        (entry, old, Content::Entry(stream(2)), Verdict::OtherStream),
        (entry, old, Content::Frame, Verdict::Unknown),
        (entry, old, ours, Verdict::Unknown),
        ("_manifest/rollups/x", old, Content::Unread, Verdict::Retained),
        ("_manifest/inventory/x", old, Content::Unread, Verdict::Retained),
        ("_manifest/marks/x", old, Content::Unread, Verdict::Retained),
        ("_manifest/compactions/x", old, Content::Unread, Verdict::Retained),
        ("_manifest/HEAD.bak", old, Content::Unread, Verdict::Unknown),
        ("_manifest/later/x", old, Content::Unread, Verdict::Unknown),
        ("_manifest/probe/r/k", old, Content::Unread, Verdict::Delete),
        ("_manifest/probe/r/k", young, Content::Unread, Verdict::Young),
    ] {
        let found = verdict(&stray(key, age_ms, content), &sight(&root(), 1), &policy());
        assert_eq!(found, expected, "{key} {age_ms} {content:?}");
    }
}

#[test]
fn a_date_in_the_future_is_young() {
    let mut later = stray("shop.orders/x", 0, Content::Unread);
    later.meta.last_modified_ms = NOW_MS + 10 * GRACE_MS;
    assert_eq!(verdict(&later, &sight(&root(), 1), &policy()), Verdict::Young);
}

#[test]
fn a_stamp_can_be_asked_for() {
    let policy = Policy { require_stamp: true, ..policy() };
    for (stamp, expected) in [
        (Some(stream(1)), Verdict::Delete),
        (Some(stream(2)), Verdict::Unstamped),
        (None, Verdict::Unstamped),
    ] {
        let stray = stray("shop.orders/x", GRACE_MS + 1, Content::Bytes { stamp });
        assert_eq!(verdict(&stray, &sight(&root(), 1), &policy), expected);
    }
}

#[test]
fn content_is_told_by_what_it_holds() {
    let object = |bytes: Bytes, metadata: &[(&str, &str)]| Object {
        meta: stray("x", 0, Content::Unread).meta,
        bytes,
        metadata: metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        store_date_ms: None,
    };
    let id = stream(1).to_string();
    let bytes = Bytes::from_static(b"{\"n\":1}\n");
    assert_eq!(
        Content::of(&object(bytes.clone(), &[("dfs3-stream", &id)])),
        Content::Bytes { stamp: Some(stream(1)) }
    );
    assert_eq!(Content::of(&object(bytes, &[("dfs3-stream", "x")])), Content::Bytes { stamp: None });
    let entry = Bytes::from_static(include_bytes!("../../model/golden/entry.txt").trim_ascii_end());
    let Content::Entry(_) = Content::of(&object(entry.clone(), &[])) else {
        panic!("the golden entry is one")
    };
    // A damaged one, and one of another kind, are none.
    assert_eq!(Content::of(&object(entry.slice(..entry.len() - 1), &[])), Content::Frame);
    let digest = Digest::of(b"x");
    assert_eq!(Content::of(&object(frame::encode(Kind::Rollup, 0, &digest), &[])), Content::Frame);
}

#[test]
fn the_brake_stops_what_is_implausible_and_nothing_small() {
    let brake = Brake { from: 10, percent: 50, most: 100 };
    for (deletes, listed, on) in [
        (10, 10, false),
        (11, 11, true),
        (11, 22, false),
        (12, 22, true),
        (100, 1000, false),
        (101, 1000, true),
    ] {
        assert_eq!(brake.on(deletes, listed).is_some(), on, "{deletes} of {listed}");
    }
    let few = Brake { most: 5, ..brake };
    assert_eq!(
        (few.on(5, 100), few.on(6, 100).is_some()),
        (None, true),
        "a person's limit may be a small one"
    );
    let why = Brake::default().on(101, 200).unwrap();
    assert_eq!(why, "101 of 200 objects would be deleted, more than 50 of a hundred");
}

#[test]
fn a_grace_period_covers_two_send_timeouts() {
    assert!(Policy::new(120_000, 60_000, 30_000).is_ok());
    let error = Policy::new(119_999, 60_000, 30_000).unwrap_err().to_string();
    assert_eq!(
        error,
        "a grace_period_ms of 119999 is less than twice the send_timeout_ms of 60000: an object could be taken for \
         an orphan before its batch is committed; set at least 120000"
    );
}

#[test]
fn a_lease_leaves_time_to_work() {
    for (request_ms, ttl_ms, usable_ms) in [(30_000, 66_000, 33_000), (500, 3_000, 1_500)] {
        let times = LeaseTimes::of_requests(request_ms);
        assert_eq!((times.ttl_ms, times.usable_ms()), (ttl_ms, usable_ms));
    }
}

#[test]
fn a_plan_says_why() {
    let strays = [
        stray("_manifest/marks/m", GRACE_MS + 1, Content::Unread),
        stray("shop.orders/a", GRACE_MS + 1, Content::Bytes { stamp: None }),
        stray("shop.orders/b", 1_000, Content::Unread),
    ];
    let root = root();
    assert_eq!(
        plan(&strays, &sight(&root, 9), &policy()).to_string(),
        "keep \"p/orders/_manifest/marks/m\": a rollup, inventory, mark or compaction record: kept for ever; 7 bytes, \
         3600001 ms old\n\
         delete \"p/orders/shop.orders/a\": unreachable and older than the grace period; 7 bytes, 3600001 ms old\n\
         keep \"p/orders/shop.orders/b\": unreachable, and younger than the grace period; 7 bytes, 1000 ms old\n\
         9 objects, 6 reachable, 1 to delete"
    );
}

fn any_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        (1..3u8).prop_map(|n| Content::Entry(stream(n))),
        Just(Content::Frame),
        proptest::option::of(1..3u8).prop_map(|n| Content::Bytes { stamp: n.map(stream) }),
    ]
}

fn any_stray() -> impl Strategy<Value = Stray> {
    let folders = [
        "_manifest/entries/",
        "_manifest/probe/",
        "_manifest/rollups/",
        "_manifest/marks/",
        "_manifest/other/",
        "shop.orders/wm2-1/",
        "shop.orders/compacted/",
    ];
    (proptest::sample::select(folders.to_vec()), 0..100u32, 0..2 * GRACE_MS, any_content())
        .prop_map(|(folder, n, age_ms, content)| stray(&format!("{folder}{n}"), age_ms, content))
}

proptest! {
    #[test]
    fn planning_again_after_deleting_deletes_nothing(strays in proptest::collection::vec(any_stray(), 0..40)) {
        let root = root();
        let policy = Policy { brake: Brake { from: 100, ..Brake::default() }, ..policy() };
        let first = plan(&strays, &sight(&root, 100), &policy);
        let left: Vec<Stray> = strays
            .iter()
            .zip(&first.rows)
            .filter(|(_, row)| row.verdict != Verdict::Delete)
            .map(|(stray, _)| stray.clone())
            .collect();
        let again = plan(&left, &sight(&root, 100), &policy);
        prop_assert_eq!(again.deletes().count(), 0);
        prop_assert_eq!(again.rows.len() + first.deletes().count(), strays.len());
        // Nothing that is deleted is young, kept for ever, or unknown.
        for row in first.deletes() {
            prop_assert!(row.age_ms > GRACE_MS);
            prop_assert!(!["rollups", "marks", "other"].iter().any(|kept| row.key.contains(kept)));
        }
    }
}
