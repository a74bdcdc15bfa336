//! The entries after the last rollup: followed backwards by their links, which need no listing. A listing only
//! tells which keys to read ahead.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Committed, Content, PARALLEL, Verification};
use crate::error::{Alarm, SinkError};
use crate::model::entry::{Entry, EntryLink};
use crate::model::frame::Kind;
use crate::model::ids::Digest;
use crate::model::key::ObjectName;
use crate::model::rollup::Rollup;
use crate::run::parallel::in_parallel;
use crate::run::read;

/// From how many entries on a listing is worth its round trips.
const READ_AHEAD_FROM: u64 = 16;

/// Frames that were read ahead, by key. What is not among them is read when its turn comes.
pub(super) type Ahead = HashMap<String, Bytes>;

/// The entry that a tail comes after.
#[derive(Default)]
pub(super) struct Base {
    seq: u64,
    /// Of its position.
    digest: Option<Digest>,
    /// Its key and the SHA-256 of its frame, if they are known beside the chain.
    at: Option<(String, Digest)>,
}

impl Base {
    pub(super) fn after(last: Option<&Committed>) -> Self {
        last.map_or_else(Self::default, |last| Self {
            seq: last.seq,
            digest: Some(last.digest()),
            at: Some((last.key.clone(), last.sha256)),
        })
    }

    pub(super) fn end_of(rollup: Option<&Rollup>) -> Self {
        rollup.map_or_else(Self::default, |rollup| Self {
            seq: rollup.end_seq,
            digest: Some(rollup.end_position.digest),
            at: None,
        })
    }
}

