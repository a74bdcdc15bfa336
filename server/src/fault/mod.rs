//! Faults: temporary misbehaviour by rule. One hook is asked once for each request; what it answers acts
//! before the commit, after it, or on the bytes of the answer.
//!
//! A rule is *match* + *when* + *effect*, with a name. Its text means the same at every door: the builder and the
//! handle, the control API, the `x-assay-fault` header, a file, a flag.

mod effect;
mod fields;
mod flight;
mod hold;
mod outage;
mod plan;
mod rule;
mod shape;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::{Mutex, RwLock};

pub use self::effect::{Effect, Loss, Time, Wait};
pub use self::fields::RuleError;
pub use self::outage::Outage;
pub use self::rule::Rule;

pub(crate) use self::flight::InFlight;
pub(crate) use self::hold::Hold;
pub(crate) use self::outage::Outages;
pub(crate) use self::plan::{Plan, Stop};
pub(crate) use self::rule::Facts;
pub(crate) use self::shape::{Shape, Shaped};
pub(crate) use self::text::rules;

use self::hold::{End, Over};
use crate::instant::Instant;
use crate::store::Store;

/// Rules that may be set at one time: each request asks all of them.
const MAX_RULES: usize = 1000;

/// Rules that are gone and never hit anything that are remembered: one is enough to fail, and a server that runs
/// for months must not grow.
const MAX_UNFIRED: usize = 1000;

/// A rule to be set, and the state as it is now where it shows that.
pub(crate) type New = (Rule, Option<Arc<Store>>);

/// There is no room for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there would be more than {MAX_RULES} faults; take some back first")]
pub(crate) struct TooMany;

/// A rule that is set, and what became of it.
struct Active {
    id: u64,
    rule: Rule,
    set_at: Instant,
    /// The state when it was set, where its effect shows that.
    frozen: Option<Arc<Store>>,
    /// Requests that matched.
    seen: AtomicU64,
    /// Requests that were hit.
    fired: AtomicU64,
    /// What a request waits for that it holds until it is taken back.
    end: End,
}

impl Active {
    fn age_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.epoch_ms() - self.set_at.epoch_ms()).unwrap_or(0)
    }
}

/// A rule that hit a request.
#[derive(Clone)]
pub(crate) struct Fired {
    pub(crate) name: String,
    pub(crate) effect: Effect,
    frozen: Option<Arc<Store>>,
    over: Over,
}

impl Fired {
    fn new(rule: &Rule, frozen: Option<Arc<Store>>, over: Over) -> Self {
        Self { name: rule.name().to_owned(), effect: rule.effect(), frozen, over }
    }
}

impl std::fmt::Debug for Fired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.effect.name())
    }
}

/// What is known of a rule that is or was set.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FaultStatus {
    /// Its name.
    pub name: String,
    /// Its text, from which it can be set again.
    pub rule: String,
    /// How many requests matched while it was set.
    pub seen: u64,
    /// How many it hit.
    pub fired: u64,
}

