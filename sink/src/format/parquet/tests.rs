use ::parquet::file::reader::FileReader;
use ::parquet::schema::printer::print_schema;

use super::super::{Encoding, Writer, digest, for_each_row as rows_of};
use super::*;

const ROWS: [&str; 4] = [
    r#"{"op":"c","ts_ms":1700000000000,"position":"16/B374D848","index":0,"before":null,"after":{"id":1,"day":19700,"note":"a\nb","price":19.90,"ok":true,"tags":["x"]}}"#,
    r#"{"op":"u","ts_ms":null,"position":"16/B374D850","index":1,"before":{"id":1},"after":{"id":2,"day":null,"note":null,"price":20,"ok":null,"tags":null}}"#,
    r#"{"op":"t","ts_ms":1,"position":"16/B374D851","index":0,"before":null,"after":null}"#,
    r#"not even JSON"#,
];

fn written(encoding: Encoding, declared: &[(&str, ColumnType)], rows: &[&str]) -> Bytes {
    let mut writer = Writer::new(encoding);
    let declared = declared.iter().map(|(name, of)| ((*name).to_owned(), *of));
    writer.declare(&Columns(declared.collect()));
    rows.iter().for_each(|row| writer.push(row.as_bytes()));
    writer.finish().bytes.into()
}

fn reader(bytes: &Bytes) -> SerializedFileReader<Bytes> {
    SerializedFileReader::new(bytes.clone()).unwrap()
}

/// What `ci/parquet/readers` reads.
const GOLDEN: [(Encoding, &[u8]); 3] = [
    (Encoding::Parquet, include_bytes!("rows.none.parquet")),
    (Encoding::ParquetSnappy, include_bytes!("rows.snappy.parquet")),
    (Encoding::ParquetZstd, include_bytes!("rows.zstd.parquet")),
];

#[test]
fn a_file_has_golden_bytes() {
    for (encoding, golden) in GOLDEN {
        let bytes = written(encoding, &[("id", ColumnType::Int32), ("day", ColumnType::Date)], &ROWS);
        assert!(bytes == golden, "{encoding:?}: {} bytes, {} golden", bytes.len(), golden.len());
    }
}

#[test]
fn columns_have_their_types_and_values() {
    let declared = [("id", ColumnType::Int32), ("day", ColumnType::Date)];
    let bytes = written(Encoding::ParquetSnappy, &declared, &ROWS);
    let file = reader(&bytes);
    let mut schema = Vec::new();
    print_schema(&mut schema, file.metadata().file_metadata().schema());
    let schema = String::from_utf8(schema).unwrap();
    let image = "OPTIONAL INT32 day (DATE);\n    OPTIONAL INT32 id;\n    OPTIONAL BYTE_ARRAY note (STRING);\n    \
                 OPTIONAL BOOLEAN ok;\n    OPTIONAL DOUBLE price;\n    OPTIONAL BYTE_ARRAY tags (STRING);\n  }\n";
    assert_eq!(
        schema,
        format!(
            "message row {{\n  OPTIONAL BYTE_ARRAY op (STRING);\n  OPTIONAL INT64 ts_ms \
             (TIMESTAMP(MILLIS,true));\n  OPTIONAL BYTE_ARRAY position (STRING);\n  OPTIONAL INT64 index;\n  \
             OPTIONAL group before {{\n    {image}  OPTIONAL group after {{\n    {image}  \
             REQUIRED BYTE_ARRAY row (STRING);\n}}\n"
        )
    );
    let shown: Vec<String> = file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert_eq!(
        shown[0].split(", before").next(),
        Some(r#"{op: "c", ts_ms: 2023-11-14 22:13:20.000 +00:00, position: "16/B374D848", index: 0"#)
    );
    let after = "after: {day: 2023-12-09, id: 1, note: \"a\nb\", ok: true, price: 19.9, tags: \"[\"x\"]\"}";
    assert!(shown[0].contains(after), "{}", shown[0]);
    assert!(shown[1].contains("before: {day: null, id: 1, note: null, ok: null, price: null, tags: null}"));
    assert!(shown[2].contains("before: null, after: null"), "{}", shown[2]);
    assert!(shown[3].starts_with("{op: null, ts_ms: null, position: null, index: null, before: null"));
}

#[test]
fn a_file_without_columns_has_no_images() {
    let rows = [r#"{"op":"t","ts_ms":1,"position":"p","index":0,"before":null,"after":null}"#];
    let bytes = written(Encoding::Parquet, &[], &rows);
    let columns = reader(&bytes).metadata().file_metadata().schema_descr().num_columns();
    assert_eq!((columns, digest(Encoding::Parquet, &bytes).unwrap().0), (5, 1));
}

#[test]
fn types_come_back_from_a_file_and_survive_another() {
    let declared_types = [
        ("a", ColumnType::Float),
        ("b", ColumnType::TimestampMillis),
        ("c", ColumnType::TimestampMicros),
        ("d", ColumnType::Date),
        ("e", ColumnType::Int64),
        ("f", ColumnType::Boolean),
    ];
    let rows = [r#"{"after":{"a":1,"b":2,"c":3,"d":4,"e":5,"f":true,"g":[1],"h":0.5,"i":"x","j":6}}"#];
    let bytes = written(Encoding::ParquetZstd, &declared_types, &rows);
    let found = declared(&bytes).unwrap();
    let kept: Vec<_> = declared_types.map(|(name, of)| (name.to_owned(), of)).into();
    assert!(kept.iter().all(|(name, of)| found.0.get(name) == Some(of)), "{found:?}");
    let mut writer = Writer::new(Encoding::ParquetZstd);
    writer.declare(&found);
    writer.push(rows[0].as_bytes());
    assert_eq!(writer.finish().bytes, bytes);
}

#[test]
fn many_rows_make_several_groups_and_stay_in_order() {
    let rows = u64::try_from(GROUP_ROWS).unwrap() + 10;
    let mut writer = Writer::new(Encoding::ParquetSnappy);
    for n in 0..rows {
        writer.push(format!(r#"{{"op":"c","index":{n},"after":{{"n":{n}}}}}"#).as_bytes());
    }
    let written = writer.finish();
    let bytes = Bytes::from(written.bytes);
    assert_eq!(reader(&bytes).num_row_groups(), 2);
    assert_eq!(digest(Encoding::ParquetSnappy, &bytes), Ok((rows, written.row_seq_digest)));
}

#[test]
fn what_is_no_such_file_is_damaged() {
    let bytes = written(Encoding::ParquetZstd, &[], &ROWS);
    let foreign = {
        let schema = Type::group_type_builder("row").with_fields(vec![]).build().unwrap();
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).unwrap();
        file.into_inner().unwrap()
    };
    for broken in [&b""[..], b"PAR1", &bytes[..bytes.len() - 1], &foreign] {
        let found = rows_of(Encoding::Parquet, broken, |_| Ok::<_, DecodeError>(()));
        assert!(matches!(found, Err(DecodeError::Damaged { encoding: "parquet", .. })), "{found:?}");
    }
}
