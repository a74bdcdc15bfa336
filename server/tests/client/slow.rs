//! A body that the test sends piece by piece.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

/// Sends the pieces of a [`SlowBody`]; dropped, it ends the body.
pub struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Pieces {
    /// Sends a piece; it has been taken when the next one has been sent.
    pub async fn send(&self, bytes: impl Into<Bytes>) {
        self.0.send(Ok(bytes.into())).await.expect("the body is being read");
    }

    /// Cuts the body, as a connection that broke does.
    pub async fn cut(self) {
        let error = io::Error::new(io::ErrorKind::ConnectionReset, "cut by the test");
        self.0.send(Err(error)).await.expect("the body is being read");
    }
}

pub struct SlowBody(mpsc::Receiver<io::Result<Bytes>>);

/// A body and the end to send it from.
pub fn slow_body() -> (Pieces, SlowBody) {
    let (sender, receiver) = mpsc::channel(1);
    (Pieces(sender), SlowBody(receiver))
}

impl Body for SlowBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
