//! CopyObject and UploadPartCopy: a body that comes from another object.

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::{
    Answer, attributes, document, etag_of, invalid_argument, made_etag, multipart, object, set,
    set_encryption, set_expiry, set_version, tagging,
};
use crate::checksum::{self, Algorithm, Checksum, Hasher, Value};
use crate::deviation::Moment;
use crate::error::{Code, S3Error};
use crate::etag;
use crate::names::{BucketName, Key, VersionId};
use crate::precondition::{self, ReadOutcome, Verb};
use crate::range;
use crate::service::Call;
use crate::store::model::{Blob, Object, Part};
use crate::store::{Draft, Found, NewObject, StoreError};
use crate::stream::Reader;

use super::intake::MAX_BODY_BYTES;

/// Where a copy comes from.
struct Source {
    bucket: BucketName,
    key: Key,
    version: Option<VersionId>,
}

impl Source {
    /// Reads `x-amz-copy-source`: bucket and key, URL-encoded as in a query, so that `+` is a space; with or
    /// without a leading slash, or as a whole path-style URL (both recorded).
    fn from_headers(headers: &HeaderMap) -> Result<Self, S3Error> {
        let text = attributes::text(headers, "x-amz-copy-source").unwrap_or_default();
        let invalid =
            || invalid_argument("x-amz-copy-source", "x-amz-copy-source", "Invalid copy source object key");
        let (path, version) =
            text.split_once("?versionId=").map_or((text.as_str(), None), |(p, v)| (p, Some(v)));
        let path = match path.strip_prefix("http://").or_else(|| path.strip_prefix("https://")) {
            Some(url) => url.split_once('/').ok_or_else(invalid)?.1,
            None => path.strip_prefix('/').unwrap_or(path),
        };
        let path = path.replace('+', " ");
        let path = percent_decode_str(&path).decode_utf8().map_err(|_| invalid())?;
        let (bucket, key) = path.split_once('/').filter(|(_, key)| !key.is_empty()).ok_or_else(invalid)?;
        Ok(Self {
            bucket: BucketName::new(bucket)?,
            key: Key::new(key.to_owned())?,
            version: version.map(VersionId::parse).transpose()?,
        })
    }

    /// The source of this copy.
    fn of(call: &Call<'_>) -> Result<Self, S3Error> {
        let source = Self::from_headers(&call.head.headers)?;
        Ok(Self { key: call.folded(source.key)?, ..source })
    }

    fn find<'a>(&self, call: &'a Call<'_>) -> Result<Found<'a>, S3Error> {
        let found = call.store.find(&self.bucket, &self.key, self.version.as_ref());
        let found = found.map_err(|error| match error {
            StoreError::IsMarker(..) => S3Error::new(Code::InvalidRequest).message(
                "The source of a copy request may not specifically refer to a delete marker by version id.",
            ),
            other => {
                // The answer speaks of the source, so it says nothing in headers about the destination.
                let mut error = S3Error::from(other);
                error.headers.clear();
                error
            }
        })?;
        let etag = &found.object()?.etag;
        object::check_retrievable(found.object()?)?;
        let headers = &call.head.headers;
        match call.read_rules(&precondition::COPY_SOURCE).evaluate(
            headers,
            etag,
            found.version.last_modified,
            call.now,
        ) {
            ReadOutcome::Proceed => Ok(found),
            ReadOutcome::NotModified(condition) | ReadOutcome::Failed(condition) => {
                Err(S3Error::new(Code::PreconditionFailed).extra("Condition", condition))
            }
        }
    }
}

/// The version that a copy is of, where it has a name of its own: AWS does not name the null one (recorded).
fn named_version(found: &Found<'_>) -> Option<VersionId> {
    Some(&found.version.id).filter(|id| found.versioned && **id != VersionId::Null).cloned()
}

/// A body read from the store and written to it again.
struct Copied {
    body: Draft,
    size: u64,
    md5: [u8; 16],
    checksum: Value,
}

