//! Tags of buckets and objects.

use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;

use super::{Answer, answer, document, intake, invalid_argument, object, set_version};
use crate::error::{Code, S3Error};
use crate::names::{BucketName, Key};
use crate::service::Call;
use crate::store::Found;
use crate::store::model::Pair;
use crate::xml::{Element, Writer};

/// Tags of one object, and of one bucket (S3 User Guide, "Object tagging"; "Bucket tagging").
const MAX_OBJECT_TAGS: usize = 10;
const MAX_BUCKET_TAGS: usize = 50;
/// Characters of a tag's key and value.
const MAX_KEY_CHARS: usize = 128;
const MAX_VALUE_CHARS: usize = 256;

pub(super) fn get_bucket(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let tags = call.store.bucket(bucket)?.tags;
    if tags.is_empty() {
        return Err(S3Error::new(Code::NoSuchTagSet).extra("BucketName", bucket.as_str()));
    }
    Ok(document("Tagging", |w| write(w, &tags)))
}

pub(super) async fn put_bucket(call: &mut Call<'_>, bucket: &BucketName) -> Answer {
    let set = read_tag_set(call).await?;
    let tags = read_bucket_tags(&set, "Tag", false)?;
    call.store.update_bucket(bucket, move |record| record.tags = tags).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

pub(super) async fn delete_bucket(call: &Call<'_>, bucket: &BucketName) -> Answer {
    call.store.update_bucket(bucket, |record| record.tags.clear()).await?;
    Ok(answer(StatusCode::NO_CONTENT))
}

/// The object whose tags are meant. A current delete marker has no tags, and is not taken for absence.
fn find<'a>(call: &'a Call<'_>, bucket: &BucketName, key: &Key) -> Result<Found<'a>, S3Error> {
    object::find(call, bucket, key).map_err(|error| {
        if error.headers.iter().any(|(name, _)| *name == "x-amz-delete-marker") {
            let refused = S3Error::new(Code::MethodNotAllowed)
                .extra("Method", call.head.method.as_str())
                .extra("ResourceType", "DeleteMarker");
            return S3Error { headers: error.headers, ..refused };
        }
        error
    })
}

pub(super) fn get_object(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    let found = find(call, bucket, key).map_err(|error| match error.code {
        // Here alone the document names the bucket too (recorded).
        Code::NoSuchKey => {
            S3Error::new(Code::NoSuchKey).extra("Key", format!("{}/{}", bucket.as_str(), key.as_str()))
        }
        _ => error,
    })?;
    let tags = &found.object()?.tags;
    let mut response = document("Tagging", |w| write(w, tags));
    set_version(&mut response, found.versioned.then_some(&found.version.id));
    Ok(response)
}

pub(super) async fn put_object(call: &mut Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    find(call, bucket, key)?;
    let set = read_tag_set(call).await?;
    let tags = read_tags(&set, "Tag")?;
    if tags.len() > MAX_OBJECT_TAGS {
        return Err(too_many(MAX_OBJECT_TAGS));
    }
    replace(call, bucket, key, tags, StatusCode::OK).await
}

pub(super) async fn delete_object(call: &Call<'_>, bucket: &BucketName, key: &Key) -> Answer {
    find(call, bucket, key)?;
    replace(call, bucket, key, Vec::new(), StatusCode::NO_CONTENT).await
}

async fn replace(
    call: &Call<'_>,
    bucket: &BucketName,
    key: &Key,
    tags: Vec<Pair>,
    status: StatusCode,
) -> Answer {
    let version = object::version_of(call)?;
    let version = call.commit(call.store.set_tags(bucket, key, version, tags)).await?;
    let versioned = call.store.bucket(bucket)?.versioning != crate::store::model::Versioning::Off;
    let mut response = answer(status);
    set_version(&mut response, versioned.then_some(&version));
    Ok(response)
}

/// `x-amz-tagging`: tags in the form of a query.
pub(super) fn from_header(headers: &HeaderMap) -> Result<Vec<Pair>, S3Error> {
    let Some(text) = super::attributes::text(headers, "x-amz-tagging") else { return Ok(Vec::new()) };
    let malformed = || {
        invalid_argument(
            "x-amz-tagging",
            &text,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.",
        )
    };
    let decode =
        |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8().map(|text| text.into_owned());
    let mut tags: Vec<Pair> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(key), Ok(value)) = (decode(key), decode(value)) else { return Err(malformed()) };
        if value.contains('=') || pair.matches('=').count() > 1 || tags.iter().any(|(known, _)| *known == key)
        {
            return Err(malformed());
        }
        check(&key, &value)?;
        tags.push((key, value));
    }
    if tags.len() > MAX_OBJECT_TAGS {
        return Err(too_many(MAX_OBJECT_TAGS));
    }
    Ok(tags)
}

