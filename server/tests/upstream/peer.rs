//! A peer that the test plays by hand: it keeps what it is sent and answers what it is told.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::wire::within;

pub struct Peer(TcpListener);

/// One connection of it.
pub struct Line {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    pub async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    pub async fn accept(&self) -> Line {
        let (socket, _) = within(self.0.accept()).await.unwrap();
        Line { socket, unread: Vec::new() }
    }
}

impl Line {
    /// The next head, as it was sent.
    pub async fn head(&mut self) -> String {
        within(async {
            loop {
                if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                    let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                    return String::from_utf8(head).unwrap();
                }
                assert!(self.fill().await, "the connection ended within a head");
            }
        })
        .await
    }

    /// Whether anything more comes.
    pub async fn hears(&mut self) -> bool {
        !self.unread.is_empty() || self.fill().await
    }

    /// The next bytes of a body.
    pub async fn body(&mut self, length: usize) -> Vec<u8> {
        within(async {
            while self.unread.len() < length {
                assert!(self.fill().await, "the connection ended within a body");
            }
            self.unread.drain(..length).collect()
        })
        .await
    }

    async fn fill(&mut self) -> bool {
        self.socket.read_buf(&mut self.unread).await.unwrap_or(0) > 0
    }

    pub async fn say(&mut self, bytes: &str) {
        self.socket.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// All that still comes until the other side closes.
    pub async fn rest(mut self) -> Vec<u8> {
        within(async {
            while self.fill().await {}
            self.unread
        })
        .await
    }
}
