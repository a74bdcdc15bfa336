//! What a read and a listing see after a write was answered.

use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_equal, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use crate::xml;

/// Writes in a row per check: a lagging replica is seldom seen by one.
const TIMES: usize = 10;
const STRONG: &str = "S3 User Guide: Amazon S3 data consistency model";

pub(super) const ALL: &[Check] = &[
    AFTER_CREATE,
    AFTER_OVERWRITE,
    AFTER_DELETE,
    OTHER_CONNECTION,
    LIST_AFTER_WRITE,
    LIST_AFTER_DELETE,
    ETAG_EQUAL,
    ETAG_DIFFERS,
    ETAG_MULTIPART,
    METADATA,
];

const BASE: Check = Check {
    id: "consistency",
    proves: "",
    severity: Severity::Required,
    condition: None,
    needs: &[],
    source: STRONG,
    broken_by: &["stale-reads"],
    run: |t| Box::pin(after_create(t)),
};

const AFTER_CREATE: Check = Check {
    id: "consistency.read-after-create",
    proves: "a new key can be read as soon as its PUT is answered, also when it was looked for before",
    ..BASE
};

async fn after_create(t: &Trial) -> Done {
    for n in 0..TIMES {
        let (key, body) = (t.key(&format!("k{n}")), t.body("new", 0));
        t.lacks(&key).await?;
        t.put(&key, &body).await?;
        t.holds(&key, &body).await?;
    }
    Ok(())
}

const AFTER_OVERWRITE: Check = Check {
    id: "consistency.read-after-overwrite",
    proves: "a read after an overwrite gives the new bytes and the new ETag",
    run: |t| Box::pin(after_overwrite(t)),
    ..BASE
};

async fn after_overwrite(t: &Trial) -> Done {
    let key = t.key("k");
    for n in 0..TIMES {
        let body = t.body(&format!("v{n}"), 0);
        let etag = t.put(&key, &body).await?;
        t.holds(&key, &body).await?;
        let head = t.send(Call::head(&key)).await?;
        expect_equal("ETag", &etag, head.etag(), &head)?;
    }
    Ok(())
}

const AFTER_DELETE: Check = Check {
    id: "consistency.read-after-delete",
    proves: "a deleted key is 404 for GET and HEAD as soon as its DELETE is answered",
    run: |t| Box::pin(after_delete(t)),
    broken_by: &["stale-reads", "head-absent-200"],
    ..BASE
};

async fn after_delete(t: &Trial) -> Done {
    let key = t.key("k");
    for _ in 0..TIMES {
        let body = t.body("old", 0);
        t.put(&key, &body).await?;
        t.holds(&key, &body).await?;
        t.delete(&key).await?;
        t.lacks(&key).await?;
        expect_status(&t.send(Call::head(&key)).await?, &[404])?;
    }
    Ok(())
}

const OTHER_CONNECTION: Check = Check {
    id: "consistency.read-on-another-connection",
    proves: "a write is seen by a reader on a connection that was opened before it, and by one opened after it",
    run: |t| Box::pin(other_connection(t)),
    ..BASE
};

async fn other_connection(t: &Trial) -> Done {
    let key = t.key("k");
    for n in 0..TIMES {
        let mut early = t.client().connect().await?;
        let body = t.body(&format!("v{n}"), 0);
        t.put(&key, &body).await?;
        let mut late = t.client().connect().await?;
        for connection in [&mut early, &mut late] {
            let answer = connection.deliver(t.client(), t.client().sign(Call::get(&key))).await?;
            expect_status(&answer, &[200])?;
            if answer.body != body {
                return Err(Stop::fail(
                    format!("version {n}"),
                    crate::expect::excerpt(&answer.body),
                    &answer,
                ));
            }
        }
    }
    Ok(())
}

/// ListObjectsV2 under the trial's prefix.
async fn list(t: &Trial) -> Result<(Answer, Vec<(String, String)>), Stop> {
    let answer = t
        .send(Call::new(http::Method::GET, None).query("list-type", "2").query("prefix", t.prefix()))
        .await?;
    expect_status(&answer, &[200])?;
    let document = String::from_utf8_lossy(&answer.body).into_owned();
    let field = |entry: &str, name| xml::element(entry, name).unwrap_or_default();
    let entries = xml::elements(&document, "Contents");
    let entries = entries.iter().map(|entry| (field(entry, "Key"), field(entry, "ETag"))).collect();
    Ok((answer, entries))
}

/// The listing must show exactly these keys, in this order.
async fn lists(t: &Trial, keys: &[String]) -> Done {
    let (answer, entries) = list(t).await?;
    let seen: Vec<String> = entries.into_iter().map(|(key, _)| key).collect();
    if seen == keys {
        return Ok(());
    }
    let names = |keys: &[String]| {
        keys.iter().map(|k| k.trim_start_matches(t.prefix()).to_owned()).collect::<Vec<_>>()
    };
    Err(Stop::fail(format!("{:?} listed", names(keys)), format!("{:?}", names(&seen)), &answer))
}

const LIST_AFTER_WRITE: Check = Check {
    id: "consistency.list-after-write",
    proves: "each new key is in the listing as soon as its PUT is answered, in order",
    broken_by: &["list-lag", "list-omits-newest", "empty-list-404"],
    run: |t| Box::pin(list_after_write(t)),
    ..BASE
};

