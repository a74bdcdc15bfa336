//! Every row of the table of answers, from our server over HTTP and from the bucket in memory; repeated Completes
//! of both kinds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use assay_server::{Deviation, Server};
use sinks::env::{Clock, Ids};
use sinks::model::ids::Nonce;
use sinks::model::stage::TOKEN_METADATA;
use sinks::model::stage::files::{Proof, Snapshot};
use sinks::run::stage::pending_uploads;
use sinks::stage::mutant::Chosen;
use sinks::stage::{
    CommitOutcome, Coordinator, Handle, Ledger, MemoryDirectory, Opening, Options, Record, StageError,
    StagedSink, TwoPhaseSink,
};
use sinks::store::multipart::MIN_PART_BYTES;
use sinks::store::{
    Access, Condition, ETag, MemoryStore, MultipartStore, Outcome, RepeatedComplete, S3Settings, S3Store,
};

use crate::world::{Noon, options, root};

/// A job of one subtask, whose bucket is somewhere.
pub struct Rig {
    pub server: Option<Server>,
    pub store: Arc<dyn MultipartStore>,
    pub ledger: Ledger,
    coordinator: Coordinator,
    pub sink: StagedSink,
}

fn connect(server: &Server, request_timeout_ms: u64) -> Arc<dyn MultipartStore> {
    connect_by(server, server.endpoint(), request_timeout_ms)
}

/// The server's bucket, behind another endpoint.
pub fn connect_by(server: &Server, endpoint: &str, request_timeout_ms: u64) -> Arc<dyn MultipartStore> {
    let settings = S3Settings::new(Some(endpoint.to_owned()), server.region(), "data");
    let settings = S3Settings { request_timeout_ms, ..settings };
    let access = Access::keys(server.access_key(), server.secret_key(), None);
    Arc::new(S3Store::new(&settings, &access).expect("settings of a running server"))
}

pub fn opening(store: Arc<dyn MultipartStore>, ledger: Ledger, seed: u64) -> Opening {
    let options = Options { patience_ms: 5_000, settle_ms: 300, ..options(0, Chosen::default()) };
    let clock: Arc<dyn Clock> = Arc::new(Noon);
    Opening { uploads: store, clock, ids: Arc::new(Ids::seeded(seed)), ledger, options }
}

impl Rig {
    async fn on(store: Arc<dyn MultipartStore>, server: Option<Server>) -> Self {
        let ledger = Ledger::new(Arc::new(MemoryDirectory::default()), root().job_id());
        let over = ledger.take_over(Nonce::from_bytes([9; 16]), 0).await.unwrap();
        let sink = StagedSink::recover(opening(store.clone(), ledger.clone(), 1), Vec::new()).await.unwrap();
        Self { server, store, ledger, coordinator: over.coordinator, sink }
    }

    pub async fn served(deviations: &[Deviation]) -> Self {
        let builder = deviations.iter().fold(Server::builder().bucket("data"), |builder, deviation| {
            builder.deviation(deviation.clone())
        });
        let server = builder.start().await.expect("the server starts");
        Self::on(connect(&server, 10_000), Some(server)).await
    }

    async fn in_memory(repeated: RepeatedComplete) -> Self {
        Self::on(Arc::new(MemoryStore::new(Arc::new(Noon)).repeating(repeated)), None).await
    }

    /// Our server with both kinds of repeated Complete, and memory with both.
    async fn all() -> Vec<Self> {
        vec![
            Self::served(&[]).await,
            Self::served(&[Deviation::RepeatedCompleteNoSuchUpload]).await,
            Self::in_memory(RepeatedComplete::SameAnswer).await,
            Self::in_memory(RepeatedComplete::NoSuchUpload).await,
        ]
    }

    /// Stages one record and lets its checkpoint count.
    pub async fn staged(&mut self, checkpoint: u64) -> Handle {
        let id = format!("p0-{checkpoint}");
        self.sink.write(Record { id: &id, line: id.as_bytes() }).unwrap();
        let handle = self.sink.prepare(checkpoint).await.unwrap().expect("a handle");
        self.snapshot(checkpoint).await;
        self.coordinator.complete(checkpoint, 0).await.unwrap();
        handle
    }

