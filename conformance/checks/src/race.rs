//! Races: several requests at once that only one may win, and the judgement of each round.

use crate::call::Call;
use crate::check::{Class, Doubt, Failure, Stop, says_nothing};
use crate::client::{Answer, Client, Connection, Lost};
use crate::payload::{Holder, Payload};
use crate::trial::Trial;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Round trips that a gated request is given to arrive.
const ROUND_TRIPS: usize = 3;
/// How long the others may wait for a gated request before they are taken to be held up by it, as by a provider
/// that locks the key from a request's head to its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// One racer's request, and the bytes that the key holds if it wins.
pub(crate) struct Shot {
    pub call: Call,
    pub leaves: Bytes,
    /// Whether its body is held back half way; `leaves` must be its body then.
    pub gated: bool,
}

/// Connections of the racers, kept over the rounds.
#[derive(Default)]
pub(crate) struct Crew {
    connections: Vec<Option<Connection>>,
    /// Rounds in which the others waited for a gated request.
    pub held_up: usize,
}

/// What came back to one racer.
pub(crate) type Result<T> = std::result::Result<T, Lost>;

/// A racer that has ended: its place, its connection, what came back.
type Run = (usize, Connection, Result<Answer>);

impl Crew {
    /// Sends all shots at once, each on a connection of its own.
    ///
    /// A gated one has sent its head and half of its body before the others start, and sends the rest when they
    /// have their answers, or at once if all are gated. A provider that looks at the condition when a request
    /// arrives has then looked for every gated racer before any racer is done.
    pub(crate) async fn fire(
        &mut self,
        t: &Trial,
        key: &str,
        shots: Vec<Shot>,
    ) -> std::result::Result<Vec<Result<Answer>>, Stop> {
        let count = shots.len();
        t.client().turn(count).await;
        self.connections.resize_with(self.connections.len().max(count), || None);
        let barrier = Arc::new(Barrier::new(shots.iter().filter(|shot| !shot.gated).count()));
        let (mut holders, mut ready) = (Vec::new(), Vec::new());
        let (mut gated, mut others) = (JoinSet::new(), JoinSet::new());
        for (slot, shot) in shots.into_iter().enumerate() {
            let connection = self.connection(t.client(), slot).await?;
            if shot.gated {
                let (payload, holder) = Payload::gated(&shot.leaves);
                holders.push(holder);
                gated.spawn(run(t.client().clone(), slot, connection, shot.call.through(payload), None));
            } else {
                ready.push((slot, connection, shot.call));
            }
        }
        arrived(t, key, &mut holders).await?;
        for (slot, connection, call) in ready {
            others.spawn(run(t.client().clone(), slot, connection, call, Some(barrier.clone())));
        }
        let mut ended: Vec<Option<Run>> = (0..count).map(|_| None).collect();
        if !holders.is_empty()
            && tokio::time::timeout(PATIENCE, drain(&mut others, &mut ended)).await.is_err()
        {
            self.held_up += 1;
        }
        holders.into_iter().for_each(Holder::open);
        drain(&mut others, &mut ended).await;
        drain(&mut gated, &mut ended).await;
        let keep = |(slot, connection, result): Run| {
            if result.is_ok() {
                self.connections[slot] = Some(connection);
            }
            result
        };
        Ok(ended.into_iter().flatten().map(keep).collect())
    }

    /// The racer's connection of the last round, or a new one.
    async fn connection(&mut self, client: &Client, slot: usize) -> Result<Connection> {
        if let Some(mut kept) = self.connections[slot].take()
            && kept.is_usable().await
        {
            return Ok(kept);
        }
        client.connect().await
    }
}

async fn run(
    client: Client,
    slot: usize,
    mut connection: Connection,
    call: Call,
    start: Option<Arc<Barrier>>,
) -> Run {
    let signed = client.sign(call);
    if let Some(start) = start {
        start.wait().await;
    }
    let result = connection.deliver_now(&client, signed).await;
    (slot, connection, result)
}

