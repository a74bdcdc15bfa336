//! The link between a worker and its coordinator, which can be cut or slow: what is sent then waits.

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
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (watched, to) = (watched.clone(), to.clone());
                tokio::spawn(async move {
                    let Ok(other) = TcpStream::connect(&to).await else { return };
                    let ((read, write), (other_read, other_write)) =
                        (stream.into_split(), other.into_split());
                    let there = pass(read, other_write, watched.clone());
                    let back = pass(other_read, write, watched);
                    tokio::select! { () = there => {}, () = back => {} }
                });
            }
        });
        Ok(Self { address, link })
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
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let Ok(now) = link.wait_for(|link| *link != Link::Cut).await.map(|now| *now) else { return };
        if let Link::Slow(ms) = now {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
