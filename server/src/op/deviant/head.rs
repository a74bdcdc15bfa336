//! What a server with deviations takes from the head of a request. Pure.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::deviation::{Acting, Deviation as D};
use crate::error::{Code, S3Error};
use crate::instant::Instant;
use crate::precondition::Verb;

/// What a deviation may look at.
pub(super) struct Asked {
    pub(super) verb: Verb,
    /// The body's size in bytes.
    pub(super) size: u64,
    /// Counts the requests of the connection, from 1.
    pub(super) number: Option<u64>,
    /// Writes and deletes that came before it.
    pub(super) writes: u64,
    pub(super) now: Instant,
}

/// Headers that a deviation does not see: all that begin so.
const IGNORED: &[(D, Verb, &str)] = &[
    (D::IgnoreIfNoneMatchPut, Verb::Put, "if-none-match"),
    (D::IgnoreIfMatchPut, Verb::Put, "if-match"),
    (D::IgnoreIfNoneMatchCopy, Verb::Copy, "if-none-match"),
    (D::IgnoreIfMatchCopy, Verb::Copy, "if-match"),
    (D::IgnoreIfNoneMatchComplete, Verb::Complete, "if-none-match"),
    (D::IgnoreIfMatchComplete, Verb::Complete, "if-match"),
    (D::IgnoreIfMatchDelete, Verb::Delete, "if-match"),
    (D::IgnoreIfMatchSize, Verb::Delete, "x-amz-if-match-size"),
    (D::IgnoreIfMatchLastModified, Verb::Delete, "x-amz-if-match-last-modified"),
    (D::IgnoreCopySourceConditions, Verb::Copy, "x-amz-copy-source-if-"),
    (D::IgnoreReadConditions, Verb::Read, "if-"),
    (D::IgnoreRange, Verb::Read, "range"),
];

/// Conditions that are refused with 501.
const REFUSED: &[(D, Verb, &[&str])] = &[
    (D::RefuseIfNoneMatchPut, Verb::Put, &["if-none-match"]),
    (D::RefuseIfMatchPut, Verb::Put, &["if-match"]),
    (D::RefuseConditionalCopy, Verb::Copy, &["if-match", "if-none-match"]),
    (D::RefuseConditionalComplete, Verb::Complete, &["if-match", "if-none-match"]),
    (D::RefuseConditionalDelete, Verb::Delete, &["if-match", "if-none-match"]),
];

/// Whether the head of a request tells all that a deviation looks at.
pub(super) fn is_enough(deviation: &D) -> bool {
    let by_row = IGNORED.iter().any(|(ignoring, ..)| ignoring == deviation)
        || REFUSED.iter().any(|(refusing, ..)| refusing == deviation);
    by_row
        || matches!(
            deviation,
            D::IgnoreConditionsLarge(_)
                | D::IgnoreConditionsFirstOnConnection(_)
                | D::IgnoreConditionsAfter(_)
                | D::RefuseIfNoneMatchEtag(_)
                | D::RefuseBadDates
                | D::OnlyUnquotedEtagsMatch
                | D::OnlyQuotedEtagsMatch
                | D::NoEtagLists
                | D::StrongComparisonOnly
                | D::StarComparedLiterallyDelete
                | D::ReverseReadConditions
                | D::RangesBeforeConditions
                | D::HonourFutureDates
                | D::DropMetadata
                | D::KeyLimit(_)
                | D::SegmentLimit(_)
                | D::RefuseOddSegments(_)
        )
}

/// Conditions that hold ETags.
const ETAGS: [&str; 4] =
    ["if-match", "if-none-match", "x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match"];

/// An ETag that no object has.
const NOBODYS: HeaderValue = HeaderValue::from_static("\"-\"");

/// Whether it is a conditional write or delete.
pub(super) fn is_conditional(headers: &HeaderMap) -> bool {
    headers.contains_key("if-match") || headers.contains_key("if-none-match")
}

/// Whether a read has conditions of both kinds.
pub(super) fn has_dates_and_etags(headers: &HeaderMap) -> bool {
    ["", "x-amz-copy-source-"].iter().any(|prefix| {
        let has = |name: &str| headers.contains_key(format!("{prefix}{name}"));
        (has("if-match") || has("if-none-match")) && (has("if-modified-since") || has("if-unmodified-since"))
    })
}

