//! What the store keeps: records without I/O. Fields are only ever added at the end and with a new
//! format number, since the encoding is positional.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::checksum;
use crate::instant::Instant;
use crate::lifecycle::{Due, Lifecycle};
use crate::names::{Key, VersionId};

/// A name and a value, as in headers, metadata and tags.
pub(crate) type Pair = (String, String);

/// A bucket's state of versioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Versioning {
    /// Never enabled.
    Off,
    Enabled,
    Suspended,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) created: Instant,
    pub(crate) region: String,
    pub(crate) versioning: Versioning,
    pub(crate) tags: Vec<Pair>,
    /// A record of its own behind this one, so that a bucket without one costs nothing more.
    #[serde(skip)]
    pub(crate) lifecycle: Option<Arc<Lifecycle>>,
}

impl Bucket {
    /// When an object of this bucket expires while it is current.
    pub(crate) fn expiry_of(&self, key: &Key, object: &Object, last_modified: Instant) -> Option<Due> {
        self.lifecycle.as_ref()?.expiry_of(key.as_str(), object.size, &object.tags, last_modified)
    }

    /// When an upload that began at `initiated` is to be aborted.
    pub(crate) fn abort_of(&self, key: &Key, initiated: Instant) -> Option<Due> {
        self.lifecycle.as_ref()?.abort_of(key.as_str(), initiated)
    }
}

/// One version of an object, or a delete marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// Its place in the order of all commits of this store.
    pub(crate) seq: u64,
    pub(crate) id: VersionId,
    pub(crate) last_modified: Instant,
    /// `None` for a delete marker.
    pub(crate) object: Option<Object>,
}

/// What an object is, all but its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) size: u64,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) checksum: Option<checksum::Checksum>,
    pub(crate) attributes: Attributes,
    pub(crate) tags: Vec<Pair>,
    /// How many parts it was uploaded in; `None` when in a single request.
    pub(crate) part_count: Option<u32>,
}

/// What a client sets on an object when it begins to write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    /// `content-type`, `cache-control` and the others that a GET gives back, by lower-case name.
    pub(crate) headers: Vec<Pair>,
    /// `x-amz-meta-*`, without that prefix.
    pub(crate) metadata: Vec<Pair>,
    /// `None` for STANDARD.
    pub(crate) storage_class: Option<String>,
}

/// A part of a multipart upload, and of the object made from it. An object that came in a single
/// request has one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) number: u16,
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) checksum: Option<checksum::Value>,
    pub(crate) last_modified: Instant,
    pub(crate) blob: Blob,
}

/// Where the bytes of a part are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub(crate) id: u64,
    pub(crate) size: u64,
    /// Number of rows that hold it; 0 when it is a file, or empty.
    pub(crate) pieces: u32,
}

impl Blob {
    pub(crate) const fn is_file(&self) -> bool {
        self.pieces == 0 && self.size > 0
    }
}

/// A multipart upload that is neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    /// When it was created, in the order of commits: what conditional completes compare with.
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) initiated: Instant,
    pub(crate) attributes: Attributes,
    pub(crate) tags: Vec<Pair>,
    /// What the client asked for at creation.
    pub(crate) checksum: Option<(checksum::Algorithm, checksum::Type)>,
}

/// What a completed upload answered, kept so that the same request again gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) upload_id: String,
    pub(crate) key: String,
    pub(crate) at: Instant,
    /// Numbers and ETags that the request listed.
    pub(crate) listed: Vec<(u16, String)>,
    pub(crate) etag: String,
    pub(crate) checksum: Option<checksum::Checksum>,
    pub(crate) version: Option<VersionId>,
}
