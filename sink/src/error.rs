//! Why a sink stops, and what whoever started it must do next: the kind decides the exit code.

use crate::model::frame::{FrameError, Kind};
use crate::model::ids::{Digest, StreamId, WriterId};
use crate::model::key::KeyError;
use crate::model::position::PositionError;

/// Why a sink did not start, or stopped. Cloned into every ticket that waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The provider fails the probe: use another, or have it mended.
    #[error("the provider failed the probe: {0}")]
    ProbeRefused(String),
    /// What is configured doesn't fit, or not what the bucket holds: change one of them.
    #[error("{0}")]
    Configuration(String),
    /// A name doesn't fit a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store says no for good: credentials, permissions, the bucket's name, or a request that it refuses.
    #[error(
        "the store refused {request} of {key:?} with {status} {code}: {message}; asking again won't help"
    )]
    Denied {
        /// The verb.
        request: &'static str,
        /// The key.
        key: String,
        /// HTTP status.
        status: u16,
        /// S3 error code.
        code: String,
        /// The store's message.
        message: String,
    },
    /// An object was written by a newer release: run that one.
    #[error("{key:?}: {reason}")]
    NewerWriter {
        /// The object.
        key: String,
        /// What is unknown.
        reason: String,
    },
    /// The source went back, or somewhere that can't be compared: nothing was written. Start the source at the
    /// sink's resume position; where the jump is meant, raise the generation and rebase.
    #[error("position {next} is {relation} the last accepted position {last}; the sink stops")]
    PositionRegression {
        /// Digest of the last accepted position.
        last: Digest,
        /// Digest of the refused one.
        next: Digest,
        /// How it stands to the last.
        relation: &'static str,
    },
    /// The probe could not be finished: look at the network, then start again.
    #[error("the probe is inconclusive: {0}")]
    ProbeInconclusive(String),
    /// Our own fault: keep the logs, start again.
    #[error("internal error: {0}")]
    Internal(String),
    /// The handle is closed.
    #[error("the sink is closed")]
    Closed,
    /// The bucket does not hold what it must. Page; run nothing that deletes until it is understood.
    #[error("integrity alarm: {0}")]
    Integrity(#[from] Alarm),
    /// Another process owns the stream now. Nothing more is acknowledged; only a new process may acquire.
    #[error(
        "fenced: {owner} owns the stream under epoch {epoch}, this process had epoch {mine}; \
         one pipeline has one owner"
    )]
    Fenced {
        /// The epoch of this process.
        mine: u64,
        /// The epoch of the owner.
        epoch: u64,
        /// The owner.
        owner: WriterId,
    },
    /// The store did not answer in time. What was asked for may have happened; the next start finds out.
    #[error("the store gave no answer to {request} of {key:?} within {waited_ms} ms: {reason}")]
    StoreUnavailable {
        /// The verb.
        request: &'static str,
        /// The key.
        key: String,
        /// How long it was tried.
        waited_ms: u64,
        /// The last that was seen.
        reason: String,
    },
    /// HEAD moved at every try to acquire it. Start again when its owner is done.
    #[error("HEAD moved under each of {attempts} attempts to acquire it; one pipeline has one owner")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// A batch was not acknowledged in time. The sink goes on with it: wait again, or close.
    #[error("no acknowledgement within {waited_ms} ms; the sink goes on trying")]
    Backpressure {
        /// How long the caller waited.
        waited_ms: u64,
    },
}

impl SinkError {
    /// The exit code of a process that ends for this.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::ProbeRefused(_) => 1,
            Self::Configuration(_)
            | Self::Key(_)
            | Self::Denied { .. }
            | Self::NewerWriter { .. }
            | Self::PositionRegression { .. } => 2,
            Self::ProbeInconclusive(_) => 3,
            Self::Internal(_) | Self::Closed => 4,
            Self::Integrity(_) => 5,
            Self::Fenced { .. } => 6,
            Self::StoreUnavailable { .. } | Self::Contended { .. } | Self::Backpressure { .. } => 7,
        }
    }

    /// Which kind of object is missing, for the hard alarm; nothing for every other error.
    #[must_use]
    pub fn missing_kind(&self) -> Option<&'static str> {
        let Self::Integrity(alarm) = self else { return None };
        let alarm = match alarm {
            Alarm::Recoverable { cause, .. } => cause,
            alarm => alarm,
        };
        match alarm {
            Alarm::MissingReferenced { what, .. } => Some(what),
            Alarm::HeadWithoutManifest { .. } => Some("entry"),
            _ => None,
        }
    }

    /// What a frame's error means at `key`.
    #[must_use]
    pub fn of_frame(kind: Kind, key: &str, error: FrameError) -> Self {
        if let FrameError::NewerWriter { .. } = error {
            return Self::NewerWriter { key: key.to_owned(), reason: error.to_string() };
        }
        Alarm::Damaged { kind, key: key.to_owned(), reason: error.to_string() }.into()
    }

    /// What a recorded position's error means in the object at `key`.
    #[must_use]
    pub fn of_position(key: &str, error: &PositionError) -> Self {
        if let PositionError::UnknownType { .. } = error {
            return Self::NewerWriter { key: key.to_owned(), reason: error.to_string() };
        }
        Alarm::BadPosition { key: key.to_owned(), reason: error.to_string() }.into()
    }
}

