//! GTID sets of MySQL: which transactions, by server uuid and tag.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The largest transaction number: 2^63 − 2 (MySQL manual, "GTID Format and Storage").
const MOST: u64 = (1 << 63) - 2;

/// Intervals per server uuid and tag; the empty tag sorts first.
type Members = BTreeMap<([u8; 16], String), Vec<(u64, u64)>>;

/// Transactions as sorted, disjoint, non-adjacent intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet(Members);

impl GtidSet {
    /// Reads any spelling of a set; the empty text is the empty set.
    ///
    /// # Errors
    /// Which part is no uuid, tag or interval.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut all = Members::new();
        for member in text.split(',').filter(|member| !member.is_empty()) {
            let mut tokens = member.split(':');
            let uuid = uuid(tokens.next().unwrap_or_default())?;
            let mut tag = String::new();
            for token in tokens {
                if token.starts_with(|c: char| c.is_ascii_digit()) {
                    all.entry((uuid, tag.clone())).or_default().push(interval(token)?);
                } else {
                    tag = self::tag(token)?;
                }
            }
        }
        let mut set = Self::default();
        for (member, mut intervals) in all {
            intervals.sort_unstable();
            let mut merged: Vec<(u64, u64)> = Vec::new();
            for (first, last) in intervals {
                match merged.last_mut() {
                    Some((_, end)) if first <= *end + 1 => *end = (*end).max(last),
                    _ => merged.push((first, last)),
                }
            }
            set.0.insert(member, merged);
        }
        Ok(set)
    }

    /// Appends the canonical bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.0.len() as u32).to_be_bytes());
        for ((uuid, tag), intervals) in &self.0 {
            out.extend(uuid);
            out.push(tag.len() as u8);
            out.extend(tag.as_bytes());
            out.extend((intervals.len() as u32).to_be_bytes());
            for (first, last) in intervals {
                out.extend(first.to_be_bytes());
                out.extend(last.to_be_bytes());
            }
        }
    }

    fn contains(&self, other: &Self) -> bool {
        other.0.iter().all(|(member, intervals)| {
            let ours = self.0.get(member).map(Vec::as_slice).unwrap_or_default();
            intervals
                .iter()
                .all(|(first, last)| ours.iter().any(|(start, end)| start <= first && last <= end))
        })
    }

    /// This set against `other`, by inclusion.
    #[must_use]
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self.contains(other), other.contains(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    let dashed = text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.as_bytes()[*at] == b'-');
    let digits = if dashed { text.replace('-', "") } else { text.to_owned() };
    let mut bytes = [0; 16];
    hex::decode_to_slice(&digits, &mut bytes).map_err(|_| format!("{text:?} is no uuid"))?;
    Ok(bytes)
}

fn tag(text: &str) -> Result<String, String> {
    let tag = text.to_ascii_lowercase();
    let first = tag.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = tag.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if first && rest && tag.len() <= 32 { Ok(tag) } else { Err(format!("{text:?} is no tag")) }
}

fn interval(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match (number(first), number(last)) {
        (Some(first), Some(last)) if 1 <= first && first <= last && last <= MOST => Ok((first, last)),
        _ => Err(format!("{text:?} is no interval of transactions")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_gtid_set_is_refused() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        for text in [
            "0-1-270".to_owned(),
            format!("{uuid}:0"),
            format!("{uuid}:5-3"),
            format!("{uuid}:1-9223372036854775807"),
            format!("{uuid}:-3"),
            format!("{uuid}:1:é:2"),
            format!("{uuid}:{}:2", "t".repeat(33)),
            format!("{}:1", &uuid[1..]),
        ] {
            assert!(GtidSet::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_uuid_without_intervals_is_no_member() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        assert_eq!(GtidSet::parse(&format!("{uuid}:tag")).unwrap(), GtidSet::default());
    }
}
