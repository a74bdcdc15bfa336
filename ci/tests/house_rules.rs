//! The rules of the repository, applied to it, and each rule shown to fail on a small bad input.

use assay_ci::{imports, manifest, readme, source};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace's root")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).current_dir(root()).output().expect("the program starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// Every file that is or would be committed, as (mode, path); without `git` metadata the rules cannot be judged.
fn tracked() -> Vec<String> {
    let listed = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut paths: Vec<String> =
        listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.retain(|path| root().join(path).is_file());
    paths.sort();
    paths.dedup();
    assert!(
        paths.iter().any(|path| path == "Cargo.toml"),
        "git lists no manifest among {} files",
        paths.len()
    );
    paths
}

/// The text of a file, or nothing if it is not text.
fn read(path: &str) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(path)).ok()?).ok()
}

fn texts() -> impl Iterator<Item = (String, String)> {
    tracked().into_iter().filter_map(|path| read(&path).map(|text| (path, text)))
}

#[track_caller]
fn holds(findings: Vec<String>) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[track_caller]
fn finds(findings: Vec<String>, expected: &str) {
    assert!(
        findings.iter().any(|finding| finding.contains(expected)),
        "expected '{expected}' in {findings:?}"
    );
}

#[test]
fn packages_import_only_what_their_layer_may() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = output(&cargo, &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    holds(imports::check(&serde_json::from_str(&metadata).expect("cargo metadata is JSON")));
}

#[test]
fn an_import_across_layers_is_found() {
    let package = |name: &str, imported: &str, kind: serde_json::Value| {
        serde_json::json!({ "packages": [
            { "name": name, "dependencies": [{ "name": imported, "kind": kind }, { "name": "tokio", "kind": null }] },
            { "name": "assay-server", "dependencies": [] },
            { "name": "sinks", "dependencies": [] },
        ] })
    };
    let normal = serde_json::Value::Null;
    for (name, imported) in [
        ("sinks", "assay-server"),
        ("assay-checks", "assay-server"),
        ("assay-oracle", "sinks"),
        ("assay-fixtures", "sinks"),
        ("assay-server", "sinks"),
    ] {
        finds(
            imports::check(&package(name, imported, normal.clone())),
            &format!("{name} may not import {imported}"),
        );
    }
    finds(imports::check(&package("assay-checks", "assay-server", "dev".into())), "in its tests");
    holds(imports::check(&package("sinks", "assay-server", "dev".into())));
    finds(imports::check(&package("assay-new", "tokio", normal)), "no row in the layers");
    finds(imports::check(&serde_json::json!({})), "no package");
}

#[test]
fn every_dependency_has_a_reason() {
    holds(manifest::reasons(&read("Cargo.toml").expect("the workspace's manifest")));
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let table =
        "[workspace.dependencies]\n# Async I/O and timers.\ntokio = \"1\"\nhyper = \"1\"\n\nbytes = \"1\"\n";
    finds(manifest::reasons(table), "dependency bytes");
    assert_eq!(manifest::reasons(table).len(), 1, "neighbours share a comment");
    finds(manifest::reasons("[workspace.dependencies]\n# x\ntokio = \"1\"\n"), "dependency tokio");
    finds(manifest::reasons("[package]\n"), "no [workspace.dependencies]");
}

#[test]
fn members_take_lints_and_versions_from_the_workspace() {
    let members = tracked()
        .into_iter()
        .filter(|path| path.ends_with("/Cargo.toml") && !path.starts_with("ci/clients/"));
    holds(
        members
            .flat_map(|path| {
                let findings = manifest::member(&read(&path).unwrap_or_default());
                findings.into_iter().map(move |finding| format!("{path}: {finding}"))
            })
            .collect(),
    );
}

#[test]
fn a_member_with_its_own_version_or_lints_is_found() {
    let good =
        "[lints]\nworkspace = true\n[dependencies]\ntokio.workspace = true\nhyper = { workspace = true }\n";
    holds(manifest::member(good));
    finds(manifest::member(&format!("{good}bytes = \"1\"\n")), "bytes=\"1\"");
    finds(
        manifest::member(&format!("{good}[dependencies.bytes]\nversion = \"1\"\n")),
        "[dependencies.bytes]",
    );
    finds(manifest::member("[dependencies]\n"), "no `[lints]");
}

#[test]
fn no_banned_words() {
    holds(texts().flat_map(|(path, text)| source::banned_words(&path, &text)).collect());
}

