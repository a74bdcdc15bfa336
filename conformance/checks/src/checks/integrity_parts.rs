//! Checksums of multipart objects, and uploads that are cut.

use crate::call::Call;
use crate::check::{Check, Done, Need, Severity, Stop};
use crate::chunked::{Chunked, Spoil};
use crate::client::Answer;
use crate::digest::Algorithm::{self, Crc32, Crc64nvme, Sha256};
use crate::expect::{expect_error, expect_header, expect_status};
use crate::payload::Payload;
use crate::trial::Trial;
use crate::upload::Upload;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;

const RECORDED: &str = "AWS recording 2026-02: multipart checksum tests of test_s3";
const WHOLE: &str = "S3 API Reference: PutObject; S3 never adds partial objects";
/// A body that is cut half way: more than one packet and less than what a socket holds.
const TORN_BYTES: usize = 256 << 10;
/// Uploads that are cut, in each check.
const TEARS: usize = 4;
/// Round trips that half a body is given to arrive.
const ROUND_TRIPS: usize = 8;
/// Looks for a write that may still come after its connection was cut.
const LOOKS: usize = 20;

pub(super) const ALL: &[Check] =
    &[COMPOSITE, FULL_OBJECT, PAIRING, PART, COMPLETE, TORN_CREATE, TORN_OVERWRITE, TORN_PART, TORN_CHUNKS];

const BASE: Check = Check {
    id: "integrity.multipart",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[Need::Multipart],
    source: RECORDED,
    broken_by: &["ignore-checksums", "omit-checksums"],
    run: |t| Box::pin(composite(t)),
};

/// Creates an upload with an algorithm and a type.
fn create(t: &Trial, algorithm: Algorithm, kind: &str) -> Call {
    Call::new(Method::POST, Some(&t.key("k")))
        .header("x-amz-checksum-algorithm", algorithm.name())
        .header("x-amz-checksum-type", kind)
}

/// One part with its checksum; gives the inside of a Complete that names both.
async fn part(t: &Trial, upload: &Upload, algorithm: Algorithm, body: &Bytes) -> Result<String, Stop> {
    let value = algorithm.value(body);
    let sent = t.send(upload.part(1).body(body.clone()).header(algorithm.header(), &value)).await?;
    expect_status(&sent, &[200])?;
    expect_header(&sent, algorithm.header(), &value)?;
    let (etag, name) = (sent.etag(), algorithm.name());
    Ok(format!(
        "<Part><PartNumber>1</PartNumber><ETag>{}</ETag><Checksum{name}>{value}</Checksum{name}></Part>",
        crate::xml::escape(etag)
    ))
}

async fn head(t: &Trial) -> Result<Answer, Stop> {
    t.send(Call::head(&t.key("k")).header("x-amz-checksum-mode", "ENABLED")).await
}

const COMPOSITE: Check = Check {
    id: "integrity.multipart.composite",
    proves: "a composite checksum is that of the parts' checksums, with their number, and is given back",
    ..BASE
};

async fn composite(t: &Trial) -> Done {
    let body = t.body("part", 100);
    for algorithm in [Sha256, Crc32] {
        let upload = Upload::open(t, create(t, algorithm, "COMPOSITE")).await?;
        let inside = part(t, &upload, algorithm, &body).await?;
        expect_status(&t.send(upload.finish(&inside)).await?, &[200])?;
        let wanted = format!("{}-1", BASE64_STANDARD.encode(algorithm.digest(&algorithm.digest(&body))));
        let head = head(t).await?;
        expect_header(&head, algorithm.header(), &wanted)?;
        expect_header(&head, "x-amz-checksum-type", "COMPOSITE")?;
    }
    Ok(())
}

const FULL_OBJECT: Check = Check {
    id: "integrity.multipart.full-object",
    proves: "a full-object checksum of parts is that of all bytes, and is given back",
    run: |t| Box::pin(full_object(t)),
    broken_by: &["ignore-checksums", "no-default-checksum", "omit-checksums"],
    ..BASE
};

