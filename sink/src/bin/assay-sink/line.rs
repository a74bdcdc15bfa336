//! Lines of standard output: what somebody waits for before a slot or an offset moves.

use std::io::Write as _;

use serde::Serialize;
use sinks::model::ids::Digest;
use sinks::model::position::{Position, PositionType};

use crate::{Failure, OWN_FAULT};

/// A line of standard output.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// `resume`: the stream is durable up to here, from an earlier run; `acknowledged`: from this one.
    event: &'static str,
    #[serde(rename = "type")]
    position_type: PositionType,
    /// The position in the source's words.
    position: String,
    /// Events of the next transaction that are included.
    sub: u64,
    digest: Digest,
    /// The entry that made it durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// There, and false, where nothing made it durable yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    durable: Option<bool>,
}

impl Line {
    /// Of a position that entry `seq` made durable.
    pub(crate) fn committed(event: &'static str, position: &Position, seq: u64, epoch: u64) -> Self {
        Self { seq: Some(seq), epoch: Some(epoch), durable: None, ..Self::at(event, position) }
    }

    /// Of a position that may be lost before its files are rolled.
    pub(crate) fn not_durable(event: &'static str, position: &Position) -> Self {
        Self { durable: Some(false), ..Self::at(event, position) }
    }

    fn at(event: &'static str, position: &Position) -> Self {
        let (position_type, sub, digest) = (position.position_type(), position.sub, position.digest());
        let position = position.canonical_text();
        Self { event, position_type, position, sub, digest, seq: None, epoch: None, durable: None }
    }

    /// Written and flushed at once: somebody waits for it.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut text =
            serde_json::to_string(self).map_err(|error| Failure::new(OWN_FAULT, error.to_string()))?;
        text.push('\n');
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
            Failure::new(OWN_FAULT, format!("acknowledgements can't be written to standard output: {error}"))
        })
    }
}
