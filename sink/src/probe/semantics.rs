//! Checks 21 to 27: reads, lists, keys, deletes, metadata and the clock.

use std::collections::BTreeSet;

use super::at::{At, Checked, Ended, Halt, PASSED, Reply, refused};
use crate::model::key::{MAX_KEY_BYTES, MAX_SEGMENT_BYTES};
use crate::store::{Condition, ETag, ObjectMeta, Outcome, Refusal, Store as _};

pub(super) async fn read_after_write(at: &At<'_>) -> Checked {
    let key = at.key("k");
    // A cache that remembers what is not there would answer the next read.
    at.must_be_absent(&key).await?;
    let mut body = at.body();
    let mut etag = at.must_write(&key, &body, Condition::Absent).await?;
    for _ in 0..at.clients.places().max(2) {
        at.must_hold_on(&at.fresh(), &key, &body).await?;
        body = at.body();
        etag = at.must_write(&key, &body, Condition::Matches(etag)).await?;
        at.must_hold_on(&at.fresh(), &key, &body).await?;
    }
    // The sink overwrites nothing without a condition; a store that says it has and has not tells no truth either.
    body = at.body();
    at.must_write(&key, &body, Condition::None).await?;
    at.must_hold_on(&at.fresh(), &key, &body).await?;
    PASSED
}

/// Keys of the listing, and how many a page has.
const LISTED: usize = 5;
const PAGE: u16 = 2;

/// Every page under a prefix, in order, and whether a page had more keys than were asked for.
async fn listing(at: &At<'_>, prefix: &str, page_size: u16) -> Result<(Vec<ObjectMeta>, bool), Halt> {
    let (mut objects, mut tokens, mut token) = (Vec::new(), BTreeSet::new(), None::<String>);
    let mut large = false;
    loop {
        let page = match at.main.list(prefix, token.as_deref(), page_size).await {
            Outcome::Done(page) => page,
            Outcome::Unknown(unanswered) => return Err(Halt::Unanswered(unanswered)),
            other => return refused("a page of a listing", format!("{other:?}")),
        };
        large |= page.objects.len() > usize::from(page_size);
        objects.extend(page.objects);
        match page.next {
            None => return Ok((objects, large)),
            Some(next) if !tokens.insert(next.clone()) => {
                return refused("another token for another page", "a token for the second time");
            }
            // Each page has a key, or the listing does not end.
            Some(_) if tokens.len() > objects.len() + 1 => {
                return refused("pages with keys", "empty pages without end");
            }
            next => token = next,
        }
    }
}

/// The listing must be exactly these keys, in order.
async fn must_list(at: &At<'_>, prefix: &str, keys: &[String]) -> Result<bool, Halt> {
    let (objects, large) = listing(at, prefix, PAGE).await?;
    let found: Vec<_> = objects.iter().map(|object| object.key.as_str()).collect();
    if found == keys {
        return Ok(large);
    }
    let short = |key: &&str| key.strip_prefix(prefix).unwrap_or(key).to_owned();
    let found: Vec<_> = found.iter().map(short).collect();
    let wanted: Vec<_> = keys.iter().map(|key| short(&key.as_str())).collect();
    refused(format!("the keys {}", wanted.join(" ")), format!("the keys {}", found.join(" ")))
}

pub(super) async fn list_after_write(at: &At<'_>) -> Checked {
    let prefix = at.key("list/");
    let mut keys: Vec<_> = (0..LISTED).map(|number| format!("{prefix}{number}")).collect();
    // Not in order, so that the order is the store's.
    for key in keys.iter().rev() {
        at.must_write(key, &at.body(), Condition::Absent).await?;
    }
    let large = must_list(at, &prefix, &keys).await?;
    for gone in [3, 0] {
        let key = keys.remove(gone);
        at.must_delete(&key).await?;
        at.must_be_absent(&key).await?;
        must_list(at, &prefix, &keys).await?;
    }
    let note = large.then(|| "pages have more keys than were asked for".to_owned());
    Ok(Ended::Passed(note))
}

pub(super) async fn one_etag(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let body = at.body();
    let put = at.must_write(&key, &body, Condition::Absent).await?;
    let get = at.must_hold(&key, &body).await?.meta;
    let head = match at.main.head(&key).await {
        Outcome::Done(meta) => meta,
        Outcome::Unknown(unanswered) => return Err(Halt::Unanswered(unanswered)),
        other => return refused("HEAD: 200", format!("{other:?}")),
    };
    let (listed, _) = listing(at, &key, PAGE).await?;
    let Some(list) = listed.into_iter().find(|object| object.key == key) else {
        return refused("the key in a listing", "no such key");
    };
    for (verb, meta) in [("GET", get), ("HEAD", head), ("LIST", list)] {
        if meta.etag != put || meta.size != body.len() as u64 {
            return refused(
                format!("{verb}: ETag {put} and {} bytes, as PUT had it", body.len()),
                format!("ETag {} and {} bytes", meta.etag, meta.size),
            );
        }
    }
    PASSED
}

