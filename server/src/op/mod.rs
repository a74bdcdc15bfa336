//! One file per group of operations: parse, apply, answer.

mod attributes;
mod bucket;
mod commit;
mod copy;
mod delete;
mod deviant;
mod encoded_word;
mod intake;
mod lifecycle;
mod list;
mod list_objects;
mod multipart;
mod object;
mod object_attributes;
mod refusal;
mod tagging;

pub(crate) use self::commit::to_its_end;
pub(crate) use self::deviant::{State, ask, needs_no_store};

use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::error::{Code, S3Error};
use crate::etag::quoted;
use crate::lifecycle::Due;
use crate::names::VersionId;
use crate::precondition::WriteCondition;
use crate::route::{Operation, Target};
use crate::service::Call;
use crate::stream::Body;
use crate::xml::Writer;

/// The canonical user id of the one account that owns everything here.
pub(crate) const OWNER_ID: &str = "a55a7000000000000000000000000000000000000000000000000000000a55a7";
/// That account's name, where a document still has one.
pub(crate) const OWNER_NAME: &str = "assay";
/// That account's number.
pub(crate) const ACCOUNT: &str = "000000000000";

type Answer = Result<Response<Body>, S3Error>;

/// Performs a routed operation.
pub(crate) async fn perform(operation: Operation, target: Target, call: &mut Call<'_>) -> Answer {
    if call.acting.set().is_empty() {
        return dispatch(operation, target, call).await;
    }
    Box::pin(deviant::perform(operation, target, call)).await
}

async fn dispatch(operation: Operation, target: Target, call: &mut Call<'_>) -> Answer {
    use Operation as Op;
    if let Op::Unsupported(name) = operation {
        return Err(unsupported(name, operation, &target, call));
    }
    attributes::check_expected_owner(&call.head.headers)?;
    match target {
        Target::Service => bucket::list(call),
        Target::Bucket(bucket) => match operation {
            Op::CreateBucket => bucket::create(call, &bucket).await,
            Op::DeleteBucket => bucket::delete(call, &bucket).await,
            Op::HeadBucket => bucket::head(call, &bucket),
            Op::GetBucketLocation => bucket::location(call, &bucket),
            Op::GetBucketVersioning => bucket::versioning(call, &bucket),
            Op::PutBucketVersioning => bucket::put_versioning(call, &bucket).await,
            Op::GetBucketTagging => tagging::get_bucket(call, &bucket),
            Op::PutBucketTagging => tagging::put_bucket(call, &bucket).await,
            Op::DeleteBucketTagging => tagging::delete_bucket(call, &bucket).await,
            Op::GetBucketLifecycleConfiguration => lifecycle::get(call, &bucket),
            Op::PutBucketLifecycleConfiguration => lifecycle::put(call, &bucket).await,
            Op::DeleteBucketLifecycle => lifecycle::delete(call, &bucket).await,
            Op::ListObjects => list_objects::v1(call, &bucket),
            Op::ListObjectsV2 => list_objects::v2(call, &bucket),
            Op::ListObjectVersions => list::versions(call, &bucket),
            Op::ListMultipartUploads => list::uploads(call, &bucket),
            Op::DeleteObjects => delete::many(call, &bucket).await,
            other => unreachable!("{other:?} is not routed to a bucket"),
        },
        Target::Object(bucket, key) => match operation {
            Op::GetObject => object::get(call, &bucket, &key),
            Op::HeadObject => object::head(call, &bucket, &key),
            Op::PutObject => object::put(call, &bucket, &key).await,
            Op::DeleteObject => delete::one(call, &bucket, &key).await,
            Op::CopyObject => copy::whole(call, &bucket, &key).await,
            Op::GetObjectAttributes => object_attributes::get(call, &bucket, &key),
            Op::GetObjectTagging => tagging::get_object(call, &bucket, &key),
            Op::PutObjectTagging => tagging::put_object(call, &bucket, &key).await,
            Op::DeleteObjectTagging => tagging::delete_object(call, &bucket, &key).await,
            Op::CreateMultipartUpload => multipart::create(call, &bucket, &key).await,
            Op::UploadPart => multipart::upload_part(call, &bucket, &key).await,
            Op::UploadPartCopy => copy::part(call, &bucket, &key).await,
            Op::CompleteMultipartUpload => multipart::complete(call, &bucket, &key).await,
            Op::AbortMultipartUpload => multipart::abort(call, &bucket, &key).await,
            Op::ListParts => multipart::list_parts(call, &bucket, &key),
            other => unreachable!("{other:?} is not routed to an object"),
        },
    }
}

/// Refuses an operation by name. A request that no server could fulfil, for another account's bucket or for
/// none, is refused for that.
fn unsupported(name: &'static str, operation: Operation, target: &Target, call: &Call<'_>) -> S3Error {
    let fault = match target {
        Target::Bucket(bucket) | Target::Object(bucket, _) if !operation.comes_unsigned() => {
            attributes::check_expected_owner(&call.head.headers)
                .and_then(|()| Ok(call.store.bucket(bucket).map(drop)?))
        }
        _ => Ok(()),
    };
    fault.err().unwrap_or_else(|| {
        S3Error::new(Code::NotImplemented)
            .message(format!("this server does not implement the operation {name}"))
            .extra("Operation", name)
    })
}

/// An answer without a body.
fn answer(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A document.
fn document(root: &str, content: impl FnOnce(&mut Writer)) -> Response<Body> {
    let mut response = Response::new(Body::from(Writer::document(root, content)));
    set(&mut response, "content-type", "application/xml");
    response
}

/// Sets a header. A value that no header can carry is left out: it was refused where it came in.
fn set(response: &mut Response<Body>, name: &'static str, value: impl AsRef<[u8]>) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_ref()) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}

fn set_version(response: &mut Response<Body>, version: Option<&VersionId>) {
    if let Some(version) = version {
        set(response, "x-amz-version-id", version.as_str());
    }
}

/// When the object expires, and by which rule (S3 API Reference, `x-amz-expiration`: the rule's id is URL-encoded).
fn set_expiry(response: &mut Response<Body>, expiry: Option<&Due>) {
    if let Some(Due { at, rule }) = expiry {
        let rule = list::url_encoded(rule);
        set(response, "x-amz-expiration", format!("expiry-date=\"{}\", rule-id=\"{rule}\"", at.http_date()));
    }
}

/// Every object is answered as encrypted with S3's own keys, as on AWS since January 2023.
fn set_encryption(response: &mut Response<Body>) {
    set(response, "x-amz-server-side-encryption", "AES256");
}

fn invalid_argument(name: &str, value: &str, message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::new(Code::InvalidArgument)
        .message(message)
        .extra("ArgumentName", name)
        .extra("ArgumentValue", value)
}

/// The ETag of a new object, on a server where it may be another than AWS makes.
fn made_etag(condition: &WriteCondition, etag: String) -> String {
    match condition.bent() {
        Some(bent) => bent.made_etag(etag),
        None => etag,
    }
}

/// The ETag element or header of a stored object.
fn etag_of(etag: &str) -> String {
    quoted(etag)
}
