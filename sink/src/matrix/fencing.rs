//! Area 3: one owner at a time, whatever two of them try.

use std::collections::BTreeMap;

use super::data;
use super::ground::Ground;
use super::publish::settled;
use super::{Checked, Failure, Need, Scenario, equal};
use crate::error::{Alarm, SinkError};
use crate::model::ids::WriterId;
use crate::run::recover::Content;
use crate::sink::Sink;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "3.1",
        name: "an_idle_writer_is_fenced_by_the_next",
        proves: "when another process has acquired the epoch, the next publish is refused as fenced and not acknowledged",
        needs: &[],
        run: |ground| Box::pin(idle(ground)),
    },
    Scenario {
        id: "3.2",
        name: "writes_in_flight_of_a_fenced_writer_are_orphans",
        proves: "a data object and an entry that land after a takeover are orphans, or adopted by the same batch",
        needs: &[],
        run: |ground| Box::pin(in_flight(ground)),
    },
    Scenario {
        id: "3.3",
        name: "a_swap_delayed_across_a_takeover_is_refused",
        proves: "a swap that was under way when another process acquired is answered 412 and changes nothing",
        needs: &[],
        run: |ground| Box::pin(delayed(ground)),
    },
    Scenario {
        id: "3.5",
        name: "three_writers_race_for_one_stream",
        proves: "over fifty rounds of three contenders epochs are unique, the chain is linear and each batch is there once",
        needs: &[],
        run: |ground| Box::pin(contended(ground)),
    },
    Scenario {
        id: "3.6",
        name: "a_lost_answer_to_an_acquisition_acquires_once",
        proves: "an acquisition that landed without an answer is recognised by its nonce, and the epoch moves by one",
        needs: &[],
        run: |ground| Box::pin(lost_acquisition(ground)),
    },
    Scenario {
        id: "3.7",
        name: "a_fenced_writer_stays_fenced",
        proves: "a fenced process answers every further batch with fenced and sends no further write",
        needs: &[],
        run: |ground| Box::pin(stays_fenced(ground)),
    },
    Scenario {
        id: "3.8",
        name: "a_lost_update_is_an_alarm",
        proves: "a store that confirmed a swap and does not have it is noticed by the owner, who stops with an alarm",
        needs: &[Need::OwnStore],
        run: |ground| Box::pin(lost_update(ground)),
    },
];

async fn refused(sink: &Sink, n: u64) -> Checked<SinkError> {
    let mut ticket = match sink.submit(data::batch(n)?).await {
        Ok(ticket) => ticket,
        Err(error) => return Ok(error),
    };
    match ticket.acknowledged().await {
        Ok(ack) => {
            Err(Failure(format!("batch {n} was acknowledged as entry {} of epoch {}", ack.seq, ack.epoch)))
        }
        Err(error) => Ok(error),
    }
}

fn fenced(error: &SinkError, mine: u64, epoch: u64) -> Checked {
    match error {
        SinkError::Fenced { mine: found, epoch: by, .. } => equal("epochs", (*found, *by), (mine, epoch)),
        other => Err(Failure(format!("expected fenced, got {other}"))),
    }
}

async fn idle(ground: &Ground) -> Checked {
    let a = ground.start("a", 1).await?;
    ground.publish(&a, 1, 1).await?;
    let b = ground.start("b", 2).await?;
    fenced(&refused(&a, 2).await?, 1, 2)?;
    equal("committed by then", ground.head().await?.0.seq, 1)?;
    ground.publish(&b, 2, 3).await?;
    b.close().await?;
    let found = ground.exactly(3).await?;
    equal("committed batches, orphaned data", (found.seq, found.orphaned_data), (3, 0))
}

async fn in_flight(ground: &Ground) -> Checked {
    let a = ground.start("a", 1).await?;
    ground.publish(&a, 1, 1).await?;
    let faults = ground.rig.faults(&ground.rule("data", "*wm2-*", "nth=1 effect=delay until=lifted")).await?;
    let mut ticket = a.submit(data::batch(2)?).await?;
    ground.rig.fired("data", 1).await?;
    let b = ground.start("b", 2).await?;
    // The last of its data lands now, and after that its entry.
    faults.lift().await?;
    let error = ticket.acknowledged().await.err();
    fenced(&error.ok_or_else(|| Failure("a fenced writer acknowledged a batch".to_owned()))?, 1, 2)?;
    ground.publish(&b, 2, 2).await?;
    b.close().await?;
    let found = ground.exactly(2).await?;
    equal(
        "seq, orphaned data and entries",
        (found.seq, found.orphaned_data, found.orphaned_entries),
        (2, 0, 1),
    )
}

