//! Where the events come from: the campaign's own log, or a topic of Kafka's protocol, behind one trait.

use assay_oracle::events::{Place, Workload};
use sinks::store::Pending;

use crate::failure::Failure;
use crate::plan::Plan;
use crate::wire::{LogClient, ToLog};

/// An answer that is waited for: nothing while the source is away, so that whoever asked asks again. An error says
/// what is wrong with the source, and that nothing can be concluded from it.
pub type Asked<'a, T> = Pending<'a, Result<Option<T>, String>>;

/// A durable log of partitions, whose line `n` is the event with sequence number `n`: what is read is compared.
pub trait Source: Send {
    /// One more than a partition's last line.
    fn end(&mut self, partition: u32) -> Asked<'_, u64>;

    /// Appends lines where the partition ends at `from`, durably; else nothing. Says where it ends then. An append
    /// without an answer may have landed: [`Source::end`] decides.
    fn append(&mut self, partition: u32, from: u64, lines: Vec<String>) -> Asked<'_, u64>;

    /// At most `most` lines from `from` on; none may also mean that they have not arrived.
    fn fetch(&mut self, partition: u32, from: u64, most: u64) -> Asked<'_, Vec<String>>;
}

/// The plan's source; nothing is asked yet.
///
/// # Errors
/// Kafka's protocol in a build without it, or settings that its client refuses.
pub fn open(plan: &Plan) -> Result<Box<dyn Source>, String> {
    match &plan.kafka {
        None => Ok(Box::new(Own { log: LogClient::new(&plan.log), workload: plan.workload() })),
        #[cfg(feature = "kafka")]
        Some(kafka) => Ok(Box::new(crate::kafka::Topic::new(&plan.log, &kafka.topic, plan.workload())?)),
        #[cfg(not(feature = "kafka"))]
        Some(_) => Err(BUILD.to_owned()),
    }
}

/// Makes the source ready for a campaign: a topic is created, or is there and has no records.
///
/// # Errors
/// Brokers that are not there; a topic that is none of this campaign's, which is wrong usage.
pub async fn prepare(plan: &Plan) -> Result<(), Failure> {
    match &plan.kafka {
        None => Ok(()),
        #[cfg(feature = "kafka")]
        Some(kafka) => crate::kafka::prepare(&plan.log, &kafka.topic, plan.partitions).await,
        #[cfg(not(feature = "kafka"))]
        Some(_) => Err(Failure::usage(BUILD)),
    }
}

/// What a build without Kafka's protocol says.
pub const BUILD: &str = "this build does not speak Kafka's protocol; build with --features kafka";

/// Compares lines that were read from `from` on with the events that belong there.
///
/// # Errors
/// The first that is another one.
pub fn compare(workload: Workload, partition: u32, from: u64, lines: &[String]) -> Result<(), String> {
    for (seq, line) in (from..).zip(lines) {
        if workload.line(Place { partition, seq }) != *line {
            let found = match workload.place(line.as_bytes()) {
                Ok(place) => format!("event p{}-{}", place.partition, place.seq),
                Err(why) => why,
            };
            return Err(format!(
                "line {seq} of the source's partition {partition} is not its event: {found}"
            ));
        }
    }
    Ok(())
}

/// The campaign's own log.
struct Own {
    log: LogClient,
    workload: Workload,
}

