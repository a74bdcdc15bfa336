//! The journal over HTTP: read, followed, waited for.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use wildmatch::WildMatch;

use super::reply::{Parameters, Refused, Reply};
use crate::journal::{Journal, Record};
use crate::service::Service;
use crate::stream::Body;

/// Requests in one answer, unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 1000;

/// How long `wait` waits, unless `within-ms` says otherwise.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Longest wait, in milliseconds: ten minutes.
const MAX_WAIT_MS: u64 = 600_000;

/// Lines that wait between journal and socket. A client that is slower than that loses what the journal drops
/// meanwhile, and is told how much.
const LINES_AHEAD: usize = 64;

pub(super) async fn reply(
    service: &Service,
    rest: &str,
    method: &str,
    parameters: &mut Parameters,
) -> Result<Option<Reply>, Refused> {
    match (rest, method) {
        ("", "GET") => list(service, parameters).map(Some),
        ("", "DELETE") => {
            service.journal.clear();
            Ok(Some(Reply::ok(json!({ "last": service.journal.last() }))))
        }
        ("stream", "GET") => stream(service, parameters).map(Some),
        ("wait", "GET") => wait(service, parameters).await.map(Some),
        _ => Ok(None),
    }
}

/// Which requests are asked for; what is not set lets all through.
struct Filter {
    operation: Option<WildMatch>,
    bucket: Option<WildMatch>,
    key: Option<WildMatch>,
    access_key: Option<String>,
    /// `Some(None)` for requests that got no answer.
    status: Option<Option<u16>>,
    rule: Option<String>,
    deviation: Option<String>,
}

impl Filter {
    fn take(parameters: &mut Parameters) -> Result<Self, Refused> {
        let mut pattern = |name| parameters.take(name).map(|text| WildMatch::new(&text));
        let (operation, bucket, key) = (pattern("operation"), pattern("bucket"), pattern("key"));
        Ok(Self {
            operation,
            bucket,
            key,
            access_key: parameters.take("access-key"),
            status: parameters.read(
                "status",
                "a status, or none for a request without an answer",
                |text| match text {
                    "none" => Some(None),
                    number => number.parse().ok().map(Some),
                },
            )?,
            rule: parameters.take("rule"),
            deviation: parameters.take("deviation"),
        })
    }

    fn fits(&self, record: &Record) -> bool {
        let fits = |pattern: &Option<WildMatch>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| pattern.matches(text)))
        };
        fits(&self.operation, record.operation)
            && fits(&self.bucket, record.bucket.as_deref())
            && fits(&self.key, record.key.as_deref())
            && (self.access_key.is_none() || self.access_key == record.access_key)
            && self.status.is_none_or(|status| record.status == status)
            && self.rule.as_ref().is_none_or(|rule| record.faults.iter().any(|hit| hit.rule == *rule))
            && self.deviation.as_ref().is_none_or(|name| record.deviations.iter().any(|acted| acted == name))
    }
}

fn take_after(parameters: &mut Parameters) -> Result<Option<u64>, Refused> {
    parameters.read("after", "the number of a request", |text| text.parse().ok())
}

fn list(service: &Service, parameters: &mut Parameters) -> Result<Reply, Refused> {
    let filter = Filter::take(parameters)?;
    let after = take_after(parameters)?.unwrap_or(0);
    let limit = parameters
        .read("limit", "a number of requests above 0", |text| text.parse().ok().filter(|limit| *limit > 0))?;
    parameters.end()?;
    let mut fitting = service.journal.filter(|record| record.number > after && filter.fits(record));
    let count = fitting.len();
    fitting.truncate(limit.unwrap_or(DEFAULT_LIMIT));
    Ok(Reply::ok(json!({ "requests": fitting, "count": count, "last": service.journal.last() })))
}

async fn wait(service: &Service, parameters: &mut Parameters) -> Result<Reply, Refused> {
    let filter = Filter::take(parameters)?;
    let after = take_after(parameters)?.unwrap_or(0);
    let within = parameters
        .read("within-ms", "milliseconds up to 600000, ten minutes", |text| {
            text.parse().ok().filter(|ms| *ms <= MAX_WAIT_MS)
        })?
        .map_or(DEFAULT_WAIT, Duration::from_millis);
    parameters.end()?;
    let mut stopping = service.stopping.subscribe();
    let found = tokio::select! {
        found = service.journal.wait_for(after, within, |record| filter.fits(record)) => found,
        _ = stopping.wait_for(|stopping| *stopping) => return Err(Refused::not_found("the server stops")),
    };
    match found {
        Ok(record) => Ok(Reply::ok(json!(record))),
        Err(unmet) => Err(Refused::not_found(unmet.to_string())),
    }
}

fn stream(service: &Service, parameters: &mut Parameters) -> Result<Reply, Refused> {
    let filter = Filter::take(parameters)?;
    let after = take_after(parameters)?.unwrap_or_else(|| service.journal.last());
    parameters.end()?;
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    tokio::spawn(follow(service.journal.clone(), filter, after, sender, service.stopping.subscribe()));
    Ok(Reply::Stream("application/x-ndjson", Body::live(lines)))
}

/// Sends what comes after number `after`, until the client goes or the server stops.
async fn follow(
    journal: Journal,
    filter: Filter,
    mut after: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = journal.grown(after) => {}
            () = sender.closed() => return,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let records = journal.after(after, LINES_AHEAD);
        let first = records.first().map_or(journal.last() + 1, |record| record.number);
        let missed = (first > after + 1).then(|| json!({ "missed": first - after - 1 }).to_string());
        after = records.last().map_or(first - 1, |record| record.number);
        let fitting = records.iter().filter(|record| filter.fits(record)).map(line);
        for line in missed.into_iter().chain(fitting) {
            if sender.send(Ok(Bytes::from(line + "\n"))).await.is_err() {
                return;
            }
        }
    }
}

fn line(record: &Record) -> String {
    json!(record).to_string()
}
