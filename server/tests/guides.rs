//! The guides: what README.md and server/README.md show is run or compared here.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a language.
fn blocks(guide: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    guide.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_two_commands_are_there() {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = blocks(&read("README.md"), "sh");
    assert_eq!(shown[0], "cargo run -p assay-conformance --bin assay-certify\n");
    let manifest = read("conformance/Cargo.toml");
    assert!(
        manifest.contains("name = \"assay-conformance\"") && manifest.contains("name = \"assay-certify\"")
    );
    assert_eq!(shown[1], "ci/test\n");
    let mode = std::fs::metadata(root().join("ci/test")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "ci/test is not executable");
    assert!(read(".ci/run").contains("ci/test"));
}

/// Runs what a guide shows, and gives back what it printed.
fn run(shown: &str) -> String {
    // The binary that this test was built with, on a port that this socket keeps from everyone who asks for any.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_assay-server"));
    let script = shown.replace(":9000", &format!(":{port}")) + "wait\n";
    let output = Command::new("bash")
        .args(["-euc", &script])
        .current_dir(root())
        .env("PATH", format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{error}");
    printed.into_owned()
}

#[test]
fn the_command_line_example_creates_once() {
    let shown = &blocks(&read("README.md"), "sh")[2];
    let (build, rest) = shown.split_once('\n').unwrap();
    assert_eq!(build, "cargo build -p assay-server && PATH=\"$PWD/target/debug:$PATH\"");
    let printed = run(rest);
    let answers: Vec<&str> =
        printed.lines().filter(|line| line.ends_with("200") || line.ends_with("412")).collect();
    assert_eq!(answers.len(), 2, "{printed}");
    assert!(answers[0] == "200" && answers[1].ends_with("412"), "{printed}");
    assert!(printed.contains("<Code>PreconditionFailed</Code><Message>"), "{printed}");
}

#[test]
fn the_control_session_goes_as_shown() {
    let printed = run(&blocks(&read("README.md"), "sh")[3]);
    let mut rest = &printed[..];
    for expected in [
        "\"status\":\"ok\"",
        "name=lost operation=PutObject condition=If-None-Match nth=1 effect=lose-answer how=reset",
        "no answer, but the object is there:",
        "<Code>PreconditionFailed</Code>",
        "\"effect\":\"lose-answer\",\"rule\":\"lost\"",
        "\"status\":null",
        "\"status\":412",
        "{\"removed\":1}",
        "<Code>SlowDown</Code>",
        "{\"id\":1}",
        "\"outage\":\"unavailable\"",
        "<Code>ServiceUnavailable</Code>",
        "{\"reset\":true}",
        "<Code>NoSuchKey</Code>",
        "{\"restored\":\"1\"}",
        "restored\n",
    ] {
        let at = rest.find(expected).unwrap_or_else(|| panic!("no {expected} in {rest}\nof {printed}"));
        rest = &rest[at + expected.len()..];
    }
}

#[test]
fn the_control_guide_goes_as_shown() {
    let shown = blocks(&read("server/docs/control.md"), "sh");
    assert_eq!(shown.len(), 4);
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("README.md"), directory.path().join("README.md")).unwrap();
    let printed = run(&format!("cd '{}'\n{}", directory.path().display(), shown.concat()));
    let mut rest = &printed[..];
    for expected in [
        "name=slow operation=GetObject probability=0.1 effect=delay ms=100..300",
        "name=busy first=3 effect=refuse code=SlowDown retry-after=1",
        "\"rule\":\"name=cut effect=cut at=100\",\"seen\":0}],\"unfired\"",
        "{\"removed\":1}",
        "{\"removed\":0}",
        "\"outage\":\"refuse\"",
        "\"outage\":null",
        "\"offset-ms\":900000",
        "\"offset-ms\":0",
        "\"key\":\"a/readme\"",
        "\"count\":1",
        "no request fitted within 100 ms",
        "{\"last\":1}",
        "{\"id\":1}",
        "{\"reset\":true}",
        "{\"loaded\":true}",
        "loaded\n",
        "{\"restored\":\"1\"}",
        "{\"removed\":\"1\"}",
    ] {
        let at = rest.find(expected).unwrap_or_else(|| panic!("no {expected} in {rest}\nof {printed}"));
        rest = &rest[at + expected.len()..];
    }
}

/// The long flags in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

#[test]
fn the_flags_are_those_of_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_assay-server")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let named = options.filter_map(|line| line.split("  ").next());
    let mut known: BTreeSet<String> = named.flat_map(flags).collect();
    for everywhere in ["--help", "--version"] {
        assert!(known.remove(everywhere), "{everywhere}");
    }
    let guide = read("server/README.md");
    let rows = guide.lines().filter(|line| line.starts_with("| `--"));
    let table: BTreeSet<String> = rows.filter_map(|line| line.split(" | ").next()).flat_map(flags).collect();
    assert_eq!(table, known);
    let shown = flags(&blocks(&guide, "console").join("\n"));
    assert!(!shown.is_empty() && shown.is_subset(&known), "{shown:?}");
}
