//! Where a probe's checks work: a directory of its own, clients that count, and the clearing away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::model::ids::Nonce;
use crate::store::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Store};

/// Keys of earlier probes that one sweep looks at: a bound, since anybody may have written there.
const SWEPT_PAGES: usize = 50;

/// Keys of a page where nothing is measured.
const PAGE: u16 = 1000;

/// Tries for the removal of one key.
const REMOVALS: usize = 3;

/// What all clients of a probe write down.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    requests: AtomicU64,
    written: Mutex<BTreeSet<String>>,
}

impl Ledger {
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// A client whose requests are counted, and whose written keys are known before they are written.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) store: Arc<dyn Store>,
    pub(super) ledger: Arc<Ledger>,
}

impl Store for Counted {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        self.ledger.count();
        self.ledger.written.lock().insert(key.to_owned());
        self.store.put(key, bytes, condition, metadata)
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        self.ledger.count();
        self.store.get(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        self.ledger.count();
        self.store.head(key)
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        self.ledger.count();
        self.store.delete(key, only)
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        self.ledger.count();
        self.store.list(prefix, token, limit)
    }
}

/// Removes everything under `directory` that was written or is listed, and returns what is still there.
pub(super) async fn clear(store: &Counted, directory: &str) -> Vec<String> {
    let mut keys = store.ledger.written.lock().clone();
    // A store that lists badly is why the written keys are known as well.
    let (listed, _) = listed(store, directory, SWEPT_PAGES).await;
    keys.extend(listed.into_iter().map(|object| object.key).filter(|key| key.starts_with(directory)));
    let mut left = Vec::new();
    for key in keys {
        if !removed(store, &key).await {
            tracing::warn!(
                key,
                "a key of the probe could not be removed; a probe of an hour from now tries again"
            );
            left.push(key);
        }
    }
    left
}

/// Deletes a key and makes sure that it is gone.
async fn removed(store: &Counted, key: &str) -> bool {
    for _ in 0..REMOVALS {
        store.delete(key, None).await;
        if store.head(key).await == Outcome::Missing {
            return true;
        }
    }
    false
}

/// The objects under a prefix, and whether that is all of them.
async fn listed(store: &Counted, prefix: &str, pages: usize) -> (Vec<ObjectMeta>, bool) {
    let (mut objects, mut token) = (Vec::new(), None);
    for _ in 0..pages {
        match store.list(prefix, token.as_deref(), PAGE).await {
            Outcome::Done(page) => {
                objects.extend(page.objects);
                token = page.next;
            }
            other => {
                tracing::debug!(prefix, ?other, "no page of a listing");
                return (objects, false);
            }
        }
        if token.is_none() {
            return (objects, true);
        }
    }
    (objects, false)
}

/// Removes the directories of earlier probes under `parent` whose newest object is older than `age_ms` by the
/// store's clock. Anything that is no directory of a probe stays; so does one that a listing did not show whole.
pub(super) async fn sweep(store: &Counted, parent: &str, store_now_ms: u64, age_ms: u64) -> Vec<String> {
    let (objects, complete) = listed(store, parent, SWEPT_PAGES).await;
    let mut directories: BTreeMap<String, Vec<ObjectMeta>> = BTreeMap::new();
    for object in objects {
        let Some((name, _)) = object.key.strip_prefix(parent).and_then(|rest| rest.split_once('/')) else {
            continue;
        };
        if name.parse::<Nonce>().is_ok() {
            directories.entry(name.to_owned()).or_default().push(object);
        }
    }
    if !complete {
        directories.pop_last();
    }
    let mut swept = Vec::new();
    for (name, objects) in directories {
        let newest = objects.iter().map(|object| object.last_modified_ms).max().unwrap_or(u64::MAX);
        if newest.saturating_add(age_ms) >= store_now_ms {
            continue;
        }
        for object in objects {
            removed(store, &object.key).await;
        }
        tracing::info!(directory = name, "removed what an earlier probe left");
        swept.push(format!("{parent}{name}/"));
    }
    swept
}
