//! What shows that a fault happened: the state of a stopped process, and a request that is refused or not answered.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a request waits for a process that may be stopped.
const ANSWER: Duration = Duration::from_secs(1);

/// How long the kernel may take to stop a process.
const STOP: Duration = Duration::from_secs(2);

/// Whether the kernel says that a process is stopped, state T of `/proc`.
#[must_use]
pub fn stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| state(&stat) == Some('T'))
}

/// The state in a line of `/proc/PID/stat`: what comes after the name, which may have anything in it.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next())
}

/// Waits until a process is stopped; whether it is.
pub async fn stops(pid: u32) -> bool {
    let waited = async {
        while !stopped(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(STOP, waited).await.is_ok()
}

/// Whether nobody listens at an address.
pub async fn refuses(address: &str) -> bool {
    let connected = timeout(ANSWER, TcpStream::connect(address)).await;
    matches!(connected, Ok(Err(why)) if why.kind() == ErrorKind::ConnectionRefused)
}

/// Whether a request to an address is neither refused nor answered for a second: whoever lives there answers it, or
/// ends the connection.
pub async fn silent(address: &str) -> bool {
    let Ok(connected) = timeout(ANSWER, TcpStream::connect(address)).await else { return true };
    let Ok(mut stream) = connected else { return false };
    if stream.write_all(b"GET / HTTP/1.1\r\nhost: campaign\r\n\r\n").await.is_err() {
        return false;
    }
    timeout(ANSWER, stream.read(&mut [0])).await.is_err()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use assay_server::Server;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_state_comes_after_the_name() {
        assert_eq!(state("12 (sleep) S 1 12"), Some('S'));
        assert_eq!(state("12 (a) S (b) T 1 12"), Some('T'));
        assert_eq!(state(""), None);
    }

    #[tokio::test]
    async fn a_process_is_stopped_from_the_signal_on_and_not_before() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(!stopped(pid));
        assert!(Command::new("sh").args(["-c", &format!("kill -STOP {pid}")]).status().unwrap().success());
        assert!(stops(pid).await);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!stopped(pid));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_port_refuses_or_is_silent_or_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(silent(&address).await && !refuses(&address).await, "the kernel connects, nobody answers");
        drop(listener);
        assert!(refuses(&address).await && !silent(&address).await, "nobody is there");
        let server = Server::builder().bucket("events").start().await.unwrap();
        let address = server.endpoint().trim_start_matches("http://");
        assert!(!silent(address).await && !refuses(address).await, "it answers");
    }
}
