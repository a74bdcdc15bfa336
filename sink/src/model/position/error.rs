//! Why a text, bytes or a record is no position.

use crate::model::ids::Digest;

use super::PositionType;

/// Why a text, bytes or a record is no position. Nothing that is refused here is ever hashed as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// No type of position that this release knows: mistyped, or written by a newer release.
    #[error(
        "{text:?} is no position type: mysql-gtid, mysql-binlog, pg-lsn and snapshot are known; \
         a newer release may know more"
    )]
    UnknownType {
        /// The type's text.
        text: String,
    },
    /// A MariaDB GTID (`domain-server-sequence`): another kind of position, which the sink doesn't support.
    #[error(
        "unsupported position: {text:?} is a MariaDB GTID (domain-server-sequence); a MySQL GTID set \
         UUID:FIRST-LAST is wanted, or the server's binlog coordinate as mysql-binlog"
    )]
    MariaDbGtid {
        /// The GTID.
        text: String,
    },
    /// No UUID of a server.
    #[error(
        "{text:?} is no server UUID: 32 hexadecimal digits are wanted, with dashes as 8-4-4-4-12 or with none"
    )]
    Uuid {
        /// The text.
        text: String,
    },
    /// Neither an interval nor a tag.
    #[error("{text:?} is neither an interval of a GTID set (N or FIRST-LAST in decimal digits) nor a tag")]
    Interval {
        /// The text between two colons.
        text: String,
    },
    /// An interval that ends before it begins: servers may drop it silently, which would lose its transactions.
    #[error("interval {text:?} ends before it begins: FIRST-LAST wants FIRST <= LAST")]
    IntervalReversed {
        /// The interval.
        text: String,
    },
    /// A transaction number that no server assigns.
    #[error("transaction number {text:?} is out of range: 1 to 9223372036854775806 (2^63-2) are valid")]
    TransactionNumber {
        /// The number.
        text: String,
    },
    /// A tag against MySQL's grammar.
    #[error(
        "{text:?} is no GTID tag: a letter or underscore, then letters, digits or underscores, 32 bytes at most"
    )]
    Tag {
        /// The tag.
        text: String,
    },
    /// Whitespace inside a word: joining the halves would make another number or tag.
    #[error("whitespace inside a word of a GTID set, at {text:?}: separate numbers and tags by a colon")]
    Whitespace {
        /// The end of the text before the space and what follows it.
        text: String,
    },
    /// Not one GTID but a set, or nothing.
    #[error("{text:?} is not one GTID: UUID:N or UUID:TAG:N is wanted")]
    NotOneGtid {
        /// The text.
        text: String,
    },
    /// No name of a binlog file.
    #[error(
        "{text:?} is no binlog file: a name, a dot and a decimal number are wanted, as in mysql-bin.000042"
    )]
    BinlogFile {
        /// The name.
        text: String,
    },
    /// No binlog coordinate.
    #[error("{text:?} is no binlog coordinate: FILE:POS is wanted, with POS a decimal number of bytes")]
    BinlogCoordinate {
        /// The text.
        text: String,
    },
    /// No log sequence number of PostgreSQL.
    #[error("{text:?} is no LSN: two hexadecimal numbers of 32 bits are wanted, as in 16/B374D848")]
    Lsn {
        /// The text.
        text: String,
    },
    /// No snapshot position.
    #[error(
        "no snapshot position: {reason}; a JSON object with phase \"running\" or \"done\", namespace, table, \
         chunk, offset and cursor is wanted"
    )]
    Snapshot {
        /// What the JSON reader said, with the field's name.
        reason: String,
    },
    /// The source id is empty: positions of two sources would share a lineage.
    #[error("the source id is empty: name the source, and never change it while its positions are in use")]
    SourceId,
    /// The scope isn't what positions of this type want.
    #[error("scope {scope:?} of a {position_type} position is refused: {rule}")]
    Scope {
        /// Type of the position.
        position_type: PositionType,
        /// The scope.
        scope: String,
        /// What the scope must be.
        rule: &'static str,
    },
    /// A table that a snapshot's declared order names twice.
    #[error("table {table} is twice in the snapshot's order: name each table once")]
    TableTwice {
        /// Namespace and table.
        table: String,
    },
    /// Bytes that no position has as its canonical form.
    #[error("no canonical {position_type} position: {why}")]
    Canonical {
        /// Type that the bytes were read as.
        position_type: PositionType,
        /// What is wrong with them.
        why: String,
    },
    /// A record whose digest isn't its position's: damaged, or written by something else.
    #[error("the recorded digest {recorded} is not that of the recorded position, {computed}")]
    DigestMismatch {
        /// As recorded.
        recorded: Digest,
        /// Of the position.
        computed: Digest,
    },
    /// A record whose text means another position than its bytes.
    #[error("the recorded text {text:?} means another position than the recorded bytes, {canonical:?}")]
    TextMismatch {
        /// The recorded text.
        text: String,
        /// What the recorded bytes mean.
        canonical: String,
    },
}
