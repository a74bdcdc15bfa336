//! Every key that HEAD reaches: what must be there, and what nobody but its own actor may delete.

use std::collections::HashSet;

use super::{Committed, Recovered, framed};
use crate::env::Env;
use crate::error::SinkError;
use crate::model::compaction::CompactionRecord;
use crate::model::frame::Kind;
use crate::model::head::Head;
use crate::model::key::PipelineRoot;
use crate::model::rollup::Rollup;
use crate::run::patience::Patience;

/// The keys that one HEAD reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Keys of objects that must exist, sorted by their bytes, each once.
    pub required: Vec<String>,
    /// Keys of originals that compaction has replaced: there until the actor that deletes them was there.
    pub replaced: HashSet<String>,
}

impl Reach {
    /// Everything that the HEAD of `recovered` reaches: entries from the floor on, every generation of rollup and
    /// every inventory that one of them names, live data.
    ///
    /// # Errors
    /// Those of [`super::recover`] for rollups before the previous one, which it does not read.
    pub async fn of(
        env: &Env,
        root: &PipelineRoot,
        patience: &Patience,
        recovered: &Recovered,
    ) -> Result<Self, SinkError> {
        let head = &recovered.view.head;
        let live: HashSet<String> = recovered.live().into_iter().map(|object| object.key).collect();
        let data = recovered.entries.iter().flat_map(Committed::objects);
        let replaced = data.map(|object| object.key).filter(|key| !live.contains(*key));
        let replaced = replaced.map(str::to_owned).collect();
        let mut required: Vec<String> = live.into_iter().collect();
        required.extend(head.last_entry.iter().map(|last| last.key.clone()));
        let entries = recovered.entries.iter().filter(|entry| entry.seq >= head.entry_floor);
        required.extend(entries.map(|entry| entry.key.clone()));
        required.extend(head.compaction.iter().map(|of| of.last.key.clone()));
        required.push(root.head());
        required.extend(rollups(env, patience, head).await?);
        required.sort_unstable();
        required.dedup();
        Ok(Self { required, replaced })
    }

    /// Whether HEAD reaches `key`.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.is_required(key) || self.replaced.contains(key)
    }

    /// Whether there must be an object at `key`.
    #[must_use]
    pub fn is_required(&self, key: &str) -> bool {
        self.required.binary_search_by(|known| known.as_str().cmp(key)).is_ok()
    }
}

/// Keys of every generation of rollup, and of the inventories that they name.
async fn rollups(env: &Env, patience: &Patience, head: &Head) -> Result<Vec<String>, SinkError> {
    let mut keys = Vec::new();
    let mut link = head.rollup.as_ref().map(|of| (of.key.clone(), of.sha256));
    while let Some((key, sha256)) = link {
        let rollup: Rollup = framed(env, patience, Kind::Rollup, &key, sha256).await?;
        keys.push(key);
        keys.extend(rollup.inventories.into_iter().map(|inventory| inventory.key));
        link = rollup.prev.map(|prev| (prev.key, prev.sha256));
    }
    Ok(keys)
}

/// What compaction records name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Keys of the records themselves.
    pub keys: Vec<String>,
    /// Keys of their inputs, and of outputs that were not proven equal.
    pub others: HashSet<String>,
}

impl Records {
    /// Every record that `head` reaches, followed backwards.
    ///
    /// # Errors
    /// A record that is missing or damaged, a refusal, or no answer.
    pub async fn of(env: &Env, patience: &Patience, head: &Head) -> Result<Self, SinkError> {
        let (mut keys, mut others) = (Vec::new(), HashSet::new());
        let mut link = head.compaction.as_ref().map(|of| of.last.clone());
        while let Some(of) = link {
            let record: CompactionRecord =
                framed(env, patience, Kind::Compaction, &of.key, of.sha256).await?;
            keys.push(of.key);
            others.extend(record.inputs.into_iter().map(|input| input.key));
            if !record.equivalence.equal {
                others.extend(record.outputs.into_iter().map(|output| output.key));
            }
            link = record.prev;
        }
        Ok(Self { keys, others })
    }
}

/// What the entries after the first `before` reach besides: themselves and their data.
#[must_use]
pub fn since(recovered: &Recovered, before: usize) -> HashSet<String> {
    let entries = recovered.entries.get(before..).unwrap_or_default();
    let data = entries.iter().flat_map(Committed::objects).map(|object| object.key);
    data.chain(entries.iter().map(|entry| entry.key.as_str())).map(str::to_owned).collect()
}

/// Whether nothing but published entries came between two revisions of HEAD.
#[must_use]
pub fn only_published(before: &Head, after: &Head) -> bool {
    before.rollup == after.rollup
        && before.prev_rollup == after.prev_rollup
        && before.compaction == after.compaction
        && before.entry_floor == after.entry_floor
}
