//! Signature Version 4 in the `Authorization` header, written for the suite alone.
//!
//! The server has its own; the two share nothing, so that one mistake cannot pass on both sides.
//! Source: AWS, "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)".

use hmac::{Hmac, KeyInit, Mac};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fmt;
use time::OffsetDateTime;
use time::macros::format_description;

/// What stays as it is in a query parameter: the unreserved characters of RFC 3986, section 2.3.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// In a path the slash stays too: S3 encodes a key once and never folds it.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Who signs. The secret and the session token never show in `Debug`.
#[derive(Clone)]
pub struct Credentials {
    /// The access key id.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: String,
    /// The token of temporary credentials, sent as `x-amz-security-token`.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// What a signature covers besides its headers.
pub(crate) struct Request<'a> {
    pub method: &'a str,
    /// Percent-encoded, from the first slash, without the query.
    pub path: &'a str,
    /// Not encoded; sorted here.
    pub query: &'a [(String, String)],
    /// Lower-case hexadecimal SHA-256 of the body, or one of S3's words for an unhashed body.
    pub payload_sha256: &'a str,
}

pub(crate) fn encode_path(key: &str) -> String {
    utf8_percent_encode(key, PATH).to_string()
}

/// Sorted, encoded, every parameter with its `=`: the form that is both sent and signed.
pub(crate) fn encode_query(query: &[(String, String)]) -> String {
    let mut pairs: Vec<(String, String)> = query
        .iter()
        .map(|(k, v)| (utf8_percent_encode(k, QUERY).to_string(), utf8_percent_encode(v, QUERY).to_string()))
        .collect();
    pairs.sort();
    pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&")
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Adds `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` and `authorization`; every header that
/// is there already is signed as well.
pub(crate) fn sign(
    request: &Request<'_>,
    headers: &mut HeaderMap,
    credentials: &Credentials,
    region: &str,
    now: OffsetDateTime,
) {
    let now = now.to_offset(time::UtcOffset::UTC);
    let stamp =
        now.format(format_description!("[year][month][day]T[hour][minute][second]Z")).unwrap_or_default();
    let day = stamp.get(..8).unwrap_or_default();
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("x-amz-date", &stamp);
    put("x-amz-content-sha256", request.payload_sha256);
    if let Some(token) = &credentials.session_token {
        put("x-amz-security-token", token);
    }
    let (lines, names) = canonical_headers(headers);
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        request.method,
        request.path,
        encode_query(request.query),
        request.payload_sha256
    );
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let key = [day, region, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{}", credentials.secret_key).into_bytes(), |key, step| {
            keyed(&key, step.as_bytes())
        });
    let signature = hex::encode(keyed(&key, text.as_bytes()));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        credentials.access_key
    );
    if let Ok(mut value) = HeaderValue::from_str(&authorization) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
}

/// The header lines, each ended by a newline, and the list of their names.
fn canonical_headers(headers: &HeaderMap) -> (String, String) {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let mut lines = String::new();
    for name in &names {
        let values: Vec<String> = headers
            .get_all(*name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    (lines, names.join(";"))
}

fn keyed(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    /// The credentials and moment of every example on AWS's page.
    fn signature(
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let mut map = HeaderMap::new();
        map.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        for (name, value) in headers {
            map.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let query: Vec<_> = query.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let sha = sha256_hex(body.as_bytes());
        let request = Request { method, path: &encode_path(path), query: &query, payload_sha256: &sha };
        sign(&request, &mut map, &credentials, "us-east-1", datetime!(2013-05-24 00:00:00 UTC));
        let value = map["authorization"].to_str().unwrap().to_owned();
        value.split("Signature=").nth(1).unwrap().to_owned()
    }

    #[test]
    fn signs_the_published_examples() {
        assert_eq!(
            signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], ""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        assert_eq!(
            signature("PUT", "/test$file.text", &[], &put, "Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", &[("lifecycle", "")], &[], ""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], ""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn a_key_is_encoded_once_and_keeps_its_slashes() {
        assert_eq!(encode_path("/b/a//b +%2F/ü~"), "/b/a//b%20%2B%252F/%C3%BC~");
        assert_eq!(encode_query(&[("b".into(), "/ ".into()), ("a".into(), String::new())]), "a=&b=%2F%20");
    }

    #[test]
    fn debug_shows_no_secret() {
        let credentials = Credentials {
            access_key: "id".into(),
            secret_key: "hush".into(),
            session_token: Some("quiet".into()),
        };
        let shown = format!("{credentials:?}");
        assert!(shown.contains("id") && !shown.contains("hush") && !shown.contains("quiet"), "{shown}");
    }
}
