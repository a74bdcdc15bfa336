//! A batch's way into the bucket: data objects side by side, then its entry, then the swap of HEAD. Three round
//! trips, and no read on the way unless an object was there before.

use std::sync::Arc;

use bytes::Bytes;
use prometheus::Histogram;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::local::Checkpoints;
use crate::metrics::Metrics;
use crate::model::checkpoint::{Acked, Checkpoint, Mode};
use crate::model::entry::{ObjectRecord, batch_digest};
use crate::model::frame::Kind;
use crate::model::head::Head;
use crate::model::ids::{Digest, StreamId};
use crate::model::key::PipelineRoot;
use crate::model::position::PositionRecord;
use crate::model::view::View;
use crate::plan::change::{self, Change};
use crate::plan::commit::{self, Commit, Draft};
use crate::point::{self, Point};
use crate::run::create::{self, Created};
use crate::run::in_flight::{Held, InFlight};
use crate::run::parallel::in_parallel;
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::swap::{Swap, Swapped, metadata};
use crate::stop::Stopped;

/// An object that is about to be written.
#[derive(Clone, Debug)]
pub struct PlannedObject {
    /// What the entry will say of it.
    pub record: ObjectRecord,
    /// What it holds.
    pub bytes: Bytes,
}

/// A batch whose keys are known.
#[derive(Clone, Debug)]
pub struct PlannedBatch {
    /// What the entry will say, but for the objects.
    pub draft: Draft,
    /// The objects.
    pub objects: Vec<PlannedObject>,
}

impl PlannedBatch {
    /// The identity of its content.
    #[must_use]
    pub fn batch_digest(&self) -> Digest {
        let mut objects: Vec<_> =
            self.objects.iter().map(|object| (object.record.key.as_str(), &object.record.sha256)).collect();
        objects.sort_by_key(|(key, _)| key.as_bytes());
        batch_digest(objects)
    }
}

/// A batch whose objects are in the bucket.
#[derive(Debug)]
pub struct Uploaded {
    /// What to commit.
    pub draft: Draft,
    /// Objects that were there before: somebody may be about to delete them for being old and unreachable.
    pub adopted: Vec<PlannedObject>,
    /// Their keys, which nothing in this process deletes meanwhile.
    pub held: Held,
}

/// Writes a batch's objects, side by side, as far as `permits` allow.
///
/// # Errors
/// Those of [`create::create`].
pub async fn upload(
    env: Env,
    stream_id: StreamId,
    batch: PlannedBatch,
    permits: Arc<Semaphore>,
    in_flight: InFlight,
    metrics: Metrics,
) -> Result<Uploaded, SinkError> {
    let PlannedBatch { mut draft, objects } = batch;
    let keys = objects.iter().map(|object| object.record.key.clone()).collect();
    let held = in_flight.hold(keys).await;
    let stage = Stage::begin(&metrics, "data");
    let written = in_parallel(objects.len(), objects, |object| {
        let (env, permits) = (env.clone(), Arc::clone(&permits));
        async move { write_object(&env, stream_id, object, &permits).await }
    })
    .await?;
    stage.end();
    let mut adopted = Vec::new();
    for (object, created) in written {
        let etag = created.etag.map(|etag| etag.0);
        draft.objects.push(ObjectRecord { etag, ..object.record.clone() });
        if created.adopted {
            adopted.push(object);
        }
    }
    point::reach(Point::PubAfterData);
    Ok(Uploaded { draft, adopted, held })
}

async fn write_object(
    env: &Env,
    stream_id: StreamId,
    object: PlannedObject,
    permits: &Semaphore,
) -> Result<(PlannedObject, Created), SinkError> {
    let _permit =
        permits.acquire().await.map_err(|_| SinkError::Internal("uploads were closed".to_owned()))?;
    let metadata = [("dfs3-stream".to_owned(), stream_id.to_string())];
    let created =
        create::create(env, &object.record.key, &object.bytes, &metadata, Patience::unlimited()).await?;
    Ok((object, created))
}

/// The one writer of a stream's HEAD and of this host's record.
#[derive(Debug)]
pub struct Publisher {
    /// What it runs in.
    pub env: Env,
    /// Whose HEAD.
    pub root: PipelineRoot,
    /// This host's record.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// What it counts.
    pub metrics: Metrics,
    /// Keys that are being written, or deleted.
    pub in_flight: InFlight,
    /// HEAD, as this process wrote it last.
    pub view: View,
    /// The record, as it was saved last.
    pub local: Checkpoint,
}