    /// Writes the snapshot of what is staged.
    async fn snapshot(&self, checkpoint: u64) {
        let snapshot = Snapshot {
            job_id: String::new(),
            checkpoint_id: checkpoint,
            epoch: 0,
            positions: Default::default(),
            handles: self.sink.staged(),
            at_ms: 0,
        };
        self.coordinator.put_snapshot(snapshot).await.unwrap();
    }

    fn fault(&self, rule: &str) -> assay_server::FaultGuard {
        self.server.as_ref().expect("a server").fault(rule.parse().expect("a rule")).expect("a fault")
    }

    pub async fn complete(&self, handle: &Handle) -> Outcome<ETag> {
        self.store.complete(&handle.key, &handle.upload_id, &handle.part_refs()).await
    }

    async fn read(&self, handle: &Handle) -> String {
        match self.store.get(&handle.key).await {
            Outcome::Done(object) => {
                let token = object.metadata.iter().find(|(name, _)| name == TOKEN_METADATA);
                assert_eq!(token.map(|(_, token)| token), Some(&handle.commit_token.to_string()));
                assert_eq!(object.meta.etag.0, handle.multipart_etag);
                String::from_utf8(object.bytes.to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// It is visible with its receipt, and nothing is staged any more.
    pub async fn visible(&self, handle: &Handle, proof: Proof) {
        let id = format!("p0-{}\n", handle.checkpoint_id);
        assert_eq!(self.read(handle).await, id);
        let receipt = self.ledger.receipt(handle).await.unwrap().expect("a receipt");
        assert_eq!((receipt.commit_token, receipt.proof), (handle.commit_token, proof));
        assert_eq!(self.sink.staged(), []);
    }

    pub async fn end(self) {
        self.sink.close().await.unwrap();
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn a_result_is_a_commit_and_a_second_commit_is_none() {
    for mut rig in Rig::all().await {
        let handle = rig.staged(1).await;
        assert_eq!(rig.store.get(&handle.key).await, Outcome::Missing, "staged is invisible");
        let pending = pending_uploads(rig.store.as_ref(), &root()).await.unwrap();
        assert_eq!((pending.ours.len(), pending.others), (1, 0));
        assert_eq!(pending.ours[0].upload, handle.upload_id);
        assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
        assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::AlreadyCommitted));
        assert_eq!(rig.sink.counts().other_etags, 0);
        rig.visible(&handle, Proof::Answer).await;
        assert_eq!(pending_uploads(rig.store.as_ref(), &root()).await.unwrap(), Default::default());
        rig.end().await;
    }
}

/// What was completed by a process that died before its receipt.
#[tokio::test]
async fn a_complete_that_landed_before_is_found_by_its_token() {
    for (mut rig, proof) in
        Rig::all().await.into_iter().zip([Proof::Answer, Proof::Token, Proof::Answer, Proof::Token])
    {
        let handle = rig.staged(1).await;
        assert!(matches!(rig.complete(&handle).await, Outcome::Done(_)));
        assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(proof)));
        rig.visible(&handle, proof).await;
        rig.end().await;
    }
}

#[tokio::test]
async fn a_success_with_an_error_in_it_is_asked_again() {
    for effect in ["error-document code=InternalError", "fail-after code=InternalError", "lose-answer"] {
        let mut rig = Rig::served(&[]).await;
        let handle = rig.staged(1).await;
        let guard = rig.fault(&format!("operation=CompleteMultipartUpload nth=1 effect={effect}"));
        assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)), "{effect}");
        assert_eq!(rig.sink.counts().resent, 1, "{effect}");
        drop(guard);
        rig.visible(&handle, Proof::Answer).await;
        rig.end().await;
    }
}

#[tokio::test]
async fn nosuchupload_is_settled_by_the_key() {
    let mut rig = Rig::served(&[]).await;
    // It landed and the answer says otherwise.
    let handle = rig.staged(1).await;
    let guard = rig.fault("operation=CompleteMultipartUpload nth=1 effect=fail-after code=NoSuchUpload");
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Token)));
    drop(guard);
    rig.visible(&handle, Proof::Token).await;
    // It did not land, and the upload is still listed.
    let handle = rig.staged(2).await;
    let guard = rig.fault("operation=CompleteMultipartUpload nth=1 effect=refuse code=NoSuchUpload");
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
    drop(guard);
    rig.visible(&handle, Proof::Answer).await;
    rig.end().await;
}

