//! Tricksters that the embedded server does not play: conditions looked at in part, for a while, or by one endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sinks::model::key::PipelineRoot;
use sinks::probe::{Clients, OneStore, Probe, ProbeSettings, Verdict};
use sinks::store::{
    BodyGate, Condition, ETag, MemoryStore, Object, ObjectMeta, Outcome, Page, Pending, Store,
};

use super::{System, env};

/// How a store twists what it is asked.
#[derive(Debug)]
enum Twist {
    /// A write of the bytes that are there is done, whatever its condition.
    SameBytes,
    /// Only so many characters of an ETag are compared, its quote among them.
    Prefix(usize),
    /// Conditions count for so many writes and for no further one.
    First(usize),
    /// Whoever stands here decides by its own state, and tells the other a moment later.
    Alone(Arc<MemoryStore>),
}

#[derive(Debug)]
struct Twisted {
    store: Arc<MemoryStore>,
    twist: Twist,
    writes: AtomicUsize,
}

impl Twisted {
    fn new(store: Arc<MemoryStore>, twist: Twist) -> Arc<Self> {
        Arc::new(Self { store, twist, writes: AtomicUsize::new(0) })
    }

    /// The condition that is decided in place of the one asked.
    async fn twisted(&self, key: &str, bytes: &Bytes, condition: Condition) -> Condition {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let current = match self.store.get(key).await {
            Outcome::Done(object) => Some(object),
            _ => None,
        };
        match (&self.twist, current, condition) {
            (Twist::SameBytes, Some(object), _) if object.bytes == *bytes => Condition::None,
            (Twist::Prefix(chars), Some(object), Condition::Matches(wanted))
                if object.meta.etag.0.get(..*chars) == wanted.0.get(..*chars) =>
            {
                Condition::None
            }
            (Twist::First(writes), ..) if number >= *writes => Condition::None,
            (.., condition) => condition,
        }
    }
}

impl Store for Twisted {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            let condition = self.twisted(key, &bytes, condition).await;
            let outcome = self.store.put(key, bytes.clone(), condition, metadata).await;
            if let (Twist::Alone(other), Outcome::Done(_)) = (&self.twist, &outcome) {
                tokio::task::yield_now().await;
                other.put(key, bytes, Condition::None, metadata).await;
            }
            outcome
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.store.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.store.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(async move {
            if let Twist::Alone(other) = &self.twist {
                other.delete(key, None).await;
            }
            self.store.delete(key, only).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.store.list(prefix, token, limit)
    }
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Arc::new(System)))
}

/// The checks that refuse the store behind `clients`; none of its keys may be left.
async fn refusing(store: Arc<dyn Store>, clients: &dyn Clients) -> Vec<u8> {
    let (env, settings) = (env(store, 7), ProbeSettings::default());
    let root = PipelineRoot::new("", "orders", "jsonl").expect("a root");
    let report =
        Probe { env: &env, clients, root: &root, settings: &settings }.run(std::future::pending()).await;
    assert!(report.left.is_empty(), "{report}");
    match &report.verdict {
        Verdict::Refused(checks) => checks.clone(),
        _ => panic!("it was to be refused\n{report}"),
    }
}

#[tokio::test]
async fn conditions_that_are_looked_at_in_part_or_for_a_while() {
    for (twist, expected) in [
        (Twist::SameBytes, vec![3, 10]),
        (Twist::Prefix(1), vec![9, 10, 11, 15, 17, 18, 20]),
        (Twist::Prefix(9), vec![11]),
        (Twist::First(400), vec![20]),
    ] {
        let name = format!("{twist:?}");
        let store = Twisted::new(memory(), twist);
        assert_eq!(refusing(store.clone(), &OneStore(store)).await, expected, "{name}");
    }
}

/// Two endpoints of one bucket, in turns.
#[derive(Debug)]
struct TwoEndpoints([Arc<Twisted>; 2], AtomicUsize);

impl Clients for TwoEndpoints {
    fn fresh(&self) -> Arc<dyn Store> {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % 2].clone()
    }

    fn gated(&self, gate: Arc<BodyGate>) -> Arc<dyn Store> {
        OneStore(self.0[0].clone()).gated(gate)
    }

    fn places(&self) -> usize {
        2
    }
}

#[tokio::test]
async fn conditions_that_hold_within_one_endpoint_only() {
    let (one, two) = (memory(), memory());
    let ends = [Twisted::new(one.clone(), Twist::Alone(two.clone())), Twisted::new(two, Twist::Alone(one))];
    // Through one endpoint all is well.
    let alone = OneStore(ends[0].clone());
    let (settings, root) =
        (ProbeSettings::default(), PipelineRoot::new("", "orders", "jsonl").expect("a root"));
    let env = env(ends[0].clone(), 7);
    let probe = Probe { env: &env, clients: &alone, root: &root, settings: &settings };
    super::ready(&probe.run(std::future::pending()).await);
    let store = ends[0].clone();
    let refusing = refusing(store, &TwoEndpoints(ends, AtomicUsize::new(0))).await;
    assert!(refusing.contains(&16) && refusing.contains(&17), "{refusing:?}");
}
