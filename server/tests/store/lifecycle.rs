//! Lifecycle rules that end uploads: when, which, and that it lasts. The clock starts on a Sunday at noon.

use std::sync::Arc;

use crate::client::{On, Rig, send, settings};

const HOUR_S: u64 = 60 * 60;
const DAY_S: u64 = 24 * HOUR_S;

/// A configuration of rules that abort: id, filter, days.
fn aborting(rules: &[(&str, &str, u32)]) -> String {
    let rule = |(id, filter, days): &(&str, &str, u32)| {
        format!(
            "<Rule><ID>{id}</ID>{filter}<Status>Enabled</Status><AbortIncompleteMultipartUpload>\
             <DaysAfterInitiation>{days}</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>"
        )
    };
    format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rules.iter().map(rule).collect::<String>())
}

/// Every upload, by one rule.
fn after_days(days: u32) -> String {
    aborting(&[("all", "<Filter/>", days)])
}

async fn begin(rig: &Rig, key: &str) -> String {
    let id = rig.call("POST", &format!("{key}?uploads")).await.expect(200).only("UploadId");
    rig.put(&format!("{key}?partNumber=1&uploadId={id}"), vec![b'a'; 100_000]).await.expect(200);
    id
}

async fn open(rig: &Rig) -> Vec<String> {
    rig.call("GET", "?uploads").await.expect(200).all("Upload/Key")
}

async fn an_upload_ends_at_the_midnight_after_its_days(on: On) {
    let rig = Rig::new(on).await;
    rig.put("?lifecycle", after_days(2)).await.expect(200);
    let begun = rig.call("POST", "k?uploads").await.expect(200);
    let announced = |answer: &crate::client::Answer| {
        (answer.header("x-amz-abort-date").unwrap(), answer.header("x-amz-abort-rule-id").unwrap())
    };
    assert_eq!(announced(&begun), ("Wed, 02 Dec 2026 00:00:00 GMT".to_owned(), "all".to_owned()));
    let id = begun.only("UploadId");
    let part = format!("k?partNumber=1&uploadId={id}");
    rig.put(&part, vec![b'a'; 100_000]).await.expect(200);
    rig.clock.pass_s(2 * DAY_S + 12 * HOUR_S - 1);
    let listed = rig.call("GET", &format!("k?uploadId={id}")).await.expect(200);
    assert_eq!((announced(&listed), listed.all("Part").len()), (announced(&begun), 1));
    assert_eq!(rig.files().len(), usize::from(on == On::Disk));
    rig.clock.pass_s(1);
    for (method, target) in
        [("GET", format!("k?uploadId={id}")), ("PUT", part), ("DELETE", format!("k?uploadId={id}"))]
    {
        rig.call(method, &target).await.expect_code(404, "NoSuchUpload");
    }
    let list = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>";
    rig.send("POST", &format!("k?uploadId={id}"), &[], list).await.expect_code(404, "NoSuchUpload");
    assert!(open(&rig).await.is_empty());
    assert!(rig.files().is_empty(), "its parts are gone");
}

async fn rules_end_what_their_filter_takes_while_they_are_enabled(on: On) {
    let rig = Rig::new(on).await;
    let rules = aborting(&[
        ("logs", "<Filter><Prefix>logs/</Prefix></Filter>", 1),
        ("old form", "<Prefix>old/</Prefix>", 3),
        ("off", "<Filter/>", 1),
    ]);
    let (before, off) = rules.rsplit_once("Enabled").unwrap();
    rig.put("?lifecycle", format!("{before}Disabled{off}")).await.expect(200);
    for key in ["a", "logs/a", "old/a"] {
        begin(&rig, key).await;
    }
    let other = rig.call("POST", "a?uploads").await.expect(200);
    assert_eq!((other.header("x-amz-abort-date"), other.header("x-amz-abort-rule-id")), (None, None));
    rig.clock.pass_s(2 * DAY_S);
    assert_eq!(open(&rig).await, ["a", "a", "old/a"]);
    rig.clock.pass_s(2 * DAY_S);
    assert_eq!(open(&rig).await, ["a", "a"]);
    let shown = rig.call("GET", "?lifecycle").await.expect(200);
    assert_eq!(shown.all("Rule/Status"), ["Enabled", "Enabled", "Disabled"]);
    assert_eq!(
        (shown.only("Rule/Prefix"), shown.all("Rule/Filter/Prefix")),
        ("old/".to_owned(), vec!["logs/".to_owned()])
    );
    assert_eq!(shown.all("Rule/AbortIncompleteMultipartUpload/DaysAfterInitiation"), ["1", "3", "1"]);
}

