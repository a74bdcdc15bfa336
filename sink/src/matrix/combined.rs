//! Area 8, everything together: the whole life of a stream in one scenario, the same under random faults, and the way
//! to `legacy_rolling` and back.

use std::sync::Arc;
use std::time::Duration;

use super::data;
use super::ground::{Ground, Settled};
use super::rig::Rig;
use super::writer::Writer;
use super::{Checked, Failure, Scenario, equal};
use crate::format::Encoding;
use crate::local::DiskCheckpoints;
use crate::metrics::Metrics;
use crate::model::entry::EntryKind;
use crate::model::key::ObjectName;
use crate::plan;
use crate::rolling::{PART_BYTES, Rolling, Settings};
use crate::run::recover::Content;
use crate::run::{compact, gc, originals, orphans, rollup};
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};
use crate::store::{Condition, ETag, Outcome, S3Store};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "8.1",
        name: "a_whole_life_ends_with_every_row",
        proves: "200 batches, compaction, expiry of entries, deletion of originals, reconciliation, kill -9 and a restart \
                 leave every row once and in order, and the stream goes on",
        needs: &[],
        run: |ground| Box::pin(whole_life(ground)),
    },
    Scenario {
        id: "8.2",
        name: "random_faults_change_nothing_that_is_committed",
        proves: "the same in lives that random faults and crashes cut short, plan by plan from a seed",
        needs: &[],
        run: |ground| Box::pin(random_faults(ground)),
    },
    Scenario {
        id: "8.3",
        name: "a_rollback_and_its_return_leave_a_visible_gap",
        proves: "legacy_rolling changes no durable object, and the return commits a rebase entry over the gap",
        needs: &[],
        run: |ground| Box::pin(rollback(ground)),
    },
];

/// How many fault plans 8.2 tries; a longer campaign sets the variable.
const PLANS: u64 = 3;

/// Names the number of fault plans.
const PLANS_VARIABLE: &str = "ASSAY_IT_FAULT_PLANS";

/// The seed of the first fault plan; each has the next one.
const FIRST_SEED: u64 = 1;

/// Names the seed of the first fault plan, to try one again.
const SEED_VARIABLE: &str = "ASSAY_IT_FAULT_SEED";

/// Batches that each plan commits.
const BATCHES: u64 = 60;

/// How 8.2 alone is run.
const COMMAND: &str = "cargo test -p sinks --lib -- --include-ignored --exact \
                       s3_server_it::random_faults_change_nothing_that_is_committed";

/// How far clocks may be apart, in milliseconds: a store's `Date` tells seconds only.
const SKEW_MS: u64 = 2_000;

/// A grace period for a send timeout of a quarter of a second.
const GRACE_MS: u64 = 500;

/// Longest that anything is waited for.
const LIMIT: Duration = Duration::from_secs(120);

const POLL: Duration = Duration::from_millis(100);

fn why(stopped: Stopped) -> Failure {
    Failure(stopped.to_string())
}

/// The actors, what they remember, and what they have done.
#[derive(Default)]
struct Actors {
    memory: gc::Memory,
    done: Work,
}

/// What actors did.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Objects that became one with others.
    compacted: usize,
    expired: u64,
    originals: u64,
    orphans: u64,
}

impl Actors {
    /// Every actor once; the first that stops ends the round.
    async fn round(&mut self, keeper: &Keeper) -> Result<(), Stopped> {
        let window = plan::gc::Policy { safety_window_ms: 0, max_clock_skew_ms: SKEW_MS };
        rollup::run(keeper, &plan::rollup::Policy { every_entries: 20, every_ms: 60_000 }).await?;
        gc::mark(keeper, &window, &mut self.memory).await?;
        self.done.expired += gc::expire(keeper, &window, &mut self.memory).await?.deleted;
        let policy = plan::compact::Policy { min_inputs: 4, ..plan::compact::Policy::new(Encoding::Jsonl) };
        let compacted = compact::run(keeper, &policy).await?.compacted;
        self.done.compacted += compacted.iter().map(|of| of.inputs).sum::<usize>();
        let policy = plan::originals::Policy { retention_ms: 0, max_clock_skew_ms: SKEW_MS };
        self.done.originals += originals::run(keeper, &policy).await?.deleted;
        let policy = plan::orphans::Policy::new(GRACE_MS, GRACE_MS / 2, 1_000)
            .map_err(|error| Stopped::new(StopReason::StalePlan, error.to_string()))?;
        self.done.orphans += orphans::run(keeper, &policy).await?.deleted;
        Ok(())
    }

    /// The same; after a stop that is `expected` the next round goes on.
    async fn round_through(&mut self, keeper: &Keeper, expected: fn(StopReason) -> bool) -> Checked {
        match self.round(keeper).await {
            Err(stopped) if expected(stopped.reason) => Ok(()),
            ended => ended.map_err(why),
        }
    }

