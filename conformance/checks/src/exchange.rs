//! One request and what came back, kept as evidence.

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How much of a body is kept: enough for any error document, little enough for a report of many failures.
pub const EXCERPT_BYTES: usize = 1024;

/// A request as it went out and the answer, if any came. Credentials and signatures are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The HTTP method.
    pub method: String,
    /// Scheme, host, path and query as sent.
    pub url: String,
    /// The request's headers, without those that carry secrets.
    pub headers: Vec<(String, String)>,
    /// The start of the request's body.
    pub body: Excerpt,
    /// The answer, or why there was none.
    pub answer: Result<Reply, String>,
    /// From the first byte sent to the last byte read, in milliseconds.
    pub duration_ms: u64,
}

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The answer's headers.
    pub headers: Vec<(String, String)>,
    /// The start of its body.
    pub body: Excerpt,
}

/// The start of a body and its full length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// Length of the whole body in bytes.
    pub length: u64,
    /// Its first [`EXCERPT_BYTES`] bytes, with what is not UTF-8 replaced.
    pub text: String,
}

impl Excerpt {
    /// The excerpt of `body`.
    pub fn of(body: &[u8]) -> Excerpt {
        let start = &body[..body.len().min(EXCERPT_BYTES)];
        Excerpt { length: body.len() as u64, text: String::from_utf8_lossy(start).into_owned() }
    }
}

impl Exchange {
    /// One line: method, URL, the conditions sent, and the status or the reason why there is none.
    pub fn line(&self) -> String {
        let conditions: String = self
            .headers
            .iter()
            .filter(|(name, _)| name.contains("if-") && !name.starts_with("x-amz-content"))
            .map(|(name, value)| format!(" [{name}: {value}]"))
            .collect();
        let end = match &self.answer {
            Ok(reply) => reply.status.to_string(),
            Err(why) => format!("no answer: {why}"),
        };
        format!("{} {}{conditions} -> {end}", self.method, self.url)
    }
}

pub(crate) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The headers to keep: all but those that carry a secret or a signature.
pub(crate) fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| {
            !matches!(name.as_str(), "authorization" | "x-amz-security-token" | "cookie" | "set-cookie")
        })
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}