fn too_many(max: usize) -> S3Error {
    S3Error::new(Code::BadRequest).message(format!("Object tags cannot be greater than {max}"))
}

async fn read_tag_set(call: &mut Call<'_>) -> Result<Element, S3Error> {
    let malformed = || S3Error::new(Code::MalformedXML);
    let request = intake::document(call, "Tagging").await?.ok_or_else(malformed)?;
    // SDKs leave an empty set out.
    Ok(request.children.into_iter().find(|child| child.name == "TagSet").unwrap_or_default())
}

/// The tags of a bucket. At creation AWS words the refusal of reserved keys in another way.
pub(super) fn read_bucket_tags(set: &Element, name: &str, at_creation: bool) -> Result<Vec<Pair>, S3Error> {
    if set.all(name).any(|tag| tag.text_of("Key").is_some_and(|key| key.starts_with("aws:"))) {
        let error = S3Error::new(Code::InvalidTag);
        if at_creation {
            return Err(error.message(
                "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system tags. Remove \"aws:\" from your tag keys and try again.",
            ));
        }
        let key = set.all(name).filter_map(|tag| tag.text_of("Key")).find(|key| key.starts_with("aws:"));
        return Err(error
            .message("System tags cannot be added/updated by requester")
            .extra("TagKey", key.unwrap_or_default()));
    }
    let tags = read_tags(set, name)?;
    if tags.len() > MAX_BUCKET_TAGS {
        return Err(S3Error::new(Code::BadRequest)
            .message(format!("Bucket tag count cannot be greater than {MAX_BUCKET_TAGS}")));
    }
    Ok(tags)
}

fn read_tags(set: &Element, name: &str) -> Result<Vec<Pair>, S3Error> {
    let mut tags: Vec<Pair> = Vec::new();
    for tag in set.all(name) {
        let (Some(key), Some(value)) = (tag.text_of("Key"), tag.text_of("Value")) else {
            return Err(S3Error::new(Code::MalformedXML));
        };
        check(key, value)?;
        if tags.iter().any(|(known, _)| known == key) {
            return Err(S3Error::new(Code::InvalidTag)
                .message("Cannot provide multiple Tags with the same key")
                .extra("TagKey", key));
        }
        tags.push((key.to_owned(), value.to_owned()));
    }
    Ok(tags)
}

/// Refuses a tag that breaks the rules for tags.
pub(super) fn check(key: &str, value: &str) -> Result<(), S3Error> {
    let allowed =
        |text: &str| text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_.:/=+-@".contains(c));
    let error = |message| S3Error::new(Code::InvalidTag).message(message).extra("TagKey", key);
    if key.is_empty() || key.chars().count() > MAX_KEY_CHARS || !allowed(key) {
        return Err(error("The TagKey you have provided is invalid"));
    }
    if key.starts_with("aws:") {
        return Err(error("Your TagKey cannot be prefixed with aws:"));
    }
    if value.chars().count() > MAX_VALUE_CHARS || !allowed(value) {
        return Err(error("The TagValue you have provided is invalid").extra("TagValue", value));
    }
    Ok(())
}

fn write(w: &mut Writer, tags: &[Pair]) {
    w.element("TagSet", |w| {
        for (key, value) in tags {
            w.element("Tag", |w| {
                w.text("Key", key);
                w.text("Value", value);
            });
        }
    });
}