/// Takes the condition of a write away.
pub(super) fn drop_conditions(headers: &mut HeaderMap) {
    remove(headers, "if-match");
    remove(headers, "if-none-match");
}

/// Removes all headers that begin so, and says whether there were any.
fn remove(headers: &mut HeaderMap, prefix: &str) -> bool {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
    !names.is_empty()
}

/// Changes the head to what the server makes of it.
///
/// # Errors
/// `NotImplemented`, `InvalidRequest` or `InvalidArgument`, for what it refuses.
pub(super) fn bend(acting: &Acting, asked: &Asked, headers: &mut HeaderMap) -> Result<(), S3Error> {
    for deviation in acting.set().iter() {
        if ignore(deviation, asked, headers) || compare_otherwise(deviation, asked, headers) {
            acting.note(deviation);
        }
    }
    for deviation in acting.set().iter() {
        if let Some(error) = refusal(deviation, asked, headers) {
            acting.note(deviation);
            return Err(error);
        }
    }
    Ok(())
}

/// Removes what the deviation does not look at, and says whether there was anything.
fn ignore(deviation: &D, asked: &Asked, headers: &mut HeaderMap) -> bool {
    let verb = asked.verb;
    let row = IGNORED.iter().find(|(ignoring, of, _)| ignoring == deviation && *of == verb);
    if let Some((_, _, prefix)) = row {
        return remove(headers, prefix);
    }
    match deviation {
        D::DropMetadata if verb != Verb::Read => remove(headers, "x-amz-meta-"),
        D::IgnoreConditionsLarge(bytes) if verb == Verb::Put && asked.size > *bytes => remove(headers, "if-"),
        D::IgnoreConditionsFirstOnConnection(first)
            if verb.writes() && asked.number.is_some_and(|number| number <= *first) =>
        {
            remove(headers, "if-")
        }
        D::IgnoreConditionsAfter(writes) if verb.writes() && asked.writes >= *writes => {
            remove(headers, "if-")
        }
        D::RangesBeforeConditions if verb == Verb::Read && headers.contains_key("range") => {
            remove(headers, "if-match")
        }
        D::ReverseReadConditions
            if verb == Verb::Read
                && headers.contains_key("if-none-match")
                && headers.contains_key("if-match") =>
        {
            remove(headers, "if-unmodified-since");
            remove(headers, "if-match")
        }
        _ => false,
    }
}

/// Replaces values that the deviation compares otherwise, and says whether there were any.
fn compare_otherwise(deviation: &D, asked: &Asked, headers: &mut HeaderMap) -> bool {
    let verb = asked.verb;
    match deviation {
        D::OnlyUnquotedEtagsMatch if verb != Verb::Read => {
            estrange(headers, &ETAGS[..1], |value| value.starts_with('"'))
        }
        D::OnlyQuotedEtagsMatch => estrange(headers, &ETAGS, |value| !value.contains('"') && value != "*"),
        D::NoEtagLists => estrange(headers, &ETAGS, |value| value.contains(',')),
        D::StrongComparisonOnly => estrange(headers, &ETAGS, |value| value.starts_with("W/")),
        D::StarComparedLiterallyDelete if verb == Verb::Delete => {
            estrange(headers, &ETAGS[..1], |value| value == "*")
        }
        D::HonourFutureDates => {
            let mut acted = false;
            for name in ["if-modified-since", "x-amz-copy-source-if-modified-since"] {
                let date = text(headers, name).and_then(Instant::parse);
                if date.is_some_and(|date| date > asked.now)
                    && let Ok(now) = HeaderValue::from_str(&asked.now.http_date())
                {
                    headers.insert(name, now);
                    acted = true;
                }
            }
            acted
        }
        _ => false,
    }
}

