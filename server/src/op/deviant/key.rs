//! Keys that a store refuses or takes for others. Pure.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::deviation::{Acting, Deviation as D, Limit};
use crate::error::{Code, S3Error};

/// Whether a new key may be.
///
/// # Errors
/// The code of the limit that it breaks.
pub(super) fn check(acting: &Acting, key: &str) -> Result<(), S3Error> {
    for deviation in acting.set().iter() {
        let refused = match deviation {
            D::KeyLimit(limit) => too_long(limit, key.len()),
            D::SegmentLimit(limit) => too_long(limit, key.split('/').map(str::len).max().unwrap_or(0)),
            D::RefuseOddSegments(code) if has_odd_segment(key) => Some(S3Error::new(*code)),
            _ => None,
        };
        if let Some(error) = refused {
            acting.note(deviation);
            return Err(error);
        }
    }
    Ok(())
}

fn too_long(limit: &Limit, bytes: usize) -> Option<S3Error> {
    if bytes <= limit.bytes {
        return None;
    }
    let error = S3Error::new(limit.code);
    Some(match limit.code {
        Code::KeyTooLongError => {
            error.extra("Size", bytes.to_string()).extra("MaxSizeAllowed", limit.bytes.to_string())
        }
        _ => error,
    })
}

/// Empty anywhere but at the end, `.` or `..`.
fn has_odd_segment(key: &str) -> bool {
    let whole = key.strip_suffix('/').unwrap_or(key);
    whole.split('/').any(|segment| matches!(segment, "" | "." | ".."))
}

/// The key that this one is taken for: decoded, then without doubled slashes, then resolved, then in one case.
pub(super) fn fold<'a>(acting: &Acting, key: &'a str) -> Cow<'a, str> {
    let mut folded = Cow::Borrowed(key);
    for step in [D::DecodeKeysTwice, D::CollapseSlashes, D::ResolveDotSegments, D::FoldKeyCase] {
        if !acting.set().has(&step) {
            continue;
        }
        let other = match step {
            D::DecodeKeysTwice => percent_decode_str(&folded).decode_utf8_lossy().into_owned(),
            D::CollapseSlashes => collapsed(&folded),
            D::ResolveDotSegments => resolved(&folded),
            _ => folded.to_lowercase(),
        };
        // A key must be something, and not longer than it came.
        if other != *folded && !other.is_empty() && other.len() <= key.len() {
            acting.note(&step);
            folded = Cow::Owned(other);
        }
    }
    folded
}

fn collapsed(key: &str) -> String {
    let mut last = ' ';
    let keeps = |c: char| {
        let keeps = c != '/' || last != '/';
        last = c;
        keeps
    };
    key.chars()
        .filter({
            let mut keeps = keeps;
            move |c| keeps(*c)
        })
        .collect()
}

fn resolved(key: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in key.split('/') {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviation::Deviations;

    fn acting(names: &[&str]) -> Acting {
        let all: Vec<_> = names.iter().map(|name| name.parse().unwrap()).collect();
        Acting::new(&Deviations::new(&all))
    }

    #[test]
    fn limits_and_odd_segments() {
        let long = "a".repeat(256);
        for (name, key, expected) in [
            ("segment-limit=255:XMinioInvalidObjectName", long.as_str(), Some(400)),
            ("segment-limit=255:InternalError", &long, Some(500)),
            ("segment-limit=256", &long, None),
            ("key-limit=255", &long, Some(400)),
            ("segment-limit=2", "aa/bb/cc", None),
            ("segment-limit=2", "aa/é1", Some(400)),
            ("refuse-odd-segments", "a//b", Some(400)),
            ("refuse-odd-segments=InvalidArgument", "a/../b", Some(400)),
            ("refuse-odd-segments", "a/b/", None),
        ] {
            let acting = acting(&[name]);
            let refused = check(&acting, key).err().map(|error| error.code.status());
            assert_eq!(refused, expected, "{name} {key}");
            assert_eq!(acting.names().len(), usize::from(expected.is_some()), "{name} {key}");
        }
    }

    #[test]
    fn folds() {
        for (names, key, expected) in [
            (&["fold-key-case"][..], "A/bÉ", "a/bé"),
            (&["collapse-slashes"], "a///b//", "a/b/"),
            (&["resolve-dot-segments"], "a/./b/../c", "a/c"),
            (&["resolve-dot-segments"], "a/..", "a/.."),
            (&["decode-keys-twice"], "a%2Fb%20c", "a/b c"),
            (&["decode-keys-twice", "collapse-slashes"], "a/%2Fb", "a/b"),
            (&["collapse-slashes"], "a/b", "a/b"),
        ] {
            let acting = acting(names);
            assert_eq!(fold(&acting, key), expected, "{names:?} {key}");
            assert_eq!(acting.names().is_empty(), key == expected, "{names:?} {key}");
        }
    }
}