/// The rules of one server.
pub(crate) struct Faults {
    /// Whether there are any, so that a request without faults costs one load.
    any: AtomicBool,
    rules: RwLock<Vec<Active>>,
    /// Rules that are gone and never hit anything: their silence is an error at the end.
    unfired: Mutex<Vec<FaultStatus>>,
    next: AtomicU64,
    random: Mutex<fastrand::Rng>,
    flights: flight::Flights,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            any: AtomicBool::new(false),
            rules: RwLock::default(),
            unfired: Mutex::default(),
            next: AtomicU64::new(1),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            flights: flight::Flights::default(),
        }
    }

    /// Sets rules, all or none, and gives each a number by which [`Faults::heal`] finds it. A rule that
    /// [shows how things were](Rule::needs_frozen) comes with the state as it is now. With `replace` those of before
    /// go in the same moment.
    ///
    /// # Errors
    /// Where that would be more than [`MAX_RULES`]; nothing has changed then.
    pub(crate) fn set(&self, new: Vec<New>, replace: bool, now: Instant) -> Result<Vec<u64>, TooMany> {
        let mut rules = self.rules.write();
        if new.len() + if replace { 0 } else { rules.len() } > MAX_RULES {
            return Err(TooMany);
        }
        if replace {
            self.retire(&mut rules, |_| true);
        }
        let first = self.next.fetch_add(new.len() as u64, Ordering::Relaxed);
        let ids: Vec<u64> = (first..).take(new.len()).collect();
        for (id, (rule, frozen)) in ids.iter().zip(new) {
            let (seen, fired) = (AtomicU64::new(0), AtomicU64::new(0));
            rules.push(Active { id: *id, rule, set_at: now, frozen, seen, fired, end: End::new() });
        }
        self.any.store(!rules.is_empty(), Ordering::Release);
        Ok(ids)
    }

    /// Forgets that these never fired, as they are set anew.
    pub(crate) fn another_chance(&self, rules: &[Rule]) {
        let texts: Vec<String> = rules.iter().map(Rule::to_string).collect();
        self.unfired.lock().retain(|gone| !texts.contains(&gone.rule));
    }

    /// Draws from now on what a new server with this seed draws.
    pub(crate) fn reseed(&self, seed: u64) {
        *self.random.lock() = fastrand::Rng::with_seed(seed);
    }

    /// Takes one rule back.
    pub(crate) fn heal(&self, id: u64) {
        self.retire(&mut self.rules.write(), |active| active.id == id);
    }

    /// Takes the rules of a name back, and says how many there were.
    pub(crate) fn remove(&self, name: &str) -> usize {
        self.retire(&mut self.rules.write(), |active| active.rule.name() == name)
    }

    /// Takes all rules back.
    pub(crate) fn clear(&self) -> usize {
        self.retire(&mut self.rules.write(), |_| true)
    }

    fn retire(&self, rules: &mut Vec<Active>, gone: impl Fn(&Active) -> bool) -> usize {
        let before = rules.len();
        let mut unfired = self.unfired.lock();
        rules.retain(|active| {
            let gone = gone(active);
            if gone && active.fired.load(Ordering::Relaxed) == 0 && unfired.len() < MAX_UNFIRED {
                unfired.push(status(active));
            }
            !gone
        });
        self.any.store(!rules.is_empty(), Ordering::Release);
        before - rules.len()
    }

    /// The rules that are set, in the order in which they were.
    pub(crate) fn list(&self) -> Vec<FaultStatus> {
        self.rules.read().iter().map(status).collect()
    }

    /// What is known of one that is set.
    pub(crate) fn status(&self, id: u64) -> Option<FaultStatus> {
        self.rules.read().iter().find(|active| active.id == id).map(status)
    }

    /// Every rule, set or gone, that hit nothing.
    pub(crate) fn unfired(&self) -> Vec<FaultStatus> {
        let mut unfired = self.unfired.lock().clone();
        unfired.extend(self.list().into_iter().filter(|rule| rule.fired == 0));
        unfired
    }

    /// Whether any rule is set.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The one question of a request: which rules hit it, in their order. Rules that are over go.
    pub(crate) fn ask(&self, facts: &Facts<'_>, now: Instant) -> Vec<Fired> {
        let mut over = false;
        let mut fired = Vec::new();
        // One draw after the other, in the order of requests: the same seed hits the same requests.
        let mut random = self.random.lock();
        for active in self.rules.read().iter() {
            let age_ms = active.age_ms(now);
            if active.rule.is_over(age_ms) {
                over = true;
                continue;
            }
            if !active.rule.matches(facts) {
                continue;
            }
            let count = active.seen.fetch_add(1, Ordering::Relaxed) + 1;
            if active.rule.hits(count, age_ms, &mut random) {
                active.fired.fetch_add(1, Ordering::Relaxed);
                let over = active.end.watch(active.rule.left(age_ms));
                fired.push(Fired::new(&active.rule, active.frozen.clone(), over));
            }
        }
        drop(random);
        if over {
            self.retire(&mut self.rules.write(), |active| active.rule.is_over(active.age_ms(now)));
        }
        fired
    }

    /// A rule that one request brings along and that is about that request only.
    pub(crate) fn ask_once(&self, rule: &Rule, facts: &Facts<'_>) -> Option<Fired> {
        let hit = rule.matches(facts) && rule.hits(1, 0, &mut self.random.lock());
        // It is over as soon as it was asked, and so holds nothing until its end.
        hit.then(|| Fired::new(rule, None, End::new().watch(Duration::ZERO)))
    }

    /// Counts a conditional write among those under way.
    pub(crate) fn enter(&self, names: (Option<&str>, Option<&str>), headers: &HeaderMap) -> Option<InFlight> {
        self.flights.enter(names, headers)
    }

    /// A duration by the server's seed.
    pub(crate) fn draw(&self, time: Time) -> Duration {
        time.draw(&mut self.random.lock())
    }

    /// What a request waits for that a rule holds.
    pub(crate) fn hold(&self, fired: &Fired, wait: Wait) -> Hold {
        match wait {
            Wait::For(time) => Hold::For(self.draw(time)),
            Wait::Lifted => Hold::Until(fired.over.clone()),
        }
    }
}

