//! What the store refuses, as S3 words it.

use crate::error::{Code, S3Error};
use crate::precondition::Refusal;
use crate::store::index::IndexError;
use crate::store::{Completion, MIN_PART_BYTES, StoreError};

impl From<StoreError> for S3Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchBucket(name) => S3Error::new(Code::NoSuchBucket).extra("BucketName", name),
            StoreError::BucketExists(name) => {
                S3Error::new(Code::BucketAlreadyOwnedByYou).extra("BucketName", name)
            }
            StoreError::BucketNotEmpty { name, versioned } => {
                let error = S3Error::new(Code::BucketNotEmpty).extra("BucketName", name);
                if versioned {
                    return error.message(
                        "The bucket you tried to delete is not empty. You must delete all versions in the bucket.",
                    );
                }
                error
            }
            StoreError::NoSuchKey { key, marker } => {
                let error = S3Error::new(Code::NoSuchKey).extra("Key", key);
                match marker {
                    Some(id) => {
                        error.header("x-amz-delete-marker", "true").header("x-amz-version-id", id.as_str())
                    }
                    None => error,
                }
            }
            StoreError::NoSuchVersion { key, version } => {
                S3Error::new(Code::NoSuchVersion).extra("Key", key).extra("VersionId", version)
            }
            StoreError::IsMarker(id, last_modified) => S3Error::new(Code::MethodNotAllowed)
                .header("x-amz-delete-marker", "true")
                .header("x-amz-version-id", id.as_str())
                .header("last-modified", last_modified.http_date())
                .header("allow", "DELETE"),
            StoreError::NoSuchUpload(id) => S3Error::new(Code::NoSuchUpload).extra("UploadId", id),
            StoreError::Refused { refusal, key } => match refusal {
                Refusal::Absent => S3Error::new(Code::NoSuchKey).extra("Key", key),
                Refusal::Failed(condition) => {
                    S3Error::new(Code::PreconditionFailed).extra("Condition", condition)
                }
                Refusal::Conflict(condition) => S3Error::new(Code::ConditionalRequestConflict)
                    .extra("Condition", condition)
                    .extra("Key", key),
            },
            StoreError::InvalidPart { upload, number, etag } => S3Error::new(Code::InvalidPart)
                .extra("UploadId", upload)
                .extra("PartNumber", number.to_string())
                .extra("ETag", etag),
            StoreError::PartTooSmall { number, size, etag } => S3Error::new(Code::EntityTooSmall)
                .extra("ProposedSize", size.to_string())
                .extra("MinSizeAllowed", MIN_PART_BYTES.to_string())
                .extra("PartNumber", number.to_string())
                .extra("ETag", etag),
            StoreError::Completion(problem) => problem.into(),
            StoreError::Index(IndexError::Unavailable { .. }) => {
                tracing::error!(%error, "the index is unavailable");
                S3Error::new(Code::ServiceUnavailable)
            }
            error @ (StoreError::Index(_) | StoreError::Blob(_)) => {
                tracing::error!(%error, "the store failed");
                S3Error::new(Code::InternalError)
            }
        }
    }
}

impl From<Completion> for S3Error {
    fn from(problem: Completion) -> Self {
        match problem {
            Completion::Size { expected, actual } => S3Error::new(Code::InvalidRequest).message(format!(
                "The provided 'x-amz-mp-object-size' header value {expected} does not match what was computed: {actual}"
            )),
            Completion::Checksum(algorithm) => S3Error::new(Code::BadDigest).message(format!(
                "The {} you specified did not match the calculated checksum.",
                algorithm.lower()
            )),
            Completion::PartChecksum { number, algorithm } => S3Error::new(Code::BadDigest).message(format!(
                "The {} you specified for part {number} did not match what we received.",
                algorithm.lower()
            )),
            Completion::PartChecksumMissing { number, algorithm } => {
                S3Error::new(Code::InvalidRequest).message(format!(
                    "The upload was created using a {} checksum. The complete request must include the checksum for each part. It was missing for part {number} in the request.",
                    algorithm.lower()
                ))
            }
        }
    }
}
