//! Object keys, built from what an entry says and compared byte by byte with what it names.

use crate::json::Sha;

/// Longest segment and key, in bytes.
pub const MAX_SEGMENT_BYTES: usize = 200;
/// See [`MAX_SEGMENT_BYTES`].
pub const MAX_KEY_BYTES: usize = 900;

/// `A-Z a-z 0-9 - _` stay, every other byte becomes `%XX`.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(byte.into());
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

/// The text behind an escaped one, if it is one.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        if *byte == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            out.push(*byte);
            rest = tail;
        }
    }
    String::from_utf8(out).ok()
}

/// What every key of a pipeline begins with, its slash included.
#[must_use]
pub fn root(prefix: &str, pipeline: &str) -> String {
    let prefix = prefix.trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!("{prefix}{slash}{}/", escaped(pipeline))
}

/// The segment of a table.
#[must_use]
pub fn table(namespace: &str, table: &str) -> String {
    let segment = format!("{}.{}", escaped(namespace), escaped(table));
    segment.strip_prefix('_').map_or(segment.clone(), |rest| format!("%5F{rest}"))
}

/// The file ending of a data object.
#[must_use]
pub fn extension(format: &str, compression: &str) -> Option<&'static str> {
    match (format, compression) {
        ("jsonl", "none") => Some("jsonl"),
        ("jsonl", "gzip") => Some("jsonl.gz"),
        ("jsonl", "zstd") => Some("jsonl.zst"),
        ("parquet", _) => Some("parquet"),
        _ => None,
    }
}

/// The key of an entry.
#[must_use]
pub fn entry(root: &str, seq: u64, epoch: u64, sha256: Sha) -> String {
    format!("{root}_manifest/entries/{seq:020}-{epoch:010}-{sha256}.entry")
}

/// The ending of a data object's key, and what it says of format and compression.
#[must_use]
pub fn encoding(key: &str) -> Option<(&'static str, &'static str)> {
    let name = key.rsplit('/').next()?;
    match name.split_once('.')?.1 {
        "jsonl" => Some(("jsonl", "none")),
        "jsonl.gz" => Some(("jsonl", "gzip")),
        "jsonl.zst" => Some(("jsonl", "zstd")),
        "parquet" => Some(("parquet", "none")),
        _ => None,
    }
}

/// The key of a compaction's output.
#[must_use]
pub fn compacted(root: &str, table: &str, sha256: Sha, key: &str) -> String {
    let ending =
        key.rsplit('/').next().and_then(|name| name.split_once('.')).map_or("", |(_, ending)| ending);
    format!("{root}{table}/compacted/{sha256}.{ending}")
}

/// What a key of the manifest that is kept for ever holds, by its name: rollups, inventories, marks, compaction
/// records.
#[must_use]
pub fn kept_for_ever(relative: &str) -> Option<&'static str> {
    let segments: Vec<&str> = relative.split('/').collect();
    match segments[..] {
        ["_manifest", "rollups", name] if name.ends_with(".rollup") => Some("rollups"),
        ["_manifest", "inventory", name] if name.ends_with(".inv") => Some("inventories"),
        ["_manifest", "marks", name] if name.ends_with(".mark") => Some("marks"),
        ["_manifest", "compactions", name] if name.ends_with(".comp") => Some("compactions"),
        _ => None,
    }
}

/// Whether a key that nothing refers to has a name that a crash may leave behind: a data object, an entry, a
/// probe's. The name decides nothing but how it is counted.
#[must_use]
pub fn may_be_left_behind(relative: &str) -> bool {
    let segments: Vec<&str> = relative.split('/').collect();
    match segments[..] {
        ["_manifest", "entries", name] => name.ends_with(".entry"),
        ["_manifest", "probe", ..] => true,
        [table, watermark, _] => {
            let watermark = watermark.starts_with("wm") || watermark == "compacted";
            !table.starts_with('_') && table.contains('.') && watermark
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_roots_become_segments() {
        for (namespace, name, segment) in [
            ("shop", "orders", "shop.orders"),
            ("_manifest", "x", "%5Fmanifest.x"),
            ("a.b", "c", "a%2Eb.c"),
            ("a", "b.c", "a.b%2Ec"),
            ("public", "naïve", "public.na%C3%AFve"),
            ("数据", "订单", "%E6%95%B0%E6%8D%AE.%E8%AE%A2%E5%8D%95"),
            ("p", "a/b%c", "p.a%2Fb%25c"),
        ] {
            assert_eq!(table(namespace, name), segment);
        }
        assert_eq!(root("", "orders"), "orders/");
        assert_eq!(root("/a/b/", "or.ders"), "a/b/or%2Eders/");
    }

    #[test]
    fn what_a_crash_leaves_is_told_from_strangers() {
        for (key, left) in [
            ("shop.orders/wm2-00/00.jsonl", true),
            ("shop.orders/wm-00/00.jsonl", true),
            ("shop.orders/compacted/00.jsonl", true),
            ("_manifest/entries/0-0-0.entry", true),
            ("_manifest/probe/00/a/b", true),
            ("_manifest/entries/readme.txt", false),
            ("_manifest/rollups/0.rollup", false),
            ("shop.orders/x.jsonl", false),
            ("_manifest/HEAD.bak", false),
        ] {
            assert_eq!(may_be_left_behind(key), left, "{key}");
        }
    }
}
