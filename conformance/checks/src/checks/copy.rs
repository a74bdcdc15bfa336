//! CopyObject with a condition on its destination.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity};
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use bytes::Bytes;

const CREATE: &str = "AWS recording 2026-02: test_copy_object_if_none_match";
const SWAP: &str = "AWS recording 2026-02: test_copy_object_if_match";

pub(super) const ALL: &[Check] = &[
    CREATE_ABSENT,
    CREATE_PRESENT,
    CREATE_IN_PLACE,
    SWAP_RIGHT,
    SWAP_WRONG,
    SWAP_ABSENT,
    ERROR_DOCUMENT,
    VALIDATION,
];

const BASE: Check = Check {
    id: "copy.create",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::CopyCreate),
    needs: &[Need::Copy],
    source: CREATE,
    broken_by: &["ignore-if-none-match-copy"],
    run: |t| Box::pin(create_absent(t)),
};

const BASE_SWAP: Check = Check {
    condition: Some(Condition::CopySwap),
    source: SWAP,
    broken_by: &["ignore-if-match-copy"],
    ..BASE
};

/// A source of its own for each check, already written.
async fn source(t: &Trial) -> Result<(String, Bytes), crate::check::Stop> {
    let (key, body) = (t.key("source"), t.body("source", 0));
    t.put(&key, &body).await?;
    // A plain copy first: a provider that copies nothing at all learns nothing about conditions.
    let answer = t.send(t.client().copy(&key, &t.key("plain"))).await?;
    if !answer.succeeded() {
        return Err(crate::check::Stop::unprepared("a plain copy", &answer));
    }
    Ok((key, body))
}

const CREATE_ABSENT: Check = Check {
    id: "copy.create.absent",
    proves: "a copy onto an absent key with If-None-Match: * succeeds",
    broken_by: &["refuse-conditional-copy"],
    ..BASE
};

async fn create_absent(t: &Trial) -> Done {
    let (from, body) = source(t).await?;
    let to = t.key("to");
    t.let_through(&t.send(t.client().copy(&from, &to).if_none_match("*")).await?, &[200])?;
    t.holds(&to, &body).await
}

const CREATE_PRESENT: Check = Check {
    id: "copy.create.present",
    proves: "a copy onto a present key with If-None-Match: * is 412 and leaves its bytes alone",
    broken_by: &["ignore-if-none-match-copy", "refuse-conditional-copy"],
    run: |t| Box::pin(create_present(t)),
    ..BASE
};

async fn create_present(t: &Trial) -> Done {
    let (from, _) = source(t).await?;
    let (to, old) = (t.key("to"), t.body("old", 0));
    t.put(&to, &old).await?;
    let answer = t.send(t.client().copy(&from, &to).if_none_match("*")).await?;
    t.stopped(&answer, &[412])?;
    t.holds(&to, &old).await
}

const CREATE_IN_PLACE: Check = Check {
    id: "copy.create.in-place",
    proves: "a copy of a key onto itself with If-None-Match: * is 412",
    source: "AWS recording 2026-02: test_copy_object_if_none_match_in_place",
    broken_by: &["ignore-if-none-match-copy", "refuse-conditional-copy"],
    run: |t| Box::pin(create_in_place(t)),
    ..BASE
};

async fn create_in_place(t: &Trial) -> Done {
    let (key, body) = source(t).await?;
    let call = t.client().copy(&key, &key).header("x-amz-metadata-directive", "REPLACE").if_none_match("*");
    t.stopped(&t.send(call).await?, &[412])?;
    t.holds(&key, &body).await
}

const SWAP_RIGHT: Check = Check {
    id: "copy.swap.right",
    proves: "a copy with the destination's current ETag in If-Match succeeds",
    broken_by: &["refuse-conditional-copy", "only-unquoted-etags-match"],
    run: |t| Box::pin(swap_right(t)),
    ..BASE_SWAP
};

