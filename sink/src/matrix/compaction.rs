//! Area 5, and what area 6 asks of originals: many objects become one, readers see the same rows, and nothing that
//! they may still need is deleted.

use std::time::Duration;

use super::data::{self, EXTENSION, NAMESPACE, TABLES};
use super::ground::Ground;
use super::tampered::{delete, legacy, overwrite};
use super::{Checked, Failure, Scenario, equal};
use crate::format::{Encoding, row_seq_digest};
use crate::model::compaction::{CompactedInput, CompactedOutput, CompactionRecord};
use crate::model::frame::{self, Kind};
use crate::model::head::RecordRef;
use crate::model::ids::Digest;
use crate::model::json::Extra;
use crate::plan::change::Change;
use crate::plan::compact::Policy;
use crate::plan::originals;
use crate::run;
use crate::sink::{Keeper, Sink};
use crate::stop::{StopReason, Stopped};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "5.1",
        name: "readers_see_the_same_rows_after_compaction",
        proves: "a record with equal digests is reached by HEAD, and its outputs hold the rows of the inputs in order",
        needs: &[],
        run: |ground| Box::pin(same_rows(ground)),
    },
    Scenario {
        id: "5.2",
        name: "an_output_that_changed_gets_no_record",
        proves: "an output whose bytes are others when it is read back stops compaction before there is a record",
        needs: &[],
        run: |ground| Box::pin(changed_output(ground)),
    },
    Scenario {
        id: "5.3",
        name: "a_compaction_that_dies_leaves_its_inputs",
        proves: "an end before the swap leaves an output that nothing refers to, and every input; the next run does it again",
        needs: &[],
        run: |ground| Box::pin(dies(ground)),
    },
    Scenario {
        id: "5.4",
        name: "both_key_layouts_are_compacted_together",
        proves: "wm- objects of earlier releases and wm2- objects become one",
        needs: &[],
        run: |ground| Box::pin(both_layouts(ground)),
    },
    Scenario {
        id: "5.5",
        name: "what_was_compacted_is_compacted_again",
        proves: "an output and the originals after it become one, and readers see the same rows",
        needs: &[],
        run: |ground| Box::pin(again(ground)),
    },
    Scenario {
        id: "5.6",
        name: "a_compaction_across_a_takeover_publishes_nothing",
        proves: "an owner that is fenced while it compacts stops, and HEAD reaches none of what it wrote",
        needs: &[],
        run: |ground| Box::pin(takeover(ground)),
    },
    Scenario {
        id: "5.7",
        name: "rows_in_another_order_are_never_taken_for_the_same",
        proves: "a record that is not equal is ignored by readers, and lets no original go",
        needs: &[],
        run: |ground| Box::pin(reordered(ground)),
    },
    Scenario {
        id: "6.7",
        name: "originals_go_only_for_what_replaced_them",
        proves: "no original goes for a record that HEAD does not reach, or while an output is missing or retained; then all go",
        needs: &[],
        run: |ground| Box::pin(originals_go(ground)),
    },
];

const POLICY: Policy = Policy { min_inputs: 3, ..Policy::new(Encoding::Jsonl) };

/// As soon as HEAD reaches the record, by clocks that are asked one after the other and may be a moment apart.
const AT_ONCE: originals::Policy = originals::Policy { retention_ms: 0, max_clock_skew_ms: 2_000 };

/// How long a store's clock that is behind is waited for.
const CLOCK_WAIT: Duration = Duration::from_secs(60);

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(100);

fn why(stopped: Stopped) -> Failure {
    Failure(stopped.to_string())
}

/// Compacts once, and gives the layout of each record: first and last entry, inputs.
pub(super) async fn compacted(keeper: &Keeper) -> Checked<Vec<(u64, u64, usize)>> {
    let report = run::compact::run(keeper, &POLICY).await.map_err(why)?;
    Ok(report.compacted.iter().map(|of| (of.seq_from, of.seq_to, of.inputs)).collect())
}

