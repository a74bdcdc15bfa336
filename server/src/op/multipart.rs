//! Multipart uploads: create, upload part, complete, abort, list parts.

use std::str::FromStr as _;

use http::{HeaderMap, Response, StatusCode};

use super::list::{initiator, owner};
use super::{
    Answer, answer, attributes, document, etag_of, intake, invalid_argument, list, set, set_encryption,
    set_expiry, set_version, tagging,
};
use crate::body::DigestForm;
use crate::checksum::{self, Algorithm, Checksum, MultipartChecksum, Value};
use crate::deviation::Moment;
use crate::error::{Code, S3Error};
use crate::etag;
use crate::lifecycle::Due;
use crate::names::{BucketName, Key, sequenced_id};
use crate::precondition::Verb;
use crate::service::Call;
use crate::store::model::{Blob, Part, Upload};
use crate::store::{CompleteRequest, Completed, Completion, Listed, StoreError};
use crate::stream::Body;
use crate::xml::Element;

/// Part numbers go up to this (S3 User Guide, "Multipart upload limits").
const MAX_PART_NUMBER: u16 = 10_000;

pub(super) async fn create(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let headers = &call.head.headers;
    let upload = Upload {
        seq: 0,
        id: String::new(),
        initiated: call.now.whole_second(),
        attributes: attributes::from_headers(headers)?,
        tags: tagging::from_header(headers)?,
        checksum: MultipartChecksum::from_headers(headers)?.map(|asked| (asked.algorithm, asked.kind)),
    };
    let checksum = upload.checksum;
    let random: [u8; 24] = call.service.random();
    let (id, abort) =
        call.store.create_upload(bucket, key, upload, move |seq| sequenced_id(seq, &random)).await?;
    let mut response = document("InitiateMultipartUploadResult", |w| {
        w.text("Bucket", bucket.as_str());
        w.text("Key", key.as_str());
        w.text("UploadId", &id);
    });
    set_encryption(&mut response);
    set_abort(&mut response, abort.as_ref());
    if let Some((algorithm, kind)) = checksum {
        set(&mut response, "x-amz-checksum-algorithm", algorithm.as_str());
        set(&mut response, "x-amz-checksum-type", kind.as_str());
    }
    Ok(response)
}

/// When the bucket's lifecycle aborts the upload, and by which rule.
fn set_abort(response: &mut Response<Body>, abort: Option<&Due>) {
    if let Some(Due { at, rule }) = abort {
        set(response, "x-amz-abort-date", at.http_date());
        set(response, "x-amz-abort-rule-id", rule);
    }
}

/// The upload that the request names.
pub(super) fn upload_id<'a>(call: &'a Call<'_>) -> &'a str {
    call.query.get("uploadId").unwrap_or_default()
}

/// `partNumber`.
pub(super) fn part_number(call: &Call<'_>) -> Result<u16, S3Error> {
    read_part_number(call.query.get("partNumber").unwrap_or_default())
}

fn read_part_number(text: &str) -> Result<u16, S3Error> {
    text.parse().ok().filter(|number| (1..=MAX_PART_NUMBER).contains(number)).ok_or_else(|| {
        invalid_argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })
}

pub(super) async fn upload_part(call: &mut Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let number = part_number(call)?;
    attributes::check_supported(&call.head.headers)?;
    let id = upload_id(call).to_owned();
    let upload = call.store.upload(bucket, key, &id)?;
    let kept = upload.checksum.map_or(Algorithm::Crc64nvme, |(algorithm, _)| algorithm);
    if let (Some((expected, _)), Some(actual)) =
        (upload.checksum, checksum::Requested::from_headers(&call.head.headers)?.algorithm())
        && expected != actual
    {
        return Err(checksum::type_mismatch(expected, actual));
    }
    let intake = intake::body(call, DigestForm::Base64, Some(kept), Some(kept)).await?;
    let part = Part {
        number,
        size: intake.summary.size,
        etag: etag::of_md5(intake.summary.md5),
        checksum: intake.also,
        last_modified: call.now.whole_second(),
        blob: Blob { id: 0, size: 0, pieces: 0 }, // known when it is committed
    };
    let etag = part.etag.clone();
    call.commit(call.store.put_part(bucket, key, &id, part, intake.body)).await?;
    let mut response = answer(StatusCode::OK);
    set(&mut response, "etag", etag_of(&etag));
    set_encryption(&mut response);
    if let Some(checksum) = intake.summary.checksum {
        set(&mut response, checksum.algorithm().header(), checksum.base64());
    }
    Ok(response)
}

