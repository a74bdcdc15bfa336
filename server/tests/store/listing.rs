//! Lists against a model: a sorted map, prefix, delimiter and pages.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::client::{On, Rig, xml};
use crate::{block_on, decoded, encoded};

/// One page of any list.
#[derive(Debug, Default, PartialEq)]
struct Page {
    items: Vec<String>,
    prefixes: Vec<String>,
    truncated: bool,
    /// Query parameters that ask for what follows.
    next: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum List {
    V1,
    V2,
    Versions,
    Uploads,
}

async fn page(rig: &Rig, list: List, query: &str, max: usize) -> Page {
    let (head, max_name) = match list {
        List::V1 => ("?", "max-keys"),
        List::V2 => ("?list-type=2&", "max-keys"),
        List::Versions => ("?versions&", "max-keys"),
        List::Uploads => ("?uploads&", "max-uploads"),
    };
    let target = format!("{head}encoding-type=url&{max_name}={max}&{query}");
    let answer = rig.call("GET", &target).await.expect(200);
    let root = xml::parse(&answer.text()).unwrap();
    let texts = |path: &str| root.texts(path).iter().map(|text| decoded(text)).collect::<Vec<_>>();
    let one = |path: &str| texts(path).concat();
    let items = match list {
        List::V1 | List::V2 => texts("Contents/Key"),
        List::Uploads => texts("Upload/Key"),
        List::Versions => {
            let versions =
                root.children.iter().filter(|c| matches!(c.name.as_str(), "Version" | "DeleteMarker"));
            versions
                .map(|c| decoded(&c.texts("Key").concat()) + " " + &c.texts("VersionId").concat())
                .collect()
        }
    };
    let last = items.last().cloned().unwrap_or_default();
    let next = match list {
        List::V1 => {
            let marker = if query.contains("delimiter") { one("NextMarker") } else { last };
            format!("marker={}", encoded(&marker))
        }
        List::V2 => format!("continuation-token={}", one("NextContinuationToken")),
        List::Versions => format!(
            "key-marker={}&version-id-marker={}",
            encoded(&one("NextKeyMarker")),
            one("NextVersionIdMarker")
        ),
        // As on AWS, a page that ends with a common prefix names no marker: clients take the prefix.
        List::Uploads => {
            let marker = texts("CommonPrefixes/Prefix").pop().filter(|_| one("NextKeyMarker").is_empty());
            let marker = marker.unwrap_or_else(|| one("NextKeyMarker"));
            format!("key-marker={}&upload-id-marker={}", encoded(&marker), one("NextUploadIdMarker"))
        }
    };
    let truncated = root.texts("IsTruncated") == ["true"];
    if list == List::V2 {
        let count = root.texts("KeyCount").concat();
        assert_eq!(count, (items.len() + texts("CommonPrefixes/Prefix").len()).to_string());
    }
    Page { items, prefixes: texts("CommonPrefixes/Prefix"), truncated, next }
}

/// All pages of at most `max`, joined; each page but the last is full.
async fn joined(rig: &Rig, list: List, query: &str, first: &str, max: usize) -> Page {
    let mut all = Page::default();
    let mut next = first.to_owned();
    for _ in 0..200 {
        let page = page(rig, list, &format!("{query}&{next}"), max).await;
        let length = page.items.len() + page.prefixes.len();
        assert!(
            length == max || (!page.truncated && length < max),
            "{list:?} {query} {next} {max}: {page:?}"
        );
        all.items.extend(page.items);
        all.prefixes.extend(page.prefixes);
        if !page.truncated {
            return all;
        }
        next = page.next;
    }
    panic!("{list:?} {query} with {max} on a page never ends");
}

/// What a list with these parameters holds.
fn model<'a>(
    keys: impl IntoIterator<Item = &'a String>,
    prefix: &str,
    delimiter: &str,
    after: &str,
    skip_group_of_after: bool,
) -> (Vec<String>, Vec<String>) {
    let (mut items, mut prefixes) = (Vec::new(), Vec::<String>::new());
    for key in keys {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        if !after.is_empty() && key.as_str() <= after {
            continue;
        }
        match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
            None => items.push(key.clone()),
            Some(at) => {
                let group = &key[..prefix.len() + at + delimiter.len()];
                let listed = prefixes.last().is_some_and(|last| last == group);
                if !(listed || skip_group_of_after && after.starts_with(group)) {
                    prefixes.push(group.to_owned());
                }
            }
        }
    }
    (items, prefixes)
}

/// Few atoms, so that keys share prefixes, and the ones that are hard to store, sort or write.
fn text(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let atoms =
        ["a", "b", "/", "//", "\0", "\u{1}", "\u{7f}", " ", "%", "+", "é", "\u{fffd}", "😀", "\u{10ffff}"];
    vec(proptest::sample::select(atoms.to_vec()), length).prop_map(|atoms| atoms.concat())
}

#[derive(Clone, Debug)]
struct Scene {
    keys: BTreeSet<String>,
    prefix: String,
    delimiter: String,
    after: String,
    max: usize,
}

fn scenes() -> impl Strategy<Value = Scene> {
    let delimiter = prop_oneof![Just(String::new()), Just("/".to_owned()), text(1..3)];
    (
        btree_set(text(1..5), 0..14),
        text(0..2),
        delimiter,
        prop_oneof![Just(String::new()), text(0..4)],
        1_usize..5,
    )
        .prop_map(|(keys, prefix, delimiter, after, max)| Scene { keys, prefix, delimiter, after, max })
}

