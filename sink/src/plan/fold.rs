//! Compaction records folded, one after the other, into what is left of them: the outputs that no later record
//! has replaced. A table's live rows are these, and the objects of entries outside their ranges.

use crate::model::compaction::{CompactionRecord, METHOD};
use crate::model::head::RecordRef;
use crate::model::json::Extra;
use crate::model::rollup::{Compactions, LiveOutput};

/// Compaction records up to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// The newest record; its ordinal is how many there are.
    last: Option<RecordRef>,
    /// By table, first entry and place.
    outputs: Vec<LiveOutput>,
}

impl Compacted {
    /// What a rollup has folded already.
    ///
    /// # Errors
    /// What is wrong with it: it is not in order, or ranges of one table overlap.
    pub fn of_rollup(folded: Option<&Compactions>, end_seq: u64) -> Result<Self, String> {
        let Some(folded) = folded else { return Ok(Self::default()) };
        let sound = |pair: &[LiveOutput]| {
            let [one, two] = pair else { return true };
            let same = one.ordinal == two.ordinal && one.seq_from == two.seq_from && one.seq_to == two.seq_to;
            one.table < two.table || one.table == two.table && (same || one.seq_to < two.seq_from)
        };
        let within = |output: &LiveOutput| {
            output.seq_from <= output.seq_to && output.seq_to <= end_seq && output.ordinal <= folded.count
        };
        if folded.count != folded.last.ordinal
            || !folded.outputs.windows(2).all(sound)
            || !folded.outputs.iter().all(within)
        {
            return Err("the compaction records that it has folded contradict each other".to_owned());
        }
        Ok(Self { last: Some(folded.last.clone()), outputs: folded.outputs.clone() })
    }

    /// How many records there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.ordinal)
    }

    /// The newest record.
    #[must_use]
    pub fn last(&self) -> Option<&RecordRef> {
        self.last.as_ref()
    }

    /// The outputs that are left, by table, first entry and place.
    #[must_use]
    pub fn outputs(&self) -> &[LiveOutput] {
        &self.outputs
    }

    /// The first of the outputs that stand for the objects that entry `seq` has of `table`, if any do: nobody
    /// needs these objects any more.
    #[must_use]
    pub fn covering(&self, table: &str, seq: u64) -> Option<&LiveOutput> {
        let at = self.outputs.partition_point(|output| (output.table.as_str(), output.seq_to) < (table, seq));
        self.outputs.get(at).filter(|output| output.table == table && output.seq_from <= seq)
    }

    /// Adds the next record, which is at `of`.
    ///
    /// # Errors
    /// What contradicts the records before it.
    pub fn apply(&mut self, of: &RecordRef, record: &CompactionRecord) -> Result<(), String> {
        if record.ordinal != of.ordinal || record.ordinal != self.count() + 1 || record.prev != self.last {
            return Err(format!("record {} does not follow record {}", record.ordinal, self.count()));
        }
        proven(record)?;
        if record.equivalence.equal {
            self.replace(record)?;
        }
        self.last = Some(of.clone());
        Ok(())
    }

    /// Puts the outputs in the place of what they replace.
    fn replace(&mut self, record: &CompactionRecord) -> Result<(), String> {
        let key = (record.table.as_str(), record.seq_from);
        let from = self.outputs.partition_point(|output| (output.table.as_str(), output.seq_to) < key);
        let key = (record.table.as_str(), record.seq_to);
        let to = self.outputs.partition_point(|output| (output.table.as_str(), output.seq_from) <= key);
        let replaced = self.outputs.get(from..to).unwrap_or_default();
        let mut inputs = record.inputs.iter();
        for old in replaced {
            let whole = record.seq_from <= old.seq_from && old.seq_to <= record.seq_to;
            if !whole || !inputs.any(|input| input.key == old.key && input.sha256 == old.sha256) {
                return Err(format!("it replaces a part of {:?}", old.key));
            }
        }
        let outputs = record.outputs.iter().map(|output| LiveOutput {
            table: record.table.clone(),
            seq_from: record.seq_from,
            seq_to: record.seq_to,
            ordinal: record.ordinal,
            key: output.key.clone(),
            sha256: output.sha256,
            size: output.size,
            rows: output.rows,
            row_seq_digest: output.row_seq_digest,
            extra: Extra::new(),
        });
        self.outputs.splice(from..to, outputs);
        Ok(())
    }

    /// What the next rollup keeps of it.
    #[must_use]
    pub fn folded(&self) -> Option<Compactions> {
        let last = self.last.clone()?;
        Some(Compactions { count: last.ordinal, last, outputs: self.outputs.clone(), extra: Extra::new() })
    }
}

