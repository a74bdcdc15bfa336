//! Compaction records: linked backwards from HEAD to the ones that the rollup has folded, and folded onto these.

use std::collections::{BTreeMap, BTreeSet};

use super::live::{self, LiveObject};
use super::{Committed, Depth, Found, Verification};
use crate::error::{Alarm, SinkError};
use crate::model::compaction::{CompactedInput, CompactionRecord};
use crate::model::frame::Kind;
use crate::model::head::RecordRef;
use crate::model::rollup::Rollup;
use crate::plan::fold::Compacted;

/// A record, and where it is.
pub(super) type Record = (RecordRef, CompactionRecord);

impl Verification<'_> {
    /// All records folded, those that `found` has not folded yet checked against what they replace.
    pub(super) async fn compactions(&self, found: &Found) -> Result<Compacted, SinkError> {
        let mut compacted = match (found.compacted.count(), self.depth) {
            (0, Depth::Deep) => self.folded_again(found.rollup.as_ref()).await?,
            (0, _) => self.base(found.rollup.as_ref())?,
            _ => found.compacted.clone(),
        };
        self.check_rows(&compacted, &found.entries)?;
        let records = self.records(compacted.last()).await?;
        let tables: BTreeSet<&str> = records.iter().map(|(_, record)| record.table.as_str()).collect();
        let originals = by_table(&found.entries, &tables);
        for (of, record) in &records {
            let live = originals.get(record.table.as_str()).map(Vec::as_slice).unwrap_or_default();
            check_inputs(&compacted, record, live).map_err(|reason| contradiction(of, reason))?;
            compacted.apply(of, record).map_err(|reason| contradiction(of, reason))?;
        }
        Ok(compacted)
    }

    /// All records folded, for whoever has not all entries: what they replace is not checked.
    pub(super) async fn folded(&self, rollup: Option<&Rollup>) -> Result<Compacted, SinkError> {
        let mut compacted = self.base(rollup)?;
        for (of, record) in &self.records(compacted.last()).await? {
            compacted.apply(of, record).map_err(|reason| contradiction(of, reason))?;
        }
        Ok(compacted)
    }

    /// What the rollup has folded.
    fn base(&self, rollup: Option<&Rollup>) -> Result<Compacted, SinkError> {
        let Some(rollup) = rollup else { return Ok(Compacted::default()) };
        Compacted::of_rollup(rollup.compactions.as_ref(), rollup.end_seq).map_err(|reason| {
            let key = self.head.rollup.as_ref().map_or_else(String::new, |of| of.key.clone());
            Alarm::Contradiction { key, reason }.into()
        })
    }

    /// What the rollup has folded, folded again from the first record on.
    async fn folded_again(&self, rollup: Option<&Rollup>) -> Result<Compacted, SinkError> {
        let base = self.base(rollup)?;
        let mut again = Compacted::default();
        let records = self.records(None).await?;
        for (of, record) in records.iter().filter(|(of, _)| of.ordinal <= base.count()) {
            again.apply(of, record).map_err(|reason| contradiction(of, reason))?;
        }
        if again == base {
            return Ok(base);
        }
        let reason = "its current rollup has folded the compaction records into something else".to_owned();
        Err(self.contradiction(reason))
    }

    /// The records after `base`, in order.
    async fn records(&self, base: Option<&RecordRef>) -> Result<Vec<Record>, SinkError> {
        let Some(newest) = &self.head.compaction else {
            return match base {
                None => Ok(Vec::new()),
                Some(_) => Err(self.contradiction("it has lost its compaction records".to_owned())),
            };
        };
        if newest.count != newest.last.ordinal {
            return Err(self.contradiction(format!("its last record of {} is not the newest", newest.count)));
        }
        let (mut link, mut records) = (Some(newest.last.clone()), Vec::new());
        let first = base.map_or(0, |base| base.ordinal);
        while let Some(of) = link.take_if(|link| link.ordinal > first) {
            let record: CompactionRecord = self.object(Kind::Compaction, &of.key, of.sha256).await?;
            let follows = record.prev.as_ref().map_or(0, |prev| prev.ordinal) + 1 == of.ordinal;
            if record.stream_id != self.head.stream_id
                || record.ordinal != of.ordinal
                || record.epoch > self.head.epoch
                || record.seq_to > self.head.seq
                || !follows
            {
                return Err(contradiction(
                    &of,
                    "its stream, ordinal, epoch or range is not what it must be".to_owned(),
                ));
            }
            link.clone_from(&record.prev);
            records.push((of, record));
        }
        if link.as_ref() != base {
            return Err(
                self.contradiction(format!("its compaction records are not linked to record {first}"))
            );
        }
        records.reverse();
        Ok(records)
    }

    /// Outputs hold as many rows as the originals that they stand for.
    fn check_rows(&self, compacted: &Compacted, entries: &[Committed]) -> Result<(), SinkError> {
        let mut rows: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
        for output in compacted.outputs() {
            rows.entry((&output.table, output.seq_from)).or_default().1 += output.rows;
        }
        for entry in entries.iter().filter(|_| !compacted.outputs().is_empty()) {
            for object in entry.objects() {
                if let Some(output) = compacted.covering(&object.table, entry.seq)
                    && let Some((of_originals, _)) = rows.get_mut(&(output.table.as_str(), output.seq_from))
                {
                    *of_originals += object.rows;
                }
            }
        }
        match rows.into_iter().find(|(_, (originals, outputs))| originals != outputs) {
            None => Ok(()),
            Some(((table, seq), (originals, outputs))) => Err(self.contradiction(format!(
                "outputs of {table:?} from entry {seq} on hold {outputs} rows, the entries have {originals}"
            ))),
        }
    }
}

