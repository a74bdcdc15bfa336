//! Keys with versions: the conditions look at the current version, and a delete marker is no object.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::expect::{
    expect_body, expect_element, expect_error, expect_header, expect_list, expect_status, texts,
};
use crate::trial::Trial;
use bytes::Bytes;
use http::Method;

const NONE_MATCH: &str = "AWS recording 2026-02: test_put_object_if_none_match_versioned_bucket";
const MATCH: &str = "AWS recording 2026-02: test_put_object_if_match_versioned_bucket";
const DELETE: &str = "ministack issue 1475 and localstack issue 13894: transcripts of AWS, 2026";
const GUIDE: &str = "S3 User Guide: Working with objects in a versioning-enabled bucket";

pub(super) const ALL: &[Check] = &[
    CREATE_MARKER,
    SWAP_MARKER,
    SWAP_CURRENT,
    COPY_MARKER,
    DELETE_MARKER,
    DELETE_VERSION,
    DELETE_CURRENT,
    IDS,
    MARKER,
    UNDELETE,
    MARKER_BY_ID,
    BAD_ID,
    READ_CONDITION,
    COPY_VERSION,
];

pub(super) const BASE: Check = Check {
    id: "versions",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[Need::VersionedBucket],
    source: GUIDE,
    broken_by: &[],
    run: |t| Box::pin(create_marker(t)),
};

/// Writes without a condition, as preparation; gives ETag and version id.
pub(super) async fn put(t: &Trial, key: &str, body: &Bytes) -> Result<(String, String), Stop> {
    let answer = t.send(Call::put(key, body.clone())).await?;
    match answer.header("x-amz-version-id") {
        Some(id) if answer.succeeded() => Ok((answer.etag().to_owned(), id.to_owned())),
        _ => Err(Stop::unprepared("a PUT in a versioned bucket, without x-amz-version-id,", &answer)),
    }
}

/// A key whose current version is a delete marker; gives the ETag and the id of the version below it.
pub(super) async fn marked(t: &Trial, key: &str) -> Result<(String, String), Stop> {
    let below = put(t, key, &t.body("below", 0)).await?;
    t.delete(key).await?;
    Ok(below)
}

pub(super) fn version(call: Call, id: &str) -> Call {
    call.query("versionId", id)
}

/// ListObjectVersions under the trial's prefix.
pub(super) async fn versions(t: &Trial, query: &[(&str, &str)]) -> Result<Answer, Stop> {
    let call = Call::new(Method::GET, None).query("versions", "").query("prefix", t.prefix());
    let answer = t.send(query.iter().fold(call, |call, (name, value)| call.query(name, value))).await?;
    expect_status(&answer, &[200])?;
    Ok(answer)
}

const CREATE_MARKER: Check = Check {
    id: "versions.create.delete-marker",
    proves: "a create on a key whose current version is a delete marker succeeds, the next one is 412",
    condition: Some(Condition::PutCreate),
    source: NONE_MATCH,
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "failed-write-304"],
    ..BASE
};

async fn create_marker(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    marked(t, &key).await?;
    let answer = t.send(Call::put(&key, new.clone()).if_none_match("*")).await?;
    t.let_through(&answer, &[200])?;
    if answer.header("x-amz-version-id").is_none() {
        return Err(Stop::fail("a new x-amz-version-id", "none", &answer));
    }
    t.stopped(&t.send(Call::put(&key, t.body("late", 0)).if_none_match("*")).await?, &[412])?;
    t.holds(&key, &new).await
}

const SWAP_MARKER: Check = Check {
    id: "versions.swap.delete-marker",
    proves: "a swap with the ETag of the version below a delete marker is 404 and writes nothing",
    condition: Some(Condition::PutSwap),
    source: MATCH,
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "if-match-absent-412",
        "wrong-key-codes",
        "if-match-absent-creates",
    ],
    run: |t| Box::pin(swap_marker(t)),
    ..BASE
};

async fn swap_marker(t: &Trial) -> Done {
    let key = t.key("k");
    let (etag, _) = marked(t, &key).await?;
    let answer = t.send(Call::put(&key, t.body("new", 0)).if_match(&etag)).await?;
    t.stopped(&answer, &[404])?;
    expect_element(&answer, "Code", "NoSuchKey")?;
    t.lacks(&key).await
}

const SWAP_CURRENT: Check = Check {
    id: "versions.swap.current",
    proves: "a swap compares with the current version: an older version's ETag is 412, the current one's succeeds",
    condition: Some(Condition::PutSwap),
    source: MATCH,
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "only-unquoted-etags-match",
        "failed-write-304",
    ],
    run: |t| Box::pin(swap_current(t)),
    ..BASE
};

async fn swap_current(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let (old, _) = put(t, &key, &t.body("old", 0)).await?;
    let (current, _) = put(t, &key, &t.body("current", 0)).await?;
    t.stopped(&t.send(Call::put(&key, t.body("never", 0)).if_match(&old)).await?, &[412])?;
    t.let_through(&t.send(Call::put(&key, new.clone()).if_match(&current)).await?, &[200])?;
    t.holds(&key, &new).await
}

