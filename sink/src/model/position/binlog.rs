//! MySQL binlog coordinates: a file of one server, and an offset in it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::model::ids::push_length_prefixed;

use super::canonical::Reader;
use super::{Order, PositionError, PositionType, decimal};

/// A binlog file and an offset in it, in bytes. Which server's is in the lineage's scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BinlogPoint {
    file: String,
    offset: u64,
}

impl BinlogPoint {
    /// `file` is kept verbatim: a name, a dot and decimal digits.
    ///
    /// # Errors
    /// [`PositionError::BinlogFile`].
    pub fn new(file: impl Into<String>, offset: u64) -> Result<Self, PositionError> {
        let file = file.into();
        let whole = file.rsplit_once('.').is_some_and(|(name, number)| {
            !name.is_empty() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        });
        if !whole {
            return Err(PositionError::BinlogFile { text: file });
        }
        Ok(Self { file, offset })
    }

    /// The file's name.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Bytes from the file's beginning.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Name and number of the file, the number without leading zeros and of any length.
    fn series(&self) -> (&str, &str) {
        let (name, number) = self.file.rsplit_once('.').unwrap_or((&self.file, ""));
        (name, number.trim_start_matches('0'))
    }

    /// Where `next` is, seen from here. Files follow each other by number, so 1000000 comes behind 999999;
    /// files of another name can't be compared.
    #[must_use]
    pub fn compare(&self, next: &Self) -> Order {
        if self == next {
            return Order::Equal;
        }
        let ((name, number), (next_name, next_number)) = (self.series(), next.series());
        if name != next_name {
            return Order::Incomparable;
        }
        let files = next_number.len().cmp(&number.len()).then_with(|| next_number.cmp(number));
        match files {
            Ordering::Greater => Order::Greater,
            Ordering::Less => Order::Less,
            // One number spelled with and without zeros: no server has both, so neither is known to be first.
            Ordering::Equal if self.file != next.file => Order::Incomparable,
            Ordering::Equal => Order::of(self.offset, next.offset),
        }
    }

    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        push_length_prefixed(out, self.file.as_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }

    pub(super) fn read_canonical(bytes: &[u8]) -> Result<Self, PositionError> {
        let mut reader = Reader::new(PositionType::MysqlBinlog, bytes);
        let (file, offset) = (reader.text("file name")?, reader.u64("offset")?);
        reader.end()?;
        Self::new(file, offset)
    }
}

impl fmt::Display for BinlogPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

impl FromStr for BinlogPoint {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let parts = text.rsplit_once(':').and_then(|(file, offset)| Some((file, decimal::parse(offset)?)));
        let (file, offset) =
            parts.ok_or_else(|| PositionError::BinlogCoordinate { text: text.to_owned() })?;
        Self::new(file, offset)
    }
}
