//! The probe against the embedded server: a sound one passes on both stores, each trickster is refused by number,
//! and nothing is left behind.

mod leftovers;
mod page;
mod tricksters;
mod twisted;

use std::sync::Arc;

use assay_server::{Builder, Server};
use sinks::env::{Clock, Env, Ids};
use sinks::model::key::PipelineRoot;
use sinks::probe::{Found, OneStore, Probe, ProbeSettings, Report, S3Clients, Verdict};
use sinks::store::{Access, MemoryStore, S3Settings, S3Store, Store};

#[derive(Debug)]
struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the test is the harness: it owns the clock")]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(since.expect("after 1970").as_millis()).expect("this age")
    }
}

/// One server, and what a sink on it would run in.
struct Rig {
    server: Server,
    env: Env,
    clients: S3Clients,
    root: PipelineRoot,
    settings: ProbeSettings,
}

fn env(store: Arc<dyn Store>, seed: u64) -> Env {
    Env { store, clock: Arc::new(System), ids: Arc::new(Ids::seeded(seed)) }
}

impl Rig {
    async fn new(builder: Builder) -> Self {
        let server = builder.bucket("data").seed(1).start().await.expect("the server starts");
        let settings = S3Settings::new(Some(server.endpoint().to_owned()), server.region(), "data");
        let access = Access::keys(server.access_key(), server.secret_key(), None);
        let store = S3Store::new(&settings, &access).expect("settings of a running server");
        let clients = S3Clients::new(&settings, &access, &[]).await.expect("the same settings");
        let root = PipelineRoot::new("lake/raw", "orders", "jsonl").expect("a root");
        // However slow the machine is, all rounds are played.
        let settings = ProbeSettings { race_budget_ms: 600_000, ..ProbeSettings::default() };
        Self { server, env: env(Arc::new(store), 7), clients, root, settings }
    }

    async fn probe(&self) -> Report {
        self.probe_until(std::future::pending()).await
    }

    async fn probe_until(&self, stop: impl Future<Output = ()>) -> Report {
        let Self { env, clients, root, settings, .. } = self;
        Probe { env, clients, root, settings }.run(stop).await
    }

    /// Every key of the bucket.
    async fn keys(&self) -> Vec<String> {
        let (mut keys, mut token) = (Vec::new(), None);
        loop {
            let sinks::store::Outcome::Done(page) = self.env.store.list("", token.as_deref(), 1000).await
            else {
                panic!("a page");
            };
            keys.extend(page.objects.into_iter().map(|object| object.key));
            token = page.next;
            if token.is_none() {
                return keys;
            }
        }
    }
}

#[track_caller]
fn ready(report: &Report) {
    assert_eq!(report.verdict, Verdict::Ready, "{report}");
    assert_eq!(report.exit_code(), 0);
    assert!(report.left.is_empty() && report.clock_within_limit && !report.interrupted, "{report}");
}

