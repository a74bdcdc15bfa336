//! Listings of more than one page, and the other listings: V1, uploads, parts.

use super::list::{BASE, call, fill, list, owned};
use crate::call::Call;
use crate::check::{Check, Done, Need, Severity, Stop};
use crate::expect::{expect_element, expect_error, expect_list, expect_status, texts};
use crate::trial::Trial;
use crate::upload::Upload;
use bytes::Bytes;
use http::Method;

const PARAMETERS: &str = "AWS recording 2026-02: test_list_objects_v2_continuation_start_after";

pub(super) const ALL: &[Check] = &[
    EVERY_KEY,
    EXACT,
    THOUSAND,
    GROUPED,
    START_AFTER,
    AFTER_AND_TOKEN,
    BAD_TOKEN,
    V1_MARKER,
    V1_NEXT,
    UPLOADS,
    PARTS,
];

const EVERY_KEY: Check = Check {
    id: "list.page.every-key-once",
    proves: "pages of 1, 2 and 3 keys give every key once, in order, and then end",
    severity: Severity::Required,
    source: "S3 API Reference: ListObjectsV2, continuation-token; minio issue 21463",
    broken_by: &["page-loses-a-key", "truncated-at-exact-end"],
    run: |t| Box::pin(every_key(t)),
    ..BASE
};

async fn every_key(t: &Trial) -> Done {
    let names: Vec<String> = (0..6).map(|n| format!("k{n}/x")).collect();
    fill(t, &names).await?;
    for size in ["1", "2", "3"] {
        walk(t, size, &[], &names).await?;
    }
    Ok(())
}

/// Goes through all pages, which must give exactly `names`; keys and groups count alike.
async fn walk(t: &Trial, size: &str, query: &[(&str, &str)], names: &[String]) -> Done {
    let mut seen = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut asked = vec![("max-keys", size)];
        asked.extend(query);
        if let Some(token) = &token {
            asked.push(("continuation-token", token));
        }
        let page = list(t, "", &asked).await?;
        let count = page.keys.len() + page.groups.len();
        seen.extend(page.keys.into_iter().chain(page.groups));
        token = page.token;
        match &token {
            None => return expect_list("over all pages", names, &seen, &page.answer),
            Some(token) if token.is_empty() || count == 0 || seen.len() > names.len() => {
                let got = format!("{} keys, {count} on this page, token {token:?}", seen.len());
                return Err(Stop::fail(format!("an end after {} keys", names.len()), got, &page.answer));
            }
            Some(_) => {}
        }
    }
}

const EXACT: Check = Check {
    id: "list.page.exact",
    proves: "a page that holds the last key is not truncated, also when it is exactly full",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix; S3 API Reference: IsTruncated",
    broken_by: &["truncated-at-exact-end"],
    run: |t| Box::pin(exact(t)),
    ..BASE
};

async fn exact(t: &Trial) -> Done {
    let names = owned(&["a", "b", "c"]);
    fill(t, &names).await?;
    let page = list(t, "", &[("max-keys", "3")]).await?;
    expect_list("keys", &names, &page.keys, &page.answer)?;
    expect_element(&page.answer, "IsTruncated", "false")
}

const THOUSAND: Check = Check {
    id: "list.page.thousand",
    proves: "999 and 1000 keys are one page, 1001 are two; the longest page is measured",
    severity: Severity::Required,
    source: "S3 API Reference: ListObjectsV2, max-keys: up to 1,000 keys",
    broken_by: &["page-loses-a-key"],
    run: |t| Box::pin(thousand(t)),
    ..BASE
};

async fn thousand(t: &Trial) -> Done {
    let names: Vec<String> = (0..1001).map(|n| format!("k{n:04}")).collect();
    fill(t, &names).await?;
    let mut longest = 0;
    // S3 caps the page at 1000, asked for or not; a longer page that was not forbidden is no loss.
    for (size, most) in [(None, 1001), (Some("1000"), 1000), (Some("5000"), 1001)] {
        let query: Vec<_> = size.map(|size| ("max-keys", size)).into_iter().collect();
        let page = list(t, "", &query).await?;
        let length = page.keys.len().clamp(1000, most);
        expect_list("the first page", &names[..length], &page.keys, &page.answer)?;
        longest = longest.max(length);
        let more = if length < names.len() { "true" } else { "false" };
        expect_element(&page.answer, "IsTruncated", more)?;
        if length == names.len() {
            continue;
        }
        let token = page.token.unwrap_or_default();
        let rest = list(t, "", &[("continuation-token", &token)]).await?;
        expect_list("the second page", &names[length..], &rest.keys, &rest.answer)?;
        expect_element(&rest.answer, "IsTruncated", "false")?;
    }
    t.measure("list-page-keys", longest as u64);
    for skipped in [1, 2] {
        let page = list(t, "", &[("start-after", &t.key(&names[skipped - 1]))]).await?;
        expect_list("one page", &names[skipped..], &page.keys, &page.answer)?;
        expect_element(&page.answer, "IsTruncated", "false")?;
    }
    Ok(())
}

