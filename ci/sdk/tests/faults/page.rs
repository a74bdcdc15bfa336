//! server/docs/faults.md shows what the tests run: its tables are their tables, its code is their code.

use std::fmt::Write as _;

use super::effects::{EFFECTS, Row, STATES};

const RUST: &str = include_str!("cookbook.rs");
const PYTHON: &str = include_str!("../../../python/cookbook.py");
const PAGE: &str = include_str!("../../../../server/docs/faults.md");
const FIRST_GUIDE: &str = include_str!("../../../../README.md");

fn table(rows: &[Row], second: &str) -> String {
    let mut table = format!("| effect | {second} | what a client sees |\n| --- | --- | --- |\n");
    for Row { effect, rule, sees } in rows {
        let _ = writeln!(table, "| {effect} | `{rule}` | {sees} |");
    }
    table
}

/// The fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// The names of what begins with `before` at a line's start.
fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let rest = text.lines().filter_map(|line| line.strip_prefix(before));
    rest.filter_map(|rest| rest.split('(').next()).collect()
}

#[test]
fn the_tables_are_those_of_the_tests() {
    for (rows, second) in [(EFFECTS, "rule"), (STATES, "in Rust")] {
        let table = table(rows, second);
        assert!(PAGE.contains(&table), "the page lacks this table:\n{table}");
    }
    let all = table(EFFECTS, "rule");
    let short: Vec<_> =
        FIRST_GUIDE.lines().filter(|line| line.starts_with("| ") && line.contains("effect=")).collect();
    assert!(short.len() >= 5, "README.md shows some of the effects");
    for line in short {
        assert!(all.contains(&format!("{line}\n")), "README.md has a row that is not the table's: {line}");
    }
}

#[test]
fn every_situation_is_a_sentence_a_rule_and_two_tests() {
    let situations: Vec<&str> = PAGE.split("\n### ").skip(1).collect();
    assert!(situations.len() >= 20, "{}", situations.len());
    let (mut in_rust, mut in_python) = (Vec::new(), Vec::new());
    for (number, situation) in (1..).zip(&situations) {
        let title = situation.lines().next().unwrap_or_default();
        assert!(title.starts_with(&format!("{number}. ")), "{title}");
        let sentence = situation.lines().nth(2).unwrap_or_default();
        assert!(sentence.ends_with('.'), "{title}: {sentence}");
        let (rules, rust, python) =
            (blocks(situation, "text"), blocks(situation, "rust"), blocks(situation, "python"));
        let ([rule], [rust], [python]) = (&rules[..], &rust[..], &python[..]) else {
            panic!("{title}: one block each of text, rust and python");
        };
        for rule in rule.lines() {
            for code in [rust, python] {
                assert!(code.contains(rule), "{title}: the rule {rule:?} is not in\n{code}");
            }
        }
        in_rust.extend(names(rust, "async fn "));
        in_python.extend(names(python, "def "));
    }
    assert_eq!(in_rust, in_python);
    let tests = RUST.split("#[tokio::test]\n").skip(1).flat_map(|rest| names(rest, "async fn "));
    assert_eq!(in_rust, tests.collect::<Vec<_>>());
}

#[test]
fn the_code_is_that_of_the_tests() {
    for (language, source) in [("rust", RUST), ("python", PYTHON)] {
        for block in blocks(PAGE, language) {
            assert!(source.contains(block), "the page differs from the {language} test:\n{block}");
        }
    }
}

/// What the script runs, in its order.
pub fn in_python() -> Vec<&'static str> {
    let list = PYTHON.split("SITUATIONS = [\n").nth(1).unwrap_or_default();
    list.lines().map_while(|line| line.strip_prefix("    ")?.strip_suffix(',')).collect()
}

#[test]
fn python_runs_all_that_the_page_shows() {
    let tests: Vec<_> =
        RUST.split("#[tokio::test]\n").skip(1).flat_map(|rest| names(rest, "async fn ")).collect();
    assert_eq!(in_python(), tests);
}
