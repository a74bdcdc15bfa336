//! Is a history of one key that of a register? Wing and Gong's search with a memo.
//!
//! A history is linearizable when each operation can be given one moment between its start and its end so that,
//! done in this order, every answer is the right one. An operation whose answer was lost may have taken effect at
//! any moment after its start, or never.

use std::collections::HashSet;

/// Operations in one history: the search keeps a bit for each.
pub(crate) const MOST_OPERATIONS: usize = 128;
/// States looked at before a history is given up as too hard: half a second's work.
const MOST_STATES: usize = 200_000;

/// A body that one write has, and no other.
pub(crate) type Value = u32;

/// What came back to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was acknowledged.
    Done,
    /// 412: its condition did not hold.
    Beaten,
    /// 404: the key was absent.
    Missing,
    /// 409: nothing was written, and nothing is said of the state.
    Conflict,
    /// No answer: it may have taken effect, then or later.
    Lost,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A read, and what it gave; `None` for an absent key.
    Read(Option<Value>),
    /// A write under the condition that the key is absent.
    Create(Value, End),
    /// A write under the condition that the key holds the first value.
    Swap(Value, Value, End),
    /// A write without a condition.
    Write(Value, End),
    /// A delete without a condition.
    Delete(End),
}

/// An operation with the order of its start and end among all starts and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub start: u64,
    pub end: u64,
    pub act: Act,
}

/// The judgement of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is that of a register.
    Linearizable,
    /// It is not: at the furthest point of the search, this operation could not be given a moment.
    Broken(usize),
    /// The search was given up.
    TooHard,
}

type State = Option<Value>;

/// The states that an operation may leave, from a state; none if its answer does not fit the state.
fn after(act: Act, state: State) -> [Option<State>; 2] {
    let when = |fits: bool, next: State| [fits.then_some(next), None];
    // An effect that may or may not have happened.
    let maybe = |holds: bool, next: State| [Some(state), holds.then_some(next)];
    match act {
        Act::Read(value) => when(state == value, state),
        Act::Create(to, end) => match end {
            End::Done => when(state.is_none(), Some(to)),
            End::Beaten => when(state.is_some(), state),
            End::Missing | End::Conflict => when(true, state),
            End::Lost => maybe(state.is_none(), Some(to)),
        },
        Act::Swap(from, to, end) => match end {
            End::Done => when(state == Some(from), Some(to)),
            End::Beaten => when(state != Some(from), state),
            End::Missing => when(state.is_none(), state),
            End::Conflict => when(true, state),
            End::Lost => maybe(state == Some(from), Some(to)),
        },
        Act::Write(to, end) => match end {
            End::Done => when(true, Some(to)),
            End::Lost => maybe(true, Some(to)),
            End::Beaten | End::Missing | End::Conflict => when(true, state),
        },
        Act::Delete(end) => match end {
            End::Done => when(true, None),
            End::Lost => maybe(true, None),
            End::Beaten | End::Missing | End::Conflict => when(true, state),
        },
    }
}

fn is_lost(act: Act) -> bool {
    matches!(
        act,
        Act::Create(_, End::Lost)
            | Act::Swap(_, _, End::Lost)
            | Act::Write(_, End::Lost)
            | Act::Delete(End::Lost)
    )
}

