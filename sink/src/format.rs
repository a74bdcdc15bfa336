//! Rows to the bytes of a data object: JSON Lines, plain or compressed, or Parquet.
//!
//! An object holds one table's rows of one batch, in the order of events, each as the line that
//! [`Row`] made, with a line feed behind each. A row's canonical bytes are that
//! line without the line feed. The same rows give the same object everywhere: levels are fixed, and no header
//! holds a time or a name, so that a replay writes the same key.

mod columns;
mod parquet;
mod read;
mod rows;
mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

pub use self::columns::Columns;
pub use self::parquet::declared;
pub use self::read::{DecodeError, digest, for_each_row};
pub use self::rows::{RowDigest, row_seq_digest};
pub use self::write::{Writer, Written};
use crate::events::transaction::Row;
use crate::model::ids::{Digest, push_length_prefixed};
use crate::sink::EncodedObject;

/// Level of gzip: zlib's default. Another one gives other bytes, and so other keys.
const GZIP_LEVEL: u32 = 6;

/// Level of zstd: its default.
const ZSTD_LEVEL: i32 = 3;

/// How an object's bytes hold rows: format and compression together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// JSON Lines.
    Jsonl,
    /// JSON Lines in gzip (RFC 1952).
    JsonlGzip,
    /// JSON Lines in Zstandard (RFC 8878).
    JsonlZstd,
    /// Parquet without compression.
    Parquet,
    /// Parquet with pages in Snappy.
    ParquetSnappy,
    /// Parquet with pages in Zstandard.
    ParquetZstd,
}

impl Encoding {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Jsonl,
        Self::JsonlGzip,
        Self::JsonlZstd,
        Self::Parquet,
        Self::ParquetSnappy,
        Self::ParquetZstd,
    ];

    /// The one of these names, as manifests and configuration have them.
    ///
    /// # Errors
    /// [`DecodeError::Unknown`] for names of a newer release.
    pub fn named(format: &str, compression: &str) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|encoding| (encoding.format(), encoding.compression()) == (format, compression))
            .ok_or_else(|| DecodeError::Unknown(format!("{format} {compression}")))
    }

    /// The one that the extension of a key stands for: where nothing but the key was kept. A Parquet file says
    /// itself how it is compressed.
    ///
    /// # Errors
    /// [`DecodeError::Unknown`] for an extension of a newer release, or of none.
    pub fn of_key(key: &str) -> Result<Self, DecodeError> {
        let name = key.rsplit('/').next().unwrap_or_default();
        let extension = name.split_once('.').unwrap_or_default().1;
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.extension() == extension)
            .ok_or_else(|| DecodeError::Unknown(extension.to_owned()))
    }

    /// Name of the format.
    #[must_use]
    pub const fn format(self) -> &'static str {
        match self {
            Self::Jsonl | Self::JsonlGzip | Self::JsonlZstd => "jsonl",
            Self::Parquet | Self::ParquetSnappy | Self::ParquetZstd => "parquet",
        }
    }

    /// Name of the compression.
    #[must_use]
    pub const fn compression(self) -> &'static str {
        match self {
            Self::Jsonl | Self::Parquet => "none",
            Self::JsonlGzip => "gzip",
            Self::ParquetSnappy => "snappy",
            Self::JsonlZstd | Self::ParquetZstd => "zstd",
        }
    }

    /// Extension of keys, without its dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::JsonlGzip => "jsonl.gz",
            Self::JsonlZstd => "jsonl.zst",
            Self::Parquet | Self::ParquetSnappy | Self::ParquetZstd => "parquet",
        }
    }
}

