//! Checks 1 to 7: `If-None-Match: *` creates and never replaces.

use bytes::Bytes;

use super::at::{At, Checked, Ended, Halt, PASSED, Reply, refused};
use crate::store::{Condition, ETag};

/// Large enough for stores that take another path for large bodies.
pub(super) const LARGE: usize = 2 << 20;

/// An object that was just created.
async fn created(at: &At<'_>, key: &str) -> Result<(Bytes, ETag), Halt> {
    let body = at.body();
    let etag = at.must_write(key, &body, Condition::Absent).await?;
    at.must_hold_tagged(key, &body, &etag).await?;
    Ok((body, etag))
}

pub(super) async fn on_absent(at: &At<'_>) -> Checked {
    created(at, &at.key("new")).await?;
    PASSED
}

pub(super) async fn on_existing(at: &At<'_>) -> Checked {
    let key = at.key("taken");
    let (body, etag) = created(at, &key).await?;
    let other = at.body_of(body.len() + 7);
    at.must_fail(&at.main, &key, &other, Condition::Absent, (&body, &etag)).await?;
    at.must_fail(&at.fresh(), &key, &other, Condition::Absent, (&body, &etag)).await?;
    PASSED
}

pub(super) async fn same_bytes(at: &At<'_>) -> Checked {
    let key = at.key("taken");
    let (body, etag) = created(at, &key).await?;
    at.must_fail(&at.main, &key, &body, Condition::Absent, (&body, &etag)).await?;
    PASSED
}

pub(super) async fn same_length(at: &At<'_>) -> Checked {
    let key = at.key("taken");
    let (body, etag) = created(at, &key).await?;
    at.must_fail(&at.main, &key, &at.body(), Condition::Absent, (&body, &etag)).await?;
    PASSED
}

pub(super) async fn after_delete(at: &At<'_>) -> Checked {
    let key = at.key("again");
    created(at, &key).await?;
    at.must_delete(&key).await?;
    created(at, &key).await?;
    PASSED
}

pub(super) async fn large_and_empty(at: &At<'_>) -> Checked {
    let key = at.key("taken");
    let (body, etag) = created(at, &key).await?;
    for other in [at.body_of(LARGE), Bytes::new()] {
        at.must_fail(&at.main, &key, &other, Condition::Absent, (&body, &etag)).await?;
    }
    let (empty, none) = (at.key("empty"), Bytes::new());
    let etag = at.must_write(&empty, &none, Condition::Absent).await?;
    at.must_fail(&at.main, &empty, &body, Condition::Absent, (&none, &etag)).await?;
    PASSED
}

/// The protocol never needs such a key, so a store may refuse it; what it must not do is lose one of the two.
pub(super) async fn beside_longer(at: &At<'_>) -> Checked {
    let (longer, shorter) = (at.key("part/rest"), at.key("part"));
    let (body, _) = created(at, &longer).await?;
    let other = at.body();
    let reply = match at.put(&shorter, &other, Condition::Absent).await {
        Err(Halt::Unanswered(unanswered)) if unanswered.status.is_some_and(|status| status >= 500) => {
            Reply::Denied(unanswered.reason)
        }
        reply => reply?,
    };
    at.must_hold(&longer, &body).await?;
    match reply {
        Reply::Done(_) => {
            at.must_hold(&shorter, &other).await?;
            match at.put(&shorter, &body, Condition::Absent).await? {
                Reply::Precondition => {}
                twice => return refused("412: the key was just created", twice.text()),
            }
            at.must_hold(&shorter, &other).await?;
            PASSED
        }
        refusal => Ok(Ended::Passed(Some(format!("the shorter key is refused: {}", refusal.text())))),
    }
}
