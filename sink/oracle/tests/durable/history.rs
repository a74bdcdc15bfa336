//! Histories in which something was taken too early and stored again, so that the bucket at rest looks right.

use assay_oracle::durable::Subject;
use assay_oracle::history::judge;
use assay_oracle::report::{Report, Verdict};
use assay_server::Server;
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use serde_json::json;

use crate::command;
use crate::forge::{Forge, ROOT, Stored, framed, words};
use crate::lifetime::{Aged, everything};

/// A bucket with versions, and what was written into it so far.
struct Past {
    stored: Stored,
    forge: Forge,
}

impl Past {
    /// The stream of [`Forge::three`], revision by revision.
    async fn three() -> Self {
        let server = Server::builder().bucket("lake").start().await.expect("a server on loopback");
        let stored = Stored { server };
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        let request = stored.client().put_bucket_versioning().bucket("lake");
        request.versioning_configuration(enabled).send().await.expect("a bucket with versions");
        let mut past = Self { stored, forge: Forge::new() };
        past.head().await;
        for entries in 1..=3 {
            past.reach(Forge::grown(entries)).await;
        }
        past
    }

    /// Stores what is new, and HEAD after it.
    async fn reach(&mut self, forge: Forge) {
        for (key, bytes) in &forge.objects {
            if !self.forge.objects.contains_key(key) {
                self.stored.put(key, bytes.clone()).await;
            }
        }
        self.forge = forge;
        self.head().await;
    }

    async fn head(&self) {
        self.stored.put(&format!("{ROOT}_manifest/HEAD"), framed("head", &self.forge.head)).await;
    }

    async fn delete(&self, key: &str) {
        self.stored.client().delete_object().bucket("lake").key(key).send().await.expect("it is deleted");
    }

    /// Takes a key, and stores it again at once.
    async fn flicker(&self, key: &str) {
        self.delete(key).await;
        self.stored.put(key, self.forge.objects[key].clone()).await;
    }

    /// Rolls up two entries, compacts two objects, and moves the floor; with a mark or without.
    async fn aged(&mut self, mark: bool) -> (Vec<String>, Vec<String>) {
        let Aged { mut forge, entries, originals, .. } = Aged::new().published();
        forge.head["rev"] = json!("5");
        if mark {
            let named: Vec<_> = entries.iter().map(|key| json!({"key": key})).collect();
            let body = json!({"stream_id": forge.head["stream_id"], "entries": named});
            let key = format!("{ROOT}_manifest/marks/1.mark");
            forge.objects.insert(key, framed("mark", &body));
        }
        let mut next = forge.clone();
        self.reach(forge).await;
        next.head["rev"] = json!("6");
        next.head["entry_floor"] = json!("3");
        next.head["prev_rollup"] = next.head["rollup"].clone();
        self.reach(next).await;
        (entries, originals)
    }

    async fn judged(&self) -> Report {
        let subject = Subject { prefix: "cdc".to_owned(), pipeline: "orders".to_owned() };
        judge(&self.stored.bucket(), &subject).await.expect("a report")
    }

    /// What is found in the history, and nothing in the bucket at rest.
    async fn found(&self) -> String {
        let report = self.stored.judged(None).await;
        assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
        words(&self.judged().await)
    }
}

#[tokio::test]
async fn deletes_of_what_nobody_needs_are_judged_and_counted() {
    let mut past = Past::three().await;
    let (probe, orphan) = (format!("{ROOT}_manifest/probe/0/a"), format!("{ROOT}public.a/wm2-0/0.jsonl"));
    let left = format!("{ROOT}_manifest/entries/00-0-0.entry");
    for key in [&probe, &orphan, &left] {
        past.stored.put(key, b"x".to_vec()).await;
        past.delete(key).await;
    }
    let (entries, originals) = past.aged(true).await;
    for key in entries.iter().chain(&originals).chain([&entries[0]]) {
        past.delete(key).await;
    }
    let report = past.judged().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    let counts: Vec<_> = report.statistics.deletes.iter().map(|(what, count)| (*what, *count)).collect();
    let wanted = [
        ("data objects that HEAD did not reach", 1),
        ("entries below the floor", 2),
        ("entries that HEAD did not reach", 1),
        ("keys that were gone", 1),
        ("objects of probes", 1),
        ("originals that were compacted", 2),
    ];
    assert_eq!(counts, wanted);
    assert_eq!((report.statistics.rev, report.statistics.seq), (6, 3));
    assert!(report.text().contains("  deleted     2 entries below the floor\n"), "{}", report.text());
    // What is left of it is whole.
    let rest = past.stored.judged(Some(&everything())).await;
    assert_eq!(words(&rest), "chain:1", "the forged rollups refer to each other by one generation");
}

