//! Judges what a consumer of a bucket sees while a campaign runs, and once more when it is over: every visible
//! object holds lines of events, and each event that was produced is visible exactly once.
//!
//! A [`Ledger`] reads each object once, at first sight, and keeps its entity tag: an object that changes or goes
//! away later is a finding. A listing is no snapshot, so a gap is only what was missing below the highest event
//! of the sample before.

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
    /// Every data object that the HEADs of these pipelines reach.
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
            all.extend(listing.into_iter().filter(|(key, _)| reach.objects.contains(key)));
        }
        Ok(all)
    }
}

/// What was judged so far.
#[derive(Debug)]
pub struct Ledger {
    workload: Workload,
    scope: Scope,
    objects: BTreeMap<String, Listed>,
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
        Self { workload, scope, objects: BTreeMap::new(), seen, report, samples: 0 }
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
        let listing = self.scope.listing(bucket).await?;
        for (key, known) in &self.objects {
            match listing.get(key) {
                Some(now) if now == known => {}
                Some(now) => {
                    let detail =
                        format!("{} of {} bytes, now {} of {}", known.etag, known.size, now.etag, now.size);
                    self.report.find(Kind::MutatedObject, key, detail);
                }
                None => self.report.find(Kind::MutatedObject, key, "it was there and is no longer"),
            }
        }
        self.objects.retain(|key, known| listing.get(key) == Some(known));
        let new: Vec<(String, Listed)> = listing
            .iter()
            .filter(|(key, _)| !self.objects.contains_key(*key))
            .map(|(k, l)| (k.clone(), l.clone()))
            .collect();
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
                self.object(key, listed, read?);
            }
        }
        self.gaps();
        self.samples += 1;
        self.count();
        Ok(())
    }

    fn object(&mut self, key: &str, listed: &Listed, bytes: Option<Bytes>) {
        let Some(bytes) = bytes else {
            self.report.find(Kind::MutatedObject, key, "it was listed and is not there");
            return;
        };
        self.objects.insert(key.to_owned(), listed.clone());
        self.report.statistics.objects += 1;
        self.report.statistics.bytes += bytes.len() as u64;
        if bytes.is_empty() {
            self.report.find(Kind::EmptyObject, key, "0 bytes");
            return;
        }
        if bytes.len() as u64 != listed.size {
            let detail = format!("{} bytes listed, {} read", listed.size, bytes.len());
            self.report.find(Kind::MutatedObject, key, detail);
        }
        let Some(lines) = bytes.strip_suffix(b"\n") else {
            self.report.find(Kind::CorruptObject, key, "its last line does not end");
            return;
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
                }
                Err(why) => self.report.find(Kind::Foreign, at(), why),
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
    let before = ledger.objects.clone();
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
