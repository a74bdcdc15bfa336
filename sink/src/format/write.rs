//! Rows to stored bytes, one row at a time: what compaction writes, whose inputs may be larger than memory.

use std::io::Write;

use flate2::write::GzEncoder;

use super::columns::{Columns, Observed};
use super::parquet::{FileWriter, Parsed};
use super::read::for_each_row;
use super::{DecodeError, Encoding, GZIP_LEVEL, RowDigest, ZSTD_LEVEL, gzip, parquet};
use crate::model::ids::Digest;

/// An object whose rows come one after another, each without a line feed. The same rows give the same bytes everywhere; they need not be
/// those of [`super::encode`], which knows all rows beforehand.
pub struct Writer {
    out: Out,
    digest: RowDigest,
}

enum Out {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(ZstdEncoder),
    /// A file's types are known once all rows are: they wait, compressed.
    Parquet(Box<Waiting>),
}

type ZstdEncoder = zstd::stream::Encoder<'static, Vec<u8>>;

struct Waiting {
    rows: ZstdEncoder,
    observed: Observed,
    compression: ::parquet::basic::Compression,
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
        let zstd = || zstd::stream::Encoder::new(Vec::new(), ZSTD_LEVEL).expect("memory and a valid level");
        let out = match (encoding, parquet_compression(encoding)) {
            (_, Some(compression)) => {
                Out::Parquet(Box::new(Waiting { rows: zstd(), observed: Observed::default(), compression }))
            }
            (Encoding::JsonlGzip, _) => Out::Gzip(gzip(GZIP_LEVEL)),
            (Encoding::JsonlZstd, _) => Out::Zstd(zstd()),
            _ => Out::Plain(Vec::new()),
        };
        Self { out, digest: RowDigest::new() }
    }

    /// Takes note of types that rows to come, or rows before, were declared with.
    pub fn declare(&mut self, columns: &Columns) {
        if let Out::Parquet(waiting) = &mut self.out {
            waiting.observed.declare(columns);
        }
    }

    /// Adds a row, by its canonical bytes.
    pub fn push(&mut self, row: &[u8]) {
        self.digest.push(row);
        let out: &mut dyn Write = match &mut self.out {
            Out::Plain(out) => out,
            Out::Gzip(out) => out,
            Out::Zstd(out) => out,
            Out::Parquet(waiting) => {
                Parsed::of(row).images().for_each(|image| waiting.observed.see(image));
                &mut waiting.rows
            }
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
            Out::Parquet(waiting) => waiting.finish(),
        };
        Written { bytes, rows: self.digest.rows(), row_seq_digest: self.digest.finish() }
    }
}

impl Waiting {
    fn finish(self) -> Vec<u8> {
        let rows = self.rows.finish().expect("memory takes every byte");
        let mut file = FileWriter::new(&self.observed.types(), self.compression);
        let read = for_each_row(Encoding::JsonlZstd, &rows, |row| {
            file.push(row);
            Ok::<_, DecodeError>(())
        });
        read.expect("what was written is read back");
        file.finish()
    }
}

/// The compression of a Parquet file's pages; nothing of another format.
fn parquet_compression(encoding: Encoding) -> Option<::parquet::basic::Compression> {
    use ::parquet::basic::Compression;
    match encoding {
        Encoding::Parquet => Some(Compression::UNCOMPRESSED),
        Encoding::ParquetSnappy => Some(Compression::SNAPPY),
        Encoding::ParquetZstd => Some(parquet::zstd()),
        Encoding::Jsonl | Encoding::JsonlGzip | Encoding::JsonlZstd => None,
    }
}
