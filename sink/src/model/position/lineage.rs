//! What positions of one history share: their type, their source, the scope they are valid in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::ids::{Digest, push_length_prefixed};

use super::PositionError;
use super::uuid::ServerUuid;

/// What kind of place in a source's history a position names. The numbers go into digests and are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
#[repr(u8)]
pub enum PositionType {
    /// A set of MySQL GTIDs.
    MysqlGtid = 1,
    /// A binlog file and an offset in it.
    MysqlBinlog = 2,
    /// A log sequence number of PostgreSQL.
    PgLsn = 3,
    /// Progress of a snapshot.
    Snapshot = 4,
}

impl PositionType {
    /// Every type, by number.
    pub const ALL: [Self; 4] = [Self::MysqlGtid, Self::MysqlBinlog, Self::PgLsn, Self::Snapshot];

    /// The type's name in manifests, configuration and on command lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MysqlGtid => "mysql-gtid",
            Self::MysqlBinlog => "mysql-binlog",
            Self::PgLsn => "pg-lsn",
            Self::Snapshot => "snapshot",
        }
    }

    /// Checks that `scope` is what positions of this type are valid in: nothing for a GTID set, which is valid
    /// in the whole topology; the server's UUID for a binlog coordinate; system identifier and timeline for an
    /// LSN; the run for a snapshot.
    ///
    /// # Errors
    /// [`PositionError::Scope`] with the rule.
    pub fn check_scope(self, scope: &str) -> Result<(), PositionError> {
        let (holds, rule) = match self {
            Self::MysqlGtid => (
                scope.is_empty(),
                "a GTID set is valid in the whole topology and survives failover, so its scope is empty",
            ),
            Self::MysqlBinlog => (
                scope.parse::<ServerUuid>().is_ok_and(|uuid| uuid.to_string() == scope),
                "it is the server's @@server_uuid, in lower case with dashes, since coordinates are per server",
            ),
            Self::PgLsn => (
                scope.split_once('/').is_some_and(|(system, timeline)| {
                    plain_decimal(system, u64::MAX) && plain_decimal(timeline, u32::MAX.into())
                }),
                "it is SYSTEM_IDENTIFIER/TIMELINE in decimal without leading zeros, since an LSN repeats across \
                 timelines",
            ),
            Self::Snapshot => (!scope.is_empty(), "it is the id of the snapshot's run, which is not empty"),
        };
        if holds {
            return Ok(());
        }
        Err(PositionError::Scope { position_type: self, scope: scope.to_owned(), rule })
    }
}

/// A number from 1 to `most` in its one decimal spelling.
fn plain_decimal(text: &str, most: u64) -> bool {
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    digits && text.parse::<u64>().is_ok_and(|number| number <= most)
}

impl fmt::Display for PositionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PositionType {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let found = Self::ALL.into_iter().find(|known| known.as_str() == text);
        found.ok_or_else(|| PositionError::UnknownType { text: text.to_owned() })
    }
}

impl TryFrom<String> for PositionType {
    type Error = PositionError;

    fn try_from(text: String) -> Result<Self, PositionError> {
        text.parse()
    }
}

impl From<PositionType> for &'static str {
    fn from(position_type: PositionType) -> Self {
        position_type.as_str()
    }
}

/// The history that positions are ordered in: two positions of different lineages have different digests,
/// whatever they look like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lineage {
    source_id: String,
    scope: String,
    generation: u64,
}

impl Lineage {
    /// Of a configured source. `scope` is where its positions are valid ([`PositionType::check_scope`] says
    /// what each type wants there); `generation` is the operator's, one more whenever positions may be seen a
    /// second time: after a new snapshot, a RESET BINARY LOGS, a timeline repaired by hand.
    ///
    /// # Errors
    /// [`PositionError::SourceId`] if the id is empty.
    pub fn new(
        source_id: impl Into<String>,
        scope: impl Into<String>,
        generation: u64,
    ) -> Result<Self, PositionError> {
        let source_id = source_id.into();
        if source_id.is_empty() {
            return Err(PositionError::SourceId);
        }
        Ok(Self { source_id, scope: scope.into(), generation })
    }

    /// The configured name of the source.
    #[must_use]
    pub fn source_id(&self) -> &str {
        &self.source_id
    }

    /// Where positions are valid.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// How often positions may have started over.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The SHA-256 of the lineage alone, in a domain of its own.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut preimage = Vec::with_capacity(64 + self.source_id.len() + self.scope.len());
        push_length_prefixed(&mut preimage, b"dfs3/lineage/v1");
        push_length_prefixed(&mut preimage, &self.bytes());
        Digest::of(&preimage)
    }

    /// Source id and scope behind their lengths, then the generation.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24 + self.source_id.len() + self.scope.len());
        push_length_prefixed(&mut bytes, self.source_id.as_bytes());
        push_length_prefixed(&mut bytes, self.scope.as_bytes());
        bytes.extend_from_slice(&self.generation.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_wants_its_own_scope() {
        let check = |position_type: PositionType, good: &[&str], bad: &[&str]| {
            for scope in good {
                assert_eq!(position_type.check_scope(scope), Ok(()), "{position_type} {scope:?}");
            }
            for scope in bad {
                let error = position_type.check_scope(scope).unwrap_err().to_string();
                assert!(
                    error.starts_with(&format!("scope {scope:?} of a {position_type} position")),
                    "{error}"
                );
            }
        };
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        check(PositionType::MysqlGtid, &[""], &["p", uuid, " "]);
        check(
            PositionType::MysqlBinlog,
            &[uuid],
            &["", &uuid.to_uppercase(), &uuid.replace('-', ""), &format!("{uuid} "), &uuid[1..]],
        );
        check(
            PositionType::PgLsn,
            &["7301234567890123456/1", "18446744073709551615/4294967295"],
            &[
                "",
                "7301234567890123456",
                "7301234567890123456/",
                "/1",
                "0/1",
                "7301234567890123456/0",
                "7301234567890123456/01",
                "7301234567890123456/1/2",
                "18446744073709551616/1",
                "1/4294967296",
                "1/0000000A",
                "+1/1",
                "1/ 1",
            ],
        );
        check(PositionType::Snapshot, &["run-01HZX5", " "], &[""]);
    }

    #[test]
    fn types_are_read_back_from_their_names_and_no_other() {
        for known in PositionType::ALL {
            assert_eq!(known.as_str().parse(), Ok(known));
            assert_eq!(serde_json::to_string(&known).unwrap(), format!("{:?}", known.as_str()));
            assert_eq!(
                serde_json::from_str::<PositionType>(&format!("{:?}", known.as_str())).unwrap(),
                known
            );
        }
        for text in ["", "mysql_gtid", "MYSQL-GTID", "pg-lsn ", "mongo-token"] {
            assert_eq!(
                text.parse::<PositionType>(),
                Err(PositionError::UnknownType { text: text.to_owned() })
            );
        }
    }

    #[test]
    fn a_source_without_a_name_has_no_lineage() {
        assert_eq!(Lineage::new("", "p", 1), Err(PositionError::SourceId));
    }

    #[test]
    fn lineages_that_differ_anywhere_have_other_digests() {
        let digest = |source, scope, generation| Lineage::new(source, scope, generation).unwrap().digest();
        let all =
            [digest("shop", "", 1), digest("shop", "", 2), digest("sho", "p", 1), digest("shop", "p", 1)];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one));
        }
    }
}
