//! JSON values of rows: numbers as they are written, so that a digit that was lost is seen.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Objects and lists within each other, at most: a row that is deeper is refused.
const MOST_DEPTH: usize = 100;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exact {
    /// `null`, `true`, `false`, or a number, as it is written.
    Word(String),
    /// A string without its escapes.
    Text(String),
    /// A list.
    List(Vec<Exact>),
    /// An object.
    Object(BTreeMap<String, Exact>),
}

impl Exact {
    /// Reads one JSON text; a key that stands twice in one object is refused.
    ///
    /// # Errors
    /// Where and why it is no such text.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let raw: &RawValue = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        Self::of(raw, 0).map_err(|why| why.to_string())
    }

    fn of(raw: &RawValue, depth: usize) -> Result<Self, serde_json::Error> {
        if depth > MOST_DEPTH {
            return Err(serde_json::Error::custom(format!("deeper than {MOST_DEPTH}")));
        }
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                Self::List(items.into_iter().map(|item| Self::of(item, depth + 1)).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let mut fields = BTreeMap::new();
                for (name, value) in serde_json::Deserializer::from_str(text).deserialize_map(Fields)? {
                    let value = Self::of(value, depth + 1)?;
                    if fields.insert(name.clone(), value).is_some() {
                        return Err(serde_json::Error::custom(format!("key {name:?} stands twice")));
                    }
                }
                Self::Object(fields)
            }
            _ => Self::Word(text.to_owned()),
        })
    }

    /// The value at a JSON pointer (RFC 6901).
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, token| match value {
            Self::Object(fields) => fields.get(&token.replace("~1", "/").replace("~0", "~")),
            Self::List(items) => items.get(token.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// The text that is equal exactly when the values are: keys sorted, no space.
impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(","))
            }
            Self::Object(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
                write!(f, "{{{}}}", fields.join(","))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::of(&raw, 0).map_err(D::Error::custom)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = fields.next_entry()? {
            all.push(field);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        Exact::read(json.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn spelling_does_not_matter_but_digits_do() {
        let one = "{\"b\": [1, {\"y\": null, \"x\": \"\\u00e9\"}], \"a\": 1.50}";
        assert_eq!(text(one), "{\"a\":1.50,\"b\":[1,{\"x\":\"é\",\"y\":null}]}");
        assert_ne!(text("12345678901234567890.10"), text("12345678901234567890.1"));
        assert_ne!(text("9007199254740993.0"), text("9007199254740992.0"));
    }

    #[test]
    fn what_is_no_json_or_says_a_thing_twice_is_refused() {
        for json in ["", "{", "{\"a\":1,\"a\":1}", "[{\"a\":{\"b\":1,\"b\":2}}]", "1 2", "nul", "01"] {
            assert!(Exact::read(json.as_bytes()).is_err(), "{json}");
        }
        assert!(Exact::read(&b"[".repeat(100_000)).is_err());
        assert!(Exact::read(&[&b"[".repeat(102)[..], &b"]".repeat(102)].concat()).is_err());
    }

    #[test]
    fn pointers_lead_into_objects_and_lists() {
        let value = Exact::read(br#"{"a/b":[10,{"m~n":20}],"":30}"#).unwrap();
        for (pointer, found) in [
            ("/a~1b/0", Some("10")),
            ("/a~1b/1/m~0n", Some("20")),
            ("/", Some("30")),
            ("/a", None),
            ("a", None),
        ] {
            assert_eq!(value.pointer(pointer).map(ToString::to_string).as_deref(), found, "{pointer}");
        }
    }
}
