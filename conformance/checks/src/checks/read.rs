//! GetObject and HeadObject with conditions: what each decides, and their order.

use super::copy_source::Source;
use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Severity, Stop};
use crate::client::Answer;
use crate::expect::expect_status;
use crate::trial::Trial;
use http::Method;

const RECORDED: &str = "AWS recording 2026-02: test_s3_get_object_preconditions";

pub(super) const ALL: &[Check] = &[
    MATCH,
    NONE_MATCH,
    UNMODIFIED,
    MODIFIED,
    FUTURE,
    ORDER,
    MATCH_OVER_DATE,
    NONE_MATCH_OVER_DATE,
    UNQUOTED,
    ABSENT,
    STAR,
    LIST,
    WEAK,
    DATE_AFTER_NONE_MATCH,
    BAD_DATE,
];

pub(super) const BASE: Check = Check {
    id: "read",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::Read),
    needs: &[],
    source: RECORDED,
    broken_by: &["ignore-read-conditions"],
    run: |t| Box::pin(matches(t)),
};

/// Conditions of one read, as header name and value.
type Headers<'a> = &'a [(&'static str, &'a str)];

async fn read(t: &Trial, method: Method, key: &str, headers: Headers<'_>) -> Result<Answer, Stop> {
    let call = Call::new(method, Some(key));
    t.send(headers.iter().fold(call, |call, (name, value)| call.header(name, value))).await
}

/// GET and HEAD must both answer `status`. A 304 or 412 has no object's bytes in it.
async fn both(t: &Trial, key: &str, headers: Headers<'_>, status: u16) -> Result<Answer, Stop> {
    let head = read(t, Method::HEAD, key, headers).await?;
    judge(t, &head, status)?;
    let get = read(t, Method::GET, key, headers).await?;
    judge(t, &get, status)?;
    if status == 304 && !get.body.is_empty() {
        return Err(Stop::fail("no body", format!("{} bytes", get.body.len()), &get));
    }
    Ok(get)
}

fn judge(t: &Trial, answer: &Answer, status: u16) -> Done {
    match status {
        200 => t.let_through(answer, &[200]),
        _ => t.stopped(answer, &[status]),
    }
}

const MATCH: Check =
    Check { id: "read.match", proves: "If-Match with the current ETag is 200, with another 412", ..BASE };

async fn matches(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-match", &source.etag)], 200).await?;
    both(t, &source.key, &[("if-match", STRANGER)], 412).await.map(drop)
}

const NONE_MATCH: Check = Check {
    id: "read.none-match",
    proves: "If-None-Match with the current ETag is 304 without a body, with another 200",
    run: |t| Box::pin(none_match(t)),
    ..BASE
};

async fn none_match(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-none-match", &source.etag)], 304).await?;
    both(t, &source.key, &[("if-none-match", STRANGER)], 200).await.map(drop)
}

const UNMODIFIED: Check = Check {
    id: "read.unmodified-since",
    proves: "If-Unmodified-Since is 412 for a date before Last-Modified and 200 for Last-Modified itself",
    run: |t| Box::pin(unmodified(t)),
    broken_by: &["ignore-read-conditions", "changing-last-modified", "last-modified-goes-back"],
    ..BASE
};

async fn unmodified(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-unmodified-since", &source.written)], 200).await?;
    both(t, &source.key, &[("if-unmodified-since", &source.before)], 412).await.map(drop)
}

const MODIFIED: Check = Check {
    id: "read.modified-since",
    proves: "If-Modified-Since is 304 for Last-Modified itself and 200 for a date before it",
    run: |t| Box::pin(modified(t)),
    broken_by: &["ignore-read-conditions", "changing-last-modified", "last-modified-goes-back"],
    ..BASE
};

async fn modified(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-modified-since", &source.before)], 200).await?;
    both(t, &source.key, &[("if-modified-since", &source.written)], 304).await.map(drop)
}

const FUTURE: Check = Check {
    id: "read.future-date",
    proves: "If-Modified-Since in the future is ignored",
    broken_by: &["honour-future-dates"],
    run: |t| Box::pin(future(t)),
    ..BASE
};

async fn future(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-modified-since", &source.future)], 200).await.map(drop)
}

const ORDER: Check = Check {
    id: "read.order",
    proves: "of four failing conditions If-Match decides, then If-Unmodified-Since, then the two that give 304",
    broken_by: &[
        "ignore-read-conditions",
        "reverse-read-conditions",
        "changing-last-modified",
        "last-modified-goes-back",
    ],
    run: |t| Box::pin(order(t)),
    ..BASE
};

async fn order(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let all = [
        ("if-match", STRANGER),
        ("if-unmodified-since", source.before.as_str()),
        ("if-none-match", source.etag.as_str()),
        ("if-modified-since", source.written.as_str()),
    ];
    for (first, status) in [412, 412, 304, 304].into_iter().enumerate() {
        both(t, &source.key, &all[first..], status).await?;
    }
    Ok(())
}

