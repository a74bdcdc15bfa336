//! The frame of every manifest object: one line that names kind, version, length and checksum, then the body.
//!
//! ```text
//! DFS3 <kind> <major>.<minor> <bytes of the body> <SHA-256 of the body>\n<body: JSON>
//! ```
//!
//! The checksum covers the stored bytes, so nothing has to be brought into a canonical form to verify it; it
//! catches a body that was cut, a proxy's error page in an object's place, and one kind in another's.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ids::Digest;
use super::json;

/// The only major version that there is.
pub const MAJOR: u16 = 1;

/// The newest minor version whose fields and rules this code knows.
pub const MINOR: u16 = 0;

/// What a framed object is: those under `_manifest/`, and the files of a staged job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The one mutable object.
    Head,
    /// One committed batch.
    Entry,
    /// The entries of a range, copied together.
    Inventory,
    /// All inventories up to a sequence number.
    Rollup,
    /// Entries that may be deleted.
    Mark,
    /// A proof that outputs replace inputs.
    Compaction,
    /// A staged upload, with all that completing it takes.
    Handle,
    /// What a staged job restores from.
    Snapshot,
    /// Whether a snapshot counts.
    Marker,
    /// That a staged upload became an object.
    Receipt,
    /// That a coordinator took over.
    Claim,
}

impl Kind {
    /// Its word in the frame.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Entry => "entry",
            Self::Inventory => "inventory",
            Self::Rollup => "rollup",
            Self::Mark => "mark",
            Self::Compaction => "compaction",
            Self::Handle => "handle",
            Self::Snapshot => "snapshot",
            Self::Marker => "marker",
            Self::Receipt => "receipt",
            Self::Claim => "claim",
        }
    }

    /// Longest object of the kind, header included, in bytes: checked before anything is parsed.
    #[must_use]
    pub const fn max_bytes(self) -> usize {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        match self {
            Self::Head | Self::Marker | Self::Receipt | Self::Claim => 64 * KIB,
            Self::Entry | Self::Handle => 4 * MIB,
            Self::Inventory | Self::Snapshot => 32 * MIB,
            Self::Rollup | Self::Compaction => 16 * MIB,
            Self::Mark => 8 * MIB,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes are no frame of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No header as it is written: not an object of ours, or damaged in its first line.
    #[error("no header of a manifest object: the first line is {found:?}")]
    NoHeader {
        /// The first line, its first 100 bytes.
        found: String,
    },
    /// An object of another kind.
    #[error("a frame of kind {found:?} where {wanted} is wanted")]
    OtherKind {
        /// What it says.
        found: String,
        /// What was looked for.
        wanted: Kind,
    },
    /// Longer than an object of this kind may be.
    #[error("{bytes} bytes, an object of kind {kind} has at most {limit}")]
    TooLong {
        /// The kind.
        kind: Kind,
        /// Bytes of the object.
        bytes: usize,
        /// Most bytes.
        limit: usize,
    },
    /// The body is shorter or longer than the header says.
    #[error("a body of {found} bytes where the header says {declared}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that the header promises.
        declared: usize,
    },
    /// The body is not the one that was written.
    #[error("the body's SHA-256 is {found}, the header says {declared}")]
    Checksum {
        /// Of the body.
        found: Digest,
        /// Of the header.
        declared: Digest,
    },
    /// Written by a version whose rules are unknown here: run that version, or a later one.
    #[error("written by version {found}, this is {MAJOR}.{MINOR}: {why}; run the newer version")]
    NewerWriter {
        /// The frame's version.
        found: String,
        /// What is unknown.
        why: String,
    },
    /// The checksum holds, and the body is no JSON of this kind.
    #[error("the body is no {kind}: {reason}")]
    Body {
        /// The kind.
        kind: Kind,
        /// What the parser says.
        reason: String,
    },
}

/// Frames `body` under the given minor version.
///
/// # Panics
/// If `body` can't be written as JSON: a bug, since the model's types can.
#[must_use]
pub fn encode<T: Serialize>(kind: Kind, minor: u16, body: &T) -> Bytes {
    let body = serde_json::to_vec(body).expect("the model's types are JSON");
    let mut frame =
        format!("DFS3 {kind} {MAJOR}.{minor} {} {}\n", body.len(), Digest::of(&body)).into_bytes();
    frame.extend_from_slice(&body);
    frame.into()
}

/// The body of a frame and its minor version.
///
/// # Errors
/// Every [`FrameError`]; the checks come in the order in which they stand there, so that a damaged object is
/// never taken for a newer one.
pub fn decode<T: DeserializeOwned>(kind: Kind, frame: &[u8]) -> Result<(u16, T), FrameError> {
    let (header, body) = split(kind, frame)?;
    if body.len() != header.length {
        return Err(FrameError::Length { found: body.len(), declared: header.length });
    }
    let found = Digest::of(body);
    if found != header.checksum {
        return Err(FrameError::Checksum { found, declared: header.checksum });
    }
    let newer =
        |why: String| FrameError::NewerWriter { found: format!("{}.{}", header.major, header.minor), why };
    if header.major != MAJOR {
        return Err(newer("another major version".to_owned()));
    }
    let reason = |error: serde_json::Error| FrameError::Body { kind, reason: error.to_string() };
    let value: serde_json::Value = json::parse(body).map_err(reason)?;
    if header.minor > MINOR {
        // A newer writer says which readers understand it; without the word, nobody older does.
        let min_reader = value.get("min_reader").and_then(serde_json::Value::as_u64);
        if min_reader.is_none_or(|least| least > u64::from(MINOR)) {
            return Err(newer("its body wants a newer reader".to_owned()));
        }
    }
    let body = serde_json::from_value(value).map_err(|error| {
        let unknown = error.to_string().contains("unknown variant");
        if unknown { newer(error.to_string()) } else { reason(error) }
    })?;
    Ok((header.minor, body))
}

