use proptest::prelude::*;

use super::*;
use crate::model::ids::Digest;
use crate::run::recover::live::Source;

const POLICY: Policy =
    Policy { min_inputs: 3, max_inputs: 100, target_bytes: 100, encoding: Encoding::Jsonl };

fn object(table: &str, (seq_from, seq_to): (u64, u64), size: u64) -> LiveObject {
    let key = format!("{table}/{seq_from}-{seq_to}.jsonl");
    let source = if seq_from == seq_to { Source::Original } else { Source::Compacted { ordinal: 1 } };
    LiveObject {
        table: table.to_owned(),
        seq_from,
        seq_to,
        sha256: Digest::of(key.as_bytes()),
        key,
        size,
        rows: 1,
        row_seq_digest: None,
        format: "jsonl".to_owned(),
        compression: "none".to_owned(),
        source,
    }
}

/// One table's objects, one of each entry.
fn sizes(sizes: &[u64]) -> Vec<LiveObject> {
    sizes.iter().zip(1..).map(|(size, seq)| object("s.t", (seq, seq), *size)).collect()
}

fn groups(live: &[LiveObject]) -> Vec<(u64, u64)> {
    plan(live, u64::MAX, &POLICY).groups.iter().map(|group| (group.seq_from, group.seq_to)).collect()
}

fn reasons(live: &[LiveObject], upto: u64) -> Vec<Stay> {
    plan(live, upto, &POLICY).kept.iter().map(|kept| kept.reason).collect()
}

/// What is live once a group is one object.
fn applied(live: &[LiveObject], group: &Group) -> Vec<LiveObject> {
    let mut next: Vec<LiveObject> =
        live.iter().filter(|object| !group.inputs.contains(object)).cloned().collect();
    next.push(object(&group.table, (group.seq_from, group.seq_to), group.bytes));
    next.sort_by(|a, b| (&a.table, a.seq_from).cmp(&(&b.table, b.seq_from)));
    next
}

#[test]
fn neighbours_become_one_up_to_the_target() {
    assert_eq!(groups(&sizes(&[10, 10, 10, 10])), [(1, 4)]);
    assert_eq!(groups(&sizes(&[40, 30, 30, 30, 30, 30])), [(1, 3), (4, 6)]);
    assert_eq!(groups(&sizes(&[10, 10])), []);
}

#[test]
fn what_is_left_alone_has_its_reason() {
    assert_eq!(reasons(&sizes(&[10, 10]), 9), [Stay::Few; 2]);
    assert_eq!(reasons(&sizes(&[100]), 9), [Stay::Large]);
    assert_eq!(reasons(&sizes(&[10, 10, 10, 10]), 3), [Stay::Recent]);
    assert_eq!(reasons(&sizes(&[10, 10, 50, 10]), 9), [Stay::Few, Stay::Few, Stay::Outweighs, Stay::Few]);
    let mut live = sizes(&[10, 10, 10]);
    live[1].format = "avro".to_owned();
    assert_eq!(reasons(&live, 9), [Stay::Few, Stay::Unknown, Stay::Few]);
    let text = plan(&live, 9, &POLICY).to_string();
    assert!(text.contains("keep s.t/2-2.jsonl: its format is of a newer release\n"), "{text}");
}

#[test]
fn tables_are_apart_and_entries_are_never_parted() {
    let mut live = sizes(&[10, 10]);
    live.extend([object("s.u", (1, 1), 10), object("s.u", (2, 2), 10)]);
    assert_eq!(groups(&live), []);
    // Two objects of one entry: both are in, or none.
    let mut live = sizes(&[40, 20, 30]);
    live.insert(2, LiveObject { key: "s.t/2-2b.jsonl".to_owned(), ..live[1].clone() });
    let planned = plan(&live, 9, &POLICY);
    assert_eq!(groups(&live), [(1, 2)]);
    assert_eq!(planned.groups[0].inputs.len(), 3);
}

#[test]
fn lag_counts_originals_and_their_entries() {
    let mut live = sizes(&[10, 10]);
    live.extend([object("s.u", (2, 2), 10), object("s.u", (3, 9), 10)]);
    assert_eq!(lag(&live), Lag { objects: 3, seqs: 2 });
}

proptest! {
    /// Groups apart from each other, of whole units, within the limits; and what a plan was applied to plans
    /// nothing more.
    #[test]
    fn planning_again_after_applying_changes_nothing(
        all in proptest::collection::vec(prop_oneof![8 => 1..20_u64, 1 => 20..130_u64], 0..80),
        min_inputs in 2..6_usize,
    ) {
        let policy = Policy { min_inputs, ..POLICY };
        let live = sizes(&all);
        let planned = plan(&live, u64::MAX, &policy);
        let mut after = live.clone();
        let mut before = 0;
        for group in &planned.groups {
            prop_assert!(group.inputs.len() >= min_inputs && group.bytes <= policy.target_bytes);
            prop_assert!(group.seq_from > before);
            prop_assert!(group.inputs.iter().all(|input| input.size * 2 <= group.bytes));
            before = group.seq_to;
            after = applied(&after, group);
        }
        prop_assert_eq!(planned.kept.len() + planned.groups.iter().map(|group| group.inputs.len()).sum::<usize>(), live.len());
        prop_assert_eq!(plan(&after, u64::MAX, &policy).groups, Vec::new());
    }

    /// Table by table and entry by entry, as a stream grows: no row is written more often than sizes double.
    #[test]
    fn rows_are_seldom_rewritten(all in proptest::collection::vec(1..4_u64, 1..200)) {
        let policy = Policy { min_inputs: 2, target_bytes: 1 << 20, ..POLICY };
        let mut live: Vec<LiveObject> = Vec::new();
        let mut written = 0;
        for (size, seq) in all.iter().zip(1..) {
            live.push(object("s.t", (seq, seq), *size));
            for group in plan(&live, u64::MAX, &policy).groups {
                written += group.bytes;
                live = applied(&live, &group);
            }
        }
        let total: u64 = all.iter().sum();
        prop_assert!(written <= total * u64::from(total.max(2).ilog2() + 1), "{} of {}", written, total);
    }
}