async fn a_new_configuration_counts_for_the_uploads_of_before(on: On) {
    let rig = Rig::new(on).await;
    begin(&rig, "k").await;
    rig.clock.pass_s(10 * DAY_S);
    assert_eq!(open(&rig).await, ["k"]);
    rig.put("?lifecycle", after_days(30)).await.expect(200);
    assert_eq!(open(&rig).await, ["k"]);
    rig.put("?lifecycle", after_days(2)).await.expect(200);
    rig.call("DELETE", "?lifecycle").await.expect(204);
    assert_eq!(open(&rig).await, ["k"], "nobody asked while it counted");
    rig.put("?lifecycle", after_days(2)).await.expect(200);
    assert!(open(&rig).await.is_empty());
}

async fn many_uploads_end_together_and_nothing_else_does(on: On) {
    let rig = Rig::new(on).await;
    rig.put("?lifecycle", after_days(1)).await.expect(200);
    for number in 0..250 {
        rig.call("POST", &format!("k{number:03}?uploads")).await.expect(200);
    }
    rig.clock.pass_s(DAY_S);
    rig.put("k000", "object").await.expect(200);
    rig.call("POST", "later?uploads").await.expect(200);
    rig.clock.pass_s(DAY_S);
    assert_eq!(open(&rig).await, ["later"]);
    assert_eq!(rig.call("GET", "k000").await.expect(200).text(), "object");
    let again = rig.put("?lifecycle", after_days(1)).await.expect(200);
    assert!(again.body.is_empty());
}

async fn an_ended_upload_needs_no_trace_of_deletes(on: On) {
    let rig = Rig::new(on).await;
    rig.put("?lifecycle", after_days(1)).await.expect(200);
    rig.put("k", "old").await.expect(200);
    begin(&rig, "k").await;
    rig.call("DELETE", "k").await.expect(204);
    rig.clock.pass_s(2 * DAY_S);
    let id = begin(&rig, "k").await;
    assert_eq!(open(&rig).await, ["k"]);
    let etag = rig.call("GET", &format!("k?uploadId={id}")).await.expect(200).only("Part/ETag");
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    rig.send("POST", &format!("k?uploadId={id}"), &[("if-none-match", "*")], list).await.expect(200);
}

async fn snapshots_hold_the_configuration(on: On) {
    let rig = Rig::new(on).await;
    rig.put("?lifecycle", after_days(1)).await.expect(200);
    begin(&rig, "k").await;
    let snapshot = rig.engine.snapshot().unwrap();
    rig.clock.pass_s(2 * DAY_S);
    assert!(open(&rig).await.is_empty());
    rig.call("DELETE", "?lifecycle").await.expect(204);
    begin(&rig, "other").await;
    rig.engine.restore(&snapshot).await.unwrap();
    rig.call("GET", "?lifecycle").await.expect(200);
    assert!(open(&rig).await.is_empty(), "what came back is due");
    rig.engine.reset().await.unwrap();
    rig.call("GET", "?lifecycle").await.expect_code(404, "NoSuchLifecycleConfiguration");
}