/// What must never be seen without somebody outside having touched the bucket, or the store having broken a
/// promise. Each blocks acquisition and every actor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// Objects, but no HEAD that could reach them.
    #[error("{key:?} is there and HEAD is not: nothing says what is committed; HEAD is never recreated")]
    ManifestWithoutHead {
        /// One of the objects.
        key: String,
    },
    /// HEAD, but nothing of what it refers to.
    #[error("HEAD refers to {seq} entries, and no entry is there")]
    HeadWithoutManifest {
        /// The last entry that HEAD refers to.
        seq: u64,
    },
    /// HEAD was there, and is no longer.
    #[error("HEAD was deleted; it is never recreated: restore it from a version or a copy")]
    HeadDeleted,
    /// A referenced object is absent.
    #[error("a referenced object is missing: {what} {key:?}{hint}")]
    MissingReferenced {
        /// Its kind: an entry, a rollup, an inventory, data.
        what: &'static str,
        /// Its key.
        key: String,
        /// What an operator can do, if there is anything.
        hint: &'static str,
    },
    /// An object's bytes are not those that were recorded.
    #[error("{what} {key:?} has SHA-256 {found}, {recorded} is recorded")]
    DigestMismatch {
        /// Its kind.
        what: &'static str,
        /// Its key.
        key: String,
        /// Of its bytes.
        found: Digest,
        /// Of what refers to it.
        recorded: Digest,
    },
    /// The current rollup or one of its inventories can't be read, and the rollup before it and the entries after
    /// that say the same: a person may rebuild it. Nothing falls back to it by itself.
    #[error(
        "{cause}; recoverable by operator: rollup {rollup:?} and the entries after it reproduce HEAD's chain"
    )]
    Recoverable {
        /// What can't be read.
        cause: Box<Alarm>,
        /// The rollup before.
        rollup: String,
    },
    /// An object has another length than is recorded.
    #[error("data {key:?} has {found} bytes, {recorded} are recorded")]
    SizeMismatch {
        /// Its key.
        key: String,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it should have.
        recorded: u64,
    },
    /// An object is no manifest object of its kind.
    #[error("{kind} {key:?} is damaged: {reason}")]
    Damaged {
        /// What it should be.
        kind: Kind,
        /// Its key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Two parts of the manifest disagree.
    #[error("{key:?} contradicts the manifest: {reason}")]
    Contradiction {
        /// The object that was looked at.
        key: String,
        /// What disagrees.
        reason: String,
    },
    /// A recorded position is none, or has another digest than is recorded.
    #[error("{key:?} records no valid position: {reason}")]
    BadPosition {
        /// The entry.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// An object whose key says another position or content than is recorded or written: never accepted.
    #[error("conflicting object {key:?}: {reason}")]
    ConflictingObject {
        /// Its key.
        key: String,
        /// What conflicts.
        reason: String,
    },
    /// A write that the store had confirmed is not among HEAD's ancestors.
    #[error(
        "the store lost revision {rev} of HEAD, which it had confirmed: HEAD is now revision {found}; \
         it does not compare and swap"
    )]
    LostUpdate {
        /// The confirmed revision.
        rev: u64,
        /// The one that is there.
        found: u64,
    },
    /// Two writers under one epoch.
    #[error(
        "{writer} wrote HEAD under epoch {epoch}, which is this process's: the store let two acquire one"
    )]
    SplitBrain {
        /// The epoch.
        epoch: u64,
        /// The other writer.
        writer: WriterId,
    },
    /// HEAD is of this process, and this process did not write it.
    #[error("HEAD's revision {rev} names this process, which did not write it")]
    UnknownWrite {
        /// The revision.
        rev: u64,
    },
    /// Another stream than the one that this host acknowledged.
    #[error("HEAD is of stream {found}, this host acknowledged stream {local}: another bucket or a copy")]
    OtherStream {
        /// HEAD's.
        found: StreamId,
        /// The local checkpoint's.
        local: StreamId,
    },
    /// Acknowledged data that the bucket does not have.
    #[error(
        "position {acked} was acknowledged here as entry {seq}, and HEAD's watermark is {watermark}: \
         acknowledged data is missing; HEAD was put back, or belongs to something else"
    )]
    AcknowledgedAheadOfHead {
        /// Digest of the acknowledged position.
        acked: Digest,
        /// Its entry.
        seq: u64,
        /// Digest of HEAD's watermark, or a word.
        watermark: String,
    },
    /// Acknowledged and committed positions that no order connects.
    #[error(
        "position {acked} was acknowledged here and HEAD's watermark is {watermark}: they can't be compared"
    )]
    AcknowledgedApartFromHead {
        /// Digest of the acknowledged position.
        acked: Digest,
        /// Digest of HEAD's watermark.
        watermark: Digest,
    },
}

impl Alarm {
    /// Its word, for logs and labels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ManifestWithoutHead { .. } => "manifest_without_head",
            Self::HeadWithoutManifest { .. } => "head_without_manifest",
            Self::HeadDeleted => "head_deleted",
            Self::MissingReferenced { .. } => "missing_referenced",
            Self::DigestMismatch { .. } => "digest_mismatch",
            Self::Recoverable { cause, .. } => cause.name(),
            Self::SizeMismatch { .. } => "size_mismatch",
            Self::Damaged { .. } => "damaged",
            Self::Contradiction { .. } => "contradiction",
            Self::BadPosition { .. } => "bad_position",
            Self::ConflictingObject { .. } => "conflicting_object",
            Self::LostUpdate { .. } => "lost_update",
            Self::SplitBrain { .. } => "split_brain",
            Self::UnknownWrite { .. } => "unknown_write",
            Self::OtherStream { .. } => "other_stream",
            Self::AcknowledgedAheadOfHead { .. } => "acknowledged_ahead_of_head",
            Self::AcknowledgedApartFromHead { .. } => "acknowledged_apart_from_head",
        }
    }
}
