//! Positions of every type: published digests, round trips, order.

use std::collections::BTreeMap;

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
