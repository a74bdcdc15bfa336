//! From what a provider failed to the deviations of the embedded server that fail the same: so that a team can test
//! against its provider offline. Pure.

use crate::report::{Entry, Outcome};
use assay_checks::{Class, Condition};
use assay_server::Deviation;
use std::collections::{BTreeMap, BTreeSet};

/// The deviation that gives a condition its class; none where the server has none, or needs none.
fn of_class(condition: Condition, class: Class) -> Option<&'static str> {
    use Condition as C;
    let [refuses, races, ignores] = match condition {
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
    };
    let name = match class {
        Class::Enforces => "",
        Class::Refuses => refuses,
        Class::Races => races,
        Class::Ignores => ignores,
    };
    (!name.is_empty()).then_some(name)
}

/// The names of the deviations that give the classes and explain the other failures. One of the second kind is taken
/// when every check that names it failed and nothing else explains more than half of them, the one that explains most
/// first: a provider that drops a condition also fails in the answers that it then does not give.
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
    // A check may also name what is shown by other means than a deviation.
    named.retain(|name, checks| checks.is_subset(&failed) && name.parse::<Deviation>().is_ok());
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
    taken.into_iter().map(str::to_owned).collect()
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
}
