//! Area 7: what HEAD does not reach is deleted once it is old, and nothing else ever is.

use std::time::Duration;

use bytes::Bytes;

use super::compaction::compacted;
use super::data::{self, EXTENSION};
use super::ground::{Ground, REQUEST_TIMEOUT_MS};
use super::rig::{FIRES_WITHIN, POLL};
use super::tampered::{legacy, legacy_key};
use super::writer::{Sweep, Writer};
use super::{Checked, Failure, Scenario, equal};
use crate::model::entry::Entry;
use crate::model::ids::{Digest, Nonce};
use crate::model::key::TableSegment;
use crate::plan::orphans::{Brake, LeaseTimes, Policy};
use crate::run::orphans::{self, Report};
use crate::run::patience::Patience;
use crate::sink::{Settings, Sink};
use crate::stop::{StopReason, Stopped};
use crate::store::{Condition, MultipartStore, Outcome, S3Store};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        id: "7.1",
        name: "orphans_are_deleted_once_they_are_old",
        proves: "data and an entry that nothing reaches are deleted when they are older than the grace period, and \
                 not before; a dry run says the same and deletes nothing",
        needs: &[],
        run: |ground| Box::pin(old_and_young(ground)),
    },
    Scenario {
        id: "7.2",
        name: "what_is_committed_after_the_listing_is_kept",
        proves: "an old orphan that a batch adopts, and commits, between the listing and the look at HEAD stays",
        needs: &[],
        run: |ground| Box::pin(after_the_listing(ground)),
    },
    Scenario {
        id: "7.3",
        name: "an_adopted_orphan_is_never_deleted",
        proves: "a batch that is written while its old objects are being deleted waits for the one delete, and its \
                 other objects are not deleted",
        needs: &[],
        run: |ground| Box::pin(adopted(ground)),
    },
    Scenario {
        id: "7.3z",
        name: "a_frozen_reconciler_wakes_up_without_its_lease",
        proves: "a process frozen right before a delete, while another takes over and commits that very object, sends \
                 no delete when it wakes up",
        needs: &[],
        run: |ground| Box::pin(frozen(ground)),
    },
    Scenario {
        id: "7.3n",
        name: "a_delete_on_its_way_is_waited_out",
        proves: "when a process dies with a delete under way, the next owner commits only when that has landed",
        needs: &[],
        run: |ground| Box::pin(on_its_way(ground)),
    },
    Scenario {
        id: "7.4",
        name: "a_listing_in_doubt_stops_reconciliation",
        proves: "a listing without a known key, with one twice, cut without a token, stale or refused stops the run, \
                 and nothing is deleted",
        needs: &[],
        run: |ground| Box::pin(listings(ground)),
    },
    Scenario {
        id: "7.5",
        name: "a_closure_that_can_not_be_read_stops_reconciliation",
        proves: "when an entry is not answered, or damaged, the run stops, and nothing is deleted",
        needs: &[],
        run: |ground| Box::pin(closure(ground)),
    },
    Scenario {
        id: "7.6",
        name: "long_keys_with_escapes_are_compared_as_they_are",
        proves: "with percent signs and 900 bytes, a reached key is kept and an orphan is deleted",
        needs: &[],
        run: |ground| Box::pin(keys(ground)),
    },
    Scenario {
        id: "7.7",
        name: "what_is_not_known_below_the_manifest_is_kept",
        proves: "unreached rollups, marks and unknown objects below _manifest/ stay for ever",
        needs: &[],
        run: |ground| Box::pin(unknown(ground)),
    },
    Scenario {
        id: "7.8",
        name: "other_prefixes_and_legacy_files_are_not_touched",
        proves: "objects of other pipelines and of legacy_rolling are neither listed nor deleted",
        needs: &[],
        run: |ground| Box::pin(foreign(ground)),
    },
    Scenario {
        id: "7.9",
        name: "an_implausible_plan_needs_a_person",
        proves: "a plan that would delete more than the limit stops before the first delete",
        needs: &[],
        run: |ground| Box::pin(brake(ground)),
    },
    Scenario {
        id: "7.10",
        name: "multipart_uploads_are_left_alone",
        proves: "a stray multipart upload is neither listed nor aborted, and mpu_aborts is 0",
        needs: &[],
        run: |ground| Box::pin(uploads(ground)),
    },
    Scenario {
        id: "7.11",
        name: "objects_of_earlier_releases_are_judged_by_what_reaches_them",
        proves: "a wm- object stays while an entry reaches it, and as a compaction's original too; an old one that nothing \
                 reaches is deleted",
        needs: &[],
        run: |ground| Box::pin(earlier_releases(ground)),
    },
];

