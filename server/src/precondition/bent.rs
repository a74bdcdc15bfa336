//! Conditions as a store with deviations decides them.

use super::{IF_MATCH, Refusal, WriteCondition};
use crate::deviation::{Acting, Deviation as D, Window};
use crate::etag;
use crate::route::Operation;

/// What kind of request a deviation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Copy,
    Complete,
    Delete,
    /// GET and HEAD of an object.
    Read,
    Other,
}

impl Verb {
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::PutObject => Self::Put,
            Operation::CopyObject | Operation::UploadPartCopy => Self::Copy,
            Operation::CompleteMultipartUpload => Self::Complete,
            Operation::DeleteObject => Self::Delete,
            Operation::GetObject | Operation::HeadObject => Self::Read,
            _ => Self::Other,
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Other)
    }
}

/// A condition, and how the store differs that decides it.
#[derive(Clone, Debug)]
pub(crate) struct Bent {
    pub(crate) asked: WriteCondition,
    pub(crate) verb: Verb,
    /// The place in the order of commits after which a change of the key is one since the request began, where
    /// somebody looks at it.
    pub(crate) since: Option<u64>,
    /// The ETag that the write's bytes have, once they are there.
    pub(crate) made: Option<String>,
    pub(crate) acting: Acting,
}

impl PartialEq for Bent {
    fn eq(&self, other: &Self) -> bool {
        self.asked == other.asked && self.verb == other.verb
    }
}

impl Eq for Bent {}

impl Bent {
    /// Decides as [`WriteCondition::decide`] does, but for the deviations.
    pub(super) fn decide(&self, current: Option<&str>, changed_since_start: bool) -> Result<(), Refusal> {
        let acts = |deviation| self.acting.acts(&deviation);
        let changed = changed_since_start && self.verb == Verb::Complete;
        if self.verb == Verb::Complete
            && self.asked == WriteCondition::Absent
            && acts(D::InvertIfNoneMatchComplete)
        {
            return current.map(drop).ok_or(Refusal::Failed(super::IF_NONE_MATCH));
        }
        let near = match (current, &self.asked) {
            (Some(etag), WriteCondition::Match(tag)) if tag != etag && self.compares_alike(etag, tag) => {
                Some(WriteCondition::Match(etag.to_owned()))
            }
            _ => None,
        };
        let refusal = match near.as_ref().unwrap_or(&self.asked).decide(current, changed) {
            Err(Refusal::Conflict(_)) if acts(D::NoConflictOnComplete) => return Ok(()),
            Err(refusal) => refusal,
            Ok(()) => return Ok(()),
        };
        if let (Some(etag), Some(made)) = (current, self.made.as_deref())
            && etag == made
            && acts(D::IgnoreConditionsSameBytes)
        {
            return Ok(());
        }
        let ignored = match current {
            Some(_) => acts(D::IgnoreConditionsExisting),
            None => acts(D::IgnoreConditionsAbsent),
        };
        match refusal {
            _ if ignored => Ok(()),
            Refusal::Absent if self.verb == Verb::Delete && acts(D::DeleteAbsentIfMatch204) => Ok(()),
            Refusal::Absent if self.verb != Verb::Delete && acts(D::IfMatchAbsentCreates) => Ok(()),
            Refusal::Absent if acts(D::IfMatchAbsent412) => Err(Refusal::Failed(IF_MATCH)),
            Refusal::Failed(condition) if changed_since_start && acts(D::Loser409) => {
                Err(Refusal::Conflict(condition))
            }
            refusal => Err(refusal),
        }
    }

    /// Whether two ETags are one where only their first characters are compared.
    fn compares_alike(&self, etag: &str, tag: &str) -> bool {
        self.acting.set().iter().any(|deviation| {
            let D::CompareEtagPrefix(characters) = deviation else { return false };
            let count = usize::try_from(*characters).unwrap_or(usize::MAX);
            let alike = etag.chars().take(count).eq(tag.chars().take(count));
            if alike {
                self.acting.note(deviation);
            }
            alike
        })
    }