async fn copy(
    call: &Call<'_>,
    found: Found<'_>,
    first: u64,
    end: u64,
    algorithm: Algorithm,
) -> Result<Copied, S3Error> {
    let mut reader = Reader::new(found.open(first, end)?);
    let mut writer = call.store.writer(end - first);
    let (mut md5, mut hasher) = (Hasher::new(Algorithm::Md5), Hasher::new(algorithm));
    while let Some(bytes) = reader.next().await.map_err(StoreError::Blob)? {
        md5.update(&bytes);
        hasher.update(&bytes);
        writer.write(&bytes).await.map_err(StoreError::Blob)?;
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(md5.finish().bytes());
    let body = writer.finish().await.map_err(StoreError::Blob)?;
    Ok(Copied { body, size: end - first, md5: digest, checksum: hasher.finish() })
}

pub(super) async fn whole(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let headers = &call.head.headers;
    let condition = call.write_condition(bucket, key, Verb::Copy).await?;
    let given = attributes::from_headers(headers)?;
    let source = Source::of(call)?;
    let replace = directive(headers, "x-amz-metadata-directive")?;
    let replace_tags = directive(headers, "x-amz-tagging-directive")?;
    let asked = checksum::algorithm_header(headers)?;
    call.store.bucket(bucket)?;
    let found = source.find(call)?;
    let old = found.object()?.clone();
    let in_place = source.bucket == *bucket && source.key == *key && source.version.is_none();
    if in_place && !replace && asked.is_none() {
        check_changes(headers)?;
    }
    if old.size > MAX_BODY_BYTES {
        return Err(S3Error::new(Code::InvalidRequest).message(format!(
            "The specified copy source is larger than the maximum allowable size for a copy source: {MAX_BODY_BYTES}"
        )));
    }
    let algorithm =
        asked.or(old.checksum.map(|checksum| checksum.value.algorithm())).unwrap_or(Algorithm::Crc64nvme);
    let source_version = named_version(&found);
    let mut attributes = if replace { given.clone() } else { old.attributes.clone() };
    // Class and redirect are never taken over from the source.
    attributes.storage_class = given.storage_class;
    if !replace {
        let redirect = "x-amz-website-redirect-location";
        attributes.headers.retain(|(name, _)| name != redirect);
        attributes.headers.extend(given.headers.into_iter().filter(|(name, _)| name == redirect));
    }
    let tags = if replace_tags { tagging::from_header(headers)? } else { old.tags };
    let copied = copy(call, found, 0, old.size, algorithm).await?;
    let condition = call.decide_early(bucket, key, condition, Moment::Body).await?;
    let checksum = Checksum::full(copied.checksum);
    let object = Object {
        size: copied.size,
        etag: made_etag(&condition, etag::of_md5(copied.md5)),
        checksum: Some(checksum),
        attributes,
        tags,
        part_count: None,
    };
    let etag = object.etag.clone();
    let new = NewObject {
        object,
        body: copied.body,
        part_checksum: Some(copied.checksum),
        condition,
        now: call.now,
        random: call.service.random(),
    };
    let placed = call.commit(call.store.put(bucket, key, new)).await?;
    let mut response = document("CopyObjectResult", |w| {
        w.text("ETag", etag_of(&etag));
        w.text("LastModified", placed.last_modified.iso8601());
        w.text("ChecksumType", checksum.kind().as_str());
        w.text(checksum.value.algorithm().element(), checksum.text());
    });
    set_encryption(&mut response);
    set_version(&mut response, placed.version.as_ref());
    set_expiry(&mut response, placed.expiry.as_ref());
    if let Some(version) = source_version {
        set(&mut response, "x-amz-copy-source-version-id", version.as_str());
    }
    Ok(response)
}

/// A copy of an object onto itself must set something, though not to another value than it has (recorded).
fn check_changes(headers: &HeaderMap) -> Result<(), S3Error> {
    let settings = ["x-amz-storage-class", "x-amz-website-redirect-location", "x-amz-server-side-encryption"];
    if settings.iter().any(|name| headers.contains_key(*name)) {
        return Ok(());
    }
    Err(S3Error::new(Code::InvalidRequest).message(
        "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.",
    ))
}

/// Whether a directive says REPLACE.
fn directive(headers: &HeaderMap, name: &'static str) -> Result<bool, S3Error> {
    match attributes::text(headers, name).as_deref() {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(invalid_argument(
            name,
            other,
            format!(
                "Unknown {} directive.",
                name.trim_start_matches("x-amz-").trim_end_matches("-directive")
            ),
        )),
    }
}

pub(super) async fn part(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let headers = &call.head.headers;
    let number = multipart::part_number(call)?;
    attributes::check_supported(headers)?;
    let source = Source::of(call)?;
    let id = multipart::upload_id(call);
    let upload = call.store.upload(bucket, key, id)?;
    let found = source.find(call)?;
    let source_version = named_version(&found);
    let (first, end) = source_range(headers, found.object()?.size)?;
    let algorithm = upload.checksum.map_or(Algorithm::Crc64nvme, |(algorithm, _)| algorithm);
    let copied = copy(call, found, first, end, algorithm).await?;
    let part = Part {
        number,
        size: copied.size,
        etag: etag::of_md5(copied.md5),
        checksum: Some(copied.checksum),
        last_modified: call.now.whole_second(),
        blob: Blob { id: 0, size: 0, pieces: 0 }, // known when it is committed
    };
    let etag = part.etag.clone();
    call.commit(call.store.put_part(bucket, key, id, part, copied.body)).await?;
    let mut response = document("CopyPartResult", |w| {
        w.text("ETag", etag_of(&etag));
        w.text("LastModified", call.now.whole_second().iso8601());
        if upload.checksum.is_some() {
            w.text(algorithm.element(), copied.checksum.base64());
        }
    });
    set_encryption(&mut response);
    if let Some(version) = source_version {
        set(&mut response, "x-amz-copy-source-version-id", version.as_str());
    }
    Ok(response)
}

/// From where to before where a part is copied.
fn source_range(headers: &HeaderMap, size: u64) -> Result<(u64, u64), S3Error> {
    let name = "x-amz-copy-source-range";
    let Some(text) = attributes::text(headers, name) else {
        if size > MAX_BODY_BYTES {
            return Err(S3Error::new(Code::InvalidRequest).message(format!(
                "The specified copy source is larger than the maximum allowable size for a copy source: {MAX_BODY_BYTES}"
            )));
        }
        return Ok((0, size));
    };
    let (first, last) = range::strict(&text).ok_or_else(|| {
        invalid_argument(
            name,
            &text,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy",
        )
    })?;
    if first >= size {
        return Err(S3Error::new(Code::InvalidRequest)
            .message("The specified copy range is invalid for the source object size"));
    }
    if last >= size {
        return Err(invalid_argument(
            name,
            &text,
            format!("Range specified is not valid for source object of size: {size}"),
        ));
    }
    Ok((first, last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Result<(String, String), Code> {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-copy-source", text.parse().unwrap());
        let source = Source::from_headers(&headers).map_err(|error| error.code)?;
        Ok((source.bucket.as_str().to_owned(), source.key.as_str().to_owned()))
    }

    #[test]
    fn sources() {
        let named = |key: &str| Ok(("abc".to_owned(), key.to_owned()));
        assert_eq!(source("abc/k"), named("k"));
        assert_eq!(source("/abc/a%2Fb%20+%2B"), named("a/b  +"));
        assert_eq!(source("abc%2Fk"), named("k"));
        assert_eq!(source("http://host:9000/abc/k"), named("k"));
        assert_eq!(source("abc//k"), named("/k"));
        assert_eq!(source("abc"), Err(Code::InvalidArgument));
        assert_eq!(source("abc/k?versionId=nonsense"), Err(Code::InvalidArgument));
    }
}
