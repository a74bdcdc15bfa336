//! The actors of the background as parts of a process, and as commands of their own.

use serde_json::{Value, json};
use sinks::store::{Outcome, Store as _};
use tokio::time::{Duration, sleep, timeout};

use crate::rig::{LIMIT, PIPELINE, Rig, code, transaction};
use crate::{get, served, text};

/// Everything on, with windows as short as the store's clock, which counts seconds, allows.
const SHORT: &str = "    send_timeout_ms: 500
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
    grace_period_ms: 1000
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
