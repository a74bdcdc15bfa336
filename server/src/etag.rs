//! Entity tags: how S3 makes and compares them.

use md5::Digest as _;

/// The ETag of a body sent in one request: the hexadecimal MD5 of its bytes, without quotes.
pub(crate) fn of_md5(md5: [u8; 16]) -> String {
    hex::encode(md5)
}

/// The ETag of a multipart object: the MD5 of the parts' MD5s, a hyphen and the number of parts.
pub(crate) fn of_parts<'a>(part_etags: impl Iterator<Item = &'a str>) -> String {
    let mut all = md5::Md5::new();
    let mut count = 0;
    for etag in part_etags {
        // A part's ETag is made by `of_md5`, so it is hexadecimal; anything else would still hash to something unique.
        all.update(hex::decode(etag).unwrap_or_else(|_| etag.as_bytes().to_vec()));
        count += 1;
    }
    format!("{}-{count}", hex::encode(all.finalize()))
}

/// The tag within a header's value: S3 takes it with or without its quotes.
pub(crate) fn unquoted(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value)
}

/// `"tag"`, as headers and XML carry it.
pub(crate) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Whether one member of `header`, a tag, a list of tags or `*`, names `etag`. Weak tags compare as
/// weak ones do where `weak` is set and never match otherwise (RFC 9110 section 8.8.3.2).
pub(crate) fn list_names(header: &str, etag: &str, weak: bool) -> bool {
    header.trim() == "*"
        || header.split(',').map(str::trim).any(|member| match member.strip_prefix("W/") {
            Some(tag) => weak && unquoted(tag) == etag,
            None => unquoted(member) == etag,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_parts() {
        let parts = ["5d41402abc4b2a76b9719d911017c592", "7d793037a0760186574b0282f2f435e7"];
        assert_eq!(of_parts(parts.into_iter()), "065947336a2f2a95ba8899f3675c3be6-2");
    }

    #[test]
    fn quotes_are_ignored_and_lists_are_searched() {
        for (header, weak, expected) in [
            ("\"a\"", false, true),
            ("a", false, true),
            ("*", false, true),
            ("\"b\", \"a\"", false, true),
            ("W/\"a\"", false, false),
            ("W/\"a\"", true, true),
            ("\"b\"", true, false),
        ] {
            assert_eq!(list_names(header, "a", weak), expected, "{header}");
        }
    }
}
