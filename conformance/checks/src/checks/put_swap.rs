//! PutObject with `If-Match`: compare and swap.

use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;

const RECORDED: &str = "AWS recording 2026-02: test_put_object_if_match";
const VALIDATED: &str = "AWS recording 2026-02: test_put_object_if_match_validation";

pub(super) const ALL: &[Check] = &[
    RIGHT,
    WRONG,
    ABSENT,
    ABSENT_STATUS,
    DELETED,
    CHAIN,
    READ_ETAG,
    LARGE,
    EMPTY,
    SAME_BYTES,
    UNQUOTED,
    UNQUOTED_WRONG,
    ERROR_DOCUMENT,
    MULTIPART_MADE,
    STAR,
];

const BASE: Check = Check {
    id: "put.swap",
    proves: "",
    severity: Severity::Required,
    condition: Some(Condition::PutSwap),
    needs: &[],
    source: RECORDED,
    broken_by: &["ignore-if-match-put", "refuse-if-match-put"],
    run: |t| Box::pin(right(t)),
};

/// An ETag of the usual form that no object here has.
pub(super) const STRANGER: &str = "\"0123456789abcdef0123456789abcdef\"";

async fn swap(t: &Trial, key: &str, body: &Bytes, etag: &str) -> Result<Answer, Stop> {
    t.send(Call::put(key, body.clone()).if_match(etag)).await
}

const RIGHT: Check = Check {
    id: "put.swap.right",
    proves: "a swap with the current ETag, quoted as it came, succeeds and stores the bytes",
    broken_by: &["refuse-if-match-put", "only-unquoted-etags-match", "accepted-but-not-applied"],
    ..BASE
};

async fn right(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&swap(t, &key, &new, &etag).await?, &[200])?;
    t.holds(&key, &new).await
}

const WRONG: Check = Check {
    id: "put.swap.wrong",
    proves: "a swap with an ETag that the key no longer has, or that differs in one digit, is 412 and changes nothing",
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "refused-but-applied", "compare-etag-prefix"],
    run: |t| Box::pin(wrong(t)),
    ..BASE
};

async fn wrong(t: &Trial) -> Done {
    let (key, second) = (t.key("k"), t.body("second", 0));
    let stale = t.put(&key, &t.body("first", 0)).await?;
    let [first, last] = signs_changed(&t.put(&key, &second).await?);
    for etag in [&stale, STRANGER, &first, &last] {
        t.beaten(&swap(t, &key, &t.body("third", 0), etag).await?)?;
    }
    t.holds(&key, &second).await
}

/// The ETag with another first, and with another last digit.
fn signs_changed(etag: &str) -> [String; 2] {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric();
    [etag.find(is_sign), etag.rfind(is_sign)].map(|at| {
        let mut changed = etag.to_owned();
        if let Some(at) = at {
            let other = if etag[at..].starts_with('0') { "1" } else { "0" };
            changed.replace_range(at..=at, other);
        }
        changed
    })
}

const ABSENT: Check = Check {
    id: "put.swap.absent",
    proves: "a swap on an absent key is refused and creates nothing",
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "if-match-absent-creates"],
    run: |t| Box::pin(absent(t)),
    ..BASE
};

async fn absent(t: &Trial) -> Done {
    let key = t.key("never");
    t.stopped(&swap(t, &key, &t.body("new", 0), STRANGER).await?, &[404, 412])?;
    t.lacks(&key).await
}

const ABSENT_STATUS: Check = Check {
    id: "put.swap.absent.status",
    proves: "a swap on an absent key is 404 NoSuchKey, whatever the ETag",
    severity: Severity::Expected,
    source: VALIDATED,
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "if-match-absent-creates",
        "if-match-absent-412",
        "wrong-key-codes",
    ],
    run: |t| Box::pin(absent_status(t)),
    ..BASE
};

