//! Stores that keep conditions, reads, lists or keys only nearly: each is refused, by the number of the check
//! that is about it.

use assay_server::{Builder, Server};
use sinks::probe::Verdict;

use super::Rig;

/// What the embedded server does, and the check that must refuse it.
pub(super) const TRICKSTERS: &[(&str, u8)] = &[
    ("ignore-write-conditions", 2),
    ("ignore-if-none-match-put", 2),
    ("ignore-if-match-put", 9),
    ("refuse-if-none-match-put", 1),
    ("refuse-if-match-put", 8),
    ("ignore-conditions-absent", 12),
    ("if-match-absent-creates", 12),
    ("ignore-conditions-existing", 2),
    ("ignore-conditions-large", 6),
    ("ignore-conditions-first-on-connection=1", 2),
    ("ignore-conditions-first-on-connection=10", 2),
    ("ignore-conditions-after=200", 20),
    ("ignore-conditions-same-bytes", 3),
    ("compare-etag-prefix=0", 9),
    ("compare-etag-prefix", 11),
    ("empty-counts-as-absent", 6),
    ("deleted-counts-as-present", 5),
    ("only-unquoted-etags-match", 8),
    ("race-create-put=200", 16),
    ("race-swap-put=200", 17),
    ("race-create-put=0:head", 19),
    ("refused-but-applied", 2),
    ("accepted-but-not-applied", 1),
    ("overwrite-not-applied", 21),
    ("weak-etags", 8),
    ("changing-etags", 1),
    ("constant-etags", 8),
    ("stale-reads", 21),
    ("list-omits-newest", 22),
    ("list-lag", 22),
    ("key-limit", 24),
    ("fold-key-case", 24),
    ("decode-keys-twice", 24),
];

/// The same of faults that last.
pub(super) const LASTING_FAULTS: &[(&str, u8)] = &[
    ("operation=ListObjectsV2 effect=truncate", 22),
    ("operation=ListObjectsV2 effect=repeat-key", 22),
    ("operation=PutObject effect=wrong-etag", 1),
    ("operation=PutObject effect=forget", 1),
    ("operation=GetObject effect=cut at=3", 1),
];

/// Differences that a durable stream does not meet.
const HARMLESS: &[&str] = &[
    "failed-write-304",
    "loser-409",
    "if-match-absent-412",
    "delete-absent-404",
    "unquoted-etags",
    "drop-metadata",
    "ignore-if-match-delete",
    "segment-limit",
    "no-etag-lists",
    "evaluate-if-match-star",
];

async fn refused_by(builder: Builder, fault: Option<&str>, about: &str, check: u8) {
    let mut rig = Rig::new(builder).await;
    rig.settings.retry_wait_ms = 1;
    // Three rounds: a trickster that is only caught by luck is not caught.
    rig.settings.race_budget_ms = 0;
    let _fault = fault.map(|rule| rig.server.fault(rule.parse().expect("a rule")).expect("a fault"));
    let report = rig.probe().await;
    assert!(
        matches!(&report.verdict, Verdict::Refused(checks) if checks.contains(&check)),
        "{about} was to be refused by check {check}\n{report}"
    );
    rig.server.stop().await;
}

async fn all_refused(tricksters: &[(&str, u8)]) {
    for (deviation, check) in tricksters {
        let builder = Server::builder().deviation(deviation.parse().expect("a deviation"));
        refused_by(builder, None, deviation, *check).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_look_at_some_conditions_only() {
    all_refused(&TRICKSTERS[..18]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_race_answer_and_read_otherwise() {
    all_refused(&TRICKSTERS[18..]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_whose_faults_last() {
    for (rule, check) in LASTING_FAULTS {
        refused_by(Server::builder(), Some(rule), rule, *check).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_that_do_no_harm_pass() {
    for deviation in HARMLESS {
        let mut rig = Rig::new(Server::builder().deviation(deviation.parse().expect("a deviation"))).await;
        rig.settings.race_budget_ms = 0;
        let report = rig.probe().await;
        assert_eq!(report.verdict, Verdict::Ready, "{deviation}\n{report}");
        rig.server.stop().await;
    }
}
