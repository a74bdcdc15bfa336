//! What a client sent, counted as providers bill it.

use crate::exchange::Exchange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind of request that providers price alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestClass {
    /// PutObject, UploadPart, and what configures a bucket.
    Put,
    /// CopyObject.
    Copy,
    /// CreateMultipartUpload, CompleteMultipartUpload, DeleteObjects.
    Post,
    /// Listings of objects, versions and uploads.
    List,
    /// GetObject and other reads.
    Get,
    /// HeadObject and HeadBucket.
    Head,
    /// DeleteObject, AbortMultipartUpload, DeleteBucket.
    Delete,
}

impl RequestClass {
    /// The class of a request that went out.
    pub fn of(exchange: &Exchange) -> RequestClass {
        const LISTING: [&str; 8] =
            ["list-type", "uploads", "versions", "prefix", "delimiter", "max-keys", "marker", "location"];
        let query = exchange.url.split_once('?').map_or("", |(_, query)| query);
        let asks = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        let copies = exchange.headers.iter().any(|(name, _)| name == "x-amz-copy-source");
        match exchange.method.as_str() {
            "PUT" if copies => RequestClass::Copy,
            "PUT" => RequestClass::Put,
            "POST" => RequestClass::Post,
            "DELETE" => RequestClass::Delete,
            "HEAD" => RequestClass::Head,
            _ if LISTING.into_iter().any(asks) => RequestClass::List,
            _ => RequestClass::Get,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            RequestClass::Put => "PUT",
            RequestClass::Copy => "COPY",
            RequestClass::Post => "POST",
            RequestClass::List => "LIST",
            RequestClass::Get => "GET",
            RequestClass::Head => "HEAD",
            RequestClass::Delete => "DELETE",
        }
    }
}

/// How much went over the wire, headers not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Requests sent.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes_sent: u64,
    /// Bytes of the answers' bodies.
    pub bytes_received: u64,
}

/// The volume of each class.
pub type Traffic = BTreeMap<RequestClass, Volume>;

/// Counts one exchange.
pub(crate) fn count(traffic: &mut Traffic, exchange: &Exchange) {
    let volume = traffic.entry(RequestClass::of(exchange)).or_default();
    volume.requests += 1;
    volume.bytes_sent += exchange.body.length;
    volume.bytes_received += exchange.answer.as_ref().map_or(0, |reply| reply.body.length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Excerpt, Reply};

    #[test]
    fn requests_are_counted_by_class() {
        let mut traffic = Traffic::new();
        for (method, url, header) in [
            ("PUT", "http://h/b/k", "content-type"),
            ("PUT", "http://h/b/k", "x-amz-copy-source"),
            ("POST", "http://h/b/k?uploads", ""),
            ("GET", "http://h/b?list-type=2&prefix=a", ""),
            ("GET", "http://h/b/k?versionId=prefix", ""),
            ("HEAD", "http://h/b/k", ""),
            ("DELETE", "http://h/b/k?uploadId=1", ""),
        ] {
            let reply = Reply { status: 200, headers: vec![], body: Excerpt::of(b"12345") };
            let exchange = Exchange {
                method: method.into(),
                url: url.into(),
                headers: vec![(header.into(), String::new())],
                body: Excerpt::of(b"123"),
                answer: Ok(reply),
                duration_ms: 0,
            };
            count(&mut traffic, &exchange);
        }
        let one = Volume { requests: 1, bytes_sent: 3, bytes_received: 5 };
        let names: Vec<_> = traffic.keys().map(|class| class.name()).collect();
        assert_eq!(names, ["PUT", "COPY", "POST", "LIST", "GET", "HEAD", "DELETE"]);
        assert!(traffic.values().all(|volume| *volume == one), "{traffic:?}");
    }
}
