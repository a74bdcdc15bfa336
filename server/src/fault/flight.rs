//! Conditional writes under way, by key: what "under contention" means.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

use crate::names::{BucketName, Key};
use crate::route::Target;

type Counts = Mutex<HashMap<(BucketName, Key), u32>>;

/// The conditional writes of one server.
#[derive(Debug, Default)]
pub(super) struct Flights(Arc<Counts>);

/// One of them; it is under way until this is dropped.
pub(crate) struct InFlight {
    counts: Arc<Counts>,
    place: (BucketName, Key),
    contended: bool,
}

impl Flights {
    /// Counts a request that has a condition; `None` for any other.
    pub(super) fn enter(&self, target: &Target, headers: &HeaderMap) -> Option<InFlight> {
        let conditional = headers.contains_key("if-match") || headers.contains_key("if-none-match");
        let Target::Object(bucket, key) = target else { return None };
        if !conditional {
            return None;
        }
        let place = (bucket.clone(), key.clone());
        let mut counts = self.0.lock();
        let count = counts.entry(place.clone()).or_insert(0);
        *count += 1;
        Some(InFlight { counts: self.0.clone(), place, contended: *count > 1 })
    }
}

impl InFlight {
    /// Whether another one of the same key was under way when this one came.
    pub(super) fn is_contended(&self) -> bool {
        self.contended
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_and_the_second_is_not() {
        let flights = Flights::default();
        let target =
            |key: &str| Target::Object(BucketName::new("data").unwrap(), Key::new(key.into()).unwrap());
        let mut headers = HeaderMap::new();
        assert!(flights.enter(&target("a"), &headers).is_none());
        headers.insert("if-none-match", "*".parse().unwrap());
        let first = flights.enter(&target("a"), &headers).unwrap();
        let second = flights.enter(&target("a"), &headers).unwrap();
        let other = flights.enter(&target("b"), &headers).unwrap();
        assert_eq!([&first, &second, &other].map(InFlight::is_contended), [false, true, false]);
        drop((first, second));
        assert!(!flights.enter(&target("a"), &headers).unwrap().is_contended());
    }
}
