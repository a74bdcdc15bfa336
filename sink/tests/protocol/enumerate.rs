//! Crash at every step, enumerated: before and after every call to the store and to the local record.

use crate::calls::Bend;
use crate::world::{Pace, World};

/// A first batch, and one that comes after another.
const BATCHES: u64 = 2;

/// One crash at every place of a first life, and at every place of a second.
fn crash_everywhere(pace: Pace, bends: &[Bend], prepare: impl Fn() -> std::sync::Arc<World>) -> (u64, u64) {
    let calls = prepare().live(&[], pace, BATCHES).calls;
    let (mut once, mut twice) = (0, 0);
    for (first, &bend) in (0..calls).flat_map(|at| bends.iter().map(move |bend| (at, bend))) {
        let context = format!("{pace:?}: {bend:?} at call {first}");
        let world = prepare();
        assert!(world.live(&[(first, bend)], pace, BATCHES).end.is_none(), "{context}");
        world.check(&context);
        world.check_end_at(BATCHES, &context);
        once += 1;
        for (second, &again) in (0..).flat_map(|at| bends.iter().map(move |bend| (at, bend))) {
            let context = format!("{context}, then {again:?} at call {second}");
            let world = prepare();
            world.live(&[(first, bend)], pace, BATCHES);
            let lived = world.live(&[(second, again)], pace, BATCHES);
            if lived.end.is_some() {
                break;
            }
            world.check(&context);
            world.check_end_at(BATCHES, &context);
            twice += 1;
        }
    }
    (once, twice)
}

/// A stream that another process left behind, with one batch in it.
fn left_behind() -> std::sync::Arc<World> {
    let world = World::new();
    let lived = world.live(&[], Pace::OneByOne, 1);
    assert!(matches!(lived.end, Some(Ok(()))), "{:?}", lived.end);
    world
}

const STOPS: [Bend; 2] = [Bend::StopBefore, Bend::StopAfter];

#[test]
fn every_crash_from_an_empty_bucket_on_converges() {
    let (once, twice) = crash_everywhere(Pace::OneByOne, &STOPS, World::new);
    assert!(once >= 40 && twice >= 1200, "{once} single and {twice} double crashes are not all");
}

#[test]
fn every_crash_of_a_take_over_converges() {
    let (once, twice) = crash_everywhere(Pace::OneByOne, &STOPS, left_behind);
    assert!(once >= 28 && twice >= 850, "{once} single and {twice} double crashes are not all");
}

#[test]
fn every_crash_of_a_group_commit_converges() {
    let (once, twice) = crash_everywhere(Pace::Together, &STOPS, World::new);
    assert!(once >= 36 && twice >= 1000, "{once} single and {twice} double crashes are not all");
}

/// A request that was on its way when its process died takes effect at any later moment.
#[test]
fn requests_of_the_dead_may_arrive_at_any_time() {
    for pace in [Pace::OneByOne, Pace::Together] {
        let calls = World::new().live(&[], pace, BATCHES).calls;
        for (at, delay) in (0..calls).flat_map(|at| (1..calls + 4).map(move |delay| (at, delay))) {
            let context = format!("{pace:?}: call {at} takes effect {delay} calls after its process died");
            let world = World::new();
            assert!(world.live(&[(at, Bend::StopLate(delay))], pace, BATCHES).end.is_none(), "{context}");
            world.check(&context);
            world.check_end_at(BATCHES, &context);
        }
    }
}
