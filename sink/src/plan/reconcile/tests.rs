//! Every baseline of a small model: crashed after every write of a start, it ends where it ends without crash.

use std::collections::BTreeMap;

use super::*;
use crate::model::checkpoint::Hint;
use crate::model::head::{Lease, Watermark};
use crate::model::json::Extra;
use crate::model::position::{Lineage, PositionType};
use crate::plan::ownership::{self, Identity};

fn position(seq: u64) -> Position {
    let lineage = Lineage::new("shop", "7301234567890123456/1", 1).unwrap();
    Position::parse(PositionType::PgLsn, lineage, &format!("0/{seq:X}0"), 0).unwrap()
}

fn evidence(seq: u64, writer: &str) -> Evidence {
    let nonce = Digest::of(format!("{writer} {seq}").as_bytes());
    let nonce = Nonce::from_bytes(nonce.as_bytes()[..16].try_into().unwrap());
    Evidence {
        nonce: Some(nonce),
        digest: position(seq).digest(),
        batch_digest: Digest::of(format!("{writer}'s batch {seq}").as_bytes()),
    }
}

fn hint(seq: u64, writer: &str) -> Hint {
    let Evidence { nonce, digest, batch_digest } = evidence(seq, writer);
    Hint { seq, nonce: nonce.unwrap(), digest, batch_digest }
}

/// Everything durable, and the one clock that counts processes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    head: Option<Head>,
    /// Entries of the chain, with the entry's own position.
    entries: BTreeMap<u64, (Evidence, Position)>,
    local: Checkpoint,
    lives: u8,
}

/// One process.
struct Life {
    cfg: Cfg,
    latches: Latches,
    me: Identity,
}

impl World {
    fn start(&mut self) -> Life {
        self.lives += 1;
        let writer_id = WriterId::from_bytes([self.lives; 16]);
        let (pipeline, prefix) = ("orders".to_owned(), "p".to_owned());
        Life {
            cfg: Cfg {
                writer_id,
                pipeline: pipeline.clone(),
                prefix: prefix.clone(),
                minor: 0,
                upgrade: true,
            },
            latches: Latches::default(),
            me: Identity { writer_id, instance: "test".to_owned(), pipeline, prefix },
        }
    }

    fn baseline(&self) -> Baseline {
        let bucket = match &self.head {
            None => Bucket::Empty,
            Some(head) => Bucket::Stream(Box::new(Stream {
                head: head.clone(),
                watermark: self.entries.last_key_value().map(|(_, (_, position))| position.clone()),
                at_hint: self.at(self.local.hint.as_ref().map(|hint| hint.seq)),
                at_acked: self.at(self.local.acked.as_ref().map(|acked| acked.seq)),
            })),
        };
        Baseline { bucket, local: self.local.clone() }
    }

    fn at(&self, seq: Option<u64>) -> Option<Evidence> {
        self.entries.get(&seq?).map(|(evidence, _)| evidence.clone())
    }

    fn swap(&mut self, life: &mut Life, next: impl FnOnce(&Head, &Life, Nonce) -> Head) {
        let head = self.head.as_ref().unwrap();
        let mut nonce = [self.lives; 16];
        nonce[0] = u8::try_from(head.rev).unwrap();
        let nonce = Nonce::from_bytes(nonce);
        life.latches.written.push(nonce);
        self.head = Some(next(head, life, nonce));
    }

    fn commit(&mut self, life: &mut Life, evidence: Evidence, position: Position) {
        self.swap(life, |head, _, nonce| {
            let mut next = head.successor(nonce, crate::model::head::Intent::Publish, 0);
            next.seq += 1;
            next.watermark = Some(watermark(&position));
            next
        });
        let seq = self.head.as_ref().unwrap().seq;
        self.entries.insert(seq, (evidence, position));
    }

