//! The states of a staged upload, each a type that the next one consumes: what is not a way here does not compile.
//!
//! ```text
//! Prepared --in a snapshot--> Sealed --its marker is durable--> Committable --Complete answered--> Committed
//! Committable --Complete unanswered--> InDoubt --again--> Committable
//!                                      InDoubt --the object is seen--> Committed
//!                                      InDoubt --nothing is there--> Lost
//! Committed --receipt durable--> Released
//! ```
//!
//! A prepared upload can't be committed: no snapshot has it.
//! ```compile_fail,E0599
//! use sinks::model::stage::state::{Committed, Prepared};
//! fn too_early(prepared: Prepared) -> Committed {
//!     prepared.answered("\"etag\"".to_owned())
//! }
//! ```
//! Neither can a sealed one: its marker may never be written.
//! ```compile_fail,E0599
//! use sinks::model::stage::state::{Committed, Sealed};
//! fn too_early(sealed: Sealed) -> Committed {
//!     sealed.answered("\"etag\"".to_owned())
//! }
//! ```
//! A sealed upload can't be given up: a retained snapshot may be restored.
//! ```compile_fail,E0599
//! use sinks::model::stage::state::{Orphan, Sealed};
//! fn destructive(sealed: Sealed) -> Orphan {
//!     sealed.given_up(&[]).unwrap()
//! }
//! ```
//! One in doubt is not released without proof.
//! ```compile_fail,E0599
//! use sinks::model::stage::{files::Receipt, state::{InDoubt, Released}};
//! fn unproven(doubt: InDoubt, receipt: &Receipt) -> Released {
//!     doubt.released(receipt).ok().unwrap()
//! }
//! ```
//! And what was consumed is gone: one upload is not committed and given up.
//! ```compile_fail,E0382
//! use sinks::model::stage::state::Prepared;
//! fn twice(prepared: Prepared) {
//!     let _orphan = prepared.given_up(&[]);
//!     let _again = prepared.given_up(&[]);
//! }
//! ```

use super::Handle;
use super::files::{Marker, Proof, Receipt, Snapshot, StageFile as _, Verdict};
use crate::model::ids::Digest;

/// All parts are stored; nobody but this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared(Box<Handle>);

/// A snapshot has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    handle: Box<Handle>,
    checkpoint: u64,
    snapshot: Digest,
}

/// The snapshot that has it counts: the upload must become visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committable(Box<Handle>);

/// Complete was sent, and nobody knows what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt(Box<Handle>);

/// It is an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    handle: Box<Handle>,
    proof: Proof,
    etag: String,
}

/// It is an object, and the receipt says so for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released(Box<Handle>);

/// It will never be an object: invisible, until the bucket's lifecycle rule removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan(Box<Handle>);

/// Neither object nor upload is there: data that a durable checkpoint counts on is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(Box<Handle>);

impl Prepared {
    /// An upload whose parts are all stored, or that was restored.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        Self(Box::new(handle))
    }

    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }

    /// With the proof that a snapshot has it.
    ///
    /// # Errors
    /// Itself, if the snapshot does not.
    pub fn sealed(self, snapshot: &Snapshot) -> Result<Sealed, Self> {
        if !snapshot.holds(&self.0) {
            return Err(self);
        }
        let digest = Digest::of(&snapshot.encode());
        Ok(Sealed { handle: self.0, checkpoint: snapshot.checkpoint_id, snapshot: digest })
    }

    /// With the proof that nothing counts on it: all snapshots that count or yet may.
    ///
    /// # Errors
    /// Itself, if one of them has it.
    pub fn given_up(self, snapshots: &[Snapshot]) -> Result<Orphan, Self> {
        if snapshots.iter().any(|snapshot| snapshot.holds(&self.0)) { Err(self) } else { Ok(Orphan(self.0)) }
    }
}

impl Sealed {
    /// With the proof that the snapshot counts.
    ///
    /// # Errors
    /// Itself, if the marker is another's, of another snapshot, or says that it does not count.
    pub fn committable(self, marker: &Marker) -> Result<Committable, Self> {
        let counts = marker.job_id == self.handle.job_id
            && marker.checkpoint_id == self.checkpoint
            && marker.verdict == (Verdict::Completed { snapshot: self.snapshot });
        if counts { Ok(Committable(self.handle)) } else { Err(self) }
    }
}

impl Committable {
    /// Without any proof: what a mutant takes.
    #[cfg(feature = "mutants")]
    pub(crate) fn unproven(handle: Handle) -> Self {
        Self(Box::new(handle))
    }

    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }

    /// Complete was answered with its result, which has this tag.
    #[must_use]
    pub fn answered(self, etag: String) -> Committed {
        Committed { handle: self.0, proof: Proof::Answer, etag }
    }

    /// Complete was not answered, or not so that it says what became of it.
    #[must_use]
    pub fn in_doubt(self) -> InDoubt {
        InDoubt(self.0)
    }
}

impl InDoubt {
    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }

    /// To send the identical Complete again.
    #[must_use]
    pub fn again(self) -> Committable {
        Committable(self.0)
    }

    /// The object is there, and is its own.
    #[must_use]
    pub fn seen(self, proof: Proof, etag: String) -> Committed {
        Committed { handle: self.0, proof, etag }
    }

    /// Neither the object nor the upload is there.
    #[must_use]
    pub fn lost(self) -> Lost {
        Lost(self.0)
    }
}

impl Committed {
    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How it is known.
    #[must_use]
    pub const fn proof(&self) -> Proof {
        self.proof
    }

    /// The object's tag.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// What is to be made durable.
    #[must_use]
    pub fn receipt(&self, at_ms: u64) -> Receipt {
        Receipt {
            job_id: self.handle.job_id.clone(),
            run_id: self.handle.run_id,
            subtask: self.handle.subtask,
            checkpoint_id: self.handle.checkpoint_id,
            commit_token: self.handle.commit_token,
            key: self.handle.key.clone(),
            etag: self.etag.clone(),
            proof: self.proof,
            at_ms,
        }
    }

    /// With the receipt that is durable.
    ///
    /// # Errors
    /// Itself, if the receipt is of another upload.
    pub fn released(self, receipt: &Receipt) -> Result<Released, Self> {
        if receipt.commit_token == self.handle.commit_token { Ok(Released(self.handle)) } else { Err(self) }
    }
}

impl Released {
    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }
}

impl Orphan {
    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }
}

impl Lost {
    /// Its handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.0
    }
}
