//! HTTP dates: RFC 9110, section 5.6.7.

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const IMF_FIXDATE: &[BorrowedFormatItem<'static>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// Reads the fixed-length form that every server sends.
pub(crate) fn parse(text: &str) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(text, IMF_FIXDATE).ok().map(PrimitiveDateTime::assume_utc)
}

/// Writes the fixed-length form.
pub(crate) fn format(moment: OffsetDateTime) -> String {
    moment.to_offset(time::UtcOffset::UTC).format(IMF_FIXDATE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_round_trip() {
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(super::parse(text).map(super::format).as_deref(), Some(text));
        assert_eq!(super::parse("yesterday"), None);
    }
}
