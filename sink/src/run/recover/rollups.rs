//! Rollups: the current generation covers every entry up to its end; the one before it must agree.

use std::collections::HashSet;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::objects::Checked;
use super::tail::Base;
use super::{Committed, Content, Depth, Found, PARALLEL, Recovered, Verification};
use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::chain;
use crate::model::entry::{Entry, EntryLink};
use crate::model::frame::{self, Kind};
use crate::model::head::{Head, RollupRef};
use crate::model::ids::Digest;
use crate::model::key::PipelineRoot;
use crate::model::position::Position;
use crate::model::rollup::{Inventory, InventoryEntry, InventoryObject, InventoryRef, PrevRollup, Rollup};
use crate::plan::rollup;
use crate::run::parallel::in_parallel;
use crate::run::patience::Patience;
use crate::run::read;

/// Up to how many entries that a rollup covers and that must still be there are read again; more, as after the
/// first rollup of a long stream, are listed: their keys hold their hashes.
const MOST_CROSS_READ: usize = 1024;

impl Verification<'_> {
    /// The current rollup, every entry that it covers, and the chain up to its end.
    pub(super) async fn rolled_up(&self) -> Result<(Option<Rollup>, Vec<Committed>, Digest), SinkError> {
        let Some(current) = self.current()? else {
            return Ok((None, Vec::new(), chain::origin(self.head.stream_id)));
        };
        match self.covered_by(current).await {
            Ok((rollup, entries)) => {
                self.cross_check(&entries).await?;
                Ok((Some(rollup), entries, current.end_chain))
            }
            Err(SinkError::Integrity(alarm)) => Err(self.with_a_way_out(alarm).await.into()),
            Err(error) => Err(error),
        }
    }

    /// HEAD's current rollup.
    fn current(&self) -> Result<Option<&RollupRef>, SinkError> {
        let (current, floor) = (self.head.rollup.as_ref(), self.head.entry_floor);
        let horizon = self.head.prev_rollup.as_ref().map_or(0, |prev| prev.end_seq);
        if current.is_none() && self.head.prev_rollup.is_some() {
            return Err(self.contradiction("it has an earlier rollup, and no current one".to_owned()));
        }
        if floor > horizon + 1 {
            let reason = format!("its floor {floor} is above the horizon {horizon}");
            return Err(self.contradiction(reason));
        }
        Ok(current)
    }

    /// A generation and its entries. The one before it must be there too.
    async fn covered_by(&self, current: &RollupRef) -> Result<(Rollup, Vec<Committed>), SinkError> {
        let rollup = self.generation(current).await?;
        self.earlier_generations(&rollup).await?;
        let entries = self.covered(current, &rollup).await?;
        self.check_end(current, &rollup, entries.last())?;
        Ok((rollup, entries))
    }

    /// What an earlier verification found, if the entries that it knows reach beyond the current rollup: of that
    /// only the inventories that are new are read.
    pub(super) async fn carried_on(
        &self,
        known: Option<Recovered>,
    ) -> Result<Option<(Found, Digest, Checked)>, SinkError> {
        let Some(known) = known else { return Ok(None) };
        let before = Checked { seq: known.view.head.seq, ordinal: known.compacted.count() };
        let chain = known.view.head.chain;
        let mut rollup = known.rollup;
        if let Some(current) = self.current()?
            && known.view.head.rollup.as_ref() != Some(current)
        {
            if current.end_seq > before.seq {
                return Ok(None);
            }
            let next = self.generation(current).await?;
            self.earlier_generations(&next).await?;
            let old = rollup.as_ref().map(|of| of.inventories.as_slice()).unwrap_or_default();
            let new = next.inventories.iter().filter(|of| !old.contains(of)).cloned().collect();
            self.agree(&known.entries, &self.read_inventories(new).await?)?;
            let origin = chain::origin(self.head.stream_id);
            let covered = known.entries.iter().take_while(|entry| entry.seq <= current.end_seq);
            let end = covered.fold(origin, |chain, entry| chain::extend(chain, entry.seq, entry.sha256));
            if end != current.end_chain || end != next.end_chain {
                let reason = format!("the chain of its entries is {end}, {} is recorded", current.end_chain);
                return Err(Alarm::Contradiction { key: current.key.clone(), reason }.into());
            }
            rollup = Some(next);
        }
        let Recovered { entries, compacted, warnings, .. } = known;
        Ok(Some((Found { rollup, entries, compacted, last: None, warnings }, chain, before)))
    }

    /// Inventories say of entries what is known of them.
    fn agree(&self, known: &[Committed], read: &[(InventoryRef, Inventory)]) -> Result<(), SinkError> {
        let entries =
            read.iter().flat_map(|(of, inventory)| inventory.entries.iter().map(move |entry| (of, entry)));
        for (of, entry) in entries {
            let index = usize::try_from(entry.seq.saturating_sub(1)).unwrap_or(usize::MAX);
            let same = known.get(index).is_some_and(|known| {
                known.seq == entry.seq && known.key == entry.entry_key && known.sha256 == entry.entry_sha256
            });
            if !same {
                let reason = format!("what it says of entry {} is not what was verified before", entry.seq);
                return Err(Alarm::Contradiction { key: of.key.clone(), reason }.into());
            }
        }
        Ok(())
    }

    /// Whether the generation before and the entries after it reproduce HEAD's chain: then a person can rebuild
    /// the current one. Nothing falls back to it by itself.
    async fn with_a_way_out(&self, alarm: Alarm) -> Alarm {
        let damaged = matches!(
            alarm,
            Alarm::MissingReferenced { .. } | Alarm::DigestMismatch { .. } | Alarm::Damaged { .. }
        );
        let Some(prev) = self.head.prev_rollup.as_ref().filter(|_| damaged) else { return alarm };
        match self.reproduced_from(prev).await {
            Ok(true) => Alarm::Recoverable { cause: Box::new(alarm), rollup: prev.key.clone() },
            Ok(false) => alarm,
            Err(error) => {
                tracing::warn!(%error, rollup = prev.key, "the rollup before does not help");
                alarm
            }
        }
    }

    async fn reproduced_from(&self, prev: &RollupRef) -> Result<bool, SinkError> {
        let rollup = self.generation(prev).await?;
        let entries = self.covered(prev, &rollup).await?;
        let tail = self.tail(Base::after(entries.last())).await?;
        let chain =
            tail.iter().fold(prev.end_chain, |chain, entry| chain::extend(chain, entry.seq, entry.sha256));
        Ok(chain == self.head.chain)
    }

    /// What a generation says of its entries.
    async fn covered(&self, of: &RollupRef, rollup: &Rollup) -> Result<Vec<Committed>, SinkError> {
        let read = self.read_inventories(rollup.inventories.clone()).await?;
        self.joined(&of.key, rollup, read)
    }

    /// The rollup that HEAD refers to.
    pub(super) async fn generation(&self, of: &RollupRef) -> Result<Rollup, SinkError> {
        let rollup: Rollup = self.object(Kind::Rollup, &of.key, of.sha256).await?;
        let agrees = rollup.stream_id == self.head.stream_id
            && rollup.generation == of.generation
            && rollup.end_seq == of.end_seq
            && rollup.end_chain == of.end_chain
            && rollup.start_seq == 1
            && rollup.end_seq <= self.head.seq;
        if agrees {
            return Ok(rollup);
        }
        let reason = "its stream, generation or end is not what HEAD says".to_owned();
        Err(Alarm::Contradiction { key: of.key.clone(), reason }.into())
    }

    /// The generation before, which is the horizon of entry expiry; deeper, all there are.
    async fn earlier_generations(&self, current: &Rollup) -> Result<(), SinkError> {
        let linked =
            current.prev.as_ref().map(|prev| (&prev.key, prev.sha256, prev.generation, prev.end_seq));
        let in_head = self
            .head
            .prev_rollup
            .as_ref()
            .map(|prev| (&prev.key, prev.sha256, prev.generation, prev.end_seq));
        if linked != in_head {
            return Err(self.contradiction("its previous rollup is not the current one's".to_owned()));
        }
        let mut link = current.prev.clone();
        while let Some(PrevRollup { generation, key, sha256, end_seq }) = link {
            let rollup: Rollup = self.object(Kind::Rollup, &key, sha256).await?;
            if rollup.stream_id != self.head.stream_id
                || rollup.generation != generation
                || rollup.end_seq != end_seq
                || end_seq >= current.end_seq
            {
                let reason = "its stream, generation or end is not what its successor says".to_owned();
                return Err(Alarm::Contradiction { key, reason }.into());
            }
            link = rollup.prev.filter(|_| self.depth == Depth::Deep);
        }
        Ok(())
    }

    async fn read_inventories(
        &self,
        refs: Vec<InventoryRef>,
    ) -> Result<Vec<(InventoryRef, Inventory)>, SinkError> {
        in_parallel(PARALLEL, refs, |of: InventoryRef| {
            let (env, patience, stream) = (self.env.clone(), self.patience.renewed(), self.head.stream_id);
            async move {
                let inventory: Inventory =
                    framed(&env, &patience, Kind::Inventory, &of.key, of.sha256).await?;
                if inventory.stream_id == stream && (inventory.from_seq, inventory.to_seq) == (of.from, of.to)
                {
                    return Ok((of, inventory));
                }
                let reason = "its stream or its range is not what the rollup says".to_owned();
                Err(Alarm::Contradiction { key: of.key, reason }.into())
            }
        })
        .await
    }

    /// The entries of all inventories, which cover 1 to the end without gap or overlap, and are its chain.
    fn joined(
        &self,
        key: &str,
        rollup: &Rollup,
        read: Vec<(InventoryRef, Inventory)>,
    ) -> Result<Vec<Committed>, SinkError> {
        let mut chain = chain::origin(self.head.stream_id);
        let mut entries: Vec<Committed> = Vec::new();
        for (of, inventory) in read {
            let contradiction = |reason: &str| -> SinkError {
                Alarm::Contradiction { key: of.key.clone(), reason: reason.to_owned() }.into()
            };
            if of.from != entries.len() as u64 + 1 {
                return Err(contradiction("it does not follow the one before it"));
            }
            for entry in inventory.entries {
                if entry.seq != entries.len() as u64 + 1 {
                    return Err(contradiction("its entries are not contiguous"));
                }
                chain = chain::extend(chain, entry.seq, entry.entry_sha256);
                entries.push(Committed {
                    seq: entry.seq,
                    key: entry.entry_key.clone(),
                    sha256: entry.entry_sha256,
                    content: Content::Inventory(entry),
                });
            }
            if entries.len() as u64 != of.to || inventory.end_chain != chain {
                return Err(contradiction("its end or its chain is not what it says"));
            }
        }
        if entries.len() as u64 != rollup.end_seq {
            let reason = format!("its inventories cover {} entries of {}", entries.len(), rollup.end_seq);
            return Err(Alarm::Contradiction { key: key.to_owned(), reason }.into());
        }
        if chain != rollup.end_chain {
            let reason = format!("the inventories' chain is {chain}, {} is recorded", rollup.end_chain);
            return Err(Alarm::Contradiction { key: key.to_owned(), reason }.into());
        }
        Ok(entries)
    }

    fn check_end(&self, of: &RollupRef, rollup: &Rollup, last: Option<&Committed>) -> Result<(), SinkError> {
        let position = Position::try_from(&rollup.end_position)
            .map_err(|error| SinkError::of_position(&of.key, &error))?;
        if last.is_some_and(|last| last.digest() == position.digest()) {
            return Ok(());
        }
        let reason = "its position is not that of the last entry that it covers".to_owned();
        Err(Alarm::Contradiction { key: of.key.clone(), reason }.into())
    }

    /// Entries after the horizon must still exist, and be what the inventories say.
    async fn cross_check(&self, entries: &[Committed]) -> Result<(), SinkError> {
        let horizon = self.head.prev_rollup.as_ref().map_or(0, |prev| prev.end_seq);
        let first = (horizon + 1).max(self.head.entry_floor);
        let retained = entries.get(entries.partition_point(|entry| entry.seq < first)..).unwrap_or_default();
        let keys = retained.iter().map(|entry| entry.key.clone()).collect();
        let (keys, read) = if retained.len() > MOST_CROSS_READ && self.depth < Depth::Deep {
            (self.not_shown(keys).await?, false)
        } else {
            (keys, true)
        };
        let ahead = parking_lot::Mutex::new(self.frames(keys.clone()).await?);
        let asked: HashSet<String> = keys.into_iter().collect();
        for committed in retained.iter().filter(|entry| read || asked.contains(&entry.key)) {
            let Content::Inventory(kept) = &committed.content else { continue };
            let link = EntryLink { seq: committed.seq, key: committed.key.clone(), sha256: committed.sha256 };
            let entry = self.entry(&link, &ahead).await?;
            if !agrees(kept, &entry) {
                let reason = "an inventory says something else of it".to_owned();
                return Err(Alarm::Contradiction { key: link.key, reason }.into());
            }
        }
        Ok(())
    }

    /// Which entries a listing does not show. What it shows has its hash in its key.
    async fn not_shown(&self, keys: Vec<String>) -> Result<Vec<String>, SinkError> {
        let mut missing: HashSet<String> = keys.into_iter().collect();
        read::list(self.env, &self.root.entries(), self.patience, |meta| {
            missing.remove(&meta.key);
            missing.is_empty()
        })
        .await?;
        Ok(missing.into_iter().collect())
    }

    /// One object of the manifest.
    pub(super) async fn object<T: DeserializeOwned>(
        &self,
        kind: Kind,
        key: &str,
        sha256: Digest,
    ) -> Result<T, SinkError> {
        framed(self.env, self.patience, kind, key, sha256).await
    }
}

