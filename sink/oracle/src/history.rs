//! Every change of a pipeline's keys in the order of commits, as a bucket with versions keeps them. What HEAD reaches
//! is followed from revision to revision, so that each delete is judged by the HEAD of its moment: a key that was
//! taken too early and stored again leaves no trace in the bucket at rest, and is found here.
//!
//! The order is that of the store's commits and no clock's: `assay-server` begins the id of a version with the number
//! of its commit. Where an id tells none, or a number is left out, nothing is proven.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::bucket::{Bucket, ReadError, Version};
use crate::durable::Subject;
use crate::frame;
use crate::json::{self, Sha};
use crate::lifetime::{Compaction, Live, Mark, RecordRef, View};
use crate::manifest::{Entry, EntryRef, Head};
use crate::names;
use crate::report::{Kind, Report};

/// Bodies that are fetched ahead of the change that is judged.
const AHEAD: usize = 16;

/// What is counted of deletes that took nothing of the stream's.
const OF_A_PROBE: &str = "objects of probes";
/// See [`OF_A_PROBE`].
const OF_NOTHING: &str = "keys that were gone";

/// Judges each delete from the first change on. A history that is not whole, or in which nothing of the stream's was
/// deleted, is inconclusive.
///
/// # Errors
/// [`ReadError`]: the bucket could not be read.
pub async fn judge(bucket: &Bucket, subject: &Subject) -> Result<Report, ReadError> {
    let root = names::root(&subject.prefix, &subject.pipeline);
    let mut walk = Walk {
        report: Report { subject: format!("history {root}"), ..Report::default() },
        root,
        ..Walk::default()
    };
    let mut changes = match in_order(bucket.versions().await?) {
        Ok(changes) => changes,
        Err(why) => {
            walk.report.inconclusive.push(why);
            return Ok(walk.report);
        }
    };
    changes.retain(|change| change.key.starts_with(&walk.root));
    walk.report.statistics.listed = changes.len() as u64;
    let wanted: Vec<bool> = changes.iter().map(|change| walk.is_read(change)).collect();
    let mut coming = changes.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(change, _)| {
        let (bucket, key, id) = (bucket.clone(), change.key.clone(), change.id.clone());
        async move { bucket.version(&key, &id).await }
    });
    let mut window: VecDeque<_> = coming.by_ref().take(AHEAD).map(tokio::spawn).collect();
    for (change, wanted) in changes.iter().zip(&wanted) {
        let mut body = None;
        if let Some(task) = wanted.then(|| window.pop_front()).flatten() {
            window.extend(coming.next().map(tokio::spawn));
            body = task.await.map_err(|why| ReadError::Unavailable {
                request: format!("GetObject {:?}", change.key),
                reason: why.to_string(),
            })??;
        }
        match (&change.etag, body) {
            (None, _) => walk.deleted(&change.key),
            (Some(_), None) if *wanted => {
                walk.report.inconclusive.push(format!("a version of {} can't be read", change.key));
            }
            (Some(etag), body) => walk.stored(&change.key, etag, body),
        }
    }
    Ok(walk.finish())
}

/// The changes in the order of their commits, of which none may be left out: each takes the next number.
fn in_order(versions: Vec<Version>) -> Result<Vec<Version>, String> {
    let mut ordered = BTreeMap::new();
    for version in versions {
        let place = place(&version.id).ok_or(format!(
            "version {:?} of {} does not tell its place in the order of commits",
            version.id, version.key
        ))?;
        if let Some(other) = ordered.insert(place, version) {
            return Err(format!("change {place}, of {}, is listed twice", other.key));
        }
    }
    let places = ordered.first_key_value().zip(ordered.last_key_value());
    let length = places.map_or(0, |((first, _), (last, _))| last - first + 1);
    if length != ordered.len() as u64 {
        let missing = length - ordered.len() as u64;
        return Err(format!("{missing} changes between the first and the last are not in the history"));
    }
    Ok(ordered.into_values().collect())
}

/// The number of a version's commit, if its id is one of `assay-server`.
fn place(id: &str) -> Option<u64> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._";
    let ids = GeneralPurpose::new(&Alphabet::new(LETTERS).ok()?, NO_PAD);
    let bytes = ids.decode(id).ok().filter(|bytes| bytes.len() == 24)?;
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

