//! The canonical forms that both sides of a signature must build alike.
//!
//! Source: "Signature Calculations for the Authorization Header", task 1. S3 decodes the path once and encodes it
//! once, and does not normalise it (recorded: `/%2Fbucket/key` is signed as `//bucket/key`).

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for paths, whose slashes stay.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// The parameters of a query, decoded, in the order of the wire. A `+` is a blank, as S3 reads it.
#[derive(Debug)]
pub(super) struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    pub(super) fn parse(raw: &str) -> Query {
        let pairs = raw.split('&').filter(|piece| !piece.is_empty()).map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            (decode(name), decode(value))
        });
        Query(pairs.collect())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The first value of a parameter; the name's case counts.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// The first value of a parameter; the name's case does not count.
    fn get_any_case(&self, name: &str) -> Option<&[u8]> {
        self.pairs().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The canonical query: encoded once, sorted by the encoded bytes, without `X-Amz-Signature`.
    fn canonical(&self) -> String {
        let encode = |bytes: &[u8]| percent_encode(bytes, RESERVED).to_string();
        let pairs = self.pairs().filter(|(name, _)| *name != b"X-Amz-Signature");
        let mut pairs: Vec<(String, String)> = pairs.map(|(n, v)| (encode(n), encode(v))).collect();
        pairs.sort_unstable();
        let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }
}

fn decode(piece: &str) -> Vec<u8> {
    let piece: Cow<'_, str> =
        if piece.contains('+') { Cow::Owned(piece.replace('+', " ")) } else { Cow::Borrowed(piece) };
    percent_decode(piece.as_bytes()).collect()
}

/// The host as sent, then with and without the default ports: some clients sign what they do not send.
pub(super) fn hosts(parts: &Parts) -> Vec<String> {
    let sent = super::header(&parts.headers, "host")
        .or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
        .unwrap_or_default();
    let mut hosts = vec![sent.to_owned()];
    match sent.strip_suffix(":80").or_else(|| sent.strip_suffix(":443")) {
        Some(bare) => hosts.push(bare.to_owned()),
        None if has_port(sent) => {}
        None => hosts.extend([format!("{sent}:80"), format!("{sent}:443")]),
    }
    hosts
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// The canonical request of Version 4 for one way to write the host.
///
/// `signed` are the names of the signed headers in the order given. With `presigned`, a signed header that was not
/// sent is looked for in the query, where some SDKs leave it (recorded).
pub(super) fn request(
    parts: &Parts,
    query: &Query,
    signed: &[&str],
    host: &str,
    payload: &str,
    presigned: bool,
) -> String {
    let path = percent_decode(parts.uri.path().as_bytes()).collect::<Vec<u8>>();
    let mut out = format!(
        "{}\n{}\n{}\n",
        parts.method,
        percent_encode(if path.is_empty() { b"/" } else { &path }, RESERVED_IN_PATH),
        query.canonical(),
    );
    for name in signed {
        let value = match *name {
            "host" => host.to_owned(),
            name => match header_values(&parts.headers, name) {
                None if presigned => {
                    String::from_utf8_lossy(query.get_any_case(name).unwrap_or_default()).into_owned()
                }
                values => values.unwrap_or_default(),
            },
        };
        out.push_str(name);
        out.push(':');
        out.push_str(&value);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&signed.join(";"));
    out.push('\n');
    out.push_str(payload);
    out
}

/// The values of a header, each trimmed and with inner runs of blanks made one, joined by commas.
pub(super) fn header_values(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut joined: Option<String> = None;
    for value in headers.get_all(name) {
        // Signers work on UTF-8; hyper keeps the bytes.
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        joined = Some(match joined {
            None => value,
            Some(first) => format!("{first},{value}"),
        });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a valid head").into_parts().0
    }

    #[test]
    fn the_path_is_decoded_and_encoded_once_and_the_query_sorted() {
        let check = |uri: &str, path: &str, query: &str| {
            let parts = parts(uri, &[]);
            let parsed = Query::parse(parts.uri.query().unwrap_or_default());
            let text = request(&parts, &parsed, &["host"], "h", "X", false);
            assert_eq!(text, format!("GET\n{path}\n{query}\nhost:h\n\nhost\nX"), "{uri}");
        };
        check("/", "/", "");
        check("/%2Fbucket/key", "//bucket/key", "");
        check("/b/a=b+c~d/../x", "/b/a%3Db%2Bc~d/../x", "");
        check("/b/%E2%82%AC%20", "/b/%E2%82%AC%20", "");
        check("/b?uploads", "/b", "uploads=");
        check("/b?prefix=a+b&a=%2f&&Z=1&a=", "/b", "Z=1&a=&a=%2F&prefix=a%20b");
        check("/b?X-Amz-Signature=x&b=2", "/b", "b=2");
    }

    #[test]
    fn header_values_are_trimmed_and_joined() {
        let parts = parts("/", &[("x-amz-meta-a", "  one   two "), ("x-amz-meta-a", "three")]);
        assert_eq!(header_values(&parts.headers, "x-amz-meta-a").as_deref(), Some("one two,three"));
        assert_eq!(header_values(&parts.headers, "x-amz-meta-b"), None);
    }

    #[test]
    fn default_ports_come_and_go() {
        let check =
            |sent: &str, expected: &[&str]| assert_eq!(hosts(&parts("/", &[("host", sent)])), expected);
        check("example.com", &["example.com", "example.com:80", "example.com:443"]);
        check("example.com:443", &["example.com:443", "example.com"]);
        check("127.0.0.1:9000", &["127.0.0.1:9000"]);
        check("[::1]", &["[::1]", "[::1]:80", "[::1]:443"]);
    }
}
