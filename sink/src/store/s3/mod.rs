//! A bucket of an S3 provider, through the AWS SDK.
//!
//! The SDK's retries are off for every verb: a write that took effect, lost its answer and was sent again would
//! come back as one plain 412. It sends no `Expect: 100-continue`. Checksums go along only where S3 demands one:
//! the signature covers the SHA-256 of each body already, and vendors refuse what they do not know of the newer
//! headers.

mod answer;
mod multipart;
mod settings;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::Object as Listed;
use bytes::Bytes;

use self::answer::{outcome, outcome_of_head, unanswered};
pub use self::settings::{Access, Addressing, S3Settings, SettingsError};
pub use self::wire::BodyGate;
use self::wire::Seen;
use super::{Condition, ETag, Object, ObjectMeta, Outcome, Page, Pending, Store};

/// One bucket and the connections to it. Clones share both.
#[derive(Clone, Debug)]
pub struct S3Store {
    client: Client,
    bucket: String,
    request_timeout: Duration,
    gate: Option<Arc<BodyGate>>,
}

impl S3Store {
    /// Over connections of its own; nothing is sent yet.
    ///
    /// # Errors
    /// [`SettingsError`] where a setting cannot be right whatever the provider says.
    pub fn new(settings: &S3Settings, access: &Access) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            client: settings.client(access),
            bucket: settings.bucket.clone(),
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
            gate: None,
        })
    }

    /// The same bucket, in which the bodies of writes stop half way until the gate is opened.
    #[must_use]
    pub fn gated(&self, gate: Arc<BodyGate>) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }

    async fn within<T>(&self, request: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::time::timeout(self.request_timeout, request).await.unwrap_or_else(|_| {
            unanswered(None, format_args!("no answer within {} ms", self.request_timeout.as_millis()))
        })
    }

    async fn send_put(
        &self,
        key: &str,
        bytes: Bytes,
        condition: Condition,
        metadata: &[(String, String)],
    ) -> Outcome<Option<ETag>> {
        let request = self.client.put_object().bucket(&self.bucket).key(key);
        let request = match condition {
            Condition::Absent => request.if_none_match("*"),
            Condition::Matches(etag) => request.if_match(etag.0),
            Condition::None => request,
        };
        let metadata = metadata.iter().cloned().collect();
        let request = request.set_metadata(Some(metadata)).body(ByteStream::from(bytes));
        let seen = Seen::default();
        let request = request.customize().interceptor(seen.clone());
        let request = match &self.gate {
            Some(gate) => request.interceptor(wire::Gated(gate.clone())),
            None => request,
        };
        match request.send().await {
            Ok(_) if seen.contradicted() => unanswered(Some(200), "200 with an error in its body"),
            Ok(answer) => Outcome::Done(answer.e_tag.filter(|etag| !etag.is_empty()).map(ETag)),
            Err(error) => outcome(&error),
        }
    }

    async fn send_get(&self, key: &str) -> Outcome<Object> {
        let seen = Seen::default();
        let request = self.client.get_object().bucket(&self.bucket).key(key);
        let answer = match request.customize().interceptor(seen.clone()).send().await {
            Ok(answer) => answer,
            Err(error) => return outcome(&error),
        };
        if answer.content_range.is_some() {
            return unanswered(Some(206), "a part of the object, and all of it was asked for");
        }
        let mut metadata: Vec<_> = answer.metadata.into_iter().flatten().collect();
        metadata.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        metadata.sort();
        let (etag, modified) = (answer.e_tag, answer.last_modified);
        let bytes = match answer.body.collect().await {
            Ok(body) => body.into_bytes(),
            Err(error) => return unanswered(Some(200), format_args!("the body was cut short: {error}")),
        };
        match meta(key, etag, Some(bytes.len() as u64), modified) {
            Outcome::Done(meta) => {
                Outcome::Done(Object { bytes, meta, metadata, store_date_ms: seen.date_ms() })
            }
            Outcome::Refused(refusal) => Outcome::Refused(refusal),
            Outcome::Missing => Outcome::Missing,
            Outcome::Unknown(reason) => Outcome::Unknown(reason),
        }
    }

    async fn send_head(&self, key: &str) -> Outcome<ObjectMeta> {
        match self.client.head_object().bucket(&self.bucket).key(key).send().await {
            Ok(answer) => {
                let size = answer.content_length.and_then(|size| u64::try_from(size).ok());
                meta(key, answer.e_tag, size, answer.last_modified)
            }
            Err(error) => outcome_of_head(&error),
        }
    }

    async fn send_delete(&self, key: &str, only: Option<ETag>) -> Outcome<()> {
        let request = self.client.delete_object().bucket(&self.bucket).key(key);
        let conditional = only.is_some();
        let request = request.set_if_match(only.map(|etag| etag.0));
        let seen = Seen::default();
        match request.customize().interceptor(seen.clone()).send().await {
            Ok(_) if seen.contradicted() => unanswered(Some(200), "200 with an error in its body"),
            Ok(_) => Outcome::Done(()),
            Err(error) => match outcome(&error) {
                // Some vendors say 404 where AWS says 204: the key is gone either way.
                Outcome::Missing if !conditional => Outcome::Done(()),
                other => other,
            },
        }
    }

    async fn send_list(&self, prefix: &str, token: Option<&str>, limit: u16) -> Outcome<Page> {
        let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let request = request.set_continuation_token(token.map(str::to_owned)).max_keys(i32::from(limit));
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return outcome(&error),
        };
        let next = answer.next_continuation_token.filter(|token| !token.is_empty());
        let truncated = answer.is_truncated.unwrap_or(false);
        if truncated && next.is_none() {
            return unanswered(Some(200), "a truncated page without a token for the next one");
        }
        let listed = answer.contents.unwrap_or_default();
        match listed.into_iter().map(listed_meta).collect() {
            Some(objects) => Outcome::Done(Page { objects, next: next.filter(|_| truncated) }),
            None => unanswered(Some(200), "a page with an object without key, tag, size or date"),
        }
    }
}

