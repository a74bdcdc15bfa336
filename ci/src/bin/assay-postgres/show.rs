//! The show itself: slots, server, workload, lives of the sink, and the comparison.

use crate::changes::{self, Lsn};
use crate::life::{Acknowledged, Life, Recipe};
use crate::verdict::Verdict;
use crate::{Options, Stopped, database, truth};
use assay_ci::clock;
use assay_ci::process::{self, client, make_bucket};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// The slot that feeds the sink.
const FEED: &str = "feed";
/// The slot that is read once, at the end: the truth.
const TRUTH: &str = "truth";
const BUCKET: &str = "lake";
const PREFIX: &str = "cdc";
const PIPELINE: &str = "postgres";
/// Who the sink and the oracle are; the server is started for them.
const ACCESS_KEY: &str = "show";
const SECRET_KEY: &str = "show-secret";
/// Changes that one look at the slot shows at most, to the end of their transaction.
const LOOK: u32 = 20_000;
/// Between two looks that showed nothing new.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for the sink to catch up once it is not killed any more, and for its end.
const CATCH_UP: Duration = Duration::from_secs(120);

struct Show<'a> {
    options: &'a Options,
    config: PathBuf,
    environment: Vec<(&'static str, String)>,
    log: File,
    heard: Arc<Mutex<Acknowledged>>,
    /// Where the slot was moved to last.
    advanced: Lsn,
    /// The furthest transaction that any life was given.
    furthest: Lsn,
    verdict: Verdict,
}

/// Runs everything in a temporary directory, which is kept where something is wrong.
pub async fn run(options: &Options) -> Result<Verdict, Stopped> {
    let scratch = tempfile::tempdir().map_err(|why| why.to_string())?;
    let ended = within(options, scratch.path()).await;
    let wrong = ended.as_ref().map_or(true, |verdict| verdict.code() != 0);
    if wrong {
        eprintln!("postgres: logs, configuration and expected rows are kept: {}", scratch.keep().display());
    }
    ended
}

async fn within(options: &Options, scratch: &Path) -> Result<Verdict, Stopped> {
    // Nothing is written between the two: both show the same transactions.
    database::make_slot(TRUTH).await?;
    database::make_slot(FEED).await?;
    let recipe = process::Recipe {
        name: "assay-server".to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        command: format!(
            "{} --listen 127.0.0.1:{{port}} --access-key {ACCESS_KEY} --secret-key {SECRET_KEY}",
            options.server.display()
        ),
    };
    let server = recipe.start(&scratch.join("server")).await.map_err(|why| why.to_string())?;
    make_bucket(&client(&server.endpoint(), ACCESS_KEY, SECRET_KEY, BUCKET)?).await?;
    let config = scratch.join("pipeline.yaml");
    let (system, timeline) = database::lineage().await?;
    let yaml = truth::pipeline(&server.endpoint(), (BUCKET, PREFIX, PIPELINE), (&system, &timeline), scratch);
    std::fs::write(&config, yaml).map_err(|why| why.to_string())?;
    let mut show = Show {
        options,
        config,
        environment: vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ],
        log: File::create(scratch.join("sink.log")).map_err(|why| why.to_string())?,
        heard: Arc::default(),
        advanced: Lsn(0),
        furthest: Lsn(0),
        verdict: Verdict::default(),
    };
    let mut work = database::workload(&options.workload, options.seconds, options.rate, options.seed)?;
    let began = clock::now();
    show.under_kills(&mut work).await?;
    show.worked(work).await?;
    show.last_life().await?;
    show.verdict.seconds = began.elapsed().as_secs();
    show.slot().await?;
    show.compare(&server.endpoint(), scratch).await?;
    Ok(show.verdict)
}

