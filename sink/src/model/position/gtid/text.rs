//! GTID sets as text: `UUID:FIRST-LAST:N:TAG:FIRST-LAST,UUID:...`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::{Gtid, GtidSet, Interval, MAX_TRANSACTION_NUMBER, Member, Tag};
use crate::model::position::PositionError;
use crate::model::position::uuid::ServerUuid;

impl FromStr for GtidSet {
    type Err = PositionError;

    /// Reads what a server prints or accepts: UUIDs in any case, with dashes or without, one of them several
    /// times; whitespace around UUIDs, intervals and tags; a tag that holds for all intervals behind it, up to
    /// the next tag or UUID. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, PositionError> {
        let text = without_whitespace(text)?;
        if text.is_empty() {
            return Ok(Self::new());
        }
        let mut members = Vec::new();
        text.split(',').try_for_each(|one| read_members(one, &mut members))?;
        Ok(Self::from_members(members))
    }
}

impl FromStr for Gtid {
    type Err = PositionError;

    /// Reads `UUID:N` or `UUID:TAG:N`, as one change event names its transaction.
    fn from_str(text: &str) -> Result<Self, PositionError> {
        let set: GtidSet = text.parse()?;
        if let [Member { uuid, tag, intervals }] = &*set.members
            && let [Interval { first, last }] = **intervals
            && first == last
        {
            return Ok(Self { uuid: *uuid, tag: *tag, number: first });
        }
        Err(PositionError::NotOneGtid { text: text.to_owned() })
    }
}

/// Servers print a line break behind each comma, and accept spaces around every word. Inside a word whitespace
/// is refused: `1-2 3` is not 1-23.
fn without_whitespace(text: &str) -> Result<Cow<'_, str>, PositionError> {
    if !text.contains(|c: char| c.is_ascii_whitespace()) {
        return Ok(Cow::Borrowed(text));
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut joined = String::with_capacity(text.len());
    for part in text.split_ascii_whitespace() {
        if joined.ends_with(word) && part.starts_with(word) {
            let before = joined.rsplit([',', ':']).next().unwrap_or_default();
            let behind = part.split([',', ':']).next().unwrap_or_default();
            return Err(PositionError::Whitespace { text: format!("{before} {behind}") });
        }
        joined.push_str(part);
    }
    Ok(Cow::Owned(joined))
}

/// One UUID and what belongs to it: intervals without a tag, then tags with theirs.
fn read_members(text: &str, members: &mut Vec<Member>) -> Result<(), PositionError> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    if is_mariadb_gtid(name) {
        return Err(PositionError::MariaDbGtid { text: text.to_owned() });
    }
    let uuid = name.parse()?;
    let mut member = Member { uuid, tag: Tag::default(), intervals: Vec::new() };
    for word in words {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            member.intervals.push(word.parse()?);
        } else if word.is_empty() || word.starts_with('-') {
            return Err(PositionError::Interval { text: word.to_owned() });
        } else {
            let next = Member { uuid, tag: Tag::parse(word)?, intervals: Vec::new() };
            members.push(std::mem::replace(&mut member, next));
        }
    }
    members.push(member);
    Ok(())
}

/// Three decimal numbers with dashes between: domain, server and sequence.
fn is_mariadb_gtid(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split('-').count() == 3 && name.split('-').all(number)
}

impl FromStr for Interval {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |digits: &str| {
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(PositionError::Interval { text: text.to_owned() });
            }
            let number = digits.parse().ok().filter(|number| (1..=MAX_TRANSACTION_NUMBER).contains(number));
            number.ok_or_else(|| PositionError::TransactionNumber { text: digits.to_owned() })
        };
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(PositionError::IntervalReversed { text: text.to_owned() });
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl fmt::Display for GtidSet {
    /// The canonical text: as a server prints it, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<ServerUuid> = None;
        for member in &self.members {
            if before != Some(member.uuid) {
                let comma = if before.is_some() { "," } else { "" };
                write!(f, "{comma}{}", member.uuid)?;
                before = Some(member.uuid);
            }
            if !member.tag.is_none() {
                write!(f, ":{}", member.tag)?;
            }
            for interval in &member.intervals {
                write!(f, ":{interval}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.uuid)?;
        if !self.tag.is_none() {
            write!(f, ":{}", self.tag)?;
        }
        write!(f, ":{}", self.number)
    }
}
