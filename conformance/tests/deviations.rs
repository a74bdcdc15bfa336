//! The whole suite against the embedded server with each of its deviations: what must notice it does, and
//! `conformance/deviations.md` shows which checks those are.

use assay_checks::{Client, Clock, Race, Settings};
use assay_conformance::report::{Entry, Outcome};
use assay_conformance::runner::{self, Plan};
use assay_conformance::{embedded, selection};
use assay_server::{Deviation, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::JoinSet;

/// Suites that run at once.
const AT_ONCE: usize = 6;

/// The suite has no checks on keys: the server's own tests show these deviations, and the single ones below.
const UNNOTICED_AREA: &str = "keys";
const UNNOTICED: [&str; 2] = ["list-order-utf16", "omit-checksums"];

/// So much is broken by these that a check which named them would say nothing about itself: only
/// `deviations.md` has all of it.
const BROAD: [&str; 15] = [
    "accepted-but-not-applied",
    "changing-etags",
    "constant-etags",
    "ignore-conditions-absent",
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

#[expect(clippy::disallowed_methods, reason = "the test is the harness: signatures need the real time")]
fn clock() -> Clock {
    Arc::new(|| OffsetDateTime::from(std::time::SystemTime::now()))
}

/// The suite with short races on a server of its own. A race that nobody said would be lost may be lost now and
/// then, so with a deviation only those run that name it.
async fn run(deviation: Option<Deviation>, rounds: usize) -> Vec<Entry> {
    let named = deviation.as_ref().map(named);
    let mut checks = selection::select(&[]).expect("all of them");
    checks.retain(|check| {
        !check.id.starts_with("race.") || named.as_ref().is_none_or(|named| named.contains(check.id))
    });
    let mut builder = Server::builder().seed(1);
    if let Some(deviation) = deviation {
        builder = builder.deviation(deviation);
    }
    let (_server, provider) = embedded::start_as(builder).await.expect("the embedded server starts");
    let surroundings = provider.surroundings();
    let client = Client::new(Settings {
        endpoint: provider.endpoint,
        addressing: provider.addressing,
        bucket: provider.bucket,
        region: provider.region,
        credentials: provider.credentials,
        timeout: Duration::from_secs(10),
        clock: clock(),
    });
    let plan = Plan {
        checks,
        without: Vec::new(),
        surroundings,
        race: Race { writers: 4, rounds },
        seed: 1,
        limit: Duration::from_secs(60),
        jobs: 1, // one after the other, so that what a deviation remembers is the check's own
        budget: None,
        clock: clock(),
    };
    runner::run(&plan, &client, "assay-certify/test/", |_| {}).await
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

fn table(seen: &BTreeMap<&str, BTreeSet<String>>) -> String {
    let mut table = String::from(
        "# Which checks notice which deviation\n\n\
         Each row is a run of the whole suite against the embedded server with that one deviation\n\
         (`assay-server --deviate NAME`), and the checks that did not pass; without a deviation all pass. A race\n\
         is run only where it names the deviation. Deviations of keys, `list-order-utf16` and\n\
         `omit-checksums` are shown by tests of the server.\n\n\
         <!-- checked by: conformance/tests/deviations.rs -->\n\
         | deviation | checks that fail |\n| --- | --- |\n",
    );
    for described in Deviation::catalog() {
        if let Some(checks) = seen.get(described.name) {
            let checks: Vec<_> = checks.iter().map(|id| format!("`{id}`")).collect();
            writeln!(table, "| `{}` | {} |", described.name, checks.join(", ")).expect("to a string");
        }
    }
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deviation_is_noticed() {
    let clean = run(None, 2).await;
    assert_eq!(not_passed(&clean), BTreeSet::new(), "without a deviation");
    assert_eq!(clean.len(), assay_checks::all().count());

    let mut waiting = Deviation::catalog()
        .iter()
        .filter(|described| described.area != UNNOTICED_AREA && !UNNOTICED.contains(&described.name));
    let (mut tasks, mut seen) = (JoinSet::new(), BTreeMap::new());
    loop {
        while tasks.len() < AT_ONCE
            && let Some(described) = waiting.next()
        {
            let deviation: Deviation = described.name.parse().expect("its own name");
            // What shows by luck gets more of it.
            let rounds = if described.area == "races" { 12 } else { 2 };
            tasks.spawn(async move { (described.name, not_passed(&run(Some(deviation), rounds).await)) });
        }
        match tasks.join_next().await {
            Some(done) => {
                let (name, checks) = done.expect("the run ends");
                seen.insert(name, checks);
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let (path, table) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("deviations.md"), table(&seen));
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    if shown != table {
        let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deviations.md");
        std::fs::write(&written, table).expect("the target directory can be written");
        panic!("{} is out of date: take {}", path.display(), written.display());
    }
}