impl Source for Own {
    fn end(&mut self, partition: u32) -> Asked<'_, u64> {
        Box::pin(async move {
            let answer = self.log.ask(&ToLog::Fetch { partition, from: u64::MAX, most: 0 }).await;
            Ok(answer.map(|answer| answer.end))
        })
    }

    fn append(&mut self, partition: u32, from: u64, lines: Vec<String>) -> Asked<'_, u64> {
        Box::pin(async move {
            let answer = self.log.ask(&ToLog::Append { partition, from, lines }).await;
            Ok(answer.map(|answer| answer.end))
        })
    }

    fn fetch(&mut self, partition: u32, from: u64, most: u64) -> Asked<'_, Vec<String>> {
        Box::pin(async move {
            let answer = self.log.ask(&ToLog::Fetch { partition, from, most }).await;
            let Some(answer) = answer else { return Ok(None) };
            compare(self.workload, partition, from, &answer.lines)?;
            Ok(Some(answer.lines))
        })
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::plan::tests::plan;

    /// Events of a partition.
    pub fn events(workload: Workload, partition: u32, from: u64, to: u64) -> Vec<String> {
        (from..to).map(|seq| workload.line(Place { partition, seq })).collect()
    }

    /// Lines from `from` on, once so many have arrived.
    pub async fn arrived(source: &mut dyn Source, partition: u32, from: u64, most: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let all = async {
            while (lines.len() as u64) < most {
                let (next, left) = (from + lines.len() as u64, most - lines.len() as u64);
                let more = source.fetch(partition, next, left).await.unwrap().unwrap_or_default();
                lines.extend(more);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), all).await.expect("lines arrive");
        lines
    }

    /// What every source promises.
    pub async fn contract(source: &mut dyn Source, workload: Workload) {
        let ready = async {
            while source.end(1).await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), ready).await.expect("the source answers");
        assert_eq!(source.end(1).await, Ok(Some(0)));
        assert_eq!(source.append(1, 0, events(workload, 1, 0, 3)).await, Ok(Some(3)));
        assert_eq!(source.append(1, 3, events(workload, 1, 3, 5)).await, Ok(Some(5)));
        assert_eq!(source.append(1, 3, events(workload, 1, 3, 5)).await, Ok(Some(5)), "repeated");
        assert_eq!(source.append(1, 6, events(workload, 1, 6, 7)).await, Ok(Some(5)), "beyond the end");
        assert_eq!(source.append(1, 5, Vec::new()).await, Ok(Some(5)), "of nothing");
        assert_eq!((source.end(1).await, source.end(0).await), (Ok(Some(5)), Ok(Some(0))));
        assert_eq!(arrived(source, 1, 0, 5).await, events(workload, 1, 0, 5));
        assert_eq!(arrived(source, 1, 3, 2).await, events(workload, 1, 3, 5), "read again");
        assert_eq!(source.fetch(1, 5, 10).await, Ok(Some(Vec::new())), "the end");
        assert_eq!(source.append(1, 5, events(workload, 1, 5, 9)).await, Ok(Some(9)));
        assert_eq!(arrived(source, 1, 5, 4).await, events(workload, 1, 5, 9), "from the end on");
        // The event after the next one: whoever reads must not take it for the next.
        assert_eq!(source.append(0, 0, events(workload, 0, 1, 2)).await, Ok(Some(1)));
        let read = async {
            loop {
                match source.fetch(0, 0, 10).await {
                    Ok(lines) => assert_eq!(lines.unwrap_or_default(), Vec::<String>::new()),
                    Err(why) => return why,
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let why = timeout(Duration::from_secs(30), read).await.expect("it is read");
        assert_eq!(why, "line 0 of the source's partition 0 is not its event: event p0-1");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_own_log_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path());
        let served = plan.clone();
        let serving = tokio::spawn(async move { crate::log::run(&served).await });
        prepare(&plan).await.unwrap();
        let mut source = open(&plan).unwrap();
        contract(source.as_mut(), plan.workload()).await;
        serving.abort();
    }

    #[tokio::test]
    async fn a_source_that_is_away_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut source = open(&plan(dir.path())).unwrap();
        assert_eq!(source.end(0).await, Ok(None));
        assert_eq!(source.append(0, 0, vec!["a line".to_owned()]).await, Ok(None));
        assert_eq!(source.fetch(0, 0, 1).await, Ok(None));
    }

    #[test]
    fn a_line_that_is_no_event_is_named_without_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let workload = plan(dir.path()).workload();
        assert_eq!(compare(workload, 2, 7, &events(workload, 2, 7, 9)), Ok(()));
        let why = compare(workload, 2, 7, &["a secret".to_owned()]).unwrap_err();
        assert!(
            why.starts_with("line 7 of the source's partition 2 is not its event: no event's line"),
            "{why}"
        );
        assert!(!why.contains("secret"), "{why}");
    }
}
