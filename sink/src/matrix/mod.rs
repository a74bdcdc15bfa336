//! The live matrix: what a durable sink must stand on a given bucket, scenario by scenario.
//!
//! A scenario is a function over a [`Rig`]: a bucket, and a server in front of it that misbehaves on request. Who
//! brings the rig decides what is tested: the embedded server itself, or a provider behind it. The module
//! `s3_server_it` (operations guide, "Rollout") and the certificate of a provider bring one each.

mod combined;
mod compaction;
mod data;
mod expiry;
mod fencing;
mod folds;
mod ground;
mod keys;
mod orphans;
mod probe;
mod process;
pub mod provider;
mod publish;
mod rig;
mod rollups;
mod tampered;
mod wire;
pub mod writer;

use std::fmt;
use std::time::Duration;

pub use self::folds::{Fold, folds};
pub use self::rig::{Deviant, Rig, StartDeviant, WriterCommand};

use self::ground::Ground;
use crate::store::Pending;

/// What a scenario asks of its rig beyond a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A store that confirms and forgets: only a server that keeps the bucket itself.
    OwnStore,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnStore => f.write_str("a store that confirms and forgets"),
        }
    }
}

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Area and number.
    pub id: &'static str,
    /// Its name, which is that of its test.
    pub name: &'static str,
    /// What it shows, as one sentence.
    pub proves: &'static str,
    /// What it asks of the rig.
    pub needs: &'static [Need],
    run: for<'a> fn(&'a Ground) -> Pending<'a, Checked>,
}

/// What a scenario ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stands.
    Pass,
    /// It does not.
    Fail(Failure),
    /// The rig has not what it needs.
    Skip(Need),
    /// It was cut off at the limit.
    OutOfTime,
}

/// Why a scenario failed: what was expected, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl Failure {
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type Checked<T = ()> = Result<T, Failure>;

/// Fails the scenario unless `found` is what is `wanted`.
fn equal<T: fmt::Debug + PartialEq>(what: &str, found: T, wanted: T) -> Checked {
    if found == wanted {
        return Ok(());
    }
    Err(Failure(format!("{what}: expected {wanted:?}, got {found:?}")))
}

/// Every scenario, in the order of areas.
pub fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    probe::SCENARIOS
        .iter()
        .chain(publish::SCENARIOS)
        .chain(wire::SCENARIOS)
        .chain(process::SCENARIOS)
        .chain(folds::SCENARIOS)
        .chain(tampered::SCENARIOS)
        .chain(fencing::SCENARIOS)
        .chain(keys::SCENARIOS)
        .chain(rollups::SCENARIOS)
        .chain(compaction::SCENARIOS)
        .chain(expiry::SCENARIOS)
        .chain(orphans::SCENARIOS)
        .chain(combined::SCENARIOS)
}

impl Scenario {
    /// Runs it under a prefix of its own for at most `limit`, and leaves nothing: neither objects, nor rules, nor
    /// files.
    pub async fn run(&self, rig: &Rig, limit: Duration) -> Ending {
        if let Some(need) = self.needs.iter().find(|_| !rig.own_store) {
            return Ending::Skip(*need);
        }
        let ground = match Ground::new(rig, self.id) {
            Ok(ground) => ground,
            Err(failure) => return Ending::Fail(failure),
        };
        let ended = tokio::time::timeout(limit, (self.run)(&ground)).await;
        let healed = rig.heal().await;
        let cleared = ground.clear().await;
        match ended.map(|ended| ended.and(healed).and(cleared)) {
            Ok(Ok(())) => Ending::Pass,
            Ok(Err(failure)) => Ending::Fail(failure),
            Err(_) => Ending::OutOfTime,
        }
    }
}
