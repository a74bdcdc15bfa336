//! The staged sink, done: prepare, commit, and what a start finishes.

mod commit;
mod look;
mod prepare;
mod recover;
mod sweep;

use std::sync::Arc;

use parking_lot::Mutex;

pub use self::commit::Resolved;
pub use self::look::{Pendings, pending_uploads};
pub use self::prepare::{Interval, Turn};
pub use self::recover::{Recovery, restored};
pub use self::sweep::{Sweep, Swept, sweep};
use crate::env::Env;
use crate::error::SinkError;
use crate::model::stage::JobRoot;
use crate::run::patience::{Patience, because, denied};
use crate::stage::Ledger;
use crate::stage::mutant::Chosen;
use crate::store::{MultipartStore, Outcome, Pending, Refusal};

/// What one subtask stages with.
#[derive(Debug)]
pub struct Staging {
    /// Clock and ids.
    pub env: Env,
    /// The bucket.
    pub uploads: Arc<dyn MultipartStore>,
    /// The checkpoint directory.
    pub ledger: Ledger,
    /// The job's keys.
    pub root: JobRoot,
    /// How long each question is asked, in milliseconds.
    pub patience_ms: u64,
    /// How long an upload that is nowhere is looked for, in milliseconds.
    pub settle_ms: u64,
    /// In how many rounds.
    pub settle_rounds: u32,
    /// Whether the parts are listed before a handle is given.
    pub check_parts: bool,
    /// For tests: see [`crate::stage::mutant`].
    pub mutant: Chosen,
    /// What was seen.
    pub counts: Mutex<Counts>,
}

/// What a subtask has seen since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Uploads staged.
    pub prepared: u64,
    /// Intervals that could not be staged; their records went into the next.
    pub failed_prepares: u64,
    /// Uploads committed, with their receipts.
    pub committed: u64,
    /// Completes sent after one without an answer, or for an upload that turned out to be pending.
    pub resent: u64,
    /// Uploads whose outcome only a look at the key told.
    pub resolved_by_look: u64,
    /// Of these: those that the store's tag and size alone tell, since it drops metadata.
    pub weak_proofs: u64,
    /// Results with another tag than was expected: encryption, or a store that makes its own.
    pub other_etags: u64,
    /// Commits that ended without an answer.
    pub in_doubt: u64,
}

impl Staging {
    fn patience(&self) -> Patience {
        Patience::limited(self.patience_ms)
    }

    /// Asks one thing until it is answered. Nothing, of 404.
    async fn asked<'a, T>(
        &self,
        request: &'static str,
        key: &str,
        call: impl Fn() -> Pending<'a, Outcome<T>>,
    ) -> Result<Option<T>, SinkError> {
        let mut patience = self.patience();
        loop {
            let why = match call().await {
                Outcome::Done(value) => return Ok(Some(value)),
                Outcome::Missing => return Ok(None),
                Outcome::Refused(Refusal::Conflict) => because("409"),
                Outcome::Refused(refusal) => return Err(denied(request, key, refusal)),
                Outcome::Unknown(why) => why,
            };
            patience.pause(&self.env, request, key, &why).await?;
        }
    }
}
