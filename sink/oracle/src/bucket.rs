//! Reading a bucket: one object, or all keys below a prefix. Nothing here writes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{Credentials, Region, ResponseChecksumValidation};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::tls;
use bytes::Bytes;

/// The longest wait for one answer; a store that needs longer is not there.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Tries of one read: reading again is always the same question.
const TRIES: u32 = 3;

/// Where a bucket is and who reads it.
#[derive(Clone)]
pub struct Access {
    /// `http://host:port` or `https://…`; nothing means AWS.
    pub endpoint: Option<String>,
    /// The region to sign for.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// The bucket in the path and not in the host's name.
    pub path_style: bool,
    /// The access key id.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

/// Why nothing can be said of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store says no: credentials, the bucket's name, a policy. Asking again changes nothing.
    #[error("{request} is refused: {reason}; check the bucket's name, the credentials and their rights")]
    Refused {
        /// What was asked.
        request: String,
        /// The store's answer.
        reason: String,
    },
    /// No answer, or one that is cut or of class 5xx, after all tries.
    #[error("{request} got no answer: {reason}")]
    Unavailable {
        /// What was asked.
        request: String,
        /// What was seen.
        reason: String,
    },
    /// A listing that contradicts itself: what it leaves out can't be told from what is not there.
    #[error("the listing of {prefix:?} can't be trusted: {reason}")]
    Untrusted {
        /// What was listed.
        prefix: String,
        /// Which rule it breaks.
        reason: String,
    },
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its entity tag.
    pub etag: String,
    /// Its size in bytes.
    pub size: u64,
}

/// A version of an object, or the marker of a delete, as a bucket with versions lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The key.
    pub key: String,
    /// The version's id.
    pub id: String,
    /// The version's entity tag; nothing if it is the marker of a delete.
    pub etag: Option<String>,
}

