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
    ends(
        &["--without", "copies"],
        &[],
        2,
        "\"copies\" is none of copy, multipart, batch-delete, versioned-bucket, own-bucket",
    );
    ends(&["--markdown"], &[], 2, "--list");
}

/// A provider at a port of loopback where nobody listens as long as the socket is there: it has the port.
fn nobody() -> (tokio::net::TcpSocket, [(&'static str, &'static str); 4]) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    let mut variables = FOUR;
    variables[0].1 = format!("http://127.0.0.1:{port}").leak();
    (socket, variables)
}

#[test]
fn a_provider_that_nobody_answers_for_is_unavailable() {
    let (_socket, variables) = nobody();
    ends(&[], &variables, 7, "cannot be reached");
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
        let (_socket, variables) = nobody();
        ends(&arguments, &variables, 7, "cannot be reached");
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

/// One run of a few checks on the embedded server, in every form, and the forms again from the file.
#[test]
fn one_run_gives_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let json = file("report.json");
    let written = [
        format!("json={json}"),
        format!("html={}", file("report.html")),
        format!("junit={}", file("report.xml")),
        format!("badge={}", file("report.svg")),
    ];
    let mut arguments =
        vec!["--only", "put.create.*", "--seed", "3", "--name", "here", "--format", "markdown"];
    arguments.extend(written.iter().flat_map(|pair| ["--write", pair.as_str()]));
    let output = certify(&arguments, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with("# here\n\n**durable\\_v2: PARTIAL")
            || text.starts_with("# here\n\n**durable_v2: PARTIAL"),
        "{text}"
    );
    for (name, starts) in
        [("report.html", "<!DOCTYPE html>"), ("report.xml", "<?xml"), ("report.svg", "<svg")]
    {
        let text = std::fs::read_to_string(file(name)).expect("it was written");
        assert!(text.starts_with(starts), "{text}");
    }
    let again = certify(&["show", &json, "--format", "markdown"], &[]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), text);
    let matrix = certify(&["matrix", &json, &json], &[]);
    let matrix = String::from_utf8_lossy(&matrix.stdout).into_owned();
    assert!(
        matrix.contains("| PUT If-None-Match | enforces | enforces |") && matrix.contains("- nothing"),
        "{matrix}"
    );
    ends(&["matrix", &json, "--format", "badge"], &[], 2, "a matrix is shown as");
    ends(&["show", &file("report.xml")], &[], 2, "no JSON");
    ends(&["show", &file("missing.json")], &[], 2, "missing.json");

    // As a baseline for the same checks it lets them through; with a failure in it that is gone, it does not.
    ends(&["--only", "put.create.*", "--baseline", &json], &[], 0, "baseline: all as it was");
    let report = std::fs::read_to_string(&json).expect("it was written");
    let failing = report.replacen(
        "\"outcome\":\"pass\"",
        "\"outcome\":\"fail\",\"expected\":\"412\",\"got\":\"200\",\"exchange\":null",
        1,
    );
    std::fs::write(&json, failing).expect("it can be written");
    ends(&["--only", "put.create.*", "--baseline", &json], &[], 1, "no longer fails");
}

#[test]
fn a_dry_run_tells_requests_bytes_and_price_and_asks_nobody() {
    let (_socket, variables) = nobody();
    let output = certify(&["--dry-run", "--only", "put.create.*", "--seed", "3"], &variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for says in ["put.create.absent", "PUT ", "LIST", "bytes sent", "$0.0", "October 2025"] {
        assert!(text.contains(says), "{says} in {text}");
    }
    let again = certify(&["--dry-run", "--only", "put.create.*", "--seed", "3", "--jobs", "1"], &variables);
    assert_eq!(String::from_utf8_lossy(&again.stdout), text, "the same seed sends the same");
}

#[test]
fn a_rate_and_a_budget_hold() {
    // 1 request a second, and 2 seconds: what is cut off or not begun is undecided, and so is the verdict.
    let output = certify(&["--only", "put.create.*", "--rate", "1", "--budget-s", "2"], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("durable_v2: INCONCLUSIVE") && text.contains("not done within"), "{text}");
}
