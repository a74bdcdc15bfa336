//! Judges a settled `durable_v2` pipeline: from HEAD back over all entries, then forward over all rows.

mod kept;
mod object;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use bytes::Bytes;

use crate::bucket::{Bucket, Listed, ReadError};
use crate::expected::Expected;
use crate::frame;
use crate::json::{self, Sha};
use crate::lifetime::{Kept, Live, View, table_of};
use crate::manifest::{self, Entry, EntryRef, Head, ObjectRecord};
use crate::names;
use crate::position::{Lineage, Point};
use crate::report::{Kind, Report};

/// Objects that are fetched ahead of the one that is judged.
const AHEAD: usize = 16;

/// The longest ring of latest writes in HEAD.
const MOST_RECENT: usize = 64;

/// Which pipeline is judged; both as they are configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The prefix.
    pub prefix: String,
    /// The pipeline.
    pub pipeline: String,
}

/// An entry and what its bytes hash to.
struct Stored {
    key: String,
    sha256: Sha,
    entry: Entry,
}

/// Judges the pipeline as it is, twice listed: a bucket in which something still happens is inconclusive.
///
/// # Errors
/// [`ReadError`]: the bucket could not be read.
pub async fn judge(
    bucket: &Bucket,
    subject: &Subject,
    expected: Option<Expected>,
) -> Result<Report, ReadError> {
    let root = names::root(&subject.prefix, &subject.pipeline);
    let mut judge = Judge {
        bucket,
        subject,
        root: root.clone(),
        report: Report { subject: format!("durable {root}"), ..Report::default() },
        reachable: BTreeSet::new(),
        spared: BTreeSet::new(),
        expected,
    };
    let before = bucket.list(&root).await?;
    judge.report.statistics.listed = before.len() as u64;
    let head_key = format!("{root}_manifest/HEAD");
    let head = bucket.get(&head_key).await?;
    judge.reachable.insert(head_key.clone());
    match &head {
        None if before.is_empty() => {
            judge.report.inconclusive.push(format!("no key begins with {root:?}: is it the right place?"));
        }
        None => {
            let detail = format!("there is no HEAD, and {} keys are below {root:?}", before.len());
            judge.report.find(Kind::HeadMissing, &head_key, detail);
        }
        Some(bytes) => match frame::decode::<Head>(bytes, frame::Kind::Head) {
            Ok(head) => judge.pipeline(&head_key, &head).await?,
            Err(why) => judge.report.find(Kind::Frame, &head_key, why),
        },
    }
    if let Some(expected) = judge.expected.take() {
        judge.report.statistics.expected = expected.len();
        expected.finish(&mut judge.report);
    }
    let head_after = bucket.get(&head_key).await?;
    let after = bucket.list(&root).await?;
    judge.settled(head_after == head, &before, &after);
    judge.unreachable(&before);
    Ok(judge.report)
}

struct Judge<'a> {
    bucket: &'a Bucket,
    subject: &'a Subject,
    root: String,
    report: Report,
    reachable: BTreeSet<String>,
    /// Keys that the manifest knows and that may be gone.
    spared: BTreeSet<String>,
    expected: Option<Expected>,
}