#[tokio::test]
async fn an_upload_that_is_nowhere_is_lost_after_the_settle_time_and_no_sooner() {
    for mut rig in Rig::all().await {
        let handle = rig.staged(1).await;
        assert_eq!(rig.store.abort(&handle.key, &handle.upload_id).await, Outcome::Done(()));
        let began = tokio::time::Instant::now();
        let outcome = rig.sink.commit(&handle).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Lost { .. }), "{outcome:?}");
        assert!(began.elapsed().as_millis() >= 300, "three rounds of 100 ms");
        assert_eq!(rig.sink.staged(), std::slice::from_ref(&handle), "the handle is kept as evidence");
        let again = opening(rig.store.clone(), rig.ledger.clone(), 2);
        let error = StagedSink::recover(again, vec![handle]).await.unwrap_err();
        assert!(matches!(error, StageError::Lost { .. }) && error.exit_code() == 5, "{error}");
        rig.end().await;
    }
}

#[tokio::test]
async fn an_object_of_somebody_else_is_a_conflict_and_stays() {
    for mut rig in Rig::all().await {
        let handle = rig.staged(1).await;
        assert_eq!(rig.store.abort(&handle.key, &handle.upload_id).await, Outcome::Done(()));
        let metadata = [(TOKEN_METADATA.to_owned(), "00".repeat(32))];
        let foreign = rig.store.put(&handle.key, "other\n".into(), Condition::None, &metadata).await;
        assert!(matches!(foreign, Outcome::Done(_)));
        match rig.sink.commit(&handle).await {
            Ok(CommitOutcome::Conflict { reason }) => assert!(reason.contains("commit token"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let again = opening(rig.store.clone(), rig.ledger.clone(), 2);
        let error = StagedSink::recover(again, vec![handle.clone()]).await.unwrap_err();
        assert!(matches!(error, StageError::Conflict { .. }), "{error}");
        let Outcome::Done(object) = rig.store.get(&handle.key).await else { panic!("it stays") };
        assert_eq!(object.bytes, "other\n");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_store_that_drops_metadata_leaves_a_weak_proof() {
    let mut rig = Rig::in_memory(RepeatedComplete::NoSuchUpload).await;
    let handle = rig.staged(1).await;
    assert!(matches!(rig.complete(&handle).await, Outcome::Done(_)));
    // The same object, as a store without metadata has it: its tag is of parts, so it is put by parts.
    let Outcome::Done(upload) = rig.store.create_upload(&handle.key, &[]).await else { panic!("an upload") };
    let part = rig.store.upload_part(&handle.key, &upload, 1, "p0-1\n".into()).await;
    assert!(matches!(part, Outcome::Done(_)));
    let landed = rig.store.complete(&handle.key, &upload, &handle.part_refs()).await;
    assert!(matches!(landed, Outcome::Done(_)), "{landed:?}");
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Weak)));
    assert_eq!(rig.sink.counts().weak_proofs, 1);
    rig.end().await;
}

#[tokio::test]
async fn a_start_counts_what_only_a_look_tells_and_trusts_an_answer_more_than_a_look() {
    let mut rig = Rig::served(&[Deviation::DropMetadata]).await;
    // Completed by a process that died before its receipt, and without metadata.
    let handle = rig.staged(1).await;
    assert!(matches!(rig.complete(&handle).await, Outcome::Done(_)));
    let again = |seed| opening(rig.store.clone(), rig.ledger.clone(), seed);
    let sink = StagedSink::recover(again(2), vec![handle.clone()]).await.unwrap();
    let counts = sink.counts();
    assert_eq!((counts.committed, counts.resolved_by_look, counts.weak_proofs), (1, 1, 1));
    assert_eq!(rig.ledger.receipt(&handle).await.unwrap().unwrap().proof, Proof::Weak);
    // Tags of the store's own prove nothing: what Complete was answered with does.
    rig.sink = sink;
    let handle = rig.staged(2).await;
    let guard = rig.fault("operation=HeadObject effect=wrong-etag");
    let again = opening(rig.store.clone(), rig.ledger.clone(), 3);
    let sink = StagedSink::recover(again, vec![handle.clone()]).await.unwrap();
    drop(guard);
    let steps: Vec<_> = sink.recovered().iter().map(|step| step.to_string()[..2].to_owned()).collect();
    assert_eq!(steps, ["T3", "T1", "T7"]);
    let counts = sink.counts();
    assert_eq!((counts.committed, counts.resolved_by_look, counts.weak_proofs), (1, 0, 0));
    assert_eq!(rig.ledger.receipt(&handle).await.unwrap().unwrap().proof, Proof::Answer);
    rig.end().await;
}

#[tokio::test]
async fn parts_that_do_not_fit_are_lost_and_denials_keep_the_handle() {
    let mut rig = Rig::served(&[]).await;
    let handle = rig.staged(1).await;
    for code in ["InvalidPart", "InvalidPartOrder", "EntityTooSmall"] {
        let guard = rig.fault(&format!("operation=CompleteMultipartUpload effect=refuse code={code}"));
        let outcome = rig.sink.commit(&handle).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Lost { .. }), "{code}: {outcome:?}");
        drop(guard);
    }
    for (code, status) in [("AccessDenied", 403), ("NoSuchBucket", 404)] {
        let guard = rig.fault(&format!("operation=CompleteMultipartUpload effect=refuse code={code}"));
        let error = rig.sink.commit(&handle).await.unwrap_err();
        assert!(error.to_string().contains(&format!("{status} {code}")) && error.exit_code() == 2, "{error}");
        drop(guard);
    }
    for code in ["ConditionalRequestConflict", "PreconditionFailed"] {
        let rule = format!("operation=CompleteMultipartUpload nth=1 effect=fail-after code={code}");
        let guard = rig.fault(&rule);
        let checkpoint = if code.starts_with('C') { 2 } else { 3 };
        let other = rig.staged(checkpoint).await;
        assert_eq!(rig.sink.commit(&other).await, Ok(CommitOutcome::Committed(Proof::Token)), "{code}");
        drop(guard);
    }
    // Mended, it goes on.
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
    rig.visible(&handle, Proof::Answer).await;
    rig.end().await;
}

