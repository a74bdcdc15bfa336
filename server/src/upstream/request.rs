//! From the head that a client sent to the head that the upstream gets: pure.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::{Addressing, Endpoint};
use crate::auth::{Payload, Verified};
use crate::checksum::{Algorithm, Requested};
use crate::error::{Code, S3Error};
use crate::route::Address;

/// What a proxy never hands on (RFC 9110 section 7.6.1), beside what `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What is made anew for the upstream.
const MADE_ANEW: [&str; 5] =
    ["host", "authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];

/// The parameters of both signatures in a query; the names' case counts.
const SIGNATURE: [&str; 12] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-Date",
    "X-Amz-SignedHeaders",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
    "x-amz-security-token",
    "Signature",
    "Expires",
    "AWSAccessKeyId",
];

/// How the body goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As it comes: plain, or in unsigned chunks, whose framing belongs to no signature.
    AsItIs,
    /// Out of its signed chunks: so many bytes.
    Plain(u64),
    /// Out of its signed chunks and into unsigned ones, with the trailing checksum after them.
    Trailed(u64, Algorithm),
}

/// A head that lacks only its signature.
#[derive(Debug)]
pub(super) struct Onward {
    pub(super) head: Parts,
    /// What `x-amz-content-sha256` is to say.
    pub(super) payload: HeaderValue,
    pub(super) framing: Framing,
}

/// What the upstream is asked.
///
/// # Errors
/// Where the body's head is such that no body fits it: `XAmzContentSHA256Mismatch`, `MissingContentLength`, and
/// those of [`Requested::from_headers`].
pub(super) fn onward(
    head: &Parts,
    address: &Address,
    verified: &Verified,
    endpoint: &Endpoint,
    addressing: Addressing,
) -> Result<Onward, S3Error> {
    let (payload, framing) = payload(&head.headers, &verified.payload)?;
    let mut onward = head.clone();
    onward.extensions = http::Extensions::new();
    if onward.headers.contains_key(TRANSFER_ENCODING) {
        onward.headers.remove(CONTENT_LENGTH); // the coding counts (RFC 9112 section 6.3)
    }
    strip_hop_by_hop(&mut onward.headers);
    let presigned = onward.headers.remove(AUTHORIZATION).is_none();
    for name in MADE_ANEW {
        onward.headers.remove(name);
    }
    let ours: Vec<HeaderName> =
        onward.headers.keys().filter(|name| name.as_str().starts_with("x-assay-")).cloned().collect();
    for name in ours {
        onward.headers.remove(name);
    }
    let (host, path) = place(head.uri.path(), address, endpoint, addressing);
    let query = head.uri.query().map(|query| query_of(query, presigned, &head.headers));
    onward.uri = uri(&path, query.as_deref().filter(|query| !query.is_empty()), head)?;
    if let Ok(host) = HeaderValue::from_str(&host) {
        onward.headers.insert(HOST, host);
    }
    reframe(&mut onward.headers, framing);
    Ok(Onward { head: onward, payload, framing })
}

/// Removes what is about one connection only.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// What is said of the body, and how it goes on. A hash that the client signed is the body's own and goes on; what
/// it does not say can't be signed for without reading all of the body first.
fn payload(headers: &HeaderMap, payload: &Payload) -> Result<(HeaderValue, Framing), S3Error> {
    const UNSIGNED: HeaderValue = HeaderValue::from_static("UNSIGNED-PAYLOAD");
    const CHUNKS: HeaderValue = HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    Ok(match payload {
        Payload::Unsigned => (UNSIGNED, Framing::AsItIs),
        Payload::Sha256(hash) => {
            let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let value = HeaderValue::from_str(hash).ok().filter(|_| is_hash).ok_or_else(|| {
                S3Error::new(Code::XAmzContentSHA256Mismatch).extra("ClientComputedContentSHA256", hash)
            })?;
            (value, Framing::AsItIs)
        }
        Payload::Streaming { signed: false, .. } => (CHUNKS, Framing::AsItIs),
        Payload::Streaming { signed: true, trailer } => {
            let size = headers.get("x-amz-decoded-content-length");
            let size = size
                .and_then(|size| size.to_str().ok()?.parse().ok())
                .ok_or_else(|| S3Error::new(Code::MissingContentLength))?;
            match Requested::from_headers(headers) {
                Ok(Requested::Trailer(algorithm)) if *trailer => (CHUNKS, Framing::Trailed(size, algorithm)),
                Err(error) if *trailer => return Err(error),
                _ => (UNSIGNED, Framing::Plain(size)),
            }
        }
    })
}

