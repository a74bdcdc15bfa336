//! The binary as a child process that never outlives its test.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::client::wire::Wire;

/// No process of these tests needs longer to end.
const LIMIT: Duration = Duration::from_secs(30);

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-server"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in
        ["ASSAY_ACCESS_KEY", "ASSAY_SECRET_KEY", "ASSAY_REGION", "ASSAY_CONTROL_TOKEN", "ASSAY_UPSTREAM"]
    {
        command.env_remove(name);
    }
    command
}

/// A server that listens.
pub struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    pub address: SocketAddr,
}

/// How a process ended and all that it said.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts a server on a free port and waits until it says where it listens.
    pub fn start(arguments: &[&str]) -> Self {
        Self::of(command(&[&["--listen", "127.0.0.1:0", "--auth", "none"], arguments].concat()))
    }

    pub fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = read_all(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("assay-server listening on http://") else {
            let _ = child.wait();
            panic!("it said {line:?} and {}", stderr.join().unwrap());
        };
        let address = address.parse().unwrap();
        Self { child, stdout, stderr: Some(stderr), address }
    }

    pub fn on(data: &Path) -> Self {
        Self::start(&["--bucket", "bucket", "--data", data.to_str().unwrap()])
    }

    pub async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(name).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let watched = watch(&self.child);
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let code = self.child.wait().unwrap().code();
        watched.end();
        Ended { code, stdout, stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut pipe: ChildStderr) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

/// Runs a command that ends by itself.
pub fn run(mut command: Command) -> Ended {
    let mut child = command.spawn().unwrap();
    let watched = watch(&child);
    let stderr = read_all(child.stderr.take().unwrap());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    let code = child.wait().unwrap().code();
    watched.end();
    Ended { code, stdout, stderr: stderr.join().unwrap() }
}

/// Kills a process that does not end within the limit.
struct Watched {
    done: mpsc::Sender<()>,
    watchdog: JoinHandle<()>,
}

fn watch(child: &Child) -> Watched {
    let (done, ended) = mpsc::channel::<()>();
    let id = child.id();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").arg("-KILL").arg(id.to_string()).status();
        }
    });
    Watched { done, watchdog }
}

impl Watched {
    fn end(self) {
        drop(self.done);
        self.watchdog.join().unwrap();
    }
}