/// Judges a history that begins with an absent key. At most [`MOST_OPERATIONS`] are looked at; more are too hard.
pub(crate) fn judge(events: &[Event]) -> Verdict {
    if events.len() > MOST_OPERATIONS {
        return Verdict::TooHard;
    }
    let known = mask(events, |event| !is_lost(event.act));
    let mut seen = HashSet::new();
    let mut open: Vec<(u128, State)> = vec![(0, None)];
    let mut furthest = 0_u128;
    while let Some((done, state)) = open.pop() {
        if done & known == known {
            return Verdict::Linearizable;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        if seen.len() > MOST_STATES {
            return Verdict::TooHard;
        }
        if (done & known).count_ones() > (furthest & known).count_ones() {
            furthest = done;
        }
        // Whatever comes next began before the first end of those that are still to come.
        let horizon =
            pending(events, done).filter(|(_, event)| !is_lost(event.act)).map(|(_, e)| e.end).min();
        for (at, event) in pending(events, done) {
            if horizon.is_some_and(|end| event.start > end) {
                continue;
            }
            let next = after(event.act, state).into_iter().flatten();
            open.extend(next.map(|next| (done | (1 << at), next)));
        }
    }
    let stuck = pending(events, furthest).filter(|(_, event)| !is_lost(event.act)).min_by_key(|(_, e)| e.end);
    Verdict::Broken(stuck.map_or(0, |(at, _)| at))
}

fn mask(events: &[Event], wanted: impl Fn(&Event) -> bool) -> u128 {
    (0..).zip(events).filter(|(_, event)| wanted(event)).fold(0, |mask, (at, _)| mask | (1_u128 << at))
}

fn pending(events: &[Event], done: u128) -> impl Iterator<Item = (usize, &Event)> {
    (0..).zip(events).filter(move |(at, _)| done & (1_u128 << at) == 0)
}

#[cfg(test)]
mod tests {
    use super::Act::{Create, Delete, Read, Swap, Write};
    use super::End::{Beaten, Conflict, Done, Lost, Missing};
    use super::*;
    use proptest::prelude::*;

    fn event((start, end, act): &(u64, u64, Act)) -> Event {
        Event { start: *start, end: *end, act: *act }
    }

    #[track_caller]
    fn good(history: &[(u64, u64, Act)]) {
        assert_eq!(judge(&history.iter().map(event).collect::<Vec<_>>()), Verdict::Linearizable);
    }

    #[track_caller]
    fn bad(history: &[(u64, u64, Act)], stuck: usize) {
        assert_eq!(judge(&history.iter().map(event).collect::<Vec<_>>()), Verdict::Broken(stuck));
    }

    #[test]
    fn good_histories() {
        good(&[]);
        good(&[
            (0, 1, Read(None)),
            (2, 3, Create(1, Done)),
            (4, 5, Read(Some(1))),
            (6, 7, Create(2, Beaten)),
        ]);
        // Overlapping, so either order will do.
        good(&[(0, 9, Create(1, Done)), (1, 2, Read(None)), (3, 4, Read(Some(1)))]);
        good(&[(0, 9, Create(1, Beaten)), (1, 8, Create(2, Done)), (10, 11, Read(Some(2)))]);
        good(&[
            (0, 1, Create(1, Done)),
            (2, 9, Swap(1, 2, Done)),
            (3, 8, Swap(1, 3, Beaten)),
            (10, 11, Read(Some(2))),
        ]);
        good(&[(0, 1, Create(1, Done)), (2, 9, Swap(1, 3, Conflict)), (3, 8, Read(Some(1)))]);
        good(&[(0, 1, Write(1, Done)), (2, 3, Delete(Done)), (4, 5, Swap(1, 2, Missing))]);
    }

    #[test]
    fn a_lost_write_may_land_late_or_never() {
        good(&[(0, 1, Create(1, Lost)), (2, 3, Read(None)), (4, 5, Read(Some(1)))]);
        good(&[(0, 1, Create(1, Lost)), (2, 3, Read(None)), (4, 5, Create(2, Done))]);
        good(&[
            (0, 1, Write(1, Done)),
            (2, 3, Swap(1, 2, Lost)),
            (4, 5, Swap(1, 3, Beaten)),
            (6, 7, Read(Some(2))),
        ]);
        // It lands once, not twice.
        bad(&[(0, 1, Create(1, Lost)), (2, 3, Read(Some(1))), (4, 5, Read(None))], 2);
    }

    #[test]
    fn bad_histories() {
        // A stale read.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Read(None))], 1);
        // Two creators were told that they won.
        bad(&[(0, 9, Create(1, Done)), (1, 8, Create(2, Done))], 0);
        // A lost update: two swaps from one value.
        bad(&[(0, 1, Write(1, Done)), (2, 9, Swap(1, 2, Done)), (3, 8, Swap(1, 3, Done))], 1);
        // 412, but applied.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Create(2, Beaten)), (4, 5, Read(Some(2)))], 2);
        // 200, but not applied.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Swap(1, 2, Done)), (4, 5, Read(Some(1)))], 2);
        // Readers that see two writes in different orders.
        bad(
            &[
                (0, 9, Write(1, Done)),
                (0, 9, Write(2, Done)),
                (1, 2, Read(Some(1))),
                (3, 4, Read(Some(2))),
                (5, 6, Read(Some(1))),
            ],
            4,
        );
        // A value that nobody wrote.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Read(Some(7)))], 1);
        // A refusal of a swap that nothing stood against.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Swap(1, 2, Beaten))], 1);
        // 404 for a key that was there all the time.
        bad(&[(0, 1, Create(1, Done)), (2, 3, Swap(1, 2, Missing))], 1);
    }

    #[test]
    fn too_many_operations_are_not_judged() {
        let reads = vec![Event { start: 0, end: 1, act: Read(None) }; MOST_OPERATIONS + 1];
        assert_eq!(judge(&reads), Verdict::TooHard);
    }

    /// Operations done one after the other by a real register, then given longer spans: always linearizable.
    fn done(steps: &[(u8, u32, u8)]) -> Vec<Event> {
        let mut state = None;
        let mut events = Vec::new();
        for (at, (kind, from, stretch)) in (0..).zip(steps) {
            let (new, from) = (1000 + at, state.filter(|_| from % 2 == 0).unwrap_or(*from));
            let act = match kind % 5 {
                0 => Read(state),
                1 if state.is_none() => Create(new, Done),
                1 => Create(new, Beaten),
                2 if state == Some(from) => Swap(from, new, Done),
                2 if state.is_none() => Swap(from, new, Missing),
                2 => Swap(from, new, Beaten),
                3 => Write(new, Done),
                _ => Delete(Done),
            };
            state = after(act, state)[0].expect("the answer fits");
            let moment = 100 + u64::from(at) * 10;
            let span = u64::from(*stretch);
            events.push(Event { start: moment - span, end: moment + span, act });
        }
        events
    }

    proptest! {
        #[test]
        fn a_register_is_a_register(steps in prop::collection::vec((any::<u8>(), 0u32..4, 0u8..35), 0..40)) {
            prop_assert_eq!(judge(&done(&steps)), Verdict::Linearizable);
        }

        /// A read of a value that is long gone is found wherever it stands.
        #[test]
        fn a_stale_read_is_found(steps in prop::collection::vec((any::<u8>(), 0u32..4, 0u8..35), 0..30)) {
            let mut events = vec![
                Event { start: 0, end: 1, act: Write(1, Done) },
                Event { start: 2, end: 3, act: Write(2, Done) },
            ];
            let rest = done(&steps);
            events.push(Event { start: 4, end: 5, act: Delete(Done) });
            let late = 1000 + rest.len() as u64 * 10;
            events.extend(rest);
            events.push(Event { start: late, end: late + 1, act: Read(Some(1)) });
            prop_assert!(matches!(judge(&events), Verdict::Broken(_)));
        }
    }
}
