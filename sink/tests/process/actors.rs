//! The actors of the background as parts of a process, and as commands of their own.

use std::path::Path;

use serde_json::{Value, json};
use sinks::store::{Condition, Outcome, Store as _};
use tokio::time::{Duration, sleep, timeout};

use crate::rig::{LIMIT, PIPELINE, Rig, Running, code, finished, transaction};
use crate::{get, served, text};

/// Everything on, with windows as short as the store's clock, which counts seconds, allows.
const SHORT: &str = "    send_timeout_ms: 5000
    max_clock_skew_ms: 1500
    actors_every_ms: 50
    rollup_every_entries: 4
    safety_window_ms: 0
    expire_entries: true
    compact: true
    compaction: {min_inputs: 2}
    delete_originals: true
    originals_retention_ms: 0
    reconcile: true
    reconcile_every_ms: 100
    grace_period_ms: 10000
    batch:";

fn transactions(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(|id| transaction([id])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn actors_work_in_rounds_beside_the_publisher() {
    let pipeline = PIPELINE.replace("    batch:", SHORT).replace("'off'", "'127.0.0.1:0'");
    let rig = Rig::start(&pipeline, None).await;
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    running.feed(&transactions(1..=20)).await;
    while running.line().await.expect("an acknowledgement")["seq"] != 20 {}
    let status = || async {
        let answer = get(&address, "/status").await;
        serde_json::from_str::<Value>(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
    };
    let settled = async {
        loop {
            let status = status().await;
            // More entries make more rollups, and the one before the last is the horizon.
            if status["entry_floor"].as_u64() > Some(4) && rig.count("orders/public.orders/wm2-").await < 10 {
                return status;
            }
            let next = 1 + status["seq"].as_u64().expect("a number");
            running.feed(&transactions(next..=next)).await;
            while running.line().await.expect("an acknowledgement")["seq"] != next {}
            sleep(Duration::from_millis(100)).await;
        }
    };
    let status = timeout(LIMIT, settled).await.expect("entries and originals go");
    for actor in ["rollup", "mark", "expire", "compact", "originals", "reconcile"] {
        let of = &status["actors"][actor];
        assert!(of["on"] == json!(true) && of["runs"].as_u64() > Some(0), "{actor}: {status}");
    }
    assert!(status["rollup_generation"].as_u64() > Some(1) && status["rollup_age_ms"].is_u64(), "{status}");
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("s3_actors_off{pipeline=\"orders\",sink=\"s3\"} 0\n"), "{metrics}");
    let committed = status["seq"].as_u64().expect("a number");
    let (ended, logs) = running.wait().await;
    assert_eq!(ended.code(), Some(0), "{logs}");
    assert_eq!(rig.ids().await, (1..=committed).collect::<Vec<u64>>());
    assert_eq!(rig.json(&["verify", "--deep", "--json"]).await["rows"], json!(committed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollup_is_rebuilt_where_it_is_proven_and_refused_where_it_is_not() {
    let pipeline = PIPELINE.replace("    batch:", "    rollup_every_entries: 1\n    batch:");
    let rig = Rig::start(&pipeline, None).await;
    for end in [8, 12] {
        assert_eq!(code(&rig.ask(&["run"], &transactions(1..=end)).await), 0);
        assert_eq!(code(&rig.ask(&["rollup", "--take-over"], "").await), 0);
    }
    let store = rig.store();
    let Outcome::Done(page) = store.list("orders/_manifest/rollups/", None, 10).await else {
        panic!("a listing")
    };
    let [first, second] = &page.objects[..] else { panic!("two rollups in {page:?}") };
    assert_eq!(store.delete(&second.key, None).await, Outcome::Done(()));
    let output = rig.ask(&["run"], &transactions(1..=13)).await;
    assert_eq!(code(&output), 5);
    assert!(text(&output.stderr).contains("recoverable by operator"), "{}", text(&output.stderr));

    let before = rig.server.journal().last();
    let planned = rig.json(&["rollup", "--rebuild", "--dry-run", "--json"]).await;
    let plan = &planned["actors"][0]["report"];
    assert_eq!((&plan["generation"], &plan["from_seq"], &plan["to_seq"]), (&json!(2), &json!(9), &json!(12)));
    let written = rig.server.journal().filter(|record| {
        record.number > before
            && !matches!(record.operation, Some("GetObject" | "HeadObject" | "ListObjectsV2"))
    });
    assert!(written.is_empty(), "a dry run only reads: {written:?}");
    let output = rig.ask(&["rollup", "--rebuild"], "").await;
    assert_eq!(code(&output), 1, "an owner wrote just now: {}", text(&output.stderr));
    let rebuilt = rig.json(&["rollup", "--rebuild", "--take-over", "--json"]).await;
    assert_eq!(rebuilt["actors"][0]["report"]["epoch"], json!(5), "{rebuilt}");
    let output = rig.ask(&["run"], &transactions(1..=13)).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(rig.json(&["verify", "--deep", "--json"]).await["rows"], json!(13));
    let nothing = rig.ask(&["rollup", "--rebuild", "--dry-run"], "").await;
    assert_eq!((code(&nothing), text(&nothing.stdout).as_str()), (0, "rollup would do:\n  nothing\n"));

    assert_eq!(store.delete(&first.key, None).await, Outcome::Done(()));
    let output = rig.ask(&["rollup", "--rebuild", "--take-over"], "").await;
    assert_eq!(code(&output), 5, "{}", text(&output.stdout));
    let said = text(&output.stderr);
    assert!(said.contains(&first.key) && said.contains("this can't be rebuilt: "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_show_what_they_would_do_and_take_over_only_when_told() {
    let pipeline =
        PIPELINE.replace("    batch:", "    max_clock_skew_ms: 1500\n    safety_window_ms: 0\n    batch:");
    let rig = Rig::start(&pipeline, None).await;
    for command in ["gc", "compact", "reconcile", "rollup"] {
        let output = rig.ask(&[command], "").await;
        assert_eq!(code(&output), 2, "{command}: nothing is committed: {}", text(&output.stderr));
    }
    assert_eq!(code(&rig.ask(&["run"], &transactions(1..=12)).await), 0);
    let before = rig.server.journal().last();
    let plan = rig.json(&["compact", "--dry-run", "--json"]).await;
    let groups = plan["actors"][0]["report"]["groups"].as_array().expect("groups").clone();
    assert_eq!((plan["dry_run"].clone(), groups.len()), (json!(true), 1), "{plan}");
    assert_eq!(groups[0]["inputs"].as_array().map(Vec::len), Some(12));
    assert!(groups[0]["reason"].is_string());
    for command in ["gc", "reconcile", "rollup"] {
        let output = rig.ask(&[command, "--dry-run"], "").await;
        assert_eq!(code(&output), 0, "{command}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(" would do:\n"), "{command}: {}", text(&output.stdout));
    }
    let written = rig.server.journal().filter(|record| {
        record.number > before
            && !matches!(record.operation, Some("GetObject" | "HeadObject" | "ListObjectsV2"))
    });
    assert!(written.is_empty(), "a dry run only reads: {written:?}");

    let output = rig.ask(&["compact"], "").await;
    let said = text(&output.stderr);
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains("epoch 1, wrote") && said.contains("--take-over"), "{said}");
    let compacted = rig.json(&["compact", "--take-over", "--json"]).await;
    assert_eq!(
        compacted["actors"][0]["report"]["compacted"].as_array().map(Vec::len),
        Some(1),
        "{compacted}"
    );
    let again = rig.json(&["compact", "--take-over", "--json"]).await;
    assert_eq!(again["actors"][0]["report"]["compacted"], json!([]), "{again}");
    let collected = rig.json(&["gc", "--take-over", "--only", "expire,mark", "--json"]).await;
    let names: Vec<_> =
        collected["actors"].as_array().expect("actors").iter().map(|of| of["actor"].clone()).collect();
    assert_eq!(names, ["mark", "expire"], "{collected}");
    assert_eq!(rig.ids().await, (1..=12).collect::<Vec<u64>>());
    let status = rig.json(&["status", "--json"]).await;
    assert_eq!(status["status"]["epoch"], 4, "each took the stream over once: {status}");
}

/// A pipeline with this grace period and `more` of its settings.
fn tidy(grace_period_ms: u64, more: &str) -> String {
    let settings = format!(
        "    grace_period_ms: {grace_period_ms}\n    send_timeout_ms: 2000\n    request_timeout_ms: 2000\n    \
         max_clock_skew_ms: 60000\n{more}    batch:"
    );
    PIPELINE.replace("    batch:", &settings)
}

/// The store's clock by so much ahead, what was written before is old, and the clocks may still differ so.
const LATER_MS: i64 = 40_000;

/// Objects of no batch below the table's prefix.
async fn litter(rig: &Rig, names: &[&str]) -> Vec<String> {
    let store = rig.store();
    let mut keys = Vec::new();
    for name in names {
        let key = format!("orders/public.orders/{name}");
        let put = store.put(&key, bytes::Bytes::from_static(b"{}\n"), Condition::Absent, &[]).await;
        assert!(matches!(put, Outcome::Done(_)), "{put:?}");
        keys.push(key);
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_gives_the_reason_of_each_object() {
    let rig = Rig::start(&tidy(30_000, "    rollup_every_entries: 1\n    safety_window_ms: 0\n"), None).await;
    for end in [3, 5, 6] {
        assert_eq!(code(&rig.ask(&["run"], &transactions(1..=end)).await), 0);
        assert_eq!(code(&rig.ask(&["rollup", "--take-over"], "").await), 0);
    }
    let old = litter(&rig, &["old-1", "old-2"]).await;
    rig.server.set_clock_offset_ms(LATER_MS);
    let young = litter(&rig, &["young"]).await;
    let would = async |arguments: &[&str]| {
        let output = rig.ask(arguments, "").await;
        assert_eq!(code(&output), 0, "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = would(&["reconcile", "--dry-run"]).await;
    for key in &old {
        let line = format!("  delete {key:?}: unreachable and older than the grace period; 3 bytes, ");
        assert!(said.contains(&line), "{line} in {said}");
    }
    let line = format!("  keep {:?}: unreachable, and younger than the grace period; ", young[0]);
    assert!(said.contains(&line) && said.contains(", 2 to delete\n"), "{said}");
    let plan = rig.json(&["reconcile", "--dry-run", "--json"]).await;
    let rows = plan["actors"][0]["report"]["rows"].as_array().expect("rows").clone();
    let reasons: Vec<_> =
        rows.iter().filter(|row| row["verdict"] == "delete").map(|row| &row["reason"]).collect();
    assert_eq!(reasons, ["unreachable and older than the grace period"; 2], "{plan}");

    let plan = rig.json(&["gc", "--dry-run", "--only", "mark", "--json"]).await;
    let marks = plan["actors"][0]["report"]["marks"].as_array().expect("marks").clone();
    let seqs: Vec<_> = marks.iter().filter_map(|entry| entry["seq"].as_u64()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5], "{plan}");
    assert!(
        marks.iter().all(|entry| entry["reason"] == "rollups 2 and 3 both cover them for the window"),
        "{plan}"
    );
    let said = would(&["gc", "--dry-run", "--only", "mark"]).await;
    let line = format!("  - key {}, reason rollups 2 and 3 both ", marks[0]["key"].as_str().expect("a key"));
    assert!(said.contains(&line), "{line} in {said}");

    let said = would(&["compact", "--dry-run"]).await;
    assert!(said.contains("keep orders/public.orders/") && said.contains(": too few neighbours"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_with_the_code_of_why_it_stopped() {
    let rig = Rig::start(&tidy(4_000, "    brake: {objects: 1}\n"), None).await;
    assert_eq!(code(&rig.ask(&["run"], &transactions(1..=2)).await), 0);
    let old = litter(&rig, &["old-1", "old-2"]).await;
    rig.server.set_clock_offset_ms(LATER_MS);
    let ends = async |rule: Option<&str>, expected: i32, word: &str| {
        let fault = rule.map(|rule| rig.server.fault(rule.parse().expect("a rule")).expect("a fault"));
        let output = rig.ask(&["reconcile", "--take-over"], "").await;
        drop(fault);
        let said = text(&output.stderr);
        assert_eq!(code(&output), expected, "{said}");
        assert!(said.contains(&format!("reconcile: stopped, {word}: ")), "{said}");
    };
    ends(None, 1, "brake").await;
    assert_eq!(rig.count("orders/public.orders/old-").await, 2, "the brake deletes nothing");
    std::fs::write(rig.path("pipeline.yaml"), tidy(4_000, "    brake: {objects: 2}\n"))
        .expect("the pipeline's file");
    rig.server.set_clock_offset_ms(2 * LATER_MS);
    ends(None, 3, "clock_uncertain").await;
    rig.server.set_clock_offset_ms(LATER_MS);
    // The store says no for good: that is a setting of the bucket's, and no silence.
    let delete = |effect: &str| format!("operation=DeleteObject key={} effect={effect}", old[0]);
    ends(Some(&delete("refuse code=AccessDenied")), 2, "ambiguous_response").await;
    ends(Some(&delete("refuse code=InternalError")), 7, "ambiguous_response").await;
    assert_eq!(rig.count("orders/public.orders/old-").await, 2);
    let done = rig.json(&["reconcile", "--take-over", "--json"]).await;
    assert_eq!(done["actors"][0]["report"]["deleted"], json!(2), "{done}");
}

/// `/metrics` and `/status` of a process that says it is about to end.
async fn last_words(running: &mut Running, address: &str) -> (String, Value) {
    running.log("until then the metrics can be read").await;
    let status = get(address, "/status").await;
    let status = serde_json::from_str(status.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    (get(address, "/metrics").await, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_start_found_missing_can_be_scraped_before_the_process_ends() {
    let rig = Rig::start(&PIPELINE.replace("'off'", "'127.0.0.1:0'"), None).await;
    assert_eq!(code(&rig.ask(&["run"], &transactions(1..=3)).await), 0);
    let store = rig.store();
    let Outcome::Done(page) = store.list("orders/_manifest/entries/", None, 10).await else {
        panic!("a listing")
    };
    assert_eq!(store.delete(&page.objects[1].key, None).await, Outcome::Done(()));
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    let (metrics, status) = last_words(&mut running, &address).await;
    let counted = r#"s3_missing_referenced_total{kind="entry",pipeline="orders",sink="s3"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(status, Value::Null, "no stream is owned");
    running.signal("TERM").await;
    let (ended, logs) = running.wait().await;
    assert_eq!(ended.code(), Some(5), "{logs}");
    // Who does not want to wait is not kept.
    let at_once = PIPELINE.replace("'off'", "'127.0.0.1:0', linger_ms: 0");
    std::fs::write(rig.path("pipeline.yaml"), at_once).expect("the pipeline's file");
    assert_eq!(code(&rig.ask(&["run"], "").await), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_owner_notices_that_it_is_fenced() {
    let pipeline = PIPELINE.replace("    batch:", "    actors_every_ms: 50\n    batch:");
    let rig = Rig::start(&pipeline.replace("'off'", "'127.0.0.1:0'"), None).await;
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    running.feed(&transactions(1..=2)).await;
    while running.line().await.expect("an acknowledgement")["seq"] != 2 {}
    // Another host, with a record of its own.
    std::fs::write(
        rig.path("other.yaml"),
        PIPELINE.replace("    batch:", "    local_checkpoint: other.redb\n    batch:"),
    )
    .expect("the other host's file");
    let mut other = rig.process(Path::new(env!("CARGO_BIN_EXE_assay-sink")));
    other.args(["compact", "--config", "other.yaml", "--take-over"]);
    let output = finished(other, "").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    // It is fed nothing more: its own actors find the other owner.
    let (metrics, status) = last_words(&mut running, &address).await;
    assert!(metrics.contains("s3_fenced_total{pipeline=\"orders\",sink=\"s3\"} 1\n"), "{metrics}");
    assert_eq!((&status["fenced"], &status["epoch"]), (&json!(true), &json!(1)), "{status}");
    assert!(
        metrics.contains("s3_compaction_lag{pipeline=\"orders\",sink=\"s3\",unit=\"objects\"} 2\n"),
        "{metrics}"
    );
    running.signal("TERM").await;
    let (ended, logs) = running.wait().await;
    assert_eq!(ended.code(), Some(6), "{logs}");
    assert_eq!(rig.json(&["status", "--json"]).await["status"]["epoch"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_turns_the_actors_off_and_publishing_goes_on() {
    let more = "    actors_every_ms: 50\n    reconcile: true\n    reconcile_every_ms: 1\n";
    let rig = Rig::start(&tidy(30_000, more).replace("'off'", "'127.0.0.1:0'"), None).await;
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    running.feed(&transactions(1..=2)).await;
    while running.line().await.expect("an acknowledgement")["seq"] != 2 {}
    let store = rig.store();
    let Outcome::Done(page) = store.list("orders/public.orders/", None, 10).await else {
        panic!("a listing")
    };
    assert_eq!(store.delete(&page.objects[0].key, None).await, Outcome::Done(()));
    let off = async {
        loop {
            let metrics = get(&address, "/metrics").await;
            if metrics.contains("s3_actors_off{pipeline=\"orders\",sink=\"s3\"} 1\n") {
                return metrics;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let metrics = timeout(LIMIT, off).await.expect("reconciliation misses it");
    for counted in [
        r#"s3_missing_referenced_total{kind="data",pipeline="orders",sink="s3"} 1"#,
        r#"s3_gc_stopped_total{actor="reconcile",pipeline="orders",reason="integrity_failure",sink="s3"} 1"#,
    ] {
        assert!(metrics.contains(counted), "{counted} in {metrics}");
    }
    running.feed(&transactions(3..=3)).await;
    while running.line().await.expect("an acknowledgement")["seq"] != 3 {}
    let (ended, logs) = running.wait().await;
    assert_eq!(ended.code(), Some(0), "{logs}");
    assert_eq!(code(&rig.ask(&["verify"], "").await), 5);
}
