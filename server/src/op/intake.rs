//! Bodies in: an object's bytes into the store, or a small document into memory.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::timeout;

use crate::body::{BodyPlan, BodyReader, BodySummary, DigestForm};
use crate::checksum::{Algorithm, Hasher, Value};
use crate::error::{Code, S3Error};
use crate::service::{Call, RequestBody};
use crate::store::{Draft, StoreError};
use crate::xml::{self, Element};

/// Largest body of one request, in bytes: 5 GiB (S3 User Guide, "Uploading objects").
pub(super) const MAX_BODY_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// Largest document, in bytes: 10,000 parts or 1,000 keys of full length with room to spare.
const MAX_DOCUMENT_BYTES: u64 = 8 * 1024 * 1024;

/// How long a body may stop arriving before its request is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A body that was taken in and is what its request said it would be.
pub(super) struct Intake {
    pub(super) body: Draft,
    pub(super) summary: BodySummary,
    /// The checksum asked for beside the client's own.
    pub(super) also: Option<Value>,
}

/// Streams the request's body into the store. Nothing is stored yet: the result is dropped, or committed.
///
/// # Errors
/// `EntityTooLarge`, and every way in which a body is not what its head says.
pub(super) async fn body(
    call: &mut Call<'_>,
    digest_form: DigestForm,
    default: Option<Algorithm>,
    also: Option<Algorithm>,
) -> Result<Intake, S3Error> {
    let plan = BodyPlan::from_headers(&call.head.headers, &mut call.verified, digest_form, default)?;
    if plan.size > MAX_BODY_BYTES {
        return Err(S3Error::new(Code::EntityTooLarge)
            .extra("ProposedSize", plan.size.to_string())
            .extra("MaxSizeAllowed", MAX_BODY_BYTES.to_string()));
    }
    let known = plan.requested.algorithm().or(default);
    let mut second = also.filter(|also| Some(*also) != known).map(Hasher::new);
    let mut writer = call.store.writer(plan.size);
    let mut reader = BodyReader::new(&mut *call.body, plan);
    while let Some(bytes) = next(&mut reader).await? {
        if let Some(hasher) = &mut second {
            hasher.update(&bytes);
        }
        writer.write(&bytes).await.map_err(StoreError::Blob)?;
    }
    let summary = reader.finish()?;
    let also = match second {
        Some(hasher) => Some(hasher.finish()),
        None => summary.checksum.filter(|checksum| Some(checksum.algorithm()) == also),
    };
    Ok(Intake { body: writer.finish().await.map_err(StoreError::Blob)?, summary, also })
}

/// Reads a request's document; `None` where the body is empty.
///
/// # Errors
/// `MalformedXML`, `MaxMessageLengthExceeded`, and those of [`body`].
pub(super) async fn document(call: &mut Call<'_>, root: &str) -> Result<Option<Element>, S3Error> {
    read_document(call, &call.head.headers, root).await
}

/// The same for a request whose checksum headers are not about its body.
pub(super) async fn document_without_checksum(
    call: &mut Call<'_>,
    root: &str,
) -> Result<Option<Element>, S3Error> {
    let mut headers = call.head.headers.clone();
    for algorithm in Algorithm::ALL {
        headers.remove(algorithm.header());
    }
    read_document(call, &headers, root).await
}

async fn read_document(
    call: &mut Call<'_>,
    headers: &HeaderMap,
    root: &str,
) -> Result<Option<Element>, S3Error> {
    if !headers.contains_key("content-length") && !headers.contains_key("transfer-encoding") {
        return Ok(None);
    }
    let plan = BodyPlan::from_headers(headers, &mut call.verified, DigestForm::Base64, None)?;
    if plan.size > MAX_DOCUMENT_BYTES {
        return Err(S3Error::new(Code::MaxMessageLengthExceeded)
            .extra("MaxMessageLengthBytes", MAX_DOCUMENT_BYTES.to_string()));
    }
    let mut reader = BodyReader::new(&mut *call.body, plan);
    let mut document = Vec::new();
    while let Some(bytes) = next(&mut reader).await? {
        document.extend_from_slice(&bytes);
    }
    reader.finish()?;
    if document.is_empty() { Ok(None) } else { xml::parse(&document, root).map(Some) }
}

async fn next(reader: &mut BodyReader<&mut RequestBody>) -> Result<Option<Bytes>, S3Error> {
    timeout(IDLE_TIMEOUT, reader.next()).await.unwrap_or_else(|_| Err(S3Error::new(Code::RequestTimeout)))
}
