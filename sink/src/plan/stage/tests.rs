//! The table of answers, and the planner: pure, each step clears, one fixed point.

use proptest::prelude::*;

use super::*;
use crate::model::ids::Nonce;
use crate::model::stage::{JobRoot, Part, commit_token};
use crate::store::multipart::UploadId;
use crate::store::{ETag, ObjectMeta};

fn handle(subtask: u32, checkpoint: u64) -> Handle {
    let run_id = Nonce::from_bytes([7; 16]);
    Handle {
        job_id: "j".to_owned(),
        run_id,
        subtask,
        checkpoint_id: checkpoint,
        attempt: 0,
        bucket: "data".to_owned(),
        key: JobRoot::new("", "j", "jsonl").unwrap().key(subtask, checkpoint, run_id),
        upload_id: UploadId("u".to_owned()),
        parts: vec![Part { n: 1, etag: "\"e\"".to_owned(), size: 9, sha256: Digest::of(b"x") }],
        total_size: 9,
        content_sha256: Digest::of(b"x"),
        multipart_etag: "\"m-1\"".to_owned(),
        commit_token: commit_token("j", subtask, checkpoint, run_id),
        records: 1,
        first_event: "a".to_owned(),
        last_event: "a".to_owned(),
        created_at_ms: 0,
    }
}

#[test]
fn what_an_answer_and_a_look_mean_together() {
    use Action::{Commit, Complete, Conflict, Look, Lost, Settle, Stop};
    use Proof::{Answer as Said, Token, Weak};
    let looks = [
        None,
        Some(Standing::Own(Token)),
        Some(Standing::Own(Weak)),
        Some(Standing::Foreign),
        Some(Standing::Pending),
        Some(Standing::Absent { settled: false }),
        Some(Standing::Absent { settled: true }),
    ];
    let seen = [Commit(Token), Commit(Weak), Conflict];
    let row = |first: Action, rest: [Action; 3]| [&[first][..], &seen, &rest].concat();
    for (answer, expected) in [
        (Answer::NotAsked, row(Look, [Complete, Settle, Lost])),
        (Answer::Completed, vec![Commit(Said); 7]),
        (Answer::Unanswered, row(Complete, [Complete, Complete, Complete])),
        (Answer::NoSuchUpload, row(Look, [Complete, Settle, Lost])),
        (Answer::Damaged, row(Look, [Lost, Settle, Lost])),
        (Answer::Condition, row(Look, [Complete, Settle, Lost])),
        (Answer::Denied, vec![Stop; 7]),
    ] {
        let actions: Vec<_> = looks.map(|look| resolve(answer, look)).into();
        assert_eq!(actions, expected, "{answer:?}");
    }
}

