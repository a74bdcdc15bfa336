//! DeleteObject with `If-Match`, and DeleteObjects with an ETag per object.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use crate::xml;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use md5::{Digest, Md5};

const LIVE: &str = "ministack issue 1475 and localstack issue 13894: transcripts of AWS, 2026";
const RECORDED: &str = "AWS recording 2026-02: test_delete_object_if_match_non_express";

pub(super) const ALL: &[Check] = &[
    EQUAL,
    DIFFERS,
    UNQUOTED,
    STAR,
    ABSENT,
    PLAIN_ABSENT,
    SIZE,
    MODIFIED,
    ERROR_DOCUMENT,
    BATCH,
    BATCH_ABSENT,
];

const BASE: Check = Check {
    id: "delete.match",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::DeleteMatch),
    needs: &[],
    source: LIVE,
    broken_by: &["ignore-if-match-delete", "refuse-conditional-delete"],
    run: |t| Box::pin(equal(t)),
};

const EQUAL: Check = Check {
    id: "delete.match.equal",
    proves: "a delete with the current ETag is 204 and removes the key",
    broken_by: &["refuse-conditional-delete", "only-unquoted-etags-match", "accepted-but-not-applied"],
    ..BASE
};

async fn equal(t: &Trial) -> Done {
    let key = t.key("k");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&t.send(Call::delete(&key).if_match(&etag)).await?, &[204])?;
    t.lacks(&key).await
}

const DIFFERS: Check = Check {
    id: "delete.match.differs",
    proves: "a delete with the ETag of an overwritten version is 412 and removes nothing",
    source: RECORDED,
    broken_by: &["ignore-if-match-delete", "refuse-conditional-delete", "refused-but-applied"],
    run: |t| Box::pin(differs(t)),
    ..BASE
};

async fn differs(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let stale = t.put(&key, &t.body("old", 0)).await?;
    t.put(&key, &new).await?;
    let answer = t.send(Call::delete(&key).if_match(&stale)).await?;
    t.stopped(&answer, &[412])?;
    t.holds(&key, &new).await
}

const UNQUOTED: Check = Check {
    id: "delete.match.unquoted",
    proves: "the current ETag without its quotes is equal too",
    source: "versitygw pull request 1839, notes on AWS's answers",
    condition: None,
    broken_by: &["refuse-conditional-delete", "only-quoted-etags-match"],
    run: |t| Box::pin(unquoted(t)),
    ..BASE
};

async fn unquoted(t: &Trial) -> Done {
    let key = t.key("k");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&t.send(Call::delete(&key).if_match(etag.trim_matches('"'))).await?, &[204])?;
    t.lacks(&key).await
}

const STAR: Check = Check {
    id: "delete.match.star",
    proves: "If-Match: * deletes a present key with 204",
    condition: None,
    broken_by: &["refuse-conditional-delete", "star-compared-literally-delete"],
    run: |t| Box::pin(star(t)),
    ..BASE
};

async fn star(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&t.send(Call::delete(&key).if_match("*")).await?, &[204])?;
    t.lacks(&key).await
}

const ABSENT: Check = Check {
    id: "delete.match.absent",
    proves: "a delete with If-Match of a key that is not there is 404 NoSuchKey, for an ETag and for a star",
    broken_by: &[
        "ignore-if-match-delete",
        "refuse-conditional-delete",
        "if-match-absent-412",
        "delete-absent-if-match-204",
        "wrong-key-codes",
    ],
    run: |t| Box::pin(absent(t)),
    ..BASE
};

async fn absent(t: &Trial) -> Done {
    for etag in [STRANGER, "*"] {
        let answer = t.send(Call::delete(&t.key("never")).if_match(etag)).await?;
        t.stopped(&answer, &[404])?;
        expect_element(&answer, "Code", "NoSuchKey")?;
    }
    Ok(())
}

const PLAIN_ABSENT: Check = Check {
    id: "delete.absent",
    proves: "a delete without a condition is 204, whether or not the key is there",
    condition: None,
    source: "AWS recording 2026-02: test_delete_object",
    broken_by: &["delete-absent-404"],
    run: |t| Box::pin(plain_absent(t)),
    ..BASE
};

async fn plain_absent(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    for _ in 0..2 {
        expect_status(&t.send(Call::delete(&key)).await?, &[204])?;
        t.lacks(&key).await?;
    }
    Ok(())
}

const SIZE: Check = Check {
    id: "delete.match.size",
    proves: "x-amz-if-match-size with a wrong size never deletes: it is refused or compared, not dropped",
    source: "AWS recording 2026-02: test_delete_object_if_match_size_non_express",
    condition: None,
    broken_by: &["ignore-if-match-size"],
    run: |t| Box::pin(never_deletes(t, "x-amz-if-match-size", "99")),
    ..BASE
};