const COPY_MARKER: Check = Check {
    id: "versions.copy.delete-marker",
    proves: "for a copy onto a delete marker the key is absent: If-Match is 404, If-None-Match: * succeeds",
    condition: None,
    needs: &[Need::VersionedBucket, Need::Copy],
    source: "AWS recording 2026-02: test_copy_object_if_none_match_versioned_bucket",
    broken_by: &[
        "ignore-if-match-copy",
        "refuse-conditional-copy",
        "if-match-absent-412",
        "wrong-key-codes",
        "if-match-absent-creates",
    ],
    run: |t| Box::pin(copy_marker(t)),
    ..BASE
};

async fn copy_marker(t: &Trial) -> Done {
    let (key, source, body) = (t.key("k"), t.key("source"), t.body("copied", 0));
    put(t, &source, &body).await?;
    let (etag, _) = marked(t, &key).await?;
    expect_error(&t.send(t.client().copy(&source, &key).if_match(&etag)).await?, &[404], "NoSuchKey")?;
    expect_status(&t.send(t.client().copy(&source, &key).if_none_match("*")).await?, &[200])?;
    t.holds(&key, &body).await
}

const DELETE_MARKER: Check = Check {
    id: "versions.delete.delete-marker",
    proves: "a delete with If-Match on a delete marker is 404, even with the ETag below it, and adds no marker",
    condition: Some(Condition::DeleteMatch),
    source: DELETE,
    broken_by: &[
        "ignore-if-match-delete",
        "refuse-conditional-delete",
        "if-match-absent-412",
        "delete-absent-if-match-204",
        "wrong-key-codes",
    ],
    run: |t| Box::pin(delete_marker(t)),
    ..BASE
};

async fn delete_marker(t: &Trial) -> Done {
    let key = t.key("k");
    let (etag, _) = marked(t, &key).await?;
    for etag in [etag.as_str(), STRANGER, "*"] {
        let answer = t.send(Call::delete(&key).if_match(etag)).await?;
        t.stopped(&answer, &[404])?;
        expect_element(&answer, "Code", "NoSuchKey")?;
    }
    let listed = versions(t, &[]).await?;
    expect_list("markers", std::slice::from_ref(&key), &texts(&listed, "DeleteMarker", "Key"), &listed)
}

const DELETE_VERSION: Check = Check {
    id: "versions.delete.id-and-if-match",
    proves: "a delete with a version id and If-Match is 501, even when both are right, and removes nothing",
    source: "localstack issue 13894: transcript of AWS, 2026",
    broken_by: &["ignore-if-match-delete", "ignore-version-id"],
    run: |t| Box::pin(delete_version(t)),
    ..BASE
};

async fn delete_version(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("kept", 0));
    let (etag, id) = put(t, &key, &body).await?;
    let answer = t.send(version(Call::delete(&key).if_match(&etag), &id)).await?;
    expect_error(&answer, &[501], "NotImplemented")?;
    t.holds(&key, &body).await
}

const DELETE_CURRENT: Check = Check {
    id: "versions.delete.if-match",
    proves: "a delete with the current version's ETag adds a marker, with an older one's it is 412",
    condition: Some(Condition::DeleteMatch),
    source: DELETE,
    broken_by: &[
        "ignore-if-match-delete",
        "refuse-conditional-delete",
        "only-unquoted-etags-match",
        "ignore-version-id",
    ],
    run: |t| Box::pin(delete_current(t)),
    ..BASE
};

async fn delete_current(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("current", 0));
    let (old, _) = put(t, &key, &t.body("old", 0)).await?;
    let (current, id) = put(t, &key, &body).await?;
    t.stopped(&t.send(Call::delete(&key).if_match(&old)).await?, &[412])?;
    t.holds(&key, &body).await?;
    t.let_through(&t.send(Call::delete(&key).if_match(&current)).await?, &[204])?;
    t.lacks(&key).await?;
    expect_body(&t.send(version(Call::get(&key), &id)).await?, &body)
}

const IDS: Check = Check {
    id: "versions.read",
    proves: "every write has a version id of its own, by which its bytes are read after later writes and a delete",
    broken_by: &["ignore-version-id"],
    run: |t| Box::pin(ids(t)),
    ..BASE
};

async fn ids(t: &Trial) -> Done {
    let key = t.key("k");
    let mut made = Vec::new();
    for n in 0..3 {
        let body = t.body(&format!("version {n}"), 0);
        made.push((put(t, &key, &body).await?, body));
    }
    t.delete(&key).await?;
    for ((etag, id), body) in &made {
        let answer = t.send(version(Call::get(&key), id)).await?;
        expect_status(&answer, &[200])?;
        expect_body(&answer, body)?;
        expect_header(&answer, "etag", etag)?;
        expect_header(&answer, "x-amz-version-id", id)?;
    }
    Ok(())
}

