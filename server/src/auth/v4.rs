//! Signature Version 4: the `Authorization` header and presigned URLs.

use http::HeaderMap;
use http::request::Parts;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc2822;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

use super::canonical::{self, Query};
use super::chunk::ChunkSigner;
use super::keys::hmac_sha256;
use super::{AuthMode, Context, Payload, Verified, does_not_match, header, hoist, spaced_hex, unknown_key};
use crate::error::{Code, S3Error};

/// The parameters of a presigned URL; all must be there if one is (recorded).
pub(super) const PARAMETERS: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-Date",
    "X-Amz-SignedHeaders",
    "X-Amz-Expires",
];

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
pub(super) const SERVICE: &str = "s3";
pub(super) const TERMINAL: &str = "aws4_request";

/// How far the clocks of client and server may be apart ("Authenticating Requests", 15 minutes).
pub(super) const MAX_SKEW: Duration = Duration::minutes(15);

/// How long a presigned URL may live, in seconds: seven days.
const MAX_EXPIRES_S: i64 = 604_800;

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");
const ISO_SECONDS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");

/// Where the credentials stand, which decides how a fault in them is put into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    Query,
}

impl Place {
    fn malformed(self, what: &str) -> S3Error {
        match self {
            Place::Header => S3Error::new(Code::AuthorizationHeaderMalformed)
                .message(format!("The authorization header is malformed; {what}")),
            Place::Query => S3Error::new(Code::AuthorizationQueryParametersError)
                .message(format!("Error parsing the X-Amz-Credential parameter; {what}")),
        }
    }
}

/// `AKID/YYYYMMDD/REGION/SERVICE/aws4_request`. An access key may hold slashes, so it is split from behind.
struct Credential<'a> {
    access_key: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    terminal: &'a str,
}

impl<'a> Credential<'a> {
    fn parse(text: &'a str, place: Place) -> Result<Credential<'a>, S3Error> {
        let mut pieces = text.rsplitn(5, '/');
        let mut next = || pieces.next().filter(|piece| !piece.is_empty());
        let parsed = (next(), next(), next(), next(), next());
        let (Some(terminal), Some(service), Some(region), Some(date), Some(access_key)) = parsed else {
            return Err(place.malformed(
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
            ));
        };
        Ok(Credential { access_key, date, region, service, terminal })
    }

    fn scope(&self) -> String {
        format!("{}/{}/{}/{}", self.date, self.region, self.service, self.terminal)
    }

    /// Terminal, service, region and day, each of which AWS names when it is wrong.
    fn check(&self, place: Place, context: &Context<'_>, timestamp: &str) -> Result<(), S3Error> {
        if self.terminal != TERMINAL {
            let what =
                format!("incorrect terminal \"{}\". This endpoint uses \"{TERMINAL}\".", self.terminal);
            return Err(place.malformed(&what));
        }
        if self.service != SERVICE {
            let what =
                format!("incorrect service \"{}\". This endpoint belongs to \"{SERVICE}\".", self.service);
            return Err(place.malformed(&what));
        }
        if let Some(expected) = context.region
            && self.region != expected
            && !context.other_regions.contains(&self.region)
        {
            let what = format!("the region '{}' is wrong; expecting '{expected}'", self.region);
            return Err(place.malformed(&what).extra("Region", expected));
        }
        let day = &timestamp[..8];
        if self.date != day {
            let what = format!(
                "Invalid credential date \"{}\". This date is not the same as X-Amz-Date: \"{day}\".",
                self.date
            );
            return Err(match place {
                Place::Header => place.malformed(&what),
                Place::Query => S3Error::new(Code::AuthorizationQueryParametersError).message(what),
            });
        }
        Ok(())
    }
}

/// One signature to verify, wherever it came from.
struct Signed<'a> {
    credential: Credential<'a>,
    headers: Vec<&'a str>,
    signature: &'a str,
    timestamp: String,
    payload: &'a str,
    place: Place,
}

/// A request with `Authorization: AWS4-HMAC-SHA256 …`.
pub(super) fn verify_header(
    parts: &Parts,
    query: &Query,
    context: &Context<'_>,
) -> Result<Verified, S3Error> {
    let authorization = header(&parts.headers, "authorization").unwrap_or_default();
    let (credential, signed_headers, signature) = components(authorization)?;
    let credential = Credential::parse(credential, Place::Header)?;
    if context.mode != AuthMode::Strict {
        let region = Some(credential.region.to_owned());
        let verified = Verified::unchecked(&parts.headers, Some(credential.access_key.to_owned()));
        return Ok(Verified { region, ..verified });
    }
    let (time, timestamp) = request_time(&parts.headers)?;
    credential.check(Place::Header, context, &timestamp)?;
    let payload = content_sha256(&parts.headers)?;
    let signed = Signed {
        credential,
        headers: signed_headers.split(';').collect(),
        signature,
        timestamp,
        payload,
        place: Place::Header,
    };
    if !context.keys.contains(signed.credential.access_key) {
        return Err(unknown_key(signed.credential.access_key));
    }
    if (context.now - time).abs() > MAX_SKEW {
        return Err(too_skewed(&signed.timestamp, context.now));
    }
    let signer = check_signature(parts, query, &signed, context)?;
    let payload = Payload::read(payload);
    let chunk_signer = matches!(payload, Payload::Streaming { signed: true, .. }).then_some(signer);
    Ok(Verified {
        access_key: Some(signed.credential.access_key.to_owned()),
        region: Some(signed.credential.region.to_owned()),
        payload,
        chunk_signer,
        hoisted: Vec::new(),
    })
}

