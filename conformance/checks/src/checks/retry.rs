//! What a writer learns that lost its answer and asks again: the same request once more, and a token of its own.

use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::expect::{expect_equal, expect_header, expect_status};
use crate::payload::Payload;
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;
use http::Method;

const AMBIGUOUS: &str =
    "AWS recording 2026-02: test_put_object_if_none_match; Hudi issue 14373 on the answer to a retry";
const TOKEN: &str =
    "S3 API Reference: x-amz-meta-; slatedb pull request 1164, ClickHouse pull request 118829 on its use";
const META: &str = "x-amz-meta-assay-token";

pub(super) const ALL: &[Check] =
    &[CREATE, SWAP, DELETE, LOST, TOKEN_PUT, TOKEN_LOSER, TOKEN_COMPLETE, TOKEN_COPY, TOKEN_GONE, TOKEN_TEXT];

const BASE: Check = Check {
    id: "retry",
    proves: "",
    severity: Severity::Required,
    condition: None,
    needs: &[],
    source: AMBIGUOUS,
    broken_by: &["drop-metadata"],
    run: |t| Box::pin(create(t)),
};

/// A token that no other write has.
fn token(t: &Trial) -> String {
    format!("{:08x}{:08x}", t.below(1 << 31), t.below(1 << 31))
}

async fn has_token(t: &Trial, key: &str, token: &str) -> Done {
    let head = t.send(Call::head(key)).await?;
    expect_status(&head, &[200])?;
    expect_header(&head, META, token)
}

const CREATE: Check = Check {
    id: "retry.create",
    proves: "the same create sent again is 412, never a second 200, and the first one's bytes and ETag stay",
    condition: Some(Condition::PutCreate),
    broken_by: &[
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "ignore-conditions-after",
        "ignore-conditions-same-bytes",
    ],
    ..BASE
};

async fn create(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("mine", 0));
    let put = || Call::put(&key, body.clone()).if_none_match("*");
    let first = t.send(put()).await?;
    t.let_through(&first, &[200])?;
    for _ in 0..3 {
        t.beaten(&t.send(put()).await?)?;
    }
    let read = t.send(Call::get(&key)).await?;
    expect_equal("ETag", first.etag(), read.etag(), &read)?;
    t.holds(&key, &body).await
}

const SWAP: Check = Check {
    id: "retry.swap",
    proves: "the same swap sent again is 412, and the key still holds what the first one wrote",
    condition: Some(Condition::PutSwap),
    source: "AWS recording 2026-02: test_put_object_if_match",
    broken_by: &[
        "ignore-if-match-put",
        "refuse-if-match-put",
        "only-unquoted-etags-match",
        "ignore-conditions-same-bytes",
    ],
    run: |t| Box::pin(swap(t)),
    ..BASE
};

async fn swap(t: &Trial) -> Done {
    let (key, new) = (t.key("k"), t.body("new", 0));
    let etag = t.put(&key, &t.body("old", 0)).await?;
    let put = || Call::put(&key, new.clone()).if_match(&etag);
    t.let_through(&t.send(put()).await?, &[200])?;
    t.beaten(&t.send(put()).await?)?;
    t.holds(&key, &new).await
}

const DELETE: Check = Check {
    id: "retry.delete",
    proves: "the same conditional delete sent again is 404: the first one was done",
    severity: Severity::Expected,
    condition: Some(Condition::DeleteMatch),
    source: "ministack issue 1475 and localstack issue 13894: transcripts of AWS, 2026",
    broken_by: &[
        "ignore-if-match-delete",
        "refuse-conditional-delete",
        "only-unquoted-etags-match",
        "delete-absent-if-match-204",
        "if-match-absent-412",
    ],
    run: |t| Box::pin(delete(t)),
    ..BASE
};

async fn delete(t: &Trial) -> Done {
    let key = t.key("k");
    let etag = t.put(&key, &t.body("old", 0)).await?;
    t.let_through(&t.send(Call::delete(&key).if_match(&etag)).await?, &[204])?;
    t.stopped(&t.send(Call::delete(&key).if_match(&etag)).await?, &[404])?;
    t.lacks(&key).await
}

const LOST: Check = Check {
    id: "retry.lost-answer",
    proves: "after a create whose answer was not awaited, the retry is 200 or 412, and its bytes are there whole",
    condition: Some(Condition::PutCreate),
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put"],
    run: |t| Box::pin(lost(t)),
    ..BASE
};

async fn lost(t: &Trial) -> Done {
    for n in 0..5 {
        let (key, body) = (t.key(&format!("k{n}")), t.body("mine", 64));
        let put = || Call::put(&key, body.clone()).if_none_match("*");
        let (payload, mut holder) = Payload::gated(&body);
        let mut connection = t.client().connect().await?;
        let signed = t.client().sign(put().through(payload));
        let client = t.client().clone();
        let sending = tokio::spawn(async move { connection.deliver(&client, signed).await });
        holder.reached().await;
        holder.open();
        // The rest is on its way; whether it arrives before the connection ends is open.
        tokio::task::yield_now().await;
        sending.abort();
        let again = t.send(put()).await?;
        expect_status(&again, &[200, 409, 412, 304])?;
        if again.status == 409 {
            expect_status(&t.send(put()).await?, &[200, 412, 304])?;
        }
        t.beaten(&t.send(put()).await?)?;
        t.holds(&key, &body).await?;
    }
    Ok(())
}

