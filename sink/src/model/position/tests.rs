//! Positions of every type: published digests, round trips, order.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// The published vectors: name, position, bytes of the preimage, digest.
fn vectors() -> Vec<(String, Position, usize, String)> {
    let lines = include_str!("vectors.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.splitn(9, '|').map(str::trim).collect();
            let [name, position_type, source_id, scope, generation, sub, preimage, digest, text] = *fields
            else {
                panic!("nine fields are wanted: {line}")
            };
            let lineage = Lineage::new(source_id, scope, generation.parse().unwrap()).unwrap();
            let position_type: PositionType = position_type.parse().unwrap();
            let text = text.replace("\\n", "\n");
            let position = Position::parse(position_type, lineage, &text, sub.parse().unwrap()).unwrap();
            (name.to_owned(), position, preimage.parse().unwrap(), digest.to_owned())
        })
        .collect()
}

#[test]
fn every_published_vector_has_its_digest() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 21);
    for (name, position, preimage, digest) in vectors {
        assert_eq!(position.digest().to_string(), digest, "{name}");
        assert_eq!(position.preimage(&position.canonical_bytes()).len(), preimage, "{name}");
    }
}

#[test]
fn the_published_preimage_is_ours_byte_by_byte() {
    let (_, position, ..) = vectors().swap_remove(0);
    assert_eq!(
        hex::encode(position.preimage(&position.canonical_bytes())),
        concat!(
            "000000000000000b646673332f776d322f763101000000000000001c000000000000000473686f700000000000000000",
            "00000000000000010000000000000029000000013e11fa4771ca11e19e33c80aa9429562000000000100000000000000",
            "0100000000000000050000000000000000",
        )
    );
}

#[test]
fn vectors_are_equal_where_they_mean_the_same_and_differ_elsewhere() {
    let mut by_name: BTreeMap<String, Vec<Position>> = BTreeMap::new();
    for (name, position, ..) in vectors() {
        by_name.entry(name.trim_end_matches('\'').to_owned()).or_default().push(position);
    }
    assert_eq!(by_name.len(), 12);
    let all: Vec<(&String, &Position)> =
        by_name.iter().flat_map(|(name, positions)| positions.iter().map(move |one| (name, one))).collect();
    for (name, position) in &all {
        for (other_name, other) in &all {
            assert_eq!(position == other, name == other_name, "{name} {other_name}");
            assert_eq!(position.digest() == other.digest(), name == other_name, "{name} {other_name}");
        }
    }
}

#[test]
fn vectors_survive_their_text_their_bytes_and_their_record() {
    for (name, position, ..) in vectors() {
        let (position_type, lineage, sub) =
            (position.position_type(), position.lineage.clone(), position.sub);
        let text = position.canonical_text();
        assert_eq!(
            Position::parse(position_type, lineage.clone(), &text, sub),
            Ok(position.clone()),
            "{name}"
        );
        let bytes = position.canonical_bytes();
        assert_eq!(
            Position::from_canonical(position_type, lineage, &bytes, sub),
            Ok(position.clone()),
            "{name}"
        );
        let json = serde_json::to_string(&PositionRecord::from(&position)).unwrap();
        let record: PositionRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(Position::try_from(&record), Ok(position), "{name}");
    }
}

#[track_caller]
fn refused(position_type: PositionType, text: &str, expected: &str) {
    let lineage = Lineage::new("shop", "scope", 1).unwrap();
    let error = Position::parse(position_type, lineage, text, 0).unwrap_err().to_string();
    assert!(error.contains(expected), "{text:?}: {error}");
}

#[test]
fn what_is_no_binlog_coordinate_is_refused() {
    for text in [
        "",
        "mysql-bin.000042",
        "mysql-bin.000042:",
        "mysql-bin.000042:-1",
        "mysql-bin.000042:+4",
        "mysql-bin.000042:4 ",
        "mysql-bin.000042:0x4",
        "mysql-bin.000042:18446744073709551616",
        "mysql-bin.000042/1337",
    ] {
        refused(PositionType::MysqlBinlog, text, &format!("{text:?} is no binlog coordinate"));
    }
    for file in ["", "mysql-bin", "mysql-bin.", ".000042", "mysql-bin.index", "mysql-bin.00004x", "a:1"] {
        refused(PositionType::MysqlBinlog, &format!("{file}:4"), &format!("{file:?} is no binlog file"));
    }
}

#[test]
fn what_is_no_lsn_is_refused() {
    for text in [
        "",
        "/",
        "16",
        "16/",
        "/B374D848",
        "16/B374D848/1",
        "16/1B374D8480",
        "100000000/0",
        "0x16/0",
        "+1/0",
        "1/-1",
        "16/G",
        "16 /0",
        " 16/0",
        "97500059720",
    ] {
        refused(PositionType::PgLsn, text, &format!("{text:?} is no LSN"));
    }
}