async fn full_object(t: &Trial) -> Done {
    let body = t.body("part", 100);
    for algorithm in [Crc64nvme, Crc32] {
        let upload = Upload::open(t, create(t, algorithm, "FULL_OBJECT")).await?;
        let inside = part(t, &upload, algorithm, &body).await?;
        let value = algorithm.value(&body);
        let complete = upload.finish(&inside).header(algorithm.header(), &value);
        expect_status(&t.send(complete.header("x-amz-checksum-type", "FULL_OBJECT")).await?, &[200])?;
        let head = head(t).await?;
        expect_header(&head, algorithm.header(), &value)?;
        expect_header(&head, "x-amz-checksum-type", "FULL_OBJECT")?;
    }
    Ok(())
}

const PAIRING: Check = Check {
    id: "integrity.multipart.pairing",
    proves: "an upload whose algorithm does not go with its type, or a type alone, is 400 InvalidRequest",
    broken_by: &["ignore-checksums", "wrong-request-codes"],
    run: |t| Box::pin(pairing(t)),
    ..BASE
};

async fn pairing(t: &Trial) -> Done {
    let alone = Call::new(Method::POST, Some(&t.key("k"))).header("x-amz-checksum-type", "COMPOSITE");
    for call in [create(t, Crc64nvme, "COMPOSITE"), create(t, Sha256, "FULL_OBJECT"), alone] {
        expect_error(&t.send(call.query("uploads", "")).await?, &[400], "InvalidRequest")?;
    }
    Ok(())
}

const PART: Check = Check {
    id: "integrity.multipart.part",
    proves: "a part with another algorithm than its upload's is 400 InvalidRequest, a wrong value 400 BadDigest",
    broken_by: &["ignore-checksums", "wrong-request-codes", "wrong-checksum-codes"],
    run: |t| Box::pin(other_part(t)),
    ..BASE
};

async fn other_part(t: &Trial) -> Done {
    let (upload, body) = (Upload::open(t, create(t, Sha256, "COMPOSITE")).await?, t.body("part", 0));
    let send = |algorithm: Algorithm, value: &str| {
        upload.part(1).body(body.clone()).header(algorithm.header(), value)
    };
    expect_error(&t.send(send(Crc32, &Crc32.value(&body))).await?, &[400], "InvalidRequest")?;
    expect_error(&t.send(send(Sha256, &Sha256.value(b"other"))).await?, &[400], "BadDigest")?;
    super::multipart::has_parts(&t.send(upload.list()).await?, &[])?;
    t.send(upload.abort()).await.map(drop)
}

const COMPLETE: Check = Check {
    id: "integrity.multipart.complete",
    proves: "a Complete with a wrong checksum of the object is 400 BadDigest, and makes no object",
    broken_by: &["ignore-checksums", "wrong-checksum-codes", "no-default-checksum", "omit-checksums"],
    run: |t| Box::pin(complete(t)),
    ..BASE
};

async fn complete(t: &Trial) -> Done {
    let upload = Upload::open(t, create(t, Crc64nvme, "FULL_OBJECT")).await?;
    let inside = part(t, &upload, Crc64nvme, &t.body("part", 0)).await?;
    let wrong = upload.finish(&inside).header(Crc64nvme.header(), &Crc64nvme.value(b"other"));
    let wrong = wrong.header("x-amz-checksum-type", "FULL_OBJECT");
    expect_error(&t.send(wrong).await?, &[400], "BadDigest")?;
    t.lacks(&upload.key).await?;
    t.send(upload.abort()).await.map(drop)
}

/// Sends half of a body and cuts the connection, a few times: a provider need not notice each.
async fn tear(t: &Trial, call: impl Fn() -> Call, body: &Bytes) -> Done {
    for _ in 0..TEARS {
        tear_once(t, call(), body).await?;
    }
    Ok(())
}

