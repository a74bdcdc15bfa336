//! Rows in order: the digest over them, taken one row at a time.

use sha2::{Digest as _, Sha256};

use crate::model::ids::Digest;

/// What the digest's preimage begins with.
const DOMAIN: &[u8] = b"dfs3/rows/v1";

/// The digest of a sequence of rows, each by its canonical bytes: another order is another digest.
///
/// ```text
/// SHA-256(LP("dfs3/rows/v1") LP(row 1) ... LP(row n) n as 64 bits, big-endian)
/// ```
#[derive(Clone, Debug)]
pub struct RowDigest {
    hash: Sha256,
    rows: u64,
}

impl RowDigest {
    /// Of no rows yet.
    #[must_use]
    pub fn new() -> Self {
        let mut digest = Self { hash: Sha256::new(), rows: 0 };
        digest.prefixed(DOMAIN);
        digest
    }

    /// Takes the next row.
    pub fn push(&mut self, row: &[u8]) {
        self.prefixed(row);
        self.rows += 1;
    }

    /// Rows so far.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The digest of all of them.
    #[must_use]
    pub fn finish(mut self) -> Digest {
        self.hash.update(self.rows.to_be_bytes());
        Digest::from_bytes(self.hash.finalize().into())
    }

    fn prefixed(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }
}

impl Default for RowDigest {
    fn default() -> Self {
        Self::new()
    }
}

/// The digest of all `rows`, see [`RowDigest`].
pub fn row_seq_digest<'a>(rows: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut digest = RowDigest::new();
    rows.into_iter().for_each(|row| digest.push(row));
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
