//! Store, clock and ids: the only door to the outside. Waiting and time spans are tokio's, which tests pause.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::ids::{Nonce, StreamId, WriterId};
use crate::store::Store;

/// Wall-clock time, for what is written down; nothing is decided by it alone.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// Random identities and jitter from one seed: the same seed gives the same trace.
#[derive(Debug)]
pub struct Ids(Mutex<fastrand::Rng>);

impl Ids {
    /// From the harness's seed: of the system's randomness in a process, fixed in a test.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    fn sixteen(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.0.lock().fill(&mut bytes);
        bytes
    }

    /// The identity of one write.
    pub fn nonce(&self) -> Nonce {
        Nonce::from_bytes(self.sixteen())
    }

    /// The identity of a new stream.
    pub fn stream_id(&self) -> StreamId {
        StreamId::from_bytes(self.sixteen())
    }

    /// The identity of a process's life.
    pub fn writer_id(&self) -> WriterId {
        WriterId::from_bytes(self.sixteen())
    }

    /// A number below `limit`, which is at least 1: jitter of waits.
    pub fn below(&self, limit: u64) -> u64 {
        self.0.lock().u64(..limit)
    }
}

/// What a sink runs in.
#[derive(Clone, Debug)]
pub struct Env {
    /// The bucket.
    pub store: Arc<dyn Store>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Identities and jitter.
    pub ids: Arc<Ids>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_identities() {
        let draw = |seed| {
            let ids = Ids::seeded(seed);
            (ids.nonce(), ids.stream_id(), ids.writer_id(), ids.below(1000))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
