//! What a server with deviations answers.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::deviation::{Acting, Deviation as D};
use crate::error::{Code, S3Error};
use crate::op::{Answer, answer, set};
use crate::precondition::Verb;
use crate::route::Operation;
use crate::stream::Body;

/// Whether a deviation changes what an answer shows, whoever gives it.
pub(super) fn is_about(deviation: &D) -> bool {
    matches!(
        deviation,
        D::NotModifiedWithoutEtag
            | D::NotModifiedWithChecksum
            | D::OmitChecksums
            | D::UnquotedEtags
            | D::WeakEtags
            | D::ChangingEtags
    )
}

/// What is known of the request when its answer is changed.
pub(super) struct Bending<'a> {
    pub(super) acting: &'a Acting,
    pub(super) operation: Operation,
    pub(super) verb: Verb,
    /// As the client sent them.
    pub(super) headers: &'a HeaderMap,
    pub(super) shown: &'a AtomicU64,
}

impl Bending<'_> {
    pub(super) fn bend(&self, result: Answer) -> Answer {
        let mut result = result;
        for deviation in self.acting.set().iter() {
            result = match result {
                Err(error) => self.refused(deviation, error),
                Ok(response) => Ok(self.answered(deviation, response)),
            };
        }
        result
    }

    fn refused(&self, deviation: &D, mut error: S3Error) -> Answer {
        let not_modified = match deviation {
            D::FailedWrite304 => self.verb == Verb::Put && error.code == Code::PreconditionFailed,
            D::CopySource304 => {
                self.verb == Verb::Copy
                    && error.code == Code::PreconditionFailed
                    && self.headers.contains_key("x-amz-copy-source-if-none-match")
            }
            _ => false,
        };
        if not_modified {
            self.acting.note(deviation);
            return Ok(answer(StatusCode::NOT_MODIFIED));
        }
        let omitted = match deviation {
            D::OmitConditionElement => Some("Condition"),
            D::OmitKeyElement if self.verb == Verb::Read && error.code == Code::NoSuchKey => Some("Key"),
            _ => None,
        };
        if let Some(omitted) = omitted
            && error.extra.iter().any(|(name, _)| *name == omitted)
        {
            self.acting.note(deviation);
            error.extra.retain(|(name, _)| *name != omitted);
        }
        if *deviation == D::ConditionsBeforeExistence
            && self.verb == Verb::Read
            && error.code == Code::NoSuchKey
            && self.headers.contains_key("if-match")
        {
            self.acting.note(deviation);
            return Err(S3Error::new(Code::PreconditionFailed).extra("Condition", "If-Match"));
        }
        Err(error)
    }

    fn answered(&self, deviation: &D, mut response: Response<Body>) -> Response<Body> {
        let unchanged = response.status() == StatusCode::NOT_MODIFIED;
        match deviation {
            D::NotModifiedWithoutEtag if unchanged => {
                response.headers_mut().remove("etag");
            }
            D::NotModifiedWithChecksum if unchanged => {
                set(&mut response, "x-amz-checksum-crc32", "AAAAAA==");
            }
            D::OmitChecksums => return self.without_checksums(response),
            D::UnquotedEtags => return self.etags(deviation, response, |etag| etag.replace('"', "")),
            D::WeakEtags => return self.etags(deviation, response, |etag| format!("W/{etag}")),
            D::ChangingEtags => {
                let number = self.shown.fetch_add(1, Ordering::Relaxed);
                return self.etags(deviation, response, |etag| {
                    format!("\"{:08x}{}", number, etag.get(9..).unwrap_or("\""))
                });
            }
            _ => return response,
        }
        self.acting.note(deviation);
        response
    }

    /// Changes the ETags of objects that are shown: in the header, and in documents but not in objects. The
    /// ETags of parts stay, so that uploads can be completed.
    fn etags(
        &self,
        deviation: &D,
        mut response: Response<Body>,
        show: impl Fn(&str) -> String,
    ) -> Response<Body> {
        use Operation as Op;
        if matches!(self.operation, Op::UploadPart | Op::UploadPartCopy | Op::ListParts) {
            return response;
        }
        let shown = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(&show);
        if let Some(Ok(shown)) = shown.map(|etag| HeaderValue::from_str(&etag)) {
            self.acting.note(deviation);
            response.headers_mut().insert("etag", shown);
        }
        self.rewrite(deviation, response, |document| {
            replaced(document, "<ETag>", "</ETag>", |text| {
                show(&text.replace("&quot;", "\"")).replace('"', "&quot;")
            })
        })
    }

    fn without_checksums(&self, mut response: Response<Body>) -> Response<Body> {
        let names: Vec<_> = response
            .headers()
            .keys()
            .filter(|name| name.as_str().starts_with("x-amz-checksum-"))
            .cloned()
            .collect();
        for name in names {
            self.acting.note(&D::OmitChecksums);
            response.headers_mut().remove(name);
        }
        self.rewrite(&D::OmitChecksums, response, |document| {
            let mut document = document.to_owned();
            for end in
                ["Algorithm", "Type", "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "MD5"]
            {
                let (open, close) = (format!("<Checksum{end}>"), format!("</Checksum{end}>"));
                while let Some(start) = document.find(&open)
                    && let Some(length) = document[start..].find(&close)
                {
                    document.replace_range(start..start + length + close.len(), "");
                }
            }
            document
        })
    }

    /// Changes a document of the API.
    fn rewrite(
        &self,
        deviation: &D,
        mut response: Response<Body>,
        change: impl FnOnce(&str) -> String,
    ) -> Response<Body> {
        if self.verb == Verb::Read {
            return response;
        }
        let Some(document) = response.body().at_hand().and_then(|bytes| std::str::from_utf8(bytes).ok())
        else {
            return response;
        };
        let changed = change(document);
        if changed != document {
            self.acting.note(deviation);
            *response.body_mut() = Body::from(changed);
        }
        response
    }
}

/// The document with what stands between each `open` and `close` changed.
fn replaced(document: &str, open: &str, close: &str, change: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(document.len());
    let mut rest = document;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((text, after)) = after.split_once(close) else { break };
        out.push_str(before);
        out.push_str(open);
        out.push_str(&change(text));
        out.push_str(close);
        rest = after;
    }
    out.push_str(rest);
    out
}
