//! What the lists share, and ListObjectVersions and ListMultipartUploads.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Answer, OWNER_ID, OWNER_NAME, document, etag_of, invalid_argument};
use crate::error::{Code, S3Error};
use crate::names::{BucketName, VersionId, sequence_of};
use crate::service::Call;
use crate::store::model::{Object, Version};
use crate::store::{Entry, ListedVersion, Page, Query};
use crate::xml::Writer;

/// Entries on one page at the most (S3 API Reference, all lists).
const MAX_ENTRIES: usize = 1000;

/// What `encoding-type=url` leaves as it is, as recorded.
const URL: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/').remove(b' ');

/// A key as `encoding-type=url` has it: `/` stays and a space becomes `+`.
pub(super) fn url_encoded(text: &str) -> String {
    utf8_percent_encode(text, URL).to_string().replace(' ', "+")
}

/// Whether `encoding-type=url` is asked for.
pub(super) fn encoding(call: &Call<'_>) -> Result<bool, S3Error> {
    match call.query.get("encoding-type") {
        None => Ok(false),
        Some("url") => Ok(true),
        Some(other) => {
            Err(invalid_argument("encoding-type", other, "Invalid Encoding Method specified in Request"))
        }
    }
}

/// A number such as `max-keys`, at most 1000.
pub(super) fn max(call: &Call<'_>, name: &'static str) -> Result<usize, S3Error> {
    let Some(text) = call.query.get(name).filter(|text| !text.is_empty()) else { return Ok(MAX_ENTRIES) };
    match text.parse::<i64>() {
        Ok(number @ 0..=2_147_483_647) => Ok(usize::try_from(number).unwrap_or(MAX_ENTRIES)),
        Ok(_) => Err(invalid_argument(
            name,
            text,
            format!("Argument {name} must be an integer between 0 and 2147483647"),
        )),
        Err(_) => Err(invalid_argument(
            name,
            text,
            format!("Provided {name} not an integer or within integer range"),
        )),
    }
}

/// What `max` entries on a page comes to.
pub(super) fn page_size(max: usize) -> usize {
    max.min(MAX_ENTRIES)
}

/// Where a list goes on, as an opaque token.
pub(super) fn token(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("1{last}"))
}

/// # Errors
/// `InvalidArgument` for a token that no list gave out.
pub(super) fn read_token(token: &str) -> Result<String, S3Error> {
    let decoded = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.as_deref().and_then(|text| text.strip_prefix('1')).map(str::to_owned).ok_or_else(|| {
        S3Error::new(Code::InvalidArgument)
            .message("The continuation token provided is incorrect")
            .extra("ArgumentName", "continuation-token")
    })
}

/// Writes keys as the list's encoding has them.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) encode: bool,
}

impl Keys {
    pub(super) fn text(self, w: &mut Writer, name: &str, key: &str) {
        if self.encode { w.text(name, url_encoded(key)) } else { w.text(name, key) }
    }

    pub(super) fn optional(self, w: &mut Writer, name: &str, key: Option<&str>) {
        if let Some(key) = key {
            self.text(w, name, key);
        }
    }

    /// The common prefixes of a page, which stand behind its items.
    pub(super) fn common_prefixes<T>(self, w: &mut Writer, page: &Page<T>) {
        for entry in &page.entries {
            if let Entry::CommonPrefix(prefix) = entry {
                w.element("CommonPrefixes", |w| self.text(w, "Prefix", prefix));
            }
        }
        if self.encode {
            w.text("EncodingType", "url");
        }
    }
}

/// What a list shows of an object.
pub(super) fn describe(w: &mut Writer, version: &Version, object: &Object) {
    w.text("LastModified", version.last_modified.iso8601());
    w.text("ETag", etag_of(&object.etag));
    if let Some(checksum) = &object.checksum {
        w.text("ChecksumAlgorithm", checksum.value.algorithm().as_str());
        w.text("ChecksumType", checksum.kind().as_str());
    }
    w.value("Size", object.size);
    w.text("StorageClass", object.attributes.storage_class.as_deref().unwrap_or("STANDARD"));
}

pub(super) fn owner(w: &mut Writer) {
    w.element("Owner", |w| w.text("ID", OWNER_ID));
}

/// The account that began an upload, which still has a name.
pub(super) fn initiator(w: &mut Writer) {
    w.element("Initiator", |w| {
        w.text("ID", OWNER_ID);
        w.text("DisplayName", OWNER_NAME);
    });
}

