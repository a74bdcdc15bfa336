//! The local checkpoint store: one record, replaced whole, so that each step is one transaction.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, DatabaseError, ReadableDatabase as _, TableDefinition, TableError};

use crate::error::SinkError;
use crate::model::checkpoint::Checkpoint;
use crate::model::frame;
use crate::model::json;
use crate::store::Pending;

/// Where one host keeps its record of a stream.
pub trait Checkpoints: fmt::Debug + Send + Sync {
    /// The record, or the empty one.
    fn load(&self) -> Pending<'_, Result<Checkpoint, SinkError>>;

    /// Replaces the record, durably and as a whole.
    fn save(&self, checkpoint: Checkpoint) -> Pending<'_, Result<(), SinkError>>;
}

/// For a host that keeps nothing: every start finds out from the bucket alone.
#[derive(Debug, Default)]
pub struct MemoryCheckpoints(Mutex<Checkpoint>);

impl Checkpoints for MemoryCheckpoints {
    fn load(&self) -> Pending<'_, Result<Checkpoint, SinkError>> {
        Box::pin(async { Ok(self.0.lock().clone()) })
    }

    fn save(&self, checkpoint: Checkpoint) -> Pending<'_, Result<(), SinkError>> {
        Box::pin(async {
            *self.0.lock() = checkpoint;
            Ok(())
        })
    }
}

const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("checkpoint");
const RECORD: &str = "record";

/// A redb file, locked by the process that has it open.
#[derive(Debug)]
pub struct DiskCheckpoints(Arc<Database>);

impl DiskCheckpoints {
    /// Opens the file, or makes it. Blocks on the disk.
    ///
    /// # Errors
    /// [`SinkError::Configuration`] if another process has it open or it can't be made,
    /// [`SinkError::Internal`] if it is damaged.
    pub fn open(path: &Path) -> Result<Self, SinkError> {
        let configuration =
            |error: &dyn fmt::Display| SinkError::Configuration(format!("checkpoint file {path:?}: {error}"));
        match Database::create(path) {
            Ok(database) => Ok(Self(Arc::new(database))),
            Err(DatabaseError::DatabaseAlreadyOpen) => Err(configuration(&"another process has it open")),
            Err(error) => Err(configuration(&error)),
        }
    }
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SinkError> + Send + 'static,
) -> Result<T, SinkError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(stopped) => Err(SinkError::Internal(format!("the checkpoint store stopped: {stopped}"))),
    }
}

fn failed(error: impl Into<redb::Error>) -> SinkError {
    SinkError::Internal(format!("checkpoint store: {}", error.into()))
}

fn read(database: &Database) -> Result<Checkpoint, SinkError> {
    let table = match database.begin_read().map_err(failed)?.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Checkpoint::default()),
        Err(error) => return Err(failed(error)),
    };
    let Some(record) = table.get(RECORD).map_err(failed)? else { return Ok(Checkpoint::default()) };
    decode(record.value())
}

fn write(database: &Database, record: &[u8]) -> Result<(), SinkError> {
    let transaction = database.begin_write().map_err(failed)?;
    transaction.open_table(TABLE).map_err(failed)?.insert(RECORD, record).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The record behind the version of its form.
#[derive(serde::Serialize, serde::Deserialize)]
struct Versioned<T> {
    version: u16,
    checkpoint: T,
}

fn encode(checkpoint: &Checkpoint) -> Vec<u8> {
    serde_json::to_vec(&Versioned { version: frame::MAJOR, checkpoint }).expect("the record's types are JSON")
}

fn decode(record: &[u8]) -> Result<Checkpoint, SinkError> {
    let damaged = |error| SinkError::Internal(format!("the local checkpoint is damaged: {error}"));
    let versioned: Versioned<serde_json::Value> = json::parse(record).map_err(damaged)?;
    if versioned.version != frame::MAJOR {
        return Err(SinkError::NewerWriter {
            key: "local checkpoint".to_owned(),
            reason: format!("version {}, this is {}", versioned.version, frame::MAJOR),
        });
    }
    serde_json::from_value(versioned.checkpoint).map_err(damaged)
}

impl Checkpoints for DiskCheckpoints {
    fn load(&self) -> Pending<'_, Result<Checkpoint, SinkError>> {
        let database = Arc::clone(&self.0);
        Box::pin(blocking(move || read(&database)))
    }

    fn save(&self, checkpoint: Checkpoint) -> Pending<'_, Result<(), SinkError>> {
        let database = Arc::clone(&self.0);
        Box::pin(blocking(move || write(&database, &encode(&checkpoint))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::{Acked, Hint, Mode};
    use crate::model::ids::{Digest, Nonce, StreamId};
    use crate::model::position::{Lineage, Position, PositionRecord, PositionType};

    fn checkpoint() -> Checkpoint {
        let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
        let position = Position::parse(PositionType::PgLsn, lineage, "16/B374D848", 0).unwrap();
        Checkpoint {
            stream_id: Some(StreamId::from_bytes([1; 16])),
            acked: Some(Acked { position: PositionRecord::from(&position), seq: u64::MAX }),
            mode: Mode::LegacyRolling,
            hint: Some(Hint {
                seq: 8,
                nonce: Nonce::from_bytes([2; 16]),
                digest: position.digest(),
                batch_digest: Digest::of(b"batch"),
            }),
        }
    }

    #[tokio::test]
    async fn the_record_outlives_the_process_and_belongs_to_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let store = DiskCheckpoints::open(&path).unwrap();
        assert_eq!(store.load().await.unwrap(), Checkpoint::default());
        store.save(checkpoint()).await.unwrap();
        let second = DiskCheckpoints::open(&path).unwrap_err();
        assert!(second.to_string().contains("another process has it open"), "{second}");
        drop(store);
        let store = DiskCheckpoints::open(&path).unwrap();
        assert_eq!(store.load().await.unwrap(), checkpoint());
        store.save(Checkpoint::default()).await.unwrap();
        assert_eq!(store.load().await.unwrap(), Checkpoint::default());
    }

    #[test]
    fn another_version_is_refused() {
        let record = String::from_utf8(encode(&checkpoint())).unwrap();
        assert_eq!(decode(record.as_bytes()).unwrap(), checkpoint());
        let newer = record.replace("\"version\":1", "\"version\":2");
        assert!(matches!(decode(newer.as_bytes()), Err(SinkError::NewerWriter { .. })));
    }
}
