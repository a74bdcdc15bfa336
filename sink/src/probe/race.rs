//! Checks 16 to 20: conditions hold when many ask at once, each on a connection of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::time::Instant;

use super::at::{At, Checked, Ended, Halt, PASSED, Reply, refused};
use super::create::LARGE;
use super::ground::Counted;
use crate::store::{BodyGate, Condition, ETag, Object};

/// Rounds without a verdict, since somebody in them got no answer, that a race puts up with.
const VOID_ROUNDS: usize = 8;

/// Swaps of the chain.
const CHAIN: usize = 64;

/// Bodies of check 18: long enough to take several packets.
const TORN_BYTES: usize = 256 << 10;

/// How rounds go until there are enough of them or their time is up.
struct Rounds<'a> {
    at: &'a At<'a>,
    began: Instant,
    done: usize,
    void: usize,
}

impl<'a> Rounds<'a> {
    fn new(at: &'a At<'a>) -> Self {
        Self { at, began: Instant::now(), done: 0, void: 0 }
    }

    fn more(&self) -> bool {
        let settings = self.at.settings;
        let in_time = self.began.elapsed() < Duration::from_millis(settings.race_budget_ms);
        self.done < settings.race_minimum_rounds() || (self.done < settings.race_rounds() && in_time)
    }

    /// Counts a round, or puts up with one in which somebody got no answer.
    fn count(&mut self, round: Result<(), Halt>) -> Result<(), Halt> {
        match round {
            Ok(()) => self.done += 1,
            Err(Halt::Unanswered(_)) if self.void < VOID_ROUNDS => self.void += 1,
            Err(halt) => return Err(halt),
        }
        Ok(())
    }

    fn ended(self) -> Checked {
        let wanted = self.at.settings.race_rounds();
        let budget_s = self.at.settings.race_budget_ms.div_ceil(1000);
        let mut note = format!("{} rounds of {}", self.done, self.at.settings.race_writers());
        if self.done < wanted {
            note += &format!(" (of {wanted}: its {budget_s} s were up)");
        }
        if self.void > 0 {
            note += &format!(", {} more without all answers", self.void);
        }
        Ok(Ended::Passed(Some(note)))
    }
}

/// Clients whose connections stand, so that a race is about the store and not about dialling.
async fn racers(at: &At<'_>) -> Result<Vec<Counted>, Halt> {
    let racers: Vec<_> = (0..at.settings.race_writers()).map(|_| at.fresh()).collect();
    let nobody = at.key("nobody");
    for racer in &racers {
        at.get_on(racer, &nobody).await?;
    }
    Ok(racers)
}

/// What one writer of a race wrote, and what it was told.
struct Raced {
    body: Bytes,
    told: Result<Reply, Halt>,
}

/// Everybody writes at once.
async fn contend(at: &At<'_>, racers: &[Counted], key: &str, condition: &Condition) -> Vec<Raced> {
    let barrier = Barrier::new(racers.len());
    let writing = racers.iter().map(|racer| async {
        let body = at.body();
        barrier.wait().await;
        let told = at.put_on(racer, key, &body, condition.clone()).await;
        Raced { body, told }
    });
    together(writing).await
}

