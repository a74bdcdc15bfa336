//! The events of a campaign: each is a pure function of seed, partition and sequence number, so that what must
//! be in a bucket is computed and never recorded.
//!
//! A line reads `{"id":"p3-17","key":"k00042","value":"…","check":"…"}`: the id says where the event belongs,
//! the rest follows from the seed.

use std::fmt::Write as _;

use serde::Deserialize;

/// What a campaign's generator produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// From which everything follows.
    pub seed: u64,
    /// Partitions of the log, from 0.
    pub partitions: u32,
    /// Distinct keys.
    pub keys: u32,
}

/// One event's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The partition.
    pub partition: u32,
    /// The sequence number in it, from 0.
    pub seq: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: &'a str,
    #[serde(rename = "key")]
    _key: &'a str,
    #[serde(rename = "value")]
    _value: &'a str,
    #[serde(rename = "check")]
    _check: &'a str,
}

impl Workload {
    /// The event's line, without a newline.
    #[must_use]
    pub fn line(&self, place: Place) -> String {
        let mut state = self.seed ^ (u64::from(place.partition) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = mixed(state ^ place.seq);
        let key = state % u64::from(self.keys.max(1));
        let value = mixed(state.wrapping_add(1));
        let check = mixed(value ^ mixed(self.seed ^ place.seq ^ u64::from(place.partition)));
        let mut line = String::with_capacity(96);
        let Place { partition, seq } = place;
        let _ = write!(
            line,
            "{{\"id\":\"p{partition}-{seq}\",\"key\":\"k{key:05}\",\"value\":\"{value:016x}\",\"check\":\"{check:016x}\"}}"
        );
        line
    }

    /// The place of a line that is exactly an event of this workload.
    ///
    /// # Errors
    /// What is wrong with it, without its content.
    pub fn place(&self, line: &[u8]) -> Result<Place, String> {
        let Line { id, .. } =
            serde_json::from_slice(line).map_err(|why| format!("no event's line: {why}"))?;
        let place = parsed(id).ok_or_else(|| format!("id {id:?} is none of this campaign"))?;
        if place.partition >= self.partitions {
            return Err(format!("id {id:?} names a partition of {}", self.partitions));
        }
        if self.line(place).as_bytes() != line {
            return Err(format!("id {id:?} with another content than the seed gives"));
        }
        Ok(place)
    }
}

/// `p{partition}-{seq}`, both in plain decimal.
fn parsed(id: &str) -> Option<Place> {
    let plain = |text: &str| {
        let canonical = text == "0" || !text.starts_with('0');
        (canonical && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse::<u64>().ok())?
    };
    let (partition, seq) = id.strip_prefix('p')?.split_once('-')?;
    Some(Place { partition: plain(partition)?.try_into().ok()?, seq: plain(seq)? })
}

/// One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload { seed: 7, partitions: 4, keys: 50_000 };

    #[test]
    fn a_line_says_its_place_and_nothing_else_passes_for_it() {
        let place = Place { partition: 3, seq: 17 };
        let line = WORKLOAD.line(place);
        assert_eq!(WORKLOAD.place(line.as_bytes()), Ok(place));
        assert_eq!(WORKLOAD.line(place), line);
        assert_ne!(Workload { seed: 8, ..WORKLOAD }.line(place), line);
        let other = WORKLOAD.line(Place { partition: 3, seq: 18 }).replace("p3-18", "p3-17");
        for foreign in [
            other.as_str(),
            &line.replace("p3-17", "p4-17"),
            &line.replace("p3-17", "p3-017"),
            &line.replace("p3-17", "x"),
            &line.replace("{\"id\"", "{ \"id\""),
            &line[..line.len() - 1],
            "",
        ] {
            assert!(WORKLOAD.place(foreign.as_bytes()).is_err(), "{foreign}");
        }
    }

    #[test]
    fn lines_are_the_same_for_ever() {
        assert_eq!(
            WORKLOAD.line(Place { partition: 0, seq: 0 }),
            "{\"id\":\"p0-0\",\"key\":\"k24487\",\"value\":\"27e8ac81e7bc3b89\",\"check\":\"b385723e6d9cb626\"}"
        );
    }
}