async fn delayed(ground: &Ground) -> Checked {
    let a = ground.start("a", 1).await?;
    ground.publish(&a, 1, 1).await?;
    let faults =
        ground.rig.faults(&ground.rule("slow", "_manifest/HEAD", "nth=1 effect=delay until=lifted")).await?;
    let mut ticket = a.submit(data::batch(2)?).await?;
    ground.rig.fired("slow", 1).await?;
    let b = ground.start("b", 2).await?;
    let before = ground.head().await?;
    faults.lift().await?;
    let error = ticket.acknowledged().await.err();
    fenced(&error.ok_or_else(|| Failure("a fenced writer acknowledged a batch".to_owned()))?, 1, 2)?;
    if ground.head().await? != before {
        return Err(Failure("the delayed swap changed HEAD".to_owned()));
    }
    ground.publish(&b, 2, 2).await?;
    b.close().await?;
    let found = ground.exactly(2).await?;
    equal("committed batches, orphaned data", (found.seq, found.orphaned_data), (2, 0))
}

/// Starts, publishes what comes next, and gives way when it is fenced.
async fn contend(ground: &Ground, host: &str, salt: u64) -> Checked {
    let sink = match Sink::start(ground.env(salt)?, ground.settings(host)).await {
        Ok(sink) => sink,
        Err(SinkError::Fenced { .. } | SinkError::Contended { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let next = data::number(sink.resume().as_ref())? + 1;
    let published = match sink.submit(data::batch(next)?).await {
        Ok(mut ticket) => ticket.acknowledged().await.map(drop),
        Err(error) => Err(error),
    };
    match published.and(sink.close().await) {
        Ok(()) | Err(SinkError::Fenced { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn contended(ground: &Ground) -> Checked {
    for round in 0..50 {
        let salt = 10 * round;
        let (a, b, c) = tokio::join!(
            contend(ground, "a", salt + 1),
            contend(ground, "b", salt + 2),
            contend(ground, "c", salt + 3)
        );
        a.and(b).and(c)?;
    }
    let recovered = ground.recovered().await?;
    let committed = recovered.view.head.seq;
    if committed < 10 {
        return Err(Failure(format!("fifty rounds of three contenders committed {committed} batches")));
    }
    let mut owners: BTreeMap<u64, WriterId> = BTreeMap::new();
    let mut last = 0;
    for entry in &recovered.entries {
        let Content::Entry(entry) = &entry.content else { continue };
        equal(
            "the owner of one epoch",
            *owners.entry(entry.epoch).or_insert(entry.writer_id),
            entry.writer_id,
        )?;
        if entry.epoch < last {
            return Err(Failure(format!("epoch {} after epoch {last}", entry.epoch)));
        }
        last = entry.epoch;
    }
    let found = ground.exactly(committed).await?;
    equal("orphaned data of committed batches", found.seq, committed)
}

async fn lost_acquisition(ground: &Ground) -> Checked {
    let a = ground.start("a", 1).await?;
    ground.publish(&a, 1, 1).await?;
    let faults =
        ground.rig.faults(&ground.rule("lost", "_manifest/HEAD", "nth=1 effect=lose-answer")).await?;
    let b = ground.start("b", 2).await?;
    ground.rig.fired("lost", 1).await?;
    faults.lift().await?;
    equal("the epoch", ground.head().await?.0.epoch, 2)?;
    ground.publish(&b, 2, 2).await?;
    b.close().await?;
    equal("what is there", ground.exactly(2).await?, settled(2))
}

async fn stays_fenced(ground: &Ground) -> Checked {
    let a = ground.start("a", 1).await?;
    let b = ground.start("b", 2).await?;
    fenced(&refused(&a, 1).await?, 1, 2)?;
    b.close().await?;
    let (before, after) = (ground.head().await?, ground.rig.last_request().await?);
    for _ in 0..3 {
        fenced(&refused(&a, 1).await?, 1, 2)?;
    }
    fenced(&a.close().await.err().unwrap_or(SinkError::Closed), 1, 2)?;
    let writes = ground.rig.requests(after, &ground.prefix).await?;
    equal(
        "writes of a fenced writer",
        writes.iter().filter(|request| request.operation != "GetObject").count(),
        0,
    )?;
    if ground.head().await? != before {
        return Err(Failure("a fenced writer changed HEAD".to_owned()));
    }
    Ok(())
}

async fn lost_update(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let faults = ground.rig.faults(&ground.rule("lost", "_manifest/HEAD", "nth=1 effect=forget")).await?;
    sink.submit(data::batch(2)?).await?.acknowledged().await?;
    faults.lift().await?;
    match refused(&sink, 3).await? {
        SinkError::Integrity(Alarm::LostUpdate { .. }) => Ok(()),
        other => Err(Failure(format!("expected the alarm of a lost update, got {other}"))),
    }
}
