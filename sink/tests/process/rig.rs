//! A server in this process, a pipeline's files, and `assay-sink` as a process of its own.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use assay_server::{Deviation, Server};
use serde_json::Value;
use sinks::store::{Access, Outcome, S3Settings, S3Store, Store as _};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long anything may take: a loaded machine, and still an end.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Source and stream of PostgreSQL, and a batch for each transaction.
pub(crate) const PIPELINE: &str = "\
pipeline: orders
source: {id: shop, position: pg-lsn, system_identifier: 7301, timeline: 1}
sinks:
  - type: s3
    bucket: my-bucket
    batch: {max_transactions: 1}
metrics: {listen: 'off'}
";

pub(crate) struct Rig {
    pub(crate) server: Server,
    directory: TempDir,
}

impl Rig {
    pub(crate) async fn start(pipeline: &str, deviation: Option<Deviation>) -> Self {
        let builder = Server::builder().bucket("my-bucket");
        let builder = match deviation {
            Some(deviation) => builder.deviation(deviation),
            None => builder,
        };
        let server = builder.start().await.expect("the server starts");
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::write(directory.path().join("pipeline.yaml"), pipeline).expect("the pipeline's file");
        Self { server, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `assay-sink COMMAND --config pipeline.yaml`, in the directory of the pipeline.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.process(Path::new(env!("CARGO_BIN_EXE_assay-sink")));
        let (name, rest) = arguments.split_first().expect("a subcommand");
        command.arg(name).args(["--config", "pipeline.yaml"]).args(rest);
        command
    }

    /// A program that knows the server, and nothing else of this process's environment.
    pub(crate) fn process(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_ACCESS_KEY_ID", self.server.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.server.secret_key())
            .env("AWS_REGION", self.server.region())
            .env("AWS_ENDPOINT_URL", self.server.endpoint())
            .kill_on_drop(true);
        command
    }

    /// The bucket, by the sink's own client.
    pub(crate) fn store(&self) -> S3Store {
        let access = Access::keys(self.server.access_key(), self.server.secret_key(), None);
        let endpoint = Some(self.server.endpoint().to_owned());
        let bucket = S3Settings::new(endpoint, self.server.region(), "my-bucket");
        S3Store::new(&bucket, &access).expect("settings of a running server")
    }

    /// Runs to the end with `input`.
    pub(crate) async fn ask(&self, arguments: &[&str], input: &str) -> Output {
        self.ask_with(arguments, &[], input).await
    }

    /// The same with more in the environment.
    pub(crate) async fn ask_with(&self, arguments: &[&str], more: &[(&str, PathBuf)], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.envs(more.iter().cloned());
        finished(command, input).await
    }

    /// The answer of a command that must work, as JSON.
    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(arguments, "").await;
        assert_eq!(code(&output), 0, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The `id`s of all committed rows of `public.orders`, in order.
    pub(crate) async fn ids(&self) -> Vec<u64> {
        let output = self.ask(&["read", "--table", "public.orders", "--json"], "").await;
        assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
        rows.map(|row| row["row"]["after"]["id"].as_u64().expect("an id")).collect()
    }

    /// How many keys begin with `prefix`.
    pub(crate) async fn count(&self, prefix: &str) -> usize {
        let Outcome::Done(page) = self.store().list(prefix, None, 1000).await else { panic!("a listing") };
        page.objects.len()
    }

    pub(crate) fn run(&self) -> Running {
        let mut command = self.command(&["run"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        Running {
            stdin: child.stdin.take(),
            lines: BufReader::new(stdout).lines(),
            logs: BufReader::new(stderr).lines(),
            child,
        }
    }
}

/// Runs to the end with `input`.
pub(crate) async fn finished(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // Whoever does not read its input ends before all of it is written.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    timeout(LIMIT, child.wait_with_output()).await.expect("an end").expect("an output")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal ended it")
}

/// A transaction of rows with these ids, ending at a place made of the last one.
pub(crate) fn transaction(ids: impl IntoIterator<Item = u64>) -> String {
    let ids: Vec<u64> = ids.into_iter().collect();
    let last = ids.last().copied().unwrap_or_default();
    let line = |id: u64| {
        let end = id == last;
        format!(
            r#"{{"op":"c","ts_ms":{id},"after":{{"id":{id}}},"tx_end":{end},"source":{{"namespace":"public","table":"orders","position":"0/{last:X}"}}}}"#
        ) + "\n"
    };
    ids.into_iter().map(line).collect()
}

pub(crate) struct Running {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    logs: Lines<BufReader<ChildStderr>>,
}

impl Running {
    pub(crate) async fn feed(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("an open input");
        stdin.write_all(text.as_bytes()).await.expect("it reads");
        stdin.flush().await.expect("it reads");
    }

    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// The next line of standard output; nothing at its end.
    pub(crate) async fn line(&mut self) -> Option<Value> {
        let line = timeout(LIMIT, self.lines.next_line()).await.expect("a line").expect("UTF-8")?;
        Some(serde_json::from_str(&line).expect("JSON"))
    }

    /// The next log line that has `word` in it.
    pub(crate) async fn log(&mut self, word: &str) -> String {
        let found = timeout(LIMIT, async {
            while let Some(line) = self.logs.next_line().await.expect("UTF-8") {
                if line.contains(word) {
                    return line;
                }
            }
            panic!("no log line has {word:?}")
        });
        found.await.expect("a log line in time")
    }

    /// Sends a signal by its name.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("a running process").to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().await.expect("kill");
        assert!(status.success());
    }

    /// Waits for its end; returns what it still said on standard error.
    pub(crate) async fn wait(mut self) -> (ExitStatus, String) {
        self.stdin = None;
        let mut rest = String::new();
        let mut logs = self.logs.into_inner();
        let read = async {
            let (status, _) = tokio::join!(self.child.wait(), logs.read_to_string(&mut rest));
            status
        };
        let status = timeout(LIMIT, read).await.expect("an end").expect("a status");
        (status, rest)
    }
}