pub(super) fn versions(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let keys = Keys { encode: encoding(call)? };
    let max = max(call, "max-keys")?;
    let key_marker = call.query.get("key-marker").unwrap_or_default();
    let version_marker = call.query.get("version-id-marker").filter(|marker| !marker.is_empty());
    if let (Some(marker), "") = (version_marker, key_marker) {
        return Err(invalid_argument(
            "version-id-marker",
            marker,
            "A version-id marker cannot be specified without a key marker.",
        ));
    }
    let query = query(call, max, Some(key_marker).filter(|marker| !marker.is_empty()));
    let after = version_marker.map(VersionId::parse).transpose()?;
    let mut page = call.store.list_versions(bucket, &query, after.as_ref())?;
    call.plan.bend(&mut page, |listed| listed.version.seq);
    let (next_key, next_version) = match page.entries.last() {
        Some(Entry::Item(key, listed)) => (key.as_str(), Some(listed.version.id.as_str())),
        Some(Entry::CommonPrefix(prefix)) => (prefix.as_str(), None),
        None => ("", None),
    };
    Ok(document("ListVersionsResult", |w| {
        w.text("Name", bucket.as_str());
        keys.text(w, "Prefix", &query.prefix);
        keys.text(w, "KeyMarker", key_marker);
        w.text("VersionIdMarker", version_marker.unwrap_or_default());
        if page.truncated && !page.without_token {
            keys.text(w, "NextKeyMarker", next_key);
            w.optional("NextVersionIdMarker", next_version);
        }
        w.value("MaxKeys", max);
        keys.optional(w, "Delimiter", query.delimiter.as_deref());
        w.value("IsTruncated", page.truncated);
        for entry in &page.entries {
            if let Entry::Item(key, listed) = entry {
                version(w, keys, key, listed);
            }
        }
        keys.common_prefixes(w, &page);
    }))
}

fn version(w: &mut Writer, keys: Keys, key: &str, listed: &ListedVersion) {
    let ListedVersion { version, is_latest } = listed;
    let element = if version.object.is_some() { "Version" } else { "DeleteMarker" };
    w.element(element, |w| {
        keys.text(w, "Key", key);
        w.text("VersionId", version.id.as_str());
        w.value("IsLatest", is_latest);
        match &version.object {
            Some(object) => describe(w, version, object),
            None => w.text("LastModified", version.last_modified.iso8601()),
        }
        owner(w);
    });
}

/// The query that all lists have in common.
pub(super) fn query(call: &Call<'_>, max: usize, after: Option<&str>) -> Query {
    Query {
        prefix: call.query.get("prefix").unwrap_or_default().to_owned(),
        delimiter: call.query.get("delimiter").filter(|delimiter| !delimiter.is_empty()).map(str::to_owned),
        after: after.map(str::to_owned),
        group_listed: true,
        max: page_size(max),
    }
}

pub(super) fn uploads(call: &Call<'_>, bucket: &BucketName) -> Answer {
    let keys = Keys { encode: encoding(call)? };
    let max = max(call, "max-uploads")?;
    let key_marker = call.query.get("key-marker").unwrap_or_default();
    // Without a key marker the upload's is ignored (S3 API Reference, ListMultipartUploads).
    let id_marker = call.query.get("upload-id-marker").filter(|id| !id.is_empty() && !key_marker.is_empty());
    if let Some(id) = id_marker {
        let known = crate::names::Key::new(key_marker.to_owned())
            .is_ok_and(|key| sequence_of(id).is_some() && call.store.upload(bucket, &key, id).is_ok());
        if !known {
            return Err(invalid_argument("upload-id-marker", id, "Invalid uploadId marker"));
        }
    }
    let query = query(call, max, Some(key_marker).filter(|marker| !marker.is_empty()));
    let page = call.store.list_uploads(bucket, &query, id_marker)?;
    let (next_key, next_id) = match page.entries.last() {
        Some(Entry::Item(key, upload)) => (key.as_str(), upload.id.as_str()),
        // A page that ends with a common prefix names no next one (recorded): a client goes on from the prefix.
        _ => ("", ""),
    };
    Ok(document("ListMultipartUploadsResult", |w| {
        w.text("Bucket", bucket.as_str());
        keys.text(w, "KeyMarker", key_marker);
        w.text("UploadIdMarker", id_marker.unwrap_or_default());
        keys.text(w, "NextKeyMarker", next_key);
        w.text("NextUploadIdMarker", next_id);
        keys.optional(w, "Delimiter", query.delimiter.as_deref());
        if !query.prefix.is_empty() {
            keys.text(w, "Prefix", &query.prefix);
        }
        w.value("MaxUploads", max);
        w.value("IsTruncated", page.truncated);
        for entry in &page.entries {
            let Entry::Item(key, upload) = entry else { continue };
            w.element("Upload", |w| {
                keys.text(w, "Key", key);
                w.text("UploadId", &upload.id);
                initiator(w);
                owner(w);
                w.text("StorageClass", upload.attributes.storage_class.as_deref().unwrap_or("STANDARD"));
                w.text("Initiated", upload.initiated.iso8601());
                if let Some((algorithm, kind)) = upload.checksum {
                    w.text("ChecksumAlgorithm", algorithm.as_str());
                    w.text("ChecksumType", kind.as_str());
                }
            });
        }
        keys.common_prefixes(w, &page);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_encoding_as_recorded() {
        assert_eq!(url_encoded("a b/%=+é"), "a+b/%25%3D%2B%C3%A9");
    }

    #[test]
    fn a_token_comes_back_and_others_do_not() {
        assert_eq!(read_token(&token("x/é")).unwrap(), "x/é");
        for foreign in ["bad-token", ""] {
            let error = read_token(foreign).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            assert_eq!(error.extra, [("ArgumentName", "continuation-token".to_owned())]);
        }
    }
}