/// Longer than the second that a store's dates resolve.
const GRACE_MS: u64 = 2_000;

/// Where some objects are to be younger: how long a run may take to look at them.
const LONG_GRACE_MS: u64 = 10_000;

fn policy() -> Checked<Policy> {
    policy_of(GRACE_MS)
}

fn policy_of(grace_period_ms: u64) -> Checked<Policy> {
    Ok(Policy::new(grace_period_ms, grace_period_ms / 2, REQUEST_TIMEOUT_MS)?)
}

/// Where batch `n` is, and what it holds.
fn objects(ground: &Ground, n: u64) -> Checked<Vec<(String, Bytes)>> {
    let position = data::position(n)?.digest();
    let place = |object: crate::sink::EncodedObject| {
        let table = TableSegment::new(&object.namespace, &object.table)?;
        let key = ground.root.data(&table, position, Digest::of(&object.bytes), EXTENSION);
        Ok((key, object.bytes))
    };
    data::batch(n)?.objects.into_iter().map(place).collect()
}

async fn put(ground: &Ground, key: &str, bytes: Bytes) -> Checked {
    match ground.store()?.put(key, bytes, Condition::Absent, &[]).await {
        Outcome::Done(_) => Ok(()),
        other => Err(Failure(format!("PUT of {key:?}: {other:?}"))),
    }
}

/// The data of batch `n`, without its entry: as a process leaves it that died on the way. Its keys, sorted.
async fn abandoned(ground: &Ground, n: u64) -> Checked<Vec<String>> {
    let mut keys = Vec::new();
    for (key, bytes) in objects(ground, n)? {
        put(ground, &key, bytes).await?;
        keys.push(key);
    }
    keys.sort();
    Ok(keys)
}

/// An entry that HEAD never came to.
async fn orphaned_entry(ground: &Ground) -> Checked<String> {
    let last = ground.recovered().await?.last.ok_or_else(|| Failure("there is no entry".to_owned()))?;
    let entry = Entry { nonce: Nonce::from_bytes([7; 16]), seq: last.seq + 1, ..last };
    let bytes = entry.encode();
    let key = ground.root.entry(entry.seq, entry.epoch, Digest::of(&bytes));
    put(ground, &key, bytes).await?;
    Ok(key)
}

/// Waits until everything that is there is older than the grace period, by the store's clock.
async fn aged(ground: &Ground) -> Checked {
    aged_by(ground, GRACE_MS).await
}

