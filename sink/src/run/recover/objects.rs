//! Data objects: that their keys say what the entry says, that they are there, and on demand what they hold.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Committed, Content, Depth, Object, PARALLEL, Verification};
use crate::error::{Alarm, SinkError};
use crate::model::entry::{Layout, batch_digest};
use crate::model::ids::Digest;
use crate::model::key::ObjectName;
use crate::model::position::{Position, PositionType};
use crate::run::parallel::in_parallel;
use crate::run::read;

/// From how many objects on a listing is cheaper than a question for each.
const LISTING_FROM: usize = 1000;

impl Verification<'_> {
    /// Names, presence and, if that deep, content of every object of `entries`.
    pub(super) async fn check_objects(
        &self,
        entries: &[Committed],
        warnings: &mut Vec<String>,
    ) -> Result<(), SinkError> {
        for entry in entries {
            self.check_names(entry, warnings)?;
        }
        if self.depth == Depth::Manifest {
            return Ok(());
        }
        let objects: Vec<(String, u64, Digest)> = entries
            .iter()
            .flat_map(Committed::objects)
            .map(|Object { key, size, sha256, .. }| (key.to_owned(), size, sha256))
            .collect();
        let listed = if objects.len() >= LISTING_FROM { self.listed().await? } else { HashMap::new() };
        let (listed, deep) = (Arc::new(listed), self.depth == Depth::Deep);
        if !objects.is_empty() {
            tracing::info!(objects = objects.len(), deep, "verifying data objects");
        }
        in_parallel(PARALLEL, objects, |(key, recorded, sha256)| {
            let (env, patience, listed) = (self.env.clone(), self.patience.renewed(), Arc::clone(&listed));
            async move {
                let found = match listed.get(&key) {
                    Some(size) => Some(*size),
                    // Not in the listing is not yet missing: the object itself is asked for.
                    None => read::meta(&env, &key, patience.renewed()).await?.map(|meta| meta.size),
                };
                match found {
                    None => {
                        let what = "data";
                        return Err(Alarm::MissingReferenced { what, key, hint: "" }.into());
                    }
                    Some(found) if found != recorded => {
                        return Err(Alarm::SizeMismatch { key, found, recorded }.into());
                    }
                    Some(_) => {}
                }
                if !deep {
                    return Ok(());
                }
                let content = read::verified(&env, &key, &patience, |bytes| {
                    let (found, what) = (Digest::of(bytes), "data");
                    if found == sha256 {
                        return Ok(());
                    }
                    Err(Alarm::DigestMismatch { what, key: key.clone(), found, recorded: sha256 }.into())
                });
                match content.await? {
                    Some(()) => Ok(()),
                    None => Err(Alarm::MissingReferenced { what: "data", key: key.clone(), hint: "" }.into()),
                }
            }
        })
        .await?;
        Ok(())
    }

    async fn listed(&self) -> Result<HashMap<String, u64>, SinkError> {
        let mut sizes = HashMap::new();
        read::list(self.env, &self.root.listing(), self.patience, |meta| {
            sizes.insert(meta.key, meta.size);
            false
        })
        .await?;
        Ok(sizes)
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

fn is_wm2(entry: &Committed, key: &str) -> bool {
    key.contains("/wm2-")
        || matches!(&entry.content, Content::Entry(record)
            if record.objects.iter().any(|object| object.key == key && object.layout == Layout::Wm2))
}
