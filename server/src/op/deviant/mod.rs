//! Requests to a server with deviations: what is changed before an operation, around its condition, and in its
//! answer. Without deviations none of this runs.

mod answer;
mod head;
mod key;
mod list;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use parking_lot::Mutex;

use super::{Answer, dispatch};
use crate::deviation::{Acting, Deviation as D, Moment};
use crate::error::S3Error;
use crate::instant::Instant;
use crate::journal::body_size;
use crate::names::{BucketName, Key, sequence_of};
use crate::precondition::{AsRead, Bent, ReadHeaders, Verb, WriteCondition};
use crate::route::{Address, Operation, Target};
use crate::service::{Call, Service};
use crate::store::{Store, StoreError};
use crate::upstream::Provider;

pub(super) use self::list::list;

/// Connections whose requests are counted; the oldest is forgotten for a new one.
const CONNECTIONS: usize = 1024;

/// What a store was before it was last written to.
struct Past {
    at: Instant,
    of: Arc<Store>,
    before: Arc<Store>,
}

/// What deviations remember from one request to the next.
#[derive(Default)]
pub(crate) struct State {
    /// Requests so far on the latest connections.
    connections: Mutex<VecDeque<(u64, u64)>>,
    past: Mutex<Option<Past>>,
    /// ETags shown so far.
    shown: AtomicU64,
    /// Writes and deletes asked for so far.
    writes: AtomicU64,
}

impl State {
    /// Remembers nothing, but for the connections that go on.
    pub(crate) fn forget(&self) {
        *self.past.lock() = None;
        self.shown.store(0, Ordering::Relaxed);
        self.writes.store(0, Ordering::Relaxed);
    }

    /// Counts a request of this connection, from 1.
    fn count(&self, connection: u64) -> u64 {
        let mut connections = self.connections.lock();
        if let Some((_, count)) = connections.iter_mut().rev().find(|(number, _)| *number == connection) {
            *count += 1;
            return *count;
        }
        if connections.len() == CONNECTIONS {
            connections.pop_front();
        }
        connections.push_back((connection, 1));
        1
    }

    /// Before a write: keeps the state from before it, which costs a copy of the index.
    fn remember(&self, store: &Arc<Store>, now: Instant) -> Result<(), StoreError> {
        *self.past.lock() = Some(Past { at: now, of: store.clone(), before: store.frozen()? });
        Ok(())
    }

    /// What this store was before its last write, if that is not too long ago.
    fn past(&self, store: &Arc<Store>, now: Instant, ms: u64) -> Option<Arc<Store>> {
        let past = self.past.lock();
        let Past { at, of, before } = past.as_ref()?;
        (Arc::ptr_eq(of, store) && is_within(*at, now, ms)).then(|| before.clone())
    }
}

fn is_within(at: Instant, now: Instant, ms: u64) -> bool {
    u64::try_from(now.epoch_ms() - at.epoch_ms()).is_ok_and(|age| age < ms)
}

/// Performs an operation as a server with deviations does.
pub(super) async fn perform(operation: Operation, mut target: Target, call: &mut Call<'_>) -> Answer {
    let acting = call.acting.clone();
    let verb = Verb::of(operation);
    let mut named = "";
    if let Target::Object(_, key) = &mut target {
        *key = call.folded(key.clone())?;
        named = key.as_str();
    }
    let head = bent_head(operation, named, call)?;
    let store = store_of(call, operation)?;
    let (sent, service) = (call.head, call.service);
    let mut bent = call.under(&head);
    bent.store = store;
    let result = match &target {
        Target::Object(bucket, key) => {
            let (bucket, key) = (bucket.clone(), key.clone());
            act(operation, verb, target, &bucket, &key, &mut bent).await
        }
        _ => dispatch(operation, target, &mut bent).await,
    };
    bent_answer(operation, sent, service, &acting, result)
}

/// Whether a deviation can act in front of a provider: on what is asked of it, or on what it answers.
pub(crate) fn needs_no_store(deviation: &D) -> bool {
    head::is_enough(deviation) || answer::is_about(deviation)
}

/// Asks a provider as a server with deviations does, and answers so.
pub(crate) async fn ask(provider: &Provider, operation: Operation, call: &mut Call<'_>) -> Answer {
    let key = Address::parse(call.head, &call.service.settings.domains)?.key;
    let head = bent_head(operation, &key, call)?;
    let (sent, service, acting) = (call.head, call.service, call.acting.clone());
    let result = provider.ask(operation, &mut call.under(&head)).await;
    bent_answer(operation, sent, service, &acting, result)
}