#[test]
fn banned_words_are_found() {
    for word in
        [concat!("/wo", "rk/main"), concat!("/ro", "ot/x"), concat!("https://registry.npmjs", ".org/x")]
    {
        finds(source::banned_words("README.md", word), "names");
    }
    for word in [concat!("to", "do!()"), concat!("unimple", "mented!()"), concat!("db", "g!(x)")] {
        finds(source::banned_words("server/src/x.rs", word), "uses");
        holds(source::banned_words("README.md", word));
    }
    let ignored = |name: &str| format!("#[test]\n#[ignore = \"needs a provider\"]\nfn {name}() {{}}\n");
    finds(source::banned_words("sink/src/x.rs", &ignored("slow")), "ignores a test");
    holds(source::banned_words("sink/src/x.rs", &ignored("s3_server_it_create")));
}

#[test]
fn files_are_short() {
    let code = |path: &str| ["rs", "py", "mjs", "sh"].iter().any(|end| path.ends_with(&format!(".{end}")));
    holds(
        texts()
            .filter(|(path, _)| code(path))
            .flat_map(|(path, text)| source::length(&path, &text))
            .collect(),
    );
}

#[test]
fn a_long_file_is_found() {
    finds(source::length("server/src/x.rs", &"x\n".repeat(source::MOST_LINES + 1)), "two subjects");
    holds(source::length("server/src/x.rs", &"x\n".repeat(source::MOST_LINES)));
}

#[test]
fn names_say_what_a_module_is_for() {
    holds(tracked().iter().flat_map(|path| source::names(path)).collect());
}

#[test]
fn an_empty_name_is_found() {
    for path in ["server/src/util.rs", "server/src/helpers/x.rs", "sink/src/upload/manager.rs", "ci/common"] {
        finds(source::names(path), "does not say");
    }
    holds(source::names("server/src/utility_bill.rs"));
}

#[test]
fn only_xml_rs_reads_xml() {
    holds(texts().flat_map(|(path, text)| source::xml_in_one_place(&path, &text)).collect());
}

#[test]
fn xml_read_elsewhere_is_found() {
    let line = concat!("use quick_", "xml::Reader;");
    finds(source::xml_in_one_place("server/src/op/list.rs", line), "only xml.rs");
    holds(source::xml_in_one_place("server/src/xml.rs", line));
}

#[test]
fn scripts_are_executable() {
    let listed = output("git", &["ls-files", "-s"]);
    let files = listed.lines().filter_map(|line| line.split_once('\t'));
    holds(
        files
            .flat_map(|(mode, path)| source::executable(mode, path, &read(path).unwrap_or_default()))
            .collect(),
    );
}

#[test]
fn a_script_that_cannot_be_run_is_found() {
    finds(source::executable("100644 0 0", "ci/x", "#!/usr/bin/env bash\n"), "not executable");
    holds(source::executable("100755 0 0", "ci/x", "#!/usr/bin/env bash\n"));
    holds(source::executable("100644 0 0", "ci/x.sh", "# sourced\n"));
}

#[test]
fn guides_show_what_is_tested() {
    let guides = texts().filter(|(path, _)| path.ends_with(".md") && !path.starts_with("fixtures/"));
    holds(guides.flat_map(|(path, text)| readme::check(&path, &text, read)).collect());
}

#[test]
fn a_guide_that_drifted_is_found() {
    let read = |path: &str| match path {
        "ci/test" => Some("fmt() { cargo fmt; }\n".to_owned()),
        "ci/tests/x.rs" => Some("fn quick_start() {}\n".to_owned()),
        "ci/table.md" => Some("| a |\n".to_owned()),
        _ => None,
    };
    let check = |text: &str| readme::check("README.md", text, read);
    let block = "```sh\ncargo run\n```\n";
    holds(check(&format!("<!-- checked by: ci/test -->\n{block}")));
    holds(check(&format!("<!-- checked by: ci/tests/x.rs quick_start -->\n\n{block}")));
    holds(check("```text\na drawing\n```\n"));
    finds(check(block), "README.md:1: this block names no test");
    finds(check(&format!("<!-- checked by: ci/test -->\nSome words.\n{block}")), "names no test");
    finds(check(&format!("<!-- checked by: ci/gone -->\n{block}")), "ci/gone, which is not there");
    finds(check(&format!("<!-- checked by: ci/tests/x.rs gone -->\n{block}")), "gone, which is not in");
    finds(check("```text\nopen\n"), "no end");
    holds(check("<!-- copy of: ci/table.md -->\n| a |\n<!-- end of copy -->\n"));
    finds(check("<!-- copy of: ci/table.md -->\n| b |\n<!-- end of copy -->\n"), "differs");
    finds(check("<!-- copy of: ci/gone.md -->\n<!-- end of copy -->\n"), "is not there");
    finds(check("<!-- copy of: ci/table.md -->\n| a |\n"), "has no");
}

#[test]
fn the_first_guide_names_the_test_command() {
    let Some(guide) = read("README.md") else { panic!("README.md is missing") };
    assert!(guide.contains("ci/test"), "README.md does not name ci/test, the command that CI runs");
    let run = read(".ci/run").expect(".ci/run");
    assert!(run.contains("ci/test"), ".ci/run does not call ci/test");
}
