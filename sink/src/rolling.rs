//! `legacy_rolling`: rows go into one growing file a table, and are acknowledged before that file is in the bucket.
//!
//! For rollback and compatibility only, and never a default (operations guide, "Rollback"). A crash loses what was
//! acknowledged and not yet rolled. Nothing below `{prefix}/{pipeline}/` is read or written: of the durable stream
//! only this host's record is kept on, which says how far was acknowledged without the manifest, so that the
//! return to `durable_v2` can make the window visible by a `rebase` entry.

mod file;
mod name;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::time::{Duration, Instant};

use self::file::{Door, File};
use crate::env::Env;
use crate::error::SinkError;
use crate::local::Checkpoints;
use crate::metrics::Metrics;
use crate::model::checkpoint::{Acked, Checkpoint, Mode};
use crate::model::ids::Digest;
use crate::model::key::TableSegment;
use crate::model::position::{Position, PositionRecord};
use crate::sink::Batch;
use crate::store::multipart::MultipartStore;

/// Bytes of a part: enough for 10 000 of them to hold the largest file that may be configured.
pub const PART_BYTES: usize = 8 << 20;

/// How files are rolled.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What every key begins with, without a slash at either end.
    pub prefix: String,
    /// Bytes at which a file is rolled; a batch's rows of a table stay together.
    pub max_bytes: u64,
    /// Age of its first row at which a file is rolled, in milliseconds.
    pub max_age_ms: u64,
    /// Bytes of a part, at least 5 MiB on AWS.
    pub part_bytes: usize,
    /// How long each question to the store is asked, in milliseconds.
    pub patience_ms: u64,
    /// What is counted.
    pub metrics: Metrics,
}

/// What is shown of a sink that rolls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RollingStatus {
    /// `legacy_rolling`.
    pub mode: Mode,
    /// Up to where was acknowledged.
    pub watermark: Option<Digest>,
    /// Rows that were acknowledged and are lost if the process ends now.
    pub unrolled_rows: u64,
    /// Files that are growing.
    pub open_files: u64,
}

/// A sink that rolls.
#[derive(Debug)]
pub struct Rolling {
    env: Env,
    uploads: Arc<dyn MultipartStore>,
    settings: Settings,
    checkpoints: Arc<dyn Checkpoints>,
    local: Checkpoint,
    files: BTreeMap<TableSegment, File>,
}

impl Rolling {
    /// Goes on where this host's record ends. The bucket is asked for nothing.
    ///
    /// # Errors
    /// Of the record.
    pub async fn open(
        env: Env,
        uploads: Arc<dyn MultipartStore>,
        settings: Settings,
        checkpoints: Arc<dyn Checkpoints>,
    ) -> Result<Self, SinkError> {
        let local = checkpoints.load().await?;
        settings.metrics.non_durable_ack_mode.set(1);
        tracing::warn!(
            max_bytes = settings.max_bytes,
            max_age_ms = settings.max_age_ms,
            "NOT DURABLE: legacy_rolling acknowledges rows before they are in the bucket, and a crash loses them; \
             remove `durability: legacy_rolling` to return to durable_v2"
        );
        Ok(Self { env, uploads, settings, checkpoints, local, files: BTreeMap::new() })
    }

    /// Where the source goes on: behind what this host acknowledged last, in either mode.
    ///
    /// # Errors
    /// [`SinkError::Configuration`] for a record with a position of another release.
    pub fn resume(&self) -> Result<Option<Position>, SinkError> {
        let position = self.local.acked.as_ref().map(|acked| Position::try_from(&acked.position)).transpose();
        position.map_err(|error| SinkError::Configuration(format!("the local checkpoint: {error}")))
    }

    /// Takes a batch and writes down that it is acknowledged: its rows are in memory, or in an upload that nobody
    /// sees yet. Files that are large enough are rolled behind that.
    ///
    /// # Errors
    /// [`SinkError::StoreUnavailable`], [`SinkError::Denied`]: what was acknowledged and not rolled is lost.
    pub async fn accept(&mut self, batch: Batch) -> Result<(), SinkError> {
        let now = Instant::now();
        for object in &batch.objects {
            let table = TableSegment::new(&object.namespace, &object.table)?;
            if !self.files.contains_key(&table) {
                let key = name::key(
                    &self.settings.prefix,
                    &table,
                    self.env.clock.now_ms(),
                    *self.env.ids.nonce().as_bytes(),
                    object.extension,
                );
                self.files.insert(table.clone(), File::new(key, now));
            }
            if let Some(file) = self.files.get_mut(&table) {
                file.append(object);
            }
        }
        let seq = self.local.acked.as_ref().map_or(0, |acked| acked.seq);
        let position = PositionRecord::from(&batch.position);
        self.local = Checkpoint {
            acked: Some(Acked { position, seq }),
            mode: Mode::LegacyRolling,
            ..self.local.clone()
        };
        self.checkpoints.save(self.local.clone()).await?;
        let metrics = &self.settings.metrics;
        metrics.batches_acknowledged_total.inc();
        metrics.events_acknowledged_total.inc_by(batch.events);
        metrics.set_watermark(&batch.position.digest());
        self.show();
        Ok(())
    }

    /// Sends whole parts, and rolls the files that are large or old enough at `now`.
    ///
    /// # Errors
    /// Those of [`Rolling::accept`].
    pub async fn roll_due(&mut self, now: Instant) -> Result<(), SinkError> {
        let mut due = Vec::new();
        for (table, file) in &mut self.files {
            let door = Door {
                env: &self.env,
                uploads: &*self.uploads,
                patience_ms: self.settings.patience_ms,
                part_bytes: self.settings.part_bytes,
            };
            if file.bytes >= self.settings.max_bytes || self.settings.rolls_at(file) <= now {
                due.push(table.clone());
            } else {
                file.send_full_parts(door).await?;
            }
        }
        self.roll(due).await
    }

    /// When the oldest file is old enough.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.files.values().map(|file| self.settings.rolls_at(file)).min()
    }

    /// Rolls everything.
    ///
    /// # Errors
    /// Those of [`Rolling::accept`].
    pub async fn close(mut self) -> Result<(), SinkError> {
        let all = self.files.keys().cloned().collect();
        self.roll(all).await
    }

    /// What is shown.
    #[must_use]
    pub fn status(&self) -> RollingStatus {
        RollingStatus {
            mode: Mode::LegacyRolling,
            watermark: self.local.acked.as_ref().map(|acked| acked.position.digest),
            unrolled_rows: self.files.values().map(|file| file.rows).sum(),
            open_files: self.files.len() as u64,
        }
    }

    async fn roll(&mut self, tables: Vec<TableSegment>) -> Result<(), SinkError> {
        for table in tables {
            let Some(file) = self.files.get_mut(&table) else { continue };
            let door = Door {
                env: &self.env,
                uploads: &*self.uploads,
                patience_ms: self.settings.patience_ms,
                part_bytes: self.settings.part_bytes,
            };
            file.send_full_parts(door).await?;
            file.finish(door).await?;
            // Only now: until it is rolled its rows are counted as those that a crash loses.
            self.files.remove(&table);
            self.settings.metrics.rolled_files_total.inc();
            self.show();
        }
        Ok(())
    }

    fn show(&self) {
        let rows = self.status().unrolled_rows;
        self.settings.metrics.unrolled_rows.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }
}

impl Settings {
    fn rolls_at(&self, file: &File) -> Instant {
        file.opened + Duration::from_millis(self.max_age_ms)
    }
}

#[cfg(test)]
mod tests;
