//! The one door to the bucket: a few verbs, each of which ends as done, refused, missing or unknown.
//!
//! No verb retries by itself: whoever calls knows whether a second try is the same question. A refusal of a
//! write condition is an answer of the store, never yet an outcome of the protocol: an earlier try of the same
//! write may have landed, and only reading tells.

mod memory;
pub mod multipart;
mod s3;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

pub use self::memory::{MemoryStore, RepeatedComplete};
pub use self::multipart::MultipartStore;
pub use self::s3::{Access, Addressing, BodyGate, S3Settings, S3Store, SettingsError};

/// A boxed future, so that stores can be wrapped at run time: by faults, by a journal, by a crash.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An entity tag as the store sent it, with its quotes: it is compared and sent back, never looked into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The condition under which a write may take effect (S3 API reference, PutObject).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `If-None-Match: *`: create, never replace.
    Absent,
    /// `If-Match: <etag>`: compare and swap.
    Matches(ETag),
    /// None: only where nothing may be lost by it, as for the probe's own keys.
    None,
}

/// What came of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The store did it and said so.
    Done(T),
    /// The store said no, and the request changed nothing; an earlier, unanswered try of it may have.
    Refused(Refusal),
    /// NoSuchKey or NoSuchUpload: not there; of a write under `If-Match`, nothing to replace. A 404 without S3's code
    /// is [`Self::Unknown`], for any proxy gives one; but HEAD's has no body, and is this.
    Missing,
    /// No answer, or one that says nothing about the effect: the write may have landed, or land later.
    Unknown(Unanswered),
}

/// A no of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 412, or 304 on a write, as some vendors answer it: the condition does not hold.
    Precondition,
    /// 409: another request to the same key is under way; ask again.
    Conflict,
    /// Any other 4xx: credentials, the bucket, the request itself. Asking again changes nothing.
    Denied {
        /// The HTTP status.
        status: u16,
        /// The S3 error code, empty if the body named none.
        code: String,
        /// The store's message.
        message: String,
    },
}

/// Why nobody can say what a request did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The status, where there was an answer: 408, 429 or 5xx, or a 2xx whose body was no answer.
    pub status: Option<u16>,
    /// What was seen, in words, without any secret.
    pub reason: String,
}

/// An object as a read or a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The whole key.
    pub key: String,
    /// Its entity tag.
    pub etag: ETag,
    /// Bytes of the body.
    pub size: u64,
    /// Milliseconds since 1970 by the store's clock; stores resolve seconds only.
    pub last_modified_ms: u64,
}

/// A body and the tag it came with: both of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The body, whole: an answer that was cut short is [`Outcome::Unknown`].
    pub bytes: Bytes,
    /// What the answer said of it.
    pub meta: ObjectMeta,
    /// User metadata, names in lower case without `x-amz-meta-`.
    pub metadata: Vec<(String, String)>,
    /// The `Date` of the answer, in milliseconds since 1970, if it had one.
    pub store_date_ms: Option<u64>,
}

/// One page of a listing (ListObjectsV2), in the order the store gave.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// The objects.
    pub objects: Vec<ObjectMeta>,
    /// Where the next page begins; nothing on the last one. A truncated page without a token is
    /// [`Outcome::Unknown`].
    pub next: Option<String>,
}

/// A bucket. Every verb is one request; dropping its future abandons the answer, not the effect.
pub trait Store: fmt::Debug + Send + Sync {
    /// Writes `bytes` as the whole object. The answer may come without a tag.
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>>;

    /// Reads the whole object.
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>>;

    /// Reads what is known of the object, without its body.
    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>>;

    /// Deletes the object; of a key that is absent, done. With a tag, only the object that has it.
    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>>;

    /// One page of the keys that begin with `prefix`, from `token` on, with at most `limit` keys.
    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>>;
}
