//! Several conditional requests at once on one key: one winner, and the key holds what it wrote.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Class, Condition, Done, Doubt, Need, Severity, Stop, says_nothing};
use crate::client::{Answer, Client};
use crate::expect::expect_status;
use crate::race::{Crew, Holds, Round, Shot, Tally, ended, judge};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;
use tokio::task::JoinSet;

const GUIDE: &str = "S3 User Guide: conditional writes, concurrent requests";
/// Lengths of the racers' bodies, in turn by round: within one packet, a few, and more than a socket's buffer.
const LENGTHS: [usize; 3] = [32, 4 << 10, 256 << 10];
/// How a loser may be answered: 409 where a request was under way, 304 as MinIO did before 2024 (its issue 19442).
const BEATEN: [u16; 3] = [409, 412, 304];
/// Rounds of a slow body against a fast one: two writers only, so the number does not follow the other races'.
const SLOW_ROUNDS: usize = 5;
/// Increments of each worker in the counter race, and the attempts it has for them.
const INCREMENTS: usize = 5;
const ATTEMPTS: usize = 300;

pub(super) const ALL: &[Check] = &[
    PUT_CREATE,
    PUT_SWAP,
    PUT_CREATE_SLOW,
    PUT_SWAP_SLOW,
    PUT_COUNTER,
    COMPLETE_CREATE,
    COMPLETE_SWAP,
    COPY_CREATE,
    COPY_SWAP,
    CREATE_AGAINST_COMPLETE,
    SWAP_AGAINST_DELETE,
];

const BASE: Check = Check {
    id: "race",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::PutCreate),
    needs: &[],
    source: GUIDE,
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "race-create-put"],
    run: |t| Box::pin(contest(t, Contest::PutCreate)),
};

/// What the racers do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contest {
    PutCreate,
    PutSwap,
    CompleteCreate,
    CompleteSwap,
    CopyCreate,
    CopySwap,
    PutAgainstComplete,
}

const PUT_CREATE: Check = Check {
    id: "race.put.create",
    proves: "of many creators of one key at once exactly one wins, in every round",
    severity: Severity::Required,
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "race-create-put"],
    ..BASE
};

const PUT_SWAP: Check = Check {
    id: "race.put.swap",
    proves: "of many swaps from one ETag at once exactly one wins, in every round",
    severity: Severity::Required,
    condition: Some(Condition::PutSwap),
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "race-swap-put", "only-unquoted-etags-match"],
    run: |t| Box::pin(contest(t, Contest::PutSwap)),
    ..BASE
};

const COMPLETE_CREATE: Check = Check {
    id: "race.complete.create",
    proves: "of many uploads completed at once with If-None-Match: * exactly one wins, in every round",
    condition: Some(Condition::CompleteCreate),
    needs: &[Need::Multipart],
    broken_by: &["ignore-if-none-match-complete", "refuse-conditional-complete", "race-complete"],
    run: |t| Box::pin(contest(t, Contest::CompleteCreate)),
    ..BASE
};

const COMPLETE_SWAP: Check = Check {
    id: "race.complete.swap",
    proves: "of many uploads completed at once with one ETag in If-Match exactly one wins, in every round",
    condition: Some(Condition::CompleteSwap),
    needs: &[Need::Multipart],
    broken_by: &[
        "ignore-if-match-complete",
        "refuse-conditional-complete",
        "race-complete",
        "only-unquoted-etags-match",
    ],
    run: |t| Box::pin(contest(t, Contest::CompleteSwap)),
    ..BASE
};

const COPY_CREATE: Check = Check {
    id: "race.copy.create",
    proves: "of many copies onto one absent key at once exactly one wins, in every round",
    condition: Some(Condition::CopyCreate),
    needs: &[Need::Copy],
    broken_by: &["ignore-if-none-match-copy", "refuse-conditional-copy", "race-copy"],
    run: |t| Box::pin(contest(t, Contest::CopyCreate)),
    ..BASE
};

