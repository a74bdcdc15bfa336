//! A multipart upload, step by step.

use crate::call::Call;
use crate::check::Stop;
use crate::trial::Trial;
use crate::xml;
use bytes::Bytes;
use http::Method;

/// A multipart upload of one part, as far as checks need one.
pub(crate) struct Upload {
    pub key: String,
    pub id: String,
    pub part: String,
}

impl Upload {
    /// Creates an upload and sends its one part, as preparation.
    pub(crate) async fn start(t: &Trial, key: &str, body: &Bytes) -> Result<Upload, Stop> {
        let mut upload = Upload::open(t, Call::new(Method::POST, Some(key))).await?;
        upload.part = upload.send(t, 1, body).await?;
        Ok(upload)
    }

    /// Creates an upload without parts by a POST on a key, as preparation.
    pub(crate) async fn open(t: &Trial, post: Call) -> Result<Upload, Stop> {
        let key = post.key.clone().unwrap_or_default();
        let answer = t.send(post.query("uploads", "")).await?;
        let id = answer.element("UploadId").unwrap_or_default();
        if !answer.succeeded() || id.is_empty() {
            return Err(Stop::unprepared("CreateMultipartUpload", &answer));
        }
        Ok(Upload { key, id, part: String::new() })
    }

    /// UploadPart without its body, to which the check adds it.
    pub(crate) fn part(&self, number: u32) -> Call {
        Call::new(Method::PUT, Some(&self.key))
            .query("partNumber", &number.to_string())
            .query("uploadId", &self.id)
    }

    /// Sends a part, as preparation; gives its ETag.
    pub(crate) async fn send(&self, t: &Trial, number: u32, body: &Bytes) -> Result<String, Stop> {
        let answer = t.send(self.part(number).body(body.clone())).await?;
        if !answer.succeeded() || answer.etag().is_empty() {
            return Err(Stop::unprepared("UploadPart", &answer));
        }
        Ok(answer.etag().to_owned())
    }

    /// CompleteMultipartUpload of the one part, to which the check adds its condition.
    pub(crate) fn complete(&self) -> Call {
        self.complete_of(&[(1, &self.part)])
    }

    /// CompleteMultipartUpload of these parts: numbers and ETags, in this order.
    pub(crate) fn complete_of(&self, parts: &[(u32, &str)]) -> Call {
        let parts: String = parts
            .iter()
            .map(|(number, etag)| {
                let etag = xml::escape(etag);
                format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
            })
            .collect();
        self.finish(&parts)
    }

    /// CompleteMultipartUpload with this inside.
    pub(crate) fn finish(&self, parts: &str) -> Call {
        let document = format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{parts}\
             </CompleteMultipartUpload>"
        );
        Call::new(Method::POST, Some(&self.key)).query("uploadId", &self.id).body(document)
    }

    /// ListParts.
    pub(crate) fn list(&self) -> Call {
        Call::get(&self.key).query("uploadId", &self.id)
    }

    /// AbortMultipartUpload.
    pub(crate) fn abort(&self) -> Call {
        Call::delete(&self.key).query("uploadId", &self.id)
    }

    /// Makes an object by multipart, as preparation; gives its ETag.
    pub(crate) async fn whole(t: &Trial, key: &str, body: &Bytes) -> Result<String, Stop> {
        let upload = Upload::start(t, key, body).await?;
        let answer = t.send(upload.complete()).await?;
        match answer.element("ETag") {
            Some(etag) if answer.succeeded() => Ok(etag),
            _ => Err(Stop::unprepared("CompleteMultipartUpload", &answer)),
        }
    }
}
