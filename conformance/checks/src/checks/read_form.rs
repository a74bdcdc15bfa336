//! The form of answers to conditional reads: headers of a 304, bodies of errors, ranges.

use super::copy_source::Source;
use super::put_swap::STRANGER;
use super::read::BASE;
use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::expect::{expect_element, expect_equal, expect_status};
use crate::trial::Trial;

pub(super) const ALL: &[Check] =
    &[NOT_MODIFIED_ETAG, NOT_MODIFIED_HEADERS, HEAD_ERRORS, ERROR_CODE, ERROR_DOCUMENT, RANGE, RANGE_REFUSED];

const NOT_MODIFIED_ETAG: Check = Check {
    id: "read.not-modified.etag",
    proves: "a 304 carries the object's ETag",
    source: "RFC 9110, section 15.4.5; moto issue 8534 with a transcript of AWS",
    broken_by: &["ignore-read-conditions", "304-without-etag"],
    run: |t| Box::pin(not_modified_etag(t)),
    ..BASE
};

async fn not_modified_etag(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let answer = t.send(Call::get(&source.key).if_none_match(&source.etag)).await?;
    t.stopped(&answer, &[304])?;
    expect_equal("ETag", &source.etag, answer.etag(), &answer)
}

const NOT_MODIFIED_HEADERS: Check = Check {
    id: "read.not-modified.headers",
    proves: "a 304 carries Date and Last-Modified, and no checksum of the body that it does not have",
    severity: Severity::Informative,
    condition: None,
    source: "RFC 9110, section 15.4.5; ministack pull request 1390",
    broken_by: &[
        "ignore-read-conditions",
        "304-with-checksum",
        "changing-last-modified",
        "last-modified-goes-back",
    ],
    run: |t| Box::pin(not_modified_headers(t)),
    ..BASE
};

async fn not_modified_headers(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let call = Call::get(&source.key).if_none_match(&source.etag).header("x-amz-checksum-mode", "ENABLED");
    let answer = t.send(call).await?;
    expect_status(&answer, &[304])?;
    expect_equal(
        "Last-Modified",
        &source.written,
        answer.header("last-modified").unwrap_or_default(),
        &answer,
    )?;
    if answer.header("date").is_none() {
        return Err(Stop::fail("a Date header", "none", &answer));
    }
    match answer.headers.keys().find(|name| name.as_str().starts_with("x-amz-checksum-")) {
        Some(name) => Err(Stop::fail("no checksum header", name.as_str(), &answer)),
        None => Ok(()),
    }
}

const HEAD_ERRORS: Check = Check {
    id: "read.head.no-body",
    proves: "HEAD answered 304, 404 or 412 sends no body: the next answer on the connection is its own",
    source: "AWS recording 2026-02: test_s3_get_object_preconditions[head_object]",
    broken_by: &["ignore-read-conditions", "head-absent-200"],
    run: |t| Box::pin(head_errors(t)),
    ..BASE
};

async fn head_errors(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let mut connection = t.client().connect().await?;
    let never = t.key("never");
    let heads = [
        (Call::head(&source.key).if_match(STRANGER), 412),
        (Call::head(&source.key).if_none_match(&source.etag), 304),
        (Call::head(&never), 404),
    ];
    for (call, status) in heads {
        if !connection.is_usable().await {
            connection = t.client().connect().await?;
        }
        let answer = connection.deliver(t.client(), t.client().sign(call)).await?;
        expect_status(&answer, &[status])?;
        // A body would be read as the start of the next answer. Closing instead is a provider's right.
        if connection.is_usable().await {
            let next = connection.deliver(t.client(), t.client().sign(Call::get(&source.key))).await?;
            expect_status(&next, &[200])?;
            expect_equal("ETag", &source.etag, next.etag(), &next)?;
        }
    }
    Ok(())
}

const ERROR_CODE: Check = Check {
    id: "read.error-codes",
    proves: "a GET of an absent key says NoSuchKey with the key, a refused one PreconditionFailed",
    source: "AWS recording 2026-02: test_precondition_failed_error; S3 API Reference: Error responses",
    broken_by: &["ignore-read-conditions", "omit-key-element", "wrong-key-codes"],
    run: |t| Box::pin(error_code(t)),
    ..BASE
};

async fn error_code(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let never = t.key("never");
    let missing = t.send(Call::get(&never)).await?;
    expect_status(&missing, &[404])?;
    expect_element(&missing, "Code", "NoSuchKey")?;
    expect_element(&missing, "Key", &never)?;
    let refused = t.send(Call::get(&source.key).if_match(STRANGER)).await?;
    t.stopped(&refused, &[412])?;
    expect_element(&refused, "Code", "PreconditionFailed")
}

const ERROR_DOCUMENT: Check = Check {
    id: "read.error-document",
    proves: "a 412 names as its Condition If-Match when that fails, and If-Unmodified-Since when only that does",
    condition: None,
    broken_by: &["ignore-read-conditions", "omit-condition-element"],
    run: |t| Box::pin(error_document(t)),
    ..BASE
};

async fn error_document(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let late = || Call::get(&source.key).header("if-unmodified-since", &source.before);
    for (call, condition) in [(late().if_match(STRANGER), "If-Match"), (late(), "If-Unmodified-Since")] {
        let answer = t.send(call).await?;
        expect_status(&answer, &[412])?;
        expect_element(&answer, "Condition", condition)?;
    }
    Ok(())
}

const RANGE: Check = Check {
    id: "read.range",
    proves: "a range with a right If-Match is 206 with just those bytes",
    severity: Severity::Expected,
    condition: None,
    source: "AWS recording 2026-02: test_get_object_range; S3 API Reference: GetObject",
    broken_by: &["ignore-range"],
    run: |t| Box::pin(range(t)),
    ..BASE
};

async fn range(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("0123456789", 0));
    let etag = t.put(&key, &body).await?;
    let answer = t.send(Call::get(&key).header("range", "bytes=2-5").if_match(&etag)).await?;
    expect_status(&answer, &[206])?;
    expect_equal("bytes", "2345", &String::from_utf8_lossy(&answer.body), &answer)?;
    let whole = format!("bytes 2-5/{}", body.len());
    expect_equal("Content-Range", &whole, answer.header("content-range").unwrap_or_default(), &answer)
}

const RANGE_REFUSED: Check = Check {
    id: "read.range.refused",
    proves: "a range with an If-Match that fails is 412: conditions come before ranges",
    severity: Severity::Informative,
    condition: None,
    source: "RFC 9110, sections 13.2.2 and 14.2",
    broken_by: &["ignore-read-conditions", "ranges-before-conditions"],
    run: |t| Box::pin(range_refused(t)),
    ..BASE
};

async fn range_refused(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("0123456789", 0)).await?;
    expect_status(&t.send(Call::get(&key).header("range", "bytes=2-5").if_match(STRANGER)).await?, &[412])
}
