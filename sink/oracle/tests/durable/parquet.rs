//! Parquet: every class of defect that JSON Lines can have, and typed columns that say something else than the rows.

use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use assay_oracle::report::Verdict;
use serde_json::{Value, json};

use crate::forge::{Forge, lsn, object_of, row, sha, wanted, words};

const SCHEMA: &str = "message row {
  optional binary op (STRING);
  optional int64 index;
  optional group after { optional int64 id; optional binary note (STRING); optional double price; }
  required binary row (STRING);
}";

/// A file of rows that may have an id, a note and a price; `typed` is what the columns beside the texts are made of.
fn file(rows: &[Value], typed: &[Value], compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression).build();
    let schema = Arc::new(parse_message_type(SCHEMA).expect("a schema"));
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).expect("memory");
    let mut group = file.next_row_group().expect("a group");
    for path in ["/op", "/index", "/after/id", "/after/note", "/after/price"] {
        let found: Vec<&Value> =
            typed.iter().filter_map(|row| row.pointer(path)).filter(|of| !of.is_null()).collect();
        let levels: Vec<i16> = typed
            .iter()
            .map(|row| {
                let there = |path: &str| row.pointer(path).is_some_and(|of| !of.is_null());
                i16::from(path.starts_with("/after/") && there("/after")) + i16::from(there(path))
            })
            .collect();
        let mut column = group.next_column().expect("memory").expect("a column");
        let text = |of: &&Value| ByteArray::from(of.as_str().expect("a text"));
        match path {
            "/op" | "/after/note" => {
                let values: Vec<ByteArray> = found.iter().map(text).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
            }
            "/after/price" => {
                let values: Vec<f64> = found.iter().map(|of| of.as_f64().expect("a number")).collect();
                column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)
            }
            _ => {
                let values: Vec<i64> = found.iter().map(|of| of.as_i64().expect("a number")).collect();
                column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)
            }
        }
        .expect("memory");
        column.close().expect("memory");
    }
    let texts: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(row.to_string().as_str())).collect();
    let mut column = group.next_column().expect("memory").expect("a column");
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).expect("memory");
    column.close().expect("memory");
    group.close().expect("memory");
    file.into_inner().expect("memory")
}

/// An object of one table whose typed columns are those of other rows.
fn typed(position: &Value, table: &str, rows: &[Value], typed: &[Value]) -> (Value, Vec<u8>) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    object_of(position, table, &lines, file(rows, typed, Compression::UNCOMPRESSED), "parquet")
}

fn object(position: &Value, table: &str, rows: &[Value]) -> (Value, Vec<u8>) {
    typed(position, table, rows, rows)
}

fn full(id: u64) -> Value {
    json!({"op": "u", "index": 0, "before": null, "after": {"id": id, "note": "a\nb", "price": 19.25, "none": null}})
}

/// Two entries over two tables.
fn two() -> Forge {
    let mut forge = Forge::new();
    for seq in 1..=2 {
        let at = lsn(seq * 0x100);
        let objects =
            vec![object(&at, "a", &[row(seq * 2), row(seq * 2 + 1)]), object(&at, "b", &[full(seq)])];
        forge.commit(at, objects, |_| {});
    }
    forge
}

#[tokio::test]
async fn rows_are_judged_whatever_the_compression() {
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())]
    {
        let mut forge = two();
        let rows = [full(7), json!({"op": "d", "before": [], "after": null}), json!({"op": "t"})];
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        let at = lsn(0x900);
        let other = object_of(&at, "a", &lines, file(&rows, &rows, compression), "parquet");
        forge.commit(at, vec![other], |_| {});
        let report = forge.judged().await;
        assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
        assert_eq!((report.statistics.rows["public.a"], report.statistics.rows["public.b"]), (7, 2));
    }
}

