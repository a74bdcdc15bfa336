//! Ways to misbehave in listings, keys, uploads, checksums, signatures, answers and clocks.

use super::{CLEAN, Deviation, Seen};
use assay_checks::{Answer, xml};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use std::sync::atomic::{AtomicI64, Ordering};
use time::format_description::well_known::{Iso8601, Rfc2822};
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

/// A deviation that changes requests.
pub const fn asking(name: &'static str, request: fn(&mut Seen) -> Option<u16>) -> Deviation {
    Deviation { name, request, ..CLEAN }
}

/// A deviation that changes answers.
pub const fn answering(name: &'static str, answer: fn(&Seen, &mut Answer)) -> Deviation {
    Deviation { name, answer, ..CLEAN }
}

pub fn drop_headers(seen: &mut Seen, applies: bool, prefix: &str) -> Option<u16> {
    if applies {
        let names: Vec<_> =
            seen.headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        for name in names {
            seen.headers.remove(name);
        }
    }
    None
}

pub fn rewrite(answer: &mut Answer, change: impl FnOnce(String) -> String) {
    answer.body = Bytes::from(change(String::from_utf8_lossy(&answer.body).into_owned()));
}

/// Takes `<name>` and its inside out of a document.
pub fn without_element(document: String, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    match (document.find(&open), document.find(&close)) {
        (Some(start), Some(end)) => {
            without_element(document[..start].to_owned() + &document[end + close.len()..], name)
        }
        _ => document,
    }
}

fn unask(seen: &mut Seen, applies: bool, names: &[&str]) -> Option<u16> {
    if applies {
        names.iter().for_each(|name| seen.unask(name));
    }
    None
}

/// Changes the key of every request on one.
fn rekey(seen: &mut Seen, change: impl FnOnce(&str) -> String) -> Option<u16> {
    if let Some(key) = &seen.key {
        seen.key = Some(change(key)).filter(|key| !key.is_empty());
    }
    None
}

fn longest_segment(key: &str) -> usize {
    key.split('/').map(str::len).max().unwrap_or_default()
}

/// The blocks of `name` in another order.
fn reordered(document: String, name: &str, order: impl FnOnce(&mut Vec<String>)) -> String {
    let mut blocks = xml::elements(&document, name);
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (Some(start), Some(end)) = (document.find(&open), document.rfind(&close)) else { return document };
    order(&mut blocks);
    let inside: String = blocks.iter().map(|block| format!("{open}{block}{close}")).collect();
    document[..start].to_owned() + &inside + &document[end + close.len()..]
}

/// Error codes that become another.
fn renamed(answer: &mut Answer, codes: &[&str]) {
    rewrite(answer, |document| {
        codes.iter().fold(document, |document, code| {
            document.replace(&format!("<Code>{code}</Code>"), "<Code>Refused</Code>")
        })
    });
}

