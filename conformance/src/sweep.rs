//! Leaves the bucket as it was found: everything of a run is under one prefix, which carries its time.

use assay_checks::{Answer, Call, Client, Lost, xml};
use http::Method;
use std::collections::BTreeSet;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};
use tokio::task::JoinSet;

/// The folder of all runs in a bucket.
const ROOT: &str = "assay-certify/";
/// What an interrupted run left is nobody's any more after this long: runs take minutes.
const STALE: Duration = Duration::HOUR;
/// Deletes at once.
const BATCH: usize = 16;
/// Rounds of listing and deleting before giving up on a bucket that keeps showing keys.
const ROUNDS: usize = 5;

const STAMP: &[time::format_description::BorrowedFormatItem<'static>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// How long after a listing a request that was under way may take effect and still be found.
const STRAGGLERS: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a prefix could not be emptied.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The network.
    #[error("{0}")]
    Lost(#[from] Lost),
    /// The provider refused to list or to delete.
    #[error("{0}")]
    Refused(String),
}

/// The prefix of a run that begins `now`.
pub fn prefix(now: OffsetDateTime, rng: &mut fastrand::Rng) -> String {
    format!("{ROOT}{}-{:08x}/", now.format(STAMP).unwrap_or_default(), rng.u32(..))
}

/// When the run of a prefix began; `None` for what no run made.
fn began(prefix: &str) -> Option<OffsetDateTime> {
    let stamp = prefix.strip_prefix(ROOT)?.split_once('-')?.0;
    PrimitiveDateTime::parse(stamp, STAMP).ok().map(PrimitiveDateTime::assume_utc)
}

/// Whether a prefix is of a run so long ago that its keys are leftovers.
pub(crate) fn is_stale(prefix: &str, now: OffsetDateTime) -> bool {
    began(prefix).is_some_and(|began| now - began > STALE)
}

/// Removes what earlier runs left behind; gives the number of their prefixes.
///
/// # Errors
/// The first request that failed; what was removed stays removed.
pub async fn leftovers(client: &Client, now: OffsetDateTime) -> Result<usize, SweepError> {
    let listing =
        Call::new(Method::GET, None).query("list-type", "2").query("prefix", ROOT).query("delimiter", "/");
    let answer = granted(client.send(listing).await?, "the listing")?;
    let document = String::from_utf8_lossy(&answer.body).into_owned();
    let groups = xml::elements(&document, "CommonPrefixes");
    let mut stale: BTreeSet<String> =
        groups.iter().filter_map(|group| xml::element(group, "Prefix")).collect();
    for (key, _) in uploads(client, ROOT).await? {
        let run = key.strip_prefix(ROOT).and_then(|rest| rest.split_once('/')).map(|(run, _)| run.to_owned());
        stale.extend(run.map(|run| format!("{ROOT}{run}/")));
    }
    stale.retain(|prefix| is_stale(prefix, now));
    for prefix in &stale {
        empty(client, prefix).await?;
    }
    Ok(stale.len())
}

/// Deletes every key under `prefix` and aborts every upload there; gives how many there were.
///
/// # Errors
/// The first request that failed, or keys that stay however often they are deleted.
pub async fn empty(client: &Client, prefix: &str) -> Result<usize, SweepError> {
    let mut removed = 0;
    for _ in 0..ROUNDS {
        let aborts = uploads(client, prefix).await?;
        let aborts = aborts.into_iter().map(|(key, id)| Call::delete(&key).query("uploadId", &id));
        let deletes: Vec<Call> = keys(client, prefix).await?.iter().map(|key| Call::delete(key)).collect();
        let calls: Vec<Call> = deletes.into_iter().chain(aborts).collect();
        if calls.is_empty() {
            return Ok(removed);
        }
        removed += calls.len();
        remove(client, calls).await?;
    }
    Err(SweepError::Refused(format!("{prefix} still has keys after {ROUNDS} rounds of deleting")))
}

/// The same for a run that was cut: requests that were under way then may take effect after a listing that found
/// nothing, so it ends only when a round after a pause finds nothing either.
///
/// # Errors
/// Those of [`empty`].
pub async fn empty_of_stragglers(client: &Client, prefix: &str) -> Result<usize, SweepError> {
    let mut removed = empty(client, prefix).await?;
    for _ in 0..ROUNDS {
        tokio::time::sleep(STRAGGLERS).await;
        match empty(client, prefix).await? {
            0 => break,
            late => removed += late,
        }
    }
    Ok(removed)
}

pub(crate) async fn remove(client: &Client, calls: Vec<Call>) -> Result<(), SweepError> {
    let mut calls = calls.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < BATCH
            && let Some(call) = calls.next()
        {
            let client = client.clone();
            running.spawn(async move { client.send(call).await });
        }
        match running.join_next().await {
            None => return Ok(()),
            // Whatever a delete answered, the next listing tells whether the key is gone.
            Some(Ok(answer)) => answer.map(drop)?,
            Some(Err(why)) => return Err(SweepError::Refused(why.to_string())),
        }
    }
}

/// The first page of keys: deleting it makes the next page the first.
async fn keys(client: &Client, prefix: &str) -> Result<Vec<String>, SweepError> {
    let listing = Call::new(Method::GET, None).query("list-type", "2").query("prefix", prefix);
    let answer = granted(client.send(listing).await?, "the listing")?;
    let entries = xml::elements(&String::from_utf8_lossy(&answer.body), "Contents");
    Ok(entries
        .iter()
        .filter_map(|entry| xml::element(entry, "Key"))
        .filter(|key| key.starts_with(prefix))
        .collect())
}

/// The first page of open uploads; none where the provider does not list them.
pub(crate) async fn uploads(client: &Client, prefix: &str) -> Result<Vec<(String, String)>, SweepError> {
    let answer =
        client.send(Call::new(Method::GET, None).query("uploads", "").query("prefix", prefix)).await?;
    if !answer.succeeded() {
        return Ok(Vec::new());
    }
    let entries = xml::elements(&String::from_utf8_lossy(&answer.body), "Upload");
    let pair = |entry: &String| Some((xml::element(entry, "Key")?, xml::element(entry, "UploadId")?));
    Ok(entries.iter().filter_map(pair).filter(|(key, _)| key.starts_with(prefix)).collect())
}

pub(crate) fn granted(answer: Answer, what: &str) -> Result<Answer, SweepError> {
    if answer.succeeded() {
        return Ok(answer);
    }
    let code = answer.element("Code").unwrap_or_default();
    Err(SweepError::Refused(format!("{what} was answered {} {code}", answer.status.as_u16())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_prefix_carries_its_time() {
        let now = datetime!(2026-11-29 20:15:30 UTC);
        let prefix = prefix(now, &mut fastrand::Rng::with_seed(1));
        assert!(prefix.starts_with("assay-certify/20261129T201530Z-") && prefix.ends_with('/'), "{prefix}");
        assert_eq!(began(&prefix), Some(now));
        assert!(!is_stale(&prefix, now + Duration::HOUR));
        assert!(is_stale(&prefix, now + Duration::HOUR + Duration::SECOND));
        assert!(!is_stale("assay-certify/notes-of-somebody/", now + Duration::WEEK));
        assert!(!is_stale("other/20261129T201530Z-00000000/", now + Duration::WEEK));
    }
}
