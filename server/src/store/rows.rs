//! Where each fact stands in the index: one tag byte for the kind, then the parts of the key in an
//! encoding that keeps their order. This is the only place that builds or takes apart keys of rows.
//!
//! | tag | key | value |
//! | --- | --- | --- |
//! | `B` | bucket | [`Bucket`](super::model::Bucket), then its [`Lifecycle`](crate::lifecycle::Lifecycle) if it has one |
//! | `O` | bucket, key | the newest version, where that is an object |
//! | `V` | bucket, key, newest first | every other version and delete marker |
//! | `N` | bucket, key | sequence of the null version, where it stands under `V` |
//! | `U` | bucket, key, sequence | an open multipart upload |
//! | `P` | upload's sequence, part number | an uploaded part |
//! | `D` | bucket, upload's sequence | what a completed upload answered |
//! | `T` | bucket, key | sequence of the last delete, while an upload of the key is open |
//! | `C` | blob, number | a piece of a body; an empty one where the body is a file |
//! | `S` | | bound below which sequence numbers may have been used |
//! | `G` | | how often the store was opened |

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::index::IndexError;
use crate::names::{BucketName, Key};

/// The first byte of every record: a record of another format is refused, not guessed at.
const FORMAT: u8 = 1;

pub(crate) const SEQUENCE: &[u8] = b"S";
pub(crate) const GENERATION: &[u8] = b"G";

pub(super) fn bucket(name: &str) -> Bytes {
    join(b'B', name.as_bytes(), b"", b"")
}

/// The rows of buckets whose names begin with `prefix` begin with this.
pub(super) fn bucket_prefix(prefix: &str) -> Bytes {
    let row = bucket(prefix);
    row.slice(..row.len() - 1)
}

/// The name in a bucket row's key.
pub(super) fn bucket_of(row: &[u8]) -> Option<&str> {
    std::str::from_utf8(row.strip_prefix(b"B")?.strip_suffix(b"\0")?).ok()
}

/// Everything of one kind in one bucket begins with this.
pub(super) fn within(tag: u8, bucket: &BucketName) -> Bytes {
    join(tag, bucket.as_str().as_bytes(), b"", b"")
}

pub(super) fn current(bucket: &BucketName, key: &Key) -> Bytes {
    join(b'O', bucket.as_str().as_bytes(), key.as_str().as_bytes(), b"")
}

pub(super) fn null_version(bucket: &BucketName, key: &Key) -> Bytes {
    join(b'N', bucket.as_str().as_bytes(), key.as_str().as_bytes(), b"")
}

pub(super) fn trace(bucket: &BucketName, key: &Key) -> Bytes {
    join(b'T', bucket.as_str().as_bytes(), key.as_str().as_bytes(), b"")
}

/// The versions of one key begin with this.
pub(super) fn versions_of(bucket: &BucketName, key: &Key) -> Bytes {
    join(b'V', bucket.as_str().as_bytes(), &escaped(key.as_str()), b"")
}

pub(super) fn version(bucket: &BucketName, key: &Key, seq: u64) -> Bytes {
    join(b'V', bucket.as_str().as_bytes(), &escaped(key.as_str()), &(!seq).to_be_bytes())
}

/// The open uploads of one key begin with this.
pub(super) fn uploads_of(bucket: &BucketName, key: &Key) -> Bytes {
    join(b'U', bucket.as_str().as_bytes(), &escaped(key.as_str()), b"")
}

pub(super) fn upload(bucket: &BucketName, key: &Key, seq: u64) -> Bytes {
    join(b'U', bucket.as_str().as_bytes(), &escaped(key.as_str()), &seq.to_be_bytes())
}

/// The rows of `tag` in a bucket whose keys begin with `prefix` begin with this.
pub(super) fn starting(tag: u8, bucket: &BucketName, prefix: &str) -> Bytes {
    let bucket = bucket.as_str().as_bytes();
    if tag == b'O' {
        return join(tag, bucket, prefix.as_bytes(), b"");
    }
    let mut escaped = escaped(prefix);
    escaped.truncate(escaped.len() - 2);
    join(tag, bucket, &escaped, b"")
}

/// The object key within a row's key, given what all rows of its kind in the bucket begin with.
pub(super) fn key_of(row: &[u8], within: &[u8]) -> Option<String> {
    let rest = row.strip_prefix(within)?;
    if within.first() == Some(&b'O') {
        return String::from_utf8(rest.to_vec()).ok();
    }
    unescaped(rest.get(..rest.len().checked_sub(8)?)?)
}

