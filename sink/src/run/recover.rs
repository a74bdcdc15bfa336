//! Recovery: everything that HEAD reaches, verified. Reads only, so that whoever wants committed state uses it.

use std::borrow::Cow;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::chain;
use crate::model::entry::{Entry, ObjectRecord, batch_digest};
use crate::model::head::{Descent, Head};
use crate::model::ids::{Digest, Nonce};
use crate::model::key::PipelineRoot;
use crate::model::position::Position;
use crate::model::rollup::{InventoryEntry, InventoryObject, Rollup};
use crate::model::view::View;
use crate::plan::fold::Compacted;
use crate::run::patience::Patience;
use crate::run::read;

mod compactions;
pub mod live;
mod objects;
pub mod reach;
mod rollups;
pub mod since;
mod tail;

use objects::Checked;
pub(in crate::run) use rollups::{Reproduced, framed, reproduced};
use tail::Base;

/// Requests that verification has under way at once.
const PARALLEL: usize = 32;

/// Revisions of HEAD that are verified, each because the one before it gave an alarm and was not HEAD any more. An
/// alarm that two of them give, or the last, stands.
const HEADS: u32 = 8;

/// How far verification goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// The manifest, without looking at data objects.
    Manifest,
    /// The manifest, and that every data object is there with its size.
    Objects,
    /// All that, every data object's content, and every older generation of rollup.
    Deep,
}

/// A verified stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// HEAD.
    pub view: View,
    /// The current rollup.
    pub rollup: Option<Rollup>,
    /// Every committed entry from the first on, in order.
    pub entries: Vec<Committed>,
    /// What its compaction records amount to.
    pub compacted: Compacted,
    /// The last entry, where there is one.
    pub last: Option<Entry>,
    /// Its position: where a source resumes.
    pub position: Option<Position>,
    /// What was accepted but should be looked at.
    pub warnings: Vec<String>,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the chain.
    pub seq: u64,
    /// Its whole key.
    pub key: String,
    /// SHA-256 of its frame.
    pub sha256: Digest,
    /// Where it was found.
    pub content: Content,
}

/// What is known of a committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Itself.
    Entry(Box<Entry>),
    /// What an inventory has kept.
    Inventory(InventoryEntry),
}

/// A data object, from an entry or an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The table's segment of keys.
    pub table: Cow<'a, str>,
    /// The whole key, verbatim.
    pub key: &'a str,
    /// SHA-256 of the stored bytes.
    pub sha256: Digest,
    /// Stored bytes.
    pub size: u64,
    /// Rows in it.
    pub rows: u64,
}

impl<'a> From<&'a ObjectRecord> for Object<'a> {
    fn from(record: &'a ObjectRecord) -> Self {
        Self {
            table: Cow::Owned(record.segment()),
            key: &record.key,
            sha256: record.sha256,
            size: record.size,
            rows: record.rows,
        }
    }
}

impl<'a> From<&'a InventoryObject> for Object<'a> {
    fn from(record: &'a InventoryObject) -> Self {
        Self {
            table: Cow::Borrowed(&record.table),
            key: &record.key,
            sha256: record.sha256,
            size: record.size,
            rows: record.rows,
        }
    }
}

impl Committed {
    /// Its objects, in the order of the entry.
    #[must_use]
    pub fn objects(&self) -> Vec<Object<'_>> {
        match &self.content {
            Content::Entry(entry) => entry.objects.iter().map(Object::from).collect(),
            Content::Inventory(entry) => entry.objects.iter().map(Object::from).collect(),
        }
    }

    /// Digest of its position.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match &self.content {
            Content::Entry(entry) => entry.position.digest,
            Content::Inventory(entry) => entry.digest,
        }
    }

    /// Its nonce, unless only an inventory of an older writer has kept it.
    #[must_use]
    pub fn nonce(&self) -> Option<Nonce> {
        match &self.content {
            Content::Entry(entry) => Some(entry.nonce),
            Content::Inventory(entry) => entry.nonce,
        }
    }

    /// The identity of its content.
    #[must_use]
    pub fn batch_digest(&self) -> Digest {
        batch_digest(self.objects().iter().map(|object| (object.key, &object.sha256)))
    }
}

impl Recovered {
    /// The entry at a place in the chain.
    #[must_use]
    pub fn at(&self, seq: u64) -> Option<&Committed> {
        let index = usize::try_from(seq.checked_sub(1)?).ok()?;
        self.entries.get(index)
    }
}

/// Verifies what HEAD reaches. Nothing if the pipeline has nothing in the bucket but keys of probes.
///
/// # Errors
/// An [`Alarm`] for what is missing, damaged or contradictory; [`SinkError::NewerWriter`] for what this release
/// can't read; a refusal; [`SinkError::StoreUnavailable`] if a read has no answer within `patience`, which says
/// nothing about the object.
pub async fn recover(
    env: &Env,
    root: &PipelineRoot,
    depth: Depth,
    patience: &Patience,
) -> Result<Option<Recovered>, SinkError> {
    recover_from(env, root, depth, patience, None).await
}