    /// Rounds until everything is done that is `wanted`.
    async fn until(
        &mut self,
        keeper: &Keeper,
        expected: fn(StopReason) -> bool,
        wanted: impl Fn(&Work) -> bool,
    ) -> Checked {
        let working = async {
            while !wanted(&self.done) {
                tokio::time::sleep(POLL).await;
                self.round_through(keeper, expected).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(LIMIT, working).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure(format!("not all was done within {LIMIT:?}: {:?}", self.done))),
        }
    }
}

/// Stops that a machine brings about which is slow for a moment.
fn of_slowness(reason: StopReason) -> bool {
    matches!(reason, StopReason::LeaseLost | StopReason::ClockUncertain)
}

/// Stops that faults bring about: all but those that say that what must be is not.
fn of_faults(reason: StopReason) -> bool {
    !matches!(reason, StopReason::IntegrityFailure | StopReason::EpochChanged)
}

impl Work {
    /// Whether every one of them did something.
    fn is_everybodys(&self) -> bool {
        self.compacted > 0 && self.expired > 0 && self.originals > 0 && self.orphans > 0
    }
}

/// An object of data that nothing refers to, as a crash leaves it.
async fn orphan(ground: &Ground) -> Checked<String> {
    let prefix = ground.root.as_str();
    let key = format!("{prefix}/shop.items/wm2-{}/{}.jsonl", "0".repeat(64), "1".repeat(64));
    let bytes = bytes::Bytes::from_static(b"{}\n");
    match ground.store()?.put(&key, bytes, Condition::Absent, &[]).await {
        Outcome::Done(_) => Ok(key),
        other => Err(Failure(format!("PUT of {key:?}: {other:?}"))),
    }
}

async fn whole_life(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    let (keeper, mut actors) = (sink.keeper(), Actors::default());
    let planted = orphan(ground).await?;
    for part in 0..4 {
        ground.publish(&sink, 50 * part + 1, 50 * part + 50).await?;
        actors.round_through(&keeper, of_slowness).await?;
    }
    let collected = |done: &Work| done.expired >= 100 && done.originals >= 500 && done.orphans >= 1;
    actors.until(&keeper, of_slowness, collected).await?;
    sink.close().await?;
    let head = ground.head().await?.0;
    let keys: Vec<String> = ground.listed().await?.into_iter().map(|object| object.key).collect();
    let name = |key: &str| matches!(ground.root.parse(key), Some(ObjectName::Entry { seq, .. }) if seq < head.entry_floor);
    equal("entries below the floor", keys.iter().filter(|key| name(key)).count(), 0)?;
    equal("the orphan is there", keys.contains(&planted), false)?;
    let mut writer = Writer::new(ground.rig.spawn(&ground.order("a", 2, 260)).await?)?;
    writer.says("acked 210").await?;
    writer.kill().await?;
    let sink = ground.start("a", 3).await?;
    let from = data::number(sink.resume().as_ref())?;
    ground.exactly(from).await?;
    ground.publish(&sink, from + 1, from + 20).await?;
    actors.round_through(&sink.keeper(), of_slowness).await?;
    sink.close().await?;
    let Settled { seq, .. } = ground.exactly(from + 20).await?;
    equal("committed batches", seq, from + 20)
}

async fn random_faults(ground: &Ground) -> Checked {
    let number = |name, otherwise| match std::env::var(name) {
        Err(_) => Ok(otherwise),
        Ok(text) => text.parse().map_err(|_| Failure(format!("{name}={text} is no number"))),
    };
    let (plans, first) = (number(PLANS_VARIABLE, PLANS)?, number(SEED_VARIABLE, FIRST_SEED)?);
    let mut hits = 0;
    for seed in first..first.saturating_add(plans) {
        let place = Ground::new(&ground.rig, &format!("8.2/{seed}"))?;
        let ended = fault_plan(&place, seed).await;
        ground.rig.heal().await?;
        let cleared = place.clear().await;
        let again = format!("{SEED_VARIABLE}={seed} {PLANS_VARIABLE}=1 {COMMAND}");
        hits += ended.map_err(|failure| Failure(format!("{failure}; again: {again}")))?;
        cleared?;
    }
    // A plan may have most of its rules miss; that nearly all do would show nothing.
    if hits < plans {
        let again = format!("{SEED_VARIABLE}={first} {PLANS_VARIABLE}={plans} {COMMAND}");
        return Err(Failure(format!("faults hit {hits} requests in {plans} plans; again: {again}")));
    }
    Ok(())
}

