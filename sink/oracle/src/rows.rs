//! Rows of data objects: JSON Lines, plain or compressed, and Parquet.

use std::io::Read;

use sha2::{Digest, Sha256};

use crate::columns;
use crate::exact::Exact;
use crate::json::{Hex, Sha};

/// The most that one object may hold once it is decompressed: a bomb ends here.
const MOST_BYTES: u64 = 1 << 30;

/// Why an object's bytes are no rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    /// This decoder does not read the format: it says nothing about the object.
    #[error("format {format} with compression {compression} is not read here")]
    Unread {
        /// The format's name.
        format: String,
        /// The compression's name.
        compression: String,
    },
    /// The bytes are not what the entry says they are.
    #[error("{0}")]
    Corrupt(String),
}

/// Rows in order, and the hash over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Each row.
    pub rows: Vec<Exact>,
    /// SHA-256 over the rows' bytes in order.
    pub digest: Sha,
}

/// Reads the rows of stored bytes.
///
/// # Errors
/// [`RowsError`].
pub fn read(bytes: &[u8], format: &str, compression: &str) -> Result<Rows, RowsError> {
    let corrupt = |why: String| RowsError::Corrupt(why);
    let plain = match (format, compression) {
        ("jsonl", "none") => bytes.to_vec(),
        ("jsonl", "gzip") => drained(flate2::read::MultiGzDecoder::new(bytes))
            .map_err(|why| corrupt(format!("gzip: {why}")))?,
        ("jsonl", "zstd") => ruzstd::decoding::StreamingDecoder::new(bytes)
            .map_err(|why| corrupt(format!("zstd: {why}")))
            .and_then(|decoder| drained(decoder).map_err(|why| corrupt(format!("zstd: {why}"))))?,
        ("parquet", _) => {
            let mut rows = Hashed::new();
            columns::each_row(bytes, MOST_BYTES, |text| rows.push(text).cloned()).map_err(corrupt)?;
            return Ok(rows.finish());
        }
        _ => {
            return Err(RowsError::Unread { format: format.to_owned(), compression: compression.to_owned() });
        }
    };
    if !plain.is_empty() && plain.last() != Some(&b'\n') {
        return Err(corrupt("the last row has no end of line".to_owned()));
    }
    let mut rows = Hashed::new();
    for line in plain.split_inclusive(|b| *b == b'\n') {
        rows.push(&line[..line.len() - 1]).map_err(corrupt)?;
    }
    Ok(rows.finish())
}

/// Rows as they come, and the hash over them.
struct Hashed {
    rows: Vec<Exact>,
    hash: Sha256,
}

impl Hashed {
    fn new() -> Self {
        let domain = b"dfs3/rows/v1";
        let mut hash = Sha256::new();
        hash.update((domain.len() as u64).to_be_bytes());
        hash.update(domain);
        Self { rows: Vec::new(), hash }
    }

    fn push(&mut self, text: &[u8]) -> Result<&Exact, String> {
        let number = self.rows.len() + 1;
        let row = Exact::read(text).map_err(|why| format!("row {number}: {why}"))?;
        self.hash.update((text.len() as u64).to_be_bytes());
        self.hash.update(text);
        self.rows.push(row);
        Ok(&self.rows[number - 1])
    }

    fn finish(mut self) -> Rows {
        self.hash.update((self.rows.len() as u64).to_be_bytes());
        Rows { rows: self.rows, digest: Hex(self.hash.finalize().into()) }
    }
}

fn drained(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    reader.take(MOST_BYTES).read_to_end(&mut out).map_err(|why| why.to_string())?;
    if out.len() as u64 == MOST_BYTES {
        return Err(format!("more than {MOST_BYTES} bytes"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const THREE: &[u8] = b"{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n";
    const DIGEST: &str = "e1e81d8fa58c723d70a28cf75924c16ccba0764f4742e2cdf9a13f0f4ad00993";

    #[test]
    fn rows_have_the_digest_of_the_protocol() {
        assert_eq!(read(THREE, "jsonl", "none").unwrap().digest.to_string(), DIGEST);
        let swapped = read(b"{\"id\":2}\n{\"id\":1}\n{\"id\":3}\n", "jsonl", "none").unwrap();
        assert_eq!(
            swapped.digest.to_string(),
            "a917ed300fafe2e35208a9c0bf121211881e493299ac16eeba693f36f5133fa5"
        );
        assert_eq!(
            read(b"", "jsonl", "none").unwrap().digest.to_string(),
            "028117094e7b4379519e201880eb89e089860cdd39865a1b2dd123e17b1ba690"
        );
    }

    #[test]
    fn compressed_rows_are_the_same_rows() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(THREE).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(THREE, ruzstd::encoding::CompressionLevel::Fastest);
        for (bytes, compression) in [(&gzip, "gzip"), (&zstd, "zstd")] {
            assert_eq!(read(bytes, "jsonl", compression).unwrap().digest.to_string(), DIGEST);
            let cut = read(&bytes[..bytes.len() / 2], "jsonl", compression);
            assert!(matches!(cut, Err(RowsError::Corrupt(_))), "{cut:?}");
        }
        assert!(matches!(read(THREE, "avro", "none"), Err(RowsError::Unread { .. })));
    }

    #[test]
    fn a_row_that_is_cut_or_no_json_is_corrupt() {
        for bytes in [&THREE[..THREE.len() - 1], b"{\"id\":1}\n\n", b"{\"id\":\n"] {
            assert!(matches!(read(bytes, "jsonl", "none"), Err(RowsError::Corrupt(_))));
        }
    }
}
