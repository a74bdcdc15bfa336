//! Reconciliation: objects that HEAD does not reach and that are older than the grace period are deleted, one by
//! one, and only as long as nothing casts a doubt on it.
//!
//! An orphan is not one for ever: a replay writes the same keys, finds the old object and adopts it, so that age
//! protects nothing. Three things do. In this process a key is taken before HEAD is looked at ([`InFlight`]).
//! Between processes deletes are sent under a lease that the next owner waits out before it writes ([`Lease`]).
//! And a publisher looks for each object that it adopted once more before it acknowledges.
//!
//! [`InFlight`]: crate::run::in_flight::InFlight

use std::collections::HashSet;

use serde::Serialize;

use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::key::PipelineRoot;
use crate::plan::clocks;
use crate::plan::orphans::{self, Content, Plan, Policy, Row, Sight, Stray, Verdict};
use crate::point::{self, Point};
use crate::run::lease::Lease;
use crate::run::listing;
use crate::run::parallel::in_parallel;
use crate::run::patience::{Patience, denied};
use crate::run::read;
use crate::run::recover::reach::{Reach, Records, only_published, since};
use crate::run::recover::{self, Depth, Recovered};
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};
use crate::store::{ObjectMeta, Outcome, Refusal};

/// The actor's name in leases, logs and labels.
pub const ACTOR: &str = "reconcile";

/// Strays that are read at once.
const PARALLEL: usize = 8;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Objects below the pipeline's root.
    pub listed: u64,
    /// Of these, reached from HEAD.
    pub reachable: u64,
    /// Orphans older than the grace period.
    pub candidates: u64,
    /// Of these, deleted.
    pub deleted: u64,
    /// Bytes that they had.
    pub deleted_bytes: u64,
    /// Of these, left alone: written, reached or changed since they were listed, or gone by themselves.
    pub skipped: u64,
    /// Multipart uploads that were aborted: none, ever. This sink begins none, and does not look at those of others.
    pub mpu_aborts: u64,
}

/// What was found, and what is to be done about it.
struct Survey {
    recovered: Recovered,
    plan: Plan,
}

/// What a run would do now. Reads only; needs no ownership.
///
/// # Errors
/// Whatever stops a run before its first delete.
pub async fn plan(
    env: &Env,
    root: &PipelineRoot,
    policy: &Policy,
    patience: &Patience,
) -> Result<Plan, Stopped> {
    let gathering = Gathering { env, root, policy, patience };
    gathering.survey().await.map(|survey| survey.plan)
}

/// Finds orphans and deletes them, in this actor's turn.
///
/// # Errors
/// Any [`StopReason`]: nothing was deleted after it came up.
pub async fn run(keeper: &Keeper, policy: &Policy) -> Result<Report, Stopped> {
    let _turn = keeper.turn().await;
    keeper.confirm().await?;
    let patience = keeper.patience();
    let gathering = Gathering { env: &keeper.env, root: &keeper.root, policy, patience: &patience };
    let Survey { recovered, plan } = gathering.survey().await?;
    let candidates = plan.deletes().count() as u64;
    keeper.metrics.orphans_seen.set(i64::try_from(candidates).unwrap_or(i64::MAX));
    let report = Report { listed: plan.listed, reachable: plan.reachable, candidates, ..Report::default() };
    if let Some(why) = plan.brake {
        return Err(Stopped::new(StopReason::Brake, why));
    }
    if candidates == 0 {
        return Ok(report);
    }
    let lease = Lease::take(keeper, ACTOR, policy.lease).await?;
    let mut sweep = Sweep { keeper, policy, recovered: Some(recovered), lease, report, in_doubt: false };
    let ended = sweep.delete_all(&plan).await;
    let Sweep { lease, report, in_doubt, .. } = sweep;
    // A delete without an answer may take effect until the lease is over: the next owner must wait for that.
    let returned = if in_doubt { Ok(()) } else { lease.end().await };
    tracing::info!(?report, stopped = ended.as_ref().err().map(ToString::to_string), "reconciled");
    ended.map_err(|stopped| {
        let (deleted, detail) = (report.deleted, stopped.detail);
        Stopped {
            detail: format!("{detail}; {deleted} of {candidates} orphans were deleted before"),
            ..stopped
        }
    })?;
    returned.map(|()| report)
}

struct Gathering<'a> {
    env: &'a Env,
    root: &'a PipelineRoot,
    policy: &'a Policy,
    patience: &'a Patience,
}

