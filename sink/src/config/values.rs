//! YAML to checked values: each by its key's row of the table, and no key without one.

use std::collections::BTreeMap;

use yaml_serde::Value;

use super::ConfigError;
use super::keys::{KEYS, Key, Kind, REQUIRED, SECRETS};

/// A value as its key's kind wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Checked {
    Text(String),
    Number(u64),
    Flag(bool),
    Texts(Vec<String>),
}

/// What was configured, by path; defaults included.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(BTreeMap<&'static str, Checked>);

impl Values {
    /// Reads a document; every key is checked by the table.
    pub(super) fn read(text: &str) -> Result<Self, ConfigError> {
        let document: Value =
            yaml_serde::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?;
        let mut values = Self::default();
        match &document {
            Value::Mapping(_) => values.mapping("", "", &document)?,
            Value::Null => {}
            _ => return Err(ConfigError::Yaml("a mapping is wanted at the top".to_owned())),
        }
        for key in KEYS {
            if values.0.contains_key(key.path) {
                continue;
            }
            if key.default == REQUIRED {
                return Err(ConfigError::Missing { path: key.path.replace("[]", "[0]") });
            }
            if !key.default.starts_with('(') {
                // A text's default may be one that YAML has another meaning for, as a dash.
                let default = match key.kind {
                    Kind::Text => Value::from(key.default.trim_matches('"')),
                    _ => yaml_serde::from_str(key.default).unwrap_or(Value::Null),
                };
                values.0.insert(key.path, check(key, key.path, &default)?);
            }
        }
        Ok(values)
    }

    /// `path` as the table has it, `shown` as the document has it.
    fn mapping(&mut self, path: &str, shown: &str, value: &Value) -> Result<(), ConfigError> {
        let Value::Mapping(entries) = value else {
            return Err(wrong(shown, "a mapping is wanted", value));
        };
        for (name, value) in entries {
            let name = name.as_str().ok_or_else(|| wrong(shown, "keys are texts", name))?;
            let join = |at: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            self.entry(&join(path), &join(shown), value)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, shown: &str, value: &Value) -> Result<(), ConfigError> {
        let name = path.rsplit('.').next().unwrap_or(path);
        if SECRETS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(ConfigError::Secret { path: shown.to_owned() });
        }
        if path == "sinks" {
            return self.sinks(value);
        }
        if let Some(key) = KEYS.iter().find(|key| key.path == path) {
            // A key without a value is as if it were left out.
            if !value.is_null() {
                self.0.insert(key.path, check(key, shown, value)?);
            }
            return Ok(());
        }
        if KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))) {
            return if value.is_null() { Ok(()) } else { self.mapping(path, shown, value) };
        }
        let parent = &path[..path.len() - name.len()];
        let known = KEYS.iter().filter_map(|key| key.path.strip_prefix(parent)?.split('.').next());
        let mut known: Vec<&str> = known.map(|name| name.trim_end_matches("[]")).collect();
        known.dedup();
        Err(ConfigError::UnknownKey { path: shown.to_owned(), known: known.join(", ") })
    }

    fn sinks(&mut self, value: &Value) -> Result<(), ConfigError> {
        match value.as_sequence().map(Vec::as_slice) {
            Some([sink]) => self.mapping("sinks[]", "sinks[0]", sink),
            Some(sinks) => Err(ConfigError::Sinks { found: sinks.len() }),
            None => Err(wrong("sinks", "a list of one sink is wanted", value)),
        }
    }

    /// A text or a word of a choice; nothing where it has no default and was left out.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        match self.0.get(path) {
            Some(Checked::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    /// A number; nothing where it has no default and was left out.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        match self.0.get(path) {
            Some(Checked::Number(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn flag(&self, path: &str) -> bool {
        self.0.get(path) == Some(&Checked::Flag(true))
    }

    pub(super) fn texts(&self, path: &str) -> Option<&[String]> {
        match self.0.get(path) {
            Some(Checked::Texts(texts)) => Some(texts),
            _ => None,
        }
    }
}

fn check(key: &Key, shown: &str, value: &Value) -> Result<Checked, ConfigError> {
    match key.kind {
        Kind::Text => text(value).map(Checked::Text).ok_or_else(|| wrong(shown, "a text is wanted", value)),
        Kind::Choice(words) => match text(value) {
            Some(word) if words.contains(&&*word) => Ok(Checked::Text(word)),
            _ => Err(wrong(shown, &format!("one of {} is wanted", words.join(", ")), value)),
        },
        Kind::Number(least, most) => match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => Ok(Checked::Number(number)),
            _ => Err(wrong(shown, &format!("a whole number from {least} to {most} is wanted"), value)),
        },
        Kind::Flag => {
            value.as_bool().map(Checked::Flag).ok_or_else(|| wrong(shown, "true or false is wanted", value))
        }
        Kind::Texts => value
            .as_sequence()
            .and_then(|list| list.iter().map(text).collect())
            .map(Checked::Texts)
            .ok_or_else(|| wrong(shown, "a list of texts is wanted", value)),
    }
}

/// Numbers are taken as texts: identifiers of digits are seldom put in quotes.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

fn wrong(shown: &str, wanted: &str, value: &Value) -> ConfigError {
    let mut found = yaml_serde::to_string(value).unwrap_or_default().trim().to_owned();
    if found.len() > 60 {
        found = found.chars().take(60).chain("...".chars()).collect();
    }
    ConfigError::Value { path: shown.to_owned(), found, wanted: wanted.to_owned() }
}
