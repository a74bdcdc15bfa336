//! Servers that differ from AWS for good: what a client sees, what is stored, and what the journal names.
//! Conditional deviations are shown by the suite in `conformance/deviations.md`.

mod client;

use std::process::Command;
use std::time::Duration;

use assay_server::{Deviation, Profile};
use client::{BOTH, On, Rig};
use tokio::time::Instant;

/// A server with these deviations, separated by spaces.
async fn with(on: On, deviations: &str) -> Rig {
    let all: Vec<Deviation> = deviations.split(' ').map(|text| text.parse().unwrap()).collect();
    Rig::with(on, |builder| all.into_iter().fold(builder, |builder, deviation| builder.deviation(deviation)))
        .await
}

async fn as_vendor(profile: &str) -> Rig {
    let profile = Profile::named(profile).unwrap();
    Rig::with(On::Memory, |builder| builder.profile(&profile)).await
}

/// What acted on the last request.
fn acted(rig: &Rig) -> Vec<&'static str> {
    let journal = rig.engine.journal();
    let last = journal.last();
    journal.filter(|record| record.number == last).first().map_or_else(Vec::new, |r| r.deviations.clone())
}

const CREATE: &[(&str, &str)] = &[("if-none-match", "*")];

#[tokio::test]
async fn a_store_of_files_refuses_the_legacy_key_and_takes_the_new_one() {
    // The hexadecimal text of a position of about 220 bytes makes one segment of about 450.
    let position = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77,".repeat(6);
    let legacy = format!("orders/wm-{}/data.parquet", hex::encode(&position[..223]));
    let new = format!("orders/wm2-{}/data.parquet", hex::encode([7; 32]));
    assert!((449..=460).contains(&legacy.split('/').nth(1).unwrap().len()), "{}", legacy.len());
    for (profile, status, code) in [
        ("file-store", 400, "InvalidArgument"),
        ("minio", 400, "XMinioInvalidObjectName"),
        ("rustfs", 400, "InvalidArgument"),
        ("versitygw", 400, "KeyTooLongError"),
        ("seaweedfs", 400, "InvalidArgument"),
        ("s3s-fs", 500, "InternalError"),
        ("rclone-serve", 500, "InternalError"),
        ("aws", 200, ""),
        ("ceph-rgw", 200, ""),
    ] {
        let rig = as_vendor(profile).await;
        let put = rig.put(&legacy, "old").await;
        assert_eq!((put.status, put.code().as_str()), (status, code), "{profile}");
        let upload = rig.call("POST", &format!("{legacy}?uploads")).await;
        assert_eq!((upload.status, upload.code().as_str()), (status, code), "{profile}");
        rig.put(&new, "new").await.expect(200);
        rig.call("GET", &new).await.expect(200);
        let kept = rig.call("GET", &legacy).await.status;
        assert_eq!(kept, if status == 200 { 200 } else { 404 }, "{profile}");
    }
}

#[tokio::test]
async fn limits_count_bytes_and_name_themselves() {
    let rig = with(On::Memory, "segment-limit=4:KeyTooLongError key-limit=10:InvalidArgument").await;
    rig.put("abcd/%C3%A9%C3%A9/", "").await.expect(200);
    let long = rig.put("a/%C3%A9%C3%A9%C3%A9", "").await.expect(400);
    assert_eq!(
        (long.code(), long.only("Size"), long.only("MaxSizeAllowed")),
        ("KeyTooLongError".into(), "6".into(), "4".into())
    );
    assert_eq!(acted(&rig), ["segment-limit"]);
    assert_eq!(rig.put("abcd/efg/hij", "").await.expect(400).code(), "InvalidArgument");
    assert_eq!(acted(&rig), ["key-limit"]);
    let copy = rig.send("PUT", "abcde", &[("x-amz-copy-source", "bucket/abcd/%C3%A9%C3%A9/")], "").await;
    assert_eq!(copy.expect(400).code(), "KeyTooLongError");
    let odd = with(On::Memory, "refuse-odd-segments").await;
    for (key, status) in [("a//b", 400), ("a/./b", 400), ("a/b/", 200), ("a.b/..c", 200)] {
        assert_eq!(odd.put(key, "").await.status, status, "{key}");
    }
}

