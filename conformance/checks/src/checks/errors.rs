//! Error documents, and ranges.

use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_body, expect_element, expect_error, expect_header, expect_status};
use crate::trial::Trial;
use bytes::Bytes;
use http::Method;

const RANGES: &str = "AWS recording 2026-02: test_get_object_range";
const TEN: &[u8] = b"0123456789";

pub(super) const ALL: &[Check] = &[
    DOCUMENT, NO_BUCKET, METHOD, MALFORMED, REQUEST_ID, HEAD_KEPT, KEEP_ALIVE, RANGE, SUFFIX, IGNORED,
    SEVERAL, BEYOND, EMPTY, HEAD_RANGE, IF_RANGE,
];

const BASE: Check = Check {
    id: "error",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: "S3 API Reference: Error responses",
    broken_by: &[],
    run: |t| Box::pin(document(t)),
};

const DOCUMENT: Check = Check {
    id: "error.document",
    proves: "an error is an XML document with the root Error without a namespace, and a Code, Message and RequestId",
    source: "S3 API Reference: Error responses; Cloudflare R2 changelog 2022-07-19 on the namespace",
    broken_by: &["error-namespace", "wrong-key-codes"],
    ..BASE
};

async fn document(t: &Trial) -> Done {
    let answer = t.send(Call::get(&t.key("never"))).await?;
    expect_error(&answer, &[404], "NoSuchKey")?;
    expect_header(&answer, "content-type", "application/xml")?;
    for name in ["Message", "RequestId"] {
        if answer.element(name).is_none_or(|text| text.is_empty()) {
            return Err(Stop::fail(format!("a <{name}>"), "none", &answer));
        }
    }
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    match text.contains("<Error>") {
        true => Ok(()),
        false => {
            Err(Stop::fail("<Error> without attributes", text.chars().take(120).collect::<String>(), &answer))
        }
    }
}

const NO_BUCKET: Check = Check {
    id: "error.no-such-bucket",
    proves: "a bucket that is not there is 404 NoSuchBucket, for a read, a write and a listing",
    broken_by: &["wrong-bucket-codes"],
    run: |t| Box::pin(no_bucket(t)),
    ..BASE
};

async fn no_bucket(t: &Trial) -> Done {
    let name = format!("assay-none-{:08x}{:08x}", t.below(1 << 31), t.below(1 << 31));
    let nowhere = t.client().in_bucket(&name);
    for call in [Call::get("k"), Call::put("k", "x"), Call::new(Method::GET, None).query("list-type", "2")] {
        let answer = nowhere.send(call).await?;
        expect_error(&answer, &[404], "NoSuchBucket")?;
        expect_element(&answer, "BucketName", &name)?;
    }
    Ok(())
}

const METHOD: Check = Check {
    id: "error.method-not-allowed",
    proves: "a method that a key does not have is 405 MethodNotAllowed",
    broken_by: &["wrong-request-codes"],
    run: |t| Box::pin(method(t)),
    ..BASE
};

async fn method(t: &Trial) -> Done {
    expect_error(&t.send(Call::new(Method::POST, Some(&t.key("k")))).await?, &[405], "MethodNotAllowed")
}

const MALFORMED: Check = Check {
    id: "error.malformed-xml",
    proves: "a document that is no XML, or has nothing in it, is 400 MalformedXML",
    needs: &[crate::Need::BatchDelete],
    broken_by: &["wrong-request-codes"],
    run: |t| Box::pin(malformed(t)),
    ..BASE
};

async fn malformed(t: &Trial) -> Done {
    for document in ["<Delete><Object><Key>", "<Delete></Delete>"] {
        let answer = t.send(super::delete::batch_call(document.to_owned())).await?;
        expect_error(&answer, &[400], "MalformedXML")?;
    }
    Ok(())
}

const REQUEST_ID: Check = Check {
    id: "error.request-id",
    proves: "every answer has an x-amz-request-id of its own",
    source: "S3 API Reference: Common response headers",
    broken_by: &["no-request-id"],
    run: |t| Box::pin(request_id(t)),
    ..BASE
};

