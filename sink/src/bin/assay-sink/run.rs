//! `assay-sink run`: events in, acknowledgements out.
//!
//! Four parts, each of which waits for the next: a thread reads lines, this file's loop batches them, a task
//! submits batches, a task waits for their acknowledgements in order and prints them.

use std::io::Write as _;
use std::sync::{Arc, Weak};

use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;
use sinks::batch::{Batcher, Taken};
use sinks::config::Config;
use sinks::endpoint::{Endpoint, StatusText};
use sinks::error::SinkError;
use sinks::events::envelope::Decoder;
use sinks::events::transaction::Transactions;
use sinks::events::{EventError, What};
use sinks::metrics::Metrics;
use sinks::model::ids::Digest;
use sinks::model::position::{Position, PositionType};
use sinks::sink::{Ack, Batch, Settings, Sink, Ticket};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::input::{Input, lines};
use crate::open::{Opened, Pipeline};
use crate::probe::probe;
use crate::stop::Stop;
use crate::{DONE, Failure, INTERRUPTED, OWN_FAULT, UNAVAILABLE, USAGE};

/// Reads events, writes them, and prints each position once everything up to it is durable.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pipeline: Pipeline,
}

const UNANSWERED: &str =
    "the store gave no answer to the last writes; the next start finds out what became of them";

const TWICE: &str = "interrupted a second time; the next start finds out what became of the last writes";

/// A line of standard output.
#[derive(Clone, Debug, Serialize)]
struct Line {
    /// `resume`: the stream is durable up to here, from an earlier run; `acknowledged`: from this one.
    event: &'static str,
    #[serde(rename = "type")]
    position_type: PositionType,
    /// The position in the source's words.
    position: String,
    /// Events of the next transaction that are included.
    sub: u64,
    digest: Digest,
    /// The entry that made it durable.
    seq: u64,
    epoch: u64,
}

impl Line {
    fn new(event: &'static str, position: &Position, seq: u64, epoch: u64) -> Self {
        let (position_type, sub, digest) = (position.position_type(), position.sub, position.digest());
        Self { event, position_type, position: position.canonical_text(), sub, digest, seq, epoch }
    }

    /// Written and flushed at once: somebody waits for it.
    fn print(&self) -> Result<(), Failure> {
        let mut text =
            serde_json::to_string(self).map_err(|error| Failure::new(OWN_FAULT, error.to_string()))?;
        text.push('\n');
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
            Failure::new(OWN_FAULT, format!("acknowledgements can't be written to standard output: {error}"))
        })
    }
}

impl Run {
    pub(crate) async fn run(&self) -> Result<u8, Failure> {
        let mut stop = Stop::listen()?;
        let opened = self.pipeline.open().await?;
        let metrics = Metrics::new(&opened.config.pipeline, &opened.config.sink);
        let watched: Watched = Arc::default();
        let endpoint = listen(&opened.config, &metrics, &watched).await?;
        // Before anything else is asked of the bucket, on every start.
        let report = probe(&opened, &[], &mut stop).await?;
        report.count(&metrics);
        if report.exit_code() != DONE {
            eprint!("{report}");
            let code = report.exit_code();
            return if code == INTERRUPTED { Ok(code) } else { Err(Failure::new(code, refusal(code))) };
        }
        let sink = tokio::select! {
            code = stop.asked(1) => return Ok(code),
            sink = Sink::start(opened.env.clone(), settings(&opened.config, &metrics)) => Arc::new(sink?),
        };
        *watched.lock() = Arc::downgrade(&sink);
        let result = deliver(&opened, &sink, &metrics, &mut stop).await;
        drop(endpoint);
        let closed = close(sink, &opened.config, &mut stop).await;
        match (result, closed) {
            (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
            (Ok(code), Ok(())) => Ok(code),
        }
    }
}

fn refusal(code: u8) -> &'static str {
    if code == crate::REFUSED {
        "the provider failed the probe: no durable sink on it"
    } else {
        "the probe is inconclusive: nothing is started; see to the network or the provider, then start again"
    }
}

/// The sink whose status is shown, once there is one.
type Watched = Arc<Mutex<Weak<Sink>>>;