async fn aged_by(ground: &Ground, grace_period_ms: u64) -> Checked {
    let newest = ground.listed().await?.into_iter().map(|object| object.last_modified_ms).max();
    let (store, head) = (ground.store()?, ground.root.head());
    loop {
        let Outcome::Done(object) = store.get(&head).await else {
            return Err(Failure("HEAD can't be read".to_owned()));
        };
        let date_ms =
            object.store_date_ms.ok_or_else(|| Failure("the store's answers have no Date".to_owned()))?;
        if newest.is_none_or(|newest| date_ms > newest + grace_period_ms) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Keys of all deletes after request `after`, in their order.
async fn deletes(ground: &Ground, after: u64) -> Checked<Vec<String>> {
    let seen = ground.rig.requests(after, &ground.prefix).await?;
    Ok(seen.into_iter().filter(|seen| seen.operation.starts_with("Delete")).map(|seen| seen.key).collect())
}

async fn reconciled(sink: &Sink) -> Checked<Report> {
    Ok(orphans::run(&sink.keeper(), &policy()?).await?)
}

async fn stopped(sink: &Sink, policy: &Policy) -> Checked<Stopped> {
    match orphans::run(&sink.keeper(), policy).await {
        Ok(report) => Err(Failure(format!("expected a stop, got {report:?}"))),
        Err(stopped) => Ok(stopped),
    }
}

async fn old_and_young(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 2).await?;
    let mut old = abandoned(ground, 8).await?;
    old.push(orphaned_entry(ground).await?);
    old.sort();
    let after = ground.rig.last_request().await?;
    let policy = policy_of(LONG_GRACE_MS)?;
    equal("deleted while they were young", orphans::run(&sink.keeper(), &policy).await?.deleted, 0)?;
    aged_by(ground, LONG_GRACE_MS).await?;
    let young = abandoned(ground, 9).await?;
    let patience = Patience::limited(10_000);
    let plan = orphans::plan(&ground.env(3)?, &ground.root, &policy, &patience).await?;
    let planned: Vec<_> = plan.deletes().map(|row| row.key.clone()).collect();
    equal("the plan of a dry run", &planned, &old)?;
    equal("deletes of a dry run", deletes(ground, after).await?.len(), 0)?;
    let report = orphans::run(&sink.keeper(), &policy).await?;
    equal("deleted and aborted", (report.deleted, report.mpu_aborts), (old.len() as u64, 0))?;
    equal("the deletes", deletes(ground, after).await?, old)?;
    for key in young {
        ground.get(&key).await?;
    }
    equal("the lease after the run", ground.head().await?.0.lease, None)?;
    sink.close().await?;
    let found = ground.exactly(2).await?;
    equal("orphaned entries", found.orphaned_entries, 0)
}

async fn after_the_listing(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    abandoned(ground, 2).await?;
    aged(ground).await?;
    let after = ground.rig.last_request().await?;
    let faults =
        ground.rig.faults("name=held operation=ListObjectsV2 nth=1 effect=delay until=lifted").await?;
    let publish = async {
        ground.rig.fired("held", 1).await?;
        ground.publish(&sink, 2, 3).await?;
        faults.lift().await
    };
    let (report, published) = tokio::join!(reconciled(&sink), publish);
    published?;
    equal("deleted", report?.deleted, 0)?;
    equal("deletes", deletes(ground, after).await?, Vec::new())?;
    sink.close().await?;
    equal("orphaned data", ground.exactly(3).await?.orphaned_data, 0)
}

async fn adopted(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let old = abandoned(ground, 2).await?;
    aged(ground).await?;
    let after = ground.rig.last_request().await?;
    // The first object is about to be deleted; the batch comes in, holds the other two, and waits for that one.
    let rule = format!("name=held operation=DeleteObject key={}* nth=1 effect=delay until=lifted", old[0]);
    let faults = ground.rig.faults(&rule).await?;
    let publish = async {
        ground.rig.fired("held", 1).await?;
        let keeper = sink.keeper();
        let lift = async {
            // The key that is being deleted, and the two that the batch holds meanwhile.
            let held = async {
                while keeper.in_flight.len() < old.len() {
                    tokio::time::sleep(POLL).await;
                }
            };
            tokio::time::timeout(FIRES_WITHIN, held).await?;
            faults.lift().await
        };
        let (published, lifted) = tokio::join!(ground.publish(&sink, 2, 2), lift);
        published.and(lifted)
    };
    let (report, published) = tokio::join!(reconciled(&sink), publish);
    published?;
    let report = report?;
    equal("deleted and skipped", (report.deleted, report.skipped), (1, 2))?;
    equal("deletes", deletes(ground, after).await?, vec![old[0].clone()])?;
    sink.close().await?;
    equal("orphaned data", ground.exactly(2).await?.orphaned_data, 0)
}

/// Short enough for a test to wait out, and five seconds to send a delete in.
const LEASE: LeaseTimes = LeaseTimes { ttl_ms: 8_000, request_ms: 1_500, margin_ms: 1_500 };

/// A process that has published batch 1 and reconciles, held at `rule`.
async fn reconciler(ground: &Ground, rule: &str) -> Checked<Writer> {
    let mut order = ground.order("a", 1, 1);
    order.sweep = Some(Sweep {
        grace_period_ms: GRACE_MS,
        lease_ms: [LEASE.ttl_ms, LEASE.request_ms, LEASE.margin_ms],
    });
    let mut writer = Writer::new(ground.rig.spawn(&order).await?)?;
    writer.says("sweeping").await?;
    ground.rig.fired(rule, 1).await?;
    Ok(writer)
}

async fn frozen(ground: &Ground) -> Checked {
    let sink = ground.start("a", 5).await?;
    ground.publish(&sink, 1, 1).await?;
    sink.close().await?;
    let old = abandoned(ground, 2).await?;
    aged(ground).await?;
    let after = ground.rig.last_request().await?;
    let rule = format!("name=held operation=HeadObject key={}* nth=1 effect=delay until=lifted", old[0]);
    let faults = ground.rig.faults(&rule).await?;
    let writer = reconciler(ground, "held").await?;
    writer.signal("STOP").await?;
    let next = ground.start("b", 2).await?;
    faults.lift().await?;
    ground.publish(&next, 2, 3).await?;
    writer.signal("CONT").await?;
    // `lease_lost`.
    equal("the exit code of the process that was frozen", writer.ended().await?, 3)?;
    equal("deletes", deletes(ground, after).await?, Vec::new())?;
    next.close().await?;
    equal("orphaned data", ground.exactly(3).await?.orphaned_data, 0)
}

async fn on_its_way(ground: &Ground) -> Checked {
    let sink = ground.start("a", 5).await?;
    ground.publish(&sink, 1, 1).await?;
    sink.close().await?;
    let old = abandoned(ground, 2).await?;
    aged(ground).await?;
    let rule = format!("name=held operation=DeleteObject key={}* nth=1 effect=late until=lifted", old[0]);
    let faults = ground.rig.faults(&rule).await?;
    let writer = reconciler(ground, "held").await?;
    let epoch = ground.head().await?.0.epoch;
    writer.kill().await?;
    // It lands while the next owner, who has HEAD, waits.
    let lift = async {
        while ground.head().await?.0.epoch == epoch {
            tokio::time::sleep(POLL).await;
        }
        faults.lift().await
    };
    let (next, lifted) = tokio::join!(ground.start("b", 2), lift);
    lifted?;
    let next = next?;
    let steps: Vec<_> = next.reconciled().iter().map(|step| step.name()).collect();
    if !steps.contains(&"S5 end lease") {
        return Err(Failure(format!("the lease was not waited out: {steps:?}")));
    }
    ground.publish(&next, 2, 3).await?;
    next.close().await?;
    equal("orphaned data", ground.exactly(3).await?.orphaned_data, 0)
}

async fn listings(ground: &Ground) -> Checked {
    // A provider behind a proxy lists in its own order of writes; the embedded server can be made to lie.
    let (rig, _server) = ground.rig.deviating("").await?;
    let ground = &Ground::new(&rig, "7.4-lists")?;
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    abandoned(ground, 8).await?;
    aged(ground).await?;
    for (n, effect) in
        (2..).zip(["omit-newest", "repeat-key", "truncate", "stale", "refuse code=SlowDown", "drop"])
    {
        let after = rig.last_request().await?;
        let faults = rig.faults(&format!("name=list operation=ListObjectsV2 effect={effect}")).await?;
        // HEAD is the newest object, and the keys of this batch are known to no list of before.
        ground.publish(&sink, n, n).await?;
        let stopped = stopped(&sink, &policy()?).await?;
        equal(effect, stopped.reason, StopReason::ListingUncertain)?;
        faults.lift().await?;
        equal("deletes", deletes(ground, after).await?, Vec::new())?;
    }
    equal("deleted by a listing without a doubt", reconciled(&sink).await?.deleted, 3)?;
    sink.close().await?;
    equal("orphaned data", ground.exactly(7).await?.orphaned_data, 0)?;
    ground.clear().await
}

async fn closure(ground: &Ground) -> Checked {
    let settings = Settings { send_timeout_ms: 5_000, ..ground.settings("a") };
    let sink = Sink::start(ground.env(1)?, settings).await?;
    ground.publish(&sink, 1, 2).await?;
    abandoned(ground, 8).await?;
    aged(ground).await?;
    for (effect, reason) in [
        ("refuse code=InternalError", StopReason::AmbiguousResponse),
        ("corrupt", StopReason::IntegrityFailure),
    ] {
        let after = ground.rig.last_request().await?;
        let root = ground.root.as_str();
        let rule = format!("name=entry operation=GetObject key={root}/_manifest/entries/* effect={effect}");
        let faults = ground.rig.faults(&rule).await?;
        equal(effect, stopped(&sink, &policy()?).await?.reason, reason)?;
        faults.lift().await?;
        equal("deletes", deletes(ground, after).await?, Vec::new())?;
    }
    equal("deleted by a run that can read", reconciled(&sink).await?.deleted, 3)?;
    sink.close().await?;
    equal("orphaned data", ground.exactly(2).await?.orphaned_data, 0)
}

async fn keys(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let mut batch = data::batch(2)?;
    batch.objects.iter_mut().for_each(|object| object.namespace = "数据 100%".to_owned());
    sink.submit(batch).await?.acknowledged().await?;
    let mut long = ground.root.as_str().to_owned();
    while long.len() < 700 {
        long.push('/');
        long.push_str(&"%E6%95%B0".repeat(22)[..190]);
    }
    long.push('/');
    long.extend(std::iter::repeat_n('x', 900 - long.len()));
    put(ground, &long, Bytes::from_static(b"x")).await?;
    let after = ground.rig.last_request().await?;
    aged(ground).await?;
    equal("deleted", reconciled(&sink).await?.deleted, 1)?;
    equal("the deletes", deletes(ground, after).await?, vec![long])?;
    sink.close().await?;
    equal("entries", ground.recovered().await?.entries.len(), 2)
}

/// Puts objects that must stay, reconciles when they are old, and looks for them.
async fn stays(ground: &Ground, keys: &[String]) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    for key in keys {
        put(ground, key, Bytes::from_static(b"somebody's")).await?;
    }
    abandoned(ground, 8).await?;
    aged(ground).await?;
    equal("deleted", reconciled(&sink).await?.deleted, 3)?;
    for key in keys {
        ground.get(key).await?;
    }
    sink.close().await?;
    equal("orphaned data", ground.exactly(1).await?.orphaned_data, 0)
}