/// The same, given what was verified before: only what came after is read.
///
/// # Errors
/// Those of [`recover`], and [`Alarm::LostUpdate`] if HEAD does not descend from what was verified before.
pub async fn recover_from(
    env: &Env,
    root: &PipelineRoot,
    depth: Depth,
    patience: &Patience,
    known: Option<Recovered>,
) -> Result<Option<Recovered>, SinkError> {
    let (mut known, mut doubt, mut left) = (known, None::<(Alarm, View)>, HEADS);
    loop {
        left -= 1;
        let was_there = known.is_some() || doubt.is_some();
        let Some(view) = head_or_nothing(env, root, patience, was_there).await? else { return Ok(None) };
        if let Some((alarm, before)) = &doubt {
            if before.etag == view.etag {
                return Err(alarm.clone().into());
            }
            still_ahead(&before.head, &view.head)?;
        }
        let before = known.take();
        match &before {
            Some(known) if known.view.etag == view.etag => return Ok(before),
            Some(known) => still_ahead(&known.view.head, &view.head)?,
            None => {}
        }
        // On the heap: whoever verifies twice would have all of it twice on its stack.
        match Box::pin(reached_by(env, root, depth, patience, view.clone(), before)).await {
            // The owner goes on meanwhile: what HEAD reached when it was read may be deleted by right since.
            Err(SinkError::Integrity(alarm))
                if left > 0 && doubt.as_ref().is_none_or(|(other, _)| *other != alarm) =>
            {
                tracing::warn!(%alarm, rev = view.head.rev, "looking whether HEAD has moved");
                doubt = Some((alarm, view));
            }
            found => return found.map(Some),
        }
    }
}

/// Everything that this HEAD reaches, whether the store has it or is about to.
async fn reached_by(
    env: &Env,
    root: &PipelineRoot,
    depth: Depth,
    patience: &Patience,
    view: View,
    known: Option<Recovered>,
) -> Result<Recovered, SinkError> {
    let verification = Verification { env, root, patience, head: &view.head, depth };
    let Found { rollup, entries, compacted, last, mut warnings } = verification.closure(known).await?;
    let position = match &last {
        Some(last) => Some(verification.watermark(last)?),
        None => None,
    };
    warnings.sort();
    warnings.dedup();
    Ok(Recovered { view, rollup, entries, compacted, last, position, warnings })
}

/// Verifies a HEAD as a start would if it were the store's.
///
/// # Errors
/// Those of [`recover`].
pub async fn verify(
    env: &Env,
    root: &PipelineRoot,
    view: View,
    patience: &Patience,
) -> Result<Recovered, SinkError> {
    reached_by(env, root, Depth::Objects, patience, view, None).await
}

/// HEAD, or that there is nothing at all.
async fn head_or_nothing(
    env: &Env,
    root: &PipelineRoot,
    patience: &Patience,
    was_there: bool,
) -> Result<Option<View>, SinkError> {
    if let Some(view) = read::view(env, root, patience).await? {
        return Ok(Some(view));
    }
    if was_there {
        return Err(Alarm::HeadDeleted.into());
    }
    let (probe, mut found) = (root.probe(), None);
    read::list(env, &root.listing(), patience, |meta| {
        if !meta.key.starts_with(&probe) {
            found = Some(meta.key);
        }
        found.is_some()
    })
    .await?;
    let Some(key) = found else { return Ok(None) };
    // Another process may have created it between the two questions.
    match read::view(env, root, patience).await? {
        Some(view) => Ok(Some(view)),
        None => Err(Alarm::ManifestWithoutHead { key }.into()),
    }
}

/// Whether the HEAD of now descends from one that was read before.
fn still_ahead(before: &Head, head: &Head) -> Result<(), SinkError> {
    match head.descent(before) {
        Descent::Same | Descent::Descendant | Descent::TooFar if head.seq >= before.seq => Ok(()),
        _ => Err(Alarm::LostUpdate { rev: before.rev, found: head.rev }.into()),
    }
}

/// One verification of one HEAD.
struct Verification<'a> {
    env: &'a Env,
    root: &'a PipelineRoot,
    patience: &'a Patience,
    head: &'a Head,
    depth: Depth,
}

/// What a verification found.
#[derive(Default)]
struct Found {
    rollup: Option<Rollup>,
    entries: Vec<Committed>,
    compacted: Compacted,
    last: Option<Entry>,
    warnings: Vec<String>,
}

impl Verification<'_> {
    /// Every entry and its chain, the compaction records, and the objects that hold rows.
    async fn closure(&self, known: Option<Recovered>) -> Result<Found, SinkError> {
        let head = self.head;
        let (mut found, mut chain, before) = match self.carried_on(known).await? {
            Some(known) => known,
            None => {
                let (rollup, entries, chain) = self.rolled_up().await?;
                (Found { rollup, entries, ..Found::default() }, chain, Checked::default())
            }
        };
        let tail = self.tail(Base::after(found.entries.last())).await?;
        for entry in &tail {
            chain = chain::extend(chain, entry.seq, entry.sha256);
        }
        if chain != head.chain {
            return Err(self.contradiction(format!("the entries' chain is {chain}, HEAD has {}", head.chain)));
        }
        found.entries.extend(tail);
        found.compacted = self.compactions(&found).await?;
        self.check_objects(&mut found, before).await?;
        found.last = match found.entries.last().map(|entry| &entry.content) {
            None => None,
            Some(Content::Entry(entry)) => Some(Entry::clone(entry)),
            Some(Content::Inventory(_)) => Some(self.last_entry().await?),
        };
        Ok(found)
    }

    /// The last entry's position, which HEAD's watermark must be.
    fn watermark(&self, last: &Entry) -> Result<Position, SinkError> {
        let key = self.head.last_entry.as_ref().map_or("", |last| &last.key);
        let position = last.position().map_err(|error| SinkError::of_position(key, &error))?;
        let agrees = self.head.watermark.as_ref().is_some_and(|watermark| {
            watermark.digest == position.digest()
                && watermark.lineage_digest == position.lineage_digest()
                && watermark.position_type == position.position_type().to_string()
        });
        if agrees {
            Ok(position)
        } else {
            Err(self.contradiction(format!(
                "its watermark is not position {}, the last entry's",
                position.digest()
            )))
        }
    }

    fn contradiction(&self, reason: String) -> SinkError {
        Alarm::Contradiction { key: self.root.head(), reason }.into()
    }
}