#[tokio::test]
async fn silence_is_in_doubt_and_nothing_else() {
    let server = Server::builder().bucket("data").start().await.expect("the server starts");
    let mut rig = Rig::on(connect(&server, 300), Some(server)).await;
    let handle = rig.staged(1).await;
    for effect in ["drop", "freeze", "refuse code=SlowDown", "refuse code=InternalError"] {
        let guard = rig.fault(&format!("effect={effect}"));
        let again = opening(rig.store.clone(), rig.ledger.clone(), 2);
        let again = Opening { options: Options { patience_ms: 200, ..again.options }, ..again };
        let error = StagedSink::recover(again, vec![handle.clone()]).await.unwrap_err();
        assert!(matches!(error, StageError::Store(_)) && error.exit_code() == 7, "{effect}: {error}");
        drop(guard);
    }
    assert_eq!(rig.store.get(&handle.key).await, Outcome::Missing, "nothing was resolved blind");
    let again = opening(rig.store.clone(), rig.ledger.clone(), 3);
    let sink = StagedSink::recover(again, vec![handle.clone()]).await.unwrap();
    let steps: Vec<_> = sink.recovered().iter().map(|step| step.to_string()[..2].to_owned()).collect();
    assert_eq!(steps, ["T3", "T1", "T7"]);
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::AlreadyCommitted));
    rig.visible(&handle, Proof::Answer).await;
    rig.end().await;
}

