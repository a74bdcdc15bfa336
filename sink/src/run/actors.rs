//! The actors of the background: one after another, in rounds, until the sink stops or one of them finds what must
//! not be. Here alone is counted what they do and why they stop.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::{Config, Lifecycle};
use crate::env::Env;
use crate::error::SinkError;
use crate::model::key::PipelineRoot;
use crate::plan;
use crate::run::patience::Patience;
use crate::run::{compact, gc, originals, orphans, rollup};
use crate::sink::Keeper;
use crate::stop::{Actor, StopReason, Stopped};

/// Longest that a command waits for the safety window: this process must have known a rollup for so long.
const MOST_WAIT_MS: u64 = 61_000;

/// The actors, each with its policy and what it remembers between its runs.
#[derive(Debug)]
pub struct Actors {
    memory: gc::Memory,
    rollup: plan::rollup::Policy,
    gc: plan::gc::Policy,
    compact: plan::compact::Policy,
    originals: plan::originals::Policy,
    orphans: plan::orphans::Policy,
}

/// What an actor did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Its word.
    pub actor: &'static str,
    /// Its report or its plan.
    pub report: Value,
    /// The same for a person, a line each; nothing where there is nothing to do.
    #[serde(skip)]
    pub text: String,
}

impl Told {
    /// What `actor` reports or plans.
    ///
    /// # Errors
    /// None: as an actor's own result.
    pub fn of(actor: Actor, report: impl Serialize) -> Result<Self, Stopped> {
        let report = serde_json::to_value(report).expect("a report's types are JSON");
        Ok(Self { actor: actor.name(), text: lines(&report), report })
    }

    /// What `actor` plans, object by object in the plan's own words.
    ///
    /// # Errors
    /// None, likewise.
    fn planned(actor: Actor, plan: impl Serialize + ToString) -> Result<Self, Stopped> {
        Self::of(actor, &plan).map(|told| Self { text: plan.to_string(), ..told })
    }
}

