//! The oracle is shown to fail: every class of defect is injected into a small bucket, and found.

mod command;
mod forge;
mod history;
mod lifetime;
mod parquet;

use assay_oracle::bucket::ReadError;
use assay_oracle::durable::Subject;
use assay_oracle::reach::Reach;
use assay_oracle::report::Verdict;
use assay_server::Rule;
use forge::{Forge, ROOT, framed, lsn, object, position, row, sha, wanted, words};
use serde_json::json;

fn rule(text: &str) -> Rule {
    text.parse().expect("a rule")
}

#[tokio::test]
async fn an_honest_bucket_is_clean() {
    let report = Forge::three().judged().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    let s = &report.statistics;
    assert_eq!((s.entries, s.objects, s.seq, s.rev, s.listed), (3, 6, 3, 4, 10));
    assert_eq!(s.rows["public.a"], 6);
    assert_eq!((s.orphans, s.repeated_rows), (0, 0));
}

#[tokio::test]
async fn what_head_reaches_is_followed_while_it_runs() {
    let forge = Forge::three();
    let entry = forge.key("entries", 1);
    let stored = forge.stored().await;
    let subject = Subject { prefix: "cdc".to_owned(), pipeline: "orders".to_owned() };
    let mut reach = Reach::new(&subject);
    for _ in 0..2 {
        reach.advance(&stored.bucket()).await.unwrap();
        assert_eq!((reach.root(), reach.live().len()), (ROOT, 6));
    }
    let mut nowhere = Reach::new(&Subject { pipeline: "elsewhere".to_owned(), ..subject.clone() });
    nowhere.advance(&stored.bucket()).await.unwrap();
    assert!(nowhere.live().is_empty());
    stored.client().delete_object().bucket("lake").key(&entry).send().await.unwrap();
    let error = Reach::new(&subject).advance(&stored.bucket()).await.unwrap_err();
    assert!(error.to_string().contains(&entry), "{error}");
}

#[tokio::test]
async fn a_stream_without_entries_is_clean() {
    assert_eq!(Forge::new().judged().await.verdict(), Verdict::Clean);
}

#[tokio::test]
async fn all_kinds_of_positions_are_recomputed() {
    const SERVER: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let uuid = hex::decode(SERVER.replace('-', "")).unwrap();
    let gtid = |last: u64| {
        let canonical = [
            &1_u32.to_be_bytes()[..],
            &uuid,
            &[0],
            &1_u32.to_be_bytes(),
            &1_u64.to_be_bytes(),
            &last.to_be_bytes(),
        ]
        .concat();
        position("mysql-gtid", 1, "", &format!("{SERVER}:1-{last}"), &canonical, 0)
    };
    let binlog = |offset: u64| {
        let canonical = [&16_u64.to_be_bytes()[..], b"mysql-bin.000042", &offset.to_be_bytes()].concat();
        position("mysql-binlog", 2, SERVER, &format!("mysql-bin.000042:{offset}"), &canonical, 0)
    };
    let snapshot = |done: bool, chunk: u64| {
        let text = json!({
            "phase": if done { "done" } else { "running" }, "namespace": "public", "table": "a",
            "chunk": chunk.to_string(), "offset": "0", "cursor": "x",
        });
        let canonical = [
            &[u8::from(done)][..],
            &6_u64.to_be_bytes(),
            b"public",
            &1_u64.to_be_bytes(),
            b"a",
            &chunk.to_be_bytes(),
            &0_u64.to_be_bytes(),
            &1_u64.to_be_bytes(),
            b"x",
        ]
        .concat();
        position("snapshot", 4, "run-1", &text.to_string(), &canonical, 0)
    };
    let walk = [snapshot(false, 1), snapshot(false, 2), snapshot(true, 2), lsn(7)];
    for positions in [&walk[..], &[gtid(4), gtid(5)], &[binlog(4), binlog(1337)]] {
        let mut forge = Forge::new();
        for (id, position) in (1..).zip(positions) {
            let rows = object(position, "a", &[row(id)]);
            forge.commit(position.clone(), vec![rows], |_| {});
        }
        assert_eq!(forge.found().await, "");
    }
}

