//! Keys of rolling files: Hive's directories, and a ULID as the name.

use time::OffsetDateTime;

use crate::model::key::TableSegment;

/// Crockford's alphabet of base 32 (ULID specification, "Encoding").
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// `{prefix}/table=…/year=…/month=…/day=…/{ulid}.{extension}`, dated by `now_ms` in UTC.
///
/// No key of a pipeline's durable state begins like it: a pipeline's name has its `=` escaped.
pub(super) fn key(
    prefix: &str,
    table: &TableSegment,
    now_ms: u64,
    random: [u8; 16],
    extension: &str,
) -> String {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    // A clock behind the year 9999 is none; the file is then dated 1970 and still written.
    let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = date.to_calendar_date();
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!(
        "{prefix}{slash}table={table}/year={year:04}/month={:02}/day={day:02}/{}.{extension}",
        u8::from(month),
        ulid(now_ms, random)
    )
}

/// 48 bits of milliseconds and 80 of chance, as 26 characters that sort by time.
fn ulid(now_ms: u64, random: [u8; 16]) -> String {
    let chance = u128::from_be_bytes(random) & ((1 << 80) - 1);
    let number = (u128::from(now_ms) << 80) | chance;
    (0..26).rev().map(|digit| char::from(ALPHABET[(number >> (5 * digit)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_in_its_tables_and_days_directory() {
        let table = TableSegment::new("public", "orders").unwrap();
        // 2026-11-29T01:02:03Z.
        let made = key("lake/raw", &table, 1_795_914_123_000, [0; 16], "jsonl.gz");
        assert_eq!(
            made,
            "lake/raw/table=public.orders/year=2026/month=11/day=29/01M8JD5HQR0000000000000000.jsonl.gz"
        );
        assert!(
            key("", &table, 0, [0xff; 16], "jsonl").starts_with("table=public.orders/year=1970/month=01/")
        );
    }

    #[test]
    fn names_sort_by_time_and_differ_by_chance() {
        assert_eq!(ulid(0, [0; 16]), "0".repeat(26));
        assert_eq!(ulid((1 << 48) - 1, [0xff; 16]), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        assert!(ulid(1_000, [0xff; 16]) < ulid(1_001, [0; 16]));
        assert_ne!(ulid(1_000, [1; 16]), ulid(1_000, [2; 16]));
    }
}
