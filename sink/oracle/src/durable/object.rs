//! One live object: its bytes, its rows, and whether anybody expects them.

use std::collections::HashSet;

use bytes::Bytes;

use crate::expected::Expected;
use crate::json::{self, Sha};
use crate::lifetime::Live;
use crate::names;
use crate::report::{Kind, Report};
use crate::rows::{self, RowsError};

/// One object's bytes against its record, and its rows against what is expected.
pub(super) fn judge(
    report: &mut Report,
    expected: &mut Option<Expected>,
    table: &str,
    object: &Live,
    bytes: &Bytes,
    seen: &mut HashSet<Sha>,
) {
    let at = object.key.as_str();
    report.statistics.objects += 1;
    report.statistics.bytes += bytes.len() as u64;
    if bytes.is_empty() {
        report.find(Kind::EmptyObject, at, "zero bytes");
        return;
    }
    let (format, compression) = names::encoding(at).unwrap_or_default();
    let read = rows::read(bytes, format, compression);
    let found = json::sha256(bytes);
    let committed = found == object.sha256 && bytes.len() as u64 == object.size;
    let rows = match read {
        Err(RowsError::Corrupt(why)) => {
            report.find(Kind::CorruptObject, at, why);
            return;
        }
        _ if !committed => {
            let detail = format!("{} bytes of SHA-256 {found}, committed were {}", bytes.len(), object.size);
            report.find(Kind::MutatedObject, at, detail);
            return;
        }
        Err(why @ RowsError::Unread { .. }) => {
            report.inconclusive.push(format!("{at}: {why}"));
            return;
        }
        Ok(rows) => rows,
    };
    if rows.rows.is_empty() {
        report.find(Kind::EmptyObject, at, "no row");
    }
    if rows.rows.len() as u64 != object.rows {
        report.find(Kind::Rows, at, format!("{} rows, the entry says {}", rows.rows.len(), object.rows));
    }
    if let Some(recorded) = object.row_seq_digest.filter(|recorded| *recorded != rows.digest) {
        let detail = format!("row_seq_digest {}, the entry says {recorded}", rows.digest);
        report.find(Kind::Rows, at, detail);
    }
    *report.statistics.rows.entry(table.to_owned()).or_default() += rows.rows.len() as u64;
    for (number, row) in (1..).zip(&rows.rows) {
        if !seen.insert(json::sha256(format!("{table} {row}").as_bytes())) {
            report.statistics.repeated_rows += 1;
        }
        if let Some(expected) = expected {
            expected.see(table, row, &format!("{at} row {number}"), report);
        }
    }
}
