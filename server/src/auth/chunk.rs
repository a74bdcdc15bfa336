//! Signatures of the chunks and the trailer of an aws-chunked body.
//!
//! Source: "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks", and the
//! page on trailing headers.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::does_not_match;
use super::keys::{SigningKey, hmac_sha256};
use crate::error::S3Error;

/// Verifies one signature after the other; each signs its predecessor, the first one the request's own.
#[derive(Clone)]
pub struct ChunkSigner {
    pub(super) key: SigningKey,
    pub(super) access_key: String,
    pub(super) timestamp: String,
    pub(super) scope: String,
    pub(super) previous: String,
}

impl ChunkSigner {
    /// Verifies the signature of the next chunk, given the SHA-256 of its data.
    ///
    /// # Errors
    ///
    /// SignatureDoesNotMatch with the string that should have been signed.
    pub fn verify_chunk(&mut self, sha256: [u8; 32], provided: &str) -> Result<(), S3Error> {
        let extensions = Sha256::digest(b""); // S3 defines no chunk extension that would be signed
        let tail = format!("{}\n{}", hex::encode(extensions), hex::encode(sha256));
        self.verify("AWS4-HMAC-SHA256-PAYLOAD", &tail, provided)
    }

    /// Verifies the signature of the trailer, given its canonical form: `name:value\n` for each line.
    ///
    /// # Errors
    ///
    /// SignatureDoesNotMatch with the string that should have been signed.
    pub fn verify_trailer(&mut self, canonical: &str, provided: &str) -> Result<(), S3Error> {
        let tail = hex::encode(Sha256::digest(canonical.as_bytes()));
        self.verify("AWS4-HMAC-SHA256-TRAILER", &tail, provided)
    }

    fn verify(&mut self, kind: &str, tail: &str, provided: &str) -> Result<(), S3Error> {
        let string_to_sign = format!("{kind}\n{}\n{}\n{}\n{tail}", self.timestamp, self.scope, self.previous);
        let expected = hex::encode(hmac_sha256(&self.key, string_to_sign.as_bytes()));
        if !bool::from(expected.as_bytes().ct_eq(provided.as_bytes())) {
            return Err(does_not_match(&self.access_key, &string_to_sign, provided));
        }
        self.previous = expected;
        Ok(())
    }
}

impl fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkSigner({} {})", self.access_key, self.scope)
    }
}
