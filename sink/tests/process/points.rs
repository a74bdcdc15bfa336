//! Each named point of publishing and acquiring, armed in a real process: it ends there, once, and the next process converges.

use std::process::Output;

use serde_json::json;
use sinks::point::{EXIT_CODE, Point};

use crate::rig::{PIPELINE, Rig, code, transaction};

/// `assay-sink run` with `point` armed and its record at `fired`.
async fn run(rig: &Rig, point: Point, input: &str) -> Output {
    let record = rig.path("fired");
    let armed = [("ASSAY_PROTOCOL_POINT", point.name().into()), ("ASSAY_PROTOCOL_POINT_FIRED", record)];
    rig.ask_with(&["run"], &armed, input).await
}

#[track_caller]
fn ended(output: &Output, expected: i32, point: Point) {
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), expected, "{}: {log}", point.name());
}

/// A batch that was committed and not acknowledged is not sent again by whoever reads the acknowledgements.
async fn converges(point: Point) {
    let rig = Rig::start(PIPELINE, None).await;
    let first: String = (1..=2).map(|id| transaction([id])).collect();
    let all: String = (1..=5).map(|id| transaction([id])).collect();
    // A stream must be there to be acquired.
    let before = rig.ask(&["run"], &first).await;
    ended(&before, 0, point);
    assert!(!rig.path("fired").exists(), "nothing was armed");

    let armed = run(&rig, point, &all).await;
    ended(&armed, EXIT_CODE, point);
    assert!(rig.path("fired").exists(), "{} left its record", point.name());

    // The same environment once more: a point with a record does not fire again.
    let again = run(&rig, point, &all).await;
    ended(&again, 0, point);
    let last = String::from_utf8_lossy(&again.stdout).lines().last().map(str::to_owned);
    assert!(last.is_some_and(|line| line.contains("\"position\":\"0/5\"")), "{}", point.name());
    assert_eq!(rig.ids().await, [1, 2, 3, 4, 5], "{}", point.name());
    let verified = rig.json(&["verify", "--deep", "--json"]).await;
    assert_eq!((&verified["entries"], &verified["rows"]), (&json!(5), &json!(5)), "{}", point.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_armed_point_ends_the_process_once_and_the_next_converges() {
    // Those on the way of every batch and every start; actors of the background have others, at times of their own.
    let on_the_way = |point: &Point| ["pub.", "acq."].iter().any(|area| point.name().starts_with(area));
    let points: Vec<Point> = Point::ALL.into_iter().filter(on_the_way).collect();
    assert_eq!(points.len(), 7);
    for point in points {
        converges(point).await;
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
