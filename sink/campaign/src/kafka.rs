//! A source of Kafka's protocol: a topic whose partitions are the log's, read without a consumer group.
//!
//! Kafka has no append to a known end. What stands for it is one writer, whose client is idempotent: each request has
//! the producer's id and a sequence number, so that one that was given up and lands late, as from a broker that was
//! stopped, lands once and in its turn. What that does not cover, a second writer or a predecessor's last request, is
//! seen: the broker says at which offset each line landed, and what is read is compared.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use assay_oracle::events::Workload;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::source::{Asked, Source, compare};

/// How long one question may take, in milliseconds.
const PATIENCE_MS: u64 = 2_000;

/// How long the client tries to deliver a line, in milliseconds: longer than a broker is away in any fault.
const DELIVERY_MS: u64 = 120_000;

/// How long brokers may take to answer for the first time, in seconds.
const START_S: u64 = 30;

/// A topic, as one process uses it.
pub struct Topic {
    brokers: String,
    name: String,
    workload: Workload,
    asking: Arc<BaseConsumer>,
    /// Made by the first append.
    producer: Option<FutureProducer>,
    /// Where each partition ends after this process's last append.
    ends: BTreeMap<u32, u64>,
    readers: BTreeMap<u32, Reader>,
}

/// What one partition is read with.
struct Reader {
    consumer: BaseConsumer,
    /// The line that comes next, once it stands somewhere.
    next: Option<u64>,
}

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("client.id", "assay-campaign")
        .set("socket.timeout.ms", PATIENCE_MS.to_string())
        .set("reconnect.backoff.max.ms", "500");
    config
}

fn client<T: FromClientConfig>(config: &ClientConfig) -> Result<T, String> {
    config.create().map_err(|why| format!("a client of Kafka's protocol: {why}"))
}

impl Topic {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Settings that the client refuses.
    pub fn new(brokers: &str, name: &str, workload: Workload) -> Result<Self, String> {
        let asking = Arc::new(client(&config(brokers))?);
        let (producer, ends, readers) = (None, BTreeMap::new(), BTreeMap::new());
        let (brokers, name) = (brokers.to_owned(), name.to_owned());
        Ok(Self { brokers, name, workload, asking, producer, ends, readers })
    }

    async fn known_end(&self, partition: u32) -> Result<Option<u64>, String> {
        // The one writer's client was told; of anybody else the broker decides.
        if let Some(end) = self.ends.get(&partition) {
            return Ok(Some(*end));
        }
        let (asking, name) = (Arc::clone(&self.asking), self.name.clone());
        let patience = Duration::from_millis(PATIENCE_MS);
        // The client waits in its own way, which must not hold up a thread of ours.
        let asked =
            tokio::task::spawn_blocking(move || asking.fetch_watermarks(&name, partition as i32, patience));
        match asked.await.map_err(|why| why.to_string())? {
            Ok((0, end)) => Ok(Some(end.unsigned_abs())),
            Ok((begin, _)) => {
                Err(format!("partition {partition} of topic {} begins at offset {begin}", self.name))
            }
            Err(why) => away(&why).map(|()| None),
        }
    }

