//! Numbers in JSON: 64-bit integers are decimal strings, since other languages' readers round above 2^53.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

/// A number of decimal digits and nothing else.
pub(super) fn parse(text: &str) -> Option<u64> {
    // `u64::from_str` takes a plus sign too.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Writes `number` as a decimal string.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's `with` hands over a reference")]
pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Reads a decimal string; a number is taken too, if it is an integer of 64 bits.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Decimal;

    impl Visitor<'_> for Decimal {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an integer from 0 to 18446744073709551615, as a number or a decimal string")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Decimal)
}
