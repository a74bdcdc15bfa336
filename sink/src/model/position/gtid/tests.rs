//! GTID sets against a plain set of transactions, and what was reported about other readers of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "896e7882-18fe-11ef-ab88-22222d34d411";

/// `A` and `B` stand for UUIDs.
fn spelled(text: &str) -> String {
    text.replace('A', A).replace('B', B)
}

fn set(text: &str) -> GtidSet {
    spelled(text).parse().unwrap()
}

#[track_caller]
fn check(text: &str, canonical: &str) {
    assert_eq!(set(text).to_string(), spelled(canonical), "{text}");
}

#[test]
fn canonical_texts() {
    for (text, canonical) in [
        ("", ""),
        (" \n\t\r ", ""),
        ("A:1", "A:1"),
        ("A:1-1", "A:1"),
        ("A:007", "A:7"),
        ("A:1-9223372036854775806", "A:1-9223372036854775806"),
        ("B:1,A:1", "A:1,B:1"),
        ("A:3:1:2", "A:1-3"),
        ("A:1-5:2-3", "A:1-5"),
        ("A:1-3:5-7,A:4", "A:1-7"),
        ("A : 1 - 3 : dev : 7", "A:1-3:dev:7"),
        ("A:_:1:__a9:2", "A:_:1:__a9:2"),
        // A member without an interval holds nothing.
        ("A", ""),
        ("A:dev,B:1:dev", "B:1"),
    ] {
        check(text, canonical);
    }
}

#[test]
fn servers_print_a_line_break_behind_each_comma() {
    // debezium#99: the text of SHOW MASTER STATUS was taken with its line breaks.
    check("A:1-5,\nB:1-4", "A:1-5,B:1-4");
    check("A:1-5,\r\n  B:1-4\n", "A:1-5,B:1-4");
}

#[test]
fn a_uuid_that_is_named_again_adds_to_its_intervals() {
    // vitess#11888: the second naming replaced what the first had said.
    check("A:1-5,B:1,A:7-9", "A:1-5:7-9,B:1");
    check("A:1-3,A:2-5", "A:1-5");
    check("A:dev:1,A:1,A:dev:2", "A:1:dev:1-2");
}

#[test]
fn a_gap_stays_a_gap() {
    // flink-cdc#3452 and #3845: the set was made one interval from lowest to highest; what had run in the gap
    // was never read.
    let with_gap = set("A:1-7:9-10");
    assert_eq!(with_gap.to_string(), spelled("A:1-7:9-10"));
    assert!(!with_gap.contains_gtid(&spelled("A:8").parse().unwrap()));
    assert_eq!(with_gap.compare(&set("A:1-10")), Order::Greater);
    assert_ne!(with_gap, set("A:1-10"));
    assert_eq!(set("A:1-4:6").compare(&set("A:1-5")), Order::Incomparable);
}

#[test]
fn a_tag_holds_for_every_interval_up_to_the_next_tag() {
    // go-mysql#1116: one interval behind a tag was expected; mysql-binlog-connector-java#182: a tag was read
    // as a number.
    let tagged = set("A:1-3:dev:7:9-11:Prod:1");
    assert_eq!(tagged.to_string(), spelled("A:1-3:dev:7:9-11:prod:1"));
    for (gtid, there) in [
        ("A:3", true),
        ("A:dev:7", true),
        ("A:DEV:9", true),
        ("A:dev:11", true),
        ("A:prod:1", true),
        ("A:7", false),
        ("A:9", false),
        ("A:dev:1", false),
        ("A:dev:8", false),
        ("A:prod:7", false),
        ("B:dev:7", false),
    ] {
        assert_eq!(tagged.contains_gtid(&spelled(gtid).parse().unwrap()), there, "{gtid}");
    }
    assert_eq!(set("A:dev:1:dev:2"), set("A:dev:1-2"));
    // The next UUID starts without a tag.
    assert_eq!(set("A:dev:1,A:2").to_string(), spelled("A:2:dev:1"));
}

