//! The pages about control paths and rules, compared with what the server says.

use std::collections::BTreeSet;
use std::path::Path;

use assay_server::{Rule, RuleError, Server};

use crate::{control, json};

/// The rows of the tables whose first column's name is this, their cells without code marks.
fn rows(page: &str, first: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let cells: Vec<String> = match line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
            Some(cells) => cells.split(" | ").map(|cell| cell.trim_matches('`').to_owned()).collect(),
            None => Vec::new(),
        };
        match cells.first() {
            None => inside = false,
            Some(cell) if cell == first => inside = true,
            Some(cell) if inside && !cell.starts_with("---") => rows.push(cells),
            Some(_) => {}
        }
    }
    assert!(!rows.is_empty(), "no table of {first} in {page}");
    rows
}

fn refusal(text: &str) -> RuleError {
    text.parse::<Rule>().map(|rule| rule.to_string()).expect_err(text)
}

/// The first words of the items of a list in a sentence.
fn items(list: &str) -> BTreeSet<String> {
    list.split(", ").map(|item| item.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn every_control_path_is_described() {
    let server = Server::builder().start().await.unwrap();
    let index = json(control(server.address(), "GET", "", "").await, 200);
    let told: Vec<Vec<String>> = index["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let methods: Vec<&str> =
                row["methods"].as_array().unwrap().iter().map(|method| method.as_str().unwrap()).collect();
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            vec![text("path"), methods.join(", "), text("does")]
        })
        .collect();
    assert_eq!(rows("control.md", "path"), told);
}

#[test]
fn every_field_says_what_it_accepts() {
    let fields = rows("rules.md", "field");
    for row in &fields {
        let [field, accepts, example] = &row[..] else { panic!("{row:?}") };
        let error = refusal(&format!("{field}=\"\" effect=drop"));
        assert_eq!((&error.field, &error.accepts), (field, accepts));
        let rule: Rule = format!("{example} effect=drop").parse().unwrap();
        assert!(rule.to_string().contains(&**example), "{rule}");
    }
    let known = refusal("nonsense=1 effect=drop").accepts;
    let known = known.split_once("there are ").unwrap().1;
    let (matching, _) = known.split_once(", effect and what goes with the effect").unwrap();
    let described: BTreeSet<String> = fields.iter().map(|row| row[0].clone()).collect();
    assert_eq!(described, items(matching));
}

#[test]
fn every_effect_has_an_example() {
    let effects = rows("rules.md", "effect");
    for row in &effects {
        let rule: Rule = row[2].parse().unwrap_or_else(|error| panic!("{}: {error}", row[2]));
        assert_eq!(rule.effect().name(), row[0]);
        assert_eq!(rule.to_string(), format!("name={} {}", row[0], row[2]));
    }
    let described: BTreeSet<String> = effects.iter().map(|row| row[0].clone()).collect();
    assert_eq!(described, items(&refusal("effect=nonsense").accepts));
    // What goes with effects is in some example.
    let known = refusal("nonsense=1 effect=drop").accepts;
    let with = known.rsplit_once('(').unwrap().1.trim_end_matches(')');
    for field in items(with) {
        assert!(effects.iter().any(|row| row[2].contains(&format!(" {field}="))), "{field}");
    }
}
