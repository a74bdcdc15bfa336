//! Area 2, on a network that loses, delays and refuses: one batch, one entry, one acknowledgement.

use super::data;
use super::ground::Ground;
use super::publish::settled;
use super::{Checked, Failure, Scenario, equal};
use crate::error::SinkError;
use crate::sink::{Settings, Sink};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "2.4a",
        name: "a_lost_answer_to_a_data_write_adds_nothing",
        proves: "a data object that was written without an answer is adopted",
        needs: &[],
        run: |ground| Box::pin(once(ground, "*wm2-*", "nth=1 effect=lose-answer")),
    },
    Scenario {
        id: "2.4b",
        name: "a_lost_answer_to_an_entry_adds_nothing",
        proves: "an entry that was written without an answer is the one that HEAD reaches",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/entries/*", "nth=1 effect=lose-answer")),
    },
    Scenario {
        id: "2.4c",
        name: "a_lost_answer_to_a_swap_is_found_in_head",
        proves: "a swap that landed without an answer is recognised by its nonce and acknowledged once",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/HEAD", "nth=1 effect=lose-answer")),
    },
    Scenario {
        id: "2.4d",
        name: "an_applied_swap_answered_500_is_found_in_head",
        proves: "a swap that landed and was answered 500 is recognised by its nonce",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/HEAD", "nth=1 effect=fail-after code=InternalError")),
    },
    Scenario {
        id: "2.5",
        name: "a_swap_that_lands_late_commits_once",
        proves: "a swap that lands after its client gave up, while it is sent again, commits one entry",
        needs: &[],
        run: |ground| Box::pin(late(ground)),
    },
    Scenario {
        id: "2.6a",
        name: "a_conflict_on_data_is_asked_again",
        proves: "409 on a data object is retried until it is answered",
        needs: &[],
        run: |ground| Box::pin(once(ground, "*wm2-*", CONFLICT)),
    },
    Scenario {
        id: "2.6b",
        name: "a_conflict_on_an_entry_is_asked_again",
        proves: "409 on an entry is retried until it is answered",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/entries/*", CONFLICT)),
    },
    Scenario {
        id: "2.6c",
        name: "a_conflict_on_a_swap_is_asked_again",
        proves: "409 on HEAD is retried until it is answered",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/HEAD", CONFLICT)),
    },
    Scenario {
        id: "2.6d",
        name: "a_throttled_swap_is_asked_again",
        proves: "429 on HEAD, as of providers that allow one write a second to a key, is retried",
        needs: &[],
        run: |ground| Box::pin(once(ground, "_manifest/HEAD", "first=2 effect=refuse code=TooManyRequests")),
    },
    Scenario {
        id: "2.16",
        name: "an_unanswered_swap_is_resolved_before_anything_else",
        proves: "a caller whose wait ends is told so, and the next entry is written only once the swap is resolved",
        needs: &[],
        run: |ground| Box::pin(backpressure(ground)),
    },
    Scenario {
        id: "2.19",
        name: "an_outage_is_waited_out",
        proves: "a store that is away for a while costs time, and neither a batch nor a second entry",
        needs: &[],
        run: |ground| Box::pin(outage(ground)),
    },
];

const CONFLICT: &str = "nth=1 effect=refuse code=ConditionalRequestConflict";

/// Three batches, of which the second meets a fault: nothing of it shows afterwards.
async fn once(ground: &Ground, what: &str, fault: &str) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let faults = ground.rig.faults(&ground.rule("met", what, fault)).await?;
    ground.publish(&sink, 2, 2).await?;
    ground.rig.fired("met", 1).await?;
    faults.lift().await?;
    ground.publish(&sink, 3, 3).await?;
    sink.close().await?;
    equal("what is there", ground.exactly(3).await?, settled(3))
}

/// A sink whose requests may take `request_timeout_ms` each.
async fn hurried(ground: &Ground, request_timeout_ms: u64, send_timeout_ms: u64) -> Checked<Sink> {
    let env = ground.rig.env(request_timeout_ms, 1)?;
    let settings = Settings { send_timeout_ms, ..ground.settings("a") };
    Ok(Sink::start(env, settings).await?)
}

async fn late(ground: &Ground) -> Checked {
    let sink = hurried(ground, 1_000, 60_000).await?;
    ground.publish(&sink, 1, 1).await?;
    // The first lands while the second is on its way, and both after their client has given up.
    let rules = [
        ground.rule("late", "_manifest/HEAD", "nth=1 effect=late until=lifted"),
        ground.rule("slow", "_manifest/HEAD", "nth=2 effect=delay until=lifted"),
    ];
    let faults = ground.rig.faults(&rules.join("\n")).await?;
    let landing = async {
        ground.rig.fired("slow", 1).await?;
        faults.lift_one("late").await?;
        ground.landed(2, 2).await?;
        faults.lift().await
    };
    let (published, landed) = tokio::join!(ground.publish(&sink, 2, 2), landing);
    published.and(landed)?;
    ground.publish(&sink, 3, 3).await?;
    sink.close().await?;
    equal("what is there", ground.exactly(3).await?, settled(3))
}

async fn backpressure(ground: &Ground) -> Checked {
    let sink = hurried(ground, 4_000, 2_000).await?;
    let after = ground.rig.last_request().await?;
    let faults = ground
        .rig
        .faults(&ground.rule("held", "_manifest/HEAD", "nth=1 effect=lose-answer how=never"))
        .await?;
    let mut first = sink.submit(data::batch(1)?).await?;
    match first.acknowledged().await {
        Err(SinkError::Backpressure { waited_ms: 2_000 }) => {}
        other => return Err(Failure(format!("a wait of 2 s for a swap without an answer: {other:?}"))),
    }
    let mut second = sink.submit(data::batch(2)?).await?;
    for ticket in [&mut first, &mut second] {
        while let Err(error) = ticket.acknowledged().await {
            if !matches!(error, SinkError::Backpressure { .. }) {
                return Err(error.into());
            }
        }
    }
    faults.lift().await?;
    sink.close().await?;
    equal("what is there", ground.exactly(2).await?, settled(2))?;
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    let place = |wanted: &dyn Fn(&super::rig::Seen) -> bool| seen.iter().position(wanted);
    let head_read = place(&|request| request.operation == "GetObject" && request.key.ends_with("/HEAD"));
    let second_entry = place(&|request| {
        request.key.contains(&format!("/entries/{:020}-", 2)) && request.operation == "PutObject"
    });
    match (head_read, second_entry) {
        (Some(read), Some(entry)) if read < entry => Ok(()),
        other => Err(Failure(format!(
            "HEAD read and second entry written at {other:?} of {} requests",
            seen.len()
        ))),
    }
}

async fn outage(ground: &Ground) -> Checked {
    let sink = hurried(ground, 2_000, 60_000).await?;
    ground.publish(&sink, 1, 1).await?;
    let away = ground.rig.outage("unavailable").await?;
    let mut ticket = sink.submit(data::batch(2)?).await?;
    let early = tokio::time::timeout(std::time::Duration::from_secs(1), ticket.acknowledged()).await;
    equal("an acknowledgement while the store is away", early.is_ok(), false)?;
    away.end().await?;
    equal("the acknowledged entry", ticket.acknowledged().await?.seq, 2)?;
    drop(ticket);
    sink.close().await?;
    equal("what is there", ground.exactly(2).await?, settled(2))
}
