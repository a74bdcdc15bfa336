//! Source positions: what a batch reaches up to, in a form that is a function of its meaning alone.
//!
//! A position is a point (a GTID set, a binlog coordinate, an LSN, progress of a snapshot) in a lineage (whose
//! history it is), and how many events of the transaction behind the point are included. Its digest names the
//! batch's objects, so two spellings of one position must share it, and no two positions may:
//!
//! ```text
//! LP(x)    = length of x as 64 bits, big-endian, then x
//! lineage  = LP(source id) LP(scope) generation as 64 bits
//! preimage = LP("dfs3/wm2/v1") type as 8 bits LP(lineage) LP(canonical bytes of the point) sub as 64 bits
//! digest   = SHA-256(preimage)
//! ```

mod binlog;
mod canonical;
mod decimal;
mod digest;
mod error;
mod gtid;
mod lineage;
mod lsn;
mod order;
mod record;
mod snapshot;
mod uuid;

pub use binlog::BinlogPoint;
pub use digest::{DigestAnswer, DigestQuery};
pub use error::PositionError;
pub use gtid::{Gtid, GtidSet, MAX_TRANSACTION_NUMBER};
pub use lineage::{Lineage, PositionType};
pub use lsn::Lsn;
pub use order::{Order, TableOrder};
pub use record::{LineageRecord, PositionRecord};
pub use snapshot::{SnapshotPhase, SnapshotPoint};
pub use uuid::ServerUuid;

use crate::model::ids::{Digest, push_length_prefixed};

/// A place in a source's history, without whose history it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Every transaction of a set.
    MysqlGtid(GtidSet),
    /// Up to an offset of a binlog file.
    MysqlBinlog(BinlogPoint),
    /// Up to a byte of the write-ahead log.
    PgLsn(Lsn),
    /// Up to a row of a snapshot.
    Snapshot(SnapshotPoint),
}

/// What a batch reaches up to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Whose history it is in.
    pub lineage: Lineage,
    /// Up to where transactions are complete.
    pub point: Point,
    /// Events of the next transaction that are included: 0 at a transaction's boundary, always 0 unless
    /// batches may end inside a transaction.
    pub sub: u64,
}

impl Position {
    /// Reads the source's own text of a position: a GTID set, `FILE:POS` of a binlog, an LSN as PostgreSQL
    /// prints it, a JSON object of a snapshot's progress. The scope of `lineage` is not looked at
    /// ([`PositionType::check_scope`]).
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(
        position_type: PositionType,
        lineage: Lineage,
        text: &str,
        sub: u64,
    ) -> Result<Self, PositionError> {
        let point = match position_type {
            PositionType::MysqlGtid => Point::MysqlGtid(text.parse()?),
            PositionType::MysqlBinlog => Point::MysqlBinlog(text.parse()?),
            PositionType::PgLsn => Point::PgLsn(text.parse()?),
            PositionType::Snapshot => Point::Snapshot(text.parse()?),
        };
        Ok(Self { lineage, point, sub })
    }

    /// Reads canonical bytes, and only those: what isn't canonical is refused, so bytes and position are one.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn from_canonical(
        position_type: PositionType,
        lineage: Lineage,
        bytes: &[u8],
        sub: u64,
    ) -> Result<Self, PositionError> {
        let point = match position_type {
            PositionType::MysqlGtid => Point::MysqlGtid(GtidSet::read_canonical(bytes)?),
            PositionType::MysqlBinlog => Point::MysqlBinlog(BinlogPoint::read_canonical(bytes)?),
            PositionType::PgLsn => Point::PgLsn(Lsn::read_canonical(bytes)?),
            PositionType::Snapshot => Point::Snapshot(SnapshotPoint::read_canonical(bytes)?),
        };
        Ok(Self { lineage, point, sub })
    }

    /// What kind of point it is.
    #[must_use]
    pub const fn position_type(&self) -> PositionType {
        match self.point {
            Point::MysqlGtid(_) => PositionType::MysqlGtid,
            Point::MysqlBinlog(_) => PositionType::MysqlBinlog,
            Point::PgLsn(_) => PositionType::PgLsn,
            Point::Snapshot(_) => PositionType::Snapshot,
        }
    }

    /// The point's one text, which [`Position::parse`] reads back.
    #[must_use]
    pub fn canonical_text(&self) -> String {
        match &self.point {
            Point::MysqlGtid(set) => set.to_string(),
            Point::MysqlBinlog(point) => point.to_string(),
            Point::PgLsn(lsn) => lsn.to_string(),
            Point::Snapshot(point) => point.to_string(),
        }
    }

    /// The point's canonical bytes: equal exactly for equal points of one type.
    #[must_use]
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.point {
            Point::MysqlGtid(set) => set.write_canonical(&mut bytes),
            Point::MysqlBinlog(point) => point.write_canonical(&mut bytes),
            Point::PgLsn(lsn) => bytes.extend_from_slice(&lsn.0.to_be_bytes()),
            Point::Snapshot(point) => point.write_canonical(&mut bytes),
        }
        bytes
    }

    /// The watermark digest: names the batch's objects. Equal exactly for equal positions.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.preimage(&self.canonical_bytes()))
    }

    /// The SHA-256 of the lineage.
    #[must_use]
    pub fn lineage_digest(&self) -> Digest {
        self.lineage.digest()
    }

    /// What the digest is taken of, given the canonical bytes.
    fn preimage(&self, canonical: &[u8]) -> Vec<u8> {
        let lineage = self.lineage.bytes();
        let mut preimage = Vec::with_capacity(44 + lineage.len() + canonical.len());
        push_length_prefixed(&mut preimage, b"dfs3/wm2/v1");
        preimage.push(self.position_type() as u8);
        push_length_prefixed(&mut preimage, &lineage);
        push_length_prefixed(&mut preimage, canonical);
        preimage.extend_from_slice(&self.sub.to_be_bytes());
        preimage
    }
}

#[cfg(test)]
mod tests;