async fn tear_once(t: &Trial, call: Call, body: &Bytes) -> Done {
    let (payload, mut holder) = Payload::gated(body);
    let mut connection = t.client().connect().await?;
    let signed = t.client().sign(call.body(body.clone()).through(payload));
    let cut = async {
        holder.reached().await;
        // The half that was handed to the connection has the time of a few round trips to arrive.
        for _ in 0..ROUND_TRIPS {
            t.send(Call::head(&t.key("never"))).await?;
        }
        drop(holder);
        Ok::<_, Stop>(())
    };
    let (result, cut) = tokio::join!(connection.deliver(t.client(), signed), cut);
    cut?;
    match result {
        Err(_) => Ok(()),
        Ok(answer) => Err(Stop::fail("no success for half a body", answer.status.as_str(), &answer)),
    }
}

const TORN_CREATE: Check = Check {
    id: "integrity.torn.create",
    proves: "a PUT whose connection is cut half way stores nothing",
    severity: Severity::Required,
    needs: &[],
    source: WHOLE,
    broken_by: &["store-torn-bodies", "refuse-if-none-match-put"],
    run: |t| Box::pin(torn_create(t)),
    ..BASE
};

async fn torn_create(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("torn", TORN_BYTES));
    tear(t, || Call::put(&key, Bytes::new()), &body).await?;
    for _ in 0..LOOKS {
        t.lacks(&key).await?;
    }
    let whole = t.body("whole", 0);
    expect_status(&t.send(Call::put(&key, whole.clone()).if_none_match("*")).await?, &[200])?;
    for _ in 0..LOOKS {
        t.holds(&key, &whole).await?;
    }
    Ok(())
}

const TORN_OVERWRITE: Check = Check {
    id: "integrity.torn.overwrite",
    proves: "an overwrite whose connection is cut half way leaves the old bytes, whole",
    severity: Severity::Required,
    needs: &[],
    source: WHOLE,
    broken_by: &["store-torn-bodies"],
    run: |t| Box::pin(torn_overwrite(t)),
    ..BASE
};

async fn torn_overwrite(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    tear(t, || Call::put(&key, Bytes::new()), &t.body("torn", TORN_BYTES)).await?;
    for _ in 0..LOOKS {
        t.holds(&key, &old).await?;
    }
    Ok(())
}

const TORN_PART: Check = Check {
    id: "integrity.torn.part",
    proves: "a part whose connection is cut half way is not among the parts",
    source: WHOLE,
    broken_by: &["store-torn-bodies"],
    run: |t| Box::pin(torn_part(t)),
    ..BASE
};

async fn torn_part(t: &Trial) -> Done {
    let upload = super::multipart::open(t).await?;
    tear(t, || upload.part(1), &t.body("torn", TORN_BYTES)).await?;
    for _ in 0..LOOKS {
        super::multipart::has_parts(&t.send(upload.list()).await?, &[])?;
    }
    t.send(upload.abort()).await.map(drop)
}

const TORN_CHUNKS: Check = Check {
    id: "integrity.torn.chunks",
    proves: "a body in chunks that ends before its last chunk is refused, and stores nothing",
    needs: &[],
    source: "S3 API Reference: PutObject; Signature Version 4, transferring payload in multiple chunks",
    broken_by: &["ignore-trailers", "store-chunk-framing", "accept-any-signature"],
    run: |t| Box::pin(torn_chunks(t)),
    ..BASE
};

async fn torn_chunks(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("torn", 10_000));
    let trailer = Some((Crc32.header().to_owned(), Crc32.value(&body)));
    let chunked = Chunked { signed: false, trailer, spoil: Some(Spoil::End) };
    expect_status(&t.send(Call::put(&key, body).chunked(chunked)).await?, &[400])?;
    t.lacks(&key).await
}
