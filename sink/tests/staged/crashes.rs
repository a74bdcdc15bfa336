//! Crash at every call, enumerated: before and after every request to the bucket and every file of the directory,
//! once and twice in a row, with both kinds of repeated Complete. To stop before a call is to stop after the one
//! before it: nothing durable lies between.

use sinks::stage::StageError;
use sinks::stage::mutant::Chosen;
use sinks::store::RepeatedComplete;

use crate::bent::Bend;
use crate::world::World;

const KINDS: [RepeatedComplete; 2] = [RepeatedComplete::SameAnswer, RepeatedComplete::NoSuchUpload];

fn world(repeated: RepeatedComplete) -> std::sync::Arc<World> {
    World::new(2, repeated, Chosen::default())
}

/// Of one subtask, for what is quadratic.
fn small(repeated: RepeatedComplete) -> std::sync::Arc<World> {
    World::new(1, repeated, Chosen::default())
}

#[test]
fn every_crash_converges() {
    for repeated in KINDS {
        let calls = world(repeated).live(&[]).calls;
        let stops = [(0, Bend::StopBefore)].into_iter().chain((0..calls).map(|at| (at, Bend::StopAfter)));
        for stop in stops {
            let context = format!("{repeated:?}: {stop:?}");
            let stopped = world(repeated);
            assert!(stopped.live(&[stop]).end.is_none(), "{context}");
            stopped.check(&context);
            stopped.check_end(&context);
        }
        assert!(calls > 60, "{calls} calls are not all");
    }
}

/// One crash at every call of a first life, and at every call of a second.
fn crash_twice(repeated: RepeatedComplete) {
    let calls = small(repeated).live(&[]).calls;
    let mut twice = 0;
    for first in 0..calls {
        for second in 0.. {
            let context = format!("{repeated:?}: stopped after call {first}, then after call {second}");
            let stopped = small(repeated);
            stopped.live(&[(first, Bend::StopAfter)]);
            if stopped.live(&[(second, Bend::StopAfter)]).end.is_some() {
                break;
            }
            stopped.check(&context);
            stopped.check_end(&context);
            twice += 1;
        }
    }
    assert!(twice >= 1_000, "{twice} double crashes are not all");
}

#[test]
fn every_second_crash_converges_where_a_repeated_complete_is_answered_alike() {
    crash_twice(RepeatedComplete::SameAnswer);
}

#[test]
fn every_second_crash_converges_where_a_repeated_complete_is_no_such_upload() {
    crash_twice(RepeatedComplete::NoSuchUpload);
}

/// A Complete that was on its way when its process died lands at any later moment.
#[test]
fn a_complete_of_the_dead_may_land_at_any_time() {
    for repeated in KINDS {
        let calls = small(repeated).live(&[]).calls;
        for (at, delay) in (0..calls).flat_map(|at| (1..40).step_by(3).map(move |delay| (at, delay))) {
            let context = format!("{repeated:?}: call {at} lands {delay} calls after its process died");
            let stopped = small(repeated);
            assert!(stopped.live(&[(at, Bend::StopLate(delay))]).end.is_none(), "{context}");
            stopped.check(&context);
            stopped.check_end(&context);
        }
    }
}

/// Every disturbance of every call: the same life goes on, or says why it can't and the next one does.
#[test]
fn every_call_may_fail_once() {
    let bends = [
        Bend::AnswerLost,
        Bend::RequestLost,
        Bend::Twice,
        Bend::Denied,
        Bend::Late(1),
        Bend::Late(3),
        Bend::Away(6),
        Bend::DoneAndMissing,
    ];
    for repeated in KINDS {
        let calls = small(repeated).live(&[]).calls;
        for (at, bend) in (0..calls).flat_map(|at| bends.iter().map(move |&bend| (at, bend))) {
            let context = format!("{repeated:?}: {bend:?} at call {at}");
            let disturbed = small(repeated);
            let lived = disturbed.live(&[(at, bend)]);
            match (bend, &lived.end) {
                (_, Some(Ok(()))) => disturbed.check_complete(&context),
                (Bend::Denied | Bend::DoneAndMissing, Some(Err(StageError::Store(_)))) => {}
                (_, end) => panic!("{end:?}: {context}"),
            }
            disturbed.check(&context);
            disturbed.check_end(&context);
        }
    }
}

/// The store is away while a recovery needs it: for longer than a process waits.
#[test]
fn the_store_away_during_recovery_is_waited_for_and_nothing_is_concluded() {
    for repeated in KINDS {
        let calls = world(repeated).live(&[]).calls;
        let mut needed = 0;
        for first in 0..calls {
            let context = format!("{repeated:?}: stopped after call {first}, then the store away");
            let stopped = world(repeated);
            stopped.live(&[(first, Bend::StopAfter)]);
            let before = stopped.visible();
            let away = (0..300).map(|at| (at, Bend::RequestLost)).chain([(300, Bend::StopBefore)]);
            let lived = stopped.live(&away.collect::<Vec<_>>());
            match lived.end {
                // Either recovery needs the store and says so, or the job stages nothing and goes on trying, or
                // all is done.
                Some(Err(StageError::Store(error))) => {
                    assert_eq!(error.exit_code(), 7, "{context}");
                    needed += 1;
                }
                None => {}
                Some(Ok(())) => stopped.check_complete(&context),
                other => panic!("{other:?}: {context}"),
            }
            assert_eq!(stopped.visible(), before, "{context}");
            stopped.check_end(&context);
        }
        assert!(needed > 4, "{needed} recoveries needed the store");
    }
}