async fn swap_right(t: &Trial) -> Done {
    let (from, body) = source(t).await?;
    let to = t.key("to");
    let etag = t.put(&to, &t.body("old", 0)).await?;
    t.let_through(&t.send(t.client().copy(&from, &to).if_match(&etag)).await?, &[200])?;
    t.holds(&to, &body).await
}

const SWAP_WRONG: Check = Check {
    id: "copy.swap.wrong",
    proves: "a copy with another ETag than the destination's is 412 and leaves its bytes alone",
    broken_by: &["ignore-if-match-copy", "refuse-conditional-copy"],
    run: |t| Box::pin(swap_wrong(t)),
    ..BASE_SWAP
};

async fn swap_wrong(t: &Trial) -> Done {
    let (from, _) = source(t).await?;
    let (to, old) = (t.key("to"), t.body("old", 0));
    t.put(&to, &old).await?;
    let answer = t.send(t.client().copy(&from, &to).if_match(STRANGER)).await?;
    t.stopped(&answer, &[412])?;
    t.holds(&to, &old).await
}

const SWAP_ABSENT: Check = Check {
    id: "copy.swap.absent",
    proves: "a copy with If-Match onto an absent key is 404 NoSuchKey and creates nothing",
    broken_by: &[
        "ignore-if-match-copy",
        "if-match-absent-creates",
        "if-match-absent-412",
        "refuse-conditional-copy",
        "wrong-key-codes",
    ],
    run: |t| Box::pin(swap_absent(t)),
    ..BASE_SWAP
};

async fn swap_absent(t: &Trial) -> Done {
    let (from, _) = source(t).await?;
    let to = t.key("to");
    let answer = t.send(t.client().copy(&from, &to).if_match(STRANGER)).await?;
    t.stopped(&answer, &[404])?;
    expect_element(&answer, "Code", "NoSuchKey")?;
    t.lacks(&to).await
}

const ERROR_DOCUMENT: Check = Check {
    id: "copy.error-document",
    proves: "a copy that was 412 says PreconditionFailed and names its Condition",
    condition: None,
    broken_by: &[
        "ignore-if-none-match-copy",
        "refuse-conditional-copy",
        "omit-condition-element",
        "ignore-if-match-copy",
    ],
    run: |t| Box::pin(error_document(t)),
    ..BASE
};

async fn error_document(t: &Trial) -> Done {
    let (from, _) = source(t).await?;
    let to = t.key("to");
    t.put(&to, &t.body("old", 0)).await?;
    let copy = || t.client().copy(&from, &to);
    for (call, condition) in
        [(copy().if_none_match("*"), "If-None-Match"), (copy().if_match(STRANGER), "If-Match")]
    {
        let answer = t.send(call).await?;
        expect_status(&answer, &[412])?;
        expect_element(&answer, "Code", "PreconditionFailed")?;
        expect_element(&answer, "Condition", condition)?;
    }
    Ok(())
}

const VALIDATION: Check = Check {
    id: "copy.create.unaccepted-values",
    proves: "on a copy too, an ETag in If-None-Match, a star in If-Match, and both headers are 501",
    severity: Severity::Informative,
    condition: None,
    source: "AWS recording 2026-02: test_copy_object_precondition_write_validation",
    broken_by: &[
        "ignore-if-none-match-copy",
        "evaluate-if-none-match-etag",
        "evaluate-if-match-star",
        "evaluate-both-conditions",
        "ignore-if-match-copy",
        "refuse-if-none-match-etag",
        "star-compared-literally-put",
    ],
    run: |t| Box::pin(validation(t)),
    ..BASE
};

async fn validation(t: &Trial) -> Done {
    let (from, _) = source(t).await?;
    let (to, old) = (t.key("to"), t.body("old", 0));
    t.put(&to, &old).await?;
    let copy = || t.client().copy(&from, &to);
    let calls: [Call; 3] =
        [copy().if_none_match(STRANGER), copy().if_match("*"), copy().if_match(STRANGER).if_none_match("*")];
    for call in calls {
        expect_status(&t.send(call).await?, &[501])?;
    }
    t.holds(&to, &old).await
}