/// Rules for the keys of one stream, each of which acts once or a few times.
fn rules(root: &str, random: &mut fastrand::Rng) -> String {
    let (puts, any) =
        (["PutObject"], ["PutObject", "GetObject", "DeleteObject", "ListObjectsV2", "HeadObject"]);
    let effects = [
        (&puts[..], "effect=lose-answer"),
        (&puts[..], "effect=fail-after code=InternalError"),
        (&puts[..], "effect=refuse code=ConditionalRequestConflict"),
        (&any[..], "effect=refuse code=ServiceUnavailable"),
        (&any[..], "effect=delay ms=300"),
    ];
    (0..random.usize(4..9))
        .map(|number| {
            let (operations, effect) = effects[random.usize(..effects.len())];
            let operation = operations[random.usize(..operations.len())];
            let what = if operation == "ListObjectsV2" { String::new() } else { format!("key={root}/* ") };
            let nth = random.u64(1..60);
            format!("name=f{number} operation={operation} {what}nth={nth} {effect}\n")
        })
        .collect()
}

/// How many requests its faults hit. All actors do some work under them.
async fn fault_plan(ground: &Ground, seed: u64) -> Checked<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut life, mut hits, mut done) = (0, 0, Work::default());
    ground.start("host-0", life).await?.close().await?;
    orphan(ground).await?;
    loop {
        life += 1;
        let faults = ground.rig.faults(&rules(ground.root.as_str(), &mut random)).await?;
        let sink = ground.start(&format!("host-{life}"), life).await?;
        let mut published = data::number(sink.resume().as_ref())?;
        let (keeper, mut actors) = (sink.keeper(), Actors { done, ..Actors::default() });
        for _ in 0..random.u64(1..5) {
            let upto = (published + random.u64(1..15)).min(BATCHES);
            ground.publish(&sink, published + 1, upto).await?;
            published = upto;
            actors.round_through(&keeper, of_faults).await?;
        }
        if published == BATCHES {
            actors.until(&keeper, of_faults, Work::is_everybodys).await?;
        }
        done = actors.done;
        hits += ground.rig.hits().await?;
        faults.lift().await?;
        let crash = random.bool();
        if crash {
            drop(sink)
        } else {
            sink.close().await?
        }
        if published == BATCHES {
            break;
        }
    }
    let Settled { seq, .. } = ground.exactly(BATCHES).await?;
    equal("committed batches", seq, BATCHES)?;
    Ok(hits)
}

/// Key and tag of everything durable.
async fn durable(ground: &Ground) -> Checked<Vec<(String, ETag)>> {
    let listed = ground.listed().await?.into_iter();
    let below = format!("{}/", ground.root.as_str());
    Ok(listed
        .filter(|object| object.key.starts_with(&below))
        .map(|object| (object.key, object.etag))
        .collect())
}

async fn rolling(ground: &Ground, rig: &Rig, salt: u64) -> Checked<Rolling> {
    let settings = Settings {
        prefix: ground.prefix.clone(),
        max_bytes: 1 << 20,
        max_age_ms: 60_000,
        part_bytes: PART_BYTES,
        patience_ms: 20_000,
        metrics: Metrics::new("orders", "s3"),
    };
    let path = ground.settings("a").checkpoint.unwrap_or_default();
    let checkpoints = DiskCheckpoints::open(&path)?;
    let uploads = S3Store::new(&rig.settings(), &rig.access())?;
    Ok(Rolling::open(ground.env(salt)?, Arc::new(uploads), settings, Arc::new(checkpoints)).await?)
}

async fn rollback(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 5).await?;
    sink.close().await?;
    let before = durable(ground).await?;
    let mut legacy = rolling(ground, &ground.rig, 2).await?;
    equal("where legacy_rolling goes on", data::number(legacy.resume()?.as_ref())?, 5)?;
    for n in 6..=8 {
        legacy.accept(data::batch(n)?).await?;
    }
    legacy.close().await?;
    equal("durable objects after legacy_rolling", durable(ground).await?, before.clone())?;
    let files = ground.listed().await?.iter().filter(|object| object.key.contains("/table=shop.")).count();
    equal("rolled files", files, data::TABLES.len())?;
    let sink = ground.start("a", 3).await?;
    equal("where durable_v2 goes on", data::number(sink.resume().as_ref())?, 8)?;
    ground.publish(&sink, 9, 10).await?;
    sink.close().await?;
    let recovered = ground.recovered().await?;
    let kinds: Vec<_> = recovered
        .entries
        .iter()
        .filter_map(|entry| match &entry.content {
            Content::Entry(entry) => Some((entry.seq, entry.kind, entry.objects.len())),
            Content::Inventory(_) => None,
        })
        .filter(|(_, kind, _)| *kind == EntryKind::Rebase)
        .collect();
    equal("rebase entries", kinds, vec![(6, EntryKind::Rebase, 0)])?;
    let after = durable(ground).await?;
    let head = ground.root.head();
    let kept = before.iter().filter(|(key, _)| *key != head).all(|object| after.contains(object));
    equal("every durable object is as it was", kept, true)
}