/// The answer as the server shows it.
fn bent_answer(
    operation: Operation,
    sent: &Parts,
    service: &Service,
    acting: &Acting,
    result: Answer,
) -> Answer {
    let (verb, headers, shown) = (Verb::of(operation), &sent.headers, &service.deviant.shown);
    answer::Bending { acting, operation, verb, headers, shown }.bend(result)
}

/// The head as the server takes it.
///
/// # Errors
/// What it refuses by key or head.
fn bent_head(operation: Operation, key: &str, call: &Call<'_>) -> Result<Parts, S3Error> {
    if matches!(operation, Operation::PutObject | Operation::CopyObject | Operation::CreateMultipartUpload) {
        key::check(&call.acting, key)?;
    }
    let mut head = call.head.clone();
    let verb = Verb::of(operation);
    let asked = head::Asked {
        verb,
        writes: call.service.deviant.writes.fetch_add(u64::from(verb.writes()), Ordering::Relaxed),
        size: body_size(&head.headers),
        number: call.connection.map(|connection| call.service.deviant.count(connection)),
        now: call.now,
    };
    head::bend(&call.acting, &asked, &mut head.headers)?;
    Ok(head)
}

/// Performs an operation on an object where doing and answering may differ.
async fn act(
    operation: Operation,
    verb: Verb,
    target: Target,
    bucket: &BucketName,
    key: &Key,
    call: &mut Call<'_>,
) -> Answer {
    let acting = call.acting.clone();
    let has = |deviation| acting.set().has(&deviation);
    let conditional = head::is_conditional(&call.head.headers);
    if verb == Verb::Delete
        && !conditional
        && !call.query.has("versionId")
        && has(D::DeleteAbsent404)
        && let Err(error) = call.store.find(bucket, key, None)
    {
        acting.note(&D::DeleteAbsent404);
        return Err(error.into());
    }
    if verb.writes() && conditional && has(D::RefusedButApplied) {
        let condition = call.condition(bucket, key, verb)?;
        if let Err(refused) = call.store.check(bucket, key, &condition) {
            acting.note(&D::RefusedButApplied);
            let mut head = call.head.clone();
            head::drop_conditions(&mut head.headers);
            dispatch(operation, target, &mut call.under(&head)).await?;
            return Err(refused.into());
        }
    }
    let forgotten = match (verb, conditional) {
        (Verb::Put | Verb::Copy | Verb::Complete | Verb::Delete, true) => Some(D::AcceptedButNotApplied),
        (Verb::Put, false) if call.store.has(bucket, key) => Some(D::OverwriteNotApplied),
        _ => None,
    };
    if forgotten.is_some_and(|deviation| acting.acts(&deviation)) {
        call.store = call.store.forgetting();
    }
    dispatch(operation, target, call).await
}

/// The store that the operation sees: that of some time ago, where lists lag or reads are stale.
fn store_of(call: &Call<'_>, operation: Operation) -> Result<Arc<Store>, StoreError> {
    let lag = |wanted: fn(&D) -> Option<u64>| call.acting.set().iter().find_map(wanted);
    let lists = lag(|deviation| if let D::ListLag(ms) = deviation { Some(*ms) } else { None });
    let reads = lag(|deviation| if let D::StaleReads(ms) = deviation { Some(*ms) } else { None });
    if lists.or(reads).is_none() {
        return Ok(call.store.clone());
    }
    let state = &call.service.deviant;
    let past = match operation {
        Operation::ListObjects | Operation::ListObjectsV2 | Operation::ListObjectVersions => {
            lists.map(|ms| (D::ListLag(ms), ms))
        }
        Operation::GetObject | Operation::HeadObject => reads.map(|ms| (D::StaleReads(ms), ms)),
        _ => {
            if !matches!(call.head.method, http::Method::GET | http::Method::HEAD) {
                state.remember(&call.store, call.now)?;
            }
            None
        }
    };
    let past = past.and_then(|(deviation, ms)| Some((deviation, state.past(&call.store, call.now, ms)?)));
    Ok(match past {
        Some((deviation, store)) => {
            call.acting.note(&deviation);
            store
        }
        None => call.store.clone(),
    })
}

