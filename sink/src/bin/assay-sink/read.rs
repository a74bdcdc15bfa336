//! `assay-sink read`: committed rows, table by table, each table's in the order of its events. It only reads.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use sinks::format::decode;
use sinks::model::key::TableSegment;
use sinks::run::read::get;
use sinks::run::recover::{Committed, Content, Depth, recover};

use crate::open::{Opened, Pipeline};
use crate::{DONE, Failure, OWN_FAULT};

/// Prints committed rows: the table, a tab, and the row as it is stored.
#[derive(Args)]
pub(crate) struct Read {
    #[command(flatten)]
    pipeline: Pipeline,
    /// Only this table, as it stands in keys: namespace.table, both encoded
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// Each row as a JSON object with its table and the number of its entry
    #[arg(long)]
    json: bool,
}

/// A data object of one table.
struct Stored {
    seq: u64,
    key: String,
    format: String,
    compression: String,
}

#[derive(Serialize)]
struct RowAnswer<'a> {
    table: &'a str,
    seq: u64,
    row: &'a RawValue,
}

impl Read {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let opened = self.pipeline.open().await?;
        let found = recover(&opened.env, &opened.config.root, Depth::Manifest, &opened.patience()).await?;
        let mut tables: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
        for entry in found.iter().flat_map(|found| &found.entries) {
            for (table, stored) in objects(entry) {
                tables.entry(table).or_default().push(stored);
            }
        }
        let mut out = BufWriter::new(std::io::stdout().lock());
        let wanted = |table: &str| self.table.as_ref().is_none_or(|wanted| wanted == table);
        for (table, objects) in tables.iter().filter(|(table, _)| wanted(table)) {
            for object in objects {
                let rows = rows(&opened, object).await?;
                if rows.iter().try_for_each(|row| self.print(&mut out, table, object.seq, row)).is_err() {
                    // Whoever closed the pipe does not want the rest.
                    return Ok(DONE);
                }
            }
        }
        let _ = out.flush();
        Ok(DONE)
    }

    fn print(&self, out: &mut impl std::io::Write, table: &str, seq: u64, row: &[u8]) -> std::io::Result<()> {
        if !self.json {
            out.write_all(table.as_bytes())?;
            out.write_all(b"\t")?;
            out.write_all(row)?;
            return out.write_all(b"\n");
        }
        let row: &RawValue = serde_json::from_slice(row)?;
        serde_json::to_writer(&mut *out, &RowAnswer { table, seq, row })?;
        out.write_all(b"\n")
    }
}

/// An entry's objects with their tables, as keys name them.
fn objects(entry: &Committed) -> Vec<(String, Stored)> {
    let seq = entry.seq;
    match &entry.content {
        Content::Entry(entry) => entry
            .objects
            .iter()
            .filter_map(|object| {
                let table = TableSegment::new(&object.namespace, &object.table).ok()?.as_str().to_owned();
                let (format, compression) = (object.format.clone(), object.compression.clone());
                Some((table, Stored { seq, key: object.key.clone(), format, compression }))
            })
            .collect(),
        // An inventory has kept the key, whose extension says the same.
        Content::Inventory(entry) => entry
            .objects
            .iter()
            .map(|object| {
                let name = object.key.rsplit('/').next().unwrap_or_default();
                let (format, compression) = match name.split_once('.').unwrap_or_default().1 {
                    "jsonl" => ("jsonl", "none"),
                    "jsonl.gz" => ("jsonl", "gzip"),
                    "jsonl.zst" => ("jsonl", "zstd"),
                    other => (other, "none"),
                };
                let (format, compression) = (format.to_owned(), compression.to_owned());
                (object.table.clone(), Stored { seq, key: object.key.clone(), format, compression })
            })
            .collect(),
    }
}

async fn rows(opened: &Opened, object: &Stored) -> Result<Vec<Vec<u8>>, Failure> {
    let stored = get(&opened.env, &object.key, opened.patience()).await?;
    let wrong = |what: String| Failure::new(5, format!("integrity alarm: {:?}: {what}", object.key));
    let stored = stored.ok_or_else(|| wrong("a referenced object is missing".to_owned()))?;
    decode(&object.format, &object.compression, &stored.bytes).map_err(|error| match error {
        sinks::format::DecodeError::Unknown(_) => Failure::new(OWN_FAULT, error.to_string()),
        _ => wrong(error.to_string()),
    })
}
