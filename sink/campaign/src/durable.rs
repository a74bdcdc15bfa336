//! A worker of the other sink: each partition is a `durable_v2` pipeline, which resumes where its HEAD says. It needs
//! no coordinator: an acknowledged batch is in the chain. Beside it every actor of the background works.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinks::config::Config;
use sinks::env::Env;
use sinks::error::SinkError;
use sinks::format::row_seq_digest;
use sinks::model::ids::Digest;
use sinks::model::key::PipelineRoot;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::probe::{Probe, ProbeSettings, S3Clients, Verdict};
use sinks::run::actors::{Actors, Background, Cadence};
use sinks::sink::{Batch, EncodedObject, Settings, Sink};
use tokio::task::JoinSet;

use crate::clock;
use crate::plan::{PREFIX, Plan, pipeline};
use crate::source;

/// Lines of a batch, at most.
const BATCH: u64 = 2_000;

/// Every actor, with windows that a campaign sees the end of. A rollup takes six intervals, longer than the window and
/// the skew together: a generation is published for the window before the next one is.
const ACTORS: &str = "
    max_clock_skew_ms: 1500
    actors_every_ms: 500
    rollup_every_entries: 6
    safety_window_ms: 500
    expire_entries: true
    compact: true
    compaction: {min_inputs: 4}
    delete_originals: true
    originals_retention_ms: 5000
    reconcile: true
    reconcile_every_ms: 3000
";

/// How long a probe may take, in milliseconds: less than a campaign waits for a worker whose store hangs.
const PROBE_LIMIT_MS: u64 = 45_000;

/// How long the actor that works may finish, in milliseconds.
const LAST_ACTOR_MS: u64 = 5_000;

/// Works until the stream ended, or the process is killed; what it keeps beside the bucket is its host's.
///
/// # Errors
/// [`SinkError`], whose exit code is the process's.
pub async fn run(plan: &Plan, worker: u32, host: u32) -> Result<(), SinkError> {
    let store = plan.bucket().map_err(|why| SinkError::Configuration(why.to_string()))?;
    let env = Env { store: Arc::new(store), clock: Arc::new(clock::Wall), ids: Arc::new(clock::ids()) };
    let subtasks = plan.subtasks(worker);
    let conditional_deletes = match subtasks.first() {
        Some(first) => probe(plan, &env, *first).await?,
        None => false,
    };
    let mut running = JoinSet::new();
    for subtask in subtasks {
        running.spawn(partition(plan.clone(), env.clone(), subtask, host, conditional_deletes));
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|why| SinkError::Internal(why.to_string()))??;
    }
    Ok(())
}

fn root(subtask: u32) -> Result<PipelineRoot, SinkError> {
    Ok(PipelineRoot::new(PREFIX, &pipeline(subtask), "jsonl")?)
}

/// The pipeline as it would be configured.
fn config(plan: &Plan, subtask: u32) -> Result<Config, SinkError> {
    let (settings, _) = plan.connection();
    let text = format!(
        "pipeline: {}\nsinks:\n  - type: s3\n    bucket: {}\n    prefix: {PREFIX}\n    send_timeout_ms: {}\n    \
         grace_period_ms: {}\n    request_timeout_ms: {}{ACTORS}",
        pipeline(subtask),
        plan.bucket_name(),
        plan.patience_ms,
        2 * plan.patience_ms,
        settings.request_timeout_ms,
    );
    Config::read(&text, |_| None).map_err(|why| SinkError::Configuration(why.to_string()))
}

/// The probe comes before anything asks for a HEAD; with short races, since a campaign starts often. Whether deletes
/// may name the tag of what they delete.
async fn probe(plan: &Plan, env: &Env, subtask: u32) -> Result<bool, SinkError> {
    let (settings, access) = plan.connection();
    let clients = S3Clients::new(&settings, &access, &[]).await;
    let clients = clients.map_err(|why| SinkError::Configuration(why.to_string()))?;
    let settings =
        ProbeSettings { race_budget_ms: 300, tries: 2, limit_ms: PROBE_LIMIT_MS, ..ProbeSettings::default() };
    let root = root(subtask)?;
    let probe = Probe { env, clients: &clients, root: &root, settings: &settings };
    let report = probe.run(std::future::pending()).await;
    match &report.verdict {
        Verdict::Ready => Ok(report.conditional_deletes()),
        Verdict::Refused(checks) => Err(SinkError::ProbeRefused(format!("checks {checks:?}"))),
        Verdict::Inconclusive(checks) => Err(SinkError::ProbeInconclusive(format!("checks {checks:?}"))),
    }
}