impl Gathering<'_> {
    /// Candidates first, reachability after: what was written in between is reached by the later HEAD.
    async fn survey(&self) -> Result<Survey, Stopped> {
        let store_date_ms = self.store_date_ms().await?;
        let before = self.recovered(None).await?;
        let (head, entries) = (before.view.head.clone(), before.entries.len());
        let reach = Reach::of(self.env, self.root, self.patience, &before).await?;
        let listed = listing::compared(self.env, &self.root.listing(), &reach).await?;
        point::reach(Point::RecAfterListing);
        let recovered = self.recovered(Some(before)).await?;
        let (mut strays, mut absent) = (listed.strays, listed.absent);
        if only_published(&head, &recovered.view.head) {
            let new = since(&recovered, entries);
            strays.retain(|stray| !new.contains(&stray.key));
        } else {
            let reach = Reach::of(self.env, self.root, self.patience, &recovered).await?;
            strays.retain(|stray| !reach.contains(&stray.key));
            absent.retain(|key| reach.is_required(key));
        }
        self.check_absent(&absent).await?;
        let sight = Sight {
            root: self.root,
            stream_id: recovered.view.head.stream_id,
            store_date_ms,
            listed: listed.objects,
        };
        let strays = self.look_into(strays, &sight, &recovered).await?;
        let plan = orphans::plan(&strays, &sight, self.policy);
        Ok(Survey { recovered, plan })
    }

    /// The store's time, if it can be told and is not far from the local one.
    async fn store_date_ms(&self) -> Result<u64, Stopped> {
        let before_ms = self.env.clock.now_ms();
        let Some((_, date_ms)) = read::dated_view(self.env, self.root, self.patience).await? else {
            // Either there is nothing at all, or what there is lacks HEAD: that is an alarm.
            return self.recovered(None).await.and_then(|_| Err(self.no_stream()));
        };
        let local_ms = before_ms.midpoint(self.env.clock.now_ms());
        clocks::certain(local_ms, date_ms, self.policy.max_clock_skew_ms)
    }

    async fn recovered(&self, known: Option<Recovered>) -> Result<Recovered, Stopped> {
        let found = recover::recover_from(self.env, self.root, Depth::Manifest, self.patience, known).await?;
        found.ok_or_else(|| self.no_stream())
    }

    fn no_stream(&self) -> Stopped {
        Stopped::new(StopReason::StalePlan, format!("there is no stream below {:?}", self.root.as_str()))
    }

    /// Objects that must exist and were not listed: either they are missing, or the listing is not to be trusted.
    async fn check_absent(&self, absent: &[String]) -> Result<(), Stopped> {
        let Some(key) = absent.first() else { return Ok(()) };
        if read::meta(self.env, key, self.patience.renewed()).await?.is_some() {
            let (count, reason) = (absent.len(), StopReason::ListingUncertain);
            return Err(Stopped::new(reason, format!("{key:?} is there and is not listed, {count} in all")));
        }
        let missing = Alarm::MissingReferenced { what: self.kind(key), key: key.clone(), hint: "" };
        Err(SinkError::from(missing).into())
    }

    fn kind(&self, key: &str) -> &'static str {
        let manifest = self.root.manifest();
        match key.strip_prefix(&manifest).and_then(|rest| rest.split('/').next()) {
            None => "data",
            Some("entries") => "entry",
            Some("rollups") => "rollup",
            Some("inventory") => "inventory",
            Some("compactions") => "compaction",
            Some(_) => "manifest",
        }
    }

    /// Reads what is old enough, and leaves out what compaction records name.
    async fn look_into(
        &self,
        strays: Vec<ObjectMeta>,
        sight: &Sight<'_>,
        recovered: &Recovered,
    ) -> Result<Vec<Stray>, Stopped> {
        let mut strays: Vec<Stray> =
            strays.into_iter().map(|meta| Stray { meta, content: Content::Unread }).collect();
        let unread = |stray: &Stray| orphans::verdict(stray, sight, self.policy) == Verdict::Unread;
        if strays.iter().any(unread) {
            let records = Records::of(self.env, self.patience, &recovered.view.head).await?;
            strays.retain(|stray| {
                !records.others.contains(&stray.meta.key) && !records.keys.contains(&stray.meta.key)
            });
        }
        let read = in_parallel(PARALLEL, strays.into_iter().map(|stray| (unread(&stray), stray)), {
            |(unread, stray): (bool, Stray)| {
                let (env, patience) = (self.env.clone(), self.patience.renewed());
                async move {
                    if !unread {
                        return Ok(Some(stray));
                    }
                    let object = read::get(&env, &stray.meta.key, patience).await?;
                    // What is gone by now, or another, is no orphan of this run.
                    let object = object.filter(|object| same(&object.meta, &stray.meta));
                    Ok(object.map(|object| Stray { content: Content::of(&object), ..stray }))
                }
            }
        });
        Ok(read.await?.into_iter().flatten().collect())
    }
}

