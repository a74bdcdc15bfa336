//! Identities of the protocol: digests of content and positions, nonces of writes, and who writes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A text that is no identity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}: {bytes} bytes as lower-case hexadecimal digits are wanted")]
pub struct IdError {
    text: String,
    kind: &'static str,
    bytes: usize,
}

/// Lower-case hexadecimal digits only, so that two texts of one identity are equal.
fn parse<const N: usize>(text: &str, kind: &'static str) -> Result<[u8; N], IdError> {
    let mut bytes = [0; N];
    if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
        return Err(IdError { text: text.to_owned(), kind, bytes: N });
    }
    Ok(bytes)
}

/// An identity of a fixed number of bytes, written as lower-case hexadecimal digits.
macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// From its bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text, $kind).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

identity!(
    /// A SHA-256: of stored bytes, of a position, of rows, of a chain of entries.
    Digest,
    32,
    "SHA-256 digest"
);
identity!(
    /// The random identity of one conditional write: what tells one's own write from another's.
    Nonce,
    16,
    "nonce"
);
identity!(
    /// Drawn when a stream is created and never changed: guards against two streams in one place.
    StreamId,
    16,
    "stream id"
);
identity!(
    /// Drawn at each start of a process and never configured, so that no two processes share one.
    WriterId,
    16,
    "writer id"
);

impl Digest {
    /// The SHA-256 of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }
}

/// Appends `bytes` behind their length as 64 bits, big-endian: what keeps the parts of a preimage apart.
pub fn push_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_back_from_its_text() {
        let digest = Digest::of(b"abc");
        let text = digest.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("{text:?}"));
    }

    #[test]
    fn other_spellings_are_refused_by_name() {
        for text in ["", "00", "000102030405060708090A0B0C0D0E0F", "000102030405060708090a0b0c0d0e0g"] {
            let error = text.parse::<Nonce>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("{text:?} is no nonce: 16 bytes as lower-case hexadecimal digits are wanted")
            );
        }
    }
}
