//! Uploads in parts, through the AWS SDK, whose retries are off here as everywhere.

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;

use super::answer::{outcome, outcome_of_head, unanswered};
use super::wire::Seen;
use super::{S3Store, meta};
use crate::store::multipart::{
    Described, MultipartStore, OpenUpload, PartPage, PartRef, StoredPart, UploadId, UploadPage,
};
use crate::store::{ETag, Outcome, Pending};

/// A tag that is none says nothing.
fn tagged(etag: Option<String>, of: &str) -> Outcome<ETag> {
    match etag.filter(|etag| !etag.is_empty()) {
        Some(etag) => Outcome::Done(ETag(etag)),
        None => unanswered(Some(200), format_args!("{of} without an ETag")),
    }
}

impl S3Store {
    async fn send_create_upload(&self, key: &str, metadata: &[(String, String)]) -> Outcome<UploadId> {
        let request = self.client.create_multipart_upload().bucket(&self.bucket).key(key);
        let request = request.set_metadata(Some(metadata.iter().cloned().collect()));
        match request.send().await {
            Ok(answer) => match answer.upload_id.filter(|id| !id.is_empty()) {
                Some(id) => Outcome::Done(UploadId(id)),
                None => unanswered(Some(200), "an answer without an upload id"),
            },
            Err(error) => outcome(&error),
        }
    }

    async fn send_part(&self, key: &str, upload: &UploadId, number: u16, bytes: Bytes) -> Outcome<ETag> {
        let request = self.client.upload_part().bucket(&self.bucket).key(key).upload_id(&upload.0);
        let request = request.part_number(number.into()).body(ByteStream::from(bytes));
        let seen = Seen::default();
        match request.customize().interceptor(seen.clone()).send().await {
            Ok(_) if seen.contradicted() => unanswered(Some(200), "200 with an error in its body"),
            Ok(answer) => tagged(answer.e_tag, "a part"),
            Err(error) => outcome(&error),
        }
    }

    async fn send_complete(&self, key: &str, upload: &UploadId, parts: &[PartRef]) -> Outcome<ETag> {
        let named = parts.iter().map(|part| {
            CompletedPart::builder().part_number(part.number.into()).e_tag(part.etag.0.clone()).build()
        });
        let named = CompletedMultipartUpload::builder().set_parts(Some(named.collect())).build();
        let request = self.client.complete_multipart_upload().bucket(&self.bucket).key(key);
        let request = request.upload_id(&upload.0).multipart_upload(named);
        let seen = Seen::default();
        match request.customize().interceptor(seen.clone()).send().await {
            Ok(_) if seen.contradicted() => unanswered(Some(200), "200 with an error in its body"),
            Ok(answer) => tagged(answer.e_tag, "a result"),
            Err(error) => outcome(&error),
        }
    }

    async fn send_abort(&self, key: &str, upload: &UploadId) -> Outcome<()> {
        let request = self.client.abort_multipart_upload().bucket(&self.bucket).key(key);
        match request.upload_id(&upload.0).send().await {
            Ok(_) => Outcome::Done(()),
            Err(error) => match outcome(&error) {
                Outcome::Missing => Outcome::Done(()),
                other => other,
            },
        }
    }

