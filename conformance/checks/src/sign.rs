//! Signature Version 4 in the `Authorization` header and in the query, written for the suite alone.
//!
//! The server has its own; the two share nothing, so that one mistake cannot pass on both sides.
//! Source: AWS, "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)".

use hmac::{Hmac, KeyInit, Mac};
use http::header::{HeaderMap, HeaderName, HeaderValue};
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

/// Where a signature stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// In the `Authorization` header.
    #[default]
    Header,
    /// In the query, valid for so many seconds: a presigned URL.
    Query(u32),
    /// Nowhere: an anonymous request.
    Absent,
}

/// How a request is signed. The default is the right way; the rest is what a provider must refuse.
#[derive(Clone, Debug, Default)]
pub struct Signing {
    /// Where the signature stands.
    pub form: Form,
    /// Added to the clock.
    pub skew: time::Duration,
    /// Instead of the client's access key id.
    pub access_key: Option<String>,
    /// Instead of the client's secret.
    pub secret_key: Option<String>,
    /// Instead of the body's own SHA-256.
    pub payload_sha256: Option<String>,
    /// A header or query parameter that is signed and then not sent.
    pub withheld: Option<&'static str>,
}

/// What the signatures of chunks are made from.
#[derive(Default)]
pub(crate) struct Seal {
    pub signature: String,
    pub stamp: String,
    pub scope: String,
    key: Vec<u8>,
}

impl Seal {
    /// The signature of a text with the key of this request.
    pub(crate) fn sign(&self, text: &str) -> String {
        hex::encode(keyed(&self.key, text.as_bytes()))
    }
}

impl Signing {
    /// Adds `x-amz-content-sha256`, the date, the session token and the signature, in headers or query; every header
    /// that is there already is signed as well.
    pub(crate) fn apply(
        &self,
        request: &Request<'_>,
        query: &mut Vec<(String, String)>,
        headers: &mut HeaderMap,
        credentials: &Credentials,
        region: &str,
        now: OffsetDateTime,
    ) -> Seal {
        if self.form == Form::Absent {
            return Seal::default();
        }
        let now = (now + self.skew).to_offset(time::UtcOffset::UTC);
        let stamp =
            now.format(format_description!("[year][month][day]T[hour][minute][second]Z")).unwrap_or_default();
        let day = stamp.get(..8).unwrap_or_default();
        let scope = format!("{day}/{region}/s3/aws4_request");
        let access_key = self.access_key.as_ref().unwrap_or(&credentials.access_key);
        let secret_key = self.secret_key.as_ref().unwrap_or(&credentials.secret_key);
        let payload_sha256 = match self.form {
            Form::Query(_) => self.payload_sha256.as_deref().unwrap_or("UNSIGNED-PAYLOAD"),
            _ => self.payload_sha256.as_deref().unwrap_or(request.payload_sha256),
        };
        let token = credentials.session_token.as_deref();
        if let Form::Query(expires) = self.form {
            let names = canonical_headers(headers).1;
            let add = [
                ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
                ("X-Amz-Credential", format!("{access_key}/{scope}")),
                ("X-Amz-Date", stamp.clone()),
                ("X-Amz-Expires", expires.to_string()),
                ("X-Amz-SignedHeaders", names),
            ];
            query.extend(add.map(|(name, value)| (name.to_owned(), value)));
            query.extend(token.map(|token| ("X-Amz-Security-Token".to_owned(), token.to_owned())));
        } else {
            insert(headers, "x-amz-date", &stamp);
            insert(headers, "x-amz-content-sha256", payload_sha256);
            if let Some(token) = token {
                insert(headers, "x-amz-security-token", token);
            }
        }
        let (lines, names) = canonical_headers(headers);
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{payload_sha256}",
            request.method,
            request.path,
            encode_query(query),
        );
        let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
        let key = [day, region, "s3", "aws4_request"]
            .iter()
            .fold(format!("AWS4{secret_key}").into_bytes(), |key, step| keyed(&key, step.as_bytes()));
        let signature = hex::encode(keyed(&key, text.as_bytes()));
        match self.form {
            Form::Query(_) => query.push(("X-Amz-Signature".to_owned(), signature.clone())),
            _ => insert(
                headers,
                "authorization",
                &format!(
                    "AWS4-HMAC-SHA256 Credential={access_key}/{scope},SignedHeaders={names},Signature={signature}"
                ),
            ),
        }
        if let Some(withheld) = self.withheld {
            headers.remove(withheld);
            query.retain(|(name, _)| name != withheld);
        }
        Seal { signature, stamp, scope, key }
    }
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(name == "authorization");
        headers.insert(HeaderName::from_static(name), value);
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
        signing: &Signing,
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
        let mut query: Vec<_> = query.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let sha = sha256_hex(body.as_bytes());
        let request = Request { method, path: &encode_path(path), payload_sha256: &sha };
        let now = datetime!(2013-05-24 00:00:00 UTC);
        signing.apply(&request, &mut query, &mut map, &credentials, "us-east-1", now).signature
    }

    /// AWS, "Authenticating Requests: Using Query Parameters", example.
    #[test]
    fn presigns_the_published_example() {
        let signing = Signing { form: Form::Query(86_400), ..Signing::default() };
        assert_eq!(
            signature("GET", "/test.txt", &[], &[], "", &signing),
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }

    #[test]
    fn signs_the_published_examples() {
        let right = Signing::default();
        assert_eq!(
            signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], "", &right),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        assert_eq!(
            signature("PUT", "/test$file.text", &[], &put, "Welcome to Amazon S3.", &right),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", &[("lifecycle", "")], &[], "", &right),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], "", &right),
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
