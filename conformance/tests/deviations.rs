//! A clean server passes every check; behind a forwarder that misbehaves in one way, exactly the checks that name
//! this deviation fail. A check that cannot fail is decoration.

mod forwarder;

use assay_checks::{Answer, Client, Clock, Endpoint, Race, Settings};
use assay_conformance::report::{Entry, Outcome};
use assay_conformance::runner::{self, Plan};
use assay_conformance::target::Provider;
use assay_conformance::{embedded, selection, sweep};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use forwarder::{CLEAN, Deviation, Seen};
use http::{HeaderValue, StatusCode};
use md5::{Digest, Md5};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::JoinSet;

const STRANGER: HeaderValue = HeaderValue::from_static("\"ffffffffffffffffffffffffffffffff\"");

/// A deviation that changes requests.
const fn asking(name: &'static str, request: fn(&mut Seen) -> Option<u16>) -> Deviation {
    Deviation { name, request, ..CLEAN }
}

/// A deviation that changes answers.
const fn answering(name: &'static str, answer: fn(&Seen, &mut Answer)) -> Deviation {
    Deviation { name, answer, ..CLEAN }
}

fn drop_headers(seen: &mut Seen, applies: bool, prefix: &str) -> Option<u16> {
    if applies {
        let names: Vec<_> =
            seen.headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        for name in names {
            seen.headers.remove(name);
        }
    }
    None
}