#[test]
fn whose_object_it_is() {
    let handle = handle(0, 1);
    let seen = |token: Option<&str>, etag: &str, size| Described {
        meta: ObjectMeta { key: handle.key.clone(), etag: ETag(etag.to_owned()), size, last_modified_ms: 0 },
        metadata: token.map(|token| (TOKEN_METADATA.to_owned(), token.to_owned())).into_iter().collect(),
    };
    let token = handle.commit_token.to_string();
    assert_eq!(own(&handle, &seen(Some(&token), "\"any\"", 9)), Ok(Proof::Token));
    assert_eq!(own(&handle, &seen(None, "m-1", 9)), Ok(Proof::Weak));
    for (object, why) in [
        (seen(Some(&token), "\"m-1\"", 8), "this upload's token and 8 bytes"),
        (seen(Some("ff"), "\"m-1\"", 9), "commit token \"ff\""),
        (seen(None, "\"m-1\"", 8), "without a commit token, of 8 bytes"),
        (seen(None, "\"x-1\"", 9), "ETag \"x-1\""),
    ] {
        let found = own(&handle, &object).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
}

fn receipt(handle: &Handle) -> Receipt {
    Receipt {
        job_id: handle.job_id.clone(),
        run_id: handle.run_id,
        subtask: handle.subtask,
        checkpoint_id: handle.checkpoint_id,
        commit_token: handle.commit_token,
        key: handle.key.clone(),
        etag: "\"m-1\"".to_owned(),
        proof: Proof::Token,
        at_ms: 0,
    }
}

/// Takes what a step says it does to the baseline, as its apply and the next scan would.
fn applied(step: &Step, baseline: &mut Baseline, latches: &mut Latches) {
    let find = |token: &Digest, baseline: &Baseline| {
        baseline.handles.iter().position(|staged| staged.handle.commit_token == *token).unwrap()
    };
    match step {
        Step::Erase(token, _) | Step::Drop(token, _) => {
            let at = find(token, baseline);
            baseline.handles.remove(at);
        }
        Step::WriteReceipt(token, ..) => {
            let at = find(token, baseline);
            baseline.handles[at].receipt = Some(receipt(&baseline.handles[at].handle));
        }
        Step::Complete(token, _) => {
            let at = find(token, baseline);
            baseline.handles[at].receipt = Some(receipt(&baseline.handles[at].handle));
        }
        Step::Settle(token, _, round) => {
            latches.absences.insert(*token, *round);
        }
        Step::RaiseNumber(to) => latches.next_checkpoint = *to,
    }
}

fn baseline() -> impl Strategy<Value = Baseline> {
    let standing = prop_oneof![
        Just(Standing::Own(Proof::Token)),
        Just(Standing::Own(Proof::Weak)),
        Just(Standing::Pending),
        Just(Standing::Foreign),
        Just(Standing::Absent { settled: false }),
    ];
    let staged = (0_u32..2, 1_u64..5, any::<bool>(), standing);
    let handles = proptest::collection::vec(staged, 0..5);
    (proptest::option::of(1_u64..5), proptest::option::of(1_u64..6), handles).prop_map(
        |(marker, highest, handles)| {
            let mut handles: Vec<Staged> = handles
                .into_iter()
                .map(|(subtask, checkpoint, receipted, standing)| {
                    let handle = handle(subtask, checkpoint);
                    Staged {
                        receipt: receipted.then(|| receipt(&handle)),
                        handle,
                        standing: Some(standing),
                        etag: String::new(),
                        foreign: "of another".to_owned(),
                    }
                })
                .collect();
            handles.sort_by_key(|staged| (staged.handle.checkpoint_id, staged.handle.subtask));
            handles.dedup_by_key(|staged| staged.handle.commit_token);
            Baseline { marker, highest: highest.max(marker), handles }
        },
    )
}

proptest! {
    #[test]
    fn every_baseline_comes_to_the_fixed_point_or_to_one_guard(baseline in baseline()) {
        let (mut now, mut latches) = (baseline.clone(), Latches::default());
        let most = max_steps(baseline.handles.len(), 3);
        let mut steps = Vec::new();
        let end = loop {
            let step = reconcile(&now, &latches, 3);
            prop_assert_eq!(&step, &reconcile(&now, &latches, 3), "not pure");
            match step {
                Ok(Some(step)) => {
                    prop_assert!(steps.len() < most, "{:?}", steps);
                    applied(&step, &mut now, &mut latches);
                    prop_assert_ne!(&Ok(Some(step.clone())), &reconcile(&now, &latches, 3), "does not clear");
                    steps.push(step);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let first_bad = baseline.handles.iter().find(|staged| {
            staged.receipt.is_none()
                && baseline.marker.is_some_and(|marker| staged.handle.checkpoint_id <= marker)
                && matches!(staged.standing, Some(Standing::Foreign | Standing::Absent { .. }))
        });
        match (first_bad, end) {
            (None, Ok(())) => {
                prop_assert!(now.handles.is_empty());
                prop_assert_eq!(latches.next_checkpoint, now.highest.map_or(1, |highest| highest + 1));
            }
            (Some(bad), Err(StageError::Conflict { handle, .. } | StageError::Lost { handle, .. })) => {
                prop_assert_eq!(handle, bad.handle.name());
            }
            (bad, end) => prop_assert!(false, "{:?}: {:?}", bad, end),
        }
    }
}

#[test]
fn a_handle_of_a_checkpoint_that_does_not_count_is_never_completed() {
    let staged = |checkpoint| Staged {
        handle: handle(0, checkpoint),
        receipt: None,
        standing: Some(Standing::Pending),
        etag: String::new(),
        foreign: String::new(),
    };
    for (marker, expected) in [(None, "T6"), (Some(4), "T6"), (Some(5), "T3"), (Some(6), "T3")] {
        let baseline = Baseline { marker, highest: Some(6), handles: vec![staged(5)] };
        let step = reconcile(&baseline, &Latches::default(), 3).unwrap().unwrap();
        assert!(step.to_string().starts_with(expected), "{marker:?}: {step}");
    }
}

#[test]
fn a_receipt_of_another_upload_stops_it() {
    let mine = handle(0, 1);
    let other = Receipt { commit_token: Digest::of(b"other"), ..receipt(&mine) };
    let staged = Staged {
        handle: mine,
        receipt: Some(other),
        standing: None,
        etag: String::new(),
        foreign: String::new(),
    };
    let baseline = Baseline { marker: Some(1), highest: Some(1), handles: vec![staged] };
    let error = reconcile(&baseline, &Latches::default(), 3).unwrap_err();
    assert_eq!(error.exit_code(), 5, "{error}");
}
