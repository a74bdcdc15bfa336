//! `assay-sink read`: committed rows, table by table, each table's in the order of its events. It only reads.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use sinks::format::{DecodeError, Encoding, for_each_row};
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
    encoding: Encoding,
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
            for (table, stored) in objects(entry)? {
                tables.entry(table).or_default().push(stored);
            }
        }
        let mut out = BufWriter::new(std::io::stdout().lock());
        let wanted = |table: &str| self.table.as_ref().is_none_or(|wanted| wanted == table);
        for (table, objects) in tables.iter().filter(|(table, _)| wanted(table)) {
            for object in objects {
                match rows(&opened, object, |row| self.print(&mut out, table, object.seq, row)).await {
                    Ok(()) => {}
                    Err(Ended::Closed) => return Ok(DONE),
                    Err(Ended::Failed(failure)) => return Err(failure),
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

/// Why printing ended early.
enum Ended {
    /// Whoever closed the pipe does not want the rest.
    Closed,
    Failed(Failure),
}

impl From<DecodeError> for Ended {
    fn from(error: DecodeError) -> Self {
        Self::Failed(Failure::new(5, format!("integrity alarm: {error}")))
    }
}

/// An entry's objects with their tables, as keys name them.
fn objects(entry: &Committed) -> Result<Vec<(String, Stored)>, Failure> {
    let unknown = |key: &str, error: DecodeError| Failure::new(OWN_FAULT, format!("{key:?}: {error}"));
    let seq = entry.seq;
    match &entry.content {
        Content::Entry(entry) => entry
            .objects
            .iter()
            .map(|object| {
                let table = TableSegment::new(&object.namespace, &object.table)
                    .map_err(|error| Failure::new(OWN_FAULT, error.to_string()))?;
                let key = object.key.clone();
                let encoding = Encoding::named(&object.format, &object.compression)
                    .map_err(|error| unknown(&key, error))?;
                Ok((table.as_str().to_owned(), Stored { seq, key, encoding }))
            })
            .collect(),
        // An inventory has kept the key, whose extension says the same.
        Content::Inventory(entry) => entry
            .objects
            .iter()
            .map(|object| {
                let key = object.key.clone();
                let encoding = Encoding::of_key(&key).map_err(|error| unknown(&key, error))?;
                Ok((object.table.clone(), Stored { seq, key, encoding }))
            })
            .collect(),
    }
}

async fn rows(
    opened: &Opened,
    object: &Stored,
    mut print: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<(), Ended> {
    let failed = |error| Ended::Failed(Failure::from(error));
    let stored = get(&opened.env, &object.key, opened.patience()).await.map_err(failed)?;
    let missing = || Failure::new(5, format!("integrity alarm: {:?} is missing", object.key));
    let stored = stored.ok_or_else(|| Ended::Failed(missing()))?;
    for_each_row(object.encoding, &stored.bytes, |row| print(row).map_err(|_| Ended::Closed))
}
