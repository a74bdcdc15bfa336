//! Judges what a consumer of a bucket sees while a campaign runs, and once more when it is over: every visible
//! object holds lines of events, and each event that was produced is visible exactly once.
//!
//! A [`Ledger`] reads each object once, at first sight, and keeps its entity tag: an object that changes or goes
//! away later is a finding. A listing is no snapshot, so a gap is only what was missing below the highest event
//! of the sample before. Where a compaction's output stands for objects, a consumer reads it in their place: it must
//! hold each of their events once, and they may go.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::bucket::{Bucket, Listed, ReadError};
use crate::events::{Place, Workload};
use crate::reach::Reach;
use crate::report::{Kind, Report};

/// Objects that are fetched at once.
const AHEAD: usize = 8;

/// Which events of one partition were seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    words: Vec<u64>,
    /// One more than the highest.
    end: u64,
    /// The highest `end` of the sample before.
    settled: u64,
    /// Everything below was looked at for gaps.
    checked: u64,
    /// Distinct events.
    count: u64,
}

impl Seen {
    /// Whether it was new.
    fn insert(&mut self, seq: u64) -> bool {
        let (word, bit) = ((seq / 64) as usize, 1_u64 << (seq % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.end = self.end.max(seq + 1);
        self.count += u64::from(new);
        new
    }

    /// Takes it out again, until it is seen elsewhere.
    fn remove(&mut self, seq: u64) {
        if self.contains(seq) {
            self.words[(seq / 64) as usize] &= !(1 << (seq % 64));
            self.count -= 1;
        }
    }

    fn contains(&self, seq: u64) -> bool {
        self.words.get((seq / 64) as usize).is_some_and(|word| word & (1 << (seq % 64)) != 0)
    }

    /// The missing ranges below `end` that were not told yet.
    fn gaps(&mut self, end: u64) -> Vec<(u64, u64)> {
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        let mut seq = self.checked;
        while seq < end {
            let full = seq.is_multiple_of(64)
                && seq + 64 <= end
                && self.words.get((seq / 64) as usize).is_some_and(|word| *word == u64::MAX);
            if full {
                seq += 64;
                continue;
            }
            if !self.contains(seq) {
                match gaps.last_mut() {
                    Some(last) if last.1 == seq => last.1 = seq + 1,
                    _ => gaps.push((seq, seq + 1)),
                }
            }
            seq += 1;
        }
        self.checked = self.checked.max(end);
        gaps
    }
}

/// What a consumer sees.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Every object below a prefix.
    Prefix(String),
    /// Every live data object that the HEADs of these pipelines reach.
    Pipelines(Vec<Reach>),
}

impl Scope {
    /// All of it, as listings have it.
    async fn listing(&mut self, bucket: &Bucket) -> Result<BTreeMap<String, Listed>, ReadError> {
        let reaches = match self {
            Self::Prefix(prefix) => return bucket.list(prefix).await,
            Self::Pipelines(reaches) => reaches,
        };
        let mut all = BTreeMap::new();
        for reach in reaches {
            reach.advance(bucket).await?;
            // After HEAD was read: an object is written before anything reaches it.
            let listing = bucket.list(reach.root()).await?;
            let live = reach.live();
            all.extend(listing.into_iter().filter(|(key, _)| live.contains(key.as_str())));
        }
        Ok(all)
    }

    /// Whether something else stands for this object now.
    fn replaced(&self, key: &str) -> bool {
        match self {
            Self::Prefix(_) => false,
            Self::Pipelines(reaches) => reaches.iter().any(|reach| reach.replaced(key)),
        }
    }
}

/// Events of one partition that follow each other: the first, and one more than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    partition: u32,
    from: u64,
    to: u64,
}

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    listed: Listed,
    events: Vec<Run>,
}

/// What was judged so far.
#[derive(Debug)]
pub struct Ledger {
    workload: Workload,
    scope: Scope,
    objects: BTreeMap<String, Known>,
    /// Events of objects that outputs stand for, until they were seen there.
    moved: Vec<(String, Run)>,
    seen: Vec<Seen>,
    report: Report,
    samples: u64,
}

impl Ledger {
    /// Of a bucket of which nothing was read yet.
    #[must_use]
    pub fn new(workload: Workload, scope: Scope) -> Self {
        let seen = vec![Seen::default(); workload.partitions as usize];
        let subject = match &scope {
            Scope::Prefix(prefix) => format!("visible {prefix}"),
            Scope::Pipelines(reaches) => {
                format!("reachable {}", reaches.iter().map(Reach::root).collect::<Vec<_>>().join(" "))
            }
        };
        let report = Report { subject, ..Report::default() };
        Self { workload, scope, objects: BTreeMap::new(), moved: Vec::new(), seen, report, samples: 0 }
    }