impl Call<'_> {
    /// The condition of a write or delete, and what the server's deviations make of it. Where writes of this
    /// kind race by their heads it is decided here, and holds from then on.
    ///
    /// # Errors
    /// Those of [`WriteCondition::of_write`] and [`WriteCondition::of_delete`].
    pub(super) async fn write_condition(
        &self,
        bucket: &BucketName,
        key: &Key,
        verb: Verb,
    ) -> Result<WriteCondition, S3Error> {
        let condition = self.condition(bucket, key, verb)?;
        self.decide_early(bucket, key, condition, Moment::Head).await
    }

    fn condition(&self, bucket: &BucketName, key: &Key, verb: Verb) -> Result<WriteCondition, S3Error> {
        let headers = &self.head.headers;
        let of_headers = || match verb {
            Verb::Delete => WriteCondition::of_delete(headers, self.query.has("versionId")),
            _ => WriteCondition::of_write(headers),
        };
        if self.acting.set().is_empty() {
            return of_headers();
        }
        let otherwise = if verb == Verb::Delete { None } else { self.evaluated(headers) };
        let asked = otherwise.map_or_else(of_headers, Ok)?;
        self.bent(bucket, key, asked, verb)
    }

    /// The condition under the server's deviations.
    ///
    /// # Errors
    /// What the index says.
    pub(super) fn bent(
        &self,
        bucket: &BucketName,
        key: &Key,
        asked: WriteCondition,
        verb: Verb,
    ) -> Result<WriteCondition, S3Error> {
        if self.acting.set().is_empty() {
            return Ok(asked);
        }
        let since = match verb {
            Verb::Complete => sequence_of(self.query.get("uploadId").unwrap_or_default()),
            _ if self.acting.set().has(&D::Loser409) => Some(self.store.changed_at(bucket, key)?),
            _ => None,
        };
        Ok(WriteCondition::Bent(Arc::new(Bent {
            asked,
            verb,
            since,
            made: None,
            acting: self.acting.clone(),
        })))
    }

    /// What AWS refuses with 501 and this server evaluates.
    fn evaluated(&self, headers: &http::HeaderMap) -> Option<WriteCondition> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let acts = |deviation| self.acting.acts(&deviation);
        let as_read = |matches, none_matches| Some(WriteCondition::AsRead(AsRead { matches, none_matches }));
        match (text("if-match"), text("if-none-match")) {
            (Some(tags), Some(none)) => {
                acts(D::EvaluateBothConditions).then(|| as_read(Some(tags), Some(none)))?
            }
            (Some(tag), None) if tag == "*" => {
                if acts(D::StarComparedLiterallyPut) {
                    return Some(WriteCondition::Match(tag));
                }
                acts(D::EvaluateIfMatchStar).then_some(WriteCondition::Present)
            }
            (None, Some(tags)) if tags != "*" => {
                acts(D::EvaluateIfNoneMatchEtag).then(|| as_read(None, Some(tags)))?
            }
            _ => None,
        }
    }

    /// Where this kind of write races at this moment: decides the condition, waits, and lets the write go on
    /// without it.
    ///
    /// # Errors
    /// `Refused`, where the condition does not hold now.
    pub(super) async fn decide_early(
        &self,
        bucket: &BucketName,
        key: &Key,
        condition: WriteCondition,
        moment: Moment,
    ) -> Result<WriteCondition, S3Error> {
        let Some(bent) = condition.bent() else { return Ok(condition) };
        let Some(window) = bent.window().filter(|window| window.at == moment) else { return Ok(condition) };
        self.store.check(bucket, key, &condition)?;
        pass(Duration::from_micros(window.us)).await;
        let bent = Bent { asked: WriteCondition::Always, ..bent.clone() };
        Ok(WriteCondition::Bent(Arc::new(bent)))
    }

    /// The key that the server takes this one for.
    ///
    /// # Errors
    /// `KeyTooLongError`: never, since a folded key is no longer than the first.
    pub(super) fn folded(&self, key: Key) -> Result<Key, S3Error> {
        if self.acting.set().is_empty() {
            return Ok(key);
        }
        match key::fold(&self.acting, key.as_str()) {
            Cow::Borrowed(_) => Ok(key),
            Cow::Owned(folded) => Key::new(folded),
        }
    }

    /// How the conditions of a read are evaluated.
    pub(super) fn read_rules(&self, usual: &ReadHeaders) -> ReadHeaders {
        let dates = self.acting.set().has(&D::DatesBesideEtags);
        if dates && head::has_dates_and_etags(&self.head.headers) {
            self.acting.note(&D::DatesBesideEtags);
        }
        usual.with_dates(dates)
    }
}

/// Lets `window` pass. The runtime's timer knows milliseconds only, so less than one is waited for by giving way
/// to others until it is over, in real time.
async fn pass(window: Duration) {
    if window >= Duration::from_millis(1) {
        return tokio::time::sleep(window).await;
    }
    #[expect(clippy::disallowed_methods, reason = "how long the processor took, not what time it is")]
    let began = std::time::Instant::now();
    while began.elapsed() < window {
        tokio::task::yield_now().await;
    }
}
