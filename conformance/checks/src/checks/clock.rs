//! The provider's clock, as it shows in `Date` and `Last-Modified`.

use super::list::list;
use crate::call::Call;
use crate::check::{Check, Done, Need, Severity, Stop};
use crate::client::Answer;
use crate::date;
use crate::expect::{expect_header, expect_status};
use crate::trial::Trial;
use crate::upload::Upload;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// What Signature Version 4 forgives; beyond it no request is let in.
const MOST_SKEW: Duration = Duration::minutes(15);
/// Between a write and its `Last-Modified`, whose resolution is a second.
const NEAR: Duration = Duration::seconds(2);

pub(super) const ALL: &[Check] = &[DATE, AGREE, ORDER, NEAR_NOW, RESOLUTION, COMPLETED];

const BASE: Check = Check {
    id: "clock",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: "RFC 9110, section 6.6.1; S3 API Reference: Common response headers",
    broken_by: &["clock-an-hour-ahead"],
    run: |t| Box::pin(date_skew(t)),
};

/// A header that is an HTTP date.
fn moment(answer: &Answer, name: &str) -> Result<OffsetDateTime, Stop> {
    let text = answer.header(name).unwrap_or_default();
    date::parse(text).ok_or_else(|| Stop::fail(format!("an HTTP date in {name}"), text, answer))
}

const DATE: Check = Check {
    id: "clock.date",
    proves: "every answer has a Date, and it differs from this machine's clock by less than 15 minutes",
    ..BASE
};

async fn date_skew(t: &Trial) -> Done {
    let mut least = None::<Duration>;
    for _ in 0..3 {
        let answer = t.send(Call::get(&t.key("never"))).await?;
        let skew = (moment(&answer, "date")? - (t.client().settings().clock)()).abs();
        if skew > MOST_SKEW {
            let got = format!("{} s apart", skew.whole_seconds());
            return Err(Stop::fail("at most 900 s between the clocks", got, &answer));
        }
        least = Some(least.map_or(skew, |least| least.min(skew)));
    }
    // Date has whole seconds, and so has what is told of them.
    t.measure("clock-skew-s", least.unwrap_or_default().whole_seconds().unsigned_abs());
    Ok(())
}

const AGREE: Check = Check {
    id: "clock.last-modified",
    proves: "GET, HEAD and the listing give one and the same Last-Modified, to the second",
    source: "AWS recording 2026-02: test_list_objects_v2_with_prefix; S3 API Reference: HeadObject",
    broken_by: &["changing-last-modified", "last-modified-goes-back"],
    run: |t| Box::pin(agree(t)),
    ..BASE
};

async fn agree(t: &Trial) -> Done {
    let key = t.key("k");
    t.put(&key, &t.body("x", 0)).await?;
    let get = t.send(Call::get(&key)).await?;
    let written = moment(&get, "last-modified")?;
    let head = t.send(Call::head(&key)).await?;
    expect_header(&head, "last-modified", get.header("last-modified").unwrap_or_default())?;
    let page = list(t, "", &[]).await?;
    let text = page.answer.element("LastModified").unwrap_or_default();
    match OffsetDateTime::parse(&text, &Rfc3339) {
        Ok(listed) if listed.unix_timestamp() == written.unix_timestamp() => Ok(()),
        _ => Err(Stop::fail(format!("LastModified {written}"), text, &page.answer)),
    }
}

const ORDER: Check = Check {
    id: "clock.order",
    proves: "Last-Modified never goes back from one write of a key to the next",
    source: "S3 API Reference: HeadObject, Last-Modified; S3 User Guide: data consistency model",
    broken_by: &["last-modified-goes-back"],
    run: |t| Box::pin(order(t)),
    ..BASE
};

async fn order(t: &Trial) -> Done {
    let key = t.key("k");
    let mut last: Option<OffsetDateTime> = None;
    for n in 0..10 {
        t.put(&key, &t.body(&format!("v{n}"), 0)).await?;
        let head = t.send(Call::head(&key)).await?;
        let now = moment(&head, "last-modified")?;
        if let Some(before) = last.filter(|before| now < *before) {
            return Err(Stop::fail(format!("not before {before}"), now.to_string(), &head));
        }
        last = Some(now);
    }
    Ok(())
}

const NEAR_NOW: Check = Check {
    id: "clock.last-modified.date",
    proves: "an object's Last-Modified is the Date of its write, give or take two seconds",
    source: "S3 API Reference: HeadObject, Last-Modified",
    broken_by: &["changing-last-modified", "last-modified-goes-back", "clock-an-hour-ahead"],
    run: |t| Box::pin(near_now(t)),
    ..BASE
};

async fn near_now(t: &Trial) -> Done {
    let key = t.key("k");
    let before = t.send(Call::head(&key)).await?;
    let put = t.send(Call::put(&key, t.body("x", 0))).await?;
    expect_status(&put, &[200])?;
    let head = t.send(Call::head(&key)).await?;
    let written = moment(&head, "last-modified")?;
    let (from, to) = (moment(&before, "date")? - NEAR, moment(&put, "date")? + NEAR);
    if (from..=to).contains(&written) {
        return Ok(());
    }
    Err(Stop::fail(format!("between {from} and {to}"), written.to_string(), &head))
}

const RESOLUTION: Check = Check {
    id: "clock.resolution",
    proves: "a listing gives LastModified with three digits of a second",
    severity: Severity::Informative,
    source: "S3 API Reference: ListObjectsV2, example answers",
    broken_by: &["list-without-milliseconds"],
    run: |t| Box::pin(resolution(t)),
    ..BASE
};

async fn resolution(t: &Trial) -> Done {
    t.put(&t.key("k"), &t.body("x", 0)).await?;
    let page = list(t, "", &[]).await?;
    let text = page.answer.element("LastModified").unwrap_or_default();
    let digits =
        text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    t.measure("last-modified-digits", digits as u64);
    if digits == 3 { Ok(()) } else { Err(Stop::fail("three digits", text, &page.answer)) }
}

const COMPLETED: Check = Check {
    id: "clock.last-modified.multipart",
    proves: "a multipart object's Last-Modified lies between the creation of its upload and its Complete",
    needs: &[Need::Multipart],
    severity: Severity::Informative,
    source: "S3 API Reference: CompleteMultipartUpload; AWS's pages differ on the moment",
    broken_by: &["changing-last-modified", "last-modified-goes-back", "clock-an-hour-ahead"],
    run: |t| Box::pin(completed(t)),
    ..BASE
};

async fn completed(t: &Trial) -> Done {
    let key = t.key("k");
    let before = moment(&t.send(Call::head(&key)).await?, "date")? - NEAR;
    Upload::whole(t, &key, &t.body("part", 0)).await?;
    let head = t.send(Call::head(&key)).await?;
    let (written, after) = (moment(&head, "last-modified")?, moment(&head, "date")? + NEAR);
    if (before..=after).contains(&written) {
        return Ok(());
    }
    Err(Stop::fail(format!("between {before} and {after}"), written.to_string(), &head))
}
