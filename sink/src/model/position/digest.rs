//! What `assay-sink digest` answers: the digest of a position that somebody typed, to compare with a key.

use std::fmt;

use serde::Serialize;

use crate::model::ids::Digest;

use super::{Lineage, Position, PositionError, PositionType};

/// A position and its lineage, as they are typed.
#[derive(Clone, Copy, Debug)]
pub struct DigestQuery<'a> {
    /// Kind of position.
    pub position_type: PositionType,
    /// The configured name of the source.
    pub source_id: &'a str,
    /// Where the position is valid; checked by [`PositionType::check_scope`].
    pub scope: &'a str,
    /// How often positions may have started over.
    pub generation: u64,
    /// Events of the next transaction that are included.
    pub sub: u64,
    /// The position, in the words that [`Position::parse`] reads.
    pub position: &'a str,
}

/// The position's type, its canonical text and its digest; written as three lines, the digest last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DigestAnswer {
    /// Kind of position.
    #[serde(rename = "type")]
    pub position_type: PositionType,
    /// The canonical text.
    pub canonical: String,
    /// The watermark digest: what stands behind `wm2-` in a key.
    pub digest: Digest,
    /// What a pipeline would not accept about the lineage, although it has a digest: for standard error.
    #[serde(skip)]
    pub warning: Option<PositionError>,
}

impl DigestQuery<'_> {
    /// Checks the lineage, reads the position and takes its digest.
    ///
    /// A GTID set with a scope is answered with a warning: no pipeline may have one, but the digest is
    /// defined, and is a published example of two lineages that differ by a moved byte.
    ///
    /// # Errors
    /// What is wrong with the lineage or the position: the command exits 2.
    pub fn answer(&self) -> Result<DigestAnswer, PositionError> {
        let lineage = Lineage::new(self.source_id, self.scope, self.generation)?;
        let warning = match self.position_type.check_scope(self.scope) {
            Ok(()) => None,
            Err(error) if self.position_type == PositionType::MysqlGtid => Some(error),
            Err(error) => return Err(error),
        };
        let position = Position::parse(self.position_type, lineage, self.position, self.sub)?;
        Ok(DigestAnswer {
            position_type: self.position_type,
            canonical: position.canonical_text(),
            digest: position.digest(),
            warning,
        })
    }
}

impl fmt::Display for DigestAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", self.position_type, self.canonical, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn ask(position_type: PositionType, scope: &str, position: &str) -> Result<DigestAnswer, PositionError> {
        DigestQuery { position_type, source_id: "shop", scope, generation: 1, sub: 0, position }.answer()
    }

    #[test]
    fn the_digest_is_the_last_line() {
        let answer = ask(PositionType::MysqlGtid, "", &format!("{UUID}:4-5:1-4").to_uppercase()).unwrap();
        let digest = "77174c0bf132f481e90ddc65ec4da8de2c1f0be7c043b962ba99f9576b6c8c73";
        assert_eq!(answer.to_string(), format!("mysql-gtid\n{UUID}:1-5\n{digest}"));
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            format!(r#"{{"type":"mysql-gtid","canonical":"{UUID}:1-5","digest":"{digest}"}}"#)
        );
        assert_eq!(answer.warning, None);
    }

    #[test]
    fn a_lineage_of_another_type_is_refused() {
        for (position_type, scope, position) in [
            (PositionType::MysqlBinlog, "", "mysql-bin.000042:1337"),
            (PositionType::MysqlBinlog, "7301234567890123456/1", "mysql-bin.000042:1337"),
            (PositionType::PgLsn, UUID, "16/B374D848"),
            (PositionType::Snapshot, "", "{}"),
        ] {
            let error = ask(position_type, scope, position).unwrap_err();
            assert!(
                matches!(&error, PositionError::Scope { scope: named, .. } if named == scope),
                "{position_type}: {error}"
            );
        }
        let query = DigestQuery {
            position_type: PositionType::PgLsn,
            source_id: "",
            scope: "1/1",
            generation: 1,
            sub: 0,
            position: "0/1",
        };
        assert_eq!(query.answer(), Err(PositionError::SourceId));
    }

    #[test]
    fn a_gtid_set_with_a_scope_has_a_digest_and_a_warning() {
        let answer = ask(PositionType::MysqlGtid, "p", &format!("{UUID}:1-5")).unwrap();
        assert!(matches!(answer.warning, Some(PositionError::Scope { .. })), "{answer:?}");
        assert!(!answer.to_string().contains("scope"));
    }
}