/// A number of HEAD's that never goes back, and its name.
type Count = (&'static str, fn(&Head) -> u64);

/// The bucket after each change, and what the last HEAD reaches.
#[derive(Default)]
struct Walk {
    root: String,
    report: Report,
    /// The keys that are there.
    there: HashSet<String>,
    /// The content that each key ever had.
    contents: HashMap<String, String>,
    /// Entries and records, until HEAD reaches them.
    bodies: HashMap<String, Bytes>,
    head: Option<Head>,
    /// Entries that HEAD reaches, by key.
    entries: HashMap<String, u64>,
    /// Entries that marks name.
    marked: HashSet<String>,
    view: View,
    /// Data objects that hold rows.
    live: HashSet<String>,
    /// Data objects that the outputs of a record stand for.
    replaced: HashSet<String>,
}

impl Walk {
    fn is_read(&self, change: &Version) -> bool {
        let kinds = ["HEAD", "entries/", "compactions/", "marks/"];
        let name = change.key[self.root.len()..].strip_prefix("_manifest/");
        change.etag.is_some() && name.is_some_and(|name| kinds.iter().any(|kind| name.starts_with(kind)))
    }

    fn stored(&mut self, key: &str, etag: &str, body: Option<Bytes>) {
        let name = key[self.root.len()..].to_owned();
        self.there.insert(key.to_owned());
        if name == "_manifest/HEAD" {
            match frame::decode::<Head>(&body.unwrap_or_default(), frame::Kind::Head) {
                Ok(head) => self.moved(key, head),
                Err(why) => self.report.find(Kind::Frame, key, why),
            }
            return;
        }
        let first = self.contents.entry(key.to_owned()).or_insert_with(|| etag.to_owned());
        if first != etag && !name.starts_with("_manifest/probe/") {
            self.report.find(Kind::MutatedObject, key, "it was stored again with other content");
        }
        let Some(body) = body else { return };
        if name.starts_with("_manifest/marks/") {
            match frame::decode::<Mark>(&body, frame::Kind::Mark) {
                Ok(mark) => self.marked.extend(mark.entries.into_iter().map(|entry| entry.key)),
                Err(why) => self.report.find(Kind::Frame, key, why),
            }
        } else {
            self.bodies.insert(key.to_owned(), body);
        }
    }

    /// The next revision of HEAD: what is new in it must be there.
    fn moved(&mut self, at: &str, head: Head) {
        let before = self.head.take();
        let was = |of: fn(&Head) -> u64| before.as_ref().map_or(0, of);
        if was(|head| head.rev.0) + 1 != head.rev.0 {
            let detail = format!("revision {} follows {}", head.rev.0, was(|head| head.rev.0));
            self.report.find(Kind::Head, at, detail);
        }
        let counts: [Count; 5] = [
            ("epoch", |head| head.epoch.0),
            ("seq", |head| head.seq.0),
            ("floor", |head| head.entry_floor.0),
            ("rollup", |head| head.rollup.as_ref().map_or(0, |rollup| rollup.generation.0)),
            ("records", |head| head.compaction.as_ref().map_or(0, |of| of.count.0)),
        ];
        for (what, count) in counts {
            if count(&head) < was(count) {
                let detail = format!("revision {}: {what} {} after {}", head.rev.0, count(&head), was(count));
                self.report.find(Kind::Regression, at, detail);
            }
        }
        if let Some(rollup) = head.rollup.as_ref().filter(|rollup| !self.there.contains(&rollup.key)) {
            self.absent(&rollup.key, &head);
        }
        let last = before.as_ref().and_then(|head| head.last_entry.clone());
        self.entries(&head, last.as_ref());
        let last = before.and_then(|head| head.compaction).map(|of| of.last);
        self.records(&head, last.as_ref());
        self.head = Some(head);
    }

    /// The entries that HEAD reaches and the one before it did not, which ended with `last`.
    fn entries(&mut self, head: &Head, last: Option<&EntryRef>) {
        let mut new = Vec::new();
        let mut next = head.last_entry.clone();
        while let Some(link) = next.take() {
            if last.is_some_and(|last| last.seq >= link.seq) {
                if last.map(|last| &last.key) != Some(&link.key) {
                    self.report.find(
                        Kind::Chain,
                        &link.key,
                        "HEAD before reached another entry in its place",
                    );
                }
                break;
            }
            let Some(entry) = self.body::<Entry>(&link.key, link.sha256, frame::Kind::Entry, head) else {
                break;
            };
            next.clone_from(&entry.prev);
            self.entries.insert(link.key.clone(), link.seq.0);
            new.push(entry);
        }
        for (entry, object) in
            new.iter().rev().flat_map(|entry| entry.objects.iter().map(move |of| (entry, of)))
        {
            if !self.there.contains(&object.key) {
                self.absent(&object.key, head);
            }
            let table = names::table(&object.namespace, &object.table);
            let live = Live {
                from: entry.seq.0,
                to: entry.seq.0,
                key: object.key.clone(),
                sha256: object.sha256,
                size: object.size.0,
                rows: object.rows.0,
                row_seq_digest: Some(object.row_seq_digest),
            };
            self.view.push(&table, live);
            self.live.insert(object.key.clone());
        }
    }

    /// The compaction records that HEAD reaches and the one before it did not, which ended with `last`.
    fn records(&mut self, head: &Head, last: Option<&RecordRef>) {
        let mut new = Vec::new();
        let mut next = head.compaction.as_ref().map(|of| of.last.clone());
        while let Some(link) = next.take() {
            if last.is_some_and(|last| last.ordinal >= link.ordinal) {
                if last != Some(&link) {
                    self.report.find(
                        Kind::Chain,
                        &link.key,
                        "HEAD before reached another record in its place",
                    );
                }
                break;
            }
            let body = self.body::<Compaction>(&link.key, link.sha256, frame::Kind::Compaction, head);
            let Some(record) = body else { break };
            next.clone_from(&record.prev);
            new.push(record);
        }
        for record in new.iter().rev().filter(|record| record.equivalence.equal) {
            for output in record.outputs.iter().filter(|output| !self.there.contains(&output.key)) {
                self.report.find(Kind::Missing, &output.key, absent(head));
            }
            match self.view.replace(record) {
                Ok(()) => {
                    for input in &record.inputs {
                        self.live.remove(&input.key);
                        self.replaced.insert(input.key.clone());
                    }
                    self.live.extend(record.outputs.iter().map(|output| output.key.clone()));
                }
                Err(why) => self.report.find(Kind::Chain, &record.table, why),
            }
        }
    }

    /// The body of an entry or record that HEAD reaches from now on.
    fn body<T: DeserializeOwned>(
        &mut self,
        key: &str,
        sha256: Sha,
        kind: frame::Kind,
        head: &Head,
    ) -> Option<T> {
        if !self.there.contains(key) {
            self.absent(key, head);
        }
        let body = self.bodies.remove(key)?;
        if json::sha256(&body) != sha256 {
            self.report.find(Kind::MutatedObject, key, format!("its link says SHA-256 {sha256}"));
        }
        frame::decode(&body, kind).map_err(|why| self.report.find(Kind::Frame, key, why)).ok()
    }

    fn absent(&mut self, key: &str, head: &Head) {
        self.report.find(Kind::Missing, key, absent(head));
    }

    /// A delete, by what HEAD reaches at that moment.
    fn deleted(&mut self, key: &str) {
        let name = key[self.root.len()..].to_owned();
        let judged = if name.starts_with("_manifest/probe/") {
            Ok(OF_A_PROBE)
        } else if !self.there.remove(key) {
            Ok(OF_NOTHING)
        } else if name == "_manifest/HEAD" || names::kept_for_ever(&name).is_some() {
            Err("it must be kept for ever".to_owned())
        } else if let Some(seq) = self.entries.get(key) {
            self.may_expire(key, *seq).map(|()| "entries below the floor")
        } else if self.live.contains(key) {
            Err("HEAD reached it: it was live".to_owned())
        } else if self.replaced.contains(key) {
            let output = name.contains("/compacted/");
            Ok(if output { "outputs that were compacted again" } else { "originals that were compacted" })
        } else if names::may_be_left_behind(&name) {
            let entry = name.starts_with("_manifest/");
            Ok(if entry { "entries that HEAD did not reach" } else { "data objects that HEAD did not reach" })
        } else {
            Err("no writer of the protocol names an object so".to_owned())
        };
        match judged {
            Ok(what) => *self.report.statistics.deletes.entry(what).or_default() += 1,
            Err(why) => {
                let rev = self.head.as_ref().map_or(0, |head| head.rev.0);
                self.report.find(Kind::Deleted, key, format!("at revision {rev}: {why}"));
            }
        }
    }

    /// Whether an entry of HEAD's chain may go: below the floor, covered by both rollups, and named by a mark.
    fn may_expire(&self, key: &str, seq: u64) -> Result<(), String> {
        let floor = self.head.as_ref().map_or(0, |head| head.entry_floor.0);
        let horizon =
            self.head.as_ref().and_then(|head| Some(head.prev_rollup.as_ref()?.end_seq.0)).unwrap_or(0);
        if seq >= floor {
            return Err(format!("HEAD reached it: entry {seq} is not below floor {floor}"));
        }
        if seq > horizon {
            return Err(format!("entry {seq} is behind the previous rollup, which ends with {horizon}"));
        }
        if !self.marked.contains(key) {
            return Err(format!("no mark names entry {seq}"));
        }
        Ok(())
    }

    fn finish(mut self) -> Report {
        let statistics = &mut self.report.statistics;
        match &self.head {
            None => self.report.inconclusive.push("no version of HEAD is in the history".to_owned()),
            Some(head) => {
                (statistics.rev, statistics.epoch, statistics.seq) = (head.rev.0, head.epoch.0, head.seq.0);
            }
        }
        let mut deletes = self.report.statistics.deletes.keys();
        if self.report.counts.is_empty() && deletes.all(|what| [OF_A_PROBE, OF_NOTHING].contains(what)) {
            self.report
                .inconclusive
                .push("no delete of anything of the stream's is in the history".to_owned());
        }
        self.report
    }
}

fn absent(head: &Head) -> String {
    format!("HEAD reaches it from revision {} on, and it was not there", head.rev.0)
}
