//! ListObjectsV2: what is listed, how it is grouped, and in which order.

use crate::call::Call;
use crate::check::{Check, Done, Severity, Stop};
use crate::client::Answer;
use crate::expect::{expect_element, expect_equal, expect_error, expect_list, expect_status, texts};
use crate::trial::Trial;
use http::Method;
use tokio::task::JoinSet;

/// Writes at once while keys are made for a listing.
const AT_ONCE: usize = 16;

pub(super) const ALL: &[Check] = &[
    PREFIX,
    ORDER,
    GROUPS,
    INSIDE,
    LONG,
    KEY_COUNT,
    EMPTY,
    FIELDS,
    ESCAPED,
    URL,
    BAD_ENCODING,
    ZERO,
    BAD_MAX,
];

pub(super) const BASE: Check = Check {
    id: "list",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: "S3 API Reference: ListObjectsV2",
    broken_by: &[],
    run: |t| Box::pin(prefix(t)),
};

/// One page of a listing.
pub(super) struct Page {
    pub answer: Answer,
    pub keys: Vec<String>,
    /// The common prefixes.
    pub groups: Vec<String>,
    /// The token of the next page, if there is one.
    pub token: Option<String>,
}

/// A listing under the trial's prefix and `name`, with these parameters.
pub(super) fn call(t: &Trial, name: &str, query: &[(&str, &str)]) -> Call {
    let call = Call::new(Method::GET, None).query("list-type", "2").query("prefix", &t.key(name));
    query.iter().fold(call, |call, (name, value)| call.query(name, value))
}

/// That listing's page, without the trial's prefix.
pub(super) async fn list(t: &Trial, name: &str, query: &[(&str, &str)]) -> Result<Page, Stop> {
    let answer = t.send(call(t, name, query)).await?;
    expect_status(&answer, &[200])?;
    let short = |keys: Vec<String>| -> Vec<String> {
        keys.iter().map(|key| key.strip_prefix(t.prefix()).unwrap_or(key).to_owned()).collect()
    };
    let token = (answer.element("IsTruncated").as_deref() == Some("true"))
        .then(|| answer.element("NextContinuationToken").unwrap_or_default());
    let (keys, groups) = (texts(&answer, "Contents", "Key"), texts(&answer, "CommonPrefixes", "Prefix"));
    Ok(Page { keys: short(keys), groups: short(groups), token, answer })
}

/// Makes keys, several at once; the last one alone, so that it is the newest.
pub(super) async fn fill(t: &Trial, names: &[String]) -> Done {
    let Some((newest, others)) = names.split_last() else { return Ok(()) };
    let mut running = JoinSet::new();
    let mut others = others.iter();
    loop {
        while running.len() < AT_ONCE
            && let Some(name) = others.next()
        {
            let (client, call) = (t.client().clone(), Call::put(&t.key(name), "x"));
            running.spawn(async move { client.send(call).await });
        }
        let Some(put) = running.join_next().await else { break };
        written(&put.expect("a writer does not panic")?)?;
    }
    written(&t.send(Call::put(&t.key(newest), "x")).await?)
}

fn written(put: &Answer) -> Done {
    if put.succeeded() { Ok(()) } else { Err(Stop::unprepared("a plain PUT", put)) }
}

pub(super) fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes keys and lists them: exactly these keys and groups must come, in this order.
async fn shows(
    t: &Trial,
    made: &[&str],
    name: &str,
    query: &[(&str, &str)],
    keys: &[&str],
    groups: &[&str],
) -> Result<Page, Stop> {
    fill(t, &owned(made)).await?;
    let page = list(t, name, query).await?;
    expect_list("keys", &owned(keys), &page.keys, &page.answer)?;
    expect_list("groups", &owned(groups), &page.groups, &page.answer)?;
    Ok(page)
}

const PREFIX: Check = Check {
    id: "list.prefix",
    proves: "a prefix is bytes, not a folder: every key that begins with it is listed, and no other",
    severity: Severity::Required,
    source: "S3 API Reference: ListObjectsV2, prefix",
    broken_by: &["prefix-is-folder"],
    ..BASE
};

async fn prefix(t: &Trial) -> Done {
    let made = ["ab", "ab/c", "abc", "a", "b/ab"];
    shows(t, &made, "ab", &[], &["ab", "ab/c", "abc"], &[]).await.map(drop)
}

const ORDER: Check = Check {
    id: "list.order",
    proves: "keys are listed in the order of their UTF-8 bytes, not of UTF-16 or of an alphabet",
    source: "S3 User Guide: Listing object keys programmatically; UTF-8 binary order",
    broken_by: &["list-order-utf16", "fold-key-case"],
    run: |t| Box::pin(order(t)),
    ..BASE
};

