//! One life of the sink: started on a host, fed, listened to, killed, fenced or closed.

use crate::source::number;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest that a process may take to end once it should.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// What every process is started with.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `assay-sink`.
    pub sink: PathBuf,
    /// Endpoint and credentials.
    pub environment: Vec<(&'static str, String)>,
    /// The pipeline's file.
    pub config: PathBuf,
}

impl Programs {
    /// A command of the sink on a host.
    pub fn command(&self, host: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.sink);
        let (name, rest) = arguments.split_first().unwrap_or((&"status", &[]));
        command.arg(name).arg("--config").arg(&self.config).args(rest);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(host).kill_on_drop(true);
        command
    }
}

/// A running sink.
pub struct Life {
    child: Child,
    input: Option<ChildStdin>,
    heard: mpsc::UnboundedReceiver<u64>,
}

impl Life {
    /// Starts `assay-sink run` on a host, whose directory keeps its checkpoint and its log.
    pub fn start(programs: &Programs, host: &Path) -> Result<Self, String> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(host.join("log"));
        let log = log.map_err(|why| why.to_string())?;
        let mut command = programs.command(host, &["run"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|why| format!("{}: {why}", programs.sink.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the sink has no output")?;
        let (say, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                let place = line["position"].as_str().and_then(number);
                if place.is_some_and(|place| say.send(place).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { child, input, heard })
    }

    /// Writes a transaction; false once the process does not read any more.
    pub async fn feed(&mut self, lines: &str) -> bool {
        let Some(input) = &mut self.input else { return false };
        input.write_all(lines.as_bytes()).await.is_ok() && input.flush().await.is_ok()
    }

    /// Up to where it has acknowledged since this was asked last.
    pub fn acknowledged(&mut self) -> Option<u64> {
        let mut last = None;
        while let Ok(place) = self.heard.try_recv() {
            last = Some(place);
        }
        last
    }

    /// Its exit code, if it has ended; 128 if a signal ended it.
    pub fn ended(&mut self) -> Result<Option<i32>, String> {
        let status = self.child.try_wait().map_err(|why| why.to_string())?;
        Ok(status.map(|status| status.code().unwrap_or(128)))
    }

    /// Ends it with SIGKILL; what it had acknowledged by then is returned.
    pub async fn kill(mut self) -> Result<Option<u64>, String> {
        self.child.kill().await.map_err(|why| why.to_string())?;
        self.rest().await
    }

    /// Ends its input, and waits for its exit code.
    pub async fn close(mut self) -> Result<(i32, Option<u64>), String> {
        drop(self.input.take());
        let status = timeout(ENDS_WITHIN, self.child.wait()).await;
        let status = status.map_err(|_| format!("the sink did not end within {ENDS_WITHIN:?}"))?;
        let code = status.map_err(|why| why.to_string())?.code().unwrap_or(128);
        Ok((code, self.rest().await?))
    }

    /// What it had said before it ended.
    async fn rest(&mut self) -> Result<Option<u64>, String> {
        let mut last = None;
        let reading = async {
            while let Some(place) = self.heard.recv().await {
                last = Some(place);
            }
        };
        timeout(ENDS_WITHIN, reading).await.map_err(|_| "the sink's output stays open".to_owned())?;
        Ok(last)
    }
}
