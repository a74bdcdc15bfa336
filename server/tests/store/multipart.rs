//! Multipart uploads: what decides a conditional complete is the order of commits, not the clock, which stands
//! still in all of these.

use crate::client::{Answer, On, Rig};
use crate::{ENABLE, SUSPEND};

/// An upload with one part, ready to be completed.
struct Upload<'a> {
    rig: &'a Rig,
    key: &'a str,
    id: String,
    document: String,
}

impl<'a> Upload<'a> {
    async fn begin(rig: &'a Rig, key: &'a str, body: &str) -> Self {
        let id = rig.call("POST", &format!("{key}?uploads")).await.expect(200).only("UploadId");
        let part = rig.put(&format!("{key}?partNumber=1&uploadId={id}"), body.to_owned()).await.expect(200);
        let document = list(&[(1, &part.etag())]);
        Self { rig, key, id, document }
    }

    async fn complete(&self, condition: &[(&str, &str)]) -> Answer {
        let target = format!("{}?uploadId={}", self.key, self.id);
        self.rig.send("POST", &target, condition, self.document.clone()).await
    }

    async fn abort(&self) {
        self.rig.call("DELETE", &format!("{}?uploadId={}", self.key, self.id)).await.expect(204);
    }
}

fn list(parts: &[(u16, &str)]) -> String {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

const CREATE: [(&str, &str); 1] = [("if-none-match", "*")];

async fn a_delete_conflicts_with_the_uploads_before_it_alone(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "old").await.expect(200);
    let before = Upload::begin(&rig, "k", "before").await;
    rig.call("DELETE", "k").await.expect(204);
    let after = Upload::begin(&rig, "k", "after").await;
    before.complete(&CREATE).await.expect_code(409, "ConditionalRequestConflict");
    after.complete(&CREATE).await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "after");
    // What is there comes before what happened.
    before.complete(&CREATE).await.expect_code(412, "PreconditionFailed");
    before.complete(&[]).await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "before");
}

async fn a_delete_of_another_key_or_of_nothing_is_no_conflict(on: On) {
    let rig = Rig::new(on).await;
    rig.put("other", "x").await.expect(200);
    let upload = Upload::begin(&rig, "k", "body").await;
    rig.call("DELETE", "other").await.expect(204);
    rig.call("DELETE", "k").await.expect(204);
    rig.put("k/below", "x").await.expect(200);
    upload.complete(&CREATE).await.expect(200);
}

async fn the_trace_of_a_delete_goes_with_the_last_upload(on: On) {
    let rig = Rig::new(on).await;
    for end_with_abort in [true, false] {
        rig.put("k", "old").await.expect(200);
        let (first, second) = (Upload::begin(&rig, "k", "1").await, Upload::begin(&rig, "k", "2").await);
        rig.call("DELETE", "k").await.expect(204);
        first.abort().await;
        second.complete(&CREATE).await.expect_code(409, "ConditionalRequestConflict");
        if end_with_abort {
            second.abort().await;
        } else {
            second.complete(&[]).await.expect(200);
            rig.call("DELETE", "k").await.expect(204);
        }
        let fresh = Upload::begin(&rig, "k", "3").await;
        fresh.complete(&CREATE).await.expect(200);
        rig.call("DELETE", "k").await.expect(204);
    }
}

async fn under_versioning_markers_and_versions_count(on: On) {
    let rig = Rig::new(on).await;
    for document in [ENABLE, SUSPEND] {
        rig.send("PUT", "?versioning", &[], document).await.expect(200);
        let etag = rig.put("k", "old").await.expect(200).etag();
        let upload = Upload::begin(&rig, "k", "new").await;
        upload.complete(&CREATE).await.expect_code(412, "PreconditionFailed");
        rig.call("DELETE", "k").await.expect(204);
        upload.complete(&CREATE).await.expect_code(409, "ConditionalRequestConflict");
        upload.complete(&[("if-match", &etag)]).await.expect_code(404, "NoSuchKey");
        rig.put("k", "old").await.expect(200);
        upload.complete(&[("if-match", &etag)]).await.expect_code(409, "ConditionalRequestConflict");
        let fresh = Upload::begin(&rig, "k", "new").await;
        fresh.complete(&[("if-match", &etag)]).await.expect(200);
        rig.call("DELETE", "k").await.expect(204);
        upload.abort().await;
    }
}

