//! PutObject with `If-None-Match: *`: create only.

use crate::call::Call;
use crate::check::Stop;
use crate::check::{Check, Condition, Done, Need, Severity};
use crate::client::Answer;
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;

const RECORDED: &str = "AWS recording 2026-02: test_put_object_if_none_match";
const GUIDE: &str = "S3 User Guide: How to prevent object overwrites with conditional writes";

pub(super) const ALL: &[Check] = &[
    ABSENT,
    PRESENT,
    SAME_BYTES,
    DELETED,
    EMPTY,
    LARGE,
    REPEATED,
    NAMES_CONDITION,
    MULTIPART_MADE,
    OPEN_UPLOAD,
    UNCONDITIONAL,
    ETAG_VALUE,
    OWN_ETAG,
    BOTH_HEADERS,
];

/// What most checks of this file have in common.
const BASE: Check = Check {
    id: "put.create",
    proves: "",
    severity: Severity::Required,
    condition: Some(Condition::PutCreate),
    needs: &[],
    source: RECORDED,
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put"],
    run: |t| Box::pin(absent(t)),
};

async fn create(t: &Trial, key: &str, body: &Bytes) -> Result<Answer, Stop> {
    t.send(Call::put(key, body.clone()).if_none_match("*")).await
}

const ABSENT: Check = Check {
    id: "put.create.absent",
    proves: "a create on an absent key succeeds and stores the bytes",
    broken_by: &["refuse-if-none-match-put", "accepted-but-not-applied"],
    ..BASE
};

async fn absent(t: &Trial) -> Done {
    let (key, body) = (t.key("new"), t.body("new", 0));
    let answer = create(t, &key, &body).await?;
    t.let_through(&answer, &[200])?;
    t.holds(&key, &body).await
}

const PRESENT: Check = Check {
    id: "put.create.present",
    proves: "a create on a present key is 412 and leaves its bytes alone",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "refused-but-applied"],
    run: |t| Box::pin(present(t)),
    ..BASE
};

async fn present(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let answer = create(t, &key, &t.body("new", 0)).await?;
    t.beaten(&answer)?;
    t.holds(&key, &old).await
}

const SAME_BYTES: Check = Check {
    id: "put.create.present.same-bytes",
    proves: "a create on a present key is 412 even when it would write the same bytes",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "ignore-conditions-same-bytes"],
    run: |t| Box::pin(same_bytes(t)),
    ..BASE
};

async fn same_bytes(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("same", 0));
    t.put(&key, &body).await?;
    t.beaten(&create(t, &key, &body).await?)?;
    t.holds(&key, &body).await
}

const DELETED: Check = Check {
    id: "put.create.deleted",
    proves: "after a delete the key is absent again: a create succeeds, the next one is 412",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "deleted-counts-as-present"],
    run: |t| Box::pin(deleted(t)),
    ..BASE
};

async fn deleted(t: &Trial) -> Done {
    let (key, second) = (t.key("k"), t.body("second", 0));
    t.put(&key, &t.body("first", 0)).await?;
    t.delete(&key).await?;
    t.let_through(&create(t, &key, &second).await?, &[200])?;
    t.beaten(&create(t, &key, &t.body("third", 0)).await?)?;
    t.holds(&key, &second).await
}

const EMPTY: Check = Check {
    id: "put.create.empty",
    proves: "an object of no bytes can be created, and counts as present",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "empty-counts-as-absent"],
    run: |t| Box::pin(empty(t)),
    ..BASE
};

async fn empty(t: &Trial) -> Done {
    let (key, nothing) = (t.key("k"), Bytes::new());
    t.let_through(&create(t, &key, &nothing).await?, &[200])?;
    t.beaten(&create(t, &key, &t.body("more", 0)).await?)?;
    t.holds(&key, &nothing).await
}

const LARGE: Check = Check {
    id: "put.create.large",
    proves: "the condition also holds for a body of a mebibyte, both ways",
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "ignore-conditions-large",
        "mixed-reads",
    ],
    run: |t| Box::pin(large(t)),
    ..BASE
};

async fn large(t: &Trial) -> Done {
    let (key, first) = (t.key("k"), t.body("first", 1 << 20));
    t.let_through(&create(t, &key, &first).await?, &[200])?;
    t.beaten(&create(t, &key, &t.body("second", 1 << 20)).await?)?;
    t.holds(&key, &first).await
}

const REPEATED: Check = Check {
    id: "put.create.repeated",
    proves: "twenty creates on one connection are all 412, the first and the last alike",
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "ignore-conditions-first-on-connection",
    ],
    run: |t| Box::pin(repeated(t)),
    ..BASE
};

async fn repeated(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let mut connection = t.client().connect().await?;
    for _ in 0..20 {
        if !connection.is_usable().await {
            connection = t.client().connect().await?;
        }
        let call = Call::put(&key, t.body("new", 0)).if_none_match("*");
        let answer = connection.deliver(t.client(), t.client().sign(call)).await?;
        t.beaten(&answer)?;
    }
    t.holds(&key, &old).await
}