const COPY_SWAP: Check = Check {
    id: "race.copy.swap",
    proves: "of many copies with one destination ETag at once exactly one wins, in every round",
    condition: Some(Condition::CopySwap),
    needs: &[Need::Copy],
    broken_by: &["ignore-if-match-copy", "refuse-conditional-copy", "race-copy", "only-unquoted-etags-match"],
    run: |t| Box::pin(contest(t, Contest::CopySwap)),
    ..BASE
};

const CREATE_AGAINST_COMPLETE: Check = Check {
    id: "race.create-against-complete",
    proves: "of PUTs and Completes that create one key at once exactly one wins, in every round",
    condition: Some(Condition::CompleteCreate),
    needs: &[Need::Multipart],
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "ignore-if-none-match-complete",
        "refuse-conditional-complete",
        "race-create-put",
        "race-complete",
    ],
    run: |t| Box::pin(contest(t, Contest::PutAgainstComplete)),
    ..BASE
};

/// One round, ready to go.
struct Arranged {
    key: String,
    shots: Vec<Shot>,
    uploads: Vec<Upload>,
}

async fn arrange(t: &Trial, contest: Contest, round: usize, writers: usize) -> Result<Arranged, Stop> {
    let key = t.key(&format!("r{round:03}"));
    let length = LENGTHS[round % LENGTHS.len()];
    let etag = match contest {
        Contest::PutSwap | Contest::CompleteSwap | Contest::CopySwap => {
            Some(t.put(&key, &t.body("before", 0)).await?)
        }
        _ => None,
    };
    let conditional = |call: Call| match &etag {
        Some(etag) => call.if_match(etag),
        None => call.if_none_match("*"),
    };
    // Bodies are drawn in order; only the requests go side by side.
    let prepared = (0..writers).map(|writer| {
        let body = t.body(&format!("round {round} writer {writer}"), length);
        // Only a PUT's body is what it leaves; every second round holds those back half way.
        let by_put = match contest {
            Contest::PutCreate | Contest::PutSwap => true,
            Contest::PutAgainstComplete => writer % 2 == 0,
            _ => false,
        };
        let (key, conditional) = (&key, &conditional);
        async move {
            let (call, upload) = match contest {
                _ if by_put => (Call::put(key, body.clone()), None),
                Contest::CopyCreate | Contest::CopySwap => {
                    let source = t.key(&format!("source{writer:02}"));
                    t.put(&source, &body).await?;
                    (t.client().copy(&source, key), None)
                }
                _ => {
                    let upload = Upload::start(t, key, &body).await?;
                    (upload.complete(), Some(upload))
                }
            };
            let gated = by_put && round > 0 && round.is_multiple_of(2);
            Ok::<_, Stop>((Shot { call: conditional(call), leaves: body, gated }, upload))
        }
    });
    let (mut shots, mut uploads) = (Vec::new(), Vec::new());
    for ready in crate::together::all(prepared).await {
        let (shot, upload) = ready?;
        shots.push(shot);
        uploads.extend(upload);
    }
    Ok(Arranged { key, shots, uploads })
}

/// Aborts what is left of a round's uploads. The winner's abort is refused, and that is fine too.
async fn abort(t: &Trial, uploads: &[Upload]) -> Done {
    let ended = crate::together::all(uploads.iter().map(|upload| t.send(upload.abort()))).await;
    ended.into_iter().try_for_each(|answer| answer.map(drop))
}

async fn contest(t: &Trial, contest: Contest) -> Done {
    alone(t, contest).await?;
    let (mut crew, mut tally) = (Crew::default(), Tally::default());
    for round in 1..=t.race().rounds {
        let Arranged { key, shots, uploads } = arrange(t, contest, round, t.race().writers).await?;
        let left: Vec<Bytes> = shots.iter().map(|shot| shot.leaves.clone()).collect();
        let results = crew.fire(t, &key, shots).await?;
        settle(t, &key, &left, &results, &BEATEN, &mut tally).await?;
        abort(t, &uploads).await?;
        t.send(Call::delete(&key)).await?;
    }
    t.note(format!("{} writers, {tally}", t.race().writers));
    tally.decided()
}

