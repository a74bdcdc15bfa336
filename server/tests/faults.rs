//! Faults as a client without retries sees them, on both stores: what is answered, and what is stored.

mod client;

use std::time::Duration;

use assay_server::{Loss, Outage};
use bytes::Bytes;
use client::{Answer, BOTH, On, Rig, path_of};
use http_body_util::Full;

/// A request under the rules that are set; `Err` where no answer comes.
async fn ask(
    rig: &Rig,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Answer, Loss> {
    let mut request = http::Request::builder().method(method).uri(path_of("bucket", target));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request = request.header("host", "localhost").header("content-length", body.len());
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    Ok(Answer::of(rig.engine.try_call(request).await?).await)
}

async fn status(
    rig: &Rig,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<u16, Loss> {
    ask(rig, method, target, headers, body).await.map(|answer| answer.status)
}

/// The object's bytes, or nothing.
async fn stored(rig: &Rig, key: &str) -> Option<String> {
    let answer = rig.call("GET", key).await;
    (answer.status == 200).then(|| String::from_utf8(answer.body.to_vec()).unwrap())
}

const CREATE: &[(&str, &str)] = &[("if-none-match", "*")];

#[tokio::test(start_paused = true)]
async fn before_the_commit_nothing_is_stored() {
    for on in BOTH {
        let rig = Rig::new(on).await;
        for (effect, expected) in [
            ("refuse code=SlowDown retry-after=7", Ok(503)),
            ("refuse code=ConditionalRequestConflict", Ok(409)),
            ("refuse code=TooManyRequests", Ok(429)),
            ("drop", Err(Loss::Reset)),
            ("freeze", Err(Loss::Never)),
        ] {
            let guard = rig.engine.fault(format!("effect={effect}").parse().unwrap()).unwrap();
            let answer = ask(&rig, "PUT", "k", CREATE, "mine").await;
            if effect.contains("retry-after") {
                assert_eq!(answer.as_ref().unwrap().headers["retry-after"], "7");
            }
            assert_eq!(answer.map(|answer| answer.status), expected, "{effect}");
            drop(guard);
            assert_eq!(stored(&rig, "k").await, None, "{effect}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn applied_then_lost_is_met_again_as_ones_own_write() {
    for (effect, expected) in [
        ("lose-answer", Err(Loss::Reset)),
        ("lose-answer how=never", Err(Loss::Never)),
        ("fail-after code=InternalError", Ok(500)),
    ] {
        for on in BOTH {
            let rig = Rig::new(on).await;
            let _guard = rig.engine.fault(format!("nth=1 effect={effect}").parse().unwrap()).unwrap();
            assert_eq!(status(&rig, "PUT", "k", CREATE, "mine").await, expected, "{effect}");
            assert_eq!(stored(&rig, "k").await.as_deref(), Some("mine"), "{effect}");
            assert_eq!(status(&rig, "PUT", "k", CREATE, "mine").await, Ok(412), "{effect}");
            rig.engine.assert_all_faults_fired().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_write_lands_though_nobody_waits() {
    for on in BOTH {
        let rig = Rig::new(on).await;
        let _guard = rig.engine.fault("method=PUT nth=1 effect=late ms=5000".parse().unwrap()).unwrap();
        let given_up = tokio::time::timeout(Duration::from_secs(1), status(&rig, "PUT", "k", &[], "late"));
        assert!(given_up.await.is_err(), "{on:?}: the client gave up before the answer");
        assert_eq!(stored(&rig, "k").await, None, "{on:?}: it is still under way");
        // A retry with a condition finds nothing and succeeds; then the first one lands on top of it.
        assert_eq!(status(&rig, "PUT", "k", CREATE, "retry").await, Ok(200));
        tokio::time::sleep(Duration::from_secs(5)).await;
        while stored(&rig, "k").await.as_deref() != Some("late") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_request_is_held_until_its_rule_is_taken_back() {
    for effect in ["delay", "late"] {
        for on in BOTH {
            let rig = Rig::new(on).await;
            let rule = format!("method=PUT nth=1 effect={effect} until=lifted");
            let guard = rig.engine.fault(rule.parse().unwrap()).unwrap();
            let mut held = std::pin::pin!(status(&rig, "PUT", "k", CREATE, "held"));
            let hit = async {
                while guard.status().unwrap().fired == 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                answer = &mut held => panic!("{on:?} {effect}: answered while held: {answer:?}"),
                () = hit => {}
            }
            assert_eq!(stored(&rig, "k").await, None, "{on:?} {effect}");
            assert_eq!(status(&rig, "PUT", "k", CREATE, "between").await, Ok(200), "{on:?} {effect}");
            drop(guard);
            assert_eq!(held.await, Ok(412), "{on:?} {effect}: it came second");
            assert_eq!(stored(&rig, "k").await.as_deref(), Some("between"), "{on:?} {effect}");
        }
    }
}

#[tokio::test]
async fn acknowledged_and_lost_or_done_twice() {
    for on in BOTH {
        let rig = Rig::new(on).await;
        rig.put("k", "old").await;
        let large = "x".repeat(100_000);
        rig.put("large", large.clone()).await;
        {
            let _guard = rig.engine.fault("method=PUT effect=forget".parse().unwrap()).unwrap();
            assert_eq!(status(&rig, "PUT", "k", &[], "new").await, Ok(200));
            assert_eq!(status(&rig, "PUT", "large", &[], "new").await, Ok(200));
            assert_eq!(status(&rig, "PUT", "k", CREATE, "new").await, Ok(412), "the decision is a real one");
        }
        assert_eq!(stored(&rig, "k").await.as_deref(), Some("old"), "{on:?}");
        assert_eq!(stored(&rig, "large").await, Some(large), "{on:?}");
        let enable = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        rig.send("PUT", "/bucket?versioning", &[], enable).await.expect(200);
        let _guard = rig.engine.fault("operation=PutObject effect=twice".parse().unwrap()).unwrap();
        assert_eq!(status(&rig, "PUT", "twice", &[], "v").await, Ok(200));
        let versions = rig.call("GET", "/bucket?versions&prefix=twice").await;
        assert_eq!(versions.text().matches("<VersionId>").count(), 2, "{on:?}");
    }
}

#[tokio::test]
async fn answers_that_lie() {
    let rig = Rig::new(On::Memory).await;
    let real = rig.put("k", "v").await.headers["etag"].to_str().unwrap().to_owned();
    let _guard = rig.engine.fault("operation=GetObject effect=wrong-etag".parse().unwrap()).unwrap();
    let told = rig.call("GET", "k").await.headers["etag"].to_str().unwrap().to_owned();
    assert!(told != real && told.len() == real.len(), "{told} {real}");
    let copy =
        [("x-amz-copy-source", "bucket/k"), ("x-assay-fault", "effect=error-document code=InternalError")];
    let answer = ask(&rig, "PUT", "copy", &copy, "").await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("<Error><Code>InternalError</Code>"), "{}", answer.text());
    assert_eq!(stored(&rig, "copy").await.as_deref(), Some("v"));
}

#[tokio::test(start_paused = true)]
async fn reads_that_are_slow_short_wrong_or_old() {
    for on in BOTH {
        let rig = Rig::new(on).await;
        rig.put("k", "hello world").await;
        let read = async |effect: &str| {
            let _guard =
                rig.engine.fault(format!("operation=GetObject effect={effect}").parse().unwrap()).unwrap();
            let request = http::Request::get("/bucket/k").header("host", "localhost");
            let response = rig.engine.call(request.body(Full::new(Bytes::new())).unwrap()).await;
            assert_eq!(response.headers()["content-length"], "11", "{effect}");
            use http_body_util::BodyExt as _;
            response.into_body().collect().await.map(|body| body.to_bytes())
        };
        assert!(read("cut at=5").await.is_err(), "{on:?}");
        assert_eq!(read("corrupt").await.unwrap(), "Hello world", "{on:?}");
        assert_eq!(read("bandwidth bytes-per-s=5").await.unwrap(), "hello world", "{on:?}");
        let stale = rig.engine.fault("method=GET effect=stale".parse().unwrap()).unwrap();
        rig.put("k", "new").await;
        rig.put("other", "new").await;
        assert_eq!(stored(&rig, "k").await.as_deref(), Some("hello world"), "{on:?}");
        assert!(!rig.call("GET", "/bucket?list-type=2").await.text().contains("<Key>other</Key>"));
        drop(stale);
        assert_eq!(stored(&rig, "k").await.as_deref(), Some("new"), "{on:?}");
    }
}

#[tokio::test]
async fn lists_that_omit_repeat_or_end_without_a_token() {
    let rig = Rig::new(On::Memory).await;
    for key in ["a", "c", "d", "b"] {
        rig.put(key, key).await;
    }
    let keys = async |effect: &str| {
        let fault = format!("effect={effect}");
        let answer = rig.send("GET", "/bucket?list-type=2", &[("x-assay-fault", &fault)], "").await;
        let text = answer.text().to_owned();
        let keys: Vec<String> =
            text.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()).collect();
        (keys.join(""), text)
    };
    assert_eq!(keys("omit-newest").await.0, "acd");
    assert_eq!(keys("repeat-key").await.0, "abcdd");
    let (short, text) = keys("truncate").await;
    assert_eq!(short, "ab");
    assert!(
        text.contains("<IsTruncated>true</IsTruncated>") && !text.contains("NextContinuationToken"),
        "{text}"
    );
}

#[tokio::test]
async fn a_fault_of_one_request_is_no_other_s_and_a_bad_one_says_why() {
    let rig = Rig::new(On::Memory).await;
    let fault = |text| [("x-assay-fault", text)];
    let refused = status(&rig, "PUT", "k", &fault("effect=refuse code=SlowDown"), "v").await;
    assert_eq!(refused, Ok(503));
    assert_eq!(status(&rig, "PUT", "k", &[], "v").await, Ok(200));
    assert_eq!(status(&rig, "PUT", "k", &fault("key=other effect=drop"), "v").await, Ok(200));
    let answer = ask(&rig, "PUT", "k", &fault("effect=drop nth=often"), "v").await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().contains("field nth = &quot;often&quot;: accepts a number above 0"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn an_outage_and_a_clock_that_is_off() {
    let rig = Rig::new(On::Memory).await;
    for (outage, expected) in
        [(Outage::Unavailable, Ok(503)), (Outage::Hang, Err(Loss::Never)), (Outage::Refuse, Err(Loss::Reset))]
    {
        let guard = rig.engine.outage(outage);
        assert_eq!(status(&rig, "GET", "/bucket", &[], "").await, expected, "{outage:?}");
        drop(guard);
        assert_eq!(status(&rig, "GET", "/bucket", &[], "").await, Ok(200), "{outage:?}");
    }
    rig.engine.set_clock_offset_ms(3_600_000);
    rig.put("k", "v").await;
    let answer = rig.call("HEAD", "k").await;
    assert_eq!(answer.headers["last-modified"], "Sun, 29 Nov 2026 13:00:00 GMT");
    assert_eq!(answer.headers["date"], "Sun, 29 Nov 2026 13:00:00 GMT");
}

#[tokio::test]
async fn the_journal_tells_what_was_asked_and_what_acted() {
    let rig = Rig::new(On::Memory).await;
    let _guard =
        rig.engine.fault("name=once nth=1 operation=PutObject effect=lose-answer".parse().unwrap()).unwrap();
    assert_eq!(status(&rig, "PUT", "locks/a", CREATE, "four").await, Err(Loss::Reset));
    rig.put("locks/a", "x").await;
    let writes = rig.engine.journal().filter(|record| record.key.as_deref() == Some("locks/a"));
    let [lost, second] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((lost.operation, lost.status, lost.body_size), (Some("PutObject"), None, 4));
    assert_eq!(lost.conditions, [("if-none-match", "*".to_owned())]);
    assert_eq!((lost.faults[0].rule.as_str(), lost.faults[0].effect), ("once", "lose-answer"));
    assert_eq!((second.status, second.faults.len(), second.number), (Some(200), 0, lost.number + 1));
}

/// A record as JSON, but for how long it took.
fn without_times(record: &assay_server::Record) -> String {
    let mut value = serde_json::to_value(record).unwrap();
    value.as_object_mut().unwrap().remove("duration_us");
    value.to_string()
}

#[tokio::test]
async fn the_same_seed_and_requests_give_the_same_faults_and_journal() {
    let run = async |seed: u64| {
        let rig = Rig::with(On::Memory, |builder| builder.seed(seed)).await;
        let rule = "probability=0.4 effect=refuse code=SlowDown";
        let _guard = rig.engine.fault(rule.parse().unwrap()).unwrap();
        for number in 0..50 {
            rig.put(&format!("k{number}"), "v").await;
        }
        let records = rig.engine.journal().filter(|_| true);
        records.iter().map(without_times).collect::<Vec<_>>()
    };
    let (first, again, other) = (run(5).await, run(5).await, run(6).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[tokio::test]
async fn a_rule_that_never_fired_is_an_error_at_the_end() {
    let rig = Rig::new(On::Memory).await;
    drop(rig.engine.fault("name=forgotten key=nowhere effect=drop".parse().unwrap()).unwrap());
    let error = rig.engine.assert_all_faults_fired().unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 fault(s) never fired: [name=forgotten key=nowhere effect=drop; 0 request(s) matched]"
    );
}

#[tokio::test]
async fn without_the_hook_or_the_journal_nothing_acts_or_is_remembered() {
    let rig = Rig::with(On::Memory, |builder| builder.hook(false)).await;
    let _guard = rig.engine.fault("effect=refuse code=SlowDown".parse().unwrap()).unwrap();
    let _outage = rig.engine.outage(Outage::Unavailable);
    assert_eq!(status(&rig, "PUT", "k", &[("x-assay-fault", "effect=drop")], "v").await, Ok(200));
    assert_eq!(rig.engine.journal().last(), 1);
    let rig = Rig::with(On::Memory, |builder| builder.journal(false)).await;
    let refused = status(&rig, "PUT", "k", &[("x-assay-fault", "effect=refuse code=SlowDown")], "v").await;
    assert_eq!((refused, rig.engine.journal().last()), (Ok(503), 0));
}
