//! What was seen of a bucket.

use super::head::Head;
use crate::store::ETag;

/// HEAD and its tag, of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The content.
    pub head: Head,
    /// What the next swap must match.
    pub etag: ETag,
}
