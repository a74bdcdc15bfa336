//! Start-up reconciliation: from what was scanned to the first step that is due, or to none.
//!
//! Steps are tried in a fixed order; each one's write makes its own trigger false, so that applying one and
//! scanning again always gets on. Nothing is concluded in memory: what a step finds out is written before the
//! next step looks, for a later crash may take away what it was found out from.

use std::fmt;

use crate::error::{Alarm, SinkError};
use crate::model::checkpoint::{Acked, Checkpoint, Mode};
use crate::model::head::Head;
use crate::model::ids::{Digest, Nonce, StreamId, WriterId};
use crate::model::position::{Order, Position, PositionRecord};

/// All durable state that matters at a start, as one scan found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The bucket.
    pub bucket: Bucket,
    /// This host's record.
    pub local: Checkpoint,
}

/// What the bucket holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// Nothing of this pipeline, but for keys of probes.
    Empty,
    /// Objects of this pipeline, and no HEAD.
    Headless {
        /// One of the objects.
        key: String,
    },
    /// HEAD or what it reaches does not verify.
    Unverified(SinkError),
    /// A stream whose whole closure was verified.
    Stream(Box<Stream>),
}

/// A verified stream, as far as a start is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// HEAD.
    pub head: Head,
    /// The position of its last entry.
    pub watermark: Option<Position>,
    /// The entry at the local hint's place, if there is one.
    pub at_hint: Option<Evidence>,
    /// The entry at the place of the local acknowledgement, if there is one.
    pub at_acked: Option<Evidence>,
}

/// What identifies a committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Its nonce; unknown if only an inventory has kept the entry.
    pub nonce: Option<Nonce>,
    /// Digest of its position.
    pub digest: Digest,
    /// Of its content.
    pub batch_digest: Digest,
}

/// What can't be cleared by writing because it lives in this process alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latches {
    /// Writes of HEAD that this process made, or tried to.
    pub written: Vec<Nonce>,
    /// The epoch that it acquired. Another owner after that has fenced it, for good.
    pub acquired: Option<u64>,
}

/// Who reconciles, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cfg {
    /// This process.
    pub writer_id: WriterId,
    /// The pipeline as it is configured.
    pub pipeline: String,
    /// The prefix as it is configured.
    pub prefix: String,
    /// The minor version that this process writes.
    pub minor: u16,
    /// Whether HEAD may be brought to it.
    pub upgrade: bool,
}

/// One step: one atomic durable action, with the values that made it due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// S1: write HEAD's first revision.
    CreateStream,
    /// S2: remember which stream this host works for.
    AdoptStreamId {
        /// HEAD's.
        stream_id: StreamId,
    },
    /// S3: make HEAD's next epoch this process's.
    Acquire {
        /// Who owns it now.
        owner: WriterId,
        /// Under which epoch.
        epoch: u64,
    },
    /// S4: write HEAD in the newest form.
    UpgradeMinor {
        /// HEAD's.
        from: u16,
        /// This process's.
        to: u16,
    },
    /// S5: wait until the lease of an earlier owner can't be used any more, then take it away.
    EndLease {
        /// The lease.
        lease_id: Nonce,
        /// How long it holds at most, from when it was first seen.
        ttl_ms: u64,
        /// The epoch of its holder.
        epoch: u64,
    },
    /// S6: commit an entry that makes visible what was acknowledged without the manifest.
    RecordLegacyWindow {
        /// HEAD's watermark.
        from: Option<Digest>,
        /// What was acknowledged.
        to: Box<PositionRecord>,
    },
    /// S7: a commit that was about to be tried landed: acknowledge it here, and forget the hint.
    Fold {
        /// What was acknowledged.
        acked: Option<Digest>,
        /// The hint's position.
        hint: Digest,
        /// HEAD's watermark, which is acknowledged from now on.
        to: Digest,
    },
    /// S8: a commit that was about to be tried never landed, and can't any more: forget the hint.
    DropDeadHint {
        /// The hint's place.
        seq: u64,
        /// HEAD's last entry.
        head_seq: u64,
    },
    /// S9: somebody else got further: acknowledge that here.
    AdoptAhead {
        /// What was acknowledged.
        acked: Option<Digest>,
        /// HEAD's watermark.
        to: Digest,
    },
}

