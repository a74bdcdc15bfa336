//! What the log says of faults.

use crate::process::Process;

#[tokio::test]
async fn an_injected_error_is_logged_as_injected_and_not_as_a_failure() {
    let rule = "name=mine operation=PutObject effect=refuse code=InternalError";
    let process = Process::start(&["--bucket", "bucket", "--log", "info", "--fault", rule]);
    let mut wire = process.connect().await;
    wire.ask("PUT", "/bucket/k", &[], b"x").await.expect_code(500, "InternalError");
    drop(wire);
    process.signal("-TERM");
    let said = process.ended().stderr;
    let line = said.lines().find(|line| line.contains("injected")).unwrap_or_else(|| panic!("{said}"));
    for words in ["rule=\"mine\"", "effect=\"refuse\"", "/bucket/k"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(!said.contains("ERROR"), "{said}");
}
