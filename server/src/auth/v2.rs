//! Signature Version 2: deprecated, and still what boto3 presigns with unless told otherwise.
//!
//! Source: Amazon S3 User Guide, "Signing and authenticating REST requests".

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use http::request::Parts;
use sha1::Sha1;
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::canonical::{Query, header_values};
use super::v4::{MAX_SKEW, iso, too_skewed};
use super::{AuthMode, Context, Payload, Verified, does_not_match, header, hoist, unknown_key};
use crate::error::{Code, S3Error};

/// The parameters of a presigned URL; all must be there if one is (recorded).
pub(super) const PARAMETERS: [&str; 3] = ["Signature", "Expires", "AWSAccessKeyId"];

/// The parameters that are part of the resource.
#[rustfmt::skip]
const SUBRESOURCES: [&str; 39] = [
    "accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "encryption", "inventory", "legal-hold",
    "lifecycle", "location", "logging", "metrics", "notification", "object-lock", "partNumber", "policy",
    "publicAccessBlock", "replication", "requestPayment", "response-cache-control", "response-content-disposition",
    "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "restore",
    "retention", "select", "select-type", "storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId",
    "versioning", "versions", "website",
];

/// A request with `Authorization: AWS AKID:SIGNATURE`.
pub(super) fn verify_header(
    parts: &Parts,
    query: &Query,
    context: &Context<'_>,
) -> Result<Verified, S3Error> {
    let authorization = header(&parts.headers, "authorization").unwrap_or_default();
    let Some((access_key, signature)) = authorization.strip_prefix("AWS ").and_then(|t| t.split_once(':'))
    else {
        return Err(S3Error::new(Code::InvalidArgument)
            .message("AWS authorization header is invalid.  Expected AwsAccessKeyId:signature")
            .extra("ArgumentName", "Authorization")
            .extra("ArgumentValue", authorization));
    };
    if context.mode != AuthMode::Strict {
        return Ok(Verified::unchecked(&parts.headers, Some(access_key.to_owned())));
    }
    let amz_date = header(&parts.headers, "x-amz-date");
    let date = amz_date.or_else(|| header(&parts.headers, "date")).unwrap_or_default();
    let Ok(time) = OffsetDateTime::parse(date, &Rfc2822) else {
        return Err(S3Error::new(Code::AccessDenied)
            .message("AWS authentication requires a valid Date or x-amz-date header"));
    };
    if !context.keys.contains(access_key) {
        return Err(unknown_key(access_key));
    }
    if (context.now - time).abs() > MAX_SKEW {
        return Err(too_skewed(date, context.now));
    }
    let date = if amz_date.is_some() { "" } else { date };
    check_signature(parts, query, context, access_key, signature, date, false)?;
    Ok(verified(&parts.headers, access_key))
}

/// A request with the three parameters of a presigned URL.
pub(super) fn verify_query(parts: &Parts, query: &Query, context: &Context<'_>) -> Result<Verified, S3Error> {
    let parameters = PARAMETERS.map(|name| query.get(name).filter(|value| !value.is_empty()));
    let [Some(signature), Some(expires), Some(access_key)] = parameters else {
        return Err(S3Error::new(Code::AccessDenied).message(
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters",
        ));
    };
    let hoisted = hoist(&parts.headers, query, |name| {
        name.starts_with("x-amz-") || matches!(name, "content-type" | "content-md5")
    });
    if context.mode != AuthMode::Strict {
        let access_key = Some(access_key.to_owned());
        return Ok(Verified { hoisted, ..Verified::unchecked(&parts.headers, access_key) });
    }
    let time = expires.parse().ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    let Some(time) = time else {
        return Err(S3Error::new(Code::AccessDenied)
            .message(format!("Invalid date (should be seconds since epoch): {expires}")));
    };
    if !context.keys.contains(access_key) {
        return Err(unknown_key(access_key));
    }
    if context.now > time {
        return Err(S3Error::new(Code::AccessDenied)
            .message("Request has expired")
            .extra("Expires", iso(time))
            .extra("ServerTime", iso(context.now)));
    }
    // Base64 has pluses; a client that left one bare meant no blank.
    let signature = signature.replace(' ', "+");
    check_signature(parts, query, context, access_key, &signature, expires, true)?;
    Ok(Verified { hoisted, ..verified(&parts.headers, access_key) })
}

fn verified(headers: &HeaderMap, access_key: &str) -> Verified {
    let payload = match header(headers, "x-amz-content-sha256") {
        None | Some("UNSIGNED-PAYLOAD") => Payload::Unsigned,
        // Version 2 knows no aws-chunked: the streaming values are hashes that fit no body.
        Some(other) => Payload::Sha256(other.to_owned()),
    };
    Verified {
        access_key: Some(access_key.to_owned()),
        region: None,
        payload,
        chunk_signer: None,
        hoisted: Vec::new(),
    }
}

fn check_signature(
    parts: &Parts,
    query: &Query,
    context: &Context<'_>,
    access_key: &str,
    provided: &str,
    date: &str,
    presigned: bool,
) -> Result<(), S3Error> {
    let secret = context.keys.secret(access_key).ok_or_else(|| unknown_key(access_key))?;
    let string_to_sign = string_to_sign(parts, query, context.host_bucket, date, presigned);
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(string_to_sign.as_bytes());
    let expected = BASE64.encode(mac.finalize().into_bytes());
    if bool::from(expected.as_bytes().ct_eq(provided.as_bytes())) {
        Ok(())
    } else {
        Err(does_not_match(access_key, &string_to_sign, provided))
    }
}

/// Method, three headers, the `x-amz-*` headers and the resource. In a presigned URL, headers may stand in the query.
fn string_to_sign(
    parts: &Parts,
    query: &Query,
    host_bucket: Option<&str>,
    date: &str,
    presigned: bool,
) -> String {
    let mut amz: BTreeMap<String, String> = BTreeMap::new();
    let mut in_query: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in query.pairs().filter(|_| presigned) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        in_query.entry(name).or_insert_with(|| String::from_utf8_lossy(value).into_owned());
    }
    amz.extend(in_query.iter().filter(|(n, _)| n.starts_with("x-amz-")).map(|(n, v)| (n.clone(), v.clone())));
    for name in parts.headers.keys().filter(|name| name.as_str().starts_with("x-amz-")) {
        amz.insert(name.to_string(), header_values(&parts.headers, name.as_str()).unwrap_or_default());
    }
    let header = |name: &str| {
        header_values(&parts.headers, name).or_else(|| in_query.get(name).cloned()).unwrap_or_default()
    };
    let mut out =
        format!("{}\n{}\n{}\n{date}\n", parts.method, header("content-md5"), header("content-type"));
    for (name, value) in &amz {
        out.push_str(&format!("{name}:{value}\n"));
    }
    if let Some(bucket) = host_bucket {
        out.push('/');
        out.push_str(bucket);
    }
    out.push_str(parts.uri.path());
    out.push_str(&subresources(query));
    out
}

fn subresources(query: &Query) -> String {
    let mut found: Vec<String> = Vec::new();
    for (name, value) in query.pairs() {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        if SUBRESOURCES.contains(&name.as_ref()) {
            found.push(if value.is_empty() { name.into_owned() } else { format!("{name}={value}") });
        }
    }
    found.sort_unstable();
    if found.is_empty() { String::new() } else { format!("?{}", found.join("&")) }
}
