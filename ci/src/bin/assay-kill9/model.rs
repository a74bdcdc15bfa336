//! What each key must hold after a kill. Pure.

use bytes::Bytes;
use std::collections::BTreeMap;

/// One object's content, made again from a few numbers instead of being kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Seed of its bytes; no two writes share one.
    pub seed: u64,
    /// Length in bytes.
    pub length: usize,
}

impl Content {
    /// The bytes.
    pub fn bytes(self) -> Bytes {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut bytes = vec![0; self.length];
        random.fill(&mut bytes);
        bytes.into()
    }
}

/// The state of one key: an object, or none.
pub type State = Option<Content>;

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The last write or delete that the server answered with success.
    pub acknowledged: State,
    /// A write or delete that was sent and not answered: it may have happened, wholly, or not at all.
    pub pending: Option<State>,
}

/// What one writer knows of its own keys; no other writer touches them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    keys: BTreeMap<String, Known>,
}

impl Model {
    /// Notes that a write or delete is about to be sent.
    pub fn sends(&mut self, key: &str, state: State) {
        self.keys.entry(key.to_owned()).or_default().pending = Some(state);
    }

    /// Notes that what was sent last was answered with success.
    pub fn acknowledged(&mut self, key: &str) {
        let known = self.keys.entry(key.to_owned()).or_default();
        if let Some(state) = known.pending.take() {
            known.acknowledged = state;
        }
    }

    /// What is known of a key.
    pub fn of(&self, key: &str) -> Known {
        self.keys.get(key).copied().unwrap_or_default()
    }

    /// Every key that was ever written.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Keys whose last write was not answered.
    pub fn pending(&self) -> usize {
        self.keys.values().filter(|known| known.pending.is_some()).count()
    }

    /// Judges what a key holds after a restart, and takes it as the truth from then on.
    ///
    /// # Errors
    /// Says what was lost, torn or came from nowhere.
    pub fn judge(&mut self, key: &str, found: Option<&Bytes>) -> Result<(), String> {
        let known = self.of(key);
        let allowed = [Some(known.acknowledged), known.pending];
        let same = |state: &State| match (state, found) {
            (None, None) => true,
            (Some(content), Some(found)) => content.length == found.len() && content.bytes() == *found,
            _ => false,
        };
        let Some(state) = allowed.into_iter().flatten().find(same) else {
            let found = found.map_or_else(|| "nothing".to_owned(), |found| format!("{} bytes", found.len()));
            return Err(format!("{key}: found {found}, which is not {allowed:?}"));
        };
        self.keys.insert(key.to_owned(), Known { acknowledged: state, pending: None });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Content = Content { seed: 1, length: 10 };
    const NEW: Content = Content { seed: 2, length: 10 };

    fn model(pending: Option<State>) -> Model {
        let mut model = Model::default();
        model.sends("k", Some(OLD));
        model.acknowledged("k");
        if let Some(state) = pending {
            model.sends("k", state);
        }
        model
    }

    #[test]
    fn an_acknowledged_write_must_be_there_and_whole() {
        assert!(model(None).judge("k", Some(&OLD.bytes())).is_ok());
        assert!(model(None).judge("k", None).unwrap_err().contains("found nothing"));
        assert!(model(None).judge("k", Some(&OLD.bytes().slice(..9))).is_err(), "half there");
        assert!(model(None).judge("k", Some(&NEW.bytes())).is_err(), "another's bytes");
        assert!(Model::default().judge("k", Some(&OLD.bytes())).is_err(), "from nowhere");
    }

    #[test]
    fn a_pending_write_is_there_or_not() {
        for found in [OLD, NEW] {
            let mut model = model(Some(Some(NEW)));
            assert!(model.judge("k", Some(&found.bytes())).is_ok());
            assert_eq!(model.of("k"), Known { acknowledged: Some(found), pending: None });
        }
        assert!(model(Some(Some(NEW))).judge("k", None).is_err());
        assert!(model(Some(None)).judge("k", None).is_ok(), "a pending delete may have happened");
        assert!(model(Some(None)).judge("k", Some(&OLD.bytes())).is_ok());
    }
}
