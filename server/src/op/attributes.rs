//! Headers that describe an object: from a request into a record, and back into an answer.

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{ACCOUNT, encoded_word, invalid_argument};
use crate::checksum::Checksum;
use crate::error::{Code, S3Error};
use crate::etag::quoted;
use crate::store::model::{Attributes, Object, Pair, Version};
use crate::stream::Body;

/// Bytes of all user metadata, names and values together (S3 User Guide, "Working with object metadata").
const MAX_METADATA_BYTES: usize = 2048;

/// Headers that are stored and given back as they came.
const STORED: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];

const STORAGE_CLASSES: [&str; 11] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Headers that ask for something this server does not do: dropped in silence they would be a wrong success.
const REFUSED: [&str; 8] = [
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-object-lock-legal-hold",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-write-offset-bytes",
    "x-amz-bucket-object-lock-enabled",
];

/// A header as text; bytes that are not UTF-8 are read as ISO 8859-1, as HTTP has it.
pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(decoded)
}

fn decoded(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// `x-amz-expected-bucket-owner`, and the same for a copy's source, must name the one account there is.
pub(super) fn check_expected_owner(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"] {
        let Some(owner) = text(headers, name) else { continue };
        if owner.len() != 12 || !owner.bytes().all(|b| b.is_ascii_digit()) {
            return Err(S3Error::new(Code::InvalidBucketOwnerAWSAccountID).message(format!(
                "The value of the expected bucket owner parameter must be an AWS Account ID... [{owner}]"
            )));
        }
        if owner != ACCOUNT {
            return Err(S3Error::new(Code::AccessDenied));
        }
    }
    Ok(())
}

/// Refuses headers whose meaning this server would have to drop.
///
/// # Errors
/// `NotImplemented` naming the header; `InvalidEncryptionAlgorithmError`, `AccessControlListNotSupported`.
pub(super) fn check_supported(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in REFUSED {
        if headers.get(name).is_some_and(|value| value != "false") {
            return Err(S3Error::new(Code::NotImplemented).extra("Header", name));
        }
    }
    match text(headers, "x-amz-server-side-encryption").as_deref() {
        None | Some("AES256") => {}
        Some("aws:kms" | "aws:kms:dsse" | "aws:fsx") => {
            return Err(S3Error::new(Code::NotImplemented).extra("Header", "x-amz-server-side-encryption"));
        }
        Some(other) => {
            return Err(S3Error::new(Code::InvalidEncryptionAlgorithmError)
                .extra("ArgumentName", "x-amz-server-side-encryption")
                .extra("ArgumentValue", other));
        }
    }
    // A new bucket's owner enforces ownership, and such a bucket takes no ACL that grants anybody anything.
    match text(headers, "x-amz-acl").as_deref() {
        None | Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => {}
        Some(
            "public-read" | "public-read-write" | "authenticated-read" | "aws-exec-read"
            | "log-delivery-write",
        ) => {
            return Err(S3Error::new(Code::AccessControlListNotSupported));
        }
        Some(other) => return Err(invalid_argument("x-amz-acl", other, "Invalid canned ACL")),
    }
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return Err(S3Error::new(Code::AccessControlListNotSupported));
    }
    Ok(())
}

/// What a client sets on an object.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidStorageClass`, and those of [`check_supported`].
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Attributes, S3Error> {
    check_supported(headers)?;
    let mut stored: Vec<Pair> = Vec::new();
    for name in STORED {
        let Some(mut value) = text(headers, name) else { continue };
        if name == "content-encoding" {
            // The framing of the request is not a property of the object.
            let kept: Vec<&str> = value.split(',').map(str::trim).filter(|c| *c != "aws-chunked").collect();
            value = kept.join(",");
            if value.is_empty() {
                continue;
            }
        }
        stored.push((name.to_owned(), value));
    }
    if !stored.iter().any(|(name, value)| name == "content-type" && !value.is_empty()) {
        stored.retain(|(name, _)| name != "content-type");
        stored.push(("content-type".to_owned(), "binary/octet-stream".to_owned()));
    }
    Ok(Attributes { headers: stored, metadata: metadata(headers)?, storage_class: storage_class(headers)? })
}

fn metadata(headers: &HeaderMap) -> Result<Vec<Pair>, S3Error> {
    let mut metadata: Vec<Pair> = Vec::new();
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix("x-amz-meta-") else { continue };
        // Several headers of one name become one value (S3 User Guide, "User-defined object metadata").
        let values: Vec<String> =
            headers.get_all(name).iter().map(|value| encoded_word::decode(&decoded(value))).collect();
        metadata.push((short.to_owned(), values.join(",")));
    }
    let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MAX_METADATA_BYTES {
        return Err(S3Error::new(Code::MetadataTooLarge)
            .extra("Size", size.to_string())
            .extra("MaxSizeAllowed", MAX_METADATA_BYTES.to_string()));
    }
    Ok(metadata)
}

fn storage_class(headers: &HeaderMap) -> Result<Option<String>, S3Error> {
    match text(headers, "x-amz-storage-class") {
        Some(class) if !STORAGE_CLASSES.contains(&class.as_str()) || class == "OUTPOSTS" => {
            Err(S3Error::new(Code::InvalidStorageClass).extra("StorageClassRequested", class))
        }
        Some(class) if class != "STANDARD" => Ok(Some(class)),
        _ => Ok(None),
    }
}

/// The headers of GetObject and HeadObject that describe the object.
pub(super) fn describe(response: &mut Response<Body>, version: &Version, object: &Object, versioned: bool) {
    let headers = response.headers_mut();
    let mut put = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.insert(name, value);
        }
    };
    for (name, value) in &object.attributes.headers {
        put(name, value);
    }
    for (name, value) in &object.attributes.metadata {
        put(&format!("x-amz-meta-{name}"), &encoded_word::encode(value));
    }
    if let Some(class) = &object.attributes.storage_class {
        put("x-amz-storage-class", class);
    }
    if !object.tags.is_empty() {
        put("x-amz-tagging-count", &object.tags.len().to_string());
    }
    if versioned {
        put("x-amz-version-id", version.id.as_str());
    }
    put("accept-ranges", "bytes");
    put("etag", &quoted(&object.etag));
    put("last-modified", &version.last_modified.http_date());
    put("x-amz-server-side-encryption", "AES256");
}

/// `x-amz-checksum-*` and `x-amz-checksum-type`.
pub(super) fn set_checksum(response: &mut Response<Body>, checksum: Option<&Checksum>) {
    if let Some(checksum) = checksum {
        super::set(response, checksum.value.algorithm().header(), checksum.text());
        super::set(response, "x-amz-checksum-type", checksum.kind().as_str());
    }
}
