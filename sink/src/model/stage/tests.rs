//! Vectors, keys, and the bytes of every file.

use std::collections::BTreeMap;

use md5::{Digest as _, Md5};
use proptest::prelude::*;

use super::files::{Claim, Marker, Proof, Receipt, Snapshot, StageFile, Verdict, number_of};
use super::state::Prepared;
use super::*;
use crate::model::frame::FrameError;
use crate::store::multipart::UploadId;

const RUN: &str = "00112233445566778899aabbccddeeff";

fn run() -> Nonce {
    RUN.parse().unwrap()
}

pub(crate) fn handle(checkpoint: u64) -> Handle {
    let root = JobRoot::new("p", "job-7f3a", "jsonl").unwrap();
    let mut sums = Sums::default();
    let sha256 = sums.add(b"{\"id\":1}\n");
    let (total_size, content_sha256, multipart_etag) = sums.finish();
    Handle {
        job_id: "job-7f3a".to_owned(),
        run_id: run(),
        subtask: 3,
        checkpoint_id: checkpoint,
        attempt: 0,
        bucket: "data".to_owned(),
        key: root.key(3, checkpoint, run()),
        upload_id: UploadId("upload-1".to_owned()),
        parts: vec![Part { n: 1, etag: "\"e\"".to_owned(), size: total_size, sha256 }],
        total_size,
        content_sha256,
        multipart_etag,
        commit_token: commit_token("job-7f3a", 3, checkpoint, run()),
        records: 1,
        first_event: "p0-1".to_owned(),
        last_event: "p0-1".to_owned(),
        created_at_ms: 1_764_417_600_000,
    }
}

fn snapshot(handles: Vec<Handle>) -> Snapshot {
    Snapshot {
        job_id: "job-7f3a".to_owned(),
        checkpoint_id: 42,
        epoch: 2,
        positions: BTreeMap::from([("0".to_owned(), "18446744073709551615".to_owned())]),
        handles,
        at_ms: 1_764_417_600_001,
    }
}

#[test]
fn the_token_of_the_published_vector() {
    let token = "8e391f9f2e0f337d47632a149038008496afd5ebf989fac8951353d821b83b36";
    assert_eq!(commit_token("job-7f3a", 3, 42, run()).to_string(), token);
    for other in [
        commit_token("job-7f3b", 3, 42, run()),
        commit_token("job-7f3a", 4, 42, run()),
        commit_token("job-7f3a", 3, 43, run()),
        commit_token("job-7f3a", 3, 42, Nonce::from_bytes([0; 16])),
    ] {
        assert_ne!(other.to_string(), token);
    }
}

#[test]
fn the_etag_of_the_published_vector() {
    let sums = [Md5::digest(vec![b'a'; 5 << 20]).into(), Md5::digest(b"tail").into()];
    assert_eq!(multipart_etag(&sums), "\"30dcfd3901d1c613b7fb532281748544-2\"");
}

#[test]
fn keys_sort_as_numbers_do_and_are_read_back() {
    let root = JobRoot::new("a/b", "orders.eu", "jsonl.gz").unwrap();
    let key = root.key(2, 19, run());
    assert_eq!(key, "a/b/orders%2Eeu/sub00002/00000000000000000019-0011223344556677.jsonl.gz");
    assert!(root.key(2, 2, run()) < key && key < root.key(2, 100, run()) && key.starts_with(&root.listing()));
    let named = StagedName { subtask: 2, checkpoint: 19, run: "0011223344556677" };
    assert_eq!(root.parse(&key), Some(named));
    for other in [
        key.replace("orders", "order"),
        key.replace("sub00002", "sub2"),
        key.replace("0000000000000000001", "1"),
        key.replace("-0011", "-001x"),
        key.replace("-0011", "-00112"),
        key.replace(".jsonl.gz", ".jsonl"),
        key.replace(".jsonl.gz", "jsonl.gz"),
    ] {
        assert_eq!(root.parse(&other), None, "{other}");
    }
    let widest = root.key(u32::MAX, u64::MAX, run());
    assert_eq!(root.parse(&widest).map(|name| name.checkpoint), Some(u64::MAX));
}

#[test]
fn names_that_fit_no_key_are_refused() {
    for (prefix, job, extension) in
        [("a//b", "j", "jsonl"), ("", "", "jsonl"), ("", "j", ""), ("", "j", "a\\b"), ("..", "j", "jsonl")]
    {
        assert!(JobRoot::new(prefix, job, extension).is_err(), "{prefix} {job} {extension}");
    }
    let long = vec!["p".repeat(200); 5].join("/");
    assert!(matches!(JobRoot::new(&long, "j", "jsonl"), Err(KeyError::NoRoomForTable { .. })));
    assert!(JobRoot::new(&long[..800], "j", "jsonl").is_ok());
}