    async fn appended(&mut self, partition: u32, from: u64, lines: &[String]) -> Result<Option<u64>, String> {
        let end = self.known_end(partition).await?;
        if end != Some(from) || lines.is_empty() {
            return Ok(end);
        }
        let producer = match &self.producer {
            Some(producer) => producer,
            None => self.producer.insert(client(
                config(&self.brokers)
                    .set("enable.idempotence", "true")
                    .set("max.in.flight", "1")
                    .set("request.timeout.ms", PATIENCE_MS.to_string())
                    .set("message.timeout.ms", DELIVERY_MS.to_string()),
            )?),
        };
        let mut sent = Vec::new();
        for line in lines {
            let record: FutureRecord<'_, (), str> =
                FutureRecord::to(&self.name).partition(partition as i32).payload(line);
            sent.push(
                producer.send_result(record).map_err(|(why, _)| format!("a line was not sent: {why}"))?,
            );
        }
        let (mut misplaced, mut untold) = (None, false);
        for (seq, sent) in (from..).zip(sent) {
            let delivered = sent.await.map_err(|_| "the client of Kafka's protocol ended".to_owned())?;
            let delivery = delivered.map_err(|(why, _)| {
                format!(
                    "line {seq} of partition {partition} was not acknowledged, and may land or not: {why}"
                )
            })?;
            // A broker that only says that it has a request already says no offset; the client counts from -1 then.
            untold |= delivery.offset < 0;
            if u64::try_from(delivery.offset) != Ok(seq) {
                misplaced = misplaced.or(Some((seq, delivery.offset)));
            }
        }
        let end = from + lines.len() as u64;
        match misplaced {
            None => {}
            Some(_) if untold => {
                self.ends.remove(&partition);
                match self.known_end(partition).await? {
                    Some(found) if found == end => {}
                    Some(found) => {
                        return Err(format!(
                            "partition {partition} ends at {found} after lines {from} to {end}"
                        ));
                    }
                    None => return Ok(None),
                }
            }
            Some((seq, offset)) => {
                return Err(format!(
                    "line {seq} of partition {partition} landed at offset {offset}: another writer's lines are between"
                ));
            }
        }
        self.ends.insert(partition, end);
        Ok(Some(end))
    }

    fn fetched(&mut self, partition: u32, from: u64, most: u64) -> Result<Option<Vec<String>>, String> {
        let reader = match self.readers.entry(partition) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => free.insert(Reader::new(&self.brokers)?),
        };
        reader.stand(&self.name, partition, from)?;
        let mut lines = Vec::new();
        let mut next = from;
        while (lines.len() as u64) < most {
            match reader.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Err(why)) => {
                    away(&why)?;
                    break;
                }
                Some(Ok(message)) => {
                    let at = message.offset();
                    if u64::try_from(at) != Ok(next) {
                        return Err(format!("partition {partition} gives offset {at} where {next} is next"));
                    }
                    lines.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
                    next += 1;
                }
            }
        }
        reader.next = Some(next);
        compare(self.workload, partition, from, &lines)?;
        Ok(Some(lines))
    }
}

impl Reader {
    fn new(brokers: &str) -> Result<Self, String> {
        let consumer = client(
            config(brokers)
                // The client wants a name of a group; there is no subscription, and nothing is committed.
                .set("group.id", "assay-campaign")
                .set("enable.auto.commit", "false")
                .set("auto.offset.reset", "error")
                .set("fetch.wait.max.ms", "100"),
        )?;
        Ok(Self { consumer, next: None })
    }

    /// Makes `from` the line that comes next.
    fn stand(&mut self, topic: &str, partition: u32, from: u64) -> Result<(), String> {
        if self.next == Some(from) {
            return Ok(());
        }
        let failed = |why: KafkaError| format!("offset {from} of partition {partition}: {why}");
        let mut assigned = TopicPartitionList::new();
        let at = i64::try_from(from).map_err(|why| why.to_string())?;
        assigned.add_partition_offset(topic, partition as i32, Offset::Offset(at)).map_err(failed)?;
        // What the client has of an earlier assignment it drops.
        self.consumer.assign(&assigned).map_err(failed)?;
        self.next = Some(from);
        Ok(())
    }
}

impl Source for Topic {
    fn end(&mut self, partition: u32) -> Asked<'_, u64> {
        Box::pin(async move { self.known_end(partition).await })
    }

    fn append(&mut self, partition: u32, from: u64, lines: Vec<String>) -> Asked<'_, u64> {
        Box::pin(async move { self.appended(partition, from, &lines).await })
    }

    fn fetch(&mut self, partition: u32, from: u64, most: u64) -> Asked<'_, Vec<String>> {
        Box::pin(async move { self.fetched(partition, from, most) })
    }
}