impl Judge<'_> {
    async fn pipeline(&mut self, at: &str, head: &Head) -> Result<(), ReadError> {
        self.report.statistics.rev = head.rev.0;
        self.report.statistics.epoch = head.epoch.0;
        self.report.statistics.seq = head.seq.0;
        self.head(at, head);
        let kept = self.rollups(head).await?;
        let entries = self.entries(head, kept.len() as u64).await?;
        self.report.statistics.entries = entries.len() as u64;
        let gone = self.gone(head, kept, &entries);
        self.chain(at, head, &gone, &entries);
        self.positions(gone.last(), &entries);
        for stored in &entries {
            self.objects(stored);
        }
        let view = self.view(head, &gone, &entries).await?;
        self.rows(&view).await
    }

    /// HEAD against the configuration and itself.
    fn head(&mut self, at: &str, head: &Head) {
        let configured = [
            ("pipeline", &head.pipeline, &self.subject.pipeline),
            ("prefix", &head.prefix, &self.subject.prefix),
        ];
        for (what, found, wanted) in configured {
            if found != wanted {
                self.report.find(Kind::Identity, at, format!("{what} {found:?}, asked for {wanted:?}"));
            }
        }
        let mut say = |why: String| self.report.find(Kind::Head, at, why);
        if head.recent.len() > MOST_RECENT {
            say(format!("{} latest writes, {MOST_RECENT} at most", head.recent.len()));
        }
        if let Some(pair) = head.recent.windows(2).find(|pair| pair[0].rev >= pair[1].rev) {
            say(format!("latest writes {} and {} are not in order", pair[0].rev.0, pair[1].rev.0));
        }
        if let Some(pair) = head.recent.windows(2).find(|pair| pair[0].epoch > pair[1].epoch) {
            say(format!("epoch {} is followed by {}", pair[0].epoch.0, pair[1].epoch.0));
        }
        if let Some(last) = head.recent.last() {
            let same = last.rev == head.rev;
            if last.rev > head.rev || (same && last.nonce != head.write.nonce) || last.epoch > head.epoch {
                say(format!("the latest write {} is not of revision {}", last.rev.0, head.rev.0));
            }
        }
        let last = head.last_entry.as_ref().map_or(0, |last| last.seq.0);
        if last != head.seq.0 {
            say(format!("seq {}, last entry {last}", head.seq.0));
        }
        if head.entry_floor.0 > head.seq.0.max(1) {
            say(format!("floor {} is above seq {}", head.entry_floor.0, head.seq.0));
        }
    }

    /// Follows the links from the last entry back; the first that does not hold ends the walk, as does one that is
    /// gone below the floor and of which an inventory keeps what matters: they do of the first `kept`.
    async fn entries(&mut self, head: &Head, kept: u64) -> Result<Vec<Stored>, ReadError> {
        let mut entries = Vec::new();
        let mut next = head.last_entry.clone();
        while let Some(link) = next.take() {
            self.reachable.insert(link.key.clone());
            let Some(bytes) = self.bucket.get(&link.key).await? else {
                if link.seq < head.entry_floor {
                    self.reachable.remove(&link.key);
                    if link.seq.0 > kept {
                        let detail = format!("entry {} is gone, and no inventory keeps it", link.seq.0);
                        self.report.find(Kind::Missing, &link.key, detail);
                    }
                } else {
                    let detail = format!("entry {} is not there", link.seq.0);
                    self.report.find(Kind::Missing, &link.key, detail);
                }
                break;
            };
            let Some(stored) = self.entry(head, &link, &bytes) else { break };
            next.clone_from(&stored.entry.prev);
            entries.push(stored);
        }
        entries.reverse();
        Ok(entries)
    }

    /// One entry against the link that leads to it.
    fn entry(&mut self, head: &Head, link: &EntryRef, bytes: &Bytes) -> Option<Stored> {
        let at = &link.key;
        let sha256 = json::sha256(bytes);
        let entry = match frame::decode::<Entry>(bytes, frame::Kind::Entry) {
            Ok(entry) => entry,
            Err(why) => {
                self.report.find(Kind::Frame, at, why);
                return None;
            }
        };
        if sha256 != link.sha256 || link.size.is_some_and(|size| size.0 != bytes.len() as u64) {
            let detail = format!("the link says SHA-256 {}, the entry has {sha256}", link.sha256);
            self.report.find(Kind::MutatedObject, at, detail);
            return None;
        }
        if entry.stream_id != head.stream_id {
            let detail = format!("stream {}, HEAD is of {}", entry.stream_id, head.stream_id);
            self.report.find(Kind::Identity, at, detail);
        }
        if entry.seq != link.seq {
            self.report.find(Kind::Chain, at, format!("entry {}, the link says {}", entry.seq.0, link.seq.0));
            return None;
        }
        let key = names::entry(&self.root, entry.seq.0, entry.epoch.0, sha256);
        if key != *at {
            self.report.find(Kind::Key, at, format!("its content belongs at {key}"));
        }
        let before = entry.prev.as_ref().map_or(0, |prev| prev.seq.0);
        if before + 1 != entry.seq.0 {
            let detail = format!("entry {} is linked to entry {before}", entry.seq.0);
            self.report.find(Kind::Gap, at, detail);
            return None;
        }
        Some(Stored { key: link.key.clone(), sha256, entry })
    }

    /// The hash chain from the stream's start to HEAD, and HEAD's watermark.
    fn chain(&mut self, at: &str, head: &Head, gone: &[Kept], entries: &[Stored]) {
        let first = entries.first().map_or(head.seq.0 + 1, |first| first.entry.seq.0);
        if first == gone.len() as u64 + 1 {
            let start = manifest::chain_start(head.stream_id);
            let before = gone.iter().map(|kept| (kept.seq.0, kept.entry_sha256));
            let there = entries.iter().map(|stored| (stored.entry.seq.0, stored.sha256));
            let chain = before
                .chain(there)
                .fold(start, |chain, (seq, sha256)| manifest::chain_next(chain, seq, sha256));
            if chain != head.chain {
                self.report.find(Kind::Chain, at, format!("HEAD says {}, entries give {chain}", head.chain));
            }
        }
        let last = entries.last().map(|last| (&last.entry.position.kind, last.entry.position.digest));
        let watermark = head.watermark.as_ref().map(|watermark| (&watermark.kind, watermark.digest));
        if head.seq.0 == 0 && watermark.is_some() || last.is_some() && last != watermark {
            self.report.find(Kind::Head, at, "the watermark is not the last entry's position");
        }
        if let Some(last) = entries.last().filter(|last| last.entry.epoch > head.epoch) {
            let detail = format!("epoch {}, its last entry has {}", head.epoch.0, last.entry.epoch.0);
            self.report.find(Kind::Head, at, detail);
        }
    }

    /// Every position against its digest and the one before it.
    fn positions(&mut self, gone: Option<&Kept>, entries: &[Stored]) {
        let mut digests = HashSet::new();
        let mut before: Option<(&Stored, Option<Point>)> = None;
        for stored in entries {
            let (at, entry) = (stored.key.as_str(), &stored.entry);
            let point = match entry.position.verified() {
                Ok(point) => Some(point),
                Err(why) => {
                    self.report.find(Kind::Digest, at, why);
                    None
                }
            };
            if !digests.insert(entry.position.digest) {
                self.report.find(Kind::Duplicate, at, "an entry before it has the same position");
            }
            if let Some((prior, was)) = &before {
                if entry.prev_digest != Some(prior.entry.position.digest) {
                    self.report.find(
                        Kind::Chain,
                        at,
                        "prev_digest is not the position of the entry before it",
                    );
                }
                if entry.epoch < prior.entry.epoch {
                    let detail = format!("epoch {} after {}", entry.epoch.0, prior.entry.epoch.0);
                    self.report.find(Kind::Regression, at, detail);
                }
                if let (Some(was), Some(is)) = (was, &point)
                    && entry.kind != "rebase"
                    && !advances(&prior.entry, was, entry, is)
                {
                    let detail = format!("position {:?} is not after the one before it", entry.position.text);
                    self.report.find(Kind::Regression, at, detail);
                }
            } else if let Some(gone) = gone.filter(|gone| gone.seq.0 + 1 == entry.seq.0) {
                if entry.prev_digest != Some(gone.digest) {
                    let detail = "prev_digest is not the position of the entry before it, which is gone";
                    self.report.find(Kind::Chain, at, detail);
                }
            } else if entry.seq.0 == 1 && entry.prev_digest.is_some() {
                self.report.find(Kind::Chain, at, "the first entry names a position before it");
            }
            before = Some((stored, point));
        }
    }

    /// The records of one entry's objects: their keys, their order, the digest over them.
    fn objects(&mut self, stored: &Stored) {
        let (at, entry) = (stored.key.as_str(), &stored.entry);
        if entry.objects.windows(2).any(|pair| pair[0].key.as_bytes() >= pair[1].key.as_bytes()) {
            self.report.find(Kind::Key, at, "objects are not sorted by key, or one is there twice");
        }
        let mut tables = HashSet::new();
        for object in &entry.objects {
            if !tables.insert((&object.namespace, &object.table)) {
                let table = format!("{}.{}", object.namespace, object.table);
                self.report.find(Kind::Key, at, format!("two objects of table {table}: their order is open"));
            }
            if let Err(why) = self.key(entry, object) {
                self.report.find(Kind::Key, &object.key, why);
            }
        }
        let found = manifest::batch_digest(&entry.objects);
        if entry.kind == "batch" && entry.batch.as_ref().map(|batch| batch.batch_digest) != Some(found) {
            self.report.find(Kind::Digest, at, format!("batch_digest is not {found}"));
        }
    }

    /// The key that position, table and content give; legacy objects keep the key they have.
    fn key(&self, entry: &Entry, object: &ObjectRecord) -> Result<(), String> {
        let key = &object.key;
        if key.len() > names::MAX_KEY_BYTES {
            return Err(format!("{} bytes, {} at most", key.len(), names::MAX_KEY_BYTES));
        }
        match object.layout.as_str() {
            "wm2" => {
                if let Some(long) = key.split('/').find(|segment| segment.len() > names::MAX_SEGMENT_BYTES) {
                    return Err(format!(
                        "a segment has {} bytes, {} at most",
                        long.len(),
                        names::MAX_SEGMENT_BYTES
                    ));
                }
                let extension = names::extension(&object.format, &object.compression)
                    .ok_or(format!("no ending for {} {}", object.format, object.compression))?;
                let table = names::table(&object.namespace, &object.table);
                let digest = entry.position.digest;
                let wanted = format!("{}{table}/wm2-{digest}/{}.{extension}", self.root, object.sha256);
                if *key == wanted { Ok(()) } else { Err(format!("position and content give {wanted}")) }
            }
            "wm" => {
                let text = key
                    .split('/')
                    .find_map(|segment| segment.strip_prefix("wm-"))
                    .ok_or("a legacy object without a segment wm-")?;
                let text = hex::decode(text).ok().and_then(|text| String::from_utf8(text).ok());
                match text.and_then(|text| Point::parse(&entry.position.kind, &text).ok()) {
                    Some(point)
                        if digest_in(&point, &entry.position.lineage, entry) != entry.position.digest =>
                    {
                        Err("the position in a legacy key is not the entry's".to_owned())
                    }
                    _ => Ok(()),
                }
            }
            other => Err(format!("layout {other:?} is unknown")),
        }
    }

    /// Reads every row in order, with some objects fetched ahead.
    async fn rows(&mut self, view: &View) -> Result<(), ReadError> {
        let mut all: Vec<(String, &Live)> = Vec::new();
        for (table, objects) in &view.tables {
            let table = table_of(table).unwrap_or_default();
            all.extend(objects.iter().map(|live| (table.clone(), live)));
        }
        let mut coming = all.iter().map(|(_, object)| {
            let (bucket, key) = (self.bucket.clone(), object.key.clone());
            async move { bucket.get(&key).await }
        });
        let mut window: VecDeque<_> = coming.by_ref().take(AHEAD).map(tokio::spawn).collect();
        let mut seen = HashSet::new();
        for (table, object) in &all {
            let Some(task) = window.pop_front() else { break };
            window.extend(coming.next().map(tokio::spawn));
            let bytes = task.await.map_err(|why| ReadError::Unavailable {
                request: format!("GetObject {:?}", object.key),
                reason: why.to_string(),
            })??;
            match bytes {
                None => self.report.find(Kind::Missing, &object.key, "a committed object is not there"),
                Some(bytes) => {
                    let (report, expected) = (&mut self.report, &mut self.expected);
                    object::judge(report, expected, table, object, &bytes, &mut seen);
                }
            }
        }
        Ok(())
    }

    /// Whether nothing happened while the bucket was read.
    fn settled(
        &mut self,
        same_head: bool,
        before: &BTreeMap<String, Listed>,
        after: &BTreeMap<String, Listed>,
    ) {
        if !same_head {
            self.report.inconclusive.push("HEAD moved while it was judged: stop the writers".to_owned());
            return;
        }
        for key in self.reachable.iter().filter(|key| !key.ends_with("_manifest/HEAD")) {
            match (before.get(key), after.get(key)) {
                (Some(was), Some(is)) if was != is => {
                    self.report.find(Kind::MutatedObject, key, "it changed while the bucket was judged");
                }
                (Some(_), None) => {
                    self.report.find(Kind::MutatedObject, key, "it vanished while the bucket was judged");
                }
                _ => {}
            }
        }
        if before.keys().ne(after.keys()) && self.report.counts.is_empty() {
            let why = format!("{} keys before, {} after: stop the writers", before.len(), after.len());
            self.report.inconclusive.push(why);
        }
    }

    /// What HEAD does not reach, and what the listing leaves out.
    fn unreachable(&mut self, listed: &BTreeMap<String, Listed>) {
        for key in listed.keys() {
            if let Some(kind) = names::kept_for_ever(&key[self.root.len()..]) {
                *self.report.statistics.kept_for_ever.entry(kind).or_default() += 1;
            }
        }
        for (key, object) in listed.iter().filter(|(key, _)| !self.reachable.contains(*key)) {
            let relative = &key[self.root.len()..];
            if self.spared.contains(key) {
                self.report.statistics.collectable += 1;
            } else if names::kept_for_ever(relative).is_some() {
                // What a crash left of them is kept too.
            } else if names::may_be_left_behind(relative) {
                self.report.statistics.orphans += 1;
                self.report.statistics.orphan_bytes += object.size;
            } else {
                self.report.find(Kind::Foreign, key, "no writer of the protocol names an object so");
            }
        }
        let missing: BTreeSet<&String> = self
            .report
            .findings
            .iter()
            .filter(|finding| matches!(finding.kind, Kind::Missing | Kind::HeadMissing))
            .map(|finding| &finding.at)
            .collect();
        let unlisted = self.reachable.iter().find(|key| !listed.contains_key(*key) && !missing.contains(key));
        if let Some(key) = unlisted.filter(|_| !listed.is_empty() && self.report.counts.is_empty()) {
            self.report.inconclusive.push(format!("the listing leaves out {key}, which is there"));
        }
    }
}

fn digest_in(point: &Point, lineage: &Lineage, entry: &Entry) -> Sha {
    point.digest(lineage, entry.position.sub.0)
}

/// Whether a position may follow another without an entry that makes the gap visible.
fn advances(prior: &Entry, was: &Point, entry: &Entry, is: &Point) -> bool {
    let (old, new) = (&prior.position, &entry.position);
    if let Point::Snapshot { done: true, .. } = was
        && old.kind != new.kind
    {
        return old.lineage.source_id == new.lineage.source_id;
    }
    old.lineage == new.lineage
        && match was.order(is) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => new.sub > old.sub,
            _ => false,
        }
}
