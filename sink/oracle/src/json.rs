//! JSON as the manifest has it: no duplicate keys, u64 as decimal strings, digests as lower-case hexadecimal.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Parses one JSON text and refuses a key that stands twice in one object.
///
/// # Errors
/// Where and why it is no such text.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer).map_err(|why| why.to_string())?;
    deserializer.end().map_err(|why| why.to_string())?;
    Ok(value)
}

/// Parses a JSON text as a record.
///
/// # Errors
/// As [`parse`], or which field is missing or of another form.
pub fn record<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_value(parse(bytes)?).map_err(|why| why.to_string())
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Strict)?;
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("key {name:?} stands twice in one object")));
            }
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

/// A u64 as a decimal string without sign or leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(pub u64);

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decimal(&text)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no decimal number of 64 bits")))
    }
}

/// Reads a u64 in its one decimal form.
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    text.parse().ok().filter(|_| plain)
}

/// N bytes as lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> Hex<N> {
    /// Reads exactly 2 N lower-case digits.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
        (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is no {N} bytes as lower-case hexadecimal digits"))
        })
    }
}

/// A SHA-256.
pub type Sha = Hex<32>;

/// The SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Sha {
    Hex(<sha2::Sha256 as sha2::Digest>::digest(bytes).into())
}

/// Appends `bytes` behind their length as 64 bits, big-endian.
pub fn length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_stand_once_in_an_object() {
        assert!(parse(br#"{"a":{"b":1},"b":[{"a":1},{"a":2}]}"#).is_ok());
        let error = parse(br#"{"a":[{"b":1,"b":2}]}"#).unwrap_err();
        assert!(error.contains("key \"b\" stands twice"), "{error}");
        assert!(parse(b"{} {}").is_err());
    }

    #[test]
    fn numbers_have_one_form() {
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        for text in ["", "+1", "-1", "01", "1 ", "0x1", "18446744073709551616", "00"] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
        assert!(serde_json::from_str::<Decimal>("7").is_err(), "a bare number loses digits elsewhere");
    }
}
