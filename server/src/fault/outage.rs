//! The whole store away.

use tokio::sync::watch;

use super::effect::Loss;
use super::plan::Stop;
use crate::error::{Code, S3Error};
use crate::instant::Instant;

/// How a store is away. Control paths are answered as long as connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outage {
    /// Nothing listens: connections are refused and those that are open are reset.
    Refuse,
    /// Connections are taken and nothing is ever answered.
    Hang,
    /// Every request gets 503 ServiceUnavailable.
    Unavailable,
}

impl Outage {
    /// Reads `refuse`, `hang` or `unavailable`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "refuse" => Self::Refuse,
            "hang" => Self::Hang,
            "unavailable" => Self::Unavailable,
            _ => return None,
        })
    }
}

/// The outage of one server, if there is one. It can be watched, since a listener must act on it.
#[derive(Debug)]
pub(crate) struct Outages(watch::Sender<Option<(Outage, Option<Instant>)>>);

impl Default for Outages {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Outages {
    /// Begins an outage, until it is lifted or the time has come.
    pub(crate) fn begin(&self, outage: Outage, until: Option<Instant>) {
        self.0.send_replace(Some((outage, until)));
    }

    pub(crate) fn lift(&self) {
        self.0.send_replace(None);
    }

    /// The outage at `now`; one whose time has come lifts itself.
    pub(crate) fn at(&self, now: Instant) -> Option<Outage> {
        let (outage, until) = (*self.0.borrow())?;
        if until.is_some_and(|until| now >= until) {
            self.lift();
            return None;
        }
        Some(outage)
    }

    /// The outage at `now`, and how many milliseconds it goes on where it has an end.
    pub(crate) fn left(&self, now: Instant) -> Option<(Outage, Option<i64>)> {
        let outage = self.at(now)?;
        let until = (*self.0.borrow()).and_then(|(_, until)| until);
        Some((outage, until.map(|until| until.epoch_ms() - now.epoch_ms())))
    }

    /// # Errors
    /// During an outage, what a request gets.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Stop> {
        match self.at(now) {
            None => Ok(()),
            Some(Outage::Refuse) => Err(Stop::Lost(Loss::Reset)),
            Some(Outage::Hang) => Err(Stop::Lost(Loss::Never)),
            Some(Outage::Unavailable) => Err(Stop::Error(S3Error::new(Code::ServiceUnavailable))),
        }
    }

    /// Tells when the outage changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<(Outage, Option<Instant>)>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_ends_by_itself_or_is_lifted() {
        let outages = Outages::default();
        let at = Instant::from_epoch_ms;
        outages.begin(Outage::Unavailable, Some(at(100)));
        assert_eq!((outages.at(at(99)), outages.at(at(100))), (Some(Outage::Unavailable), None));
        outages.begin(Outage::Hang, None);
        assert!(matches!(outages.check(at(0)), Err(Stop::Lost(Loss::Never))));
        outages.lift();
        assert!(outages.check(at(0)).is_ok());
    }
}