/// Deletes, once the store's clock, which tells seconds only, says that HEAD has reached the records.
async fn deleted(keeper: &Keeper) -> Result<u64, Stopped> {
    let mut deleted = 0;
    let deleting = async {
        loop {
            let report = run::originals::run(keeper, &AT_ONCE).await?;
            deleted += report.deleted;
            if !report.kept.iter().any(|kept| kept.reason == originals::Stay::Retained) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(CLOCK_WAIT, deleting).await {
        Ok(ended) => ended.map(|()| deleted),
        Err(_) => Err(Stopped::new(StopReason::ClockUncertain, format!("not within {CLOCK_WAIT:?}"))),
    }
}

async fn published(ground: &Ground, upto: u64) -> Checked<Sink> {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, upto).await?;
    Ok(sink)
}

/// How many keys under the prefix have this in them.
async fn count(ground: &Ground, part: &str) -> Checked<usize> {
    Ok(ground.listed().await?.iter().filter(|object| object.key.contains(part)).count())
}

/// How many records HEAD reaches.
async fn records(ground: &Ground) -> Checked<u64> {
    Ok(ground.head().await?.0.compaction.map_or(0, |of| of.count))
}

fn stopped<T>(result: Result<T, Stopped>, reason: StopReason) -> Checked {
    match result {
        Err(stopped) => equal("the reason of the stop", stopped.reason, reason),
        Ok(_) => Err(Failure(format!("it did not stop for {}", reason.name()))),
    }
}

async fn same_rows(ground: &Ground) -> Checked {
    let sink = published(ground, 6).await?;
    equal("records", compacted(&sink.keeper()).await?, vec![(1, 6, 6); TABLES.len()])?;
    equal("a second run's records", compacted(&sink.keeper()).await?, Vec::new())?;
    equal("committed", ground.exactly(6).await?.seq, 6)?;
    let live = ground.recovered().await?.live();
    equal("live objects", live.len(), TABLES.len())?;
    for (object, table) in live.iter().zip(TABLES) {
        let rows: Vec<String> = (1..=6).flat_map(|n| data::rows(n, table)).collect();
        let digest = row_seq_digest(rows.iter().map(|row| row.as_bytes()));
        equal("the output's digest", object.row_seq_digest, Some(digest))?;
    }
    equal("originals", count(ground, "/wm2-").await?, 6 * TABLES.len())?;
    sink.close().await?;
    let sink = ground.start("b", 2).await?;
    ground.publish(&sink, 7, 7).await?;
    sink.close().await?;
    equal("committed after a restart", ground.exactly(7).await?.seq, 7)
}

async fn changed_output(ground: &Ground) -> Checked {
    let sink = published(ground, 3).await?;
    let rule = format!(
        "name=away operation=GetObject key={}/*/compacted/* first=2 effect=refuse code=ServiceUnavailable",
        ground.root.as_str()
    );
    let faults = ground.rig.faults(&rule).await?;
    let keeper = sink.keeper();
    let compacting = tokio::spawn(async move { run::compact::run(&keeper, &POLICY).await });
    ground.rig.fired("away", 1).await?;
    let listed = ground.listed().await?;
    let output = listed.iter().find(|object| object.key.contains("/compacted/"));
    let output = output.ok_or_else(|| Failure("there is no output".to_owned()))?;
    overwrite(ground, &output.key, bytes::Bytes::from_static(b"{\"other\":1}\n")).await?;
    stopped(compacting.await?, StopReason::IntegrityFailure)?;
    faults.lift().await?;
    equal("records", (records(ground).await?, count(ground, "/compactions/").await?), (0, 0))?;
    ground.publish(&sink, 4, 4).await?;
    sink.close().await?;
    equal("committed", ground.exactly(4).await?.seq, 4)
}

async fn dies(ground: &Ground) -> Checked {
    let sink = published(ground, 3).await?;
    let faults = ground.rig.faults(&ground.rule("held", "_manifest/compactions/*", "effect=freeze")).await?;
    let keeper = sink.keeper();
    let compacting = tokio::spawn(async move { run::compact::run(&keeper, &POLICY).await });
    ground.rig.fired("held", 1).await?;
    compacting.abort();
    // It is gone before the rule is: nothing is asked again.
    if let Ok(ended) = compacting.await {
        return Err(Failure(format!("compaction ended by itself: {ended:?}")));
    }
    faults.lift().await?;
    equal("outputs and records", (count(ground, "/compacted/").await?, records(ground).await?), (1, 0))?;
    equal("committed", ground.exactly(3).await?.seq, 3)?;
    drop(sink);
    let sink = ground.start("b", 2).await?;
    equal("records", compacted(&sink.keeper()).await?, vec![(1, 3, 3); TABLES.len()])?;
    sink.close().await?;
    // The output that was left is the same, and adopted.
    equal("outputs", count(ground, "/compacted/").await?, TABLES.len())?;
    equal("committed", ground.exactly(3).await?.seq, 3)
}

async fn both_layouts(ground: &Ground) -> Checked {
    ground.start("a", 1).await?.close().await?;
    legacy(ground, 1).await?;
    let sink = ground.start("a", 2).await?;
    ground.publish(&sink, 2, 3).await?;
    equal("records", compacted(&sink.keeper()).await?, vec![(1, 3, 3); TABLES.len()])?;
    equal("committed", ground.exactly(3).await?.seq, 3)?;
    equal("deleted originals", deleted(&sink.keeper()).await.map_err(why)?, 3 * TABLES.len() as u64)?;
    equal("what is left of them", count(ground, "/wm").await?, 0)?;
    sink.close().await?;
    equal("committed", ground.exactly(3).await?.seq, 3)
}

async fn again(ground: &Ground) -> Checked {
    let sink = published(ground, 3).await?;
    let keeper = sink.keeper();
    compacted(&keeper).await?;
    // An output that is larger than all that came after it waits.
    for (upto, record) in [(6, (1, 6, 4)), (9, (7, 9, 3))] {
        ground.publish(&sink, upto - 2, upto).await?;
        let found = compacted(&keeper).await?;
        equal("records", found, vec![record; TABLES.len()])?;
        equal("committed", ground.exactly(upto).await?.seq, upto)?;
    }
    // Originals, and the outputs of the first round.
    equal("deleted", deleted(&keeper).await.map_err(why)?, 10 * TABLES.len() as u64)?;
    equal("deleted again", deleted(&keeper).await.map_err(why)?, 0)?;
    sink.close().await?;
    equal("data objects", count(ground, &format!("/{NAMESPACE}.")).await?, 2 * TABLES.len())?;
    equal("committed", ground.exactly(9).await?.seq, 9)
}

async fn takeover(ground: &Ground) -> Checked {
    let a = published(ground, 3).await?;
    let faults =
        ground.rig.faults(&ground.rule("held", "*/compacted/*", "nth=1 effect=delay until=lifted")).await?;
    let keeper = a.keeper();
    let compacting = tokio::spawn(async move { run::compact::run(&keeper, &POLICY).await });
    ground.rig.fired("held", 1).await?;
    let b = ground.start("b", 2).await?;
    faults.lift().await?;
    stopped(compacting.await?, StopReason::EpochChanged)?;
    equal("records", records(ground).await?, 0)?;
    ground.publish(&b, 4, 4).await?;
    b.close().await?;
    equal("committed", ground.exactly(4).await?.seq, 4)
}

/// A record over all that the first table has, and its output with the rows in reverse; nothing refers to them.
async fn forged(
    ground: &Ground,
    keeper: &Keeper,
    change: impl Fn(&mut CompactionRecord),
) -> Checked<RecordRef> {
    let objects = ground.recovered().await?.live();
    let table: Vec<_> = objects.iter().filter(|object| object.table.ends_with(TABLES[0])).collect();
    let (first, last) = (table[0], table[table.len() - 1]);
    let mut rows: Vec<String> = (1..=last.seq_to).flat_map(|n| data::rows(n, TABLES[0])).collect();
    let digest = |rows: &[String]| row_seq_digest(rows.iter().map(|row| row.as_bytes()));
    let inputs_digest = digest(&rows);
    rows.reverse();
    let bytes: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let (sha256, size) = (Digest::of(bytes.as_bytes()), bytes.len() as u64);
    let key = ground.root.compacted(&first.table, sha256, EXTENSION);
    overwrite(ground, &key, bytes.into()).await?;
    let row_seq_digest = digest(&rows);
    let output = CompactedOutput { key, sha256, size, rows: rows.len() as u64, row_seq_digest };
    let head = ground.head().await?.0;
    let inputs = table.iter().map(|object| CompactedInput {
        seq: object.seq_to,
        key: object.key.clone(),
        sha256: object.sha256,
        size: object.size,
        rows: object.rows,
        row_seq_digest: object.row_seq_digest.unwrap_or(inputs_digest),
    });
    let mut record = CompactionRecord {
        stream_id: head.stream_id,
        ordinal: 1,
        epoch: keeper.epoch,
        table: first.table.clone(),
        seq_from: first.seq_from,
        seq_to: last.seq_to,
        inputs: inputs.collect(),
        outputs: vec![output],
        equivalence: run::compact::equivalence(
            (rows.len() as u64, inputs_digest),
            (rows.len() as u64, row_seq_digest),
        ),
        prev: None,
        tool_version: "the live matrix".to_owned(),
        created_at_ms: 0,
        extra: Extra::new(),
    };
    change(&mut record);
    let frame = frame::encode(Kind::Compaction, frame::MINOR, &record);
    let sha256 = Digest::of(&frame);
    let of = RecordRef { ordinal: 1, key: ground.root.compaction(1, sha256), sha256, extra: Extra::new() };
    overwrite(ground, &of.key, frame).await?;
    Ok(of)
}

async fn reordered(ground: &Ground) -> Checked {
    let sink = published(ground, 3).await?;
    let keeper = sink.keeper();
    let record = forged(ground, &keeper, |_| {}).await?;
    keeper.change(Change::Compaction(record)).await.map_err(why)?;
    equal("records", records(ground).await?, 1)?;
    equal("deleted", deleted(&keeper).await.map_err(why)?, 0)?;
    equal("committed", ground.exactly(3).await?.seq, 3)?;
    // The table is compacted as if that record were not there.
    equal("records", compacted(&keeper).await?, vec![(1, 3, 3); TABLES.len()])?;
    sink.close().await?;
    equal("committed", ground.exactly(3).await?.seq, 3)
}

async fn originals_go(ground: &Ground) -> Checked {
    let sink = published(ground, 3).await?;
    let keeper = sink.keeper();
    let all = 3 * TABLES.len();
    // A record that says equal, and that HEAD does not reach.
    let unreached = forged(ground, &keeper, |record| {
        record.equivalence.outputs_digest = record.equivalence.inputs_digest;
        record.equivalence.equal = true;
    });
    let unreached = unreached.await?;
    equal("deleted for a record out of reach", deleted(&keeper).await.map_err(why)?, 0)?;
    delete(ground, &unreached.key).await?;
    equal("records", compacted(&keeper).await?.len(), TABLES.len())?;
    let retained = originals::Policy { retention_ms: 600_000, ..AT_ONCE };
    let report = run::originals::run(&keeper, &retained).await.map_err(why)?;
    equal("deleted and kept within the window", (report.deleted, report.kept.len()), (0, all))?;
    let live = ground.recovered().await?.live();
    let output = &live[0].key;
    let (bytes, _) = ground.get(output).await?;
    delete(ground, output).await?;
    let requests = ground.rig.last_request().await?;
    stopped(deleted(&keeper).await, StopReason::IntegrityFailure)?;
    overwrite(ground, output, bytes::Bytes::from_static(b"{\"other\":1}\n")).await?;
    stopped(deleted(&keeper).await, StopReason::IntegrityFailure)?;
    let seen = ground.rig.requests(requests, ground.root.as_str()).await?;
    equal("deletes", seen.iter().filter(|request| request.operation.starts_with("DeleteObject")).count(), 0)?;
    overwrite(ground, output, bytes).await?;
    equal("deleted", deleted(&keeper).await.map_err(why)?, all as u64)?;
    equal("deleted again", deleted(&keeper).await.map_err(why)?, 0)?;
    sink.close().await?;
    equal("originals", count(ground, "/wm2-").await?, 0)?;
    equal("committed", ground.exactly(3).await?.seq, 3)
}
