//! The buckets beside the provider's own: one with versioning, and one for a check to make.
//!
//! The provider's bucket is never configured, so what needs another configuration gets a bucket of the run, which is
//! removed at its end. Its name carries the run's time, as the prefix does.

use crate::runner::Plan;
use crate::sweep::{self, SweepError};
use assay_checks::{Call, Check, Client, Need, xml};
use http::Method;
use time::OffsetDateTime;

/// How the names of all runs' buckets begin.
const ROOT: &str = "assay-certify-";
/// Rounds of listing and deleting versions: each takes up to a thousand.
const ROUNDS: usize = 20;
const ENABLED: &str = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                       <Status>Enabled</Status></VersioningConfiguration>";

/// Which buckets a run has, or why it has none.
#[derive(Clone, Debug)]
pub struct Buckets {
    versioned: Result<String, String>,
    own: Result<String, String>,
}

impl Buckets {
    /// Makes what the plan's checks need; `prefix` is the run's. A given bucket with versioning is used as it is.
    pub async fn prepare(plan: &Plan, client: &Client, prefix: &str) -> Buckets {
        let [versioned, own] = names(prefix);
        let unwanted = || Err("not asked for".to_owned());
        let versioned = match &plan.surroundings.versioned_bucket {
            _ if !wants(plan, Need::VersionedBucket) => unwanted(),
            Some(given) => has_versioning(client, given).await.map(|()| given.clone()),
            None => make(client, &versioned).await.map(|()| versioned),
        };
        Buckets { versioned, own: Ok(own) }
    }

    /// The bucket that a check asks instead of the provider's own.
    ///
    /// # Errors
    /// Why there is none: the check is skipped.
    pub fn for_check(&self, check: &Check) -> Result<Option<&str>, String> {
        let chosen = match check.needs {
            needs if needs.contains(&Need::VersionedBucket) => &self.versioned,
            needs if needs.contains(&Need::OwnBucket) => &self.own,
            _ => return Ok(None),
        };
        chosen.as_deref().map(Some).map_err(Clone::clone)
    }
}

/// Whether a check of the plan will ask for it.
fn wants(plan: &Plan, need: Need) -> bool {
    !plan.without.contains(&need) && plan.checks.iter().any(|check| check.needs.contains(&need))
}

/// The names of a run's buckets: with versioning, and of a check's own.
fn names(prefix: &str) -> [String; 2] {
    let name = prefix.trim_end_matches('/').replace('/', "-").to_lowercase();
    [format!("{name}-v"), format!("{name}-o")]
}

/// Removes the run's buckets, and from a given one what is under the run's prefix.
///
/// # Errors
/// The first request that failed; the others were tried too.
pub async fn remove_all(plan: &Plan, client: &Client, prefix: &str) -> Result<(), SweepError> {
    let [versioned, own] = names(prefix);
    let mut ended = Ok(());
    if wants(plan, Need::VersionedBucket) {
        ended = match &plan.surroundings.versioned_bucket {
            Some(given) => empty(&client.in_bucket(given), prefix).await,
            None => remove(client, &versioned).await,
        };
    }
    if wants(plan, Need::OwnBucket) {
        ended = ended.and(remove(client, &own).await);
    }
    ended
}

/// Removes the buckets of runs that were killed, when they are older than an hour.
///
/// # Errors
/// The first request that failed.
pub async fn leftovers(client: &Client, now: OffsetDateTime) -> Result<usize, SweepError> {
    let answer = client.in_bucket("").send(Call::new(Method::GET, None)).await?;
    if !answer.succeeded() {
        return Ok(0); // Not everybody may list buckets; then nobody here made one either, or only its owner can tell.
    }
    let document = String::from_utf8_lossy(&answer.body).into_owned();
    let names = xml::elements(&document, "Bucket");
    let names = names.iter().filter_map(|bucket| xml::element(bucket, "Name"));
    let stale = |name: &String| {
        name.strip_prefix(ROOT)
            .is_some_and(|rest| sweep::is_stale(&format!("assay-certify/{}", rest.to_uppercase()), now))
    };
    let mut removed = 0;
    for name in names.filter(stale) {
        remove(client, &name).await?;
        removed += 1;
    }
    Ok(removed)
}

async fn make(client: &Client, name: &str) -> Result<(), String> {
    let client = client.in_bucket(name);
    let made = client.send(client.create_bucket()).await.map_err(|lost| lost.reason)?;
    if !made.succeeded() {
        return Err(format!("no bucket can be made: {}", made.status.as_u16()));
    }
    let call = Call::new(Method::PUT, None).query("versioning", "").body(ENABLED);
    let enabled = client.send(call).await.map_err(|lost| lost.reason)?;
    if !enabled.succeeded() {
        return Err(format!("versioning cannot be enabled: {}", enabled.status.as_u16()));
    }
    has_versioning(&client, name).await
}

async fn has_versioning(client: &Client, name: &str) -> Result<(), String> {
    let client = client.in_bucket(name);
    let call = Call::new(Method::GET, None).query("versioning", "");
    let answer = client.send(call).await.map_err(|lost| lost.reason)?;
    match answer.element("Status").as_deref() {
        Some("Enabled") => Ok(()),
        _ => Err(format!("bucket {name:?} has no versioning: {}", answer.status.as_u16())),
    }
}

async fn remove(client: &Client, name: &str) -> Result<(), SweepError> {
    let client = client.in_bucket(name);
    empty(&client, "").await?;
    let answer = client.send(Call::new(Method::DELETE, None)).await?;
    match answer.status.as_u16() {
        404 => Ok(()),
        _ => sweep::granted(answer, &format!("the removal of bucket {name}")).map(drop),
    }
}

/// Deletes every version and delete marker under `prefix` and aborts every upload there.
async fn empty(client: &Client, prefix: &str) -> Result<(), SweepError> {
    for _ in 0..ROUNDS {
        let call = Call::new(Method::GET, None).query("versions", "").query("prefix", prefix);
        let answer = client.send(call).await?;
        if answer.status == 404 {
            return Ok(());
        }
        if answer.status == 501 {
            // A store without versions shows all that it has in a plain listing.
            return sweep::empty(client, prefix).await.map(drop);
        }
        let answer = sweep::granted(answer, "the listing of versions")?;
        let document = String::from_utf8_lossy(&answer.body).into_owned();
        let entries = ["Version", "DeleteMarker"].map(|name| xml::elements(&document, name)).concat();
        let pair = |entry: &String| Some((xml::element(entry, "Key")?, xml::element(entry, "VersionId")?));
        let deletes = entries.iter().filter_map(pair).filter(|(key, _)| key.starts_with(prefix));
        let deletes = deletes.map(|(key, id)| Call::delete(&key).query("versionId", &id));
        let aborts = sweep::uploads(client, prefix).await?;
        let aborts = aborts.into_iter().map(|(key, id)| Call::delete(&key).query("uploadId", &id));
        let calls: Vec<Call> = deletes.chain(aborts).collect();
        if calls.is_empty() {
            return Ok(());
        }
        sweep::remove(client, calls).await?;
    }
    Err(SweepError::Refused(format!("{prefix:?} still has versions after {ROUNDS} rounds of deleting")))
}
