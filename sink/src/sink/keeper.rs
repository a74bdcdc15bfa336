//! What the actors of the background hold of a running sink: its bucket, the right to change HEAD through the
//! one task that owns it, and the turn, since they work one after another.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};

use super::status::{Shared, Status};
use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::metrics::Metrics;
use crate::model::head::Head;
use crate::model::ids::WriterId;
use crate::model::key::PipelineRoot;
use crate::model::view::View;
use crate::plan::change::Change;
use crate::run::in_flight::InFlight;
use crate::run::patience::Patience;
use crate::run::read;
use crate::run::recover::Recovered;
use crate::stop::Stopped;

/// A change that an actor asks for, and where its outcome is told.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<View, Stopped>>,
}

/// The owner's side of the background actors. A clone is the same.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// What it runs in.
    pub env: Env,
    /// What every key begins with.
    pub root: PipelineRoot,
    /// What actors count.
    pub metrics: Metrics,
    /// The process that owns the stream.
    pub writer_id: WriterId,
    /// Under which epoch.
    pub epoch: u64,
    /// How long each question to the store is asked, in milliseconds.
    pub patience_ms: u64,
    /// Whether deletes name the tag of what they delete.
    pub conditional_deletes: bool,
    /// Keys that this process is writing, or deleting: whoever writes an object that HEAD will reach holds its
    /// key from before the write until the change is applied. A change is never asked for with a key that is
    /// being deleted: the owner's task may wait for that key.
    pub in_flight: InFlight,
    pub(super) changes: mpsc::Sender<Request>,
    pub(super) shared: Arc<Shared>,
    pub(super) turn: Arc<Mutex<Option<Recovered>>>,
}

impl Keeper {
    /// How long one question is asked.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience::limited(self.patience_ms)
    }

    /// The operational snapshot.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status().at(self.env.clock.now_ms())
    }

    /// Notes whether an actor is turned on.
    pub(crate) fn turned(&self, actor: &'static str, on: bool) {
        self.shared.turned(actor, on);
    }

    /// Notes that an actor ran, and why it stopped early if it did.
    pub(crate) fn ran(&self, actor: &'static str, stopped: Option<&Stopped>) {
        self.shared.ran(actor, self.env.clock.now_ms(), stopped);
    }

    /// Waits until no other actor works, and keeps the others waiting until the guard is dropped. It holds what the last
    /// one verified, if it left it: entries, inventories and records never change, so that the next one has to read only
    /// what HEAD gained.
    pub async fn turn(&self) -> MutexGuard<'_, Option<Recovered>> {
        self.turn.lock().await
    }

    /// Has HEAD changed by its owner, between two commits. What comes back is HEAD with the change.
    ///
    /// # Errors
    /// A [`Stopped`]: `stale_plan` if HEAD does not allow it any more, or the sink is closed; otherwise why the sink
    /// stopped.
    pub async fn change(&self, change: Change) -> Result<View, Stopped> {
        let (answer, answered) = oneshot::channel();
        let closed = || Stopped::from(self.shared.stopped().unwrap_or(SinkError::Closed));
        self.changes.send(Request { change, answer }).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// HEAD as the store has it now, still owned by this process: what must be asked before each destructive
    /// step. With it comes the store's time in milliseconds since 1970, if it told it.
    ///
    /// # Errors
    /// A [`Stopped`]: `epoch_changed`, `integrity_failure` or `ambiguous_response`.
    pub async fn confirm(&self) -> Result<(View, Option<u64>), Stopped> {
        if let Some(error) = self.shared.stopped() {
            return Err(error.into());
        }
        let Some((view, date_ms)) = read::dated_view(&self.env, &self.root, &self.patience()).await? else {
            return Err(SinkError::from(Alarm::HeadDeleted).into());
        };
        self.owns(&view.head)?;
        Ok((view, date_ms))
    }

    /// Whoever sees another owner first ends the whole sink: nothing is acknowledged after it.
    fn owns(&self, head: &Head) -> Result<(), Stopped> {
        let Head { epoch, owner, .. } = head;
        if (*epoch, owner.writer_id) == (self.epoch, self.writer_id) {
            return Ok(());
        }
        let fenced = SinkError::Fenced { mine: self.epoch, epoch: *epoch, owner: owner.writer_id };
        if *epoch > self.epoch {
            self.shared.stop(&fenced);
        }
        Err(fenced.into())
    }
}
