//! Appends the workload's events to the log, from the log's true end on, until it is told to stop.

use std::time::Duration;

use assay_oracle::events::Place;

use crate::plan::Plan;
use crate::source;

/// From one batch to the next, in milliseconds.
const BATCH_MS: u64 = 100;

/// Runs until the file `stop-generator` is there.
///
/// # Errors
/// What is wrong with the source: one that is away is waited for.
pub async fn run(plan: &Plan) -> Result<(), String> {
    let mut source = source::open(plan)?;
    let workload = plan.workload();
    let each = (plan.rate * BATCH_MS / 1000 / u64::from(plan.partitions)).max(1);
    let mut tick = tokio::time::interval(Duration::from_millis(BATCH_MS));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let stop = plan.directory.join("stop-generator");
    while !stop.exists() {
        tick.tick().await;
        for partition in 0..plan.partitions {
            // What the log has decides, and no memory: an append without an answer may have landed.
            let Some(from) = source.end(partition).await? else { continue };
            let line = |seq| workload.line(Place { partition, seq });
            let lines = (from..from + each).map(line).collect();
            source.append(partition, from, lines).await?;
        }
    }
    Ok(())
}