async fn lists_agree_with_a_model(on: On, scene: &Scene) {
    let Scene { keys, prefix, delimiter, after, max } = scene;
    let rig = Rig::new(on).await;
    rig.send("PUT", "?versioning", &[], crate::ENABLE).await.expect(200);
    let mut versions = Vec::new();
    for key in keys {
        let path = encoded(key);
        let first = rig.put(&path, "1").await.expect(200).header("x-amz-version-id").unwrap();
        let second = rig.put(&path, "2").await.expect(200).header("x-amz-version-id").unwrap();
        versions.extend([format!("{key} {second}"), format!("{key} {first}")]);
        rig.call("POST", &format!("{path}?uploads")).await.expect(200);
    }
    let query = format!("prefix={}&delimiter={}", encoded(prefix), encoded(delimiter));
    let query = if delimiter.is_empty() { format!("prefix={}", encoded(prefix)) } else { query };

    let expected = model(keys, prefix, delimiter, after, false);
    let found = joined(&rig, List::V2, &query, &format!("start-after={}", encoded(after)), *max).await;
    assert_eq!((found.items, found.prefixes), expected, "V2 {scene:?}");

    let expected = model(keys, prefix, delimiter, after, true);
    let found = joined(&rig, List::V1, &query, &format!("marker={}", encoded(after)), *max).await;
    assert_eq!((found.items, found.prefixes), expected, "V1 {scene:?}");

    let found = joined(&rig, List::Uploads, &query, &format!("key-marker={}", encoded(after)), *max).await;
    assert_eq!((found.items, found.prefixes), expected, "uploads {scene:?}");

    let found = joined(&rig, List::Versions, &query, &format!("key-marker={}", encoded(after)), *max).await;
    versions.retain(|version| {
        let key = version.rsplit_once(' ').unwrap().0;
        expected.0.iter().any(|item| item == key)
    });
    assert_eq!((found.items, found.prefixes), (versions, expected.1), "versions {scene:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn lists_in_memory_agree_with_a_model(scene in scenes()) {
        block_on(lists_agree_with_a_model(On::Memory, &scene));
    }
}

proptest! {
    // Each case makes a directory and flushes every write.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn lists_on_disk_agree_with_a_model(scene in scenes()) {
        block_on(lists_agree_with_a_model(On::Disk, &scene));
    }
}

/// Versions and markers of a few keys, cut at every place.
async fn versions_page_at_every_cut(on: On) {
    let rig = Rig::new(on).await;
    rig.put("a", "null").await.expect(200);
    rig.send("PUT", "?versioning", &[], crate::ENABLE).await.expect(200);
    for key in ["a", "a/b", "a/c", "b"] {
        for _ in 0..3 {
            rig.put(key, key).await.expect(200);
            rig.call("DELETE", key).await.expect(204);
        }
    }
    for query in ["", "delimiter=%2F", "prefix=a&delimiter=%2F"] {
        let whole = page(&rig, List::Versions, query, 1000).await;
        assert!(!whole.truncated);
        for max in 1..=26 {
            let found = joined(&rig, List::Versions, query, "", max).await;
            assert_eq!((&found.items, &found.prefixes), (&whole.items, &whole.prefixes), "{query} {max}");
        }
    }
    // Within the versions of a key, from each of them on, whatever became of it since.
    let whole = page(&rig, List::Versions, "", 1000).await.items;
    for (at, item) in whole.iter().enumerate() {
        let (key, id) = item.rsplit_once(' ').unwrap();
        let from = format!("key-marker={}&version-id-marker={id}", encoded(key));
        let found = joined(&rig, List::Versions, "", &from, 2).await;
        assert_eq!(found.items, whole[at + 1..], "after {item}");
    }
    let (key, gone) = whole[2].rsplit_once(' ').unwrap();
    rig.call("DELETE", &format!("{key}?versionId={gone}")).await.expect(204);
    let from = format!("key-marker={key}&version-id-marker={gone}");
    let found = joined(&rig, List::Versions, "", &from, 2).await;
    assert_eq!(found.items, whole[3..], "after a version that went");
    // From a key that went altogether, or that lies in a common prefix, the marker's version says nothing of the
    // keys that follow, though theirs are newer.
    let in_group = format!("delimiter=%2F&key-marker=a/b&version-id-marker={gone}");
    let found = page(&rig, List::Versions, &in_group, 1000).await;
    assert_eq!(found.items, whole[whole.len() - 6..], "behind a common prefix");
    for item in whole.iter().filter(|item| item.starts_with("a ") && !item.ends_with(gone)) {
        let (key, id) = item.rsplit_once(' ').unwrap();
        rig.call("DELETE", &format!("{key}?versionId={id}")).await.expect(204);
    }
    let found = joined(&rig, List::Versions, "", &from, 2).await;
    assert_eq!(found.items, whole[7..], "after a key that went");
}

/// A list costs its page: a bucket of many keys under one prefix is one common prefix, found at once.
async fn a_page_of_many_keys_is_what_was_asked_for(on: On) {
    let rig = Rig::new(on).await;
    for n in 0..300 {
        rig.put(&format!("many/{n:03}"), "x").await.expect(200);
    }
    rig.put("z", "x").await.expect(200);
    let found = page(&rig, List::V2, "delimiter=%2F", 1).await;
    assert_eq!((found.prefixes, found.items.len(), found.truncated), (vec!["many/".to_owned()], 0, true));
    let all = joined(&rig, List::V2, "prefix=many/", "", 7).await;
    assert_eq!(all.items.len(), 300);
}

crate::on_both_stores![versions_page_at_every_cut, a_page_of_many_keys_is_what_was_asked_for];
