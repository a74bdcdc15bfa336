//! Conditional writes under way, by key: what "under contention" means.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

type Counts = Mutex<HashMap<(String, String), u32>>;

/// The conditional writes of one server.
#[derive(Debug, Default)]
pub(super) struct Flights(Arc<Counts>);

/// One of them; it is under way until this is dropped.
pub(crate) struct InFlight {
    counts: Arc<Counts>,
    place: (String, String),
    contended: bool,
}

impl Flights {
    /// Counts a request that has a condition; `None` for any other.
    pub(super) fn enter(
        &self,
        (bucket, key): (Option<&str>, Option<&str>),
        headers: &HeaderMap,
    ) -> Option<InFlight> {
        let conditional = headers.contains_key("if-match") || headers.contains_key("if-none-match");
        if !conditional {
            return None;
        }
        let place = (bucket?.to_owned(), key?.to_owned());
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
        let enter = |key, headers: &_| flights.enter((Some("data"), Some(key)), headers);
        let mut headers = HeaderMap::new();
        assert!(enter("a", &headers).is_none());
        headers.insert("if-none-match", "*".parse().unwrap());
        let first = enter("a", &headers).unwrap();
        let second = enter("a", &headers).unwrap();
        let other = enter("b", &headers).unwrap();
        assert_eq!([&first, &second, &other].map(InFlight::is_contended), [false, true, false]);
        drop((first, second));
        assert!(!enter("a", &headers).unwrap().is_contended());
    }
}