    /// One atomic write of a step's action; true once the action is over. What `run/` does, in the small.
    fn write(&mut self, step: &Step, life: &mut Life, nth: usize) -> bool {
        match (step, nth) {
            (Step::CreateStream, _) => {
                let nonce = Nonce::from_bytes([self.lives; 16]);
                life.latches.written.push(nonce);
                life.latches.acquired = Some(1);
                self.head = Some(ownership::creation(&life.me, stream_id(), nonce, 0));
            }
            (Step::AdoptStreamId { stream_id }, _) => self.local.stream_id = Some(*stream_id),
            (Step::Acquire { epoch, .. }, _) => {
                self.swap(life, |head, life, nonce| ownership::acquisition(head, &life.me, nonce, 0));
                life.latches.acquired = Some(epoch + 1);
            }
            (Step::UpgradeMinor { to, .. }, _) => {
                self.swap(life, |head, _, nonce| ownership::upgraded(head, *to, nonce, 0));
            }
            (Step::EndLease { .. }, _) => {
                self.swap(life, |head, _, nonce| ownership::lease_ended(head, nonce, 0));
            }
            (Step::RecordLegacyWindow { to, .. }, 0) => {
                let seq = self.head.as_ref().unwrap().seq + 1;
                let Evidence { nonce, batch_digest, .. } = evidence(seq, "rebase");
                let nonce = nonce.unwrap();
                self.local.hint = Some(Hint { seq, nonce, digest: to.digest, batch_digest });
                return false;
            }
            (Step::RecordLegacyWindow { to, .. }, 1) => {
                let hint = self.local.hint.clone().unwrap();
                let (nonce, digest, batch_digest) = (Some(hint.nonce), hint.digest, hint.batch_digest);
                let evidence = Evidence { nonce, digest, batch_digest };
                self.commit(life, evidence, Position::try_from(&**to).unwrap());
                return false;
            }
            (Step::RecordLegacyWindow { .. } | Step::Fold { .. } | Step::AdoptAhead { .. }, _) => {
                let (seq, (_, position)) = self.entries.last_key_value().unwrap();
                let position = PositionRecord::from(position);
                self.local.acked = Some(Acked { position, seq: *seq });
                self.local.mode = Mode::DurableV2;
                self.local.hint = None;
            }
            (Step::DropDeadHint { .. }, _) => self.local.hint = None,
        }
        true
    }

    /// Where a start ends, if it crashes after `crash` writes; nothing then.
    fn live(&mut self, crash: Option<usize>) -> Option<Result<End, SinkError>> {
        let mut life = self.start();
        let mut writes = 0;
        let mut steps: Vec<&'static str> = Vec::new();
        loop {
            let baseline = self.baseline();
            let decided = reconcile(&baseline, &life.latches, &life.cfg);
            assert_eq!(decided, reconcile(&baseline, &life.latches, &life.cfg), "not a function");
            let step = match decided {
                Err(error) => return Some(Err(error)),
                Ok(None) => return Some(Ok(self.end(&life))),
                Ok(Some(step)) => step,
            };
            assert!(!steps.contains(&step.name()), "{step} did not clear: {steps:?}");
            steps.push(step.name());
            assert!(steps.len() <= 12, "{steps:?}");
            let mut nth = 0;
            loop {
                if crash == Some(writes) {
                    return None;
                }
                writes += 1;
                if self.write(&step, &mut life, nth) {
                    break;
                }
                nth += 1;
            }
        }
    }

    fn end(&self, life: &Life) -> End {
        let head = self.head.as_ref().unwrap();
        assert_eq!(head.owner.writer_id, life.cfg.writer_id, "a session that does not own its stream");
        assert_eq!(head.lease, None);
        let watermark = head.watermark.as_ref().map(|watermark| watermark.digest);
        assert_eq!(self.local.acked.as_ref().map(|acked| acked.position.digest), watermark);
        assert_eq!(self.local.hint, None);
        End { seq: head.seq, watermark, local: self.local.clone() }
    }
}

