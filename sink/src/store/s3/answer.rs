//! What an answer of the store means. The one place that knows S3's error codes.

use std::error::Error;
use std::fmt::Display;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use crate::store::{Outcome, Refusal, Unanswered};

/// Characters of a store's message that are kept.
const MESSAGE_CHARS: usize = 300;

/// Refusals that say "later", whatever their status is: S3 sends some of them with 400, vendors with others.
const TRANSIENT: [&str; 9] = [
    "InternalError",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
];

/// Codes by which S3 says that a key or an upload is not there (S3 API reference, "Error responses").
const ABSENT: [&str; 2] = ["NoSuchKey", "NoSuchUpload"];

/// An outcome of which nobody can say what it did.
pub(super) fn unanswered<T>(status: Option<u16>, reason: impl Display) -> Outcome<T> {
    Outcome::Unknown(Unanswered { status, reason: shortened(&reason.to_string()) })
}

/// What an error of the SDK says about the request's effect.
pub(super) fn outcome<T, E>(error: &SdkError<E, HttpResponse>) -> Outcome<T>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let status = error.raw_response().map(|response| response.status().as_u16());
    match (status, error) {
        (Some(status @ 200..300), _) => unanswered(
            Some(status),
            format_args!("{status} with a body that is no answer: {}", causes(error)),
        ),
        (Some(status), _) => {
            refusal(status, error.code().unwrap_or_default(), error.message().unwrap_or_default())
        }
        (None, SdkError::ConstructionFailure(_)) => {
            unanswered(None, format_args!("not sent: {}", causes(error)))
        }
        (None, _) => unanswered(None, format_args!("no answer: {}", causes(error))),
    }
}

/// The same of a HEAD, whose answer has no body to name a code in: 404 is an absence on the word of whoever gave it,
/// a proxy among them.
pub(super) fn outcome_of_head<T, E>(error: &SdkError<E, HttpResponse>) -> Outcome<T>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error.raw_response().map(|response| response.status().as_u16()) {
        Some(404) => Outcome::Missing,
        _ => outcome(error),
    }
}

/// What a status and a code other than success say.
fn refusal<T>(status: u16, code: &str, message: &str) -> Outcome<T> {
    let denied =
        || Outcome::Refused(Refusal::Denied { status, code: code.to_owned(), message: shortened(message) });
    match status {
        _ if TRANSIENT.contains(&code) => {
            unanswered(Some(status), format_args!("{status} {code}: {message}"))
        }
        412 | 304 => Outcome::Refused(Refusal::Precondition),
        409 => Outcome::Refused(Refusal::Conflict),
        404 if ABSENT.contains(&code) => Outcome::Missing,
        // No word of S3's: an ingress without a route or a backend answers so. The SDK calls an empty body "NotFound".
        404 if code.is_empty() || code == "NotFound" => {
            unanswered(Some(status), format_args!("404 without an error code of S3: {message}"))
        }
        // The server's own word that it does not have this, and so did nothing.
        501 if code == "NotImplemented" => denied(),
        408 | 429 | 500.. => unanswered(Some(status), format_args!("{status} {code}: {message}")),
        _ => denied(),
    }
}

/// An error and what caused it, each once.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if said.iter().all(|earlier| !earlier.contains(&text)) {
            said.push(text);
        }
        next = error.source();
    }
    said.join(": ")
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect()
}

/// Whether the body of a write's or delete's success says otherwise: an error document, or a page of some proxy.
pub(super) fn contradicts(body: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&body[..body.len().min(1024)]).to_ascii_lowercase();
    head.contains("<error") || head.contains("<html") || head.contains("<!doctype")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(status: u16, code: &str) -> Outcome<()> {
        Outcome::Refused(Refusal::Denied { status, code: code.into(), message: "m".into() })
    }

    #[test]
    fn statuses_and_codes() {
        let unknown = |status, code: &str| unanswered(Some(status), format!("{status} {code}: m"));
        for (status, code, expected) in [
            (412, "PreconditionFailed", Outcome::Refused(Refusal::Precondition)),
            (304, "", Outcome::Refused(Refusal::Precondition)),
            (409, "ConditionalRequestConflict", Outcome::Refused(Refusal::Conflict)),
            (404, "NoSuchKey", Outcome::Missing),
            (404, "NoSuchUpload", Outcome::Missing),
            (404, "", unanswered(Some(404), "404 without an error code of S3: m")),
            (404, "NotFound", unanswered(Some(404), "404 without an error code of S3: m")),
            (404, "NoSuchVersion", denied(404, "NoSuchVersion")),
            (404, "NoSuchBucket", denied(404, "NoSuchBucket")),
            (403, "AccessDenied", denied(403, "AccessDenied")),
            (400, "InvalidArgument", denied(400, "InvalidArgument")),
            (301, "PermanentRedirect", denied(301, "PermanentRedirect")),
            (501, "NotImplemented", denied(501, "NotImplemented")),
            (501, "", unknown(501, "")),
            (400, "RequestTimeout", unknown(400, "RequestTimeout")),
            (403, "SlowDown", unknown(403, "SlowDown")),
            (408, "", unknown(408, "")),
            (429, "", unknown(429, "")),
            (500, "InternalError", unknown(500, "InternalError")),
            (503, "SlowDown", unknown(503, "SlowDown")),
        ] {
            assert_eq!(refusal::<()>(status, code, "m"), expected, "{status} {code}");
        }
    }

    #[test]
    fn a_success_that_says_error_is_none() {
        assert!(contradicts(b"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>"));
        assert!(contradicts(b"<!DOCTYPE html><p>log in first"));
        assert!(!contradicts(b"") && !contradicts(b"{\"ok\":true}"));
    }
}
