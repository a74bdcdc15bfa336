//! Object keys: how names become segments, and how long both may be.
//!
//! Lengths count bytes of UTF-8 of the key as it is sent, before any URL-escaping (operations guide, "Object
//! keys"). Nothing is ever shortened: a name that does not fit is an error.

use std::fmt;

use super::ids::Digest;

/// Longest segment between two slashes, in bytes: file-backed stores refuse 256, some with a 500.
pub const MAX_SEGMENT_BYTES: usize = 200;

/// Longest key, in bytes: below S3's 1024 with room for what stores put in front of it.
pub const MAX_KEY_BYTES: usize = 900;

/// `wm2-` and the 64 hexadecimal digits of the watermark digest.
const WATERMARK_BYTES: usize = 68;

/// The 64 hexadecimal digits of the content hash, and the dot behind them.
const CONTENT_BYTES: usize = 65;

/// Why a name can't be part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The encoded table is longer than a segment: the sink stops; rename the table or leave it out.
    #[error(
        "table {table:?} encodes to {bytes} bytes, a segment holds {MAX_SEGMENT_BYTES}; it is never shortened"
    )]
    OversizeTableName {
        /// Namespace and table as they are named.
        table: String,
        /// Length of the encoded segment.
        bytes: usize,
    },
    /// Prefix and pipeline leave no room for a table of the longest segment: shorten one of them.
    #[error(
        "prefix {prefix:?} and pipeline {pipeline:?} take {bytes} bytes; with files ending in .{extension} they \
         may take {limit}, so that a table name of {MAX_SEGMENT_BYTES} bytes fits a key of {MAX_KEY_BYTES}"
    )]
    NoRoomForTable {
        /// The configured prefix.
        prefix: String,
        /// The encoded pipeline.
        pipeline: String,
        /// The longest extension that the configuration can produce.
        extension: String,
        /// Bytes of prefix, slash and pipeline.
        bytes: usize,
        /// Bytes that they may take.
        limit: usize,
    },
    /// A segment of the prefix, or the pipeline, is no segment: use other characters or a shorter one.
    #[error("segment {segment:?} of {of} {why}")]
    BadSegment {
        /// The segment.
        segment: String,
        /// What it is part of.
        of: &'static str,
        /// Which rule it breaks.
        why: &'static str,
    },
}

/// `namespace.table`, encoded: the segment of one table's objects. No two tables share one, and none begins
/// with an underscore, so none is `_manifest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableSegment(String);

impl TableSegment {
    /// Encodes both names and joins them by the only bare dot.
    ///
    /// # Errors
    /// [`KeyError::OversizeTableName`] above [`MAX_SEGMENT_BYTES`].
    pub fn new(namespace: &str, table: &str) -> Result<Self, KeyError> {
        let mut segment = format!("{}.{}", encoded(namespace), encoded(table));
        if segment.starts_with('_') {
            segment.replace_range(..1, "%5F");
        }
        if segment.len() > MAX_SEGMENT_BYTES {
            return Err(KeyError::OversizeTableName {
                table: format!("{namespace}.{table}"),
                bytes: segment.len(),
            });
        }
        Ok(Self(segment))
    }

    /// The segment's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TableSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `{prefix}/{pipeline}`: what every key of one pipeline begins with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipelineRoot(String);

impl PipelineRoot {
    /// Checks prefix and pipeline together, at start-up, against the longest table name there may be.
    /// `prefix` has no slash at either end and may be empty; `extension` is the longest that the
    /// configuration can produce, without its dot.
    ///
    /// # Errors
    /// [`KeyError::BadSegment`], [`KeyError::NoRoomForTable`].
    pub fn new(prefix: &str, pipeline: &str, extension: &str) -> Result<Self, KeyError> {
        if !prefix.is_empty() {
            prefix.split('/').try_for_each(|segment| check(segment, "the prefix"))?;
        }
        let encoded = encoded(pipeline);
        check(&encoded, "the pipeline")?;
        let root = if prefix.is_empty() { encoded.clone() } else { format!("{prefix}/{encoded}") };
        let behind = 1 + MAX_SEGMENT_BYTES + 1 + WATERMARK_BYTES + 1 + CONTENT_BYTES + extension.len();
        let limit = MAX_KEY_BYTES - behind;
        if root.len() > limit {
            return Err(KeyError::NoRoomForTable {
                prefix: prefix.to_owned(),
                pipeline: encoded,
                extension: extension.to_owned(),
                bytes: root.len(),
                limit,
            });
        }
        Ok(Self(root))
    }