#[test]
fn the_bytes_of_every_file() {
    let marker = |verdict| Marker {
        job_id: "job-7f3a".to_owned(),
        checkpoint_id: 42,
        epoch: 2,
        verdict,
        at_ms: 1_764_417_600_002,
    };
    let claim = Claim { job_id: "job-7f3a".to_owned(), epoch: 2, coordinator: run(), at_ms: 0 };
    let of = snapshot(vec![handle(42)]);
    let completed = marker(Verdict::Completed { snapshot: Digest::of(&of.encode()) });
    let sealed = Prepared::new(handle(42)).sealed(&of).unwrap();
    let receipt = sealed.committable(&completed).unwrap().answered("\"x-1\"".to_owned()).receipt(7);
    assert_eq!(receipt.proof, Proof::Answer);
    let abandoned = marker(Verdict::Abandoned);
    let files: [(String, bytes::Bytes); 6] = [
        ("handle".to_owned(), handle(42).encode()),
        (claim.name(), claim.encode()),
        (of.name(), of.encode()),
        (completed.name(), completed.encode()),
        (abandoned.name(), abandoned.encode()),
        (receipt.name(), receipt.encode()),
    ];
    let text: String = files
        .iter()
        .map(|(name, bytes)| format!("{name}\n{}\n", String::from_utf8(bytes.to_vec()).unwrap()))
        .collect();
    assert_eq!(text, include_str!("../golden/stage.txt"));
    assert_eq!(Handle::decode(&files[0].1).unwrap(), handle(42));
    assert_eq!(Claim::decode(&files[1].0, &files[1].1).unwrap(), claim);
    assert_eq!(Snapshot::decode(&files[2].0, &files[2].1).unwrap(), of);
    assert_eq!(Marker::decode(&files[3].0, &files[3].1).unwrap(), completed);
    assert_eq!(Marker::decode(&files[4].0, &files[4].1).unwrap(), abandoned);
    assert_eq!(Receipt::decode(&files[5].0, &files[5].1).unwrap(), receipt);
    assert_eq!(number_of("00000000000000000042"), Some(42));
    assert_eq!((number_of("42"), number_of("x")), (None, None));
}

#[test]
fn a_file_that_contradicts_its_name_or_itself_is_refused() {
    let body = |result: Result<Snapshot, FrameError>| match result {
        Err(FrameError::Body { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let of = snapshot(vec![handle(42)]);
    let at = |name: &str, snapshot: &Snapshot| Snapshot::decode(name, &snapshot.encode());
    assert!(body(at("snapshots/00000000000000000043", &of)).contains("stands at"));
    let wrong = |change: fn(&mut Handle)| {
        let mut wrong = of.clone();
        change(&mut wrong.handles[0]);
        body(at(&of.name(), &wrong))
    };
    assert!(wrong(|handle| handle.subtask = 4).contains("commit token"));
    assert!(wrong(|handle| handle.total_size = 1).contains("parts have 9 bytes"));
    assert!(wrong(|handle| handle.records = 0).contains("stages nothing"));
    assert!(wrong(|handle| handle.parts.clear()).contains("0 bytes"));
    let ahead = Snapshot { handles: vec![handle(43)], ..of.clone() };
    assert!(body(at(&of.name(), &ahead)).contains("none of this snapshot"));
    let cut = of.encode();
    let cut = Snapshot::decode(&of.name(), &cut[..cut.len() - 1]);
    assert!(matches!(cut, Err(FrameError::Length { .. })));
    let kind = Marker::decode(&of.name(), &of.encode());
    assert!(matches!(kind, Err(FrameError::OtherKind { .. })));
}

#[test]
fn a_transition_wants_its_proof() {
    let without = snapshot(Vec::new());
    assert!(Prepared::new(handle(42)).sealed(&without).is_err());
    let of = snapshot(vec![handle(42)]);
    let sealed = || Prepared::new(handle(42)).sealed(&of).unwrap();
    let marker = |job: &str, checkpoint_id, snapshot: &Snapshot| Marker {
        job_id: job.to_owned(),
        checkpoint_id,
        epoch: 2,
        verdict: Verdict::Completed { snapshot: Digest::of(&snapshot.encode()) },
        at_ms: 0,
    };
    for no in [
        marker("job-7f3a", 42, &without),
        marker("job-7f3a", 41, &of),
        marker("other", 42, &of),
        Marker { verdict: Verdict::Abandoned, ..marker("job-7f3a", 42, &of) },
    ] {
        assert!(sealed().committable(&no).is_err(), "{no:?}");
    }
    let committed = sealed().committable(&marker("job-7f3a", 42, &of)).unwrap().in_doubt();
    let committed = committed.seen(Proof::Token, "\"e\"".to_owned());
    let other = Receipt { commit_token: Digest::of(b"other"), ..committed.receipt(0) };
    let committed = committed.released(&other).unwrap_err();
    assert_eq!(committed.clone().released(&committed.receipt(0)).unwrap().handle(), &handle(42));
}

proptest! {
    #[test]
    fn no_two_uploads_share_a_key_or_a_token(a in 0_u32..3, b in 0_u64..3, c in 0_u8..3, d in 0_u32..3, e in 0_u64..3, f in 0_u8..3) {
        let root = JobRoot::new("", "j", "jsonl").unwrap();
        let (left, right) = (Nonce::from_bytes([c; 16]), Nonce::from_bytes([f; 16]));
        let same = (a, b, c) == (d, e, f);
        prop_assert_eq!(root.key(a, b, left) == root.key(d, e, right), same);
        prop_assert_eq!(commit_token("j", a, b, left) == commit_token("j", d, e, right), same);
    }
}
