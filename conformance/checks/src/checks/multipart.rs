//! Multipart uploads: parts, their order and limits, what is refused, and what is seen meanwhile.

use crate::call::Call;
use crate::check::{Check, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::expect::{
    expect_body, expect_element, expect_equal, expect_error, expect_header, expect_list, expect_status, texts,
};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};

const RECORDED: &str = "AWS recording 2026-02: multipart tests of test_s3";
/// The least size of any part but the last.
pub(super) const PART_BYTES: usize = 5 << 20;

pub(super) const ALL: &[Check] = &[
    WHOLE, SMALL, ORDER, UNKNOWN, NUMBERS, REPLACED, SUBSET, ABORT, INVISIBLE, WRONG_KEY, NO_PARTS, SIZE,
    METADATA, TWO, UNQUOTED, ETAG, NO_UPLOAD,
];

pub(super) const BASE: Check = Check {
    id: "multipart",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[Need::Multipart],
    source: RECORDED,
    broken_by: &["wrong-multipart-codes"],
    run: |t| Box::pin(whole(t)),
};

pub(super) async fn open(t: &Trial) -> Result<Upload, Stop> {
    Upload::open(t, Call::new(Method::POST, Some(&t.key("k")))).await
}

/// ListParts must show exactly these part numbers.
pub(super) fn has_parts(listing: &Answer, numbers: &[&str]) -> Done {
    expect_status(listing, &[200])?;
    expect_list("parts", &super::list::owned(numbers), &texts(listing, "Part", "PartNumber"), listing)
}

/// A Complete must be refused with this code, and make no object.
async fn refused(t: &Trial, upload: &Upload, complete: Call, code: &str) -> Result<Answer, Stop> {
    let answer = t.send(complete).await?;
    expect_error(&answer, &[400], code)?;
    t.lacks(&upload.key).await?;
    Ok(answer)
}

const WHOLE: Check = Check {
    id: "multipart.parts",
    proves: "two parts, sent out of order with a gap in their numbers, make one object in the order of the numbers",
    broken_by: &["loses-last-part", "ignore-range"],
    ..BASE
};

async fn whole(t: &Trial) -> Done {
    let upload = open(t).await?;
    let (big, small) = (t.body("first", PART_BYTES), t.body("second", 100));
    let second = upload.send(t, 9, &small).await?;
    let first = upload.send(t, 2, &big).await?;
    let answer = t.send(upload.complete_of(&[(2, &first), (9, &second)])).await?;
    expect_status(&answer, &[200])?;
    let head = t.send(Call::head(&upload.key)).await?;
    expect_header(&head, "content-length", &(PART_BYTES + 100).to_string())?;
    let seam = format!("bytes={}-{}", PART_BYTES - 3, PART_BYTES + 8);
    let read = t.send(Call::get(&upload.key).header("range", &seam)).await?;
    expect_status(&read, &[206])?;
    expect_body(&read, &[&big[PART_BYTES - 3..], &small[..9]].concat())
}

const SMALL: Check = Check {
    id: "multipart.entity-too-small",
    proves: "a part under 5 MiB that is not the last is refused at Complete, with the sizes, and makes no object",
    run: |t| Box::pin(small(t)),
    broken_by: &["wrong-multipart-codes", "loses-last-part"],
    ..BASE
};

async fn small(t: &Trial) -> Done {
    let upload = open(t).await?;
    let etag = upload.send(t, 1, &t.body("small", 90)).await?;
    let last = upload.send(t, 2, &t.body("last", 0)).await?;
    let complete = upload.complete_of(&[(1, &etag), (2, &last)]);
    let answer = refused(t, &upload, complete, "EntityTooSmall").await?;
    expect_element(&answer, "ProposedSize", "90")?;
    expect_element(&answer, "MinSizeAllowed", &PART_BYTES.to_string())?;
    expect_element(&answer, "PartNumber", "1")?;
    t.send(upload.abort()).await.map(drop)
}