/// What the current rollup must have said, told by others.
#[derive(Debug)]
pub(in crate::run) struct Reproduced {
    /// The generation before.
    pub prev: Option<Rollup>,
    /// Those of its inventories that stay.
    pub inventories: Vec<InventoryRef>,
    /// The chain up to their end.
    pub chain: Digest,
    /// The entries after them, up to the current rollup's end.
    pub entries: Vec<Committed>,
}

/// The current rollup from the one before it and the entries after that; from the entries alone where the one before
/// does not help, and none of them may be gone. Its end and HEAD's chain are what they must be.
///
/// # Errors
/// What can't be read, or contradicts: then nothing proves what the rollup said.
pub(in crate::run) async fn reproduced(
    env: &Env,
    root: &PipelineRoot,
    head: &Head,
    patience: &Patience,
) -> Result<Reproduced, SinkError> {
    let of = Verification { env, root, patience, head, depth: Depth::Manifest };
    let Some(current) = of.current()? else {
        return Err(of.contradiction("it has no rollup".to_owned()));
    };
    let (prev, known) = match &head.prev_rollup {
        None => (None, Ok(Vec::new())),
        Some(link) => {
            let rollup = of.generation(link).await?;
            let known = of.covered(link, &rollup).await;
            (Some(rollup), known)
        }
    };
    let (before, inventories) = match known {
        Ok(entries) => (entries, prev.as_ref().map(|of| of.inventories.clone()).unwrap_or_default()),
        Err(SinkError::Integrity(alarm)) if head.entry_floor == 1 => {
            tracing::warn!(%alarm, "the rollup before does not help, and every entry must still be there");
            (Vec::new(), Vec::new())
        }
        Err(error) => return Err(error),
    };
    let extended = |chain: Digest, entries: &[Committed]| {
        entries.iter().fold(chain, |chain, entry| chain::extend(chain, entry.seq, entry.sha256))
    };
    let chain = extended(chain::origin(head.stream_id), &before);
    let mut entries = of.tail(Base::after(before.last())).await?;
    let all = extended(chain, &entries);
    entries.retain(|entry| entry.seq <= current.end_seq);
    let end = extended(chain, &entries);
    if all == head.chain && end == current.end_chain {
        return Ok(Reproduced { prev, inventories, chain, entries });
    }
    let reason = format!(
        "the entries' chain is {end} at entry {} and {all} at the last, {} and {} are recorded",
        current.end_seq, current.end_chain, head.chain
    );
    Err(of.contradiction(reason))
}

