//! Rows as Parquet: typed columns for queries, and each row's canonical bytes, of which its digests are made.
//!
//! ```text
//! message row {
//!   optional binary op (STRING);
//!   optional int64 ts_ms (TIMESTAMP(MILLIS, UTC));
//!   optional binary position (STRING);
//!   optional int64 index;
//!   optional group before { optional … <column>; … }
//!   optional group after { optional … <column>; … }
//!   required binary row (STRING);
//! }
//! ```
//!
//! Both images have the same columns, in the order of the bytes of their names; without any, both are left out.
//! The same rows with the same declared types give the same bytes everywhere: writer's name, levels and limits are
//! fixed, and nothing holds a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::columns::{ColumnType, Columns, Image};
use super::{DecodeError, ZSTD_LEVEL};

/// What wrote a file; another text is another file.
const CREATED_BY: &str = "assay-sink parquet 1";

/// Most rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// Canonical bytes of rows at which a row group ends.
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// Rows that are read at once.
const READ_ROWS: usize = 1_024;

/// The column of canonical bytes.
const ROW: &str = "row";

/// The two images of a row.
const IMAGES: [&str; 2] = ["before", "after"];

/// A row's members as JSON, as far as it has them.
#[derive(Default)]
pub(super) struct Parsed<'a> {
    members: Image<'a>,
    images: [Option<Image<'a>>; 2],
}

impl<'a> Parsed<'a> {
    /// Whatever the row is: what it does not have is null.
    pub(super) fn of(row: &'a [u8]) -> Self {
        let members: Image<'a> = serde_json::from_slice(row).unwrap_or_default();
        let image = |name: &str| members.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok());
        Self { images: IMAGES.map(image), members }
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &Image<'a>> {
        self.images.iter().flatten()
    }
}

/// A leaf of the schema.
#[derive(Clone, Debug)]
struct Leaf {
    /// Which image it is of; nothing for the columns beside them.
    image: Option<usize>,
    name: String,
    of: ColumnType,
}

/// Writes rows, one after the other, whose columns are known.
pub(super) struct FileWriter {
    leaves: Vec<Leaf>,
    file: SerializedFileWriter<Vec<u8>>,
    group: Vec<Vec<u8>>,
    bytes: usize,
}

fn infallible<T>(result: Result<T, ParquetError>) -> T {
    result.expect("memory takes every byte, and the columns are those of the schema")
}

impl FileWriter {
    pub(super) fn new(columns: &BTreeMap<String, ColumnType>, compression: Compression) -> Self {
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_column_dictionary_enabled(ColumnPath::from(ROW), false)
            .set_column_statistics_enabled(ColumnPath::from(ROW), EnabledStatistics::None)
            .build();
        let schema = schema(columns);
        let file = infallible(SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)));
        Self { leaves: leaves(columns), file, group: Vec::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, row: &[u8]) {
        self.bytes += row.len();
        self.group.push(row.to_vec());
        if self.group.len() >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.end_group();
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end_group();
        infallible(self.file.into_inner())
    }

    fn end_group(&mut self) {
        let group = std::mem::take(&mut self.group);
        self.bytes = 0;
        if group.is_empty() {
            return;
        }
        let parsed: Vec<Parsed<'_>> = group.iter().map(|row| Parsed::of(row)).collect();
        let mut out = infallible(self.file.next_row_group());
        for leaf in &self.leaves {
            write_leaf(&mut out, leaf, &parsed);
        }
        let rows: Vec<ByteArray> = group.iter().map(|row| ByteArray::from(row.clone())).collect();
        write(&mut out, &Values::Bytes(rows), None);
        infallible(out.close());
    }
}

/// The compression, at its fixed level.
pub(super) fn zstd() -> Compression {
    Compression::ZSTD(infallible(ZstdLevel::try_new(ZSTD_LEVEL)))
}

fn leaves(columns: &BTreeMap<String, ColumnType>) -> Vec<Leaf> {
    let beside = [
        ("op", ColumnType::Text),
        ("ts_ms", ColumnType::TimestampMillis),
        ("position", ColumnType::Text),
        ("index", ColumnType::Int64),
    ];
    let beside = beside.map(|(name, of)| Leaf { image: None, name: name.to_owned(), of });
    let image = |image: usize| {
        columns.iter().map(move |(name, of)| Leaf { image: Some(image), name: name.clone(), of: *of })
    };
    beside.into_iter().chain(image(0)).chain(image(1)).collect()
}

