//! What a consumer of a `durable_v2` pipeline sees while it runs: the data objects that HEAD reaches, found by
//! following the entries back to where the walk before ended. Whether the manifest holds together is judged once
//! it is settled, by [`crate::durable`].

use std::collections::BTreeSet;

use crate::bucket::{Bucket, ReadError};
use crate::durable::Subject;
use crate::frame::{self, Kind};
use crate::manifest::{Entry, Head};
use crate::names;

/// A pipeline, and what of it was reached so far.
#[derive(Clone, Debug)]
pub struct Reach {
    root: String,
    seq: u64,
    /// The data objects.
    pub objects: BTreeSet<String>,
}

impl Reach {
    /// Of a pipeline of which nothing was read yet.
    #[must_use]
    pub fn new(subject: &Subject) -> Self {
        Self { root: names::root(&subject.prefix, &subject.pipeline), seq: 0, objects: BTreeSet::new() }
    }

    /// What every key of the pipeline begins with.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Follows HEAD as it is now. Nothing of a pipeline that has no HEAD yet.
    ///
    /// # Errors
    /// [`ReadError`]; what can't be decoded or is not there is one too: the settled judgement says what it is.
    pub async fn advance(&mut self, bucket: &Bucket) -> Result<(), ReadError> {
        let key = format!("{}_manifest/HEAD", self.root);
        let Some(bytes) = bucket.get(&key).await? else { return Ok(()) };
        let unread = |key: &str, reason: String| ReadError::Untrusted { prefix: key.to_owned(), reason };
        let head = frame::decode::<Head>(&bytes, Kind::Head).map_err(|why| unread(&key, why))?;
        let mut next = head.last_entry.filter(|link| link.seq.0 > self.seq);
        let mut found = BTreeSet::new();
        while let Some(link) = next.take() {
            let bytes = bucket.get(&link.key).await?;
            let bytes =
                bytes.ok_or_else(|| unread(&link.key, "HEAD reaches it, and it is not there".to_owned()))?;
            let entry = frame::decode::<Entry>(&bytes, Kind::Entry).map_err(|why| unread(&link.key, why))?;
            found.extend(entry.objects.into_iter().map(|object| object.key));
            next = entry.prev.filter(|link| link.seq.0 > self.seq);
        }
        self.seq = head.seq.0;
        self.objects.extend(found);
        Ok(())
    }
}
