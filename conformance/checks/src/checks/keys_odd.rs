//! Keys that some store folds, unescapes or takes for a path.

use super::keys::BASE;
use super::list::{Page, list};
use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::expect::{expect_list, expect_status};
use crate::trial::Trial;

const RECORDED: &str = "AWS recording 2026-02: special-character keys, test_url_encoded_key";

pub(super) const ALL: &[Check] =
    &[PERCENT, SLASHES, OBJECT_AND_FOLDER, CASE, UNICODE, DOTS, CLIMBING, CONTROL];

/// Each key holds its own bytes and is listed once, exactly as it was written, in whatever order.
async fn distinct(t: &Trial, names: &[&str]) -> Done {
    let (sorted, mut page) = kept(t, names).await?;
    page.keys.sort();
    expect_list("keys", &sorted, &page.keys, &page.answer)
}

/// The same, in the order of bytes.
async fn ordered(t: &Trial, names: &[&str]) -> Done {
    let (sorted, page) = kept(t, names).await?;
    expect_list("keys", &sorted, &page.keys, &page.answer)
}

/// Each key holds its own bytes; gives the names sorted, and what is listed.
async fn kept(t: &Trial, names: &[&str]) -> Result<(Vec<String>, Page), Stop> {
    let mut bodies = Vec::new();
    for name in names {
        let body = t.body("of its own", 0);
        let put = t.send(Call::put(&t.key(name), body.clone())).await?;
        expect_status(&put, &[200])?;
        bodies.push(body);
    }
    for (name, body) in names.iter().zip(&bodies) {
        t.holds(&t.key(name), body).await?;
    }
    let page = list(t, "", &[]).await?;
    let mut sorted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    sorted.sort();
    Ok((sorted, page))
}

const PERCENT: Check = Check {
    id: "key.percent",
    proves: "a key is decoded once: an escaped slash, a slash, a percent, a plus and a space are different keys",
    severity: Severity::Required,
    source: RECORDED,
    broken_by: &[
        "decode-keys-twice",
        "plus-is-space",
        "list-double-escape",
        "object-blocks-folder",
        "fold-key-case",
    ],
    run: |t| {
        Box::pin(distinct(
            t,
            &["a/b", "a%2Fb", "a%2fb", "a%252Fb", "a%b", "a+b", "a b", "a%20b", "a&amp;b", "a&b"],
        ))
    },
    ..BASE
};

const SLASHES: Check = Check {
    id: "key.slashes",
    proves: "empty segments are kept: a, /a, a/, a// and a//b are different keys, and each may hold bytes",
    source: "AWS recording 2026-02: test_object_with_slashes_in_key",
    broken_by: &["collapse-slashes", "refuse-odd-segments", "strip-trailing-slash", "object-blocks-folder"],
    run: |t| Box::pin(distinct(t, &["a", "/a", "a/", "a//", "a//b", "//a", "/"])),
    ..BASE
};

const OBJECT_AND_FOLDER: Check = Check {
    id: "key.object-and-folder",
    proves: "an object and objects below its name stand side by side",
    source: "S3 User Guide: Organizing objects using prefixes; the key name space is flat",
    broken_by: &["object-blocks-folder"],
    run: |t| Box::pin(distinct(t, &["a", "a/b", "a/b/c", "d/e", "d"])),
    ..BASE
};

const CASE: Check = Check {
    id: "key.case",
    proves: "keys that differ in the case of a letter are different keys",
    severity: Severity::Required,
    source: "S3 User Guide: Naming Amazon S3 objects; object key names are case sensitive",
    broken_by: &["fold-key-case"],
    run: |t| Box::pin(distinct(t, &["key", "Key", "KEY", "dir/x", "Dir/x", "\u{e9}", "\u{c9}"])),
    ..BASE
};

const UNICODE: Check = Check {
    id: "key.unicode",
    proves: "a key is bytes: a composed letter and the same letter decomposed are different keys",
    source: "S3 User Guide: Naming Amazon S3 objects; a key is a sequence of Unicode characters in UTF-8",
    broken_by: &["compose-unicode", "fold-key-case", "list-order-utf16"],
    run: |t| {
        Box::pin(ordered(
            t,
            &["caf\u{e9}", "cafe\u{301}", "\u{212b}", "\u{c5}", "\u{1f600}", "\u{feff}x", "x"],
        ))
    },
    ..BASE
};

const DOTS: Check = Check {
    id: "key.dots",
    proves: "dot segments inside a key are kept: nothing is resolved",
    severity: Severity::Informative,
    source: "rustfs pull request 7314 on AWS's answers",
    broken_by: &["resolve-dots", "resolve-dot-segments", "refuse-odd-segments", "object-blocks-folder"],
    run: |t| Box::pin(distinct(t, &["a/./b", "a/../b", "a/b", "b", ".hidden", "a/...", "dot."])),
    ..BASE
};

const CLIMBING: Check = Check {
    id: "key.dots.climbing",
    proves: "a key whose dot segments climb above the bucket is refused with 400, not resolved",
    severity: Severity::Informative,
    source: "floci issue 1320: AWS's answer",
    broken_by: &["resolve-dots"],
    run: |t| Box::pin(climbing(t)),
    ..BASE
};

/// Only read, since a provider that resolves it would write elsewhere.
async fn climbing(t: &Trial) -> Done {
    let above = "../".repeat(t.prefix().matches('/').count() + 1);
    expect_status(&t.send(Call::get(&t.key(&format!("{above}never")))).await?, &[400])
}

const CONTROL: Check = Check {
    id: "key.control-bytes",
    proves: "control bytes are stored and come back in a listing with encoding-type=url",
    severity: Severity::Informative,
    source: "S3 User Guide: Naming Amazon S3 objects, characters to avoid; ListObjectsV2, encoding-type",
    broken_by: &["refuse-control-bytes", "ignore-encoding-type"],
    run: |t| Box::pin(control(t)),
    ..BASE
};

async fn control(t: &Trial) -> Done {
    let names = ["a\u{1}b", "a\tb", "a\nb", "a\u{1f}b", "a\u{7f}b"];
    for name in names {
        let body = t.body("of its own", 0);
        expect_status(&t.send(Call::put(&t.key(name), body.clone())).await?, &[200])?;
        t.holds(&t.key(name), &body).await?;
    }
    let page = list(t, "", &[("encoding-type", "url")]).await?;
    let encoded = ["a%01b", "a%09b", "a%0Ab", "a%1Fb", "a%7Fb"].map(str::to_owned);
    expect_list("keys", &encoded, &page.keys, &page.answer)
}
