//! `Range` as S3 reads it (RFC 9110 section 14.2; S3 API Reference, GetObject).

/// What a `Range` header asks of an object of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// No range, a malformed one, or several: the whole object with status 200.
    Whole,
    /// First and last byte, both inclusive, with status 206.
    Part(u64, u64),
    /// Status 416.
    Unsatisfiable,
}

/// Reads the header's value. AWS answers a malformed header and a list of ranges with the whole object.
pub(crate) fn select(header: &str, size: u64) -> Selection {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|spec| spec.split_once('-')) else {
        return Selection::Whole;
    };
    match (number(first), number(last)) {
        (None, Some(suffix)) if first.is_empty() => match suffix.min(size) {
            0 => Selection::Unsatisfiable,
            length => Selection::Part(size - length, size - 1),
        },
        (Some(from), None) if last.is_empty() => within(from, u64::MAX, size),
        (Some(from), Some(to)) if from <= to => within(from, to, size),
        _ => Selection::Whole,
    }
}

/// Reads `x-amz-copy-source-range`, which takes the form `bytes=first-last` and no other.
pub(crate) fn strict(header: &str) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn within(from: u64, to: u64, size: u64) -> Selection {
    if from < size { Selection::Part(from, to.min(size - 1)) } else { Selection::Unsatisfiable }
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX)) // a number past 2^64 lies past every object's end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_recorded_on_a_ten_byte_object() {
        use Selection::{Part, Unsatisfiable, Whole};
        for (header, expected) in [
            ("bytes=0-8", Part(0, 8)),
            ("bytes=1-1", Part(1, 1)),
            ("bytes=1-", Part(1, 9)),
            ("bytes=-2", Part(8, 9)),
            ("bytes=0-0", Part(0, 0)),
            ("bytes=-15", Part(0, 9)),
            ("bytes=0-100", Part(0, 9)),
            ("bytes=0-9", Part(0, 9)),
            ("bytes=1-0", Whole),
            ("bytes=-1-", Whole),
            ("bytes=0--1", Whole),
            ("bytes=-", Whole),
            ("0-1", Whole),
            ("bytes=0-1,3-4,7-9", Whole),
            ("bytes=-0", Unsatisfiable),
            ("bytes=100-200", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
        ] {
            assert_eq!(select(header, 10), expected, "{header}");
        }
        assert_eq!(select("bytes=0-0", 0), Unsatisfiable);
    }

    #[test]
    fn a_copy_source_range_has_one_form() {
        assert_eq!(strict("bytes=2-5"), Some((2, 5)));
        for bad in ["bytes=2-", "bytes=-5", "bytes=5-2", "bytes=1-2,3-4", "2-5"] {
            assert_eq!(strict(bad), None, "{bad}");
        }
    }
}
