//! Lifecycle rules of a bucket, and when what they say comes due. Pure.
//!
//! Source: S3 User Guide, "Lifecycle configuration elements" and "Setting lifecycle configuration on a bucket".

use serde::{Deserialize, Serialize};

use crate::instant::Instant;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A bucket's lifecycle configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lifecycle {
    pub(crate) rules: Vec<Rule>,
    pub(crate) transition_minimum: TransitionMinimum,
}

/// Which objects are too small for a transition where no rule says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TransitionMinimum {
    AllStorageClasses128K,
    VariesByStorageClass,
}

impl TransitionMinimum {
    /// As in `x-amz-transition-default-minimum-object-size`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AllStorageClasses128K => "all_storage_classes_128K",
            Self::VariesByStorageClass => "varies_by_storage_class",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::AllStorageClasses128K, Self::VariesByStorageClass].into_iter().find(|m| m.as_str() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) enabled: bool,
    pub(crate) filter: Filter,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) expiration: Option<Expiration>,
    pub(crate) noncurrent_transitions: Vec<NoncurrentTransition>,
    pub(crate) noncurrent_expiration: Option<NoncurrentExpiration>,
    /// `AbortIncompleteMultipartUpload`: days after initiation.
    pub(crate) abort_after_days: Option<u32>,
}

/// What a rule is about: all that it names must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Filter {
    pub(crate) form: FilterForm,
    pub(crate) prefix: Option<String>,
    pub(crate) tags: Vec<(String, String)>,
    /// Bytes that the object's size must exceed.
    pub(crate) larger_than: Option<u64>,
    /// Bytes that the object's size must stay below.
    pub(crate) smaller_than: Option<u64>,
}

/// How a filter was written, and is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilterForm {
    /// `Filter` with one predicate or none.
    #[default]
    One,
    /// `Filter` with `And`.
    And,
    /// A `Prefix` in the rule itself, as before there were filters.
    BarePrefix,
}