#[tokio::test]
async fn head_that_is_gone_is_found() {
    let mut forge = Forge::three();
    let entry = forge.key("entries", 0);
    let bytes = forge.objects[&entry].clone();
    forge = Forge::new();
    forge.objects.insert(entry, bytes);
    let stored = forge.stored().await;
    let head = format!("{ROOT}_manifest/HEAD");
    stored.client().delete_object().bucket("lake").key(head).send().await.unwrap();
    assert_eq!(words(&stored.judged(None).await), "head_missing:1");
}

#[tokio::test]
async fn a_broken_head_is_found() {
    let mut forge = Forge::three();
    let mut bytes = framed("head", &forge.head);
    *bytes.last_mut().unwrap() ^= 1;
    forge.objects.insert(format!("{ROOT}_manifest/HEAD"), bytes);
    let report = forge.judged().await;
    assert!(words(&report).starts_with("frame:1"), "{}", report.text());
}

#[tokio::test]
async fn another_pipelines_manifest_is_found() {
    for (field, other) in [("pipeline", "payments"), ("prefix", "elsewhere")] {
        let mut forge = Forge::three();
        forge.head[field] = json!(other);
        assert_eq!(forge.found().await, "identity:1");
    }
    let mut forge = Forge::three();
    forge.head["stream_id"] = json!(format!("{:032x}", 1));
    assert_eq!(forge.found().await, "identity:3 chain:1");
}

#[tokio::test]
async fn a_head_that_contradicts_itself_is_found() {
    let spoilt = |field: &str, value| {
        let mut forge = Forge::three();
        *forge.head.pointer_mut(field).expect("a field") = value;
        forge.found()
    };
    assert_eq!(spoilt("/epoch", json!("0")).await, "head:2");
    assert_eq!(spoilt("/recent/0/rev", json!("9")).await, "head:1");
    assert_eq!(spoilt("/recent/2/rev", json!("4")).await, "head:1");
    assert_eq!(spoilt("/seq", json!("4")).await, "head:1");
    assert_eq!(spoilt("/entry_floor", json!("5")).await, "head:1");
    assert_eq!(spoilt("/watermark/digest", json!(sha("other"))).await, "head:1");
}

#[tokio::test]
async fn a_broken_chain_is_found() {
    let mut forge = Forge::three();
    forge.head["chain"] = json!(sha("other"));
    assert_eq!(forge.found().await, "chain:1");
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![], |entry| entry["prev_digest"] = json!(sha("other")));
    assert_eq!(forge.found().await, "chain:1");
}

#[tokio::test]
async fn a_missing_entry_is_found() {
    let mut forge = Forge::three();
    let first = forge.key("entries", 0);
    forge.objects.remove(&first);
    // Its two objects are left behind, as far as HEAD tells.
    let report = forge.judged().await;
    assert_eq!(words(&report), "missing:1");
    assert_eq!(report.statistics.orphans, 2);
}

#[tokio::test]
async fn a_number_that_is_left_out_is_found() {
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![], |entry| entry["prev"]["seq"] = json!("2"));
    assert!(forge.found().await.starts_with("gap:1"));
}

#[tokio::test]
async fn an_entry_with_other_bytes_is_found() {
    let mut forge = Forge::three();
    let (last, first) = (forge.key("entries", 2), forge.key("entries", 0));
    forge.objects.insert(last, forge.objects[&first].clone());
    assert!(forge.found().await.starts_with("mutated_object:1"));
    let mut forge = Forge::three();
    let last = forge.key("entries", 2);
    forge.objects.insert(last, b"<html>bad gateway</html>\n".to_vec());
    assert!(forge.found().await.starts_with("frame:1"));
}

#[tokio::test]
async fn a_digest_that_does_not_follow_is_found() {
    let mut forge = Forge::three();
    // Another text with the old digest: what a position that was changed afterwards looks like.
    forge.commit(lsn(0x900), vec![], |entry| entry["position"]["text"] = json!("0/901"));
    assert_eq!(forge.found().await, "digest:1");
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![], |entry| entry["position"]["digest"] = json!(sha("other")));
    assert_eq!(forge.found().await, "digest:1");
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![], |entry| entry["batch"]["batch_digest"] = json!(sha("other")));
    assert_eq!(forge.found().await, "digest:1");
}

