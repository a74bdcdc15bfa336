//! Lists of an upstream that lie: pure, on the document's text, so that every other byte of it stays.

use std::ops::Range;

use crate::fault::Effect;

/// The elements that are entries of a list, whatever is listed.
const ENTRIES: [&str; 5] = ["Contents", "Version", "DeleteMarker", "Upload", "CommonPrefixes"];

/// The elements from which a client goes on to the next page.
const TOKENS: [&str; 6] = [
    "NextContinuationToken",
    "NextMarker",
    "NextKeyMarker",
    "NextVersionIdMarker",
    "NextUploadIdMarker",
    "NextPartNumberMarker",
];

/// The list as an effect has it; an effect that is not about lists leaves it as it is.
pub(super) fn bend(mut text: String, effect: Effect) -> String {
    let entries = entries(&text);
    match effect {
        Effect::OmitNewest => {
            let newest = entries.into_iter().max_by_key(|entry| written(&text[entry.clone()]).to_owned());
            if let Some(entry) = newest.filter(|entry| !written(&text[entry.clone()]).is_empty()) {
                text.replace_range(entry, "");
            }
        }
        Effect::RepeatKey => {
            if let Some(entry) = entries.last() {
                let again = text[entry.clone()].to_owned();
                text.insert_str(entry.end, &again);
            }
        }
        Effect::Truncate => {
            for entry in entries[entries.len() / 2..].iter().rev() {
                text.replace_range(entry.clone(), "");
            }
            for token in TOKENS {
                if let Some(range) = element(&text, token, 0) {
                    text.replace_range(range, "");
                }
            }
            text = text.replace("<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated>");
        }
        _ => {}
    }
    text
}

/// Where an element begins and ends, the first one at or after `from`. S3's lists have no attributes within.
fn element(text: &str, name: &str, from: usize) -> Option<Range<usize>> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let start = from + text[from..].find(&open)?;
    let end = start + text[start..].find(&close)? + close.len();
    Some(start..end)
}

/// The entries in the order of the document.
fn entries(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for name in ENTRIES {
        let mut from = 0;
        while let Some(entry) = element(text, name, from) {
            from = entry.end;
            found.push(entry);
        }
    }
    found.sort_by_key(|entry| entry.start);
    found
}

/// When an entry was written, in ISO 8601, which sorts by time; empty where it does not say.
fn written(entry: &str) -> &str {
    let inside = |name: &str| {
        let range = element(entry, name, 0)?;
        Some(&entry[range.start + name.len() + 2..range.end - name.len() - 3])
    };
    inside("LastModified").or_else(|| inside("Initiated")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "<ListBucketResult><IsTruncated>false</IsTruncated>\
        <NextContinuationToken>t</NextContinuationToken>\
        <Contents><Key>a</Key><LastModified>2026-11-29T12:00:00.000Z</LastModified></Contents>\
        <Contents><Key>b</Key><LastModified>2026-11-29T12:00:02.000Z</LastModified></Contents>\
        <Contents><Key>c</Key><LastModified>2026-11-29T12:00:01.000Z</LastModified></Contents>\
        <CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>";

    fn names(effect: Effect) -> (String, String) {
        let text = bend(LIST.to_owned(), effect);
        let names = entries(&text).into_iter().map(|entry| {
            let entry = &text[entry];
            let from = entry.find("<Key>").map_or_else(|| entry.find("<Prefix>").unwrap() + 8, |at| at + 5);
            entry[from..=from].to_owned()
        });
        (names.collect(), text)
    }

    #[test]
    fn lists_are_bent_by_their_text() {
        assert_eq!(names(Effect::OmitNewest).0, "acd");
        assert_eq!(names(Effect::RepeatKey).0, "abcdd");
        let (names_left, text) = names(Effect::Truncate);
        assert_eq!(names_left, "ab");
        assert!(text.contains("<IsTruncated>true<") && !text.contains("Token"), "{text}");
        assert_eq!(names(Effect::Twice).1, LIST);
    }

    #[test]
    fn a_list_without_entries_has_nothing_to_bend() {
        for effect in [Effect::OmitNewest, Effect::RepeatKey] {
            assert_eq!(bend("<ListBucketResult/>".to_owned(), effect), "<ListBucketResult/>");
        }
        assert_eq!(bend("no list".to_owned(), Effect::Truncate), "no list");
    }
}
