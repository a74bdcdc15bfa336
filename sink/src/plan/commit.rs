//! What one swap of HEAD commits: one entry a batch, chained, and HEAD that reaches the last.

use bytes::Bytes;

use crate::error::SinkError;
use crate::model::chain;
use crate::model::checkpoint::Hint;
use crate::model::entry::{BatchRecord, Entry, EntryKind, EntryLink, ObjectRecord, batch_digest};
use crate::model::frame::Kind;
use crate::model::head::{EntryRef, Head, Intent, Watermark};
use crate::model::ids::{Digest, Nonce};
use crate::model::json::Extra;
use crate::model::key::PipelineRoot;
use crate::model::position::{Position, PositionRecord};

/// A batch whose objects are in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Up to where the stream is durable with it.
    pub position: Position,
    /// A batch, or a rebase.
    pub kind: EntryKind,
    /// Why the position jumps, of a rebase.
    pub reason: Option<String>,
    /// Its objects, in any order.
    pub objects: Vec<ObjectRecord>,
    /// Events in it.
    pub events: u64,
    /// The earliest event, in milliseconds since 1970.
    pub min_ts_ms: Option<u64>,
    /// The latest.
    pub max_ts_ms: Option<u64>,
}

/// An entry that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEntry {
    /// Its key.
    pub key: String,
    /// Its frame.
    pub bytes: Bytes,
    /// SHA-256 of the frame.
    pub sha256: Digest,
    /// Its content.
    pub entry: Entry,
}

/// Entries, and the HEAD that makes them committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// In the order of the chain, at least one.
    pub entries: Vec<PlannedEntry>,
    /// The next revision.
    pub head: Head,
}

impl Commit {
    /// What to write down before the swap: the last entry, whose presence proves all of them.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        self.entries.last().map(|last| Hint {
            seq: last.entry.seq,
            nonce: last.entry.nonce,
            digest: last.entry.position.digest,
            batch_digest: last.entry.batch.batch_digest,
        })
    }
}

/// Plans the commit of `drafts`, in their order, on top of `base`, which this process owns. `nonce` draws an
/// identity for each write.
///
/// # Errors
/// An entry or HEAD that would be longer than its kind may be: smaller batches, or fewer tables in one.
pub fn commit(
    root: &PipelineRoot,
    base: &Head,
    drafts: Vec<Draft>,
    mut nonce: impl FnMut() -> Nonce,
    now_ms: u64,
) -> Result<Commit, SinkError> {
    let rebases = drafts.iter().any(|draft| draft.kind == EntryKind::Rebase);
    let intent = if rebases { Intent::Rebase } else { Intent::Publish };
    let mut head = base.successor(nonce(), intent, now_ms);
    let mut entries = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let (lineage_digest, position_type) =
            (draft.position.lineage_digest(), draft.position.position_type().to_string());
        let planned = plan_entry(root, &head, draft, nonce(), now_ms)?;
        let entry = &planned.entry;
        head.seq = entry.seq;
        head.chain = chain::extend(head.chain, entry.seq, planned.sha256);
        head.last_entry = Some(EntryRef {
            seq: entry.seq,
            key: planned.key.clone(),
            sha256: planned.sha256,
            size: planned.bytes.len() as u64,
            extra: Extra::new(),
        });
        head.watermark = Some(Watermark {
            position_type,
            digest: entry.position.digest,
            lineage_digest,
            extra: Extra::new(),
        });
        entries.push(planned);
    }
    checked_length(Kind::Head, &root.head(), head.encode().len())?;
    Ok(Commit { entries, head })
}

fn plan_entry(
    root: &PipelineRoot,
    before: &Head,
    draft: Draft,
    nonce: Nonce,
    now_ms: u64,
) -> Result<PlannedEntry, SinkError> {
    let mut objects = draft.objects;
    objects.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
    let content = batch_digest(objects.iter().map(|object| (object.key.as_str(), &object.sha256)));
    let entry = Entry {
        stream_id: before.stream_id,
        seq: before.seq + 1,
        epoch: before.epoch,
        writer_id: before.owner.writer_id,
        nonce,
        prev: before.last_entry.as_ref().map(|last| EntryLink {
            seq: last.seq,
            key: last.key.clone(),
            sha256: last.sha256,
        }),
        kind: draft.kind,
        reason: draft.reason,
        position: PositionRecord::from(&draft.position),
        prev_digest: before.watermark.as_ref().map(|watermark| watermark.digest),
        objects,
        batch: BatchRecord {
            events: draft.events,
            min_ts_ms: draft.min_ts_ms,
            max_ts_ms: draft.max_ts_ms,
            batch_digest: content,
        },
        created_at_ms: now_ms,
        extra: Extra::new(),
    };
    let bytes = entry.encode();
    let sha256 = Digest::of(&bytes);
    let key = root.entry(entry.seq, entry.epoch, sha256);
    checked_length(Kind::Entry, &key, bytes.len())?;
    Ok(PlannedEntry { key, bytes, sha256, entry })
}

fn checked_length(kind: Kind, key: &str, bytes: usize) -> Result<(), SinkError> {
    if bytes > kind.max_bytes() {
        return Err(SinkError::Configuration(format!(
            "{key:?} would have {bytes} bytes, an object of kind {kind} has at most {}: smaller batches, or \
             fewer tables in one",
            kind.max_bytes()
        )));
    }
    Ok(())
}
