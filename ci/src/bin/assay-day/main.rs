//! A day in ten minutes: one sink at a time publishes with every background actor on and short windows, is killed
//! with SIGKILL at random, and now and then loses the stream to another host. At the end the bucket is judged.

mod census;
mod life;
mod plot;
mod source;
mod verdict;

use assay_ci::clock;
use assay_ci::process::client;
use assay_server::{Journal, Server};
use census::{Harvest, Sample};
use clap::Parser;
use life::{Life, Programs};
use serde_json::json;
use source::Source;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::time::sleep;
use verdict::Bounds;

/// Runs a day of the durable sink, and judges what is left of it.
#[derive(Parser)]
struct Options {
    /// The program `assay-sink`.
    #[arg(long)]
    sink: PathBuf,
    /// The program `assay-oracle`.
    #[arg(long)]
    oracle: PathBuf,
    /// Every choice follows from it; where a kill strikes depends on the machine as well.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Batches, one transaction each.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(20..=100_000))]
    batches: u64,
    /// Seconds over which the source hands them out.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Mean time of a life, in milliseconds: half to one and a half of it.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1_000..=3_600_000))]
    kill_ms: u64,
    /// Most lives that end by a kill or a takeover; the one after them runs to the end. Without it, all do.
    #[arg(long)]
    ends: Option<u64>,
    /// Format of data objects: jsonl or parquet.
    #[arg(long, default_value = "jsonl", value_parser = ["jsonl", "parquet"])]
    format: String,
    /// Where the picture goes.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Where samples and figures go, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Exit codes of a sink that got no answer in time: its supervisor starts it again.
const UNANSWERED: [i32; 2] = [3, 7];

/// How long two owners may both run.
const CONTEND: Duration = Duration::from_secs(300);

/// Lives in a hundred that end by a takeover instead of a kill.
const TAKEOVERS: u32 = 25;

/// Transactions that are handed out again by each life: a source starts over from before its last acknowledgement.
const OVERLAP: u64 = 3;

/// Transactions that may wait for their acknowledgement.
const AHEAD: u64 = 40;

/// How long a whole day may take beyond its seconds.
const SLACK: Duration = Duration::from_secs(900);

/// At rest for at least so long, which is longer than the grace and two rounds of reconciliation.
const QUIET: Duration = Duration::from_secs(12);

/// How long the actors may take to clear away what the day has left.
const EVENING: Duration = Duration::from_secs(600);

const PIPELINE: &str = "\
pipeline: orders
source: {id: shop, position: pg-lsn, system_identifier: 7301, timeline: 1}
sinks:
  - type: s3
    bucket: lake
    prefix: day
    format: FORMAT
    batch: {max_transactions: 1}
    send_timeout_ms: 2000
    request_timeout_ms: 1500
    connect_timeout_ms: 1000
    max_clock_skew_ms: 1500
    actors_every_ms: 300
    rollup_every_entries: 25
    rollup_every_ms: 5000
    safety_window_ms: 0
    expire_entries: true
    compact: true
    compaction: {min_inputs: 4, target_bytes: 32768}
    delete_originals: true
    originals_retention_ms: 0
    reconcile: true
    reconcile_every_ms: 2000
    grace_period_ms: 4000
    brake: {percent: 100}
metrics: {listen: 'off'}
";

/// What is going on, for the samples beside it.
#[derive(Debug, Default)]
struct Progress {
    acknowledged: u64,
    harvest: Harvest,
    samples: Vec<Sample>,
}

/// What the day was.
#[derive(Debug, Default)]
struct Day {
    lives: u32,
    kills: Vec<u64>,
    takeovers: Vec<u64>,
    unanswered: u32,
    findings: Vec<String>,
    unproven: Vec<String>,
}

struct Show<'a> {
    options: &'a Options,
    programs: Programs,
    hosts: [PathBuf; 2],
    source: Source,
    progress: Arc<Mutex<Progress>>,
    began: Instant,
    day: Day,
}