/// An inventory's record of an entry is what the entry says, as far as the inventory's writer kept it.
fn agrees(kept: &InventoryEntry, entry: &Entry) -> bool {
    let as_entry = rollup::kept(&kept.entry_key, kept.entry_sha256, entry);
    let objects = as_entry.objects.iter().zip(&kept.objects).map(|(object, kept)| InventoryObject {
        format: kept.format.as_ref().and(object.format.clone()),
        compression: kept.compression.as_ref().and(object.compression.clone()),
        schema_fingerprint: kept.schema_fingerprint.and(object.schema_fingerprint),
        row_seq_digest: kept.row_seq_digest.and(object.row_seq_digest),
        extra: kept.extra.clone(),
        ..object.clone()
    });
    let as_kept = InventoryEntry {
        objects: objects.collect(),
        nonce: kept.nonce.and(as_entry.nonce),
        kind: kept.kind.and(as_entry.kind),
        reason: kept.reason.as_ref().and(as_entry.reason.clone()),
        extra: kept.extra.clone(),
        ..as_entry.clone()
    };
    as_kept == *kept && as_entry.objects.len() == kept.objects.len()
}

/// One object, by key and hash.
pub(in crate::run) async fn framed<T: DeserializeOwned>(
    env: &Env,
    patience: &Patience,
    kind: Kind,
    key: &str,
    sha256: Digest,
) -> Result<T, SinkError> {
    let verify = |bytes: &Bytes| {
        let found = Digest::of(bytes);
        if found != sha256 {
            let what = kind.name();
            return Err(Alarm::DigestMismatch { what, key: key.to_owned(), found, recorded: sha256 }.into());
        }
        frame::decode(kind, bytes)
            .map(|(_, body)| body)
            .map_err(|error| SinkError::of_frame(kind, key, error))
    };
    match read::verified(env, key, patience, verify).await? {
        Some(body) => Ok(body),
        None => Err(Alarm::MissingReferenced { what: kind.name(), key: key.to_owned(), hint: "" }.into()),
    }
}
