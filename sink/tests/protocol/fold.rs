//! Fold, then next hint, then crash: what a start finds out is durable before its evidence can go away.

use std::sync::Arc;

use parking_lot::Mutex;
use sinks::error::SinkError;
use sinks::local::Checkpoints;
use sinks::model::checkpoint::Checkpoint;
use sinks::store::Pending;

use crate::calls::Bend;
use crate::world::{BATCHES, Pace, World};

/// A mutant of the record's keeper: it believes that it folded, and writes down only later acknowledgements.
#[derive(Debug)]
struct FoldInMemory {
    disk: Arc<dyn Checkpoints>,
    /// What this life believes.
    memory: Mutex<Option<Checkpoint>>,
}

impl FoldInMemory {
    fn new(disk: Arc<dyn Checkpoints>) -> Arc<Self> {
        Arc::new(Self { disk, memory: Mutex::default() })
    }
}

impl Checkpoints for FoldInMemory {
    fn load(&self) -> Pending<'_, Result<Checkpoint, SinkError>> {
        Box::pin(async {
            let believed = self.memory.lock().clone();
            match believed {
                Some(checkpoint) => Ok(checkpoint),
                None => self.disk.load().await,
            }
        })
    }

    fn save(&self, checkpoint: Checkpoint) -> Pending<'_, Result<(), SinkError>> {
        Box::pin(async {
            let disk = self.disk.load().await?;
            let folds = disk.hint.is_some() && checkpoint.hint.is_none();
            *self.memory.lock() = Some(checkpoint.clone());
            if folds {
                return Ok(());
            }
            self.disk.save(Checkpoint { acked: disk.acked, ..checkpoint }).await
        })
    }
}

/// The call at which a life of `last` batches makes the write that `stops` picks by its number from the end.
fn calls_of(world: &Arc<World>, last: u64) -> u64 {
    world.live(&[], Pace::OneByOne, last).calls
}

/// A commit's last calls are: hint, swap, acknowledgement.
const FROM_ACK: u64 = 1;
const FROM_SWAP: u64 = 2;

/// What the lives after a fold had to put right, on the keeper of records that `keeper` makes.
fn lives(keeper: impl Fn(&Arc<World>) -> Arc<dyn Checkpoints>) -> [Vec<&'static str>; 3] {
    let (one, two) = (calls_of(&World::new(), 1), calls_of(&World::new(), 2));
    let world = World::new();
    // The second batch is committed, and its process dies before the acknowledgement.
    assert!(world.live(&[(two - FROM_ACK, Bend::StopBefore)], Pace::OneByOne, 2).end.is_none());
    assert_eq!(world.check("after the first life"), 2);
    // A start folds; nothing else happens.
    let folded = world.live_on(&[], Pace::OneByOne, 2, keeper(&world));
    assert!(matches!(folded.end, Some(Ok(()))), "{:?}", folded.end);
    // The next batch gets as far as its hint. In this life nothing is to be folded: its calls are those of a
    // take-over and one batch.
    let probe = World::new();
    probe.live(&[], Pace::OneByOne, 2);
    let third = calls_of(&probe, 3);
    assert!(third > one / 2);
    let hinted = world.live_on(&[(third - FROM_SWAP, Bend::StopBefore)], Pace::OneByOne, 3, keeper(&world));
    let after = world.live_on(&[], Pace::OneByOne, BATCHES, keeper(&world));
    assert!(matches!(after.end, Some(Ok(()))), "{:?}", after.end);
    assert_eq!(world.check("after the last life"), BATCHES);
    [folded.steps, hinted.steps, after.steps]
}

fn fold_is_durable(keeper: impl Fn(&Arc<World>) -> Arc<dyn Checkpoints>) -> Result<(), String> {
    let expected =
        [vec!["S3 acquire", "S7 fold"], vec!["S3 acquire"], vec!["S3 acquire", "S8 drop dead hint"]];
    let found = lives(keeper);
    if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
}

#[test]
fn a_fold_is_durable_before_the_next_hint() {
    assert_eq!(fold_is_durable(|world| world.checkpoints.clone()), Ok(()));
}

#[test]
fn a_fold_in_memory_only_is_caught() {
    let found = fold_is_durable(|world| FoldInMemory::new(world.checkpoints.clone()));
    assert!(found.is_err(), "the regression test does not tell a durable fold from one in memory");
}

#[test]
fn dying_right_after_the_fold_and_again_converges() {
    let two = calls_of(&World::new(), 2);
    let folded = {
        let world = World::new();
        world.live(&[(two - FROM_ACK, Bend::StopBefore)], Pace::OneByOne, 2);
        world.live(&[], Pace::OneByOne, 2)
    };
    for call in 0..folded.calls {
        for bend in [Bend::StopBefore, Bend::StopAfter] {
            let world = World::new();
            world.live(&[(two - FROM_ACK, Bend::StopBefore)], Pace::OneByOne, 2);
            for _ in 0..2 {
                world.live(&[(call, bend)], Pace::OneByOne, 2);
            }
            world.check_end(&format!("{bend:?} at call {call}, twice in a row"));
        }
    }
}
