//! Each reason for which an actor of the background stops, provoked through the server's faults: the journal has no
//! delete after it, and without the fault the next run does what was left. The guide of stops prints the table.

mod actors;
mod stage;

use std::fmt::Write as _;

use sinks::run::recover::Depth;
use sinks::stop::StopReason;

use actors::{Actor, Plain};
use stage::{Fault, Stage};

/// One stop.
struct Case {
    actor: Actor,
    reason: StopReason,
    fault: Fault,
    /// As the guide prints it.
    how: &'static str,
    /// Deletes that were sent before.
    before: usize,
}

/// Runs it, and gives its row.
async fn check(case: &Case) -> String {
    let Case { actor, reason, fault, how, before } = case;
    let context = format!("{}, {}: {how}", actor.name(), reason.name());
    let stage = Box::pin(Stage::set(*actor)).await;
    let from = stage.requests();
    let (ended, rival) = Box::pin(stage.run(*actor, fault)).await;
    let stopped = ended.expect_err(&context);
    assert_eq!(stopped.reason, *reason, "{stopped}: {context}");
    let at_stop = stage.deletes(from);
    assert_eq!(at_stop, *before, "deletes before the stop: {stopped}: {context}");
    // Whoever owns the stream now finds it whole, and does the rest.
    let stage = stage.heal(rival).await;
    assert_eq!(stage.deletes(from), at_stop, "deletes after the stop: {context}");
    stage.recovered(Depth::Deep).await;
    if let Err(stopped) = actor.run(&stage.keeper(), &Plain::released()).await {
        panic!("{stopped}: the next run, after {context}");
    }
    stage.recovered(Depth::Deep).await;
    stage.end().await;
    format!("| {} | `{}` | {how} | {before} | 0 |\n", actor.name(), reason.name())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_stop_nothing_is_deleted() {
    let mut table = String::from(
        "| actor | reason | provoked by | deletes before | after |\n| --- | --- | --- | --- | --- |\n",
    );
    for case in actors::cases() {
        // Writing to a String succeeds.
        let _ = write!(table, "{}", Box::pin(check(&case)).await);
    }
    let guide = include_str!("../../docs/stops.md");
    assert!(guide.contains(&table), "the guide's table is another one:\n{table}");
    let reasons: std::collections::BTreeSet<_> =
        actors::cases().iter().map(|case| case.reason.name()).collect();
    assert_eq!(reasons.len(), StopReason::ALL.len(), "{reasons:?}");
}