#[tokio::test]
async fn keys_that_are_folded_meet() {
    for (deviation, written, read, listed) in [
        ("fold-key-case", "Dir/KEY", "dir/key", "dir/key"),
        ("collapse-slashes", "a//b", "a/b", "a/b"),
        ("resolve-dot-segments", "a/x/../b", "a/b", "a/b"),
        ("decode-keys-twice", "a%252Fb", "a/b", "a/b"),
    ] {
        for on in BOTH {
            let rig = with(on, deviation).await;
            rig.put(written, "one").await.expect(200);
            assert_eq!(acted(&rig), [deviation]);
            assert_eq!(rig.call("GET", read).await.expect(200).text(), "one", "{deviation}");
            assert_eq!(acted(&rig), Vec::<&str>::new());
            assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), [listed], "{deviation}");
            rig.send("PUT", read, CREATE, "two").await.expect(412);
            // Named as it was written, as the source of a copy and in a list of deletes too.
            let source = format!("bucket/{written}");
            rig.send("PUT", "copy", &[("x-amz-copy-source", &source)], "").await.expect(200);
            let plain = percent_encoding::percent_decode_str(written).decode_utf8().unwrap();
            let document = format!("<Delete><Object><Key>{plain}</Key></Object></Delete>");
            let digest = md5_base64(&document);
            rig.send("POST", "?delete", &[("content-md5", &digest)], document).await.expect(200);
            rig.call("GET", read).await.expect(404);
        }
    }
}

fn md5_base64(text: &str) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(text))
}

#[tokio::test]
async fn lists_in_the_order_of_utf16_page_without_gaps() {
    let rig = with(On::Memory, "list-order-utf16").await;
    // U+FF5E sorts below U+1F600 in UTF-8 and above it in UTF-16.
    for key in ["a", "%EF%BD%9E", "%F0%9F%98%80", "b/1", "b/2", "z"] {
        rig.put(key, "").await.expect(200);
    }
    let whole = rig.call("GET", "?list-type=2").await.expect(200).all("Contents/Key");
    assert_eq!(whole, ["a", "b/1", "b/2", "z", "\u{1F600}", "\u{FF5E}"]);
    assert_eq!(acted(&rig), ["list-order-utf16"]);
    let (mut keys, mut token) = (Vec::new(), String::new());
    for page in 1.. {
        let answer =
            rig.call("GET", &format!("?list-type=2&max-keys=2&delimiter=/{token}")).await.expect(200);
        keys.extend(answer.all("Contents/Key"));
        keys.extend(answer.all("CommonPrefixes/Prefix"));
        match answer.all("NextContinuationToken").first() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => {
                assert_eq!(page, 3);
                break;
            }
        }
    }
    assert_eq!(keys, ["a", "b/", "z", "\u{1F600}", "\u{FF5E}"]);
}

#[tokio::test]
async fn lists_lag_and_reads_are_stale_for_a_time() {
    for on in BOTH {
        let rig = with(on, "list-lag=2000 stale-reads=1000").await;
        rig.put("a", "1").await.expect(200);
        rig.clock.pass_s(2);
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a"]);
        assert_eq!(acted(&rig), Vec::<&str>::new());
        rig.put("a", "2").await.expect(200);
        rig.put("b", "1").await.expect(200);
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a"]);
        assert_eq!(acted(&rig), ["list-lag"]);
        rig.call("HEAD", "b").await.expect(404);
        assert_eq!(acted(&rig), ["stale-reads"]);
        rig.clock.pass_s(1);
        assert_eq!(rig.call("GET", "a").await.expect(200).text(), "2");
        rig.call("GET", "b").await.expect(200);
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a"]);
        rig.clock.pass_s(1);
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a", "b"]);
        rig.call("DELETE", "a").await.expect(204);
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a", "b"]);
    }
}

