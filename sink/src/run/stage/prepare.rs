//! Prepare: one interval becomes the parts of one upload, which nobody sees.

use bytes::Bytes;

use super::Staging;
use crate::error::{Alarm, SinkError};
use crate::model::ids::Nonce;
use crate::model::stage::{Handle, Part, Sums, TOKEN_METADATA, commit_token};
use crate::point::{self, Point};
use crate::run::patience::because;
use crate::store::multipart::{StoredPart, UploadId};

/// An interval that is to be staged.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Its bytes, cut into parts.
    pub parts: Vec<Bytes>,
    /// Its records.
    pub records: u64,
    /// Id of the first.
    pub first_event: String,
    /// Id of the last.
    pub last_event: String,
}

/// Who stages, and for which checkpoint.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The start of the subtask.
    pub run_id: Nonce,
    /// The subtask.
    pub subtask: u32,
    /// The engine's attempt.
    pub attempt: u32,
    /// The bucket, as it is configured.
    pub bucket: String,
    /// The checkpoint.
    pub checkpoint: u64,
}

impl Staging {
    /// Stages an interval, which is not empty.
    ///
    /// # Errors
    /// Of the store. The upload that was begun is aborted, best effort; nothing of it was visible.
    pub async fn prepare(&self, interval: Interval, turn: Turn) -> Result<Handle, SinkError> {
        point::reach(Point::SinkBeforePrepare);
        let key = self.root.key(turn.subtask, turn.checkpoint, turn.run_id);
        let token = commit_token(self.root.job_id(), turn.subtask, turn.checkpoint, turn.run_id);
        let metadata = [(TOKEN_METADATA.to_owned(), token.to_string())];
        let created =
            self.asked("CreateMultipartUpload", &key, || self.uploads.create_upload(&key, &metadata));
        let upload = created.await?.ok_or_else(|| gone(&key, "404 to CreateMultipartUpload"))?;
        point::reach(Point::SinkAfterCreateUpload);
        match self.upload(&interval, &key, &upload).await {
            Ok((parts, sums)) => {
                point::reach(Point::SinkAfterPrepare);
                self.counts.lock().prepared += 1;
                let (total_size, content_sha256, multipart_etag) = sums.finish();
                Ok(Handle {
                    job_id: self.root.job_id().to_owned(),
                    run_id: turn.run_id,
                    subtask: turn.subtask,
                    checkpoint_id: turn.checkpoint,
                    attempt: turn.attempt,
                    bucket: turn.bucket,
                    key,
                    upload_id: upload,
                    parts,
                    total_size,
                    content_sha256,
                    multipart_etag,
                    commit_token: token,
                    records: interval.records,
                    first_event: interval.first_event,
                    last_event: interval.last_event,
                    created_at_ms: self.env.clock.now_ms(),
                })
            }
            Err(error) => {
                self.counts.lock().failed_prepares += 1;
                let aborted = self.uploads.abort(&key, &upload).await;
                tracing::warn!(key, %error, ?aborted, "an interval was not staged");
                Err(error)
            }
        }
    }

    async fn upload(
        &self,
        interval: &Interval,
        key: &str,
        upload: &UploadId,
    ) -> Result<(Vec<Part>, Sums), SinkError> {
        let (mut parts, mut sums) = (Vec::new(), Sums::default());
        for (n, bytes) in (1..).zip(&interval.parts) {
            let sha256 = sums.add(bytes);
            let stored =
                self.asked("UploadPart", key, || self.uploads.upload_part(key, upload, n, bytes.clone()));
            let etag = stored.await?.ok_or_else(|| gone(key, "its upload went away"))?;
            parts.push(Part { n, etag: etag.0, size: bytes.len() as u64, sha256 });
            if n == 1 {
                point::reach(Point::SinkMidParts);
            }
        }
        if self.check_parts {
            self.check(&parts, key, upload).await?;
        }
        Ok((parts, sums))
    }

    /// That the store lists every part that it confirmed.
    async fn check(&self, parts: &[Part], key: &str, upload: &UploadId) -> Result<(), SinkError> {
        let mut listed: Vec<StoredPart> = Vec::new();
        let mut after = None;
        loop {
            let page = self.asked("ListParts", key, || self.uploads.list_parts(key, upload, after, 1000));
            let page = page.await?.ok_or_else(|| gone(key, "its upload went away"))?;
            listed.extend(page.parts);
            match page.next {
                Some(next) if after.is_none_or(|last| next > last) => after = Some(next),
                Some(_) => return Err(gone(key, "a listing of its parts that goes back")),
                None => break,
            }
        }
        let shown = listed.iter().map(|part| (part.number, part.etag.0.trim_matches('"'), part.size));
        let confirmed = parts.iter().map(|part| (part.n, part.etag.trim_matches('"'), part.size));
        if shown.eq(confirmed) {
            Ok(())
        } else {
            Err(gone(key, "other parts are listed than were confirmed"))
        }
    }
}

/// The store took something back that it had confirmed.
fn gone(key: &str, what: &str) -> SinkError {
    let why = because(what);
    Alarm::Contradiction { key: key.to_owned(), reason: why.reason }.into()
}