    /// The root's text, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every object of the pipeline begins with, for a listing.
    #[must_use]
    pub fn listing(&self) -> String {
        format!("{self}/")
    }

    /// What every data object of the table with the segment `table` begins with.
    #[must_use]
    pub fn table(&self, table: &str) -> String {
        format!("{self}/{table}/")
    }

    /// What every object of the manifest begins with, the probe's too.
    #[must_use]
    pub fn manifest(&self) -> String {
        format!("{self}/_manifest/")
    }

    /// What every key of the probe begins with.
    #[must_use]
    pub fn probe(&self) -> String {
        format!("{self}/_manifest/probe/")
    }

    /// The one mutable object.
    #[must_use]
    pub fn head(&self) -> String {
        format!("{self}/_manifest/HEAD")
    }

    /// What every entry begins with.
    #[must_use]
    pub fn entries(&self) -> String {
        format!("{self}/_manifest/entries/")
    }

    /// One entry, whose frame has the SHA-256 `content`. The name is no slot: HEAD decides.
    #[must_use]
    pub fn entry(&self, seq: u64, epoch: u64, content: Digest) -> String {
        format!("{self}/_manifest/entries/{seq:020}-{epoch:010}-{content}.entry")
    }

    /// One inventory, whose frame has the SHA-256 `content`.
    #[must_use]
    pub fn inventory(&self, from: u64, to: u64, content: Digest) -> String {
        format!("{self}/_manifest/inventory/{from:020}-{to:020}-{content}.inv")
    }

    /// One rollup, whose frame has the SHA-256 `content`.
    #[must_use]
    pub fn rollup(&self, generation: u64, end_seq: u64, content: Digest) -> String {
        format!("{self}/_manifest/rollups/{generation:010}-{end_seq:020}-{content}.rollup")
    }

    /// One mark of entries, whose frame has the SHA-256 `content`.
    #[must_use]
    pub fn mark(&self, generation: u64, from: u64, to: u64, content: Digest) -> String {
        format!("{self}/_manifest/marks/{generation:010}-{from:020}-{to:020}-{content}.mark")
    }

    /// What every mark begins with.
    #[must_use]
    pub fn marks(&self) -> String {
        format!("{self}/_manifest/marks/")
    }

    /// One compaction record, whose frame has the SHA-256 `content`.
    #[must_use]
    pub fn compaction(&self, ordinal: u64, content: Digest) -> String {
        format!("{self}/_manifest/compactions/{ordinal:020}-{content}.comp")
    }

    /// What compaction wrote of the table with the segment `table`: `content` is the SHA-256 of the stored
    /// bytes, `extension` without its dot.
    #[must_use]
    pub fn compacted(&self, table: &str, content: Digest, extension: &str) -> String {
        format!("{self}/{table}/compacted/{content}.{extension}")
    }

    /// One table's data of one batch: `watermark` is the digest of its position, `content` the SHA-256 of the
    /// stored bytes, `extension` without its dot.
    #[must_use]
    pub fn data(&self, table: &TableSegment, watermark: Digest, content: Digest, extension: &str) -> String {
        format!("{self}/{table}/wm2-{watermark}/{content}.{extension}")
    }

    /// What a key of this pipeline names; nothing of a key that is none of ours. No key is ever acted upon for
    /// its name alone: this is for checks against what a manifest says, and for messages.
    #[must_use]
    pub fn parse<'a>(&self, key: &'a str) -> Option<ObjectName<'a>> {
        let rest = key.strip_prefix(self.as_str())?.strip_prefix('/')?;
        let segments: Vec<&str> = rest.split('/').collect();
        match segments[..] {
            ["_manifest", "HEAD"] => Some(ObjectName::Head),
            ["_manifest", "entries", name] => entry_name(name),
            ["_manifest", "marks", name] => mark_name(name),
            ["_manifest", ..] => None,
            [table, "compacted", file] => {
                let (content, extension) = content_name(file)?;
                Some(ObjectName::Compacted { table, content, extension })
            }
            [table, batch, file] => {
                if let Some(digest) = batch.strip_prefix("wm2-") {
                    let (content, extension) = content_name(file)?;
                    let watermark = digest.parse().ok()?;
                    Some(ObjectName::Data { table, watermark, content, extension })
                } else {
                    let position = hex::decode(batch.strip_prefix("wm-")?).ok()?;
                    Some(ObjectName::LegacyData { table, position })
                }
            }
            _ => None,
        }
    }
}