const MARKER: Check = Check {
    id: "versions.delete.marker",
    proves: "a plain delete adds a marker: it names its version, and reads are 404 with x-amz-delete-marker",
    broken_by: &["hide-delete-markers", "head-absent-200"],
    run: |t| Box::pin(marker(t)),
    ..BASE
};

async fn marker(t: &Trial) -> Done {
    let key = t.key("k");
    put(t, &key, &t.body("below", 0)).await?;
    let deleted = t.send(Call::delete(&key)).await?;
    expect_status(&deleted, &[204])?;
    expect_header(&deleted, "x-amz-delete-marker", "true")?;
    if deleted.header("x-amz-version-id").is_none() {
        return Err(Stop::fail("the marker's x-amz-version-id", "none", &deleted));
    }
    for call in [Call::get(&key), Call::head(&key)] {
        let answer = t.send(call).await?;
        expect_status(&answer, &[404])?;
        expect_header(&answer, "x-amz-delete-marker", "true")?;
    }
    Ok(())
}

const UNDELETE: Check = Check {
    id: "versions.delete.undelete",
    proves: "a marker deleted by its id brings back the version below; a version deleted by its id is gone for good",
    broken_by: &["ignore-version-id"],
    run: |t| Box::pin(undelete(t)),
    ..BASE
};

async fn undelete(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("back", 0));
    let (_, id) = put(t, &key, &body).await?;
    let deleted = t.send(Call::delete(&key)).await?;
    let marker = deleted.header("x-amz-version-id").unwrap_or_default().to_owned();
    expect_status(&t.send(version(Call::delete(&key), &marker)).await?, &[204])?;
    t.holds(&key, &body).await?;
    expect_status(&t.send(version(Call::delete(&key), &id)).await?, &[204])?;
    t.lacks(&key).await?;
    expect_error(&t.send(version(Call::get(&key), &id)).await?, &[404], "NoSuchVersion")
}

const MARKER_BY_ID: Check = Check {
    id: "versions.read.marker",
    proves: "a read of a marker by its id is 405 with x-amz-delete-marker",
    source: "S3 API Reference: GetObject, delete markers",
    broken_by: &["ignore-version-id", "hide-delete-markers"],
    run: |t| Box::pin(marker_by_id(t)),
    ..BASE
};

async fn marker_by_id(t: &Trial) -> Done {
    let key = t.key("k");
    put(t, &key, &t.body("below", 0)).await?;
    let deleted = t.send(Call::delete(&key)).await?;
    let marker = deleted.header("x-amz-version-id").unwrap_or_default().to_owned();
    for call in [Call::get(&key), Call::head(&key)] {
        let answer = t.send(version(call, &marker)).await?;
        expect_status(&answer, &[405])?;
        expect_header(&answer, "x-amz-delete-marker", "true")?;
    }
    Ok(())
}

const BAD_ID: Check = Check {
    id: "versions.read.bad-id",
    proves: "a version id of a wrong form is 400 InvalidArgument",
    source: "AWS recording 2026-02: test_get_object_with_version_unversioned_bucket and its neighbours",
    broken_by: &["ignore-version-id", "wrong-argument-codes"],
    run: |t| Box::pin(bad_id(t)),
    ..BASE
};

async fn bad_id(t: &Trial) -> Done {
    let key = t.key("k");
    put(t, &key, &t.body("there", 0)).await?;
    let answer = t.send(version(Call::get(&key), "no version")).await?;
    expect_error(&answer, &[400], "InvalidArgument")?;
    expect_element(&answer, "ArgumentName", "versionId")
}

const READ_CONDITION: Check = Check {
    id: "versions.read.condition",
    proves: "a condition on a read of an old version is compared with that version",
    source: "S3 API Reference: GetObject, versionId and If-Match",
    broken_by: &["ignore-version-id", "ignore-read-conditions"],
    run: |t| Box::pin(read_condition(t)),
    ..BASE
};

async fn read_condition(t: &Trial) -> Done {
    let key = t.key("k");
    let (old, id) = put(t, &key, &t.body("old", 0)).await?;
    let (new, _) = put(t, &key, &t.body("new", 0)).await?;
    for (etag, status) in [(old, 200), (new, 412)] {
        expect_status(&t.send(version(Call::get(&key).if_match(&etag), &id)).await?, &[status])?;
    }
    Ok(())
}

const COPY_VERSION: Check = Check {
    id: "versions.copy.source",
    proves: "a copy source may name an old version: its bytes are copied, and the answer names it",
    needs: &[Need::VersionedBucket, Need::Copy],
    source: "S3 API Reference: CopyObject, x-amz-copy-source with versionId",
    broken_by: &["ignore-copy-source-version"],
    run: |t| Box::pin(copy_version(t)),
    ..BASE
};

async fn copy_version(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    let (_, id) = put(t, &key, &old).await?;
    put(t, &key, &t.body("new", 0)).await?;
    let answer = t.send(t.client().copy_version(&key, &id, &t.key("to"))).await?;
    expect_status(&answer, &[200])?;
    expect_header(&answer, "x-amz-copy-source-version-id", &id)?;
    t.holds(&t.key("to"), &old).await
}