/// Makes a condition of ETags one that nothing fulfils, where its value is such.
fn estrange(headers: &mut HeaderMap, names: &[&'static str], such: fn(&str) -> bool) -> bool {
    let mut acted = false;
    for name in names {
        if text(headers, name).is_some_and(such) {
            headers.insert(*name, NOBODYS);
            acted = true;
        }
    }
    acted
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn refusal(deviation: &D, asked: &Asked, headers: &HeaderMap) -> Option<S3Error> {
    let row = REFUSED.iter().find(|(refusing, verb, _)| refusing == deviation && *verb == asked.verb);
    if let Some((_, _, names)) = row {
        let refused = names.iter().any(|name| headers.contains_key(*name));
        return refused.then(|| S3Error::new(Code::NotImplemented));
    }
    match deviation {
        D::RefuseIfNoneMatchEtag(code) if asked.verb.writes() => {
            text(headers, "if-none-match").filter(|value| *value != "*").map(|_| S3Error::new(*code))
        }
        D::RefuseBadDates if asked.verb == Verb::Read => {
            let bad = |name: &&str| text(headers, name).is_some_and(|date| Instant::parse(date).is_none());
            let name = ["if-modified-since", "if-unmodified-since"].into_iter().find(bad)?;
            Some(S3Error::new(Code::InvalidArgument).extra("ArgumentName", name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviation::Deviations;

    /// `headers` before and after, as `name: value` lines; the status where it is refused.
    #[track_caller]
    fn check(name: &str, verb: Verb, before: &str, after: Result<&str, u16>) {
        let acting = Acting::new(&Deviations::new(&[name.parse().unwrap()]));
        let asked = Asked {
            verb,
            size: 600 << 10,
            number: Some(3),
            writes: 7,
            now: Instant::from_epoch_ms(1_000_000_000_000),
        };
        let read = |text: &str| -> HeaderMap {
            let pairs = text.lines().filter_map(|line| line.split_once(": "));
            pairs.map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse().unwrap())).collect()
        };
        let mut headers = read(before);
        let bent = bend(&acting, &asked, &mut headers).map_err(|error| error.code.status());
        assert_eq!(bent.map(|()| headers), after.map(read), "{name} {before}");
        assert_eq!(acting.names().is_empty(), after == Ok(before), "{name} {before}");
    }

    #[test]
    fn ignored() {
        check("ignore-if-none-match-put", Verb::Put, "if-none-match: *", Ok(""));
        check("ignore-if-none-match-put", Verb::Copy, "if-none-match: *", Ok("if-none-match: *"));
        check("ignore-read-conditions", Verb::Read, "if-range: x\nrange: y", Ok("range: y"));
        check("ignore-conditions-large", Verb::Put, "if-match: x", Ok(""));
        check("ignore-conditions-large=614400", Verb::Put, "if-match: x", Ok("if-match: x"));
        check("ignore-conditions-first-on-connection=3", Verb::Delete, "if-match: x", Ok(""));
        check("ignore-conditions-first-on-connection=2", Verb::Put, "if-match: x", Ok("if-match: x"));
        check("ignore-conditions-after=7", Verb::Put, "if-match: x", Ok(""));
        check("ignore-conditions-after=8", Verb::Put, "if-match: x", Ok("if-match: x"));
        check("drop-metadata", Verb::Put, "x-amz-meta-a: 1\nrange: y", Ok("range: y"));
    }

    #[test]
    fn compared_otherwise_and_refused() {
        check("only-unquoted-etags-match", Verb::Put, "if-match: \"x\"", Ok("if-match: \"-\""));
        check("only-unquoted-etags-match", Verb::Read, "if-match: \"x\"", Ok("if-match: \"x\""));
        check("only-quoted-etags-match", Verb::Put, "if-match: x", Ok("if-match: \"-\""));
        check(
            "honour-future-dates",
            Verb::Read,
            "if-modified-since: Fri, 01 Jan 2100 00:00:00 GMT",
            Ok("if-modified-since: Sun, 09 Sep 2001 01:46:40 GMT"),
        );
        check("refuse-if-match-put", Verb::Put, "if-match: x", Err(501));
        check("refuse-if-none-match-etag", Verb::Put, "if-none-match: x", Err(400));
        check("refuse-if-none-match-etag", Verb::Put, "if-none-match: *", Ok("if-none-match: *"));
        check("refuse-bad-dates", Verb::Read, "if-modified-since: soon", Err(400));
    }
}
