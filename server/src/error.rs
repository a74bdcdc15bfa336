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
    /// The body ended early, or its framing is broken.
    IncompleteBody,
    /// Something failed on this side.
    InternalError,
    /// No such access key.
    InvalidAccessKeyId,
    /// An argument has a value that is not allowed.
    InvalidArgument,
    /// A chunk of an aws-chunked body is too small to be followed by another.
    InvalidChunkSizeError,
    /// `Content-MD5` is not the base64 form of 16 bytes.
    InvalidDigest,
    /// The request contradicts itself or a rule of the operation.
    InvalidRequest,
    /// The trailer of an aws-chunked body cannot be read or is not the announced one.
    MalformedTrailerError,
    /// A body without `Content-Length` (or, when aws-chunked, without `x-amz-decoded-content-length`).
    MissingContentLength,
    /// A header that authentication needs is missing.
    MissingSecurityHeader,
    /// AWS has it, this server does not.
    NotImplemented,
    /// The client's clock is more than 15 minutes off.
    RequestTimeTooSkewed,
    /// The body stopped arriving.
    RequestTimeout,
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
            Code::IncompleteBody => ("IncompleteBody", 400, "The request body terminated unexpectedly"),
            Code::InternalError => ("InternalError", 500, "We encountered an internal error. Please try again."),
            Code::InvalidAccessKeyId => ("InvalidAccessKeyId", 403, "The AWS Access Key Id you provided does not exist in our records."),
            Code::InvalidArgument => ("InvalidArgument", 400, "Invalid Argument"),
            Code::InvalidChunkSizeError => ("InvalidChunkSizeError", 403, "Only the last chunk is allowed to have a size less than 8192 bytes"),
            Code::InvalidDigest => ("InvalidDigest", 400, "The Content-MD5 you specified was invalid."),
            Code::InvalidRequest => ("InvalidRequest", 400, "Invalid Request"),
            Code::MalformedTrailerError => ("MalformedTrailerError", 400, "The request contained trailing data that was not well-formed or did not conform to our published schema."),
            Code::MissingContentLength => ("MissingContentLength", 411, "You must provide the Content-Length HTTP header."),
            Code::MissingSecurityHeader => ("MissingSecurityHeader", 400, "Your request was missing a required header"),
            Code::NotImplemented => ("NotImplemented", 501, "A header you provided implies functionality that is not implemented"),
            Code::RequestTimeTooSkewed => ("RequestTimeTooSkewed", 403, "The difference between the request time and the current time is too large."),
            Code::RequestTimeout => ("RequestTimeout", 400, "Your socket connection to the server was not read from or written to within the timeout period. Idle connections will be closed."),
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
}

impl S3Error {
    /// The error with the table's message and no further elements.
    pub const fn new(code: Code) -> S3Error {
        S3Error { code, message: Cow::Borrowed(code.row().2), extra: Vec::new() }
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
