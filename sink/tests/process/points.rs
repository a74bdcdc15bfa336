//! Each named point, armed in a real process: it ends there, once, and the next process converges.

mod job;

use std::process::Output;

use assay_server::Snapshot;
use serde_json::json;
use sinks::model::ids::Digest;
use sinks::point::{EXIT_CODE, Point};
use sinks::store::{Condition, Outcome, Store as _};
use tokio::time::{Duration, Instant, sleep};

use crate::rig::{PIPELINE, Rig, code, transaction};

/// Where a point is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// On the way of every batch and every start: in `assay-sink run`.
    Run,
    /// In a command that has an actor work.
    Actor(Turn),
    /// On the way of every checkpoint: in a job of the staged sink.
    Job,
    /// In the coordinator of a campaign, by its gates.
    Campaign,
}

/// A command, and what the bucket has at its point and when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    command: &'static [&'static str],
    at_point: Has,
    done: Has,
}

/// Objects below each of [`FOLDERS`].
type Has = [usize; 7];

const FOLDERS: [&str; 7] = [
    "_manifest/inventory/",
    "_manifest/rollups/",
    "_manifest/marks/",
    "_manifest/entries/",
    "_manifest/compactions/",
    "public.orders/compacted/",
    "public.orders/wm2-",
];

/// Entries of the first rollup, of the second, and of none.
const ENTRIES: [u64; 3] = [40, 4, 2];

/// What [`Maintained::start`] leaves: work for every actor, three orphans among it.
const BEFORE: Has = [2, 2, 0, 46, 0, 0, 49];

const ROLLUP: &[&str] = &["rollup"];
const MARK: &[&str] = &["gc", "--only", "mark"];
const EXPIRE: &[&str] = &["gc", "--only", "mark,expire"];
const COMPACT: &[&str] = &["compact"];
const RECONCILE: &[&str] = &["reconcile"];

/// The table of all points: one that is not in it does not compile.
const fn armed(point: Point) -> Armed {
    let (command, at_point, done) = match point {
        Point::PubAfterData
        | Point::PubAfterEntry
        | Point::PubBeforeCas
        | Point::PubAfterCas
        | Point::PubBeforeAck
        | Point::AcqBeforeCas
        | Point::AcqAfterCas => return Armed::Run,
        Point::SinkBeforePrepare
        | Point::SinkAfterCreateUpload
        | Point::SinkMidParts
        | Point::SinkAfterPrepare
        | Point::SinkAfterHandlePut
        | Point::SinkBeforeCommit
        | Point::SinkAfterExternalCommit
        | Point::SinkBeforeReceipt
        | Point::SinkAfterReceipt => return Armed::Job,
        Point::CoordinatorBeforeCompletedMarker
        | Point::CoordinatorAfterCompletedMarker
        | Point::CoordinatorBeforeCommitBroadcast => return Armed::Campaign,
        // The same inventory is written again; a rollup names its epoch, and the first stays unreached for ever.
        Point::RollupAfterInventory => (ROLLUP, [3, 2, 0, 46, 0, 0, 49], [3, 3, 0, 46, 0, 0, 49]),
        Point::RollupAfterRollup => (ROLLUP, [3, 3, 0, 46, 0, 0, 49], [3, 4, 0, 46, 0, 0, 49]),
        // Nothing is marked twice.
        Point::GcAfterMark => (MARK, [2, 2, 1, 46, 0, 0, 49], [2, 2, 1, 46, 0, 0, 49]),
        Point::GcAfterFloor => (EXPIRE, [2, 2, 1, 46, 0, 0, 49], [2, 2, 1, 6, 0, 0, 49]),
        Point::GcMidDelete => (EXPIRE, [2, 2, 1, 30, 0, 0, 49], [2, 2, 1, 6, 0, 0, 49]),
        // A record names when it was made: one that HEAD never reached stays for ever too.
        Point::CompAfterOutput => (COMPACT, [2, 2, 0, 46, 0, 1, 49], [2, 2, 0, 46, 1, 1, 49]),
        Point::CompAfterRecord => (COMPACT, [2, 2, 0, 46, 1, 1, 49], [2, 2, 0, 46, 2, 1, 49]),
        Point::RecAfterListing => (RECONCILE, [2, 2, 0, 46, 0, 0, 49], [2, 2, 0, 46, 0, 0, 46]),
        Point::RecMidDelete => (RECONCILE, [2, 2, 0, 46, 0, 0, 48], [2, 2, 0, 46, 0, 0, 46]),
    };
    Armed::Actor(Turn { command, at_point, done })
}