#[tokio::test]
async fn a_key_of_another_position_or_table_is_found() {
    let mut forge = Forge::three();
    let other = object(&lsn(0x800), "a", &[row(9)]);
    forge.commit(lsn(0x900), vec![other], |_| {});
    assert_eq!(forge.found().await, "key:1");
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![object(&lsn(0x900), "a", &[row(9)])], |entry| {
        entry["objects"][0]["table"] = json!("b");
    });
    assert_eq!(forge.found().await, "key:1");
}

#[tokio::test]
async fn legacy_keys_are_accepted_with_their_position() {
    for (text, found) in [("0/900", ""), ("0/901", "key:1"), ("not a position", "")] {
        let mut forge = Forge::three();
        let (mut record, bytes) = object(&lsn(0x900), "a", &[row(9)]);
        record["layout"] = json!("wm");
        record["key"] = json!(format!("{ROOT}public.a/wm-{}/{}.jsonl", hex::encode(text), sha(&bytes)));
        forge.commit(lsn(0x900), vec![(record, bytes)], |_| {});
        assert_eq!(forge.found().await, found, "{text}");
    }
}

#[tokio::test]
async fn a_missing_object_is_found() {
    let mut forge = Forge::three();
    let key = forge.key("public.a", 0);
    forge.objects.remove(&key);
    assert_eq!(forge.found().await, "missing:1");
}

#[tokio::test]
async fn empty_and_corrupt_objects_are_found() {
    for (bytes, found) in [
        (&b""[..], "empty_object:1"),
        (b"{\"op\":\"c\",\"aft", "corrupt_object:1"),
        (b"<Error><Code>SlowDown</Code></Error>\n", "corrupt_object:1"),
        (b"{\"op\":\"c\",\"after\":{\"id\":99}}\n", "mutated_object:1"),
    ] {
        let mut forge = Forge::three();
        let key = forge.key("public.b", 1);
        forge.objects.insert(key, bytes.to_vec());
        assert_eq!(forge.found().await, found);
    }
    let mut forge = Forge::three();
    forge.commit(lsn(0x900), vec![object(&lsn(0x900), "a", &[])], |_| {});
    assert_eq!(forge.found().await, "empty_object:1");
}

#[tokio::test]
async fn rows_that_are_not_those_of_the_entry_are_found() {
    for (field, value) in [("rows", json!("3")), ("row_seq_digest", json!(sha("other")))] {
        let mut forge = Forge::three();
        let rows = object(&lsn(0x900), "a", &[row(9), row(10)]);
        forge.commit(lsn(0x900), vec![rows], |entry| entry["objects"][0][field] = value);
        assert_eq!(forge.found().await, "rows:1");
    }
}

#[tokio::test]
async fn a_position_committed_twice_is_found() {
    let mut forge = Forge::three();
    let again = lsn(0x300);
    forge.commit(again.clone(), vec![object(&again, "c", &[row(9)])], |_| {});
    assert_eq!(forge.found().await, "duplicate:1 regression:1");
}

#[tokio::test]
async fn a_position_that_goes_back_is_found_unless_it_says_so() {
    let mut forge = Forge::three();
    forge.commit(lsn(0x250), vec![], |_| {});
    assert_eq!(forge.found().await, "regression:1");
    let mut forge = Forge::three();
    forge.commit(lsn(0x250), vec![], |entry| entry["kind"] = json!("rebase"));
    assert_eq!(forge.found().await, "");
}

#[tokio::test]
async fn a_writer_of_an_older_epoch_is_found() {
    let mut forge = Forge::three();
    forge.head["epoch"] = json!("2");
    forge.commit(lsn(0x900), vec![], |_| {});
    forge.head["epoch"] = json!("1");
    forge.commit(lsn(0xA00), vec![], |_| {});
    forge.head["epoch"] = json!("2");
    forge.head["recent"] = json!([]);
    assert_eq!(forge.found().await, "regression:1");
}