/// Polls all futures until all are done: on one task, since they wait for the network and not for a core.
async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut waiting {
            if output.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        match waiting.iter().all(|(_, output)| output.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

/// The one who was told that the write is done. More than one is a refusal even where others got no answer.
fn winner(raced: &[Raced]) -> Result<(&Bytes, Option<&ETag>), Halt> {
    let expected = "one 2xx, and 412 for all others";
    let mut winners = Vec::new();
    let mut unanswered = None;
    for racer in raced {
        match &racer.told {
            Ok(Reply::Done(etag)) => winners.push((&racer.body, etag.as_ref())),
            Ok(Reply::Precondition) => {}
            Ok(other) => return refused(expected, other.text()),
            Err(Halt::Unanswered(silence)) => unanswered = Some(silence.clone()),
            Err(halt) => return Err(halt.clone()),
        }
    }
    match (winners.as_slice(), unanswered) {
        ([_, _, ..], _) => refused(expected, format!("{} times 2xx of {}", winners.len(), raced.len())),
        (_, Some(unanswered)) => Err(Halt::Unanswered(unanswered)),
        ([winner], None) => Ok(*winner),
        ([], None) => refused(expected, format!("no 2xx among {}", raced.len())),
    }
}

pub(super) async fn creates(at: &At<'_>) -> Checked {
    let racers = racers(at).await?;
    let mut rounds = Rounds::new(at);
    while rounds.more() {
        let key = at.key(&format!("round-{}-{}", rounds.done, rounds.void));
        let raced = contend(at, &racers, &key, &Condition::Absent).await;
        rounds.count(judged(at, &key, &raced).await)?;
    }
    rounds.ended()
}

/// One winner, whose bytes and ETag are there.
async fn judged(at: &At<'_>, key: &str, raced: &[Raced]) -> Result<(), Halt> {
    match winner(raced)? {
        (body, Some(etag)) => at.must_hold_tagged(key, body, etag).await,
        (_, None) => refused("2xx with an ETag", "2xx without one"),
    }
}

pub(super) async fn swaps(at: &At<'_>) -> Checked {
    let racers = racers(at).await?;
    let mut rounds = Rounds::new(at);
    while rounds.more() {
        let key = at.key(&format!("round-{}-{}", rounds.done, rounds.void));
        let etag = at.must_write(&key, &at.body(), Condition::Absent).await?;
        let raced = contend(at, &racers, &key, &Condition::Matches(etag)).await;
        rounds.count(judged(at, &key, &raced).await)?;
    }
    rounds.ended()
}

/// What one of check 18 did.
enum Mixed {
    Swap(Raced),
    Create(Result<Reply, Halt>),
    Read(Result<Option<Object>, Halt>),
}

pub(super) async fn mixed(at: &At<'_>) -> Checked {
    let racers = racers(at).await?;
    let mut rounds = Rounds::new(at);
    while rounds.more() {
        let key = at.key(&format!("round-{}-{}", rounds.done, rounds.void));
        let round = mixed_round(at, &racers, &key).await;
        rounds.count(round)?;
    }
    rounds.ended()
}

/// A quarter swaps, a quarter creates, the others read.
async fn mixed_round(at: &At<'_>, racers: &[Counted], key: &str) -> Result<(), Halt> {
    let before = at.body_of(TORN_BYTES);
    let etag = at.must_write(key, &before, Condition::Absent).await?;
    let barrier = Barrier::new(racers.len());
    let acting = racers.iter().enumerate().map(|(place, racer)| {
        let (barrier, etag) = (&barrier, etag.clone());
        async move {
            let body = at.body_of(TORN_BYTES);
            barrier.wait().await;
            match place % 4 {
                0 => {
                    let told = at.put_on(racer, key, &body, Condition::Matches(etag)).await;
                    Mixed::Swap(Raced { body, told })
                }
                1 => Mixed::Create(at.put_on(racer, key, &body, Condition::Absent).await),
                _ => Mixed::Read(at.get_on(racer, key).await),
            }
        }
    });
    let (mut swaps, mut reads) = (Vec::new(), Vec::new());
    for done in together(acting).await {
        match done {
            Mixed::Swap(raced) => swaps.push(raced),
            Mixed::Create(Ok(Reply::Precondition)) => {}
            Mixed::Create(reply) => {
                return refused("412 for a create on an existing key", reply?.text());
            }
            Mixed::Read(read) => reads.push(read),
        }
    }
    let whole: BTreeMap<&Bytes, &ETag> = swaps
        .iter()
        .filter_map(|raced| match &raced.told {
            Ok(Reply::Done(Some(etag))) => Some((&raced.body, etag)),
            _ => None,
        })
        .chain([(&before, &etag)])
        .collect();
    for read in reads {
        let Some(object) = read? else { return refused("GET: an object", "404") };
        match whole.get(&object.bytes) {
            Some(etag) if **etag == object.meta.etag => {}
            Some(_) => return refused("one ETag for one body", "a body beside the ETag of another"),
            // A swap without an answer may be what was read: then nobody can say.
            None if swaps.iter().any(|raced| raced.told.is_err()) => break,
            None => return refused("GET: a body that somebody wrote", "a torn body"),
        }
    }
    judged(at, key, &swaps).await
}

pub(super) async fn slow_create(at: &At<'_>) -> Checked {
    for (name, size) in [("small", 4 << 10), ("large", LARGE)] {
        let key = at.key(name);
        let gate = Arc::new(BodyGate::default());
        let (slow, fast) = (at.gated(gate.clone()), at.body());
        let held = at.body_of(size);
        let racing = async {
            gate.reached(1).await;
            let written = at.must_write(&key, &fast, Condition::Absent).await;
            gate.open();
            written
        };
        let mut slowly = std::pin::pin!(at.put_on(&slow, &key, &held, Condition::Absent));
        let mut racing = std::pin::pin!(racing);
        let etag = tokio::select! {
            biased;
            etag = &mut racing => etag?,
            // It ended before its body was half way, so there was no race.
            early = &mut slowly => {
                let reply = early?;
                return refused("an answer after the body", format!("one before its half: {}", reply.text()));
            }
        };
        match slowly.await? {
            Reply::Precondition => at.must_hold_tagged(&key, &fast, &etag).await?,
            other => return refused("412 for the slow one: the key exists when it commits", other.text()),
        }
    }
    PASSED
}

pub(super) async fn chain(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let mut body = at.body();
    let first = at.must_write(&key, &body, Condition::Absent).await?;
    let mut etag = first.clone();
    let mut seen = BTreeSet::from([first.0.clone()]);
    for turn in 0..CHAIN {
        body = at.body();
        etag = match at.put(&key, &body, Condition::Matches(etag)).await? {
            Reply::Done(Some(etag)) if seen.insert(etag.0.clone()) => etag,
            Reply::Done(Some(etag)) => {
                return refused("an ETag that no earlier object of the key had", format!("{etag} again"));
            }
            other => {
                return refused(
                    "swap with the ETag of the last answer: 2xx and an ETag",
                    format!("{} at swap {} of {CHAIN}", other.text(), turn + 1),
                );
            }
        };
    }
    at.must_hold_tagged(&key, &body, &etag).await?;
    for condition in [Condition::Matches(first), Condition::Absent] {
        at.must_fail(&at.main, &key, &at.body(), condition, (&body, &etag)).await?;
    }
    PASSED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Unanswered;

    fn raced(told: Result<Reply, Halt>) -> Raced {
        Raced { body: Bytes::new(), told }
    }

    #[test]
    fn two_winners_are_a_refusal_even_beside_a_silence() {
        let done = || raced(Ok(Reply::Done(Some(ETag("\"x\"".into())))));
        let lost = || raced(Ok(Reply::Precondition));
        let silent = || raced(Err(Halt::Unanswered(Unanswered { status: None, reason: "cut".into() })));
        assert!(winner(&[done(), lost(), lost()]).is_ok());
        assert!(matches!(winner(&[done(), silent(), done()]), Err(Halt::Refused { .. })));
        assert!(matches!(winner(&[done(), silent()]), Err(Halt::Unanswered(_))));
        assert!(matches!(winner(&[lost(), lost()]), Err(Halt::Refused { .. })));
    }
}