const GROUPED: Check = Check {
    id: "list.page.groups",
    proves: "over pages of one, each group comes once: the next page skips the whole group",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix_and_delimiter",
    broken_by: &["ignore-delimiter", "page-loses-a-key", "truncated-at-exact-end"],
    run: |t| Box::pin(grouped(t)),
    ..BASE
};

async fn grouped(t: &Trial) -> Done {
    fill(t, &owned(&["a/1", "a/2", "b", "c/1", "c/2", "c/3"])).await?;
    walk(t, "1", &[("delimiter", "/")], &owned(&["a/", "b", "c/"])).await
}

const START_AFTER: Check = Check {
    id: "list.start-after",
    proves: "start-after is exclusive, and may be a key that is not there",
    source: PARAMETERS,
    broken_by: &["start-after-inclusive", "empty-list-404"],
    run: |t| Box::pin(start_after(t)),
    ..BASE
};

async fn start_after(t: &Trial) -> Done {
    fill(t, &owned(&["k1", "k2", "k4"])).await?;
    for (after, left) in [("k2", &["k4"][..]), ("k3", &["k4"]), ("k", &["k1", "k2", "k4"]), ("k4", &[])] {
        let page = list(t, "", &[("start-after", &t.key(after))]).await?;
        expect_list(&format!("keys after {after}"), &owned(left), &page.keys, &page.answer)?;
        expect_element(&page.answer, "StartAfter", &t.key(after))?;
    }
    Ok(())
}

const AFTER_AND_TOKEN: Check = Check {
    id: "list.start-after.with-token",
    proves: "start-after beside a continuation token is ignored",
    source: PARAMETERS,
    broken_by: &["start-after-over-token"],
    run: |t| Box::pin(after_and_token(t)),
    ..BASE
};

async fn after_and_token(t: &Trial) -> Done {
    fill(t, &owned(&["k1", "k2", "k3"])).await?;
    let first = list(t, "", &[("max-keys", "1")]).await?;
    let token = first.token.unwrap_or_default();
    let page = list(t, "", &[("continuation-token", &token), ("start-after", &t.key("k2"))]).await?;
    expect_list("keys", &owned(&["k2", "k3"]), &page.keys, &page.answer)
}

const BAD_TOKEN: Check = Check {
    id: "list.token.bad",
    proves: "a continuation token that the provider never gave is 400 InvalidArgument",
    source: "AWS recording 2026-02: continuation-token of ListObjectsV2",
    broken_by: &["accept-bad-tokens", "wrong-argument-codes"],
    run: |t| Box::pin(bad_token(t)),
    ..BASE
};

async fn bad_token(t: &Trial) -> Done {
    let answer = t.send(call(t, "", &[("continuation-token", "not-a-token")])).await?;
    expect_error(&answer, &[400], "InvalidArgument")?;
    expect_element(&answer, "ArgumentName", "continuation-token")
}

const V1_MARKER: Check = Check {
    id: "list.v1.marker",
    proves: "ListObjects without version pages by marker, which is exclusive",
    source: "S3 API Reference: ListObjects, marker",
    broken_by: &["ignore-marker"],
    run: |t| Box::pin(v1_marker(t)),
    ..BASE
};

fn v1(t: &Trial) -> Call {
    Call::new(Method::GET, None).query("prefix", t.prefix())
}

async fn v1_marker(t: &Trial) -> Done {
    fill(t, &owned(&["a", "b", "c"])).await?;
    for (marker, left) in [("a", &["b", "c"][..]), ("b", &["c"]), ("bb", &["c"]), ("c", &[])] {
        let answer = t.send(v1(t).query("marker", &t.key(marker))).await?;
        expect_status(&answer, &[200])?;
        let left: Vec<String> = left.iter().map(|name| t.key(name)).collect();
        expect_list(&format!("keys after {marker}"), &left, &texts(&answer, "Contents", "Key"), &answer)?;
    }
    Ok(())
}

const V1_NEXT: Check = Check {
    id: "list.v1.next-marker",
    proves: "ListObjects without version gives a NextMarker when there is a delimiter, and only then",
    source: "AWS recording 2026-02: test_list_objects_next_marker",
    broken_by: &["always-next-marker", "ignore-delimiter"],
    run: |t| Box::pin(v1_next(t)),
    ..BASE
};

