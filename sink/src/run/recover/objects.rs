//! Data objects: that their keys say what the entry says, that they are there, and on demand what they hold.

use std::collections::HashMap;

use super::{Committed, Content, Depth, Found, Object, PARALLEL, Verification};
use crate::env::Env;
use crate::error::{Alarm, SinkError};
use crate::model::entry::{Layout, batch_digest};
use crate::model::ids::Digest;
use crate::model::key::ObjectName;
use crate::model::position::{Position, PositionType};
use crate::model::rollup::LiveOutput;
use crate::run::parallel::in_parallel;
use crate::run::patience::Patience;
use crate::run::read;

/// From how many objects on a listing is asked instead of each object: a page of it tells of a thousand.
const LISTING_FROM: usize = 64;

/// Up to where an earlier verification has checked.
#[derive(Clone, Copy, Default)]
pub(super) struct Checked {
    /// The last entry.
    pub(super) seq: u64,
    /// The last compaction record.
    pub(super) ordinal: u64,
}

/// An object that must be there.
struct Wanted {
    key: String,
    size: u64,
    sha256: Digest,
}

impl Verification<'_> {
    /// Names, presence and, if that deep, content of every object after `before`. An original may be missing only
    /// where outputs stand for it, which then must be there.
    pub(super) async fn check_objects(&self, found: &mut Found, before: Checked) -> Result<(), SinkError> {
        let Found { entries, compacted, warnings, .. } = found;
        let new = entries.partition_point(|entry| entry.seq <= before.seq);
        let mut wanted = Vec::new();
        for entry in entries.get(new..).unwrap_or_default() {
            self.check_names(entry, warnings)?;
            let live = |object: &Object<'_>| compacted.covering(&object.table, entry.seq).is_none();
            wanted.extend(
                entry.objects().into_iter().filter(live).map(|Object { key, size, sha256, .. }| Wanted {
                    key: key.to_owned(),
                    size,
                    sha256,
                }),
            );
        }
        let outputs = compacted.outputs().iter().filter(|output| output.ordinal > before.ordinal);
        wanted.extend(outputs.map(|LiveOutput { key, size, sha256, .. }| Wanted {
            key: key.clone(),
            size: *size,
            sha256: *sha256,
        }));
        if self.depth == Depth::Manifest || wanted.is_empty() {
            return Ok(());
        }
        let deep = self.depth == Depth::Deep;
        tracing::info!(objects = wanted.len(), deep, "verifying data objects");
        let asked = if deep { wanted } else { self.not_listed(wanted).await? };
        in_parallel(PARALLEL, asked, |object| {
            let (env, patience) = (self.env.clone(), self.patience.renewed());
            async move {
                if deep {
                    object.check_content(&env, &patience).await
                } else {
                    object.check(&env, &patience).await
                }
            }
        })
        .await?;
        Ok(())
    }

    /// Which of the objects a listing does not show as they are recorded: each of these is asked for, since not in
    /// a listing is not yet missing.
    async fn not_listed(&self, wanted: Vec<Wanted>) -> Result<Vec<Wanted>, SinkError> {
        if wanted.len() < LISTING_FROM {
            return Ok(wanted);
        }
        let mut sizes: HashMap<&str, (u64, bool)> =
            wanted.iter().map(|object| (object.key.as_str(), (object.size, false))).collect();
        read::list(self.env, &self.root.listing(), self.patience, |meta| {
            if let Some((size, shown)) = sizes.get_mut(meta.key.as_str()) {
                *shown = *size == meta.size;
            }
            false
        })
        .await?;
        let shown: Vec<bool> = wanted
            .iter()
            .map(|object| sizes.get(object.key.as_str()).is_some_and(|(_, shown)| *shown))
            .collect();
        Ok(wanted.into_iter().zip(shown).filter_map(|(object, shown)| (!shown).then_some(object)).collect())
    }

    /// A key's digests are those of its entry; a key of an older release holds the position itself.
    fn check_names(&self, entry: &Committed, warnings: &mut Vec<String>) -> Result<(), SinkError> {
        let mut before: Option<&str> = None;
        for object in entry.objects() {
            let conflict = |reason: String| -> Result<(), SinkError> {
                Err(Alarm::ConflictingObject { key: object.key.to_owned(), reason }.into())
            };
            if before.is_some_and(|before| before.as_bytes() >= object.key.as_bytes()) {
                let reason = format!("entry {} has it out of order, or twice", entry.seq);
                return Err(Alarm::Contradiction { key: object.key.to_owned(), reason }.into());
            }
            before = Some(object.key);
            match self.root.parse(object.key) {
                Some(ObjectName::Data { watermark, .. }) if watermark != entry.digest() => {
                    conflict(format!("entry {} is for position {}", entry.seq, entry.digest()))?;
                }
                Some(ObjectName::Data { content, .. }) if content != object.sha256 => {
                    conflict(format!("entry {} records SHA-256 {}", entry.seq, object.sha256))?;
                }
                Some(ObjectName::Data { .. }) => {}
                Some(ObjectName::LegacyData { position, .. }) => {
                    if let Some(warning) = self.check_legacy(entry, object.key, &position)? {
                        warnings.push(warning);
                    }
                }
                _ if is_wm2(entry, object.key) => {
                    conflict(format!("entry {} has it for data of this pipeline", entry.seq))?;
                }
                _ => warnings.push(format!("{:?} is accepted as it is: its name says nothing", object.key)),
            }
        }
        if let Content::Entry(record) = &entry.content {
            let objects = record.objects.iter().map(|object| (object.key.as_str(), &object.sha256));
            if batch_digest(objects) != record.batch.batch_digest {
                let reason = "its objects are not those that its batch digest is of".to_owned();
                return Err(Alarm::Contradiction { key: entry.key.clone(), reason }.into());
            }
        }
        Ok(())
    }

    /// A warning for a position that can't be read.
    fn check_legacy(
        &self,
        entry: &Committed,
        key: &str,
        position: &[u8],
    ) -> Result<Option<String>, SinkError> {
        let Content::Entry(record) = &entry.content else { return Ok(None) };
        let unread = || Some(format!("{key:?} is accepted as it is: its position can't be read"));
        let of_entry = record.position().map_err(|error| SinkError::of_position(&entry.key, &error))?;
        let position_type: PositionType = of_entry.position_type();
        let Ok(text) = str::from_utf8(position) else { return Ok(unread()) };
        match Position::parse(position_type, of_entry.lineage.clone(), text, of_entry.sub) {
            Err(_) => Ok(unread()),
            Ok(found) if found == of_entry => Ok(None),
            Ok(_) => {
                let reason = format!("entry {} is for position {}", entry.seq, entry.digest());
                Err(Alarm::ConflictingObject { key: key.to_owned(), reason }.into())
            }
        }
    }
}