/// What a start ends with, whoever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    seq: u64,
    watermark: Option<Digest>,
    local: Checkpoint,
}

fn stream_id() -> StreamId {
    StreamId::from_bytes([9; 16])
}

fn watermark(position: &Position) -> Watermark {
    Watermark {
        position_type: position.position_type().to_string(),
        digest: position.digest(),
        lineage_digest: position.lineage_digest(),
        extra: Extra::new(),
    }
}

/// HEAD at entry 2 by another process, this host's record in every state.
fn worlds() -> Vec<World> {
    let me = Identity {
        writer_id: WriterId::from_bytes([200; 16]),
        instance: "before".to_owned(),
        pipeline: "orders".to_owned(),
        prefix: "p".to_owned(),
    };
    let mut worlds = Vec::new();
    for seq in [0_u64, 2] {
        let mut head = ownership::creation(&me, stream_id(), Nonce::from_bytes([1; 16]), 0);
        head.epoch = 3;
        head.seq = seq;
        let entries: BTreeMap<_, _> =
            (1..=seq).map(|seq| (seq, (evidence(seq, "mine"), position(seq)))).collect();
        head.watermark = entries.last_key_value().map(|(_, (_, position))| watermark(position));
        let lease = Lease {
            lease_id: Nonce::from_bytes([7; 16]),
            actor: "orphans".to_owned(),
            epoch: 3,
            ttl_ms: 60_000,
            granted_rev: 1,
            extra: Extra::new(),
        };
        let hints = (1..=seq + 1).flat_map(|at| [Some(hint(at, "mine")), Some(hint(at, "other's"))]);
        let acked: Vec<_> = (0..=seq + 1).collect();
        for hint in hints.chain([None]) {
            for &acked in &acked {
                for mode in [Mode::DurableV2, Mode::LegacyRolling] {
                    for lease in [None, Some(lease.clone())] {
                        for stream_id in [None, Some(stream_id())] {
                            let position = PositionRecord::from(&position(acked));
                            // What legacy acknowledges keeps the entry of the last durable acknowledgement.
                            let at = if mode == Mode::LegacyRolling { acked.min(seq) } else { acked };
                            let acked = (acked > 0).then_some(Acked { position, seq: at });
                            let local = Checkpoint { stream_id, acked, mode, hint: hint.clone() };
                            let head = Head { lease: lease.clone(), ..head.clone() };
                            worlds.push(World {
                                head: Some(head),
                                entries: entries.clone(),
                                local,
                                lives: 0,
                            });
                        }
                    }
                }
            }
        }
    }
    worlds.push(World { head: None, entries: BTreeMap::new(), local: Checkpoint::default(), lives: 0 });
    worlds
}

#[test]
fn from_every_baseline_and_every_crash_the_end_is_the_same() {
    let (mut fixed_points, mut refused) = (0, 0);
    for world in worlds() {
        let end = world.clone().live(None).unwrap();
        match &end {
            Ok(_) => fixed_points += 1,
            Err(SinkError::Integrity(Alarm::AcknowledgedAheadOfHead { .. })) => refused += 1,
            Err(other) => panic!("{other}: {world:?}"),
        }
        for first in 0..12 {
            let mut once = world.clone();
            if once.live(Some(first)).is_some() {
                break;
            }
            assert_eq!(once.clone().live(None).unwrap(), end, "crashed after {first} writes: {world:?}");
            for second in 0..12 {
                let mut twice = once.clone();
                if twice.live(Some(second)).is_some() {
                    break;
                }
                assert_eq!(twice.live(None).unwrap(), end, "crashed after {first}, then {second}: {world:?}");
            }
        }
    }
    // Refused is exactly what was acknowledged durably and is not in the chain.
    assert_eq!((fixed_points, refused), (233, 40));
}