async fn v1_next(t: &Trial) -> Done {
    fill(t, &owned(&["a/1", "b", "c"])).await?;
    let plain = t.send(v1(t).query("max-keys", "1")).await?;
    expect_element(&plain, "IsTruncated", "true")?;
    if let Some(marker) = plain.element("NextMarker") {
        return Err(Stop::fail("no NextMarker", marker, &plain));
    }
    let grouped = t.send(v1(t).query("max-keys", "1").query("delimiter", "/")).await?;
    expect_element(&grouped, "NextMarker", &t.key("a/"))
}

const UPLOADS: Check = Check {
    id: "list.uploads",
    proves: "open uploads are listed by key, and page by key-marker and upload-id-marker",
    needs: &[Need::Multipart],
    source: "S3 API Reference: ListMultipartUploads; AWS recording 2026-02: test_list_multiparts_next_marker",
    broken_by: &["ignore-upload-markers"],
    run: |t| Box::pin(uploads(t)),
    ..BASE
};

async fn uploads(t: &Trial) -> Done {
    let mut made = Vec::new();
    for name in ["b", "a", "a"] {
        made.push(Upload::open(t, Call::new(Method::POST, Some(&t.key(name)))).await?);
    }
    let listing = || Call::new(Method::GET, None).query("uploads", "").query("prefix", t.prefix());
    let all = t.send(listing()).await?;
    let keys = vec![t.key("a"), t.key("a"), t.key("b")];
    expect_list("uploads", &keys, &texts(&all, "Upload", "Key"), &all)?;
    let ids = texts(&all, "Upload", "UploadId");
    let (mut known, mut listed): (Vec<_>, Vec<_>) =
        (made.iter().map(|upload| upload.id.clone()).collect(), ids.clone());
    known.sort();
    listed.sort();
    expect_list("upload ids", &known, &listed, &all)?;
    let first = t.send(listing().query("max-uploads", "1")).await?;
    expect_list("one upload", &ids[..1], &texts(&first, "Upload", "UploadId"), &first)?;
    expect_element(&first, "IsTruncated", "true")?;
    let next = |name| first.element(name).unwrap_or_default();
    let rest = listing()
        .query("key-marker", &next("NextKeyMarker"))
        .query("upload-id-marker", &next("NextUploadIdMarker"));
    let rest = t.send(rest).await?;
    expect_list("the other uploads", &ids[1..], &texts(&rest, "Upload", "UploadId"), &rest)?;
    let marked = t.send(listing().query("key-marker", &t.key("a"))).await?;
    expect_list("after a key", &ids[2..], &texts(&marked, "Upload", "UploadId"), &marked)?;
    for upload in &made {
        t.send(upload.abort()).await?;
    }
    Ok(())
}

const PARTS: Check = Check {
    id: "list.parts",
    proves: "the parts of an upload are listed by number with size and ETag, and page by part-number-marker",
    needs: &[Need::Multipart],
    source: "S3 API Reference: ListParts; AWS recording 2026-02: test_list_parts_pagination",
    broken_by: &["ignore-part-number-marker"],
    run: |t| Box::pin(parts(t)),
    ..BASE
};

async fn parts(t: &Trial) -> Done {
    let upload = Upload::open(t, Call::new(Method::POST, Some(&t.key("k")))).await?;
    let mut etags = Vec::new();
    for (number, length) in [(9_u32, 30), (2, 10), (5, 20)] {
        let body = Bytes::from(vec![b'p'; length]);
        etags.push((number, upload.send(t, number, &body).await?));
    }
    etags.sort();
    let etags: Vec<String> = etags.into_iter().map(|(_, etag)| etag).collect();
    let all = t.send(upload.list()).await?;
    expect_status(&all, &[200])?;
    expect_list("numbers", &owned(&["2", "5", "9"]), &texts(&all, "Part", "PartNumber"), &all)?;
    expect_list("sizes", &owned(&["10", "20", "30"]), &texts(&all, "Part", "Size"), &all)?;
    expect_list("ETags", &etags, &texts(&all, "Part", "ETag"), &all)?;
    let first = t.send(upload.list().query("max-parts", "1")).await?;
    expect_list("one part", &owned(&["2"]), &texts(&first, "Part", "PartNumber"), &first)?;
    expect_element(&first, "IsTruncated", "true")?;
    let marker = first.element("NextPartNumberMarker").unwrap_or_default();
    let rest = t.send(upload.list().query("part-number-marker", &marker)).await?;
    expect_list("the other parts", &owned(&["5", "9"]), &texts(&rest, "Part", "PartNumber"), &rest)?;
    t.send(upload.abort()).await.map(drop)?;
    Ok(())
}