    /// Findings and statistics so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Samples that were taken as a whole.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Distinct events that were seen.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.seen.iter().map(|seen| seen.count).sum()
    }

    /// Lists everything and reads what is new.
    ///
    /// # Errors
    /// [`ReadError`]: the bucket could not be read; what was judged stands, and the next sample goes on.
    pub async fn sample(&mut self, bucket: &Bucket) -> Result<(), ReadError> {
        let mut listing = self.scope.listing(bucket).await?;
        if self.objects.keys().any(|key| !listing.contains_key(key) && !self.scope.replaced(key)) {
            // A HEAD of after the listing knows of every compaction for which something went.
            listing = self.scope.listing(bucket).await?;
        }
        let known = std::mem::take(&mut self.objects);
        for (key, known) in known {
            match listing.get(&key) {
                Some(now) if *now == known.listed => drop(self.objects.insert(key, known)),
                Some(now) => {
                    let Listed { etag, size } = known.listed;
                    let detail = format!("{etag} of {size} bytes, now {} of {}", now.etag, now.size);
                    self.report.find(Kind::MutatedObject, key, detail);
                }
                None if self.scope.replaced(&key) => self.move_on(&key, known.events),
                None => self.report.find(Kind::MutatedObject, key, "it was there and is no longer"),
            }
        }
        let new: Vec<(String, Listed)> = listing
            .iter()
            .filter(|(key, _)| !self.objects.contains_key(*key))
            .map(|(k, l)| (k.clone(), l.clone()))
            .collect();
        let mut gone = Vec::new();
        for chunk in new.chunks(AHEAD) {
            let reads: Vec<_> = chunk
                .iter()
                .map(|(key, _)| {
                    let (bucket, key) = (bucket.clone(), key.clone());
                    tokio::spawn(async move { bucket.get(&key).await })
                })
                .collect();
            for ((key, listed), read) in chunk.iter().zip(reads) {
                let read = read.await.map_err(|why| ReadError::Unavailable {
                    request: format!("GetObject {key:?}"),
                    reason: why.to_string(),
                })?;
                match read? {
                    Some(bytes) => self.object(key, listed, &bytes),
                    None => gone.push(key),
                }
            }
        }
        if !gone.is_empty() {
            self.scope.listing(bucket).await?;
        }
        for key in gone.into_iter().filter(|key| !self.scope.replaced(key)) {
            self.report.find(Kind::MutatedObject, key, "it was listed and is not there");
        }
        self.moved();
        self.gaps();
        self.samples += 1;
        self.count();
        Ok(())
    }

    fn object(&mut self, key: &str, listed: &Listed, bytes: &Bytes) {
        let events = self.events(key, listed, bytes);
        self.objects.insert(key.to_owned(), Known { listed: listed.clone(), events });
    }

    fn events(&mut self, key: &str, listed: &Listed, bytes: &Bytes) -> Vec<Run> {
        let mut events: Vec<Run> = Vec::new();
        self.report.statistics.objects += 1;
        self.report.statistics.bytes += bytes.len() as u64;
        if bytes.is_empty() {
            self.report.find(Kind::EmptyObject, key, "0 bytes");
            return events;
        }
        if bytes.len() as u64 != listed.size {
            let detail = format!("{} bytes listed, {} read", listed.size, bytes.len());
            self.report.find(Kind::MutatedObject, key, detail);
        }
        let Some(lines) = bytes.strip_suffix(b"\n") else {
            self.report.find(Kind::CorruptObject, key, "its last line does not end");
            return events;
        };
        for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            let at = || format!("{key}:{}", number + 1);
            match self.workload.place(line) {
                Ok(Place { partition, seq }) => {
                    let rows = self.report.statistics.rows.entry(format!("p{partition}")).or_default();
                    *rows += 1;
                    if !self.seen[partition as usize].insert(seq) {
                        self.report.find(Kind::Duplicate, at(), format!("event p{partition}-{seq} again"));
                    }
                    match events.last_mut() {
                        Some(run) if (run.partition, run.to) == (partition, seq) => run.to += 1,
                        _ => events.push(Run { partition, from: seq, to: seq + 1 }),
                    }
                }
                Err(why) => self.report.find(Kind::Foreign, at(), why),
            }
        }
        events
    }

    /// Lets go of an object that an output stands for: its events must be seen there.
    fn move_on(&mut self, key: &str, events: Vec<Run>) {
        for run in events {
            let Run { partition, from, to } = run;
            (from..to).for_each(|seq| self.seen[partition as usize].remove(seq));
            let rows = self.report.statistics.rows.entry(format!("p{partition}")).or_default();
            *rows = rows.saturating_sub(to - from);
            self.moved.push((key.to_owned(), run));
        }
    }

    /// Events of what is gone that no output has.
    fn moved(&mut self) {
        for (key, Run { partition, from, to }) in std::mem::take(&mut self.moved) {
            let seen = &self.seen[partition as usize];
            let lost = (from..to).filter(|seq| !seen.contains(*seq)).count();
            if lost > 0 {
                let detail = format!("{lost} of its events p{partition}-{from} to {to} are in no output");
                self.report.find(Kind::Gap, key, detail);
            }
        }
    }

    /// What is missing below the highest event of the sample before.
    fn gaps(&mut self) {
        for (partition, seen) in self.seen.iter_mut().enumerate() {
            let settled = seen.settled;
            for (from, to) in seen.gaps(settled) {
                self.report.find(
                    Kind::Gap,
                    format!("p{partition}-{from}"),
                    format!("{} events missing", to - from),
                );
            }
            seen.settled = seen.end;
        }
    }

    fn count(&mut self) {
        self.report.statistics.listed = self.objects.len() as u64;
        self.report.statistics.expected = self.distinct();
    }

    /// The end: every produced event must be there, and none that was not produced. `produced` has one more than
    /// the last sequence number of each partition.
    fn finish(&mut self, produced: &[u64]) {
        for (partition, (seen, produced)) in self.seen.iter_mut().zip(produced).enumerate() {
            for (from, to) in seen.gaps(*produced) {
                self.report.find(
                    Kind::Gap,
                    format!("p{partition}-{from}"),
                    format!("{} events missing", to - from),
                );
            }
            if seen.end > *produced {
                let detail = format!("{produced} were produced, {} is there", seen.end - 1);
                self.report.find(Kind::Foreign, format!("p{partition}-{}", seen.end - 1), detail);
            }
        }
        self.report.statistics.expected = produced.iter().sum();
    }
}

