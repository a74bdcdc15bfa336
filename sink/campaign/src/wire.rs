//! What the processes say to each other: one JSON value a line over TCP.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sinks::model::stage::Handle;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Of a worker to its coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The first word: which worker it is.
    Hello {
        /// Its index.
        worker: u32,
    },
    /// It restored, and takes records.
    Ready,
    /// It lives.
    Alive,
    /// Its part of a checkpoint.
    Prepared {
        /// The checkpoint.
        checkpoint: u64,
        /// What each of its partitions gives next.
        positions: BTreeMap<u32, u64>,
        /// Everything that is staged.
        handles: Vec<Handle>,
    },
    /// It could not stage its part.
    Failed {
        /// The checkpoint.
        checkpoint: u64,
    },
}

/// Of the coordinator to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// Restore from the latest checkpoint that counts: nothing is in flight.
    Restore,
    /// Another process of this index is connected.
    Busy,
    /// It lives.
    Alive,
    /// Stage what is there for this checkpoint.
    Checkpoint(u64),
    /// This checkpoint counts.
    Commit(u64),
    /// The stream ended: finish and go.
    Stop,
}

/// A question to the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToLog {
    /// Appends lines where the partition ends at `from`, durably; else nothing.
    Append {
        /// The partition.
        partition: u32,
        /// Where the writer thinks that it ends.
        from: u64,
        /// The lines.
        lines: Vec<String>,
    },
    /// Reads lines.
    Fetch {
        /// The partition.
        partition: u32,
        /// The first.
        from: u64,
        /// Most lines.
        most: u64,
    },
}

/// The log's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FromLog {
    /// What was read.
    pub lines: Vec<String>,
    /// One more than the partition's last line.
    pub end: u64,
}

/// How long a process that is started again may find its port in use: until it listens, the system may give it to
/// somebody's connection.
pub const PORT: Duration = Duration::from_secs(10);

/// Listens at an address, and waits for its port for a while.
///
/// # Errors
/// Of the port.
pub async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let until = Instant::now() + PORT;
    loop {
        match TcpListener::bind(address).await {
            Err(why) if why.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            bound => return bound,
        }
    }
}

/// The half of a connection that is read.
#[derive(Debug)]
pub struct Reading(BufReader<OwnedReadHalf>);

/// The half of a connection that is written.
#[derive(Debug)]
pub struct Writing(OwnedWriteHalf);

/// Both halves.
#[must_use]
pub fn halves(stream: TcpStream) -> (Reading, Writing) {
    // What is asked is small and waited for.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    (Reading(BufReader::new(read)), Writing(write))
}

impl Reading {
    /// The next value; nothing at the end, and of what is none.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await {
            Ok(0) | Err(_) => None,
            Ok(_) => serde_json::from_str(&line).ok(),
        }
    }
}

impl Writing {
    /// Sends a value.
    ///
    /// # Errors
    /// Of the connection.
    pub async fn send<T: Serialize + Sync>(&mut self, value: &T) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
        line.push(b'\n');
        self.0.write_all(&line).await
    }
}

/// One connection to the log, made again when it breaks.
#[derive(Debug)]
pub struct LogClient {
    address: String,
    open: Option<(Reading, Writing)>,
}

impl LogClient {
    /// Nothing is sent yet.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned(), open: None }
    }

    /// Asks once; nothing where the log is away.
    pub async fn ask(&mut self, question: &ToLog) -> Option<FromLog> {
        let mut halves = match self.open.take() {
            Some(halves) => halves,
            None => halves(TcpStream::connect(&self.address).await.ok()?),
        };
        halves.1.send(question).await.ok()?;
        let answer = halves.0.next().await?;
        self.open = Some(halves);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_in_use_for_a_moment_is_waited_for() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = other.local_addr().unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(other);
        });
        assert_eq!(listen(&address.to_string()).await.unwrap().local_addr().unwrap(), address);
    }
}