async fn a_sound_store_passes(builder: Builder) {
    let rig = Rig::new(builder).await;
    let report = rig.probe().await;
    ready(&report);
    assert_eq!(rig.keys().await, [""; 0]);
    let races = report.lines.iter().filter(|line| (16..=18).contains(&line.check));
    assert!(races.clone().all(|line| line.note.as_deref() == Some("8 rounds of 16")), "{report}");
    assert_eq!(races.count(), 3);
    rig.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_store_in_memory_passes() {
    a_sound_store_passes(Server::builder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_store_on_disk_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    a_sound_store_passes(Server::builder().data(directory.path())).await;
}

#[tokio::test]
async fn a_store_of_this_process_passes_without_connections() {
    let store = Arc::new(MemoryStore::new(Arc::new(System)));
    let env = env(store.clone(), 7);
    let (clients, settings) = (OneStore(store.clone()), ProbeSettings::default());
    let root = PipelineRoot::new("", "orders", "jsonl").expect("a root");
    let probe = Probe { env: &env, clients: &clients, root: &root, settings: &settings };
    ready(&probe.run(std::future::pending()).await);
    assert_eq!(store.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_probes_at_once_do_not_disturb_each_other() {
    let rig = Rig::new(Server::builder()).await;
    let second = Env { ids: Arc::new(Ids::seeded(8)), ..rig.env.clone() };
    let other = Probe { env: &second, clients: &rig.clients, root: &rig.root, settings: &rig.settings };
    let (one, two) = tokio::join!(rig.probe(), other.run(std::future::pending()));
    ready(&one);
    ready(&two);
    assert_ne!(one.directory, two.directory);
    assert_eq!(rig.keys().await, [""; 0]);
    rig.server.stop().await;
}

#[tokio::test]
async fn what_says_nothing_about_the_store_is_inconclusive() {
    for rule in ["operation=PutObject effect=refuse code=SlowDown", "operation=PutObject effect=drop"] {
        let mut rig = Rig::new(Server::builder()).await;
        rig.settings.retry_wait_ms = 1;
        let guard = rig.server.fault(rule.parse().expect("a rule")).expect("a fault");
        let report = rig.probe().await;
        assert!(matches!(&report.verdict, Verdict::Inconclusive(checks) if checks[0] == 1), "{report}");
        assert_eq!(report.exit_code(), 3);
        assert!(matches!(report.lines[0].found, Found::Inconclusive { .. }));
        assert_eq!(report.lines[1].found, Found::NotRun);
        drop(guard);
        rig.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stumbles_now_and_then_is_asked_again() {
    let mut rig = Rig::new(Server::builder()).await;
    rig.settings.retry_wait_ms = 1;
    let stumbles = [
        "operation=PutObject every=397 effect=lose-answer",
        "operation=PutObject every=251 effect=refuse code=SlowDown",
        "operation=PutObject every=61 effect=refuse code=ConditionalRequestConflict",
    ];
    let _stumbles = stumbles.map(|rule| rig.server.fault(rule.parse().expect("a rule")).expect("a fault"));
    let report = rig.probe().await;
    assert_eq!(report.verdict, Verdict::Ready, "{report}");
    rig.server.stop().await;
}

#[tokio::test]
async fn a_denied_first_write_ends_the_probe() {
    let rig = Rig::new(Server::builder()).await;
    let _denied =
        rig.server.fault("operation=PutObject effect=refuse code=AccessDenied".parse().unwrap()).unwrap();
    let report = rig.probe().await;
    assert_eq!(report.verdict, Verdict::Refused(vec![1]), "{report}");
    assert_eq!(report.exit_code(), 1);
    assert!(report.to_string().contains("403 AccessDenied"), "{report}");
    rig.server.stop().await;
}

#[tokio::test]
async fn clocks_that_are_apart_are_reported_and_refuse_nothing() {
    #[derive(Debug)]
    struct Behind;
    impl Clock for Behind {
        fn now_ms(&self) -> u64 {
            System.now_ms() - 120_000
        }
    }
    let mut rig = Rig::new(Server::builder()).await;
    rig.env.clock = Arc::new(Behind);
    let report = rig.probe().await;
    assert_eq!(report.verdict, Verdict::Ready, "{report}");
    assert!(!report.clock_within_limit);
    let skew = report.clock_skew_ms.expect("answers have dates");
    assert!((-125_000..=-115_000).contains(&skew), "{skew}");
    rig.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn races_stop_when_their_budget_is_used_up_but_never_before_three_rounds() {
    let mut rig = Rig::new(Server::builder()).await;
    rig.settings.race_budget_ms = 0;
    let report = rig.probe().await;
    ready(&report);
    let note = report.lines[15].note.clone().unwrap_or_default();
    assert_eq!(note, "3 rounds of 16 (of 8: its 0 s were up)");
    rig.server.stop().await;
}

#[tokio::test]
async fn a_report_is_read_back_and_fits_a_terminal() {
    let builder = Server::builder().deviation("ignore-if-match-put".parse().unwrap());
    let rig = Rig::new(builder).await;
    let report = rig.probe().await;
    let json = serde_json::to_string(&report).expect("JSON");
    assert_eq!(serde_json::from_str::<Report>(&json).expect("read back"), report);
    assert!(json.starts_with("{\"verdict\":\"refused\",\"checks\":[9,10,11,"), "{json}");
    let table = report.to_string();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("use a provider or a release that honours"), "{table}");
    rig.server.stop().await;
}
