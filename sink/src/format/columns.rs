//! Types of a table's columns: from the schema that events bring, else from the values that are there.
//!
//! A declared type stands as long as every value fits it; where declarations differ, or a value does not fit,
//! values decide. The rules are those of the guide ("Parquet").

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A number in 32 bits.
    Float,
    /// A number in 64 bits.
    Double,
    /// Days since 1970.
    Date,
    /// Milliseconds since 1970 in no time zone.
    TimestampMillis,
    /// Microseconds since 1970 in no time zone.
    TimestampMicros,
    /// A text.
    Text,
    /// Whatever JSON has, as its text.
    Json,
}

/// Types that somebody declared, by name of column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub(super) BTreeMap<String, ColumnType>);

/// A schema as Debezium's JSON converter writes it beside the payload (Debezium documentation, "Schemas in change
/// events"; Kafka Connect's schema types).
#[derive(Deserialize)]
struct Schema {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    field: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    fields: Vec<Schema>,
}

impl Columns {
    /// Of the images in an event's schema; columns whose type says nothing about their JSON are left out.
    #[must_use]
    pub fn of_schema(schema: &str) -> Self {
        let Ok(schema) = serde_json::from_str::<Schema>(schema) else { return Self::default() };
        let images = schema.fields.iter().filter(|of| matches!(of.field.as_str(), "before" | "after"));
        let columns = images.flat_map(|image| &image.fields);
        Self(columns.filter_map(|of| Some((of.field.clone(), declared(of)?))).collect())
    }
}

fn declared(of: &Schema) -> Option<ColumnType> {
    Some(match (of.r#type.as_str(), of.name.as_deref().unwrap_or_default()) {
        ("int32", "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date") => ColumnType::Date,
        ("int64", "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp") => {
            ColumnType::TimestampMillis
        }
        ("int64", "io.debezium.time.MicroTimestamp") => ColumnType::TimestampMicros,
        ("boolean", _) => ColumnType::Boolean,
        ("int8" | "int16" | "int32", _) => ColumnType::Int32,
        ("int64", _) => ColumnType::Int64,
        ("float" | "float32", _) => ColumnType::Float,
        ("double" | "float64", _) => ColumnType::Double,
        ("string", _) => ColumnType::Text,
        _ => return None,
    })
}

// What values of a column are there.
const BOOLEAN: u8 = 1;
const INT32: u8 = 1 << 1;
const INT64: u8 = 1 << 2;
/// An integer of more than 64 bits.
const BIG: u8 = 1 << 3;
const FRACTION: u8 = 1 << 4;
const TEXT: u8 = 1 << 5;
const OTHER: u8 = 1 << 6;

fn kind(value: &RawValue) -> u8 {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'n') | None => 0,
        Some(b't' | b'f') => BOOLEAN,
        Some(b'"') => TEXT,
        Some(b'{' | b'[') => OTHER,
        Some(_) if text.contains(['.', 'e', 'E']) => FRACTION,
        Some(_) if text.parse::<i32>().is_ok() => INT32,
        Some(_) if text.parse::<i64>().is_ok() => INT64,
        Some(_) => BIG,
    }
}

/// The members of an image, by name.
pub(super) type Image<'a> = BTreeMap<String, &'a RawValue>;

/// Columns as they were seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed(BTreeMap<String, Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    kinds: u8,
    declared: Option<ColumnType>,
    /// Declared as two types.
    disputed: bool,
}

impl Observed {
    /// Takes note of declared types.
    pub(super) fn declare(&mut self, columns: &Columns) {
        for (name, declared) in &columns.0 {
            let seen = self.column(name);
            seen.disputed |= seen.declared.is_some_and(|before| before != *declared);
            seen.declared = Some(*declared);
        }
    }

    /// Takes note of the values of an image.
    pub(super) fn see(&mut self, image: &Image<'_>) {
        for (name, value) in image {
            self.column(name).kinds |= kind(value);
        }
    }

    fn column(&mut self, name: &str) -> &mut Seen {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Seen::default());
        }
        self.0.entry(name.to_owned()).or_default()
    }

    /// Every column that was seen or declared, with the type that all of its values fit.
    pub(super) fn types(&self) -> BTreeMap<String, ColumnType> {
        self.0.iter().map(|(name, seen)| (name.clone(), seen.fitting())).collect()
    }
}