async fn drain(racers: &mut JoinSet<Run>, ended: &mut [Option<Run>]) {
    while let Some(done) = racers.join_next().await {
        // A racer that panics is a fault of the suite; the runner reports it as such.
        let run = done.expect("a racer does not panic");
        let slot = run.0;
        ended[slot] = Some(run);
    }
}

/// Waits until the provider has had the time to look at the gated requests: they are sent, and a few round trips
/// on another connection came after them.
async fn arrived(t: &Trial, key: &str, holders: &mut [Holder]) -> std::result::Result<(), Stop> {
    if holders.is_empty() {
        return Ok(());
    }
    for holder in holders {
        holder.reached().await;
    }
    for _ in 0..ROUND_TRIPS {
        t.send(Call::head(key)).await?;
    }
    Ok(())
}

/// How one racer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its write was acknowledged.
    Won,
    /// It was told that another was first.
    Beaten(u16),
    /// The provider does not offer the condition.
    Declined(u16),
    /// No answer, or one that says nothing: it may have taken effect.
    Unknown,
    /// An answer that fits none of these.
    Odd(u16),
}

/// Reads one racer's end; `beaten` lists the statuses that mean another was first.
pub(crate) fn ended(result: &Result<Answer>, beaten: &[u16]) -> Ended {
    match result {
        Err(_) => Ended::Unknown,
        Ok(answer) if answer.succeeded() => Ended::Won,
        Ok(answer) => match answer.status.as_u16() {
            // Copy and Complete may answer 200 and then an error: nothing is known.
            status if answer.status.is_success() || says_nothing(status) => Ended::Unknown,
            status if beaten.contains(&status) => Ended::Beaten(status),
            status @ (400 | 405 | 501) => Ended::Declined(status),
            status => Ended::Odd(status),
        },
    }
}

/// What the key holds after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// What this racer would have left.
    Of(usize),
    /// What was there before, or nothing.
    Before,
    /// Bytes that nobody wrote.
    Foreign,
}

/// The judgement of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// One winner, and the key holds what it left.
    Good,
    /// Too many answers are missing to say.
    Undecided,
    /// Wrong: what was seen, the class it shows, and the racer whose exchange shows it.
    Bad(String, Option<Class>, usize),
}

/// Exactly one racer may win, and the key must hold what it left.
pub(crate) fn judge(ends: &[Ended], holds: Holds) -> Round {
    let count = |wanted: fn(&Ended) -> bool| ends.iter().filter(|end| wanted(end)).count();
    let last = |wanted: fn(&Ended) -> bool| ends.iter().rposition(wanted).unwrap_or_default();
    let (winners, unknown) = (count(|e| *e == Ended::Won), count(|e| *e == Ended::Unknown));
    if let Some(odd) = ends.iter().position(|e| matches!(e, Ended::Odd(_))) {
        return Round::Bad(format!("{:?} for a racer", ends[odd]), None, odd);
    }
    if let Some(declined) = ends.iter().position(|e| matches!(e, Ended::Declined(_))) {
        return Round::Bad(format!("{:?} for a racer", ends[declined]), Some(Class::Refuses), declined);
    }
    let winner = last(|e| *e == Ended::Won);
    match winners {
        0 if unknown > 0 || ends.contains(&Ended::Beaten(409)) => Round::Undecided,
        0 => Round::Bad("nobody won".to_owned(), None, 0),
        1 if holds == Holds::Of(winner) => Round::Good,
        1 => {
            let other = match holds {
                Holds::Of(other) => {
                    format!("one winner, but the key holds what racer {other} left: {:?}", ends[other])
                }
                Holds::Before => "one winner, but the key does not hold what it left".to_owned(),
                Holds::Foreign => "one winner, but the key holds bytes that nobody wrote".to_owned(),
            };
            Round::Bad(other, Some(Class::Races), winner)
        }
        many => Round::Bad(
            format!("{many} of {} were told that they won", ends.len()),
            Some(Class::Races),
            winner,
        ),
    }
}

/// What a race saw over its rounds.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rounds: usize,
    undecided: usize,
    statuses: BTreeMap<String, usize>,
}

