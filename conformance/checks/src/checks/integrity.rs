//! Checksums sent with a body: right ones are kept, wrong ones stop the write.

use crate::call::Call;
use crate::check::{Check, Done, Need, Severity, Stop};
use crate::chunked::{Chunked, Spoil};
use crate::digest::Algorithm::{self, *};
use crate::expect::{expect_element, expect_error, expect_header, expect_status};
use crate::sign::Signing;
use crate::trial::Trial;
use crate::upload::Upload;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use md5::{Digest, Md5 as Md5Hasher};

const RECORDED: &str = "AWS recording 2026-02: test_s3_checksum tests";
const MD5_RECORDED: &str = "AWS recording 2026-02: test_s3_invalid_content_md5";
const NEWER: &str = "S3 User Guide: Checking object integrity for data uploads; algorithms of April 2026";
const TRAILERS: &str =
    "S3 User Guide: trailing checksums; Signature Version 4, transferring payload in multiple chunks";

pub(super) const ALL: &[Check] = &[
    MD5_RIGHT,
    MD5_WRONG,
    MD5_MALFORMED,
    MD5_PART,
    header("integrity.header.crc32", |t| Box::pin(by_header(t, Crc32))),
    header("integrity.header.crc32c", |t| Box::pin(by_header(t, Crc32c))),
    header("integrity.header.sha1", |t| Box::pin(by_header(t, Sha1))),
    header("integrity.header.sha256", |t| Box::pin(by_header(t, Sha256))),
    also(
        header("integrity.header.crc64nvme", |t| Box::pin(by_header(t, Crc64nvme))),
        &["ignore-checksums", "wrong-checksum-codes", "no-default-checksum", "omit-checksums"],
    ),
    newer(header("integrity.header.sha512", |t| Box::pin(by_header(t, Sha512)))),
    newer(header("integrity.header.md5", |t| Box::pin(by_header(t, Md5)))),
    newer(header("integrity.header.xxhash64", |t| Box::pin(by_header(t, Xxhash64)))),
    newer(header("integrity.header.xxhash3", |t| Box::pin(by_header(t, Xxhash3)))),
    newer(header("integrity.header.xxhash128", |t| Box::pin(by_header(t, Xxhash128)))),
    trailer("integrity.trailer.crc32", |t| Box::pin(by_trailer(t, Crc32))),
    trailer("integrity.trailer.crc32c", |t| Box::pin(by_trailer(t, Crc32c))),
    trailer("integrity.trailer.sha1", |t| Box::pin(by_trailer(t, Sha1))),
    trailer("integrity.trailer.sha256", |t| Box::pin(by_trailer(t, Sha256))),
    also(
        trailer("integrity.trailer.crc64nvme", |t| Box::pin(by_trailer(t, Crc64nvme))),
        &[
            "ignore-trailers",
            "wrong-checksum-codes",
            "store-chunk-framing",
            "mixed-reads",
            "no-default-checksum",
            "omit-checksums",
        ],
    ),
    newer(trailer("integrity.trailer.newer", |t| Box::pin(newer_trailers(t)))),
    MALFORMED,
    TWO,
    DEFAULT,
    DECODED,
    CHUNKS_ENCODING,
    MISSING,
    CHUNK_SIGNATURE,
    PAYLOAD_HASH,
    COPY,
];

const BASE: Check = Check {
    id: "integrity",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: RECORDED,
    broken_by: &["ignore-checksums"],
    run: |t| Box::pin(md5_right(t)),
};

const fn header(id: &'static str, run: crate::Run) -> Check {
    let proves =
        "this checksum in a header is kept and given back; a wrong one is BadDigest and stores nothing";
    Check {
        id,
        proves,
        run,
        broken_by: &["ignore-checksums", "wrong-checksum-codes", "omit-checksums"],
        ..BASE
    }
}

const fn trailer(id: &'static str, run: crate::Run) -> Check {
    let proves =
        "this checksum after signed and unsigned chunks is kept; a wrong one is BadDigest and stores nothing";
    Check {
        id,
        proves,
        run,
        source: TRAILERS,
        broken_by: &[
            "ignore-trailers",
            "wrong-checksum-codes",
            "store-chunk-framing",
            "mixed-reads",
            "omit-checksums",
        ],
        ..BASE
    }
}