#[tokio::test]
async fn an_interval_of_two_parts_and_a_part_that_fails() {
    let mut rig = Rig::served(&[]).await;
    let line = vec![b'a'; 3 << 20];
    for id in ["first", "second"] {
        rig.sink.write(Record { id, line: &line }).unwrap();
    }
    assert_eq!((rig.sink.open_bytes(), rig.sink.open_records()), (2 * (3 << 20) + 2, 2));
    // All of it fails: the checkpoint fails, its upload is aborted, the records stay.
    let guard = rig.fault("operation=UploadPart effect=refuse code=AccessDenied");
    let error = rig.sink.prepare(1).await.unwrap_err();
    assert!(matches!(error, StageError::Store(_)), "{error}");
    drop(guard);
    assert_eq!(pending_uploads(rig.store.as_ref(), &root()).await.unwrap(), Default::default());
    assert_eq!((rig.sink.open_records(), rig.sink.staged()), (2, Vec::new()));
    let used = rig.sink.prepare(1).await.unwrap_err();
    assert_eq!(used, StageError::NumberInUse { checkpoint: 1, next: 2 });
    // One part fails once.
    let guard = rig.fault("operation=UploadPart part-number=2 nth=1 effect=refuse code=InternalError");
    let small = Options { part_bytes: MIN_PART_BYTES, ..options(0, Chosen::default()) };
    assert_eq!(small.part_bytes, 5 << 20);
    let handle = rig.staged(2).await;
    drop(guard);
    assert_eq!((handle.records, handle.parts.len()), (3, 1), "8 MiB of a part hold all of it");
    assert_eq!((handle.first_event.as_str(), handle.last_event.as_str()), ("first", "p0-2"));
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
    // Smaller parts.
    let again = opening(rig.store.clone(), rig.ledger.clone(), 2);
    let again = Opening { options: Options { part_bytes: MIN_PART_BYTES, ..again.options }, ..again };
    rig.sink = StagedSink::recover(again, Vec::new()).await.unwrap();
    for id in ["third", "fourth"] {
        rig.sink.write(Record { id, line: &line }).unwrap();
    }
    let guard = rig.fault("operation=UploadPart part-number=2 nth=1 effect=refuse code=InternalError");
    let handle = rig.staged(3).await;
    drop(guard);
    assert_eq!(handle.parts.iter().map(|part| part.size).collect::<Vec<_>>(), [5 << 20, (1 << 20) + 7]);
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
    assert_eq!(rig.sink.counts().other_etags, 0, "the tag is as it was expected");
    let line = String::from_utf8(line).unwrap();
    assert_eq!(rig.read(&handle).await, format!("{line}\n{line}\np0-3\n"));
    rig.end().await;
}

#[tokio::test]
async fn parts_that_a_store_forgets_are_noticed_before_the_handle_exists() {
    let mut rig = Rig::served(&[]).await;
    rig.sink.write(Record { id: "a", line: b"a" }).unwrap();
    let guard = rig.fault("operation=UploadPart effect=forget");
    let error = rig.sink.prepare(1).await.unwrap_err();
    assert!(error.to_string().contains("other parts are listed"), "{error}");
    drop(guard);
    assert_eq!(rig.sink.staged(), []);
    rig.end().await;
}

#[tokio::test]
async fn what_is_refused_before_anything_is_sent() {
    let mut rig = Rig::in_memory(RepeatedComplete::SameAnswer).await;
    assert_eq!(rig.sink.prepare(1).await, Ok(None), "an empty interval has no handle");
    rig.sink.write(Record { id: "a", line: b"a" }).unwrap();
    let handle = rig.sink.prepare(2).await.unwrap().unwrap();
    let early = rig.sink.commit(&handle).await.unwrap_err();
    assert!(matches!(early, StageError::NotCompleted { checkpoint: 2, .. }), "{early}");
    // A checkpoint that was abandoned: its upload goes into the next.
    rig.coordinator.abandon(2, 0).await.unwrap();
    assert_eq!(rig.sink.commit(&handle).await.unwrap_err(), early);
    let next = rig.staged(3).await;
    assert_eq!(rig.sink.commit(&handle).await, Ok(CommitOutcome::Committed(Proof::Answer)));
    let refused = rig.sink.abort(&next).await.unwrap_err();
    assert!(refused.to_string().contains("never aborted"), "{refused}");
    assert_eq!(rig.sink.commit_completed().await, Ok(vec![CommitOutcome::Committed(Proof::Answer)]));
    // Nor one in a snapshot that nobody has decided about: it may count yet.
    rig.sink.write(Record { id: "a", line: b"a" }).unwrap();
    let undecided = rig.sink.prepare(5).await.unwrap().unwrap();
    rig.snapshot(5).await;
    let refused = rig.sink.abort(&undecided).await.unwrap_err();
    assert!(refused.to_string().contains("is in snapshot 5, which counts or yet may"), "{refused}");
    assert_eq!(pending_uploads(rig.store.as_ref(), &root()).await.unwrap().ours.len(), 1);
    assert_eq!(rig.sink.staged(), std::slice::from_ref(&undecided));
    rig.coordinator.abandon(5, 0).await.unwrap();
    rig.sink.abort(&undecided).await.unwrap();
    // One that nothing counts on may be given up.
    rig.sink.write(Record { id: "a", line: b"a" }).unwrap();
    let orphan = rig.sink.prepare(6).await.unwrap().unwrap();
    rig.sink.abort(&orphan).await.unwrap();
    assert_eq!(pending_uploads(rig.store.as_ref(), &root()).await.unwrap(), Default::default());
    let full = opening(rig.store.clone(), rig.ledger.clone(), 2);
    let full = Opening { options: Options { max_interval_bytes: 3, ..full.options }, ..full };
    let mut sink = StagedSink::recover(full.clone(), Vec::new()).await.unwrap();
    sink.write(Record { id: "a", line: b"ab" }).unwrap();
    let error = sink.write(Record { id: "a", line: b"" }).unwrap_err();
    assert_eq!((error.exit_code(), error), (7, StageError::IntervalFull { bytes: 4, limit: 3 }));
    for wrong in [
        Options { part_bytes: MIN_PART_BYTES - 1, ..full.options.clone() },
        Options { max_interval_bytes: u64::MAX, ..full.options.clone() },
        Options { settle_rounds: 2, ..full.options.clone() },
    ] {
        let error = StagedSink::recover(Opening { options: wrong, ..full.clone() }, Vec::new()).await;
        assert_eq!(error.unwrap_err().exit_code(), 2);
    }
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_waits_for_its_last_marker_and_fails_without() {
    let mut rig = Rig::in_memory(RepeatedComplete::SameAnswer).await;
    rig.sink.write(Record { id: "a", line: b"a" }).unwrap();
    let handle = rig.sink.prepare(1).await.unwrap().unwrap();
    let error = rig.sink.end_of_stream(2_000).await.unwrap_err();
    assert!(matches!(error, StageError::StillStaged { handles: 1, waited_ms: 2_000.. }), "{error}");
    assert_eq!(error.exit_code(), 7);
    rig.snapshot(1).await;
    let (coordinator, sink) = (rig.coordinator.clone(), &mut rig.sink);
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        coordinator.complete(1, 0).await
    };
    let (ended, marked) = tokio::join!(sink.end_of_stream(2_000), late);
    marked.unwrap();
    ended.unwrap();
    assert!(rig.ledger.receipt(&handle).await.unwrap().is_some());
    rig.end().await;
}

