//! What keeps a stream small over its lifetime, as it is stored: rollups with their inventories, which stand for
//! entries, and compaction records, whose outputs stand for objects. From both follows which objects are live.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::json::{Decimal, Hex, Sha};
use crate::names;

/// A reference to a rollup, as HEAD and rollups have it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RollupRef {
    /// Its generation.
    #[serde(rename = "gen")]
    pub generation: Decimal,
    /// Its key.
    pub key: String,
    /// SHA-256 of the whole object.
    pub sha256: Sha,
    /// The last entry that it covers.
    pub end_seq: Decimal,
}

/// A reference to a compaction record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RecordRef {
    /// Its number.
    pub ordinal: Decimal,
    /// Its key.
    pub key: String,
    /// SHA-256 of the whole object.
    pub sha256: Sha,
}

/// HEAD's newest compaction record.
#[derive(Clone, Debug, Deserialize)]
pub struct CompactionRef {
    /// How many records there are.
    pub count: Decimal,
    /// The newest.
    pub last: RecordRef,
}

/// The body of a rollup, as far as it is judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Rollup {
    /// The stream.
    pub stream_id: Hex<16>,
    /// Its generation.
    #[serde(rename = "gen")]
    pub generation: Decimal,
    /// The last entry that it covers.
    pub end_seq: Decimal,
    /// The chain up to there.
    pub end_chain: Sha,
    /// The generation before.
    pub prev: Option<RollupRef>,
    /// What covers entries 1 to the last.
    pub inventories: Vec<InventoryRef>,
}

/// A reference to an inventory.
#[derive(Clone, Debug, Deserialize)]
pub struct InventoryRef {
    /// The first entry.
    pub from: Decimal,
    /// The last entry.
    pub to: Decimal,
    /// Its key.
    pub key: String,
    /// SHA-256 of the whole object.
    pub sha256: Sha,
}

/// The body of an inventory, as far as it is judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Inventory {
    /// The stream.
    pub stream_id: Hex<16>,
    /// The chain up to its last entry.
    pub end_chain: Sha,
    /// What it keeps of each entry, in order.
    pub entries: Vec<Kept>,
}

/// What an inventory keeps of an entry.
#[derive(Clone, Debug, Deserialize)]
pub struct Kept {
    /// Its number.
    pub seq: Decimal,
    /// The entry's key.
    pub entry_key: String,
    /// SHA-256 of the entry.
    pub entry_sha256: Sha,
    /// Digest of its position.
    pub digest: Sha,
    /// Its data objects.
    pub objects: Vec<KeptObject>,
}

/// What an inventory keeps of a data object.
#[derive(Clone, Debug, Deserialize)]
pub struct KeptObject {
    /// Its key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha,
    /// Stored bytes.
    pub size: Decimal,
    /// Rows in it.
    pub rows: Decimal,
    /// The table's segment.
    pub table: String,
    /// Hash over its rows, where it is kept.
    pub row_seq_digest: Option<Sha>,
}

/// The body of a compaction record, as far as it is judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Compaction {
    /// The stream.
    pub stream_id: Hex<16>,
    /// Its number.
    pub ordinal: Decimal,
    /// The table's segment.
    pub table: String,
    /// The first entry whose objects it replaces.
    pub seq_from: Decimal,
    /// The last.
    pub seq_to: Decimal,
    /// What it replaces, in order.
    pub inputs: Vec<Input>,
    /// What stands for it.
    pub outputs: Vec<Output>,
    /// Whether both hold the same rows.
    pub equivalence: Equivalence,
    /// The record before.
    pub prev: Option<RecordRef>,
}

/// What a compaction replaces.
#[derive(Clone, Debug, Deserialize)]
pub struct Input {
    /// Its key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha,
}

/// What a compaction wrote.
#[derive(Clone, Debug, Deserialize)]
pub struct Output {
    /// Its key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha,
    /// Stored bytes.
    pub size: Decimal,
    /// Rows in it.
    pub rows: Decimal,
    /// Hash over its rows in order.
    pub row_seq_digest: Sha,
}

/// What a compaction proved.
#[derive(Clone, Debug, Deserialize)]
pub struct Equivalence {
    /// Whether rows and order are the same.
    pub equal: bool,
    /// Rows of the inputs.
    pub rows_in: Decimal,
    /// Rows of the outputs.
    pub rows_out: Decimal,
}

/// The body of a mark, as far as it is judged.
#[derive(Clone, Debug, Deserialize)]
pub struct Mark {
    /// The stream.
    pub stream_id: Hex<16>,
    /// The entries that may be collected once HEAD's floor is above them.
    pub entries: Vec<Marked>,
}

/// An entry that a mark names.
#[derive(Clone, Debug, Deserialize)]
pub struct Marked {
    /// Its key.
    pub key: String,
}

/// An object that holds rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The first entry whose rows it has.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Its key.
    pub key: String,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha,
    /// Stored bytes.
    pub size: u64,
    /// Rows in it.
    pub rows: u64,
    /// Hash over its rows in order, where it is known.
    pub row_seq_digest: Option<Sha>,
}

/// Live objects by table's segment, each table's in the order of rows; and what was replaced.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By table.
    pub tables: BTreeMap<String, Vec<Live>>,
    /// Objects that an output stands for: they may be gone.
    pub replaced: Vec<String>,
}

