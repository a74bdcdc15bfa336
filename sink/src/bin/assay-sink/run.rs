//! `assay-sink run`: events in, acknowledgements out.
//!
//! Four parts, each of which waits for the next: a thread reads lines, this file's loop batches them, a task
//! submits batches, a task waits for their acknowledgements in order and prints them.

use std::sync::Arc;

use clap::Args;
use parking_lot::Mutex;
use sinks::config::{Config, Durability};
use sinks::endpoint::{Endpoint, StatusText};
use sinks::error::SinkError;
use sinks::metrics::Metrics;
use sinks::run::actors::{Actors, Background, Cadence};
use sinks::sink::{Ack, Batch, Settings, Sink, Ticket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep, timeout};

use crate::input::lines;
use crate::line::Line;
use crate::open::{Opened, Pipeline};
use crate::probe::probe;
use crate::rolling;
use crate::source::Source;
use crate::stop::Stop;
use crate::{DONE, FENCED, Failure, INTEGRITY, INTERRUPTED, OWN_FAULT, REFUSED, UNAVAILABLE, USAGE};

/// Reads events, writes them, and prints each position once everything up to it is durable.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pipeline: Pipeline,
}

const UNANSWERED: &str =
    "the store gave no answer to the last writes; the next start finds out what became of them";

/// How long an orderly end waits for the actor that works: what it leaves is as after a crash.
const LAST_ACTOR: Duration = Duration::from_secs(10);

const TWICE: &str = "interrupted a second time; the next start finds out what became of the last writes";

impl Run {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let mut stop = Stop::listen()?;
        let opened = self.pipeline.open().await?;
        let metrics = Metrics::new(&opened.config.pipeline, &opened.config.sink);
        let watched: Watched = Arc::default();
        let endpoint = listen(&opened.config, &metrics, &watched).await?;
        let ended = if opened.config.durability == Durability::LegacyRolling {
            rolling::run(&opened, &metrics, &watched, &mut stop).await
        } else {
            durable(&opened, &metrics, &watched, &mut stop).await
        };
        if let (Some(_), Err(failure)) = (&endpoint, &ended) {
            linger(failure, opened.config.metrics_linger_ms, &mut stop).await;
        }
        ended
    }
}

async fn durable(
    opened: &Opened,
    metrics: &Metrics,
    watched: &Watched,
    stop: &mut Stop,
) -> Result<u8, Failure> {
    let settings = match cleared(opened, metrics, stop).await? {
        Ok(settings) => settings,
        Err(code) => return Ok(code),
    };
    let sink = tokio::select! {
        code = stop.asked(1) => return Ok(code),
        sink = Sink::start(opened.env.clone(), settings) => Arc::new(sink?),
    };
    let shown = Arc::downgrade(&sink);
    *watched.lock() = Some(Arc::new(move || match shown.upgrade() {
        Some(sink) => snapshot(&sink),
        None => NOTHING.to_owned(),
    }));
    let config = &opened.config;
    let background = Background::start(sink.keeper(), Actors::of(config), Cadence::of(&config.lifecycle));
    tracing::info!(status = snapshot(&sink), "the stream is owned");
    let result = deliver(opened, &sink, metrics, stop).await;
    tokio::select! {
        () = background.stop(LAST_ACTOR) => {}
        _ = stop.asked(2) => {}
    }
    // What was last is shown as long as anybody can look.
    let last = snapshot(&sink);
    tracing::info!(status = last, "the stream as it is left");
    *watched.lock() = Some(Arc::new(move || last.clone()));
    let closed = close(sink, config, stop).await;
    match (result, closed) {
        (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
        (Ok(code), Ok(())) => Ok(code),
    }
}

fn snapshot(sink: &Sink) -> String {
    serde_json::to_string(&sink.status()).unwrap_or_default()
}

/// Ends that page somebody stay readable on the endpoint: a process that is gone at once was scraped by nobody.
async fn linger(failure: &Failure, ms: u64, stop: &mut Stop) {
    if ms == 0 || !matches!(failure.code, REFUSED | INTEGRITY | FENCED) {
        return;
    }
    let Failure { code, message } = failure;
    tracing::error!(
        exit_code = code,
        ms,
        "{message}; until then the metrics can be read, a signal ends it at once"
    );
    tokio::select! {
        () = sleep(Duration::from_millis(ms)) => {}
        _ = stop.asked(1) => {}
    }
}

/// Probes, before anything else is asked of the bucket and on every start. How the sink is set up comes back
/// if the bucket is fit; a code if a signal came first.
pub(crate) async fn cleared(
    opened: &Opened,
    metrics: &Metrics,
    stop: &mut Stop,
) -> Result<Result<Settings, u8>, Failure> {
    let report = probe(opened, &[], stop).await?;
    report.count(metrics);
    match report.exit_code() {
        DONE => {
            let conditional_deletes = report.conditional_deletes();
            Ok(Ok(Settings { conditional_deletes, ..settings(&opened.config, metrics) }))
        }
        code => {
            eprint!("{report}");
            if code == INTERRUPTED { Ok(Err(code)) } else { Err(Failure::new(code, refusal(code))) }
        }
    }
}

fn refusal(code: u8) -> &'static str {
    if code == REFUSED {
        "the provider failed the probe: no durable sink on it"
    } else {
        "the probe is inconclusive: nothing is started; see to the network or the provider, then start again"
    }
}