/// A request with the `X-Amz-*` parameters of a presigned URL.
pub(super) fn verify_query(parts: &Parts, query: &Query, context: &Context<'_>) -> Result<Verified, S3Error> {
    let parameter = |name: &str| query.get(name).filter(|value| !value.is_empty());
    if PARAMETERS.iter().any(|name| parameter(name).is_none()) {
        return Err(S3Error::new(Code::AuthorizationQueryParametersError));
    }
    let text = |name: &str| parameter(name).unwrap_or_default();
    let fault =
        |message: &'static str| S3Error::new(Code::AuthorizationQueryParametersError).message(message);
    if text("X-Amz-Algorithm") != ALGORITHM {
        return Err(fault("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256\""));
    }
    let credential = Credential::parse(text("X-Amz-Credential"), Place::Query)?;
    let headers: Vec<&str> = text("X-Amz-SignedHeaders").split(';').collect();
    let hoisted = hoist(&parts.headers, query, |name| counts_as_header(name, &headers));
    if context.mode != AuthMode::Strict {
        let access_key = Some(credential.access_key.to_owned());
        let region = Some(credential.region.to_owned());
        return Ok(Verified { region, hoisted, ..Verified::unchecked(&parts.headers, access_key) });
    }
    let timestamp = text("X-Amz-Date").to_owned();
    let time = parse_timestamp(&timestamp)
        .ok_or_else(|| fault("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
    let expires = expires(text("X-Amz-Expires"))?;
    credential.check(Place::Query, context, &timestamp)?;
    if !context.keys.contains(credential.access_key) {
        return Err(unknown_key(credential.access_key));
    }
    check_lifetime(time, expires, context.now)?;
    let sent = header(&parts.headers, "x-amz-content-sha256").or_else(|| query.get("X-Amz-Content-Sha256"));
    let payload = sent.unwrap_or("UNSIGNED-PAYLOAD");
    let signed = Signed {
        credential,
        headers,
        signature: text("X-Amz-Signature"),
        timestamp,
        payload,
        place: Place::Query,
    };
    check_signature(parts, query, &signed, context)?;
    let payload = match payload {
        "UNSIGNED-PAYLOAD" => Payload::Unsigned,
        // S3 does not decode the body of a presigned request: the streaming values are hashes that fit no body.
        other => Payload::Sha256(other.to_owned()),
    };
    let access_key = Some(signed.credential.access_key.to_owned());
    let region = Some(signed.credential.region.to_owned());
    Ok(Verified { access_key, region, payload, chunk_signer: None, hoisted })
}

/// The three components of the header's value, in any order.
fn components(authorization: &str) -> Result<(&str, &str, &str), S3Error> {
    let rest = authorization.strip_prefix(ALGORITHM).unwrap_or_default();
    let component = |name: &str| {
        rest.split(',').find_map(|piece| piece.trim().strip_prefix(name)?.trim_start().strip_prefix('='))
    };
    match (component("Credential"), component("SignedHeaders"), component("Signature")) {
        (Some(credential), Some(headers), Some(signature)) => Ok((credential, headers, signature)),
        _ => Err(Place::Header.malformed(
            "the authorization header requires three components: Credential, SignedHeaders, and Signature.",
        )),
    }
}

/// When the client says it signed, and the same in the form that was signed.
fn request_time(headers: &HeaderMap) -> Result<(OffsetDateTime, String), S3Error> {
    let text = header(headers, "x-amz-date").or_else(|| header(headers, "date")).unwrap_or_default();
    let time = parse_timestamp(text)
        .or_else(|| OffsetDateTime::parse(text, &Rfc2822).ok())
        .ok_or_else(|| {
            S3Error::new(Code::AccessDenied)
                .message("AWS authentication requires a valid Date or x-amz-date header")
        })?
        .to_offset(time::UtcOffset::UTC);
    Ok((time, basic(time)))
}

fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(text, TIMESTAMP).ok().map(PrimitiveDateTime::assume_utc)
}

/// A time in the basic form that is signed: `20130524T000000Z`.
pub(super) fn basic(time: OffsetDateTime) -> String {
    time.to_offset(time::UtcOffset::UTC).format(TIMESTAMP).expect("a time has these parts")
}

/// A time as AWS writes it in error documents: `2013-05-24T00:00:00Z`.
pub(super) fn iso(time: OffsetDateTime) -> String {
    time.to_offset(time::UtcOffset::UTC).format(ISO_SECONDS).expect("a time has these parts")
}

pub(super) fn too_skewed(request_time: &str, now: OffsetDateTime) -> S3Error {
    S3Error::new(Code::RequestTimeTooSkewed)
        .extra("RequestTime", request_time)
        .extra("ServerTime", iso(now))
        .extra("MaxAllowedSkewMilliseconds", MAX_SKEW.whole_milliseconds().to_string())
}

fn content_sha256(headers: &HeaderMap) -> Result<&str, S3Error> {
    let Some(text) = header(headers, "x-amz-content-sha256") else {
        return Err(S3Error::new(Code::InvalidRequest)
            .message("Missing required header for this request: x-amz-content-sha256"));
    };
    let is_hash = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if matches!(Payload::read(text), Payload::Sha256(_)) && !is_hash {
        return Err(S3Error::new(Code::InvalidArgument)
            .message("x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value.")
            .extra("ArgumentName", "x-amz-content-sha256")
            .extra("ArgumentValue", text));
    }
    Ok(text)
}

fn expires(text: &str) -> Result<Duration, S3Error> {
    let fault =
        |message: &'static str| S3Error::new(Code::AuthorizationQueryParametersError).message(message);
    let seconds: i64 = text.parse().map_err(|_| fault("X-Amz-Expires should be a number"))?;
    if seconds < 0 {
        return Err(fault("X-Amz-Expires must be non-negative"));
    }
    if seconds > MAX_EXPIRES_S {
        return Err(fault(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds",
        ));
    }
    Ok(Duration::seconds(seconds))
}

fn check_lifetime(time: OffsetDateTime, expires: Duration, now: OffsetDateTime) -> Result<(), S3Error> {
    let denied = |message: &'static str| {
        S3Error::new(Code::AccessDenied)
            .message(message)
            .extra("X-Amz-Expires", expires.whole_seconds().to_string())
            .extra("Expires", iso(time + expires))
            .extra("ServerTime", iso(now))
    };
    if time - now > MAX_SKEW {
        return Err(denied("Request is not yet valid"));
    }
    if now > time + expires {
        return Err(denied("Request has expired"));
    }
    Ok(())
}