const ORDER: Check = Check {
    id: "multipart.order",
    proves: "a Complete whose parts do not ascend is 400 InvalidPartOrder",
    run: |t| Box::pin(order(t)),
    broken_by: &["wrong-multipart-codes", "loses-last-part"],
    ..BASE
};

async fn order(t: &Trial) -> Done {
    let upload = open(t).await?;
    let (one, two) = (upload.send(t, 1, &t.body("1", 0)).await?, upload.send(t, 2, &t.body("2", 0)).await?);
    refused(t, &upload, upload.complete_of(&[(2, &two), (1, &one)]), "InvalidPartOrder").await?;
    t.send(upload.abort()).await.map(drop)
}

const UNKNOWN: Check = Check {
    id: "multipart.unknown-part",
    proves: "a Complete that names a part never sent, or another ETag, is 400 InvalidPart",
    run: |t| Box::pin(unknown(t)),
    broken_by: &["wrong-multipart-codes", "complete-takes-first-part"],
    ..BASE
};

async fn unknown(t: &Trial) -> Done {
    let upload = open(t).await?;
    let etag = upload.send(t, 1, &t.body("1", 0)).await?;
    for parts in [[(2, etag.as_str())], [(1, super::put_swap::STRANGER)]] {
        let answer = refused(t, &upload, upload.complete_of(&parts), "InvalidPart").await?;
        expect_element(&answer, "PartNumber", &parts[0].0.to_string())?;
        expect_element(&answer, "UploadId", &upload.id)?;
    }
    t.send(upload.abort()).await.map(drop)
}

const NUMBERS: Check = Check {
    id: "multipart.part-numbers",
    proves: "part numbers 1 and 10000 are taken, 0 and 10001 are 400 InvalidArgument",
    broken_by: &["wrong-argument-codes"],
    run: |t| Box::pin(numbers(t)),
    ..BASE
};

async fn numbers(t: &Trial) -> Done {
    let upload = open(t).await?;
    for number in [1, 10_000] {
        upload.send(t, number, &t.body("part", 0)).await?;
    }
    for number in [0, 10_001] {
        let answer = t.send(upload.part(number).body("part")).await?;
        expect_error(&answer, &[400], "InvalidArgument")?;
        expect_element(&answer, "ArgumentName", "partNumber")?;
    }
    t.send(upload.abort()).await.map(drop)
}

const REPLACED: Check = Check {
    id: "multipart.replaced-part",
    proves: "a part sent again replaces the first: the old ETag is InvalidPart, the new one gives the new bytes",
    source: "S3 User Guide: Multipart upload process; overwriting a part",
    run: |t| Box::pin(replaced(t)),
    ..BASE
};

async fn replaced(t: &Trial) -> Done {
    let (upload, new) = (open(t).await?, t.body("new", 0));
    let old = upload.send(t, 1, &t.body("old", 0)).await?;
    let etag = upload.send(t, 1, &new).await?;
    refused(t, &upload, upload.complete_of(&[(1, &old)]), "InvalidPart").await?;
    expect_status(&t.send(upload.complete_of(&[(1, &etag)])).await?, &[200])?;
    t.holds(&upload.key, &new).await
}

const SUBSET: Check = Check {
    id: "multipart.subset",
    proves: "a part that Complete does not list is not in the object",
    source: "S3 API Reference: CompleteMultipartUpload",
    broken_by: &["complete-takes-first-part"],
    run: |t| Box::pin(subset(t)),
    ..BASE
};

async fn subset(t: &Trial) -> Done {
    let (upload, kept) = (open(t).await?, t.body("kept", 0));
    upload.send(t, 1, &t.body("left out", 0)).await?;
    let etag = upload.send(t, 3, &kept).await?;
    expect_status(&t.send(upload.complete_of(&[(3, &etag)])).await?, &[200])?;
    t.holds(&upload.key, &kept).await
}