impl Seen {
    fn fitting(self) -> ColumnType {
        let only = |kinds: u8| self.kinds & !kinds == 0;
        let fits = |declared: &ColumnType| match declared {
            ColumnType::Boolean => only(BOOLEAN),
            ColumnType::Int32 | ColumnType::Date => only(INT32),
            ColumnType::Int64 | ColumnType::TimestampMillis | ColumnType::TimestampMicros => {
                only(INT32 | INT64)
            }
            ColumnType::Float | ColumnType::Double => only(INT32 | INT64 | BIG | FRACTION),
            ColumnType::Text => only(TEXT),
            ColumnType::Json => true,
        };
        if let Some(declared) = self.declared.filter(|declared| !self.disputed && fits(declared)) {
            return declared;
        }
        [ColumnType::Text, ColumnType::Boolean, ColumnType::Int64]
            .into_iter()
            .find(fits)
            .or_else(|| only(INT32 | INT64 | FRACTION).then_some(ColumnType::Double))
            .unwrap_or(ColumnType::Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type of column `c` with these values, each in a row of its own.
    fn of(declared: &[ColumnType], values: &[&str]) -> ColumnType {
        let mut observed = Observed::default();
        for declared in declared {
            observed.declare(&Columns([("c".to_owned(), *declared)].into()));
        }
        for value in values {
            let text = format!("{{\"c\":{value}}}");
            observed.see(&serde_json::from_str::<Image<'_>>(&text).unwrap());
        }
        observed.types()["c"]
    }

    #[test]
    fn values_decide_where_nothing_is_declared() {
        for (values, wanted) in [
            (&["null"][..], ColumnType::Text),
            (&["\"a\"", "null"], ColumnType::Text),
            (&["true", "false"], ColumnType::Boolean),
            (&["1", "-9223372036854775808"], ColumnType::Int64),
            (&["1", "1.5"], ColumnType::Double),
            (&["1e3"], ColumnType::Double),
            (&["9223372036854775808"], ColumnType::Json),
            (&["9223372036854775808", "0.5"], ColumnType::Json),
            (&["1", "\"1\""], ColumnType::Json),
            (&["{}"], ColumnType::Json),
            (&["[1]", "null"], ColumnType::Json),
        ] {
            assert_eq!(of(&[], values), wanted, "{values:?}");
        }
    }

    #[test]
    fn a_declared_type_stands_while_values_fit_and_nobody_disputes_it() {
        for (declared, values, wanted) in [
            (&[ColumnType::Int32][..], &["1"][..], ColumnType::Int32),
            (&[ColumnType::Int32], &["2147483648"], ColumnType::Int64),
            (&[ColumnType::Double], &["1"], ColumnType::Double),
            (&[ColumnType::Date], &["19700"], ColumnType::Date),
            (&[ColumnType::TimestampMicros], &["null"], ColumnType::TimestampMicros),
            (&[ColumnType::TimestampMillis], &["\"2024-01-01\""], ColumnType::Text),
            (&[ColumnType::Int32, ColumnType::Int32], &["1"], ColumnType::Int32),
            (&[ColumnType::Int32, ColumnType::Int64], &["1"], ColumnType::Int64),
            (&[ColumnType::Text, ColumnType::Int64], &["1"], ColumnType::Int64),
        ] {
            assert_eq!(of(declared, values), wanted, "{declared:?} {values:?}");
        }
    }

    #[test]
    fn debeziums_schema_declares() {
        let schema = r#"{"type":"struct","fields":[
            {"type":"struct","optional":true,"field":"before","fields":[{"type":"int32","field":"id"}]},
            {"type":"struct","optional":true,"field":"after","fields":[
                {"type":"int32","optional":false,"field":"id"},
                {"type":"int32","name":"io.debezium.time.Date","version":1,"field":"day"},
                {"type":"int64","name":"io.debezium.time.MicroTimestamp","field":"at"},
                {"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","field":"price"},
                {"type":"string","name":"io.debezium.data.Json","field":"extra"},
                {"type":"double","field":"weight"}]},
            {"type":"string","field":"op"}],"name":"server.public.orders.Envelope"}"#;
        let wanted = [
            ("at", ColumnType::TimestampMicros),
            ("day", ColumnType::Date),
            ("extra", ColumnType::Text),
            ("id", ColumnType::Int32),
            ("weight", ColumnType::Double),
        ];
        let wanted = wanted.map(|(name, declared)| (name.to_owned(), declared));
        assert_eq!(Columns::of_schema(schema), Columns(wanted.into()));
        assert_eq!(Columns::of_schema("[]"), Columns::default());
    }
}
