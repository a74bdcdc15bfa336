//! PutObject, GetObject, HeadObject.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::{
    Answer, answer, attributes, etag_of, intake, invalid_argument, made_etag, set, set_encryption,
    set_expiry, set_version, tagging,
};
use crate::body::DigestForm;
use crate::checksum::{Algorithm, Checksum};
use crate::deviation::Moment;
use crate::error::{Code, S3Error};
use crate::etag;
use crate::instant::Instant;
use crate::names::{BucketName, Key, VersionId};
use crate::precondition::{self, ReadOutcome, Verb};
use crate::range::{self, Selection};
use crate::service::Call;
use crate::store::model::{Object, Part};
use crate::store::{Found, NewObject, StoreError};
use crate::stream::Body;

pub(super) async fn put(call: &mut Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let headers = &call.head.headers;
    let condition = call.write_condition(bucket, key, Verb::Put).await?;
    let attributes = attributes::from_headers(headers)?;
    let tags = tagging::from_header(headers)?;
    call.store.bucket(bucket)?; // before the body is sent for nothing
    let intake = intake::body(call, DigestForm::Hex, Some(Algorithm::Crc64nvme), None).await?;
    let condition = call.decide_early(bucket, key, condition, Moment::Body).await?;
    let checksum = intake.summary.checksum.map(Checksum::full);
    let etag = made_etag(&condition, etag::of_md5(intake.summary.md5));
    let object = Object {
        size: intake.summary.size,
        etag: etag.clone(),
        checksum,
        attributes,
        tags,
        part_count: None,
    };
    let new = NewObject {
        object,
        body: intake.body,
        part_checksum: intake.summary.checksum,
        condition: condition.making(&etag),
        now: call.now,
        random: call.service.random(),
    };
    let placed = call.commit(call.store.put(bucket, key, new)).await?;
    let mut response = answer(StatusCode::OK);
    set(&mut response, "etag", etag_of(&etag));
    set_encryption(&mut response);
    // Under suspended versioning reads and copies name the null version, and this does not (recorded).
    set_version(&mut response, placed.version.as_ref().filter(|version| **version != VersionId::Null));
    set_expiry(&mut response, placed.expiry.as_ref());
    attributes::set_checksum(&mut response, checksum.as_ref());
    Ok(response)
}

/// The version that `versionId` names.
pub(super) fn version_of(call: &Call<'_>) -> Result<Option<VersionId>, S3Error> {
    match call.query.get("versionId") {
        None => Ok(None),
        Some("") => Err(invalid_argument("versionId", "", "Version id cannot be the empty string")),
        Some(id) => VersionId::parse(id).map(Some),
    }
}

/// The object that the request names.
pub(super) fn find<'a>(call: &'a Call<'_>, bucket: &BucketName, key: &Key) -> Result<Found<'a>, S3Error> {
    let version = version_of(call)?;
    call.store.find(bucket, key, version.as_ref()).map_err(|error| {
        let marker = matches!(error, StoreError::IsMarker(..));
        let error = S3Error::from(error);
        if marker {
            return error.extra("Method", call.head.method.as_str()).extra("ResourceType", "DeleteMarker");
        }
        error
    })
}

pub(super) fn get(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    read(call, bucket, key, true)
}

pub(super) fn head(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    read(call, bucket, key, false)
}