    /// The window between look and write, where this kind of request races.
    pub(crate) fn window(&self) -> Option<Window> {
        self.acting.set().iter().find_map(|deviation| {
            let window = match (deviation, self.verb, &self.asked) {
                (_, _, WriteCondition::Always) => None,
                (D::RaceCreatePut(window), Verb::Put, WriteCondition::Absent)
                | (D::RaceSwapPut(window), Verb::Put, WriteCondition::Match(_) | WriteCondition::Present)
                | (D::RaceComplete(window), Verb::Complete, _)
                | (D::RaceCopy(window), Verb::Copy, _)
                | (D::RaceDelete(window), Verb::Delete, _) => Some(*window),
                _ => None,
            };
            if window.is_some() {
                self.acting.note(deviation);
            }
            window
        })
    }

    /// The ETag of a new object.
    pub(crate) fn made_etag(&self, etag: String) -> String {
        let mut etag = etag;
        for deviation in self.acting.set().iter() {
            let other = match deviation {
                D::ConstantEtags => "0".repeat(32),
                D::TruncatedEtags(characters) => {
                    etag.chars().take(usize::try_from(*characters).unwrap_or(usize::MAX)).collect()
                }
                D::MultipartEtagPlain => etag.split('-').next().unwrap_or_default().to_owned(),
                _ => continue,
            };
            if other != etag {
                self.acting.note(deviation);
                etag = other;
            }
        }
        etag
    }
}

/// A write's conditions evaluated as those of a read are: ETags or `*` in either header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AsRead {
    pub(crate) matches: Option<String>,
    pub(crate) none_matches: Option<String>,
}

impl AsRead {
    pub(super) fn decide(&self, current: Option<&str>) -> Result<(), Refusal> {
        if let Some(tags) = &self.matches {
            match current {
                None => return Err(Refusal::Absent),
                Some(etag) if !etag::list_names(tags, etag, false) => return Err(Refusal::Failed(IF_MATCH)),
                Some(_) => {}
            }
        }
        match (&self.none_matches, current) {
            (Some(tags), Some(etag)) if etag::list_names(tags, etag, true) => {
                Err(Refusal::Failed(super::IF_NONE_MATCH))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviation::Deviations;

    #[track_caller]
    fn check(
        name: &str,
        verb: Verb,
        asked: WriteCondition,
        current: Option<&str>,
        changed: bool,
        expected: Result<(), Refusal>,
    ) {
        let acting = Acting::new(&Deviations::new(&[name.parse().unwrap()]));
        let bent = Bent { asked, verb, since: None, made: Some("c".into()), acting };
        assert_eq!(bent.decide(current, changed), expected, "{name} {bent:?}");
        let name = name.split('=').next().unwrap();
        assert_eq!(bent.acting.names(), [name], "{name} acted");
    }

    #[test]
    fn each_deviation_decides_its_own_case() {
        use Refusal::{Conflict, Failed};
        use WriteCondition::{Absent, Present};
        let matching = || WriteCondition::Match("a".into());
        let (some, none) = (Some("b"), None);
        check("if-match-absent-creates", Verb::Put, matching(), none, false, Ok(()));
        check("if-match-absent-412", Verb::Delete, matching(), none, false, Err(Failed("If-Match")));
        check("delete-absent-if-match-204", Verb::Delete, Present, none, false, Ok(()));
        check("ignore-conditions-existing", Verb::Copy, Absent, some, false, Ok(()));
        check("ignore-conditions-absent", Verb::Put, matching(), none, false, Ok(()));
        check("ignore-conditions-same-bytes", Verb::Put, Absent, Some("c"), false, Ok(()));
        check(
            "compare-etag-prefix=1",
            Verb::Put,
            WriteCondition::Match("bc".into()),
            Some("bd"),
            false,
            Ok(()),
        );
        check("no-conflict-on-complete", Verb::Complete, Absent, none, true, Ok(()));
        check("loser-409", Verb::Put, Absent, some, true, Err(Conflict("If-None-Match")));
        check("invert-if-none-match-complete", Verb::Complete, Absent, some, false, Ok(()));
    }

    #[test]
    fn as_a_read() {
        let both = AsRead { matches: Some("\"a\"".into()), none_matches: Some("*".into()) };
        assert_eq!(both.decide(None), Err(Refusal::Absent));
        assert_eq!(both.decide(Some("b")), Err(Refusal::Failed("If-Match")));
        assert_eq!(both.decide(Some("a")), Err(Refusal::Failed("If-None-Match")));
        let other = AsRead { matches: None, none_matches: Some("\"b\"".into()) };
        assert_eq!(other.decide(Some("a")), Ok(()));
    }
}
