//! One namespace for each access key: tests that share a server do not meet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::Store;

/// Stores at one time: far more than a test suite has workers, and few enough that a client that makes keys up
/// can't fill the memory with empty ones.
const MAX_TENANTS: usize = 1024;

/// The stores of the access keys other than the configured one. They live in memory.
#[derive(Default)]
pub(crate) struct Tenants(Mutex<HashMap<String, Arc<Store>>>);

impl Tenants {
    /// The store of a key that was used before.
    pub(crate) fn get(&self, access_key: &str) -> Option<Arc<Store>> {
        self.0.lock().get(access_key).cloned()
    }

    /// Keeps a new store, or gives back the one that another request brought first; `None` where there is no room.
    pub(crate) fn keep(&self, access_key: &str, store: Arc<Store>) -> Option<Arc<Store>> {
        let mut stores = self.0.lock();
        if stores.len() >= MAX_TENANTS && !stores.contains_key(access_key) {
            return None;
        }
        Some(stores.entry(access_key.to_owned()).or_insert(store).clone())
    }

    /// Drops a key's store, or all of them.
    pub(crate) fn forget(&self, access_key: Option<&str>) {
        let mut stores = self.0.lock();
        match access_key {
            Some(access_key) => drop(stores.remove(access_key)),
            None => stores.clear(),
        }
    }
}
