//! From what a provider failed to the deviations of the embedded server that fail the same: so that a team can test
//! against its provider offline. Pure.

use crate::report::{Entry, Outcome};
use assay_checks::{Class, Condition};
use assay_server::Deviation;
use std::collections::{BTreeMap, BTreeSet};

/// Deviations that are never guessed: ETags that are others make conditions come out otherwise, far beyond the checks
/// that name them, and so do conditions that end with the number of writes.
const TOO_WIDE: [&str; 5] =
    ["weak-etags", "changing-etags", "truncated-etags", "constant-etags", "ignore-conditions-after"];

/// The deviations that make a condition refused, racy and ignored; empty where the server has none.
fn of_condition(condition: Condition) -> [&'static str; 3] {
    use Condition as C;
    match condition {
        C::PutCreate => ["refuse-if-none-match-put", "race-create-put", "ignore-if-none-match-put"],
        C::PutSwap => ["refuse-if-match-put", "race-swap-put", "ignore-if-match-put"],
        C::CompleteCreate => {
            ["refuse-conditional-complete", "race-complete", "ignore-if-none-match-complete"]
        }
        C::CompleteSwap => ["refuse-conditional-complete", "race-complete", "ignore-if-match-complete"],
        C::CopyCreate => ["refuse-conditional-copy", "race-copy", "ignore-if-none-match-copy"],
        C::CopySwap => ["refuse-conditional-copy", "race-copy", "ignore-if-match-copy"],
        C::CopySource => ["", "", "ignore-copy-source-conditions"],
        C::DeleteMatch => ["refuse-conditional-delete", "race-delete", "ignore-if-match-delete"],
        C::DeleteObjects => ["", "", "ignore-etag-delete-objects"],
        C::Read => ["", "", "ignore-read-conditions"],
    }
}

/// The deviation that gives a condition its class; none where the server has none, or needs none.
fn of_class(condition: Condition, class: Class) -> Option<&'static str> {
    let [refuses, races, ignores] = of_condition(condition);
    let name = match class {
        Class::Enforces => "",
        Class::Refuses => refuses,
        Class::Races => races,
        Class::Ignores => ignores,
    };
    (!name.is_empty()).then_some(name)
}

/// The longest key of S3, in bytes.
const LONGEST: u64 = 1024;

/// The deviations that give keys the limits that were measured, with the code that was answered above them.
fn limits(entries: &[Entry]) -> Vec<String> {
    let measured = |id: &str, name: &str| {
        let entry = entries.iter().find(|entry| entry.id == id)?;
        Some((entry, *entry.measured.get(name)?))
    };
    let mut found = Vec::new();
    let mut add = |name: &str, entry: &Entry, bytes: u64| {
        let reply = entry.exchange().and_then(|exchange| exchange.answer.as_ref().ok());
        let code = reply.and_then(|reply| assay_checks::xml::element(&reply.body.text, "Code"));
        let coded = code.map(|code| format!("{name}={bytes}:{code}"));
        // A code that the server does not know is left to it.
        found.push(coded.filter(|text| known(text)).unwrap_or_else(|| format!("{name}={bytes}")));
    };
    let mut longest = LONGEST;
    if let Some((entry, bytes)) =
        measured("key.limit.total", "key-total-bytes").filter(|(_, it)| *it < LONGEST)
    {
        add("key-limit", entry, bytes);
        longest = bytes;
    }
    if let Some((entry, bytes)) = measured("key.limit.segment", "key-segment-bytes") {
        // What stands before the segment counts for the whole key: a shorter whole key explains a shorter segment.
        let room = match &entry.outcome {
            Outcome::Fail(failure) => failure.expected.split(' ').next().and_then(|word| word.parse().ok()),
            _ => None,
        };
        if room.is_some_and(|room: u64| bytes + LONGEST - room < longest) {
            add("segment-limit", entry, bytes);
        }
    }
    found
}

fn known(deviation: &str) -> bool {
    deviation.parse::<Deviation>().is_ok()
}