const MODIFIED: Check = Check {
    id: "delete.match.last-modified",
    proves: "x-amz-if-match-last-modified-time with a wrong time never deletes",
    source: "AWS recording 2026-02: test_delete_object_if_match_modified_non_express",
    condition: None,
    broken_by: &["ignore-if-match-last-modified"],
    run: |t| Box::pin(never_deletes(t, "x-amz-if-match-last-modified-time", "Sun, 06 Nov 1994 08:49:37 GMT")),
    ..BASE
};

/// AWS's general-purpose buckets refuse these headers with 501; directory buckets and some providers compare.
async fn never_deletes(t: &Trial, header: &'static str, value: &str) -> Done {
    let (key, body) = (t.key("k"), t.body("old", 0));
    t.put(&key, &body).await?;
    expect_status(&t.send(Call::delete(&key).header(header, value)).await?, &[501, 412, 400])?;
    t.holds(&key, &body).await
}

const ERROR_DOCUMENT: Check = Check {
    id: "delete.match.error-document",
    proves: "a delete that was 412 says PreconditionFailed and names If-Match as its Condition",
    condition: None,
    source: RECORDED,
    broken_by: &["ignore-if-match-delete", "refuse-conditional-delete", "omit-condition-element"],
    run: |t| Box::pin(error_document(t)),
    ..BASE
};

async fn error_document(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    let answer = t.send(Call::delete(&key).if_match(STRANGER)).await?;
    expect_status(&answer, &[412])?;
    expect_element(&answer, "Code", "PreconditionFailed")?;
    expect_element(&answer, "Condition", "If-Match")
}

const BATCH: Check = Check {
    id: "delete-objects.etag",
    proves: "DeleteObjects removes the object whose ETag is right and reports PreconditionFailed for the other",
    condition: Some(Condition::DeleteObjects),
    needs: &[Need::BatchDelete],
    source: "S3 User Guide: How to perform conditional deletes, DeleteObjects",
    broken_by: &["ignore-etag-delete-objects"],
    run: |t| Box::pin(batch(t)),
    ..BASE
};

async fn batch(t: &Trial) -> Done {
    let (right, wrong, kept) = (t.key("right"), t.key("wrong"), t.body("kept", 0));
    let etag = t.put(&right, &t.body("gone", 0)).await?;
    t.put(&wrong, &kept).await?;
    let answer = delete_objects(t, &[(&right, &etag), (&wrong, STRANGER)]).await?;
    if answer.status == 501 || answer.status == 405 {
        return Err(Stop::unprepared("DeleteObjects", &answer));
    }
    expect_status(&answer, &[200])?;
    let document = String::from_utf8_lossy(&answer.body);
    let errors = xml::elements(&document, "Error");
    let refused = errors.iter().find(|error| xml::element(error, "Key").as_deref() == Some(&wrong));
    t.classify(if refused.is_some() { crate::Class::Enforces } else { crate::Class::Ignores });
    match refused.map(|error| xml::element(error, "Code").unwrap_or_default()) {
        Some(code) if code == "PreconditionFailed" && errors.len() == 1 => {}
        Some(code) => {
            let got = format!("{} errors, <Code>{code}", errors.len());
            return Err(Stop::fail("one error, <Code>PreconditionFailed", got, &answer));
        }
        None => return Err(Stop::fail("an error for the key with another ETag", "none", &answer)),
    }
    t.lacks(&right).await?;
    t.holds(&wrong, &kept).await
}

async fn delete_objects(t: &Trial, objects: &[(&String, &str)]) -> Result<Answer, Stop> {
    let objects: String = objects
        .iter()
        .map(|(key, etag)| {
            format!("<Object><Key>{}</Key><ETag>{}</ETag></Object>", xml::escape(key), xml::escape(etag))
        })
        .collect();
    let document = format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{objects}</Delete>");
    t.send(batch_call(document)).await
}

/// DeleteObjects with this document.
pub(super) fn batch_call(document: String) -> Call {
    let digest = BASE64_STANDARD.encode(Md5::digest(document.as_bytes()));
    let call = Call::new(Method::POST, None).query("delete", "").header("content-md5", &digest);
    call.header("content-type", "application/xml").body(document)
}

const BATCH_ABSENT: Check = Check {
    id: "delete-objects.etag.absent",
    proves: "DeleteObjects with an ETag for a key that is not there reports an error, not a deletion",
    severity: Severity::Informative,
    condition: None,
    needs: &[Need::BatchDelete],
    source: "S3 User Guide: How to perform conditional deletes; not recorded",
    broken_by: &["ignore-etag-delete-objects", "delete-absent-if-match-204"],
    run: |t| Box::pin(batch_absent(t)),
};

async fn batch_absent(t: &Trial) -> Done {
    let answer = delete_objects(t, &[(&t.key("never"), STRANGER)]).await?;
    expect_status(&answer, &[200])?;
    let errors = xml::elements(&String::from_utf8_lossy(&answer.body), "Error").len();
    if errors == 1 { Ok(()) } else { Err(Stop::fail("one error", format!("{errors} errors"), &answer)) }
}