pub(super) async fn complete(call: &mut Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let condition = call.write_condition(bucket, key, Verb::Complete).await?;
    let id = upload_id(call).to_owned();
    let upload = call.store.upload(bucket, key, &id);
    // The checksum headers speak of the object, and not of the document.
    let request = intake::document_without_checksum(call, "CompleteMultipartUpload").await?;
    let listed = match listed_parts(request.as_ref(), &id) {
        Ok(listed) => listed,
        Err(error) => return Err(upload.err().map_or(error, S3Error::from)),
    };
    let headers = &call.head.headers;
    // An upload that is not open may have been completed before, by this same request.
    let checksum = match &upload {
        Ok(upload) => {
            check_type(headers, upload)?;
            expected_checksum(headers, upload)?
        }
        Err(_) => None,
    };
    let size = match attributes::text(headers, "x-amz-mp-object-size") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            S3Error::new(Code::InvalidRequest).message("Value for x-amz-mp-object-size header is invalid.")
        })?),
    };
    let condition = call.decide_early(bucket, key, condition, Moment::Body).await?;
    let request =
        CompleteRequest { listed, condition, checksum, size, now: call.now, random: call.service.random() };
    let Completed { placed, etag, checksum } =
        call.commit(call.store.complete(bucket, key, &id, request)).await?;
    let location = location(headers, bucket, key, call);
    let mut response = document("CompleteMultipartUploadResult", |w| {
        w.text("Location", location);
        w.text("Bucket", bucket.as_str());
        w.text("Key", key.as_str());
        w.text("ETag", etag_of(&etag));
        if let Some(checksum) = &checksum {
            w.text(checksum.value.algorithm().element(), checksum.text());
            w.text("ChecksumType", checksum.kind().as_str());
        }
    });
    set_encryption(&mut response);
    set_version(&mut response, placed.version.as_ref());
    set_expiry(&mut response, placed.expiry.as_ref());
    Ok(response)
}

/// The URL under which the client reached the key.
fn location(headers: &HeaderMap, bucket: &BucketName, key: &Key, call: &Call<'_>) -> String {
    let host = attributes::text(headers, "host").unwrap_or_default();
    let key = list::url_encoded(key.as_str()).replace('+', "%20");
    if call
        .head
        .uri
        .path()
        .strip_prefix('/')
        .is_some_and(|path| path.starts_with(&format!("{}/", bucket.as_str())))
    {
        return format!("http://{host}/{}/{key}", bucket.as_str());
    }
    format!("http://{host}/{key}")
}

/// `x-amz-checksum-type` must be that of the upload, where the request has it.
fn check_type(headers: &HeaderMap, upload: &Upload) -> Result<(), S3Error> {
    let Some(text) = attributes::text(headers, "x-amz-checksum-type") else { return Ok(()) };
    let kind = upload.checksum.map(|(_, kind)| kind);
    if checksum::Type::from_str(&text).ok() == kind && kind.is_some() {
        return Ok(());
    }
    let kind = kind.map_or("null", checksum::Type::as_str);
    Err(S3Error::new(Code::InvalidRequest).message(format!(
        "The upload was created using the {kind} checksum mode. The complete request must use the same checksum mode."
    )))
}

/// The checksum that the whole object must have. An upload that was created without an algorithm does not
/// look at it, and one for a full object believes only a request that says so too (both recorded).
fn expected_checksum(headers: &HeaderMap, upload: &Upload) -> Result<Option<Checksum>, S3Error> {
    let Some((algorithm, kind)) = upload.checksum else { return Ok(None) };
    let sent =
        Algorithm::ALL.iter().find_map(|sent| Some((*sent, attributes::text(headers, sent.header())?)));
    let Some((sent, text)) = sent else { return Ok(None) };
    let checksum = Checksum::parse(sent, &text).ok_or_else(|| {
        S3Error::new(Code::InvalidRequest).message(format!("Value for {} header is invalid.", sent.header()))
    })?;
    let typed = headers.contains_key("x-amz-checksum-type");
    if sent != algorithm || (kind == checksum::Type::FullObject && !typed) {
        return Err(StoreError::Completion(Completion::Checksum(algorithm)).into());
    }
    Ok(Some(checksum))
}

fn listed_parts(request: Option<&Element>, upload_id: &str) -> Result<Vec<Listed>, S3Error> {
    let none = || S3Error::new(Code::InvalidRequest).message("You must specify at least one part");
    let listed: Vec<Listed> =
        request.ok_or_else(none)?.all("Part").map(listed_part).collect::<Result<_, S3Error>>()?;
    if listed.is_empty() {
        return Err(S3Error::new(Code::MalformedXML));
    }
    if listed.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(S3Error::new(Code::InvalidPartOrder).extra("UploadId", upload_id));
    }
    Ok(listed)
}