impl Actors {
    /// As they are configured.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let of = &config.lifecycle;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            memory: gc::Memory::default(),
            rollup: plan::rollup::Policy {
                every_entries: of.rollup_every_entries,
                every_ms: of.rollup_every_ms,
            },
            gc: plan::gc::Policy {
                safety_window_ms: of.safety_window_ms,
                max_clock_skew_ms: config.max_clock_skew_ms,
            },
            compact: plan::compact::Policy {
                min_inputs: count(of.compaction_min_inputs),
                max_inputs: count(of.compaction_max_inputs),
                target_bytes: of.compaction_target_bytes,
                encoding: config.encoding,
            },
            originals: plan::originals::Policy {
                retention_ms: of.originals_retention_ms,
                max_clock_skew_ms: config.max_clock_skew_ms,
            },
            orphans: plan::orphans::Policy {
                grace_period_ms: of.grace_period_ms,
                max_clock_skew_ms: config.max_clock_skew_ms,
                brake: plan::orphans::Brake {
                    percent: of.brake_percent,
                    most: of.brake_objects,
                    ..plan::orphans::Brake::default()
                },
                conditional_deletes: false,
                require_stamp: of.require_owner_stamp,
                lease: plan::orphans::LeaseTimes::of_requests(config.bucket.request_timeout_ms),
            },
        }
    }

    /// What `actor` would do now. Only reads, and needs no ownership.
    ///
    /// # Errors
    /// Why that can't be told.
    pub async fn plan(
        &self,
        actor: Actor,
        env: &Env,
        root: &PipelineRoot,
        patience: &Patience,
    ) -> Result<Told, Stopped> {
        match actor {
            Actor::Rollup => Told::of(actor, rollup::plan(env, root, &self.rollup, patience).await?),
            Actor::Mark => Told::of(actor, gc::plan_mark(env, root, &self.gc, patience).await?),
            Actor::Expire => Told::of(actor, gc::plan_expire(env, root, &self.gc, patience).await?),
            Actor::Compact => Told::planned(actor, compact::plan(env, root, &self.compact, patience).await?),
            Actor::Originals => {
                Told::planned(actor, originals::plan(env, root, &self.originals, patience).await?)
            }
            Actor::Reconcile => {
                Told::planned(actor, orphans::plan(env, root, &self.orphans, patience).await?)
            }
        }
    }

    /// Has `actor` work, in its turn; counts its run and why it stopped.
    ///
    /// # Errors
    /// Why it stopped early.
    pub async fn run(&mut self, actor: Actor, keeper: &Keeper) -> Result<Told, Stopped> {
        let result = self.work(actor, keeper).await;
        let (name, metrics) = (actor.name(), &keeper.metrics);
        metrics.actor_runs_total.with_label_values(&[name]).inc();
        if let Err(stopped) = &result {
            metrics.gc_stopped_total.with_label_values(&[name, stopped.reason.name()]).inc();
            noted(keeper, actor, stopped);
        }
        keeper.ran(name, result.as_ref().err());
        result
    }

    /// The same for a process that has no rounds: what only needs a little more time is waited for.
    ///
    /// # Errors
    /// Why it stopped early.
    pub async fn once(&mut self, actor: Actor, keeper: &Keeper) -> Result<Told, Stopped> {
        let first = self.run(actor, keeper).await?;
        let wait_ms = first.report["plan"]["wait_ms"].as_u64().filter(|ms| (1..=MOST_WAIT_MS).contains(ms));
        let Some(wait_ms) = wait_ms.filter(|_| actor == Actor::Mark) else { return Ok(first) };
        tracing::info!(wait_ms, "waiting until the safety window is over");
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        self.run(actor, keeper).await
    }

    async fn work(&mut self, actor: Actor, keeper: &Keeper) -> Result<Told, Stopped> {
        match actor {
            Actor::Rollup => Told::of(actor, rollup::run(keeper, &self.rollup).await?),
            Actor::Mark => Told::of(actor, gc::mark(keeper, &self.gc, &mut self.memory).await?),
            Actor::Expire => Told::of(actor, gc::expire(keeper, &self.gc, &mut self.memory).await?),
            Actor::Compact => Told::of(actor, compact::run(keeper, &self.compact).await?),
            Actor::Originals => Told::of(actor, originals::run(keeper, &self.originals).await?),
            Actor::Reconcile => Told::of(actor, orphans::run(keeper, &self.orphans).await?),
        }
    }
}

/// An early stop in the log, and counted if it is the hard alarm.
fn noted(keeper: &Keeper, actor: Actor, stopped: &Stopped) {
    if let Some(kind) = stopped.cause.as_deref().and_then(SinkError::missing_kind) {
        keeper.metrics.missing_referenced_total.with_label_values(&[kind]).inc();
    }
    let Stopped { reason, detail, .. } = stopped;
    tracing::warn!(actor = actor.name(), reason = reason.name(), detail, "stopped early");
}

/// When actors work in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// Which.
    pub on: BTreeSet<Actor>,
    /// Milliseconds between two rounds.
    pub every_ms: u64,
    /// Milliseconds between two reconciliations.
    pub reconcile_every_ms: u64,
}

impl Cadence {
    /// As it is configured.
    #[must_use]
    pub fn of(lifecycle: &Lifecycle) -> Self {
        let on = [
            (Actor::Rollup, true),
            (Actor::Mark, lifecycle.mark_entries),
            (Actor::Expire, lifecycle.expire_entries),
            (Actor::Compact, lifecycle.compact),
            (Actor::Originals, lifecycle.delete_originals),
            (Actor::Reconcile, lifecycle.reconcile),
        ];
        Self {
            on: on.into_iter().filter(|(_, on)| *on).map(|(actor, _)| actor).collect(),
            every_ms: lifecycle.actors_every_ms,
            reconcile_every_ms: lifecycle.reconcile_every_ms,
        }
    }
}

