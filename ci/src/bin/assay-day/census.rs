//! What is in the bucket, counted again and again, and what was written into it, by the server's journal.

use assay_checks::{Call, Client, xml};
use assay_server::Journal;
use http::Method;
use serde::Serialize;
use std::collections::BTreeMap;

/// What everything in the bucket begins with.
pub const ROOT: &str = "day/orders/";

/// Objects and bytes at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Milliseconds since the day began.
    pub at_ms: u64,
    /// Batches that were acknowledged by then.
    pub acknowledged: u64,
    /// Data objects that publishing wrote and that are still there.
    pub originals: u64,
    /// Data objects that compaction wrote and that are still there.
    pub compacted: u64,
    /// Bytes of both.
    pub data_bytes: u64,
    /// Entries that are still there.
    pub entries: u64,
    /// Rollups, inventories, marks and compaction records: kept for ever.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Data objects that publishing had written by then: what would be there if nothing were ever collected.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
}

/// What was written so far.
#[derive(Debug, Default)]
pub struct Harvest {
    last: u64,
    /// Distinct data objects that were created, with their bytes.
    created: BTreeMap<String, u64>,
    /// Requests that the journal had dropped before they were looked at.
    pub missed: u64,
}

impl Harvest {
    /// The sample with what had been written by then.
    pub fn written(&self, sample: Sample) -> Sample {
        let (written, written_bytes) = (self.created.len() as u64, self.created.values().sum());
        Sample { written, written_bytes, ..sample }
    }

    /// Takes what came since the last time.
    pub fn gather(&mut self, journal: &Journal) {
        let records = journal.filter(|record| record.number > self.last);
        for record in records {
            self.missed += record.number - self.last - 1;
            self.last = record.number;
            let done = record.status.is_some_and(|status| (200..300).contains(&status));
            if let Some(key) = record.key.filter(|key| done && key.contains("/wm2-"))
                && record.operation == Some("PutObject")
            {
                self.created.insert(key, record.body_size);
            }
        }
    }
}

/// Makes the bucket keep every version, before anything is in it: its history is judged at the end.
pub async fn keep_versions(client: &Client) -> Result<(), String> {
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let call = Call::new(Method::PUT, None).query("versioning", "").body(enabled);
    let answer = client.send(call).await.map_err(|lost| format!("no versions: {lost}"))?;
    if answer.status.is_success() { Ok(()) } else { Err(format!("no versions: {}", answer.status)) }
}

/// Lists the bucket.
pub async fn sample(client: &Client) -> Result<Sample, String> {
    let mut sample = Sample::default();
    let mut token: Option<String> = None;
    loop {
        let mut call = Call::new(Method::GET, None).query("list-type", "2").query("prefix", ROOT);
        if let Some(token) = &token {
            call = call.query("continuation-token", token);
        }
        let answer = client.send(call).await.map_err(|lost| format!("no listing: {lost}"))?;
        for entry in xml::elements(&String::from_utf8_lossy(&answer.body), "Contents") {
            let field = |name| xml::element(&entry, name).unwrap_or_default();
            let size = field("Size").parse().unwrap_or_default();
            sample.count(&field("Key"), size);
        }
        token = answer.element("NextContinuationToken");
        if token.is_none() {
            return Ok(sample);
        }
    }
}

impl Sample {
    fn count(&mut self, key: &str, size: u64) {
        let of = |part: &str| key.contains(part);
        if of("/wm2-") || of("/compacted/") {
            self.originals += u64::from(of("/wm2-"));
            self.compacted += u64::from(of("/compacted/"));
            self.data_bytes += size;
        } else if of("/_manifest/entries/") {
            self.entries += 1;
        } else if ["rollups", "inventory", "marks", "compactions"]
            .iter()
            .any(|kind| of(&format!("/_manifest/{kind}/")))
        {
            self.kept += 1;
            self.kept_bytes += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_by_what_they_are() {
        let mut sample = Sample::default();
        for key in [
            "shop.orders/wm2-0/1.jsonl",
            "shop.orders/compacted/1.jsonl",
            "_manifest/entries/1.entry",
            "_manifest/HEAD",
            "_manifest/marks/1.mark",
            "_manifest/inventory/1.inv",
        ] {
            sample.count(&format!("{ROOT}{key}"), 10);
        }
        let Sample { originals, compacted, data_bytes, entries, kept, kept_bytes, .. } = sample;
        assert_eq!((originals, compacted, data_bytes, entries, kept, kept_bytes), (1, 1, 20, 1, 2, 20));
    }
}