impl Step {
    /// Its name, for logs and for the error of a step that does not clear.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CreateStream => "S1 create stream",
            Self::AdoptStreamId { .. } => "S2 adopt stream id",
            Self::Acquire { .. } => "S3 acquire",
            Self::UpgradeMinor { .. } => "S4 upgrade minor",
            Self::EndLease { .. } => "S5 end lease",
            Self::RecordLegacyWindow { .. } => "S6 record legacy window",
            Self::Fold { .. } => "S7 fold",
            Self::DropDeadHint { .. } => "S8 drop dead hint",
            Self::AdoptAhead { .. } => "S9 adopt ahead",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |digest: &Option<Digest>| digest.map_or_else(|| "none".to_owned(), |d| d.to_string());
        f.write_str(self.name())?;
        match self {
            Self::CreateStream => f.write_str(": head=none"),
            Self::AdoptStreamId { stream_id } => write!(f, ": local=none head={stream_id}"),
            Self::Acquire { owner, epoch } => write!(f, ": owner={owner} epoch={epoch}"),
            Self::UpgradeMinor { from, to } => write!(f, ": head={from} own={to}"),
            Self::EndLease { lease_id, ttl_ms, epoch } => {
                write!(f, ": lease={lease_id} epoch={epoch} ttl_ms={ttl_ms}")
            }
            Self::RecordLegacyWindow { from, to } => {
                write!(f, ": watermark={} acked={}", text(from), to.digest)
            }
            Self::Fold { acked, hint, to } => {
                write!(f, ": acked={} hint={hint} watermark={to}", text(acked))
            }
            Self::DropDeadHint { seq, head_seq } => write!(f, ": hint_seq={seq} head_seq={head_seq}"),
            Self::AdoptAhead { acked, to } => write!(f, ": acked={} watermark={to}", text(acked)),
        }
    }
}

/// How this host's acknowledgement stands to HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was acknowledged here.
    Nothing,
    /// HEAD's watermark.
    Equal,
    /// HEAD is further.
    Behind,
    /// HEAD does not have it.
    Ahead,
    /// Neither.
    Apart,
}

/// The first step that is due, or none at the fixed point. Pure: no clock, no I/O, and the same answer for the
/// same arguments.
///
/// # Errors
/// The guards: what must not be, and what nothing is written for.
pub fn reconcile(baseline: &Baseline, latches: &Latches, cfg: &Cfg) -> Result<Option<Step>, SinkError> {
    let local = &baseline.local;
    let stream = match &baseline.bucket {
        Bucket::Headless { key } => return Err(Alarm::ManifestWithoutHead { key: key.clone() }.into()), // G1
        Bucket::Unverified(error) => return Err(error.clone()), // G2, G3
        Bucket::Empty => return create(local),
        Bucket::Stream(stream) => stream,
    };
    guard_identity(&stream.head, local, latches, cfg)?; // G2, G6
    let standing = standing(stream, local)?; // G4, G5
    Ok(step(stream, local, cfg, standing))
}

fn create(local: &Checkpoint) -> Result<Option<Step>, SinkError> {
    if let Some(acked) = local.acked.as_ref().filter(|_| local.mode == Mode::DurableV2) {
        let (acked, seq) = (acked.position.digest, acked.seq);
        return Err(Alarm::AcknowledgedAheadOfHead { acked, seq, watermark: "absent".to_owned() }.into()); // G4
    }
    if local.stream_id.is_some() {
        return Err(Alarm::HeadDeleted.into()); // G1: it was there, and all that it reached is gone too
    }
    Ok(Some(Step::CreateStream))
}

/// Whether HEAD is of this pipeline, and may be replaced by a writer of this minor version.
///
/// # Errors
/// [`SinkError::Configuration`], [`SinkError::NewerWriter`].
pub fn writable(head: &Head, pipeline: &str, prefix: &str, minor: u16) -> Result<(), SinkError> {
    for (what, found, wanted) in [("pipeline", &head.pipeline, pipeline), ("prefix", &head.prefix, prefix)] {
        if found != wanted {
            return Err(SinkError::Configuration(format!(
                "HEAD was made for {what} {found:?}, configured is {wanted:?}: a moved or a copied stream"
            )));
        }
    }
    if head.min_writer > u32::from(minor) {
        return Err(SinkError::NewerWriter {
            key: "_manifest/HEAD".to_owned(),
            reason: format!("only minor version {} and later may replace it", head.min_writer),
        });
    }
    Ok(())
}

fn guard_identity(head: &Head, local: &Checkpoint, latches: &Latches, cfg: &Cfg) -> Result<(), SinkError> {
    writable(head, &cfg.pipeline, &cfg.prefix, cfg.minor)?;
    match local.stream_id {
        Some(local) if local != head.stream_id => {
            return Err(Alarm::OtherStream { found: head.stream_id, local }.into());
        }
        _ => {}
    }
    let owned = head.owner.writer_id == cfg.writer_id;
    match latches.acquired {
        Some(mine) if !owned => {
            Err(SinkError::Fenced { mine, epoch: head.epoch, owner: head.owner.writer_id })
        }
        _ if owned && !latches.written.contains(&head.write.nonce) => {
            Err(Alarm::UnknownWrite { rev: head.rev }.into())
        }
        _ => Ok(()),
    }
}

