//! The exports for other tools, and what must never be said.

use std::process::{Command, Stdio};

use crate::client::sign::{Signer, signature_of};
use crate::process::{Process, command, run};

#[test]
fn the_exports_are_read_by_a_shell() {
    let secret = r#"it's $HOME "q" `x` \n"#;
    let arguments = ["env", "--endpoint", "http://127.0.0.1:1", "--access-key", "me", "--secret-key", secret];
    let exports = run(command(&[&arguments[..], &["--region", "eu-west-1"]].concat()));
    assert_eq!((exports.code, exports.stderr.as_str()), (Some(0), ""));
    let script = r#"eval "$1"; printf '%s\n' "$AWS_ENDPOINT_URL" "$AWS_ENDPOINT_URL_S3" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" "$AWS_REGION" "$AWS_DEFAULT_REGION""#;
    let shell = Command::new("sh").args(["-c", script, "sh", &exports.stdout]).env_clear().output().unwrap();
    let read = String::from_utf8(shell.stdout).unwrap();
    let expected = ["http://127.0.0.1:1", "http://127.0.0.1:1", "me", secret, "eu-west-1", "eu-west-1"];
    assert_eq!(read.lines().collect::<Vec<_>>(), expected, "{}", exports.stdout);
}

#[test]
fn the_endpoint_comes_from_the_ready_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("endpoint");
    let gone = run(command(&["env", "--ready-file", file.to_str().unwrap()]));
    assert_eq!(gone.code, Some(2));
    assert!(gone.stderr.contains("is the server running?"), "{gone:?}");
    let process = Process::start(&["--ready-file", file.to_str().unwrap()]);
    let exports = run(command(&["env", "--ready-file", file.to_str().unwrap()]));
    let wanted = format!("export AWS_ENDPOINT_URL='http://{}'", process.address);
    assert!(exports.stdout.lines().any(|line| line == wanted), "{exports:?}");
}

#[tokio::test]
async fn secrets_are_never_said() {
    const SECRET: &str = "s3cr3t-of-the-test-0123456789";
    for json in [&["--json"][..], &[]] {
        let arguments = ["--listen", "127.0.0.1:0", "--bucket", "bucket", "--log", "trace"];
        let mut server = command(&[&arguments[..], json].concat());
        server.env("ASSAY_ACCESS_KEY", "test").env("ASSAY_SECRET_KEY", SECRET).stderr(Stdio::piped());
        let process = Process::of(server);
        let mut wire = process.connect().await;
        // Refused for its date, long after its signature was looked at, and for a wrong signature.
        let mut signatures = Vec::new();
        for secret in [SECRET, "another"] {
            let signer = Signer::new(secret, "20200101T000000Z");
            let headers = signer.headers("PUT", "/bucket/k", &[("host", "localhost")], "UNSIGNED-PAYLOAD");
            signatures.push(signature_of(&headers));
            let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let refused = wire.ask("PUT", "/bucket/k", &headers, b"private body of the test").await;
            assert_eq!(refused.status, 403);
            assert!(!refused.text().contains(SECRET));
        }
        let presigned = "/bucket/k?X-Amz-Signature=presigned-of-the-test&X-Amz-Algorithm=AWS4-HMAC-SHA256";
        assert!(wire.ask("GET", presigned, &[], b"").await.status >= 400);
        process.signal("-TERM");
        let ended = process.ended();
        assert_eq!(ended.code, Some(0));
        let said = ended.stdout + &ended.stderr;
        assert!(said.contains("/bucket/k"), "it logs requests: {said}");
        let never = [SECRET, "private body", "presigned-of-the-test", &signatures[0], &signatures[1]];
        for word in never {
            assert!(!said.contains(word), "{word} was said: {said}");
        }
    }
    let help = run(command(&["--help"]));
    assert_eq!(help.code, Some(0));
    let mut with_secret = command(&["--help"]);
    with_secret.env("ASSAY_SECRET_KEY", SECRET);
    assert!(!run(with_secret).stdout.contains(SECRET));
}