#[tokio::test]
async fn what_was_taken_while_head_reached_it_is_found_though_it_is_back() {
    for part in ["public.a/wm2-", "_manifest/entries/"] {
        let past = Past::three().await;
        past.flicker(&past.forge.key(part, 0)).await;
        assert_eq!(past.found().await, "deleted:1", "{part}");
    }
    let past = Past::three().await;
    past.delete(&format!("{ROOT}_manifest/HEAD")).await;
    past.head().await;
    // The revision follows itself.
    assert_eq!(past.found().await, "head:1 deleted:1");
}

#[tokio::test]
async fn what_is_kept_for_ever_and_what_replaced_others_may_not_flicker() {
    for part in ["/rollups/", "/inventory/", "/compactions/", "/compacted/"] {
        let mut past = Past::three().await;
        let Aged { mut forge, .. } = Aged::new().published();
        forge.head["rev"] = json!("5");
        past.reach(forge).await;
        past.flicker(&past.forge.key(part, 0)).await;
        assert_eq!(past.found().await, "deleted:1", "{part}");
    }
}

#[tokio::test]
async fn entries_go_below_the_floor_and_with_a_mark_only() {
    let mut past = Past::three().await;
    let (entries, _) = past.aged(false).await;
    past.delete(&entries[0]).await;
    assert_eq!(words(&past.judged().await), "deleted:1");
    let mut past = Past::three().await;
    let (entries, originals) = past.aged(true).await;
    let third = past.forge.key("_manifest/entries/", 2);
    for key in [&entries[0], &originals[0], &third] {
        past.flicker(key).await;
    }
    let report = past.judged().await;
    assert_eq!(words(&report), "deleted:1");
    assert!(report.findings[0].at == third && report.findings[0].detail.contains("below floor 3"));
}

#[tokio::test]
async fn what_head_reaches_before_it_is_there_is_found() {
    let mut past = Past::three().await;
    let next = Forge::grown(4);
    let late =
        next.objects.keys().find(|key| !past.forge.objects.contains_key(*key) && key.contains("/wm2-"));
    let late = late.expect("an object of the fourth entry").clone();
    past.forge.objects.insert(late.clone(), Vec::new());
    past.reach(next).await;
    past.stored.put(&late, past.forge.objects[&late].clone()).await;
    assert_eq!(past.found().await, "missing:1");
}

#[tokio::test]
async fn what_was_other_content_for_a_while_is_found() {
    let past = Past::three().await;
    let key = past.forge.key("public.b/wm2-", 1);
    past.stored.put(&key, b"{}\n".to_vec()).await;
    past.stored.put(&key, past.forge.objects[&key].clone()).await;
    assert_eq!(past.found().await, "mutated_object:1");
}

#[tokio::test]
async fn numbers_of_head_that_go_back_are_found() {
    let mut past = Past::three().await;
    past.aged(true).await;
    past.forge.head["rev"] = json!("7");
    past.forge.head["entry_floor"] = json!("1");
    past.head().await;
    assert_eq!(words(&past.judged().await), "regression:1");
    past.forge.head["rev"] = json!("9");
    past.head().await;
    assert_eq!(words(&past.judged().await), "head:1 regression:1");
}

#[tokio::test]
async fn a_history_that_is_not_whole_or_without_a_delete_proves_nothing() {
    let past = Past::three().await;
    let report = past.judged().await;
    assert_eq!(report.verdict(), Verdict::Inconclusive);
    assert_eq!(words(&report), "(no delete of anything of the stream's is in the history)");
    let key = past.forge.key("public.a/wm2-", 0);
    let listed = past.stored.bucket().versions().await.unwrap();
    let version = listed.iter().find(|version| version.key == key).expect("a version");
    past.flicker(&key).await;
    let request = past.stored.client().delete_object().bucket("lake").key(&key);
    request.version_id(&version.id).send().await.unwrap();
    let report = past.judged().await;
    assert_eq!(words(&report), "(1 changes between the first and the last are not in the history)");
    let without = Forge::three().stored().await;
    let subject = Subject { prefix: "cdc".to_owned(), pipeline: "orders".to_owned() };
    let report = judge(&without.bucket(), &subject).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Inconclusive);
    assert!(words(&report).contains("does not tell its place"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_says_so_with_its_exit_code() {
    let past = Past::three().await;
    let ends = |arguments: &[&str]| command::run("history", Some(&past.stored), arguments).status.code();
    assert_eq!(ends(&[]), Some(3));
    let orphan = format!("{ROOT}public.a/wm2-0/0.jsonl");
    past.stored.put(&orphan, b"x".to_vec()).await;
    past.delete(&orphan).await;
    assert_eq!(ends(&[]), Some(0));
    past.flicker(&past.forge.key("public.a/wm2-", 0)).await;
    assert_eq!(ends(&["--json"]), Some(1));
}