/// The headers of a body that leaves its signed chunks.
fn reframe(headers: &mut HeaderMap, framing: Framing) {
    let length = match framing {
        Framing::AsItIs => return,
        Framing::Plain(size) => {
            let codings: Vec<HeaderValue> = headers.get_all(CONTENT_ENCODING).iter().cloned().collect();
            headers.remove(CONTENT_ENCODING);
            for value in codings {
                match without_aws_chunked(&value) {
                    Some(kept) => drop(headers.append(CONTENT_ENCODING, kept)),
                    None => continue,
                }
            }
            headers.remove("x-amz-decoded-content-length");
            headers.remove("x-amz-trailer");
            size
        }
        Framing::Trailed(size, algorithm) => super::body::trailed_length(size, algorithm),
    };
    headers.insert(CONTENT_LENGTH, length.into());
}

/// The codings of an object beside the framing of its request; nothing where there are none.
fn without_aws_chunked(value: &HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = value.to_str() else { return Some(value.clone()) };
    if !text.split(',').any(|coding| coding.trim() == "aws-chunked") {
        return Some(value.clone());
    }
    let kept: Vec<&str> = text.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked").collect();
    HeaderValue::from_str(&kept.join(",")).ok().filter(|value| !value.is_empty())
}

/// Host and path for the upstream, the path as it was written.
fn place(path: &str, address: &Address, endpoint: &Endpoint, addressing: Addressing) -> (String, String) {
    let Endpoint { authority, prefix, .. } = endpoint;
    match (addressing, &address.host_bucket, &address.bucket) {
        (Addressing::Path, Some(bucket), _) => (authority.clone(), format!("{prefix}/{bucket}{path}")),
        (Addressing::Virtual, Some(bucket), _) => {
            (format!("{bucket}.{authority}"), format!("{prefix}{path}"))
        }
        (Addressing::Virtual, None, Some(bucket)) => {
            let key = path.get(1..).and_then(|path| path.split_once('/')).map_or("", |(_, key)| key);
            (format!("{bucket}.{authority}"), format!("{prefix}/{key}"))
        }
        _ => (authority.clone(), format!("{prefix}{path}")),
    }
}

/// The query without a signature in it, and without what counts as a header: that is one now.
fn query_of(query: &str, presigned: bool, headers: &HeaderMap) -> String {
    if !presigned {
        return query.to_owned();
    }
    let goes_on = |piece: &&str| {
        let name = piece.split_once('=').map_or(*piece, |(name, _)| name);
        let name = percent_decode_str(name).decode_utf8_lossy();
        if SIGNATURE.contains(&name.as_ref()) {
            return false;
        }
        let name = name.to_ascii_lowercase();
        let may_count = name.starts_with("x-amz-")
            || matches!(name.as_str(), "if-match" | "if-none-match" | "content-type" | "content-md5");
        !(may_count && headers.contains_key(&name))
    };
    query.split('&').filter(goes_on).collect::<Vec<_>>().join("&")
}

fn uri(path: &str, query: Option<&str>, head: &Parts) -> Result<Uri, S3Error> {
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let invalid = || S3Error::new(Code::InvalidURI).extra("URI", head.uri.path());
    let path: PathAndQuery = text.parse().map_err(|_| invalid())?;
    Ok(Uri::from(path))
}

#[cfg(test)]
mod tests;