fn standing(stream: &Stream, local: &Checkpoint) -> Result<Standing, SinkError> {
    let Some(acked) = &local.acked else { return Ok(Standing::Nothing) };
    let (digest, durable) = (acked.position.digest, local.mode == Mode::DurableV2);
    let watermark = stream.head.watermark.as_ref().map(|watermark| watermark.digest);
    // The chain is better evidence than an order of positions: a rebase may lie between.
    let in_chain = stream.at_acked.as_ref().is_some_and(|entry| entry.digest == digest);
    let standing = if watermark == Some(digest) {
        Standing::Equal
    } else if in_chain {
        Standing::Behind
    } else {
        match compared(stream, acked)? {
            // Acknowledged by HEAD once, and now not where it was: however it compares, it is missing.
            Standing::Behind if durable => Standing::Ahead,
            other => other,
        }
    };
    match (standing, watermark) {
        (Standing::Ahead, _) if durable => Err(Alarm::AcknowledgedAheadOfHead {
            acked: digest,
            seq: acked.seq,
            watermark: watermark.map_or_else(|| "none".to_owned(), |digest| digest.to_string()),
        }
        .into()),
        (Standing::Apart, Some(watermark)) => {
            Err(Alarm::AcknowledgedApartFromHead { acked: digest, watermark }.into())
        }
        _ => Ok(standing),
    }
}

/// By position: only for what is not in the chain.
fn compared(stream: &Stream, acked: &Acked) -> Result<Standing, SinkError> {
    let Some(watermark) = &stream.watermark else { return Ok(Standing::Ahead) };
    let acked = Position::try_from(&acked.position)
        .map_err(|error| SinkError::Configuration(format!("the local checkpoint: {error}")))?;
    Ok(match watermark.compare(&acked) {
        Order::Greater => Standing::Ahead,
        Order::Equal => Standing::Equal,
        Order::Less => Standing::Behind,
        Order::Incomparable => Standing::Apart,
    })
}

fn step(stream: &Stream, local: &Checkpoint, cfg: &Cfg, standing: Standing) -> Option<Step> {
    let head = &stream.head;
    if local.stream_id.is_none() {
        return Some(Step::AdoptStreamId { stream_id: head.stream_id });
    }
    if head.owner.writer_id != cfg.writer_id {
        return Some(Step::Acquire { owner: head.owner.writer_id, epoch: head.epoch });
    }
    if cfg.upgrade && head.minor < cfg.minor {
        return Some(Step::UpgradeMinor { from: head.minor, to: cfg.minor });
    }
    if let Some(lease) = head.lease.as_ref().filter(|lease| lease.epoch < head.epoch) {
        let (lease_id, ttl_ms, epoch) = (lease.lease_id, lease.ttl_ms, lease.epoch);
        return Some(Step::EndLease { lease_id, ttl_ms, epoch });
    }
    let acked = local.acked.as_ref().map(|acked| acked.position.digest);
    let watermark = head.watermark.as_ref().map(|watermark| watermark.digest);
    let landed = landed(stream, local);
    if let (Standing::Ahead, Some(acked)) = (standing, &local.acked) {
        let to = Box::new(acked.position.clone());
        return Some(Step::RecordLegacyWindow { from: watermark, to });
    }
    match (&local.hint, watermark) {
        (Some(hint), Some(to)) if landed => Some(Step::Fold { acked, hint: hint.digest, to }),
        (Some(hint), _) => Some(Step::DropDeadHint { seq: hint.seq, head_seq: head.seq }),
        (None, Some(to)) => {
            let by_legacy = standing == Standing::Equal && local.mode == Mode::LegacyRolling;
            let behind = matches!(standing, Standing::Nothing | Standing::Behind);
            (behind || by_legacy).then_some(Step::AdoptAhead { acked, to })
        }
        (None, None) => None,
    }
}

/// Whether the hint's commit is in the chain: its entry by name, or the same content at the same place.
fn landed(stream: &Stream, local: &Checkpoint) -> bool {
    let (Some(hint), Some(entry)) = (&local.hint, &stream.at_hint) else { return false };
    hint.seq <= stream.head.seq
        && (entry.nonce == Some(hint.nonce)
            || (entry.digest == hint.digest && entry.batch_digest == hint.batch_digest))
}

#[cfg(test)]
mod tests;