#[tokio::test]
async fn strangers_are_found_and_orphans_are_counted() {
    let mut forge = Forge::three();
    let orphan = object(&lsn(0x900), "a", &[row(9)]);
    forge.objects.insert(orphan.0["key"].as_str().unwrap().to_owned(), orphan.1);
    forge.objects.insert(format!("{ROOT}_manifest/probe/00/a"), b"x".to_vec());
    let report = forge.judged().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    assert_eq!(report.statistics.orphans, 2);
    for key in ["_manifest/HEAD.bak", "notes.txt", "public.a/x.jsonl"] {
        let mut forge = Forge::three();
        forge.objects.insert(format!("{ROOT}{key}"), b"x".to_vec());
        assert_eq!(forge.found().await, "foreign:1", "{key}");
    }
}

fn list(rows: &[(&str, u64)]) -> String {
    rows.iter().map(|(table, id)| wanted(table, *id)).collect()
}

#[tokio::test]
async fn every_expected_row_is_there_once_and_in_order() {
    let all: Vec<(&str, u64)> =
        (1..=3).flat_map(|seq| [("a", seq * 2), ("a", seq * 2 + 1), ("b", seq)]).collect();
    let stored = Forge::three().stored().await;
    let report = stored.judged(Some(&list(&all))).await;
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    assert_eq!(report.statistics.expected, 9);
    // A row too many expected, one too few, and two of one table the other way round.
    let more = [&all[..], &[("b", 4)]].concat();
    assert_eq!(words(&stored.judged(Some(&list(&more))).await), "gap:1");
    assert_eq!(words(&stored.judged(Some(&list(&all[1..]))).await), "foreign:1");
    let mut swapped = all.clone();
    swapped.swap(0, 1);
    assert_eq!(words(&stored.judged(Some(&list(&swapped))).await), "order:1");
    let without_b: Vec<_> = all.iter().copied().filter(|(table, _)| *table == "a").collect();
    assert_eq!(words(&stored.judged(Some(&list(&without_b))).await), "foreign:3");
}

#[tokio::test]
async fn a_row_that_is_there_twice_is_found() {
    let mut forge = Forge::new();
    for at in [0x100, 0x200] {
        forge.commit(lsn(at), vec![object(&lsn(at), "a", &[row(1)])], |_| {});
    }
    let stored = forge.stored().await;
    let report = stored.judged(Some(&wanted("a", 1))).await;
    assert_eq!(words(&report), "duplicate:1");
    assert_eq!(report.statistics.repeated_rows, 1);
}

#[tokio::test]
async fn a_lost_object_is_a_gap_of_rows_too() {
    let mut forge = Forge::new();
    forge.commit(lsn(0x100), vec![object(&lsn(0x100), "a", &[row(1)])], |_| {});
    let key = forge.key("public.a", 0);
    forge.objects.insert(key, b"{\"op\":\"c\",\"after\":{\"id\":2}}\n".to_vec());
    let report = forge.stored().await.judged(Some(&wanted("a", 1))).await;
    assert_eq!(words(&report), "gap:1 mutated_object:1");
}

#[tokio::test]
async fn an_empty_place_is_no_clean_one() {
    let stored = Forge::new().stored().await;
    let head = format!("{ROOT}_manifest/HEAD");
    stored.client().delete_object().bucket("lake").key(head).send().await.unwrap();
    let report = stored.judged(None).await;
    assert_eq!(report.verdict(), Verdict::Inconclusive, "{}", report.text());
    assert_eq!(words(&stored.judged(Some(&wanted("a", 1))).await.clone()).split(' ').next(), Some("gap:1"));
}

#[tokio::test]
async fn a_listing_that_leaves_out_or_breaks_off_says_nothing() {
    let stored = Forge::three().stored().await;
    let guard = stored.server.fault(rule("operation=ListObjectsV2 effect=omit-newest")).unwrap();
    assert_eq!(stored.judged(None).await.verdict(), Verdict::Inconclusive);
    drop(guard);
    let guard = stored.server.fault(rule("operation=ListObjectsV2 effect=truncate")).unwrap();
    let subject = Subject { prefix: "cdc".to_owned(), pipeline: "orders".to_owned() };
    let error = assay_oracle::durable::judge(&stored.bucket(), &subject, None).await.unwrap_err();
    assert!(matches!(error, ReadError::Untrusted { .. }), "{error}");
    drop(guard);
    assert_eq!(stored.judged(None).await.verdict(), Verdict::Clean);
}
