//! The staged sink, thought: what an answer to Complete and a look at the key mean together, and what is due
//! first when a subtask starts. Pure: no clock, no I/O.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::ids::{Digest, Nonce};
use crate::model::stage::files::{Proof, Receipt};
use crate::model::stage::{Handle, JobRoot, TOKEN_METADATA};
use crate::stage::StageError;
use crate::store::multipart::{Described, OpenUpload};

/// What the store said to the last Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// None was sent by this process.
    NotAsked,
    /// 200 with a result.
    Completed,
    /// No answer, 5xx, a 404 without S3's code, or a 200 that is no result.
    Unanswered,
    /// 404 NoSuchUpload.
    NoSuchUpload,
    /// 400: a part or their order is wrong, or a part is too small.
    Damaged,
    /// 412 or 409, of a store that sets a condition of its own.
    Condition,
    /// Any other refusal: credentials, bucket, permissions.
    Denied,
}

impl Answer {
    /// Every answer.
    pub const ALL: [Self; 7] = [
        Self::NotAsked,
        Self::Completed,
        Self::Unanswered,
        Self::NoSuchUpload,
        Self::Damaged,
        Self::Condition,
        Self::Denied,
    ];
}

/// What a look at the key found: HEAD first, then the open uploads. A look without an answer is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// This upload's object.
    Own(Proof),
    /// Another object.
    Foreign,
    /// No object, and the upload is open.
    Pending,
    /// Neither.
    Absent {
        /// Whether that was so for the whole settle time, in enough rounds.
        settled: bool,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is committed: write the receipt.
    Commit(Proof),
    /// Send the identical Complete, again where one was sent.
    Complete,
    /// Look at the key.
    Look,
    /// Wait a part of the settle time and look again: a Complete may still be assembling the object.
    Settle,
    /// Fail for good: data that a durable checkpoint counts on is gone.
    Lost,
    /// Fail for good: somebody else's object is at the key.
    Conflict,
    /// Stop, and keep the handle: mend credentials or configuration, then start again.
    Stop,
}

/// What an answer and a look mean together.
#[must_use]
pub const fn resolve(answer: Answer, standing: Option<Standing>) -> Action {
    match (answer, standing) {
        (Answer::Completed, _) => Action::Commit(Proof::Answer),
        (Answer::Denied, _) => Action::Stop,
        (_, Some(Standing::Own(proof))) => Action::Commit(proof),
        (_, Some(Standing::Foreign)) => Action::Conflict,
        // A Complete without an answer may land at any time: that nothing is there yet proves nothing.
        (Answer::Unanswered, _) => Action::Complete,
        (_, None) => Action::Look,
        // The upload is there, and what the handle says of its parts is wrong.
        (Answer::Damaged, Some(Standing::Pending)) => Action::Lost,
        (_, Some(Standing::Pending)) => Action::Complete,
        (_, Some(Standing::Absent { settled: false })) => Action::Settle,
        (_, Some(Standing::Absent { settled: true })) => Action::Lost,
    }
}

/// Whether the object at a handle's key is the handle's, and how that is known.
///
/// # Errors
/// What makes it another, in words.
pub fn own(handle: &Handle, seen: &Described) -> Result<Proof, String> {
    let size = seen.meta.size;
    let same_size = size == handle.total_size;
    match seen.metadata(TOKEN_METADATA) {
        Some(token) if token != handle.commit_token.to_string() => {
            Err(format!("an object with commit token {token:?}, {} is this upload's", handle.commit_token))
        }
        Some(_) if !same_size => Err(format!(
            "an object with this upload's token and {size} bytes, {} were staged",
            handle.total_size
        )),
        Some(_) => Ok(Proof::Token),
        None if same_size && same_etag(&seen.meta.etag.0, &handle.multipart_etag) => Ok(Proof::Weak),
        None => Err(format!(
            "an object without a commit token, of {size} bytes and ETag {}; {} bytes and {} were staged",
            seen.meta.etag, handle.total_size, handle.multipart_etag
        )),
    }
}

fn same_etag(one: &str, other: &str) -> bool {
    one.trim_matches('"') == other.trim_matches('"')
}

/// All durable state that matters at the start of a subtask, as one scan found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The latest checkpoint whose snapshot counts.
    pub marker: Option<u64>,
    /// The highest number of any snapshot or marker.
    pub highest: Option<u64>,
    /// The handles that are not released, ascending by checkpoint.
    pub handles: Vec<Staged>,
}

/// A handle, and what is known of its upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The handle.
    pub handle: Handle,
    /// The receipt of its name.
    pub receipt: Option<Receipt>,
    /// What its key shows; not looked at where the receipt or the marker decides.
    pub standing: Option<Standing>,
    /// The object's tag, where there is one.
    pub etag: String,
    /// What makes a foreign object one, in words.
    pub foreign: String,
}

/// What can't be cleared by writing, because it lives in this process alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latches {
    /// How often each upload was looked for in vain, with a wait after it.
    pub absences: BTreeMap<Digest, u32>,
    /// The least number that the next checkpoint may have.
    pub next_checkpoint: u64,
}