impl Show<'_> {
    fn start(&mut self, dies_after: Option<Duration>) -> Result<Life, Stopped> {
        self.verdict.lives += 1;
        let recipe = Recipe {
            sink: &self.options.sink,
            config: &self.config,
            environment: &self.environment,
            log: &self.log,
        };
        Ok(Life::start(&recipe, self.heard.clone(), dies_after)?)
    }

    /// Moves the slot to what is acknowledged, then gives the sink what it was not given in this life. How many
    /// changes the slot still shows.
    async fn turn(&mut self, life: &mut Life) -> Result<usize, Stopped> {
        let furthest = {
            let heard = self.heard.lock().map_err(|why| why.to_string())?;
            heard.places.iter().max().copied().unwrap_or_default()
        };
        if furthest > self.advanced {
            database::advance(FEED, furthest).await?;
            self.advanced = furthest;
            self.verdict.advances += 1;
        }
        let shown = changes::parse(&database::query(&changes::peek(FEED, Some(LOOK))).await?)?;
        let (mut idle, fed) = (true, life.fed);
        for transaction in shown.iter().filter(|shown| shown.end > fed && !shown.changes.is_empty()) {
            if !life.feed(&truth::lines(transaction), transaction.end).await {
                break;
            }
            idle = false;
            let count = transaction.changes.len() as u64;
            self.verdict.fed += count;
            if transaction.end <= self.furthest {
                self.verdict.fed_again += count;
            }
            self.furthest = self.furthest.max(transaction.end);
        }
        if idle {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(shown.iter().map(|shown| shown.changes.len()).sum())
    }

    /// A sink that ended by itself while it had input is wrong, whatever it says.
    async fn gone(&mut self, life: Life) -> Result<(), Stopped> {
        let end = life.end(CATCH_UP).await?;
        if !end.killed {
            let why = format!("the sink ended by itself with {} in life {}", end.status, self.verdict.lives);
            return Err(Stopped { code: if end.status.code() == Some(5) { 5 } else { 1 }, why });
        }
        Ok(())
    }

    /// Lives and kills while the workload lasts.
    async fn under_kills(&mut self, work: &mut Child) -> Result<(), Stopped> {
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        let kill_ms = self.options.kill_ms;
        while work.try_wait().map_err(|why| why.to_string())?.is_none() {
            let dies_after = Duration::from_millis(random.u64(kill_ms / 2..=kill_ms * 3 / 2));
            let mut life = self.start(Some(dies_after))?;
            while !life.is_over() {
                self.turn(&mut life).await?;
            }
            self.gone(life).await?;
            self.verdict.kills += 1;
        }
        Ok(())
    }

    /// pgbench ended well.
    async fn worked(&mut self, mut work: Child) -> Result<(), Stopped> {
        let status = work.wait().await.map_err(|why| why.to_string())?;
        if !status.success() {
            let mut said = String::new();
            if let Some(output) = &mut work.stderr {
                output.read_to_string(&mut said).await.map_err(|why| why.to_string())?;
            }
            return Err(format!("pgbench ended with {status}: {said}").into());
        }
        Ok(())
    }

    /// The life that may end: it catches up, its input ends, and so does it.
    async fn last_life(&mut self) -> Result<(), Stopped> {
        let mut life = self.start(None)?;
        let began = clock::now();
        while self.turn(&mut life).await? > 0 {
            if life.is_over() {
                return self.gone(life).await;
            }
            if began.elapsed() > CATCH_UP {
                self.verdict.wrong(format!("the sink did not catch up within {CATCH_UP:?}"));
                break;
            }
        }
        let end = life.end(CATCH_UP).await?;
        if !end.status.success() {
            self.verdict.wrong(format!("at the end of its input the sink ended with {}", end.status));
        }
        Ok(())
    }

    /// The slot stands at an acknowledged place.
    async fn slot(&mut self) -> Result<(), Stopped> {
        let confirmed = database::confirmed(FEED).await?;
        let heard = self.heard.lock().map_err(|why| why.to_string())?;
        self.verdict.acknowledged = heard.places.len() as u64;
        self.verdict.resumed = heard.resumed;
        self.verdict.slot = confirmed.to_string();
        if !heard.places.contains(&confirmed) {
            self.verdict.wrong(format!("the slot is at {confirmed}, which the sink never acknowledged"));
        }
        if let Some(pair) = heard.places.windows(2).find(|pair| pair[0] > pair[1]) {
            self.verdict.wrong(format!("place {} was acknowledged after {}", pair[1], pair[0]));
        }
        if let Some(line) = heard.strangers.first() {
            let count = heard.strangers.len();
            self.verdict.wrong(format!("{count} lines of output acknowledge nothing, the first is {line:?}"));
        }
        Ok(())
    }

    /// Every row version of the second slot against the bucket.
    async fn compare(&mut self, endpoint: &str, scratch: &Path) -> Result<(), Stopped> {
        let logged = changes::parse(&database::query(&changes::peek(TRUTH, None)).await?)?;
        self.verdict.transactions = logged.iter().filter(|logged| !logged.changes.is_empty()).count() as u64;
        self.verdict.logged = logged.iter().map(|logged| logged.changes.len() as u64).sum();
        let expected = scratch.join("expected.jsonl");
        let list: String = logged.iter().map(truth::expected).collect();
        std::fs::write(&expected, list).map_err(|why| why.to_string())?;
        let output = Command::new(&self.options.oracle)
            .args(["durable", "--json", "--endpoint", endpoint, "--bucket", BUCKET, "--prefix", PREFIX])
            .args(["--pipeline", PIPELINE, "--expected"])
            .arg(&expected)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(|why| format!("{}: {why}", self.options.oracle.display()))?;
        self.verdict.oracle = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(4);
        self.verdict.judged(&String::from_utf8_lossy(&output.stdout));
        Ok(())
    }
}