fn schema(columns: &BTreeMap<String, ColumnType>) -> TypePtr {
    let leaves = leaves(columns);
    let field = |leaf: &Leaf| {
        let (physical, logical) = stored_as(leaf.of, leaf.image.is_none());
        let builder = Type::primitive_type_builder(&leaf.name, physical).with_logical_type(logical);
        Arc::new(infallible(builder.with_repetition(Repetition::OPTIONAL).build()))
    };
    let mut fields: Vec<TypePtr> = leaves.iter().filter(|leaf| leaf.image.is_none()).map(field).collect();
    for (at, name) in IMAGES.into_iter().enumerate().filter(|_| !columns.is_empty()) {
        let members = leaves.iter().filter(|leaf| leaf.image == Some(at)).map(field).collect();
        let group = Type::group_type_builder(name).with_repetition(Repetition::OPTIONAL).with_fields(members);
        fields.push(Arc::new(infallible(group.build())));
    }
    let row = Type::primitive_type_builder(ROW, Physical::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::String));
    fields.push(Arc::new(infallible(row.build())));
    Arc::new(infallible(Type::group_type_builder("row").with_fields(fields).build()))
}

/// `utc` is said of times that the sink itself knows to be.
fn stored_as(of: ColumnType, utc: bool) -> (Physical, Option<LogicalType>) {
    match of {
        ColumnType::Boolean => (Physical::BOOLEAN, None),
        ColumnType::Int32 => (Physical::INT32, None),
        ColumnType::Int64 => (Physical::INT64, None),
        ColumnType::Float => (Physical::FLOAT, None),
        ColumnType::Double => (Physical::DOUBLE, None),
        ColumnType::Date => (Physical::INT32, Some(LogicalType::Date)),
        ColumnType::TimestampMillis => (Physical::INT64, Some(LogicalType::timestamp(utc, TimeUnit::MILLIS))),
        ColumnType::TimestampMicros => (Physical::INT64, Some(LogicalType::timestamp(utc, TimeUnit::MICROS))),
        ColumnType::Text | ColumnType::Json => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    }
}

/// The types of a file's columns, as far as values alone would not give them again.
///
/// # Errors
/// [`DecodeError::Damaged`].
pub fn declared(bytes: &Bytes) -> Result<Columns, DecodeError> {
    let file = SerializedFileReader::new(bytes.clone()).map_err(damaged)?;
    let root = file.metadata().file_metadata().schema_descr().root_schema_ptr();
    let groups = root.get_fields().iter().filter(|of| of.is_group() && IMAGES.contains(&of.name()));
    let members = groups.flat_map(|group| group.get_fields().iter()).filter(|of| of.is_primitive());
    let of = |member: &TypePtr| {
        let logical = member.get_basic_info().logical_type_ref();
        Some(match (member.get_physical_type(), logical) {
            (Physical::BOOLEAN, _) => ColumnType::Boolean,
            (Physical::INT32, Some(LogicalType::Date)) => ColumnType::Date,
            (Physical::INT32, _) => ColumnType::Int32,
            (Physical::INT64, Some(LogicalType::Timestamp(time))) if time.unit == TimeUnit::MILLIS => {
                ColumnType::TimestampMillis
            }
            (Physical::INT64, Some(LogicalType::Timestamp(_))) => ColumnType::TimestampMicros,
            (Physical::INT64, _) => ColumnType::Int64,
            (Physical::FLOAT, _) => ColumnType::Float,
            (Physical::DOUBLE, _) => ColumnType::Double,
            // Of texts: values that are none turn it into JSON again.
            (Physical::BYTE_ARRAY, _) => ColumnType::Text,
            _ => return None,
        })
    };
    Ok(Columns(members.filter_map(|member| Some((member.name().to_owned(), of(member)?))).collect()))
}

