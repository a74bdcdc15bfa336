//! A position as manifest entries hold it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::model::ids::Digest;

use super::{Lineage, Position, PositionError, PositionType, decimal};

/// The `position` object of a manifest entry: the whole position, in the source's words and in bytes, with the
/// digest that its objects are named by. Reading it back ([`Position::try_from`]) checks one against the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionRecord {
    /// Name of the position's type; one that isn't known is an error of a newer writer when it is read back.
    pub r#type: String,
    /// Whose history it is in.
    pub lineage: LineageRecord,
    /// The position in the source's words.
    pub text: String,
    /// Canonical bytes in base64 with padding (RFC 4648, section 4).
    pub canonical_b64: String,
    /// Events of the next transaction that are included.
    #[serde(with = "decimal")]
    pub sub: u64,
    /// The watermark digest.
    pub digest: Digest,
}

/// The `lineage` object in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineageRecord {
    /// The configured name of the source.
    pub source_id: String,
    /// Where positions are valid.
    pub scope: String,
    /// How often positions may have started over.
    #[serde(with = "decimal")]
    pub generation: u64,
}

impl From<&Position> for PositionRecord {
    fn from(position: &Position) -> Self {
        let canonical = position.canonical_bytes();
        Self {
            r#type: position.position_type().to_string(),
            lineage: LineageRecord {
                source_id: position.lineage.source_id().to_owned(),
                scope: position.lineage.scope().to_owned(),
                generation: position.lineage.generation(),
            },
            text: position.canonical_text(),
            digest: Digest::of(&position.preimage(&canonical)),
            canonical_b64: STANDARD.encode(canonical),
            sub: position.sub,
        }
    }
}

impl TryFrom<&PositionRecord> for Position {
    type Error = PositionError;

    /// The bytes are the position; the digest is computed anew, and the text must mean the same.
    fn try_from(record: &PositionRecord) -> Result<Self, PositionError> {
        let position_type: PositionType = record.r#type.parse()?;
        let LineageRecord { source_id, scope, generation } = &record.lineage;
        let lineage = Lineage::new(source_id, scope, *generation)?;
        let bytes = STANDARD.decode(&record.canonical_b64).map_err(|error| PositionError::Canonical {
            position_type,
            why: format!("its base64 can't be read: {error}"),
        })?;
        let position = Self::from_canonical(position_type, lineage.clone(), &bytes, record.sub)?;
        let computed = Digest::of(&position.preimage(&bytes));
        if computed != record.digest {
            return Err(PositionError::DigestMismatch { recorded: record.digest, computed });
        }
        if Self::parse(position_type, lineage, &record.text, record.sub)? != position {
            return Err(PositionError::TextMismatch {
                text: record.text.clone(),
                canonical: position.canonical_text(),
            });
        }
        Ok(position)
    }
}