impl fmt::Display for PipelineRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a key of a pipeline names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectName<'a> {
    /// The one mutable object.
    Head,
    /// An entry.
    Entry {
        /// Its place in the chain.
        seq: u64,
        /// The epoch under which it was written.
        epoch: u64,
        /// SHA-256 of its frame.
        content: Digest,
    },
    /// A mark of entries.
    Mark {
        /// The generation of rollup under which it was written.
        generation: u64,
        /// The first entry.
        from: u64,
        /// The last entry.
        to: u64,
        /// SHA-256 of its frame.
        content: Digest,
    },
    /// One table's data of one batch.
    Data {
        /// The table's segment.
        table: &'a str,
        /// Digest of the position.
        watermark: Digest,
        /// SHA-256 of the stored bytes.
        content: Digest,
        /// Without its dot.
        extension: &'a str,
    },
    /// The same as releases before `wm2-` wrote it, with the position itself in the key.
    LegacyData {
        /// The table's segment.
        table: &'a str,
        /// The position, in whatever text it had.
        position: Vec<u8>,
    },
    /// What compaction wrote.
    Compacted {
        /// The table's segment.
        table: &'a str,
        /// SHA-256 of the stored bytes.
        content: Digest,
        /// Without its dot.
        extension: &'a str,
    },
}

fn content_name(file: &str) -> Option<(Digest, &str)> {
    let (content, extension) = file.split_once('.')?;
    Some((content.parse().ok()?, extension)).filter(|_| !extension.is_empty())
}

/// A decimal number of at least `width` digits, with zeros in front only up to there.
fn digits(text: &str, width: usize) -> Option<u64> {
    let decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let one_spelling = text.len() == width || text.len() > width && !text.starts_with('0');
    if decimal && one_spelling { text.parse().ok() } else { None }
}

fn entry_name(name: &str) -> Option<ObjectName<'static>> {
    let mut parts = name.strip_suffix(".entry")?.split('-');
    let (seq, epoch) = (digits(parts.next()?, 20)?, digits(parts.next()?, 10)?);
    let content = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(ObjectName::Entry { seq, epoch, content })
}

fn mark_name(name: &str) -> Option<ObjectName<'static>> {
    let mut parts = name.strip_suffix(".mark")?.split('-');
    let generation = digits(parts.next()?, 10)?;
    let (from, to) = (digits(parts.next()?, 20)?, digits(parts.next()?, 20)?);
    let content = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(ObjectName::Mark { generation, from, to, content })
}

pub(super) fn check(segment: &str, of: &'static str) -> Result<(), KeyError> {
    let why = if segment.is_empty() {
        "is empty"
    } else if matches!(segment, "." | "..") {
        "is a dot segment, which clients fold away"
    } else if segment.chars().any(|c| c.is_control() || c == '\\') {
        "has a control character or a backslash"
    } else if segment.len() > MAX_SEGMENT_BYTES {
        "is longer than 200 bytes"
    } else {
        return Ok(());
    };
    Err(KeyError::BadSegment { segment: segment.to_owned(), of, why })
}