const TOKEN_PUT: Check = Check {
    id: "retry.token.put",
    proves: "a token in metadata stays with a create and a swap, and HEAD gives it back at once",
    severity: Severity::Expected,
    source: TOKEN,
    broken_by: &[
        "drop-metadata",
        "refuse-if-none-match-put",
        "refuse-if-match-put",
        "only-unquoted-etags-match",
    ],
    run: |t| Box::pin(token_put(t)),
    ..BASE
};

async fn token_put(t: &Trial) -> Done {
    let (key, first, second) = (t.key("k"), token(t), token(t));
    let put = |token: &str| Call::put(&key, t.body("x", 0)).header(META, token);
    let created = t.send(put(&first).if_none_match("*")).await?;
    expect_status(&created, &[200])?;
    has_token(t, &key, &first).await?;
    expect_status(&t.send(put(&second).if_match(created.etag())).await?, &[200])?;
    has_token(t, &key, &second).await
}

const TOKEN_LOSER: Check = Check {
    id: "retry.token.loser",
    proves: "a refused create leaves the winner's token, so that a loser knows that it lost",
    source: TOKEN,
    broken_by: &[
        "drop-metadata",
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "failed-write-304",
        "ignore-conditions-same-bytes",
    ],
    severity: Severity::Expected,
    run: |t| Box::pin(token_loser(t)),
    ..BASE
};

async fn token_loser(t: &Trial) -> Done {
    let (key, winner, body) = (t.key("k"), token(t), t.body("same bytes", 0));
    let put = |token: &str| Call::put(&key, body.clone()).header(META, token).if_none_match("*");
    expect_status(&t.send(put(&winner)).await?, &[200])?;
    expect_status(&t.send(put(&token(t))).await?, &[412])?;
    has_token(t, &key, &winner).await
}

const TOKEN_COMPLETE: Check = Check {
    id: "retry.token.complete",
    proves: "a token given when an upload was created is the object's after Complete",
    severity: Severity::Expected,
    needs: &[Need::Multipart],
    source: TOKEN,
    run: |t| Box::pin(token_complete(t)),
    ..BASE
};

async fn token_complete(t: &Trial) -> Done {
    let (key, mine) = (t.key("k"), token(t));
    let upload = Upload::open(t, Call::new(Method::POST, Some(&key)).header(META, &mine)).await?;
    let etag = upload.send(t, 1, &t.body("part", 0)).await?;
    expect_status(&t.send(upload.complete_of(&[(1, &etag)])).await?, &[200])?;
    has_token(t, &key, &mine).await
}

const TOKEN_COPY: Check = Check {
    id: "retry.token.copy",
    proves: "a copy keeps its source's token, and with the directive REPLACE has its own",
    severity: Severity::Expected,
    needs: &[Need::Copy],
    source: "S3 API Reference: CopyObject, x-amz-metadata-directive",
    run: |t| Box::pin(token_copy(t)),
    ..BASE
};

async fn token_copy(t: &Trial) -> Done {
    let (from, to, first, second) = (t.key("from"), t.key("to"), token(t), token(t));
    expect_status(&t.send(Call::put(&from, t.body("x", 0)).header(META, &first)).await?, &[200])?;
    expect_status(&t.send(t.client().copy(&from, &to)).await?, &[200])?;
    has_token(t, &to, &first).await?;
    let replace = t.client().copy(&from, &to).header("x-amz-metadata-directive", "REPLACE");
    expect_status(&t.send(replace.header(META, &second)).await?, &[200])?;
    has_token(t, &to, &second).await
}

const TOKEN_GONE: Check = Check {
    id: "retry.token.overwritten",
    proves: "a write without a token leaves none: metadata is the write's, never merged",
    severity: Severity::Expected,
    source: "S3 API Reference: PutObject",
    broken_by: &["drop-metadata", "merge-metadata"],
    run: |t| Box::pin(token_gone(t)),
    ..BASE
};

async fn token_gone(t: &Trial) -> Done {
    let (key, mine) = (t.key("k"), token(t));
    expect_status(&t.send(Call::put(&key, t.body("x", 0)).header(META, &mine)).await?, &[200])?;
    has_token(t, &key, &mine).await?;
    t.put(&key, &Bytes::from_static(b"plain")).await?;
    let head = t.send(Call::head(&key)).await?;
    match head.header(META) {
        None => Ok(()),
        Some(stale) => Err(Stop::fail(format!("no {META}"), stale, &head)),
    }
}

const TOKEN_TEXT: Check = Check {
    id: "retry.token.text",
    proves: "a token's case and punctuation come back unchanged, and several tokens side by side",
    severity: Severity::Expected,
    source: "S3 User Guide: User-defined object metadata",
    broken_by: &["drop-metadata", "fold-metadata-case"],
    run: |t| Box::pin(token_text(t)),
    ..BASE
};

async fn token_text(t: &Trial) -> Done {
    let values =
        [("x-amz-meta-a", "Zz-09_/+=.:;"), ("x-amz-meta-b", "two  words"), ("x-amz-meta-c-d", "{\"e\":1}")];
    let call = values.iter().fold(Call::put(&t.key("k"), t.body("x", 0)), |call, (n, v)| call.header(n, v));
    expect_status(&t.send(call).await?, &[200])?;
    let head = t.send(Call::head(&t.key("k"))).await?;
    for (name, value) in values {
        // Runs of spaces are one in the signature, so they may be one here.
        let got = head.header(name).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        expect_equal(name, &value.split_whitespace().collect::<Vec<_>>().join(" "), &got, &head)?;
    }
    Ok(())
}
