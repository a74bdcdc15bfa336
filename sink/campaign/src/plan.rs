//! What a campaign's processes agree upon: written once by the driver, read by each process at its start.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sinks::model::key::KeyError;
use sinks::model::stage::JobRoot;
use sinks::stage::mutant::{Chosen, Mutant};
use sinks::stage::{Ledger, LocalDirectory, StageError};
use sinks::store::{Access, S3Settings, S3Store, SettingsError};

use assay_oracle::durable::Subject;
use assay_oracle::events::Workload;
use assay_oracle::reach::Reach;
use assay_oracle::visible::Scope;

use crate::clock;

/// The bucket of every campaign.
pub const BUCKET: &str = "campaign";
/// Access key and secret of the store that a campaign starts.
pub const KEYS: (&str, &str) = ("campaign", "campaign-secret");
/// Partitions of the log.
pub const PARTITIONS: u32 = 4;
/// The region that requests are signed for.
pub const REGION: &str = "us-east-1";

/// What every visible object's key begins with.
pub const PREFIX: &str = "out";

/// The pipeline of a partition, where each is one.
#[must_use]
pub fn pipeline(partition: u32) -> String {
    format!("p{partition}")
}

/// Which sink a campaign is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Sink {
    /// Staged uploads, under a coordinator's checkpoints.
    Staged,
    /// A pipeline for each partition.
    DurableV2,
}

impl Sink {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::DurableV2 => "durable_v2",
        }
    }
}

/// A provider that the campaign's store stands in front of. Its credentials are in the environment of the driver,
/// and never in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// `http://host:port`.
    pub endpoint: String,
    /// The bucket there.
    pub bucket: String,
}

/// A topic of Kafka's protocol, in place of the campaign's own log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// Its name.
    pub topic: String,
    /// The broker's command where the campaign starts it, with [`ADDRESS`] for where it listens; none of brokers that
    /// run already.
    pub command: Option<String>,
}

