//! `assay-sink gc`, `compact`, `reconcile` and `rollup`: the actors of the background, once, and what they would do.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use serde::Serialize;
use sinks::config::Durability;
use sinks::metrics::Metrics;
use sinks::plan::ownership::Identity;
use sinks::run::actors::{Actors, Told};
use sinks::run::{read, rebuild};
use sinks::sink::Sink;
use sinks::stop::{Actor, Stopped};
use tokio::time::{Duration, Instant, MissedTickBehavior};

use crate::open::{Opened, Pipeline};
use crate::run::cleared;
use crate::stop::Stop;
use crate::{DONE, Failure, REFUSED, USAGE, print, print_json};

/// How long an owner must have been silent before a command takes its stream away unasked, at least: a sink that
/// waits for events writes nothing.
const QUIET_MS: u64 = 60_000;

/// How often a terminal sees that something is still going on.
const TICK: Duration = Duration::from_secs(1);

/// Has an actor work once, as the owner of the stream.
#[derive(Args)]
pub(crate) struct Once {
    #[command(flatten)]
    pipeline: Pipeline,
    /// Print what would be done and why, object by object; take no ownership, write nothing
    #[arg(long)]
    dry_run: bool,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
    /// Take the stream away from a process that wrote to it just now; that process ends, fenced
    #[arg(long, conflicts_with = "dry_run")]
    take_over: bool,
}

/// Collects garbage: marks entries, deletes marked ones, deletes originals that a compaction superseded.
#[derive(Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    once: Once,
    /// Only these, in this order
    #[arg(long, value_delimiter = ',', value_name = "ACTOR", default_values = ["mark", "expire", "originals"])]
    only: Vec<Collector>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Collector {
    /// Mark entries that may go; deletes nothing
    Mark,
    /// Delete marked entries
    Expire,
    /// Delete originals that a compaction superseded
    Originals,
}

impl Collector {
    const fn actor(self) -> Actor {
        match self {
            Self::Mark => Actor::Mark,
            Self::Expire => Actor::Expire,
            Self::Originals => Actor::Originals,
        }
    }
}

impl Gc {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let mut only = self.only.clone();
        only.sort_unstable();
        only.dedup();
        let actors: Vec<Actor> = only.into_iter().map(Collector::actor).collect();
        self.once.run(&actors).await
    }
}

/// Rolls entries up into inventories.
#[derive(Args)]
pub(crate) struct Rollup {
    #[command(flatten)]
    once: Once,
    /// Rebuild the current rollup, if it or an inventory of it is damaged or gone and what is left proves what it said
    #[arg(long)]
    rebuild: bool,
}

impl Rollup {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        if self.rebuild { self.once.rebuild().await } else { self.once.run(&[Actor::Rollup]).await }
    }
}

/// What was done, or would be.
#[derive(Serialize)]
struct Answer {
    root: String,
    dry_run: bool,
    actors: Vec<Told>,
    /// The actor that stopped early, after those above; nothing came after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<StoppedAnswer>,
}

#[derive(Serialize)]
struct StoppedAnswer {
    actor: &'static str,
    reason: &'static str,
    detail: String,
}

impl Once {
    /// Opens the pipeline, unless its durable state is to be left alone.
    async fn open(&self) -> Result<Opened, Failure> {
        let opened = self.pipeline.open().await?;
        if opened.config.durability == Durability::LegacyRolling {
            return Err(Failure::new(
                USAGE,
                "sinks[0].durability: legacy_rolling leaves durable state alone; remove it to maintain the stream",
            ));
        }
        Ok(opened)
    }

    /// Rebuilds the current rollup. A stream that needs it has no owner and gets none by a start: this becomes the
    /// owner by the one swap of HEAD that makes the stream whole.
    async fn rebuild(&self) -> Result<u8, Failure> {
        let mut stop = Stop::listen()?;
        let opened = self.open().await?;
        let (config, env) = (&opened.config, &opened.env);
        let (root, patience) = (&config.root, opened.patience());
        if self.dry_run {
            return tokio::select! {
                code = stop.asked(1) => Ok(code),
                plan = progress(Actor::Rollup, rebuild::plan(env, root, &patience)) => self.told(&opened, plan),
            };
        }
        if !self.take_over {
            unowned(&opened).await?;
        }
        let metrics = Metrics::new(&config.pipeline, &config.sink);
        if let Err(code) = cleared(&opened, &metrics, &mut stop).await? {
            return Ok(code);
        }
        let me = Identity {
            writer_id: env.ids.writer_id(),
            instance: config.instance.clone(),
            pipeline: config.pipeline.clone(),
            prefix: config.prefix.clone(),
        };
        tokio::select! {
            code = stop.asked(1) => Ok(code),
            done = progress(Actor::Rollup, rebuild::run(env, root, &me, &metrics, &patience)) => {
                self.told(&opened, done)
            }
        }
    }