/// This host's record.
const LOCAL: &str = "assay-sink.orders.redb";

/// The command with `point` armed and its record at `fired`.
async fn run(rig: &Rig, point: Point, command: &[&str], input: &str) -> Output {
    let record = rig.path("fired");
    let armed = [("ASSAY_PROTOCOL_POINT", point.name().into()), ("ASSAY_PROTOCOL_POINT_FIRED", record)];
    rig.ask_with(command, &armed, input).await
}

#[track_caller]
fn ended(output: &Output, expected: i32, point: Point) {
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), expected, "{}: {log}", point.name());
}

/// A batch that was committed and not acknowledged is not sent again by whoever reads the acknowledgements.
async fn converges(rig: &Rig, point: Point) {
    let all: String = (1..=5).map(|id| transaction([id])).collect();
    let armed = run(rig, point, &["run"], &all).await;
    ended(&armed, EXIT_CODE, point);
    assert!(rig.path("fired").exists(), "{} left its record", point.name());

    // The same environment once more: a point with a record does not fire again.
    let again = run(rig, point, &["run"], &all).await;
    ended(&again, 0, point);
    let last = String::from_utf8_lossy(&again.stdout).lines().last().map(str::to_owned);
    assert!(last.is_some_and(|line| line.contains("\"position\":\"0/5\"")), "{}", point.name());
    assert_eq!(rig.ids().await, [1, 2, 3, 4, 5], "{}", point.name());
    let verified = rig.json(&["verify", "--deep", "--json"]).await;
    assert_eq!((&verified["entries"], &verified["rows"]), (&json!(5), &json!(5)), "{}", point.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_armed_point_ends_the_process_once_and_the_next_converges() {
    let points: Vec<Point> = Point::ALL.into_iter().filter(|point| armed(*point) == Armed::Run).collect();
    assert_eq!(points.len(), 7);
    let rig = Rig::start(PIPELINE, None).await;
    // A stream must be there to be acquired.
    let first: String = (1..=2).map(|id| transaction([id])).collect();
    assert_eq!(code(&rig.ask(&["run"], &first).await), 0);
    let snapshot = rig.server.snapshot().expect("a snapshot of a server in memory");
    let (local, before) = (rig.path(LOCAL), rig.path("before"));
    std::fs::copy(&local, &before).expect("this host's record");
    for point in points {
        rig.server.restore(&snapshot).await.expect("the server's own snapshot");
        std::fs::copy(&before, &local).expect("this host's record");
        let _ = std::fs::remove_file(rig.path("fired"));
        converges(&rig, point).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_point_that_cannot_write_its_record_does_not_fire() {
    let rig = Rig::start(PIPELINE, None).await;
    let nowhere = rig.path("no-directory").join("fired");
    let armed = [("ASSAY_PROTOCOL_POINT", "pub.before_ack".into()), ("ASSAY_PROTOCOL_POINT_FIRED", nowhere)];
    let output = rig.ask_with(&["run"], &armed, &transaction([1])).await;
    ended(&output, 0, Point::PubBeforeAck);
    assert_eq!(rig.ids().await, [1]);
}

/// Actors of the background work when they are told to, and with windows that are over at once.
const LIFECYCLE: &str = "    send_timeout_ms: 2000
    request_timeout_ms: 2000
    max_clock_skew_ms: 1500
    actors_every_ms: 86400000
    rollup_every_entries: 1
    safety_window_ms: 0
    compaction: {min_inputs: 2}
    grace_period_ms: 4000
    batch:";

/// A stream with work for every actor, which every point comes back to.
struct Maintained {
    rig: Rig,
    snapshot: Snapshot,
}

/// Three objects that nothing reaches.
async fn plant(rig: &Rig) {
    for orphan in ["one\n", "two\n", "three\n"] {
        let digest = Digest::of(orphan.as_bytes());
        let key = format!("orders/public.orders/wm2-{digest}/{digest}.jsonl");
        let put = rig.store().put(&key, orphan.into(), Condition::Absent, &[]).await;
        assert!(matches!(put, Outcome::Done(_)), "{key}: {put:?}");
    }
}

impl Maintained {
    async fn start() -> Self {
        let rig = Rig::start(&PIPELINE.replace("    batch:", LIFECYCLE), None).await;
        let (mut end, mut planted) = (0, Instant::now());
        for (generation, entries) in ENTRIES.into_iter().enumerate() {
            let input: String = (1..=end + entries).map(|id| transaction([id])).collect();
            assert_eq!(code(&rig.ask(&["run"], &input).await), 0);
            end += entries;
            if generation == 0 {
                plant(&rig).await;
                planted = Instant::now();
            }
            if generation < 2 {
                rig.json(&["rollup", "--take-over", "--json"]).await;
            }
        }
        // Older than the grace period by a clock that counts seconds.
        sleep(Duration::from_millis(6_000).saturating_sub(planted.elapsed())).await;
        let snapshot = rig.server.snapshot().expect("a snapshot of a server in memory");
        let maintained = Self { rig, snapshot };
        assert_eq!(maintained.has().await, BEFORE);
        maintained
    }

    async fn has(&self) -> Has {
        let mut has = [0; 7];
        for (count, folder) in has.iter_mut().zip(FOLDERS) {
            *count = self.rig.count(&format!("orders/{folder}")).await;
        }
        has
    }

    /// Armed, the command ends at its point with so much of its work done; the next finishes it.
    async fn converges(&self, point: Point, turn: &Turn) {
        let (rig, name) = (&self.rig, point.name());
        rig.server.restore(&self.snapshot).await.expect("the server's own snapshot");
        // As a host that never was the owner.
        let _ = std::fs::remove_file(rig.path(LOCAL));
        let _ = std::fs::remove_file(rig.path("fired"));
        let command = [turn.command, &["--take-over", "--json"]].concat();

        let fired = run(rig, point, &command, "").await;
        ended(&fired, EXIT_CODE, point);
        assert!(rig.path("fired").exists(), "{name} left its record");
        assert_eq!(self.has().await, turn.at_point, "at {name}: {FOLDERS:?}");

        // The same environment once more: a point with a record does not fire again.
        let again = run(rig, point, &command, "").await;
        ended(&again, 0, point);
        assert_eq!(self.has().await, turn.done, "after {name}: {FOLDERS:?}");

        assert_eq!(rig.ids().await, (1..=ENTRIES.iter().sum()).collect::<Vec<u64>>(), "{name}");
        let verified = rig.json(&["verify", "--deep", "--json"]).await;
        assert_eq!((&verified["entries"], &verified["rows"]), (&json!(46), &json!(46)), "{name}");
        let objects = if turn.command == COMPACT { 1 } else { 46 };
        assert_eq!(verified["objects"], json!(objects), "{name}: {verified}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_point_of_an_actor_ends_its_command_once_and_the_next_finishes_its_work() {
    let maintained = Maintained::start().await;
    let mut points = 0;
    for point in Point::ALL {
        if let Armed::Actor(turn) = armed(point) {
            maintained.converges(point, &turn).await;
            points += 1;
        }
    }
    assert_eq!(points, 9);
}