struct Header {
    major: u16,
    minor: u16,
    length: usize,
    checksum: Digest,
}

fn split(kind: Kind, frame: &[u8]) -> Result<(Header, &[u8]), FrameError> {
    if frame.len() > kind.max_bytes() {
        return Err(FrameError::TooLong { kind, bytes: frame.len(), limit: kind.max_bytes() });
    }
    let end = frame.iter().position(|&byte| byte == b'\n').unwrap_or(frame.len());
    let (line, rest) = frame.split_at(end);
    let no_header =
        || FrameError::NoHeader { found: String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned() };
    let text = str::from_utf8(line).map_err(|_| no_header())?;
    let words: Vec<&str> = text.split(' ').collect();
    let &["DFS3", word, version, length, checksum] = &words[..] else { return Err(no_header()) };
    let (major, minor) = version.split_once('.').ok_or_else(no_header)?;
    let header = Header {
        major: number(major).ok_or_else(no_header)?,
        minor: number(minor).ok_or_else(no_header)?,
        length: number(length).ok_or_else(no_header)?,
        checksum: checksum.parse().map_err(|_| no_header())?,
    };
    if word != kind.name() {
        return Err(FrameError::OtherKind { found: word.to_owned(), wanted: kind });
    }
    let body = rest.strip_prefix(b"\n").ok_or_else(no_header)?;
    Ok((header, body))
}

/// A number in the one spelling that is written.
fn number<T: std::str::FromStr + fmt::Display>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|value| value.to_string() == text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const HEADER: &str = "DFS3 head 1.0 7 015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862\n";

    fn error(frame: &[u8]) -> FrameError {
        decode::<Value>(Kind::Head, frame).unwrap_err()
    }

    #[test]
    fn a_frame_is_its_header_and_the_body() {
        let frame = encode(Kind::Head, 0, &json!({"a": 1}));
        assert_eq!(frame, format!("{HEADER}{{\"a\":1}}"));
        assert_eq!(decode::<Value>(Kind::Head, &frame).unwrap(), (0, json!({"a": 1})));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for text in [
            "",
            "\n",
            "<Error>",
            "DFS3 head 1.0 7\n",
            HEADER.trim_end(),
            &HEADER.replace(" 7 ", " 07 "),
            &HEADER.replace(" 7 ", " +7 "),
            &HEADER.replace("1.0", "1"),
            &HEADER.replace("015abd", "015ABD"),
            &HEADER.replace("DFS3", "DFS4"),
            &HEADER.replace(" 7", "  7"),
        ] {
            assert!(matches!(error(text.as_bytes()), FrameError::NoHeader { .. }), "{text}");
        }
    }

    #[test]
    fn damage_is_named() {
        let body = format!("{HEADER}{{\"a\":1}}");
        assert_eq!(error(&body.as_bytes()[..body.len() - 1]), FrameError::Length { found: 6, declared: 7 });
        assert!(matches!(error(body.replace(":1", ":2").as_bytes()), FrameError::Checksum { .. }));
        assert!(matches!(
            decode::<Value>(Kind::Entry, body.as_bytes()),
            Err(FrameError::OtherKind { wanted: Kind::Entry, .. })
        ));
        let long = vec![b' '; Kind::Head.max_bytes() + 1];
        assert!(matches!(error(&long), FrameError::TooLong { limit: 65_536, .. }));
        let twice = br#"{"a":1,"a":1}"#;
        let frame = format!("DFS3 head 1.0 {} {}\n", twice.len(), Digest::of(twice));
        assert!(matches!(error(&[frame.as_bytes(), twice].concat()), FrameError::Body { .. }));
    }

    #[test]
    fn a_newer_minor_is_read_if_it_lets_us_and_a_newer_major_never() {
        let frame = |minor, body: Value| encode(Kind::Head, minor, &body);
        assert_eq!(
            decode::<Value>(Kind::Head, &frame(7, json!({"min_reader": 0, "x_new": 1}))).unwrap().0,
            7
        );
        for body in [json!({"min_reader": 1}), json!({}), json!({"min_reader": "0"})] {
            assert!(matches!(error(&frame(7, body)), FrameError::NewerWriter { .. }));
        }
        let major =
            String::from_utf8(encode(Kind::Head, 0, &json!({})).to_vec()).unwrap().replace(" 1.0 ", " 2.0 ");
        assert!(matches!(error(major.as_bytes()), FrameError::NewerWriter { .. }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode::<Value>(Kind::Head, &bytes).is_err());
        }

        #[test]
        fn one_flipped_bit_is_noticed(at in 0_usize..96, bit in 0_u8..8) {
            let mut frame = encode(Kind::Head, 0, &json!({"a": 1})).to_vec();
            let at = at % frame.len();
            frame[at] ^= 1 << bit;
            prop_assert!(decode::<Value>(Kind::Head, &frame).is_err());
        }
    }
}