fn contradiction(of: &RecordRef, reason: String) -> SinkError {
    Alarm::Contradiction { key: of.key.clone(), reason }.into()
}

/// The originals of `tables`, in order.
fn by_table<'a>(entries: &[Committed], tables: &BTreeSet<&'a str>) -> BTreeMap<&'a str, Vec<LiveObject>> {
    let mut found: BTreeMap<&'a str, Vec<LiveObject>> = BTreeMap::new();
    if tables.is_empty() {
        return found;
    }
    for original in entries.iter().flat_map(live::originals) {
        if let Some(table) = tables.get(original.table.as_str()) {
            found.entry(*table).or_default().push(original);
        }
    }
    found
}

/// A record replaces everything that its table has in its range, in order, and nothing else.
fn check_inputs(
    compacted: &Compacted,
    record: &CompactionRecord,
    originals: &[LiveObject],
) -> Result<(), String> {
    if !record.equivalence.equal {
        return Ok(());
    }
    let in_range =
        |object: &&LiveObject| object.seq_from >= record.seq_from && object.seq_to <= record.seq_to;
    let outputs =
        compacted.outputs().iter().filter(|output| output.table == record.table).map(LiveObject::from);
    let mut wanted: Vec<LiveObject> = originals
        .iter()
        .filter(|object| compacted.covering(&object.table, object.seq_from).is_none())
        .cloned()
        .chain(outputs)
        .filter(|object| in_range(&object))
        .collect();
    wanted.sort_by_key(|object| object.seq_from);
    let same = |(input, wanted): (&CompactedInput, &LiveObject)| {
        input.key == wanted.key
            && (input.seq, input.sha256, input.size, input.rows)
                == (wanted.seq_to, wanted.sha256, wanted.size, wanted.rows)
    };
    if record.inputs.len() == wanted.len() && record.inputs.iter().zip(&wanted).all(same) {
        return Ok(());
    }
    Err(format!(
        "its {} inputs are not the {} objects that {:?} has from entry {} to entry {}",
        record.inputs.len(),
        wanted.len(),
        record.table,
        record.seq_from,
        record.seq_to
    ))
}
