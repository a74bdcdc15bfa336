//! `assay-sink read`: committed rows, table by table, each table's in the order of its events. It only reads.

use std::io::{BufWriter, Write as _};

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use sinks::format::{DecodeError, Encoding, for_each_row};
use sinks::run::read::get;
use sinks::run::recover::live::{LiveObject, originals};
use sinks::run::recover::{Depth, Recovered, recover};

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

#[derive(Serialize)]
struct RowAnswer<'a> {
    table: &'a str,
    seq: Option<u64>,
    row: &'a RawValue,
}

impl Read {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let opened = self.pipeline.open().await?;
        let found = recover(&opened.env, &opened.config.root, Depth::Manifest, &opened.patience()).await?;
        let live = found.as_ref().map(Recovered::live).unwrap_or_default();
        let mut out = BufWriter::new(std::io::stdout().lock());
        let wanted = |table: &str| self.table.as_ref().is_none_or(|wanted| wanted == table);
        for objects in live.chunk_by(|a, b| a.table == b.table) {
            let table = objects.first().map_or("", |object| &object.table);
            if !wanted(table) {
                continue;
            }
            let mut seqs = seqs(found.as_ref(), table);
            for object in objects {
                let print = |row: &[u8]| self.print(&mut out, table, seqs.next(), row);
                match rows(&opened, object, print).await {
                    Ok(()) => {}
                    Err(Ended::Closed) => return Ok(DONE),
                    Err(Ended::Failed(failure)) => return Err(failure),
                }
            }
        }
        let _ = out.flush();
        Ok(DONE)
    }

    fn print(
        &self,
        out: &mut impl std::io::Write,
        table: &str,
        seq: Option<u64>,
        row: &[u8],
    ) -> std::io::Result<()> {
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

/// The entry of each row of a table, in order: a compacted object holds rows of many.
fn seqs(found: Option<&Recovered>, table: &str) -> impl Iterator<Item = u64> {
    let entries = found.into_iter().flat_map(|found| &found.entries);
    let originals = entries.flat_map(originals).filter(move |object| object.table == table);
    originals.flat_map(|object| (0..object.rows).map(move |_| object.seq_from))
}

async fn rows(
    opened: &Opened,
    object: &LiveObject,
    mut print: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<(), Ended> {
    let failed = |error| Ended::Failed(Failure::from(error));
    let alarm =
        |what: String| Ended::Failed(Failure::new(5, format!("integrity alarm: {:?} {what}", object.key)));
    let encoding = Encoding::named(&object.format, &object.compression)
        .map_err(|error| Ended::Failed(Failure::new(OWN_FAULT, format!("{:?}: {error}", object.key))))?;
    let stored = get(&opened.env, &object.key, opened.patience()).await.map_err(failed)?;
    let stored = stored.ok_or_else(|| alarm("is missing".to_owned()))?;
    let mut found = 0;
    for_each_row(encoding, &stored.bytes, |row| {
        found += 1;
        print(row).map_err(|_| Ended::Closed)
    })?;
    if found == object.rows { Ok(()) } else { Err(alarm(format!("has {found} rows of {}", object.rows))) }
}
