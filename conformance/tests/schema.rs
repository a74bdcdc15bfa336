//! Reports are as conformance/certificate.schema.json says, and schema.md names all of it.

use assay_checks::{Client, Clock, Race, Settings};
use assay_conformance::report::{Head, Report, Verdict, draw_up};
use assay_conformance::runner::Plan;
use assay_conformance::{embedded, render, runner, selection};
use assay_server::Server;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;

const SCHEMA: &str = include_str!("../certificate.schema.json");
const PAGE: &str = include_str!("../schema.md");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

/// What of `value` is not as `rule` says, with its place. Knows the words that the schema uses, and no others.
fn violations(rule: &Value, value: &Value, place: &str, root: &Value, found: &mut Vec<String>) {
    for (word, argument) in rule.as_object().expect("a rule is an object") {
        let holds = match (word.as_str(), argument) {
            ("$schema" | "title" | "$defs" | "properties", _) => true,
            ("$ref", Value::String(path)) => {
                let target = root.pointer(path.trim_start_matches('#')).expect("a definition");
                violations(target, value, place, root, found);
                true
            }
            ("type", Value::String(name)) => is(value, name),
            ("type", Value::Array(names)) => {
                names.iter().any(|name| is(value, name.as_str().expect("a name")))
            }
            ("const", expected) => value == expected,
            ("enum", Value::Array(values)) => values.contains(value),
            ("minimum", least) => value.as_u64() >= least.as_u64(),
            ("required", Value::Array(names)) => {
                names.iter().all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            ("items", rule) => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    violations(rule, item, &format!("{place}/{at}"), root, found);
                }
                true
            }
            ("anyOf", Value::Array(rules)) => rules.iter().any(|rule| {
                let mut inner = Vec::new();
                violations(rule, value, place, root, &mut inner);
                inner.is_empty()
            }),
            ("additionalProperties", other) => {
                let named = rule.get("properties");
                for (name, item) in value.as_object().into_iter().flatten() {
                    let place = format!("{place}/{name}");
                    match (named.and_then(|named| named.get(name)), other) {
                        (Some(rule), _) => violations(rule, item, &place, root, found),
                        (None, Value::Object(_)) => violations(other, item, &place, root, found),
                        (None, _) => found.push(format!("{place} is not in the schema")),
                    }
                }
                true
            }
            (word, _) => panic!("the test does not know the word {word:?}"),
        };
        if !holds {
            found.push(format!("{place}: {value} against {word} {argument}"));
        }
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        other => panic!("no type is called {other}"),
    }
}

fn checked(document: &str) -> Vec<String> {
    let (root, mut found) = (schema(), Vec::new());
    let value: Value = serde_json::from_str(document).expect("a report is JSON");
    violations(&root, &value, "", &root, &mut found);
    found
}

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

/// A report of the server with these deviations.
async fn report(deviations: &[&str]) -> Report {
    let builder = deviations
        .iter()
        .fold(Server::builder(), |builder, name| builder.deviation(name.parse().expect("a deviation")));
    let (_server, provider) = embedded::start_as(builder).await.expect("the server starts");
    let surroundings = provider.surroundings();
    let client = Client::new(Settings {
        endpoint: provider.endpoint.clone(),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(30),
        clock: clock(),
    });
    let globs = ["put.*", "copy.*", "race.put.create"].map(str::to_owned);
    let plan = Plan {
        checks: selection::select(&globs).expect("they exist"),
        without: vec![assay_checks::Need::Copy],
        surroundings,
        race: Race { writers: 4, rounds: 2 },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 4,
        budget: None,
        clock: clock(),
    };
    let head = Head {
        name: Some("embedded".into()),
        suite: "0".into(),
        endpoint: provider.endpoint.url(),
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        addressing: "path".into(),
        embedded: true,
        started: "2026-11-29T20:00:00Z".into(),
        seed: 1,
        rounds: 2,
        writers: 4,
        suite_checks: assay_checks::all().count(),
        duration_ms: 1,
    };
    draw_up(head, runner::run(&plan, &client, "assay-certify/schema/", |_| {}).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_as_the_schema_says() {
    for (deviations, verdict) in
        [(&[][..], Verdict::Partial), (&["ignore-if-none-match-put"], Verdict::Refused)]
    {
        let report = report(deviations).await;
        assert_eq!(report.verdict, verdict, "{}", report.line);
        let json = render::json::report(&report);
        assert_eq!(checked(&json), Vec::<String>::new());
        assert!(
            json.contains("\"skip\"") && (verdict == Verdict::Partial || json.contains("\"steps\"")),
            "{json}"
        );
        // What the schema forbids is found.
        for (from, to) in
            [("\"schema\": 2", "\"schema\": 3"), ("\"seed\": 1", "\"seed\": -1"), ("\"bucket\"", "\"pail\"")]
        {
            assert!(!checked(&json.replacen(from, to, 1)).is_empty(), "{from} as {to}");
        }
    }
}

#[test]
fn the_page_names_every_field() {
    fn names(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::Object(properties)) = map.get("properties") {
                    out.extend(properties.keys().cloned());
                }
                map.values().for_each(|value| names(value, out));
            }
            Value::Array(items) => items.iter().for_each(|value| names(value, out)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    names(&schema(), &mut all);
    assert!(all.len() > 40, "{all:?}");
    let words: Vec<&str> = PAGE.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    all.retain(|name| !words.contains(&name.as_str()));
    assert_eq!(all, Vec::<String>::new(), "schema.md does not tell what they mean");
}
