//! CompleteMultipartUpload with a condition, as far as the key's state alone decides.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::expect::{expect_element, expect_equal, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;

const DELETED: &str = "AWS recording 2026-02: test_multipart_if_none_match_with_delete";
const ETAG: &str = "AWS recording 2026-02: test_multipart_if_match_etag";

pub(super) const ALL: &[Check] = &[
    CREATE_ABSENT,
    CREATE_PRESENT,
    CREATE_MULTIPART_MADE,
    ALIVE,
    SWAP_RIGHT,
    SWAP_WRONG,
    SWAP_ABSENT,
    REPEATED,
    ERROR_DOCUMENT,
    VALIDATION,
];

pub(super) const BASE: Check = Check {
    id: "complete.create",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::CompleteCreate),
    needs: &[Need::Multipart],
    source: DELETED,
    broken_by: &["ignore-if-none-match-complete", "refuse-conditional-complete"],
    run: |t| Box::pin(create_absent(t)),
};

pub(super) const BASE_SWAP: Check = Check {
    condition: Some(Condition::CompleteSwap),
    source: ETAG,
    broken_by: &["ignore-if-match-complete", "refuse-conditional-complete"],
    ..BASE
};

/// An upload is no longer needed; whether the abort works is another check's question.
pub(super) async fn give_up(t: &Trial, upload: &Upload) -> Done {
    t.send(upload.abort()).await.map(drop)
}

const CREATE_ABSENT: Check = Check {
    id: "complete.create.absent",
    proves: "a Complete with If-None-Match: * on a key that was never touched succeeds",
    broken_by: &["refuse-conditional-complete", "invert-if-none-match-complete"],
    ..BASE
};

async fn create_absent(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("parts", 0));
    let upload = Upload::start(t, &key, &body).await?;
    t.let_through(&t.send(upload.complete().if_none_match("*")).await?, &[200])?;
    t.holds(&key, &body).await
}

const CREATE_PRESENT: Check = Check {
    id: "complete.create.present",
    proves: "a Complete with If-None-Match: * on a present key is 412 and leaves its bytes alone",
    run: |t| Box::pin(create_present(t)),
    ..BASE
};

async fn create_present(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    refused_over(t, &key, &old).await
}

const CREATE_MULTIPART_MADE: Check = Check {
    id: "complete.create.multipart-made",
    proves: "a key made by an earlier multipart upload counts as present for the next one",
    source: "S3 User Guide: conditional writes; moto issue 9028",
    broken_by: &[
        "ignore-if-none-match-complete",
        "refuse-conditional-complete",
        "multipart-counts-as-absent",
    ],
    run: |t| Box::pin(create_multipart_made(t)),
    ..BASE
};

async fn create_multipart_made(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    Upload::whole(t, &key, &old).await?;
    refused_over(t, &key, &old).await
}

async fn refused_over(t: &Trial, key: &str, old: &Bytes) -> Done {
    let upload = Upload::start(t, key, &t.body("new", 0)).await?;
    let answer = t.send(upload.complete().if_none_match("*")).await?;
    t.stopped(&answer, &[412])?;
    give_up(t, &upload).await?;
    t.holds(key, old).await
}

const ALIVE: Check = Check {
    id: "complete.refused.upload-alive",
    proves: "a Complete that was 412 ends nothing: its parts are still listed and a later Complete succeeds",
    source: "AWS recording 2026-02: test_multipart_if_match_etag, 412 then 200 with one upload id",
    broken_by: &[
        "ignore-if-none-match-complete",
        "refused-complete-ends-upload",
        "refuse-conditional-complete",
    ],
    run: |t| Box::pin(alive(t)),
    ..BASE
};

async fn alive(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &new).await?;
    t.stopped(&t.send(upload.complete().if_none_match("*")).await?, &[412])?;
    let parts = t.send(Call::get(&key).query("uploadId", &upload.id)).await?;
    expect_status(&parts, &[200])?;
    expect_element(&parts, "PartNumber", "1")?;
    expect_status(&t.send(upload.complete()).await?, &[200])?;
    t.holds(&key, &new).await
}

const SWAP_RIGHT: Check = Check {
    id: "complete.swap.right",
    proves: "a Complete with the key's current ETag in If-Match succeeds, also with a composite one",
    broken_by: &["refuse-conditional-complete", "only-unquoted-etags-match"],
    run: |t| Box::pin(swap_right(t)),
    ..BASE_SWAP
};

async fn swap_right(t: &Trial) -> Done {
    let (key, first, second) = (t.key("k"), t.body("first", 0), t.body("second", 0));
    let mut etag = t.put(&key, &t.body("old", 0)).await?;
    for body in [&first, &second] {
        let upload = Upload::start(t, &key, body).await?;
        let answer = t.send(upload.complete().if_match(&etag)).await?;
        t.let_through(&answer, &[200])?;
        etag = answer.element("ETag").unwrap_or_default();
    }
    t.holds(&key, &second).await
}