const MATCH_OVER_DATE: Check = Check {
    id: "read.match-over-date",
    proves: "with a right If-Match a failing If-Unmodified-Since is not looked at",
    source: "S3 API Reference: GetObject and HeadObject, If-Match",
    condition: None,
    broken_by: &["dates-beside-etags"],
    run: |t| Box::pin(match_over_date(t)),
    ..BASE
};

async fn match_over_date(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let headers = [("if-match", source.etag.as_str()), ("if-unmodified-since", &source.before)];
    both(t, &source.key, &headers, 200).await.map(drop)
}

const NONE_MATCH_OVER_DATE: Check = Check {
    id: "read.none-match-over-date",
    proves: "a failing If-None-Match is 304 although If-Modified-Since holds",
    source: "S3 API Reference: GetObject and HeadObject, If-None-Match",
    condition: None,
    broken_by: &["ignore-read-conditions"],
    run: |t| Box::pin(none_match_over_date(t)),
    ..BASE
};

async fn none_match_over_date(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let headers = [("if-none-match", source.etag.as_str()), ("if-modified-since", &source.before)];
    both(t, &source.key, &headers, 304).await.map(drop)
}

const UNQUOTED: Check = Check {
    id: "read.unquoted",
    proves: "quotes around an ETag make no difference in a read",
    condition: None,
    broken_by: &["ignore-read-conditions", "only-quoted-etags-match"],
    run: |t| Box::pin(unquoted(t)),
    ..BASE
};

async fn unquoted(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let bare = source.etag.trim_matches('"');
    both(t, &source.key, &[("if-none-match", bare)], 304).await?;
    both(t, &source.key, &[("if-match", bare)], 200).await.map(drop)
}

const ABSENT: Check = Check {
    id: "read.absent",
    proves: "a key that is not there is 404, whatever the condition",
    source: "RFC 9110, section 13.2.1; S3 API Reference: GetObject",
    broken_by: &["conditions-before-existence", "head-absent-200"],
    run: |t| Box::pin(absent(t)),
    ..BASE
};

async fn absent(t: &Trial) -> Done {
    for header in ["if-match", "if-none-match"] {
        both(t, &t.key("never"), &[(header, STRANGER)], 404).await?;
    }
    Ok(())
}

/// AWS's answer to these is not on record: RFC 9110 gives the expectation.
const OPEN: Check = Check { severity: Severity::Informative, condition: None, ..BASE };

const STAR: Check = Check {
    id: "read.star",
    proves: "of a present key, If-Match: * is 200 and If-None-Match: * is 304",
    source: "RFC 9110, sections 13.1.1 and 13.1.2",
    run: |t| Box::pin(star(t)),
    ..OPEN
};

async fn star(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-match", "*")], 200).await?;
    both(t, &source.key, &[("if-none-match", "*")], 304).await.map(drop)
}

const LIST: Check = Check {
    id: "read.etag-list",
    proves: "If-None-Match with a list of ETags is 304 when one of them is current",
    source: "RFC 9110, section 13.1.2; minio issue 21727",
    broken_by: &["ignore-read-conditions", "no-etag-lists"],
    run: |t| Box::pin(list(t)),
    ..OPEN
};

async fn list(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let both_etags = format!("{STRANGER}, {}", source.etag);
    both(t, &source.key, &[("if-none-match", &both_etags)], 304).await.map(drop)
}

const WEAK: Check = Check {
    id: "read.weak-etag",
    proves: "If-None-Match compares weakly: W/ and the current ETag is 304",
    source: "RFC 9110, sections 8.8.3.2 and 13.1.2",
    broken_by: &["ignore-read-conditions", "strong-comparison-only"],
    run: |t| Box::pin(weak(t)),
    ..OPEN
};

async fn weak(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    both(t, &source.key, &[("if-none-match", &format!("W/{}", source.etag))], 304).await.map(drop)
}

const DATE_AFTER_NONE_MATCH: Check = Check {
    id: "read.none-match-hides-date",
    proves: "with an If-None-Match that holds, a failing If-Modified-Since is not looked at",
    source: "RFC 9110, section 13.1.3",
    broken_by: &["dates-beside-etags"],
    run: |t| Box::pin(date_after_none_match(t)),
    ..OPEN
};

async fn date_after_none_match(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let headers = [("if-none-match", STRANGER), ("if-modified-since", &source.written)];
    both(t, &source.key, &headers, 200).await.map(drop)
}

const BAD_DATE: Check = Check {
    id: "read.bad-date",
    proves: "a date condition that is no date is ignored",
    source: "RFC 9110, sections 13.1.3 and 13.1.4",
    broken_by: &["refuse-bad-dates"],
    run: |t| Box::pin(bad_date(t)),
    ..OPEN
};

async fn bad_date(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    for header in ["if-modified-since", "if-unmodified-since"] {
        expect_status(&read(t, Method::GET, &source.key, &[(header, "yesterday")]).await?, &[200])?;
    }
    Ok(())
}
