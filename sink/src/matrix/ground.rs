//! A scenario's own place: a prefix in the bucket, a directory for local records, and what to expect there.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::data::{self, EXTENSION, TABLES};
use super::rig::{FIRES_WITHIN, POLL, Rig};
use super::writer::Order;
use super::{Checked, Failure, equal};
use crate::env::Env;
use crate::format::{DecodeError, Encoding, for_each_row};
use crate::model::head::Head;
use crate::model::key::{ObjectName, PipelineRoot};
use crate::run::patience::Patience;
use crate::run::recover::{self, Committed, Depth, Recovered};
use crate::sink::{Settings, Sink};
use crate::store::{ETag, ObjectMeta, Outcome, Store};

/// The pipeline of every scenario.
pub(super) const PIPELINE: &str = "orders";

/// Longest wait for one answer, unless a scenario is about waiting.
pub(super) const REQUEST_TIMEOUT_MS: u64 = 20_000;

/// Longest wait for an acknowledgement, unless a scenario is about waiting.
const SEND_TIMEOUT_MS: u64 = 60_000;

pub(super) struct Ground {
    pub(super) rig: Rig,
    pub(super) prefix: String,
    pub(super) root: PipelineRoot,
    directory: PathBuf,
}

/// What lies under a scenario's prefix once nothing is under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The last committed batch.
    pub(super) seq: u64,
    /// Data objects that no entry refers to.
    pub(super) orphaned_data: usize,
    /// Entries that HEAD does not reach.
    pub(super) orphaned_entries: usize,
}

impl Ground {
    pub(super) fn new(rig: &Rig, id: &str) -> Checked<Self> {
        let prefix = format!("{}/{}", rig.prefix, id.replace('.', "-"));
        let directory = std::env::temp_dir().join(format!("assay-it-{:016x}-{id}", rig.seed));
        std::fs::create_dir_all(&directory)?;
        Ok(Self {
            rig: rig.clone(),
            root: PipelineRoot::new(&prefix, PIPELINE, EXTENSION)?,
            prefix,
            directory,
        })
    }

    /// The environment of one process; each `salt` stands for another.
    pub(super) fn env(&self, salt: u64) -> Checked<Env> {
        self.rig.env(REQUEST_TIMEOUT_MS, salt)
    }

    /// Settings of the host `name`, which keeps a local record.
    pub(super) fn settings(&self, name: &str) -> Settings {
        Settings {
            checkpoint: Some(self.directory.join(name)),
            send_timeout_ms: SEND_TIMEOUT_MS,
            ..Settings::new(self.root.clone(), PIPELINE, &self.prefix, name)
        }
    }

    /// A sink on host `name`.
    pub(super) async fn start(&self, name: &str, salt: u64) -> Checked<Sink> {
        Ok(Sink::start(self.env(salt)?, self.settings(name)).await?)
    }

    /// A writer process's order on host `name`: all batches up to `upto`.
    pub(super) fn order(&self, name: &str, salt: u64, upto: u64) -> Order {
        Order {
            endpoint: self.rig.endpoint.clone(),
            bucket: self.rig.bucket.clone(),
            region: self.rig.region.clone(),
            access_key: self.rig.access_key.clone(),
            secret_key: self.rig.secret_key.clone(),
            prefix: self.prefix.clone(),
            checkpoint: self.directory.join(name),
            seed: self.rig.seed ^ salt,
            upto,
            sweep: None,
        }
    }

    /// A rule for this scenario's keys only: `what` is a pattern behind the pipeline's root.
    pub(super) fn rule(&self, name: &str, what: &str, rest: &str) -> String {
        format!("name={name} operation=PutObject key={}/{what} {rest}", self.root.as_str())
    }

    /// Publishes batches `from..=upto` one after the other, each acknowledged before the next.
    pub(super) async fn publish(&self, sink: &Sink, from: u64, upto: u64) -> Checked {
        for n in from..=upto {
            let ack = sink.submit(data::batch(n)?).await?.acknowledged().await?;
            equal("the acknowledged position", ack.digest, data::position(n)?.digest())?;
        }
        Ok(())
    }

    /// Everything that is committed, verified down to the bytes.
    pub(super) async fn recovered(&self) -> Checked<Recovered> {
        let env = self.env(0xfeed)?;
        let patience = Patience::limited(SEND_TIMEOUT_MS);
        let found = recover::recover(&env, &self.root, Depth::Deep, &patience).await?;
        found.ok_or_else(|| Failure("there is no stream".to_owned()))
    }

