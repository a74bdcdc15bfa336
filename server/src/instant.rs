//! Points in time: milliseconds since 1970 UTC, and the three forms in which S3 writes them.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::format_description::well_known::Iso8601;
use time::macros::format_description;

const ISO: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A point in time, in milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Instant(i64);

impl Instant {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_epoch_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn epoch_ms(self) -> i64 {
        self.0
    }

    /// The whole second this lies in: S3 keeps `Last-Modified` in seconds.
    pub(crate) const fn whole_second(self) -> Self {
        Self(self.0.div_euclid(1000) * 1000)
    }

    pub(crate) fn datetime(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// `2026-11-29T12:00:00.000Z`, as in XML.
    pub(crate) fn iso8601(self) -> String {
        self.datetime().format(ISO).unwrap_or_default()
    }

    /// `Sun, 29 Nov 2026 12:00:00 GMT`, as in headers (RFC 9110 section 5.6.7). Times before 1970 come out as 1970.
    pub(crate) fn http_date(self) -> String {
        let since_epoch = Duration::from_millis(u64::try_from(self.0).unwrap_or(0));
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_epoch)
    }

    /// Reads the three forms of RFC 9110 section 5.6.7, and ISO 8601, which AWS accepts beside them.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let ms = match httpdate::parse_http_date(text) {
            Ok(at) => at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis().try_into().ok()?,
            Err(_) => OffsetDateTime::parse(text, &Iso8601::DEFAULT).ok()?.unix_timestamp_nanos() / 1_000_000,
        };
        i64::try_from(ms).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let at = Instant::from_epoch_ms(784_111_777_123);
        assert_eq!(at.http_date(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at.iso8601(), "1994-11-06T08:49:37.123Z");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "1994-11-06T08:49:37Z",
        ] {
            assert_eq!(Instant::parse(text), Some(at.whole_second()), "{text}");
        }
        assert_eq!(Instant::parse("yesterday"), None);
    }
}