fn listed_meta(listed: Listed) -> Option<ObjectMeta> {
    let size = listed.size.and_then(|size| u64::try_from(size).ok());
    match meta(&listed.key?, listed.e_tag, size, listed.last_modified) {
        Outcome::Done(meta) => Some(meta),
        _ => None,
    }
}

/// What an answer says of an object; one that leaves anything out says nothing.
fn meta(
    key: &str,
    etag: Option<String>,
    size: Option<u64>,
    modified: Option<DateTime>,
) -> Outcome<ObjectMeta> {
    let modified = modified.and_then(|date| u64::try_from(date.to_millis().ok()?).ok());
    match (etag.filter(|etag| !etag.is_empty()), size, modified) {
        (Some(etag), Some(size), Some(last_modified_ms)) => {
            Outcome::Done(ObjectMeta { key: key.to_owned(), etag: ETag(etag), size, last_modified_ms })
        }
        (None, ..) => unanswered(Some(200), "an answer without an ETag"),
        (_, None, _) => unanswered(Some(200), "an answer without a size"),
        (.., None) => unanswered(Some(200), "an answer without a readable Last-Modified"),
    }
}

impl Store for S3Store {
    fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        condition: Condition,
        metadata: &'a [(String, String)],
    ) -> Pending<'a, Outcome<Option<ETag>>> {
        Box::pin(self.within(self.send_put(key, bytes, condition, metadata)))
    }

    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<Object>> {
        Box::pin(self.within(self.send_get(key)))
    }

    fn head<'a>(&'a self, key: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
        Box::pin(self.within(self.send_head(key)))
    }

    fn delete<'a>(&'a self, key: &'a str, only: Option<ETag>) -> Pending<'a, Outcome<()>> {
        Box::pin(self.within(self.send_delete(key, only)))
    }

    fn list<'a>(&'a self, prefix: &'a str, token: Option<&'a str>, limit: u16) -> Pending<'a, Outcome<Page>> {
        Box::pin(self.within(self.send_list(prefix, token, limit)))
    }
}
