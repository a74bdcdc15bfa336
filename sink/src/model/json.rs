//! JSON as manifest objects and envelopes use it: no key twice in one object, and 64-bit numbers as decimal
//! text, since other languages' readers lose digits above 2^53.

use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Fields that this version does not know, kept as they came.
pub type Extra = Map<String, Value>;

/// Parses one JSON document and refuses a key that an object has twice: of two readers, one would take the
/// first and one the last.
///
/// # Errors
/// What serde_json says, or the key that is there twice.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Strict>(bytes).and_then(|Strict(value)| serde_json::from_value(value))
}

/// A value none of whose objects has a key twice.
struct Strict(Value);

impl<'de> de::Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Strict(value))) = fields.next_entry::<String, Strict>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A 64-bit number as decimal text: digits only, no zero in front of others.
pub mod decimal {
    use serde::de::{self, Deserialize, Deserializer};
    use serde::ser::Serializer;

    /// Writes the digits.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads the one spelling that [`serialize`] writes.
    ///
    /// # Errors
    /// Another spelling, or a number above 2^64 - 1.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<u64>() {
            Ok(value) if value.to_string() == text => Ok(value),
            _ => Err(de::Error::custom(format_args!("{text:?} is no decimal number of 64 bits"))),
        }
    }
}

/// [`decimal`], or null.
pub mod optional_decimal {
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(transparent)]
    struct Decimal(#[serde(with = "super::decimal")] u64);

    /// Writes the digits, or null.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Decimal).serialize(serializer)
    }

    /// Reads digits, or null.
    ///
    /// # Errors
    /// Any other spelling.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Decimal>::deserialize(deserializer)?.map(|Decimal(value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, serde::Serialize, PartialEq, Debug)]
    struct Numbers {
        #[serde(with = "decimal")]
        one: u64,
        #[serde(with = "optional_decimal")]
        other: Option<u64>,
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"b":[{"a":1,"a":2}]}"#] {
            let error = parse::<Value>(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(r#"the key "a" is there twice"#), "{error}");
        }
        let text = r#"{"a":[null,true,-1,18446744073709551615,"x",{}]}"#;
        assert_eq!(parse::<Value>(text.as_bytes()).unwrap().to_string(), text);
    }

    #[test]
    fn numbers_have_one_spelling() {
        let most = Numbers { one: u64::MAX, other: Some(0) };
        let text = r#"{"one":"18446744073709551615","other":"0"}"#;
        assert_eq!(serde_json::to_string(&most).unwrap(), text);
        assert_eq!(parse::<Numbers>(text.as_bytes()).unwrap(), most);
        let none = r#"{"one":"1","other":null}"#;
        assert_eq!(parse::<Numbers>(none.as_bytes()).unwrap(), Numbers { one: 1, other: None });
        for wrong in ["1", "\"01\"", "\"+1\"", "\" 1\"", "\"18446744073709551616\"", "\"\"", "1.0"] {
            let text = format!(r#"{{"one":{wrong},"other":null}}"#);
            assert!(parse::<Numbers>(text.as_bytes()).is_err(), "{wrong}");
        }
    }
}
