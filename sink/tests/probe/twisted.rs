//! A trickster that one embedded server cannot play: two endpoints of a bucket that each decide alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sinks::model::key::PipelineRoot;
use sinks::probe::{Clients, OneStore, Probe, ProbeSettings, Verdict};
use sinks::store::{
    BodyGate, Condition, ETag, MemoryStore, Object, ObjectMeta, Outcome, Page, Pending, Store,
};

use super::{System, env};

/// One endpoint of a bucket: it decides by its own state, and tells the other a moment later.
#[derive(Debug)]
struct Alone {
    store: Arc<MemoryStore>,
    other: Arc<MemoryStore>,
}

impl Store for Alone {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(async move {
            let outcome = self.store.put(key, bytes.clone(), condition, metadata).await;
            if let Outcome::Done(_) = &outcome {
                tokio::task::yield_now().await;
                self.other.put(key, bytes, Condition::None, metadata).await;
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
            self.other.delete(key, None).await;
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

/// Two endpoints of one bucket, in turns.
#[derive(Debug)]
struct TwoEndpoints([Arc<Alone>; 2], AtomicUsize);

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
    let ends =
        [(one.clone(), two.clone()), (two, one)].map(|(store, other)| Arc::new(Alone { store, other }));
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