/// Nobody recorded it: a version that goes by its id is a delete like any other, if it was the current one.
async fn a_current_version_that_goes_by_its_id_conflicts(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "never versioned").await.expect(200);
    let upload = Upload::begin(&rig, "k", "new").await;
    rig.call("DELETE", "k?versionId=null").await.expect(204);
    upload.complete(&CREATE).await.expect_code(409, "ConditionalRequestConflict");
    upload.abort().await;

    rig.send("PUT", "?versioning", &[], ENABLE).await.expect(200);
    let version = |answer: Answer| answer.expect(200).header("x-amz-version-id").unwrap();
    let oldest = version(rig.put("k", "oldest").await);
    let below = rig.put("k", "below").await.expect(200);
    let current = version(rig.put("k", "current").await);
    let upload = Upload::begin(&rig, "k", "new").await;
    rig.call("DELETE", &format!("k?versionId={oldest}")).await.expect(204);
    let of_current = rig.call("HEAD", "k").await.etag();
    let aside = Upload::begin(&rig, "k", "aside").await;
    rig.call("DELETE", &format!("k?versionId={current}")).await.expect(204);
    assert_eq!(rig.call("GET", "k").await.text(), "below");
    upload.complete(&[("if-match", &of_current)]).await.expect_code(412, "PreconditionFailed");
    upload.complete(&[("if-match", &below.etag())]).await.expect_code(409, "ConditionalRequestConflict");
    aside.abort().await;
    let fresh = Upload::begin(&rig, "k", "fresh").await;
    fresh.complete(&[("if-match", &below.etag())]).await.expect(200);
}

async fn an_overwrite_and_back_is_a_conflict(on: On) {
    let rig = Rig::new(on).await;
    let etag = rig.put("k", "a").await.expect(200).etag();
    let upload = Upload::begin(&rig, "k", "new").await;
    rig.put("k", "b").await.expect(200);
    rig.put("k", "a").await.expect(200);
    upload.complete(&[("if-match", &etag)]).await.expect_code(409, "ConditionalRequestConflict");
    // Tags change nothing that a condition speaks of.
    let upload = Upload::begin(&rig, "k", "new").await;
    let tags = "<Tagging><TagSet><Tag><Key>t</Key><Value>v</Value></Tag></TagSet></Tagging>";
    rig.send("PUT", "k?tagging", &[], tags).await.expect(200);
    upload.complete(&[("if-match", &etag)]).await.expect(200);
}

async fn a_refused_complete_leaves_the_upload_as_it_was(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "old").await.expect(200);
    let upload = Upload::begin(&rig, "k", "new").await;
    for _ in 0..3 {
        upload.complete(&CREATE).await.expect_code(412, "PreconditionFailed");
    }
    let target = format!("k?uploadId={}", upload.id);
    rig.send("POST", &target, &[], list(&[(2, "\"x\"")])).await.expect_code(400, "InvalidPart");
    rig.send("POST", &target, &[], "<Complete").await.expect_code(400, "MalformedXML");
    assert_eq!(rig.call("GET", &target).await.expect(200).all("Part/PartNumber"), ["1"]);
    upload.complete(&[]).await.expect(200);
    assert_eq!(rig.call("GET", "k").await.text(), "new");
}

