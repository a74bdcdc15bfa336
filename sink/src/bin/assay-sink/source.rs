//! Lines to batches: decoded, trimmed, and closed by size or age.

use sinks::batch::{Batcher, Taken};
use sinks::config::Config;
use sinks::events::envelope::Decoder;
use sinks::events::transaction::Transactions;
use sinks::events::{EventError, What};
use sinks::metrics::Metrics;
use sinks::model::position::Position;
use sinks::sink::Batch;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until};

use crate::input::Input;
use crate::stop::Stop;
use crate::{DONE, Failure, USAGE};

/// Lines to batches.
pub(crate) struct Source {
    decoder: Decoder,
    batcher: Batcher,
    metrics: Metrics,
    max_age: Duration,
    /// When the last acknowledgement is repeated, since only known events came after it.
    repeat: Option<Instant>,
}

impl Source {
    /// Of a stream that goes on behind `resume`.
    pub(crate) fn new(config: &Config, resume: Option<Position>, metrics: &Metrics) -> Self {
        let decoder = Decoder::new(&config.source, resume.as_ref());
        let transactions = Transactions::new(&config.source, resume);
        Self {
            decoder,
            batcher: Batcher::new(transactions, config.limits, config.encoding),
            metrics: metrics.clone(),
            max_age: Duration::from_millis(config.limits.max_age_ms),
            repeat: None,
        }
    }

    /// Reads until the input ends or a signal comes, then hands over what is whole; returns the exit code.
    pub(crate) async fn read(
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
