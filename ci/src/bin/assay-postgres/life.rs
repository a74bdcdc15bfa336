//! One life of the sink: started, fed through its standard input, listened to, killed or closed.

use crate::changes::Lsn;
use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What a sink has acknowledged over all its lives, in the order in which it said so.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// Every place.
    pub places: Vec<Lsn>,
    /// Of these, said by a life of what an earlier one had committed.
    pub resumed: u64,
    /// Lines that were no acknowledgement.
    pub strangers: Vec<String>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The process's status.
    pub status: ExitStatus,
    /// Whether it was this program that killed it.
    pub killed: bool,
}

/// A running sink.
pub struct Life {
    input: Option<ChildStdin>,
    listener: JoinHandle<()>,
    process: JoinHandle<std::io::Result<End>>,
    /// The last transaction that it was given whole.
    pub fed: Lsn,
}

/// What a life is started from.
pub struct Recipe<'a> {
    /// The program.
    pub sink: &'a Path,
    /// Its configuration.
    pub config: &'a Path,
    /// Credentials.
    pub environment: &'a [(&'static str, String)],
    /// Where its logs go.
    pub log: &'a File,
}

impl Life {
    /// Starts `assay-sink run`, and kills it with SIGKILL once `dies_after` is over.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(
        recipe: &Recipe<'_>,
        heard: Arc<Mutex<Acknowledged>>,
        dies_after: Option<Duration>,
    ) -> Result<Self, String> {
        let log = recipe.log.try_clone().map_err(|why| why.to_string())?;
        let mut child = Command::new(recipe.sink)
            .args(["run", "--config"])
            .arg(recipe.config)
            .envs(recipe.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| format!("{}: {why}", recipe.sink.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("the sink has no output")?;
        let listener = tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(mut heard) = heard.lock() else { return };
                match acknowledged(&line) {
                    Some((place, resumed)) => {
                        heard.places.push(place);
                        heard.resumed += u64::from(resumed);
                    }
                    None => heard.strangers.push(line),
                }
            }
        });
        let process = tokio::spawn(async move {
            let Some(dies_after) = dies_after else {
                return Ok(End { status: child.wait().await?, killed: false });
            };
            if let Ok(status) = timeout(dies_after, child.wait()).await {
                return Ok(End { status: status?, killed: false });
            }
            child.start_kill()?;
            Ok(End { status: child.wait().await?, killed: true })
        });
        Ok(Self { input, listener, process, fed: Lsn(0) })
    }

    /// Writes one transaction; false once the process does not read any more.
    pub async fn feed(&mut self, lines: &str, end: Lsn) -> bool {
        let Some(input) = &mut self.input else { return false };
        let written = input.write_all(lines.as_bytes()).await.is_ok() && input.flush().await.is_ok();
        if written {
            self.fed = end;
        }
        written
    }

    /// Whether the process is gone.
    pub fn is_over(&self) -> bool {
        self.process.is_finished()
    }

    /// Waits for the process's end, and hears the rest of what it had said. Its input is closed by that.
    ///
    /// # Errors
    /// It does not end within `limit`.
    pub async fn end(mut self, limit: Duration) -> Result<End, String> {
        drop(self.input.take());
        let end = timeout(limit, self.process)
            .await
            .map_err(|_| format!("the sink did not end within {limit:?} of its input's end"))?
            .map_err(|why| why.to_string())?
            .map_err(|why| why.to_string())?;
        self.listener.await.map_err(|why| why.to_string())?;
        Ok(end)
    }
}

/// The place in a line of the sink, if the line acknowledges whole transactions up to one, and whether an earlier
/// life had committed it.
fn acknowledged(line: &str) -> Option<(Lsn, bool)> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let resumed = match value["event"].as_str()? {
        "acknowledged" => false,
        "resume" => true,
        _ => return None,
    };
    let whole = value["type"] == "pg-lsn" && value["sub"] == 0;
    whole.then_some((value["position"].as_str()?.parse().ok()?, resumed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_transactions_are_acknowledged() {
        let line =
            r#"{"event":"acknowledged","type":"pg-lsn","position":"0/1539588","sub":0,"seq":7,"epoch":1}"#;
        assert_eq!(acknowledged(line), Some((Lsn(0x0153_9588), false)));
        assert_eq!(acknowledged(&line.replace("acknowledged", "resume")), Some((Lsn(0x0153_9588), true)));
        for (from, to) in
            [("\"sub\":0", "\"sub\":3"), ("pg-lsn", "snapshot"), ("acknowledged", "read"), ("{", "")]
        {
            assert_eq!(acknowledged(&line.replace(from, to)), None);
        }
    }
}
