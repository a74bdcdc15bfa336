//! Several rules in one text: a file, or the body of a control request.

use serde_json::{Map, Value};

use super::fields::RuleError;
use super::rule::Rule;

/// Reads rules from JSON (an object or an array of them), from TOML (`[[fault]]` tables), or from lines in the form
/// of flags, in which `#` begins a comment.
///
/// # Errors
/// With the field of the first rule that does not parse and what it accepts. No rule counts then.
pub(crate) fn rules(text: &str) -> Result<Vec<Rule>, RuleError> {
    let trimmed = text.trim_start();
    let whole = |why: String| RuleError::new("", trimmed.lines().next().unwrap_or_default(), why);
    if trimmed.starts_with('{') || (trimmed.starts_with('[') && !trimmed.starts_with("[[")) {
        let value: Value =
            serde_json::from_str(trimmed).map_err(|error| whole(format!("no JSON: {error}")))?;
        return match value {
            Value::Array(all) => all.iter().map(object).collect(),
            one => Ok(vec![object(&one)?]),
        };
    }
    if trimmed.lines().any(|line| line.trim() == "[[fault]]") {
        let mut table: Map<String, Value> =
            toml::from_str(trimmed).map_err(|error| whole(format!("no TOML: {}", error.message())))?;
        let faults = table.remove("fault").unwrap_or_default();
        if let Some(other) = table.keys().next() {
            return Err(RuleError::new(other, "", "no such table; there is [[fault]]"));
        }
        return faults.as_array().map_or(Ok(Vec::new()), |all| all.iter().map(object).collect());
    }
    let lines = trimmed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::parse).collect()
}

fn object(value: &Value) -> Result<Rule, RuleError> {
    match value {
        Value::Object(fields) => Rule::from_object(fields),
        other => Err(RuleError::new("", &other.to_string(), "expected an object with a rule's fields")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_rules_in_three_forms() {
        let lines = "# two\nname=a key=\"x y\" nth=2 effect=delay ms=5\neffect=drop contended=true\n";
        let json = r#"[{"name": "a", "key": "x y", "nth": 2, "effect": "delay", "ms": 5},
                       {"effect": "drop", "contended": true}]"#;
        let toml = "[[fault]]\nname = 'a'\nkey = 'x y'\nnth = 2\neffect = 'delay'\nms = 5\n\
                    [[fault]]\neffect = 'drop'\ncontended = true\n";
        let written = |text: &str| rules(text).unwrap().iter().map(Rule::to_string).collect::<Vec<_>>();
        assert_eq!(written(lines).len(), 2);
        assert_eq!(written(json), written(lines));
        assert_eq!(written(toml), written(lines));
        assert_eq!(rules(r#"{"effect": "drop"}"#).unwrap().len(), 1);
        assert!(rules("").unwrap().is_empty());
    }

    #[test]
    fn one_bad_rule_spoils_all() {
        for (text, field) in [
            ("effect=drop\neffect=nothing", "effect"),
            (r#"[{"effect": "drop", "nth": "often"}]"#, "nth"),
            ("[[fault]]\neffect = 'drop'\nwhen = 1\n", "when"),
            ("[[fault]]\neffect = 'drop'\n[[rule]]\n", "rule"),
            ("{", ""),
            ("[1]", ""),
        ] {
            assert_eq!(rules(text).unwrap_err().field, field, "{text}");
        }
    }
}