impl Verification<'_> {
    /// The entries after `before` up to HEAD's last, each verified and in order.
    pub(super) async fn tail(&self, before: Base) -> Result<Vec<Committed>, SinkError> {
        let base = before.seq;
        let head = self.head;
        if head.seq < base {
            return Err(self.contradiction(format!("its last entry is {}, {base} are rolled up", head.seq)));
        }
        let mut link = match &head.last_entry {
            Some(last) if last.seq == head.seq && head.seq > 0 => {
                Some(EntryLink { seq: last.seq, key: last.key.clone(), sha256: last.sha256 })
            }
            None if head.seq == 0 && head.watermark.is_none() => None,
            _ => return Err(self.contradiction(format!("its last entry is not entry {}", head.seq))),
        };
        let ahead = Mutex::new(self.read_ahead(base).await?);
        let mut entries = Vec::new();
        while let Some(next) = link.take_if(|link| link.seq > base) {
            let entry = self.entry(&next, &ahead).await?;
            link = self.linked(&next, &entry)?;
            let content = Content::Entry(Box::new(entry));
            entries.push(Committed { seq: next.seq, key: next.key, sha256: next.sha256, content });
        }
        let joined = match (&link, &before.at) {
            (None, _) => base == 0,
            (Some(link), Some((key, sha256))) => link.key == *key && link.sha256 == *sha256,
            // The chain says the rest.
            (Some(link), None) => link.seq == base,
        };
        if !joined {
            return Err(self.contradiction(format!("entry {} is not linked to entry {base}", base + 1)));
        }
        entries.reverse();
        self.check_positions(before.digest, &entries)?;
        Ok(entries)
    }

    /// The last entry, which is always retained.
    pub(super) async fn last_entry(&self) -> Result<Entry, SinkError> {
        let Some(last) = &self.head.last_entry else {
            return Err(self.contradiction("it has entries, and none is its last".to_owned()));
        };
        let link = EntryLink { seq: last.seq, key: last.key.clone(), sha256: last.sha256 };
        self.entry(&link, &Mutex::default()).await
    }

    /// The link of an entry to the one before it, which must be its predecessor.
    fn linked(&self, at: &EntryLink, entry: &Entry) -> Result<Option<EntryLink>, SinkError> {
        let sound = match &entry.prev {
            None => at.seq == 1,
            Some(prev) => prev.seq + 1 == at.seq && prev.seq > 0,
        };
        if sound {
            return Ok(entry.prev.clone());
        }
        let reason = format!("entry {} is not linked to entry {}", at.seq, at.seq.saturating_sub(1));
        Err(Alarm::Contradiction { key: at.key.clone(), reason }.into())
    }

    /// One entry, by key and hash.
    pub(super) async fn entry(&self, link: &EntryLink, ahead: &Mutex<Ahead>) -> Result<Entry, SinkError> {
        let key = &link.key;
        let verify = |bytes: &Bytes| {
            let found = Digest::of(bytes);
            if found != link.sha256 {
                let (what, recorded) = ("entry", link.sha256);
                return Err(Alarm::DigestMismatch { what, key: key.clone(), found, recorded }.into());
            }
            Entry::decode(bytes).map_err(|error| SinkError::of_frame(Kind::Entry, key, error))
        };
        let read_before = ahead.lock().remove(key).and_then(|bytes| verify(&bytes).ok());
        let entry = match read_before {
            Some(entry) => entry,
            None => match read::verified(self.env, key, self.patience, verify).await? {
                Some(entry) => entry,
                None => return Err(self.missing_entry(link).await?),
            },
        };
        if entry.stream_id == self.head.stream_id && entry.seq == link.seq && entry.epoch <= self.head.epoch {
            return Ok(entry);
        }
        let reason = format!(
            "it is entry {} of stream {} under epoch {}, HEAD of stream {} under epoch {} reaches it as entry {}",
            entry.seq, entry.stream_id, entry.epoch, self.head.stream_id, self.head.epoch, link.seq
        );
        Err(Alarm::Contradiction { key: key.clone(), reason }.into())
    }

    /// One entry may be missing, or all of them.
    async fn missing_entry(&self, link: &EntryLink) -> Result<SinkError, SinkError> {
        let mut any = false;
        read::list(self.env, &self.root.entries(), self.patience, |_| {
            any = true;
            true
        })
        .await?;
        Ok(if any {
            Alarm::MissingReferenced { what: "entry", key: link.key.clone(), hint: "" }.into()
        } else {
            Alarm::HeadWithoutManifest { seq: self.head.seq }.into()
        })
    }

    async fn read_ahead(&self, base: u64) -> Result<Ahead, SinkError> {
        if self.head.seq - base < READ_AHEAD_FROM {
            return Ok(Ahead::new());
        }
        let mut keys = Vec::new();
        read::list(self.env, &self.root.entries(), self.patience, |meta| {
            let wanted = match self.root.parse(&meta.key) {
                Some(ObjectName::Entry { seq, .. }) => seq > base && seq <= self.head.seq,
                _ => false,
            };
            if wanted {
                keys.push(meta.key);
            }
            false
        })
        .await?;
        tracing::info!(entries = keys.len(), "reading entries");
        self.frames(keys).await
    }

    /// Entries as they are stored; those that are not there are left out.
    pub(super) async fn frames(&self, keys: Vec<String>) -> Result<Ahead, SinkError> {
        let frames = in_parallel(PARALLEL, keys, |key| {
            let (env, patience) = (self.env.clone(), self.patience.renewed());
            async move {
                let object = read::get(&env, &key, patience).await?;
                Ok(object.map(|object| (key, object.bytes)))
            }
        })
        .await?;
        Ok(frames.into_iter().flatten().collect())
    }

    /// Every position is what its digest says, and follows the one that the entry names.
    fn check_positions(&self, before: Option<Digest>, entries: &[Committed]) -> Result<(), SinkError> {
        let mut last = before;
        for committed in entries {
            let Content::Entry(entry) = &committed.content else { continue };
            entry.position().map_err(|error| SinkError::of_position(&committed.key, &error))?;
            if entry.prev_digest != last {
                let reason = "its predecessor has another position than it says".to_owned();
                return Err(Alarm::Contradiction { key: committed.key.clone(), reason }.into());
            }
            last = Some(entry.position.digest);
        }
        if last == self.head.watermark.as_ref().map(|watermark| watermark.digest) {
            return Ok(());
        }
        Err(self.contradiction("its watermark is not the last entry's position".to_owned()))
    }
}
