//! Checks 8 to 15: `If-Match: <etag>` replaces what it names and nothing else.

use bytes::Bytes;

use super::at::{At, Checked, Ended, Halt, PASSED, Reply, refused};
use super::create::LARGE;
use crate::store::{Condition, ETag};

/// An object that was created and swapped once: the ETag of before, its bytes now, and their ETag.
struct Swapped {
    old: ETag,
    body: Bytes,
    etag: ETag,
}

async fn swapped(at: &At<'_>, key: &str) -> Result<Swapped, Halt> {
    let old = at.must_write(key, &at.body(), Condition::Absent).await?;
    let body = at.body();
    let etag = at.must_write(key, &body, Condition::Matches(old.clone())).await?;
    if etag == old {
        return refused("another ETag for other bytes", format!("the same one, {etag}"));
    }
    at.must_hold_tagged(key, &body, &etag).await?;
    Ok(Swapped { old, body, etag })
}

pub(super) async fn current(at: &At<'_>) -> Checked {
    swapped(at, &at.key("k")).await?;
    PASSED
}

pub(super) async fn stale(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let now = swapped(at, &key).await?;
    for store in [&at.main, &at.fresh()] {
        let condition = Condition::Matches(now.old.clone());
        at.must_fail(store, &key, &at.body(), condition, (&now.body, &now.etag)).await?;
    }
    PASSED
}

pub(super) async fn stale_with_current_bytes(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let now = swapped(at, &key).await?;
    let condition = Condition::Matches(now.old.clone());
    at.must_fail(&at.main, &key, &now.body, condition, (&now.body, &now.etag)).await?;
    PASSED
}

pub(super) async fn foreign(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let now = swapped(at, &key).await?;
    let random = format!("\"{}\"", at.env.ids.nonce());
    let altered = |last: bool| altered(&now.etag, last);
    for etag in [Some(ETag(random)), altered(true), altered(false)].into_iter().flatten() {
        let condition = Condition::Matches(etag);
        at.must_fail(&at.main, &key, &at.body(), condition, (&now.body, &now.etag)).await?;
    }
    PASSED
}

/// The ETag with its last or its first hexadecimal digit replaced by another; the quotes stay.
fn altered(etag: &ETag, last: bool) -> Option<ETag> {
    let is_digit = |c: char| c.is_ascii_hexdigit();
    let place = if last { etag.0.rfind(is_digit) } else { etag.0.find(is_digit) }?;
    let other = if etag.0[place..].starts_with('0') { "1" } else { "0" };
    let mut text = etag.0.clone();
    text.replace_range(place..=place, other);
    Some(ETag(text))
}

pub(super) async fn absent(at: &At<'_>) -> Checked {
    let other = at.must_write(&at.key("other"), &at.body(), Condition::Absent).await?;
    let gone = at.key("gone");
    let deleted = at.must_write(&gone, &at.body(), Condition::Absent).await?;
    at.must_delete(&gone).await?;
    for (key, etag) in [(at.key("never"), other), (gone, deleted)] {
        match at.put(&key, &at.body(), Condition::Matches(etag)).await? {
            Reply::Missing | Reply::Precondition => {}
            reply => return refused("404 or 412: there is nothing to replace", reply.text()),
        }
        at.must_be_absent(&key).await?;
    }
    PASSED
}

/// What of the other spellings a store takes; their keys are their own, so that a yes does no harm.
pub(super) async fn forms(at: &At<'_>) -> Checked {
    swapped(at, &at.key("sent")).await?;
    let mut notes = Vec::new();
    for (form, name) in [("unquoted", "bare"), ("star", "star")] {
        let key = at.key(name);
        let etag = at.must_write(&key, &at.body(), Condition::Absent).await?;
        let spelled = if form == "star" { "*".to_owned() } else { etag.0.replace('"', "") };
        let reply = at.put(&key, &at.body(), Condition::Matches(ETag(spelled))).await;
        let reply = match reply {
            Ok(Reply::Done(_)) => "taken".to_owned(),
            Ok(reply) => reply.text().split(':').next().unwrap_or_default().to_owned(),
            Err(Halt::Unanswered(unanswered)) if unanswered.status.is_some() => unanswered.reason,
            Err(halt) => return Err(halt),
        };
        notes.push(format!("{form}: {reply}"));
    }
    Ok(Ended::Passed(Some(notes.join("; "))))
}

pub(super) async fn there_and_back(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let (first, second) = (at.body(), at.body());
    let a = at.must_write(&key, &first, Condition::Absent).await?;
    let b = at.must_write(&key, &second, Condition::Matches(a.clone())).await?;
    let again = at.must_write(&key, &first, Condition::Matches(b)).await?;
    at.must_hold(&key, &first).await?;
    let what = if again == a { "equal bytes have equal ETags" } else { "each write has an ETag of its own" };
    Ok(Ended::Recorded(what.to_owned()))
}

pub(super) async fn large(at: &At<'_>) -> Checked {
    let key = at.key("k");
    let now = swapped(at, &key).await?;
    let body = at.body_of(LARGE);
    let stale = Condition::Matches(now.old.clone());
    at.must_fail(&at.main, &key, &body, stale, (&now.body, &now.etag)).await?;
    let etag = at.must_write(&key, &body, Condition::Matches(now.etag)).await?;
    at.must_hold_tagged(&key, &body, &etag).await?;
    PASSED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_digit_is_replaced() {
        let etag = ETag("\"a0f0\"".into());
        assert_eq!(altered(&etag, true), Some(ETag("\"a0f1\"".into())));
        assert_eq!(altered(&etag, false), Some(ETag("\"00f0\"".into())));
        assert_eq!(altered(&ETag("\"\"".into()), true), None);
    }
}