#[test]
fn what_is_no_snapshot_is_refused_by_the_fields_name() {
    let good = r#"{"phase":"done","namespace":"a","table":"b","chunk":1,"offset":"18446744073709551615","cursor":"é"}"#;
    let lineage = Lineage::new("shop", "run", 1).unwrap();
    let position = Position::parse(PositionType::Snapshot, lineage, good, 0).unwrap();
    assert_eq!(
        position.canonical_text(),
        r#"{"phase":"done","namespace":"a","table":"b","chunk":"1","offset":"18446744073709551615","cursor":"é"}"#
    );
    assert_eq!(
        hex::encode(position.canonical_bytes()),
        concat!(
            "01",
            "000000000000000161",
            "000000000000000162",
            "0000000000000001",
            "ffffffffffffffff",
            "0000000000000002c3a9"
        )
    );
    for (from, to, expected) in [
        (r#""chunk":1"#, r#""chunk":1,"chunk":2"#, "duplicate field `chunk`"),
        (r#""chunk":1"#, r#""chunk":1,"chunks":2"#, "unknown field `chunks`"),
        (r#""chunk":1,"#, "", "missing field `chunk`"),
        (r#","cursor":"é""#, "", "missing field `cursor`"),
        ("done", "Done", "unknown variant `Done`"),
        ("done", "paused", "unknown variant `paused`"),
        (r#""chunk":1"#, r#""chunk":-1"#, "invalid type: integer `-1`"),
        (r#""chunk":1"#, r#""chunk":1.5"#, "floating point `1.5`"),
        (r#""chunk":1"#, r#""chunk":18446744073709551616"#, "floating point"),
        (r#""chunk":1"#, r#""chunk":"+1""#, "string \"+1\""),
        (r#""chunk":1"#, r#""chunk":"""#, "string \"\""),
        (r#""chunk":1"#, r#""chunk":null"#, "null"),
        (r#""cursor":"é""#, r#""cursor":7"#, "integer `7`"),
        ("}", "}}", "trailing characters"),
        ("{", "[", "expected"),
    ] {
        assert!(good.contains(from), "{from}");
        refused(PositionType::Snapshot, &good.replacen(from, to, 1), expected);
    }
    refused(PositionType::Snapshot, "", "EOF");
}

fn a_record() -> PositionRecord {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
    let position = Position::parse(PositionType::PgLsn, lineage, "16/B374D848", u64::MAX).unwrap();
    PositionRecord::from(&position)
}

#[test]
fn a_record_writes_its_numbers_as_strings() {
    assert_eq!(
        serde_json::to_value(a_record()).unwrap(),
        serde_json::json!({
            "type": "pg-lsn",
            "lineage": { "source_id": "shop", "scope": "7301234567890123456/1", "generation": "1" },
            "text": "16/B374D848",
            "canonical_b64": "AAAAFrN02Eg=",
            "sub": "18446744073709551615",
            "digest": a_record().digest.to_string(),
        })
    );
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    let read = |change: &dyn Fn(&mut PositionRecord)| {
        let mut record = a_record();
        change(&mut record);
        Position::try_from(&record).unwrap_err()
    };
    let mismatch = |error: PositionError| {
        let PositionError::DigestMismatch { recorded, computed } = error else { panic!("{error}") };
        assert_ne!(recorded, computed);
    };
    mismatch(read(&|record| record.sub = 0));
    mismatch(read(&|record| record.lineage.generation = 2));
    mismatch(read(&|record| record.lineage.scope.push('0')));
    mismatch(read(&|record| record.lineage.source_id = "shed".to_owned()));
    mismatch(read(&|record| record.canonical_b64 = "AAAAFrN02Ek=".to_owned()));
    mismatch(read(&|record| record.digest = Digest::of(b"")));
    let error = read(&|record| record.text = "16/B374D849".to_owned());
    assert!(matches!(error, PositionError::TextMismatch { .. }), "{error}");
    let error = read(&|record| record.r#type = "mongo-token".to_owned());
    assert_eq!(error, PositionError::UnknownType { text: "mongo-token".to_owned() });
    for base64 in ["AAAAFrN02Eg", "AAAAFrN02E==", "AAAAFrN02EgA", "", "?"] {
        let error = read(&|record| record.canonical_b64 = base64.to_owned());
        assert!(matches!(error, PositionError::Canonical { .. }), "{base64}: {error}");
    }
    // Another spelling of the same position is the source's business.
    let mut record = a_record();
    record.text = "00000016/b374d848".to_owned();
    assert!(Position::try_from(&record).is_ok());
}

/// Positions of a small world, so that equal ones, and ones that differ in one part, are met often.
fn positions() -> impl Strategy<Value = Position> {
    let uuid = select(vec!["3e11fa47-71ca-11e1-9e33-c80aa9429562", "896e7882-18fe-11ef-ab88-22222d34d411"]);
    let member = (uuid, select(vec!["", ":x"]), 1..4_u64, 0..2_u64)
        .prop_map(|(uuid, tag, first, more)| format!("{uuid}{tag}:{first}-{}", first + more));
    let gtid = vec(member, 0..3).prop_map(|members| Point::MysqlGtid(members.join(",").parse().unwrap()));
    let binlog = (select(vec!["a.1", "a.01", "a.2", "a.10", "b.1", "aa.1"]), 0..3_u64)
        .prop_map(|(file, offset)| Point::MysqlBinlog(BinlogPoint::new(file, offset).unwrap()));
    let lsn = (0..4_u64).prop_map(|lsn| Point::PgLsn(Lsn(lsn)));
    let phase = select(vec![SnapshotPhase::Running, SnapshotPhase::Done]);
    let name = || select(vec!["", "a", "ab", "b"]).prop_map(str::to_owned);
    let snapshot = (phase, name(), name(), 0..2_u64, 0..2_u64, name()).prop_map(
        |(phase, namespace, table, chunk, offset, cursor)| {
            Point::Snapshot(SnapshotPoint { phase, namespace, table, chunk, offset, cursor })
        },
    );
    let lineage = (select(vec!["a", "ab"]), select(vec!["", "b"]), 0..2_u64)
        .prop_map(|(source, scope, generation)| Lineage::new(source, scope, generation).unwrap());
    // Mostly one lineage, so that there is something to order.
    let lineage = prop_oneof![3 => Just(Lineage::new("a", "", 0).unwrap()), 1 => lineage];
    (lineage, prop_oneof![gtid, binlog, lsn, snapshot], 0..2_u64).prop_map(|(lineage, point, sub)| Position {
        lineage,
        point,
        sub,
    })
}

/// Two positions of which the second is often the first, or the first but for one part.
fn pairs() -> impl Strategy<Value = (Position, Position)> {
    (positions(), positions(), 0..4_u8).prop_map(|(left, right, keep)| {
        let mut other = left.clone();
        match keep {
            0 => other.lineage = right.lineage,
            1 => other.point = right.point,
            2 => other.sub = right.sub,
            _ => other = right,
        }
        (left, other)
    })
}

fn is_running(position: &Position) -> bool {
    matches!(&position.point, Point::Snapshot(point) if point.phase == SnapshotPhase::Running)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_two_positions_share_a_preimage((left, right) in pairs()) {
        let preimage = |position: &Position| position.preimage(&position.canonical_bytes());
        prop_assert_eq!(preimage(&left) == preimage(&right), left == right);
        prop_assert_eq!(left.digest() == right.digest(), left == right);
        prop_assert_eq!(left.lineage_digest() == right.lineage_digest(), left.lineage == right.lineage);
    }

    #[test]
    fn positions_are_read_back(position in positions()) {
        let (position_type, lineage, sub) = (position.position_type(), position.lineage.clone(), position.sub);
        let text = position.canonical_text();
        prop_assert_eq!(&Position::parse(position_type, lineage.clone(), &text, sub).unwrap(), &position);
        let bytes = position.canonical_bytes();
        prop_assert_eq!(&Position::from_canonical(position_type, lineage, &bytes, sub).unwrap(), &position);
        let json = serde_json::to_string(&PositionRecord::from(&position)).unwrap();
        let record: PositionRecord = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(Position::try_from(&record).unwrap(), position);
    }

    #[test]
    fn bytes_that_are_read_are_written_the_same(
        position in positions(),
        at in any::<Index>(),
        byte in 0..4_u8,
        length in any::<Index>(),
    ) {
        let mut bytes = position.canonical_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes[..], &bytes[..length.index(bytes.len())]] {
            for position_type in PositionType::ALL {
                let read = Position::from_canonical(position_type, position.lineage.clone(), bytes, 0);
                if let Ok(read) = read {
                    prop_assert_eq!(read.canonical_bytes(), bytes);
                }
            }
        }
    }

    #[test]
    fn the_order_is_seen_from_both_sides((left, right) in pairs()) {
        prop_assert_eq!(left.compare(&right), right.compare(&left).reversed());
        prop_assert_eq!(left.compare(&right) == Order::Equal, left == right);
    }

    #[test]
    fn the_order_is_transitive((a, b) in pairs(), c in positions()) {
        for [a, b, c] in [[&a, &b, &c], [&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
            // A stream follows a snapshot that is done, and never one that runs, although that is before its end.
            let cut = is_running(a) && c.position_type() != PositionType::Snapshot;
            if !cut && a.compare(b) == Order::Greater && b.compare(c) == Order::Greater {
                prop_assert_eq!(a.compare(c), Order::Greater, "{:?} {:?} {:?}", a, b, c);
            }
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "[0-9a-f:, xX/{}\"-]{0,40}") {
        for position_type in PositionType::ALL {
            let lineage = Lineage::new("shop", "", 1).unwrap();
            if let Ok(position) = Position::parse(position_type, lineage.clone(), &text, 0) {
                let again = Position::parse(position_type, lineage, &position.canonical_text(), 0);
                prop_assert_eq!(again, Ok(position));
            }
        }
    }
}