fn resolved(key: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in key.split('/') {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    kept.join("/")
}

pub const LISTING: &[Deviation] = &[
    asking("prefix-is-folder", |s| {
        if s.is_listing() && !s.asks("uploads") && !s.asked("prefix").ends_with('/') {
            s.ask("prefix", &(s.asked("prefix").to_owned() + "/"));
        }
        None
    }),
    asking("ignore-delimiter", |s| unask(s, s.is_listing(), &["delimiter"])),
    asking("one-character-delimiters", |s| {
        if s.asked("delimiter").len() > 1 {
            let first = s.asked("delimiter").chars().next().unwrap_or_default().to_string();
            s.ask("delimiter", &first);
        }
        None
    }),
    answering("key-count-without-groups", |s, a| {
        if s.is_listing() {
            let keys = xml::elements(&String::from_utf8_lossy(&a.body), "Contents").len();
            rewrite(a, |d| {
                let count = xml::element(&d, "KeyCount").unwrap_or_default();
                d.replace(&format!("<KeyCount>{count}<"), &format!("<KeyCount>{keys}<"))
            });
        }
    }),
    answering("empty-list-404", |s, a| {
        if s.is_listing() && s.asks("list-type") && a.element("KeyCount").as_deref() == Some("0") {
            a.status = StatusCode::NOT_FOUND;
        }
    }),
    answering("list-without-size", |s, a| {
        if s.is_listing() {
            rewrite(a, |d| without_element(d, "Size"));
        }
    }),
    answering("list-double-escape", |s, a| {
        if s.is_listing() {
            rewrite(a, |d| d.replace("&amp;", "&amp;amp;"));
        }
    }),
    asking("ignore-encoding-type", |s| unask(s, true, &["encoding-type"])),
    asking("max-keys-zero-is-default", |s| unask(s, s.asked("max-keys") == "0", &["max-keys"])),
    asking("ignore-bad-max-keys", |s| unask(s, s.asked("max-keys") == "many", &["max-keys"])),
    answering("page-loses-a-key", |s, a| {
        if s.is_listing() && a.element("IsTruncated").as_deref() == Some("true") {
            rewrite(a, |d| reordered(d, "Contents", |blocks| drop(blocks.pop())));
        }
    }),
    answering("truncated-at-exact-end", |s, a| {
        if s.asks("max-keys") && a.element("KeyCount").as_deref() == Some(s.asked("max-keys")) {
            rewrite(a, |d| d.replace("<IsTruncated>false<", "<IsTruncated>true<"));
        }
    }),
    asking("start-after-inclusive", |s| {
        if let Some(last) = s.asked("start-after").chars().last() {
            let before = char::from_u32(u32::from(last) - 1).unwrap_or('!');
            let start = s.asked("start-after").strip_suffix(last).unwrap_or_default().to_owned();
            s.ask("start-after", &format!("{start}{before}~"));
        }
        None
    }),
    asking("start-after-over-token", |s| unask(s, s.asks("start-after"), &["continuation-token"])),
    asking("accept-bad-tokens", |s| {
        unask(s, s.asked("continuation-token") == "not-a-token", &["continuation-token"])
    }),
    asking("ignore-marker", |s| unask(s, true, &["marker"])),
    answering("always-next-marker", |s, a| {
        if s.is_listing() && !s.asks("list-type") && a.element("NextMarker").is_none() {
            rewrite(a, |d| d.replace("<Contents>", "<NextMarker>k</NextMarker><Contents>"));
        }
    }),
    asking("ignore-upload-markers", |s| unask(s, s.asks("uploads"), &["key-marker", "upload-id-marker"])),
    asking("ignore-part-number-marker", |s| unask(s, true, &["part-number-marker"])),
];

fn too_long(seen: &Seen, applies: fn(&str) -> bool) -> Option<u16> {
    (seen.method == Method::PUT && seen.key.as_deref().is_some_and(applies)).then_some(400)
}

pub const KEYS: &[Deviation] = &[
    asking("key-limit-512", |s| too_long(s, |key| key.len() > 512)),
    asking("segment-limit-128", |s| too_long(s, |key| longest_segment(key) > 128)),
    asking("depth-limit", |s| too_long(s, |key| key.split('/').count() > 64)),
    asking("object-blocks-folder", |s| too_long(s, |key| key.ends_with("/a/b") || key.ends_with("/a//b"))),
    asking("refuse-control-bytes", |s| too_long(s, |key| key.contains(char::is_control))),
    asking("long-keys-are-absent", |s| {
        (s.method == Method::HEAD && s.key.as_ref().is_some_and(|key| key.len() > 1024)).then_some(404)
    }),
    answering("wrong-key-codes", |_, a| renamed(a, &["KeyTooLongError", "NoSuchKey"])),
    asking("plus-is-space", |s| rekey(s, |key| key.replace('+', " "))),
    asking("strip-trailing-slash", |s| rekey(s, |key| key.trim_end_matches('/').to_owned())),
    asking("compose-unicode", |s| {
        rekey(s, |key| key.replace("e\u{301}", "\u{e9}").replace('\u{212b}', "\u{c5}"))
    }),
    asking("resolve-dots", |s| rekey(s, resolved)),
];

fn parts_of(seen: &Seen) -> Vec<String> {
    xml::elements(&String::from_utf8_lossy(&seen.body), "Part")
}

pub const UPLOADS: &[Deviation] = &[
    asking("loses-last-part", |s| {
        if s.is_complete() && parts_of(s).len() > 1 {
            let document = String::from_utf8_lossy(&s.body).into_owned();
            s.body = Bytes::from(reordered(document, "Part", |parts| drop(parts.pop())));
        }
        None
    }),
    asking("complete-takes-first-part", |s| {
        if s.is_complete() && parts_of(s).len() == 1 {
            let number = xml::element(&parts_of(s)[0], "PartNumber").unwrap_or_default();
            let document = String::from_utf8_lossy(&s.body).into_owned();
            s.body = Bytes::from(document.replace(&format!(">{number}</PartNumber>"), ">1</PartNumber>"));
        }
        None
    }),
    answering("wrong-multipart-codes", |_, a| {
        renamed(
            a,
            &["EntityTooSmall", "InvalidPart", "InvalidPartOrder", "NoSuchUpload", "InvalidPartNumber"],
        );
    }),
    answering("wrong-argument-codes", |_, a| renamed(a, &["InvalidArgument"])),
    asking("ignore-abort", |s| (s.method == Method::DELETE && s.asks("uploadId")).then_some(204)),
    asking("accept-no-parts", |s| (s.is_complete() && parts_of(s).is_empty()).then_some(200)),
    asking("ignore-mp-object-size", |s| drop_headers(s, true, "x-amz-mp-object-size")),
    asking("quoted-part-etags-only", |s| {
        let bare = |part: &String| !xml::element(part, "ETag").unwrap_or_default().starts_with('"');
        (s.is_complete() && parts_of(s).iter().any(bare)).then_some(400)
    }),
    asking("ignore-copy-source-range", |s| drop_headers(s, true, "x-amz-copy-source-range")),
    asking("ignore-read-part-number", |s| unask(s, s.is_read() && !s.asks("uploadId"), &["partNumber"])),
];

pub const VERSIONS: &[Deviation] = &[
    asking("ignore-version-id", |s| unask(s, true, &["versionId"])),
    answering("hide-delete-markers", |_, a| drop(a.headers.remove("x-amz-delete-marker"))),
    asking("ignore-copy-source-version", |s| {
        if let Some((source, _)) = s.value("x-amz-copy-source").split_once('?') {
            let source = HeaderValue::from_str(source).expect("a source");
            s.headers.insert("x-amz-copy-source", source);
        }
        None
    }),
    answering("list-versions-oldest-first", |s, a| {
        if s.asks("versions") {
            rewrite(a, |d| reordered(d, "Version", |blocks| blocks.reverse()));
        }
    }),
    asking("ignore-version-id-marker", |s| unask(s, true, &["version-id-marker"])),
];

pub const INTEGRITY: &[Deviation] = &[
    asking("store-torn-bodies", |s| {
        s.torn = false;
        None
    }),
    asking("ignore-checksums", |s| {
        if s.key.is_some() && !s.is_read() {
            drop_headers(s, true, "content-md5");
            drop_headers(s, true, "x-amz-checksum-");
        }
        None
    }),
    answering("wrong-checksum-codes", |_, a| renamed(a, &["BadDigest", "InvalidDigest"])),
    answering("wrong-request-codes", |_, a| {
        renamed(a, &["InvalidRequest", "MethodNotAllowed", "MalformedXML"])
    }),
    asking("ignore-trailers", |s| {
        if s.is_chunked() {
            s.unchunk(false);
        }
        None
    }),
    asking("store-chunk-framing", |s| {
        if s.is_chunked() {
            for name in ["content-encoding", "x-amz-decoded-content-length", "x-amz-trailer"] {
                s.headers.remove(name);
            }
            s.headers.insert("x-amz-content-sha256", HeaderValue::from_static(""));
        }
        None
    }),
    answering("keep-aws-chunked", |s, a| {
        if s.key.is_some() && a.succeeded() && !a.headers.contains_key("content-encoding") {
            a.headers.insert("content-encoding", HeaderValue::from_static("aws-chunked"));
        }
    }),
    asking("refuse-content-md5", |s| (s.key.is_some() && s.has("content-md5")).then_some(501)),
    answering("no-default-checksum", |_, a| drop(a.headers.remove("x-amz-checksum-crc64nvme"))),
];

/// How far a request's date is from now.
#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn skew(seen: &Seen) -> Duration {
    let form = format_description!("[year][month][day]T[hour][minute][second]Z");
    let now = OffsetDateTime::from(std::time::SystemTime::now());
    let date = PrimitiveDateTime::parse(seen.value("x-amz-date"), form).map(PrimitiveDateTime::assume_utc);
    date.map_or(Duration::ZERO, |date| (date - now).abs())
}

