//! Histories of many clients on one key, judged as a whole; and races without a condition.

use crate::call::Call;
use crate::check::{Check, Class, Condition, Done, Doubt, Failure, Severity, Stop, says_nothing};
use crate::client::{Answer, Client, Lost};
use crate::exchange::Exchange;
use crate::expect::{excerpt, expect_status};
use crate::history::{self, Act, End, Event, MOST_OPERATIONS, Value, Verdict};
use crate::race::{Crew, Holds, Round, Shot, Tally, ended, judge};
use crate::trial::Trial;
use bytes::Bytes;
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::task::JoinSet;

const STRONG: &str =
    "S3 User Guide: data consistency model; conditional writes. Judged as a register: Herlihy and Wing";
/// Clients of one history, and the operations of each.
const CLIENTS: usize = 8;
const OPERATIONS: usize = 12;
const _: () = assert!(CLIENTS * OPERATIONS <= MOST_OPERATIONS);
/// Bytes of the bodies that must never be seen in part: many packets.
const LARGE: usize = 512 << 10;

pub(super) const ALL: &[Check] =
    &[REGISTER, REGISTER_PLAIN, REGISTER_ENDPOINTS, ENDPOINTS, WHOLE, LAST, SLOW_PLAIN, CREATE_DELETE];

const BASE: Check = Check {
    id: "race.register",
    proves: "creates, swaps and reads of one key by many clients have one order that explains every answer",
    severity: Severity::Required,
    condition: Some(Condition::PutSwap),
    needs: &[],
    source: STRONG,
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "race-swap-put", "stale-reads"],
    run: |t| Box::pin(histories(t, vec![t.client().clone()], false)),
};

const REGISTER: Check = BASE;

const REGISTER_PLAIN: Check = Check {
    id: "race.register.unconditional",
    proves: "with deletes and plain writes among them, the answers of many clients on one key still have one order",
    severity: Severity::Expected,
    run: |t| Box::pin(histories(t, vec![t.client().clone()], true)),
    ..BASE
};

const REGISTER_ENDPOINTS: Check = Check {
    id: "race.register.endpoints",
    proves: "many clients on one key through two endpoints of the store see one order",
    severity: Severity::Expected,
    run: |t| Box::pin(async move { histories(t, vec![t.client().clone(), t.other()?.clone()], false).await }),
    ..BASE
};

/// One operation as it is judged, and its evidence.
struct Record {
    event: Event,
    exchange: Option<Arc<Exchange>>,
}

/// What the clients of one history share.
struct Ledger {
    key: String,
    /// Gives every start and end its place.
    order: AtomicU64,
    /// Gives every body its value.
    values: AtomicU32,
}

/// A store that refuses a right swap of one client, or takes its second create, does not race: it has no class here.
async fn alone(t: &Trial) -> Done {
    let key = t.key("alone");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    expect_status(&t.send(Call::put(&key, t.body("new", 0)).if_match(&etag)).await?, &[200])?;
    expect_status(&t.send(Call::put(&key, t.body("late", 0)).if_none_match("*")).await?, &[412])
}

async fn histories(t: &Trial, clients: Vec<Client>, unconditional: bool) -> Done {
    alone(t).await?;
    let rounds = t.race().rounds.clamp(1, 20);
    let (mut operations, mut lost) = (0, 0);
    for round in 0..rounds {
        let ledger = Arc::new(Ledger {
            key: t.key(&format!("r{round:03}")),
            order: AtomicU64::new(0),
            values: AtomicU32::new(1),
        });
        let mut running = JoinSet::new();
        for (n, client) in clients.iter().cycle().take(t.race().writers.clamp(2, CLIENTS)).enumerate() {
            let rng = Rng::with_seed(t.below(usize::MAX) as u64 ^ n as u64);
            running.spawn(work(client.clone(), ledger.clone(), rng, unconditional));
        }
        let mut records = Vec::new();
        while let Some(done) = running.join_next().await {
            records.extend(done.expect("a client does not panic")?);
        }
        operations += records.len();
        lost += records
            .iter()
            .filter(|record| record.exchange.as_ref().is_none_or(|e| e.answer.is_err()))
            .count();
        judged(t, round, &records)?;
    }
    t.note(format!("{rounds} histories, {operations} operations, {lost} answers lost"));
    Ok(())
}