/// Letters, digits, `-` and `_` stay; every other byte becomes `%XX`, the dot and the percent sign too.
pub(super) fn encoded(name: &str) -> String {
    name.bytes().fold(String::with_capacity(name.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tables_become_segments() {
        for (namespace, table, segment) in [
            ("shop", "orders", "shop.orders"),
            ("_manifest", "x", "%5Fmanifest.x"),
            ("a.b", "c", "a%2Eb.c"),
            ("a", "b.c", "a.b%2Ec"),
            ("public", "naïve", "public.na%C3%AFve"),
            ("p", "..", "p.%2E%2E"),
            ("p", "a/b%c", "p.a%2Fb%25c"),
        ] {
            assert_eq!(TableSegment::new(namespace, table).unwrap().as_str(), segment);
        }
    }

    #[test]
    fn a_table_of_two_hundred_bytes_fits_and_one_more_does_not() {
        let (namespace, table) = ("a".repeat(64), "订".repeat(15));
        assert_eq!(TableSegment::new(&namespace, &table).unwrap().as_str().len(), 200);
        let error = TableSegment::new(&(namespace + "b"), &table).unwrap_err();
        assert!(matches!(error, KeyError::OversizeTableName { bytes: 201, .. }), "{error}");
    }

    #[test]
    fn prefix_and_pipeline_leave_room_for_the_longest_table() {
        let segments = |bytes: usize| vec!["p".repeat(bytes / 3); 3].join("/");
        for (extension, limit) in [("parquet", 557), ("jsonl", 559), ("jsonl.gz", 556), ("jsonl.zst", 555)] {
            let pipeline = "x".repeat(limit - segments(500).len() - 1);
            assert!(PipelineRoot::new(&segments(500), &pipeline, extension).is_ok(), "{extension}");
            let error = PipelineRoot::new(&segments(500), &(pipeline + "x"), extension).unwrap_err();
            assert!(
                matches!(error, KeyError::NoRoomForTable { limit: found, bytes, .. } if found == limit && bytes == limit + 1),
                "{error}"
            );
        }
    }

    #[test]
    fn segments_that_are_none_are_refused() {
        let long = "p".repeat(201);
        for prefix in ["a//b", "/a", ".", "a/..", "a\\b", "a\u{1}", &long] {
            assert!(
                matches!(PipelineRoot::new(prefix, "x", "jsonl"), Err(KeyError::BadSegment { .. })),
                "{prefix}"
            );
        }
        assert!(PipelineRoot::new("", "orders", "jsonl").is_ok());
        assert!(PipelineRoot::new("", "", "jsonl").is_err());
        // A legacy directory can't be imitated: the equals sign is encoded.
        assert_eq!(PipelineRoot::new("", "table=x", "jsonl").unwrap().as_str(), "table%3Dx");
    }

    #[test]
    fn names_are_built_and_read_back() {
        let root = PipelineRoot::new("a/b", "orders.eu", "jsonl.zst").unwrap();
        let (watermark, content) = (Digest::of(b"position"), Digest::of(b"bytes"));
        let table = TableSegment::new("shop", "orders").unwrap();
        let data = root.data(&table, watermark, content, "jsonl.gz");
        assert_eq!(data, format!("a/b/orders%2Eeu/shop.orders/wm2-{watermark}/{content}.jsonl.gz"));
        let named = ObjectName::Data { table: "shop.orders", watermark, content, extension: "jsonl.gz" };
        assert_eq!(root.parse(&data), Some(named));
        assert_eq!(root.parse(&root.head()), Some(ObjectName::Head));
        let entry = root.entry(7, 3, content);
        let name = format!("00000000000000000007-0000000003-{content}.entry");
        assert_eq!(entry, format!("a/b/orders%2Eeu/_manifest/entries/{name}"));
        assert_eq!(root.parse(&entry), Some(ObjectName::Entry { seq: 7, epoch: 3, content }));
        let widest = root.entry(u64::MAX, u64::MAX, content);
        assert_eq!(root.parse(&widest), Some(ObjectName::Entry { seq: u64::MAX, epoch: u64::MAX, content }));
        let legacy = format!("a/b/orders%2Eeu/shop.orders/wm-{}/part-1.parquet", hex::encode("uuid:1-5"));
        let named = ObjectName::LegacyData { table: "shop.orders", position: b"uuid:1-5".to_vec() };
        assert_eq!(root.parse(&legacy), Some(named));
        for other in [
            "a/b/orders%2Eeu",
            "a/b/orders%2Eeux/shop.orders/compacted/x",
            "a/b/orders%2Eeu/_manifest/probe/x/y",
            "a/b/orders%2Eeu/shop.orders/wm2-00/x.jsonl",
            "a/b/orders%2Eeu/shop.orders/wm-0g/x.jsonl",
            &entry.replace(".entry", ""),
            &entry.replace("/00000000000000000007-", "/7-"),
        ] {
            assert_eq!(root.parse(other), None, "{other}");
        }
        let mark = root.mark(3, 1, 256, content);
        let named = ObjectName::Mark { generation: 3, from: 1, to: 256, content };
        assert_eq!(root.parse(&mark), Some(named));
        assert_eq!(root.parse(&mark.replace("/marks/0", "/marks/")), None);
        let compacted = format!("{root}/shop.orders/compacted/{content}.parquet");
        let named = ObjectName::Compacted { table: "shop.orders", content, extension: "parquet" };
        assert_eq!(root.parse(&compacted), Some(named));
    }

    proptest! {
        #[test]
        fn no_two_tables_share_a_segment(a in ".{0,6}", b in ".{0,6}", c in ".{0,6}", d in ".{0,6}") {
            let (left, right) = (TableSegment::new(&a, &b).unwrap(), TableSegment::new(&c, &d).unwrap());
            prop_assert_eq!(left == right, a == c && b == d);
        }
    }
}
