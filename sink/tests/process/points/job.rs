//! A job of the staged sink as a process of its own: this test's binary, started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sinks::env::{Clock, Ids};
use sinks::model::stage::files::Snapshot;
use sinks::point::{EXIT_CODE, Point};
use sinks::run::stage::restored;
use sinks::stage::{
    JobRoot, Ledger, LocalDirectory, Opening, Options, Record, StagedSink, TwoPhaseSink as _,
};
use sinks::store::{Access, Outcome, S3Settings, S3Store, Store as _};
use tokio::process::Command;

use super::{Armed, armed, ended};
use crate::rig::{PIPELINE, Rig, finished};

/// The test that is a job of another process, if this names a checkpoint directory.
const DIRECTORY: &str = "ASSAY_STAGED_DIRECTORY";
const SELF: &str = "points::job::a_job_goes_on_where_the_one_before_ended";

const RECORDS: u64 = 6;
/// Records of an interval.
const STEP: u64 = 3;

#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        1_764_417_600_000
    }
}

fn root() -> JobRoot {
    JobRoot::new("out", "job", "jsonl").expect("a short name")
}

fn ledger(directory: &Path, ids: &Ids) -> Ledger {
    let directory = LocalDirectory::open(directory, ids.nonce()).expect("a directory");
    Ledger::new(Arc::new(directory), root().job_id())
}

/// Coordinator and one subtask, to the end of the stream.
async fn job(store: S3Store, directory: &Path) {
    let ids = Arc::new(Ids::seeded(u64::from(std::process::id())));
    let ledger = ledger(directory, &ids);
    let over = ledger.take_over(ids.nonce(), 0).await.expect("the only coordinator");
    let options = Options { settle_ms: 300, ..Options::new(root(), "my-bucket", 0) };
    let opening =
        Opening { uploads: Arc::new(store), clock: Arc::new(Noon), ids, ledger: ledger.clone(), options };
    let handles = restored(&ledger, 0).await.expect("a sound directory");
    let mut sink = StagedSink::recover(opening, handles).await.expect("a recovery");
    let positions = over.restored.map(|restored| restored.snapshot.positions).unwrap_or_default();
    let mut next: u64 = positions.get("0").map_or(1, |next| next.parse().expect("a number"));
    let mut checkpoint = over.next_checkpoint;
    while next <= RECORDS {
        for n in next..next + STEP {
            let line = n.to_string();
            sink.write(Record { id: &line, line: line.as_bytes() }).expect("room");
        }
        next += STEP;
        sink.prepare(checkpoint).await.expect("it is staged");
        let snapshot = Snapshot {
            job_id: root().job_id().to_owned(),
            checkpoint_id: checkpoint,
            epoch: 0,
            positions: BTreeMap::from([("0".to_owned(), next.to_string())]),
            handles: sink.staged(),
            at_ms: 0,
        };
        over.coordinator.put_snapshot(snapshot).await.expect("a new number");
        over.coordinator.complete(checkpoint, 0).await.expect("nobody else decides");
        sink.commit_completed().await.expect("it becomes visible");
        checkpoint += 1;
    }
    sink.end_of_stream(60_000).await.expect("nothing is staged");
    sink.close().await.expect("a sound sink");
}

/// Every record is visible once and in order, and every object has its receipt.
async fn is_whole(store: &S3Store, directory: &Path, context: &str) {
    let Outcome::Done(page) = store.list("out/job/", None, 1000).await else { panic!("a listing") };
    let mut visible = Vec::new();
    for object in &page.objects {
        let Outcome::Done(object) = store.get(&object.key).await else { panic!("{}", object.key) };
        let text = String::from_utf8(object.bytes.to_vec()).expect("UTF-8");
        visible.extend(text.lines().map(|line| line.parse::<u64>().expect("a record")));
    }
    assert_eq!(visible, (1..=RECORDS).collect::<Vec<u64>>(), "{context}");
    let ledger = ledger(directory, &Ids::seeded(0));
    assert_eq!(ledger.receipts().await.expect("a directory"), page.objects.len(), "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_where_the_one_before_ended() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        let of = |name: &str| std::env::var(name).expect("the environment of the rig");
        let bucket = S3Settings::new(Some(of("AWS_ENDPOINT_URL")), of("AWS_REGION"), "my-bucket");
        let access = Access::keys(&of("AWS_ACCESS_KEY_ID"), &of("AWS_SECRET_ACCESS_KEY"), None);
        let store = S3Store::new(&bucket, &access).expect("settings of a running server");
        return job(store, &PathBuf::from(directory)).await;
    }
    let rig = Rig::start(PIPELINE, None).await;
    for life in 1..=2 {
        job(rig.store(), &rig.path("checkpoints")).await;
        is_whole(&rig.store(), &rig.path("checkpoints"), &format!("life {life}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_point_of_a_checkpoint_ends_the_job_once_and_the_next_converges() {
    let rig = Rig::start(PIPELINE, None).await;
    let empty = rig.server.snapshot().expect("a snapshot of a server in memory");
    let points: Vec<Point> = Point::ALL.into_iter().filter(|point| armed(*point) == Armed::Job).collect();
    assert_eq!(points.len(), 9);
    for point in points {
        rig.server.restore(&empty).await.expect("the server's own snapshot");
        let directory = rig.path(point.name());
        let record = rig.path(&format!("{}.fired", point.name()));
        let life = || {
            let mut command: Command = rig.process(&std::env::current_exe().expect("this binary"));
            command.args([SELF, "--exact"]).env(DIRECTORY, &directory);
            command.env("ASSAY_PROTOCOL_POINT", point.name()).env("ASSAY_PROTOCOL_POINT_FIRED", &record);
            finished(command, "")
        };
        ended(&life().await, EXIT_CODE, point);
        assert!(record.exists(), "{} left its record", point.name());
        // The same environment once more: a point with a record does not fire again.
        ended(&life().await, 0, point);
        is_whole(&rig.store(), &directory, point.name()).await;
    }
}
