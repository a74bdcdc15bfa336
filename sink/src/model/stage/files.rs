//! Files of a job's checkpoint directory: claims, snapshots, markers, receipts. Each is created once and never
//! replaced, framed and checksummed as every object of the manifest.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Handle;
use crate::model::frame::{self, FrameError, Kind};
use crate::model::ids::{Digest, Nonce};
use crate::model::json::decimal;

/// That a coordinator took over: every one before is fenced. File `claims/{epoch:020}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The job.
    pub job_id: String,
    /// One more than the last.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// Drawn by the coordinator at its start.
    pub coordinator: Nonce,
    /// In milliseconds since 1970 by the host's clock; nothing is decided by it.
    #[serde(with = "decimal")]
    pub at_ms: u64,
}

/// What a job restores from: where its sources were at the barrier, and every handle that was not released by
/// then. File `snapshots/{checkpoint:020}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The job.
    pub job_id: String,
    /// Its number.
    #[serde(with = "decimal")]
    pub checkpoint_id: u64,
    /// The coordinator's epoch.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// What each source partition gives next, by the partition's name.
    pub positions: BTreeMap<String, String>,
    /// Staged uploads of all subtasks: those of this checkpoint, and earlier ones without a receipt at the barrier.
    pub handles: Vec<Handle>,
    /// In milliseconds since 1970 by the host's clock; nothing is decided by it.
    #[serde(with = "decimal")]
    pub at_ms: u64,
}

impl Snapshot {
    /// Whether this upload, and not only another of its name, is in it.
    #[must_use]
    pub fn holds(&self, handle: &Handle) -> bool {
        self.handles.iter().any(|held| held.commit_token == handle.commit_token)
    }
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its snapshot counts: what is staged in it becomes visible.
    Completed {
        /// SHA-256 of the snapshot's file.
        snapshot: Digest,
    },
    /// It does not count, and never will.
    Abandoned,
}

/// What became of a checkpoint, decided once. File `markers/{checkpoint:020}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// The job.
    pub job_id: String,
    /// The checkpoint.
    #[serde(with = "decimal")]
    pub checkpoint_id: u64,
    /// The epoch of the coordinator that decided.
    #[serde(with = "decimal")]
    pub epoch: u64,
    /// How.
    pub verdict: Verdict,
    /// In milliseconds since 1970 by the host's clock; nothing is decided by it.
    #[serde(with = "decimal")]
    pub at_ms: u64,
}

/// How it is known that an upload became an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Complete was answered with its result.
    Answer,
    /// An object with the token and the size is at the key.
    Token,
    /// An object without metadata, but with the expected size and tag, is at the key: the store drops metadata.
    Weak,
}

/// That a staged upload became an object. File `receipts/sub{subtask:05}-{checkpoint:020}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The job.
    pub job_id: String,
    /// The run that staged it.
    pub run_id: Nonce,
    /// Who staged it.
    pub subtask: u32,
    /// For which checkpoint.
    #[serde(with = "decimal")]
    pub checkpoint_id: u64,
    /// The upload's.
    pub commit_token: Digest,
    /// The object.
    pub key: String,
    /// Its tag, as the store gave it.
    pub etag: String,
    /// How it is known.
    pub proof: Proof,
    /// In milliseconds since 1970 by the host's clock; nothing is decided by it.
    #[serde(with = "decimal")]
    pub at_ms: u64,
}

/// A file of the directory.
pub trait StageFile: Serialize + DeserializeOwned {
    /// Its word in the frame.
    const KIND: Kind;

    /// Its name in the directory.
    fn name(&self) -> String;

    /// What must hold of it besides its form.
    ///
    /// # Errors
    /// What does not, in words.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The frame.
    fn encode(&self) -> Bytes {
        frame::encode(Self::KIND, frame::MINOR, self)
    }

    /// Reads the frame of the file of this name.
    ///
    /// # Errors
    /// Of the frame; a file that contradicts its name or itself is [`FrameError::Body`].
    fn decode(name: &str, bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, file): (u16, Self) = frame::decode(Self::KIND, bytes)?;
        let wrong = |reason| FrameError::Body { kind: Self::KIND, reason };
        if file.name() != name {
            return Err(wrong(format!("it is {} and stands at {name}", file.name())));
        }
        file.check().map_err(wrong)?;
        Ok(file)
    }
}

impl StageFile for Claim {
    const KIND: Kind = Kind::Claim;

    fn name(&self) -> String {
        numbered(CLAIMS, self.epoch)
    }
}

impl StageFile for Snapshot {
    const KIND: Kind = Kind::Snapshot;

    fn name(&self) -> String {
        numbered(SNAPSHOTS, self.checkpoint_id)
    }

    fn check(&self) -> Result<(), String> {
        for handle in &self.handles {
            handle.check().map_err(|why| format!("{}: {why}", handle.name()))?;
            if handle.job_id != self.job_id || handle.checkpoint_id > self.checkpoint_id {
                return Err(format!("{} is none of this snapshot", handle.name()));
            }
        }
        Ok(())
    }
}

impl StageFile for Marker {
    const KIND: Kind = Kind::Marker;

    fn name(&self) -> String {
        numbered(MARKERS, self.checkpoint_id)
    }
}

impl StageFile for Receipt {
    const KIND: Kind = Kind::Receipt;

    fn name(&self) -> String {
        format!("{RECEIPTS}/sub{:05}-{:020}", self.subtask, self.checkpoint_id)
    }
}

/// Folder of the claims.
pub const CLAIMS: &str = "claims";
/// Folder of the snapshots.
pub const SNAPSHOTS: &str = "snapshots";
/// Folder of the markers.
pub const MARKERS: &str = "markers";
/// Folder of the receipts.
pub const RECEIPTS: &str = "receipts";

/// The name of a numbered file: all its zeros, so that names sort as numbers do.
#[must_use]
pub fn numbered(folder: &str, number: u64) -> String {
    format!("{folder}/{number:020}")
}

/// The number of a file in a folder; nothing of another's name.
#[must_use]
pub fn number_of(file: &str) -> Option<u64> {
    let number = file.parse().ok()?;
    (format!("{number:020}") == file).then_some(number)
}