async fn answers_say_when_an_object_expires(on: On) {
    let rig = Rig::new(on).await;
    let rule = "<LifecycleConfiguration><Rule><ID>a b</ID><Filter><Prefix>k</Prefix></Filter><Status>Enabled</Status>\
                <Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>";
    rig.put("?lifecycle", rule).await.expect(200);
    let expected = "expiry-date=\"Thu, 03 Dec 2026 00:00:00 GMT\", rule-id=\"a+b\"";
    let id = begin(&rig, "k-parts").await;
    let etag = rig.call("GET", &format!("k-parts?uploadId={id}")).await.expect(200).only("Part/ETag");
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    for answer in [
        rig.put("k", "v").await,
        rig.call("HEAD", "k").await,
        rig.call("GET", "k").await,
        rig.send("PUT", "k-copy", &[("x-amz-copy-source", "bucket/k")], "").await,
        rig.send("POST", &format!("k-parts?uploadId={id}"), &[], list).await,
    ] {
        assert_eq!(answer.expect(200).header("x-amz-expiration").as_deref(), Some(expected));
    }
    let other = rig.send("PUT", "other", &[("x-amz-copy-source", "bucket/k")], "").await.expect(200);
    assert_eq!(other.header("x-amz-expiration"), None);
    // It is said, and nothing is removed.
    rig.clock.pass_s(30 * DAY_S);
    rig.call("GET", "k").await.expect(200);
}

#[tokio::test]
async fn a_restart_keeps_the_configuration_and_the_dates() {
    let Rig { engine, clock, directory } = Rig::new(On::Disk).await;
    let directory = directory.unwrap();
    let begin = async |engine: &assay_server::Engine, key: &str| {
        let id = send(engine, "POST", &format!("{key}?uploads"), &[], "").await.expect(200).only("UploadId");
        send(engine, "PUT", &format!("{key}?partNumber=1&uploadId={id}"), &[], vec![b'a'; 100_000])
            .await
            .expect(200);
    };
    send(&engine, "PUT", "?lifecycle", &[], after_days(1)).await.expect(200);
    begin(&engine, "old").await;
    clock.pass_s(DAY_S);
    begin(&engine, "new").await;
    drop(engine);
    clock.pass_s(DAY_S);
    let engine = Arc::new(settings(&clock).data(directory.path()).build().await.unwrap());
    let rig = Rig { engine, clock, directory: Some(directory) };
    assert_eq!(open(&rig).await, ["new"]);
    assert_eq!(rig.files().len(), 1);
    rig.call("GET", "?lifecycle").await.expect(200);
    rig.clock.pass_s(DAY_S);
    assert!(open(&rig).await.is_empty());
    rig.call("DELETE", "").await.expect(204);
}

#[tokio::test]
async fn a_fault_that_forgets_or_reads_the_past_does_not_keep_an_upload_alive() {
    let rig = Rig::new(On::Memory).await;
    rig.put("?lifecycle", after_days(1)).await.expect(200);
    begin(&rig, "k").await;
    let guard = rig.engine.fault("method=POST effect=forget".parse().unwrap()).unwrap();
    rig.clock.pass_s(2 * DAY_S);
    rig.call("POST", "other?uploads").await.expect(200);
    drop(guard);
    assert!(open(&rig).await.is_empty());
    // A read of the past shows what was open then.
    begin(&rig, "k").await;
    let guard = rig.engine.fault("method=GET effect=stale".parse().unwrap()).unwrap();
    rig.clock.pass_s(2 * DAY_S);
    assert_eq!(open(&rig).await, ["k"]);
    drop(guard);
    assert!(open(&rig).await.is_empty());
}

crate::on_both_stores!(
    an_upload_ends_at_the_midnight_after_its_days,
    rules_end_what_their_filter_takes_while_they_are_enabled,
    a_new_configuration_counts_for_the_uploads_of_before,
    many_uploads_end_together_and_nothing_else_does,
    an_ended_upload_needs_no_trace_of_deletes,
    snapshots_hold_the_configuration,
    answers_say_when_an_object_expires,
);