async fn unknown(ground: &Ground) -> Checked {
    let manifest = ground.root.manifest();
    let names =
        ["rollups/x", "inventory/x", "marks/x", "compactions/x", "later/x", "HEAD.bak", "entries/x.entry"];
    stays(ground, &names.map(|name| format!("{manifest}{name}"))).await
}

async fn foreign(ground: &Ground) -> Checked {
    let names = ["orders2/shop.orders/x", "orders.txt", "table=orders/year=2026/month=1/day=1/x.jsonl"];
    stays(ground, &names.map(|name| format!("{}/{name}", ground.prefix))).await
}

async fn brake(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    for n in 8..11 {
        abandoned(ground, n).await?;
    }
    aged(ground).await?;
    let after = ground.rig.last_request().await?;
    for brake in [Brake { from: 8, percent: 50, most: 1_000 }, Brake { from: 0, percent: 100, most: 8 }] {
        let stopped = stopped(&sink, &Policy { brake, ..policy()? }).await?;
        equal("the reason", stopped.reason, StopReason::Brake)?;
    }
    equal("deletes", deletes(ground, after).await?, Vec::new())?;
    equal("deleted within the limit", reconciled(&sink).await?.deleted, 9)?;
    sink.close().await?;
    equal("orphaned data", ground.exactly(1).await?.orphaned_data, 0)
}

