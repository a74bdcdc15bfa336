//! A process in front of another one: flags and variables, memory, and what is never said.

use crate::client::wire::head;
use crate::memory::peak_kib;
use crate::process::{Process, command, run};

const MIB: usize = 1024 * 1024;
const SECRET: &str = "a-secret-nobody-sees";

/// A provider on disk with keys of its own, and a process in front of it that has them from its environment.
fn pair(data: &std::path::Path) -> (Process, Process) {
    let data = data.to_str().unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let keys = ["--access-key", "real", "--secret-key", SECRET, "--region", "eu-west-1"];
    let provider =
        Process::of(command(&[&listen[..], &keys, &["--bucket", "bucket", "--data", data]].concat()));
    let endpoint = format!("http://{}", provider.address);
    let mut proxy = command(&["--listen", "127.0.0.1:0", "--auth", "none", "--log", "debug"]);
    proxy
        .env("ASSAY_UPSTREAM", endpoint)
        .env("ASSAY_UPSTREAM_ACCESS_KEY", "real")
        .env("ASSAY_UPSTREAM_SECRET_KEY", SECRET)
        .env("ASSAY_UPSTREAM_REGION", "eu-west-1");
    (provider, Process::of(proxy))
}

#[tokio::test]
async fn a_large_body_passes_both_ways_in_constant_memory() {
    const PIECES: usize = 256;
    let directory = tempfile::tempdir().unwrap();
    let (_provider, proxy) = pair(directory.path());
    let mut wire = proxy.connect().await;
    let piece: Vec<u8> = (0..MIB).map(|n| (n % 251) as u8).collect();
    wire.send(head("PUT", "/bucket/large", &[], (PIECES * MIB) as u64)).await;
    for _ in 0..PIECES {
        wire.send(&piece).await;
    }
    wire.answer(false).await.expect(200);
    let after_put = peak_kib(&proxy);
    assert!(after_put < 48 * 1024, "{after_put} KiB after a PUT of {PIECES} MiB");
    wire.request("GET", "/bucket/large", &[], b"").await;
    assert_eq!(wire.head().await.headers["content-length"], (PIECES * MIB).to_string());
    for number in 0..PIECES {
        assert!(wire.take(MIB).await == piece, "MiB {number}");
    }
    let at_the_end = peak_kib(&proxy);
    assert!(at_the_end < 48 * 1024, "{at_the_end} KiB after GET, {after_put} before");
}

#[tokio::test]
async fn what_the_upstream_is_asked_with_is_never_said() {
    let directory = tempfile::tempdir().unwrap();
    let (provider, proxy) = pair(directory.path());
    let mut wire = proxy.connect().await;
    wire.ask("PUT", "/bucket/k", &[], b"v").await.expect(200);
    provider.signal("-TERM");
    provider.ended();
    wire.ask("GET", "/bucket/k", &[], b"").await.expect_code(502, "BadGateway");
    drop(wire);
    proxy.signal("-TERM");
    let ended = proxy.ended();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("the upstream gave no answer"), "{}", ended.stderr);
    for said in [&ended.stdout, &ended.stderr] {
        assert!(!said.contains(SECRET) && !said.contains("Signature="), "{said}");
    }
}

#[test]
fn an_upstream_that_is_none_is_a_usage_error() {
    for (arguments, named) in [
        (&["--upstream", "http://user:hidden@host"][..], "credentials"),
        (&["--upstream", "host:9000"], "http://HOST"),
        (&["--upstream", "http://host", "--bucket", "data"], "a bucket"),
        (&["--upstream", "http://host", "--fault", "effect=forget"], "field effect"),
        (&["--upstream", "https://host", "--upstream-ca-file", "nowhere.pem"], "nowhere.pem"),
    ] {
        let ended = run(command(&[&["--listen", "127.0.0.1:0"], arguments].concat()));
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(ended.stderr.contains(named) && !ended.stderr.contains("hidden"), "{}", ended.stderr);
    }
}
