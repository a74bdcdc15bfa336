//! Stored bytes back to rows, one row at a time: in the memory of one row and of a decompressor's window.

use std::io::{BufRead, BufReader};

use super::{Encoding, RowDigest, parquet};
use crate::events::MAX_LINE_BYTES;
use crate::model::ids::Digest;

/// Longest row, in bytes: an event's line, and what a row has besides. Behind it lies no row, but a damaged
/// object or one that was made to fill the memory.
const MAX_ROW_BYTES: usize = 2 * MAX_LINE_BYTES;

/// Why an object's bytes are not those of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A format or compression of a newer release.
    #[error("{0:?} is no format or compression of this release")]
    Unknown(String),
    /// The bytes are damaged, or are of another format.
    #[error("its {encoding} can't be read: {reason}")]
    Damaged {
        /// Which.
        encoding: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The last line has no end.
    #[error("it does not end with a line feed")]
    Cut,
    /// A row that no event is long enough for.
    #[error("row {row} is longer than {MAX_ROW_BYTES} bytes")]
    TooLong {
        /// Its number, from 1.
        row: u64,
    },
}

/// Hands each row's canonical bytes to `take`, in order.
///
/// # Errors
/// `take`'s, and those of damaged bytes: rows before the damage were handed over by then.
pub fn for_each_row<E: From<DecodeError>>(
    encoding: Encoding,
    bytes: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    match encoding {
        Encoding::Jsonl => lines("jsonl", bytes, &mut take),
        Encoding::JsonlGzip => {
            lines("gzip", BufReader::new(flate2::bufread::MultiGzDecoder::new(bytes)), &mut take)
        }
        Encoding::JsonlZstd => {
            let decoder = zstd::stream::Decoder::with_buffer(bytes).map_err(broken("zstd"))?;
            lines("zstd", BufReader::new(decoder), &mut take)
        }
        Encoding::Parquet | Encoding::ParquetSnappy | Encoding::ParquetZstd => {
            parquet::for_each_row(bytes, &mut take)
        }
    }
}

/// The rows of an object, and the digest over them.
///
/// # Errors
/// Damaged bytes.
pub fn digest(encoding: Encoding, bytes: &[u8]) -> Result<(u64, Digest), DecodeError> {
    let mut digest = RowDigest::new();
    for_each_row(encoding, bytes, |row| {
        digest.push(row);
        Ok::<_, DecodeError>(())
    })?;
    Ok((digest.rows(), digest.finish()))
}

fn lines<E: From<DecodeError>>(
    encoding: &'static str,
    mut reader: impl BufRead,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut row, mut number) = (Vec::new(), 0);
    loop {
        number += 1;
        row.clear();
        if !line(&mut reader, number, &mut row).map_err(|error| error.at(encoding))? {
            return Ok(());
        }
        take(&row)?;
    }
}

/// What is wrong with a line, before it is known in what.
enum Broken {
    Io(std::io::Error),
    Other(DecodeError),
}

impl Broken {
    fn at(self, encoding: &'static str) -> DecodeError {
        match self {
            Self::Io(error) => broken(encoding)(error),
            Self::Other(error) => error,
        }
    }
}

/// The next line without its end; false behind the last one.
fn line(reader: &mut impl BufRead, number: u64, row: &mut Vec<u8>) -> Result<bool, Broken> {
    loop {
        let buffer = reader.fill_buf().map_err(Broken::Io)?;
        if buffer.is_empty() {
            return if row.is_empty() { Ok(false) } else { Err(Broken::Other(DecodeError::Cut)) };
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        if row.len() + part.len() > MAX_ROW_BYTES {
            return Err(Broken::Other(DecodeError::TooLong { row: number }));
        }
        row.extend_from_slice(part);
        let read = part.len() + usize::from(end.is_some());
        reader.consume(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

fn broken(encoding: &'static str) -> impl Fn(std::io::Error) -> DecodeError {
    move |error| DecodeError::Damaged { encoding, reason: error.to_string() }
}