#[tokio::test]
async fn the_newest_object_is_left_out_of_lists() {
    let rig = with(On::Memory, "list-omits-newest").await;
    for key in ["c", "a", "b"] {
        rig.put(key, "").await.expect(200);
    }
    assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["a", "c"]);
    assert_eq!(acted(&rig), ["list-omits-newest"]);
}

#[tokio::test]
async fn metadata_and_checksums_do_not_come_back() {
    let rig = with(On::Memory, "drop-metadata omit-checksums").await;
    let headers =
        [("x-amz-meta-token", "mine"), ("x-amz-checksum-crc32", "NSRBwg=="), ("content-type", "a/b")];
    let put = rig.send("PUT", "k", &headers, "abc").await.expect(200);
    assert_eq!(put.header("x-amz-checksum-crc32"), None);
    assert_eq!(acted(&rig), ["drop-metadata", "omit-checksums"]);
    let get = rig.send("GET", "k", &[("x-amz-checksum-mode", "ENABLED")], "").await.expect(200);
    let names: Vec<_> = get.headers.keys().map(|name| name.as_str().to_owned()).collect();
    assert!(
        !names.iter().any(|name| name.starts_with("x-amz-checksum") || name.contains("meta")),
        "{names:?}"
    );
    assert_eq!(get.header("content-type").as_deref(), Some("a/b"));
    let list = rig.call("GET", "?list-type=2").await.expect(200);
    assert!(!list.text().contains("Checksum"), "{}", list.text());
    // An object that looks like a document of the API is not one.
    rig.put("x", "<ETag>&quot;1&quot;</ETag><ChecksumType>A</ChecksumType>").await.expect(200);
    assert_eq!(rig.call("GET", "x").await.text().matches("Checksum").count(), 2);
}

#[tokio::test]
async fn etags_are_shown_otherwise_and_parts_complete_all_the_same() {
    let md5 = "900150983cd24fb0d6963f7d28e17f72";
    for (deviation, put, part) in [
        ("unquoted-etags", md5.to_owned(), "-1"),
        ("weak-etags", format!("W/\"{md5}\""), "-1\""),
        ("truncated-etags=6", format!("\"{}\"", &md5[..6]), "\""),
        ("constant-etags", format!("\"{}\"", "0".repeat(32)), "0\""),
        ("multipart-etag-plain", format!("\"{md5}\""), "\""),
        ("changing-etags", format!("\"00000000{}\"", &md5[8..]), "-1\""),
    ] {
        let rig = with(On::Memory, deviation).await;
        assert_eq!(rig.put("k", "abc").await.expect(200).etag(), put, "{deviation}");
        let id = rig.call("POST", "m?uploads").await.expect(200).only("UploadId");
        let etag = rig.put(&format!("m?partNumber=1&uploadId={id}"), "abc").await.expect(200).etag();
        assert_eq!(etag, format!("\"{md5}\""));
        let document = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
        );
        let done = rig.send("POST", &format!("m?uploadId={id}"), &[], document).await.expect(200);
        assert!(done.only("ETag").ends_with(part), "{deviation}: {}", done.only("ETag"));
        assert!(!(deviation == "multipart-etag-plain" && done.only("ETag").contains('-')));
        let shown = rig.call("HEAD", "k").await.expect(200).etag();
        assert_eq!(shown == put, deviation != "changing-etags", "{deviation}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_before_the_other_writes_wins_too() {
    for on in BOTH {
        let rig = with(on, "race-create-put=500").await;
        let begin = Instant::now();
        let (one, two) =
            tokio::join!(rig.send("PUT", "k", CREATE, "one"), rig.send("PUT", "k", CREATE, "two"));
        assert_eq!((one.status, two.status), (200, 200));
        assert_eq!(begin.elapsed(), Duration::from_millis(500));
        assert_eq!(acted(&rig), ["race-create-put"]);
        rig.send("PUT", "k", CREATE, "late").await.expect(412);
        // If-Match is another deviation.
        let etag = rig.call("HEAD", "k").await.etag();
        let swap = [("if-match", etag.as_str())];
        let (one, two) = tokio::join!(rig.send("PUT", "k", &swap, "3"), rig.send("PUT", "k", &swap, "4"));
        assert_eq!(one.status + two.status, 612);
        let both = with(on, "race-swap-put=9:body race-complete").await;
        let etag = both.put("k", "1").await.etag();
        let swap = [("if-match", etag.as_str())];
        let (one, two) = tokio::join!(both.send("PUT", "k", &swap, "3"), both.send("PUT", "k", &swap, "4"));
        assert_eq!((one.status, two.status), (200, 200));
    }
}

#[tokio::test]
async fn a_loser_of_a_race_is_told_of_a_conflict_and_a_latecomer_of_a_condition() {
    let rig = with(On::Memory, "loser-409 race-delete=1").await;
    rig.put("k", "1").await.expect(200);
    assert_eq!(rig.send("PUT", "k", CREATE, "2").await.expect(412).code(), "PreconditionFailed");
    let answers = creators(&rig).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status, 200 | 409 | 412)), "{answers:?}");
}

