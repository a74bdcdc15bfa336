//! A worker of the other sink: each partition is a `durable_v2` pipeline, which resumes where its HEAD says. It needs
//! no coordinator: an acknowledged batch is in the chain.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinks::env::Env;
use sinks::error::SinkError;
use sinks::format::row_seq_digest;
use sinks::model::ids::Digest;
use sinks::model::key::PipelineRoot;
use sinks::model::position::{Lineage, Position, PositionType};
use sinks::probe::{Probe, ProbeSettings, S3Clients, Verdict};
use sinks::sink::{Batch, EncodedObject, Settings, Sink};
use tokio::task::JoinSet;

use crate::clock;
use crate::plan::{PREFIX, Plan, pipeline};
use crate::source;

/// Lines of a batch, at most.
const BATCH: u64 = 2_000;

/// Works until the stream ended, or the process is killed.
///
/// # Errors
/// [`SinkError`], whose exit code is the process's.
pub async fn run(plan: &Plan, worker: u32) -> Result<(), SinkError> {
    let store = plan.bucket().map_err(|why| SinkError::Configuration(why.to_string()))?;
    let env = Env { store: Arc::new(store), clock: Arc::new(clock::Wall), ids: Arc::new(clock::ids()) };
    let subtasks = plan.subtasks(worker);
    if let Some(first) = subtasks.first() {
        probe(plan, &env, *first).await?;
    }
    let mut running = JoinSet::new();
    for subtask in subtasks {
        running.spawn(partition(plan.clone(), env.clone(), subtask));
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|why| SinkError::Internal(why.to_string()))??;
    }
    Ok(())
}

fn root(subtask: u32) -> Result<PipelineRoot, SinkError> {
    Ok(PipelineRoot::new(PREFIX, &pipeline(subtask), "jsonl")?)
}

/// The probe comes before anything asks for a HEAD; with short races, since a campaign starts often.
async fn probe(plan: &Plan, env: &Env, subtask: u32) -> Result<(), SinkError> {
    let (settings, access) = plan.connection();
    let clients = S3Clients::new(&settings, &access, &[]).await;
    let clients = clients.map_err(|why| SinkError::Configuration(why.to_string()))?;
    let settings =
        ProbeSettings { race_budget_ms: 300, tries: 2, limit_ms: 60_000, ..ProbeSettings::default() };
    let root = root(subtask)?;
    let probe = Probe { env, clients: &clients, root: &root, settings: &settings };
    match probe.run(std::future::pending()).await.verdict {
        Verdict::Ready => Ok(()),
        Verdict::Refused(checks) => Err(SinkError::ProbeRefused(format!("checks {checks:?}"))),
        Verdict::Inconclusive(checks) => Err(SinkError::ProbeInconclusive(format!("checks {checks:?}"))),
    }
}

async fn partition(plan: Plan, env: Env, subtask: u32) -> Result<(), SinkError> {
    let mut settings = Settings::new(root(subtask)?, &pipeline(subtask), PREFIX, "campaign");
    let local = plan.directory.join("local");
    std::fs::create_dir_all(&local).map_err(|why| SinkError::Internal(why.to_string()))?;
    settings.checkpoint = Some(local.join(pipeline(subtask)));
    settings.send_timeout_ms = plan.patience_ms;
    let sink = Sink::start(env, settings).await?;
    let mut next = match sink.resume() {
        Some(position) => seq(&position)?,
        None => 0,
    };
    tracing::info!(subtask, next, steps = ?sink.reconciled(), "resumes");
    let mut source = source::open(&plan).map_err(SinkError::Internal)?;
    let stop = plan.directory.join("stop-job");
    loop {
        let lines = source.fetch(subtask, next, BATCH).await.map_err(SinkError::Internal)?;
        let lines = lines.unwrap_or_default();
        if lines.is_empty() {
            if stop.exists() {
                return sink.close().await;
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
    use super::*;

    #[test]
    fn a_position_is_read_back() {
        for next in [1, 255, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            assert_eq!(seq(&position(next).unwrap()).unwrap(), next);
        }
    }
}