pub const SIGNATURES: &[Deviation] = &[
    asking("accept-any-signature", |s| {
        s.resign = true;
        None
    }),
    answering("wrong-signature-codes", |_, a| {
        renamed(
            a,
            &[
                "SignatureDoesNotMatch",
                "InvalidAccessKeyId",
                "AccessDenied",
                "RequestTimeTooSkewed",
                "AuthorizationQueryParametersError",
            ],
        );
    }),
    asking("no-skew-allowed", |s| (skew(s) > Duration::minutes(5)).then_some(403)),
    asking("sign-every-header", |s| {
        let unsigned = s.has("content-type") && !s.value("authorization").contains("content-type");
        (unsigned && !s.is_presigned()).then_some(403)
    }),
    asking("refuse-presigned", |s| s.is_presigned().then_some(400)),
];

fn shifted(answer: &mut Answer, header: &'static str, by: Duration) {
    let Some(date) = answer.header(header).and_then(|text| OffsetDateTime::parse(text, &Rfc2822).ok()) else {
        return;
    };
    let form = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let text = (date + by).format(form).expect("a date");
    answer.headers.insert(header, HeaderValue::from_str(&text).expect("a date"));
}

/// How often `last-modified-goes-back` went back.
static BACK: AtomicI64 = AtomicI64::new(0);

