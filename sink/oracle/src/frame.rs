//! The frame of every manifest object: `DFS3 <kind> <major>.<minor> <body length> <sha256 of the body>\n`, then
//! the body as JSON.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json::{self, Sha};

/// The only major version that this decoder knows.
pub const MAJOR: u64 = 1;

/// The highest minor version that it was written for.
pub const MINOR: u64 = 0;

/// What a manifest object is. The name is the word in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `_manifest/HEAD`.
    Head,
    /// One committed batch.
    Entry,
    /// What is kept of entries.
    Inventory,
    /// The inventories of all entries up to one.
    Rollup,
    /// What a compaction replaced.
    Compaction,
    /// Entries that may be collected.
    Mark,
}

impl Kind {
    /// The word in the header.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Entry => "entry",
            Self::Inventory => "inventory",
            Self::Rollup => "rollup",
            Self::Compaction => "compaction",
            Self::Mark => "mark",
        }
    }

    /// The longest body that is read, in bytes.
    const fn most_bytes(self) -> usize {
        match self {
            Self::Head => 64 << 10,
            Self::Entry => 4 << 20,
            Self::Mark => 8 << 20,
            Self::Inventory => 32 << 20,
            Self::Rollup | Self::Compaction => 16 << 20,
        }
    }
}

/// Checks frame, version, length, checksum and JSON, in this order, and reads the body as a record.
///
/// # Errors
/// The first rule that does not hold.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], kind: Kind) -> Result<T, String> {
    let end = bytes.iter().take(256).position(|b| *b == b'\n').ok_or("no header line")?;
    let header = std::str::from_utf8(&bytes[..end]).map_err(|_| "the header is no UTF-8")?;
    let body = &bytes[end + 1..];
    let words: Vec<&str> = header.split(' ').collect();
    let [magic, word, version, length, digest] = words[..] else {
        return Err(format!("the header {header:?} has not five words"));
    };
    if magic != "DFS3" {
        return Err(format!("the header begins with {magic:?}, not DFS3"));
    }
    if word != kind.word() {
        return Err(format!("the header says {word:?} where {:?} belongs", kind.word()));
    }
    let (major, minor) = version
        .split_once('.')
        .and_then(|(major, minor)| Some((json::decimal(major)?, json::decimal(minor)?)))
        .ok_or(format!("{version:?} is no version"))?;
    if major != MAJOR {
        return Err(format!("major version {major}; this decoder knows {MAJOR}"));
    }
    if json::decimal(length) != Some(body.len() as u64) {
        return Err(format!("the header says {length} bytes, the body has {}", body.len()));
    }
    if body.len() > kind.most_bytes() {
        return Err(format!("{} bytes, {} at most", body.len(), kind.most_bytes()));
    }
    let found = json::sha256(body);
    if Sha::read(digest) != Some(found) {
        return Err(format!("the header says SHA-256 {digest}, the body has {found}"));
    }
    let value = json::parse(body)?;
    let least = value.get("min_reader").and_then(Value::as_u64).unwrap_or(0);
    if minor > MINOR && least > MINOR {
        return Err(format!("minor version {minor} wants readers of {least}, this one knows {MINOR}"));
    }
    serde_json::from_value(value).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTOR: &str =
        "DFS3 head 1.0 7 015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862\n{\"a\":1}";

    fn check(text: &str) -> Result<Value, String> {
        decode(text.as_bytes(), Kind::Head)
    }

    #[test]
    fn the_vector_of_the_protocol_is_read() {
        assert_eq!(check(VECTOR).unwrap()["a"], 1);
    }

    #[test]
    fn every_part_of_the_frame_is_checked() {
        for (from, to, why) in [
            ("DFS3", "DFS2", "not DFS3"),
            ("head", "entry", "\"entry\" where \"head\" belongs"),
            ("1.0", "2.0", "major version 2"),
            ("1.0", "1", "no version"),
            (" 7 ", " 8 ", "says 8 bytes"),
            (" 7 ", " 07 ", "says 07 bytes"),
            ("015a", "115a", "says SHA-256"),
            ("015a", "015A", "says SHA-256"),
            ("{\"a\":1}", "{\"a\":2}", "says SHA-256"),
            ("{\"a\":1}", "{\"a\":", "has 5"),
            ("\n", " ", "no header line"),
            (" 7", "  7", "five words"),
        ] {
            let error = check(&VECTOR.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_newer_minor_is_read_where_it_says_so() {
        let framed = |minor, body: &str| {
            format!("DFS3 head 1.{minor} {} {}\n{body}", body.len(), json::sha256(body.as_bytes()))
        };
        assert!(check(&framed(3, r#"{"min_reader":0,"new":1}"#)).is_ok());
        assert!(check(&framed(3, r#"{"min_reader":1}"#)).unwrap_err().contains("wants readers of 1"));
    }
}