/// Encodes rows of one table, of which there is at least one.
#[must_use]
pub fn encode(rows: &[Row], encoding: Encoding) -> EncodedObject {
    let (namespace, table) =
        rows.first().map(|row| (row.namespace.clone(), row.table.clone())).unwrap_or_default();
    let plain = lines(rows);
    let bytes = match encoding {
        Encoding::Jsonl => plain,
        Encoding::JsonlGzip => {
            let mut encoder = gzip(GZIP_LEVEL);
            encoder.write_all(&plain).expect("memory takes every byte");
            encoder.finish().expect("memory takes every byte")
        }
        Encoding::JsonlZstd => zstd::bulk::compress(&plain, ZSTD_LEVEL).expect("memory and a valid level"),
        Encoding::Parquet | Encoding::ParquetSnappy | Encoding::ParquetZstd => typed(rows, encoding),
    };
    EncodedObject {
        namespace,
        table,
        bytes: Bytes::from(bytes),
        rows: rows.len() as u64,
        format: encoding.format(),
        compression: encoding.compression(),
        extension: encoding.extension(),
        schema_fingerprint: schema_fingerprint(rows),
        row_seq_digest: row_seq_digest(rows.iter().map(|row| row.bytes.as_slice())),
    }
}

/// How rows are written and bytes compressed, by the extension of an object's key: for objects of which only the
/// key was recorded.
#[must_use]
pub fn of_key(key: &str) -> (&str, &str) {
    match Encoding::of_key(key) {
        Ok(encoding) => (encoding.format(), encoding.compression()),
        Err(_) => {
            (key.rsplit('/').next().and_then(|name| name.split_once('.')).unwrap_or_default().1, "none")
        }
    }
}

/// Parquet with the types that the rows' events brought.
fn typed(rows: &[Row], encoding: Encoding) -> Vec<u8> {
    let mut writer = Writer::new(encoding);
    let mut declared: Option<&Arc<Columns>> = None;
    for row in rows {
        // Events of one schema share it.
        if let Some(columns) = row.columns.as_ref()
            && declared.is_none_or(|before| !Arc::ptr_eq(before, columns))
        {
            writer.declare(columns);
            declared = Some(columns);
        }
        writer.push(&row.bytes);
    }
    writer.finish().bytes
}

fn lines(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.iter().map(|row| row.bytes.len() + 1).sum());
    for row in rows {
        out.extend_from_slice(&row.bytes);
        out.push(b'\n');
    }
    out
}

/// RFC 1952 with a time of 0, no name, and an unknown system.
fn gzip(level: u32) -> flate2::write::GzEncoder<Vec<u8>> {
    let level = flate2::Compression::new(level);
    flate2::GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level)
}

/// The digest of the names of an object's columns, in order of their bytes, each once: of every image in it.
fn schema_fingerprint(rows: &[Row]) -> Digest {
    let mut columns = BTreeSet::new();
    for row in rows {
        if let Ok(images) = serde_json::from_slice::<Images>(&row.bytes) {
            columns.extend(images.before.into_iter().chain(images.after).flat_map(|names| names.0));
        }
    }
    let mut preimage = Vec::new();
    push_length_prefixed(&mut preimage, b"dfs3/columns/v1");
    for column in &columns {
        push_length_prefixed(&mut preimage, column.as_bytes());
    }
    Digest::of(&preimage)
}

#[derive(Deserialize)]
struct Images {
    before: Option<Names>,
    after: Option<Names>,
}