fn listed_part(part: &Element) -> Result<Listed, S3Error> {
    let malformed = || S3Error::new(Code::MalformedXML);
    let number = read_part_number(part.text_of("PartNumber").ok_or_else(malformed)?.trim())?;
    let etag = etag::unquoted(part.text_of("ETag").ok_or_else(malformed)?).to_owned();
    let checksum = part.children.iter().find_map(|child| {
        let algorithm = Algorithm::from_element(&child.name)?;
        Some(Value::from_base64(algorithm, child.text.trim()).ok_or(()))
    });
    let checksum = checksum.transpose().map_err(|()| S3Error::new(Code::InvalidPart))?;
    Ok(Listed { number, etag, checksum })
}

pub(super) async fn abort(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    call.commit(call.store.abort(bucket, key, upload_id(call))).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

pub(super) fn list_parts(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let max = list::max(call, "max-parts")?;
    let marker = match call.query.get("part-number-marker").filter(|marker| !marker.is_empty()) {
        None => 0,
        Some(text) => text.parse::<u32>().map_err(|_| {
            invalid_argument(
                "part-number-marker",
                text,
                "Provided part-number-marker not an integer or within integer range",
            )
        })?,
    };
    let after = u16::try_from(marker).unwrap_or(u16::MAX);
    let store = &call.store;
    let (upload, parts, truncated) =
        store.parts(bucket, key, upload_id(call), after, list::page_size(max))?;
    let mut response = document("ListPartsResult", |w| {
        w.text("Bucket", bucket.as_str());
        w.text("Key", key.as_str());
        w.text("UploadId", &upload.id);
        initiator(w);
        owner(w);
        w.text("StorageClass", upload.attributes.storage_class.as_deref().unwrap_or("STANDARD"));
        w.value("PartNumberMarker", marker);
        w.value("NextPartNumberMarker", parts.last().map_or(0, |part| part.number));
        w.value("MaxParts", max);
        w.value("IsTruncated", truncated);
        if let Some((algorithm, kind)) = upload.checksum {
            w.text("ChecksumAlgorithm", algorithm.as_str());
            w.text("ChecksumType", kind.as_str());
        }
        for part in &parts {
            w.element("Part", |w| {
                w.value("PartNumber", part.number);
                w.text("LastModified", part.last_modified.iso8601());
                w.text("ETag", etag_of(&part.etag));
                w.value("Size", part.size);
                // A checksum that nobody asked for is kept, and not shown.
                if let (Some(checksum), Some(_)) = (part.checksum, upload.checksum) {
                    w.text(checksum.algorithm().element(), checksum.base64());
                }
            });
        }
    });
    set_abort(&mut response, store.bucket(bucket)?.abort_of(key, upload.initiated).as_ref());
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_checksum_counts_where_the_upload_has_one() {
        use checksum::Type::{Composite, FullObject};
        let crc = (Algorithm::Crc32c, "x-amz-checksum-crc32c", "Nks/tw==");
        let typed = ("x-amz-checksum-type", "FULL_OBJECT");
        for (asked, headers, expected) in [
            (None, &[(crc.1, "no checksum at all")][..], Ok(None)),
            (Some(FullObject), &[(crc.1, crc.2), typed], Ok(Some(crc.2.to_owned()))),
            (Some(FullObject), &[(crc.1, crc.2)], Err(Code::BadDigest)),
            (Some(FullObject), &[("x-amz-checksum-crc32", "Nks/tw=="), typed], Err(Code::BadDigest)),
            (Some(FullObject), &[(crc.1, "x"), typed], Err(Code::InvalidRequest)),
            (Some(Composite), &[(crc.1, "Nks/tw==-2")], Ok(Some("Nks/tw==-2".to_owned()))),
            (Some(Composite), &[], Ok(None)),
        ] {
            let upload = Upload {
                seq: 1,
                id: String::new(),
                initiated: crate::instant::Instant::from_epoch_ms(0),
                attributes: crate::store::model::Attributes::default(),
                tags: Vec::new(),
                checksum: asked.map(|kind| (crc.0, kind)),
            };
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            let checksum = expected_checksum(&map, &upload).map_err(|error| error.code);
            assert_eq!(checksum.map(|c| c.map(|c| c.text())), expected, "{asked:?} {headers:?}");
        }
    }
}
