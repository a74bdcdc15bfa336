//! What the journal remembers: records as bytes, the oldest dropped first.
//!
//! Ten thousand records of many small strings each take five times their bytes and touch cold memory at every
//! request; as bytes one behind the other they take about 75 each, and adding one allocates nothing.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Hit, Record};
use crate::instant::Instant;

/// Bytes that are dropped together. Reading copies whole pieces, so that it holds nobody up while it reads. From this
/// size on the allocator keeps a piece apart from what is small and comes and goes.
const PIECE_BYTES: usize = 128 * 1024;

/// Bytes that are remembered at the most: about 10,000 requests with keys of 20 characters.
const MOST_BYTES: usize = 6 * PIECE_BYTES;

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Their numbers have no gaps; the last one grows.
    pieces: VecDeque<Piece>,
    /// The number of the last request.
    last: u64,
    /// Names that the program has, each once; records have their places here.
    names: Vec<&'static str>,
    /// Where a record is packed before it is known to which piece it goes.
    packed: Vec<u8>,
}

/// Records one behind the other.
#[derive(Clone, Debug)]
struct Piece {
    /// The number of its first record.
    first: u64,
    /// The number of its last record.
    last: u64,
    bytes: Vec<u8>,
}

/// A record as it is remembered; its number is told by its place.
#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    id: &'a str,
    at: Instant,
    connection: Option<u64>,
    access_key: Option<&'a str>,
    operation: Option<usize>,
    bucket: Option<&'a str>,
    key: Option<&'a str>,
    #[serde(borrow)]
    conditions: Vec<(usize, &'a str)>,
    body_size: u64,
    #[serde(borrow)]
    faults: Vec<(&'a str, usize)>,
    deviations: Vec<usize>,
    status: Option<u16>,
    duration_us: u64,
}

impl Ring {
    /// Adds a record; its number is given here.
    pub(super) fn add(&mut self, record: &Record) {
        self.last += 1;
        let names = &mut self.names;
        let packed = Packed {
            id: &record.id,
            at: record.at,
            connection: record.connection,
            access_key: record.access_key.as_deref(),
            operation: record.operation.map(|name| place(names, name)),
            bucket: record.bucket.as_deref(),
            key: record.key.as_deref(),
            conditions: record
                .conditions
                .iter()
                .map(|(name, value)| (place(names, name), &**value))
                .collect(),
            body_size: record.body_size,
            faults: record.faults.iter().map(|hit| (&*hit.rule, place(names, hit.effect))).collect(),
            deviations: record.deviations.iter().map(|name| place(names, name)).collect(),
            status: record.status,
            duration_us: record.duration_us,
        };
        self.packed.clear();
        self.packed = postcard::to_extend(&packed, std::mem::take(&mut self.packed))
            .expect("memory takes all, and a record has no map of unknown length");
        match self.pieces.back_mut() {
            Some(piece) if piece.bytes.len() + self.packed.len() <= PIECE_BYTES => {
                piece.bytes.extend_from_slice(&self.packed);
                piece.last = self.last;
            }
            _ => self.begin_piece(),
        }
    }

    /// A new piece with the packed record, and room for it. It takes the memory of one that is dropped.
    fn begin_piece(&mut self) {
        let room = PIECE_BYTES.max(self.packed.len());
        let mut bytes = Vec::new();
        let mut held: usize = self.pieces.iter().map(|piece| piece.bytes.capacity()).sum();
        while held + room > MOST_BYTES
            && let Some(oldest) = self.pieces.pop_front()
        {
            held -= oldest.bytes.capacity();
            if oldest.bytes.capacity() == room {
                bytes = oldest.bytes;
            }
        }
        bytes.clear();
        bytes.reserve_exact(room);
        bytes.extend_from_slice(&self.packed);
        self.pieces.push_back(Piece { first: self.last, last: self.last, bytes });
    }

    /// The number of the last request.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Forgets the records; their number goes on counting.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// A copy of what is remembered after number `after`: at least the first `most` records, if there are as many.
    pub(super) fn after(&self, after: u64, most: usize) -> Copied {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let mut copied = 0;
        let newer = self.pieces.iter().filter(|piece| piece.last > after);
        let pieces = newer.take_while(|piece| {
            let wanted = copied < most;
            copied += piece.last - piece.first.max(after + 1) + 1;
            wanted
        });
        Copied { after, pieces: pieces.cloned().collect(), names: self.names.clone() }
    }
}

/// The place of a name, which it gets when it is first met. There are some dozens of them.
fn place(names: &mut Vec<&'static str>, name: &'static str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// Records of one moment.
pub(super) struct Copied {
    after: u64,
    pieces: Vec<Piece>,
    names: Vec<&'static str>,
}

impl Copied {
    /// The records, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.pieces.iter().flat_map(move |piece| {
            let mut rest = &piece.bytes[..];
            (piece.first..=piece.last).filter_map(move |number| {
                let (packed, behind) = postcard::take_from_bytes::<Packed<'_>>(rest)
                    .expect("the bytes are those that a record was packed into");
                rest = behind;
                (number > self.after).then(|| self.unpack(number, packed))
            })
        })
    }

    fn unpack(&self, number: u64, packed: Packed<'_>) -> Record {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let name = |place: usize| self.names[place];
        let hit = |(rule, effect): (&str, usize)| Hit { rule: rule.to_owned(), effect: name(effect) };
        Record {
            number,
            id: packed.id.to_owned(),
            connection: packed.connection,
            access_key: own(packed.access_key),
            operation: packed.operation.map(name),
            bucket: own(packed.bucket),
            key: own(packed.key),
            conditions: packed
                .conditions
                .into_iter()
                .map(|(at, value)| (name(at), value.to_owned()))
                .collect(),
            body_size: packed.body_size,
            faults: packed.faults.into_iter().map(hit).collect(),
            deviations: packed.deviations.into_iter().map(name).collect(),
            status: packed.status,
            duration_us: packed.duration_us,
            at: packed.at,
            left_out: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Record> {
        let name =
            || prop::sample::select(vec!["PutObject", "GetObject", "if-match", "refuse", "ignore-if-match"]);
        let text = || prop::option::of("\\PC{0,40}");
        let asked =
            (any::<String>(), any::<i64>(), prop::option::of(any::<u64>()), text(), prop::option::of(name()));
        let names = (text(), text(), prop::collection::vec((name(), any::<String>()), 0..3), any::<u64>());
        let acted = (
            prop::collection::vec((any::<String>(), name()), 0..3),
            prop::collection::vec(name(), 0..3),
            prop::option::of(any::<u16>()),
            any::<u64>(),
        );
        (asked, names, acted).prop_map(|(asked, names, acted)| {
            let (id, at, connection, access_key, operation) = asked;
            let (bucket, key, conditions, body_size) = names;
            let (hits, deviations, status, duration_us) = acted;
            let faults = hits.into_iter().map(|(rule, effect)| Hit { rule, effect }).collect();
            let at = Instant::from_epoch_ms(at);
            let asked = Record {
                id,
                connection,
                access_key,
                operation,
                bucket,
                key,
                conditions,
                ..Record::left_out(at)
            };
            Record { body_size, faults, deviations, status, duration_us, left_out: false, ..asked }
        })
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_was_added(added in prop::collection::vec(records(), 1..20), after in 0..20_u64) {
            let mut ring = Ring::default();
            for record in &added {
                ring.add(record);
            }
            let numbered = (1..).zip(added).map(|(number, record)| Record { number, ..record });
            let expected: Vec<Record> = numbered.filter(|record| record.number > after).collect();
            prop_assert_eq!(ring.after(after, usize::MAX).records().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn bytes_are_bounded_and_numbers_have_no_gaps() {
        let mut ring = Ring::default();
        let record = |key: usize| Record {
            key: Some("k".repeat(key)),
            ..Record::left_out(Instant::from_epoch_ms(1_800_000_000_000))
        };
        for key in (0..40_000).map(|number| number % 200) {
            ring.add(&record(key));
        }
        let held = |ring: &Ring| ring.pieces.iter().map(|piece| piece.bytes.capacity()).sum::<usize>();
        assert!((MOST_BYTES - PIECE_BYTES..=MOST_BYTES).contains(&held(&ring)), "{}", held(&ring));
        let numbers: Vec<u64> = ring.after(0, usize::MAX).records().map(|record| record.number).collect();
        assert!(numbers.len() > 5_000 && numbers.last() == Some(&40_000));
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        // However many pieces a few take, no more are copied.
        let first = ring.after(39_990, 3);
        assert_eq!((first.pieces.len(), first.records().next().unwrap().number), (1, 39_991));
        assert_eq!(ring.after(40_000, 3).records().count(), 0);
        // A record that is larger than everything else takes its place.
        ring.add(&record(2 * MOST_BYTES));
        let all: Vec<_> = ring.after(0, usize::MAX).records().collect();
        assert_eq!((all.len(), all[0].number), (1, 40_001));
        ring.clear();
        ring.add(&record(1));
        assert_eq!((ring.after(0, usize::MAX).records().count(), ring.last()), (1, 40_002));
    }
}
