//! UploadPartCopy, and reads of single parts.

use super::multipart::{BASE, has_parts, open};
use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Done, Need, Stop};
use crate::expect::{expect_body, expect_element, expect_error, expect_header, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;

const RECORDED: &str = "AWS recording 2026-02: TestS3Multipart, test_upload_part_copy";
const SOURCE: &[u8] = b"0123456789";

pub(super) const ALL: &[Check] = &[COPY, RANGES, CONDITIONS, ABSENT, READ, READ_BEYOND, READ_PLAIN];

/// A source object of ten bytes and an upload beside it.
async fn prepared(t: &Trial) -> Result<(String, String, Upload), Stop> {
    let source = t.key("source");
    let etag = t.put(&source, &Bytes::from_static(SOURCE)).await?;
    Ok((source, etag, open(t).await?))
}

/// UploadPartCopy of part 1.
fn copy(t: &Trial, source: &str, upload: &Upload) -> Call {
    let from = t.client().copy(source, &upload.key);
    from.query("partNumber", "1").query("uploadId", &upload.id)
}

const COPY: Check = Check {
    id: "part-copy.range",
    proves: "a part may be copied from an object, whole or a range of it, and the result has its ETag",
    needs: &[Need::Multipart, Need::Copy],
    source: RECORDED,
    broken_by: &["ignore-copy-source-range"],
    run: |t| Box::pin(range(t)),
    ..BASE
};

async fn range(t: &Trial) -> Done {
    let source = t.key("source");
    t.put(&source, &Bytes::from_static(SOURCE)).await?;
    for (asked, bytes) in
        [(None, SOURCE), (Some("bytes=2-5"), &SOURCE[2..6]), (Some("bytes=9-9"), &SOURCE[9..])]
    {
        let upload = open(t).await?;
        let call = copy(t, &source, &upload);
        let answer = t.send(asked.iter().fold(call, |c, r| c.header("x-amz-copy-source-range", r))).await?;
        if matches!(answer.status.as_u16(), 405 | 501) {
            return Err(Stop::unprepared("UploadPartCopy", &answer));
        }
        expect_status(&answer, &[200])?;
        let etag = answer.element("ETag").unwrap_or_default();
        expect_status(&t.send(upload.complete_of(&[(1, &etag)])).await?, &[200])?;
        t.holds(&upload.key, &Bytes::copy_from_slice(bytes)).await?;
    }
    Ok(())
}

const RANGES: Check = Check {
    id: "part-copy.range.bad",
    proves: "a copy range that is open, a suffix, several, reversed or beyond the source is 400, and copies nothing",
    needs: &[Need::Multipart, Need::Copy],
    source: RECORDED,
    broken_by: &["ignore-copy-source-range", "wrong-argument-codes"],
    run: |t| Box::pin(ranges(t)),
    ..BASE
};

async fn ranges(t: &Trial) -> Done {
    let (source, _, upload) = prepared(t).await?;
    for range in ["bytes=2-", "bytes=-2", "bytes=0-1,3-4", "bytes=5-2", "0-3", "bytes=0-10"] {
        let answer = t.send(copy(t, &source, &upload).header("x-amz-copy-source-range", range)).await?;
        expect_error(&answer, &[400], "InvalidArgument")?;
    }
    let beyond = t.send(copy(t, &source, &upload).header("x-amz-copy-source-range", "bytes=20-21")).await?;
    expect_status(&beyond, &[400])?;
    has_parts(&t.send(upload.list()).await?, &[])?;
    t.send(upload.abort()).await.map(drop)
}

const CONDITIONS: Check = Check {
    id: "part-copy.conditions",
    proves: "a source condition that fails is 412 with its name, and copies nothing; one that holds copies",
    needs: &[Need::Multipart, Need::Copy],
    source: RECORDED,
    broken_by: &["ignore-copy-source-conditions", "omit-condition-element", "copy-source-304"],
    run: |t| Box::pin(conditions(t)),
    ..BASE
};

async fn conditions(t: &Trial) -> Done {
    let (source, etag, upload) = prepared(t).await?;
    let failing = [
        ("x-amz-copy-source-if-match", STRANGER, "x-amz-copy-source-If-Match"),
        ("x-amz-copy-source-if-none-match", &etag, "x-amz-copy-source-If-None-Match"),
    ];
    for (header, value, condition) in failing {
        let answer = t.send(copy(t, &source, &upload).header(header, value)).await?;
        expect_error(&answer, &[412], "PreconditionFailed")?;
        expect_element(&answer, "Condition", condition)?;
    }
    has_parts(&t.send(upload.list()).await?, &[])?;
    let holding = copy(t, &source, &upload).header("x-amz-copy-source-if-match", &etag);
    expect_status(&t.send(holding).await?, &[200])?;
    t.send(upload.abort()).await.map(drop)
}

const ABSENT: Check = Check {
    id: "part-copy.absent-source",
    proves: "a part copied from a key that is not there is 404 NoSuchKey, and copies nothing",
    needs: &[Need::Multipart, Need::Copy],
    source: "S3 API Reference: UploadPartCopy; Error responses",
    broken_by: &["wrong-key-codes"],
    run: |t| Box::pin(absent(t)),
    ..BASE
};

async fn absent(t: &Trial) -> Done {
    let upload = open(t).await?;
    expect_error(&t.send(copy(t, &t.key("never"), &upload)).await?, &[404], "NoSuchKey")?;
    t.send(upload.abort()).await.map(drop)
}

const GET_PART: &str = "AWS recording 2026-02: test_get_object_part";

const READ: Check = Check {
    id: "read.part-number",
    proves: "partNumber reads one part of a multipart object: 206 with its range and the number of parts",
    source: GET_PART,
    broken_by: &["ignore-read-part-number"],
    run: |t| Box::pin(read(t)),
    ..BASE
};

async fn read(t: &Trial) -> Done {
    let body = t.body("part", 60);
    Upload::whole(t, &t.key("k"), &body).await?;
    let answer = t.send(Call::get(&t.key("k")).query("partNumber", "1")).await?;
    expect_status(&answer, &[206])?;
    expect_header(&answer, "content-range", "bytes 0-59/60")?;
    expect_header(&answer, "x-amz-mp-parts-count", "1")?;
    expect_body(&answer, &body)
}

const READ_BEYOND: Check = Check {
    id: "read.part-number.beyond",
    proves: "a partNumber beyond the last is 416 InvalidPartNumber, and one beside a Range 400 InvalidRequest",
    source: GET_PART,
    broken_by: &["ignore-read-part-number", "ignore-range", "wrong-request-codes", "wrong-multipart-codes"],
    run: |t| Box::pin(read_beyond(t)),
    ..BASE
};

async fn read_beyond(t: &Trial) -> Done {
    Upload::whole(t, &t.key("k"), &t.body("part", 60)).await?;
    let answer = t.send(Call::get(&t.key("k")).query("partNumber", "2")).await?;
    expect_error(&answer, &[416], "InvalidPartNumber")?;
    expect_element(&answer, "PartNumberRequested", "2")?;
    expect_element(&answer, "ActualPartCount", "1")?;
    let both = Call::get(&t.key("k")).query("partNumber", "1").header("range", "bytes=0-1");
    expect_error(&t.send(both).await?, &[400], "InvalidRequest")
}

const READ_PLAIN: Check = Check {
    id: "read.part-number.plain-object",
    proves: "partNumber=1 of an object made by one PUT is 206 with all of it",
    needs: &[],
    source: GET_PART,
    broken_by: &["ignore-read-part-number"],
    run: |t| Box::pin(read_plain(t)),
    ..BASE
};

async fn read_plain(t: &Trial) -> Done {
    t.put(&t.key("k"), &Bytes::from_static(SOURCE)).await?;
    let answer = t.send(Call::get(&t.key("k")).query("partNumber", "1")).await?;
    expect_status(&answer, &[206])?;
    expect_header(&answer, "content-range", "bytes 0-9/10")
}