/// The names of the deviations that give the classes and explain the other failures. One of the second kind is taken
/// when every check that names it failed and nothing else explains more than half of them, the one that explains most
/// first: a provider that drops a condition also fails in the answers that it then does not give. Limits of keys are
/// given as measured.
pub fn deviations(conditions: &BTreeMap<Condition, Class>, entries: &[Entry]) -> Vec<String> {
    let ended = |wanted: fn(&Outcome) -> bool| -> BTreeSet<&str> {
        let ended = entries.iter().filter(|entry| wanted(&entry.outcome));
        ended.map(|entry| entry.id.as_str()).collect()
    };
    let failed = ended(|outcome| matches!(outcome, Outcome::Fail(_)));
    let decided = ended(|outcome| matches!(outcome, Outcome::Fail(_) | Outcome::Pass));
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for check in assay_checks::all().filter(|check| decided.contains(check.id)) {
        for deviation in check.broken_by {
            named.entry(deviation).or_default().insert(check.id);
        }
    }
    let mut taken: BTreeSet<&str> =
        conditions.iter().filter_map(|(condition, class)| of_class(*condition, *class)).collect();
    let mut explained: BTreeSet<&str> =
        taken.iter().filter_map(|name| named.get(name)).flatten().copied().collect();
    // What would give a condition another class than the one seen is not what the vendor has.
    let denied: BTreeSet<&str> = conditions
        .keys()
        .flat_map(|condition| of_condition(*condition))
        .filter(|name| !taken.contains(name))
        .collect();
    // A check may also name what is shown by other means than a deviation.
    named.retain(|name, checks| {
        checks.is_subset(&failed) && known(name) && !denied.contains(name) && !TOO_WIDE.contains(name)
    });
    loop {
        let gain = |checks: &BTreeSet<&str>| checks.difference(&explained).count();
        // Of two that explain as many, the one that is named by fewer checks claims less; then the first by name.
        let best = named.iter().filter(|(_, checks)| gain(checks) * 2 > checks.len()).max_by_key(
            |(name, checks)| (gain(checks), std::cmp::Reverse(checks.len()), std::cmp::Reverse(**name)),
        );
        let Some((name, checks)) = best else { break };
        taken.insert(name);
        explained.extend(checks.iter().copied());
    }
    let guessed = |name: &&str| !matches!(*name, "key-limit" | "segment-limit");
    let taken: BTreeSet<String> =
        taken.into_iter().filter(guessed).map(str::to_owned).chain(limits(entries)).collect();
    taken.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{entry, failure};

    /// The whole suite, of which these fail.
    fn suite(fails: impl Fn(&assay_checks::Check) -> bool) -> Vec<Entry> {
        assay_checks::all()
            .map(|check| {
                entry(check.id, check.severity, if fails(check) { failure() } else { Outcome::Pass })
            })
            .collect()
    }

    #[test]
    fn one_deviation_is_found_again() {
        for name in
            ["ignore-if-none-match-put", "refuse-if-match-put", "race-create-put", "if-match-absent-412"]
        {
            let entries = suite(|check| check.broken_by.contains(&name));
            let seen = deviations(&BTreeMap::new(), &entries);
            assert_eq!(seen, [name]);
        }
        assert_eq!(deviations(&BTreeMap::new(), &suite(|_| false)), Vec::<String>::new());
    }

    #[test]
    fn a_failure_that_no_deviation_explains_adds_none() {
        let entries = suite(|check| check.id == "put.create.present");
        assert_eq!(deviations(&BTreeMap::new(), &entries), Vec::<String>::new());
    }

    #[test]
    fn the_classes_come_first() {
        let ignores = "ignore-if-none-match-put";
        let entries = suite(|check| check.broken_by.contains(&ignores));
        let classes =
            BTreeMap::from([(Condition::PutCreate, Class::Ignores), (Condition::Read, Class::Enforces)]);
        assert_eq!(deviations(&classes, &entries), [ignores]);
    }

    #[test]
    fn limits_are_given_as_measured() {
        let limited = |id: &str, expected: &str, measured: (&str, u64)| {
            let Outcome::Fail(mut failure) = failure() else { unreachable!("it is one") };
            failure.expected = expected.to_owned();
            let mut entry = entry(id, assay_checks::Severity::Expected, Outcome::Fail(failure));
            entry.measured.insert(measured.0.to_owned(), measured.1);
            entry
        };
        let total = limited("key.limit.total", "1024 bytes", ("key-total-bytes", 161));
        let segment =
            |bytes| limited("key.limit.segment", "966 bytes in one segment", ("key-segment-bytes", bytes));
        let seen = |entries: &[Entry]| deviations(&BTreeMap::new(), entries);
        assert_eq!(seen(&[total.clone(), segment(103)]), ["key-limit=161"], "58 bytes stand before it");
        assert_eq!(seen(&[total, segment(60)]), ["key-limit=161", "segment-limit=60"]);
        assert_eq!(seen(&[segment(255)]), ["segment-limit=255"]);
    }
}