/// One step: one durable action, with the values that made it due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// T1: the receipt is there; forget the handle.
    Erase(Digest, String),
    /// T2: the object is there; write its receipt.
    WriteReceipt(Digest, String, Proof),
    /// T3: the upload is pending; complete it, and write its receipt.
    Complete(Digest, String),
    /// T4: neither is there; wait, and look again.
    Settle(Digest, String, u32),
    /// T6: of a checkpoint that does not count; forget the handle, its upload expires.
    Drop(Digest, String),
    /// T7: take no number again that a snapshot or a marker has.
    RaiseNumber(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Erase(_, name) => write!(f, "T1 erase {name}: its receipt is there"),
            Self::WriteReceipt(_, name, proof) => write!(f, "T2 receipt of {name}: proof={proof:?}"),
            Self::Complete(_, name) => write!(f, "T3 complete {name}: its upload is pending"),
            Self::Settle(_, name, round) => write!(f, "T4 settle {name}: absent, round {round}"),
            Self::Drop(_, name) => write!(f, "T6 drop {name}: its checkpoint does not count"),
            Self::RaiseNumber(to) => write!(f, "T7 next checkpoint is {to} or later"),
        }
    }
}

/// Most steps until the fixed point: a handle is completed, receipted and erased after it was settled for.
#[must_use]
pub const fn max_steps(handles: usize, settle_rounds: u32) -> usize {
    (3 + settle_rounds as usize) * handles + 4
}

/// The first step that is due, or none at the fixed point.
///
/// # Errors
/// The guards, for which nothing is written: lost data, and objects or receipts of somebody else.
pub fn reconcile(
    baseline: &Baseline,
    latches: &Latches,
    settle_rounds: u32,
) -> Result<Option<Step>, StageError> {
    for staged in &baseline.handles {
        if let Some(step) = of_handle(staged, baseline, latches, settle_rounds)? {
            return Ok(Some(step));
        }
    }
    let above = baseline.highest.map_or(1, |highest| highest + 1);
    Ok((latches.next_checkpoint < above).then_some(Step::RaiseNumber(above)))
}

fn of_handle(
    staged: &Staged,
    baseline: &Baseline,
    latches: &Latches,
    settle_rounds: u32,
) -> Result<Option<Step>, StageError> {
    let handle = &staged.handle;
    let (token, name) = (handle.commit_token, handle.name());
    if let Some(receipt) = &staged.receipt {
        if receipt.commit_token != token {
            let reason = format!("its receipt is of commit token {}", receipt.commit_token);
            return Err(StageError::conflict(handle, reason));
        }
        return Ok(Some(Step::Erase(token, name)));
    }
    if baseline.marker.is_none_or(|marker| handle.checkpoint_id > marker) {
        return Ok(Some(Step::Drop(token, name)));
    }
    let rounds = latches.absences.get(&token).copied().unwrap_or(0);
    let standing = staged.standing.map(|standing| match standing {
        Standing::Absent { .. } => Standing::Absent { settled: rounds >= settle_rounds },
        other => other,
    });
    match resolve(Answer::NotAsked, standing) {
        Action::Commit(proof) => Ok(Some(Step::WriteReceipt(token, name, proof))),
        Action::Complete => Ok(Some(Step::Complete(token, name))),
        Action::Settle => Ok(Some(Step::Settle(token, name, rounds + 1))),
        Action::Lost => Err(StageError::lost(handle, "neither its object nor its upload is there")),
        Action::Conflict => Err(StageError::conflict(handle, staged.foreign.clone())),
        // Of a scan that looked at every handle that needs it, neither comes.
        Action::Look | Action::Stop => Ok(None),
    }
}

/// What decides whether an open upload may be aborted.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// The job's keys.
    pub root: &'a JobRoot,
    /// The latest checkpoint that counts.
    pub marker: Option<u64>,
    /// The handles of every snapshot that is there, whether it counts or not.
    pub handles: Vec<Handle>,
    /// Starts of subtasks that may still stage.
    pub live: &'a [Nonce],
    /// The store's time, in milliseconds since 1970.
    pub store_ms: u64,
    /// Age above which it may be, in milliseconds.
    pub grace_ms: u64,
}

/// Whether nobody will ever complete this upload.
///
/// # Errors
/// Why it stays.
pub fn orphan(open: &OpenUpload, known: &Known<'_>) -> Result<(), &'static str> {
    let Some(name) = known.root.parse(&open.key) else { return Err("its key is none of this job") };
    let later = known.marker.is_none_or(|marker| name.checkpoint > marker);
    let named = |handle: &Handle| handle.key == open.key && handle.upload_id == open.upload;
    let Some(initiated_ms) = open.initiated_ms else { return Err("the store does not say how old it is") };
    if later {
        Err("its checkpoint is above the latest that counts")
    } else if known.handles.iter().any(named) {
        Err("a snapshot names it")
    } else if known.live.iter().any(|run| run.to_string().starts_with(name.run)) {
        Err("its subtask may still put it into a snapshot")
    } else if known.store_ms.saturating_sub(initiated_ms) <= known.grace_ms {
        Err("it is younger than the grace period")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