impl Wanted {
    /// That it is there, with its size.
    async fn check(self, env: &Env, patience: &Patience) -> Result<(), SinkError> {
        let Self { key, size: recorded, .. } = self;
        match read::meta(env, &key, patience.renewed()).await?.map(|meta| meta.size) {
            None => Err(Alarm::MissingReferenced { what: "data", key, hint: "" }.into()),
            Some(found) if found != recorded => Err(Alarm::SizeMismatch { key, found, recorded }.into()),
            Some(_) => Ok(()),
        }
    }

    /// That it holds what is recorded.
    async fn check_content(self, env: &Env, patience: &Patience) -> Result<(), SinkError> {
        let Self { key, size: recorded, sha256 } = self;
        let content = read::verified(env, &key, patience, |bytes| {
            let (found, key) = (bytes.len() as u64, key.clone());
            if found != recorded {
                return Err(Alarm::SizeMismatch { key, found, recorded }.into());
            }
            let (found, what) = (Digest::of(bytes), "data");
            if found != sha256 {
                return Err(Alarm::DigestMismatch { what, key, found, recorded: sha256 }.into());
            }
            Ok(())
        });
        match content.await? {
            Some(()) => Ok(()),
            None => Err(Alarm::MissingReferenced { what: "data", key, hint: "" }.into()),
        }
    }
}

fn is_wm2(entry: &Committed, key: &str) -> bool {
    key.contains("/wm2-")
        || matches!(&entry.content, Content::Entry(record)
            if record.objects.iter().any(|object| object.key == key && object.layout == Layout::Wm2))
}