fn judged(t: &Trial, round: usize, records: &[Record]) -> Done {
    let events: Vec<Event> = records.iter().map(|record| record.event).collect();
    match history::judge(&events) {
        Verdict::Linearizable => {
            t.classify(Class::Enforces);
            Ok(())
        }
        Verdict::TooHard => {
            let reason = format!("history {round} has too many orders to try");
            Err(Stop::Inconclusive(Doubt { reason, exchange: None }))
        }
        Verdict::Broken(at) => {
            t.classify(Class::Races);
            Err(Stop::Fail(Failure {
                expected: "an order of all operations that explains every answer".to_owned(),
                got: format!("history {round}: none in which {:?} fits", records[at].event.act),
                exchange: records[at].exchange.clone(),
            }))
        }
    }
}

/// One client's operations, one after the other: mostly a read and then a swap of what it gave.
async fn work(
    client: Client,
    ledger: Arc<Ledger>,
    mut rng: Rng,
    unconditional: bool,
) -> Result<Vec<Record>, Stop> {
    let mut known: Option<(Value, String)> = None;
    let mut records = Vec::new();
    for _ in 0..OPERATIONS {
        let (call, intent) = next(&mut rng, &ledger, known.as_ref(), unconditional);
        let start = ledger.order.fetch_add(1, Ordering::SeqCst);
        let result = client.send(call).await;
        let end = ledger.order.fetch_add(1, Ordering::SeqCst);
        let exchange = match &result {
            Ok(answer) => Some(answer.exchange.clone()),
            Err(lost) => lost.exchange.clone(),
        };
        let act = match intent {
            // A read that got no answer says nothing.
            Intent::Read => match read(&result)? {
                None => continue,
                Some(value) => {
                    known = value.clone();
                    Act::Read(value.map(|(value, _)| value))
                }
            },
            Intent::Create(to) => Act::Create(to, outcome(&result)?),
            Intent::Swap(from, to) => Act::Swap(from, to, outcome(&result)?),
            Intent::Write(to) => Act::Write(to, outcome(&result)?),
            Intent::Delete => Act::Delete(outcome(&result)?),
        };
        if intent != Intent::Read {
            known = match (act, &result) {
                (
                    Act::Swap(_, to, End::Done) | Act::Create(to, End::Done) | Act::Write(to, End::Done),
                    Ok(answer),
                ) => Some((to, answer.etag().to_owned())),
                _ => None,
            };
        }
        records.push(Record { event: Event { start, end, act }, exchange });
    }
    Ok(records)
}

/// What an operation is to do; its answer makes it an [`Act`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Read,
    Create(Value),
    Swap(Value, Value),
    Write(Value),
    Delete,
}

/// The next operation of a client that knows this value and its ETag, or nothing.
fn next(
    rng: &mut Rng,
    ledger: &Ledger,
    known: Option<&(Value, String)>,
    unconditional: bool,
) -> (Call, Intent) {
    let (key, to) = (&ledger.key, ledger.values.fetch_add(1, Ordering::SeqCst));
    let put = || Call::put(key, to.to_string());
    match (rng.u8(..10), known) {
        (0, _) if unconditional => (Call::delete(key), Intent::Delete),
        (1, _) if unconditional => (put(), Intent::Write(to)),
        (0..5, _) => (Call::get(key), Intent::Read),
        (_, Some((from, etag))) => (put().if_match(etag), Intent::Swap(*from, to)),
        (_, None) => (put().if_none_match("*"), Intent::Create(to)),
    }
}

/// The value that a read gave, and its ETag; `None` outside when there was no answer.
fn read(result: &Result<Answer, Lost>) -> Result<Option<Option<(Value, String)>>, Stop> {
    match result {
        Err(_) => Ok(None),
        Ok(answer) if says_nothing(answer.status.as_u16()) => Ok(None),
        Ok(answer) if answer.status == 404 => Ok(Some(None)),
        Ok(answer) => {
            expect_status(answer, &[200])?;
            match String::from_utf8_lossy(&answer.body).parse() {
                Ok(value) => Ok(Some(Some((value, answer.etag().to_owned())))),
                Err(_) => Err(Stop::fail("bytes that somebody wrote", excerpt(&answer.body), answer)),
            }
        }
    }
}