impl Show<'_> {
    fn at_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn acknowledged(&self) -> u64 {
        self.progress.lock().map_or(0, |progress| progress.acknowledged)
    }

    fn heard(&self, place: Option<u64>) {
        if let (Some(place), Ok(mut progress)) = (place, self.progress.lock()) {
            progress.acknowledged = progress.acknowledged.max(place);
        }
    }

    /// How many transactions the source has by now.
    fn due(&self) -> u64 {
        let whole_ms = 1000 * self.options.seconds;
        (self.at_ms().min(whole_ms) * self.options.batches / whole_ms).max(1)
    }

    /// Lives, one after the other, until everything is acknowledged.
    async fn lives(&mut self) -> Result<(), String> {
        let (mut host, mut running) = (0, None);
        while self.acknowledged() < self.options.batches && self.day.findings.is_empty() {
            if self.began.elapsed() > Duration::from_secs(self.options.seconds) + SLACK {
                let (done, all) = (self.acknowledged(), self.options.batches);
                return Err(format!(
                    "only {done} of {all} batches were acknowledged within {SLACK:?} more than planned"
                ));
            }
            let life = match running.take() {
                Some(life) => life,
                None => Life::start(&self.programs, &self.hosts[host])?,
            };
            self.day.lives += 1;
            // How the next life ends follows from how many did: one that ends by itself changes nothing.
            let ended = self.day.kills.len() as u64 + self.day.takeovers.len() as u64;
            let mut random =
                fastrand::Rng::with_seed(self.options.seed ^ (ended + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mean = self.options.kill_ms;
            let lives_for = Duration::from_millis(random.u64(mean / 2..=mean * 3 / 2));
            let taken = random.u32(..100) < TAKEOVERS;
            let undisturbed = self.options.ends.is_some_and(|ends| ended >= ends);
            match self.feed(life, (!undisturbed).then_some(lives_for), taken).await? {
                None => {}
                Some(life) if taken => {
                    host = 1 - host;
                    running = Some(self.take_over(life, host).await?);
                }
                Some(life) => {
                    self.day.kills.push(self.at_ms());
                    let rest = life.kill().await?;
                    self.heard(rest);
                    // A supervisor may start it anywhere.
                    host = random.usize(..2);
                }
            }
        }
        if let Some(life) = running {
            self.close(life).await?;
        }
        Ok(())
    }

    /// Feeds a life as the source has transactions; it comes back if it is still running when its time is over. One
    /// that is to lose the stream must have it: its time is not over before it has acknowledged something.
    async fn feed(
        &mut self,
        mut life: Life,
        lives_for: Option<Duration>,
        taken: bool,
    ) -> Result<Option<Life>, String> {
        let ends = lives_for.map(|lives_for| clock::now() + lives_for);
        let mut owns = !taken;
        let mut next = self.acknowledged().saturating_sub(OVERLAP) + 1;
        loop {
            let place = life.acknowledged();
            owns |= place.is_some();
            self.heard(place);
            if let Some(code) = life.ended()? {
                self.ended("a life", code);
                return Ok(None);
            }
            if self.acknowledged() >= self.options.batches {
                self.close(life).await?;
                return Ok(None);
            }
            if owns && ends.is_some_and(|ends| clock::now() >= ends) {
                return Ok(Some(life));
            }
            let upto = self.due().min(self.acknowledged() + AHEAD);
            while next <= upto {
                if !life.feed(&self.source.transaction(next).lines).await {
                    break;
                }
                next += 1;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Another host takes the stream away from a running life, which must end fenced.
    async fn take_over(&mut self, mut first: Life, host: usize) -> Result<Life, String> {
        self.day.takeovers.push(self.at_ms());
        let mut second = Life::start(&self.programs, &self.hosts[host])?;
        let from = self.acknowledged().saturating_sub(OVERLAP) + 1;
        let until = clock::now() + CONTEND;
        let mut next = from;
        // Both see the source, as two supervisors that contend would have it.
        while first.ended()?.is_none() && second.ended()?.is_none() && clock::now() < until {
            let lines = self.source.transaction(next).lines;
            first.feed(&lines).await;
            second.feed(&lines).await;
            next = (next + 1).min(self.options.batches);
            let place = second.acknowledged();
            self.heard(place);
            sleep(Duration::from_millis(100)).await;
        }
        match first.ended()? {
            Some(6) => {}
            Some(code) => self.ended("the older of two owners", code),
            // Then the newer one ended, and says itself with what.
            None if second.ended()?.is_some() => {}
            None => self.day.findings.push("the older of two owners did not end".to_owned()),
        }
        let rest = first.kill().await?;
        self.heard(rest);
        Ok(second)
    }

    async fn close(&mut self, life: Life) -> Result<(), String> {
        let (code, rest) = life.close().await?;
        self.heard(rest);
        if code != 0 {
            self.ended("the last life", code);
        }
        Ok(())
    }

    /// A life that ended by itself: on a machine that is too busy for its limits it may, and is started again.
    fn ended(&mut self, whose: &str, code: i32) {
        if UNANSWERED.contains(&code) {
            self.day.unanswered += 1;
        } else {
            self.day.findings.push(format!("{whose} ended by itself with exit code {code}"));
        }
    }

    /// One more life without anything to write: its actors clear away what the day has left.
    async fn evening(&mut self) -> Result<(), String> {
        let mut life = Life::start(&self.programs, &self.hosts[0])?;
        let began = clock::now();
        while began.elapsed() < EVENING {
            sleep(QUIET).await;
            if let Some(code) = life.ended()? {
                self.ended("the evening", code);
                if !self.day.findings.is_empty() {
                    return Ok(());
                }
                life = Life::start(&self.programs, &self.hosts[0])?;
                continue;
            }
            let last =
                self.progress.lock().map(|progress| progress.samples.last().cloned()).unwrap_or_default();
            let Some(last) = last else { continue };
            let settled = bounds(&self.programs, &self.hosts[0], &last).await?.hold(&last);
            if settled && verdict::orphans(&self.programs, &self.hosts[0]).await? == 0 {
                break;
            }
        }
        self.close(life).await
    }
}

/// Half of what `sinks::plan::compact` allows for the bytes: no original of a day is as large as half the target, so
/// what is smaller at rest stands at a table's end. Sixteen there are what it allows for objects of 362 bytes and more.
/// Entries stay that one rollup covers and not two: also a quiet stream is rolled up to its end.
async fn bounds(programs: &Programs, host: &Path, last: &Sample) -> Result<Bounds, String> {
    let objects = last.written_bytes / 16_384 + 3 * 16;
    Ok(Bounds { objects, entries: verdict::rolled_up_once(programs, host).await? })
}

/// Reads the journal in a thread of its own: it remembers the last requests only.
fn harvest(journal: &Journal, progress: &Mutex<Progress>, done: &AtomicBool) {
    let mut last = false;
    while !last {
        last = done.load(Ordering::Acquire);
        if let Ok(mut progress) = progress.lock() {
            progress.harvest.gather(journal);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Lists the bucket every other second.
async fn watch(
    server: (String, String, String),
    progress: Arc<Mutex<Progress>>,
    began: Instant,
) -> Result<(), String> {
    let bucket = client(&server.0, &server.1, &server.2, "lake")?;
    loop {
        let sampled = census::sample(&bucket).await?;
        if let Ok(mut progress) = progress.lock() {
            let at_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let sample = Sample { at_ms, acknowledged: progress.acknowledged, ..sampled };
            let sample = progress.harvest.written(sample);
            progress.samples.push(sample);
        }
        sleep(Duration::from_secs(2)).await;
    }
}

async fn run(options: &Options, scratch: &Path) -> Result<Day, String> {
    let text = |why: std::io::Error| why.to_string();
    let server = Server::builder()
        .bucket("lake")
        .data(scratch.join("server"))
        .start()
        .await
        .map_err(|why| why.to_string())?;
    let hosts = ["a", "b"].map(|name| scratch.join(name));
    hosts.iter().try_for_each(std::fs::create_dir).map_err(text)?;
    let config = scratch.join("pipeline.yaml");
    std::fs::write(&config, PIPELINE.replace("FORMAT", &options.format)).map_err(text)?;
    let keys = (server.endpoint().to_owned(), server.access_key().to_owned(), server.secret_key().to_owned());
    let environment = vec![
        ("AWS_ACCESS_KEY_ID", keys.1.clone()),
        ("AWS_SECRET_ACCESS_KEY", keys.2.clone()),
        ("AWS_REGION", server.region().to_owned()),
        ("AWS_ENDPOINT_URL", keys.0.clone()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
    ];
    let absolute = |path: &Path| std::path::absolute(path).map_err(|why| why.to_string());
    let (sink, judge) = (absolute(&options.sink)?, absolute(&options.oracle)?);
    census::keep_versions(&client(&keys.0, &keys.1, &keys.2, "lake")?).await?;
    let progress: Arc<Mutex<Progress>> = Arc::default();
    let began = clock::now();
    let done = Arc::new(AtomicBool::new(false));
    let harvesting = {
        let (journal, progress, done) = (server.journal(), Arc::clone(&progress), Arc::clone(&done));
        std::thread::spawn(move || harvest(&journal, &progress, &done))
    };
    let mut watching = tokio::spawn(watch(keys.clone(), Arc::clone(&progress), began));
    let mut show = Show {
        options,
        programs: Programs { sink, environment: environment.clone(), config },
        hosts,
        source: Source { seed: options.seed },
        progress: Arc::clone(&progress),
        began,
        day: Day::default(),
    };
    tokio::select! {
        lived = show.lives() => lived?,
        ended = &mut watching => ended.map_err(|why| why.to_string())??,
    }
    if show.day.findings.is_empty() {
        show.evening().await?;
    }
    sleep(Duration::from_secs(3)).await; // one more sample of what is at rest
    watching.abort();
    let expected = scratch.join("expected.jsonl");
    let rows: String = (1..=options.batches).map(|n| show.source.transaction(n).expected).collect();
    std::fs::write(&expected, rows).map_err(text)?;
    let oracle = |name: &str| {
        let mut oracle = Command::new(&judge);
        oracle.args([name, "--json", "--endpoint", &keys.0, "--bucket", "lake"]);
        oracle.args(["--prefix", "day", "--pipeline", "orders"]).envs(environment.iter().cloned());
        oracle
    };
    let mut durable = oracle("durable");
    durable.arg("--expected").arg(&expected);
    let oracles = [durable, oracle("history")];
    done.store(true, Ordering::Release);
    harvesting.join().map_err(|_| "the journal could not be read".to_owned())?;
    let done =
        progress.lock().map(|mut progress| std::mem::take(&mut *progress)).map_err(|why| why.to_string())?;
    let last = done.samples.last().cloned().unwrap_or_default();
    let Show { programs, hosts, mut day, .. } = show;
    let bounds = bounds(&programs, &hosts[0], &last).await?;
    let judged = verdict::judge(&programs, &hosts[0], oracles, &done.harvest, &last, bounds).await?;
    day.findings.extend(judged.findings);
    day.unproven.extend(judged.unproven);
    tell(options, &day, &done, &[judged.statistics, judged.deletes], bounds, began.elapsed())?;
    Ok(day)
}

/// Figures for people, and for programs if a place is named.
fn tell(
    options: &Options,
    day: &Day,
    done: &Progress,
    [statistics, deletes]: &[serde_json::Value; 2],
    bounds: Bounds,
    took: Duration,
) -> Result<(), String> {
    let last = done.samples.last().cloned().unwrap_or_default();
    let peak = |value: fn(&Sample) -> u64| done.samples.iter().map(value).max().unwrap_or(0);
    let rows: u64 = statistics["rows"]
        .as_object()
        .map_or(0, |rows| rows.values().filter_map(serde_json::Value::as_u64).sum());
    let for_ever = &statistics["kept_for_ever"];
    println!("| figure | value |\n| --- | ---: |");
    for (what, value) in [
        ("batches acknowledged", done.acknowledged.to_string()),
        ("rows, each there once and in order", rows.to_string()),
        ("seconds", took.as_secs().to_string()),
        ("lives", day.lives.to_string()),
        ("kill -9", day.kills.len().to_string()),
        ("takeovers", day.takeovers.len().to_string()),
        ("lives that ended for want of an answer", day.unanswered.to_string()),
        ("epoch at the end", statistics["epoch"].to_string()),
        ("data objects written", last.written.to_string()),
        (
            "data objects there: most, at the end, allowed at the end",
            format!(
                "{}, {}, {}",
                peak(|s| s.originals + s.compacted),
                last.originals + last.compacted,
                bounds.objects
            ),
        ),
        ("data bytes written", last.written_bytes.to_string()),
        ("data bytes there: most, at the end", format!("{}, {}", peak(|s| s.data_bytes), last.data_bytes)),
        (
            "entries there: most, at the end, allowed at the end",
            format!("{}, {}, {}", peak(|s| s.entries), last.entries, bounds.entries),
        ),
        ("unreachable data objects and entries left", statistics["orphans"].to_string()),
        ("kept for ever: rollups", for_ever["rollups"].to_string()),
        ("kept for ever: inventories", for_ever["inventories"].to_string()),
        ("kept for ever: marks", for_ever["marks"].to_string()),
        ("kept for ever: compaction records", for_ever["compactions"].to_string()),
    ] {
        println!("| {what} | {value} |");
    }
    for (what, count) in deletes.as_object().into_iter().flatten() {
        println!("| deletes judged by the HEAD of their moment: {what} | {count} |");
    }
    let text = |why: std::io::Error| why.to_string();
    if let Some(path) = &options.svg {
        std::fs::write(path, plot::svg(&done.samples, &day.kills, &day.takeovers)).map_err(text)?;
    }
    if let Some(path) = &options.json {
        let all = json!({"seed": options.seed, "samples": done.samples, "statistics": statistics, "deletes": deletes,
            "kills": day.kills, "takeovers": day.takeovers, "findings": day.findings});
        std::fs::write(path, format!("{all}\n")).map_err(text)?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let ends = options.ends.map(|ends| format!(" --ends {ends}")).unwrap_or_default();
    let format = &options.format;
    let replay = format!(
        "ci/day/run --seed {} --batches {} --seconds {} --kill-ms {}{ends} --format {format}",
        options.seed, options.batches, options.seconds, options.kill_ms
    );
    println!("day: again with {replay}");
    let scratch = match tempfile::tempdir() {
        Ok(scratch) => scratch,
        Err(why) => {
            eprintln!("day: no temporary directory: {why}");
            return ExitCode::from(4);
        }
    };
    let (code, why) = match run(&options, scratch.path()).await {
        Err(why) => (7, vec![why]),
        Ok(day) if !day.findings.is_empty() => (1, day.findings),
        Ok(mut day) => {
            if day.kills.is_empty() || day.takeovers.is_empty() {
                day.unproven.push("there was no kill or no takeover: give it more time".to_owned());
            }
            (if day.unproven.is_empty() { 0 } else { 3 }, day.unproven)
        }
    };
    why.iter().for_each(|why| eprintln!("day: {why}"));
    if code != 0 {
        let kept = scratch.keep();
        eprintln!("day: kept: {}; again with {replay}", kept.display());
    }
    ExitCode::from(code)
}