/// Segments of the longest kind, until the key has the longest length.
fn longest(directory: &str) -> String {
    let mut key = directory.to_owned();
    while key.len() < MAX_KEY_BYTES {
        let segment = (MAX_KEY_BYTES - key.len()).min(MAX_SEGMENT_BYTES);
        // A slash and nothing behind it would be no segment.
        let segment = if MAX_KEY_BYTES - key.len() == segment + 1 { segment - 1 } else { segment };
        key.extend(std::iter::repeat_n('k', segment));
        if key.len() < MAX_KEY_BYTES {
            key.push('/');
        }
    }
    key
}

pub(super) async fn key_fidelity(at: &At<'_>) -> Checked {
    let mut keys = vec![
        at.key(&format!("s/{}", "s".repeat(MAX_SEGMENT_BYTES))),
        longest(&at.key("l/")),
        at.key("p.%2Fa%25b+c=d.e"),
        at.key("p.q/a%b+c=d.e"),
        at.key("Case"),
        at.key("case"),
    ];
    let mut written = Vec::new();
    for key in &keys {
        let body = at.body();
        match at.put(key, &body, Condition::Absent).await? {
            Reply::Done(_) => written.push((key, body)),
            other => {
                let shown = key.strip_prefix(&at.directory).unwrap_or(key);
                return refused(
                    format!("create of a key of {} bytes, {shown}: 2xx", key.len()),
                    other.text(),
                );
            }
        }
    }
    for (key, body) in written {
        at.must_hold(key, &body).await?;
    }
    keys.sort();
    must_list(at, &at.directory, &keys).await?;
    PASSED
}

/// Noted where a delete that names another tag deletes nothing.
pub(super) const CONDITIONAL_DELETES: &str = "deletes with If-Match are honoured";

pub(super) async fn delete(at: &At<'_>) -> Checked {
    let key = at.key("k");
    at.must_write(&key, &at.body(), Condition::Absent).await?;
    at.must_delete(&key).await?;
    at.must_be_absent(&key).await?;
    at.must_delete(&key).await?;
    let body = at.body();
    at.must_write(&key, &body, Condition::Absent).await?;
    let foreign = ETag(format!("\"{}\"", at.env.ids.nonce()));
    let note = match at.main.delete(&key, Some(foreign)).await {
        Outcome::Refused(Refusal::Precondition) => {
            at.must_hold(&key, &body).await?;
            CONDITIONAL_DELETES
        }
        Outcome::Done(()) => "deletes with If-Match are done whatever they name",
        Outcome::Refused(Refusal::Denied { .. }) => "deletes with If-Match are refused",
        _ => "deletes with If-Match: no clear answer",
    };
    Ok(Ended::Passed(Some(note.to_owned())))
}

pub(super) async fn metadata(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let body = at.body();
    let sent = [
        ("dfs3-kind".to_owned(), "probe".to_owned()),
        ("dfs3-nonce".to_owned(), at.env.ids.nonce().to_string()),
    ];
    let answer = at.main.put(&key, body.clone(), Condition::Absent, &sent).await;
    if let Outcome::Unknown(unanswered) = answer {
        return Err(Halt::Unanswered(unanswered));
    }
    let Outcome::Done(_) = answer else {
        return Ok(Ended::Recorded("a write with metadata is refused".to_owned()));
    };
    let object = at.must_hold(&key, &body).await?;
    let what = match sent.iter().filter(|pair| object.metadata.contains(pair)).count() {
        2 => "kept",
        0 => "not kept",
        _ => "kept in part",
    };
    Ok(Ended::Recorded(what.to_owned()))
}

/// The store's clock, in milliseconds since 1970: of the `Date` of an answer, or of an object just written.
/// Both have whole seconds.
pub(super) async fn store_now_ms(at: &At<'_>) -> Result<u64, Halt> {
    let key = at.key("clock");
    let body = at.body();
    at.must_write(&key, &body, Condition::Absent).await?;
    let object = at.must_hold(&key, &body).await?;
    Ok(object.store_date_ms.unwrap_or(object.meta.last_modified_ms))
}