/// Whether it is the object that was listed. Stores list tags and dates as they answer them.
fn same(found: &ObjectMeta, listed: &ObjectMeta) -> bool {
    found.etag.0.trim_matches('"') == listed.etag.0.trim_matches('"')
        && found.size == listed.size
        && found.last_modified_ms / 1000 == listed.last_modified_ms / 1000
}

struct Sweep<'a> {
    keeper: &'a Keeper,
    policy: &'a Policy,
    /// What HEAD reached when it was looked at last.
    recovered: Option<Recovered>,
    lease: Lease<'a>,
    report: Report,
    in_doubt: bool,
}

impl Sweep<'_> {
    async fn delete_all(&mut self, plan: &Plan) -> Result<(), Stopped> {
        let mut reached = HashSet::new();
        for row in plan.deletes() {
            // Never with a key taken: the owner's task may wait for it.
            self.lease.keep().await?;
            if self.delete(row, &mut reached).await? {
                self.report.deleted += 1;
                self.report.deleted_bytes += row.size;
                self.keeper.metrics.reconcile_deleted_total.inc();
                tracing::info!(key = row.key, age_ms = row.age_ms, "deleted an orphan");
                point::reach(Point::RecMidDelete);
            } else {
                self.report.skipped += 1;
            }
        }
        Ok(())
    }

    /// Takes the key, looks at HEAD and at the object, then deletes it. Whether it did.
    async fn delete(&mut self, row: &Row, reached: &mut HashSet<String>) -> Result<bool, Stopped> {
        let Some(mut deleting) = self.keeper.in_flight.delete(&row.key) else { return Ok(false) };
        self.confirm(reached).await?;
        if reached.contains(&row.key) {
            return Ok(false);
        }
        let (env, patience) = (&self.keeper.env, self.keeper.patience());
        let listed = ObjectMeta {
            key: row.key.clone(),
            etag: row.etag.clone(),
            size: row.size,
            last_modified_ms: row.last_modified_ms,
        };
        let found = read::meta(env, &row.key, patience).await?;
        if !found.is_some_and(|found| same(&found, &listed)) {
            return Ok(false);
        }
        let conditional = self.policy.conditional_deletes || self.keeper.conditional_deletes;
        let only = conditional.then(|| row.etag.clone());
        deleting.sent(self.lease.remaining()?);
        self.in_doubt = true;
        let answer = env.store.delete(&row.key, only).await;
        let deleted = match answer {
            Outcome::Done(()) => Ok(true),
            Outcome::Missing | Outcome::Refused(Refusal::Precondition) => Ok(false),
            Outcome::Refused(refusal @ Refusal::Denied { .. }) => {
                Err(denied("DELETE", &row.key, refusal).into())
            }
            Outcome::Refused(Refusal::Conflict) => return Err(ambiguous(&row.key, "409")),
            Outcome::Unknown(why) => return Err(ambiguous(&row.key, &why.reason)),
        };
        deleting.answered();
        self.in_doubt = false;
        deleted
    }

    /// HEAD, read again: the same owner, this lease, and what it reaches since it was looked at last.
    async fn confirm(&mut self, reached: &mut HashSet<String>) -> Result<(), Stopped> {
        let (view, _) = self.keeper.confirm().await?;
        self.lease.is_granted(&view.head)?;
        let known = self.recovered.take();
        let before = known.as_ref().map(|known| (known.view.head.clone(), known.entries.len()));
        if known.as_ref().is_some_and(|known| known.view.etag == view.etag) {
            self.recovered = known;
            return Ok(());
        }
        let (env, root, patience) = (&self.keeper.env, &self.keeper.root, self.keeper.patience());
        let found = recover::recover_from(env, root, Depth::Manifest, &patience, known).await;
        let found = found.and_then(|found| found.ok_or_else(|| Alarm::HeadDeleted.into()));
        let found = found?;
        match before {
            Some((head, entries)) if only_published(&head, &found.view.head) => {
                reached.extend(since(&found, entries));
                self.recovered = Some(found);
                Ok(())
            }
            _ => {
                let detail = "rollups, compactions or the floor moved while this actor had its turn";
                Err(Stopped::new(StopReason::StalePlan, detail))
            }
        }
    }
}

fn ambiguous(key: &str, why: &str) -> Stopped {
    Stopped::new(StopReason::AmbiguousResponse, format!("DELETE of {key:?}: {why}"))
}
