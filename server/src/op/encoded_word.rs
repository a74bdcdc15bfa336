//! Metadata that is not ASCII: encoded words (RFC 2047), as S3 takes and gives them.
//!
//! Sources: S3 User Guide, "User-defined object metadata"; which of the two encodings is chosen, and how broken
//! base64 is read, as recorded from AWS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

/// The text of a header's value: encoded words decoded, everything else as it is.
pub(super) fn decode(value: &str) -> String {
    if !value.contains("=?") {
        return value.to_owned();
    }
    let mut text = String::new();
    let mut after_encoded = false;
    for word in value.split_inclusive([' ', '\t']) {
        let (word, blank) = match word.strip_suffix([' ', '\t']) {
            Some(bare) => (bare, &word[bare.len()..]),
            None => (word, ""),
        };
        match decode_word(word) {
            Some(decoded) => {
                if after_encoded {
                    // Blanks between two encoded words are no part of the text (RFC 2047 section 6.2).
                    text.truncate(text.trim_end_matches([' ', '\t']).len());
                }
                text.push_str(&decoded);
                after_encoded = true;
            }
            None => {
                text.push_str(word);
                after_encoded &= word.is_empty();
            }
        }
        text.push_str(blank);
    }
    text
}

/// One `=?charset?encoding?text?=`; nothing for any other word, and for a charset that is not UTF-8.
fn decode_word(word: &str) -> Option<String> {
    let mut pieces = word.strip_prefix("=?")?.strip_suffix("?=")?.splitn(3, '?');
    let (charset, encoding, text) = (pieces.next()?, pieces.next()?, pieces.next()?);
    if !["utf-8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known)) {
        return None;
    }
    let bytes = match encoding {
        "B" | "b" => base64_bytes(text),
        // A percent sign stands for itself here, and `=` introduces what `%` does in a URL.
        "Q" | "q" => {
            let as_url = text.replace('%', "%25").replace('=', "%").replace('_', " ");
            percent_decode_str(&as_url).collect()
        }
        _ => return None,
    };
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Base64, where a character that is no digit counts as the last digit, but for padding at the end.
fn base64_bytes(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |c: u8| DIGITS.iter().position(|d| *d == c).unwrap_or(63) as u32;
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, c| bits << 6 | digit(*c)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len().max(1)]);
    }
    bytes
}

/// A header's value for `text`: as it is where it is printable ASCII, otherwise one encoded word, in the Q
/// encoding where most characters are ASCII and in base64 where they are not.
pub(super) fn encode(text: &str) -> String {
    let plain = |c: char| matches!(c, ' '..='~' | '\t');
    let ascii = text.chars().filter(|c| plain(*c)).count();
    let other = text.chars().count() - ascii;
    if other == 0 {
        return text.to_owned();
    }
    if ascii <= other {
        return format!("=?UTF-8?B?{}?=", STANDARD.encode(text));
    }
    let mut word = String::from("=?UTF-8?Q?");
    for byte in text.bytes() {
        match byte {
            b' ' => word.push('_'),
            b'!'..=b'~' if !b"=_?".contains(&byte) => word.push(char::from(byte)),
            _ => word.push_str(&format!("={byte:02X}")),
        }
    }
    word + "?="
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_recorded() {
        for (sent, given) in [
            ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
            ("=?UTF-8?B?YWJj?=", "abc"),
            ("=?utf-8?q?test=5F=E2=80=94?=", "=?UTF-8?Q?test=5F=E2=80=94?="),
            ("a_\u{2014}_file%E2_\u{e9}_2?.pdf", "=?UTF-8?Q?a=5F=E2=80=94=5Ffile%E2=5F=C3=A9=5F2=3F.pdf?="),
            ("\u{c4}M\u{c4}Z\u{d5}\u{d1} S3", "=?UTF-8?Q?=C3=84M=C3=84Z=C3=95=C3=91_S3?="),
            ("\u{1}\u{2}", "=?UTF-8?B?AQI=?="),
            ("\u{fffd}\u{fffd}", "=?UTF-8?B?77+977+9?="),
            ("=?UTF-8?B?=GGG?=", "=?UTF-8?B?77+9Ye+/vQ==?="),
            ("plain =? text ?=", "plain =? text ?="),
        ] {
            assert_eq!(encode(&decode(sent)), given, "{sent}");
        }
    }

    #[test]
    fn blanks_between_encoded_words_are_none() {
        assert_eq!(decode("=?UTF-8?B?YQ==?= =?UTF-8?Q?b_c?= d  e"), "ab c d  e");
    }

    #[test]
    fn encoding_comes_back() {
        for text in ["\u{e9}", "a=_? \u{e9} b", "%41\u{2014}%", "tab\tand \u{7f}"] {
            assert_eq!(decode(&encode(text)), text);
        }
    }
}
