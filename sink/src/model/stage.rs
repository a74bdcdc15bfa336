//! Nouns of the staged sink: a job and its keys, the upload that was staged, and the files that decide about it.
//!
//! Records of one checkpoint interval are staged as the parts of one upload. It becomes a visible object once the
//! checkpoint that its [`Handle`] is in is durable, and not before; [`state`] has the ways there as types.

pub mod files;
mod handle;
pub mod state;

use std::fmt;

use md5::{Digest as _, Md5};

pub(crate) use self::handle::Sums;
pub use self::handle::{Handle, Part};
use super::ids::{Digest, Nonce, push_length_prefixed};
use super::key::{KeyError, MAX_KEY_BYTES, check, encoded};

/// The name of the object metadata that holds a commit token: set when the upload is created, since nothing can
/// be added when it is completed.
pub const TOKEN_METADATA: &str = "dfs3-commit";

/// Digits of the run's nonce in a key.
const RUN_DIGITS: usize = 16;

/// What no two staged uploads share: SHA-256 of job, subtask, checkpoint and run. An object that carries it is
/// this upload completed, whatever else was ever written to its key.
#[must_use]
pub fn commit_token(job_id: &str, subtask: u32, checkpoint: u64, run_id: Nonce) -> Digest {
    let mut preimage = Vec::new();
    push_length_prefixed(&mut preimage, b"dfs3/mpu/v1");
    push_length_prefixed(&mut preimage, job_id.as_bytes());
    preimage.extend_from_slice(&u64::from(subtask).to_be_bytes());
    preimage.extend_from_slice(&checkpoint.to_be_bytes());
    push_length_prefixed(&mut preimage, run_id.as_bytes());
    Digest::of(&preimage)
}

/// The tag of an object that was uploaded in these parts, in quotes: MD5 of the parts' MD5 sums, and how many
/// they are. A proof of the second rank: encryption and some stores make another.
#[must_use]
pub fn multipart_etag(part_md5s: &[[u8; 16]]) -> String {
    let mut sums = Md5::new();
    part_md5s.iter().for_each(|sum| sums.update(sum));
    format!("\"{}-{}\"", hex::encode(sums.finalize()), part_md5s.len())
}

/// `{prefix}/{job}`: what every object of one job begins with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRoot {
    root: String,
    job_id: String,
    extension: String,
}

impl JobRoot {
    /// Checks prefix and job together. `prefix` has no slash at either end and may be empty; `extension` comes
    /// without its dot.
    ///
    /// # Errors
    /// [`KeyError::BadSegment`] for a segment that is none, [`KeyError::NoRoomForTable`] where no key would fit.
    pub fn new(prefix: &str, job_id: &str, extension: &str) -> Result<Self, KeyError> {
        if !prefix.is_empty() {
            prefix.split('/').try_for_each(|segment| check(segment, "the prefix"))?;
        }
        let job = encoded(job_id);
        check(&job, "the job's name")?;
        check(extension, "the extension")?;
        let root = if prefix.is_empty() { job.clone() } else { format!("{prefix}/{job}") };
        let behind = "/sub4294967295/".len() + 20 + 1 + RUN_DIGITS + 1 + extension.len();
        if root.len() + behind > MAX_KEY_BYTES {
            return Err(KeyError::NoRoomForTable {
                prefix: prefix.to_owned(),
                pipeline: job,
                extension: extension.to_owned(),
                bytes: root.len(),
                limit: MAX_KEY_BYTES - behind,
            });
        }
        Ok(Self { root, job_id: job_id.to_owned(), extension: extension.to_owned() })
    }

    /// The job's name, as it was given.
    #[must_use]
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// What every object of the job begins with, for a listing.
    #[must_use]
    pub fn listing(&self) -> String {
        format!("{self}/")
    }

    /// The object of one subtask's interval. Numbers have all their zeros, so that names sort as numbers do; the
    /// run's nonce keeps a number that is used again apart from its first use.
    #[must_use]
    pub fn key(&self, subtask: u32, checkpoint: u64, run_id: Nonce) -> String {
        let run = &run_id.to_string()[..RUN_DIGITS];
        format!("{self}/sub{subtask:05}/{checkpoint:020}-{run}.{}", self.extension)
    }

    /// What a key of this job names; nothing of another's. For counts and messages: nothing is decided by a name.
    #[must_use]
    pub fn parse<'a>(&self, key: &'a str) -> Option<StagedName<'a>> {
        let rest = key.strip_prefix(self.root.as_str())?.strip_prefix("/sub")?;
        let (subtask, name) = rest.split_once('/')?;
        let stem = name.strip_suffix(self.extension.as_str())?.strip_suffix('.')?;
        let (checkpoint, run) = stem.split_once('-')?;
        let hexadecimal = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let named = StagedName { subtask: subtask.parse().ok()?, checkpoint: checkpoint.parse().ok()?, run };
        let ours = format!("{:05}", named.subtask) == subtask
            && format!("{:020}", named.checkpoint) == checkpoint
            && run.len() == RUN_DIGITS
            && run.bytes().all(hexadecimal);
        ours.then_some(named)
    }
}

impl fmt::Display for JobRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

/// What the key of a staged object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedName<'a> {
    /// Who staged it.
    pub subtask: u32,
    /// For which checkpoint.
    pub checkpoint: u64,
    /// The first digits of its run's nonce.
    pub run: &'a str,
}

#[cfg(test)]
mod tests;
