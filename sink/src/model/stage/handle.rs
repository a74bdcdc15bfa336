//! A staged upload, with all that completing it takes.

use bytes::Bytes;
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

use super::{commit_token, multipart_etag};
use crate::model::frame::{self, FrameError, Kind};
use crate::model::ids::{Digest, Nonce};
use crate::model::json::decimal;
use crate::store::ETag;
use crate::store::multipart::{PartRef, UploadId};

/// A part that the store has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its number, from 1 on.
    pub n: u16,
    /// The tag that the store gave it, in its quotes.
    pub etag: String,
    /// Its bytes.
    #[serde(with = "decimal")]
    pub size: u64,
    /// Of its bytes.
    pub sha256: Digest,
}

/// A staged upload. Whoever has it can finish it, with nothing else but the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    /// The job.
    pub job_id: String,
    /// Drawn by each start of a subtask: no two incarnations share one.
    pub run_id: Nonce,
    /// Who staged it.
    pub subtask: u32,
    /// For which checkpoint.
    #[serde(with = "decimal")]
    pub checkpoint_id: u64,
    /// The engine's attempt at running the subtask.
    pub attempt: u32,
    /// The bucket, as it is configured: for people; where it is, the configuration says.
    pub bucket: String,
    /// The key that the object will have.
    pub key: String,
    /// The store's name of the upload.
    pub upload_id: UploadId,
    /// The parts, ascending.
    pub parts: Vec<Part>,
    /// Bytes of all parts.
    #[serde(with = "decimal")]
    pub total_size: u64,
    /// Of the object's bytes.
    pub content_sha256: Digest,
    /// The tag that the object is expected to have, in quotes.
    pub multipart_etag: String,
    /// What the object's metadata says.
    pub commit_token: Digest,
    /// Records in it, at least one.
    #[serde(with = "decimal")]
    pub records: u64,
    /// Id of its first record.
    pub first_event: String,
    /// Id of its last record.
    pub last_event: String,
    /// When it was staged, in milliseconds since 1970 by the host's clock.
    #[serde(with = "decimal")]
    pub created_at_ms: u64,
}

impl Handle {
    /// The frame (`DFS3 handle …`).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        frame::encode(Kind::Handle, frame::MINOR, self)
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// Of the frame; a handle that contradicts itself is [`FrameError::Body`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, handle): (u16, Self) = frame::decode(Kind::Handle, bytes)?;
        handle.check().map_err(|reason| FrameError::Body { kind: Kind::Handle, reason })?;
        Ok(handle)
    }

    /// What must hold of every handle.
    ///
    /// # Errors
    /// What does not, in words.
    pub fn check(&self) -> Result<(), String> {
        let token = commit_token(&self.job_id, self.subtask, self.checkpoint_id, self.run_id);
        if token != self.commit_token {
            return Err(format!("its commit token is {}, {token} is due", self.commit_token));
        }
        let size: u64 = self.parts.iter().map(|part| part.size).sum();
        if size != self.total_size {
            return Err(format!("its parts have {size} bytes, it says {}", self.total_size));
        }
        if self.parts.is_empty() || self.records == 0 || self.total_size == 0 {
            return Err("it stages nothing; an empty interval has no handle".to_owned());
        }
        if !self.parts.is_sorted_by(|a, b| a.n < b.n) {
            return Err("its parts do not ascend".to_owned());
        }
        Ok(())
    }

    /// The parts as Complete names them.
    #[must_use]
    pub fn part_refs(&self) -> Vec<PartRef> {
        self.parts.iter().map(|part| PartRef { number: part.n, etag: ETag(part.etag.clone()) }).collect()
    }

    /// `sub{K}-{N}`: the name of its receipt, and of it in logs.
    #[must_use]
    pub fn name(&self) -> String {
        format!("sub{:05}-{:020}", self.subtask, self.checkpoint_id)
    }
}

/// Digests of parts as they are uploaded, and of the whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    whole: sha2::Sha256,
    md5s: Vec<[u8; 16]>,
    size: u64,
}

impl Sums {
    /// Takes the next part in. Its SHA-256.
    pub(crate) fn add(&mut self, part: &[u8]) -> Digest {
        self.whole.update(part);
        self.md5s.push(Md5::digest(part).into());
        self.size += part.len() as u64;
        Digest::of(part)
    }

    /// Bytes, their SHA-256, and the tag that an object of these parts is expected to have.
    pub(crate) fn finish(self) -> (u64, Digest, String) {
        (self.size, Digest::from_bytes(self.whole.finalize().into()), multipart_etag(&self.md5s))
    }
}