/// Stands for `host:port` in a broker's command.
pub const ADDRESS: &str = "{address}";

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Which sink.
    pub sink: Sink,
    /// From which the events and the order of chance follow.
    pub seed: u64,
    /// Partitions of the log; each is a subtask of the job.
    pub partitions: u32,
    /// Distinct keys.
    pub keys: u32,
    /// Worker processes.
    pub workers: u32,
    /// Events a second, of all partitions.
    pub rate: u64,
    /// From one checkpoint's end to the next one's begin, in milliseconds.
    pub checkpoint_ms: u64,
    /// How long a worker asks the store one question, in milliseconds.
    pub patience_ms: u64,
    /// `host:port` of the store.
    pub store: String,
    /// `host:port` of the log, or of each broker, with commas between.
    pub log: String,
    /// The topic, where the log is one of Kafka's protocol.
    pub kafka: Option<Kafka>,
    /// `host:port` of the coordinator.
    pub coordinator: String,
    /// Where the processes keep their things.
    pub directory: PathBuf,
    /// The mistake that is made on purpose.
    pub mutant: Option<String>,
    /// Lasting misbehaviours of the store, by the names that `assay-server deviations` lists.
    pub deviations: Vec<String>,
    /// Faults of the store that are never healed, as rules of the server.
    pub store_faults: Vec<String>,
    /// The provider behind the store.
    pub upstream: Option<Upstream>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        serde_json::from_slice(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Its events.
    #[must_use]
    pub const fn workload(&self) -> Workload {
        Workload { seed: self.seed, partitions: self.partitions, keys: self.keys }
    }

    /// The subtasks of a worker.
    #[must_use]
    pub fn subtasks(&self, worker: u32) -> Vec<u32> {
        (0..self.partitions).filter(|subtask| subtask % self.workers == worker).collect()
    }

    /// The job's keys.
    ///
    /// # Errors
    /// None of a plan that the driver wrote.
    pub fn root(&self) -> Result<JobRoot, KeyError> {
        JobRoot::new(PREFIX, "campaign", "jsonl")
    }

    /// The checkpoint directory, outside the store.
    ///
    /// # Errors
    /// Of the directory.
    pub fn ledger(&self) -> Result<Ledger, StageError> {
        let directory = LocalDirectory::open(&self.directory.join("checkpoints"), clock::ids().nonce())?;
        Ok(Ledger::new(std::sync::Arc::new(directory), "campaign"))
    }

    /// The bucket's name.
    #[must_use]
    pub fn bucket_name(&self) -> &str {
        self.upstream.as_ref().map_or(BUCKET, |upstream| &upstream.bucket)
    }

    /// Where the bucket is, as the sink sees it, and who may use it.
    #[must_use]
    pub fn connection(&self) -> (S3Settings, Access) {
        let settings = S3Settings::new(Some(format!("http://{}", self.store)), REGION, self.bucket_name());
        let settings = S3Settings { request_timeout_ms: 2_000, connect_timeout_ms: 1_000, ..settings };
        (settings, Access::keys(KEYS.0, KEYS.1, None))
    }

    /// The bucket, as the sink sees it.
    ///
    /// # Errors
    /// None of a plan that the driver wrote.
    pub fn bucket(&self) -> Result<S3Store, SettingsError> {
        let (settings, access) = self.connection();
        S3Store::new(&settings, &access)
    }

    /// The ports of the store, the log and the coordinator.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let port = |address: &str| address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let addresses = [&self.store, &self.log, &self.coordinator].into_iter();
        addresses.flat_map(|address| address.split(',')).filter_map(port).collect()
    }

    /// Whether the log is a process of this campaign, so that it can be killed.
    #[must_use]
    pub fn starts_log(&self) -> bool {
        self.kafka.as_ref().is_none_or(|kafka| kafka.command.is_some())
    }

    /// What the judges look at.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.sink {
            Sink::Staged => Scope::Prefix(format!("{PREFIX}/campaign/")),
            Sink::DurableV2 => Scope::Pipelines(self.subjects().iter().map(Reach::new).collect()),
        }
    }

    /// The pipelines, where each partition is one.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        let subject = |partition| Subject { prefix: PREFIX.to_owned(), pipeline: pipeline(partition) };
        (0..self.partitions).map(subject).collect()
    }

    /// The bucket, as the oracle sees it.
    #[must_use]
    pub fn judged(&self) -> assay_oracle::bucket::Access {
        assay_oracle::bucket::Access {
            endpoint: Some(format!("http://{}", self.store)),
            region: REGION.to_owned(),
            bucket: self.bucket_name().to_owned(),
            path_style: true,
            access_key: KEYS.0.to_owned(),
            secret_key: KEYS.1.to_owned(),
            session_token: None,
        }
    }

    /// The mistake that was chosen.
    ///
    /// # Errors
    /// One that is unknown, or a build that can make none.
    pub fn chosen(&self) -> Result<Chosen, String> {
        let Some(name) = &self.mutant else { return Ok(Chosen::default()) };
        let mutant = Mutant::named(name).ok_or_else(|| {
            let known: Vec<_> = Mutant::ALL.map(Mutant::name).into();
            format!("mutant {name:?} is unknown; known: {}", known.join(" "))
        })?;
        #[cfg(feature = "mutants")]
        return Ok(Chosen::one(mutant));
        #[cfg(not(feature = "mutants"))]
        Err(format!("mutant {}: build with --features mutants", mutant.name()))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A plan with free ports.
    pub fn plan(directory: &Path) -> Plan {
        let port = || crate::free_port().unwrap();
        Plan {
            sink: Sink::Staged,
            seed: 1,
            partitions: 2,
            keys: 100,
            workers: 1,
            rate: 100,
            checkpoint_ms: 1_000,
            patience_ms: 3_000,
            store: port(),
            log: port(),
            kafka: None,
            coordinator: port(),
            directory: directory.to_owned(),
            mutant: None,
            deviations: Vec::new(),
            store_faults: Vec::new(),
            upstream: None,
        }
    }

    #[test]
    fn every_partition_has_one_worker_of_however_many() {
        let dir = tempfile::tempdir().unwrap();
        for workers in 1..=PARTITIONS {
            let plan = Plan { workers, partitions: PARTITIONS, ..plan(dir.path()) };
            let mut all: Vec<_> = (0..workers).flat_map(|worker| plan.subtasks(worker)).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3], "{workers}");
            assert!((0..workers).all(|worker| !plan.subtasks(worker).is_empty()), "{workers}");
        }
    }

    #[test]
    fn the_ports_of_all_brokers_are_ports_of_the_plan() {
        let directory = tempfile::tempdir().unwrap();
        let (store, coordinator) = ("127.0.0.1:1".to_owned(), "127.0.0.1:4".to_owned());
        let log = "one:2,two:3".to_owned();
        let kafka = Some(Kafka { topic: "events".to_owned(), command: None });
        let plan = Plan { store, log, kafka, coordinator, ..plan(directory.path()) };
        assert_eq!(plan.ports(), [1, 2, 3, 4]);
        assert!(!plan.starts_log());
    }
}
