//! The one task that owns HEAD: it takes written batches in order, commits them, and answers their tickets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::keeper::Request;
use super::status::Shared;
use super::{Ack, Settings};
use crate::error::SinkError;
use crate::model::position::Position;
use crate::run::patience::Patience;
use crate::run::publish::{Publisher, Uploaded};

/// A submitted batch.
#[derive(Debug)]
pub(super) struct Item {
    /// Nothing, if it is the batch before it over again.
    pub(super) upload: Option<Upload>,
    pub(super) answer: oneshot::Sender<Result<Ack, SinkError>>,
}

/// A batch whose objects are being written. Dropping it stops the writing.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) position: Position,
    pub(super) events: u64,
    pub(super) written: JoinHandle<Result<Uploaded, SinkError>>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.written.abort();
    }
}

impl Upload {
    async fn wait(&mut self) -> Result<Uploaded, SinkError> {
        match (&mut self.written).await {
            Ok(result) => result,
            Err(error) => Err(SinkError::Internal(format!("an upload stopped: {error}"))),
        }
    }
}

type Answer = oneshot::Sender<Result<Ack, SinkError>>;

/// Batches that one swap commits, and who waits for them.
#[derive(Default)]
struct Group {
    batches: Vec<Uploaded>,
    /// Tickets in order; each batch's own, and those of its repetitions.
    waiting: Vec<(Option<(Position, u64)>, Answer)>,
}

pub(super) struct Committer {
    publisher: Publisher,
    items: mpsc::Receiver<Item>,
    changes: mpsc::Receiver<Request>,
    /// Taken from the queue, and not yet committed.
    next: VecDeque<Item>,
    shared: Arc<Shared>,
    most: usize,
    interval: Duration,
    last_swap: Option<Instant>,
    last_ack: Option<Ack>,
}

impl Committer {
    pub(super) fn new(
        publisher: Publisher,
        items: mpsc::Receiver<Item>,
        changes: mpsc::Receiver<Request>,
        shared: Arc<Shared>,
        settings: &Settings,
    ) -> Self {
        let last_ack = publisher.local.acked.as_ref().and_then(|acked| {
            let position = Position::try_from(&acked.position).ok()?;
            let (digest, epoch) = (position.digest(), publisher.view.head.epoch);
            Some(Ack { position, digest, seq: acked.seq, epoch })
        });
        Self {
            publisher,
            items,
            changes,
            next: VecDeque::new(),
            shared,
            most: settings.group_commit_max_batches.max(1),
            interval: Duration::from_millis(settings.min_commit_interval_ms),
            last_swap: None,
            last_ack,
        }
    }

    /// Commits until the handle is dropped and the queue is empty, or something ends the sink.
    pub(super) async fn run(mut self) {
        loop {
            let mut group = Group::default();
            match self.turn(&mut group).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.stop(group, &error),
            }
        }
    }

    /// One group of batches, after the changes that were asked for before it; false at the end.
    async fn turn(&mut self, group: &mut Group) -> Result<bool, SinkError> {
        let Some(first) = self.take().await? else { return Ok(false) };
        self.gather(first, group).await?;
        self.commit(group).await?;
        Ok(true)
    }

    async fn take(&mut self) -> Result<Option<Item>, SinkError> {
        loop {
            // Changes first: a queue that is never empty must not keep them waiting.
            while let Ok(request) = self.changes.try_recv() {
                self.change(request).await?;
            }
            if let Some(item) = self.next.pop_front() {
                return Ok(Some(item));
            }
            tokio::select! {
                error = self.shared.ended() => return Err(error),
                item = self.items.recv() => return Ok(item),
                Some(request) = self.changes.recv() => self.change(request).await?,
            }
        }
    }

    /// Has no limit, as a commit has none: an unanswered swap is resolved before anything else is written.
    async fn change(&mut self, request: Request) -> Result<(), SinkError> {
        let Request { change, answer } = request;
        match self.publisher.change(&change, &Patience::unlimited()).await {
            Ok(outcome) => {
                self.shared.committed(&self.publisher.view.head);
                // Whoever asked may have given up; the change is made all the same.
                let _ = answer.send(outcome);
                Ok(())
            }
            Err(error) => {
                let _ = answer.send(Err(error.clone().into()));
                Err(error)
            }
        }
    }

    /// The next batch once its objects are written, and those behind it that are written by then.
    async fn gather(&mut self, first: Item, group: &mut Group) -> Result<(), SinkError> {
        self.add(first, group).await?;
        if let (Some(last), false) = (self.last_swap, group.batches.is_empty()) {
            tokio::time::sleep_until(last + self.interval).await;
        }
        while group.batches.len() < self.most {
            if self.next.is_empty() {
                self.next.extend(self.items.try_recv().ok());
            }
            let ready = self.next.front().is_some_and(|item| match &item.upload {
                Some(upload) => upload.written.is_finished(),
                None => true,
            });
            match self.next.pop_front() {
                Some(item) if ready => self.add(item, group).await?,
                Some(item) => {
                    self.next.push_front(item);
                    break;
                }
                None => break,
            }
        }
        Ok(())
    }

    async fn add(&mut self, item: Item, group: &mut Group) -> Result<(), SinkError> {
        let Item { upload, answer } = item;
        let Some(mut upload) = upload else {
            group.waiting.push((None, answer));
            return Ok(());
        };
        group.waiting.push((Some((upload.position.clone(), upload.events)), answer));
        group.batches.push(upload.wait().await?);
        Ok(())
    }

    async fn commit(&mut self, group: &mut Group) -> Result<(), SinkError> {
        let before = self.publisher.view.head.seq;
        if !group.batches.is_empty() {
            let batches = std::mem::take(&mut group.batches);
            self.last_swap = Some(Instant::now());
            // No limit: an unanswered swap is resolved before anything else is written.
            self.publisher.commit(batches, &Patience::unlimited()).await?;
            self.shared.committed(&self.publisher.view.head);
        }
        // An actor may have seen another owner since.
        if let Some(error) = self.shared.stopped() {
            return Err(error);
        }
        let (epoch, metrics) = (self.publisher.view.head.epoch, &self.publisher.metrics);
        let mut seq = before;
        for (batch, answer) in group.waiting.drain(..) {
            if let Some((position, events)) = batch {
                seq += 1;
                metrics.batches_acknowledged_total.inc();
                metrics.events_acknowledged_total.inc_by(events);
                self.last_ack = Some(Ack { digest: position.digest(), position, seq, epoch });
            }
            let ack = self.last_ack.clone();
            let ack = ack.ok_or_else(|| SinkError::Internal("a repetition of no batch".to_owned()));
            self.shared.answered();
            // Whoever waited may have given up; the batch is durable all the same.
            let _ = answer.send(ack);
        }
        Ok(())
    }

    /// Nothing is acknowledged any more, not even what may be durable: the source's checkpoint is the next
    /// owner's to move.
    fn stop(mut self, group: Group, error: &SinkError) {
        self.shared.stop(error);
        self.items.close();
        while let Ok(item) = self.items.try_recv() {
            self.next.push_back(item);
        }
        let waiting = group.waiting.into_iter().map(|(_, answer)| answer);
        for answer in waiting.chain(self.next.into_iter().map(|item| item.answer)) {
            self.shared.answered();
            let _ = answer.send(Err(error.clone()));
        }
    }
}