/// When an action comes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    /// Days after the object's creation.
    Days(u32),
    /// A midnight.
    Date(Instant),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transition {
    pub(crate) when: When,
    pub(crate) storage_class: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expiration {
    At(When),
    /// `ExpiredObjectDeleteMarker`.
    LoneMarkers(bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoncurrentTransition {
    pub(crate) days: u32,
    pub(crate) newer_versions: Option<u32>,
    pub(crate) storage_class: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoncurrentExpiration {
    pub(crate) days: Option<u32>,
    pub(crate) newer_versions: Option<u32>,
}

/// A moment that a rule names for one object or upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    pub(crate) rule: String,
}

impl Lifecycle {
    /// Whether any rule ends uploads.
    pub(crate) fn aborts_uploads(&self) -> bool {
        self.rules.iter().any(|rule| rule.enabled && rule.abort_after_days.is_some())
    }

    /// When an upload of `key` that began at `initiated` is to be aborted: the earliest of all rules.
    pub(crate) fn abort_of(&self, key: &str, initiated: Instant) -> Option<Due> {
        self.earliest(|rule| {
            let days = rule.abort_after_days?;
            rule.filter.takes_key(key).then(|| midnight_after(initiated, days))
        })
    }

    /// When the current object at `key` expires: the earliest of all rules.
    pub(crate) fn expiry_of(
        &self,
        key: &str,
        size: u64,
        tags: &[(String, String)],
        created: Instant,
    ) -> Option<Due> {
        self.earliest(|rule| {
            let Some(Expiration::At(when)) = rule.expiration else { return None };
            rule.filter.takes(key, size, tags).then(|| match when {
                When::Days(days) => midnight_after(created, days),
                When::Date(date) => date,
            })
        })
    }

    /// Of several that name the same moment it is the first (recorded for expirations).
    fn earliest(&self, due: impl Fn(&Rule) -> Option<Instant>) -> Option<Due> {
        let enabled = self.rules.iter().filter(|rule| rule.enabled);
        let (at, rule) = enabled.filter_map(|rule| Some((due(rule)?, rule))).min_by_key(|(at, _)| *at)?;
        Some(Due { at, rule: rule.id.clone() })
    }
}

impl Filter {
    fn takes_key(&self, key: &str) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
    }

    fn takes(&self, key: &str, size: u64, tags: &[(String, String)]) -> bool {
        self.takes_key(key)
            && self.larger_than.is_none_or(|bound| size > bound)
            && self.smaller_than.is_none_or(|bound| size < bound)
            && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

/// The midnight UTC that follows the moment `days` after `from`.
fn midnight_after(from: Instant, days: u32) -> Instant {
    Instant::from_epoch_ms((day_of(from) + i64::from(days) + 1) * DAY_MS)
}

/// The day, counted from 1970 UTC. What rules say changes with it and at no other time.
pub(crate) const fn day_of(at: Instant) -> i64 {
    at.epoch_ms().div_euclid(DAY_MS)
}

/// Whether it is a midnight UTC, as all dates in rules are.
pub(crate) const fn is_midnight(at: Instant) -> bool {
    at.epoch_ms().rem_euclid(DAY_MS) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(id: &str, prefix: &str) -> Rule {
        Rule {
            id: id.to_owned(),
            enabled: true,
            filter: Filter { prefix: Some(prefix.to_owned()), ..Filter::default() },
            transitions: Vec::new(),
            expiration: None,
            noncurrent_transitions: Vec::new(),
            noncurrent_expiration: None,
            abort_after_days: None,
        }
    }

    fn lifecycle(rules: Vec<Rule>) -> Lifecycle {
        Lifecycle { rules, transition_minimum: TransitionMinimum::AllStorageClasses128K }
    }

    #[test]
    fn uploads_end_at_the_midnight_after_their_days_by_the_earliest_rule() {
        let rules = lifecycle(vec![
            Rule { abort_after_days: Some(3), ..rule("all", "") },
            Rule { abort_after_days: Some(1), ..rule("logs", "logs/") },
            Rule { abort_after_days: Some(1), ..rule("logs again", "logs/") },
            Rule { abort_after_days: Some(1), enabled: false, ..rule("off", "a") },
        ]);
        for (key, initiated, at, by) in [
            ("a", "2027-01-15T10:30:00Z", "2027-01-19T00:00:00Z", "all"),
            ("logs/a", "2027-01-15T10:30:00Z", "2027-01-17T00:00:00Z", "logs"),
            ("logs/a", "2027-01-15T23:59:59Z", "2027-01-17T00:00:00Z", "logs"),
            ("logs/a", "2027-01-16T00:00:00Z", "2027-01-18T00:00:00Z", "logs"),
        ] {
            let due = rules.abort_of(key, Instant::parse(initiated).unwrap());
            let expected = Due { at: Instant::parse(at).unwrap(), rule: by.to_owned() };
            assert_eq!(due, Some(expected), "{key} {initiated}");
        }
        assert!(rules.aborts_uploads());
        let off = lifecycle(rules.rules[3..].to_vec());
        assert!(!off.aborts_uploads());
        assert_eq!(off.abort_of("a", Instant::from_epoch_ms(0)), None);
    }

    #[test]
    fn objects_expire_where_all_of_a_filter_holds() {
        let by_tag = Filter { tags: vec![("k".into(), "v".into())], ..Filter::default() };
        let by_size = Filter { larger_than: Some(10), smaller_than: Some(20), ..Filter::default() };
        let date = Instant::parse("2027-02-01T00:00:00Z").unwrap();
        let expires =
            |id, filter, when| Rule { filter, expiration: Some(Expiration::At(when)), ..rule(id, "") };
        let rules = lifecycle(vec![
            Rule { expiration: Some(Expiration::LoneMarkers(true)), ..rule("markers", "") },
            expires("tag", by_tag, When::Days(1)),
            expires("size", by_size, When::Date(date)),
        ]);
        let tag = [("k".to_owned(), "v".to_owned()), ("other".to_owned(), "x".to_owned())];
        let created = Instant::parse("2027-01-15T10:30:00Z").unwrap();
        let by = |size, tags: &[_]| rules.expiry_of("a", size, tags, created).map(|due| due.rule);
        assert_eq!(by(15, &tag).as_deref(), Some("tag"));
        assert_eq!(by(15, &[]).as_deref(), Some("size"));
        assert_eq!((by(10, &[]), by(20, &tag[1..])), (None, None));
        assert_eq!(rules.expiry_of("a", 15, &[], created).unwrap().at, date);
    }

    proptest! {
        #[test]
        fn nothing_comes_due_on_the_day_it_begins(ms in 0_i64..4_102_444_800_000, days in 0_u32..40_000) {
            let from = Instant::from_epoch_ms(ms);
            let at = midnight_after(from, days);
            prop_assert!(is_midnight(at));
            prop_assert!(day_of(at) > day_of(from));
            prop_assert!(at.epoch_ms() - ms > i64::from(days) * DAY_MS);
        }
    }
}