/// Whether an error only says that brokers do not answer now.
///
/// # Errors
/// Any other, in words.
fn away(why: &KafkaError) -> Result<(), String> {
    let code = match why {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    match code {
        Some(
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::RequestTimedOut
            | Code::NodeUpdate
            | Code::Resolve
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::PartitionEOF,
        ) => Ok(()),
        _ => Err(format!("the broker: {why}")),
    }
}

/// Creates the topic, or finds that it has as many partitions and no records.
///
/// # Errors
/// Brokers that do not answer within half a minute; wrong usage where they refuse, or the topic is none of this
/// campaign's.
pub async fn prepare(brokers: &str, topic: &str, partitions: u32) -> Result<(), Failure> {
    ready(brokers, topic, partitions, Instant::now() + Duration::from_secs(START_S)).await
}

async fn ready(brokers: &str, topic: &str, partitions: u32, until: Instant) -> Result<(), Failure> {
    loop {
        match created(brokers, topic, partitions).await {
            Ok(Some(())) => break,
            Ok(None) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(200)).await,
            Ok(None) => {
                return Err(Failure::away(format!(
                    "brokers {brokers} do not answer within {START_S} s: a campaign needs them from its start on; \
                     start them, or name others"
                )));
            }
            Err(why) => return Err(Failure::usage(format!("topic {topic} on {brokers}: {why}"))),
        }
    }
    empty(brokers, topic, partitions, until).await
}