/// The actors of a running sink.
#[derive(Debug)]
pub struct Background {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Background {
    /// Has them work in rounds, the first after one pause.
    #[must_use]
    pub fn start(keeper: Keeper, actors: Actors, cadence: Cadence) -> Self {
        let (stop, asked) = watch::channel(false);
        for actor in Actor::ALL {
            keeper.turned(actor.name(), cadence.on.contains(&actor));
        }
        let rounds = Rounds { keeper, actors, cadence, asked, reconciled: None };
        Self { task: tokio::spawn(rounds.run()), stop }
    }

    /// Lets the one that works finish for at most `limit`; then it is cut short, as a crash would.
    pub async fn stop(mut self, limit: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            tracing::warn!(?limit, "an actor of the background was cut short");
            self.task.abort();
        }
    }
}

struct Rounds {
    keeper: Keeper,
    actors: Actors,
    cadence: Cadence,
    asked: watch::Receiver<bool>,
    reconciled: Option<Instant>,
}

impl Rounds {
    async fn run(mut self) {
        loop {
            let every_ms = self.cadence.every_ms;
            let jitter_ms = self.keeper.env.ids.below(every_ms / 10 + 1);
            let pause = tokio::time::sleep(Duration::from_millis(every_ms + jitter_ms));
            tokio::select! {
                () = pause => {}
                _ = self.asked.wait_for(|asked| *asked) => return,
            }
            if !self.round().await {
                return;
            }
        }
    }

    /// False once no actor may work any more.
    async fn round(&mut self) -> bool {
        for actor in self.cadence.on.clone() {
            if *self.asked.borrow() {
                return false;
            }
            if actor == Actor::Reconcile && !self.reconciliation_is_due() {
                continue;
            }
            if let Err(stopped) = self.actors.run(actor, &self.keeper).await
                && !self.goes_on(actor, &stopped)
            {
                return false;
            }
        }
        // What compaction would have to do grows while it is off, too.
        if !self.cadence.on.contains(&Actor::Compact)
            && let Err(stopped) = compact::measure(&self.keeper).await
        {
            noted(&self.keeper, Actor::Compact, &stopped);
            return self.goes_on(Actor::Compact, &stopped);
        }
        true
    }

    /// Whether any actor may work after this stop.
    fn goes_on(&self, actor: Actor, stopped: &Stopped) -> bool {
        if stopped.reason == StopReason::IntegrityFailure {
            tracing::error!(
                actor = actor.name(),
                detail = stopped.detail,
                "INTEGRITY ALARM: every actor of the background is off until this process is started again"
            );
            self.keeper.metrics.actors_off.set(1);
        }
        !matches!(stopped.reason, StopReason::IntegrityFailure | StopReason::EpochChanged)
    }

    fn reconciliation_is_due(&mut self) -> bool {
        let every = Duration::from_millis(self.cadence.reconcile_every_ms);
        let due = self.reconciled.is_none_or(|last| last.elapsed() >= every);
        if due {
            self.reconciled = Some(Instant::now());
        }
        due
    }
}

/// Members of a report, a line each; lists by a line for each of theirs.
fn lines(report: &Value) -> String {
    let mut out = String::new();
    line(&mut out, 0, "", report);
    out
}

fn line(out: &mut String, depth: usize, name: &str, value: &Value) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            if !name.is_empty() {
                out.push_str(&format!("{pad}{name}:\n"));
            }
            let depth = depth + usize::from(!name.is_empty());
            members.iter().for_each(|(name, value)| line(out, depth, name, value));
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            out.push_str(&format!("{pad}{name}: {}\n", items.len()));
            for item in items {
                out.push_str(&format!("{pad}  - {}\n", inline(item)));
            }
        }
        Value::Null => {}
        other => out.push_str(&format!("{pad}{name}: {}\n", inline(other))),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            members.map(|(name, value)| format!("{name} {}", inline(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join("; ")),
        other => other.to_string(),
    }
}
