//! Nothing stays behind: after a stop, after a death in the middle, and nothing of others is touched.

use std::time::Duration;

use assay_server::{AuthMode, Server};
use bytes::Bytes;
use sinks::probe::Verdict;
use sinks::store::{Condition, Outcome, Store};

use super::{Rig, ready};

async fn write(store: &dyn Store, key: &str) {
    let outcome = store.put(key, Bytes::from_static(b"x"), Condition::None, &[]).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{key}: {outcome:?}");
}

/// Ends once the server has taken so many writes.
async fn writes(rig: &Rig, wanted: usize) {
    let mut seen = 0;
    while seen < wanted {
        tokio::time::sleep(Duration::from_millis(1)).await;
        seen = rig.server.journal().count(|record| record.operation == Some("PutObject"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_the_middle_clears_away() {
    for wanted in [1, 30, 150] {
        let rig = Rig::new(Server::builder()).await;
        let report = rig.probe_until(writes(&rig, wanted)).await;
        assert!(report.interrupted && report.exit_code() == 130, "{report}");
        assert!(matches!(report.verdict, Verdict::Inconclusive(_)), "{report}");
        assert!(report.left.is_empty(), "{report}");
        rig.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_probe_left_is_removed_after_an_hour_and_nothing_else() {
    // Signatures are of today, and the store's clock will not be.
    let rig = Rig::new(Server::builder().auth(AuthMode::Any)).await;
    let probes = "lake/raw/orders/_manifest/probe/";
    let own = [
        "lake/raw/orders/_manifest/HEAD".to_owned(),
        "lake/raw/orders/_manifest/probe".to_owned(),
        format!("{probes}notes.txt"),
        format!("{probes}no-nonce/01-0/k"),
        format!("lake/raw/other/_manifest/probe/{}/01-0/k", "0".repeat(32)),
        "lake/raw/orders/public.orders/wm2-1/2.jsonl".to_owned(),
    ];
    for key in &own {
        write(rig.env.store.as_ref(), key).await;
    }
    // A probe whose process dies: its future is dropped in the middle.
    tokio::select! {
        biased;
        () = writes(&rig, own.len() + 60) => {}
        report = rig.probe() => panic!("it was to be dropped: {report}"),
    }
    let dead = rig.keys().await.len() - own.len();
    assert!(dead > 0, "it left something");
    // Within the hour it stays: it may be another's that is alive.
    let report = rig.probe().await;
    ready(&report);
    assert!(report.swept.is_empty(), "{report}");
    assert_eq!(rig.keys().await.len(), own.len() + dead);
    // An hour later, by the store's clock.
    let two_hours = 7_200_000;
    rig.server.set_clock_offset_ms(two_hours);
    let later = Rig { env: super::env(rig.env.store.clone(), 9), ..rig };
    let report = later.probe().await;
    assert_eq!(report.swept.len(), 1, "{report}");
    let mut own = own.to_vec();
    own.sort();
    assert_eq!(later.keys().await, own);
    later.server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_removed_is_named() {
    let rig = Rig::new(Server::builder()).await;
    let _denied =
        rig.server.fault("operation=DeleteObject effect=refuse code=AccessDenied".parse().unwrap()).unwrap();
    let report = rig.probe().await;
    assert!(matches!(&report.verdict, Verdict::Refused(checks) if checks.contains(&25)), "{report}");
    assert!(!report.left.is_empty());
    assert!(report.to_string().contains("left      lake/raw/orders/_manifest/probe/"), "{report}");
    rig.server.stop().await;
}
