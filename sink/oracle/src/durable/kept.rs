//! Rollups, inventories and compaction records: each against what refers to it, and the live objects that follow.

use serde::de::DeserializeOwned;

use super::{Judge, Stored};
use crate::bucket::ReadError;
use crate::frame;
use crate::json::{self, Sha};
use crate::lifetime::{Compaction, Inventory, Kept, Live, Rollup, RollupRef, View, table_of};
use crate::manifest::{self, Head};
use crate::names;
use crate::report::Kind;

impl Judge<'_> {
    /// The body of a manifest object that something refers to; a finding if it is not what it must be.
    async fn referred<T: DeserializeOwned>(
        &mut self,
        kind: frame::Kind,
        key: &str,
        sha256: Sha,
    ) -> Result<Option<T>, ReadError> {
        self.reachable.insert(key.to_owned());
        let Some(bytes) = self.bucket.get(key).await? else {
            self.report.find(Kind::Missing, key, format!("a {} is not there", kind.word()));
            return Ok(None);
        };
        let found = json::sha256(&bytes);
        if found != sha256 {
            self.report.find(Kind::MutatedObject, key, format!("SHA-256 {found}, referred to is {sha256}"));
            return Ok(None);
        }
        match frame::decode(&bytes, kind) {
            Ok(body) => Ok(Some(body)),
            Err(why) => {
                self.report.find(Kind::Frame, key, why);
                Ok(None)
            }
        }
    }

    /// All generations of rollups from HEAD's on, and what the inventories of the current one keep of entries.
    pub(super) async fn rollups(&mut self, head: &Head) -> Result<Vec<Kept>, ReadError> {
        let (mut kept, mut next) = (Vec::new(), head.rollup.clone());
        while let Some(link) = next.take() {
            let at = &link.key;
            let Some(rollup) = self.referred::<Rollup>(frame::Kind::Rollup, at, link.sha256).await? else {
                break;
            };
            let current = head.rollup.as_ref() == Some(&link);
            if rollup.stream_id != head.stream_id {
                self.report.find(Kind::Identity, at, format!("stream {}", rollup.stream_id));
            }
            if (rollup.generation, rollup.end_seq) != (link.generation, link.end_seq) {
                self.report.find(Kind::Chain, at, "generation or end is not what refers to it says");
            }
            if current && rollup.prev != head.prev_rollup {
                self.report.find(Kind::Chain, at, "the rollup before it is not HEAD's previous one");
            }
            if let Some(prev) = &rollup.prev
                && (prev.generation.0 + 1 != rollup.generation.0 || prev.end_seq >= rollup.end_seq)
            {
                self.report.find(Kind::Chain, at, format!("generation {} is before it", prev.generation.0));
                break;
            }
            self.reachable.extend(rollup.inventories.iter().map(|inventory| inventory.key.clone()));
            if current {
                kept = self.inventories(head, &link, &rollup).await?;
            }
            next = rollup.prev;
        }
        Ok(kept)
    }

    async fn inventories(
        &mut self,
        head: &Head,
        link: &RollupRef,
        rollup: &Rollup,
    ) -> Result<Vec<Kept>, ReadError> {
        let mut kept: Vec<Kept> = Vec::new();
        let mut chain = manifest::chain_start(head.stream_id);
        for of in &rollup.inventories {
            let at = &of.key;
            let body = self.referred::<Inventory>(frame::Kind::Inventory, at, of.sha256).await?;
            let Some(inventory) = body else { return Ok(Vec::new()) };
            if inventory.stream_id != head.stream_id {
                self.report.find(Kind::Identity, at, format!("stream {}", inventory.stream_id));
            }
            let before = kept.len() as u64;
            let numbers = inventory.entries.iter().map(|entry| entry.seq.0);
            if of.from.0 != before + 1 || !numbers.eq(of.from.0..=of.to.0) {
                self.report.find(Kind::Gap, at, format!("it does not cover entries {} on", before + 1));
                return Ok(Vec::new());
            }
            let entries = inventory.entries.iter();
            chain = entries
                .fold(chain, |chain, entry| manifest::chain_next(chain, entry.seq.0, entry.entry_sha256));
            if chain != inventory.end_chain {
                self.report.find(
                    Kind::Chain,
                    at,
                    format!("it says {}, its entries give {chain}", inventory.end_chain),
                );
            }
            kept.extend(inventory.entries);
        }
        if kept.len() as u64 != link.end_seq.0 || chain != rollup.end_chain {
            self.report.find(
                Kind::Chain,
                &link.key,
                format!("its inventories end at {} with {chain}", kept.len()),
            );
        }
        Ok(kept)
    }

    /// What is kept of entries against the entries that are still there; what is kept of those that are gone.
    pub(super) fn gone(&mut self, head: &Head, kept: Vec<Kept>, entries: &[Stored]) -> Vec<Kept> {
        let first = entries.first().map_or(head.seq.0 + 1, |first| first.entry.seq.0);
        let (gone, doubled): (Vec<_>, Vec<_>) = kept.into_iter().partition(|kept| kept.seq.0 < first);
        for (kept, stored) in doubled.iter().zip(entries) {
            let same = kept.seq == stored.entry.seq
                && kept.entry_sha256 == stored.sha256
                && kept.digest == stored.entry.position.digest
                && kept.objects.iter().map(|of| (&of.key, of.sha256, of.rows)).eq(stored
                    .entry
                    .objects
                    .iter()
                    .map(|of| (&of.key, of.sha256, of.rows)));
            if !same {
                self.report.find(Kind::Chain, &stored.key, "the inventory keeps something else of it");
            }
        }
        for kept in &gone {
            self.spared.insert(kept.entry_key.clone());
            for object in &kept.objects {
                let ending = object.key.rsplit('/').next().and_then(|name| name.split_once('.'));
                let ending = ending.map_or("", |(_, ending)| ending);
                let (root, table, digest) = (&self.root, &object.table, kept.digest);
                let wanted = format!("{root}{table}/wm2-{digest}/{}.{ending}", object.sha256);
                if object.key != wanted && !object.key.contains("/wm-") {
                    let detail = format!("position and content give {wanted}");
                    self.report.find(Kind::Key, &object.key, detail);
                }
            }
        }
        self.report.statistics.entries_gone = gone.len() as u64;
        gone
    }

    /// Every compaction record, oldest first.
    async fn records(&mut self, head: &Head) -> Result<Vec<Compaction>, ReadError> {
        let mut records = Vec::new();
        let mut next = head.compaction.as_ref().map(|of| of.last.clone());
        let mut wanted = head.compaction.as_ref().map_or(0, |of| of.count.0);
        while let Some(link) = next.take() {
            let body = self.referred::<Compaction>(frame::Kind::Compaction, &link.key, link.sha256).await?;
            let Some(record) = body else { break };
            if record.ordinal.0 != wanted || link.ordinal.0 != wanted || record.stream_id != head.stream_id {
                self.report.find(Kind::Chain, &link.key, format!("it is not record {wanted} of the stream"));
                break;
            }
            wanted -= 1;
            next.clone_from(&record.prev);
            if (wanted == 0) == next.is_some() {
                self.report.find(Kind::Chain, &link.key, format!("{wanted} records are before it"));
                break;
            }
            records.push(record);
        }
        records.reverse();
        Ok(records)
    }

    /// The live objects of all tables: those of entries, with outputs in the place of what they stand for.
    pub(super) async fn view(
        &mut self,
        head: &Head,
        gone: &[Kept],
        entries: &[Stored],
    ) -> Result<View, ReadError> {
        let mut view = View::default();
        for (seq, object) in gone.iter().flat_map(|kept| kept.objects.iter().map(|of| (kept.seq.0, of))) {
            let (key, sha256, row_seq_digest) = (object.key.clone(), object.sha256, object.row_seq_digest);
            let (size, rows) = (object.size.0, object.rows.0);
            view.push(&object.table, Live { from: seq, to: seq, key, sha256, size, rows, row_seq_digest });
        }
        for (seq, object) in
            entries.iter().flat_map(|of| of.entry.objects.iter().map(|object| (of.entry.seq.0, object)))
        {
            let table = names::table(&object.namespace, &object.table);
            let live = Live {
                from: seq,
                to: seq,
                key: object.key.clone(),
                sha256: object.sha256,
                size: object.size.0,
                rows: object.rows.0,
                row_seq_digest: Some(object.row_seq_digest),
            };
            view.push(&table, live);
        }
        for record in self.records(head).await? {
            if !record.equivalence.equal {
                continue;
            }
            for output in &record.outputs {
                let wanted = names::compacted(&self.root, &record.table, output.sha256, &output.key);
                if output.key != wanted {
                    self.report.find(Kind::Key, &output.key, format!("table and content give {wanted}"));
                }
            }
            if let Err(why) = view.replace(&record) {
                self.report.find(Kind::Chain, &record.table, why);
            }
        }
        self.spared.extend(view.replaced.iter().cloned());
        for (table, objects) in &view.tables {
            if table_of(table).is_none() {
                self.report.find(Kind::Key, table, "no segment of a table");
            }
            self.reachable.extend(objects.iter().map(|live| live.key.clone()));
            let outputs = objects.iter().filter(|live| live.key.contains("/compacted/")).count();
            self.report.statistics.compacted += outputs as u64;
        }
        Ok(view)
    }
}
