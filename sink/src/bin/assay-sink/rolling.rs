//! `assay-sink run` with `durability: legacy_rolling`: acknowledgements of what is not in the bucket yet.

use std::sync::Arc;

use parking_lot::Mutex;
use sinks::error::SinkError;
use sinks::local::DiskCheckpoints;
use sinks::metrics::Metrics;
use sinks::rolling::{PART_BYTES, Rolling, RollingStatus, Settings};
use sinks::sink::Batch;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until};

use crate::input::lines;
use crate::line::Line;
use crate::open::Opened;
use crate::run::{Watched, joined, last_words};
use crate::source::Source;
use crate::stop::Stop;
use crate::{Failure, OWN_FAULT};

/// From the first line to the last rolled file; returns the exit code.
pub(crate) async fn run(
    opened: &Opened,
    metrics: &Metrics,
    watched: &Watched,
    stop: &mut Stop,
) -> Result<u8, Failure> {
    let config = &opened.config;
    let path = config.local_checkpoint.clone();
    let checkpoints = tokio::task::spawn_blocking(move || DiskCheckpoints::open(&path)).await;
    let checkpoints = checkpoints.map_err(|error| Failure::new(OWN_FAULT, error.to_string()))??;
    let settings = Settings {
        prefix: config.prefix.clone(),
        max_bytes: config.rolling.max_bytes,
        max_age_ms: config.rolling.max_age_ms,
        part_bytes: PART_BYTES,
        patience_ms: config.send_timeout_ms,
        metrics: metrics.clone(),
    };
    let uploads = Arc::clone(&opened.uploads);
    let sink = Rolling::open(opened.env.clone(), uploads, settings, Arc::new(checkpoints)).await?;
    let resume = sink.resume()?;
    let line = resume.as_ref().map(|position| Line::not_durable("resume", position));
    if let Some(line) = &line {
        line.print()?;
    }
    let status = Arc::new(Mutex::new(sink.status()));
    let shown = Arc::clone(&status);
    *watched.lock() = Some(Arc::new(move || serde_json::to_string(&*shown.lock()).unwrap_or_default()));
    let (batches, accepted) = mpsc::channel(1);
    let mut writer = tokio::spawn(write(sink, accepted, line, status));
    let mut source = Source::new(config, resume, metrics);
    let read = tokio::select! {
        read = source.read(lines(config.source.input.clone()), batches, stop) => read,
        ended = &mut writer => return joined(ended).and(Ok(OWN_FAULT)),
    };
    last_words(&mut writer, config, stop).await.and(read)
}

/// Takes batches, acknowledges each at once, and rolls files as they become large or old; all of them at the end.
async fn write(
    mut sink: Rolling,
    mut batches: mpsc::Receiver<Option<Batch>>,
    mut last: Option<Line>,
    status: Arc<Mutex<RollingStatus>>,
) -> Result<(), Failure> {
    let lost = |sink: &Rolling, error: SinkError| {
        let rows = sink.status().unrolled_rows;
        Failure::new(
            error.exit_code(),
            format!("{error}; {rows} rows that were acknowledged are not in the bucket"),
        )
    };
    loop {
        let due = sink.due();
        let far = || Instant::now() + Duration::from_secs(3600);
        tokio::select! {
            batch = batches.recv() => match batch {
                None => break,
                Some(None) => {}
                Some(Some(batch)) => {
                    last = Some(Line::not_durable("acknowledged", &batch.position));
                    sink.accept(batch).await.map_err(|error| lost(&sink, error))?;
                }
            },
            () = sleep_until(due.unwrap_or_else(far)), if due.is_some() => {
                sink.roll_due(Instant::now()).await.map_err(|error| lost(&sink, error))?;
                *status.lock() = sink.status();
                continue;
            }
        }
        if let Some(line) = &last {
            line.print()?;
        }
        sink.roll_due(Instant::now()).await.map_err(|error| lost(&sink, error))?;
        *status.lock() = sink.status();
    }
    let rows = sink.status().unrolled_rows;
    sink.close().await.map_err(|error| {
        Failure::new(
            error.exit_code(),
            format!("{error}; up to {rows} rows that were acknowledged are not in the bucket"),
        )
    })
}
