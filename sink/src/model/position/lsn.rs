//! PostgreSQL's log sequence numbers.

use std::fmt;
use std::str::FromStr;

use super::canonical::Reader;
use super::{PositionError, PositionType};

/// A byte position in PostgreSQL's write-ahead log. Which cluster's and timeline's is in the lineage's scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    pub(super) fn read_canonical(bytes: &[u8]) -> Result<Self, PositionError> {
        let mut reader = Reader::new(PositionType::PgLsn, bytes);
        let lsn = Self(reader.u64("LSN")?);
        reader.end()?;
        Ok(lsn)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let lsn = text.split_once('/').and_then(|(high, low)| Some((half(high)? << 32) | half(low)?));
        lsn.map(Self).ok_or_else(|| PositionError::Lsn { text: text.to_owned() })
    }
}

/// One half: hexadecimal digits in any case, with any number of leading zeros, below 2^32.
fn half(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().map(u64::from)
}