pub(super) fn part(upload: u64, number: u16) -> Bytes {
    let mut key = BytesMut::from(&parts_of(upload)[..]);
    key.put_u16(number);
    key.freeze()
}

/// The parts of one upload begin with this.
pub(super) fn parts_of(upload: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(11);
    key.put_u8(b'P');
    key.put_u64(upload);
    key.freeze()
}

pub(super) fn done(bucket: &BucketName, upload: u64) -> Bytes {
    join(b'D', bucket.as_str().as_bytes(), &upload.to_be_bytes(), b"")
}

pub(super) fn piece(blob: u64, number: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(13);
    key.put_u8(b'C');
    key.put_u64(blob);
    key.put_u32(number);
    key.freeze()
}

/// The blob that a piece's row belongs to.
pub(super) fn blob_of(row: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(row.strip_prefix(b"C")?.get(..8)?.try_into().ok()?))
}

/// A key that comes after every key beginning with `prefix`, whose next byte is part of UTF-8 text or
/// a terminator: no such byte is 0xFF.
pub(super) fn after_all(prefix: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(prefix.len() + 1);
    key.put_slice(prefix);
    key.put_u8(0xFF);
    key.freeze()
}

fn join(tag: u8, first: &[u8], second: &[u8], last: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + first.len() + second.len() + last.len());
    key.put_u8(tag);
    key.put_slice(first);
    key.put_u8(0);
    key.put_slice(second);
    key.put_slice(last);
    key.freeze()
}

/// An object key that something follows: 0x00 becomes 0x00 0xFF and the end is 0x00 0x01, so that the
/// order of keys stays the order of rows.
fn escaped(key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 2);
    for byte in key.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 1]);
    out
}

fn unescaped(escaped: &[u8]) -> Option<String> {
    let body = escaped.strip_suffix(&[0, 1])?;
    let mut out = Vec::with_capacity(body.len());
    let mut bytes = body.iter();
    while let Some(&byte) = bytes.next() {
        out.push(byte);
        if byte == 0 && bytes.next() != Some(&0xFF) {
            return None;
        }
    }
    String::from_utf8(out).ok()
}

/// A record's bytes: the format, then the record.
pub(super) fn encode(record: &impl Serialize) -> Result<Bytes, IndexError> {
    postcard::to_extend(record, vec![FORMAT])
        .map(Bytes::from)
        .map_err(|error| IndexError::unavailable("encoding a record", error))
}

/// Reads a record, and what follows it in the value.
pub(super) fn decode<'a, T: DeserializeOwned>(
    row: &[u8],
    value: &'a [u8],
) -> Result<(T, &'a [u8]), IndexError> {
    let damaged = |cause: String| IndexError::Damaged { row: Bytes::copy_from_slice(row), cause };
    match value.split_first() {
        Some((&FORMAT, record)) => {
            postcard::take_from_bytes(record).map_err(|error| damaged(error.to_string()))
        }
        first => Err(damaged(format!("format {:?}, this server reads {FORMAT}", first.map(|(f, _)| f)))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_of_versions_sort_as_their_keys_do_and_newest_first(
            a in "[\\x00a\u{7f}é]{0,6}", b in "[\\x00a\u{7f}é]{0,6}", older in any::<u64>(), newer in any::<u64>(),
        ) {
            let bucket = BucketName::new("abc").unwrap();
            let (key_a, key_b) = (Key::new(a.clone()).unwrap(), Key::new(b.clone()).unwrap());
            let (row_a, row_b) = (version(&bucket, &key_a, older), version(&bucket, &key_b, newer));
            let expected = a.as_bytes().cmp(b.as_bytes()).then(newer.cmp(&older));
            prop_assert_eq!(row_a.cmp(&row_b), expected);
            prop_assert_eq!(key_of(&row_a, &within(b'V', &bucket)), Some(a));
        }
    }

    #[test]
    fn a_record_of_another_format_is_refused() {
        let value = encode(&7_u32).unwrap();
        assert_eq!(decode::<u32>(b"x", &value).unwrap().0, 7);
        let mut other = value.to_vec();
        other[0] = 9;
        assert!(matches!(decode::<u32>(b"x", &other), Err(IndexError::Damaged { .. })));
    }
}
