//! The one form of a rule that all five doors read: fields with names and values.
//!
//! A flag and a request header hold them as `name=value` words, a value in double quotes where it has spaces; a
//! file holds them as a TOML table, the control API as a JSON object. The same field means the same in each.

use std::collections::BTreeMap;
use std::fmt;

/// Why a rule does not parse: which field, what it says, what it accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    /// The field's name; empty where the text as a whole can't be read.
    pub field: String,
    /// What it says.
    pub value: String,
    /// What it accepts.
    pub accepts: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return write!(f, "rule {:?}: {}", self.value, self.accepts);
        }
        write!(f, "field {} = {:?}: accepts {}", self.field, self.value, self.accepts)
    }
}

impl RuleError {
    pub(crate) fn new(field: &str, value: &str, accepts: impl Into<String>) -> Self {
        Self { field: field.to_owned(), value: value.to_owned(), accepts: accepts.into() }
    }
}

/// A rule's fields, each taken once by whoever knows what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// # Errors
    /// Where a word is no field, a field is there twice, or a quote has no end.
    pub(super) fn from_text(text: &str) -> Result<Self, RuleError> {
        let mut fields = BTreeMap::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let whole = |why: &str| RuleError::new("", text, why.to_owned());
            let (name, after) = rest
                .split_once('=')
                .filter(|(name, _)| !name.is_empty() && !name.contains(char::is_whitespace))
                .ok_or_else(|| whole("expected words of the form name=value"))?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => unquote(quoted).ok_or_else(|| whole("a quote has no end"))?,
                None => {
                    let end = after.find(char::is_whitespace).unwrap_or(after.len());
                    (after[..end].to_owned(), &after[end..])
                }
            };
            if fields.insert(name.to_owned(), value).is_some() {
                return Err(RuleError::new(name, text, "one value; the field is there twice"));
            }
            rest = after.trim_start();
        }
        Ok(Self(fields))
    }

    /// From a JSON object or a TOML table, whose values are strings, numbers or booleans.
    ///
    /// # Errors
    /// Where a value is a list, a table or null.
    pub(super) fn from_object(
        object: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, RuleError> {
        use serde_json::Value;
        let field = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
            other => Err(RuleError::new(name, &other.to_string(), "a string, a number, true or false")),
        };
        object.iter().map(field).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Takes a field and reads it.
    ///
    /// # Errors
    /// With what the field accepts, where `read` does not.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        accepts: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, RuleError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        read(&text).map(Some).ok_or_else(|| RuleError::new(name, &text, accepts))
    }

    /// Takes a field that must be there.
    pub(super) fn need<T>(
        &mut self,
        name: &str,
        accepts: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, RuleError> {
        self.read(name, accepts, read)?.ok_or_else(|| RuleError::new(name, "", accepts))
    }

    /// Nothing may be left that nobody took: a misspelt field must not be a fault that never fires.
    pub(super) fn end(self, known: &str) -> Result<(), RuleError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => {
                Err(RuleError::new(&name, &value, format!("no such field here; there are {known}")))
            }
        }
    }
}

fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// Writes one field in the form of words.
pub(super) fn write(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    let value = value.to_string();
    if value.is_empty() || value.starts_with('"') || value.contains(char::is_whitespace) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
        return write!(f, " {name}=\"{escaped}\"");
    }
    write!(f, " {name}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let mut fields = Fields::from_text(r#" a=1 b="two words" c="a \"q\" \\" d= "#).unwrap();
        for (name, value) in [("a", "1"), ("b", "two words"), ("c", "a \"q\" \\"), ("d", "")] {
            assert_eq!(fields.take(name).as_deref(), Some(value), "{name}");
        }
        for bad in ["a", "=1", "a=1 a=2", "a=\"open", "a b=1"] {
            assert!(Fields::from_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn objects_hold_plain_values() {
        let object = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
        let words = Fields::from_text("a=1 b=x c=true").unwrap();
        assert_eq!(Fields::from_object(&object(r#"{"a": 1, "b": "x", "c": true}"#)), Ok(words));
        assert_eq!(Fields::from_object(&object(r#"{"a": []}"#)).unwrap_err().field, "a");
    }
}