const SWAP_WRONG: Check = Check {
    id: "complete.swap.wrong",
    proves: "a Complete with another ETag is 412; with the right one the same upload then succeeds",
    broken_by: &[
        "ignore-if-match-complete",
        "refuse-conditional-complete",
        "refused-complete-ends-upload",
        "only-unquoted-etags-match",
    ],
    run: |t| Box::pin(swap_wrong(t)),
    ..BASE_SWAP
};

async fn swap_wrong(t: &Trial) -> Done {
    let (key, old, new) = (t.key("k"), t.body("old", 0), t.body("new", 0));
    let etag = t.put(&key, &old).await?;
    let upload = Upload::start(t, &key, &new).await?;
    let answer = t.send(upload.complete().if_match(STRANGER)).await?;
    t.stopped(&answer, &[412])?;
    t.holds(&key, &old).await?;
    t.let_through(&t.send(upload.complete().if_match(&etag)).await?, &[200])?;
    t.holds(&key, &new).await
}

const SWAP_ABSENT: Check = Check {
    id: "complete.swap.absent",
    proves: "a Complete with If-Match on a key that is not there is refused and creates nothing",
    source: "AWS recording 2026-02: test_multipart_if_match_with_delete",
    broken_by: &["ignore-if-match-complete", "refuse-conditional-complete", "if-match-absent-creates"],
    run: |t| Box::pin(swap_absent(t)),
    ..BASE_SWAP
};

async fn swap_absent(t: &Trial) -> Done {
    let key = t.key("never");
    let upload = Upload::start(t, &key, &t.body("new", 0)).await?;
    t.stopped(&t.send(upload.complete().if_match(STRANGER)).await?, &[404, 412])?;
    give_up(t, &upload).await?;
    t.lacks(&key).await
}

const REPEATED: Check = Check {
    id: "complete.repeated",
    proves: "the same Complete sent again after its success is 200 with the same ETag",
    condition: None,
    source: "scripts against AWS in S3Mock issue 2586 and minio issue 13318",
    broken_by: &["repeated-complete-no-such-upload"],
    run: |t| Box::pin(repeated(t)),
    ..BASE
};

async fn repeated(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("parts", 0));
    let upload = Upload::start(t, &key, &body).await?;
    let first = t.send(upload.complete()).await?;
    let etag = match first.element("ETag") {
        Some(etag) if first.succeeded() => etag,
        _ => return Err(Stop::unprepared("CompleteMultipartUpload", &first)),
    };
    let second = t.send(upload.complete()).await?;
    expect_status(&second, &[200])?;
    expect_equal("ETag", &etag, &second.element("ETag").unwrap_or_default(), &second)?;
    t.holds(&key, &body).await
}

const ERROR_DOCUMENT: Check = Check {
    id: "complete.error-document",
    proves: "a Complete that was 412 says PreconditionFailed and names its Condition",
    condition: None,
    source: ETAG,
    broken_by: &[
        "ignore-if-none-match-complete",
        "refuse-conditional-complete",
        "omit-condition-element",
        "ignore-if-match-complete",
        "refused-complete-ends-upload",
    ],
    run: |t| Box::pin(error_document(t)),
    ..BASE
};

async fn error_document(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    let upload = Upload::start(t, &key, &t.body("new", 0)).await?;
    for (call, condition) in [
        (upload.complete().if_none_match("*"), "If-None-Match"),
        (upload.complete().if_match(STRANGER), "If-Match"),
    ] {
        let answer = t.send(call).await?;
        expect_status(&answer, &[412])?;
        expect_element(&answer, "Code", "PreconditionFailed")?;
        expect_element(&answer, "Condition", condition)?;
    }
    give_up(t, &upload).await
}

const VALIDATION: Check = Check {
    id: "complete.create.unaccepted-values",
    proves: "on Complete too, an ETag in If-None-Match, a star in If-Match, and both headers are 501",
    severity: Severity::Informative,
    condition: None,
    source: "S3 API Reference: CompleteMultipartUpload; not recorded",
    broken_by: &[
        "ignore-if-none-match-complete",
        "evaluate-if-none-match-etag",
        "evaluate-if-match-star",
        "evaluate-both-conditions",
        "ignore-if-match-complete",
        "refuse-if-none-match-etag",
        "star-compared-literally-put",
    ],
    run: |t| Box::pin(validation(t)),
    ..BASE
};

async fn validation(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let upload = Upload::start(t, &key, &t.body("new", 0)).await?;
    let complete = || upload.complete();
    for call in [
        complete().if_none_match(STRANGER),
        complete().if_match("*"),
        complete().if_match(STRANGER).if_none_match("*"),
    ] {
        expect_status(&t.send(call).await?, &[501])?;
    }
    give_up(t, &upload).await?;
    t.holds(&key, &old).await
}