/// A sink that is closed, or dropped, leaves what is staged to whoever restores it.
#[tokio::test]
async fn close_aborts_nothing_that_is_staged() {
    for mut rig in Rig::all().await {
        let handle = rig.staged(1).await;
        rig.sink.write(Record { id: "open", line: b"open" }).unwrap();
        let again = opening(rig.store.clone(), rig.ledger.clone(), 2);
        rig.sink.close().await.unwrap();
        rig.sink = StagedSink::recover(again, vec![handle.clone()]).await.unwrap();
        rig.visible(&handle, Proof::Answer).await;
        rig.end().await;
    }
}

/// R7: killed after Complete and before the receipt; killed after the receipt and before the handle is forgotten;
/// the store away during both.
#[test]
fn what_died_between_complete_and_receipt_converges_though_the_store_is_away() {
    use crate::bent::{Bend, Calls};
    use crate::world::{World, now, paused};
    for repeated in [RepeatedComplete::SameAnswer, RepeatedComplete::NoSuchUpload] {
        for receipted in [false, true] {
            let context = format!("{repeated:?}: receipted {receipted}");
            // The first call after which it is so.
            let mut stopped = (0..).map(|at| {
                let world = World::new(1, repeated, Chosen::default());
                assert!(world.live(&[(at, Bend::StopAfter)]).end.is_none(), "never: {context}");
                world
            });
            let found = stopped.find(|world| {
                let receipts = now(world.ledger().receipts()).unwrap();
                (world.visible().len(), receipts) == (1, usize::from(receipted))
            });
            let world = found.unwrap();
            // Recovery needs the store only where no receipt says how it is.
            let away = Calls::new(&world, &(0..200).map(|at| (at, Bend::RequestLost)).collect::<Vec<_>>());
            let handles = paused(sinks::run::stage::restored(&world.ledger(), 0)).unwrap();
            assert_eq!(handles.len(), 1, "{context}");
            let opened = paused(StagedSink::recover(world.opening(&away, 0), handles.clone()));
            match (receipted, opened) {
                (false, Err(StageError::Store(error))) => assert_eq!(error.exit_code(), 7, "{context}"),
                (true, Ok(sink)) => {
                    assert!(sink.recovered()[0].to_string().starts_with("T1"), "{context}");
                }
                (_, other) => panic!("{other:?}: {context}"),
            }
            assert!(away.made.load(Ordering::Relaxed) > 4, "{context}");
            world.check(&context);
            world.check_end(&context);
        }
    }
}
