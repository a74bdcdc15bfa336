//! Which position may follow which: only ahead, and nothing is skipped for being behind.

use crate::error::SinkError;
use crate::model::ids::Digest;
use crate::model::position::{Order, Position, TableOrder};

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// Write it.
    New,
    /// The last one over again: acknowledge it when that one is, and write nothing.
    Repeat,
}

/// The last accepted position, and how the next must stand to it.
#[derive(Clone, Debug, Default)]
pub struct Acceptor {
    last: Option<(Position, Digest)>,
    tables: TableOrder,
}

impl Acceptor {
    /// Nothing accepted yet; `tables` says how those of a snapshot follow each other.
    #[must_use]
    pub fn new(tables: TableOrder) -> Self {
        Self { last: None, tables }
    }

    /// Takes note of a committed batch, in order of commits: how an acceptor starts where HEAD is.
    pub fn observe(&mut self, position: Position, batch_digest: Digest) {
        self.tables.observe(&position);
        self.last = Some((position, batch_digest));
    }

    /// The last accepted position.
    #[must_use]
    pub fn last(&self) -> Option<&Position> {
        self.last.as_ref().map(|(position, _)| position)
    }

    /// Decides about the next batch, and remembers it if it is new.
    ///
    /// # Errors
    /// [`SinkError::PositionRegression`] unless it is ahead, or the last one over again.
    pub fn accept(&mut self, next: &Position, batch_digest: Digest) -> Result<Acceptance, SinkError> {
        let Some((last, last_batch)) = &self.last else {
            self.observe(next.clone(), batch_digest);
            return Ok(Acceptance::New);
        };
        let relation = match self.tables.compare(last, next) {
            Order::Greater => {
                self.observe(next.clone(), batch_digest);
                return Ok(Acceptance::New);
            }
            Order::Equal if *last_batch == batch_digest => return Ok(Acceptance::Repeat),
            Order::Equal => "equal to, but with other content than,",
            Order::Less => "behind",
            Order::Incomparable => "not comparable with",
        };
        Err(SinkError::PositionRegression { last: last.digest(), next: next.digest(), relation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::position::{Lineage, PositionType};

    fn gtid(text: &str) -> Position {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let lineage = Lineage::new("shop", "", 1).unwrap();
        Position::parse(PositionType::MysqlGtid, lineage, &format!("{uuid}:{text}"), 0).unwrap()
    }

    #[test]
    fn only_ahead_or_the_same_again() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut acceptor = Acceptor::default();
        assert_eq!(acceptor.accept(&gtid("1-5"), a), Ok(Acceptance::New));
        assert_eq!(acceptor.accept(&gtid("1-3:4-5"), a), Ok(Acceptance::Repeat));
        assert_eq!(acceptor.accept(&gtid("1-6"), b), Ok(Acceptance::New));
        for (text, batch, wanted) in [
            ("1-6", a, "equal to, but with other content than,"),
            ("1-5", a, "behind"),
            ("2-7", a, "not comparable with"),
        ] {
            match acceptor.accept(&gtid(text), batch) {
                Err(SinkError::PositionRegression { relation, .. }) => assert_eq!(relation, wanted),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(acceptor.last(), Some(&gtid("1-6")));
    }
}
