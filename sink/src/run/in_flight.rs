//! Which keys this process is writing and which it is deleting: never one key both.
//!
//! Whoever is about to write an object that HEAD will reach holds its key until the swap is known to be applied.
//! Whoever wants to delete an unreachable object takes its key first and looks at HEAD after: a swap that reaches
//! the object is then either over, and HEAD shows it, or it comes from a writer that waits for the key and writes
//! the object anew. No lock is held while a request is under way; the keys are the protocol.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The keys that a process works on. A clone is the same set.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<State>);

#[derive(Debug, Default)]
struct State {
    keys: Mutex<HashMap<String, Use>>,
    freed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Held by so many writers.
    Writing(usize),
    /// About to be deleted, or being deleted.
    Deleting,
    /// A delete was sent and not answered: it may take effect until then.
    InDoubt(Instant),
}

impl InFlight {
    /// Holds keys that are about to be written, after whatever deletes them is over.
    pub async fn hold(&self, keys: Vec<String>) -> Held {
        let mut held = Held { set: self.clone(), keys: Vec::new(), pinned: false };
        // Those that are free first: what waits for one key protects all others meanwhile.
        let (free, busy): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|key| matches!(self.write(key), Use::Writing(_)));
        held.keys = free;
        for key in busy {
            self.hold_one(&key).await;
            held.keys.push(key);
        }
        held
    }

    async fn hold_one(&self, key: &str) {
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // What is freed between the look and the wait is heard of too.
            freed.as_mut().enable();
            match self.write(key) {
                Use::Writing(_) => return,
                Use::Deleting => freed.await,
                Use::InDoubt(until) => tokio::select! {
                    () = freed => {}
                    () = tokio::time::sleep_until(until) => {}
                },
            }
        }
    }

    /// One more writer, unless the key is being deleted.
    fn write(&self, key: &str) -> Use {
        let mut keys = self.0.keys.lock();
        let next = match keys.get(key) {
            None => Use::Writing(1),
            Some(Use::Writing(writers)) => Use::Writing(writers + 1),
            Some(Use::InDoubt(until)) if *until <= Instant::now() => Use::Writing(1),
            Some(busy) => return *busy,
        };
        keys.insert(key.to_owned(), next);
        next
    }

    /// Takes a key that is about to be deleted; nothing if it is written, or deleted, just now.
    #[must_use]
    pub fn delete(&self, key: &str) -> Option<Deleting> {
        let mut keys = self.0.keys.lock();
        match keys.get(key) {
            Some(Use::Writing(_) | Use::Deleting) => return None,
            Some(Use::InDoubt(until)) if *until > Instant::now() => return None,
            _ => {}
        }
        keys.insert(key.to_owned(), Use::Deleting);
        Some(Deleting { set: self.clone(), key: key.to_owned(), in_doubt_until: None })
    }

    /// Keys that are held, being deleted, or in doubt.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.keys.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keys that are being written. Dropping it lets them go, unless it is pinned.
#[derive(Debug)]
pub struct Held {
    set: InFlight,
    keys: Vec<String>,
    pinned: bool,
}

impl Held {
    /// From here on HEAD may come to reach the keys without this process hearing of it: they stay held, whatever
    /// happens to this value, until [`Held::release`].
    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// The swap is known to be applied, or to be impossible.
    pub fn release(mut self) {
        self.pinned = false;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.pinned {
            return;
        }
        let mut keys = self.set.0.keys.lock();
        for key in &self.keys {
            match keys.get_mut(key) {
                Some(Use::Writing(writers)) if *writers > 1 => *writers -= 1,
                _ => drop(keys.remove(key)),
            }
        }
    }
}

/// A key that is about to be deleted. Dropping it lets writers have it, at once, or when a delete that was sent
/// and not answered can't take effect any more.
#[derive(Debug)]
pub struct Deleting {
    set: InFlight,
    key: String,
    in_doubt_until: Option<Instant>,
}

impl Deleting {
    /// A delete is about to be sent, which takes effect by `until` or never.
    pub fn sent(&mut self, until: Instant) {
        self.in_doubt_until = Some(until);
    }

    /// The delete was answered.
    pub fn answered(&mut self) {
        self.in_doubt_until = None;
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        let mut keys = self.set.0.keys.lock();
        match self.in_doubt_until {
            Some(until) => drop(keys.insert(self.key.clone(), Use::InDoubt(until))),
            None => drop(keys.remove(&self.key)),
        }
        self.set.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn hold(set: &InFlight, key: &str) -> Held {
        set.hold(vec![key.to_owned()]).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_written_is_not_deleted() {
        let set = InFlight::default();
        let (one, two) = (hold(&set, "k").await, hold(&set, "k").await);
        assert!(set.delete("k").is_none() && set.delete("other").is_some());
        drop(one);
        assert!(set.delete("k").is_none());
        two.release();
        assert!(set.delete("k").is_some());
        assert!(set.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_pinned_stays_held_until_it_is_released() {
        let set = InFlight::default();
        let mut lost = hold(&set, "k").await;
        lost.pin();
        drop(lost);
        assert!(set.delete("k").is_none());
        let mut known = hold(&set, "other").await;
        known.pin();
        known.release();
        assert!(set.delete("other").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_a_delete() {
        let set = InFlight::default();
        let mut deleting = set.delete("k").unwrap();
        assert!(set.delete("k").is_none());
        deleting.sent(Instant::now() + Duration::from_secs(60));
        let writer = tokio::spawn({
            let set = set.clone();
            async move { hold(&set, "k").await }
        });
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!writer.is_finished());
        let answered = Instant::now();
        deleting.answered();
        drop(deleting);
        drop(writer.await.unwrap());
        assert_eq!(answered.elapsed(), Duration::ZERO);
        assert!(set.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_without_an_answer_is_waited_out() {
        let set = InFlight::default();
        let mut deleting = set.delete("k").unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        deleting.sent(until);
        drop(deleting);
        assert!(set.delete("k").is_none());
        drop(hold(&set, "k").await);
        assert_eq!(Instant::now().duration_since(until).as_millis() / 10, 0);
        assert!(set.delete("k").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_gives_up_waiting_holds_nothing() {
        let set = InFlight::default();
        let deleting = set.delete("second").unwrap();
        let keys = ["first", "second"].map(str::to_owned).to_vec();
        let waited = tokio::time::timeout(Duration::from_secs(1), set.hold(keys)).await;
        assert!(waited.is_err());
        drop(deleting);
        assert!(set.is_empty());
    }
}
