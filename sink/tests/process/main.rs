//! `assay-sink` as a process: what goes in, what comes out, how it ends, and what survives its end.

mod actors;
#[cfg(feature = "protocol-points")]
mod points;
mod rig;
mod rolling;

use std::process::Stdio;

use assay_server::{Deviation, Outage};
use rig::{PIPELINE, Rig, code, transaction};
use serde_json::{Value, json};
use sinks::store::{Outcome, Store as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

const GUIDE: &str = "sinks:\n  - type: s3\n    bucket: my-bucket\n    # durability: durable_v2   # the default; may be omitted\n";

/// One event that says everything itself.
const EVENT: &str = include_str!("event.jsonl");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The address in the log line that names it.
fn served(line: &str) -> String {
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    address.expect("an address").to_owned()
}

async fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("a listener");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("UTF-8");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guides_yaml_works_as_written() {
    // The metrics' default address may be taken on a machine that runs other tests.
    let rig = Rig::start(&format!("{GUIDE}metrics: {{listen: 'off'}}\n"), None).await;
    let output = rig.ask(&["run"], EVENT).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(
        line,
        json!({
            "event": "acknowledged", "type": "pg-lsn", "position": "16/B374D848", "sub": 0,
            "digest": "0b5559fbe28b31c9c66fb4decf1766762130eede7ba1cef6cf69c277575d50bb", "seq": 1, "epoch": 1,
        })
    );
    let row = r#"{"op":"c","ts_ms":1700000000000,"position":"16/B374D848","index":0,"before":null,"after":{"id":1,"price":19.90}}"#;
    assert_eq!(text(&rig.ask(&["read"], "").await.stdout), format!("public.orders\t{row}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_can_be_asked() {
    let rig = Rig::start(PIPELINE, None).await;
    let empty = rig.json(&["status", "--json"]).await;
    assert_eq!(
        (&empty["root"], &empty["status"], &empty["position"]),
        (&json!("orders"), &Value::Null, &Value::Null)
    );
    let input: String = (0..3).map(|n| transaction([2 * n + 1, 2 * n + 2])).collect();
    let output = rig.ask(&["run"], &input).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let seqs: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["seq"].clone())
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
    let status = rig.json(&["status", "--json"]).await;
    assert_eq!((&status["status"]["seq"], &status["position"]["text"]), (&json!(3), &json!("0/6")));
    for arguments in [&["verify", "--json"][..], &["verify", "--deep", "--json"]] {
        let verified = rig.json(arguments).await;
        assert_eq!(
            (&verified["entries"], &verified["objects"], &verified["rows"]),
            (&json!(3), &json!(3), &json!(6))
        );
        assert_eq!(verified["deep"], json!(arguments.len() == 3));
    }
    assert_eq!(rig.ids().await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guides_session_goes_as_shown() {
    let guide = include_str!("../../README.md");
    assert!(
        guide.contains(&format!("```json\n{EVENT}```\n"))
            && guide.contains(&format!("```yaml\n{GUIDE}```\n"))
    );
    let session = guide.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a session");
    let session: String =
        session.lines().filter(|line| !line.starts_with("export ")).map(|line| format!("{line}\n")).collect();
    let rig = Rig::start(PIPELINE, None).await;
    std::fs::write(rig.path("events.jsonl"), transaction([1, 2])).expect("the events' file");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_assay-sink"));
    let directory = binary.parent().expect("its directory").display();
    let mut shell = rig.command(&["run"]);
    let shell = shell.as_std_mut();
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", &session])
        .envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(rig.path(".")).env("PATH", format!("{directory}:/usr/bin:/bin"));
    let output = command.output().await.expect("it starts");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for expected in [
        "\"event\":\"acknowledged\",\"type\":\"pg-lsn\",\"position\":\"0/2\"",
        "\"text\": \"0/2\"",
        "orders: 1 entries, 1 objects, 2 rows",
        "public.orders\t{\"op\":\"c\",\"ts_ms\":2,\"position\":\"0/2\",\"index\":1,",
    ] {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    let digest = "pg-lsn\n16/B374D848\n0b5559fbe28b31c9c66fb4decf1766762130eede7ba1cef6cf69c277575d50bb\n";
    assert!(said.ends_with(digest), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_by_kill_9() {
    let rig = Rig::start(PIPELINE, None).await;
    let all: Vec<String> = (0..40).map(|n| transaction([3 * n + 1, 3 * n + 2, 3 * n + 3])).collect();
    let mut acknowledged = 0;
    for life in 0..6_usize {
        let mut running = rig.run();
        // Each life sees the stream from the beginning, and dies with writes under way: some acknowledged, some
        // not, and the last transaction cut.
        running.feed(&all[..6 * (life + 1)].concat()).await;
        running.feed(&all[6 * (life + 1)][..200]).await;
        for _ in 0..=life {
            let line = running.line().await.expect("an acknowledgement");
            let seq = line["seq"].as_u64().expect("a number");
            assert!(seq >= acknowledged, "{line} after {acknowledged}");
            acknowledged = seq;
        }
        running.child.start_kill().expect("SIGKILL");
        let (status, _) = running.wait().await;
        assert_eq!(status.code(), None);
    }
    let output = rig.ask(&["run"], &all.concat()).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let first: Value =
        serde_json::from_str(text(&output.stdout).lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["event"], "resume");
    assert!(first["seq"].as_u64().expect("a number") >= acknowledged, "{first} after {acknowledged}");
    assert_eq!(rig.ids().await, (1..=120).collect::<Vec<u64>>());
    let verified = rig.json(&["verify", "--deep", "--json"]).await;
    assert_eq!((&verified["entries"], &verified["rows"]), (&json!(40), &json!(120)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_is_read_and_sigterm_ends_in_order() {
    let pipeline = PIPELINE
        .replace("source: {", "source: {input: events.fifo, ")
        .replace("max_transactions: 1", "max_age_ms: 3600000")
        .replace("'off'", "'127.0.0.1:0'");
    let rig = Rig::start(&pipeline, None).await;
    let fifo = rig.path("events.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().await.expect("mkfifo").success());
    let open = || async { tokio::fs::OpenOptions::new().write(true).open(&fifo).await.expect("a reader") };
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    let mut writer = open().await;
    let (whole, cut) = (transaction([1, 2]), transaction([3, 4]));
    let cut = cut.split_inclusive('\n').next().expect("a line");
    writer.write_all(format!("{whole}{cut}").as_bytes()).await.expect("it reads");
    writer.flush().await.expect("it reads");
    // Nothing fills the batch and nothing ages it: only the signal has it written.
    let read = "events_read_total{pipeline=\"orders\",sink=\"s3\"} 3\n";
    let counted = async { while !get(&address, "/metrics").await.contains(read) {} };
    tokio::time::timeout(rig::LIMIT, counted).await.expect("all events are read");
    running.signal("TERM").await;
    assert_eq!(running.line().await.expect("an acknowledgement")["position"], "0/2");
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(logs.contains("the transaction that begins in this line has no end"), "{logs}");
    drop(writer);
    let mut running = rig.run();
    let mut writer = open().await;
    writer.write_all(format!("{whole}{}", transaction([3, 4])).as_bytes()).await.expect("it reads");
    writer.flush().await.expect("it reads");
    drop(writer);
    assert_eq!(running.line().await.expect("a line")["event"], "resume");
    assert_eq!(running.line().await.expect("an acknowledgement")["position"], "0/4");
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert_eq!(rig.ids().await, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_delivers_what_is_whole() {
    let rig = Rig::start(PIPELINE, None).await;
    let mut running = rig.run();
    running.feed(&transaction([1])).await;
    assert_eq!(running.line().await.expect("an acknowledgement")["position"], "0/1");
    running.signal("INT").await;
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(130), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn known_events_are_acknowledged_again() {
    let rig =
        Rig::start(&PIPELINE.replace("max_transactions: 1", "max_transactions: 1, max_age_ms: 50"), None)
            .await;
    assert_eq!(code(&rig.ask(&["run"], &transaction([1])).await), 0);
    let mut running = rig.run();
    assert_eq!(running.line().await.expect("a line")["event"], "resume");
    running.feed(&transaction([1])).await;
    assert_eq!(running.line().await.expect("a line")["position"], "0/1");
    running.end_input();
    assert_eq!(running.line().await, None);
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert_eq!(rig.ids().await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_of_two_owners_is_fenced() {
    let rig = Rig::start(PIPELINE, None).await;
    let mut first = rig.run();
    first.feed(&transaction([1])).await;
    assert_eq!(first.line().await.expect("an acknowledgement")["epoch"], 1);
    std::fs::rename(rig.path("assay-sink.orders.redb"), rig.path("first.redb"))
        .expect("the first host's record");
    let mut second = rig.run();
    assert_eq!(second.line().await.expect("a line")["event"], "resume");
    second.feed(&transaction([2])).await;
    assert_eq!(second.line().await.expect("an acknowledgement")["epoch"], 2);
    first.feed(&transaction([3])).await;
    assert_eq!(first.line().await, None, "a fenced process acknowledges nothing");
    let (status, logs) = first.wait().await;
    assert_eq!(status.code(), Some(6), "{logs}");
    let (status, logs) = second.wait().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert_eq!(rig.ids().await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_waited_for_and_a_stop_within_it_is_told() {
    let rig =
        Rig::start(&PIPELINE.replace("    batch:", "    send_timeout_ms: 2000\n    batch:"), None).await;
    let mut running = rig.run();
    running.feed(&transaction([1])).await;
    assert_eq!(running.line().await.expect("an acknowledgement")["position"], "0/1");
    let outage = rig.server.outage(Outage::Unavailable);
    running.feed(&transaction([2])).await;
    running.log("waiting on").await;
    drop(outage);
    assert_eq!(running.line().await.expect("an acknowledgement")["position"], "0/2");
    let outage = rig.server.outage(Outage::Unavailable);
    running.feed(&transaction([3])).await;
    running.log("waiting on").await;
    running.signal("TERM").await;
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(7), "{logs}");
    drop(outage);
    let output = rig.ask(&["run"], &[1, 2, 3, 4].map(|id| transaction([id])).concat()).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(rig.ids().await, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_an_alarm() {
    let rig = Rig::start(PIPELINE, None).await;
    assert_eq!(code(&rig.ask(&["run"], &transaction([1])).await), 0);
    let store = rig.store();
    let Outcome::Done(page) = store.list("orders/public.orders/", None, 10).await else {
        panic!("a listing")
    };
    let [object] = &page.objects[..] else { panic!("one object in {page:?}") };
    assert_eq!(store.delete(&object.key, None).await, Outcome::Done(()));
    for (command, input) in [("verify", String::new()), ("read", String::new()), ("run", transaction([2]))] {
        let output = rig.ask(&[command], &input).await;
        assert_eq!((code(&output), output.stdout.as_slice()), (5, &b""[..]), "{command}");
        let said = text(&output.stderr);
        assert!(said.contains("missing") && said.contains(&object.key), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_ignores_conditions_is_refused() {
    let rig = Rig::start(PIPELINE, Some(Deviation::IgnoreIfNoneMatch)).await;
    let output = rig.ask(&["run"], &transaction([1])).await;
    assert_eq!((code(&output), text(&output.stdout).as_str()), (1, ""), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the provider failed the probe"), "{}", text(&output.stderr));
    let output = rig.ask(&["probe", "--json"], "").await;
    assert_eq!(code(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["verdict"], "refused");
    let status = rig.json(&["status", "--json"]).await;
    assert_eq!(status["status"], Value::Null, "HEAD was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_answer_is_inconclusive() {
    let pipeline =
        format!("{PIPELINE}# no store\n").replace("bucket:", "endpoint: http://127.0.0.1:1\n    bucket:");
    let rig = Rig::start(&pipeline, None).await;
    assert_eq!(code(&rig.ask(&["probe"], "").await), 3);
    let verify = rig.ask(&["verify"], "");
    let short = pipeline.replace("bucket:", "send_timeout_ms: 200\n    bucket:");
    std::fs::write(rig.path("pipeline.yaml"), short).expect("the pipeline's file");
    let output = verify.await;
    assert_eq!(code(&output), 7, "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_event_stops_the_sink_by_name() {
    let rig = Rig::start(PIPELINE, None).await;
    let bad =
        r#"{"op":"c","after":{"id":2},"source":{"namespace":"public","table":"orders","position":"0-2"}}"#;
    let output = rig.ask(&["run"], &format!("{}{bad}\n{}", transaction([1]), transaction([3]))).await;
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(said.contains("line 2: field source.position: \"0-2\" is no LSN"), "{said}");
    assert_eq!(text(&output.stdout).lines().count(), 1, "what came before is acknowledged");
    assert_eq!(rig.ids().await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_refused_before_anything_is_asked() {
    for (change, expected) in [
        ("bukcet: my-bucket", "unknown key sinks[0].bukcet"),
        ("durability: legacy", "one of durable_v2, legacy_rolling is wanted"),
        ("secret_key: s3cr3t", "sinks[0].secret_key is refused"),
    ] {
        let pipeline = PIPELINE.replace("    bucket:", &format!("    {change}\n    bucket:"));
        let rig = Rig::start(&pipeline, None).await;
        let output = rig.ask(&["run"], "").await;
        assert_eq!(code(&output), 2);
        let said = text(&output.stderr);
        assert!(said.contains(expected) && !said.contains("s3cr3t"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_guides_names() {
    let rig = Rig::start(&PIPELINE.replace("'off'", "'127.0.0.1:0'"), None).await;
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    running.feed(&transaction([1])).await;
    assert_eq!(running.line().await.expect("an acknowledgement")["seq"], 1);
    let metrics = get(&address, "/metrics").await;
    for (name, value) in
        [("non_durable_ack_mode", 0), ("seq", 1), ("epoch", 1), ("events_acknowledged_total", 1)]
    {
        let line = format!("\ndeltaforge_sink_s3_{name}{{pipeline=\"orders\",sink=\"s3\"}} {value}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    let status = get(&address, "/status").await;
    assert!(status.contains("\"seq\":1"), "{status}");
    let (status, logs) = running.wait().await;
    assert_eq!(status.code(), Some(0), "{logs}");
}

async fn digest(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_assay-sink"))
        .arg("digest")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("it starts");
    (code(&output), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_digest_is_printed_last() {
    let arguments = ["--type", "pg-lsn", "--source-id", "shop", "--scope", "7301234567890123456/1"];
    let expected = "0b5559fbe28b31c9c66fb4decf1766762130eede7ba1cef6cf69c277575d50bb";
    let (code, out, _) = digest(&[&arguments[..], &["--", "16/b374d848"]].concat()).await;
    assert_eq!((code, out), (0, format!("pg-lsn\n16/B374D848\n{expected}\n")));
    let (code, out, _) = digest(&[&arguments[..], &["--json", "--", "16/b374d848"]].concat()).await;
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &answer["digest"]), (0, &json!(expected)));
    let (code, out, said) = digest(&["--type", "mysql-gtid", "--source-id", "shop", "--", "0-1-270"]).await;
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(said.contains("unsupported position"), "{said}");
}