fn outcome(result: &Result<Answer, Lost>) -> Result<End, Stop> {
    let Ok(answer) = result else { return Ok(End::Lost) };
    match answer.status.as_u16() {
        _ if answer.succeeded() => Ok(End::Done),
        304 | 412 => Ok(End::Beaten),
        404 => Ok(End::Missing),
        409 => Ok(End::Conflict),
        status if says_nothing(status) => Ok(End::Lost),
        _ => Err(expect_status(answer, &[200, 204, 404, 409, 412])
            .err()
            .unwrap_or_else(|| Stop::doubt("an answer that is neither success nor refusal", answer))),
    }
}

const ENDPOINTS: Check = Check {
    id: "consistency.endpoints",
    proves: "what is written, overwritten or deleted at one endpoint is so at the other, for reads and listings",
    severity: Severity::Expected,
    condition: None,
    source: "S3 User Guide: Amazon S3 data consistency model",
    broken_by: &["stale-reads", "list-lag", "prefix-is-folder"],
    run: |t| Box::pin(endpoints(t)),
    ..BASE
};

async fn endpoints(t: &Trial) -> Done {
    let (here, there) = (t.client(), t.other()?);
    for (n, (writer, reader)) in [(here, there), (there, here)].into_iter().enumerate() {
        let key = t.key(&format!("k{n}"));
        for version in 0..4 {
            let body = t.body(&format!("v{version}"), 0);
            expect_status(&writer.send(Call::put(&key, body.clone())).await?, &[200])?;
            let answer = reader.send(Call::get(&key)).await?;
            expect_status(&answer, &[200])?;
            crate::expect::expect_body(&answer, &body)?;
        }
        for (call, listed) in [(None, true), (Some(Call::delete(&key)), false)] {
            if let Some(call) = call {
                expect_status(&writer.send(call).await?, &[204])?;
                expect_status(&reader.send(Call::get(&key)).await?, &[404])?;
            }
            let page = reader.send(super::list::call(t, &format!("k{n}"), &[])).await?;
            let keys = crate::expect::texts(&page, "Contents", "Key");
            let wanted: Vec<String> = listed.then(|| key.clone()).into_iter().collect();
            crate::expect::expect_list("keys", &wanted, &keys, &page)?;
        }
    }
    Ok(())
}

const WHOLE: Check = Check {
    id: "race.read.whole",
    proves: "a read during overwrites gives one write's bytes, whole, with its ETag, never a mixture",
    condition: None,
    source: "S3 User Guide: data consistency model; updates to a single key are atomic",
    broken_by: &["mixed-reads"],
    run: |t| Box::pin(whole(t)),
    ..BASE
};

async fn whole(t: &Trial) -> Done {
    let key = t.key("k");
    let bodies: Vec<Bytes> = (0..2_u8).map(|n| Bytes::from(vec![b'a' + n; LARGE])).collect();
    let mut etags = Vec::new();
    for body in &bodies {
        etags.push(t.put(&key, body).await?);
    }
    let (client, written, target) = (t.client().clone(), bodies.clone(), key.clone());
    let mut writer = JoinSet::new();
    writer.spawn(async move {
        for n in 0..8 {
            client.send(Call::put(&target, written[n % 2].clone())).await?;
        }
        Ok::<_, Lost>(())
    });
    let (mut reads, mut writing) = (0, true);
    while writing || reads < 4 {
        writing = writing && writer.try_join_next().is_none();
        let answer = t.send(Call::get(&key)).await?;
        expect_status(&answer, &[200])?;
        reads += 1;
        let of = bodies.iter().position(|body| *body == answer.body);
        match of {
            Some(of) if etags[of] == answer.etag() => {}
            Some(_) => return Err(Stop::fail("the ETag of these bytes", answer.etag(), &answer)),
            None => return Err(Stop::fail("the bytes of one write", excerpt(&answer.body), &answer)),
        }
    }
    t.note(format!("{reads} reads during 8 overwrites"));
    Ok(())
}

const LAST: Check = Check {
    id: "race.put.last-wins",
    proves: "after many unconditional writes at once the key holds one of them, whole, and every reader sees this one",
    condition: None,
    source: "S3 User Guide: data consistency model, concurrent applications: last writer wins",
    broken_by: &["mixed-reads"],
    run: |t| Box::pin(last(t)),
    ..BASE
};

