//! `legacy_rolling` as a process: what it loses, what it leaves alone, and the way back.

use serde_json::{Value, json};
use sinks::model::entry::{Entry, EntryKind};
use sinks::store::{Outcome, Store as _};

use crate::rig::{PIPELINE, Rig, code, transaction};
use crate::{get, served, text};

async fn body(rig: &Rig, key: &str) -> Vec<u8> {
    let Outcome::Done(object) = rig.store().get(key).await else { panic!("{key}") };
    object.bytes.to_vec()
}

/// Key and tag of every object below `prefix`.
async fn tags(rig: &Rig, prefix: &str) -> Vec<(String, String)> {
    let Outcome::Done(page) = rig.store().list(prefix, None, 1000).await else { panic!("a listing") };
    page.objects.into_iter().map(|object| (object.key, object.etag.0)).collect()
}

fn ids(range: std::ops::RangeInclusive<u64>) -> String {
    range.map(|id| transaction([id])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_leaves_durable_state_alone_and_its_gap_is_visible() {
    let rig = Rig::start(PIPELINE, None).await;
    assert_eq!(code(&rig.ask(&["run"], &ids(1..=3)).await), 0);
    let durable = tags(&rig, "orders/").await;
    let before = rig.server.journal().last();

    let guide = include_str!("../../README.md");
    let line = "    durability: legacy_rolling   # explicit, non-durable rolling files\n";
    assert!(guide.contains(line));
    let legacy =
        PIPELINE.replace("    batch:", &format!("{line}    batch:")).replace("'off'", "'127.0.0.1:0'");
    std::fs::write(rig.path("pipeline.yaml"), &legacy).expect("the pipeline's file");
    let mut running = rig.run();
    let address = served(&running.log("metrics are served").await);
    running.log("NOT DURABLE").await;
    let line = running.line().await.expect("a line");
    assert_eq!(
        (&line["event"], &line["position"], &line["durable"]),
        (&json!("resume"), &json!("0/3"), &json!(false))
    );
    running.feed(&ids(4..=6)).await;
    for id in 4..=6 {
        let line = running.line().await.expect("an acknowledgement");
        assert_eq!((&line["position"], &line["seq"]), (&json!(format!("0/{id}")), &Value::Null));
    }
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("s3_non_durable_ack_mode{pipeline=\"orders\",sink=\"s3\"} 1\n"), "{metrics}");
    assert!(get(&address, "/status").await.contains("\"unrolled_rows\":3"));
    running.child.start_kill().expect("SIGKILL");
    assert_eq!(running.wait().await.0.code(), None);
    assert_eq!(tags(&rig, "table=").await, [], "three rows were acknowledged, not rolled, and are lost");

    let output = rig.ask(&["run"], &ids(1..=9)).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with("{\"event\":\"resume\",\"type\":\"pg-lsn\",\"position\":\"0/6\""), "{said}");
    let rolled = tags(&rig, "table=public.orders/year=").await;
    let [(key, _)] = &rolled[..] else { panic!("one file in {rolled:?}") };
    let stored = text(&body(&rig, key).await);
    let rows: Vec<Value> = stored.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    assert_eq!(rows.iter().map(|row| row["after"]["id"].clone()).collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!(tags(&rig, "orders/").await, durable, "legacy_rolling touches nothing durable");
    let asked = rig.server.journal().filter(|record| {
        record.number > before
            && record.operation != Some("ListObjectsV2")
            && record.key.as_deref().is_some_and(|key| key.starts_with("orders/"))
    });
    assert!(asked.is_empty(), "{asked:?}");

    std::fs::write(rig.path("pipeline.yaml"), PIPELINE).expect("the pipeline's file");
    let output = rig.ask(&["run"], &ids(1..=10)).await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.starts_with("{\"event\":\"resume\",\"type\":\"pg-lsn\",\"position\":\"0/9\",\"sub\":0,"),
        "{said}"
    );
    assert!(text(&output.stderr).contains("S6 record legacy window"), "{}", text(&output.stderr));
    assert_eq!(rig.ids().await, [1, 2, 3, 10]);
    let verified = rig.json(&["verify", "--deep", "--json"]).await;
    assert_eq!((&verified["entries"], &verified["rows"]), (&json!(5), &json!(4)));
    let entries = tags(&rig, "orders/_manifest/entries/").await;
    let rebase = Entry::decode(&body(&rig, &entries[3].0).await).expect("an entry");
    assert_eq!((rebase.seq, rebase.kind, rebase.objects.len()), (4, EntryKind::Rebase, 0));
    assert_eq!(rebase.position.text, "0/9");
    assert!(rebase.reason.expect("a reason").contains("legacy_rolling"));
    for (key, tag) in durable.iter().filter(|(key, _)| !key.ends_with("/HEAD")) {
        assert!(tags(&rig, key).await.contains(&(key.clone(), tag.clone())), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_says_how_many_acknowledged_rows_are_not_in_the_bucket() {
    let legacy = "    durability: legacy_rolling\n    rolling: {max_bytes: 400}\n    batch:";
    let rig = Rig::start(&PIPELINE.replace("    batch:", legacy), None).await;
    let rule = "operation=CompleteMultipartUpload effect=refuse code=AccessDenied";
    let _fault = rig.server.fault(rule.parse().expect("a rule")).expect("a fault");
    let output = rig.ask(&["run"], &ids(1..=50)).await;
    let (said, acknowledged) = (text(&output.stderr), text(&output.stdout).lines().count());
    assert_eq!(code(&output), 2, "{said}");
    let lost = said.split(" rows that were acknowledged are not in the bucket").next();
    let lost = lost.and_then(|before| before.rsplit(' ').next()?.parse::<usize>().ok());
    // Nothing was rolled: all that was acknowledged is lost, and the row that made the file large enough with it.
    assert!(
        lost.is_some_and(|rows| (1..50).contains(&rows) && rows >= acknowledged),
        "{acknowledged}: {said}"
    );
}
