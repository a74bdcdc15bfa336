//! Lists of objects, versions and uploads. Each page seeks to where it begins and skips a whole group of
//! keys at once, so it costs what it returns, however large the bucket is.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::buckets::{find, missing};
use super::index::{IndexError, Rows};
use super::model::{Upload, Version};
use super::objects::locate;
use super::{Store, StoreError, rows, seek_within, successor};
use crate::names::{BucketName, Key, VersionId, sequence_of};

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    /// Only what comes after this key or common prefix.
    pub(crate) after: Option<String>,
    /// Whether a common prefix that `after` lies in was listed before, as it was when `after` is where a
    /// page ended.
    pub(crate) group_listed: bool,
    pub(crate) max: usize,
}

/// One element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry<T> {
    Item(String, T),
    CommonPrefix(String),
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<Entry<T>>,
    pub(crate) truncated: bool,
    /// Whether a truncated page says nothing of where it goes on: no store makes such a page, a fault does.
    pub(crate) without_token: bool,
}

impl<T> Page<T> {
    fn new() -> Self {
        Self { entries: Vec::new(), truncated: false, without_token: false }
    }

    /// Takes out the item that was written last, and says whether there was one; `written` tells when that was.
    pub(crate) fn omit_newest(&mut self, written: impl Fn(&T) -> u64) -> bool {
        let when = |entry: &Entry<T>| match entry {
            Entry::Item(_, item) => Some(written(item)),
            Entry::CommonPrefix(_) => None,
        };
        let last = (0..self.entries.len()).max_by_key(|at| when(&self.entries[*at]));
        let last = last.filter(|at| when(&self.entries[*at]).is_some());
        last.map(|at| self.entries.remove(at)).is_some()
    }

    /// Adds an entry, or notes that there is one more than the page holds.
    fn add(
        &mut self,
        max: usize,
        entry: impl FnOnce() -> Result<Entry<T>, IndexError>,
    ) -> Result<bool, IndexError> {
        if self.entries.len() >= max {
            self.truncated = true;
            return Ok(false);
        }
        self.entries.push(entry()?);
        Ok(true)
    }
}

impl Query {
    /// The common prefix that a key is listed under, if any.
    fn group(&self, key: &str) -> Option<String> {
        let delimiter = self.delimiter.as_deref().filter(|d| !d.is_empty())?;
        let rest = key.strip_prefix(&self.prefix)?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(key[..self.prefix.len() + end].to_owned())
    }

    fn was_listed(&self, group: &str) -> bool {
        self.group_listed && self.after.as_deref().is_some_and(|after| after.starts_with(group))
    }
}

/// A version in a list of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedVersion {
    pub(crate) version: Version,
    pub(crate) is_latest: bool,
}

impl Store {
    /// Current objects.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) fn list(&self, bucket: &BucketName, query: &Query) -> Result<Page<Version>, StoreError> {
        let rows = self.index.snapshot()?;
        if find(&*rows, bucket)?.is_none() {
            return Err(missing(bucket));
        }
        let start = query.after.as_deref().map(|after| successor(&rows::starting(b'O', bucket, after)));
        Ok(page(&*rows, b'O', bucket, query, start)?)
    }

    /// Versions and delete markers, newest first within each key; `after` goes on below a version of the key
    /// `Query::after`.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) fn list_versions(
        &self,
        bucket: &BucketName,
        query: &Query,
        after: Option<&VersionId>,
    ) -> Result<Page<ListedVersion>, StoreError> {
        let rows = &*self.index.snapshot()?;
        if find(rows, bucket)?.is_none() {
            return Err(missing(bucket));
        }
        let mut page = Page::new();
        if query.max == 0 {
            return Ok(page);
        }
        // The key to look at next, from `from` on; of the marker's key, if it still is, only versions below `below`.
        let mut from =
            query.after.as_ref().map_or_else(|| query.prefix.clone(), |after| after.clone() + "\0");
        let mut below = None;
        if let (Some(version), Some(key)) = (after, &query.after) {
            below = sequence_below(rows, bucket, key, version)?;
            if below.is_some() {
                from.clone_from(key);
            }
        }
        let mut from = From::Key(from.max(query.prefix.clone()));
        while let Some(key) = next_key(rows, bucket, &query.prefix, &from)? {
            if let Some(group) = query.group(&key) {
                from = From::Behind(group.clone());
                if !query.was_listed(&group) && !page.add(query.max, || Ok(Entry::CommonPrefix(group)))? {
                    break;
                }
                continue;
            }
            let below = below.filter(|_| query.after.as_ref() == Some(&key));
            for (version, is_latest) in versions(rows, bucket, &key, below, query.max + 1)? {
                let item = || Ok(Entry::Item(key.clone(), ListedVersion { version, is_latest }));
                if !page.add(query.max, item)? {
                    return Ok(page);
                }
            }
            from = From::Key(key + "\0");
        }
        Ok(page)
    }

    /// Open uploads, in the order of their keys and creation; `after` goes on after an upload of the key
    /// `Query::after`.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) fn list_uploads(
        &self,
        bucket: &BucketName,
        query: &Query,
        after: Option<&str>,
    ) -> Result<Page<Upload>, StoreError> {
        let rows = self.index.snapshot()?;
        if find(&*rows, bucket)?.is_none() {
            return Err(missing(bucket));
        }
        let mut start = None;
        if let Some(key) = &query.after {
            let key = Key::new(key.clone()).map_err(|_| StoreError::NoSuchUpload(key.clone()))?;
            start = Some(match after.and_then(sequence_of) {
                Some(seq) => successor(&rows::upload(bucket, &key, seq)),
                None => rows::after_all(&rows::uploads_of(bucket, &key)),
            });
        }
        Ok(page(&*rows, b'U', bucket, query, start)?)
    }
}

