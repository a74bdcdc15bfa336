//! CompleteMultipartUpload with a condition, where the key was written or deleted after the upload began:
//! AWS then answers 409 although the condition holds.

use super::complete::{BASE, BASE_SWAP, give_up};
use crate::check::{Check, Done};
use crate::client::Answer;
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;

const PUT: &str = "AWS recording 2026-02: test_multipart_if_match_with_put";
const DELETE: &str = "AWS recording 2026-02: test_multipart_if_match_with_delete";
const LATE_SWAP: &[&str] = &[
    "ignore-if-match-complete",
    "refuse-conditional-complete",
    "no-conflict-on-complete",
    "omit-condition-element",
    "only-unquoted-etags-match",
];

pub(super) const ALL: &[Check] = &[
    CREATE_DELETED_SINCE,
    CREATE_PUT_SINCE,
    SWAP_PUT_SINCE_OLD,
    SWAP_PUT_SINCE,
    SWAP_IDENTICAL_SINCE,
    SWAP_DELETED_SINCE,
    SWAP_RECREATED_SINCE,
];

/// The 409 must say ConditionalRequestConflict and name the condition and the key. A provider without it
/// enforces the condition all the same, so this tells no class.
fn conflict(answer: &Answer, condition: &str, key: &str) -> Done {
    expect_status(answer, &[409])?;
    expect_element(answer, "Code", "ConditionalRequestConflict")?;
    expect_element(answer, "Condition", condition)?;
    expect_element(answer, "Key", key)
}

const CREATE_DELETED_SINCE: Check = Check {
    id: "complete.create.deleted-since",
    proves: "a key deleted after the upload began is 409 for its Complete; a new upload then succeeds",
    condition: None,
    broken_by: &[
        "ignore-if-none-match-complete",
        "refuse-conditional-complete",
        "no-conflict-on-complete",
        "omit-condition-element",
        "deleted-counts-as-present",
    ],
    run: |t| Box::pin(create_deleted_since(t)),
    ..BASE
};

async fn create_deleted_since(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.delete(&key).await?;
    conflict(&t.send(upload.complete().if_none_match("*")).await?, "If-None-Match", &key)?;
    t.lacks(&key).await?;
    give_up(t, &upload).await?;
    let upload = Upload::start(t, &key, &new).await?;
    t.let_through(&t.send(upload.complete().if_none_match("*")).await?, &[200])?;
    t.holds(&key, &new).await
}

const CREATE_PUT_SINCE: Check = Check {
    id: "complete.create.put-since",
    proves: "a key created after the upload began is 412 for its Complete: presence is looked at first",
    source: "AWS recording 2026-02: test_multipart_if_none_match_with_put",
    broken_by: &["ignore-if-none-match-complete", "refuse-conditional-complete", "loser-409"],
    run: |t| Box::pin(create_put_since(t)),
    ..BASE
};

async fn create_put_since(t: &Trial) -> Done {
    let (key, rival) = (t.key("k"), t.body("rival", 0));
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.put(&key, &rival).await?;
    t.stopped(&t.send(upload.complete().if_none_match("*")).await?, &[412])?;
    give_up(t, &upload).await?;
    t.holds(&key, &rival).await
}

const SWAP_PUT_SINCE_OLD: Check = Check {
    id: "complete.swap.put-since.old-etag",
    proves: "a key overwritten after the upload began is 412 for the ETag it had before",
    source: PUT,
    broken_by: &["ignore-if-match-complete", "refuse-conditional-complete", "loser-409"],
    run: |t| Box::pin(swap_put_since_old(t)),
    ..BASE_SWAP
};

async fn swap_put_since_old(t: &Trial) -> Done {
    let (key, rival) = (t.key("k"), t.body("rival", 0));
    let old = t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.put(&key, &rival).await?;
    t.stopped(&t.send(upload.complete().if_match(&old)).await?, &[412])?;
    give_up(t, &upload).await?;
    t.holds(&key, &rival).await
}

const SWAP_PUT_SINCE: Check = Check {
    id: "complete.swap.put-since.current-etag",
    proves: "a key overwritten after the upload began is 409 even for the ETag it has now",
    source: PUT,
    condition: None,
    broken_by: LATE_SWAP,
    run: |t| Box::pin(swap_put_since(t)),
    ..BASE_SWAP
};

async fn swap_put_since(t: &Trial) -> Done {
    let (key, rival) = (t.key("k"), t.body("rival", 0));
    t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    let current = t.put(&key, &rival).await?;
    conflict(&t.send(upload.complete().if_match(&current)).await?, "If-Match", &key)?;
    give_up(t, &upload).await?;
    t.holds(&key, &rival).await
}

const SWAP_IDENTICAL_SINCE: Check = Check {
    id: "complete.swap.put-since.same-bytes",
    proves: "the 409 is by time, not content: the same bytes written again since the upload began are enough",
    source: "AWS recording 2026-02: test_multipart_if_match_with_put_identical",
    condition: None,
    broken_by: LATE_SWAP,
    run: |t| Box::pin(swap_identical_since(t)),
    ..BASE_SWAP
};

async fn swap_identical_since(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("same", 0));
    let etag = t.put(&key, &body).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.put(&key, &body).await?;
    conflict(&t.send(upload.complete().if_match(&etag)).await?, "If-Match", &key)?;
    give_up(t, &upload).await?;
    t.holds(&key, &body).await
}

const SWAP_DELETED_SINCE: Check = Check {
    id: "complete.swap.deleted-since",
    proves: "a key deleted after the upload began is 404 NoSuchKey for a Complete with If-Match",
    source: DELETE,
    broken_by: &[
        "ignore-if-match-complete",
        "refuse-conditional-complete",
        "if-match-absent-412",
        "if-match-absent-creates",
        "wrong-key-codes",
    ],
    run: |t| Box::pin(swap_deleted_since(t)),
    ..BASE_SWAP
};

async fn swap_deleted_since(t: &Trial) -> Done {
    let key = t.key("k");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.delete(&key).await?;
    let answer = t.send(upload.complete().if_match(&etag)).await?;
    t.stopped(&answer, &[404])?;
    expect_element(&answer, "Code", "NoSuchKey")?;
    give_up(t, &upload).await?;
    t.lacks(&key).await
}

const SWAP_RECREATED_SINCE: Check = Check {
    id: "complete.swap.recreated-since",
    proves: "a key deleted and written again since the upload began is 409 for the ETag it has now",
    source: DELETE,
    condition: None,
    broken_by: LATE_SWAP,
    run: |t| Box::pin(swap_recreated_since(t)),
    ..BASE_SWAP
};

async fn swap_recreated_since(t: &Trial) -> Done {
    let (key, rival) = (t.key("k"), t.body("rival", 0));
    t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("late", 0)).await?;
    t.delete(&key).await?;
    let current = t.put(&key, &rival).await?;
    conflict(&t.send(upload.complete().if_match(&current)).await?, "If-Match", &key)?;
    give_up(t, &upload).await?;
    t.holds(&key, &rival).await
}