async fn partition(
    plan: Plan,
    env: Env,
    subtask: u32,
    host: u32,
    conditional_deletes: bool,
) -> Result<(), SinkError> {
    let config = config(&plan, subtask)?;
    let mut settings = Settings::new(root(subtask)?, &pipeline(subtask), PREFIX, "campaign");
    let local = plan.directory.join(format!("local-{host}"));
    std::fs::create_dir_all(&local).map_err(|why| SinkError::Internal(why.to_string()))?;
    settings.checkpoint = Some(local.join(pipeline(subtask)));
    settings.send_timeout_ms = plan.patience_ms;
    settings.conditional_deletes = conditional_deletes;
    let sink = Sink::start(env, settings).await?;
    tracing::info!(sink = "durable_v2", subtask, "durable_v2 sink is open");
    let background = Background::start(sink.keeper(), Actors::of(&config), Cadence::of(&config.lifecycle));
    deliver(&plan, &sink, subtask).await?;
    background.stop(Duration::from_millis(LAST_ACTOR_MS)).await;
    sink.close().await
}

/// Commits what the log has, until the stream ended.
async fn deliver(plan: &Plan, sink: &Sink, subtask: u32) -> Result<(), SinkError> {
    let keeper = sink.keeper();
    let mut next = match sink.resume() {
        Some(position) => seq(&position)?,
        None => 0,
    };
    tracing::info!(subtask, next, steps = ?sink.reconciled(), "resumes");
    let mut source = source::open(plan).map_err(SinkError::Internal)?;
    let stop = plan.directory.join("stop-job");
    loop {
        if keeper.metrics.actors_off.get() > 0 {
            let actors = keeper.status().actors;
            return Err(SinkError::Internal(format!("an actor raised the integrity alarm: {actors:?}")));
        }
        let lines = source.fetch(subtask, next, BATCH).await.map_err(SinkError::Internal)?;
        let lines = lines.unwrap_or_default();
        if lines.is_empty() {
            if stop.exists() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        next += lines.len() as u64;
        let mut ticket = sink.submit(batch(subtask, next, &lines)?).await?;
        loop {
            match ticket.acknowledged().await {
                Ok(ack) => break tracing::debug!(subtask, next, seq = ack.seq, "acknowledged"),
                // The sink goes on trying; so does whoever waits.
                Err(SinkError::Backpressure { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // One batch an interval and partition, as the other sink has one object.
        tokio::time::sleep(Duration::from_millis(plan.checkpoint_ms)).await;
    }
}

/// A position is how many events of the partition are durable with it, as an LSN.
fn position(next: u64) -> Result<Position, SinkError> {
    let text = format!("{:X}/{:X}", next >> 32, next & 0xffff_ffff);
    let wrong = |why: &dyn std::fmt::Display| SinkError::Internal(format!("position {text}: {why}"));
    let lineage = Lineage::new("campaign", "1/1", 1).map_err(|why| wrong(&why))?;
    Position::parse(PositionType::PgLsn, lineage, &text, 0).map_err(|why| wrong(&why))
}

fn seq(position: &Position) -> Result<u64, SinkError> {
    let text = position.canonical_text();
    let halves = text.split_once('/');
    let parsed = halves.and_then(|(high, low)| {
        let (high, low) = (u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?);
        Some(high << 32 | low)
    });
    parsed.ok_or_else(|| {
        SinkError::Internal(format!("HEAD has position {text:?}, which is none of a campaign"))
    })
}

fn batch(subtask: u32, next: u64, lines: &[String]) -> Result<Batch, SinkError> {
    let bytes: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let object = EncodedObject {
        namespace: "campaign".to_owned(),
        table: pipeline(subtask),
        bytes: Bytes::from(bytes),
        rows: lines.len() as u64,
        format: "jsonl",
        compression: "none",
        extension: "jsonl",
        schema_fingerprint: Digest::of(b"campaign"),
        row_seq_digest: row_seq_digest(lines.iter().map(String::as_bytes)),
    };
    let position = position(next)?;
    let events = lines.len() as u64;
    Ok(Batch { position, objects: vec![object], events, min_ts_ms: None, max_ts_ms: None })
}

#[cfg(test)]
mod tests {
    use assay_oracle::bucket::Bucket;
    use assay_oracle::events::Place;
    use assay_oracle::report::Verdict;
    use assay_oracle::visible::{self, Ledger};
    use assay_server::Server;
    use sinks::run::recover::{Depth, recover};
    use sinks::stop::Actor;

    use super::*;
    use crate::plan;

    fn plan(server: &Server) -> Plan {
        Plan {
            sink: plan::Sink::DurableV2,
            seed: 5,
            partitions: 1,
            keys: 100,
            workers: 1,
            rate: 1,
            checkpoint_ms: 1,
            patience_ms: 3_000,
            store: server.endpoint().trim_start_matches("http://").to_owned(),
            log: String::new(),
            kafka: None,
            coordinator: String::new(),
            directory: std::path::PathBuf::new(),
            mutant: None,
            deviations: Vec::new(),
            store_faults: Vec::new(),
            upstream: None,
        }
    }

    /// The judge that reads along, and one that starts afresh, while everything is replaced by something that stands
    /// for it.
    #[tokio::test]
    async fn judges_read_on_while_entries_and_objects_go() {
        let server = Server::builder().bucket(plan::BUCKET).credentials(plan::KEYS.0, plan::KEYS.1);
        let server = server.start().await.expect("a server on loopback");
        let plan = plan(&server);
        let store = plan.bucket().expect("the plan's bucket");
        let env = Env { store: Arc::new(store), clock: Arc::new(clock::Wall), ids: Arc::new(clock::ids()) };
        let mut config = config(&plan, 0).expect("a sound pipeline");
        (config.lifecycle.safety_window_ms, config.lifecycle.originals_retention_ms) = (0, 0);
        // Less than the second that the store's clock counts in would never be certain.
        config.max_clock_skew_ms = 1_100;
        let settings = Settings::new(root(0).expect("a root"), &pipeline(0), PREFIX, "test");
        let sink = Sink::start(env, settings).await.expect("an empty bucket");
        let (keeper, mut actors) = (sink.keeper(), Actors::of(&config));
        let bucket = Bucket::impatient(&plan.judged());
        let mut ledger = Ledger::new(plan.workload(), plan.scope());
        let mut next = 0;
        for round in 1..=4 {
            for _ in 0..8 {
                let place = |seq| Place { partition: 0, seq };
                let lines: Vec<_> = (next..next + 10).map(|seq| plan.workload().line(place(seq))).collect();
                next += 10;
                let mut ticket = sink.submit(batch(0, next, &lines).expect("a batch")).await.expect("room");
                ticket.acknowledged().await.expect("it is committed");
            }
            ledger.sample(&bucket).await.expect("a store that answers");
            for actor in [Actor::Rollup, Actor::Mark, Actor::Expire, Actor::Compact] {
                actors.run(actor, &keeper).await.expect("nothing stops it");
            }
            // Originals go once a record is older than the skew.
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            actors.run(Actor::Originals, &keeper).await.expect("nothing stops it");
            ledger.sample(&bucket).await.expect("a store that answers");
            let report = ledger.report();
            assert!(report.counts.is_empty(), "round {round}: {}", report.text());
            assert_eq!((ledger.distinct(), report.statistics.rows["p0"]), (next, next), "round {round}");
            assert!(report.statistics.listed < 8, "round {round}: {}", report.text());
        }
        let judged =
            visible::judge(&bucket, plan.scope(), plan.workload(), &[next]).await.expect("a judgement");
        assert_eq!(judged.verdict(), Verdict::Clean, "{}", judged.text());
        let settled =
            assay_oracle::durable::judge(&bucket, &plan.subjects()[0], None).await.expect("a judgement");
        assert_eq!(settled.verdict(), Verdict::Clean, "{}", settled.text());
        assert_eq!(
            (settled.statistics.entries_gone, settled.statistics.collectable),
            (24, 0),
            "{}",
            settled.text()
        );

        let patience = keeper.patience();
        let found = recover(&keeper.env, &keeper.root, Depth::Manifest, &patience).await;
        let live = found.expect("a sound stream").expect("a stream").live();
        keeper.env.store.delete(&live[0].key, None).await;
        ledger.sample(&bucket).await.expect("a store that answers");
        let kinds: Vec<_> = ledger.report().counts.keys().map(|kind| kind.name()).collect();
        assert_eq!(kinds, ["mutated_object"], "{}", ledger.report().text());
        sink.close().await.expect("nothing is under way");
    }

    #[test]
    fn a_position_is_read_back() {
        for next in [1, 255, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(seq(&position(next).unwrap()).unwrap(), next);
        }
    }
}
