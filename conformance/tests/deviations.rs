//! The whole suite against the embedded server with each of its deviations: what must notice it does,
//! `conformance/deviations.md` shows which checks those are, and the sink's probe comes to the suite's verdict.

use assay_checks::{Client, Clock, Race, Settings};
use assay_conformance::report::{Entry, Outcome};
use assay_conformance::runner::{self, Plan};
use assay_conformance::sink::{self, Area, agreement};
use assay_conformance::{embedded, selection};
use assay_server::{Deviation, Server};
use sinks::probe::ProbeSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::JoinSet;

/// Suites that run at once in one test: more than processors, since some wait for a clock or for a write to show.
const AT_ONCE: usize = 4;

/// Rounds of a race, as many as `assay-certify` does by default: what shows by chance once in two rounds is missed once
/// in a million runs. A race that fails stops at its first bad round.
const ROUNDS: usize = 20;

/// Like races, these are run only where they name the deviation: a quarter of the suite's requests in one check, and a
/// write whose answer nobody awaits, which is done by chance.
const APART: [&str; 2] = ["list.page.thousand", "retry.lost-answer"];

/// So much is broken by these that a check which named them would say nothing about itself: only
/// `deviations.md` has all of it.
const BROAD: [&str; 16] = [
    "accepted-but-not-applied",
    "changing-etags",
    "constant-etags",
    "ignore-conditions-absent",
    "ignore-conditions-after",
    "ignore-conditions-existing",
    "ignore-conditions-first-on-connection",
    "invert-if-none-match-complete",
    "list-lag",
    "list-omits-newest",
    "multipart-counts-as-absent",
    "open-upload-counts-as-present",
    "overwrite-not-applied",
    "refused-but-applied",
    "stale-reads",
    "weak-etags",
];

/// Deviations that end by themselves after so many milliseconds.
const LAGS: [&str; 2] = ["list-lag", "stale-reads"];

/// Deviations of which suite and probe come to different verdicts, and why that is right. None at present.
const AT_VARIANCE: [(&str, &str); 0] = [];

/// What the page says before its tables.
const PAGE: &str = "\
# Which checks notice which deviation

Each row is a run of the whole suite against the embedded server with that one deviation
(`assay-server --deviate NAME`), and the checks that did not pass; without a deviation all pass. A race,
`list.page.thousand` and `retry.lost-answer` are run only where they name the deviation. A lag lasts longer than the run.

<!-- checked by: conformance/tests/deviations.rs -->
";

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

/// The suite on a server of its own, and then the sink's probe there: how these contradict each other.
/// A race that nobody said would be lost may be lost now and then, so only those run that name the deviation.
async fn run(deviation: Deviation) -> (Vec<Entry>, Option<String>) {
    let named = named(&deviation);
    let mut checks = selection::select(&[]).expect("all of them");
    checks.retain(|check| {
        named.contains(check.id) || !check.id.starts_with("race.") && !APART.contains(&check.id)
    });
    let builder = Server::builder().seed(1).deviation(deviation);
    let (_server, provider) = embedded::start_as(builder).await.expect("the embedded server starts");
    let surroundings = provider.surroundings();
    let client = Client::new(Settings {
        endpoint: provider.endpoint.clone(),
        addressing: provider.addressing,
        bucket: provider.bucket.clone(),
        region: provider.region.clone(),
        credentials: provider.credentials.clone(),
        timeout: Duration::from_secs(10),
        clock: clock(),
    });
    let plan = Plan {
        checks,
        without: Vec::new(),
        surroundings,
        race: Race { writers: 4, rounds: ROUNDS },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 1, // one after the other, so that what a deviation remembers is the check's own
        budget: None,
        clock: clock(),
    };
    let entries = runner::run(&plan, &client, "assay-certify/test/", |_| {}).await;
    let area = Area {
        parts: Vec::new(),
        provider,
        prefix: "assay-certify/test/sink".to_owned(),
        seed: 1,
        // Three rounds: what is caught by luck only is not caught.
        probe: ProbeSettings { race_budget_ms: 0, retry_wait_ms: 1, ..ProbeSettings::default() },
        limit: Duration::from_secs(60),
        deadline: None,
        clock: clock(),
    };
    let probed = sink::probe(&area).await.expect("settings that the sink takes");
    let contradiction =
        agreement::contradiction(&agreement::of_suite(&entries), &agreement::of_probe(&probed));
    (entries, contradiction)
}

