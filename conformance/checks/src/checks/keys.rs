//! Keys: how long they may be, measured, and what is answered beyond.

use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_element, expect_error, expect_status};
use crate::trial::Trial;
use bytes::Bytes;

const NAMING: &str = "S3 User Guide: Naming Amazon S3 objects; a key is up to 1,024 bytes of UTF-8";
/// The longest key of S3, in bytes.
const LONGEST: usize = 1024;

pub(super) const ALL: &[Check] = &[TOTAL, SEGMENT, DEPTH, BEYOND, BEYOND_HEAD, BYTES, WM2, WM];

pub(super) const BASE: Check = Check {
    id: "key",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: NAMING,
    broken_by: &[],
    run: |t| Box::pin(total(t)),
};

/// The largest size from 1 to `end` whose key is stored and read back, found by halving, as if all smaller ones were.
async fn largest(
    t: &Trial,
    end: usize,
    key: impl Fn(usize) -> String,
) -> Result<(usize, Option<Answer>), Stop> {
    let (mut good, mut bad, mut refusal) = (0, end + 1, None);
    let mut next = end;
    while bad - good > 1 {
        let name = key(next);
        let body = t.body("at", 0);
        let put = t.send(Call::put(&name, body.clone())).await?;
        match put.status.as_u16() {
            200 => {
                t.holds(&name, &body).await?;
                good = next;
            }
            503 | 429 => return Err(Stop::doubt("too many requests", &put)),
            _ => {
                bad = next;
                refusal = Some(put);
            }
        }
        next = good.midpoint(bad);
    }
    Ok((good, refusal))
}

/// The measured limit must be this one.
fn expect_limit(unit: &str, wanted: usize, (found, refusal): (usize, Option<Answer>)) -> Done {
    match refusal {
        Some(answer) if found != wanted => {
            Err(Stop::fail(format!("{wanted} {unit}"), format!("{found} {unit} at most"), &answer))
        }
        _ => Ok(()),
    }
}

/// A key of exactly `length` bytes under the trial's prefix, in segments of at most 100.
pub(super) fn long_key(t: &Trial, length: usize) -> String {
    let mut key = t.prefix().to_owned();
    while key.len() < length {
        let segment = (key.len() - t.prefix().len()) % 101 == 100;
        key.push(if segment && key.len() + 1 < length { '/' } else { 'k' });
    }
    key
}

const TOTAL: Check = Check {
    id: "key.limit.total",
    proves: "a key of 1024 bytes in segments of 100 is stored and read back; the real limit is measured",
    broken_by: &["key-limit", "key-limit-512"],
    ..BASE
};

async fn total(t: &Trial) -> Done {
    let floor = t.prefix().len();
    let (found, refusal) = largest(t, LONGEST - floor, |more| long_key(t, floor + more)).await?;
    t.measure("key-total-bytes", (found + floor) as u64);
    expect_limit("bytes", LONGEST, (found + floor, refusal))
}

const SEGMENT: Check = Check {
    id: "key.limit.segment",
    proves: "one segment between slashes may take all the bytes that the key may; the real limit is measured",
    source: "S3 User Guide: Naming Amazon S3 objects; rustfs issue 5785",
    broken_by: &["key-limit", "key-limit-512", "segment-limit", "segment-limit-128"],
    run: |t| Box::pin(segment(t)),
    ..BASE
};

async fn segment(t: &Trial) -> Done {
    let room = LONGEST - t.prefix().len();
    let (found, refusal) = largest(t, room, |length| t.key(&"s".repeat(length))).await?;
    t.measure("key-segment-bytes", found as u64);
    expect_limit("bytes in one segment", room, (found, refusal))
}

const DEPTH: Check = Check {
    id: "key.limit.depth",
    proves: "a key may have as many segments as fit into its bytes; the real limit is measured",
    broken_by: &["key-limit", "key-limit-512", "depth-limit"],
    run: |t| Box::pin(depth(t)),
    ..BASE
};

async fn depth(t: &Trial) -> Done {
    let room = (LONGEST - t.prefix().len()) / 2;
    let above = t.prefix().matches('/').count();
    // The last segment tells the depths apart, so that no key is a folder of another.
    let key = |depth: usize| t.key(&format!("{}{}", "d/".repeat(depth - 1), "e"));
    let (found, refusal) = largest(t, room, key).await?;
    t.measure("key-segments", (found + above) as u64);
    expect_limit("segments", room, (found, refusal))
}

const BEYOND: Check = Check {
    id: "key.limit.beyond",
    proves: "a key of 1025 bytes is 400 KeyTooLongError with its size and the limit",
    source: "versitygw issue 2080: a transcript of AWS",
    broken_by: &["key-limit-512", "wrong-key-codes"],
    run: |t| Box::pin(beyond(t)),
    ..BASE
};