#[test]
fn a_fixed_point_stays_one() {
    for world in worlds() {
        let mut world = world;
        if !matches!(world.live(None), Some(Ok(_))) {
            continue;
        }
        let mut life = world.start();
        let head = world.head.as_mut().unwrap();
        life.cfg.writer_id = head.owner.writer_id;
        life.latches.written.push(head.write.nonce);
        assert_eq!(reconcile(&world.baseline(), &life.latches, &life.cfg), Ok(None));
    }
}

#[test]
fn another_owner_after_an_acquisition_has_fenced_this_process() {
    let mut world = worlds().remove(0);
    let mut life = world.start();
    life.latches.acquired = Some(2);
    let fenced = reconcile(&world.baseline(), &life.latches, &life.cfg);
    assert!(matches!(fenced, Err(SinkError::Fenced { mine: 2, epoch: 3, .. })), "{fenced:?}");
}

#[test]
fn guards_come_before_every_step() {
    let world = worlds().remove(0);
    let check = |change: &dyn Fn(&mut World, &mut Life)| {
        let mut world = world.clone();
        let mut life = world.start();
        change(&mut world, &mut life);
        reconcile(&world.baseline(), &life.latches, &life.cfg).unwrap_err().to_string()
    };
    let message = check(&|_, life| life.cfg.pipeline = "other".to_owned());
    assert_eq!(
        message,
        "HEAD was made for pipeline \"orders\", configured is \"other\": a moved or a copied stream"
    );
    assert!(
        check(&|_, life| life.cfg.prefix = String::new()).contains("for prefix \"p\", configured is \"\"")
    );
    let message = check(&|world, _| world.head.as_mut().unwrap().min_writer = 1);
    assert!(message.contains("only minor version 1 and later may replace it"), "{message}");
    let message = check(&|world, _| world.local.stream_id = Some(StreamId::from_bytes([8; 16])));
    assert!(message.contains("another bucket or a copy"), "{message}");
    let message = check(&|world, life| life.cfg.writer_id = world.head.as_ref().unwrap().owner.writer_id);
    assert!(message.contains("names this process, which did not write it"), "{message}");
    let message = check(&|world, _| {
        world.head = None;
        world.local.stream_id = Some(stream_id());
    });
    assert!(message.contains("HEAD was deleted"), "{message}");
}

#[test]
fn positions_that_no_order_connects_are_refused() {
    let mut world =
        worlds().into_iter().find(|world| world.head.as_ref().is_some_and(|head| head.seq == 2)).unwrap();
    let lineage = Lineage::new("shop", "7301234567890123456/2", 1).unwrap();
    let elsewhere = Position::parse(PositionType::PgLsn, lineage, "0/20", 0).unwrap();
    world.local.acked = Some(Acked { position: PositionRecord::from(&elsewhere), seq: 2 });
    for mode in [Mode::DurableV2, Mode::LegacyRolling] {
        world.local.mode = mode;
        let refused = world.clone().live(None).unwrap();
        let apart = matches!(&refused, Err(SinkError::Integrity(Alarm::AcknowledgedApartFromHead { .. })));
        assert!(apart, "{refused:?}");
    }
}

#[test]
fn a_rebase_between_does_not_make_positions_incomparable() {
    let mut world =
        worlds().into_iter().find(|world| world.head.as_ref().is_some_and(|head| head.seq == 2)).unwrap();
    let lineage = Lineage::new("shop", "7301234567890123456/2", 2).unwrap();
    let rebased = Position::parse(PositionType::PgLsn, lineage, "0/10", 0).unwrap();
    let mut life = world.start();
    let evidence = Evidence { nonce: None, digest: rebased.digest(), batch_digest: Digest::of(b"rebase") };
    world.commit(&mut life, evidence, rebased.clone());
    world.local = Checkpoint {
        stream_id: Some(stream_id()),
        acked: Some(Acked { position: PositionRecord::from(&position(2)), seq: 2 }),
        mode: Mode::DurableV2,
        hint: None,
    };
    let end = world.live(None).unwrap().unwrap();
    assert_eq!(end.watermark, Some(rebased.digest()));
}