const fn newer(check: Check) -> Check {
    Check { severity: Severity::Informative, source: NEWER, ..check }
}

const fn also(check: Check, broken_by: &'static [&'static str]) -> Check {
    Check { broken_by, ..check }
}

fn md5(body: &[u8]) -> String {
    BASE64_STANDARD.encode(Md5Hasher::digest(body))
}

const MD5_RIGHT: Check = Check {
    id: "integrity.content-md5",
    proves: "a body with its right Content-MD5 is stored",
    severity: Severity::Required,
    source: MD5_RECORDED,
    broken_by: &["refuse-content-md5"],
    ..BASE
};

async fn md5_right(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("right", 0));
    let put = t.send(Call::put(&key, body.clone()).header("content-md5", &md5(&body))).await?;
    expect_status(&put, &[200])?;
    t.holds(&key, &body).await
}

const MD5_WRONG: Check = Check {
    id: "integrity.content-md5.wrong",
    proves: "a Content-MD5 of another body is 400 BadDigest, and the key keeps what it held",
    source: MD5_RECORDED,
    broken_by: &["ignore-checksums", "refuse-content-md5", "wrong-checksum-codes"],
    run: |t| Box::pin(md5_wrong(t)),
    ..BASE
};

async fn md5_wrong(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let answer = t.send(Call::put(&key, t.body("new", 0)).header("content-md5", &md5(b"other"))).await?;
    expect_error(&answer, &[400], "BadDigest")?;
    t.holds(&key, &old).await
}

const MD5_MALFORMED: Check = Check {
    id: "integrity.content-md5.malformed",
    proves: "a Content-MD5 that is no base64 of 16 bytes is 400 InvalidDigest, and stores nothing",
    source: MD5_RECORDED,
    broken_by: &["ignore-checksums", "refuse-content-md5", "wrong-checksum-codes"],
    run: |t| Box::pin(md5_malformed(t)),
    ..BASE
};

async fn md5_malformed(t: &Trial) -> Done {
    let key = t.key("k");
    for value in ["notmd5", "AAAA"] {
        let answer = t.send(Call::put(&key, t.body("new", 0)).header("content-md5", value)).await?;
        expect_error(&answer, &[400], "InvalidDigest")?;
        expect_element(&answer, "Content-MD5", value)?;
    }
    t.lacks(&key).await
}

const MD5_PART: Check = Check {
    id: "integrity.content-md5.part",
    proves: "a part with a wrong Content-MD5 is 400 BadDigest, and is not among the parts",
    needs: &[Need::Multipart],
    source: MD5_RECORDED,
    broken_by: &["ignore-checksums", "refuse-content-md5", "wrong-checksum-codes"],
    run: |t| Box::pin(md5_part(t)),
    ..BASE
};

async fn md5_part(t: &Trial) -> Done {
    let upload = Upload::start(t, &t.key("k"), &t.body("part", 0)).await?;
    let call = upload.part(2).body(t.body("part", 0)).header("content-md5", &md5(b"other"));
    expect_error(&t.send(call).await?, &[400], "BadDigest")?;
    let parts = t.send(upload.list()).await?;
    super::multipart::has_parts(&parts, &["1"])?;
    t.send(upload.abort()).await.map(drop)
}

/// HEAD with the checksum must give this value back.
async fn kept(t: &Trial, key: &str, algorithm: Algorithm, value: &str) -> Done {
    let head = t.send(Call::head(key).header("x-amz-checksum-mode", "ENABLED")).await?;
    expect_status(&head, &[200])?;
    expect_header(&head, algorithm.header(), value)
}

async fn by_header(t: &Trial, algorithm: Algorithm) -> Done {
    let (key, body) = (t.key("k"), t.body("right", 300));
    let value = algorithm.value(&body);
    let put = t.send(Call::put(&key, body.clone()).header(algorithm.header(), &value)).await?;
    expect_status(&put, &[200])?;
    expect_header(&put, algorithm.header(), &value)?;
    kept(t, &key, algorithm, &value).await?;
    let wrong = Call::put(&key, t.body("other", 0)).header(algorithm.header(), &value);
    expect_error(&t.send(wrong).await?, &[400], "BadDigest")?;
    t.holds(&key, &body).await
}