impl Tally {
    /// Adds a round.
    ///
    /// # Errors
    /// The failure that a bad round is.
    pub(crate) fn add(
        &mut self,
        ends: &[Ended],
        round: &Round,
        results: &[Result<Answer>],
    ) -> std::result::Result<(), Stop> {
        self.rounds += 1;
        for end in ends {
            let name = match end {
                Ended::Won => continue,
                Ended::Beaten(status) | Ended::Declined(status) | Ended::Odd(status) => status.to_string(),
                Ended::Unknown => "no answer or 5xx".to_owned(),
            };
            *self.statuses.entry(name).or_default() += 1;
        }
        match round {
            Round::Good => Ok(()),
            Round::Undecided => {
                self.undecided += 1;
                Ok(())
            }
            Round::Bad(got, _, racer) => Err(Stop::Fail(Failure {
                expected: "exactly one winner, and the key holds what it left".to_owned(),
                got: format!("round {}: {got}", self.rounds),
                exchange: results.get(*racer).and_then(|result| match result {
                    Ok(answer) => Some(answer.exchange.clone()),
                    Err(lost) => lost.exchange.clone(),
                }),
            })),
        }
    }

    /// A race is decided when three rounds of four were.
    ///
    /// # Errors
    /// The doubt, where too many were not.
    pub(crate) fn decided(&self) -> std::result::Result<(), Stop> {
        if self.undecided * 4 <= self.rounds {
            return Ok(());
        }
        let reason = format!("{} of {} rounds were not decided ({self})", self.undecided, self.rounds);
        Err(Stop::Inconclusive(Doubt { reason, exchange: None }))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds; losers", self.rounds)?;
        if self.statuses.is_empty() {
            return write!(f, ": none");
        }
        let each =
            self.statuses.iter().map(|(status, count)| format!(" {count} x {status}")).collect::<Vec<_>>();
        f.write_str(&each.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ended::{Beaten, Declined, Odd, Unknown, Won};

    #[track_caller]
    fn check(ends: &[Ended], holds: Holds, expected: &str) {
        let seen = match judge(ends, holds) {
            Round::Good => "good".to_owned(),
            Round::Undecided => "undecided".to_owned(),
            Round::Bad(got, class, racer) => {
                format!("{got} / {} / {racer}", class.map_or("-".to_owned(), |class| class.to_string()))
            }
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn judges_rounds() {
        check(&[Beaten(412), Won, Beaten(409)], Holds::Of(1), "good");
        check(&[Unknown, Won], Holds::Of(1), "good");
        check(
            &[Unknown, Won],
            Holds::Of(0),
            "one winner, but the key holds what racer 0 left: Unknown / races / 1",
        );
        check(
            &[Beaten(412), Won],
            Holds::Before,
            "one winner, but the key does not hold what it left / races / 1",
        );
        check(&[Won, Beaten(412), Won], Holds::Of(2), "2 of 3 were told that they won / races / 2");
        check(&[Beaten(412), Beaten(412)], Holds::Before, "nobody won / - / 0");
        check(&[Beaten(409), Beaten(409)], Holds::Before, "undecided");
        check(&[Unknown, Beaten(412)], Holds::Of(0), "undecided");
        check(&[Won, Declined(501)], Holds::Of(0), "Declined(501) for a racer / refuses / 1");
        check(&[Won, Odd(403)], Holds::Of(0), "Odd(403) for a racer / - / 1");
        check(
            &[Won, Beaten(412)],
            Holds::Foreign,
            "one winner, but the key holds bytes that nobody wrote / races / 0",
        );
    }

    #[test]
    fn a_quarter_of_the_rounds_may_stay_open() {
        let mut tally = Tally::default();
        for round in [Round::Undecided, Round::Good, Round::Good, Round::Good] {
            tally.add(&[Won, Beaten(412), Unknown], &round, &[]).expect("no round was bad");
        }
        assert!(tally.decided().is_ok());
        assert_eq!(tally.to_string(), "4 rounds; losers 4 x 412, 4 x no answer or 5xx");
        tally.add(&[], &Round::Undecided, &[]).expect("no round was bad");
        assert!(tally.decided().is_err());
    }
}
