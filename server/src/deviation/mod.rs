//! Lasting differences from AWS, each known of a vendor or made for the checks of a suite.
//!
//! A fault is temporary and by rule; a deviation is how a server is. Here stand their names, values and sets:
//! what they do stands in `op/bent`, in `precondition` and in `store`, and is asked nowhere else.

mod catalog;
mod certificate;
mod profile;
mod value;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::catalog::{Described, Deviation};
pub use self::profile::{Profile, ProfileEntry};
pub use self::value::{Limit, Moment, Window};

/// A text that names no deviation, or gives one a value that it does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no deviation: {why}")]
pub struct DeviationError {
    /// What was given.
    pub text: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl FromStr for Deviation {
    type Err = DeviationError;

    fn from_str(text: &str) -> Result<Self, DeviationError> {
        let failed = |why: String| DeviationError { text: text.to_owned(), why };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let described = Self::catalog().iter().find(|described| described.name == name).ok_or_else(|| {
            failed("no deviation has this name; `assay-server deviations` lists them".to_owned())
        })?;
        described.make(value).map_err(failed)
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.value() {
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
        }
    }
}

impl Deviation {
    /// The deviations that a collective name stands for; otherwise itself.
    pub fn parts(&self) -> Vec<Self> {
        use Deviation as D;
        match self {
            D::IgnoreIfNoneMatch => {
                vec![D::IgnoreIfNoneMatchPut, D::IgnoreIfNoneMatchCopy, D::IgnoreIfNoneMatchComplete]
            }
            D::IgnoreIfMatch => vec![
                D::IgnoreIfMatchPut,
                D::IgnoreIfMatchCopy,
                D::IgnoreIfMatchComplete,
                D::IgnoreIfMatchDelete,
                D::IgnoreEtagDeleteObjects,
            ],
            D::IgnoreWriteConditions => {
                [D::IgnoreIfNoneMatch, D::IgnoreIfMatch].iter().flat_map(Self::parts).collect()
            }
            D::RefuseConditionalWrites => vec![
                D::RefuseIfNoneMatchPut,
                D::RefuseIfMatchPut,
                D::RefuseConditionalCopy,
                D::RefuseConditionalComplete,
                D::RefuseConditionalDelete,
            ],
            D::RaceConditions(window) => vec![
                D::RaceCreatePut(*window),
                D::RaceSwapPut(*window),
                D::RaceCopy(*window),
                D::RaceComplete(*window),
                D::RaceDelete(*window),
            ],
            single => vec![single.clone()],
        }
    }
}

/// The deviations of one server. Without any, asking costs one branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deviations(Option<Arc<[Deviation]>>);

impl Deviations {
    /// Collective names are taken apart here.
    pub(crate) fn new(all: &[Deviation]) -> Self {
        let all: Vec<_> = all.iter().flat_map(Deviation::parts).collect();
        Self((!all.is_empty()).then(|| all.into()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Deviation> {
        self.0.iter().flat_map(|all| all.iter())
    }

    pub(crate) fn has(&self, wanted: &Deviation) -> bool {
        self.iter().any(|deviation| deviation == wanted)
    }
}

/// The deviations of a server, and which of them acted on one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acting {
    set: Deviations,
    acted: Option<Arc<Mutex<Vec<&'static str>>>>,
}

impl Acting {
    pub(crate) fn new(set: &Deviations) -> Self {
        Self { set: set.clone(), acted: (!set.is_empty()).then(Arc::default) }
    }

    pub(crate) fn set(&self) -> &Deviations {
        &self.set
    }

    /// Whether the server has this deviation; one that is asked for is about to act, and noted.
    pub(crate) fn acts(&self, wanted: &Deviation) -> bool {
        let acts = self.set.has(wanted);
        if acts {
            self.note(wanted);
        }
        acts
    }

    /// Notes that a deviation acted.
    pub(crate) fn note(&self, deviation: &Deviation) {
        if let Some(acted) = &self.acted {
            let mut acted = acted.lock();
            if !acted.contains(&deviation.name()) {
                acted.push(deviation.name());
            }
        }
    }

    /// The names of those that acted, in their order.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.acted.as_ref().map(|acted| acted.lock().clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_default_reads_back() {
        let mut names = std::collections::BTreeSet::new();
        for described in Deviation::catalog() {
            assert!(names.insert(described.name), "{} twice", described.name);
            let deviation: Deviation = described.name.parse().unwrap();
            assert_eq!(deviation.name(), described.name);
            assert_eq!(deviation.to_string().parse(), Ok(deviation), "{}", described.name);
            assert!(!described.about().is_empty() && !described.known.is_empty(), "{}", described.name);
            assert!(described.name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')));
        }
    }

    #[track_caller]
    fn check(text: &str, expected: Result<Deviation, &str>) {
        let read = text.parse::<Deviation>().map_err(|error| error.to_string());
        assert_eq!(read, expected.map_err(str::to_owned));
    }

    #[test]
    fn values() {
        let limit = Limit { bytes: 255, code: crate::error::Code::XMinioInvalidObjectName };
        check("segment-limit=255:XMinioInvalidObjectName", Ok(Deviation::SegmentLimit(limit)));
        let window = Window { us: 7_000, at: Moment::Body };
        check("race-create-put=7:body", Ok(Deviation::RaceCreatePut(window)));
        let window = Window { us: 100, at: Moment::Head };
        check("race-create-put=100us", Ok(Deviation::RaceCreatePut(window)));
        assert_eq!(Deviation::RaceCreatePut(window).to_string(), "race-create-put=100us:head");
        check("list-lag=50", Ok(Deviation::ListLag(50)));
        check(
            "ignore-nothing",
            Err(
                "\"ignore-nothing\" is no deviation: no deviation has this name; `assay-server deviations` lists them",
            ),
        );
        check(
            "drop-metadata=1",
            Err("\"drop-metadata=1\" is no deviation: drop-metadata takes no value; leave \"=1\" out"),
        );
        check("list-lag=soon", Err("\"list-lag=soon\" is no deviation: \"soon\" is no whole number"));
        check(
            "segment-limit=9:Oops",
            Err(
                "\"segment-limit=9:Oops\" is no deviation: \"Oops\" is no S3 error code such as KeyTooLongError or InvalidArgument",
            ),
        );
    }

    #[test]
    fn collective_names_are_taken_apart() {
        let set = Deviations::new(&[Deviation::IgnoreWriteConditions]);
        assert!(set.has(&Deviation::IgnoreIfMatchDelete) && !set.has(&Deviation::IgnoreWriteConditions));
        assert_eq!(set.iter().count(), 8);
        assert!(Deviations::new(&[]).is_empty());
    }
}
