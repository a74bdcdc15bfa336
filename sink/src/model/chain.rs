//! The hash chain over all entries of a stream: what HEAD and rollups commit to beyond single hashes.

use super::ids::{Digest, StreamId, push_length_prefixed};

const DOMAIN: &[u8] = b"dfs3/chain/v1";

/// The chain of no entries.
#[must_use]
pub fn origin(stream: StreamId) -> Digest {
    let mut preimage = Vec::with_capacity(64);
    push_length_prefixed(&mut preimage, DOMAIN);
    push_length_prefixed(&mut preimage, stream.as_bytes());
    Digest::of(&preimage)
}

/// The chain with one more entry, whose frame has the SHA-256 `entry`.
#[must_use]
pub fn extend(before: Digest, seq: u64, entry: Digest) -> Digest {
    let mut preimage = Vec::with_capacity(96);
    push_length_prefixed(&mut preimage, DOMAIN);
    preimage.extend_from_slice(before.as_bytes());
    preimage.extend_from_slice(&seq.to_be_bytes());
    preimage.extend_from_slice(entry.as_bytes());
    Digest::of(&preimage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_none_one_and_two_entries() {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(0..).for_each(|(byte, n)| *byte = n);
        let none = origin(StreamId::from_bytes(bytes));
        let one = extend(none, 1, Digest::of(b"entry-1"));
        let two = extend(one, 2, Digest::of(b"entry-2"));
        assert_eq!(
            [none, one, two].map(|digest| digest.to_string()),
            [
                "ab5eedd330ea946bde42e87d32995da7c38a99afed1503ca5066efcc38956c10",
                "2cd8c43714367b30518f5f8ffecad2db9fe2de686dde11426b62bb08812619f5",
                "d129c59c94f4fdd028b7ae420bac7989e4e309cfcc53f51b52fda39873eeb765",
            ]
        );
    }
}
