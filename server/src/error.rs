//! The S3 error table: one row per code, with its HTTP status and the message AWS sends with it.
//!
//! Source: Amazon S3 API Reference, "Error responses", "List of error codes"; messages as recorded from AWS where
//! a recording exists.

use std::borrow::Cow;
use std::fmt;

/// Declares the table: the code, its HTTP status, its default message, and what it means.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident $status:literal $message:literal)+) => {
        /// An S3 error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $code,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$code),+];

            /// The code's name in the error document, its HTTP status and its default message.
            pub const fn row(self) -> (&'static str, u16, &'static str) {
                match self {
                    $(Code::$code => (stringify!($code), $status, $message),)+
                }
            }
        }
    };
}

codes! {
    /// The caller may not do this, or nobody said who the caller is.
    AccessDenied 403 "Access Denied"
    /// The `Authorization` header cannot be read, or names another region, service or day.
    AuthorizationHeaderMalformed 400 "The authorization header you provided is invalid."
    /// The `X-Amz-*` query parameters of a presigned request are incomplete or cannot be read.
    AuthorizationQueryParametersError 400 "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    /// A digest or checksum that the client sent does not fit the body.
    BadDigest 400 "The Content-MD5 you specified did not match what we received."
    /// The upstream gave no answer. S3 has no such code: it is this server's own, in front of a provider.
    BadGateway 502 "The upstream gave no answer."
    /// The caller has this bucket already.
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it."
    /// A bucket with objects is not deleted.
    BucketNotEmpty 409 "The bucket you tried to delete is not empty"
    /// Another write or delete of the key came between; nothing was written.
    ConditionalRequestConflict 409 "The conditional request cannot succeed due to a conflicting operation against this resource."
    /// The body is larger than one request may be.
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed size"
    /// A part other than the last is smaller than 5 MiB.
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed size"
    /// The bucket's region is not this endpoint's.
    IllegalLocationConstraintException 400 "The unspecified location constraint is incompatible for the region specific endpoint this request was sent to."
    /// A versioning configuration without a status.
    IllegalVersioningConfigurationException 400 "The Versioning element must be specified"
    /// The body ended early, or its framing is broken.
    IncompleteBody 400 "The request body terminated unexpectedly"
    /// Something failed on this side.
    InternalError 500 "We encountered an internal error. Please try again."
    /// No such access key.
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records."
    /// An argument has a value that is not allowed.
    InvalidArgument 400 "Invalid Argument"
    /// The bucket's name breaks the naming rules.
    InvalidBucketName 400 "The specified bucket is not valid."
    /// `x-amz-expected-bucket-owner` is not twelve digits.
    InvalidBucketOwnerAWSAccountID 400 "The value of the expected bucket owner parameter must be an AWS Account ID..."
    /// A chunk of an aws-chunked body is too small to be followed by another.
    InvalidChunkSizeError 403 "Only the last chunk is allowed to have a size less than 8192 bytes"
    /// `Content-MD5` is not the base64 form of 16 bytes.
    InvalidDigest 400 "The Content-MD5 you specified was invalid."
    /// No such region.
    InvalidLocationConstraint 400 "The specified location-constraint is not valid"
    /// The object's bytes are in an archive.
    InvalidObjectState 403 "The operation is not valid for the object's storage class"
    /// A listed part is not there, or has another ETag.
    InvalidPart 400 "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."
    /// `partNumber` lies past the last part.
    InvalidPartNumber 416 "The requested partnumber is not satisfiable"
    /// The listed parts do not ascend.
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts must be ordered by part number."
    /// The range lies outside the object.
    InvalidRange 416 "The requested range is not satisfiable"
    /// The request contradicts itself or a rule of the operation.
    InvalidRequest 400 "Invalid Request"
    /// No such storage class.
    InvalidStorageClass 400 "The storage class you specified is not valid"
    /// A tag breaks the rules for tags.
    InvalidTag 400 "The TagKey you have provided is invalid"
    /// The path is not a URL path.
    InvalidURI 400 "Couldn't parse the specified URI."
    /// The key has more than 1024 bytes.
    KeyTooLongError 400 "Your key is too long"
    /// The trailer of an aws-chunked body cannot be read or is not the announced one.
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema."
    /// The XML body cannot be read or lacks what it must have.
    MalformedXML 400 "The XML you provided was not well-formed or did not validate against our published schema"
    /// User metadata has more than 2 KiB.
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size"
    /// The method does not go with the resource.
    MethodNotAllowed 405 "The specified method is not allowed against this resource."
    /// A body without `Content-Length` (or, when aws-chunked, without `x-amz-decoded-content-length`).
    MissingContentLength 411 "You must provide the Content-Length HTTP header."
    /// The operation needs a body.
    MissingRequestBodyError 400 "Request Body is empty"
    /// No such bucket.
    NoSuchBucket 404 "The specified bucket does not exist"
    /// No such key, or its current version is a delete marker.
    NoSuchKey 404 "The specified key does not exist."
    /// The bucket has no lifecycle.
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist"
    /// The bucket has no tags.
    NoSuchTagSet 404 "The TagSet does not exist"
    /// No such multipart upload of this key.
    NoSuchUpload 404 "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    /// No such version of this key.
    NoSuchVersion 404 "The specified version does not exist."
    /// AWS has it, this server does not.
    NotImplemented 501 "A header you provided implies functionality that is not implemented"
    /// A condition does not hold; nothing was written.
    PreconditionFailed 412 "At least one of the pre-conditions you specified did not hold"
    /// The client's clock is more than 15 minutes off.
    RequestTimeTooSkewed 403 "The difference between the request time and the current time is too large."
    /// The request's headers together are larger than S3 takes.
    RequestHeaderSectionTooLarge 400 "Your request header section exceeds the maximum allowed request header section size."
    /// The request's document is larger than S3 takes.
    MaxMessageLengthExceeded 400 "Your request was too big."
    /// The bucket does not use ACLs.
    AccessControlListNotSupported 400 "The bucket does not allow ACLs"
    /// The request breaks a rule that has no code of its own.
    BadRequest 400 "Bad Request"
    /// The session token is out of date.
    ExpiredToken 400 "The provided token has expired."
    /// No such encryption algorithm.
    InvalidEncryptionAlgorithmError 400 "The Encryption request you specified is not valid. Supported value: AES256."
    /// Another operation on the resource is under way.
    OperationAborted 409 "A conflicting conditional operation is currently in progress against this resource. Please try again."
    /// The body stopped arriving.
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed."
    /// The server is stopping or cannot take requests.
    ServiceUnavailable 503 "Service is unable to handle request."
    /// The signature is not the one that the secret key gives.
    SignatureDoesNotMatch 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method."
    /// The client sends too much; it is to wait and come again.
    SlowDown 503 "Please reduce your request rate."
    /// The same, as other services word it.
    TooManyRequests 429 "Please reduce your request rate."
    /// Not AWS's: MinIO's refusal of a key that it cannot store, which a deviation may answer.
    XMinioInvalidObjectName 400 "Object name contains unsupported characters."
    /// The body does not have the SHA-256 that was signed.
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed."
}

impl Code {
    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == name)
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