async fn order(t: &Trial) -> Done {
    // U+FF5E comes before U+1F600 in UTF-8 and after it in UTF-16.
    let sorted = ["!", "-", "0", "A", "Z", "_", "a", "aa", "z", "~", "\u{e9}", "\u{ff5e}", "\u{1f600}"];
    let made: Vec<_> = sorted.iter().rev().copied().collect();
    shows(t, &made, "", &[], &sorted, &[]).await.map(drop)
}

const GROUPS: Check = Check {
    id: "list.delimiter",
    proves: "keys with the delimiter after the prefix are rolled up into one group each, the others listed",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix_and_delimiter",
    broken_by: &["ignore-delimiter"],
    run: |t| Box::pin(groups(t)),
    ..BASE
};

async fn groups(t: &Trial) -> Done {
    let made = ["a", "b/1", "b/2", "c/d/e", "d"];
    shows(t, &made, "", &[("delimiter", "/")], &["a", "d"], &["b/", "c/"]).await?;
    shows(t, &[], "c/", &[("delimiter", "/")], &[], &["c/d/"]).await.map(drop)
}

const INSIDE: Check = Check {
    id: "list.delimiter.inside-name",
    proves: "a group ends at the first delimiter after the prefix, also when the prefix ends inside a name",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix_and_delimiter",
    broken_by: &["ignore-delimiter", "prefix-is-folder"],
    run: |t| Box::pin(inside(t)),
    ..BASE
};

async fn inside(t: &Trial) -> Done {
    let made = ["foo", "foo/y", "foobar/x", "foobar/z/z"];
    shows(t, &made, "foo", &[("delimiter", "/")], &["foo"], &["foo/", "foobar/"]).await.map(drop)
}

const LONG: Check = Check {
    id: "list.delimiter.long",
    proves: "a delimiter may be of several characters",
    source: "S3 API Reference: ListObjectsV2, delimiter",
    broken_by: &["ignore-delimiter", "one-character-delimiters"],
    run: |t| Box::pin(long(t)),
    ..BASE
};

async fn long(t: &Trial) -> Done {
    let made = ["a-b", "a--b--c", "a--d"];
    shows(t, &made, "", &[("delimiter", "--")], &["a-b"], &["a--"]).await.map(drop)
}

const KEY_COUNT: Check = Check {
    id: "list.key-count",
    proves: "KeyCount is keys and groups together, max-keys limits that sum, and a group counts once",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix_and_delimiter",
    broken_by: &["ignore-delimiter", "key-count-without-groups", "page-loses-a-key"],
    run: |t| Box::pin(key_count(t)),
    ..BASE
};

async fn key_count(t: &Trial) -> Done {
    let made = ["a", "b/1", "b/2", "b/3", "c"];
    let query = [("delimiter", "/"), ("max-keys", "2")];
    let page = shows(t, &made, "", &query, &["a"], &["b/"]).await?;
    expect_element(&page.answer, "KeyCount", "2")?;
    expect_element(&page.answer, "IsTruncated", "true")?;
    let token = page.token.unwrap_or_default();
    let rest = list(t, "", &[("delimiter", "/"), ("continuation-token", &token)]).await?;
    expect_list("keys after the group", &owned(&["c"]), &rest.keys, &rest.answer)?;
    expect_list("groups after the group", &[], &rest.groups, &rest.answer)
}

const EMPTY: Check = Check {
    id: "list.empty",
    proves: "a listing of nothing is 200 with KeyCount 0, not truncated, and without keys",
    severity: Severity::Required,
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix",
    broken_by: &["empty-list-404"],
    run: |t| Box::pin(empty(t)),
    ..BASE
};

async fn empty(t: &Trial) -> Done {
    let page = shows(t, &[], "nothing", &[], &[], &[]).await?;
    expect_element(&page.answer, "KeyCount", "0")?;
    expect_element(&page.answer, "IsTruncated", "false")
}

const FIELDS: Check = Check {
    id: "list.fields",
    proves: "an entry has the object's size and ETag and its time in ISO 8601, and the page what was asked",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix",
    broken_by: &["list-without-size", "prefix-is-folder"],
    run: |t| Box::pin(fields(t)),
    ..BASE
};

