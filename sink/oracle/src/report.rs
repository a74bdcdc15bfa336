//! What a judge found: findings by kind, statistics, and one verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

/// Examples that a report keeps of each kind of finding; all are counted.
const EXAMPLES: u64 = 20;

/// What can be wrong with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There are objects of the pipeline, and no HEAD.
    HeadMissing,
    /// HEAD contradicts itself or what it reaches.
    Head,
    /// A manifest object's frame, checksum, version or body is broken.
    Frame,
    /// A manifest object of another stream, pipeline or prefix.
    Identity,
    /// The hash chain, or a link between entries, does not hold.
    Chain,
    /// Something in a sequence is not there: an entry's number, or an expected row.
    Gap,
    /// An object that HEAD reaches is not there.
    Missing,
    /// A position, its digest, or the digest of its batch does not follow from what the entry says.
    Digest,
    /// A key is not the one that its position, table and content give.
    Key,
    /// An object of zero bytes or without rows.
    EmptyObject,
    /// Bytes that are no rows.
    CorruptObject,
    /// Rows, but other bytes than were committed; or an object that changed while it was read.
    MutatedObject,
    /// Count or hash of an object's rows is not what its entry says.
    Rows,
    /// A position committed twice, or an expected row that is there more than once.
    Duplicate,
    /// An object that no writer of the protocol names so, or a row that nobody expects.
    Foreign,
    /// Rows of one table in another order than expected.
    Order,
    /// A position that is not after the one before it, or a number of HEAD's that went back.
    Regression,
    /// A key was deleted that HEAD reached at that moment, or that is kept for ever.
    Deleted,
}

impl Kind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeadMissing => "head_missing",
            Self::Head => "head",
            Self::Frame => "frame",
            Self::Identity => "identity",
            Self::Chain => "chain",
            Self::Gap => "gap",
            Self::Missing => "missing",
            Self::Digest => "digest",
            Self::Key => "key",
            Self::EmptyObject => "empty_object",
            Self::CorruptObject => "corrupt_object",
            Self::MutatedObject => "mutated_object",
            Self::Rows => "rows",
            Self::Duplicate => "duplicate",
            Self::Foreign => "foreign",
            Self::Order => "order",
            Self::Regression => "regression",
            Self::Deleted => "deleted",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// The key, or the place in the list of expected rows.
    pub at: String,
    /// What was found and what belongs there; never a row's content.
    pub detail: String,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything was judged, and nothing is wrong.
    Clean,
    /// Something is wrong.
    Findings,
    /// Nothing wrong was found, but something could not be judged.
    Inconclusive,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// HEAD's revision.
    pub rev: u64,
    /// HEAD's epoch.
    pub epoch: u64,
    /// The last committed entry.
    pub seq: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Entries below HEAD's floor, of which inventories keep what matters.
    pub entries_gone: u64,
    /// Data objects that were read: the live ones.
    pub objects: u64,
    /// Of these, outputs of compactions.
    pub compacted: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows that were read, by table.
    pub rows: BTreeMap<String, u64>,
    /// Rows whose bytes stand in the same table before: only a list of expected rows tells whether they may.
    pub repeated_rows: u64,
    /// Row versions that were expected.
    pub expected: u64,
    /// Keys in the listing.
    pub listed: u64,
    /// Objects that nobody needs any more and that are still there: entries below the floor, originals that a
    /// compaction stands for.
    pub collectable: u64,
    /// Rollups, inventories, marks and compaction records, reached or not: all are kept for ever.
    pub kept_for_ever: BTreeMap<&'static str, u64>,
    /// Objects that a crash left behind and HEAD does not reach.
    pub orphans: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
    /// Of a history: deletes that were judged, by what they took.
    pub deletes: BTreeMap<&'static str, u64>,
    /// Multipart uploads that were begun and neither completed nor aborted: evidence, no finding.
    pub pending_uploads: u64,
}

/// Everything that a judge says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was judged.
    pub subject: String,
    /// Why the judgement is not complete; empty if it is.
    pub inconclusive: Vec<String>,
    /// How many findings there are of each kind.
    pub counts: BTreeMap<Kind, u64>,
    /// The first of each kind.
    pub findings: Vec<Finding>,
    /// What was counted.
    pub statistics: Statistics,
}

impl Report {
    /// Counts a finding, and keeps the first of its kind.
    pub fn find(&mut self, kind: Kind, at: impl Into<String>, detail: impl Into<String>) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= EXAMPLES {
            self.findings.push(Finding { kind, at: at.into(), detail: detail.into() });
        }
    }

    /// The answer: a finding stands, whatever else could not be judged.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.counts.is_empty() {
            Verdict::Findings
        } else if self.inconclusive.is_empty() {
            Verdict::Clean
        } else {
            Verdict::Inconclusive
        }
    }

    /// The report for people: one line of answer, then what it rests on.
    #[must_use]
    pub fn text(&self) -> String {
        let s = &self.statistics;
        let rows: u64 = s.rows.values().sum();
        let mut out = match self.verdict() {
            Verdict::Clean => format!("{}: clean\n", self.subject),
            Verdict::Findings => {
                format!("{}: {} findings\n", self.subject, self.counts.values().sum::<u64>())
            }
            Verdict::Inconclusive => format!("{}: inconclusive\n", self.subject),
        };
        if s.rev > 0 {
            let _ = writeln!(out, "  HEAD        rev {}, epoch {}, seq {}", s.rev, s.epoch, s.seq);
            let _ = writeln!(
                out,
                "  reached     {} entries, {} objects of {} bytes, {rows} rows ({} repeated)",
                s.entries, s.objects, s.bytes, s.repeated_rows
            );
        } else {
            let _ = writeln!(out, "  visible     {} objects of {} bytes, {rows} rows", s.objects, s.bytes);
        }
        if s.entries_gone + s.compacted + s.collectable > 0 {
            let _ = writeln!(
                out,
                "  lifetime    {} entries kept by inventories, {} compacted objects, {} to be collected",
                s.entries_gone, s.compacted, s.collectable
            );
        }
        if !s.kept_for_ever.is_empty() {
            let kept: Vec<_> =
                s.kept_for_ever.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let _ = writeln!(out, "  for ever    {}", kept.join(", "));
        }
        for (what, count) in &s.deletes {
            let _ = writeln!(out, "  deleted     {count} {what}");
        }
        for (table, rows) in &s.rows {
            let _ = writeln!(out, "  table       {table}: {rows} rows");
        }
        if s.expected > 0 {
            let _ = writeln!(out, "  expected    {} row versions", s.expected);
        }
        let _ = writeln!(
            out,
            "  left behind {} objects of {} bytes, {} pending uploads",
            s.orphans, s.orphan_bytes, s.pending_uploads
        );
        for (kind, count) in &self.counts {
            let _ = writeln!(out, "  {}: {count}", kind.name());
            for finding in self.findings.iter().filter(|finding| finding.kind == *kind) {
                let _ = writeln!(out, "    {}: {}", finding.at, finding.detail);
            }
        }
        for reason in &self.inconclusive {
            let _ = writeln!(out, "  not judged: {reason}");
        }
        out
    }

    /// The report for programs.
    #[must_use]
    pub fn json(&self) -> String {
        let mut value = serde_json::json!({ "verdict": self.verdict() });
        if let (Some(all), Ok(serde_json::Value::Object(rest))) =
            (value.as_object_mut(), serde_json::to_value(self))
        {
            all.extend(rest);
        }
        value.to_string()
    }
}
