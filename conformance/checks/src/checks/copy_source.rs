//! CopyObject with conditions on its source: they stop a copy with 412, never 304.

use super::put_swap::STRANGER;
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::date;
use crate::expect::{expect_element, expect_status};
use crate::trial::Trial;
use time::Duration;

const RECORDED: &str = "AWS recording 2026-02: test_s3_copy_object_preconditions";

pub(super) const ALL: &[Check] = &[IF_MATCH, IF_NONE_MATCH, UNQUOTED, DATES, FUTURE, PRECEDENCE, ORDER];

const BASE: Check = Check {
    id: "copy.source",
    proves: "",
    severity: Severity::Expected,
    condition: Some(Condition::CopySource),
    needs: &[Need::Copy],
    source: RECORDED,
    broken_by: &["ignore-copy-source-conditions"],
    run: |t| Box::pin(if_match(t)),
};

const MATCH: &str = "x-amz-copy-source-if-match";
const NONE_MATCH: &str = "x-amz-copy-source-if-none-match";
const MODIFIED: &str = "x-amz-copy-source-if-modified-since";
const UNMODIFIED: &str = "x-amz-copy-source-if-unmodified-since";

/// A source object, and the dates that conditions on it name.
pub(super) struct Source {
    pub key: String,
    pub etag: String,
    /// Its Last-Modified, as sent.
    pub written: String,
    /// A day before it.
    pub before: String,
    /// A day after the provider's own clock.
    pub future: String,
}

impl Source {
    pub(super) async fn make(t: &Trial) -> Result<Source, Stop> {
        let key = t.key("source");
        let etag = t.put(&key, &t.body("source", 0)).await?;
        let head = t.send(Call::head(&key)).await?;
        let moment = |name| head.header(name).and_then(date::parse);
        let (Some(written), Some(now)) = (moment("last-modified"), moment("date")) else {
            return Err(Stop::unprepared("HEAD without Last-Modified and Date", &head));
        };
        Ok(Source {
            key,
            etag,
            written: date::format(written),
            before: date::format(written - Duration::DAY),
            future: date::format(now + Duration::DAY),
        })
    }

    /// Copies with the given conditions onto a fresh key, then looks whether the copy is there.
    async fn copy(&self, t: &Trial, to: &str, conditions: &[(&'static str, &str)]) -> Result<Answer, Stop> {
        let call = conditions
            .iter()
            .fold(t.client().copy(&self.key, &t.key(to)), |call, (name, value)| call.header(name, value));
        t.send(call).await
    }

    async fn copies(&self, t: &Trial, to: &str, conditions: &[(&'static str, &str)]) -> Done {
        t.let_through(&self.copy(t, to, conditions).await?, &[200])?;
        expect_status(&t.send(Call::head(&t.key(to))).await?, &[200])
    }

    async fn stops(
        &self,
        t: &Trial,
        to: &str,
        conditions: &[(&'static str, &str)],
        named: Option<&str>,
    ) -> Done {
        let answer = self.copy(t, to, conditions).await?;
        t.stopped(&answer, &[412])?;
        if let Some(named) = named {
            expect_element(&answer, "Condition", named)?;
        }
        t.lacks(&t.key(to)).await
    }
}

const IF_MATCH: Check = Check {
    id: "copy.source.if-match",
    proves: "a copy goes ahead when the source has the ETag, and is 412 when it has another",
    ..BASE
};

async fn if_match(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    source.copies(t, "equal", &[(MATCH, &source.etag)]).await?;
    source.stops(t, "differs", &[(MATCH, STRANGER)], None).await
}

const IF_NONE_MATCH: Check = Check {
    id: "copy.source.if-none-match",
    proves: "a copy goes ahead when the source has another ETag, and is 412, not 304, when it has this one",
    broken_by: &["ignore-copy-source-conditions", "copy-source-304"],
    run: |t| Box::pin(if_none_match(t)),
    ..BASE
};

async fn if_none_match(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    source.copies(t, "differs", &[(NONE_MATCH, STRANGER)]).await?;
    source.stops(t, "equal", &[(NONE_MATCH, &source.etag)], None).await
}

const UNQUOTED: Check = Check {
    id: "copy.source.unquoted",
    proves: "quotes around a source ETag make no difference",
    condition: None,
    broken_by: &["ignore-copy-source-conditions", "only-quoted-etags-match", "copy-source-304"],
    run: |t| Box::pin(unquoted(t)),
    ..BASE
};

async fn unquoted(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let bare = source.etag.trim_matches('"');
    source.copies(t, "equal", &[(MATCH, bare)]).await?;
    source.stops(t, "none", &[(NONE_MATCH, bare)], None).await
}

const DATES: Check = Check {
    id: "copy.source.dates",
    proves: "a date equal to Last-Modified counts as unmodified; an older one as modified",
    run: |t| Box::pin(dates(t)),
    broken_by: &["ignore-copy-source-conditions", "changing-last-modified", "last-modified-goes-back"],
    ..BASE
};

async fn dates(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    source.copies(t, "unmodified-equal", &[(UNMODIFIED, &source.written)]).await?;
    source.stops(t, "unmodified-older", &[(UNMODIFIED, &source.before)], None).await?;
    source.copies(t, "modified-older", &[(MODIFIED, &source.before)]).await?;
    source.stops(t, "modified-equal", &[(MODIFIED, &source.written)], None).await
}

const FUTURE: Check = Check {
    id: "copy.source.future-date",
    proves: "If-Modified-Since in the future is ignored",
    broken_by: &["honour-future-dates"],
    run: |t| Box::pin(future(t)),
    ..BASE
};

async fn future(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    source.copies(t, "to", &[(MODIFIED, &source.future)]).await
}

const PRECEDENCE: Check = Check {
    id: "copy.source.precedence",
    proves: "an ETag condition wins over the date condition beside it",
    source: "S3 API Reference: CopyObject, x-amz-copy-source-if-match and -if-none-match",
    condition: None,
    broken_by: &["ignore-copy-source-conditions", "dates-beside-etags", "copy-source-304"],
    run: |t| Box::pin(precedence(t)),
    ..BASE
};

async fn precedence(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    source.copies(t, "match", &[(MATCH, &source.etag), (UNMODIFIED, &source.before)]).await?;
    source.stops(t, "none", &[(NONE_MATCH, &source.etag), (MODIFIED, &source.before)], None).await
}

const ORDER: Check = Check {
    id: "copy.source.order",
    proves: "of four failing conditions the 412 names If-Match, then If-Unmodified-Since, then the other two",
    broken_by: &[
        "ignore-copy-source-conditions",
        "omit-condition-element",
        "copy-source-304",
        "changing-last-modified",
        "last-modified-goes-back",
    ],
    run: |t| Box::pin(order(t)),
    ..BASE
};

async fn order(t: &Trial) -> Done {
    let source = Source::make(t).await?;
    let all = [
        (MATCH, STRANGER, "x-amz-copy-source-If-Match"),
        (UNMODIFIED, &source.before, "x-amz-copy-source-If-Unmodified-Since"),
        (NONE_MATCH, &source.etag, "x-amz-copy-source-If-None-Match"),
        (MODIFIED, &source.written, "x-amz-copy-source-If-Modified-Since"),
    ];
    for first in 0..all.len() {
        let conditions: Vec<_> = all[first..].iter().map(|(name, value, _)| (*name, *value)).collect();
        source.stops(t, "to", &conditions, Some(all[first].2)).await?;
    }
    Ok(())
}
