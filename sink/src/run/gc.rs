//! Collecting entries: marks first, then the floor, then the deletes. What a process needs to know beyond HEAD is
//! found in the bucket, so that the next one goes on where this one was stopped.

use serde::Serialize;
use tokio::time::Instant;

use crate::env::Env;
use crate::error::SinkError;
use crate::model::frame::Kind;
use crate::model::head::Head;
use crate::model::key::{ObjectName, PipelineRoot};
use crate::model::mark::{Mark, MarkedEntry};
use crate::plan::gc::{self, Clocks, Delete, ExpirePlan, MarkPlan, Policy};
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::recover::framed;
use crate::stop::Stopped;

mod expire;
mod mark;

pub use expire::{ExpireReport, expire};
pub use mark::{MarkReport, mark};

/// What one process remembers between its runs.
#[derive(Debug, Default)]
pub struct Memory {
    /// A generation of rollup, and when this process first saw that it is current.
    seen: Option<(u64, Instant)>,
    /// Marks whose entries may still be there, by first entry; nothing before the bucket was looked through.
    pending: Option<Vec<Pending>>,
}

/// A mark whose entries may still be there.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    mark: Mark,
    /// Whether the rollup that is current was seen to say the same.
    verified: bool,
    /// What may be there.
    left: Vec<MarkedEntry>,
}

impl Memory {
    /// How long this process has known the current generation, in milliseconds.
    fn seen_ms(&mut self, head: &Head) -> u64 {
        let generation = head.rollup.as_ref().map_or(0, |of| of.generation);
        match self.seen {
            Some((seen, at)) if seen == generation => {
                u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)
            }
            _ => {
                self.seen = Some((generation, Instant::now()));
                0
            }
        }
    }

    /// The last entry that is marked or collected.
    fn marked(&self, head: &Head) -> u64 {
        let pending = self.pending.iter().flatten().map(|pending| pending.mark.to_seq).max();
        pending.unwrap_or(0).max(head.entry_floor.saturating_sub(1))
    }

    /// Finds the marks of earlier processes whose entries may still be there, once in a process's life: those that
    /// reach the floor, and those that a run left unfinished below it.
    async fn look(
        &mut self,
        env: &Env,
        root: &PipelineRoot,
        head: &Head,
        patience: &Patience,
    ) -> Result<(), SinkError> {
        if self.pending.is_some() {
            return Ok(());
        }
        let floor = head.entry_floor;
        let left = left_below(env, root, floor, patience).await?;
        let mut found = Vec::new();
        read::list(env, &root.marks(), patience, |meta| {
            match root.parse(&meta.key) {
                Some(ObjectName::Mark { from, to, content, .. }) => {
                    let unfinished = left.iter().any(|(seq, _)| (from..=to).contains(seq));
                    if to >= floor || unfinished {
                        found.push((meta.key, content, to >= floor));
                    }
                }
                _ => tracing::warn!(key = meta.key, "an object among the marks whose name is none of a mark"),
            }
            false
        })
        .await?;
        let mut pending = Vec::new();
        for (key, content, whole) in found {
            let mark: Mark = framed(env, patience, Kind::Mark, &key, content).await?;
            let there = |entry: &&MarkedEntry| whole || left.iter().any(|(_, key)| *key == entry.key);
            let left: Vec<MarkedEntry> = mark.entries.iter().filter(there).cloned().collect();
            if !left.is_empty() {
                pending.push(Pending { key, mark, verified: false, left });
            }
        }
        pending.sort_by_key(|pending| (pending.mark.from_seq, pending.mark.to_seq));
        if !pending.is_empty() {
            tracing::info!(marks = pending.len(), floor, "found marks whose entries may still be there");
        }
        self.pending = Some(pending);
        Ok(())
    }
}

/// Entries below the floor that a listing still shows, with their keys. Their names only tell where to look.
async fn left_below(
    env: &Env,
    root: &PipelineRoot,
    floor: u64,
    patience: &Patience,
) -> Result<Vec<(u64, String)>, SinkError> {
    let mut left = Vec::new();
    if floor <= 1 {
        return Ok(left);
    }
    read::list(env, &root.entries(), patience, |meta| match root.parse(&meta.key) {
        Some(ObjectName::Entry { seq, .. }) if seq < floor => {
            left.push((seq, meta.key));
            false
        }
        // Names are in the order of entries.
        Some(ObjectName::Entry { .. }) => true,
        _ => false,
    })
    .await?;
    Ok(left)
}

/// What would be marked now, as if this process had known the current rollup for long enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkPreview {
    /// Which, and why.
    pub plan: MarkPlan,
    /// The entries, as the current rollup has them.
    pub marks: Vec<Delete>,
}

/// What would be marked now. Only reads, and needs no ownership. Nothing, if there is no stream.
///
/// # Errors
/// A [`Stopped`] as the actor stops.
pub async fn plan_mark(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Option<MarkPreview>, Stopped> {
    let Some((view, store_ms)) = read::dated_view(env, root, patience).await? else { return Ok(None) };
    let head = &view.head;
    let mut memory = Memory::default();
    memory.look(env, root, head, patience).await?;
    let clocks = Clocks { owner_ms: env.clock.now_ms(), store_ms, seen_ms: u64::MAX };
    let plan = gc::mark(head, memory.marked(head), &clocks, policy)?;
    let mut marks = Vec::new();
    if let (Some(range), Some(current)) = (plan.range, &head.rollup) {
        let entries = mark::replaced(env, head, current, range, patience).await?;
        marks.extend(entries.into_iter().map(|MarkedEntry { seq, key, .. }| Delete {
            seq,
            key,
            reason: plan.reason.clone(),
        }));
    }
    Ok(Some(MarkPreview { plan, marks }))
}

/// What is marked already and would be deleted now. Only reads, and needs no ownership.
///
/// # Errors
/// A [`Stopped`] as the actor stops.
pub async fn plan_expire(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Vec<ExpirePlan>, Stopped> {
    let Some((view, store_ms)) = read::dated_view(env, root, patience).await? else { return Ok(Vec::new()) };
    let mut memory = Memory::default();
    memory.look(env, root, &view.head, patience).await?;
    let pending = memory.pending.as_deref().unwrap_or_default();
    if !pending.is_empty() {
        let clocks = Clocks { owner_ms: env.clock.now_ms(), store_ms, seen_ms: u64::MAX };
        clocks.certain(policy)?;
    }
    pending.iter().map(|pending| gc::expire(&view.head, &pending.key, &pending.mark, &pending.left)).collect()
}