async fn a_repeated_complete_answers_the_same_and_changes_nothing(on: On) {
    let rig = Rig::new(on).await;
    rig.send("PUT", "?versioning", &[], ENABLE).await.expect(200);
    let upload = Upload::begin(&rig, "k", "mine").await;
    let first = upload.complete(&CREATE).await.expect(200);
    rig.put("k", "later").await.expect(200);
    let again = upload.complete(&CREATE).await.expect(200);
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("x-amz-version-id"), first.header("x-amz-version-id"));
    assert_eq!(rig.call("GET", "k").await.text(), "later");
    assert_eq!(rig.call("GET", "?versions").await.all("Version/Key").len(), 2);
    // Another list is another request, and an aborted upload is none.
    let target = format!("k?uploadId={}", upload.id);
    rig.send("POST", &target, &[], list(&[(1, "\"x\"")])).await.expect_code(404, "NoSuchUpload");
    rig.call("DELETE", &target).await.expect_code(404, "NoSuchUpload");
    // A day later nobody retries any more; the next complete makes room.
    rig.clock.pass_s(2 * 24 * 3600);
    Upload::begin(&rig, "x", "x").await.complete(&[]).await.expect(200);
    upload.complete(&CREATE).await.expect_code(404, "NoSuchUpload");
}

async fn parts_are_replaced_chosen_and_left_out(on: On) {
    let rig = Rig::new(on).await;
    let id = rig.call("POST", "k?uploads").await.expect(200).only("UploadId");
    let large = |byte: u8| vec![byte; 5 * 1024 * 1024];
    let part = async |number: u16, body: Vec<u8>| {
        rig.put(&format!("k?partNumber={number}&uploadId={id}"), body).await.expect(200).etag()
    };
    let old = part(1, large(b'o')).await;
    let first = part(1, large(b'a')).await;
    part(2, large(b'x')).await; // never listed
    let third = part(3, large(b'c')).await;
    let last = part(9, b"end".to_vec()).await;
    assert_eq!(rig.files().len(), if on == On::Disk { 3 } else { 0 }, "the part that was replaced is gone");
    let target = format!("k?uploadId={id}");
    let wrong = list(&[(1, &old), (3, &third), (9, &last)]);
    rig.send("POST", &target, &[], wrong).await.expect_code(400, "InvalidPart");
    let small_first = list(&[(1, &first), (9, &last)]);
    let before = rig.files().len();
    let done =
        rig.send("POST", &target, &[], list(&[(1, &first), (3, &third), (9, &last)])).await.expect(200);
    assert!(done.only("ETag").ends_with("-3\""), "{done:?}");
    assert_eq!(rig.files().len(), before.saturating_sub(1), "the part that was left out is gone");
    let body = rig.call("GET", "k").await.expect(200).body;
    let wanted = [large(b'a'), large(b'c'), b"end".to_vec()].concat();
    assert!(body == wanted, "{} bytes", body.len());
    rig.send("POST", &target, &[], small_first).await.expect_code(404, "NoSuchUpload");
    let second = rig.call("GET", "k?partNumber=2").await.expect(206);
    assert!(second.body == large(b'c'));
}

async fn an_aborted_upload_leaves_nothing(on: On) {
    let rig = Rig::new(on).await;
    let id = rig.call("POST", "k?uploads").await.expect(200).only("UploadId");
    for number in 1..4 {
        let target = format!("k?partNumber={number}&uploadId={id}");
        rig.put(&target, vec![b'x'; 100_000]).await.expect(200);
    }
    assert_eq!(rig.files().len(), if on == On::Disk { 3 } else { 0 });
    rig.call("DELETE", &format!("k?uploadId={id}")).await.expect(204);
    assert!(rig.files().is_empty());
    assert!(rig.call("GET", "?uploads").await.all("Upload/Key").is_empty());
    rig.call("DELETE", "?").await.expect(204);
}

crate::on_both_stores![
    a_delete_conflicts_with_the_uploads_before_it_alone,
    a_delete_of_another_key_or_of_nothing_is_no_conflict,
    the_trace_of_a_delete_goes_with_the_last_upload,
    under_versioning_markers_and_versions_count,
    a_current_version_that_goes_by_its_id_conflicts,
    an_overwrite_and_back_is_a_conflict,
    a_refused_complete_leaves_the_upload_as_it_was,
    a_repeated_complete_answers_the_same_and_changes_nothing,
    parts_are_replaced_chosen_and_left_out,
    an_aborted_upload_leaves_nothing,
];
