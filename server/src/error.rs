//! The S3 error table: one row per code, with its HTTP status and the message AWS sends with it.
//!
//! Source: Amazon S3 API Reference, "Error responses", "List of error codes"; messages as recorded from AWS where
//! a recording exists.

use std::borrow::Cow;
use std::fmt;

/// An S3 error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The caller may not do this, or nobody said who the caller is.
    AccessDenied,
    /// The `Authorization` header cannot be read, or names another region, service or day.
    AuthorizationHeaderMalformed,
    /// The `X-Amz-*` query parameters of a presigned request are incomplete or cannot be read.
    AuthorizationQueryParametersError,
    /// A digest or checksum that the client sent does not fit the body.
    BadDigest,
    /// The caller has this bucket already.
    BucketAlreadyOwnedByYou,
    /// A bucket with objects is not deleted.
    BucketNotEmpty,
    /// Another write or delete of the key came between; nothing was written.
    ConditionalRequestConflict,
    /// The body is larger than one request may be.
    EntityTooLarge,
    /// A part other than the last is smaller than 5 MiB.
    EntityTooSmall,
    /// The bucket's region is not this endpoint's.
    IllegalLocationConstraintException,
    /// A versioning configuration without a status.
    IllegalVersioningConfigurationException,
    /// The body ended early, or its framing is broken.
    IncompleteBody,
    /// Something failed on this side.
    InternalError,
    /// No such access key.
    InvalidAccessKeyId,
    /// An argument has a value that is not allowed.
    InvalidArgument,
    /// The bucket's name breaks the naming rules.
    InvalidBucketName,
    /// `x-amz-expected-bucket-owner` is not twelve digits.
    InvalidBucketOwnerAWSAccountID,
    /// A chunk of an aws-chunked body is too small to be followed by another.
    InvalidChunkSizeError,
    /// `Content-MD5` is not the base64 form of 16 bytes.
    InvalidDigest,
    /// No such region.
    InvalidLocationConstraint,
    /// The object's bytes are in an archive.
    InvalidObjectState,
    /// A listed part is not there, or has another ETag.
    InvalidPart,
    /// `partNumber` lies past the last part.
    InvalidPartNumber,
    /// The listed parts do not ascend.
    InvalidPartOrder,
    /// The range lies outside the object.
    InvalidRange,
    /// The request contradicts itself or a rule of the operation.
    InvalidRequest,
    /// No such storage class.
    InvalidStorageClass,
    /// A tag breaks the rules for tags.
    InvalidTag,
    /// The path is not a URL path.
    InvalidURI,
    /// The key has more than 1024 bytes.
    KeyTooLongError,
    /// The trailer of an aws-chunked body cannot be read or is not the announced one.
    MalformedTrailerError,
    /// The XML body cannot be read or lacks what it must have.
    MalformedXML,
    /// User metadata has more than 2 KiB.
    MetadataTooLarge,
    /// The method does not go with the resource.
    MethodNotAllowed,
    /// A body without `Content-Length` (or, when aws-chunked, without `x-amz-decoded-content-length`).
    MissingContentLength,
    /// The operation needs a body.
    MissingRequestBodyError,
    /// No such bucket.
    NoSuchBucket,
    /// No such key, or its current version is a delete marker.
    NoSuchKey,
    /// The bucket has no tags.
    NoSuchTagSet,
    /// No such multipart upload of this key.
    NoSuchUpload,
    /// No such version of this key.
    NoSuchVersion,
    /// AWS has it, this server does not.
    NotImplemented,
    /// A condition does not hold; nothing was written.
    PreconditionFailed,
    /// The client's clock is more than 15 minutes off.
    RequestTimeTooSkewed,
    /// The request's headers together are larger than S3 takes.
    RequestHeaderSectionTooLarge,
    /// The request's document is larger than S3 takes.
    MaxMessageLengthExceeded,
    /// The bucket does not use ACLs.
    AccessControlListNotSupported,
    /// The request breaks a rule that has no code of its own.
    BadRequest,
    /// No such encryption algorithm.
    InvalidEncryptionAlgorithmError,
    /// The body stopped arriving.
    RequestTimeout,
    /// The server is stopping or cannot take requests.
    ServiceUnavailable,
    /// The signature is not the one that the secret key gives.
    SignatureDoesNotMatch,
    /// The body does not have the SHA-256 that was signed.
    XAmzContentSHA256Mismatch,
}

