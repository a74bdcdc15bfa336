//! The binary as people call it: settings, exit codes, lists.

use std::process::{Command, Output};

const FOUR: [(&str, &str); 4] = [
    ("DELTAFORGE_IT_S3_ENDPOINT", "http://127.0.0.1:9"),
    ("DELTAFORGE_IT_S3_BUCKET", "certify"),
    ("DELTAFORGE_IT_S3_ACCESS_KEY", "id"),
    ("DELTAFORGE_IT_S3_SECRET_KEY", "hush-hush"),
];

fn certify(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-certify"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DELTAFORGE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied()).output().expect("the binary runs")
}

#[track_caller]
fn ends(arguments: &[&str], variables: &[(&str, &str)], code: i32, says: &str) {
    let output = certify(arguments, variables);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(says), "{error}");
    assert!(!error.contains("hush-hush"), "{error}");
}

#[test]
fn a_partial_provider_is_a_usage_error() {
    ends(&[], &FOUR[..3], 2, "DELTAFORGE_IT_S3_SECRET_KEY not set");
    ends(
        &[],
        &[("DELTAFORGE_IT_S3_REGION", "eu-west-1")],
        2,
        "DELTAFORGE_IT_S3_REGION set without a provider",
    );
}

#[test]
fn bad_arguments_are_usage_errors() {
    ends(&["--only", "put.creat"], &[], 2, "no check is called \"put.creat\"");
    ends(&["--writers", "1"], &[], 2, "--writers");
    ends(&["--without", "copies"], &[], 2, "\"copies\" is none of copy, multipart, batch-delete");
    ends(&["--markdown"], &[], 2, "--list");
}

/// A provider at a port of loopback that was free a moment ago.
fn nobody() -> [(&'static str, &'static str); 4] {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    let mut variables = FOUR;
    variables[0].1 = format!("http://127.0.0.1:{port}").leak();
    variables
}

#[test]
fn a_provider_that_nobody_answers_for_is_unavailable() {
    ends(&[], &nobody(), 7, "cannot be reached");
}

/// Every command of the README gets past its arguments and variables, and then finds nobody at the endpoint.
#[test]
fn the_readme_commands_are_accepted() {
    let readme = include_str!("../README.md");
    let block =
        readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let commands = block.lines().filter_map(|line| line.strip_prefix("$ assay-certify")).map(|rest| {
        let words = rest.split('#').next().unwrap_or_default().split('>').next().unwrap_or_default();
        words.split_whitespace().map(|word| word.trim_matches('\'')).collect::<Vec<_>>()
    });
    let mut tried = 0;
    for arguments in commands {
        ends(&arguments, &nobody(), 7, "cannot be reached");
        tried += 1;
    }
    assert!(tried >= 4, "{block}");
    for name in FOUR.map(|(name, _)| name) {
        assert!(block.contains(name), "{name}");
    }
}

#[test]
fn the_readme_has_the_table_of_checks() {
    let table = certify(&["--list", "--markdown"], &[]);
    assert!(table.status.success());
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    let readme = include_str!("../README.md");
    assert!(
        readme.contains(&table),
        "conformance/README.md is behind: replace its table by the output of assay-certify --list --markdown"
    );
}

#[test]
fn help_tells_exit_codes_and_examples() {
    let help = certify(&["--help"], &[]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.status.success() && text.contains("Examples:") && text.contains("Exit codes:"), "{text}");
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(long, Vec::<&str>::new());
}