/// That a record says of itself what it must.
fn proven(record: &CompactionRecord) -> Result<(), String> {
    let proof = &record.equivalence;
    let rows_in: u64 = record.inputs.iter().map(|input| input.rows).sum();
    let rows_out: u64 = record.outputs.iter().map(|output| output.rows).sum();
    let in_range = record.inputs.iter().all(|input| (record.seq_from..=record.seq_to).contains(&input.seq));
    if record.inputs.is_empty() || record.outputs.is_empty() || !in_range {
        return Err("its inputs and outputs are not those of its range".to_owned());
    }
    if !proof.equal {
        return Ok(());
    }
    if proof.method != METHOD {
        return Err(format!("its proof is by {:?}, which is not known here", proof.method));
    }
    let same = proof.inputs_digest == proof.outputs_digest
        && (proof.rows_in, proof.rows_out) == (rows_in, rows_out)
        && rows_in == rows_out;
    if same {
        Ok(())
    } else {
        Err("it says that both sides are equal, and its digests or rows are not".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Digest;
    use crate::plan::samples;

    fn reference(ordinal: u64) -> RecordRef {
        let sha256 = Digest::of(&ordinal.to_be_bytes());
        RecordRef { ordinal, key: format!("record-{ordinal}"), sha256, extra: Extra::new() }
    }

    fn record(ordinal: u64, table: &str, range: (u64, u64), inputs: &[&str]) -> CompactionRecord {
        let output = format!("{table}/{}-{}.jsonl", range.0, range.1);
        CompactionRecord {
            prev: (ordinal > 1).then(|| reference(ordinal - 1)),
            ..samples::compaction(ordinal, table, range, inputs, &output)
        }
    }

    fn keys(compacted: &Compacted) -> Vec<&str> {
        compacted.outputs().iter().map(|output| output.key.as_str()).collect()
    }

    #[test]
    fn later_records_replace_outputs_of_earlier_ones() {
        let mut compacted = Compacted::default();
        for (n, record) in (1..).zip([
            record(1, "s.b", (1, 4), &["b1", "b4"]),
            record(2, "s.a", (5, 8), &["a5", "a8"]),
            record(3, "s.a", (1, 4), &["a1", "a2"]),
            record(4, "s.a", (1, 9), &["s.a/1-4.jsonl", "s.a/5-8.jsonl", "a9"]),
        ]) {
            assert_eq!(compacted.apply(&reference(n), &record), Ok(()));
        }
        assert_eq!(keys(&compacted), ["s.a/1-9.jsonl", "s.b/1-4.jsonl"]);
        let covering = |table, seq| compacted.covering(table, seq).map(|output| output.ordinal);
        assert_eq!(
            [
                covering("s.a", 1),
                covering("s.a", 9),
                covering("s.a", 10),
                covering("s.b", 4),
                covering("s.b", 5)
            ],
            [Some(4), Some(4), None, Some(1), None]
        );
        let folded = compacted.folded();
        assert_eq!(Compacted::of_rollup(folded.as_ref(), 9), Ok(compacted.clone()));
        assert!(Compacted::of_rollup(folded.as_ref(), 8).is_err());
        let mut swapped = folded.unwrap();
        swapped.outputs.reverse();
        assert!(Compacted::of_rollup(Some(&swapped), 9).is_err());
    }

    #[test]
    fn what_is_not_proven_equal_replaces_nothing() {
        let mut compacted = Compacted::default();
        let mut unequal = record(1, "s.a", (1, 4), &["a1", "a2"]);
        unequal.equivalence.equal = false;
        assert_eq!(compacted.apply(&reference(1), &unequal), Ok(()));
        assert_eq!((compacted.count(), compacted.outputs().len()), (1, 0));
    }

    #[test]
    fn a_record_that_contradicts_is_refused() {
        let mut compacted = Compacted::default();
        let first = record(1, "s.a", (1, 4), &["a1", "a2"]);
        assert_eq!(compacted.apply(&reference(1), &first), Ok(()));
        let mut other_rows = record(2, "s.a", (5, 6), &["a5"]);
        other_rows.equivalence.rows_out = 2;
        let mut other_method = record(2, "s.a", (5, 6), &["a5"]);
        other_method.equivalence.method = "sum".to_owned();
        let mut other_digest = record(2, "s.a", (5, 6), &["a5"]);
        other_digest.equivalence.outputs_digest = Digest::of(b"other");
        for wrong in [
            record(1, "s.a", (5, 6), &["a5"]),
            record(3, "s.a", (5, 6), &["a5"]),
            record(2, "s.a", (2, 6), &["s.a/1-4.jsonl", "a5"]),
            record(2, "s.a", (1, 6), &["a1", "a5"]),
            record(2, "s.a", (5, 6), &[]),
            other_rows,
            other_method,
            other_digest,
        ] {
            let before = compacted.clone();
            assert!(compacted.apply(&reference(wrong.ordinal), &wrong).is_err(), "{wrong:?}");
            assert_eq!(compacted, before);
        }
    }
}
