//! Who sent a request, and is it what they signed: Signature Version 4 in header and query, and Version 2.
//!
//! Everything here is pure: the caller brings `now`. Sources: Amazon S3 API Reference, "Authenticating Requests (AWS
//! Signature Version 4)" with its pages on header, query and chunked signatures, and "Signing and authenticating REST
//! requests" for Version 2; answers as recorded from AWS.

mod canonical;
mod chunk;
mod keys;
mod sign;
mod v2;
mod v4;

pub use chunk::ChunkSigner;
pub use keys::Keys;
pub(crate) use sign::Signer;

use canonical::Query;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;

use crate::error::{Code, S3Error};

/// How much of a request's credentials is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Everything, as AWS does.
    Strict,
    /// Credentials must be there and well formed; keys, signatures, times and regions are not checked.
    Any,
    /// Nothing is looked at.
    None,
}

/// What a request is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The access keys that exist.
    pub keys: &'a Keys,
    /// How much is checked.
    pub mode: AuthMode,
    /// The region that a Version 4 scope must name; nothing accepts any.
    pub region: Option<&'a str>,
    /// Further regions that it may name.
    pub other_regions: &'a [&'a str],
    /// The bucket, if the Host names it (Version 2 signs it as part of the resource).
    pub host_bucket: Option<&'a str>,
    /// The server's clock.
    pub now: OffsetDateTime,
}

/// What is known of a request once it is let in.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Whose key signed it; nothing for an anonymous request.
    pub access_key: Option<String>,
    /// The region that a Version 4 signature is made for.
    pub region: Option<String>,
    /// What `x-amz-content-sha256` says about the body.
    pub payload: Payload,
    /// Checks the signature of each chunk; there only in [`AuthMode::Strict`] with a signed aws-chunked body.
    pub chunk_signer: Option<ChunkSigner>,
    /// Headers that the signer put into the query of a presigned URL and that count as if sent as headers.
    /// None of them is among the request's own headers.
    pub hoisted: Vec<(HeaderName, HeaderValue)>,
}

/// What `x-amz-content-sha256` says about the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Unsigned,
    /// The body's SHA-256 in hexadecimal, as the client wrote it (it may be no hash at all, which no body fits).
    Sha256(String),
    /// The body is aws-chunked.
    Streaming {
        /// Each chunk carries a signature.
        signed: bool,
        /// Trailers may follow the last chunk.
        trailer: bool,
    },
}

impl Payload {
    fn read(text: &str) -> Payload {
        match text {
            "UNSIGNED-PAYLOAD" => Payload::Unsigned,
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::Streaming { signed: false, trailer: true },
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Payload::Streaming { signed: true, trailer: false },
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
                Payload::Streaming { signed: true, trailer: true }
            }
            other => Payload::Sha256(other.to_owned()),
        }
    }

    /// The payload where signatures are not checked: whatever looks like aws-chunked is.
    fn guess(headers: &HeaderMap) -> Payload {
        if let Some(text) = header(headers, "x-amz-content-sha256") {
            return Payload::read(text);
        }
        let chunked = headers
            .get_all("content-encoding")
            .iter()
            .filter_map(|v| v.to_str().ok())
            .any(|v| v.split(',').any(|coding| coding.trim() == "aws-chunked"));
        if chunked && headers.contains_key("x-amz-decoded-content-length") {
            Payload::Streaming { signed: false, trailer: true }
        } else {
            Payload::Unsigned
        }
    }
}

/// Where a request carries its credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    HeaderV4,
    HeaderV2,
    QueryV4,
    QueryV2,
    Anonymous,
}

