//! What HEAD has gained since its last rollup: what the next one is made of, without the entries before.

use super::tail::Base;
use super::{Committed, Depth, Verification};
use crate::env::Env;
use crate::error::SinkError;
use crate::model::chain;
use crate::model::head::Head;
use crate::model::ids::Digest;
use crate::model::key::PipelineRoot;
use crate::model::rollup::{InventoryRef, Rollup};
use crate::plan::fold::Compacted;
use crate::run::patience::Patience;

/// What came after a rollup, verified.
#[derive(Debug)]
pub struct Since {
    /// The rollup, if there is one.
    pub rollup: Option<Rollup>,
    /// The chain up to its end.
    pub chain: Digest,
    /// The entries after it.
    pub entries: Vec<Committed>,
    /// All compaction records.
    pub compacted: Compacted,
}

impl Since {
    /// The rollup's inventories.
    #[must_use]
    pub fn inventories(&self) -> &[InventoryRef] {
        self.rollup.as_ref().map_or(&[], |rollup| &rollup.inventories)
    }
}

/// Reads the current rollup and everything after it.
///
/// # Errors
/// Those of [`recover`](super::recover).
pub async fn since_rollup(
    env: &Env,
    root: &PipelineRoot,
    head: &Head,
    patience: &Patience,
) -> Result<Since, SinkError> {
    let verification = Verification { env, root, patience, head, depth: Depth::Manifest };
    let rollup = match &head.rollup {
        Some(current) => Some(verification.generation(current).await?),
        None => None,
    };
    let origin = chain::origin(head.stream_id);
    let chain = rollup.as_ref().map_or(origin, |rollup| rollup.end_chain);
    let entries = verification.tail(Base::end_of(rollup.as_ref())).await?;
    let end = entries.iter().fold(chain, |chain, entry| chain::extend(chain, entry.seq, entry.sha256));
    if end != head.chain {
        let reason = format!("the entries' chain after the rollup is {end}, HEAD has {}", head.chain);
        return Err(verification.contradiction(reason));
    }
    let compacted = verification.folded(rollup.as_ref()).await?;
    Ok(Since { rollup, chain, entries, compacted })
}