/// Reads a settled bucket from scratch: what `produced` says, and nothing else, must be visible once.
///
/// # Errors
/// [`ReadError`].
pub async fn judge(
    bucket: &Bucket,
    scope: Scope,
    workload: Workload,
    produced: &[u64],
) -> Result<Report, ReadError> {
    let mut ledger = Ledger::new(workload, scope);
    ledger.sample(bucket).await?;
    ledger.sample(bucket).await?;
    let before: BTreeMap<_, _> =
        ledger.objects.iter().map(|(key, known)| (key.clone(), known.listed.clone())).collect();
    if ledger.scope.listing(bucket).await? != before {
        ledger.report.inconclusive.push("the bucket still changes".to_owned());
    }
    if produced.len() != workload.partitions as usize {
        let reason = format!("{} partitions produced, {} are judged", produced.len(), workload.partitions);
        ledger.report.inconclusive.push(reason);
    }
    ledger.finish(produced);
    ledger.report.statistics.pending_uploads = match &ledger.scope {
        Scope::Prefix(prefix) => bucket.uploads(prefix).await?,
        Scope::Pipelines(_) => 0,
    };
    Ok(ledger.report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload { seed: 11, partitions: 1, keys: 100 };

    fn lines(events: impl IntoIterator<Item = u64>) -> Bytes {
        let line = |seq| WORKLOAD.line(Place { partition: 0, seq }) + "\n";
        events.into_iter().map(line).collect::<String>().into()
    }

    /// What is found once an object of these events stands for two of 0 to 9 and of 10 to 19.
    fn found(output: impl IntoIterator<Item = u64>) -> Vec<(&'static str, u64)> {
        let mut ledger = Ledger::new(WORKLOAD, Scope::Pipelines(Vec::new()));
        let read = |ledger: &mut Ledger, key: &str, bytes: Bytes| {
            let listed = Listed { etag: key.to_owned(), size: bytes.len() as u64 };
            ledger.object(key, &listed, &bytes);
        };
        read(&mut ledger, "a", lines(0..10));
        read(&mut ledger, "b", lines(10..20));
        for key in ["a", "b"] {
            let events = ledger.objects.remove(key).unwrap().events;
            assert_eq!(events.len(), 1);
            ledger.move_on(key, events);
        }
        assert_eq!(ledger.distinct(), 0);
        read(&mut ledger, "ab", lines(output));
        ledger.moved();
        ledger.gaps();
        ledger.report.counts.iter().map(|(kind, count)| (kind.name(), *count)).collect()
    }

    #[test]
    fn an_output_has_every_event_of_what_it_stands_for_once() {
        assert_eq!(found(0..20), []);
        assert_eq!(found((0..20).filter(|seq| *seq != 13)), [("gap", 1)]);
        assert_eq!(found((0..20).filter(|seq| seq % 9 != 4)), [("gap", 2)]);
        assert_eq!(found((0..20).chain([7])), [("duplicate", 1)]);
        assert_eq!(found([]), [("gap", 2), ("empty_object", 1)]);
    }
}
