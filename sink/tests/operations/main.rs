//! What operators install and read: alert rules and dashboard use metrics that exist, and the page of alarms leads from
//! each alarm, stop and exit code somewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sinks::metrics::Metrics;
use sinks::model::ids::Digest;
use sinks::stop::{StopReason, Stopped};

const ALERTS: &str = include_str!("../../ops/alerts.yaml");
const DASHBOARD: &str = include_str!("../../ops/grafana-dashboard.json");
const PAGE: &str = include_str!("../../docs/alarms.md");
const PREFIX: &str = "deltaforge_sink_s3_";

/// Every exported metric, with its labels.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = Metrics::new("orders", "s3");
    metrics.set_watermark(&Digest::of(b"here"));
    metrics.probe_result.with_label_values(&["1"]).set(1);
    let text = metrics.text();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').expect("labels");
        let names = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()));
        found.entry(name.to_owned()).or_default().extend(names);
    }
    found
}

/// The metrics that an expression reads, each with the labels that it selects by.
fn used(expression: &str) -> Vec<(String, Vec<String>)> {
    expression
        .match_indices(PREFIX)
        .map(|(at, _)| {
            let rest = &expression[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let selector =
                rest[end..].strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
            let labels = selector.split(',').filter_map(|pair| pair.split(['=', '!']).next());
            let labels = labels.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
            (rest[..end].to_owned(), labels.collect())
        })
        .collect()
}

#[track_caller]
fn reads_what_exists(exported: &BTreeMap<String, BTreeSet<String>>, expression: &str) {
    let used = used(expression);
    assert!(!used.is_empty(), "{expression:?} reads no metric of the sink");
    for (name, labels) in used {
        let known = exported.get(&name).unwrap_or_else(|| panic!("{name} in {expression:?} is not exported"));
        for label in labels {
            assert!(known.contains(&label), "{name} has no label {label}: {expression:?}");
        }
    }
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        let count = |c| expression.matches(c).count();
        assert_eq!(count(open), count(close), "{expression:?}");
    }
}

/// The anchors of the page's headings, as GitHub makes them.
fn anchors() -> BTreeSet<String> {
    let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")));
    headings
        .map(|heading| {
            let kept = heading.to_lowercase();
            let kept = kept.chars().filter(|c| c.is_ascii_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_alert_reads_metrics_that_exist_and_leads_to_the_page() {
    let (exported, anchors) = (exported(), anchors());
    let rules: Value = yaml_serde::from_str(ALERTS).expect("YAML");
    let mut names = BTreeSet::new();
    for rule in rules["groups"][0]["rules"].as_array().expect("rules") {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        reads_what_exists(&exported, rule["expr"].as_str().expect("an expression"));
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("page" | "ticket")), "{name}: {severity:?}");
        assert!(
            rule["annotations"]["summary"].as_str().is_some_and(|text| text.contains("$labels.pipeline")),
            "{name}"
        );
        let runbook = rule["annotations"]["runbook"].as_str().expect("a runbook");
        let anchor = runbook.strip_prefix("sink/docs/alarms.md#").expect("the page");
        assert!(anchors.contains(anchor), "{name}: no heading {anchor} in {anchors:?}");
        let known = ["alert", "expr", "for", "labels", "annotations"];
        let fields = rule.as_object().expect("a mapping").keys();
        assert_eq!(fields.filter(|field| !known.contains(&field.as_str())).count(), 0, "{name}");
    }
    // The operations guide's section "Alarms", in its order.
    for name in [
        "SinkNotDurable",
        "SinkMissingReferencedObject",
        "SinkGcStopped",
        "SinkWriterFenced",
        "SinkCasConflictsRise",
        "SinkCompactionLagGrows",
    ] {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let (mut ids, mut places, mut shown) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && places.insert((x, y)), "{} lies over another", panel["title"]);
            }
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            reads_what_exists(&exported, expression);
            shown.extend(used(expression).into_iter().map(|(name, _)| name));
            assert_eq!(target["datasource"]["uid"], "${datasource}");
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["definition"].as_str() {
            reads_what_exists(&exported, query);
        }
    }
    let parts = ["_sum", "_count"];
    let missing: Vec<_> = exported
        .keys()
        .filter(|name| !shown.contains(*name) && !parts.iter().any(|part| name.ends_with(part)))
        .collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn the_page_leads_from_every_alarm_and_stop_somewhere() {
    for reason in StopReason::ALL {
        assert!(PAGE.contains(&format!("\n### `{}`\n", reason.name())), "{}", reason.name());
        assert!(
            PAGE.contains(&format!("(exit code {})", Stopped::new(reason, "").exit_code())),
            "{}",
            reason.name()
        );
    }
    // The words of `Alarm`, from where they are defined: its variants carry values and can't be listed.
    let source = include_str!("../../src/error.rs");
    let words = source.split("impl Alarm {").nth(1).expect("its words");
    let words: Vec<&str> =
        words.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\",")).collect();
    let variants = source.split("pub enum Alarm {").nth(1).and_then(|rest| rest.split("\n}").next());
    let variants = variants.expect("its variants").matches("#[error(").count();
    assert_eq!(words.len() + 1, variants, "one alarm speaks for its cause: {words:?}");
    for word in words {
        assert!(PAGE.contains(&format!("\n| `{word}` | ")), "{word}");
    }
    for heading in [
        "Not durable",
        "Missing referenced object",
        "GC or reconcile stopped early",
        "Writer fenced",
        "CAS conflicts rising",
        "Compaction lag growing",
    ] {
        assert!(PAGE.contains(&format!("\n## {heading}\n")), "{heading}");
    }
}