#[tokio::test]
async fn a_column_that_says_something_else_is_found() {
    let rows = [full(1), row(2)];
    for (path, other) in [
        ("/op", json!("c")),
        ("/op", json!(null)),
        ("/index", json!(1)),
        ("/index", json!(null)),
        ("/after", json!(null)),
        ("/after/id", json!(2)),
        ("/after/id", json!(null)),
        ("/after/note", json!("a b")),
        ("/after/price", json!(19.5)),
    ] {
        let mut differs = rows.clone();
        *differs[0].pointer_mut(path).expect("a member") = other;
        let mut forge = two();
        forge.commit(lsn(0x900), vec![typed(&lsn(0x900), "a", &rows, &differs)], |_| {});
        let report = forge.judged().await;
        assert_eq!(words(&report), "corrupt_object:1", "{path}");
        assert!(report.findings[0].detail.contains("row 1: column "), "{}", report.text());
    }
    // A member of the row that has no column, and an image that the row does not have.
    let mut forge = two();
    let rows = [json!({"op": "c", "after": {"id": 1, "new": 2}})];
    forge.commit(lsn(0x900), vec![object(&lsn(0x900), "a", &rows)], |_| {});
    let report = forge.judged().await;
    assert!(report.text().contains("column after.new, which is not there, says"), "{}", report.text());
    let mut forge = two();
    forge.commit(lsn(0x900), vec![typed(&lsn(0x900), "a", &[json!({"op": "u"})], &[row(1)])], |_| {});
    assert_eq!(forge.found().await, "corrupt_object:1");
}

#[tokio::test]
async fn empty_corrupt_and_mutated_files_are_found() {
    let whole = two().objects[&two().key("public.a/", 0)].clone();
    let other = file(&[row(8)], &[row(8)], Compression::UNCOMPRESSED);
    for (bytes, found) in [
        (Vec::new(), "empty_object:1"),
        (b"{\"id\":1}\n".to_vec(), "corrupt_object:1"),
        (whole[..whole.len() - 1].to_vec(), "corrupt_object:1"),
        (whole[whole.len() / 2..].to_vec(), "corrupt_object:1"),
        ([&b"PAR1"[..], &[0xFF; 64], b"\x20\0\0\0PAR1"].concat(), "corrupt_object:1"),
        (other, "mutated_object:1"),
    ] {
        let mut forge = two();
        let key = forge.key("public.a/", 0);
        forge.objects.insert(key, bytes);
        assert_eq!(forge.found().await, found);
    }
    let mut forge = two();
    forge.commit(lsn(0x900), vec![object(&lsn(0x900), "a", &[])], |_| {});
    assert_eq!(forge.found().await, "empty_object:1");
    let key = two().key("public.a/", 0);
    let mut forge = two();
    forge.objects.remove(&key);
    assert_eq!(forge.found().await, "missing:1");
}

#[tokio::test]
async fn rows_that_are_not_those_of_the_entry_are_found() {
    for (field, value) in [("rows", json!("3")), ("row_seq_digest", json!(sha("other")))] {
        let mut forge = two();
        let rows = object(&lsn(0x900), "a", &[row(9), row(10)]);
        forge.commit(lsn(0x900), vec![rows], |entry| entry["objects"][0][field] = value);
        assert_eq!(forge.found().await, "rows:1");
    }
    let mut forge = two();
    let lines = [row(8).to_string()];
    let bytes = file(&[row(9)], &[row(9)], Compression::UNCOMPRESSED);
    forge.commit(lsn(0x900), vec![object_of(&lsn(0x900), "a", &lines, bytes, "parquet")], |_| {});
    assert_eq!(forge.found().await, "rows:1", "the texts are other ones than the entry's digest is of");
}

#[tokio::test]
async fn expected_rows_are_there_once_and_in_order() {
    let list = |ids: &[u64]| -> String { ids.iter().map(|id| wanted("a", *id)).collect() };
    let b = |id: u64| {
        let row = json!({"/op": "u", "/after/id": id, "/after/note": "a\nb"});
        format!("{}\n", json!({"namespace": "public", "table": "b", "row": row}))
    };
    let both = b(1) + &b(2);
    let stored = two().stored().await;
    for (ids, found) in [
        (&[2, 3, 4, 5][..], ""),
        (&[2, 3, 4, 5, 6], "gap:1"),
        (&[3, 4, 5], "foreign:1"),
        (&[3, 2, 4, 5], "order:1"),
    ] {
        assert_eq!(words(&stored.judged(Some(&(list(ids) + &both))).await), found, "{ids:?}");
    }
    let mut forge = two();
    forge.commit(lsn(0x900), vec![object(&lsn(0x900), "a", &[row(5)])], |_| {});
    let report = forge.stored().await.judged(Some(&(list(&[2, 3, 4, 5]) + &both))).await;
    assert_eq!(words(&report), "duplicate:1");
}
