//! The judge of visible objects is shown to fail: every class of defect is put into a bucket, and found.

use assay_oracle::bucket::{Access, Bucket, ReadError};
use assay_oracle::events::{Place, Workload};
use assay_oracle::report::{Report, Verdict};
use assay_oracle::visible::{self, Ledger, Scope};
use assay_server::{Rule, Server};
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;

const WORKLOAD: Workload = Workload { seed: 11, partitions: 2, keys: 100 };

struct Store {
    server: Server,
    client: Client,
}

impl Store {
    async fn new() -> Self {
        let server = Server::builder().bucket("lake").start().await.expect("a server on loopback");
        let config = aws_sdk_s3::Config::builder()
            .behavior_version_latest()
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(server.endpoint())
            .force_path_style(true)
            .region(aws_sdk_s3::config::Region::new(server.region().to_owned()))
            .credentials_provider(aws_sdk_s3::config::Credentials::new(
                server.access_key(),
                server.secret_key(),
                None,
                None,
                "test",
            ));
        Self { client: Client::from_conf(config.build()), server }
    }

    /// Events 0 to 99 of both partitions, ten an object.
    async fn honest() -> Self {
        let store = Self::new().await;
        for partition in 0..2 {
            for from in (0..100).step_by(10) {
                store.pane(partition, from, from + 10).await;
            }
        }
        store
    }

    async fn put(&self, key: &str, text: String) {
        let body = ByteStream::from(text.into_bytes());
        self.client.put_object().bucket("lake").key(key).body(body).send().await.expect("it is stored");
    }

    async fn pane(&self, partition: u32, from: u64, to: u64) {
        self.put(&key(partition, from), lines(partition, from, to)).await;
    }

    fn bucket(&self) -> Bucket {
        Bucket::impatient(&Access {
            endpoint: Some(self.server.endpoint().to_owned()),
            region: self.server.region().to_owned(),
            bucket: "lake".to_owned(),
            path_style: true,
            access_key: self.server.access_key().to_owned(),
            secret_key: self.server.secret_key().to_owned(),
            session_token: None,
        })
    }

    async fn judged(&self) -> Report {
        visible::judge(&self.bucket(), job(), WORKLOAD, &[100, 100]).await.expect("a bucket that answers")
    }

    async fn found(&self) -> String {
        words(&self.judged().await)
    }
}

fn job() -> Scope {
    Scope::Prefix("job/".to_owned())
}

fn key(partition: u32, from: u64) -> String {
    format!("job/sub{partition:05}/{from:020}.jsonl")
}

fn line(partition: u32, seq: u64) -> String {
    WORKLOAD.line(Place { partition, seq })
}

fn lines(partition: u32, from: u64, to: u64) -> String {
    (from..to).map(|seq| line(partition, seq) + "\n").collect()
}