async fn by_trailer(t: &Trial, algorithm: Algorithm) -> Done {
    for signed in [true, false] {
        let (key, body) = (t.key(if signed { "signed" } else { "unsigned" }), t.body("right", 10_000));
        let chunked = |value: &str| {
            let trailer = Some((algorithm.header().to_owned(), value.to_owned()));
            Chunked { signed, trailer, spoil: None }
        };
        let value = algorithm.value(&body);
        expect_status(&t.send(Call::put(&key, body.clone()).chunked(chunked(&value))).await?, &[200])?;
        kept(t, &key, algorithm, &value).await?;
        let wrong = Call::put(&key, t.body("other", 0)).chunked(chunked(&value));
        expect_error(&t.send(wrong).await?, &[400], "BadDigest")?;
        t.holds(&key, &body).await?;
    }
    Ok(())
}

async fn newer_trailers(t: &Trial) -> Done {
    for algorithm in [Sha512, Md5, Xxhash64, Xxhash3, Xxhash128] {
        by_trailer(t, algorithm).await?;
    }
    Ok(())
}

const MALFORMED: Check = Check {
    id: "integrity.header.malformed",
    proves: "a checksum that is no base64 of its algorithm's length is 400 InvalidRequest, and stores nothing",
    run: |t| Box::pin(malformed(t)),
    broken_by: &["ignore-checksums", "wrong-request-codes"],
    ..BASE
};

async fn malformed(t: &Trial) -> Done {
    for (algorithm, value) in [(Crc32, "AAAA"), (Sha256, "not base64"), (Crc64nvme, "AAAAAA==")] {
        let answer = t.send(Call::put(&t.key("k"), t.body("x", 0)).header(algorithm.header(), value)).await?;
        expect_error(&answer, &[400], "InvalidRequest")?;
    }
    t.lacks(&t.key("k")).await
}

const TWO: Check = Check {
    id: "integrity.header.two",
    proves: "two checksums of different algorithms are 400 InvalidRequest, and store nothing",
    broken_by: &["ignore-checksums", "wrong-request-codes"],
    run: |t| Box::pin(two(t)),
    ..BASE
};

async fn two(t: &Trial) -> Done {
    let body = t.body("right", 0);
    let call = [Crc32, Sha1].iter().fold(Call::put(&t.key("k"), body.clone()), |call, algorithm| {
        call.header(algorithm.header(), &algorithm.value(&body))
    });
    expect_error(&t.send(call).await?, &[400], "InvalidRequest")?;
    t.lacks(&t.key("k")).await
}

const DEFAULT: Check = Check {
    id: "integrity.default",
    proves: "an object sent without a checksum has the CRC64NVME of all of it",
    source: "AWS recording 2026-02: test_s3_checksum_no_automatic_sdk_calculation",
    broken_by: &["no-default-checksum", "omit-checksums"],
    run: |t| Box::pin(default(t)),
    ..BASE
};

async fn default(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("plain", 0));
    t.put(&key, &body).await?;
    let head = t.send(Call::head(&key).header("x-amz-checksum-mode", "ENABLED")).await?;
    expect_header(&head, Crc64nvme.header(), &Crc64nvme.value(&body))?;
    expect_header(&head, "x-amz-checksum-type", "FULL_OBJECT")
}

const DECODED: Check = Check {
    id: "integrity.chunks",
    proves: "a body in signed chunks is stored without its framing",
    severity: Severity::Required,
    source: TRAILERS,
    broken_by: &["store-chunk-framing", "mixed-reads"],
    run: |t| Box::pin(decoded(t)),
    ..BASE
};

async fn decoded(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("chunks", 20_000));
    let chunked = Chunked { signed: true, ..Chunked::default() };
    expect_status(&t.send(Call::put(&key, body.clone()).chunked(chunked)).await?, &[200])?;
    t.holds(&key, &body).await?;
    let head = t.send(Call::head(&key)).await?;
    expect_header(&head, "content-length", "20000")
}