/// A page of the rows of one kind, from `start` on where that lies behind the prefix.
fn page<T: DeserializeOwned>(
    rows: &dyn Rows,
    tag: u8,
    bucket: &BucketName,
    query: &Query,
    start: Option<Bytes>,
) -> Result<Page<T>, IndexError> {
    let mut page = Page::new();
    if query.max == 0 {
        return Ok(page);
    }
    let all = rows::within(tag, bucket);
    let within = rows::starting(tag, bucket, &query.prefix);
    let mut from = start.map_or_else(|| within.clone(), |start| start.max(within.clone()));
    while let Some((row, value)) = seek_within(rows, &within, &from)? {
        let key = key_of(&row, &all)?;
        if let Some(group) = query.group(&key) {
            from = rows::after_all(&rows::starting(tag, bucket, &group));
            if !query.was_listed(&group) && !page.add(query.max, || Ok(Entry::CommonPrefix(group)))? {
                break;
            }
            continue;
        }
        from = successor(&row);
        if !page.add(query.max, || Ok(Entry::Item(key, rows::decode(&row, &value)?.0)))? {
            break;
        }
    }
    Ok(page)
}

fn key_of(row: &Bytes, within: &[u8]) -> Result<String, IndexError> {
    rows::key_of(row, within).ok_or_else(|| IndexError::Damaged { row: row.clone(), cause: "no key".into() })
}

/// Where a search for keys begins.
enum From {
    /// At this key.
    Key(String),
    /// Behind all keys that begin so. No key is the greatest of them, so no key could say it.
    Behind(String),
}

/// The first key from `from` on that has any version.
fn next_key(
    rows: &dyn Rows,
    bucket: &BucketName,
    prefix: &str,
    from: &From,
) -> Result<Option<String>, IndexError> {
    let mut next: Option<String> = None;
    for tag in [b'O', b'V'] {
        let start = match from {
            From::Key(key) => rows::starting(tag, bucket, key),
            From::Behind(group) => rows::after_all(&rows::starting(tag, bucket, group)),
        };
        if let Some((row, _)) = seek_within(rows, &rows::starting(tag, bucket, prefix), &start)? {
            let key = key_of(&row, &rows::within(tag, bucket))?;
            if next.as_ref().is_none_or(|next| key < *next) {
                next = Some(key);
            }
        }
    }
    Ok(next)
}

/// The versions of one key, newest first, at most `max`, and of each whether it is the latest.
fn versions(
    rows: &dyn Rows,
    bucket: &BucketName,
    key: &str,
    below: Option<u64>,
    max: usize,
) -> Result<Vec<(Version, bool)>, IndexError> {
    let mut found: Vec<(Version, bool)> = Vec::new();
    let current = rows::starting(b'O', bucket, key);
    let mut has_current = false;
    if let Some(value) = rows.get(&current)? {
        has_current = true;
        let (version, _) = rows::decode::<Version>(&current, &value)?;
        if below.is_none_or(|below| version.seq < below) {
            found.push((version, true));
        }
    }
    let Ok(key) = Key::new(key.to_owned()) else { return Ok(found) };
    let within = rows::versions_of(bucket, &key);
    let mut from = match below {
        Some(below) => rows::version(bucket, &key, below.saturating_sub(1)),
        None => within.clone(),
    };
    while found.len() < max {
        let Some((row, value)) = seek_within(rows, &within, &from)? else { break };
        let is_latest = !has_current && found.is_empty() && below.is_none();
        found.push((rows::decode(&row, &value)?.0, is_latest));
        from = successor(&row);
    }
    Ok(found)
}

/// The sequence number below which a list goes on after `version`; `None` if there is no such version.
fn sequence_below(
    rows: &dyn Rows,
    bucket: &BucketName,
    key: &str,
    version: &VersionId,
) -> Result<Option<u64>, IndexError> {
    if let VersionId::Id(id) = version {
        return Ok(sequence_of(id));
    }
    let Ok(key) = Key::new(key.to_owned()) else { return Ok(None) };
    let Ok((row, value)) = locate(rows, bucket, &key, Some(version))? else { return Ok(None) };
    Ok(Some(rows::decode::<Version>(&row, &value)?.0.seq))
}
