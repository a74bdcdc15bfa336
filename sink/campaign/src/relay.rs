//! The link between a worker and its coordinator, which can be cut or slow: what is sent then waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// As it should be.
    Sound,
    /// Nothing arrives.
    Cut,
    /// Everything arrives so many milliseconds later.
    Slow(u64),
}

/// A relay on loopback.
#[derive(Debug)]
pub struct Relay {
    address: String,
    link: watch::Sender<Link>,
    passed: Arc<Passed>,
}

/// What went through a relay.
#[derive(Debug, Default)]
struct Passed {
    connections: AtomicU64,
    /// Bytes that arrived while the link was cut or slow.
    withheld: AtomicU64,
}

impl Relay {
    /// Relays connections to `to`, from a port of its own.
    ///
    /// # Errors
    /// Of the port.
    pub async fn start(to: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let link = watch::Sender::new(Link::Sound);
        let (watched, to) = (link.subscribe(), to.to_owned());
        let passed = Arc::new(Passed::default());
        let counted = Arc::clone(&passed);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::Relaxed);
                let (watched, to, counted) = (watched.clone(), to.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let Ok(other) = TcpStream::connect(&to).await else { return };
                    let ((read, write), (other_read, other_write)) =
                        (stream.into_split(), other.into_split());
                    let there = pass(read, other_write, watched.clone(), &counted.withheld);
                    let back = pass(other_read, write, watched, &counted.withheld);
                    tokio::select! { () = there => {}, () = back => {} }
                });
            }
        });
        Ok(Self { address, link, passed })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes the link so from now on.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// How many bytes were held back so far, since the link was cut or slow.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.passed.withheld.load(Ordering::Relaxed)
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.passed.connections.load(Ordering::Relaxed)
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
    withheld: &AtomicU64,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if *link.borrow() != Link::Sound {
            withheld.fetch_add(read as u64, Ordering::Relaxed);
        }
        let Ok(now) = link.wait_for(|link| *link != Link::Cut).await.map(|now| *now) else { return };
        if let Link::Slow(ms) = now {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_held_back_is_counted_and_arrives_later() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::start(&listener.local_addr().unwrap().to_string()).await.unwrap();
        let mut here = TcpStream::connect(relay.address()).await.unwrap();
        let (mut there, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 3];
        here.write_all(b"one").await.unwrap();
        there.read_exact(&mut bytes).await.unwrap();
        assert_eq!((relay.connections(), relay.withheld()), (1, 0));
        for (link, counted) in [(Link::Cut, 3), (Link::Slow(20), 6)] {
            relay.set(link);
            here.write_all(b"two").await.unwrap();
            while relay.withheld() < counted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if link == Link::Cut {
                let none =
                    tokio::time::timeout(Duration::from_millis(50), there.read_exact(&mut bytes)).await;
                assert!(none.is_err(), "it arrived while the link was cut");
                relay.set(Link::Sound);
            }
            there.read_exact(&mut bytes).await.unwrap();
            assert_eq!((&bytes, relay.withheld()), (b"two", counted));
        }
    }
}