/// Two of them one after the other: who drops or refuses the condition is found out before any race.
async fn alone(t: &Trial, contest: Contest) -> Done {
    let Arranged { key, shots, uploads } = arrange(t, contest, 0, 2).await?;
    let mut shots = shots.into_iter();
    if let (Some(first), Some(second)) = (shots.next(), shots.next()) {
        t.let_through(&t.send(first.call).await?, &[200])?;
        t.stopped(&t.send(second.call).await?, &BEATEN)?;
        t.holds(&key, &first.leaves).await?;
    }
    abort(t, &uploads).await
}

/// Reads the key, judges the round and adds it to the tally.
async fn settle(
    t: &Trial,
    key: &str,
    left: &[Bytes],
    results: &[crate::race::Result<Answer>],
    beaten: &[u16],
    tally: &mut Tally,
) -> Done {
    let ends: Vec<_> = results.iter().map(|result| ended(result, beaten)).collect();
    let seen = t.send(Call::get(key)).await?;
    let holds = match seen.status.as_u16() {
        200 => match left.iter().position(|body| *body == seen.body) {
            Some(racer) => Holds::Of(racer),
            None if seen.body.starts_with(b"before ") => Holds::Before,
            None => Holds::Foreign,
        },
        404 => Holds::Before,
        _ => return expect_status(&seen, &[200, 404]),
    };
    let round = judge(&ends, holds);
    if let Round::Bad(_, Some(class), _) = round {
        t.classify(class);
    }
    tally.add(&ends, &round, results)
}

const PUT_CREATE_SLOW: Check = Check {
    id: "race.put.create.slow-body",
    proves: "a create that began first and ends last loses to one that was done in between",
    severity: Severity::Required,
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "race-create-put"],
    run: |t| Box::pin(slow_against_fast(t, Contest::PutCreate)),
    ..BASE
};

const PUT_SWAP_SLOW: Check = Check {
    id: "race.put.swap.slow-body",
    proves: "a swap that began first and ends last loses to one that was done in between",
    severity: Severity::Required,
    condition: Some(Condition::PutSwap),
    broken_by: PUT_SWAP.broken_by,
    run: |t| Box::pin(slow_against_fast(t, Contest::PutSwap)),
    ..BASE
};

async fn slow_against_fast(t: &Trial, contest: Contest) -> Done {
    alone(t, contest).await?;
    let (mut crew, mut tally) = (Crew::default(), Tally::default());
    for round in 1..=SLOW_ROUNDS {
        let Arranged { key, mut shots, .. } = arrange(t, contest, round, 2).await?;
        for (writer, shot) in shots.iter_mut().enumerate() {
            shot.gated = writer == 0;
        }
        let left: Vec<Bytes> = shots.iter().map(|shot| shot.leaves.clone()).collect();
        let results = crew.fire(t, &key, shots).await?;
        settle(t, &key, &left, &results, &BEATEN, &mut tally).await?;
    }
    if crew.held_up > 0 {
        t.note(format!(
            "the fast request waited for the slow one in {} of {SLOW_ROUNDS} rounds",
            crew.held_up
        ));
    }
    tally.decided()
}

const PUT_COUNTER: Check = Check {
    id: "race.put.counter",
    proves: "a counter that many workers raise by read and swap ends at the number of swaps that won",
    severity: Severity::Required,
    condition: Some(Condition::PutSwap),
    broken_by: PUT_SWAP.broken_by,
    run: |t| Box::pin(counter(t)),
    ..BASE
};

async fn counter(t: &Trial) -> Done {
    alone(t, Contest::PutSwap).await?;
    let key = t.key("counter");
    t.put(&key, &Bytes::from_static(b"0")).await?;
    let mut workers = JoinSet::new();
    for _ in 0..t.race().writers.min(8) {
        workers.spawn(raise(t.client().clone(), key.clone()));
    }
    let (mut won, mut retries) = (0, 0);
    while let Some(worker) = workers.join_next().await {
        let (wins, beaten) = worker.expect("a worker does not panic")?;
        won += wins;
        retries += beaten;
    }
    let end = t.send(Call::get(&key)).await?;
    expect_status(&end, &[200])?;
    let value = String::from_utf8_lossy(&end.body).into_owned();
    t.note(format!("{won} swaps won, {retries} beaten"));
    if value == won.to_string() {
        return Ok(());
    }
    t.classify(Class::Races);
    Err(Stop::fail(
        format!("{won}, the number of swaps that won"),
        format!("{value}: updates were lost"),
        &end,
    ))
}