pub const ANSWERS: &[Deviation] = &[
    answering("error-namespace", |_, a| {
        if !a.status.is_success() {
            rewrite(a, |d| {
                d.replacen("<Error>", "<Error xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", 1)
            });
        }
    }),
    answering("wrong-bucket-codes", |_, a| renamed(a, &["NoSuchBucket"])),
    answering("no-request-id", |_, a| drop(a.headers.remove("x-amz-request-id"))),
    answering("head-absent-200", |s, a| {
        if s.method == Method::HEAD && a.status == StatusCode::NOT_FOUND {
            a.status = StatusCode::OK;
        }
    }),
    asking("no-suffix-ranges", |s| drop_headers(s, s.value("range").starts_with("bytes=-"), "range")),
    asking("refuse-malformed-ranges", |s| {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let well_formed = s.value("range").split(',').all(|range| {
            let range = range.trim_start_matches("bytes=").split_once('-');
            range.is_some_and(|(from, to)| digits(from) && digits(to) && (from.len() + to.len() > 0))
        });
        (s.is_read() && s.has("range") && !well_formed).then_some(400)
    }),
    asking("first-of-several-ranges", |s| {
        if let Some((first, _)) = s.value("range").split_once(',') {
            s.headers.insert("range", HeaderValue::from_str(first).expect("a range"));
        }
        None
    }),
    asking("ignore-if-range", |s| drop_headers(s, true, "if-range")),
    answering("merge-metadata", |s, a| {
        let bare = !a.headers.keys().any(|name| name.as_str().starts_with("x-amz-meta-"));
        if s.method == Method::HEAD && a.status == StatusCode::OK && bare {
            a.headers.insert("x-amz-meta-assay-token", HeaderValue::from_static("stale"));
        }
    }),
    answering("fold-metadata-case", |_, a| {
        for (name, value) in &mut a.headers {
            if name.as_str().starts_with("x-amz-meta-") {
                let lower = String::from_utf8_lossy(value.as_bytes()).to_lowercase();
                *value = HeaderValue::from_str(&lower).expect("a value");
            }
        }
    }),
    answering("clock-an-hour-ahead", |_, a| shifted(a, "date", Duration::HOUR)),
    answering("changing-last-modified", |s, a| {
        if s.method == Method::HEAD {
            shifted(a, "last-modified", -Duration::DAY);
        }
    }),
    answering("last-modified-goes-back", |s, a| {
        if s.method == Method::HEAD {
            let by = BACK.fetch_add(100, Ordering::Relaxed) + 100;
            shifted(a, "last-modified", -Duration::seconds(by));
        }
    }),
    answering("list-without-milliseconds", |s, a| {
        if s.is_listing() {
            rewrite(a, |d| {
                let times = xml::elements(&d, "LastModified");
                times.iter().fold(d, |d, time| {
                    let whole =
                        OffsetDateTime::parse(time, &Iso8601::DEFAULT).map(|time| time.unix_timestamp());
                    let start = time.split('.').next().unwrap_or_default();
                    if whole.is_ok() { d.replace(time.as_str(), &format!("{start}Z")) } else { d }
                })
            });
        }
    }),
    answering("mixed-reads", |s, a| {
        if s.method == Method::GET && s.key.is_some() && a.body.len() >= 4096 {
            let mut mixed = a.body.to_vec();
            if let Some(last) = mixed.last_mut() {
                *last = b'#';
            }
            a.body = mixed.into();
        }
    }),
];

/// So wide that more than the checks that name them fail.
pub const WIDE: &[Deviation] = &[
    Deviation { name: "stale-reads", remembers: |s| s.method == Method::GET && s.key.is_some(), ..CLEAN },
    Deviation {
        name: "one-upload-per-key",
        remembers: |s| s.method == Method::POST && s.asks("uploads"),
        ..CLEAN
    },
    Deviation { name: "list-lag", remembers: Seen::is_listing, ..CLEAN },
    asking("parts-are-visible", |s| unask(s, s.is_part() && !s.is_copy(), &["partNumber", "uploadId"])),
];