/// A bucket that is only read.
#[derive(Clone, Debug)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    /// Prepares a client; nothing is sent yet.
    #[must_use]
    pub fn new(access: &Access) -> Self {
        Self::patient(access, TRIES, ANSWER_LIMIT)
    }

    /// The same for one that looks again soon anyway: one try, and at most three seconds for an answer.
    #[must_use]
    pub fn impatient(access: &Access) -> Self {
        Self::patient(access, 1, Duration::from_secs(3))
    }

    fn patient(access: &Access, tries: u32, limit: Duration) -> Self {
        let builder = aws_smithy_http_client::Builder::new();
        let plain = access.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let http = if plain {
            builder.build_http()
        } else {
            builder.tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring)).build_https()
        };
        let credentials = Credentials::new(
            access.access_key.clone(),
            access.secret_key.clone(),
            access.session_token.clone(),
            None,
            "environment",
        );
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version_latest()
            .http_client(http)
            .force_path_style(access.path_style)
            .region(Region::new(access.region.clone()))
            .credentials_provider(credentials)
            // The judge compares hashes itself: a body that differs is a finding and no failed read.
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .retry_config(RetryConfig::standard().with_max_attempts(tries))
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(limit).build());
        if let Some(endpoint) = &access.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Self { client: Client::from_conf(config.build()), name: access.bucket.clone() }
    }

    /// Reads an object whole; nothing where there is none.
    ///
    /// # Errors
    /// [`ReadError::Refused`], [`ReadError::Unavailable`].
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, ReadError> {
        self.read(key, None).await
    }

    /// Reads one version of an object whole; nothing where there is none.
    ///
    /// # Errors
    /// [`ReadError::Refused`], [`ReadError::Unavailable`].
    pub async fn version(&self, key: &str, id: &str) -> Result<Option<Bytes>, ReadError> {
        self.read(key, Some(id)).await
    }

    async fn read(&self, key: &str, version: Option<&str>) -> Result<Option<Bytes>, ReadError> {
        let mut cut = String::new();
        for _ in 0..TRIES {
            let request = self.client.get_object().bucket(&self.name).key(key);
            let answer = match request.set_version_id(version.map(str::to_owned)).send().await {
                Ok(answer) => answer,
                Err(error) if matches!(code(&error), Some("NoSuchKey" | "NoSuchVersion")) => return Ok(None),
                Err(error) => return Err(failed(&format!("GetObject {key:?}"), &error)),
            };
            let length = answer.content_length();
            match answer.body.collect().await {
                Ok(body) => {
                    let bytes = body.into_bytes();
                    if length.is_none_or(|length| length == bytes.len() as i64) {
                        return Ok(Some(bytes));
                    }
                    cut = format!("{} bytes of {length:?}", bytes.len());
                }
                Err(why) => cut = why.to_string(),
            }
        }
        Err(ReadError::Unavailable { request: format!("GetObject {key:?}"), reason: cut })
    }

    /// Counts the uploads below `prefix` that were begun and not ended. All of the bucket's are asked for, since
    /// some stores take a prefix for a whole key.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn uploads(&self, prefix: &str) -> Result<u64, ReadError> {
        let mut count = 0;
        let mut marker: Option<(String, String)> = None;
        loop {
            let (key, id) = marker.clone().unzip();
            let request = self.client.list_multipart_uploads().bucket(&self.name);
            let request = request.set_key_marker(key).set_upload_id_marker(id);
            let page = request.send().await.map_err(|error| failed("ListMultipartUploads", &error))?;
            let ours = page
                .uploads()
                .iter()
                .filter(|upload| upload.key().is_some_and(|key| key.starts_with(prefix)));
            count += ours.count() as u64;
            let next = page.next_key_marker().unwrap_or_default().to_owned();
            let next = Some((next, page.next_upload_id_marker().unwrap_or_default().to_owned()));
            if page.is_truncated() != Some(true) {
                return Ok(count);
            }
            if next == marker {
                let reason = "a page of uploads points at itself".to_owned();
                return Err(ReadError::Untrusted { prefix: prefix.to_owned(), reason });
            }
            marker = next;
        }
    }

    /// Lists every version of every key in the bucket, and the markers of deletes, in no order that says anything.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn versions(&self) -> Result<Vec<Version>, ReadError> {
        let mut all = Vec::new();
        let mut from: Option<(String, String)> = None;
        loop {
            let (key, id) = from.clone().unzip();
            let request = self.client.list_object_versions().bucket(&self.name);
            let request = request.set_key_marker(key).set_version_id_marker(id);
            let page = request.send().await.map_err(|error| failed("ListObjectVersions", &error))?;
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            all.extend(page.versions().iter().map(|of| Version {
                key: text(of.key()),
                id: text(of.version_id()),
                etag: Some(text(of.e_tag())),
            }));
            all.extend(page.delete_markers().iter().map(|of| Version {
                key: text(of.key()),
                id: text(of.version_id()),
                etag: None,
            }));
            if page.is_truncated() != Some(true) {
                return Ok(all);
            }
            let next = Some((text(page.next_key_marker()), text(page.next_version_id_marker())));
            if next == from {
                let reason = "a page of versions points at itself".to_owned();
                return Err(ReadError::Untrusted { prefix: String::new(), reason });
            }
            from = next;
        }
    }

    /// Lists every key below `prefix`, strictly: sorted, each once, all pages.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn list(&self, prefix: &str) -> Result<BTreeMap<String, Listed>, ReadError> {
        let untrusted = |reason: String| ReadError::Untrusted { prefix: prefix.to_owned(), reason };
        let mut all = BTreeMap::new();
        let mut token: Option<String> = None;
        let mut last: Option<String> = None;
        loop {
            let request = self.client.list_objects_v2().bucket(&self.name).prefix(prefix);
            let page = request
                .set_continuation_token(token.clone())
                .send()
                .await
                .map_err(|error| failed(&format!("ListObjectsV2 {prefix:?}"), &error))?;
            for object in page.contents() {
                let key = object.key().unwrap_or_default().to_owned();
                if !key.starts_with(prefix) {
                    return Err(untrusted(format!("key {key:?} is outside")));
                }
                if last.as_ref().is_some_and(|last| *last >= key) {
                    return Err(untrusted(format!("key {key:?} comes after {last:?}")));
                }
                let size = object.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
                all.insert(key.clone(), Listed { etag: object.e_tag().unwrap_or_default().to_owned(), size });
                last = Some(key);
            }
            if page.is_truncated() != Some(true) {
                return Ok(all);
            }
            let next = page.next_continuation_token().map(str::to_owned);
            if next.is_none() || next == token {
                return Err(untrusted("a page is truncated and names no next one".to_owned()));
            }
            token = next;
        }
    }
}

fn code<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

/// A 4xx is a refusal, everything else no answer. The context of an SDK error holds no credentials.
fn failed<E: ProvideErrorMetadata + std::error::Error + 'static>(
    request: &str,
    error: &SdkError<E>,
) -> ReadError {
    let status = error.raw_response().map(|answer| answer.status().as_u16());
    let reason = match (status, code(error)) {
        (Some(status), Some(code)) => format!("{status} {code}"),
        (Some(status), None) => status.to_string(),
        _ => DisplayErrorContext(error).to_string(),
    };
    let request = request.to_owned();
    match status {
        Some(408 | 429) => ReadError::Unavailable { request, reason },
        Some(400..=499) => ReadError::Refused { request, reason },
        _ => ReadError::Unavailable { request, reason },
    }
}