async fn absent_status(t: &Trial) -> Done {
    let key = t.key("never");
    for etag in [STRANGER, "abcdef"] {
        let answer = swap(t, &key, &t.body("new", 0), etag).await?;
        t.stopped(&answer, &[404])?;
        expect_element(&answer, "Code", "NoSuchKey")?;
    }
    Ok(())
}

const DELETED: Check = Check {
    id: "put.swap.deleted",
    proves: "a swap with the ETag of a deleted object is refused and does not bring the key back",
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "if-match-absent-creates"],
    run: |t| Box::pin(deleted(t)),
    ..BASE
};

async fn deleted(t: &Trial) -> Done {
    let key = t.key("k");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.delete(&key).await?;
    t.stopped(&swap(t, &key, &t.body("new", 0), &etag).await?, &[404, 412])?;
    t.lacks(&key).await
}

const CHAIN: Check = Check {
    id: "put.swap.chain",
    proves: "ten swaps in a row each succeed with the last answer's ETag, and each used ETag is 412 after",
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "changing-etags", "only-unquoted-etags-match"],
    run: |t| Box::pin(chain(t)),
    ..BASE
};

async fn chain(t: &Trial) -> Done {
    let key = t.key("head");
    let mut body = t.body("v00", 0);
    let mut etag = t.put(&key, &body).await?;
    for step in 1..=10 {
        body = t.body(&format!("v{step:02}"), 0);
        let answer = swap(t, &key, &body, &etag).await?;
        t.let_through(&answer, &[200])?;
        let used = std::mem::replace(&mut etag, answer.etag().to_owned());
        t.beaten(&swap(t, &key, &t.body("late", 0), &used).await?)?;
    }
    t.holds(&key, &body).await
}

const READ_ETAG: Check = Check {
    id: "put.swap.read-etag",
    proves: "the ETags that GET and HEAD answer serve as the condition of a swap",
    broken_by: &["refuse-if-match-put", "changing-etags", "only-unquoted-etags-match"],
    run: |t| Box::pin(read_etag(t)),
    ..BASE
};

async fn read_etag(t: &Trial) -> Done {
    let (key, mut body) = (t.key("k"), t.body("old", 0));
    t.put(&key, &body).await?;
    for read in [Call::get(&key), Call::head(&key)] {
        let seen = t.send(read).await?;
        expect_status(&seen, &[200])?;
        body = t.body("new", 0);
        t.let_through(&swap(t, &key, &body, seen.etag()).await?, &[200])?;
    }
    t.holds(&key, &body).await
}

const LARGE: Check = Check {
    id: "put.swap.large",
    proves: "the condition also holds for a body of a mebibyte, both ways",
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "ignore-conditions-large",
        "only-unquoted-etags-match",
        "mixed-reads",
    ],
    run: |t| Box::pin(large(t)),
    ..BASE
};

async fn large(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 1 << 20));
    let etag = t.put(&key, &t.body("old", 1 << 20)).await?;
    t.let_through(&swap(t, &key, &new, &etag).await?, &[200])?;
    t.beaten(&swap(t, &key, &t.body("late", 1 << 20), &etag).await?)?;
    t.holds(&key, &new).await
}

const EMPTY: Check = Check {
    id: "put.swap.empty",
    proves: "an object of no bytes has an ETag that a swap can name",
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "empty-counts-as-absent",
        "only-unquoted-etags-match",
    ],
    run: |t| Box::pin(empty(t)),
    ..BASE
};

async fn empty(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let etag = t.put(&key, &Bytes::new()).await?;
    t.beaten(&swap(t, &key, &new, STRANGER).await?)?;
    t.let_through(&swap(t, &key, &new, &etag).await?, &[200])?;
    t.holds(&key, &new).await
}