/// The statuses of eight creators at once.
async fn creators(rig: &Rig) -> Vec<u16> {
    let mut tasks = tokio::task::JoinSet::new();
    for body in 0..8 {
        let engine = rig.engine.clone();
        tasks
            .spawn(async move { client::send(&engine, "PUT", "new", CREATE, body.to_string()).await.status });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn what_is_done_and_what_is_answered_differ() {
    for on in BOTH {
        let rig = with(on, "refused-but-applied").await;
        rig.put("k", "old").await.expect(200);
        rig.send("PUT", "k", CREATE, "new").await.expect(412);
        assert_eq!(acted(&rig), ["refused-but-applied"]);
        assert_eq!(rig.call("GET", "k").await.text(), "new");
        rig.send("DELETE", "k", &[("if-match", "\"x\"")], "").await.expect(412);
        rig.call("GET", "k").await.expect(404);

        let rig = with(on, "accepted-but-not-applied overwrite-not-applied").await;
        rig.send("PUT", "k", CREATE, "new").await.expect(200);
        assert_eq!(acted(&rig), ["accepted-but-not-applied"]);
        rig.call("GET", "k").await.expect(404);
        rig.put("k", "first").await.expect(200);
        rig.put("k", "second").await.expect(200);
        assert_eq!(acted(&rig), ["overwrite-not-applied"]);
        assert_eq!(rig.call("GET", "k").await.text(), "first");
        let etag = rig.call("HEAD", "k").await.etag();
        rig.send("DELETE", "k", &[("if-match", &etag)], "").await.expect(204);
        rig.call("GET", "k").await.expect(200);
    }
}

#[tokio::test]
async fn a_deviation_acts_only_where_it_makes_a_difference() {
    for on in BOTH {
        let rig = with(on, "empty-counts-as-absent no-conflict-on-complete if-match-absent-412").await;
        rig.put("k", "").await.expect(200);
        rig.put("k", "").await.expect(200);
        assert_eq!(acted(&rig), Vec::<&str>::new());
        rig.send("PUT", "k", CREATE, "full").await.expect(200);
        assert_eq!(acted(&rig), ["empty-counts-as-absent"]);
        rig.send("PUT", "k", CREATE, "again").await.expect(412);
        assert_eq!(acted(&rig), Vec::<&str>::new());
        rig.send("PUT", "none", &[("if-match", "x")], "").await.expect(412);
        assert_eq!(acted(&rig), ["if-match-absent-412"]);
    }
}

#[tokio::test]
async fn absent_keys_are_answered_as_each_vendor_does() {
    let swap: &[(&str, &str)] = &[("if-match", "\"900150983cd24fb0d6963f7d28e17f72\"")];
    for (profile, put, delete) in [
        ("aws", 404, 404),
        ("minio", 404, 204),
        ("minio-2025-08", 200, 204),
        ("ceph-rgw", 404, 204),
        ("selectel", 412, 412),
        ("gcs-xml", 200, 204),
        ("garage", 200, 204),
        ("b2", 501, 404),
        ("localstack", 404, 501),
        ("digitalocean-spaces", 404, 404),
    ] {
        let rig = as_vendor(profile).await;
        assert_eq!(rig.send("DELETE", "k", swap, "").await.status, delete, "{profile}");
        assert_eq!(rig.send("PUT", "k", swap, "abc").await.status, put, "{profile}");
        // What is ignored overwrites.
        rig.put("there", "abc").await.expect(200);
        let create = rig.send("PUT", "there", CREATE, "new").await.status;
        let expected = match profile {
            "gcs-xml" | "garage" => 200,
            "b2" => 501,
            _ => 412,
        };
        assert_eq!(create, expected, "{profile}");
    }
}

#[tokio::test]
async fn plain_requests_are_plain_under_every_profile() {
    for name in Profile::names() {
        let rig = as_vendor(name).await;
        rig.put("dir/k", "abc").await.expect(200);
        assert_eq!(rig.call("GET", "dir/k").await.expect(200).text(), "abc", "{name}");
        assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), ["dir/k"], "{name}");
        rig.call("DELETE", "dir/k").await.expect(204);
        assert_eq!(acted(&rig), Vec::<&str>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_completed_upload_is_forgotten_and_a_refused_one_is_ended() {
    for on in BOTH {
        let rig = with(on, "repeated-complete-no-such-upload refused-complete-ends-upload").await;
        let upload = async |key: &str| {
            let id = rig.call("POST", &format!("{key}?uploads")).await.expect(200).only("UploadId");
            let etag = rig.put(&format!("{key}?partNumber=1&uploadId={id}"), "abc").await.expect(200).etag();
            let document = format!(
                "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
            );
            (format!("{key}?uploadId={id}"), document)
        };
        let (target, document) = upload("k").await;
        rig.send("POST", &target, CREATE, document.clone()).await.expect(200);
        let again = rig.send("POST", &target, &[], document).await.expect(404);
        assert_eq!(
            (again.code().as_str(), acted(&rig)),
            ("NoSuchUpload", vec!["repeated-complete-no-such-upload"])
        );
        let (target, document) = upload("k").await;
        rig.send("POST", &target, CREATE, document.clone()).await.expect(412);
        assert_eq!(acted(&rig), ["refused-complete-ends-upload"]);
        assert_eq!(rig.send("POST", &target, &[], document).await.expect(404).code(), "NoSuchUpload");
    }
}

fn server(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_assay-server")).args(arguments).output().expect("it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_command_line_lists_and_refuses() {
    let (code, text, _) = server(&["deviations"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("\n  race-create-put=20:head   (ms[:head|:body])\n"), "{text}");
    let (code, text, _) = server(&["deviations", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, all["deviations"].as_array().unwrap().len()), (Some(0), Deviation::catalog().len()));
    let (code, text, _) = server(&["profiles"]);
    assert!(code == Some(0) && text.contains("\nfile-store\n"), "{text}");
    let (_, text, _) = server(&["profiles", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["profiles"][1]["name"], "minio");
    let (code, _, error) = server(&["--deviate", "segment-limit=x"]);
    assert!(code == Some(2) && error.contains("\"x\" is no whole number"), "{error}");
    let (code, _, error) = server(&["--profile", "minos"]);
    assert!(code == Some(2) && error.contains("profiles are aws, minio"), "{error}");
}

#[test]
fn the_guide_shows_what_is_there() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = guide.split("\n## ").find(|section| section.starts_with("As a vendor does")).unwrap();
    let words = section.split(|c: char| c.is_whitespace() || "`\"()".contains(c));
    let mut words = words.filter(|word| !word.is_empty());
    let (mut deviations, mut profiles) = (0, 0);
    while let Some(word) = words.next() {
        match word {
            "--deviate" | ".deviation" => {
                words.next().unwrap().parse::<Deviation>().unwrap();
                deviations += 1;
            }
            "--profile" | "&Profile::named" => {
                Profile::named(words.next().unwrap()).unwrap();
                profiles += 1;
            }
            "deviations" | "profiles" => assert_eq!(server(&[word]).0, Some(0), "{word}"),
            _ => {}
        }
    }
    assert_eq!((deviations, profiles), (3, 2));
}