const ABORT: Check = Check {
    id: "multipart.abort",
    proves: "after an abort the upload is gone for every operation, and no object was made",
    broken_by: &["ignore-abort", "wrong-multipart-codes"],
    run: |t| Box::pin(abort(t)),
    ..BASE
};

async fn abort(t: &Trial) -> Done {
    let upload = Upload::start(t, &t.key("k"), &t.body("part", 0)).await?;
    expect_status(&t.send(upload.abort()).await?, &[204])?;
    for call in [upload.part(1).body("late"), upload.list(), upload.complete(), upload.abort()] {
        expect_error(&t.send(call).await?, &[404], "NoSuchUpload")?;
    }
    t.lacks(&upload.key).await
}

const INVISIBLE: Check = Check {
    id: "multipart.invisible",
    proves: "until Complete an upload changes nothing: the key is absent or as it was, for reads and listings",
    severity: Severity::Required,
    source: "S3 User Guide: Multipart upload process",
    broken_by: &["parts-are-visible", "empty-list-404"],
    run: |t| Box::pin(invisible(t)),
    ..BASE
};

async fn invisible(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("new", 0));
    let upload = Upload::start(t, &key, &body).await?;
    t.lacks(&key).await?;
    let page = super::list::list(t, "", &[]).await?;
    expect_list("keys", &[], &page.keys, &page.answer)?;
    let old = t.body("old", 0);
    t.put(&key, &old).await?;
    expect_status(&t.send(upload.part(1).body(body.clone())).await?, &[200])?;
    t.holds(&key, &old).await?;
    expect_status(&t.send(upload.complete()).await?, &[200])?;
    t.holds(&key, &body).await
}

const WRONG_KEY: Check = Check {
    id: "multipart.other-key",
    proves: "an upload id used with another key is 404 NoSuchUpload, and writes nothing there",
    run: |t| Box::pin(wrong_key(t)),
    ..BASE
};

async fn wrong_key(t: &Trial) -> Done {
    let upload = Upload::start(t, &t.key("k"), &t.body("part", 0)).await?;
    let other = Upload { key: t.key("other"), id: upload.id.clone(), part: upload.part.clone() };
    for call in [other.part(1).body("part"), other.complete(), other.list()] {
        expect_error(&t.send(call).await?, &[404], "NoSuchUpload")?;
    }
    t.lacks(&other.key).await?;
    t.send(upload.abort()).await.map(drop)
}

const NO_PARTS: Check = Check {
    id: "multipart.no-parts",
    proves: "a Complete without parts is 400 and makes no object",
    source: "AWS recording 2026-02: multipart tests of test_s3 (InvalidRequest); ceph/s3-tests wants MalformedXML",
    broken_by: &["accept-no-parts"],
    run: |t| Box::pin(no_parts(t)),
    ..BASE
};

async fn no_parts(t: &Trial) -> Done {
    let upload = Upload::start(t, &t.key("k"), &t.body("part", 0)).await?;
    expect_status(&t.send(upload.complete_of(&[])).await?, &[400])?;
    t.lacks(&upload.key).await?;
    t.send(upload.abort()).await.map(drop)
}

const SIZE: Check = Check {
    id: "multipart.object-size",
    proves: "x-amz-mp-object-size is compared: a wrong one is 400 InvalidRequest, the right one succeeds",
    broken_by: &["ignore-mp-object-size", "wrong-request-codes"],
    run: |t| Box::pin(size(t)),
    ..BASE
};

async fn size(t: &Trial) -> Done {
    let body = t.body("part", 50);
    let upload = Upload::start(t, &t.key("k"), &body).await?;
    let sized = |size| upload.complete().header("x-amz-mp-object-size", size);
    refused(t, &upload, sized("51"), "InvalidRequest").await?;
    expect_status(&t.send(sized("50")).await?, &[200])?;
    t.holds(&upload.key, &body).await
}