async fn earlier_releases(ground: &Ground) -> Checked {
    ground.start("a", 1).await?.close().await?;
    legacy(ground, 1).await?;
    let sink = ground.start("a", 2).await?;
    ground.publish(&sink, 2, 3).await?;
    // Nothing ever commits batches 8 and 9.
    for stray in 8..=9 {
        let mut strays = Vec::new();
        for object in data::batch(stray)?.objects {
            let key = legacy_key(ground, stray, &object.table, Digest::of(&object.bytes))?;
            put(ground, &key, object.bytes).await?;
            strays.push(key);
        }
        strays.sort();
        aged(ground).await?;
        let after = ground.rig.last_request().await?;
        equal("deleted", reconciled(&sink).await?.deleted, strays.len() as u64)?;
        equal("the deletes", deletes(ground, after).await?, strays)?;
        let kept = ground.listed().await?.iter().filter(|object| object.key.contains("/wm-")).count();
        equal("objects of batch 1", kept, data::TABLES.len())?;
        if stray == 8 {
            // From now on they are what an output stands for.
            equal("records", compacted(&sink.keeper()).await?, vec![(1, 3, 3); data::TABLES.len()])?;
        }
    }
    sink.close().await?;
    equal("committed", ground.exactly(3).await?.seq, 3)
}

async fn uploads(ground: &Ground) -> Checked {
    let sink = ground.start("a", 1).await?;
    ground.publish(&sink, 1, 1).await?;
    let store = S3Store::new(&ground.rig.settings(), &ground.rig.access())?;
    let key = format!("{}/shop.orders/stray", ground.root.as_str());
    let Outcome::Done(upload) = store.create_upload(&key, &[]).await else {
        return Err(Failure("an upload can't be begun".to_owned()));
    };
    abandoned(ground, 8).await?;
    aged(ground).await?;
    let after = ground.rig.last_request().await?;
    let report = reconciled(&sink).await?;
    equal("deleted and aborted", (report.deleted, report.mpu_aborts), (3, 0))?;
    let seen = ground.rig.requests(after, "").await?;
    let about = seen.iter().filter(|seen| seen.operation.contains("Multipart")).count();
    equal("requests about uploads", about, 0)?;
    match store.list_parts(&key, &upload, None, 10).await {
        Outcome::Done(_) => {}
        other => return Err(Failure(format!("the stray upload: {other:?}"))),
    }
    store.abort(&key, &upload).await;
    sink.close().await?;
    equal("orphaned data", ground.exactly(1).await?.orphaned_data, 0)
}