#[test]
fn what_is_no_gtid_set_is_refused() {
    let error = |text: &str| spelled(text).parse::<GtidSet>().unwrap_err();
    let interval = |text: &str| PositionError::Interval { text: text.to_owned() };
    let number = |text: &str| PositionError::TransactionNumber { text: text.to_owned() };
    let tag = |text: &str| PositionError::Tag { text: text.to_owned() };
    let uuid = |text: &str| PositionError::Uuid { text: text.to_owned() };
    let long = "t".repeat(33);
    for (text, expected) in [
        ("0-1-100", PositionError::MariaDbGtid { text: "0-1-100".to_owned() }),
        ("A:1,0-1-100,1-2-3", PositionError::MariaDbGtid { text: "0-1-100".to_owned() }),
        ("A:5-4", PositionError::IntervalReversed { text: "5-4".to_owned() }),
        ("A:0", number("0")),
        ("A:0-4", number("0")),
        ("A:9223372036854775807", number("9223372036854775807")),
        ("A:1-18446744073709551616", number("18446744073709551616")),
        ("A:", interval("")),
        ("A::1", interval("")),
        ("A:1-", interval("1-")),
        ("A:-1", interval("-1")),
        ("A:1-2-3", interval("1-2-3")),
        ("A:1x", interval("1x")),
        ("A:1-+2", interval("1-+2")),
        ("A:1;2", interval("1;2")),
        ("A:+1", tag("+1")),
        ("A:\u{661}", tag("\u{661}")),
        ("A:d-v:1", tag("d-v")),
        ("A:dév:1", tag("dév")),
        ("A:\u{a0}1", tag("\u{a0}1")),
        (&format!("A:{long}:1"), tag(&long)),
        (",", uuid("")),
        ("A:1,", uuid("")),
        ("1-5", uuid("1-5")),
        ("mysql-bin.000042:1337", uuid("mysql-bin.000042")),
        ("A:1 2", PositionError::Whitespace { text: "1 2".to_owned() }),
        ("A:1:dev ops:3", PositionError::Whitespace { text: "dev ops".to_owned() }),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert_eq!(set(&format!("A:{}:1", &long[1..])).to_string(), spelled(&format!("A:{}:1", &long[1..])));
}

#[test]
fn one_gtid_is_no_set() {
    for (text, back) in [("A:5", "A:5"), (" A : Dev : 5 ", "A:dev:5")] {
        assert_eq!(spelled(text).parse::<Gtid>().unwrap().to_string(), spelled(back));
    }
    for text in ["", "A", "A:1-2", "A:1:3", "A:1,B:1", "A:1:dev:1"] {
        let text = spelled(text);
        assert_eq!(text.parse::<Gtid>(), Err(PositionError::NotOneGtid { text: text.clone() }), "{text}");
    }
}

#[test]
fn bytes_that_are_not_canonical_are_refused() {
    let bytes = |members: &[(&str, &[(u64, u64)])]| {
        let mut out = Vec::new();
        push_count(&mut out, members.len());
        for (tag, intervals) in members {
            out.extend_from_slice(&[7; 16]);
            out.push(u8::try_from(tag.len()).unwrap());
            out.extend_from_slice(tag.as_bytes());
            push_count(&mut out, intervals.len());
            for (first, last) in *intervals {
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(&last.to_be_bytes());
            }
        }
        out
    };
    assert!(GtidSet::read_canonical(&bytes(&[("", &[(1, 3), (5, 5)]), ("dev", &[(1, 1)])])).is_ok());
    for (members, why) in [
        (&[("", &[][..])][..], "no interval"),
        (&[("", &[(1, 3), (4, 5)])], "not behind a gap"),
        (&[("", &[(1, 3), (2, 5)])], "not behind a gap"),
        (&[("", &[(5, 5), (1, 3)])], "not behind a gap"),
        (&[("", &[(3, 1)])], "reversed"),
        (&[("", &[(0, 1)])], "out of range"),
        (&[("", &[(1, u64::MAX)])], "out of range"),
        (&[("Dev", &[(1, 1)])], "lower case"),
        (&[("d-v", &[(1, 1)])], "no GTID tag"),
        (&[("dev", &[(1, 1)]), ("", &[(1, 1)])], "not in order"),
        (&[("", &[(1, 1)]), ("", &[(3, 3)])], "not in order"),
    ] {
        let error = GtidSet::read_canonical(&bytes(members)).unwrap_err().to_string();
        assert!(error.contains(why), "{members:?}: {error}");
    }
    for bytes in [&[][..], &[0, 0, 0, 1], &[0, 0, 0, 0, 0], &[255; 40]] {
        assert!(GtidSet::read_canonical(bytes).is_err(), "{bytes:?}");
    }
}

/// One interval of a small world: UUID, tag, first, last.
type Piece = (usize, usize, u64, u64);

/// What a set means: its transactions one by one.
type Transactions = BTreeSet<(usize, usize, u64)>;

const UUIDS: [&str; 3] = [A, B, "00000000-0000-0000-0000-000000000001"];
const TAGS: [&str; 3] = ["", "dev", "_d"];
const NUMBERS: u64 = 16;

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = (0..3_usize, 0..3_usize, 1..=NUMBERS, 0..4_u64)
        .prop_map(|(uuid, tag, first, more)| (uuid, tag, first, (first + more).min(NUMBERS)));
    prop::collection::vec(piece, 0..9)
}