impl Scheme {
    fn of(headers: &HeaderMap, query: &Query) -> Result<Scheme, S3Error> {
        let there = |name: &&str| query.get(name).is_some();
        let Some(authorization) = headers.get("authorization") else {
            return Ok(if v4::PARAMETERS.iter().any(there) {
                Scheme::QueryV4
            } else if v2::PARAMETERS.iter().any(there) {
                Scheme::QueryV2
            } else {
                Scheme::Anonymous
            });
        };
        let text = authorization.to_str().unwrap_or_default();
        let argument = |message: &'static str| {
            S3Error::new(Code::InvalidArgument)
                .message(message)
                .extra("ArgumentName", "Authorization")
                .extra("ArgumentValue", text)
        };
        if ["X-Amz-Algorithm", "Signature"].iter().any(there) {
            return Err(argument(
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified",
            ));
        }
        match text.split_once(' ').map(|(scheme, _)| scheme) {
            Some("AWS4-HMAC-SHA256") => Ok(Scheme::HeaderV4),
            Some("AWS") => Ok(Scheme::HeaderV2),
            _ => Err(argument("Unsupported Authorization Type")),
        }
    }
}

/// Decides whether a request may go on, and reads from it what its body's reader needs.
///
/// `parts` is the head of the request with path and query exactly as on the wire.
///
/// # Errors
///
/// The S3 error that AWS answers with, all elements of its document included: AccessDenied (anonymous, expired,
/// unsigned headers), InvalidAccessKeyId, SignatureDoesNotMatch, RequestTimeTooSkewed, AuthorizationHeaderMalformed,
/// AuthorizationQueryParametersError, InvalidArgument, InvalidRequest.
pub fn verify(parts: &Parts, context: &Context<'_>) -> Result<Verified, S3Error> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let scheme = match Scheme::of(&parts.headers, &query) {
        Err(_) if context.mode == AuthMode::None => Scheme::Anonymous,
        other => other?,
    };
    let verified = match scheme {
        Scheme::HeaderV4 => v4::verify_header(parts, &query, context),
        Scheme::QueryV4 => v4::verify_query(parts, &query, context),
        Scheme::HeaderV2 => v2::verify_header(parts, &query, context),
        Scheme::QueryV2 => v2::verify_query(parts, &query, context),
        Scheme::Anonymous if context.mode == AuthMode::None => Ok(Verified::unchecked(&parts.headers, None)),
        Scheme::Anonymous => Err(S3Error::new(Code::AccessDenied)),
    };
    match verified {
        Err(_) if context.mode == AuthMode::None => Ok(Verified::unchecked(&parts.headers, None)),
        other => other,
    }
}

/// Whether a request carries no credentials at all.
pub(crate) fn is_anonymous(parts: &Parts) -> bool {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    matches!(Scheme::of(&parts.headers, &query), Ok(Scheme::Anonymous))
}

impl Verified {
    /// A request that nobody signed.
    pub(crate) fn anonymous(headers: &HeaderMap) -> Verified {
        Verified::unchecked(headers, None)
    }

    fn unchecked(headers: &HeaderMap, access_key: Option<String>) -> Verified {
        let payload = Payload::guess(headers);
        Verified { access_key, region: None, payload, chunk_signer: None, hoisted: Vec::new() }
    }
}

/// The value of a header that is there once and is text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The parameters of a presigned URL that count as headers: those for which `counts` says so, unless the request
/// has the header itself.
fn hoist(
    headers: &HeaderMap,
    query: &Query,
    counts: impl Fn(&str) -> bool,
) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = query.pairs().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name).ok()?;
        let value = HeaderValue::from_bytes(value).ok()?;
        (counts(name.as_str()) && !headers.contains_key(&name)).then_some((name, value))
    });
    pairs.collect()
}

/// 403 for a key id that nobody has.
fn unknown_key(access_key: &str) -> S3Error {
    S3Error::new(Code::InvalidAccessKeyId).extra("AWSAccessKeyId", access_key)
}

/// 403 for a signature that the secret key does not give: the elements that both versions share (recorded).
fn does_not_match(access_key: &str, string_to_sign: &str, provided: &str) -> S3Error {
    S3Error::new(Code::SignatureDoesNotMatch)
        .extra("AWSAccessKeyId", access_key)
        .extra("StringToSign", string_to_sign)
        .extra("SignatureProvided", provided)
        .extra("StringToSignBytes", spaced_hex(string_to_sign))
}

/// Bytes in hexadecimal with a blank between, as AWS shows strings that were signed.
fn spaced_hex(text: &str) -> String {
    let pairs: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests;
