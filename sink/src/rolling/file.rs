//! One growing file: rows that were acknowledged, in memory or in parts of an upload that nobody sees yet.

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::env::Env;
use crate::error::SinkError;
use crate::run::patience::{Patience, because, denied};
use crate::sink::EncodedObject;
use crate::store::multipart::{MultipartStore, PartRef, UploadId};
use crate::store::{Outcome, Pending, Refusal};

/// Where files go, and how long each question is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door<'a> {
    pub(super) env: &'a Env,
    pub(super) uploads: &'a dyn MultipartStore,
    pub(super) patience_ms: u64,
    pub(super) part_bytes: usize,
}

/// A file that is not in the bucket yet.
#[derive(Debug)]
pub(super) struct File {
    pub(super) key: String,
    pub(super) opened: Instant,
    /// Bytes of it so far.
    pub(super) bytes: u64,
    pub(super) rows: u64,
    waiting: BytesMut,
    upload: Option<UploadId>,
    parts: Vec<PartRef>,
}

impl File {
    pub(super) fn new(key: String, opened: Instant) -> Self {
        Self { key, opened, bytes: 0, rows: 0, waiting: BytesMut::new(), upload: None, parts: Vec::new() }
    }

    /// Rows behind those that are in: lines follow lines, and so do members of gzip and frames of zstd.
    pub(super) fn append(&mut self, object: &EncodedObject) {
        self.waiting.extend_from_slice(&object.bytes);
        self.bytes += object.bytes.len() as u64;
        self.rows += object.rows;
    }

    /// Sends what fills whole parts.
    pub(super) async fn send_full_parts(&mut self, door: Door<'_>) -> Result<(), SinkError> {
        while self.waiting.len() >= door.part_bytes {
            let part = self.waiting.split_to(door.part_bytes).freeze();
            self.send(door, part).await?;
        }
        Ok(())
    }

    /// Sends the rest and makes the file visible.
    pub(super) async fn finish(&mut self, door: Door<'_>) -> Result<(), SinkError> {
        let rest = self.waiting.split().freeze();
        if !rest.is_empty() || self.parts.is_empty() {
            self.send(door, rest).await?;
        }
        let upload = self.upload(door).await?;
        let (key, parts) = (&self.key, &self.parts);
        let mut asked = 0;
        let completed = door
            .ask("CompleteMultipartUpload", key, || {
                asked += 1;
                door.uploads.complete(key, &upload, parts)
            })
            .await?;
        if completed.is_none() && !(asked > 1 && self.is_there(door).await?) {
            return Err(self.gone());
        }
        tracing::info!(key = self.key, rows = self.rows, bytes = self.bytes, "rolled");
        Ok(())
    }

    async fn send(&mut self, door: Door<'_>, part: Bytes) -> Result<(), SinkError> {
        let upload = self.upload(door).await?;
        let number = u16::try_from(self.parts.len() + 1).unwrap_or(u16::MAX);
        let key = &self.key;
        let sent =
            door.ask("UploadPart", key, || door.uploads.upload_part(key, &upload, number, part.clone()));
        let Some(etag) = sent.await? else { return Err(self.gone()) };
        self.parts.push(PartRef { number, etag });
        Ok(())
    }

    async fn upload(&mut self, door: Door<'_>) -> Result<UploadId, SinkError> {
        if let Some(upload) = &self.upload {
            return Ok(upload.clone());
        }
        let key = &self.key;
        let begun = door.ask("CreateMultipartUpload", key, || door.uploads.create_upload(key, &[])).await?;
        let upload = begun.ok_or_else(|| self.gone())?;
        self.upload = Some(upload.clone());
        Ok(upload)
    }

    /// An upload that is unknown after an unanswered Complete may just be done.
    async fn is_there(&self, door: Door<'_>) -> Result<bool, SinkError> {
        let mut found = door.ask("HEAD", &self.key, || door.uploads.head(&self.key)).await?;
        if found.is_none() {
            // A HEAD's 404 may be any proxy's.
            let read = door.ask("GET", &self.key, || door.uploads.get(&self.key)).await?;
            found = read.map(|object| object.meta);
        }
        Ok(found.is_some_and(|meta| meta.size == self.bytes))
    }

    fn gone(&self) -> SinkError {
        denied(
            "an upload",
            &self.key,
            Refusal::Denied {
                status: 404,
                code: "NoSuchUpload".to_owned(),
                message: format!(
                    "bucket or upload is gone, and with it {} rows that legacy_rolling had acknowledged",
                    self.rows
                ),
            },
        )
    }
}

impl Door<'_> {
    /// Asks until there is an answer or patience ends; nothing is 404.
    async fn ask<'a, T>(
        self,
        request: &'static str,
        key: &str,
        mut question: impl FnMut() -> Pending<'a, Outcome<T>>,
    ) -> Result<Option<T>, SinkError> {
        let mut patience = Patience::limited(self.patience_ms);
        loop {
            let why = match question().await {
                Outcome::Done(answer) => return Ok(Some(answer)),
                Outcome::Missing => return Ok(None),
                Outcome::Refused(Refusal::Conflict) => because("409"),
                Outcome::Refused(refusal) => return Err(denied(request, key, refusal)),
                Outcome::Unknown(why) => why,
            };
            patience.pause(self.env, request, key, &why).await?;
        }
    }
}
