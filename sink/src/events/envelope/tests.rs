use super::*;
use crate::config::Config;
use crate::model::position::PositionType;

fn decoder(source: &str) -> Decoder {
    let yaml = format!("source: {source}\nsinks: [{{type: s3, bucket: b}}]\n");
    Decoder::new(&Config::read(&yaml, |_| None).unwrap().source, None)
}

const PG: &str = "{id: shop, system_identifier: 7301, timeline: 1, snapshot_id: run-1}";
const MYSQL: &str = "{id: shop, server_uuid: 3e11fa47-71ca-11e1-9e33-c80aa9429562, snapshot_id: run-1}";

#[track_caller]
fn change(decoder: &mut Decoder, line: &str) -> (Box<Change>, Option<Mark>, bool) {
    match decoder.read(1, line.as_bytes()).unwrap() {
        Line::Change { change, mark, last, .. } => (change, mark, last),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(decoder: &mut Decoder, line: &str, expected: &str) {
    let error = decoder.read(7, line.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line 7: ") && error.contains(expected), "{error}");
}

#[test]
fn the_own_envelope_needs_no_configuration() {
    let line = r#"{"op": "u", "ts_ms": 1700000000000,
        "before": {"id": 1, "price": 1.10}, "after": {"id": 1, "price": 12345678901234567890.10, "note": "a \" b"},
        "tx_end": true,
        "source": {"namespace": "public", "table": "orders", "type": "pg-lsn", "position": "16/b374d848",
                   "lineage": {"source_id": "shop", "scope": "7301/1", "generation": "1"}}}"#;
    let (change, mark, last) = change(&mut decoder("{}"), line);
    assert_eq!(
        (change.namespace.as_str(), change.table.as_str(), change.op),
        ("public", "orders", Op::Update)
    );
    assert_eq!(change.before.as_deref(), Some(r#"{"id":1,"price":1.10}"#));
    let after = r#"{"id":1,"price":12345678901234567890.10,"note":"a \" b"}"#;
    assert_eq!(change.after.as_deref(), Some(after), "numbers and strings stay as they are");
    assert_eq!(change.ts_ms, Some(1_700_000_000_000));
    let mark = mark.unwrap();
    assert_eq!(mark.at.text(), "16/B374D848");
    assert_eq!(
        (mark.lineage.source_id(), mark.lineage.scope(), mark.lineage.generation()),
        ("shop", "7301/1", 1)
    );
    assert!(last);
}

#[test]
fn what_is_configured_may_be_left_out_but_not_contradicted() {
    let line = |source: &str| {
        format!(
            r#"{{"op":"c","after":{{}},"source":{{"namespace":"p","table":"t","position":"0/1"{source}}}}}"#
        )
    };
    let mut configured = decoder("{id: shop, position: pg-lsn, system_identifier: 7301, timeline: 1}");
    let (_, mark, _) = change(&mut configured, &line(""));
    assert_eq!(mark.unwrap().lineage.scope(), "7301/1");
    for (source, expected) in [
        (r#","lineage":{"source_id":"shoq"}"#, "says \"shoq\", source.id is configured as \"shop\""),
        (r#","lineage":{"scope":"7301/2"}"#, "says \"7301/2\", source.system_identifier is configured"),
        (r#","lineage":{"generation":2}"#, "says \"2\", source.generation is configured as \"1\""),
        (r#","type":"pg_lsn""#, "field source.type"),
        (r#","type":"mysql-gtid""#, "field source.position"),
    ] {
        refused(&mut configured, &line(source), expected);
    }
    let mut bare = decoder("{}");
    refused(&mut bare, &line(""), "source.position is not configured and source.type is not in the event");
    refused(
        &mut bare,
        &line(r#","type":"pg-lsn""#),
        "source.system_identifier is not configured and source.lineage.scope",
    );
    refused(&mut bare, &line(r#","type":"pg-lsn","lineage":{"scope":"1/1"}"#), "source.id is not configured");
    refused(
        &mut bare,
        &line(r#","type":"pg-lsn","lineage":{"scope":"x"}"#),
        "scope \"x\" of a pg-lsn position",
    );
}

#[test]
fn lines_that_are_no_events_are_refused_by_field() {
    let mut decoder = decoder(PG);
    for (line, expected) in [
        ("{", "no event as a JSON object"),
        ("[1]", "no event as a JSON object"),
        (r#"{"op":"x"}"#, "field op: \"x\" can't be it: c, u, d, r, t or commit is wanted"),
        (r#"{"op":7}"#, "field op: 7 can't be it: a text is wanted"),
        (r#"{"op":"c"}"#, "field source is missing"),
        (r#"{"op":"c","source":{"table":"t"}}"#, "field after is missing"),
        (
            r#"{"op":"c","after":[1],"source":{"table":"t"}}"#,
            "field after: [1] can't be it: an object or null",
        ),
        (r#"{"op":"c","after":{},"source":{"table":"t"}}"#, "field source.namespace is missing"),
        (r#"{"op":"c","after":{},"source":{"schema":"p"}}"#, "field source.table is missing"),
        (r#"{"op":"c","after":{},"source":{"schema":"p","table":"t"}}"#, "field source.position is missing"),
        (
            r#"{"op":"c","after":{},"source":{"schema":"p","table":"t","connector":"mongodb"}}"#,
            "field source.connector: \"mongodb\"",
        ),
        (
            r#"{"op":"c","after":{},"source":{"schema":"p","table":"t","connector":"postgresql"}}"#,
            "field source.sequence is missing",
        ),
        (
            r#"{"op":"c","after":{},"tx_end":1,"source":{"schema":"p","table":"t","connector":"postgresql"}}"#,
            "field tx_end: 1",
        ),
        (
            r#"{"op":"c","after":{},"source":{"schema":"p","table":"t","connector":"postgresql","ts_ms":-1}}"#,
            "field source.ts_ms",
        ),
    ] {
        refused(&mut decoder, line, expected);
    }
    let error = decoder.read(3, b"{\"op\":\"\xff\"}").unwrap_err().to_string();
    assert!(error.starts_with("line 3: no event as a JSON object: invalid utf-8"), "{error}");
}

#[test]
fn lines_that_say_nothing_are_passed_over() {
    let mut decoder = decoder(PG);
    for line in [
        "",
        "  ",
        "null",
        r#"{"payload":null,"schema":null}"#,
        r#"{"ts_ms":1}"#,
        r#"{"source":{"db":"shop"},"ddl":"CREATE TABLE t (id INT)"}"#,
        r#"{"op":"m","message":{"prefix":"x"}}"#,
        r#"{"status":"BEGIN","id":"571:53195829"}"#,
    ] {
        assert_eq!(decoder.read(1, line.as_bytes()).unwrap(), Line::Nothing, "{line}");
    }
    let end = decoder.read(1, br#"{"status":"END","id":"571:53195832","event_count":2}"#).unwrap();
    assert_eq!(end, Line::Commit { mark: None });
}

#[test]
fn deltaforge_names_the_commit_of_a_transaction() {
    let line = r#"{"before":null,"after":{"id":1},"op":"c","ts_ms":1700000000999,"tx_end":true,
        "source":{"version":"deltaforge-0.1.0","connector":"postgresql","name":"shop","ts_ms":1700000000000,
                  "db":"app","schema":"public","table":"orders","lsn":"16/B374D800","txId":571,
                  "tx_final_lsn":"16/B374D848"}}"#;
    let (change, mark, last) = change(&mut decoder(PG), line);
    assert_eq!((mark.unwrap().at.text().as_str(), last), ("16/B374D848", true));
    assert_eq!(change.ts_ms, Some(1_700_000_000_000), "the source's time, not the reader's");
    assert_eq!(change.namespace, "public");
}

#[test]
fn debezium_names_the_commit_before_a_transaction() {
    let line = r#"{"schema":{},"payload":{"before":null,"after":{"id":1},"op":"c","ts_ms":1,
        "source":{"connector":"postgresql","name":"shop","ts_ms":2,"snapshot":"false","db":"app","schema":"public",
                  "table":"orders","txId":571,"lsn":24023128,"sequence":"[\"24023119\",\"24023128\"]"},
        "transaction":{"id":"571:24023128","total_order":1,"data_collection_order":1}}}"#;
    match decoder(PG).read(1, line.as_bytes()).unwrap() {
        Line::Change { unit, mark: None, committed: Some(committed), last: false, .. } => {
            assert_eq!((unit.as_str(), committed.at.text().as_str()), ("571", "0/16E904F"));
        }
        other => panic!("{other:?}"),
    }
    let first = line.replace(r#"[\"24023119\","#, "[null,");
    let first = decoder(PG).read(1, first.as_bytes()).unwrap();
    assert!(matches!(first, Line::Change { committed: None, .. }), "{first:?}");
    refused(&mut decoder(PG), &line.replace(r#"[\"24023119\","#, r#"[7,"#), "field source.sequence");
    refused(&mut decoder("{id: shop}"), line, "source.system_identifier is not configured");
}

#[test]
fn debeziums_mysql_has_gtids_or_coordinates() {
    let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let line = format!(
        r#"{{"after":{{"id":1}},"op":"c","source":{{"connector":"mysql","name":"shop","db":"app","table":"orders",
           "gtid":"{uuid}:23","file":"mysql-bin.000003","pos":484,"row":0}}}}"#
    );
    let at = |source: &str, line: &str| change(&mut decoder(source), line).1.unwrap();
    assert_eq!(at(MYSQL, &line).at.text(), format!("{uuid}:23"));
    let by_file = MYSQL.replace("{id", "{position: mysql-binlog, id");
    let mark = at(&by_file, &line);
    assert_eq!((mark.at.text().as_str(), mark.lineage.scope()), ("mysql-bin.000003:484", uuid));
    let without = line.replace(&format!(r#""gtid":"{uuid}:23","#), "");
    assert_eq!(at(MYSQL, &without).at.text(), "mysql-bin.000003:484");
    let by_gtid = MYSQL.replace("{id", "{position: mysql-gtid, id");
    refused(&mut decoder(&by_gtid), &without, "field source.gtid is missing");
    refused(
        &mut decoder(MYSQL),
        &line.replace(&format!("{uuid}:23"), "0-1-270"),
        "field source.gtid: unsupported",
    );
    refused(&mut decoder("{id: shop}"), &without, "source.server_uuid is not configured");
}

#[test]
fn rows_of_a_snapshot_are_counted_from_its_first() {
    let line = |snapshot: &str, table: &str| {
        format!(
            r#"{{"after":{{"id":1}},"op":"r","source":{{"connector":"mysql","name":"shop","db":"app",
               "table":"{table}","snapshot":{snapshot},"file":"mysql-bin.000003","pos":4}}}}"#
        )
    };
    let mut counted = decoder(MYSQL);
    refused(&mut counted, &line("\"true\"", "a"), "a snapshot is read from its row \"first\" on");
    let mut points = Vec::new();
    for (snapshot, table) in [
        ("\"first\"", "a"),
        ("true", "a"),
        ("\"last_in_data_collection\"", "a"),
        ("\"first_in_data_collection\"", "b"),
        ("\"last\"", "b"),
    ] {
        let (_, mark, last) = change(&mut counted, &line(snapshot, table));
        let mark = mark.unwrap();
        assert!(last && mark.lineage.scope() == "run-1");
        if let At::Snapshot(point) = mark.at {
            points.push((point.table, point.offset, point.phase));
        }
    }
    let running = SnapshotPhase::Running;
    let expected = [("a", 1, running), ("a", 2, running), ("a", 3, running), ("b", 1, running)];
    let mut expected: Vec<_> = expected.map(|(t, n, p)| (t.to_owned(), n, p)).into();
    expected.push(("b".to_owned(), 2, SnapshotPhase::Done));
    assert_eq!(points, expected);
    refused(&mut counted, &line("\"incremental\"", "a"), "rows of an incremental snapshot have no position");

    let (_, mark, _) = change(&mut decoder(MYSQL), &line("\"first\"", "a"));
    let mark = mark.unwrap();
    let resume = Position { lineage: mark.lineage, point: mark.at.point().unwrap(), sub: 0 };
    assert_eq!(resume.position_type(), PositionType::Snapshot);
    let yaml = format!("source: {MYSQL}\nsinks: [{{type: s3, bucket: b}}]\n");
    let mut resumed = Decoder::new(&Config::read(&yaml, |_| None).unwrap().source, Some(&resume));
    refused(&mut resumed, &line("\"first\"", "a"), "the stream stopped within a snapshot");
}