const CHUNKS_ENCODING: Check = Check {
    id: "integrity.chunks.content-encoding",
    proves: "aws-chunked frames the request and is no part of the object's Content-Encoding",
    source: TRAILERS,
    broken_by: &["keep-aws-chunked"],
    run: |t| Box::pin(encoding(t)),
    ..BASE
};

async fn encoding(t: &Trial) -> Done {
    let key = t.key("k");
    let chunked = Chunked { signed: true, ..Chunked::default() };
    expect_status(&t.send(Call::put(&key, t.body("chunks", 0)).chunked(chunked)).await?, &[200])?;
    let head = t.send(Call::head(&key)).await?;
    match head.header("content-encoding") {
        Some(encoding) if encoding.contains("aws-chunked") => {
            Err(Stop::fail("no aws-chunked in Content-Encoding", encoding, &head))
        }
        _ => Ok(()),
    }
}

const MISSING: Check = Check {
    id: "integrity.trailer.missing",
    proves: "a trailer that was announced and does not come is 400, and stores nothing",
    source: "versitygw pull request 1664: AWS's answers",
    broken_by: &["ignore-trailers", "store-chunk-framing", "accept-any-signature"],
    run: |t| Box::pin(missing(t)),
    ..BASE
};

async fn missing(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("chunks", 0));
    let trailer = Some((Crc32.header().to_owned(), Crc32.value(&body)));
    let chunked = Chunked { signed: false, trailer, spoil: Some(Spoil::Trailer) };
    expect_status(&t.send(Call::put(&key, body).chunked(chunked)).await?, &[400])?;
    t.lacks(&key).await
}

const CHUNK_SIGNATURE: Check = Check {
    id: "integrity.chunks.signature",
    proves: "a chunk whose signature is wrong is 403 SignatureDoesNotMatch, and nothing is stored",
    source: "Signature Version 4: transferring payload in multiple chunks",
    broken_by: &["accept-any-signature", "ignore-trailers", "store-chunk-framing", "wrong-signature-codes"],
    run: |t| Box::pin(chunk_signature(t)),
    ..BASE
};

async fn chunk_signature(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let chunked = Chunked { signed: true, trailer: None, spoil: Some(Spoil::Signature) };
    let answer = t.send(Call::put(&key, t.body("new", 10_000)).chunked(chunked)).await?;
    expect_error(&answer, &[403], "SignatureDoesNotMatch")?;
    t.holds(&key, &old).await
}

const PAYLOAD_HASH: Check = Check {
    id: "integrity.payload-hash",
    proves: "a body with another SHA-256 than the signed one is 400 XAmzContentSHA256Mismatch, and stores nothing",
    source: "versitygw issue 2043: a transcript of AWS",
    broken_by: &["accept-any-signature"],
    run: |t| Box::pin(payload_hash(t)),
    ..BASE
};

async fn payload_hash(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let signing = Signing { payload_sha256: Some("ab".repeat(32)), ..Signing::default() };
    let answer = t.send(Call::put(&key, t.body("new", 0)).signing(signing)).await?;
    expect_error(&answer, &[400], "XAmzContentSHA256Mismatch")?;
    t.holds(&key, &old).await
}

const COPY: Check = Check {
    id: "integrity.copy",
    proves: "a copy keeps the checksum of its source",
    needs: &[Need::Copy],
    broken_by: &["ignore-checksums", "omit-checksums"],
    run: |t| Box::pin(copy(t)),
    ..BASE
};

async fn copy(t: &Trial) -> Done {
    let (from, to, body): (_, _, Bytes) = (t.key("from"), t.key("to"), t.body("copied", 0));
    let value = Sha1.value(&body);
    expect_status(&t.send(Call::put(&from, body).header(Sha1.header(), &value)).await?, &[200])?;
    expect_status(&t.send(t.client().copy(&from, &to)).await?, &[200])?;
    kept(t, &to, Sha1, &value).await
}
