use std::collections::BTreeMap;

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
fn where_no_more_can_come_all_become_one() {
    // Before an object of half the target size, before one of an unknown format, and before one that does not fit.
    assert_eq!(groups(&sizes(&[10, 10, 50, 10, 10])), [(1, 2)]);
    let mut live = sizes(&[30, 10, 10]);
    live[2].format = "avro".to_owned();
    assert_eq!(groups(&live), [(1, 2)]);
    assert_eq!(groups(&sizes(&[49, 40, 20])), [(1, 2)]);
    // At the left of an object that outweighs the rest, and not at its right.
    assert_eq!(groups(&sizes(&[8, 2, 30, 8, 2])), [(1, 2)]);
    // An entry that is not acknowledged yet may still be joined to what is before it.
    assert_eq!(plan(&sizes(&[10, 10, 10]), 2, &POLICY).groups, []);
}

#[test]
fn a_record_has_its_limit_and_the_next_plan_takes_the_outputs() {
    let policy = Policy { max_inputs: 3, target_bytes: 1000, ..POLICY };
    let mut live = sizes(&[1; 7]);
    let first = plan(&live, u64::MAX, &policy);
    assert_eq!(first.groups.iter().map(|group| group.inputs.len()).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(first.kept.len(), 1);
    for group in &first.groups {
        live = applied(&live, group);
    }
    let second = plan(&live, u64::MAX, &policy).groups;
    assert_eq!(second.iter().map(|group| (group.seq_from, group.seq_to)).collect::<Vec<_>>(), [(1, 7)]);
}

#[test]
fn what_is_left_alone_has_its_reason() {
    assert_eq!(reasons(&sizes(&[10, 10]), 9), [Stay::Few; 2]);
    assert_eq!(reasons(&sizes(&[50]), 9), [Stay::Large]);
    assert_eq!(reasons(&sizes(&[10, 10, 10, 10]), 3), [Stay::Recent]);
    assert_eq!(reasons(&sizes(&[10, 30, 10]), 9), [Stay::Few, Stay::Outweighs, Stay::Few]);
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

/// What became of a stream: what is live, how often the rows of each entry were written, and bytes in all.
#[derive(Default)]
struct Grown {
    live: Vec<LiveObject>,
    times: BTreeMap<u64, u64>,
    written: u64,
}

/// The stream grows by an object at a time, and every plan is carried out.
fn grown(sizes: &[u64], policy: &Policy) -> Grown {
    let mut grown = Grown::default();
    for (size, seq) in sizes.iter().zip(1..) {
        grown.live.push(object("s.t", (seq, seq), *size));
        for group in plan(&grown.live, u64::MAX, policy).groups {
            for seq in group.seq_from..=group.seq_to {
                *grown.times.entry(seq).or_default() += 1;
            }
            grown.written += group.bytes;
            grown.live = applied(&grown.live, &group);
        }
    }
    grown
}

/// What streams are made of: small objects, now and then one that outweighs many, now and then one that stays.
fn stream(most: usize) -> impl Strategy<Value = Vec<u64>> {
    let sizes = prop_oneof![20 => 1..4_u64, 4 => 4..40_u64, 2 => 40..500_u64, 1 => 500..1500_u64];
    proptest::collection::vec(sizes, 0..most)
}

proptest! {
    /// Groups apart from each other, within the limits; and what a plan was applied to plans nothing more.
    #[test]
    fn planning_again_after_applying_changes_nothing(all in stream(120), min_inputs in 2..6_usize) {
        let policy = Policy { min_inputs, max_inputs: 120, target_bytes: 1000, ..POLICY };
        let live = sizes(&all);
        let planned = plan(&live, u64::MAX, &policy);
        let mut after = live.clone();
        let mut before = 0;
        for group in &planned.groups {
            prop_assert!(group.inputs.len() >= 2 && group.bytes <= policy.target_bytes);
            // Fewer than are enough, or one that outweighs the rest: only where nothing can come to them any more.
            let worth = group.inputs.len() >= min_inputs
                && group.inputs.iter().all(|input| input.size * 2 <= group.bytes);
            let next = live.iter().find(|object| object.seq_from > group.seq_to);
            let closed = next.is_some_and(|next| {
                let stays = next.size * 2 >= policy.target_bytes;
                stays || next.size > group.bytes || group.bytes + next.size > policy.target_bytes
            });
            prop_assert!(worth || closed, "{group:?}");
            prop_assert!(group.seq_from > before);
            prop_assert!(group.inputs.iter().all(|input| input.size * 2 < policy.target_bytes));
            before = group.seq_to;
            after = applied(&after, group);
        }
        prop_assert_eq!(planned.kept.len() + planned.groups.iter().map(|group| group.inputs.len()).sum::<usize>(), live.len());
        prop_assert_eq!(plan(&after, u64::MAX, &policy).groups, Vec::new());
    }

    /// The two bounds that the module states, for a stream that is compacted as it grows.
    #[test]
    fn few_objects_stay_and_rows_are_seldom_rewritten(all in stream(400), min_inputs in 2..9_usize) {
        let policy = Policy { min_inputs, max_inputs: 400, target_bytes: 1000, ..POLICY };
        let Grown { live, times, .. } = grown(&all, &policy);
        let (total, doublings) = (all.iter().sum::<u64>(), u64::from(policy.target_bytes.ilog2()));
        let most = 4 * total / policy.target_bytes + 2 * doublings + min_inputs as u64;
        prop_assert!(live.len() as u64 <= most, "{} objects of {most}", live.len());
        let often = times.values().max().copied().unwrap_or_default();
        prop_assert!(often <= 2 * doublings + 2, "written {often} times");
    }

    /// Of small objects, none of which is left alone: rows are written no more often, on average, than sizes double.
    #[test]
    fn rows_are_seldom_rewritten(all in proptest::collection::vec(1..4_u64, 1..200)) {
        let written = grown(&all, &Policy { min_inputs: 2, target_bytes: 1 << 20, ..POLICY }).written;
        let total: u64 = all.iter().sum();
        prop_assert!(written <= total * u64::from(total.max(2).ilog2() + 1), "{} of {}", written, total);
    }
}