async fn last(t: &Trial) -> Done {
    let mut crew = Crew::default();
    for round in 0..t.race().rounds.min(5) {
        let key = t.key(&format!("r{round}"));
        let bodies: Vec<Bytes> =
            (0..t.race().writers).map(|n| t.body(&format!("racer {n}"), 4 << 10)).collect();
        let shots = bodies.iter().map(|body| Shot {
            call: Call::put(&key, body.clone()),
            leaves: body.clone(),
            gated: false,
        });
        for result in crew.fire(t, &key, shots.collect()).await? {
            expect_status(&result?, &[200])?;
        }
        let first = t.send(Call::get(&key)).await?;
        expect_status(&first, &[200])?;
        if !bodies.contains(&first.body) {
            return Err(Stop::fail("the bytes of one write", excerpt(&first.body), &first));
        }
        for _ in 0..3 {
            t.holds(&key, &first.body).await?;
        }
    }
    Ok(())
}

const SLOW_PLAIN: Check = Check {
    id: "race.put.slow-unconditional",
    proves: "a create that is done while a plain write's body still arrives holds until that write is done, and no longer",
    condition: Some(Condition::PutCreate),
    source: "S3 User Guide: conditional writes, concurrent requests",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put"],
    run: |t| Box::pin(slow_plain(t)),
    ..BASE
};

async fn slow_plain(t: &Trial) -> Done {
    for round in 0..3 {
        let (key, slow, fast) = (t.key(&format!("r{round}")), t.body("slow", 64 << 10), t.body("fast", 0));
        let (payload, mut holder) = crate::Payload::gated(&slow);
        let mut connection = t.client().connect().await?;
        let signed = t.client().sign(Call::put(&key, slow.clone()).through(payload));
        let client = t.client().clone();
        let sending = tokio::spawn(async move { connection.deliver(&client, signed).await });
        holder.reached().await;
        t.lacks(&key).await?;
        t.let_through(&t.send(Call::put(&key, fast.clone()).if_none_match("*")).await?, &[200])?;
        t.holds(&key, &fast).await?;
        holder.open();
        expect_status(&sending.await.expect("the writer does not panic")?, &[200])?;
        t.holds(&key, &slow).await?;
        t.stopped(&t.send(Call::put(&key, t.body("late", 0)).if_none_match("*")).await?, &[412])?;
    }
    Ok(())
}

const CREATE_DELETE: Check = Check {
    id: "race.create-against-delete",
    proves: "of many creates and a delete at once the answers and the key agree: absent, or what one winner wrote",
    condition: Some(Condition::PutCreate),
    source: "S3 User Guide: conditional writes, concurrent requests: a delete that completes first",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put"],
    run: |t| Box::pin(create_delete(t)),
    ..BASE
};

/// The key is present, so creates win only after the delete, and only one of them.
async fn create_delete(t: &Trial) -> Done {
    let (mut crew, mut tally) = (Crew::default(), Tally::default());
    for round in 1..=t.race().rounds.min(10) {
        let (key, before) = (t.key(&format!("r{round:03}")), t.body("before", 0));
        t.put(&key, &before).await?;
        t.stopped(&t.send(Call::put(&key, t.body("early", 0)).if_none_match("*")).await?, &[412])?;
        let bodies: Vec<Bytes> = (1..t.race().writers).map(|n| t.body(&format!("racer {n}"), 64)).collect();
        let mut shots: Vec<Shot> = bodies
            .iter()
            .map(|body| Shot {
                call: Call::put(&key, body.clone()).if_none_match("*"),
                leaves: body.clone(),
                gated: round.is_multiple_of(2),
            })
            .collect();
        shots.push(Shot { call: Call::delete(&key), leaves: Bytes::new(), gated: false });
        let mut results = crew.fire(t, &key, shots).await?;
        let Some(Ok(delete)) = results.pop() else { continue };
        expect_status(&delete, &[204, 409])?;
        let ends: Vec<_> = results.iter().map(|result| ended(result, &[404, 409, 412])).collect();
        let seen = t.send(Call::get(&key)).await?;
        let holds = match seen.status.as_u16() {
            404 => Holds::Before,
            _ if seen.body == before => Holds::Foreign,
            _ => bodies.iter().position(|body| *body == seen.body).map_or(Holds::Foreign, Holds::Of),
        };
        // Nobody need win; then the delete was last.
        let nobody = !ends.contains(&crate::race::Ended::Won) && holds == Holds::Before;
        let round = if nobody { Round::Good } else { judge(&ends, holds) };
        if let Round::Bad(_, Some(class), _) = round {
            t.classify(class);
        }
        tally.add(&ends, &round, &results)?;
    }
    t.note(tally.to_string());
    tally.decided()
}