fn meaning(pieces: &[Piece]) -> Transactions {
    pieces.iter().flat_map(|&(u, t, first, last)| (first..=last).map(move |n| (u, t, n))).collect()
}

/// Some spelling: `style` decides letter case, dashes, spaces, and whether a UUID is named again.
fn spelling(pieces: &[Piece], style: &[u8]) -> String {
    let mut text = String::new();
    let mut open = None;
    for (at, &(uuid, tag, first, last)) in pieces.iter().enumerate() {
        let style = style[at % style.len()];
        let space = if style & 1 == 0 { "" } else { " \n" };
        // Without a tag an interval can stand behind others of its UUID only if none of them is tagged.
        let goes_on = style & 2 == 0 && open.is_some_and(|(u, t)| u == uuid && (tag != 0 || t == 0));
        if !goes_on {
            let name = if style & 4 == 0 { UUIDS[uuid].to_owned() } else { UUIDS[uuid].to_uppercase() };
            let name = if style & 8 == 0 { name } else { name.replace('-', "") };
            let comma = if text.is_empty() { "" } else { "," };
            text.push_str(&format!("{space}{comma}{space}{name}{space}"));
        }
        if tag != 0 {
            let name = if style & 16 == 0 { TAGS[tag].to_owned() } else { TAGS[tag].to_uppercase() };
            text.push_str(&format!(":{space}{name}{space}"));
        }
        let interval =
            if first == last { first.to_string() } else { format!("{first}{space}-{space}{last}") };
        text.push_str(&format!("{space}:{interval}{space}"));
        open = Some((uuid, tag));
    }
    text
}

fn gtid(&(uuid, tag, number): &(usize, usize, u64)) -> Gtid {
    format!("{}:{}:{number}", UUIDS[uuid], TAGS[tag]).replace("::", ":").parse().unwrap()
}

