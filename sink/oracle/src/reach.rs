//! What a consumer of a `durable_v2` pipeline sees while it runs: the live data objects that HEAD reaches. Entries are
//! followed back to where the walk before ended, through the inventories where they are gone; then new compaction
//! records put outputs in the place of what they replaced. Whether the manifest holds together is judged once it is
//! settled, by [`crate::durable`].

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use crate::bucket::{Bucket, ReadError};
use crate::durable::Subject;
use crate::frame::{self, Kind};
use crate::json::{self, Sha};
use crate::lifetime::{Compaction, Inventory, Kept, Live, Rollup, View};
use crate::manifest::{Entry, Head};
use crate::names;

/// A pipeline, and what of it was reached so far.
#[derive(Clone, Debug)]
pub struct Reach {
    root: String,
    seq: u64,
    /// Compaction records that were applied.
    records: u64,
    view: View,
}

impl Reach {
    /// Of a pipeline of which nothing was read yet.
    #[must_use]
    pub fn new(subject: &Subject) -> Self {
        let root = names::root(&subject.prefix, &subject.pipeline);
        Self { root, seq: 0, records: 0, view: View::default() }
    }

    /// What every key of the pipeline begins with.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Keys of the live data objects.
    #[must_use]
    pub fn live(&self) -> BTreeSet<&str> {
        self.view.tables.values().flatten().map(|live| live.key.as_str()).collect()
    }

    /// Whether the output of a compaction stands for this object: it may go.
    #[must_use]
    pub fn replaced(&self, key: &str) -> bool {
        self.view.replaced.iter().any(|replaced| replaced == key)
    }

    /// Follows HEAD as it is now. Nothing of a pipeline that has no HEAD yet.
    ///
    /// # Errors
    /// [`ReadError`]; what can't be decoded or is not there is one too: the settled judgement says what it is.
    pub async fn advance(&mut self, bucket: &Bucket) -> Result<(), ReadError> {
        let key = format!("{}_manifest/HEAD", self.root);
        let Some(bytes) = bucket.get(&key).await? else { return Ok(()) };
        let head = frame::decode::<Head>(&bytes, Kind::Head).map_err(|why| untrusted(&key, why))?;
        let objects = self.objects(bucket, &head).await?;
        let records = self.new_records(bucket, &head).await?;
        objects.into_iter().for_each(|(table, live)| self.view.push(&table, live));
        self.seq = head.seq.0;
        for record in records {
            self.records = record.ordinal.0;
            if record.equivalence.equal {
                self.view.replace(&record).map_err(|why| untrusted(&key, why))?;
            }
        }
        Ok(())
    }

    /// Objects of the entries that are new, in the order of entries.
    async fn objects(&self, bucket: &Bucket, head: &Head) -> Result<Vec<(String, Live)>, ReadError> {
        let mut next = head.last_entry.clone().filter(|link| link.seq.0 > self.seq);
        let mut entries = Vec::new();
        while let Some(link) = next.take_if(|link| link.seq.0 >= head.entry_floor.0) {
            let entry: Entry = referred(bucket, Kind::Entry, &link.key, link.sha256).await?;
            next = entry.prev.clone().filter(|link| link.seq.0 > self.seq);
            entries.push(entry);
        }
        let gone = match next {
            Some(last) => self.kept(bucket, head, last.seq.0).await?,
            None => Vec::new(),
        };
        let gone = gone.into_iter().flat_map(|kept| {
            let seq = kept.seq.0;
            kept.objects.into_iter().map(move |of| {
                let (key, sha256, row_seq_digest) = (of.key, of.sha256, of.row_seq_digest);
                let (size, rows) = (of.size.0, of.rows.0);
                (of.table, Live { from: seq, to: seq, key, sha256, size, rows, row_seq_digest })
            })
        });
        let there = entries.into_iter().rev().flat_map(|entry| {
            let seq = entry.seq.0;
            entry.objects.into_iter().map(move |of| {
                let table = names::table(&of.namespace, &of.table);
                let (size, rows, row_seq_digest) = (of.size.0, of.rows.0, Some(of.row_seq_digest));
                let (key, sha256) = (of.key, of.sha256);
                (table, Live { from: seq, to: seq, key, sha256, size, rows, row_seq_digest })
            })
        });
        Ok(gone.chain(there).collect())
    }

    /// What the inventories keep of the entries after the last walk, up to `last`.
    async fn kept(&self, bucket: &Bucket, head: &Head, last: u64) -> Result<Vec<Kept>, ReadError> {
        let floor = head.entry_floor.0;
        let at = || format!("{}_manifest/HEAD", self.root);
        let link = head.rollup.as_ref();
        let link =
            link.ok_or_else(|| untrusted(&at(), format!("its floor is {floor}, and it has no rollup")))?;
        let rollup: Rollup = referred(bucket, Kind::Rollup, &link.key, link.sha256).await?;
        let mut kept = Vec::new();
        for of in rollup.inventories.iter().filter(|of| of.to.0 > self.seq && of.from.0 <= last) {
            let inventory: Inventory = referred(bucket, Kind::Inventory, &of.key, of.sha256).await?;
            kept.extend(inventory.entries);
        }
        kept.retain(|kept| (self.seq + 1..=last).contains(&kept.seq.0));
        if kept.iter().map(|kept| kept.seq.0).eq(self.seq + 1..=last) {
            return Ok(kept);
        }
        Err(untrusted(&link.key, format!("its inventories do not keep entries {} to {last}", self.seq + 1)))
    }

    /// The records that are new, oldest first.
    async fn new_records(&self, bucket: &Bucket, head: &Head) -> Result<Vec<Compaction>, ReadError> {
        let mut next = head.compaction.as_ref().map(|of| of.last.clone());
        let mut records = Vec::new();
        while let Some(link) = next.take_if(|link| link.ordinal.0 > self.records) {
            let record: Compaction = referred(bucket, Kind::Compaction, &link.key, link.sha256).await?;
            next.clone_from(&record.prev);
            records.push(record);
        }
        records.reverse();
        Ok(records)
    }
}

fn untrusted(key: &str, reason: String) -> ReadError {
    ReadError::Untrusted { prefix: key.to_owned(), reason }
}

/// The body of a manifest object that something refers to.
async fn referred<T: DeserializeOwned>(
    bucket: &Bucket,
    kind: Kind,
    key: &str,
    sha256: Sha,
) -> Result<T, ReadError> {
    let bytes = bucket.get(key).await?;
    let bytes = bytes.ok_or_else(|| untrusted(key, "HEAD reaches it, and it is not there".to_owned()))?;
    let found = json::sha256(&bytes);
    if found != sha256 {
        return Err(untrusted(key, format!("SHA-256 {found}, referred to is {sha256}")));
    }
    frame::decode(&bytes, kind).map_err(|why| untrusted(key, why))
}