/// The names of an object's members.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Names, M::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(lines: &[&str]) -> Vec<Row> {
        let row = |line: &&str| Row {
            namespace: "shop".to_owned(),
            table: "orders".to_owned(),
            bytes: line.as_bytes().to_vec(),
            ts_ms: None,
            columns: None,
        };
        lines.iter().map(row).collect()
    }

    #[test]
    fn objects_have_golden_bytes() {
        let rows = rows(&[r#"{"after":{"id":1}}"#, r#"{"after":{"id":2}}"#]);
        for (encoding, sha256, bytes) in [
            (Encoding::Jsonl, "fe15fd10937166dc45e7146271f78b89c37a449339906378a35f5ed006634b78", 38),
            (Encoding::JsonlGzip, "44f9805474f27389bb26c0414c7d4951fe0489dda8af014dbc2127f95f752b88", 45),
            (Encoding::JsonlZstd, "55193659f85835bc825c80deac23791d2e484e9d346fb0fe1b7557e07c505dcb", 38),
        ] {
            let object = encode(&rows, encoding);
            assert_eq!((Digest::of(&object.bytes).to_string().as_str(), object.bytes.len()), (sha256, bytes));
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_names_of_columns() {
        let of = |lines: &[&str]| schema_fingerprint(&rows(lines));
        let base = of(&[r#"{"before":null,"after":{"id":1,"note":null}}"#]);
        assert_eq!(base, of(&[r#"{"before":{"note":"x"},"after":{"id":2}}"#, r#"{"after":{"id":7}}"#]));
        assert_ne!(base, of(&[r#"{"after":{"id":1}}"#]));
        assert_ne!(of(&[r#"{"after":{"ab":1,"c":2}}"#]), of(&[r#"{"after":{"a":1,"bc":2}}"#]));
    }

    fn decoded(encoding: Encoding, bytes: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut rows = Vec::new();
        for_each_row(encoding, bytes, |row| {
            rows.push(row.to_vec());
            Ok::<_, DecodeError>(())
        })?;
        Ok(rows)
    }

    #[test]
    fn damaged_objects_are_refused() {
        let rows = rows(&[r#"{"after":{"id":1}}"#]);
        for encoding in [Encoding::JsonlGzip, Encoding::JsonlZstd] {
            let bytes = encode(&rows, encoding).bytes;
            let cut = decoded(encoding, &bytes[..bytes.len() - 1]);
            assert!(matches!(cut, Err(DecodeError::Damaged { .. })), "{cut:?}");
        }
        assert_eq!(decoded(Encoding::Jsonl, b"{}"), Err(DecodeError::Cut));
        assert_eq!(decoded(Encoding::Jsonl, b""), Ok(Vec::new()));
        assert_eq!(decoded(Encoding::Jsonl, b"\n"), Ok(vec![Vec::new()]));
    }

    #[test]
    fn an_encoding_is_known_by_its_names_and_by_its_extension() {
        for encoding in Encoding::ALL {
            assert_eq!(Encoding::named(encoding.format(), encoding.compression()), Ok(encoding));
            let of_key = Encoding::of_key(&format!("a.b/t/{}.{}", "0", encoding.extension()));
            let written = if encoding.format() == "parquet" { Encoding::Parquet } else { encoding };
            assert_eq!(of_key, Ok(written));
        }
        assert_eq!(Encoding::named("jsonl", "lz4"), Err(DecodeError::Unknown("jsonl lz4".to_owned())));
        assert_eq!(Encoding::of_key("a/b.avro"), Err(DecodeError::Unknown("avro".to_owned())));
        assert_eq!(Encoding::of_key("a.jsonl/b"), Err(DecodeError::Unknown(String::new())));
    }

    proptest! {
        #[test]
        fn rows_are_read_back(lines in proptest::collection::vec("[^\n]{0,40}", 1..20)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let expected: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
            for encoding in Encoding::ALL {
                let (one, two) = (encode(&rows(&lines), encoding), encode(&rows(&lines), encoding));
                prop_assert_eq!(&one.bytes, &two.bytes);
                prop_assert_eq!(decoded(encoding, &one.bytes).unwrap(), expected.clone());
                let found = digest(encoding, &one.bytes).unwrap();
                prop_assert_eq!(found, (lines.len() as u64, one.row_seq_digest));
                let write = || {
                    let mut writer = Writer::new(encoding);
                    lines.iter().for_each(|line| writer.push(line.as_bytes()));
                    writer.finish()
                };
                let written = write();
                prop_assert_eq!(&written, &write());
                prop_assert_eq!((written.rows, written.row_seq_digest), found);
                prop_assert_eq!(decoded(encoding, &written.bytes).unwrap(), expected.clone());
            }
        }
    }
}