impl Code {
    /// The code's name in the error document, its HTTP status and its default message.
    #[rustfmt::skip] // one row, one line
    pub const fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Code::AccessDenied => ("AccessDenied", 403, "Access Denied"),
            Code::AuthorizationHeaderMalformed => ("AuthorizationHeaderMalformed", 400, "The authorization header you provided is invalid."),
            Code::AuthorizationQueryParametersError => ("AuthorizationQueryParametersError", 400, "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."),
            Code::BadDigest => ("BadDigest", 400, "The Content-MD5 you specified did not match what we received."),
            Code::BucketAlreadyOwnedByYou => ("BucketAlreadyOwnedByYou", 409, "Your previous request to create the named bucket succeeded and you already own it."),
            Code::BucketNotEmpty => ("BucketNotEmpty", 409, "The bucket you tried to delete is not empty"),
            Code::ConditionalRequestConflict => ("ConditionalRequestConflict", 409, "The conditional request cannot succeed due to a conflicting operation against this resource."),
            Code::EntityTooLarge => ("EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed size"),
            Code::EntityTooSmall => ("EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size"),
            Code::IllegalLocationConstraintException => ("IllegalLocationConstraintException", 400, "The unspecified location constraint is incompatible for the region specific endpoint this request was sent to."),
            Code::IllegalVersioningConfigurationException => ("IllegalVersioningConfigurationException", 400, "The Versioning element must be specified"),
            Code::IncompleteBody => ("IncompleteBody", 400, "The request body terminated unexpectedly"),
            Code::InternalError => ("InternalError", 500, "We encountered an internal error. Please try again."),
            Code::InvalidAccessKeyId => ("InvalidAccessKeyId", 403, "The AWS Access Key Id you provided does not exist in our records."),
            Code::InvalidArgument => ("InvalidArgument", 400, "Invalid Argument"),
            Code::InvalidBucketName => ("InvalidBucketName", 400, "The specified bucket is not valid."),
            Code::InvalidBucketOwnerAWSAccountID => ("InvalidBucketOwnerAWSAccountID", 400, "The value of the expected bucket owner parameter must be an AWS Account ID..."),
            Code::InvalidChunkSizeError => ("InvalidChunkSizeError", 403, "Only the last chunk is allowed to have a size less than 8192 bytes"),
            Code::InvalidDigest => ("InvalidDigest", 400, "The Content-MD5 you specified was invalid."),
            Code::InvalidLocationConstraint => ("InvalidLocationConstraint", 400, "The specified location-constraint is not valid"),
            Code::InvalidObjectState => ("InvalidObjectState", 403, "The operation is not valid for the object's storage class"),
            Code::InvalidPart => ("InvalidPart", 400, "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."),
            Code::InvalidPartNumber => ("InvalidPartNumber", 416, "The requested partnumber is not satisfiable"),
            Code::InvalidPartOrder => ("InvalidPartOrder", 400, "The list of parts was not in ascending order. Parts must be ordered by part number."),
            Code::InvalidRange => ("InvalidRange", 416, "The requested range is not satisfiable"),
            Code::InvalidRequest => ("InvalidRequest", 400, "Invalid Request"),
            Code::InvalidStorageClass => ("InvalidStorageClass", 400, "The storage class you specified is not valid"),
            Code::InvalidTag => ("InvalidTag", 400, "The TagKey you have provided is invalid"),
            Code::InvalidURI => ("InvalidURI", 400, "Couldn't parse the specified URI."),
            Code::KeyTooLongError => ("KeyTooLongError", 400, "Your key is too long"),
            Code::MalformedTrailerError => ("MalformedTrailerError", 400, "The request contained trailing data that was not well-formed or did not conform to our published schema."),
            Code::MalformedXML => ("MalformedXML", 400, "The XML you provided was not well-formed or did not validate against our published schema"),
            Code::MetadataTooLarge => ("MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size"),
            Code::MethodNotAllowed => ("MethodNotAllowed", 405, "The specified method is not allowed against this resource."),
            Code::MissingContentLength => ("MissingContentLength", 411, "You must provide the Content-Length HTTP header."),
            Code::MissingRequestBodyError => ("MissingRequestBodyError", 400, "Request Body is empty"),
            Code::NoSuchBucket => ("NoSuchBucket", 404, "The specified bucket does not exist"),
            Code::NoSuchKey => ("NoSuchKey", 404, "The specified key does not exist."),
            Code::NoSuchTagSet => ("NoSuchTagSet", 404, "The TagSet does not exist"),
            Code::NoSuchUpload => ("NoSuchUpload", 404, "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."),
            Code::NoSuchVersion => ("NoSuchVersion", 404, "The specified version does not exist."),
            Code::NotImplemented => ("NotImplemented", 501, "A header you provided implies functionality that is not implemented"),
            Code::PreconditionFailed => ("PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold"),
            Code::RequestTimeTooSkewed => ("RequestTimeTooSkewed", 403, "The difference between the request time and the current time is too large."),
            Code::RequestHeaderSectionTooLarge => ("RequestHeaderSectionTooLarge", 400, "Your request header section exceeds the maximum allowed request header section size."),
            Code::MaxMessageLengthExceeded => ("MaxMessageLengthExceeded", 400, "Your request was too big."),
            Code::AccessControlListNotSupported => ("AccessControlListNotSupported", 400, "The bucket does not allow ACLs"),
            Code::BadRequest => ("BadRequest", 400, "Bad Request"),
            Code::InvalidEncryptionAlgorithmError => ("InvalidEncryptionAlgorithmError", 400, "The Encryption request you specified is not valid. Supported value: AES256."),
            Code::RequestTimeout => ("RequestTimeout", 400, "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed."),
            Code::ServiceUnavailable => ("ServiceUnavailable", 503, "Service is unable to handle request."),
            Code::SignatureDoesNotMatch => ("SignatureDoesNotMatch", 403, "The request signature we calculated does not match the signature you provided. Check your key and signing method."),
            Code::XAmzContentSHA256Mismatch => ("XAmzContentSHA256Mismatch", 400, "The provided 'x-amz-content-sha256' header does not match what was computed."),
        }
    }

    /// The code's name as it stands in the error document.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status that goes with the code.
    pub const fn status(self) -> u16 {
        self.row().1
    }
}