fn read(call: &Call<'_>, bucket: &BucketName, key: &Key, with_body: bool) -> Answer {
    let part_number = part_number(call)?;
    let overrides = overrides(call)?;
    let found = find(call, bucket, key)?;
    let object = found.object()?;
    if with_body {
        check_retrievable(object)?;
    }
    let headers = &call.head.headers;
    match call.read_rules(&precondition::OBJECT).evaluate(
        headers,
        &object.etag,
        found.version.last_modified,
        call.now,
    ) {
        ReadOutcome::Proceed => {}
        ReadOutcome::NotModified(_) => return Ok(not_modified(&found, object)),
        ReadOutcome::Failed(condition) => {
            return Err(S3Error::new(Code::PreconditionFailed).extra("Condition", condition));
        }
    }
    let wanted = Wanted::select(call, &found, object, part_number)?;
    let mut response = answer(if wanted.partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
    attributes::describe(&mut response, &found.version, object, found.versioned);
    set_expiry(&mut response, found.expiry.as_ref());
    if headers.get("x-amz-checksum-mode").is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled"))
    {
        attributes::set_checksum(&mut response, wanted.checksum.as_ref());
        // A part of a composite has a value of its own under the object's type (recorded).
        if let (Some(_), Some(whole)) = (&wanted.checksum, &object.checksum) {
            set(&mut response, "x-amz-checksum-type", whole.kind().as_str());
        }
    }
    if wanted.partial {
        let last = wanted.end.saturating_sub(1);
        set_str(&mut response, CONTENT_RANGE, &format!("bytes {}-{last}/{}", wanted.first, object.size));
    }
    if let (Some(count), Some(_)) = (object.part_count, part_number) {
        set(&mut response, "x-amz-mp-parts-count", count.to_string());
    }
    for (name, value) in overrides {
        response.headers_mut().insert(name, value);
    }
    let length = wanted.end - wanted.first;
    if with_body {
        *response.body_mut() = Body::of_segments(found.open(wanted.first, wanted.end)?, length);
    } else {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

/// Bytes in the two archive classes are read only once they are restored, which this server does not do.
pub(super) fn check_retrievable(object: &Object) -> Result<(), S3Error> {
    match object.attributes.storage_class.as_deref() {
        Some(class @ ("GLACIER" | "DEEP_ARCHIVE")) => {
            Err(S3Error::new(Code::InvalidObjectState).extra("StorageClass", class))
        }
        _ => Ok(()),
    }
}

fn set_str(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// A 304 carries what identifies the object and nothing that speaks of a body (RFC 9110 section 15.4.5).
fn not_modified(found: &Found<'_>, object: &Object) -> Response<Body> {
    let mut response = answer(StatusCode::NOT_MODIFIED);
    set(&mut response, "etag", etag_of(&object.etag));
    set(&mut response, "last-modified", found.version.last_modified.http_date());
    for (name, value) in &object.attributes.headers {
        match name.as_str() {
            "cache-control" => set(&mut response, "cache-control", value),
            "expires" => set(&mut response, "expires", value),
            _ => {}
        }
    }
    set_version(&mut response, found.versioned.then_some(&found.version.id));
    response
}

/// The bytes that a read is about: from `first` to before `end`.
struct Wanted {
    first: u64,
    end: u64,
    /// Whether the answer is a 206.
    partial: bool,
    /// The checksum that fits those bytes.
    checksum: Option<Checksum>,
}

impl Wanted {
    fn select(
        call: &Call<'_>,
        found: &Found<'_>,
        object: &Object,
        part_number: Option<u32>,
    ) -> Result<Self, S3Error> {
        let size = object.size;
        let range = call.head.headers.get("range").and_then(|range| range.to_str().ok());
        if let Some(number) = part_number {
            if range.is_some() {
                return Err(S3Error::new(Code::InvalidRequest)
                    .message("Cannot specify both Range header and partNumber query parameter"));
            }
            return Self::part(found, object, number);
        }
        let range = range.filter(|_| if_range_holds(call, object, found.version.last_modified));
        match range.map_or(Selection::Whole, |range| range::select(range, size)) {
            Selection::Whole => Ok(Self { first: 0, end: size, partial: false, checksum: object.checksum }),
            Selection::Part(first, last) => {
                let whole = first == 0 && last + 1 == size;
                let checksum = object.checksum.filter(|_| whole);
                Ok(Self { first, end: last + 1, partial: true, checksum })
            }
            Selection::Unsatisfiable => Err(S3Error::new(Code::InvalidRange)
                .extra("RangeRequested", range.unwrap_or_default())
                .extra("ActualObjectSize", size.to_string())
                .header("content-range", format!("bytes */{size}"))),
        }
    }

    /// The bytes of one part. The parts of an object count from 1, whatever numbers they were uploaded with.
    fn part(found: &Found<'_>, object: &Object, number: u32) -> Result<Self, S3Error> {
        let index = number as usize - 1;
        let Some(part) = found.parts.get(index) else {
            return Err(S3Error::new(Code::InvalidPartNumber)
                .extra("PartNumberRequested", number.to_string())
                .extra("ActualPartCount", found.parts.len().to_string()));
        };
        let first = found.parts[..index].iter().map(|part| part.size).sum();
        let checksum = part_checksum(object, part, found.parts.len());
        // An empty object has no first and last byte to name in a Content-Range.
        Ok(Self { first, end: first + part.size, partial: object.size > 0, checksum })
    }
}

/// The checksum of one part of `count`: its own under a composite, else the object's if it is all of it (recorded).
fn part_checksum(object: &Object, part: &Part, count: usize) -> Option<Checksum> {
    match object.checksum?.composed_of {
        Some(_) => part.checksum.map(Checksum::full),
        None => object.checksum.filter(|_| count == 1),
    }
}

/// Whether `If-Range`, if there is one, names the object as it is (RFC 9110 section 13.1.5).
fn if_range_holds(call: &Call<'_>, object: &Object, last_modified: Instant) -> bool {
    let Some(condition) = call.head.headers.get("if-range").and_then(|value| value.to_str().ok()) else {
        return true;
    };
    match Instant::parse(condition) {
        Some(date) => date == last_modified.whole_second(),
        None => !condition.starts_with("W/") && etag::unquoted(condition) == object.etag,
    }
}

fn part_number(call: &Call<'_>) -> Result<Option<u32>, S3Error> {
    let Some(text) = call.query.get("partNumber") else { return Ok(None) };
    match text.parse() {
        Ok(number @ 1..=10_000) => Ok(Some(number)),
        _ => Err(invalid_argument(
            "partNumber",
            text,
            "Part number must be an integer between 1 and 10000, inclusive",
        )),
    }
}

/// Headers that the query overrides (S3 API Reference, GetObject, "Overriding response header values").
fn overrides(call: &Call<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, S3Error> {
    const NAMES: [(&str, HeaderName); 6] = [
        ("response-cache-control", http::header::CACHE_CONTROL),
        ("response-content-disposition", http::header::CONTENT_DISPOSITION),
        ("response-content-encoding", http::header::CONTENT_ENCODING),
        ("response-content-language", http::header::CONTENT_LANGUAGE),
        ("response-content-type", http::header::CONTENT_TYPE),
        ("response-expires", http::header::EXPIRES),
    ];
    let mut overrides = Vec::new();
    for (parameter, header) in NAMES {
        let Some(text) = call.query.get(parameter) else { continue };
        if call.verified.access_key.is_none() && call.service.settings.auth != crate::auth::AuthMode::None {
            return Err(S3Error::new(Code::InvalidRequest)
                .message("Request specific response headers cannot be used for anonymous GET requests."));
        }
        let latin: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let value = latin.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok()).ok_or_else(|| {
            invalid_argument(parameter, text, "Header value cannot be represented using ISO-8859-1.")
        })?;
        overrides.push((header, value));
    }
    Ok(overrides)
}