async fn listen(config: &Config, metrics: &Metrics, watched: &Watched) -> Result<Option<Endpoint>, Failure> {
    let Some(address) = config.metrics else { return Ok(None) };
    let watched = Arc::clone(watched);
    let status: StatusText = Arc::new(move || {
        let sink = watched.lock().upgrade();
        let status = sink.map(|sink| serde_json::to_string(&sink.status()).unwrap_or_default());
        status.unwrap_or_else(|| "null".to_owned())
    });
    let endpoint = Endpoint::listen(address, metrics.clone(), status).await.map_err(|error| {
        Failure::new(USAGE, format!("metrics.listen: {address}: {error}; choose another address, or off"))
    })?;
    tracing::info!(address = %endpoint.address(), "metrics are served");
    Ok(Some(endpoint))
}

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
    let line = resume.as_ref().map(|position| Line::new("resume", position, status.seq, status.epoch));
    if let Some(line) = &line {
        line.print()?;
    }
    tracing::info!(epoch = status.epoch, seq = status.seq, resumes = line.is_some(), "the stream is owned");
    let (batches, submitted) = mpsc::channel::<Option<Batch>>(1);
    let (owed, acknowledged) = mpsc::channel(1024);
    let submitter = tokio::spawn(submit(Arc::clone(sink), submitted, owed));
    let mut acker = tokio::spawn(acknowledge(acknowledged, line));
    let mut source = Source {
        decoder: Decoder::new(&opened.config.source, resume.as_ref()),
        batcher: Batcher::new(
            Transactions::new(&opened.config.source, resume),
            opened.config.limits,
            opened.config.encoding,
        ),
        metrics: metrics.clone(),
        max_age: Duration::from_millis(opened.config.limits.max_age_ms),
        repeat: None,
    };
    let input = lines(opened.config.source.input.clone());
    let read = tokio::select! {
        read = source.read(input, batches, stop) => read,
        ended = &mut acker => return joined(ended).and(Ok(OWN_FAULT)),
    };
    // The last batches wait for the store as long as nobody asks for an end.
    let mut asked = stop.clone();
    let given_up = async {
        asked.asked(1).await;
        sleep(Duration::from_millis(opened.config.send_timeout_ms)).await;
    };
    let ended = tokio::select! {
        ended = &mut acker => joined(ended),
        () = given_up => Err(Failure::new(UNAVAILABLE, UNANSWERED)),
        _ = stop.asked(2) => Err(Failure::new(INTERRUPTED, TWICE)),
    };
    submitter.abort();
    ended.and(read)
}

fn joined(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|error| Err(Failure::new(OWN_FAULT, format!("a task stopped: {error}"))))
}

/// Lines to batches.
struct Source {
    decoder: Decoder,
    batcher: Batcher,
    metrics: Metrics,
    max_age: Duration,
    /// When the last acknowledgement is repeated, since only known events came after it.
    repeat: Option<Instant>,
}

impl Source {
    /// Reads until the input ends or a signal comes, then hands over what is whole; returns the exit code.
    async fn read(
        &mut self,
        mut input: mpsc::Receiver<Input>,
        batches: mpsc::Sender<Option<Batch>>,
        stop: &mut Stop,
    ) -> Result<u8, Failure> {
        let far = || Instant::now() + Duration::from_secs(3600);
        loop {
            let (deadline, repeat) = (self.batcher.deadline(), self.repeat);
            let next = tokio::select! {
                biased;
                code = stop.asked(1) => {
                    self.finish(&batches).await;
                    return Ok(code);
                }
                () = sleep_until(deadline.unwrap_or_else(far)), if deadline.is_some() => self.batcher.take().map(Some),
                () = sleep_until(repeat.unwrap_or_else(far)), if repeat.is_some() => {
                    self.repeat = None;
                    Some(None)
                }
                read = input.recv() => match read {
                    Some(read) => match self.line(read) {
                        Ok(batch) => batch.map(Some),
                        Err(failure) => {
                            // What was whole before the line that can't be taken is still delivered.
                            self.finish(&batches).await;
                            return Err(failure);
                        }
                    },
                    None => {
                        self.finish(&batches).await;
                        return Ok(DONE);
                    }
                },
            };
            if let Some(next) = next {
                self.repeat = None;
                let sent = tokio::select! {
                    sent = batches.send(next) => sent.is_ok(),
                    code = stop.asked(1) => {
                        tracing::warn!("stopped while the store did not take the next batch");
                        return Ok(code);
                    }
                };
                if !sent {
                    // The sink stopped; the acknowledging task knows why.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    fn line(&mut self, read: Input) -> Result<Option<Batch>, Failure> {
        let wrong = |error: EventError| Failure::new(USAGE, error.to_string());
        let (number, bytes) = match read {
            Input::Line(number, bytes) => (number, bytes),
            Input::TooLong(line) => return Err(wrong(EventError { line, what: What::TooLong })),
            Input::Cut(line) => {
                tracing::warn!(line, "the input ended within a line, which is left out");
                return Ok(None);
            }
            Input::Failed(error) => {
                return Err(Failure::new(USAGE, format!("source.input can't be read: {error}")));
            }
        };
        let line = self.decoder.read(number, &bytes).map_err(wrong)?;
        let taken = self.batcher.push(number, line, Instant::now());
        let Taken { rows, trimmed, known } = taken.map_err(|error| Failure::new(USAGE, error.to_string()))?;
        self.metrics.events_read_total.inc_by(rows + trimmed);
        self.metrics.events_trimmed_total.inc_by(trimmed);
        if rows > 0 {
            self.repeat = None;
        } else if known > 0 && self.repeat.is_none() {
            self.repeat = Some(Instant::now() + self.max_age);
        }
        Ok(self.batcher.full())
    }

    /// Hands over what is whole, and says what is not.
    async fn finish(&mut self, batches: &mpsc::Sender<Option<Batch>>) {
        if let Some(batch) = self.batcher.take() {
            // Refused only if the sink stopped, and then the acknowledging task says why.
            let _ = batches.send(Some(batch)).await;
        } else if self.repeat.take().is_some() {
            let _ = batches.send(None).await;
        }
        if let Some(line) = self.batcher.unfinished() {
            tracing::warn!(
                line,
                "the transaction that begins in this line has no end; it is not acknowledged"
            );
        }
    }
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
                let line = Line::new("acknowledged", &position, seq, epoch);
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
