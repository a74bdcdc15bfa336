//! Rows to the bytes of a data object: JSON Lines, plain or compressed.
//!
//! An object holds one table's rows of one batch, in the order of events, each as the line that
//! [`Row`] made, with a line feed behind each. A row's canonical bytes are that
//! line without the line feed. The same rows give the same object everywhere: levels are fixed, and no header
//! holds a time or a name, so that a replay writes the same key.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest as _, Sha256};

use crate::config::Compression;
use crate::events::transaction::Row;
use crate::model::ids::{Digest, push_length_prefixed};
use crate::sink::EncodedObject;

/// Level of gzip: zlib's default. Another one gives other bytes, and so other keys.
const GZIP_LEVEL: u32 = 6;

/// Level of zstd: its default.
const ZSTD_LEVEL: i32 = 3;

/// Encodes rows of one table, of which there is at least one.
#[must_use]
pub fn encode(rows: &[Row], compression: Compression) -> EncodedObject {
    let (namespace, table) =
        rows.first().map(|row| (row.namespace.clone(), row.table.clone())).unwrap_or_default();
    let plain = lines(rows);
    let bytes = match compression {
        Compression::None => plain,
        Compression::Gzip => gzip(&plain),
        Compression::Zstd => zstd::bulk::compress(&plain, ZSTD_LEVEL).expect("memory and a valid level"),
    };
    EncodedObject {
        namespace,
        table,
        bytes: Bytes::from(bytes),
        rows: rows.len() as u64,
        format: "jsonl",
        compression: compression.as_str(),
        extension: compression.extension(),
        schema_fingerprint: schema_fingerprint(rows),
        row_seq_digest: row_seq_digest(rows.iter().map(|row| row.bytes.as_slice())),
    }
}

/// How rows are written and bytes compressed, by the extension of an object's key: for objects of which only the
/// key was recorded.
#[must_use]
pub fn of_key(key: &str) -> (&str, &str) {
    let name = key.rsplit('/').next().unwrap_or_default();
    match name.split_once('.').unwrap_or_default().1 {
        "jsonl" => ("jsonl", "none"),
        "jsonl.gz" => ("jsonl", "gzip"),
        "jsonl.zst" => ("jsonl", "zstd"),
        other => (other, "none"),
    }
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
fn gzip(plain: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::new(GZIP_LEVEL);
    let mut encoder = flate2::GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level);
    encoder.write_all(plain).expect("memory takes every byte");
    encoder.finish().expect("memory takes every byte")
}

/// The digest of a sequence of rows, each by its canonical bytes: another order is another digest.
///
/// ```text
/// SHA-256(LP("dfs3/rows/v1") LP(row 1) ... LP(row n) n as 64 bits, big-endian)
/// ```
pub fn row_seq_digest<'a>(rows: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    let mut prefixed = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    prefixed(b"dfs3/rows/v1");
    let mut count = 0_u64;
    for row in rows {
        prefixed(row);
        count += 1;
    }
    hash.update(count.to_be_bytes());
    Digest::from_bytes(hash.finalize().into())
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

/// Why an object's bytes are not those of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A format or compression of a newer release.
    #[error("{0:?} is no format or compression of this release")]
    Unknown(String),
    /// The compressed bytes are damaged.
    #[error("its {compression} can't be read: {reason}")]
    Compression {
        /// Which.
        compression: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The last line has no end.
    #[error("it does not end with a line feed")]
    Cut,
}

/// The canonical bytes of an object's rows, in order: what [`encode`] was given.
///
/// # Errors
/// Damaged bytes, or a format that isn't known.
pub fn decode(format: &str, compression: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
    if format != "jsonl" {
        return Err(DecodeError::Unknown(format.to_owned()));
    }
    let broken = |compression| {
        move |error: std::io::Error| DecodeError::Compression { compression, reason: error.to_string() }
    };
    let mut plain = Vec::new();
    match compression {
        "none" => plain.extend_from_slice(bytes),
        "gzip" => {
            use std::io::Read as _;
            flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).map_err(broken("gzip"))?;
        }
        "zstd" => plain = zstd::stream::decode_all(bytes).map_err(broken("zstd"))?,
        other => return Err(DecodeError::Unknown(other.to_owned())),
    }
    if plain.pop_if(|last| *last == b'\n').is_none() {
        return if plain.is_empty() { Ok(Vec::new()) } else { Err(DecodeError::Cut) };
    }
    Ok(plain.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect())
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
        };
        lines.iter().map(row).collect()
    }

    fn digest(lines: &[&str]) -> String {
        row_seq_digest(lines.iter().map(|line| line.as_bytes())).to_string()
    }

    #[test]
    fn the_digest_of_rows_keeps_to_its_vectors() {
        let [one, two, three] = [r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":3}"#];
        assert_eq!(
            digest(&[one, two, three]),
            "e1e81d8fa58c723d70a28cf75924c16ccba0764f4742e2cdf9a13f0f4ad00993"
        );
        assert_eq!(
            digest(&[two, one, three]),
            "a917ed300fafe2e35208a9c0bf121211881e493299ac16eeba693f36f5133fa5"
        );
        assert_eq!(digest(&[]), "028117094e7b4379519e201880eb89e089860cdd39865a1b2dd123e17b1ba690");
    }

    #[test]
    fn objects_have_golden_bytes() {
        let rows = rows(&[r#"{"after":{"id":1}}"#, r#"{"after":{"id":2}}"#]);
        for (compression, sha256, bytes) in [
            (Compression::None, "fe15fd10937166dc45e7146271f78b89c37a449339906378a35f5ed006634b78", 38),
            (Compression::Gzip, "44f9805474f27389bb26c0414c7d4951fe0489dda8af014dbc2127f95f752b88", 45),
            (Compression::Zstd, "55193659f85835bc825c80deac23791d2e484e9d346fb0fe1b7557e07c505dcb", 38),
        ] {
            let object = encode(&rows, compression);
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

    #[test]
    fn damaged_objects_are_refused() {
        let rows = rows(&[r#"{"after":{"id":1}}"#]);
        for compression in [Compression::Gzip, Compression::Zstd] {
            let bytes = encode(&rows, compression).bytes;
            let cut = decode("jsonl", compression.as_str(), &bytes[..bytes.len() - 1]);
            assert!(matches!(cut, Err(DecodeError::Compression { .. })), "{cut:?}");
        }
        assert_eq!(decode("jsonl", "none", b"{}"), Err(DecodeError::Cut));
        assert_eq!(decode("parquet", "none", b""), Err(DecodeError::Unknown("parquet".to_owned())));
        assert_eq!(decode("jsonl", "lz4", b""), Err(DecodeError::Unknown("lz4".to_owned())));
    }

    proptest! {
        #[test]
        fn rows_are_read_back(lines in proptest::collection::vec("[^\n]{0,40}", 1..20)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
                let (one, two) = (encode(&rows(&lines), compression), encode(&rows(&lines), compression));
                prop_assert_eq!(&one.bytes, &two.bytes);
                let decoded = decode("jsonl", compression.as_str(), &one.bytes).unwrap();
                prop_assert_eq!(row_seq_digest(decoded.iter().map(Vec::as_slice)), one.row_seq_digest);
                prop_assert_eq!(decoded, lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
            }
        }
    }
}
