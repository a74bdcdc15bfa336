//! Rows to stored bytes, one row at a time: what compaction writes, whose inputs may be larger than memory.

use std::io::Write;

use flate2::write::GzEncoder;

use super::{Encoding, GZIP_LEVEL, RowDigest, ZSTD_LEVEL, gzip};
use crate::model::ids::Digest;

/// An object whose rows come one after another. The same rows give the same bytes everywhere; they need not be
/// those of [`super::encode`], which knows all rows beforehand.
pub struct Writer {
    out: Out,
    digest: RowDigest,
}

enum Out {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::Encoder<'static, Vec<u8>>),
}

/// A whole object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Rows in it.
    pub rows: u64,
    /// Digest of the rows as they were handed over.
    pub row_seq_digest: Digest,
}

impl Writer {
    /// An object without rows.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let out = match encoding {
            Encoding::Jsonl => Out::Plain(Vec::new()),
            Encoding::JsonlGzip => Out::Gzip(gzip(GZIP_LEVEL)),
            Encoding::JsonlZstd => Out::Zstd(
                zstd::stream::Encoder::new(Vec::new(), ZSTD_LEVEL).expect("memory and a valid level"),
            ),
        };
        Self { out, digest: RowDigest::new() }
    }

    /// Adds a row, by its canonical bytes.
    pub fn push(&mut self, row: &[u8]) {
        self.digest.push(row);
        let out: &mut dyn Write = match &mut self.out {
            Out::Plain(out) => out,
            Out::Gzip(out) => out,
            Out::Zstd(out) => out,
        };
        out.write_all(row).and_then(|()| out.write_all(b"\n")).expect("memory takes every byte");
    }

    /// The object.
    #[must_use]
    pub fn finish(self) -> Written {
        let bytes = match self.out {
            Out::Plain(bytes) => bytes,
            Out::Gzip(out) => out.finish().expect("memory takes every byte"),
            Out::Zstd(out) => out.finish().expect("memory takes every byte"),
        };
        Written { bytes, rows: self.digest.rows(), row_seq_digest: self.digest.finish() }
    }
}