async fn request_id(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("x", 0)).await?;
    let mut seen: Vec<String> = Vec::new();
    for call in [Call::get(&key), Call::head(&key), Call::get(&t.key("never")), Call::head(&t.key("never"))] {
        let answer = t.send(call).await?;
        match answer.header("x-amz-request-id").map(str::to_owned) {
            Some(id) if !id.is_empty() && !seen.contains(&id) => seen.push(id),
            other => return Err(Stop::fail("an x-amz-request-id of its own", format!("{other:?}"), &answer)),
        }
    }
    Ok(())
}

const HEAD_KEPT: Check = Check {
    id: "error.head",
    proves: "HEAD of an absent key is a bare 404, and of a key that is there gives its length without a body",
    severity: Severity::Required,
    source: "S3 API Reference: HeadObject",
    broken_by: &["head-absent-200"],
    run: |t| Box::pin(head_kept(t)),
    ..BASE
};

async fn head_kept(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("there", 33));
    t.put(&key, &body).await?;
    let head = t.send(Call::head(&key)).await?;
    expect_status(&head, &[200])?;
    expect_header(&head, "content-length", "33")?;
    expect_body(&head, b"")?;
    let absent = t.send(Call::head(&t.key("never"))).await?;
    expect_status(&absent, &[404])?;
    expect_body(&absent, b"")
}

const KEEP_ALIVE: Check = Check {
    id: "error.keep-alive",
    proves: "after a refused write the connection is closed, or its next answer is that of the next request",
    severity: Severity::Required,
    source: "RFC 9112, sections 9.3 and 9.6",
    broken_by: &["ignore-if-none-match-put"],
    run: |t| Box::pin(keep_alive(t)),
    ..BASE
};

async fn keep_alive(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("old", 0));
    t.put(&key, &body).await?;
    let mut connection = t.client().connect().await?;
    for length in [10, 60_000] {
        let put = Call::put(&key, t.body("never", length)).if_none_match("*");
        let refused = connection.deliver(t.client(), t.client().sign(put)).await?;
        expect_status(&refused, &[412, 304, 501])?;
        if connection.is_usable().await {
            let next = connection.deliver(t.client(), t.client().sign(Call::get(&key))).await?;
            expect_status(&next, &[200])?;
            expect_body(&next, &body)?;
        } else {
            connection = t.client().connect().await?;
        }
    }
    Ok(())
}

async fn ranged(t: &Trial, range: &str) -> Result<Answer, Stop> {
    t.send(Call::get(&t.key("ten")).header("range", range)).await
}

async fn ten(t: &Trial) -> Done {
    t.put(&t.key("ten"), &Bytes::from_static(TEN)).await.map(drop)
}

/// Each range must be 206 with these bytes, from and to.
async fn partial(t: &Trial, ranges: &[(&str, usize, usize)]) -> Done {
    ten(t).await?;
    for (range, from, to) in ranges {
        let answer = ranged(t, range).await?;
        expect_status(&answer, &[206])?;
        expect_header(&answer, "content-range", &format!("bytes {from}-{to}/10"))?;
        expect_body(&answer, &TEN[*from..=*to])?;
    }
    Ok(())
}

const RANGE: Check = Check {
    id: "range.from-to",
    proves: "a range of bytes is 206 with these bytes and Content-Range, also a whole object and an end beyond it",
    source: RANGES,
    broken_by: &["ignore-range"],
    run: |t| {
        Box::pin(partial(
            t,
            &[
                ("bytes=0-8", 0, 8),
                ("bytes=1-1", 1, 1),
                ("bytes=1-", 1, 9),
                ("bytes=0-9", 0, 9),
                ("bytes=0-100", 0, 9),
            ],
        ))
    },
    ..BASE
};

const SUFFIX: Check = Check {
    id: "range.suffix",
    proves: "a suffix is the last bytes, and all of them when it is longer than the object",
    source: RANGES,
    broken_by: &["ignore-range", "no-suffix-ranges"],
    run: |t| Box::pin(partial(t, &[("bytes=-2", 8, 9), ("bytes=-15", 0, 9)])),
    ..BASE
};