/// Finds that a topic has no records.
async fn empty(brokers: &str, topic: &str, partitions: u32, until: Instant) -> Result<(), Failure> {
    let source = Topic::new(brokers, topic, Workload { seed: 0, partitions, keys: 1 });
    let mut source = source.map_err(Failure::usage)?;
    for partition in 0..partitions {
        loop {
            match source.end(partition).await.map_err(Failure::usage)? {
                Some(0) => break,
                Some(end) => {
                    return Err(Failure::usage(format!(
                        "topic {topic} on {brokers} has {end} records in partition {partition}; name another topic"
                    )));
                }
                None if Instant::now() < until => tokio::time::sleep(Duration::from_millis(200)).await,
                None => {
                    return Err(Failure::away(format!(
                        "brokers {brokers} do not say where topic {topic} ends; name others"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Asks once for the topic, and for its partitions; nothing while the brokers are away.
async fn created(brokers: &str, topic: &str, partitions: u32) -> Result<Option<()>, String> {
    let admin: AdminClient<DefaultClientContext> = client(&config(brokers))?;
    let options = AdminOptions::new().request_timeout(Some(Duration::from_millis(PATIENCE_MS)));
    let new = NewTopic::new(topic, partitions as i32, TopicReplication::Fixed(1));
    match admin.create_topics([&new], &options).await {
        Err(why) => return away(&why).map(|()| None),
        Ok(created) => match created.into_iter().next() {
            Some(Err((_, Code::TopicAlreadyExists)) | Ok(_)) => {}
            Some(Err((_, why))) => return Err(why.to_string()),
            None => return Err("no answer names it".to_owned()),
        },
    }
    let name = topic.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let patience = Duration::from_millis(PATIENCE_MS);
        let metadata = admin.inner().fetch_metadata(Some(&name), patience)?;
        Ok::<_, KafkaError>(metadata.topics().first().map_or(0, |topic| topic.partitions().len()))
    });
    match asked.await.map_err(|why| why.to_string())? {
        Ok(found) if found == partitions as usize => Ok(Some(())),
        // A topic that was just made is known to all brokers a little later.
        Ok(0) => Ok(None),
        Ok(found) => Err(format!("it has {found} partitions; {partitions} are wanted")),
        Err(why) => away(&why).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::failure::{AWAY, USAGE};
    use crate::source::tests::{arrived, contract, events};

    const WORKLOAD: Workload = Workload { seed: 3, partitions: 2, keys: 100 };

    #[tokio::test(flavor = "multi_thread")]
    async fn a_topic_keeps_the_contract() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("events", 2, 1).unwrap();
        let mut source = Topic::new(&cluster.bootstrap_servers(), "events", WORKLOAD).unwrap();
        contract(&mut source, WORKLOAD).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_append_that_is_refused_for_a_while_lands_once() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("events", 2, 1).unwrap();
        let brokers = cluster.bootstrap_servers();
        let mut source = Topic::new(&brokers, "events", WORKLOAD).unwrap();
        let for_a_while = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 3];
        cluster.request_errors(RDKafkaApiKey::Produce, &for_a_while);
        assert_eq!(source.append(0, 0, events(WORKLOAD, 0, 0, 40)).await, Ok(Some(40)));
        assert_eq!(arrived(&mut source, 0, 0, 40).await, events(WORKLOAD, 0, 0, 40));
        // Another writer: its predecessor's client sees where its own lines landed.
        let mut second = Topic::new(&brokers, "events", WORKLOAD).unwrap();
        assert_eq!(second.append(0, 40, events(WORKLOAD, 0, 40, 42)).await, Ok(Some(42)));
        let why = source.append(0, 40, events(WORKLOAD, 0, 40, 41)).await.unwrap_err();
        assert_eq!(why, "line 40 of partition 0 landed at offset 42: another writer's lines are between");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_that_is_there_already_must_be_there() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("events", 2, 1).unwrap();
        let mut source = Topic::new(&cluster.bootstrap_servers(), "events", WORKLOAD).unwrap();
        assert_eq!(source.append(0, 0, events(WORKLOAD, 0, 0, 3)).await, Ok(Some(3)));
        let there = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER];
        cluster.request_errors(RDKafkaApiKey::Produce, &there);
        let why = source.append(0, 3, events(WORKLOAD, 0, 3, 5)).await.unwrap_err();
        assert_eq!(why, "partition 0 ends at 3 after lines 3 to 5");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_topic_with_records_is_refused() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("events", 2, 1).unwrap();
        let brokers = cluster.bootstrap_servers();
        let until = Instant::now() + Duration::from_secs(START_S);
        assert_eq!(empty(&brokers, "events", 2, until).await, Ok(()));
        let mut source = Topic::new(&brokers, "events", WORKLOAD).unwrap();
        assert_eq!(source.append(1, 0, events(WORKLOAD, 1, 0, 3)).await, Ok(Some(3)));
        let Failure(code, why) = empty(&brokers, "events", 2, until).await.unwrap_err();
        assert!(why.ends_with("has 3 records in partition 1; name another topic"), "{why}");
        assert_eq!(code, USAGE);
        let Failure(code, why) = empty("127.0.0.1:1", "events", 2, Instant::now()).await.unwrap_err();
        assert_eq!(why, "brokers 127.0.0.1:1 do not say where topic events ends; name others");
        assert_eq!(code, AWAY);
        let Failure(code, why) = ready("127.0.0.1:1", "events", 2, Instant::now()).await.unwrap_err();
        assert!(why.starts_with("brokers 127.0.0.1:1 do not answer within 30 s"), "{why}");
        assert_eq!(code, AWAY);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broker_that_is_away_says_nothing() {
        let mut source = Topic::new("127.0.0.1:1", "events", WORKLOAD).unwrap();
        assert_eq!(source.end(0).await, Ok(None));
        assert_eq!(source.append(0, 0, events(WORKLOAD, 0, 0, 1)).await, Ok(None));
        assert_eq!(source.fetch(0, 0, 1).await, Ok(Some(Vec::new())));
        assert_eq!(created("127.0.0.1:1", "events", 2).await, Ok(None));
    }
}
