//! Checked names: a value of these types is valid, so nothing below the edge checks again.

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

use crate::error::{Code, S3Error};

/// Longest object key, in bytes of UTF-8 after URL-decoding (S3 User Guide, "Naming Amazon S3 objects").
pub(crate) const MAX_KEY_BYTES: usize = 1024;

/// The regions that have S3 (AWS General Reference, "Amazon S3 endpoints and quotas").
pub(crate) const REGIONS: [&str; 33] = [
    "af-south-1",
    "ap-east-1",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-west-1",
    "us-west-2",
];

/// A bucket's name (S3 User Guide, "General purpose bucket naming rules").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BucketName(String);

impl BucketName {
    /// Takes a name under the rules for new buckets: 3 to 63 bytes of `a-z 0-9 . -`, beginning and
    /// ending with a letter or digit, no two adjacent dots, not of the form of an IPv4 address, without
    /// the reserved prefixes and suffixes.
    ///
    /// # Errors
    /// `InvalidBucketName` with the name.
    pub(crate) fn new(name: &str) -> Result<Self, S3Error> {
        if Self::is_valid(name) {
            Ok(Self(name.to_owned()))
        } else {
            Err(S3Error::new(Code::InvalidBucketName).extra("BucketName", name))
        }
    }

    fn is_valid(name: &str) -> bool {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = name.as_bytes();
        (3..=63).contains(&bytes.len())
            && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
            && edge(bytes.first())
            && edge(bytes.last())
            && !name.contains("..")
            && name.parse::<std::net::Ipv4Addr>().is_err()
            && !["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|p| name.starts_with(p))
            && !["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"].iter().any(|s| name.ends_with(s))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object's key: 1 to 1024 bytes of UTF-8, kept as it came, never normalised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// # Errors
    /// `KeyTooLongError` with both sizes.
    pub(crate) fn new(key: String) -> Result<Self, S3Error> {
        if key.len() > MAX_KEY_BYTES {
            return Err(S3Error::new(Code::KeyTooLongError)
                .extra("Size", key.len().to_string())
                .extra("MaxSizeAllowed", MAX_KEY_BYTES.to_string()));
        }
        Ok(Self(key))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `..` segments climb above the bucket: counted from the left, they may never outnumber
    /// the other segments (S3 User Guide, "Naming Amazon S3 objects", period-only path segments).
    pub(crate) fn climbs_out(&self) -> bool {
        let mut depth = 0_i32;
        self.0.split('/').any(|segment| {
            match segment {
                ".." => depth -= 1,
                "" | "." => {}
                _ => depth += 1,
            }
            depth < 0
        })
    }
}

/// The name of one version: `null`, or 32 characters that hold its place in the order of commits.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum VersionId {
    /// The version written while versioning was not enabled.
    Null,
    /// An opaque id; the first eight bytes, decoded, are the sequence number of its commit.
    Id(String),
}

impl VersionId {
    pub(crate) fn generate(seq: u64, random: [u8; 16]) -> Self {
        Self::Id(sequenced_id(seq, &random[CHECK_BYTES..]))
    }

    /// # Errors
    /// `InvalidArgument` naming `versionId`, where the form is none this server gives out.
    pub(crate) fn parse(text: &str) -> Result<Self, S3Error> {
        match text {
            "null" => Ok(Self::Null),
            _ if text.len() == 32 && sequence_of(text).is_some() => Ok(Self::Id(text.to_owned())),
            _ => Err(S3Error::new(Code::InvalidArgument)
                .message("Invalid version id specified")
                .extra("ArgumentName", "versionId")
                .extra("ArgumentValue", text)),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Id(id) => id,
        }
    }
}

/// Version ids of AWS consist of letters, digits, dots and low lines (observed on more than a hundred of them).
const IDS: GeneralPurpose = GeneralPurpose::new(
    &match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 different characters"),
    },
    NO_PAD,
);

/// Bytes at the end of an id that the others determine.
const CHECK_BYTES: usize = 3;

/// An id that begins with `seq`, followed by random bytes so that it can't be guessed, and by three that tell
/// an id that was given out from one that was made up or changed: AWS refuses such a version id as invalid
/// (recorded).
pub(crate) fn sequenced_id(seq: u64, random: &[u8]) -> String {
    let mut bytes = seq.to_be_bytes().to_vec();
    bytes.extend_from_slice(random);
    bytes.extend_from_slice(&check_bytes(&bytes));
    IDS.encode(bytes)
}

/// The sequence number in an id made by [`sequenced_id`]; `None` for text that no such id is.
pub(crate) fn sequence_of(id: &str) -> Option<u64> {
    let bytes = IDS.decode(id).ok()?;
    let (id, check) = bytes.split_last_chunk()?;
    (check_bytes(id) == *check).then(|| Some(u64::from_be_bytes(id.get(..8)?.try_into().ok()?)))?
}

fn check_bytes(id: &[u8]) -> [u8; CHECK_BYTES] {
    let [.., a, b, c] = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, id).to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names() {
        let long = "a".repeat(64);
        for good in ["abc", "my.bucket-1", "1.2.3", &"a".repeat(63)] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        for bad in
            ["ab", "Abc", "a_b", "-ab", "ab-", "a..b", "192.168.0.1", "xn--a", "b-s3alias", &long, "a/b"]
        {
            assert!(BucketName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_limited_in_bytes_and_not_in_characters() {
        assert!(Key::new("é".repeat(512)).is_ok());
        let error = Key::new("é".repeat(512) + "a").unwrap_err();
        assert!(error.extra.contains(&("Size", "1025".into())), "{error:?}");
    }

    #[test]
    fn dot_segments_may_not_climb_out_of_the_bucket() {
        for (key, out) in [
            ("../x", true),
            ("a/../b", false),
            ("a/../../b", true),
            ("a/./b", false),
            ("..a", false),
            ("a//..", false),
        ] {
            assert_eq!(Key::new(key.into()).unwrap().climbs_out(), out, "{key}");
        }
    }

    #[test]
    fn ids_carry_their_sequence() {
        let VersionId::Id(id) = VersionId::generate(77, [0xFB; 16]) else { unreachable!("generated") };
        assert_eq!((id.len(), sequence_of(&id)), (32, Some(77)));
        assert!(
            id.contains('.') && id.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c)),
            "{id}"
        );
        assert!(VersionId::parse(&id).is_ok());
        let changed = format!("{}ABCD", &id[..28]);
        for foreign in ["nonsense!", "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD", &changed] {
            assert!(VersionId::parse(foreign).is_err(), "{foreign}");
        }
    }
}
