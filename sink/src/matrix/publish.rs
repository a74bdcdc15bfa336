//! Area 2, on a store that behaves: publish, acknowledge, restart.

use super::data::{self, EXTENSION, TABLES};
use super::ground::{Ground, Settled};
use super::{Checked, Failure, Scenario, equal};
use crate::error::SinkError;
use crate::model::key::{KeyError, ObjectName, PipelineRoot};
use crate::model::position::{Lineage, Position, PositionType};
use crate::sink::{Batch, Sink};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "2.1",
        name: "an_empty_bucket_becomes_a_stream",
        proves: "the first start on an empty prefix creates HEAD with revision 1 and epoch 1",
        needs: &[],
        run: |ground| Box::pin(empty_bucket(ground)),
    },
    Scenario {
        id: "2.2",
        name: "a_restart_finds_what_was_acknowledged",
        proves: "after five batches of three tables a new process has the same state and resumes at the watermark",
        needs: &[],
        run: |ground| Box::pin(restart(ground)),
    },
    Scenario {
        id: "2.7",
        name: "another_spelling_of_a_position_is_the_same_batch",
        proves: "a replay under a second spelling of its GTID set writes the same keys and adds no object",
        needs: &[],
        run: |ground| Box::pin(respelled(ground)),
    },
    Scenario {
        id: "2.15",
        name: "names_that_do_not_fit_are_refused",
        proves: "a table name of more than 200 bytes stops the sink, and a prefix without room for one is refused",
        needs: &[],
        run: |ground| Box::pin(oversize(ground)),
    },
    Scenario {
        id: "2.17",
        name: "a_position_that_is_not_ahead_stops_the_sink",
        proves: "a position behind the last one, or one that can't be compared with it, is refused and writes nothing",
        needs: &[],
        run: |ground| Box::pin(regression(ground)),
    },
    Scenario {
        id: "2.18",
        name: "batches_that_wait_share_one_swap",
        proves: "batches submitted together are each acknowledged in order, with fewer swaps than batches",
        needs: &[],
        run: |ground| Box::pin(grouped(ground)),
    },
];

async fn empty_bucket(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    let (head, _) = ground.head().await?;
    equal("revision, epoch and seq", (head.rev, head.epoch, head.seq), (1, 1, 0))?;
    equal("the resume position", sink.resume(), None)?;
    sink.close().await?;
    equal("what is there", ground.exactly(0).await?, settled(0))
}

async fn restart(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 5).await?;
    sink.close().await?;
    let before = ground.recovered().await?;
    let sink = ground.start("a", 2).await?;
    equal("the resume position", data::number(sink.resume().as_ref())?, 5)?;
    let after = ground.recovered().await?;
    equal("the committed entries", &after.entries, &before.entries)?;
    equal("the chain", after.view.head.chain, before.view.head.chain)?;
    equal("the epoch", after.view.head.epoch, before.view.head.epoch + 1)?;
    ground.publish(&sink, 6, 7).await?;
    sink.close().await?;
    equal("what is there", ground.exactly(7).await?, settled(7))
}

pub(super) fn settled(seq: u64) -> Settled {
    Settled { seq, orphaned_data: 0, orphaned_entries: 0 }
}

fn gtid(text: &str) -> Checked<Position> {
    Ok(Position::parse(PositionType::MysqlGtid, Lineage::new("shop", "", 1)?, text, 0)?)
}

async fn deliver(sink: &Sink, position: Position, n: u64) -> Result<(), SinkError> {
    let batch = data::batch(n).map_err(|failure| SinkError::Internal(failure.0))?;
    sink.submit(Batch { position, ..batch }).await?.acknowledged().await.map(drop)
}

async fn respelled(ground: &Ground) -> Checked {
    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let sink = ground.start("a", 1).await?;
    deliver(&sink, gtid(&format!("{UUID}:1-5"))?, 1).await?;
    sink.close().await?;
    let keys = |objects: Vec<crate::store::ObjectMeta>| -> Vec<String> {
        objects.into_iter().map(|object| object.key).filter(|key| !key.ends_with("/HEAD")).collect()
    };
    let before = keys(ground.listed().await?);
    let sink = ground.start("a", 2).await?;
    let respelled = format!("{0}:4-5:1-2 ,\n{0}:3", UUID.to_uppercase());
    deliver(&sink, gtid(&respelled)?, 1).await?;
    sink.close().await?;
    equal("the keys", keys(ground.listed().await?), before)?;
    equal("the last entry", ground.head().await?.0.seq, 1)
}

async fn oversize(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    let mut batch = data::batch(1)?;
    batch.objects[0].table = "t".repeat(196);
    let wanted = KeyError::OversizeTableName { table: format!("shop.{}", "t".repeat(196)), bytes: 201 };
    equal("an oversize table", sink.submit(batch).await.err(), Some(SinkError::Key(wanted)))?;
    sink.close().await?;
    equal("what is there", ground.exactly(0).await?, settled(0))?;
    // The longest that fits does.
    let sink = ground.start("a", 2).await?;
    let mut batch = data::batch(1)?;
    batch.objects.truncate(1);
    batch.objects[0].table = "t".repeat(195);
    sink.submit(batch).await?.acknowledged().await?;
    sink.close().await?;
    let listed = ground.listed().await?;
    let longest = format!("shop.{}", "t".repeat(195));
    let kept = |key: &str| matches!(ground.root.parse(key), Some(ObjectName::Data { table, .. }) if table == longest);
    equal("objects of the longest table", listed.iter().filter(|object| kept(&object.key)).count(), 1)?;
    let prefix = ["p".repeat(185), "p".repeat(185), "p".repeat(185)].join("/");
    match PipelineRoot::new(&prefix, "orders", EXTENSION) {
        Err(KeyError::NoRoomForTable { bytes: 564, limit: 559, .. }) => Ok(()),
        other => Err(Failure(format!("a root of 564 bytes, where 559 fit: {other:?}"))),
    }
}

async fn regression(ground: &Ground) -> Checked {
    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "896e7882-18fe-11ef-ab88-22222d34d411";
    let sink = ground.start("a", 1).await?;
    deliver(&sink, gtid(&format!("{A}:1-5"))?, 1).await?;
    sink.close().await?;
    for (salt, text, relation) in [(2, format!("{A}:1-4"), "behind"), (3, format!("{A}:1-4,{B}:1-2"), "")] {
        let sink = ground.start("a", salt).await?;
        let error = deliver(&sink, gtid(&text)?, 2).await.err();
        match &error {
            Some(SinkError::PositionRegression { relation: found, .. })
                if relation.is_empty() || found.contains(relation) => {}
            other => return Err(Failure(format!("{text} after {A}:1-5: {other:?}"))),
        }
        sink.close().await?;
    }
    equal("the last entry", ground.head().await?.0.seq, 1)?;
    equal(
        "data objects",
        ground.listed().await?.iter().filter(|o| o.key.contains("/wm2-")).count(),
        TABLES.len(),
    )
}

async fn grouped(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    let before = ground.head().await?.0.rev;
    let mut tickets = Vec::new();
    for n in 1..=24 {
        tickets.push(sink.submit(data::batch(n)?).await?);
    }
    for (n, ticket) in (1..).zip(&mut tickets) {
        equal("the acknowledged entry", ticket.acknowledged().await?.seq, n)?;
    }
    sink.close().await?;
    let swaps = ground.head().await?.0.rev - before;
    if swaps >= 24 {
        return Err(Failure(format!("24 batches that waited took {swaps} swaps of HEAD")));
    }
    equal("what is there", ground.exactly(24).await?, settled(24))
}
