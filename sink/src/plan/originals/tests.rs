use proptest::prelude::*;

use super::*;
use crate::plan::samples;

const POLICY: Policy = Policy { retention_ms: 100, max_clock_skew_ms: 10 };

/// Record `ordinal` of a table, over `(from, to)`, of the objects at `inputs`.
fn record(ordinal: u64, range: (u64, u64), inputs: &[&str]) -> CompactionRecord {
    samples::compaction(ordinal, "s.t", range, inputs, &format!("c{ordinal}"))
}

fn live(key: &str, (seq_from, seq_to): (u64, u64), source: Source) -> LiveObject {
    LiveObject {
        table: "s.t".to_owned(),
        seq_from,
        seq_to,
        key: key.to_owned(),
        sha256: Digest::of(key.as_bytes()),
        size: 9,
        rows: 1,
        row_seq_digest: None,
        format: "jsonl".to_owned(),
        compression: "none".to_owned(),
        source,
    }
}

fn present(keys: &[&str]) -> BTreeMap<String, u64> {
    keys.iter().map(|key| ((*key).to_owned(), 7)).collect()
}

/// Two records, the second of which has replaced the output of the first, and what is live after.
fn twice(since: [Since; 2]) -> (Vec<Reached>, Vec<LiveObject>) {
    let records = [record(1, (1, 2), &["o1", "o2"]), record(2, (1, 3), &["c1", "o3"])];
    let records = records.into_iter().zip(since).map(|(record, since)| Reached { record, since });
    let live =
        vec![live("c2", (1, 3), Source::Compacted { ordinal: 2 }), live("o4", (4, 4), Source::Original)];
    (records.collect(), live)
}

#[track_caller]
fn check(records: &[Reached], live: &[LiveObject], now_ms: u64, goes: &[&str], stays: &[(&str, Stay)]) {
    let all = present(&["o1", "o2", "o3", "o4", "c1", "c2"]);
    let planned = plan(records, live, &all, now_ms, &POLICY);
    let inputs = planned.replaced.iter().flat_map(|of| &of.inputs);
    assert_eq!(inputs.map(|input| input.key.as_str()).collect::<Vec<_>>(), goes);
    let kept: Vec<_> = planned.kept.iter().map(|kept| (kept.key.as_str(), kept.reason)).collect();
    assert_eq!(kept, stays);
}

#[test]
fn inputs_go_once_head_has_reached_their_record_for_long_enough() {
    let (records, live) = twice([Since::Store(0), Since::Store(50)]);
    check(
        &records,
        &live,
        99,
        &[],
        &[("o1", Stay::Retained), ("o2", Stay::Retained), ("c1", Stay::Retained), ("o3", Stay::Retained)],
    );
    check(&records, &live, 100, &["o1", "o2"], &[("c1", Stay::Retained), ("o3", Stay::Retained)]);
    check(&records, &live, 150, &["o1", "o2", "c1", "o3"], &[]);
    let planned = plan(&records, &live, &present(&["o1"]), 100, &POLICY);
    assert_eq!(
        planned.replaced[0].outputs.iter().map(|output| output.key.as_str()).collect::<Vec<_>>(),
        ["c2"]
    );
    assert_eq!(
        planned.to_string(),
        "delete of s.t, entries 1 to 2: HEAD has reached record 1 for 100 ms and more\n  o1\n"
    );
}

#[test]
fn the_owners_clock_counts_with_its_skew_and_an_unknown_time_never() {
    let (records, live) = twice([Since::Store(0), Since::Owner(50)]);
    check(&records, &live, 159, &["o1", "o2"], &[("c1", Stay::Retained), ("o3", Stay::Retained)]);
    check(&records, &live, 160, &["o1", "o2", "c1", "o3"], &[]);
    let (records, live) = twice([Since::Store(0), Since::Unknown]);
    check(&records, &live, u64::MAX, &["o1", "o2"], &[("c1", Stay::Undated), ("o3", Stay::Undated)]);
}

#[test]
fn nothing_goes_for_a_record_that_proves_nothing() {
    let (mut records, _) = twice([Since::Store(0), Since::Store(0)]);
    records.iter_mut().for_each(|of| of.record.equivalence.equal = false);
    let read = [live("o1", (1, 1), Source::Original)];
    check(&records, &read, 999, &[], &["o1", "o2", "c1", "o3"].map(|key| (key, Stay::Unproven)));
    // Nor without a live output for its whole range.
    let (records, _) = twice([Since::Store(0), Since::Store(0)]);
    let half = [live("c2", (2, 3), Source::Compacted { ordinal: 2 })];
    check(&records, &half, 999, &[], &["o1", "o2", "c1", "o3"].map(|key| (key, Stay::Unproven)));
}

#[test]
fn what_readers_read_stays() {
    let (records, mut live) = twice([Since::Store(0), Since::Store(0)]);
    live.push(self::live("c1", (7, 8), Source::Compacted { ordinal: 9 }));
    check(&records, &live, 999, &["o1", "o2", "o3"], &[("c1", Stay::Live)]);
}

proptest! {
    #[test]
    fn planning_again_after_applying_changes_nothing(
        since in proptest::collection::vec(0..200_u64, 1..8),
        equal in proptest::collection::vec(any::<bool>(), 8),
        there in proptest::collection::vec(any::<bool>(), 32),
        now_ms in 0..400_u64,
    ) {
        let keys: Vec<String> = (0..32).map(|n| format!("o{n}")).collect();
        let records: Vec<Reached> = since.iter().zip(1..).map(|(&since, n)| {
            let at = usize::try_from(n).unwrap() * 4;
            let inputs: Vec<&str> = keys[at - 4..at].iter().map(String::as_str).collect();
            let mut record = record(n, (n, n), &inputs);
            record.equivalence.equal = equal[usize::try_from(n).unwrap() - 1];
            Reached { record, since: Since::Store(since) }
        }).collect();
        let outputs: Vec<LiveObject> = (1..9).map(|n| live(&format!("c{n}"), (n, n), Source::Compacted { ordinal: n })).collect();
        let mut all: BTreeMap<String, u64> =
            keys.iter().zip(&there).filter(|(_, there)| **there).map(|(key, _)| (key.clone(), 7)).collect();
        let planned = plan(&records, &outputs, &all, now_ms, &POLICY);
        for of in &planned.replaced {
            let reached = &records[usize::try_from(of.ordinal).unwrap() - 1];
            prop_assert!(reached.record.equivalence.equal && !of.outputs.is_empty());
            for input in &of.inputs {
                prop_assert!(reached.record.inputs.iter().any(|of| of.key == input.key));
                prop_assert_eq!(all.remove(&input.key), Some(7));
            }
        }
        let again = plan(&records, &outputs, &all, now_ms, &POLICY);
        prop_assert_eq!(again.replaced, Vec::new());
        prop_assert_eq!(again.kept, planned.kept);
    }
}