impl View {
    /// Adds an object of the next entry.
    pub fn push(&mut self, table: &str, live: Live) {
        self.tables.entry(table.to_owned()).or_default().push(live);
    }

    /// Puts a record's outputs in the place of its inputs.
    ///
    /// # Errors
    /// If it does not replace exactly what its range has.
    pub fn replace(&mut self, record: &Compaction) -> Result<(), String> {
        let (from, to) = (record.seq_from.0, record.seq_to.0);
        let objects = self.tables.entry(record.table.clone()).or_default();
        let begin = objects.iter().position(|live| live.from >= from).unwrap_or(objects.len());
        let end = begin + objects[begin..].iter().take_while(|live| live.to <= to).count();
        let found: Vec<_> = objects[begin..end].iter().map(|live| (&live.key, live.sha256)).collect();
        let wanted: Vec<_> = record.inputs.iter().map(|input| (&input.key, input.sha256)).collect();
        if found != wanted {
            return Err(format!(
                "record {} names {} inputs in entries {from} to {to}, which have {} live objects, or others",
                record.ordinal.0,
                wanted.len(),
                found.len()
            ));
        }
        let rows: u64 = objects[begin..end].iter().map(|live| live.rows).sum();
        let written: u64 = record.outputs.iter().map(|output| output.rows.0).sum();
        let proof = &record.equivalence;
        if rows != written || proof.rows_in.0 != rows || proof.rows_out.0 != written {
            return Err(format!("record {} makes {written} rows of {rows}", record.ordinal.0));
        }
        let outputs = record.outputs.iter().map(|output| Live {
            from,
            to,
            key: output.key.clone(),
            sha256: output.sha256,
            size: output.size.0,
            rows: output.rows.0,
            row_seq_digest: Some(output.row_seq_digest),
        });
        self.replaced.extend(objects.splice(begin..end, outputs).map(|live| live.key));
        Ok(())
    }
}

/// Namespace and table of a segment, joined by a dot as reports have it; nothing of one that is none.
#[must_use]
pub fn table_of(segment: &str) -> Option<String> {
    let (namespace, table) = segment.split_once('.')?;
    let (namespace, table) = (names::unescaped(namespace)?, names::unescaped(table)?);
    (names::table(&namespace, &table) == segment).then(|| format!("{namespace}.{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::sha256;

    fn live(seq: u64, key: &str) -> Live {
        let sha256 = sha256(key.as_bytes());
        Live { from: seq, to: seq, key: key.to_owned(), sha256, size: 1, rows: 2, row_seq_digest: None }
    }

    fn record(from: u64, to: u64, inputs: &[&str], output: &str) -> Compaction {
        let sha = |key: &str| sha256(key.as_bytes());
        let rows = Decimal(2 * inputs.len() as u64);
        Compaction {
            stream_id: Hex([0; 16]),
            ordinal: Decimal(1),
            table: "shop.orders".to_owned(),
            seq_from: Decimal(from),
            seq_to: Decimal(to),
            inputs: inputs.iter().map(|key| Input { key: (*key).to_owned(), sha256: sha(key) }).collect(),
            outputs: vec![Output {
                key: output.to_owned(),
                sha256: sha(output),
                size: Decimal(1),
                rows,
                row_seq_digest: sha("rows"),
            }],
            equivalence: Equivalence { equal: true, rows_in: rows, rows_out: rows },
            prev: None,
        }
    }

    fn view() -> View {
        let mut view = View::default();
        for (seq, key) in [(1, "a"), (2, "b"), (4, "c"), (5, "d")] {
            view.push("shop.orders", live(seq, key));
        }
        view
    }

    fn keys(view: &View) -> Vec<&str> {
        view.tables["shop.orders"].iter().map(|live| live.key.as_str()).collect()
    }

    #[test]
    fn outputs_take_the_place_of_all_that_their_range_has() {
        let mut view = view();
        view.replace(&record(2, 4, &["b", "c"], "bc")).unwrap();
        assert_eq!(keys(&view), ["a", "bc", "d"]);
        let mut second = record(1, 4, &["a", "bc"], "abc");
        second.equivalence = Equivalence { equal: true, rows_in: Decimal(6), rows_out: Decimal(6) };
        second.outputs[0].rows = Decimal(6);
        view.replace(&second).unwrap();
        assert_eq!(keys(&view), ["abc", "d"]);
        assert_eq!(view.replaced, ["b", "c", "a", "bc"]);
    }

    #[test]
    fn a_record_that_leaves_something_out_or_loses_rows_is_refused() {
        assert!(view().replace(&record(1, 4, &["a", "c"], "x")).is_err());
        assert!(view().replace(&record(1, 2, &["b", "a"], "x")).is_err());
        let mut fewer = record(1, 2, &["a", "b"], "x");
        fewer.outputs[0].rows = Decimal(3);
        assert!(view().replace(&fewer).is_err());
    }

    #[test]
    fn segments_are_read_back() {
        assert_eq!(table_of("shop.orders").as_deref(), Some("shop.orders"));
        assert_eq!(table_of("%5Fx.a%2Eb").as_deref(), Some("_x.a.b"));
        for none in ["orders", "a.b.c", "a.%zz", "a.%61"] {
            assert_eq!(table_of(none), None, "{none}");
        }
    }
}