/// What tells of the sink, once there is one.
pub(crate) type Watched = Arc<Mutex<Option<StatusText>>>;

/// The status before there is a sink, and after it.
const NOTHING: &str = "null";

async fn listen(config: &Config, metrics: &Metrics, watched: &Watched) -> Result<Option<Endpoint>, Failure> {
    let Some(address) = config.metrics else { return Ok(None) };
    let watched = Arc::clone(watched);
    let status: StatusText = Arc::new(move || {
        let shown = watched.lock().clone();
        shown.map_or_else(|| NOTHING.to_owned(), |shown| shown())
    });
    let endpoint = Endpoint::listen(address, metrics.clone(), status).await.map_err(|error| {
        Failure::new(USAGE, format!("metrics.listen: {address}: {error}; choose another address, or off"))
    })?;
    tracing::info!(address = %endpoint.address(), "metrics are served");
    Ok(Some(endpoint))
}

/// A sink as it is configured.
fn settings(config: &Config, metrics: &Metrics) -> Settings {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Settings {
        checkpoint: Some(config.local_checkpoint.clone()),
        send_timeout_ms: config.send_timeout_ms,
        min_commit_interval_ms: config.min_commit_interval_ms,
        group_commit_max_batches: count(config.group_commit_max_batches),
        queue_batches: count(config.queue_batches),
        takeover_quiet_ms: config.takeover_quiet_ms,
        tables: config.source.tables.clone(),
        metrics: metrics.clone(),
        ..Settings::new(config.root.clone(), &config.pipeline, &config.prefix, &config.instance)
    }
}

/// What the acknowledging task waits for.
enum Owed {
    /// A batch.
    Ticket(Ticket),
    /// Everything that was read is known: the last line over again.
    Repeat,
    /// The sink took no more.
    Failed(SinkError),
}

/// From the first line to the last acknowledgement; returns the exit code.
async fn deliver(
    opened: &Opened,
    sink: &Arc<Sink>,
    metrics: &Metrics,
    stop: &mut Stop,
) -> Result<u8, Failure> {
    let resume = sink.resume();
    let status = sink.status();
    let line = resume.as_ref().map(|position| Line::committed("resume", position, status.seq, status.epoch));
    if let Some(line) = &line {
        line.print()?;
    }
    let (batches, submitted) = mpsc::channel::<Option<Batch>>(1);
    let (owed, acknowledged) = mpsc::channel(1024);
    let submitter = tokio::spawn(submit(Arc::clone(sink), submitted, owed));
    let mut acker = tokio::spawn(acknowledge(acknowledged, line));
    let mut source = Source::new(&opened.config, resume, metrics);
    let input = lines(opened.config.source.input.clone());
    let read = tokio::select! {
        read = source.read(input, batches, stop) => read,
        ended = &mut acker => return joined(ended).and(Ok(OWN_FAULT)),
        // Also while there is nothing to acknowledge: an actor may find that the stream has another owner.
        error = sink.ended() => return Err(error.into()),
    };
    let ended = last_words(&mut acker, &opened.config, stop).await;
    submitter.abort();
    ended.and(read)
}