const METADATA: Check = Check {
    id: "multipart.metadata",
    proves: "the content type and metadata given when the upload was created are the object's",
    source: "S3 API Reference: CreateMultipartUpload",
    broken_by: &["drop-metadata"],
    run: |t| Box::pin(metadata(t)),
    ..BASE
};

async fn metadata(t: &Trial) -> Done {
    let post = Call::new(Method::POST, Some(&t.key("k"))).header("content-type", "text/x-assay");
    let upload = Upload::open(t, post.header("x-amz-meta-made", "by parts")).await?;
    let etag = upload.send(t, 1, &t.body("part", 0)).await?;
    expect_status(&t.send(upload.complete_of(&[(1, &etag)])).await?, &[200])?;
    let head = t.send(Call::head(&upload.key)).await?;
    expect_header(&head, "content-type", "text/x-assay")?;
    expect_header(&head, "x-amz-meta-made", "by parts")
}

const TWO: Check = Check {
    id: "multipart.two-uploads",
    proves: "two uploads of one key do not touch each other; the last Complete is what the key holds",
    source: "S3 User Guide: Concurrent multipart upload operations",
    broken_by: &["one-upload-per-key"],
    run: |t| Box::pin(two(t)),
    ..BASE
};

async fn two(t: &Trial) -> Done {
    let (key, first, second) = (t.key("k"), t.body("first", 0), t.body("second", 0));
    let (a, b) = (Upload::start(t, &key, &first).await?, Upload::start(t, &key, &second).await?);
    expect_status(&t.send(b.complete()).await?, &[200])?;
    t.holds(&key, &second).await?;
    expect_status(&t.send(a.complete()).await?, &[200])?;
    t.holds(&key, &first).await
}

const UNQUOTED: Check = Check {
    id: "multipart.unquoted-etags",
    proves: "the ETags in a Complete may stand without quotes",
    severity: Severity::Informative,
    source: "ceph/s3-tests 2026-05: multipart uploads",
    broken_by: &["quoted-part-etags-only"],
    run: |t| Box::pin(unquoted(t)),
    ..BASE
};

async fn unquoted(t: &Trial) -> Done {
    let body = t.body("part", 0);
    let upload = Upload::start(t, &t.key("k"), &body).await?;
    let complete = upload.complete_of(&[(1, upload.part.trim_matches('"'))]);
    expect_status(&t.send(complete).await?, &[200])?;
    t.holds(&upload.key, &body).await
}

const ETAG: Check = Check {
    id: "multipart.etag",
    proves: "a multipart ETag is the MD5 of its parts' MD5s and their number",
    broken_by: &["unquoted-etags", "multipart-etag-plain", "truncated-etags"],
    run: |t| Box::pin(etag(t)),
    ..BASE
};

async fn etag(t: &Trial) -> Done {
    let body: Bytes = t.body("part", 40);
    let upload = Upload::start(t, &t.key("k"), &body).await?;
    let answer = t.send(upload.complete()).await?;
    expect_status(&answer, &[200])?;
    let wanted = format!("\"{}-1\"", hex::encode(Md5::digest(Md5::digest(&body))));
    expect_equal("ETag", &wanted, &answer.element("ETag").unwrap_or_default(), &answer)
}

const NO_UPLOAD: Check = Check {
    id: "multipart.completed-is-gone",
    proves: "after Complete the upload takes no more parts and is listed no more",
    run: |t| Box::pin(no_upload(t)),
    ..BASE
};

async fn no_upload(t: &Trial) -> Done {
    let upload = Upload::start(t, &t.key("k"), &t.body("part", 0)).await?;
    expect_status(&t.send(upload.complete()).await?, &[200])?;
    for call in [upload.part(2).body("late"), upload.list()] {
        expect_error(&t.send(call).await?, &[404], "NoSuchUpload")?;
    }
    let listing = Call::new(Method::GET, None).query("uploads", "").query("prefix", t.prefix());
    let listing = t.send(listing).await?;
    expect_list("uploads", &[], &texts(&listing, "Upload", "Key"), &listing)
}