async fn fields(t: &Trial) -> Done {
    let body = t.body("listed", 77);
    let etag = t.put(&t.key("k"), &body).await?;
    let page = list(t, "k", &[("max-keys", "7")]).await?;
    let answer = &page.answer;
    for (name, value) in [
        ("Size", "77"),
        ("ETag", &etag),
        ("StorageClass", "STANDARD"),
        ("MaxKeys", "7"),
        ("Prefix", &t.key("k")),
    ] {
        expect_element(answer, name, value)?;
    }
    expect_equal("Name", &t.client().settings().bucket, &answer.element("Name").unwrap_or_default(), answer)?;
    let time = answer.element("LastModified").unwrap_or_default();
    let is_iso = time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z');
    if is_iso { Ok(()) } else { Err(Stop::fail("LastModified in ISO 8601, UTC", time, answer)) }
}

const ESCAPED: Check = Check {
    id: "list.odd-keys",
    proves: "keys of every printable character come back as they were written, escaped as XML",
    source: "S3 User Guide: Naming Amazon S3 objects; AWS recording 2026-02: special-character tests",
    broken_by: &[
        "list-double-escape",
        "plus-is-space",
        "fold-key-case",
        "decode-keys-twice",
        "collapse-slashes",
        "refuse-odd-segments",
        "strip-trailing-slash",
    ],
    run: |t| Box::pin(escaped(t)),
    ..BASE
};

/// In the order of their bytes.
const ODD: [&str; 11] = [
    " a  b ",
    "\"quoted\"",
    "%2F%25",
    "&amp;<x>",
    "'`{}|\\^",
    "A=b+c@d:e",
    "a//b/",
    "a=b+c@d:e",
    "a?b#c,d;e",
    "~!$*()[]",
    "\u{fc}\u{4e2d}\u{1f600}",
];

async fn escaped(t: &Trial) -> Done {
    shows(t, &ODD, "", &[], &ODD, &[]).await.map(drop)
}

const URL: Check = Check {
    id: "list.encoding.url",
    proves: "with encoding-type=url keys, prefix and delimiter are percent-encoded and the slash stays",
    source: "AWS recording 2026-02: test_list_objects_v2 with encoding-type; safe characters",
    broken_by: &["ignore-encoding-type", "plus-is-space", "prefix-is-folder", "ignore-delimiter"],
    run: |t| Box::pin(url(t)),
    ..BASE
};

async fn url(t: &Trial) -> Done {
    fill(t, &owned(&["a/b c+d%e=f&g\u{fc}"])).await?;
    let page = list(t, "a/b c", &[("encoding-type", "url"), ("delimiter", "|")]).await?;
    expect_element(&page.answer, "EncodingType", "url")?;
    expect_list("keys", &owned(&["a/b+c%2Bd%25e%3Df%26g%C3%BC"]), &page.keys, &page.answer)?;
    expect_element(&page.answer, "Delimiter", "%7C")?;
    let prefix = format!("{}a/b+c", t.prefix());
    expect_element(&page.answer, "Prefix", &prefix)
}

const BAD_ENCODING: Check = Check {
    id: "list.encoding.bad",
    proves: "an encoding-type other than url is 400 InvalidArgument",
    source: "AWS recording 2026-02: encoding-type of ListObjectsV2",
    broken_by: &["ignore-encoding-type", "wrong-argument-codes"],
    run: |t| Box::pin(bad_encoding(t)),
    ..BASE
};

async fn bad_encoding(t: &Trial) -> Done {
    let answer = t.send(call(t, "", &[("encoding-type", "base64")])).await?;
    expect_error(&answer, &[400], "InvalidArgument")?;
    expect_element(&answer, "ArgumentName", "encoding-type")
}

const ZERO: Check = Check {
    id: "list.max-keys.zero",
    proves: "max-keys=0 is 200 with nothing in it, and not truncated",
    severity: Severity::Informative,
    source: "ceph/s3-tests 2026-05: test_bucket_list_maxkeys_zero",
    broken_by: &["max-keys-zero-is-default", "empty-list-404", "truncated-at-exact-end"],
    run: |t| Box::pin(zero(t)),
    ..BASE
};

async fn zero(t: &Trial) -> Done {
    let page = shows(t, &["a", "b"], "", &[("max-keys", "0")], &[], &[]).await?;
    expect_element(&page.answer, "IsTruncated", "false")
}

const BAD_MAX: Check = Check {
    id: "list.max-keys.bad",
    proves: "a max-keys that is no number is 400 InvalidArgument",
    severity: Severity::Informative,
    source: "ceph/s3-tests 2026-05: test_bucket_list_maxkeys_invalid",
    broken_by: &["ignore-bad-max-keys", "wrong-argument-codes"],
    run: |t| Box::pin(bad_max(t)),
    ..BASE
};

async fn bad_max(t: &Trial) -> Done {
    expect_error(&t.send(call(t, "", &[("max-keys", "many")])).await?, &[400], "InvalidArgument")
}
