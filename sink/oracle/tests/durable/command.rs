//! The command: its exit codes, its two forms of output, and that no secret is in either.

use std::process::{Command, Output};

use super::forge::{Forge, Stored, wanted};

const SECRET: &str = "do-not-print-this-secret";

pub fn run(judge: &str, stored: Option<&Stored>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-oracle"));
    command.arg(judge).args(["--bucket", "lake", "--prefix", "cdc", "--pipeline", "orders"]).args(arguments);
    command.env_clear();
    if let Some(stored) = stored {
        command.args(["--endpoint", stored.server.endpoint(), "--region", stored.server.region()]);
        command.env("AWS_ACCESS_KEY_ID", stored.server.access_key());
        command.env("AWS_SECRET_ACCESS_KEY", stored.server.secret_key());
    } else {
        command.env("AWS_ACCESS_KEY_ID", "someone").env("AWS_SECRET_ACCESS_KEY", SECRET);
    }
    command.output().expect("the command runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("expected.jsonl");
    let list = list.to_str().unwrap();
    let clean = Forge::three().stored().await;
    let output = run("durable", Some(&clean), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert!(printed(&output).starts_with("durable cdc/orders/: clean\n"), "{}", printed(&output));
    std::fs::write(list, wanted("a", 1)).unwrap();
    let output = run("durable", Some(&clean), &["--json", "--expected", list]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["counts"]["gap"]), (&"findings".into(), &1.into()));
    let output = run("durable", Some(&clean), &["--pipeline", "elsewhere"]);
    assert_eq!(output.status.code(), Some(2), "given twice");
    std::fs::write(list, "{}\n").unwrap();
    let output = run("durable", Some(&clean), &["--expected", list]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    let output = run("durable", None, &["--endpoint", clean.server.endpoint()]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(!printed(&output).contains(SECRET));
}

#[test]
fn without_a_store_or_credentials_it_says_so() {
    // The discard port: nobody listens.
    let output = run("durable", None, &["--endpoint", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(7), "{}", printed(&output));
    assert!(!printed(&output).contains(SECRET), "{}", printed(&output));
    let output = Command::new(env!("CARGO_BIN_EXE_assay-oracle"))
        .args(["durable", "--bucket", "lake", "--pipeline", "orders"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(printed(&output).contains("AWS_ACCESS_KEY_ID is not set"), "{}", printed(&output));
}