    /// The answer of the one actor that rebuilds.
    fn told(&self, opened: &Opened, done: Result<impl Serialize, Stopped>) -> Result<u8, Failure> {
        match done.and_then(|report| Told::of(Actor::Rollup, report)) {
            Ok(told) => self.answer(opened, vec![told], None),
            Err(stopped) => self.answer(opened, Vec::new(), Some((Actor::Rollup, stopped))),
        }
    }

    pub(crate) async fn run(&self, actors: &[Actor]) -> Result<u8, Failure> {
        let mut stop = Stop::listen()?;
        let opened = self.open().await?;
        if self.dry_run {
            return tokio::select! {
                code = stop.asked(1) => Ok(code),
                answer = self.dry(&opened, actors) => answer,
            };
        }
        if !self.take_over {
            unowned(&opened).await?;
        }
        let metrics = Metrics::new(&opened.config.pipeline, &opened.config.sink);
        let settings = match cleared(&opened, &metrics, &mut stop).await? {
            Ok(settings) => settings,
            Err(code) => return Ok(code),
        };
        let sink = tokio::select! {
            code = stop.asked(1) => return Ok(code),
            sink = Sink::start(opened.env.clone(), settings) => sink?,
        };
        let worked = tokio::select! {
            code = stop.asked(1) => Ok(code),
            answer = self.work(&opened, &sink, actors) => answer,
        };
        let closed = sink.close().await.map_err(Failure::from);
        worked.and_then(|code| closed.map(|()| code))
    }

    async fn dry(&self, opened: &Opened, actors: &[Actor]) -> Result<u8, Failure> {
        let (all, mut done) = (Actors::of(&opened.config), Vec::new());
        let (root, patience) = (&opened.config.root, opened.patience());
        for &actor in actors {
            match progress(actor, all.plan(actor, &opened.env, root, &patience)).await {
                Ok(told) => done.push(told),
                Err(stopped) => return self.answer(opened, done, Some((actor, stopped))),
            }
        }
        self.answer(opened, done, None)
    }

    async fn work(&self, opened: &Opened, sink: &Sink, actors: &[Actor]) -> Result<u8, Failure> {
        let (mut all, keeper, mut done) = (Actors::of(&opened.config), sink.keeper(), Vec::new());
        for &actor in actors {
            match progress(actor, all.once(actor, &keeper)).await {
                Ok(told) => done.push(told),
                Err(stopped) => return self.answer(opened, done, Some((actor, stopped))),
            }
        }
        self.answer(opened, done, None)
    }

    fn answer(
        &self,
        opened: &Opened,
        actors: Vec<Told>,
        stopped: Option<(Actor, Stopped)>,
    ) -> Result<u8, Failure> {
        let code = stopped.as_ref().map_or(DONE, |(_, stopped)| stopped.exit_code());
        let root = opened.config.root.as_str().to_owned();
        if self.json {
            let stopped = stopped.map(|(actor, stopped)| StoppedAnswer {
                actor: actor.name(),
                reason: stopped.reason.name(),
                detail: stopped.detail,
            });
            print_json(&Answer { root, dry_run: self.dry_run, actors, stopped })?;
            return Ok(code);
        }
        for Told { actor, text, .. } in &actors {
            let would = if self.dry_run { "would do" } else { "did" };
            let body = if text.is_empty() { "nothing\n" } else { text };
            print(&format!("{actor} {would}:\n"));
            body.lines().for_each(|line| print(&format!("  {line}\n")));
        }
        match stopped {
            None => Ok(code),
            Some((actor, stopped)) => Err(Failure::new(code, format!("{}: {stopped}", actor.name()))),
        }
    }
}

/// Refuses if somebody wrote just now: taking ownership would end that process.
async fn unowned(opened: &Opened) -> Result<(), Failure> {
    let Some(view) = read::view(&opened.env, &opened.config.root, &opened.patience()).await? else {
        return Err(Failure::new(USAGE, format!("{}: nothing is committed", opened.config.root.as_str())));
    };
    let (owner, epoch) = (&view.head.owner, view.head.epoch);
    let quiet_ms = opened.config.takeover_quiet_ms.max(QUIET_MS);
    let idle_ms = opened.env.clock.now_ms().saturating_sub(view.head.write.attempt_at_ms);
    if idle_ms >= quiet_ms {
        return Ok(());
    }
    Err(Failure::new(
        REFUSED,
        format!(
            "writer {} of instance {:?}, epoch {epoch}, wrote {idle_ms} ms ago, and taking the stream over ends it; \
             wait until it is silent for {quiet_ms} ms, have its own background actors do this, or give --take-over",
            owner.writer_id, owner.instance
        ),
    ))
}

/// Shows at a terminal that something is going on.
async fn progress<T>(actor: Actor, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    tokio::pin!(work);
    let began = Instant::now();
    let mut ticks = tokio::time::interval_at(began + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            done = &mut work => {
                eprint!("\r\x1b[K");
                return done;
            }
            _ = ticks.tick() => eprint!("\r{}: {} s ", actor.name(), began.elapsed().as_secs()),
        }
    }
}
