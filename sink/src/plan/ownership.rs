//! HEAD's first revision, and those that change its owner or its form but commit nothing.

use crate::model::chain;
use crate::model::frame;
use crate::model::head::{Head, Intent, Owner, RollupRef, Write};
use crate::model::ids::{Digest, Nonce, StreamId, WriterId};
use crate::model::json::Extra;

/// Who writes, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn at the start of the process.
    pub writer_id: WriterId,
    /// What people call it.
    pub instance: String,
    /// The pipeline as it is configured.
    pub pipeline: String,
    /// The prefix as it is configured.
    pub prefix: String,
}

impl Identity {
    fn owner(&self, rev: u64, now_ms: u64) -> Owner {
        Owner {
            writer_id: self.writer_id,
            instance: self.instance.clone(),
            acquired_rev: rev,
            acquired_at_ms: now_ms,
            extra: Extra::new(),
        }
    }
}

/// Revision 1 under epoch 1, owned by its creator.
#[must_use]
pub fn creation(me: &Identity, stream_id: StreamId, nonce: Nonce, now_ms: u64) -> Head {
    Head {
        minor: frame::MINOR,
        stream_id,
        pipeline: me.pipeline.clone(),
        prefix: me.prefix.clone(),
        min_reader: 0,
        min_writer: 0,
        rev: 1,
        epoch: 1,
        owner: me.owner(1, now_ms),
        write: Write { nonce, intent: Intent::Init, attempt_at_ms: now_ms, extra: Extra::new() },
        recent: Vec::new(),
        seq: 0,
        chain: chain::origin(stream_id),
        last_entry: None,
        watermark: None,
        entry_floor: 1,
        rollup: None,
        prev_rollup: None,
        compaction: None,
        lease: None,
        extra: Extra::new(),
    }
}

/// The next epoch, owned by this process.
#[must_use]
pub fn acquisition(base: &Head, me: &Identity, nonce: Nonce, now_ms: u64) -> Head {
    let mut head = base.successor(nonce, Intent::Acquire, now_ms);
    head.epoch += 1;
    head.owner = me.owner(head.rev, now_ms);
    head
}

/// The next epoch, owned by this process, with a current rollup of the same generation and the same end that stands
/// at `key`: in the place of one that can't be read.
#[must_use]
pub fn rebuilt(
    acquisition: Head,
    current: &RollupRef,
    (key, sha256, size): (String, Digest, u64),
    now_ms: u64,
) -> Head {
    let rollup = RollupRef {
        key,
        sha256,
        size,
        // The window of entry expiry begins anew: what it waits for is that this object is there.
        published_at_ms: now_ms,
        published_rev: acquisition.rev,
        ..current.clone()
    };
    let write = Write { intent: Intent::Rollup, ..acquisition.write.clone() };
    Head { rollup: Some(rollup), write, ..acquisition }
}

/// The same without a lease.
#[must_use]
pub fn lease_ended(base: &Head, nonce: Nonce, now_ms: u64) -> Head {
    Head { lease: None, ..base.successor(nonce, Intent::Lease, now_ms) }
}

/// The same in the newest form. There is no intent of its own for it: it is part of owning.
#[must_use]
pub fn upgraded(base: &Head, minor: u16, nonce: Nonce, now_ms: u64) -> Head {
    Head { minor, ..base.successor(nonce, Intent::Acquire, now_ms) }
}
