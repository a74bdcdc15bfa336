//! What one host remembers of a stream beside the bucket: how far it acknowledged, and what it was about to.

use serde::{Deserialize, Serialize};

use super::ids::{Digest, Nonce, StreamId};
use super::json::decimal;
use super::position::PositionRecord;

/// The local record. HEAD is the authority; this tells "mine, not yet acknowledged" from "somebody else's".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The stream that this host works for; none before it first saw one.
    pub stream_id: Option<StreamId>,
    /// The last acknowledgement.
    pub acked: Option<Acked>,
    /// How it was given.
    pub mode: Mode,
    /// The commit that was about to be tried.
    pub hint: Option<Hint>,
}

/// An acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acked {
    /// Up to where.
    pub position: PositionRecord,
    /// The entry that made it durable.
    #[serde(with = "decimal")]
    pub seq: u64,
}

/// What an acknowledgement is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Committed to HEAD before it was given.
    #[default]
    DurableV2,
    /// Given before data was durable; the manifest does not know of it.
    LegacyRolling,
}

/// The last entry of a commit, written down before HEAD is swapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// Its place in the chain, if it gets there.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Its identity.
    pub nonce: Nonce,
    /// Digest of its position.
    pub digest: Digest,
    /// Of its content.
    pub batch_digest: Digest,
}