const SAME_BYTES: Check = Check {
    id: "put.swap.same-bytes",
    proves: "a swap that writes the same bytes again succeeds with the current ETag and fails with another",
    severity: Severity::Expected,
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "only-unquoted-etags-match",
        "failed-write-304",
        "ignore-conditions-same-bytes",
    ],
    run: |t| Box::pin(same_bytes(t)),
    ..BASE
};

async fn same_bytes(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("same", 0));
    let etag = t.put(&key, &body).await?;
    t.let_through(&swap(t, &key, &body, &etag).await?, &[200])?;
    t.stopped(&swap(t, &key, &body, STRANGER).await?, &[412])?;
    t.holds(&key, &body).await
}

const UNQUOTED: Check = Check {
    id: "put.swap.unquoted",
    proves: "the current ETag without its quotes is equal too",
    severity: Severity::Expected,
    source: "versitygw pull request 1839, notes on AWS's answers",
    condition: None,
    broken_by: &["refuse-if-match-put", "only-quoted-etags-match"],
    run: |t| Box::pin(unquoted(t)),
    ..BASE
};

async fn unquoted(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&swap(t, &key, &new, etag.trim_matches('"')).await?, &[200])?;
    t.holds(&key, &new).await
}

const UNQUOTED_WRONG: Check = Check {
    id: "put.swap.unquoted-wrong",
    proves: "another object's ETag without its quotes is 412",
    severity: Severity::Expected,
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "failed-write-304"],
    run: |t| Box::pin(unquoted_wrong(t)),
    ..BASE
};

async fn unquoted_wrong(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    t.stopped(&swap(t, &key, &t.body("new", 0), STRANGER.trim_matches('"')).await?, &[412])?;
    t.holds(&key, &old).await
}

const ERROR_DOCUMENT: Check = Check {
    id: "put.swap.error-document",
    proves: "the 412 says PreconditionFailed and names If-Match as its Condition",
    severity: Severity::Expected,
    broken_by: &["ignore-if-match-put", "refuse-if-match-put", "omit-condition-element", "failed-write-304"],
    run: |t| Box::pin(error_document(t)),
    ..BASE
};

async fn error_document(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("old", 0)).await?;
    let answer = swap(t, &key, &t.body("new", 0), STRANGER).await?;
    t.stopped(&answer, &[412])?;
    expect_element(&answer, "Code", "PreconditionFailed")?;
    expect_element(&answer, "Condition", "If-Match")
}

const MULTIPART_MADE: Check = Check {
    id: "put.swap.multipart-made",
    proves: "the composite ETag of a multipart object serves as the condition of a swap",
    severity: Severity::Expected,
    needs: &[Need::Multipart],
    source: "AWS recording 2026-02: test_multipart_if_match_etag",
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "only-unquoted-etags-match",
        "failed-write-304",
    ],
    run: |t| Box::pin(multipart_made(t)),
    ..BASE
};

async fn multipart_made(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let etag = Upload::whole(t, &key, &t.body("old", 0)).await?;
    t.stopped(&swap(t, &key, &t.body("bad", 0), STRANGER).await?, &[412])?;
    t.let_through(&swap(t, &key, &new, &etag).await?, &[200])?;
    t.holds(&key, &new).await
}

const STAR: Check = Check {
    id: "put.swap.star",
    proves: "If-Match: * on PUT is 501 NotImplemented, and writes nothing",
    severity: Severity::Informative,
    condition: None,
    source: "AWS recording 2026-02: test_put_object_if_match_validation; evaluated by MinIO, Ceph and others",
    broken_by: &[
        "ignore-if-match-put",
        "evaluate-if-match-star",
        "refuse-if-match-put",
        "star-compared-literally-put",
    ],
    run: |t| Box::pin(star(t)),
    ..BASE
};

async fn star(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    for key in [key.as_str(), &t.key("never")] {
        let answer = swap(t, key, &t.body("new", 0), "*").await?;
        expect_status(&answer, &[501])?;
        expect_element(&answer, "Header", "If-Match")?;
    }
    t.holds(&key, &old).await
}