/// The last batches wait for the store as long as nobody asks for an end.
pub(crate) async fn last_words(
    acker: &mut JoinHandle<Result<(), Failure>>,
    config: &Config,
    stop: &mut Stop,
) -> Result<(), Failure> {
    let mut asked = stop.clone();
    let given_up = async {
        asked.asked(1).await;
        sleep(Duration::from_millis(config.send_timeout_ms)).await;
    };
    tokio::select! {
        ended = acker => joined(ended),
        () = given_up => Err(Failure::new(UNAVAILABLE, UNANSWERED)),
        _ = stop.asked(2) => Err(Failure::new(INTERRUPTED, TWICE)),
    }
}

pub(crate) fn joined(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|error| Err(Failure::new(OWN_FAULT, format!("a task stopped: {error}"))))
}

/// Hands batches to the sink, which makes this wait while its queue is full.
async fn submit(sink: Arc<Sink>, mut batches: mpsc::Receiver<Option<Batch>>, owed: mpsc::Sender<Owed>) {
    while let Some(batch) = batches.recv().await {
        let next = match batch {
            None => Owed::Repeat,
            Some(batch) => {
                let (digest, position) = (batch.position.digest(), batch.position.canonical_text());
                tracing::debug!(%digest, position, sub = batch.position.sub, events = batch.events, "a batch");
                match sink.submit(batch).await {
                    Ok(ticket) => Owed::Ticket(ticket),
                    Err(error) => Owed::Failed(error),
                }
            }
        };
        let failed = matches!(next, Owed::Failed(_));
        if owed.send(next).await.is_err() || failed {
            return;
        }
    }
}

/// Prints acknowledgements in order, until there is nothing more to wait for.
async fn acknowledge(mut owed: mpsc::Receiver<Owed>, mut last: Option<Line>) -> Result<(), Failure> {
    while let Some(next) = owed.recv().await {
        match next {
            Owed::Repeat => {
                if let Some(line) = &last {
                    line.print()?;
                }
            }
            Owed::Failed(error) => return Err(error.into()),
            Owed::Ticket(mut ticket) => {
                let Ack { position, seq, epoch, .. } = loop {
                    match ticket.acknowledged().await {
                        // The sink goes on trying, and so does whoever waits; reading stopped by itself.
                        Err(error @ SinkError::Backpressure { .. }) => tracing::warn!(%error, "waiting on"),
                        answer => break answer?,
                    }
                };
                let line = Line::committed("acknowledged", &position, seq, epoch);
                line.print()?;
                last = Some(line);
            }
        }
    }
    Ok(())
}

/// Lets go of the sink, once nobody looks at its status.
async fn close(mut sink: Arc<Sink>, config: &Config, stop: &mut Stop) -> Result<(), Failure> {
    let limit = Duration::from_millis(config.send_timeout_ms);
    let closing = async {
        let sink = loop {
            match Arc::try_unwrap(sink) {
                Ok(sink) => break sink,
                Err(shared) => sink = shared,
            }
            tokio::task::yield_now().await;
        };
        sink.close().await.map_err(Failure::from)
    };
    tokio::select! {
        closed = timeout(limit, closing) => closed.unwrap_or_else(|_| Err(Failure::new(UNAVAILABLE, UNANSWERED))),
        _ = stop.asked(2) => Err(Failure::new(INTERRUPTED, TWICE)),
    }
}
