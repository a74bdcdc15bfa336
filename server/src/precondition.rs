//! Conditions against the current object, pure: nothing here reads or writes a store.
//!
//! Sources: S3 User Guide, "Add preconditions to S3 operations with conditional requests"; RFC 9110
//! section 13; answers recorded from AWS where they differ from both.

mod bent;

use std::sync::Arc;

use http::HeaderMap;

use crate::deviation::Deviation;
use crate::error::{Code, S3Error};
use crate::etag;
use crate::instant::Instant;

pub(crate) use self::bent::{AsRead, Bent, Verb};

/// The condition of a write or delete, decided when it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// Nothing asked.
    Always,
    /// `If-None-Match: *`: only if the key has no current object.
    Absent,
    /// `If-Match: <etag>`: only if the current object has this ETag (here without quotes).
    Match(String),
    /// `If-Match: *`: only if the key has a current object. Deletes take it, writes do not.
    Present,
    /// Both headers with whatever they hold, as a read evaluates them: not AWS's way.
    AsRead(AsRead),
    /// One of the others, on a server with deviations.
    Bent(Arc<Bent>),
}

/// Why a condition refuses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The condition asks for an object and there is none.
    Absent,
    /// The named condition does not hold.
    Failed(&'static str),
    /// The named condition holds, but the key was written or deleted since the upload began.
    Conflict(&'static str),
}

const IF_MATCH: &str = "If-Match";
const IF_NONE_MATCH: &str = "If-None-Match";

impl WriteCondition {
    /// The condition of PutObject, CopyObject (destination) and CompleteMultipartUpload.
    ///
    /// # Errors
    /// `NotImplemented` for both headers together, for `If-Match: *` and for an ETag in
    /// `If-None-Match`, before anything is read: as recorded, they win over every state.
    pub(crate) fn of_write(headers: &HeaderMap) -> Result<Self, S3Error> {
        match (text(headers, "if-match"), text(headers, "if-none-match")) {
            (None, None) => Ok(Self::Always),
            (Some(_), Some(_)) => Err(not_implemented(
                "If-Match,If-None-Match",
                "Multiple conditional request headers present in the request",
            )),
            (Some("*"), None) => Err(not_implemented(
                IF_MATCH,
                "We don't accept the provided value of If-Match header for this API",
            )),
            (Some(tag), None) => Ok(Self::Match(etag::unquoted(tag).to_owned())),
            (None, Some("*")) => Ok(Self::Absent),
            (None, Some(_)) => Err(not_implemented(
                IF_NONE_MATCH,
                "We don't accept the provided value of If-None-Match header for this API",
            )),
        }
    }

    /// The condition of DeleteObject on a general purpose bucket, where `versioned` says that the
    /// request names a version.
    ///
    /// # Errors
    /// `NotImplemented` for the size and time conditions of directory buckets, and for any condition
    /// beside a version id.
    pub(crate) fn of_delete(headers: &HeaderMap, versioned: bool) -> Result<Self, S3Error> {
        for name in ["x-amz-if-match-last-modified-time", "x-amz-if-match-size"] {
            if headers.contains_key(name) {
                return Err(S3Error::new(Code::NotImplemented).extra("Header", name));
            }
        }
        match text(headers, "if-match") {
            None => Ok(Self::Always),
            Some(_) if versioned => Err(S3Error::new(Code::NotImplemented).extra("Header", IF_MATCH)),
            Some("*") => Ok(Self::Present),
            Some(tag) => Ok(Self::Match(etag::unquoted(tag).to_owned())),
        }
    }

    /// Decides, given the current object's ETag and whether the key was written or deleted since the
    /// multipart upload began (always `false` for other writes, which begin where they commit).
    /// Existence comes first, then the ETag, then the conflict.
    pub(crate) fn decide(&self, current: Option<&str>, changed_since_start: bool) -> Result<(), Refusal> {
        match (self, current) {
            (Self::Bent(bent), _) => bent.decide(current, changed_since_start),
            (Self::AsRead(headers), _) => headers.decide(current),
            (Self::Always, _) | (Self::Present, Some(_)) => Ok(()),
            (Self::Absent, Some(_)) => Err(Refusal::Failed(IF_NONE_MATCH)),
            (Self::Match(_) | Self::Present, None) => Err(Refusal::Absent),
            (Self::Match(tag), Some(etag)) if tag != etag => Err(Refusal::Failed(IF_MATCH)),
            (Self::Absent, None) if changed_since_start => Err(Refusal::Conflict(IF_NONE_MATCH)),
            (Self::Match(_), Some(_)) if changed_since_start => Err(Refusal::Conflict(IF_MATCH)),
            (Self::Absent, None) | (Self::Match(_), Some(_)) => Ok(()),
        }
    }
}

impl WriteCondition {
    /// What a server with deviations is to look at; `None` on one without.
    pub(crate) fn bent(&self) -> Option<&Bent> {
        match self {
            Self::Bent(bent) => Some(bent),
            _ => None,
        }
    }

    /// The same, of a write whose bytes have this ETag; only a server with deviations looks at it.
    pub(crate) fn making(self, etag: &str) -> Self {
        match self {
            Self::Bent(bent) => {
                Self::Bent(Arc::new(Bent { made: Some(etag.to_owned()), ..Bent::clone(&bent) }))
            }
            other => other,
        }
    }

    /// Whether the server has this deviation, which is about to act.
    pub(crate) fn acts(&self, deviation: &Deviation) -> bool {
        self.bent().is_some_and(|bent| bent.acting.acts(deviation))
    }
}

fn not_implemented(header: &'static str, why: &'static str) -> S3Error {
    S3Error::new(Code::NotImplemented).extra("Header", header).extra("additionalMessage", why)
}

/// Where a read's conditions come from: the headers' names on the wire, and in `<Condition>`.
pub(crate) struct ReadHeaders {
    names: [&'static str; 4],
    conditions: [&'static str; 4],
    /// Whether dates count beside ETags: not AWS's way.
    dates_beside_etags: bool,
}

/// The conditions of GetObject and HeadObject.
pub(crate) const OBJECT: ReadHeaders = ReadHeaders {
    names: ["if-match", "if-unmodified-since", "if-none-match", "if-modified-since"],
    conditions: [IF_MATCH, "If-Unmodified-Since", IF_NONE_MATCH, "If-Modified-Since"],
    dates_beside_etags: false,
};

/// The conditions on the source of CopyObject and UploadPartCopy. AWS names them with these capitals.
pub(crate) const COPY_SOURCE: ReadHeaders = ReadHeaders {
    names: [
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-unmodified-since",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-modified-since",
    ],
    conditions: [
        "x-amz-copy-source-If-Match",
        "x-amz-copy-source-If-Unmodified-Since",
        "x-amz-copy-source-If-None-Match",
        "x-amz-copy-source-If-Modified-Since",
    ],
    dates_beside_etags: false,
};

/// What the conditions of a read say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Proceed,
    /// The named `*-None-Match` or `*-Modified-Since` finds nothing new: 304 for a read, 412 for a copy.
    NotModified(&'static str),
    Failed(&'static str),
}

impl ReadHeaders {
    /// The same, on a server where dates count beside ETags or do not.
    pub(crate) const fn with_dates(&self, beside_etags: bool) -> Self {
        Self { names: self.names, conditions: self.conditions, dates_beside_etags: beside_etags }
    }

    /// Evaluates in the order of RFC 9110 section 13.2.2. A date that can't be read is ignored, and so is
    /// an `If-Modified-Since` in the future of `now`. Dates compare in whole seconds.
    pub(crate) fn evaluate(
        &self,
        headers: &HeaderMap,
        etag: &str,
        last_modified: Instant,
        now: Instant,
    ) -> ReadOutcome {
        let [matches, unmodified, none, modified] = self.names.map(|name| text(headers, name));
        let date = |value: Option<&str>| value.and_then(Instant::parse);
        let last_modified = last_modified.whole_second();
        if let Some(tags) = matches
            && !etag::list_names(tags, etag, false)
        {
            return ReadOutcome::Failed(self.conditions[0]);
        }
        if (matches.is_none() || self.dates_beside_etags)
            && date(unmodified).is_some_and(|since| last_modified > since)
        {
            return ReadOutcome::Failed(self.conditions[1]);
        }
        if let Some(tags) = none
            && etag::list_names(tags, etag, true)
        {
            return ReadOutcome::NotModified(self.conditions[2]);
        }
        if (none.is_none() || self.dates_beside_etags)
            && date(modified).is_some_and(|since| since <= now && last_modified <= since)
        {
            return ReadOutcome::NotModified(self.conditions[3]);
        }
        ReadOutcome::Proceed
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    #[test]
    fn unacceptable_values_are_refused_before_the_state_is_read() {
        for (pairs, header) in [
            (&[("if-none-match", "\"x\"")][..], "If-None-Match"),
            (&[("if-none-match", "\"*\"")], "If-None-Match"),
            (&[("if-match", "*")], "If-Match"),
            (&[("if-match", "x"), ("if-none-match", "*")], "If-Match,If-None-Match"),
        ] {
            let error = WriteCondition::of_write(&headers(pairs)).unwrap_err();
            assert_eq!(error.code, Code::NotImplemented);
            assert_eq!(error.extra[0], ("Header", header.to_owned()));
        }
    }

    #[test]
    fn existence_then_etag_then_conflict() {
        use Refusal::{Absent, Conflict, Failed};
        let matching = WriteCondition::Match("a".into());
        for (condition, current, changed, expected) in [
            (&WriteCondition::Always, None, true, Ok(())),
            (&WriteCondition::Absent, None, false, Ok(())),
            (&WriteCondition::Absent, Some("a"), true, Err(Failed("If-None-Match"))),
            (&WriteCondition::Absent, None, true, Err(Conflict("If-None-Match"))),
            (&matching, None, true, Err(Absent)),
            (&matching, Some("b"), true, Err(Failed("If-Match"))),
            (&matching, Some("a"), true, Err(Conflict("If-Match"))),
            (&matching, Some("a"), false, Ok(())),
            (&WriteCondition::Present, Some("a"), false, Ok(())),
            (&WriteCondition::Present, None, false, Err(Absent)),
        ] {
            assert_eq!(condition.decide(current, changed), expected, "{condition:?} {current:?} {changed}");
        }
    }

    #[test]
    fn deletes_take_a_star_and_no_version_beside_a_condition() {
        assert_eq!(
            WriteCondition::of_delete(&headers(&[("if-match", "*")]), false),
            Ok(WriteCondition::Present)
        );
        assert!(WriteCondition::of_delete(&headers(&[("if-match", "*")]), true).is_err());
        let all =
            [("x-amz-if-match-size", "1"), ("x-amz-if-match-last-modified-time", "x"), ("if-match", "a")];
        let error = WriteCondition::of_delete(&headers(&all), false).unwrap_err();
        assert_eq!(error.extra[0].1, "x-amz-if-match-last-modified-time");
    }

    #[test]
    fn reads_in_the_order_of_the_rfc() {
        let at = |s: i64| Instant::from_epoch_ms(1_000_000_000_000 + s * 1000);
        let (modified, now) = (at(0), at(1000));
        let (before, same, after, future) =
            (at(-10).http_date(), at(0).http_date(), at(10).http_date(), at(9999).http_date());
        let failing = [
            ("if-match", "\"b\""),
            ("if-unmodified-since", before.as_str()),
            ("if-none-match", "\"a\""),
            ("if-modified-since", after.as_str()),
        ];
        use ReadOutcome::{Failed, NotModified, Proceed};
        for (pairs, expected) in [
            (&failing[..], Failed("If-Match")),
            (&failing[1..], Failed("If-Unmodified-Since")),
            (&failing[2..], NotModified("If-None-Match")),
            (&failing[3..], NotModified("If-Modified-Since")),
            (&[("if-match", "\"a\""), ("if-unmodified-since", &before)], Proceed),
            (&[("if-unmodified-since", &same)], Proceed),
            (&[("if-modified-since", &same)], NotModified("If-Modified-Since")),
            (&[("if-modified-since", &future)], Proceed),
            (&[("if-modified-since", "no date")], Proceed),
            (&[("if-none-match", "\"b\""), ("if-modified-since", &after)], Proceed),
            (&[("if-none-match", "a"), ("if-modified-since", &before)], NotModified("If-None-Match")),
        ] {
            assert_eq!(OBJECT.evaluate(&headers(pairs), "a", modified, now), expected, "{pairs:?}");
        }
    }
}
