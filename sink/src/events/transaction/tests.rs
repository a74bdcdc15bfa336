use super::*;
use crate::config::Config;
use crate::events::envelope::Decoder;

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn source(text: &str) -> Source {
    let yaml = format!("source: {text}\nsinks: [{{type: s3, bucket: b}}]\n");
    Config::read(&yaml, |_| None).unwrap().source
}

/// What came of lines: `+` and the images of a row, `-` for a trimmed one, `=` and the position behind a
/// transaction, `!` and the error.
fn steps(source: &Source, resume: Option<Position>, lines: &[String]) -> (Vec<String>, Option<Position>) {
    let mut decoder = Decoder::new(source, resume.as_ref());
    let mut transactions = Transactions::new(source, resume);
    let mut out = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let mut steps = Vec::new();
        let taken = decoder
            .read(number, line.as_bytes())
            .and_then(|line| transactions.push(number, line, &mut steps));
        for step in steps {
            let position = transactions.position().map(Position::canonical_text).unwrap_or_default();
            out.push(match step {
                Step::Row(row) => {
                    let row: serde_json::Value = serde_json::from_slice(&row.bytes).unwrap();
                    format!("+{} {}", row["index"], row["after"]["id"])
                }
                Step::Trimmed => "-".to_owned(),
                Step::Abandoned => "x".to_owned(),
                Step::End { .. } => format!("={position}"),
            });
        }
        if let Err(error) = taken {
            out.push(format!("!{error}"));
        }
    }
    (out, transactions.position().cloned())
}

fn own(kind: &str, position: &str, id: u32) -> String {
    format!(
        r#"{{"op":"c","after":{{"id":{id}}},"source":{{"namespace":"public","table":"t","type":"{kind}",
           "position":"{position}"}}}}"#
    )
}

const PG: &str = "{id: shop, system_identifier: 7301, timeline: 1, snapshot_id: run}";

#[test]
fn another_position_ends_a_transaction_and_so_does_a_commit() {
    let lines = [
        own("pg-lsn", "0/10", 1),
        own("pg-lsn", "0/10", 2),
        own("pg-lsn", "0/20", 3),
        r#"{"op":"commit","source":{"type":"pg-lsn","position":"0/20"}}"#.to_owned(),
        r#"{"op":"commit","source":{"type":"pg-lsn","position":"0/30"}}"#.to_owned(),
        own("pg-lsn", "0/40", 4),
    ];
    let (out, position) = steps(&source(PG), None, &lines);
    assert_eq!(out, ["+0 1", "+1 2", "=0/10", "+0 3", "=0/20", "=0/30", "+0 4"]);
    assert_eq!(position.unwrap().canonical_text(), "0/30", "the last one has not ended");
}

#[test]
fn a_commit_of_another_transaction_is_refused() {
    let lines = [
        own("pg-lsn", "0/10", 1),
        r#"{"op":"commit","source":{"type":"pg-lsn","position":"0/20"}}"#.to_owned(),
    ];
    let (out, _) = steps(&source(PG), None, &lines);
    assert!(
        out[1].starts_with("!line 2: ") && out[1].contains("the commit is of another transaction"),
        "{out:?}"
    );
}

#[test]
fn a_source_that_starts_over_within_a_transaction_ends_none() {
    let lsn = |place, id| own("pg-lsn", place, id);
    let lines =
        [lsn("0/10", 1), lsn("0/20", 2), lsn("0/20", 3), lsn("0/10", 1), lsn("0/20", 2), lsn("0/20", 3)];
    let (out, _) = steps(&source(PG), None, &[&lines[..], &[lsn("0/20", 4), lsn("0/30", 5)]].concat());
    assert_eq!(
        out,
        ["+0 1", "=0/10", "+0 2", "+1 3", "x", "-", "=0/10", "+0 2", "+1 3", "+2 4", "=0/20", "+0 5"]
    );
    let gtid = |number: u32, id| own("mysql-gtid", &format!("{UUID}:{number}"), id);
    let lines = [gtid(1, 1), gtid(2, 2), gtid(1, 1), gtid(2, 2), gtid(2, 3), gtid(3, 4)];
    let (out, _) = steps(&source("{id: shop, gtid_start: ''}"), None, &lines);
    let one = format!("={UUID}:1");
    let expected = ["+0 1", &one, "+0 2", "x", "-", &one, "+0 2", "+1 3", &format!("={UUID}:1-2"), "+0 4"];
    assert_eq!(out, expected);
}

#[test]
fn events_that_name_their_place_are_taken_once() {
    let line = |index: u32, id: u32| {
        own("pg-lsn", "0/10", id).replace("\"table\"", &format!("\"index\":{index},\"table\""))
    };
    let lines = [line(0, 1), line(2, 2), line(0, 1), line(2, 2), line(3, 3), own("pg-lsn", "0/20", 4)];
    let (out, _) = steps(&source(PG), None, &lines);
    assert_eq!(out, ["+0 1", "+1 2", "-", "-", "+2 3", "=0/10", "+0 4"]);
}

