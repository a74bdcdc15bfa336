//! Rows of Parquet data objects: each row's text stands in a column of its own, and the typed columns beside it must
//! say what it says.
//!
//! Pages and footers are decoded by the library that the sink encodes them with, for want of a second one in Rust
//! without Arrow: `ci/parquet/readers` has other readers look at the same files. What columns and values mean is
//! written a second time here.

use std::panic::catch_unwind;

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use bytes::Bytes;

use crate::exact::Exact;

/// The column of rows' texts.
const ROW: &str = "row";

/// The two images of a row; each is null where the row has no such object.
const IMAGES: [&str; 2] = ["before", "after"];

/// Hands each row's text to `take`, which reads it, and compares the typed columns with what it reads.
///
/// # Errors
/// Why the bytes are no such file, which column differs, and what `take` says.
pub(crate) fn each_row(
    bytes: &[u8],
    most_bytes: u64,
    mut take: impl FnMut(&[u8]) -> Result<Exact, String>,
) -> Result<(), String> {
    let bytes = Bytes::copy_from_slice(bytes);
    // On bytes that no writer made the library may panic: these are no rows either.
    let texts =
        catch_unwind(|| decoded(bytes, most_bytes)).unwrap_or(Err("its reader gave up".to_owned()))?;
    for (number, row) in (1..).zip(texts) {
        let text = row.get_column_iter().find(|(name, _)| *name == ROW).map(|(_, text)| text);
        let Some(Field::Str(text)) = text else { return Err(format!("there is no text in column {ROW:?}")) };
        let exact = take(text.as_bytes())?;
        for (name, field) in row.get_column_iter().filter(|(name, _)| *name != ROW) {
            let value = exact.pointer(&format!("/{name}"));
            let says = if IMAGES.contains(&name.as_str()) {
                image(field, value)
            } else {
                beside(name, field, value).then_some(()).ok_or(String::new())
            };
            says.map_err(|member| format!("row {number}: column {name}{member} says something else"))?;
        }
    }
    Ok(())
}

fn decoded(bytes: Bytes, most_bytes: u64) -> Result<Vec<Row>, String> {
    let text = |why: ParquetError| format!("parquet: {why}");
    let file = SerializedFileReader::new(bytes).map_err(text)?;
    let groups = file.metadata().row_groups().iter();
    let size: u64 = groups.map(|group| u64::try_from(group.total_byte_size()).unwrap_or(u64::MAX)).sum();
    if size >= most_bytes {
        return Err(format!("more than {most_bytes} bytes"));
    }
    file.get_row_iter(None).map_err(text)?.map(|row| row.map_err(text)).collect()
}

/// A column beside the images: null where the row has no value of its type.
fn beside(name: &str, field: &Field, value: Option<&Exact>) -> bool {
    let typed = match value {
        Some(Exact::Text(_)) => matches!(name, "op" | "position"),
        Some(Exact::Word(word)) => matches!(name, "ts_ms" | "index") && word.parse::<i64>().is_ok(),
        _ => false,
    };
    if typed { says(field, value) } else { matches!(field, Field::Null) }
}

/// An image's columns; the member that differs is the error.
fn image(field: &Field, value: Option<&Exact>) -> Result<(), String> {
    let (row, members) = match (field, value) {
        (Field::Group(row), Some(Exact::Object(members))) => (row, members),
        (Field::Null, value) if !matches!(value, Some(Exact::Object(_))) => return Ok(()),
        _ => return Err(String::new()),
    };
    for (name, field) in row.get_column_iter() {
        if !says(field, members.get(name)) {
            return Err(format!(".{name}"));
        }
    }
    let without = members
        .iter()
        .find(|(name, value)| !is_null(value) && !row.get_column_iter().any(|(column, _)| column == *name));
    without.map_or(Ok(()), |(name, _)| Err(format!(".{name}, which is not there,")))
}

fn is_null(value: &Exact) -> bool {
    matches!(value, Exact::Word(word) if word == "null")
}

/// Whether a column's value is the row's. What is neither a text nor of one type stands as JSON.
fn says(field: &Field, value: Option<&Exact>) -> bool {
    let Some(value) = value.filter(|value| !is_null(value)) else { return matches!(field, Field::Null) };
    match (field, value) {
        (Field::Str(text), value) => {
            matches!(value, Exact::Text(of) if of == text)
                || Exact::read(text.as_bytes()).is_ok_and(|read| read == *value)
        }
        (Field::Bool(of), Exact::Word(word)) => *word == of.to_string(),
        (Field::Int(of) | Field::Date(of), Exact::Word(word)) => word.parse() == Ok(*of),
        (Field::Long(of) | Field::TimestampMillis(of) | Field::TimestampMicros(of), Exact::Word(word)) => {
            word.parse() == Ok(*of)
        }
        (Field::Float(of), Exact::Word(word)) => word.parse() == Ok(*of),
        (Field::Double(of), Exact::Word(word)) => word.parse() == Ok(*of),
        _ => false,
    }
}