async fn list_after_write(t: &Trial) -> Done {
    let mut keys = Vec::new();
    lists(t, &keys).await?;
    for n in 0..TIMES {
        let key = t.key(&format!("k{n:02}"));
        t.put(&key, &t.body("new", 0)).await?;
        keys.push(key);
        lists(t, &keys).await?;
    }
    Ok(())
}

const LIST_AFTER_DELETE: Check = Check {
    id: "consistency.list-after-delete",
    proves: "a deleted key is gone from the listing as soon as its DELETE is answered",
    broken_by: &["list-lag", "empty-list-404"],
    run: |t| Box::pin(list_after_delete(t)),
    ..BASE
};

async fn list_after_delete(t: &Trial) -> Done {
    let mut keys: Vec<String> = (0..TIMES).map(|n| t.key(&format!("k{n:02}"))).collect();
    for key in &keys {
        t.put(key, &t.body("old", 0)).await?;
    }
    while let Some(key) = keys.pop() {
        t.delete(&key).await?;
        lists(t, &keys).await?;
    }
    Ok(())
}

const ETAG_EQUAL: Check = Check {
    id: "consistency.etag-equal",
    proves: "PUT, GET, HEAD and the listing give one and the same strong ETag",
    source: "arrow-rs-object-store issue 769; AWS recording 2026-02: test_list_objects_v2_with_prefix",
    broken_by: &["changing-etags", "weak-etags"],
    run: |t| Box::pin(etag_equal(t)),
    ..BASE
};

async fn etag_equal(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("new", 0));
    let put = t.send(Call::put(&key, body)).await?;
    let etag = put.etag().to_owned();
    if !put.succeeded() {
        return Err(Stop::unprepared("a plain PUT", &put));
    }
    if etag.is_empty() || etag.starts_with("W/") {
        return Err(Stop::fail("a strong ETag", etag, &put));
    }
    for read in [Call::get(&key), Call::head(&key)] {
        let answer = t.send(read).await?;
        expect_equal("ETag", &etag, answer.etag(), &answer)?;
    }
    let (answer, entries) = list(t).await?;
    let listed = entries.first().map(|(_, etag)| etag.as_str()).unwrap_or_default();
    expect_equal("ETag", &etag, listed, &answer)
}

const ETAG_DIFFERS: Check = Check {
    id: "consistency.etag-differs",
    proves: "other bytes have another ETag, so that a swap cannot take one state for another",
    source: "S3 API Reference: Object, ETag",
    broken_by: &["constant-etags"],
    run: |t| Box::pin(etag_differs(t)),
    ..BASE
};

async fn etag_differs(t: &Trial) -> Done {
    let key = t.key("k");
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..TIMES {
        let etag = t.put(&key, &t.body(&format!("v{n}"), 0)).await?;
        if !seen.insert(etag.clone()) {
            let head = t.send(Call::head(&key)).await?;
            return Err(Stop::fail("an ETag that no earlier version had", etag, &head));
        }
    }
    Ok(())
}

const ETAG_MULTIPART: Check = Check {
    id: "consistency.etag-multipart",
    proves: "Complete, GET, HEAD and the listing give one and the same composite ETag, ending in -1 for one part",
    severity: Severity::Expected,
    needs: &[crate::Need::Multipart],
    source: "S3 API Reference: CompleteMultipartUpload, ETag; AWS recording 2026-02: test_multipart_if_match_etag",
    broken_by: &["changing-etags", "unquoted-etags", "weak-etags", "multipart-etag-plain", "truncated-etags"],
    run: |t| Box::pin(etag_multipart(t)),
    ..BASE
};

async fn etag_multipart(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("parts", 0));
    let etag = Upload::whole(t, &key, &body).await?;
    for read in [Call::get(&key), Call::head(&key)] {
        let answer = t.send(read).await?;
        expect_equal("ETag", &etag, answer.etag(), &answer)?;
        if !(etag.starts_with('"') && etag.ends_with("-1\"")) {
            return Err(Stop::fail("a strong ETag ending in -1", etag, &answer));
        }
    }
    let (answer, entries) = list(t).await?;
    expect_equal("ETag", &etag, entries.first().map(|(_, etag)| etag.as_str()).unwrap_or_default(), &answer)?;
    t.holds(&key, &body).await
}

const METADATA: Check = Check {
    id: "consistency.metadata-token",
    proves: "a token in user metadata comes back on GET and HEAD: the proof whose write a key holds",
    severity: Severity::Expected,
    source: "S3 API Reference: PutObject, x-amz-meta; slatedb pull request 1164 on its use",
    broken_by: &["drop-metadata"],
    run: |t| Box::pin(metadata(t)),
    ..BASE
};

async fn metadata(t: &Trial) -> Done {
    let (key, token) = (t.key("k"), String::from_utf8_lossy(&t.body("token", 0)).trim().to_owned());
    let put = Call::put(&key, t.body("new", 0)).header("x-amz-meta-token", &token);
    let answer = t.send(put).await?;
    if !answer.succeeded() {
        return Err(Stop::unprepared("a PUT with metadata", &answer));
    }
    for read in [Call::get(&key), Call::head(&key)] {
        let answer = t.send(read).await?;
        expect_equal(
            "x-amz-meta-token",
            &token,
            answer.header("x-amz-meta-token").unwrap_or_default(),
            &answer,
        )?;
    }
    Ok(())
}
