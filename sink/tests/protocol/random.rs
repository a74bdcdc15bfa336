//! Whole histories by chance: several processes, several things that go wrong in each, in any combination.

use crate::calls::Bend;
use crate::world::{BATCHES, Pace, World};

pub fn bend(random: &mut fastrand::Rng) -> Bend {
    match random.u8(..12) {
        0 => Bend::StopBefore,
        1 => Bend::StopAfter,
        2 => Bend::StopLate(random.u64(1..30)),
        3 | 4 => Bend::AnswerLost,
        5 => Bend::RequestLost,
        6 | 7 => Bend::Late(random.u64(1..30)),
        8 => Bend::Conflict,
        9 => Bend::Status([429, 500, 503][random.usize(..3)]),
        10 => Bend::Twice,
        _ => Bend::NoTag,
    }
}

/// One history; `cargo nextest run -p sinks random` runs them all, this line one: `history(SEED)`.
/// Its crashes, and how many commits a later start found landed.
fn history(seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (world, mut crashes, mut folds) = (World::new(), 0, 0);
    for life in 0..random.u64(1..6) {
        let pace = if random.bool() { Pace::OneByOne } else { Pace::Together };
        let bends: Vec<_> = (0..random.u64(1..7)).map(|_| (random.u64(..36), bend(&mut random))).collect();
        let context = format!("seed {seed}, life {life}, {pace:?}, {bends:?}");
        let lived = world.live(&bends, pace, BATCHES);
        folds += usize::from(lived.steps.contains(&"S7 fold"));
        match lived.end {
            None => crashes += 1,
            Some(Ok(())) => assert_eq!(world.check(&context), BATCHES, "{context}"),
            Some(Err(error)) => panic!("{error}: {context}"),
        }
        world.check(&context);
    }
    world.check_end(&format!("seed {seed}"));
    (crashes, folds)
}

#[test]
fn any_history_ends_well() {
    let (crashes, folds) = (0..1_000).map(history).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(
        crashes >= 500 && folds >= 40,
        "{crashes} crashes and {folds} folds in a thousand histories are few"
    );
}
