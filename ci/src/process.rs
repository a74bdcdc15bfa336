//! A server as a real process: started from a command, awaited, measured, killed.

use crate::clock;
use assay_checks::{Addressing, Call, Client, Credentials, Endpoint, Settings};
use http::{Method, StatusCode};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Marks the error of a server that ended before it answered.
const ENDED: io::ErrorKind = io::ErrorKind::BrokenPipe;

/// The longest wait for a server's first answer: the slowest peer needs six seconds when first started.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How a server is started, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The name in tables.
    pub name: String,
    /// The access key id that the command gives it.
    pub access_key: String,
    /// The secret key that the command gives it.
    pub secret_key: String,
    /// A shell command; `{port}` and `{dir}` stand for the port to listen on and a directory to keep data in.
    pub command: String,
}

impl Recipe {
    /// Reads `NAME KEY SECRET COMMAND`, separated by single spaces.
    ///
    /// # Errors
    /// Says which of the four words is missing.
    pub fn parse(text: &str) -> Result<Recipe, String> {
        let mut words = text.splitn(4, ' ').map(str::to_owned);
        let mut next = |what: &str| {
            words
                .next()
                .filter(|word| !word.is_empty())
                .ok_or(format!("server {text:?} lacks its {what}: write 'NAME KEY SECRET COMMAND'"))
        };
        Ok(Recipe {
            name: next("name")?,
            access_key: next("access key")?,
            secret_key: next("secret key")?,
            command: next("command")?,
        })
    }

    /// Starts it on a free port of loopback and waits for its first HTTP answer.
    ///
    /// # Errors
    /// The process cannot be started, ends before it answers three times, or does not answer within a minute.
    pub async fn start(&self, dir: &Path) -> io::Result<Running> {
        // Somebody else may have taken the port by the time that it asks for it.
        for _ in 0..2 {
            match self.start_once(dir).await {
                Err(why) if why.kind() == ENDED => {}
                started => return started,
            }
        }
        self.start_once(dir).await
    }

    async fn start_once(&self, dir: &Path) -> io::Result<Running> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let dir_text = dir.to_string_lossy();
        let command = self.command.replace("{port}", &port.to_string()).replace("{dir}", &dir_text);
        let log = std::fs::File::create(dir.with_extension("log"))?;
        let began = clock::now();
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut running = Running {
            child,
            authority: format!("127.0.0.1:{port}"),
            start: Duration::ZERO,
            log: dir.with_extension("log"),
        };
        loop {
            if answers(&running.authority).await {
                running.start = began.elapsed();
                return Ok(running);
            }
            if let Some(status) = running.child.try_wait()? {
                let why = format!("{} ended with {status}: {}", self.name, running.last_words());
                return Err(io::Error::new(ENDED, why));
            }
            if began.elapsed() > START_LIMIT {
                return Err(io::Error::other(format!("{} did not answer within {START_LIMIT:?}", self.name)));
            }
            // Not tokio's timer, whose resolution of a millisecond is as long as a fast start.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A signing client for one bucket of a local server. It never retries; an answer may take a minute.
///
/// # Errors
/// The endpoint is not a URL of scheme, host and port.
pub fn client(endpoint: &str, access_key: &str, secret_key: &str, bucket: &str) -> Result<Client, String> {
    Ok(Client::new(Settings {
        endpoint: Endpoint::parse(endpoint)?,
        addressing: Addressing::Path,
        bucket: bucket.to_owned(),
        region: "us-east-1".to_owned(),
        credentials: Credentials {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session_token: None,
        },
        timeout: Duration::from_secs(60),
        clock: clock::wall(),
    }))
}

/// Makes the client's bucket; one that is there already will do.
///
/// # Errors
/// Says what the server answered instead.
pub async fn make_bucket(client: &Client) -> Result<(), String> {
    let call = Call::new(Method::PUT, None);
    let answer = client.send(call).await.map_err(|lost| format!("CreateBucket: {lost}"))?;
    if answer.succeeded() || answer.status == StatusCode::CONFLICT {
        return Ok(());
    }
    Err(format!("CreateBucket answers {}: {}", answer.status, String::from_utf8_lossy(&answer.body)))
}

/// Whether the address answers an HTTP request, with any status.
pub async fn answers(authority: &str) -> bool {
    let attempt = async {
        let mut stream = TcpStream::connect(authority).await?;
        let request = format!("GET / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut start = [0; 9];
        stream.read_exact(&mut start).await?;
        io::Result::Ok(start.starts_with(b"HTTP/1.1 "))
    };
    attempt.await.unwrap_or(false)
}

/// A server that has answered once. Dropped, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Host and port.
    pub authority: String,
    /// From the start of the process to its first answer.
    pub start: Duration,
    log: PathBuf,
}

impl Running {
    /// `http://host:port`
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// The process's number, unless it has ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// The process could not be signalled.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// The end of what it printed.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }
}

/// Resident memory of a process in KiB; `None` when it is gone or the system has no `/proc`.
#[must_use]
pub fn rss_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_keeps_its_command_whole() {
        let recipe = Recipe::parse("mine key secret serve --port {port} 'a b'").unwrap();
        assert_eq!((recipe.name.as_str(), recipe.access_key.as_str()), ("mine", "key"));
        assert_eq!(recipe.command, "serve --port {port} 'a b'");
        assert!(Recipe::parse("mine key secret").unwrap_err().contains("lacks its command"));
    }

    #[tokio::test]
    async fn a_process_that_ends_is_reported_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = Recipe::parse("mine k s sh -c 'echo no such flag; exit 2'").unwrap();
        let error = recipe.start(&dir.path().join("data")).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 2") && error.contains("no such flag"), "{error}");
    }

    #[test]
    fn this_process_has_resident_memory() {
        assert!(rss_kib(std::process::id()).unwrap() > 100);
        assert_eq!(rss_kib(u32::MAX), None);
    }
}