/// Hands each row's canonical bytes to `take`, in order.
pub(super) fn for_each_row<E: From<DecodeError>>(
    bytes: &[u8],
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let file = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).map_err(damaged)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let column = schema.columns().iter().position(|column| {
        column.path().parts() == [ROW]
            && column.physical_type() == Physical::BYTE_ARRAY
            && column.max_def_level() == 0
            && column.max_rep_level() == 0
    });
    let missing =
        || DecodeError::Damaged { encoding: "parquet", reason: format!("it has no column {ROW:?}") };
    let column = column.ok_or_else(missing)?;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(damaged)?;
        let reader = group.get_column_reader(column).map_err(damaged)?;
        let ColumnReader::ByteArrayColumnReader(mut reader) = reader else { return Err(missing().into()) };
        let mut left = group.metadata().num_rows();
        while left > 0 {
            let mut rows: Vec<ByteArray> = Vec::new();
            let (read, ..) = reader.read_records(READ_ROWS, None, None, &mut rows).map_err(damaged)?;
            if read == 0 {
                let reason = format!("a row group ends {left} rows early");
                return Err(DecodeError::Damaged { encoding: "parquet", reason }.into());
            }
            left -= i64::try_from(read).unwrap_or(left);
            rows.iter().try_for_each(|row| take(row.data()))?;
        }
    }
    Ok(())
}

fn damaged(error: ParquetError) -> DecodeError {
    DecodeError::Damaged { encoding: "parquet", reason: error.to_string() }
}

/// The values of a column that are not null.
enum Values {
    Boolean(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

fn write_leaf(out: &mut SerializedRowGroupWriter<'_, Vec<u8>>, leaf: &Leaf, rows: &[Parsed<'_>]) {
    let mut levels: Vec<i16> = Vec::with_capacity(rows.len());
    let mut present: Vec<&RawValue> = Vec::new();
    for row in rows {
        let members = match leaf.image {
            None => Some(&row.members),
            Some(at) => row.images[at].as_ref(),
        };
        let outer = i16::from(leaf.image.is_some() && members.is_some());
        let value = members.and_then(|members| members.get(&leaf.name)).filter(|raw| fits(leaf, raw));
        levels.push(outer + i16::from(value.is_some()));
        present.extend(value.copied());
    }
    write(out, &values(leaf.of, &present), Some(&levels));
}

/// Whether a value is written: null is not, nor is, beside the images, what is no value of a row.
fn fits(leaf: &Leaf, raw: &RawValue) -> bool {
    let text = raw.get();
    match (leaf.image, leaf.of) {
        _ if text == "null" => false,
        (None, ColumnType::Text) => text.starts_with('"'),
        (None, _) => text.parse::<i64>().is_ok(),
        (Some(_), _) => true,
    }
}

/// Values that fit their type, since it was made to fit them.
fn values(of: ColumnType, raw: &[&RawValue]) -> Values {
    fn parsed<T: std::str::FromStr + Default>(raw: &[&RawValue]) -> Vec<T> {
        raw.iter().map(|raw| raw.get().parse().unwrap_or_default()).collect()
    }
    match of {
        ColumnType::Boolean => Values::Boolean(parsed(raw)),
        ColumnType::Int32 | ColumnType::Date => Values::Int32(parsed(raw)),
        ColumnType::Int64 | ColumnType::TimestampMillis | ColumnType::TimestampMicros => {
            Values::Int64(parsed(raw))
        }
        ColumnType::Float => Values::Float(parsed(raw)),
        ColumnType::Double => Values::Double(parsed(raw)),
        ColumnType::Text => Values::Bytes(
            raw.iter()
                .map(|raw| serde_json::from_str::<String>(raw.get()).unwrap_or_default())
                .map(|text| ByteArray::from(text.into_bytes()))
                .collect(),
        ),
        ColumnType::Json => {
            Values::Bytes(raw.iter().map(|raw| ByteArray::from(raw.get().as_bytes().to_vec())).collect())
        }
    }
}

/// Writes the next column of the row group.
fn write(out: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &Values, levels: Option<&[i16]>) {
    let Some(mut column) = infallible(out.next_column()) else { return };
    let written = match values {
        Values::Boolean(values) => column.typed::<BoolType>().write_batch(values, levels, None),
        Values::Int32(values) => column.typed::<Int32Type>().write_batch(values, levels, None),
        Values::Int64(values) => column.typed::<Int64Type>().write_batch(values, levels, None),
        Values::Float(values) => column.typed::<FloatType>().write_batch(values, levels, None),
        Values::Double(values) => column.typed::<DoubleType>().write_batch(values, levels, None),
        Values::Bytes(values) => column.typed::<ByteArrayType>().write_batch(values, levels, None),
    };
    infallible(written);
    infallible(column.close());
}

#[cfg(test)]
mod tests;