/// Ids of the checks that did not pass.
fn not_passed(entries: &[Entry]) -> BTreeSet<String> {
    entries.iter().filter(|entry| entry.outcome != Outcome::Pass).map(|entry| entry.id.clone()).collect()
}

/// Ids of the checks that name a deviation or one of those that it stands for.
fn named(deviation: &Deviation) -> BTreeSet<String> {
    let names: Vec<_> = deviation.parts().iter().chain([deviation]).map(Deviation::name).collect();
    assay_checks::all()
        .filter(|check| check.broken_by.iter().any(|name| names.contains(name)))
        .map(|check| check.id.to_owned())
        .collect()
}

/// The deviation as it is run: a lag outlasts the suite, so that a slow machine sees what a fast one does.
fn deviation(name: &str) -> Deviation {
    let ten_minutes = format!("{name}=600000");
    let told = if LAGS.contains(&name) { &ten_minutes } else { name };
    told.parse().expect("a name of the catalog")
}

/// An area's part of the page.
fn section(area: &str, seen: &BTreeMap<&str, BTreeSet<String>>) -> String {
    let mut out = format!("\n## {area}\n\n| deviation | checks that fail |\n| --- | --- |\n");
    for described in Deviation::catalog().iter().filter(|described| described.area == area) {
        let checks: Vec<_> = seen[described.name].iter().map(|id| format!("`{id}`")).collect();
        writeln!(out, "| `{}` | {} |", described.name, checks.join(", ")).expect("to a string");
    }
    out
}

/// The areas in the catalog's order.
fn areas() -> Vec<&'static str> {
    let mut areas: Vec<_> = Deviation::catalog().iter().map(|described| described.area).collect();
    areas.dedup();
    areas
}

/// For each deviation of an area: exactly the checks that name it fail, or more where it is a broad one.
async fn noticed(area: &str) {
    let mut waiting = Deviation::catalog().iter().filter(|described| described.area == area);
    let (mut tasks, mut seen, mut contradictions) = (JoinSet::new(), BTreeMap::new(), BTreeMap::new());
    loop {
        while tasks.len() < AT_ONCE
            && let Some(described) = waiting.next()
        {
            let deviation = deviation(described.name);
            tasks.spawn(async move { (described.name, run(deviation).await) });
        }
        match tasks.join_next().await {
            Some(done) => {
                let (name, (entries, contradiction)) = done.expect("the run ends");
                seen.insert(name, not_passed(&entries));
                contradictions.insert(name, contradiction);
            }
            None => break,
        }
    }

    let mut wrong = Vec::new();
    for (name, checks) in &seen {
        let named = named(&name.parse().expect("its own name"));
        let missed: Vec<_> = named.difference(checks).collect();
        let other: Vec<_> = checks.difference(&named).filter(|_| !BROAD.contains(name)).collect();
        if checks.is_empty() || !missed.is_empty() || !other.is_empty() {
            wrong.push(format!("{name}: {} fail; passed {missed:?}; not named {other:?}", checks.len()));
        }
    }
    for (name, contradiction) in contradictions {
        match (contradiction, AT_VARIANCE.iter().find(|(at_variance, _)| *at_variance == name)) {
            (Some(why), None) => wrong.push(format!("{name}: {why}")),
            (None, Some((_, reason))) => {
                wrong.push(format!("{name}: no longer at variance, though {reason}"))
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let (path, section) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("deviations.md"), section(area, &seen));
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown.contains(&section), "{} is out of date: its part should be\n{section}", path.display());
}

#[test]
fn the_page_has_every_area() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deviations.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let tables = page.strip_prefix(PAGE).expect("its beginning");
    let shown: Vec<_> = tables.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(shown, areas());
    let rows = tables.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Deviation::catalog().len(), "rows");
}

/// A test for each area, so that they run side by side, and each within its time.
macro_rules! areas_are_noticed {
    ($($test:ident $area:literal)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                noticed($area).await;
            }
        )*

        #[test]
        fn every_area_has_its_test() {
            assert_eq!([$($area),*].as_slice(), areas());
        }
    };
}

areas_are_noticed! {
    ignored_conditions_are_noticed "conditions ignored"
    refused_conditions_are_noticed "conditions refused"
    conditions_understood_otherwise_are_noticed "conditions understood otherwise"
    what_counts_as_there_is_noticed "what counts as there"
    races_are_noticed "races"
    effects_and_answers_are_noticed "effect and answer"
    etags_are_noticed "ETags"
    keys_are_noticed "keys"
    lists_and_reads_are_noticed "lists and reads"
}
