//! The changing state of a server as a whole: whose store, which faults, and back to the start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Code, S3Error};
use crate::fault::{Rule, RuleError, TooMany};
use crate::service::Service;
use crate::store::memory::Memory;
use crate::store::model::{Bucket, Versioning};
use crate::store::{Store, StoreError};

/// Why a server's state is not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    TooMany(#[from] TooMany),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("what is stored is the upstream's: it can be neither kept nor replaced from here")]
    OfUpstream,
    #[error(
        "fault {0:?} shows how things were, and each access key has things of its own: name one, as access-key=KEY"
    )]
    NobodysPast(String),
    #[error("nobody has used access key {0:?} yet, so there is nothing of it that could be stale")]
    NoPast(String),
    #[error("no room for the store of access key {0:?}: use fewer keys, or reset the server")]
    TooManyTenants(String),
}

impl From<StateError> for S3Error {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Store(error) => error.into(),
            other => S3Error::new(Code::ServiceUnavailable).message(other.to_string()),
        }
    }
}

impl Service {
    /// The store of whoever signed: the server's, unless each access key has its own.
    pub(crate) async fn store_of(&self, access_key: Option<&str>) -> Result<Arc<Store>, StateError> {
        let Some((tenants, access_key)) = self.tenant(access_key) else { return Ok(self.store.clone()) };
        if let Some(store) = tenants.get(access_key) {
            return Ok(store);
        }
        let store = Store::open(Arc::new(Memory::new()), None).await?;
        self.create_first_buckets(&store).await?;
        tenants.keep(access_key, store).ok_or_else(|| StateError::TooManyTenants(access_key.to_owned()))
    }

    /// The key, where it has a store of its own.
    fn tenant<'a>(&self, access_key: Option<&'a str>) -> Option<(&crate::tenant::Tenants, &'a str)> {
        let access_key = access_key.filter(|key| *key != self.settings.access_key)?;
        Some((self.tenants.as_ref()?, access_key))
    }

    /// Sets faults, all or none; with `replace` those of before go in the same moment.
    pub(crate) fn set_faults(&self, rules: Vec<Rule>, replace: bool) -> Result<Vec<u64>, StateError> {
        let with_past = |rule: Rule| {
            if self.upstream.is_some() {
                rule.check_for_upstream()?;
            }
            let past = if rule.needs_frozen() { Some(self.past_of(&rule)?) } else { None };
            Ok::<_, StateError>((rule, past))
        };
        let new = rules.into_iter().map(with_past).collect::<Result<_, _>>()?;
        Ok(self.faults.set(new, replace, (self.settings.clock)())?)
    }

    /// # Errors
    /// In front of an upstream, which has what is stored.
    pub(crate) fn has_store(&self) -> Result<(), StateError> {
        if self.upstream.is_some() { Err(StateError::OfUpstream) } else { Ok(()) }
    }

    /// The state as it is now, of whom the rule is about.
    fn past_of(&self, rule: &Rule) -> Result<Arc<Store>, StateError> {
        if self.tenants.is_some() && rule.access_key().is_none() {
            return Err(StateError::NobodysPast(rule.name().to_owned()));
        }
        let store = match self.tenant(rule.access_key()) {
            None => self.store.clone(),
            Some((tenants, key)) => tenants.get(key).ok_or_else(|| StateError::NoPast(key.to_owned()))?,
        };
        Ok(store.frozen()?)
    }

    pub(crate) fn new_bucket(&self) -> Bucket {
        let created = (self.settings.clock)().whole_second();
        let region = self.settings.region.clone();
        Bucket { created, region, versioning: Versioning::Off, tags: Vec::new(), lifecycle: None }
    }

    /// Makes the buckets that are there from the start.
    pub(crate) async fn create_first_buckets(&self, store: &Arc<Store>) -> Result<(), StoreError> {
        for bucket in &self.settings.buckets {
            match store.create_bucket(bucket, self.new_bucket()).await {
                Ok(()) | Err(StoreError::BucketExists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Empties one access key's store, and makes the first buckets in it.
    pub(crate) async fn empty(&self, access_key: &str) -> Result<(), StateError> {
        if let Some((tenants, access_key)) = self.tenant(Some(access_key)) {
            tenants.forget(Some(access_key));
            return Ok(());
        }
        self.store.restore(None).await?;
        Ok(self.create_first_buckets(&self.store).await?)
    }

    /// Makes everything as it was at the start: what is stored, faults and their draws, outage, clock and journal.
    /// Snapshots stay, and so does the memory of faults that never fired, but for those that are set anew.
    pub(crate) async fn reset(&self) -> Result<(), StateError> {
        self.outage.lift();
        self.clock_offset_ms.store(0, Ordering::Relaxed);
        self.faults.clear();
        self.chaos.clear();
        self.deviant.forget();
        if let Some(tenants) = &self.tenants {
            tenants.forget(None);
        }
        self.empty(&self.settings.access_key).await?;
        self.faults.reseed(self.seed);
        self.faults.another_chance(&self.settings.first_faults);
        self.set_faults(self.settings.first_faults.clone(), true)?;
        self.journal.clear();
        Ok(())
    }
}
