//! Who made a transaction: the UUID of a MySQL server.

use std::fmt;
use std::str::FromStr;

use super::PositionError;

/// A server's UUID. Read in any case, with dashes or without; written in lower case with dashes. Ordered as its
/// bytes are, by one comparison of numbers: sets of hundreds of servers are compared for each batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerUuid(u128);

impl ServerUuid {
    /// From its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// Where the dashes stand.
const DASHES: [usize; 4] = [8, 13, 18, 23];

impl FromStr for ServerUuid {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let mut digits = [0; 32];
        let mut count = 0;
        let dashed = text.len() == 36;
        for (at, byte) in text.bytes().enumerate() {
            if dashed && DASHES.contains(&at) && byte == b'-' {
                continue;
            }
            if count == digits.len() {
                count += 1;
                break;
            }
            digits[count] = byte;
            count += 1;
        }
        let mut bytes = [0; 16];
        if count != digits.len() || hex::decode_to_slice(digits, &mut bytes).is_err() {
            return Err(PositionError::Uuid { text: text.to_owned() });
        }
        Ok(Self::from_bytes(bytes))
    }
}

impl fmt::Display for ServerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group =
            |from: u32, digits: u32| (self.0 >> (128 - 4 * (from + digits))) & ((1 << (4 * digits)) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            group(0, 8),
            group(8, 4),
            group(12, 4),
            group(16, 4),
            group(20, 12)
        )
    }
}

impl fmt::Debug for ServerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "3e11fa47",
            "3e11fa47-71ca-11e1-9e33-c80aa942956",
            "3e11fa47-71ca-11e1-9e33-c80aa94295621",
            "3e11fa4771ca-11e1-9e33-c80aa9429562",
            "3e11fa47-71ca-11e1-9e33c-80aa9429562",
            "3e11fa47-71ca-11e1-9e33-c80aa942956g",
            "3e11fa47-71ca-11e1-9e33-c80aa942956é",
            "3e11fa4771ca11e19e33c80aa9429562----",
            "3e11fa47:71ca:11e1:9e33:c80aa9429562",
            "{3e11fa47-71ca-11e1-9e33-c80aa9429562}",
            "3e11fa4771ca11e19e33c80aa942956",
            "3e11fa4771ca11e19e33c80aa94295621",
        ] {
            assert_eq!(
                text.parse::<ServerUuid>(),
                Err(PositionError::Uuid { text: text.to_owned() }),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn spellings_of_one_uuid_are_equal(bytes in any::<[u8; 16]>()) {
            let uuid = ServerUuid::from_bytes(bytes);
            let text = uuid.to_string();
            prop_assert_eq!(text.len(), 36);
            prop_assert_eq!(uuid.to_bytes(), bytes);
            for spelling in [text.to_uppercase(), text.replace('-', ""), text] {
                prop_assert_eq!(spelling.parse::<ServerUuid>().unwrap(), uuid);
            }
        }

        #[test]
        fn uuids_are_ordered_as_their_bytes(left in any::<[u8; 16]>(), right in any::<[u8; 16]>()) {
            let order = ServerUuid::from_bytes(left).cmp(&ServerUuid::from_bytes(right));
            prop_assert_eq!(order, left.cmp(&right));
        }
    }
}
