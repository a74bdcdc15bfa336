//! Rollups: the current generation covers every entry up to its end; the one before it must agree.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{Committed, Content, Depth, PARALLEL, Verification};
use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::chain;
use crate::model::entry::EntryLink;
use crate::model::frame::{self, Kind};
use crate::model::head::RollupRef;
use crate::model::ids::Digest;
use crate::model::position::Position;
use crate::model::rollup::{Inventory, InventoryRef, PrevRollup, Rollup};
use crate::run::parallel::in_parallel;
use crate::run::patience::Patience;
use crate::run::read;

impl Verification<'_> {
    /// Every entry that the current rollup covers, and the chain up to its end.
    pub(super) async fn rolled_up(&self) -> Result<(Vec<Committed>, Digest), SinkError> {
        let origin = chain::origin(self.head.stream_id);
        let Some(current) = &self.head.rollup else {
            if self.head.prev_rollup.is_some() || self.head.entry_floor > 1 {
                let reason = "it has an earlier rollup or a floor, and no current rollup".to_owned();
                return Err(self.contradiction(reason));
            }
            return Ok((Vec::new(), origin));
        };
        let rollup = self.generation(current).await?;
        self.earlier_generations(&rollup).await?;
        let (entries, chain) = self.inventories(&current.key, &rollup, origin).await?;
        if chain != current.end_chain || chain != rollup.end_chain {
            let reason = format!("the inventories' chain is {chain}, {} is recorded", current.end_chain);
            return Err(Alarm::Contradiction { key: current.key.clone(), reason }.into());
        }
        self.check_end(current, &rollup, entries.last())?;
        self.cross_check(&entries).await?;
        Ok((entries, chain))
    }

    async fn generation(&self, of: &RollupRef) -> Result<Rollup, SinkError> {
        let rollup: Rollup = self.object(Kind::Rollup, &of.key, of.sha256).await?;
        let agrees = rollup.stream_id == self.head.stream_id
            && rollup.generation == of.generation
            && rollup.end_seq == of.end_seq
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

    /// The entries of all inventories, which cover 1 to the end without gap or overlap.
    async fn inventories(
        &self,
        key: &str,
        rollup: &Rollup,
        mut chain: Digest,
    ) -> Result<(Vec<Committed>, Digest), SinkError> {
        let read = in_parallel(PARALLEL, rollup.inventories.clone(), |of: InventoryRef| {
            let (env, patience) = (self.env.clone(), self.patience.renewed());
            async move {
                let inventory: Inventory =
                    framed(&env, &patience, Kind::Inventory, &of.key, of.sha256).await?;
                Ok((of, inventory))
            }
        })
        .await?;
        let mut entries: Vec<Committed> = Vec::new();
        for (of, inventory) in read {
            let contradiction = |reason: &str| -> SinkError {
                Alarm::Contradiction { key: of.key.clone(), reason: reason.to_owned() }.into()
            };
            if inventory.stream_id != self.head.stream_id
                || (inventory.from_seq, inventory.to_seq) != (of.from, of.to)
                || of.from != entries.len() as u64 + 1
            {
                return Err(contradiction("its stream or its range is not what the rollup says"));
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
        Ok((entries, chain))
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
        for committed in entries.iter().filter(|entry| entry.seq >= first) {
            let Content::Inventory(kept) = &committed.content else { continue };
            let link = EntryLink { seq: committed.seq, key: committed.key.clone(), sha256: committed.sha256 };
            let entry = self.entry(&link, &parking_lot::Mutex::default()).await?;
            let agrees = entry.position.digest == kept.digest
                && entry.epoch == kept.epoch
                && entry.objects.len() == kept.objects.len()
                && entry.objects.iter().zip(&kept.objects).all(|(object, kept)| {
                    object.key == kept.key
                        && object.sha256 == kept.sha256
                        && object.size == kept.size
                        && object.rows == kept.rows
                });
            if !agrees {
                let reason = "an inventory says something else of it".to_owned();
                return Err(Alarm::Contradiction { key: link.key, reason }.into());
            }
        }
        Ok(())
    }

    async fn object<T: DeserializeOwned>(
        &self,
        kind: Kind,
        key: &str,
        sha256: Digest,
    ) -> Result<T, SinkError> {
        framed(self.env, self.patience, kind, key, sha256).await
    }
}

/// One object, by key and hash.
async fn framed<T: DeserializeOwned>(
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
        None => {
            let hint = "; the retained entries and the previous rollup may still prove the chain";
            Err(Alarm::MissingReferenced { what: kind.name(), key: key.to_owned(), hint }.into())
        }
    }
}