fn words(report: &Report) -> String {
    let kinds = report.counts.iter().map(|(kind, count)| format!("{}:{count}", kind.name()));
    kinds.chain(report.inconclusive.iter().map(|why| format!("({why})"))).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn every_event_once_is_clean() {
    let store = Store::honest().await;
    let report = store.judged().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
    let s = &report.statistics;
    assert_eq!((s.objects, s.listed, s.expected, s.rows["p0"], s.rows["p1"]), (20, 20, 200, 100, 100));
    assert!(report.text().starts_with("visible job/: clean\n  visible     20 objects"), "{}", report.text());
}

#[tokio::test]
async fn what_is_wrong_at_the_end_is_found() {
    let cases: [(&str, &dyn Fn(String) -> String); 10] = [
        ("gap:1", &|text| text.replacen(&(line(1, 54) + "\n"), "", 1)),
        ("duplicate:1", &|text| text + &line(1, 50) + "\n"),
        ("gap:1 foreign:1", &|text| text.replacen("p1-55", "x1-55", 1)),
        ("gap:1 foreign:1", &|text| text.replacen("p1-55", "p2-55", 1)),
        ("gap:1 foreign:1", &|text| text.replacen(&line(1, 55), &line(1, 56).replace("p1-56", "p1-55"), 1)),
        ("gap:1 foreign:1", &|text| text.replacen(&line(1, 55), "", 1)),
        ("gap:1 empty_object:1", &|_| String::new()),
        ("gap:1 corrupt_object:1", &|text| text.trim_end().to_owned()),
        ("foreign:1", &|text| text + &line(1, 100) + "\n"),
        ("gap:1", &|_| lines(1, 50, 59)),
    ];
    let store = Store::honest().await;
    for (wanted, spoil) in cases {
        store.put(&key(1, 50), spoil(lines(1, 50, 60))).await;
        assert_eq!(store.found().await, wanted);
    }
    store.pane(1, 50, 60).await;
    assert_eq!(store.found().await, "");
    store.client.delete_object().bucket("lake").key(key(0, 90)).send().await.unwrap();
    assert_eq!(store.found().await, "gap:1");
}

#[tokio::test]
async fn an_object_that_is_judged_may_not_change_or_go() {
    let store = Store::honest().await;
    let bucket = store.bucket();
    let mut ledger = Ledger::new(WORKLOAD, job());
    ledger.sample(&bucket).await.unwrap();
    assert_eq!((ledger.distinct(), ledger.samples(), words(ledger.report())), (200, 1, String::new()));
    let mut reversed: Vec<String> = (50..60).map(|seq| line(1, seq) + "\n").collect();
    reversed.reverse();
    store.put(&key(1, 50), reversed.concat()).await;
    ledger.sample(&bucket).await.unwrap();
    assert_eq!(words(ledger.report()), "mutated_object:1 duplicate:10");
    store.client.delete_object().bucket("lake").key(key(0, 0)).send().await.unwrap();
    ledger.sample(&bucket).await.unwrap();
    assert_eq!(words(ledger.report()), "mutated_object:2 duplicate:10");
}

#[tokio::test]
async fn a_pane_that_is_listed_late_is_no_gap_and_one_that_stays_away_is() {
    let store = Store::new().await;
    let bucket = store.bucket();
    let mut ledger = Ledger::new(WORKLOAD, job());
    store.pane(0, 0, 10).await;
    store.pane(0, 20, 30).await;
    ledger.sample(&bucket).await.unwrap();
    store.pane(0, 10, 20).await;
    store.pane(0, 40, 50).await;
    ledger.sample(&bucket).await.unwrap();
    assert_eq!(words(ledger.report()), "");
    store.pane(0, 50, 60).await;
    ledger.sample(&bucket).await.unwrap();
    assert_eq!(words(ledger.report()), "gap:1");
    ledger.sample(&bucket).await.unwrap();
    assert_eq!(words(ledger.report()), "gap:1", "told once");
}

#[tokio::test]
async fn pending_uploads_are_evidence_and_no_finding() {
    let store = Store::honest().await;
    for key in ["job/sub00000/x", "elsewhere/x"] {
        store.client.create_multipart_upload().bucket("lake").key(key).send().await.unwrap();
    }
    let report = store.judged().await;
    assert_eq!((words(&report), report.statistics.pending_uploads), (String::new(), 1));
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_and_a_later_sample_goes_on() {
    let store = Store::honest().await;
    let bucket = store.bucket();
    let mut ledger = Ledger::new(WORKLOAD, job());
    let rule: Rule = "name=away operation=GetObject nth=7 effect=refuse code=SlowDown".parse().unwrap();
    let fault = store.server.fault(rule).unwrap();
    assert!(matches!(ledger.sample(&bucket).await, Err(ReadError::Unavailable { .. })));
    assert_eq!(ledger.samples(), 0);
    drop(fault);
    ledger.sample(&bucket).await.unwrap();
    assert_eq!((ledger.distinct(), ledger.samples(), words(ledger.report())), (200, 1, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_judges_with_its_exit_code() {
    let store = Store::honest().await;
    let judged = |produced: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_assay-oracle"));
        command
            .env_clear()
            .args(["visible", "--bucket", "lake", "--prefix", "job/", "--seed", "11", "--keys", "100"]);
        command.args(["--endpoint", store.server.endpoint(), "--produced", produced]);
        command.env("AWS_ACCESS_KEY_ID", store.server.access_key());
        command.env("AWS_SECRET_ACCESS_KEY", store.server.secret_key());
        let output = command.output().expect("the command runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = judged("100,100");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("expected    200 row versions"), "{text}");
    let (code, text) = judged("100,101");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("p1-100: 1 events missing"), "{text}");
    assert_eq!(judged("100,x").0, Some(2));
}
