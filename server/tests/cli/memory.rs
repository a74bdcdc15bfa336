//! Memory does not grow with a body: neither on its way in nor on its way out.

use std::process::Command;

use crate::client::wire::head;
use crate::process::Process;

const MIB: usize = 1024 * 1024;

/// The most memory that the process ever had, in KiB.
pub fn peak_kib(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_large_body_streams_in_and_out() {
    const PIECES: usize = 256;
    let directory = tempfile::tempdir().unwrap();
    let process = Process::on(directory.path());
    let mut wire = process.connect().await;
    let piece: Vec<u8> = (0..MIB).map(|n| (n % 251) as u8).collect();
    wire.send(head("PUT", "/bucket/large", &[], (PIECES * MIB) as u64)).await;
    for _ in 0..PIECES {
        wire.send(&piece).await;
    }
    wire.answer(false).await.expect(200);
    let after_put = peak_kib(&process);
    assert!(after_put < 64 * 1024, "{after_put} KiB after a PUT of {PIECES} MiB");

    wire.request("GET", "/bucket/large", &[], b"").await;
    let found = wire.head().await;
    assert_eq!(found.headers["content-length"], (PIECES * MIB).to_string());
    for number in 0..PIECES {
        assert!(wire.take(MIB).await == piece, "MiB {number}");
    }
    wire.ask("PUT", "/bucket/copy", &[("x-amz-copy-source", "bucket/large")], b"").await.expect(200);
    // Everything as one file, away and into another server.
    let file = directory.path().join("state");
    let url = format!("http://{}/_assay/state", process.address);
    let fetched = Command::new("curl").args(["-sS", "-f", "-o"]).arg(&file).arg(&url).status().unwrap();
    assert!(fetched.success());
    assert!(std::fs::metadata(&file).unwrap().len() > 2 * (PIECES * MIB) as u64);
    let other = tempfile::tempdir().unwrap();
    let arguments = ["--data", other.path().to_str().unwrap(), "--load", file.to_str().unwrap()];
    let loaded = Process::start(&arguments);
    let head = loaded.connect().await.ask("HEAD", "/bucket/copy", &[], b"").await.expect(200);
    assert_eq!(head.headers["content-length"], (PIECES * MIB).to_string());
    assert!(peak_kib(&loaded) < 64 * 1024, "{} KiB after loading", peak_kib(&loaded));

    let at_the_end = peak_kib(&process);
    assert!(at_the_end < 64 * 1024, "{at_the_end} KiB after GET, copy and state, {after_put} before");
}