async fn beyond(t: &Trial) -> Done {
    let answer = t.send(Call::put(&long_key(t, LONGEST + 1), t.body("never", 0))).await?;
    expect_error(&answer, &[400], "KeyTooLongError")?;
    expect_element(&answer, "Size", "1025")?;
    expect_element(&answer, "MaxSizeAllowed", "1024")
}

const BEYOND_HEAD: Check = Check {
    id: "key.limit.beyond.head",
    proves: "HEAD of a key of 1025 bytes is 400 too, not 404",
    severity: Severity::Informative,
    source: "s3fs-fuse pull request 1602",
    broken_by: &["long-keys-are-absent"],
    run: |t| Box::pin(beyond_head(t)),
    ..BASE
};

async fn beyond_head(t: &Trial) -> Done {
    expect_status(&t.send(Call::head(&long_key(t, LONGEST + 1))).await?, &[400])
}

const BYTES: Check = Check {
    id: "key.limit.multi-byte",
    proves: "the limit counts bytes of UTF-8: 1024 bytes of three-byte characters are stored, more refused",
    broken_by: &["key-limit", "key-limit-512", "wrong-key-codes"],
    run: |t| Box::pin(bytes(t)),
    ..BASE
};

async fn bytes(t: &Trial) -> Done {
    let room = LONGEST - t.prefix().len();
    let text = |bytes: usize| "a".repeat(bytes % 3) + &"\u{4e2d}".repeat(bytes / 3);
    // Segments of at most 120 bytes, so that a limit per segment is not what is found.
    let key = |bytes: usize| {
        let mut key = (0..bytes / 121).fold(t.prefix().to_owned(), |key, _| key + &text(120) + "/");
        key += &text(bytes % 121);
        key
    };
    let (longest, body) = (key(room), t.body("at", 0));
    let put = t.send(Call::put(&longest, body.clone())).await?;
    expect_status(&put, &[200])?;
    t.holds(&longest, &body).await?;
    let beyond = t.send(Call::put(&key(room + 1), body)).await?;
    expect_error(&beyond, &[400], "KeyTooLongError")
}

const WM2: Check = Check {
    id: "key.wm2",
    proves: "the longest data key of durable_v2, 900 bytes with a segment of 200, is stored, read and listed",
    severity: Severity::Required,
    source: "operations guide of durable_v2: object keys, segment up to 200 bytes and key up to 900",
    broken_by: &[
        "key-limit",
        "key-limit-512",
        "segment-limit-128",
        "decode-keys-twice",
        "only-unquoted-etags-match",
        "refuse-if-none-match-put",
        "refuse-if-match-put",
        "fold-key-case",
    ],
    run: |t| Box::pin(wm2(t)),
    ..BASE
};

async fn wm2(t: &Trial) -> Done {
    // A table of 200 bytes with an escaped character, the batch's digest, and the file's: digest and suffix.
    let (digest, table) = ("0123456789abcdef".repeat(4), format!("ns%2Eone.{}", "t".repeat(191)));
    let tail = format!("{table}/wm2-{digest}/{digest}.jsonl.zst");
    let (mut key, mut left) = (t.prefix().to_owned(), 900 - t.prefix().len() - tail.len());
    while left > 0 {
        // A segment of up to 200 bytes and its slash, and never a slash alone for the last.
        let taken = left.min(if left == 202 { 200 } else { 201 });
        key += &("p".repeat(taken - 1) + "/");
        left -= taken;
    }
    key += &tail;
    kept(t, &key).await
}

/// The key is stored, read, listed as it was written, and swapped.
async fn kept(t: &Trial, key: &str) -> Done {
    let (body, next) = (t.body("data", 0), t.body("next", 0));
    let put = t.send(Call::put(key, body.clone()).if_none_match("*")).await?;
    expect_status(&put, &[200])?;
    t.holds(key, &body).await?;
    let page = super::list::list(t, "", &[]).await?;
    let listed = page.keys.first().map(|name| t.key(name)).unwrap_or_default();
    if listed != key || page.keys.len() != 1 {
        return Err(Stop::fail(format!("{key:?} listed"), format!("{:?}", page.keys), &page.answer));
    }
    let swap = t.send(Call::put(key, next.clone()).if_match(put.etag())).await?;
    expect_status(&swap, &[200])?;
    t.holds(key, &next).await
}

const WM: Check = Check {
    id: "key.wm-legacy",
    proves: "a legacy data key with a watermark of 450 bytes in one segment can still be stored and read",
    severity: Severity::Informative,
    source: "operations guide of durable_v2: legacy wm- keys",
    broken_by: &["key-limit", "segment-limit", "segment-limit-128"],
    run: |t| Box::pin(wm(t)),
    ..BASE
};

async fn wm(t: &Trial) -> Done {
    let key = t.key(&format!("p/t/wm-{}/0.parquet", "6a".repeat(225)));
    let body: Bytes = t.body("data", 0);
    expect_status(&t.send(Call::put(&key, body.clone())).await?, &[200])?;
    t.holds(&key, &body).await
}