const NAMES_CONDITION: Check = Check {
    id: "put.create.error-document",
    proves: "the 412 says PreconditionFailed and names If-None-Match as its Condition",
    severity: Severity::Expected,
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "omit-condition-element",
        "failed-write-304",
    ],
    run: |t| Box::pin(names_condition(t)),
    ..BASE
};

async fn names_condition(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    let answer = create(t, &key, &t.body("new", 0)).await?;
    t.stopped(&answer, &[412])?;
    expect_element(&answer, "Code", "PreconditionFailed")?;
    expect_element(&answer, "Condition", "If-None-Match")
}

const MULTIPART_MADE: Check = Check {
    id: "put.create.multipart-made",
    proves: "a key made by a multipart upload counts as present",
    severity: Severity::Expected,
    needs: &[Need::Multipart],
    source: GUIDE,
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "multipart-counts-as-absent",
        "failed-write-304",
    ],
    run: |t| Box::pin(multipart_made(t)),
    ..BASE
};

async fn multipart_made(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    Upload::whole(t, &key, &old).await?;
    t.stopped(&create(t, &key, &t.body("new", 0)).await?, &[412])?;
    t.holds(&key, &old).await
}

const OPEN_UPLOAD: Check = Check {
    id: "put.create.open-upload",
    proves: "an upload in progress on the key is invisible to a create",
    severity: Severity::Expected,
    needs: &[Need::Multipart],
    source: "S3 User Guide: conditional writes, concurrent multipart uploads",
    broken_by: &["refuse-if-none-match-put", "open-upload-counts-as-present"],
    run: |t| Box::pin(open_upload(t)),
    ..BASE
};

async fn open_upload(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("new", 0));
    let upload = Upload::start(t, &key, &t.body("part", 0)).await?;
    t.let_through(&create(t, &key, &body).await?, &[200])?;
    t.send(upload.abort()).await?;
    t.holds(&key, &body).await
}

const UNCONDITIONAL: Check = Check {
    id: "put.create.unconditional",
    proves: "a PUT without a condition still overwrites a created key",
    source: "S3 API Reference: PutObject",
    condition: None,
    broken_by: &["overwrite-not-applied", "refuse-if-none-match-put"],
    run: |t| Box::pin(unconditional(t)),
    ..BASE
};

async fn unconditional(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    expect_status(&create(t, &key, &t.body("old", 0)).await?, &[200])?;
    expect_status(&t.send(Call::put(&key, new.clone())).await?, &[200])?;
    t.holds(&key, &new).await
}

const ETAG_VALUE: Check = Check {
    id: "put.create.etag-value",
    proves: "If-None-Match with an ETag is 501 NotImplemented, and writes nothing",
    severity: Severity::Informative,
    condition: None,
    source: "AWS recording 2026-02: test_put_object_if_none_match_validation; evaluated by R2, MinIO and Ceph",
    broken_by: &[
        "ignore-if-none-match-put",
        "evaluate-if-none-match-etag",
        "refuse-if-none-match-put",
        "refuse-if-none-match-etag",
    ],
    run: |t| Box::pin(etag_value(t)),
    ..BASE
};

const OWN_ETAG: Check = Check {
    id: "put.create.own-etag",
    proves: "If-None-Match with the key's own ETag is 501 NotImplemented too, and writes nothing",
    run: |t| Box::pin(own_etag(t)),
    ..ETAG_VALUE
};

async fn etag_value(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    not_implemented(t, &key, "\"0123456789abcdef0123456789abcdef\"").await?;
    t.holds(&key, &old).await
}

async fn own_etag(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    let etag = t.put(&key, &old).await?;
    not_implemented(t, &key, &etag).await?;
    t.holds(&key, &old).await
}

async fn not_implemented(t: &Trial, key: &str, etag: &str) -> Done {
    let answer = t.send(Call::put(key, t.body("new", 0)).if_none_match(etag)).await?;
    expect_status(&answer, &[501])?;
    expect_element(&answer, "Code", "NotImplemented")?;
    expect_element(&answer, "Header", "If-None-Match")
}

const BOTH_HEADERS: Check = Check {
    id: "put.create.both-headers",
    proves: "If-Match and If-None-Match together are 501 NotImplemented, and write nothing",
    severity: Severity::Informative,
    condition: None,
    source: "AWS recording 2026-02: test_put_object_if_match_and_if_none_match_validation",
    broken_by: &[
        "ignore-if-none-match-put",
        "evaluate-both-conditions",
        "ignore-if-match-put",
        "refuse-if-none-match-put",
        "refuse-if-match-put",
    ],
    run: |t| Box::pin(both_headers(t)),
    ..BASE
};

async fn both_headers(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    let etag = t.put(&key, &old).await?;
    let answer = t.send(Call::put(&key, t.body("new", 0)).if_match(&etag).if_none_match("*")).await?;
    expect_status(&answer, &[501])?;
    expect_element(&answer, "Header", "If-Match,If-None-Match")?;
    t.holds(&key, &old).await
}