fn bytes(set: &GtidSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    set.write_canonical(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_text_holds_what_it_says(pieces in pieces(), style in prop::collection::vec(any::<u8>(), 1..5)) {
        let text = spelling(&pieces, &style);
        let set: GtidSet = text.parse().unwrap();
        let meaning = meaning(&pieces);
        for uuid in 0..UUIDS.len() {
            for tag in 0..TAGS.len() {
                for number in 1..=NUMBERS {
                    let one = (uuid, tag, number);
                    prop_assert_eq!(set.contains_gtid(&gtid(&one)), meaning.contains(&one), "{:?} in {}", one, text);
                }
            }
        }
    }

    #[test]
    fn the_canonical_form_is_a_function_of_the_meaning(
        pieces in pieces(),
        other in pieces(),
        styles in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 2),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let set: GtidSet = spelling(&pieces, &styles[0]).parse().unwrap();
        let mut singles: Vec<Piece> = meaning(&pieces).into_iter().map(|(u, t, n)| (u, t, n, n)).collect();
        if !singles.is_empty() {
            let middle = shuffled.index(singles.len());
            singles.rotate_left(middle);
            singles[middle..].reverse();
        }
        let again: GtidSet = spelling(&singles, &styles[1]).parse().unwrap();
        prop_assert_eq!(&set, &again);
        prop_assert_eq!(bytes(&set), bytes(&again));
        prop_assert_eq!(set.to_string(), again.to_string());
        let other_set: GtidSet = spelling(&other, &styles[1]).parse().unwrap();
        prop_assert_eq!(bytes(&set) == bytes(&other_set), meaning(&pieces) == meaning(&other));
    }

    #[test]
    fn text_and_bytes_are_read_back(pieces in pieces()) {
        let set: GtidSet = spelling(&pieces, &[0]).parse().unwrap();
        prop_assert_eq!(&set.to_string().parse::<GtidSet>().unwrap(), &set);
        prop_assert_eq!(&GtidSet::read_canonical(&bytes(&set)).unwrap(), &set);
    }

    #[test]
    fn bytes_that_are_read_are_written_the_same(
        pieces in pieces(),
        at in any::<prop::sample::Index>(),
        byte in 0..4_u8,
    ) {
        let set: GtidSet = spelling(&pieces, &[0]).parse().unwrap();
        let mut damaged = bytes(&set);
        let at = at.index(damaged.len());
        damaged[at] = byte;
        if let Ok(read) = GtidSet::read_canonical(&damaged) {
            prop_assert_eq!(bytes(&read), damaged);
        }
    }

    #[test]
    fn sets_behave_as_sets(left in pieces(), right in pieces()) {
        let [a, b]: [GtidSet; 2] = [&left, &right].map(|pieces| spelling(pieces, &[0]).parse().unwrap());
        let (left, right) = (meaning(&left), meaning(&right));
        prop_assert_eq!(a.is_empty(), left.is_empty());
        prop_assert_eq!(a.contains(&b), left.is_superset(&right));
        let expected = match (left.is_subset(&right), right.is_subset(&left)) {
            (true, true) => Order::Equal,
            (true, false) => Order::Greater,
            (false, true) => Order::Less,
            (false, false) => Order::Incomparable,
        };
        prop_assert_eq!(a.compare(&b), expected);
        let union: Vec<Piece> = left.union(&right).map(|&(u, t, n)| (u, t, n, n)).collect();
        let mut both = a.clone();
        both.union(&b);
        prop_assert_eq!(&both, &spelling(&union, &[0]).parse::<GtidSet>().unwrap());
        prop_assert!(both.contains(&a) && both.contains(&b));
    }

    #[test]
    fn a_set_is_built_one_transaction_at_a_time(pieces in pieces(), start in pieces()) {
        let mut set: GtidSet = spelling(&start, &[0]).parse().unwrap();
        let mut model = meaning(&start);
        for &(uuid, tag, first, last) in &pieces {
            for number in (first..=last).rev() {
                let one = (uuid, tag, number);
                prop_assert_eq!(set.insert(&gtid(&one)), model.insert(one));
            }
        }
        let whole: Vec<Piece> = model.into_iter().map(|(u, t, n)| (u, t, n, n)).collect();
        prop_assert_eq!(set, spelling(&whole, &[0]).parse::<GtidSet>().unwrap());
    }
}