    async fn send_list_uploads(&self, after: Option<&(String, UploadId)>, limit: u16) -> Outcome<UploadPage> {
        let request = self.client.list_multipart_uploads().bucket(&self.bucket);
        let request = request.max_uploads(limit.into());
        let request = request.set_key_marker(after.map(|(key, _)| key.clone()));
        let request = request.set_upload_id_marker(after.map(|(_, id)| id.0.clone()));
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return outcome(&error),
        };
        let marker = |text: Option<String>| text.filter(|text| !text.is_empty());
        let next = marker(answer.next_key_marker).zip(marker(answer.next_upload_id_marker));
        let truncated = answer.is_truncated.unwrap_or(false);
        if truncated && next.is_none() {
            return unanswered(Some(200), "a truncated page without markers for the next one");
        }
        let listed = answer.uploads.unwrap_or_default().into_iter().map(|upload| {
            let initiated = upload.initiated.and_then(|date| date.to_millis().ok());
            Some(OpenUpload {
                key: upload.key?,
                upload: UploadId(upload.upload_id?),
                initiated_ms: initiated.and_then(|ms| u64::try_from(ms).ok()),
            })
        });
        match listed.collect() {
            Some(uploads) => {
                let next = next.filter(|_| truncated).map(|(key, id)| (key, UploadId(id)));
                Outcome::Done(UploadPage { uploads, next })
            }
            None => unanswered(Some(200), "a page with an upload without key or id"),
        }
    }

    async fn send_list_parts(
        &self,
        key: &str,
        upload: &UploadId,
        after: Option<u16>,
        limit: u16,
    ) -> Outcome<PartPage> {
        let request = self.client.list_parts().bucket(&self.bucket).key(key).upload_id(&upload.0);
        let request = request.max_parts(limit.into());
        let request = request.set_part_number_marker(after.map(|number| number.to_string()));
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return outcome(&error),
        };
        let next = answer.next_part_number_marker.and_then(|number| number.parse().ok());
        let truncated = answer.is_truncated.unwrap_or(false);
        if truncated && next.is_none() {
            return unanswered(Some(200), "a truncated page without a marker for the next one");
        }
        let listed = answer.parts.unwrap_or_default().into_iter().map(|part| {
            Some(StoredPart {
                number: part.part_number.and_then(|number| u16::try_from(number).ok())?,
                etag: ETag(part.e_tag.filter(|etag| !etag.is_empty())?),
                size: part.size.and_then(|size| u64::try_from(size).ok())?,
            })
        });
        match listed.collect() {
            Some(parts) => Outcome::Done(PartPage { parts, next: next.filter(|_| truncated) }),
            None => unanswered(Some(200), "a page with a part without number, tag or size"),
        }
    }

    async fn send_describe(&self, key: &str) -> Outcome<Described> {
        let answer = match self.client.head_object().bucket(&self.bucket).key(key).send().await {
            Ok(answer) => answer,
            Err(error) => return outcome_of_head(&error),
        };
        let mut metadata: Vec<_> = answer.metadata.into_iter().flatten().collect();
        metadata.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        metadata.sort();
        let size = answer.content_length.and_then(|size| u64::try_from(size).ok());
        match meta(key, answer.e_tag, size, answer.last_modified) {
            Outcome::Done(meta) => Outcome::Done(Described { meta, metadata }),
            Outcome::Refused(refusal) => Outcome::Refused(refusal),
            Outcome::Missing => Outcome::Missing,
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

impl MultipartStore for S3Store {
    fn create_upload<'a>(
        &'a self,
        key: &'a str,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<UploadId>> {
        Box::pin(self.within(self.send_create_upload(key, metadata)))
    }

    fn upload_part<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        number: u16,
        bytes: Bytes,
    ) -> Pending<'a, Outcome<ETag>> {
        Box::pin(self.within(self.send_part(key, upload, number, bytes)))
    }

    fn complete<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        parts: &'a [PartRef],
    ) -> Pending<'a, Outcome<ETag>> {
        Box::pin(self.within(self.send_complete(key, upload, parts)))
    }

    fn abort<'a>(&'a self, key: &'a str, upload: &'a UploadId) -> Pending<'a, Outcome<()>> {
        Box::pin(self.within(self.send_abort(key, upload)))
    }

    fn list_uploads<'a>(
        &'a self,
        after: Option<&'a (String, UploadId)>,
        limit: u16,
    ) -> Pending<'a, Outcome<UploadPage>> {
        Box::pin(self.within(self.send_list_uploads(after, limit)))
    }

    fn list_parts<'a>(
        &'a self,
        key: &'a str,
        upload: &'a UploadId,
        after: Option<u16>,
        limit: u16,
    ) -> Pending<'a, Outcome<PartPage>> {
        Box::pin(self.within(self.send_list_parts(key, upload, after, limit)))
    }

    fn describe<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Described>> {
        Box::pin(self.within(self.send_describe(key)))
    }
}
