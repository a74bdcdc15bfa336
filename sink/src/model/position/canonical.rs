//! Reading of canonical bytes, part by part.

use super::{PositionError, PositionType};

/// What is left to read.
pub(super) struct Reader<'a> {
    position_type: PositionType,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(position_type: PositionType, bytes: &'a [u8]) -> Self {
        Self { position_type, rest: bytes }
    }

    pub(super) fn error(&self, why: impl Into<String>) -> PositionError {
        PositionError::Canonical { position_type: self.position_type, why: why.into() }
    }

    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], PositionError> {
        let parts = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = parts.ok_or_else(|| {
            self.error(format!("{what} wants {length} bytes, {} are left", self.rest.len()))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], PositionError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, PositionError> {
        self.array(what).map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, PositionError> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, PositionError> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(super) fn sixteen(&mut self, what: &str) -> Result<[u8; 16], PositionError> {
        self.array(what)
    }

    /// UTF-8 behind its length.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, PositionError> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|error| self.error(format!("{what} is no UTF-8: {error}")))
    }

    pub(super) fn end(&self) -> Result<(), PositionError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.error(format!("{} bytes follow its end", self.rest.len())))
    }
}