fn status(active: &Active) -> FaultStatus {
    FaultStatus {
        name: active.rule.name().to_owned(),
        rule: active.rule.to_string(),
        seen: active.seen.load(Ordering::Relaxed),
        fired: active.fired.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn facts(headers: &HeaderMap) -> Facts<'_> {
        Facts {
            operation: "PutObject",
            method: "PUT",
            bucket: Some("data"),
            key: Some("k"),
            access_key: None,
            headers,
            upload_id: None,
            part_number: None,
            size: 0,
            contended: false,
        }
    }

    fn names(faults: &Faults, now_ms: i64) -> Vec<String> {
        let fired = faults.ask(&facts(&HeaderMap::new()), Instant::from_epoch_ms(now_ms));
        fired.into_iter().map(|fired| fired.name).collect()
    }

    fn set(faults: &Faults, text: &str, now_ms: i64) -> u64 {
        let new = vec![(text.parse().unwrap(), None)];
        faults.set(new, false, Instant::from_epoch_ms(now_ms)).unwrap()[0]
    }

    #[test]
    fn every_rule_that_hits_acts_and_one_that_never_hits_is_known() {
        let faults = Faults::new(1);
        set(&faults, "name=a nth=2 effect=drop", 0);
        set(&faults, "name=b effect=twice", 0);
        let c = set(&faults, "name=c key=other effect=drop", 0);
        assert_eq!(names(&faults, 0), ["b"]);
        assert_eq!(names(&faults, 0), ["a", "b"]);
        let list: Vec<_> = faults.list().iter().map(|rule| (rule.seen, rule.fired)).collect();
        assert_eq!(list, [(2, 1), (2, 2), (0, 0)]);
        faults.heal(c);
        assert_eq!(faults.remove("b"), 1);
        assert_eq!(faults.unfired().iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!((faults.clear(), faults.any()), (1, false));
    }

    #[test]
    fn rules_are_replaced_together_and_are_never_too_many() {
        let faults = Faults::new(1);
        set(&faults, "name=old effect=drop", 0);
        let new = |count: usize| -> Vec<New> {
            (0..count).map(|number| (format!("name=r{number} effect=twice").parse().unwrap(), None)).collect()
        };
        let now = Instant::from_epoch_ms(0);
        assert_eq!(faults.set(new(MAX_RULES), false, now), Err(TooMany));
        assert_eq!(faults.list().len(), 1);
        assert_eq!(faults.set(new(2), true, now).unwrap().len(), 2);
        assert_eq!(names(&faults, 0), ["r0", "r1"]);
        for _ in 0..2 * MAX_UNFIRED / MAX_RULES + 1 {
            faults.set(new(MAX_RULES), true, now).unwrap();
        }
        assert!(faults.unfired().len() <= MAX_UNFIRED + MAX_RULES);
    }

    #[test]
    fn a_forgotten_rule_dies_by_itself() {
        let faults = Faults::new(1);
        set(&faults, "ttl-ms=100 effect=drop", 1000);
        assert_eq!(names(&faults, 1099).len(), 1);
        assert_eq!((names(&faults, 1100).len(), faults.any()), (0, false));
    }

    #[tokio::test]
    async fn whatever_takes_a_rule_back_lets_go_of_what_it_holds() {
        let ways: [fn(&Faults, u64); 5] = [
            Faults::heal,
            |faults, _| assert_eq!(faults.remove("held"), 1),
            |faults, _| assert_eq!(faults.clear(), 1),
            |faults, _| drop(faults.set(Vec::new(), true, Instant::from_epoch_ms(0)).unwrap()),
            |faults, _| assert!(names(faults, 60_000).is_empty(), "it is over"),
        ];
        for take_back in ways {
            let faults = Faults::new(1);
            let id = set(&faults, "name=held ttl-ms=60000 effect=delay until=lifted", 0);
            let fired = faults.ask(&facts(&HeaderMap::new()), Instant::from_epoch_ms(0));
            let mut held = std::pin::pin!(faults.hold(&fired[0], Wait::Lifted).over());
            assert!(tokio::time::timeout(Duration::ZERO, &mut held).await.is_err());
            take_back(&faults, id);
            tokio::time::timeout(Duration::from_secs(30), held).await.unwrap();
        }
    }

    #[test]
    fn the_same_seed_hits_the_same_requests() {
        let run = |seed| -> Vec<usize> {
            let faults = Faults::new(seed);
            set(&faults, "probability=0.3 effect=drop", 0);
            (0..100).map(|_| names(&faults, 0).len()).collect()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