#[test]
fn gtids_are_accumulated_from_the_configured_start() {
    let lines: Vec<String> = [(3, 1), (4, 5), (5, 2), (6, 3), (7, 4), (8, 6)]
        .map(|(number, id)| own("mysql-gtid", &format!("{UUID}:{number}"), id))
        .into();
    let start = source(&format!("{{id: shop, gtid_start: '{UUID}:1-4'}}"));
    let (out, position) = steps(&start, None, &lines);
    assert_eq!(
        out,
        [
            "-".to_owned(),
            "=".to_owned(),
            "-".to_owned(),
            "=".to_owned(),
            "+0 2".to_owned(),
            format!("={UUID}:1-5"),
            "+0 3".to_owned(),
            format!("={UUID}:1-6"),
            "+0 4".to_owned(),
            format!("={UUID}:1-7"),
            "+0 6".to_owned(),
        ]
    );
    // After a restart the committed set goes on, whatever the start is configured as.
    let (out, _) = steps(&start, position, &lines);
    assert_eq!(out.iter().filter(|step| step.starts_with('+')).collect::<Vec<_>>(), ["+0 6"]);
    let (out, _) = steps(&source("{id: shop}"), None, &lines);
    assert!(out[1].contains("source.gtid_start is not configured"), "{out:?}");
}

#[test]
fn debeziums_transaction_waits_for_the_next_one() {
    let line = |tx: u32, commit: &str, id: u32| {
        format!(
            r#"{{"op":"c","after":{{"id":{id}}},"source":{{"connector":"postgresql","name":"shop","schema":"public",
               "table":"t","txId":{tx},"lsn":99,"sequence":"[{commit},\"99\"]"}}}}"#
        )
    };
    let lines = [line(1, "null", 1), line(1, "null", 2), line(2, r#"\"16\""#, 3), line(3, r#"\"32\""#, 4)];
    let (out, position) = steps(&source(PG), None, &lines);
    assert_eq!(out, ["+0 1", "+1 2", "=0/10", "+0 3", "=0/20"]);
    let (out, _) = steps(&source(PG), position, &lines);
    assert_eq!(out, ["-", "-", "=0/20", "-", "=0/20"]);
    let (out, _) = steps(&source(PG), None, &[line(1, "null", 1), line(2, "null", 2)]);
    assert!(out[0].contains("field source.sequence is missing"), "{out:?}");
}

#[test]
fn a_stream_follows_a_snapshot_that_is_done() {
    let row = |phase: &str, table: &str, offset: u32, id: u32| {
        format!(
            r#"{{"op":"r","after":{{"id":{id}}},"source":{{"namespace":"public","table":"{table}","type":"snapshot",
               "position":{{"phase":"{phase}","namespace":"public","table":"{table}","chunk":0,"offset":{offset},
               "cursor":""}}}}}}"#
        )
    };
    let lines = [
        row("running", "a", 1, 1),
        row("running", "a", 2, 2),
        row("running", "b", 1, 3),
        row("done", "b", 2, 4),
        own("pg-lsn", "0/10", 5),
        own("pg-lsn", "0/20", 6),
    ];
    let rows = |out: &[String]| out.iter().filter(|step| step.starts_with('+')).cloned().collect::<Vec<_>>();
    let (out, _) = steps(&source(PG), None, &lines);
    assert_eq!(rows(&out), ["+0 1", "+0 2", "+0 3", "+0 4", "+0 5", "+0 6"]);
    // A stream that begins within the snapshot.
    let (out, _) = steps(&source(PG), None, &[lines[0].clone(), lines[4].clone()]);
    assert!(out[2].contains("a snapshot that is not done"), "{out:?}");
    // Stopped in table a: its rows go on, and then those of b. Were b's first, only the order could tell.
    let (_, stopped) = steps(&source(PG), None, &lines[..1]);
    let (out, _) = steps(&source(PG), stopped.clone(), &lines);
    assert_eq!(rows(&out), ["+0 2", "+0 3", "+0 4", "+0 5", "+0 6"]);
    let (out, _) = steps(&source(PG), stopped.clone(), &lines[2..]);
    assert!(out[0].contains("source.snapshot_tables is not configured"), "{out:?}");
    let declared = source(&PG.replace("{id", "{snapshot_tables: [public.a, public.b], id"));
    let (out, _) = steps(&declared, stopped, &lines[2..]);
    assert_eq!(rows(&out), ["+0 3", "+0 4", "+0 5", "+0 6"]);
    let (_, in_b) = steps(&declared, None, &lines[..3]);
    let (out, _) = steps(&declared, in_b, &lines);
    assert_eq!(rows(&out), ["+0 4", "+0 5", "+0 6"]);
}