impl Publisher {
    /// Commits batches whose objects are in the bucket, in their order, by one swap. When it is done, they are
    /// durable and this host's record says so.
    ///
    /// # Errors
    /// [`SinkError::Fenced`], an alarm, or what else ends a sink. Nothing was acknowledged then, and nothing is
    /// taken back: what the swap did may still be unknown.
    pub async fn commit(&mut self, batches: Vec<Uploaded>, patience: &Patience) -> Result<(), SinkError> {
        let (mut drafts, mut adopted, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for batch in batches {
            drafts.push(batch.draft);
            adopted.extend(batch.adopted);
            held.push(batch.held);
        }
        let (ids, now_ms) = (&self.env.ids, self.env.clock.now_ms());
        let commit = commit::commit(&self.root, &self.view.head, drafts, || ids.nonce(), now_ms)?;
        let keys = commit.entries.iter().map(|entry| entry.key.clone()).collect();
        held.push(self.in_flight.hold(keys).await);
        // If this ends early, what the swap did may never be known here: nothing of it is deleted.
        held.iter_mut().for_each(Held::pin);
        // Neither waits for the other: the hint must be there before the swap, and so must the entries.
        self.local.hint = commit.hint();
        let hinted = self.checkpoints.save(self.local.clone());
        let (written, hinted) = tokio::join!(self.write_entries(&commit, patience), hinted);
        written?;
        point::reach(Point::PubAfterEntry);
        hinted?;
        point::reach(Point::PubBeforeCas);
        self.swap(&commit, patience).await?;
        point::reach(Point::PubAfterCas);
        for object in adopted {
            self.secure(&object, patience).await?;
        }
        held.into_iter().for_each(Held::release);
        self.acknowledge(&commit).await?;
        point::reach(Point::PubBeforeAck);
        Ok(())
    }

    /// Changes HEAD without committing an entry. The outer error ends the sink, the inner one only whoever asked.
    ///
    /// # Errors
    /// Those of [`Publisher::commit`].
    pub async fn change(
        &mut self,
        change: &Change,
        patience: &Patience,
    ) -> Result<Result<View, Stopped>, SinkError> {
        let (nonce, now_ms) = (self.env.ids.nonce(), self.env.clock.now_ms());
        let next = match change::change(&self.view.head, change, nonce, now_ms) {
            Ok(next) => next,
            Err(stopped) => return Ok(Err(stopped)),
        };
        self.swap_to(&next, patience).await?;
        Ok(Ok(self.view.clone()))
    }

    async fn swap_to(&mut self, next: &Head, patience: &Patience) -> Result<(), SinkError> {
        let swap = Swap { env: &self.env, root: &self.root, metrics: &self.metrics, base: &self.view, next };
        match swap.apply(patience.renewed()).await? {
            Swapped::Applied(view) => self.view = view,
            Swapped::Conflict(view) => return Err(Alarm::UnknownWrite { rev: view.head.rev }.into()),
        }
        Ok(())
    }

    /// Entries name each other by hash and are reached by the last alone, so their order does not matter.
    async fn write_entries(&self, commit: &Commit, patience: &Patience) -> Result<(), SinkError> {
        let stage = Stage::begin(&self.metrics, "entry");
        let metadata: Arc<[_]> = metadata(Kind::Entry, &commit.head).into();
        in_parallel(commit.entries.len(), commit.entries.clone(), |entry| {
            let (env, metadata, patience) = (self.env.clone(), Arc::clone(&metadata), patience.renewed());
            async move { create::create(&env, &entry.key, &entry.bytes, &metadata, patience).await }
        })
        .await?;
        stage.end();
        Ok(())
    }

    async fn swap(&mut self, commit: &Commit, patience: &Patience) -> Result<(), SinkError> {
        let stage = Stage::begin(&self.metrics, "cas");
        self.swap_to(&commit.head, patience).await?;
        stage.end();
        for entry in &commit.entries {
            let record = &entry.entry.position;
            tracing::debug!(seq = entry.entry.seq, digest = %record.digest, position = record.text, "committed");
        }
        Ok(())
    }

    /// An adopted object was old, and unreachable until now: it is looked for once more, and written again if
    /// somebody had just decided to delete it.
    async fn secure(&self, object: &PlannedObject, patience: &Patience) -> Result<(), SinkError> {
        let key = &object.record.key;
        loop {
            match read::meta(&self.env, key, patience.renewed()).await? {
                Some(meta) if meta.size == object.record.size => return Ok(()),
                Some(meta) => {
                    let (found, recorded) = (meta.size, object.record.size);
                    return Err(Alarm::SizeMismatch { key: key.clone(), found, recorded }.into());
                }
                None => {
                    tracing::warn!(key, "an adopted object was deleted, writing it again");
                    let stream = self.view.head.stream_id.to_string();
                    let metadata = [("dfs3-stream".to_owned(), stream)];
                    create::create(&self.env, key, &object.bytes, &metadata, patience.renewed()).await?;
                }
            }
        }
    }

    /// One transaction: what is acknowledged, and that nothing is about to be tried.
    async fn acknowledge(&mut self, commit: &Commit) -> Result<(), SinkError> {
        let Some(last) = commit.entries.last() else { return Ok(()) };
        self.local = acknowledged(&self.local, last.entry.position.clone(), last.entry.seq);
        self.checkpoints.save(self.local.clone()).await
    }
}

/// The record after everything up to entry `seq` was acknowledged from HEAD.
#[must_use]
pub fn acknowledged(before: &Checkpoint, position: PositionRecord, seq: u64) -> Checkpoint {
    Checkpoint {
        stream_id: before.stream_id,
        acked: Some(Acked { position, seq }),
        mode: Mode::DurableV2,
        hint: None,
    }
}

/// A part of a publish, timed.
struct Stage {
    seconds: Histogram,
    begun: Instant,
}

impl Stage {
    fn begin(metrics: &Metrics, name: &'static str) -> Self {
        Self { seconds: metrics.stage_seconds(name), begun: Instant::now() }
    }

    fn end(self) {
        self.seconds.observe(self.begun.elapsed().as_secs_f64());
    }
}
