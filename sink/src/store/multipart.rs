//! The verbs of an upload in parts (S3 User Guide, "Uploading and copying objects using multipart upload"): what
//! is staged is invisible until it is completed, and outlives the process that staged it.

use std::fmt;

use bytes::Bytes;

use super::{ETag, ObjectMeta, Outcome, Pending, Store};

/// Fewest bytes of a part that is not the last: 5 MiB (S3 User Guide, "Amazon S3 multipart upload limits").
pub const MIN_PART_BYTES: usize = 5 << 20;

/// Most parts of an upload (the same page).
pub const MAX_PARTS: u16 = 10_000;

/// The store's name of an upload, sent back as it came and never looked into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct UploadId(pub String);

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part as Complete names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRef {
    /// 1 to [`MAX_PARTS`].
    pub number: u16,
    /// The tag of the part's last successful answer.
    pub etag: ETag,
}

/// A part as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// Its number.
    pub number: u16,
    /// Its tag.
    pub etag: ETag,
    /// Its bytes.
    pub size: u64,
}

/// One page of an upload's parts (ListParts), in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PartPage {
    /// The parts.
    pub parts: Vec<StoredPart>,
    /// After which part the next page begins; nothing on the last one.
    pub next: Option<u16>,
}

/// An upload that is neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenUpload {
    /// The key that it is for.
    pub key: String,
    /// Its id.
    pub upload: UploadId,
    /// When it was created, in milliseconds since 1970 by the store's clock, if the listing says so.
    pub initiated_ms: Option<u64>,
}

/// One page of a bucket's open uploads (ListMultipartUploads).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UploadPage {
    /// The uploads.
    pub uploads: Vec<OpenUpload>,
    /// Key and upload after which the next page begins; nothing on the last one. A truncated page without
    /// markers is [`Outcome::Unknown`].
    pub next: Option<(String, UploadId)>,
}

/// What HEAD says of an object, its metadata with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The object.
    pub meta: ObjectMeta,
    /// User metadata, names in lower case without `x-amz-meta-`.
    pub metadata: Vec<(String, String)>,
}

impl Described {
    /// The value of one name, written in lower case.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A bucket that takes uploads in parts. As with [`Store`], every verb is one request, and none is repeated.
pub trait MultipartStore: Store {
    /// Begins an upload, whose object will have this metadata. Without an answer it may have begun: nothing of
    /// it is visible, and it ends with the bucket's lifecycle rule.
    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<UploadId>>;

    /// Stores one part; the same number again replaces it.
    fn upload_part<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        number: u16,
        bytes: Bytes,
    ) -> Pending<'a, Outcome<ETag>>;

    /// Makes the parts one visible object. [`Outcome::Missing`] is NoSuchUpload: this upload was completed
    /// before, or aborted, or never was. A 200 whose body is no result, or an error, or is cut, is
    /// [`Outcome::Unknown`] (S3 API reference, CompleteMultipartUpload).
    fn complete<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        parts: &'a [PartRef],
    ) -> Pending<'a, Outcome<ETag>>;

    /// Ends an upload without an object; of one that is gone, done.
    fn abort<'a>(&'a self, key: &'a str, upload: &'a UploadId) -> Pending<'a, Outcome<()>>;

    /// One page of the whole bucket's open uploads. It has no prefix: some stores list none under one.
    fn list_uploads<'a>(
        &'a self,
        after: Option<&'a (String, UploadId)>,
        limit: u16,
    ) -> Pending<'a, Outcome<UploadPage>>;

    /// One page of an upload's parts. [`Outcome::Missing`] is NoSuchUpload.
    fn list_parts<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        after: Option<u16>,
        limit: u16,
    ) -> Pending<'a, Outcome<PartPage>>;

    /// HEAD, with the object's metadata.
    fn describe<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Described>>;
}