/// An answer that refuses: what the error document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Error {
    /// Which row of the table.
    pub code: Code,
    /// The `<Message>`.
    pub message: Cow<'static, str>,
    /// Further elements of the document, in order.
    pub extra: Vec<(&'static str, String)>,
    /// Headers of the answer.
    pub headers: Vec<(&'static str, String)>,
    /// Whether the answer has no document.
    pub bare: bool,
}

impl S3Error {
    /// The error with the table's message and no further elements.
    pub const fn new(code: Code) -> S3Error {
        S3Error {
            code,
            message: Cow::Borrowed(code.row().2),
            extra: Vec::new(),
            headers: Vec::new(),
            bare: false,
        }
    }

    /// The same error with another message.
    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> S3Error {
        self.message = message.into();
        self
    }

    /// The same error with one more element at the end.
    #[must_use]
    pub fn extra(mut self, element: &'static str, value: impl Into<String>) -> S3Error {
        self.extra.push((element, value.into()));
        self
    }

    /// The same error with one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> S3Error {
        self.headers.push((name, value.into()));
        self
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code.as_str(), self.code.status(), self.message)
    }
}

impl std::error::Error for S3Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_its_row_and_its_elements_in_order() {
        let error = S3Error::new(Code::BadDigest).extra("A", "1").extra("B", "2");
        assert_eq!(error.code.status(), 400);
        assert_eq!(
            error.to_string(),
            "BadDigest (400): The Content-MD5 you specified did not match what we received."
        );
        assert_eq!(error.extra, [("A", "1".to_owned()), ("B", "2".to_owned())]);
        assert_eq!(error.message("other").message, "other");
    }
}