    /// HEAD and its tag.
    pub(super) async fn head(&self) -> Checked<(Head, ETag)> {
        let object = self.get(&self.root.head()).await?;
        Ok((Head::decode(&object.0)?, object.1))
    }

    /// Waits until `seq` entries are committed and `entries` are there: a rule acts when a request comes, and a
    /// provider behind the proxy may still be at work on it then.
    pub(super) async fn landed(&self, seq: u64, entries: usize) -> Checked {
        let under = self.root.entries();
        let waiting = async {
            loop {
                let there = self.listed().await?.iter().filter(|meta| meta.key.starts_with(&under)).count();
                if (self.head().await?.0.seq, there) == (seq, entries) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(FIRES_WITHIN, waiting).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure(format!(
                "not {seq} committed entries of {entries} that are there within {FIRES_WITHIN:?}"
            ))),
        }
    }

    /// The bytes of one object, and its tag.
    pub(super) async fn get(&self, key: &str) -> Checked<(bytes::Bytes, ETag)> {
        match self.store()?.get(key).await {
            Outcome::Done(object) => Ok((object.bytes, object.meta.etag)),
            other => Err(Failure(format!("GET of {key:?}: {other:?}"))),
        }
    }

    /// A client for what a scenario does behind the sink's back.
    pub(super) fn store(&self) -> Checked<Arc<dyn Store>> {
        Ok(self.env(0xbacc)?.store)
    }

    /// Checks that exactly batches 1 to `upto` are visible, each row once and in order, and says what else
    /// is there.
    pub(super) async fn exactly(&self, upto: u64) -> Checked<Settled> {
        let recovered = self.recovered().await?;
        let store = self.store()?;
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let live = recovered.live();
        for object in &live {
            let Outcome::Done(body) = store.get(&object.key).await else {
                return Err(Failure(format!("{:?} can't be read", object.key)));
            };
            let encoding = Encoding::named(&object.format, &object.compression)?;
            let rows = found.entry(object.table.clone()).or_default();
            for_each_row(encoding, &body.bytes, |row| {
                rows.push(String::from_utf8_lossy(row).into_owned());
                Ok::<_, DecodeError>(())
            })?;
        }
        let objects = recovered.entries.iter().flat_map(Committed::objects);
        let referenced: HashSet<&str> = objects.map(|object| object.key).collect();
        let expected: BTreeMap<String, Vec<String>> = TABLES
            .iter()
            .filter(|_| upto > 0)
            .map(|table| {
                let rows = (1..=upto).flat_map(|n| data::rows(n, table)).collect();
                (format!("{}.{table}", data::NAMESPACE), rows)
            })
            .collect();
        equal("the visible rows", found, expected)?;
        equal("the resume position", data::number(recovered.position.as_ref())?, upto)?;
        let listed = self.listed().await?;
        let reached: Vec<_> = recovered.entries.iter().map(|entry| entry.key.as_str()).collect();
        let count = |wanted: fn(&ObjectName<'_>) -> bool, known: &dyn Fn(&str) -> bool| {
            let is = |object: &&ObjectMeta| self.root.parse(&object.key).is_some_and(|name| wanted(&name));
            listed.iter().filter(is).filter(|object| !known(&object.key)).count()
        };
        Ok(Settled {
            seq: recovered.view.head.seq,
            orphaned_data: count(|name| matches!(name, ObjectName::Data { .. }), &|key| {
                referenced.contains(key)
            }),
            orphaned_entries: count(|name| matches!(name, ObjectName::Entry { .. }), &|key| {
                reached.contains(&key)
            }),
        })
    }

    /// Every object under the scenario's prefix.
    pub(super) async fn listed(&self) -> Checked<Vec<ObjectMeta>> {
        let (store, prefix) = (self.store()?, format!("{}/", self.prefix));
        let (mut objects, mut token) = (Vec::new(), None);
        loop {
            match store.list(&prefix, token.as_deref(), 1000).await {
                Outcome::Done(page) => {
                    objects.extend(page.objects);
                    token = page.next;
                }
                other => return Err(Failure(format!("list of {prefix:?}: {other:?}"))),
            }
            if token.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Removes everything that the scenario has written.
    pub(super) async fn clear(&self) -> Checked {
        let store = self.store()?;
        for object in self.listed().await? {
            if let other @ (Outcome::Refused(_) | Outcome::Missing | Outcome::Unknown(_)) =
                store.delete(&object.key, None).await
            {
                return Err(Failure(format!("DELETE of {:?}: {other:?}", object.key)));
            }
        }
        std::fs::remove_dir_all(&self.directory)?;
        Ok(())
    }
}
