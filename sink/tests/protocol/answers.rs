//! Answers that are lost, late, or no answer: a process that lives on gets every batch acknowledged, once.

use crate::calls::Bend;
use crate::world::{BATCHES, Pace, World};

const TROUBLE: [Bend; 10] = [
    Bend::AnswerLost,
    Bend::RequestLost,
    Bend::Late(1),
    Bend::Late(2),
    Bend::Late(7),
    Bend::Conflict,
    Bend::Status(429),
    Bend::Status(503),
    Bend::Twice,
    Bend::NoTag,
];

fn survives(world: &std::sync::Arc<World>, bends: &[(u64, Bend)], pace: Pace) -> u64 {
    let context = format!("{pace:?}: {bends:?}");
    let lived = world.live(bends, pace, BATCHES);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}: {context}", lived.end);
    assert_eq!(world.acked.lock().len() as u64, BATCHES, "not all acknowledged: {context}");
    world.check_end(&context);
    lived.calls
}

#[test]
fn one_bad_answer_at_any_call_costs_nothing() {
    for pace in [Pace::OneByOne, Pace::Together] {
        let calls = survives(&World::new(), &[], pace);
        for (at, bend) in (0..calls).flat_map(|at| TROUBLE.map(|bend| (at, bend))) {
            survives(&World::new(), &[(at, bend)], pace);
        }
    }
}

#[test]
fn two_bad_answers_at_any_two_calls_cost_nothing() {
    let calls = survives(&World::new(), &[], Pace::OneByOne);
    let pairs = [Bend::AnswerLost, Bend::Late(2)];
    for (first, bend) in (0..calls).flat_map(|at| pairs.map(|bend| (at, bend))) {
        for (second, again) in (first + 1..calls + 2).flat_map(|at| pairs.map(|bend| (at, bend))) {
            survives(&World::new(), &[(first, bend), (second, again)], Pace::OneByOne);
        }
    }
}

#[test]
fn an_outage_of_any_call_and_all_after_it_is_sat_out() {
    let calls = survives(&World::new(), &[], Pace::OneByOne);
    for (at, bend) in (0..calls).flat_map(|at| [Bend::RequestLost, Bend::AnswerLost].map(|bend| (at, bend))) {
        let outage: Vec<_> = (at..at + 12).map(|call| (call, bend)).collect();
        survives(&World::new(), &outage, Pace::OneByOne);
    }
}