/// Whether a parameter of a presigned URL counts as a header.
///
/// Checksums count only if signed as headers: the JavaScript SDK leaves the checksum of an empty body in the query of
/// every URL, and S3 does not look at it (recorded).
fn counts_as_header(name: &str, signed: &[&str]) -> bool {
    if PARAMETERS.iter().any(|p| p.eq_ignore_ascii_case(name)) {
        return false;
    }
    match name.strip_prefix("x-amz-") {
        Some("content-sha256") => false,
        Some(rest) if rest.starts_with("checksum-") || rest == "sdk-checksum-algorithm" => {
            signed.contains(&name)
        }
        Some(_) => true,
        None => matches!(name, "if-match" | "if-none-match"),
    }
}

/// Compares the signature with the one the secret key gives, and hands on what signs the chunks.
fn check_signature(
    parts: &Parts,
    query: &Query,
    signed: &Signed<'_>,
    context: &Context<'_>,
) -> Result<ChunkSigner, S3Error> {
    check_all_signed(&parts.headers, &signed.headers)?;
    let access_key = signed.credential.access_key;
    let scope = signed.credential.scope();
    let key = context.keys.signing_key(access_key, &scope).ok_or_else(|| unknown_key(access_key))?;
    let mut refusal = None;
    for host in canonical::hosts(parts) {
        let presigned = signed.place == Place::Query;
        let canonical = canonical::request(parts, query, &signed.headers, &host, signed.payload, presigned);
        let string_to_sign = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            signed.timestamp,
            hex::encode(Sha256::digest(canonical.as_bytes()))
        );
        let expected = hex::encode(hmac_sha256(&key, string_to_sign.as_bytes()));
        if bool::from(expected.as_bytes().ct_eq(signed.signature.as_bytes())) {
            return Ok(ChunkSigner {
                key,
                access_key: access_key.to_owned(),
                timestamp: signed.timestamp.clone(),
                scope,
                previous: expected,
            });
        }
        // The host as sent comes first, and its strings are the ones to show.
        refusal.get_or_insert_with(|| {
            does_not_match(access_key, &string_to_sign, signed.signature)
                .extra("CanonicalRequest", canonical.as_str())
                .extra("CanonicalRequestBytes", spaced_hex(&canonical))
        });
    }
    Err(refusal.unwrap_or_else(|| S3Error::new(Code::SignatureDoesNotMatch)))
}

/// `host` and every `x-amz-*` header must be signed, but for the payload's hash, which is signed in its own place
/// (recorded).
fn check_all_signed(headers: &HeaderMap, signed: &[&str]) -> Result<(), S3Error> {
    let must = headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| *name == "host" || (name.starts_with("x-amz-") && *name != "x-amz-content-sha256"));
    let mut missing: Vec<&str> = must.filter(|name| !signed.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_unstable();
    Err(S3Error::new(Code::AccessDenied)
        .message("There were headers present in the request which were not signed")
        .extra("HeadersNotSigned", missing.join(", ")))
}