/// Raises the counter a few times; gives the swaps that won and those that were beaten.
async fn raise(client: Client, key: String) -> Result<(usize, usize), Stop> {
    let (mut won, mut beaten) = (0, 0);
    while won < INCREMENTS {
        let seen = client.send(Call::get(&key)).await?;
        expect_status(&seen, &[200])?;
        let value: u64 = String::from_utf8_lossy(&seen.body).parse().unwrap_or_default();
        let swap = Call::put(&key, (value + 1).to_string()).if_match(seen.etag());
        let answer = client.send(swap).await?;
        match answer.status.as_u16() {
            200 => won += 1,
            304 | 409 | 412 => beaten += 1,
            status if says_nothing(status) => {
                return Err(Stop::doubt("a swap's outcome is not known", &answer));
            }
            _ => return Err(Stop::fail("200, 409 or 412", answer.status.as_str(), &answer)),
        }
        if won + beaten > ATTEMPTS {
            let reason = format!("a worker won only {won} of {ATTEMPTS} attempts");
            return Err(Stop::Inconclusive(Doubt { reason, exchange: Some(answer.exchange) }));
        }
    }
    Ok((won, beaten))
}

const SWAP_AGAINST_DELETE: Check = Check {
    id: "race.swap-against-delete",
    proves: "of a swap and a delete with the same ETag at once one wins, and the key shows which",
    condition: Some(Condition::DeleteMatch),
    source: "S3 User Guide: How to perform conditional deletes, concurrent requests",
    broken_by: &[
        "ignore-if-match-delete",
        "refuse-conditional-delete",
        "ignore-if-match-put",
        "race-delete",
        "only-unquoted-etags-match",
        "race-swap-put",
        "refuse-if-match-put",
    ],
    run: |t| Box::pin(swap_against_delete(t)),
    ..BASE
};

async fn swap_against_delete(t: &Trial) -> Done {
    let key = t.key("alone");
    t.put(&key, &t.body("before", 0)).await?;
    t.stopped(&t.send(Call::delete(&key).if_match(STRANGER)).await?, &[412])?;
    let etag = t.put(&key, &t.body("before", 0)).await?;
    t.let_through(&t.send(Call::delete(&key).if_match(&etag)).await?, &[204])?;
    expect_status(&t.send(Call::put(&key, t.body("late", 0)).if_match(&etag)).await?, &[404, 409, 412])?;
    let (mut crew, mut tally) = (Crew::default(), Tally::default());
    for round in 1..=t.race().rounds {
        let (key, new) = (t.key(&format!("r{round:03}")), t.body("new", 32));
        let etag = t.put(&key, &t.body("before", 0)).await?;
        let shots = vec![
            Shot {
                call: Call::put(&key, new.clone()).if_match(&etag),
                leaves: new.clone(),
                gated: round.is_multiple_of(2),
            },
            Shot { call: Call::delete(&key).if_match(&etag), leaves: Bytes::new(), gated: false },
        ];
        let results = crew.fire(t, &key, shots).await?;
        let ends: Vec<_> = results.iter().map(|result| ended(result, &[404, 409, 412])).collect();
        let seen = t.send(Call::get(&key)).await?;
        let holds = match seen.status.as_u16() {
            404 => Holds::Of(1),
            200 if seen.body == new => Holds::Of(0),
            200 => Holds::Before,
            _ => return expect_status(&seen, &[200, 404]),
        };
        let round = judge(&ends, holds);
        if let Round::Bad(_, Some(class), _) = round {
            t.classify(class);
        }
        tally.add(&ends, &round, &results)?;
    }
    t.note(tally.to_string());
    tally.decided()
}