/// Each of these must be answered with the whole object.
async fn whole(t: &Trial, ranges: &[&str]) -> Done {
    ten(t).await?;
    for range in ranges {
        let answer = ranged(t, range).await?;
        expect_status(&answer, &[200])?;
        expect_body(&answer, TEN)?;
    }
    Ok(())
}

const IGNORED: Check = Check {
    id: "range.malformed",
    proves: "a Range that is none is ignored: 200 with the whole object",
    source: RANGES,
    broken_by: &["refuse-malformed-ranges"],
    run: |t| Box::pin(whole(t, &["bytes=1-0", "bytes=-1-", "bytes=0--1", "bytes=-", "0-1"])),
    ..BASE
};

const SEVERAL: Check = Check {
    id: "range.several",
    proves: "several ranges are answered with the whole object",
    source: RANGES,
    broken_by: &["first-of-several-ranges"],
    run: |t| Box::pin(whole(t, &["bytes=0-1,3-4,7-9"])),
    ..BASE
};

const BEYOND: Check = Check {
    id: "range.beyond",
    proves: "a range that begins after the end, or asks for nothing, is 416 InvalidRange with the real size",
    source: RANGES,
    broken_by: &["ignore-range", "no-suffix-ranges"],
    run: |t| Box::pin(beyond(t)),
    ..BASE
};

async fn beyond(t: &Trial) -> Done {
    ten(t).await?;
    for range in ["bytes=100-200", "bytes=-0"] {
        let answer = ranged(t, range).await?;
        expect_error(&answer, &[416], "InvalidRange")?;
        expect_element(&answer, "RangeRequested", range)?;
        expect_element(&answer, "ActualObjectSize", "10")?;
    }
    Ok(())
}

const EMPTY: Check = Check {
    id: "range.empty-object",
    proves: "any range of an object of no bytes is 416",
    severity: Severity::Informative,
    source: "ceph/s3-tests 2026-05: test_ranged_request_empty_object",
    broken_by: &["ignore-range"],
    run: |t| Box::pin(empty(t)),
    ..BASE
};

async fn empty(t: &Trial) -> Done {
    t.put(&t.key("ten"), &Bytes::new()).await?;
    expect_status(&ranged(t, "bytes=0-9").await?, &[416])
}

const HEAD_RANGE: Check = Check {
    id: "range.head",
    proves: "HEAD with a range is 206 with the range's length and Content-Range",
    severity: Severity::Informative,
    source: "S3 API Reference: HeadObject, Range",
    broken_by: &["ignore-range"],
    run: |t| Box::pin(head_range(t)),
    ..BASE
};

async fn head_range(t: &Trial) -> Done {
    ten(t).await?;
    let answer = t.send(Call::head(&t.key("ten")).header("range", "bytes=2-5")).await?;
    expect_status(&answer, &[206])?;
    expect_header(&answer, "content-range", "bytes 2-5/10")?;
    expect_header(&answer, "content-length", "4")
}

const IF_RANGE: Check = Check {
    id: "range.if-range",
    proves: "If-Range with the current ETag gives the range, with another the whole object",
    severity: Severity::Informative,
    source: "RFC 9110, section 13.1.5",
    broken_by: &["ignore-range", "ignore-if-range", "ignore-read-conditions"],
    run: |t| Box::pin(if_range(t)),
    ..BASE
};

async fn if_range(t: &Trial) -> Done {
    let etag = t.put(&t.key("ten"), &Bytes::from_static(TEN)).await?;
    for (etag, status, bytes) in [(etag.as_str(), 206, &TEN[2..6]), (super::put_swap::STRANGER, 200, TEN)] {
        let call = Call::get(&t.key("ten")).header("range", "bytes=2-5").header("if-range", etag);
        let answer = t.send(call).await?;
        expect_status(&answer, &[status])?;
        expect_body(&answer, bytes)?;
    }
    Ok(())
}