/// Makes an ETag condition compare with an ETag that nothing has.
fn estrange(seen: &mut Seen, applies: fn(&str) -> bool, headers: &[&'static str]) -> Option<u16> {
    for header in headers {
        if seen.has(header) && applies(seen.value(header)) {
            seen.headers.insert(*header, STRANGER);
        }
    }
    None
}

fn rewrite(answer: &mut Answer, change: impl FnOnce(String) -> String) {
    answer.body = Bytes::from(change(String::from_utf8_lossy(&answer.body).into_owned()));
}

/// Takes `<name>` and its inside out of a document.
fn without_element(document: String, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    match (document.find(&open), document.find(&close)) {
        (Some(start), Some(end)) => {
            without_element(document[..start].to_owned() + &document[end + close.len()..], name)
        }
        _ => document,
    }
}

fn conditional(seen: &Seen) -> bool {
    seen.has("if-match") || seen.has("if-none-match")
}

const ETAG_CONDITIONS: [&str; 4] =
    ["if-match", "if-none-match", "x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match"];

const IGNORING: &[Deviation] = &[
    asking("ignore-if-none-match-put", |s| drop_headers(s, s.is_put(), "if-none-match")),
    asking("ignore-if-match-put", |s| drop_headers(s, s.is_put(), "if-match")),
    asking("ignore-if-none-match-copy", |s| drop_headers(s, s.is_copy(), "if-none-match")),
    asking("ignore-if-match-copy", |s| drop_headers(s, s.is_copy(), "if-match")),
    asking("ignore-if-none-match-complete", |s| drop_headers(s, s.is_complete(), "if-none-match")),
    asking("ignore-if-match-complete", |s| drop_headers(s, s.is_complete(), "if-match")),
    asking("ignore-if-match-delete", |s| drop_headers(s, s.is_delete(), "if-match")),
    asking("ignore-if-match-size", |s| drop_headers(s, s.is_delete(), "x-amz-if-match-size")),
    asking("ignore-if-match-last-modified", |s| drop_headers(s, s.is_delete(), "x-amz-if-match-last")),
    asking("ignore-copy-source-conditions", |s| drop_headers(s, s.is_copy(), "x-amz-copy-source-if-")),
    asking("ignore-read-conditions", |s| drop_headers(s, s.is_read(), "if-")),
    asking("ignore-range", |s| drop_headers(s, s.is_read(), "range")),
    asking("drop-metadata", |s| drop_headers(s, true, "x-amz-meta-")),
    asking("ignore-conditions-large", |s| drop_headers(s, s.body.len() > 512 << 10, "if-")),
    asking("ignore-etag-delete-objects", |s| {
        if s.asks("delete") {
            let document = without_element(String::from_utf8_lossy(&s.body).into_owned(), "ETag");
            let digest = BASE64_STANDARD.encode(Md5::digest(document.as_bytes()));
            s.headers.insert("content-md5", HeaderValue::from_str(&digest).expect("base64"));
            s.body = Bytes::from(document);
        }
        None
    }),
];

const REFUSING: &[Deviation] = &[
    asking("refuse-if-none-match-put", |s| (s.is_put() && s.has("if-none-match")).then_some(501)),
    asking("refuse-if-match-put", |s| (s.is_put() && s.has("if-match")).then_some(501)),
    asking("refuse-conditional-copy", |s| (s.is_copy() && conditional(s)).then_some(501)),
    asking("refuse-conditional-complete", |s| (s.is_complete() && conditional(s)).then_some(501)),
    asking("refuse-conditional-delete", |s| (s.is_delete() && conditional(s)).then_some(501)),
    asking("refuse-bad-dates", |s| {
        let bad = |name| s.has(name) && !s.value(name).ends_with("GMT");
        (bad("if-modified-since") || bad("if-unmodified-since")).then_some(400)
    }),
];

const COMPARING: &[Deviation] = &[
    asking("only-unquoted-etags-match", |s| match s.is_read() {
        true => None,
        false => estrange(s, |value| value.starts_with('"'), &["if-match"]),
    }),
    asking("only-quoted-etags-match", |s| {
        estrange(s, |value| !value.contains('"') && value != "*", &ETAG_CONDITIONS)
    }),
    asking("no-etag-lists", |s| estrange(s, |value| value.contains(','), &ETAG_CONDITIONS)),
    asking("strong-comparison-only", |s| estrange(s, |value| value.starts_with("W/"), &ETAG_CONDITIONS)),
    asking("star-compared-literally-delete", |s| match s.is_delete() {
        true => estrange(s, |value| value == "*", &["if-match"]),
        false => None,
    }),
    asking("reverse-read-conditions", |s| {
        let reversed = s.is_read() && s.has("if-none-match") && s.has("if-match");
        drop_headers(s, reversed, "if-match");
        drop_headers(s, reversed, "if-unmodified-since")
    }),
    asking("ranges-before-conditions", |s| drop_headers(s, s.is_read() && s.has("range"), "if-match")),
    Deviation { name: "race-create-put", check_then_act: Some("if-none-match"), ..CLEAN },
    Deviation { name: "race-swap-put", check_then_act: Some("if-match"), ..CLEAN },
];

const ANSWERING: &[Deviation] = &[
    answering("omit-condition-element", |_, a| rewrite(a, |document| without_element(document, "Condition"))),
    answering("omit-key-element", |s, a| {
        if s.is_read() && a.status == StatusCode::NOT_FOUND {
            rewrite(a, |document| without_element(document, "Key"));
        }
    }),
    answering("304-without-etag", |_, a| {
        if a.status == StatusCode::NOT_MODIFIED {
            a.headers.remove("etag");
        }
    }),
    answering("304-with-checksum", |_, a| {
        if a.status == StatusCode::NOT_MODIFIED {
            a.headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
        }
    }),
    answering("failed-write-304", |s, a| {
        if s.is_put() && a.status == StatusCode::PRECONDITION_FAILED {
            a.status = StatusCode::NOT_MODIFIED;
            a.body = Bytes::new();
        }
    }),
    answering("copy-source-304", |s, a| {
        if s.has("x-amz-copy-source-if-none-match") && a.status == StatusCode::PRECONDITION_FAILED {
            a.status = StatusCode::NOT_MODIFIED;
            a.body = Bytes::new();
        }
    }),
    answering("if-match-absent-412", |s, a| {
        if !s.is_read() && s.has("if-match") && a.status == StatusCode::NOT_FOUND {
            a.status = StatusCode::PRECONDITION_FAILED;
        }
    }),
    answering("delete-absent-if-match-204", |s, a| {
        if s.is_delete() && s.has("if-match") && a.status == StatusCode::NOT_FOUND {
            a.status = StatusCode::NO_CONTENT;
            a.body = Bytes::new();
        }
    }),
    answering("unquoted-etags", |_, a| {
        if let Some(bare) = a.header("etag").map(|etag| etag.trim_matches('"').to_owned()) {
            a.headers.insert("etag", HeaderValue::from_str(&bare).expect("an ETag"));
        }
        rewrite(a, |document| document.replace("&quot;", "").replace("&#34;", ""));
    }),
];

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

fn client(provider: &Provider, endpoint: &str) -> Client {
    Client::new(Settings {
        endpoint: Endpoint::parse(endpoint).expect("loopback"),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(10),
        clock: clock(),
    })
}

/// The whole suite with short races, through a forwarder, on a server of its own.
async fn run(deviation: Deviation, race: Race) -> Vec<Entry> {
    let (_server, provider) = embedded::start().await.expect("the embedded server starts");
    let mut tasks = JoinSet::new();
    let upstream = client(&provider, &provider.endpoint.url());
    let endpoint = forwarder::start(deviation, upstream.clone(), &mut tasks).await;
    let plan = Plan {
        checks: selection::select(&[]).expect("all of them"),
        without: Vec::new(),
        race,
        seed: 1,
        limit: Duration::from_secs(60),
        clock: clock(),
    };
    let entries = runner::run(&plan, &client(&provider, &endpoint), "assay-certify/test/", |_| {}).await;
    sweep::empty(&upstream, "assay-certify/").await.expect("the bucket is emptied");
    entries
}

/// Ids that did not pass, with what happened where it is no plain failure.
fn failed(entries: &[Entry]) -> BTreeSet<String> {
    entries
        .iter()
        .filter_map(|entry| match &entry.outcome {
            Outcome::Pass => None,
            Outcome::Fail(_) => Some(entry.id.clone()),
            other => Some(format!("{} {other:?}", entry.id)),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_server_passes_every_check() {
    let entries = run(CLEAN, Race { writers: 8, rounds: 4 }).await;
    let wrong: Vec<_> = entries.iter().filter(|entry| entry.outcome != Outcome::Pass).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(entries.len(), assay_checks::all().count());
}

/// For each deviation: the checks that name it, and no others, fail.
async fn exactly_the_named_checks_fail(deviations: &'static [Deviation]) {
    let mut wrong = Vec::new();
    for deviation in deviations {
        let named: BTreeSet<String> = assay_checks::all()
            .filter(|check| check.broken_by.contains(&deviation.name))
            .map(|check| check.id.to_owned())
            .collect();
        assert!(!named.is_empty(), "no check names {}", deviation.name);
        let seen = failed(&run(*deviation, Race { writers: 4, rounds: 2 }).await);
        let (missed, other): (Vec<_>, Vec<_>) =
            (named.difference(&seen).collect(), seen.difference(&named).collect());
        if !missed.is_empty() || !other.is_empty() {
            wrong.push(format!("{}: passed {missed:?}; not named {other:?}", deviation.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_headers_are_noticed() {
    exactly_the_named_checks_fail(IGNORING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_noticed() {
    exactly_the_named_checks_fail(REFUSING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_comparisons_are_noticed() {
    exactly_the_named_checks_fail(COMPARING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_are_noticed() {
    exactly_the_named_checks_fail(ANSWERING).await;
}
