//! Rules of source text: words that must not be committed, sizes, names, who reads XML.

use std::path::Path;

/// Lines that a source file may have: tests included, or it has two subjects.
pub const MOST_LINES: usize = 700;

/// Paths of one machine, and hosts of package registries. In halves, so that this file passes its own rule.
const BANNED_ANYWHERE: [(&str, &str); 10] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("index.cra", "tes.io"),
    ("static.cra", "tes.io"),
    ("pypi", ".org"),
    ("pythonhos", "ted.org"),
    ("npmjs", ".org"),
    ("deb.deb", "ian.org"),
    ("proxy.go", "lang.org"),
];

/// Macros and attributes that stand for work not done.
const BANNED_IN_RUST: [(&str, &str); 3] = [("to", "do!"), ("unimple", "mented!"), ("db", "g!")];

/// The only tests that may be ignored: the live matrix, which needs a provider.
const MATRIX: &str = "s3_server_it";

/// Names that say nothing about what a module is for.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"];

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Checks one file for words that must not be committed.
#[must_use]
pub fn banned_words(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        for (head, tail) in BANNED_ANYWHERE {
            let word = format!("{head}{tail}");
            if line.contains(&word) {
                findings.push(format!("{path}:{number}: names '{word}'"));
            }
        }
        if !is_rust(path) {
            continue;
        }
        for (head, tail) in BANNED_IN_RUST {
            let word = format!("{head}{tail}");
            if line.contains(&word) {
                findings.push(format!("{path}:{number}: uses '{word}'"));
            }
        }
        if line.trim_start().starts_with("#[ignore") && !is_matrix(path, &lines[index..]) {
            findings.push(format!("{path}:{number}: ignores a test that is not of the {MATRIX} matrix"));
        }
    }
    findings
}

/// Whether the ignored test that starts here belongs to the live matrix, by its name or its module's.
fn is_matrix(path: &str, from_here: &[&str]) -> bool {
    let function = from_here.iter().take(6).find(|line| line.contains("fn "));
    path.contains(MATRIX) || function.is_some_and(|line| line.contains(MATRIX))
}

/// Checks the length of one source file.
#[must_use]
pub fn length(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > MOST_LINES {
        return vec![format!("{path}: {lines} lines, {MOST_LINES} at most: it has two subjects")];
    }
    Vec::new()
}

/// Checks the name of one file and of the folders above it.
#[must_use]
pub fn names(path: &str) -> Vec<String> {
    let parts = Path::new(path).iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
    parts
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| format!("{path}: the name '{part}' does not say what it is for"))
        .collect()
}

/// Checks that a Rust file leaves XML to the one module that reads it: a file named `xml.rs`, or below `xml/`.
#[must_use]
pub fn xml_in_one_place(path: &str, text: &str) -> Vec<String> {
    let allowed = path.ends_with("/xml.rs") || path.contains("/xml/");
    let word = concat!("quick_", "xml");
    if !is_rust(path) || allowed {
        return Vec::new();
    }
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.contains(word))
        .map(|(number, _)| format!("{path}:{number}: uses {word}; only xml.rs may"))
        .collect()
}

/// Checks that a script with a `#!` line can be started as one; `mode` is git's.
#[must_use]
pub fn executable(mode: &str, path: &str, text: &str) -> Vec<String> {
    if text.starts_with("#!") && !mode.starts_with("100755") {
        return vec![format!("{path} has a #! line but is not executable")];
    }
    Vec::new()
}
