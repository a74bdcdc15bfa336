//! Request bodies: whole, or in two parts with a gate between them.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// A request's body. Its length is known from the start, so it goes out with `Content-Length`.
#[derive(Debug)]
pub struct Payload {
    parts: VecDeque<Bytes>,
    gate: Option<Gate>,
}

#[derive(Debug)]
struct Gate {
    reached: Option<oneshot::Sender<()>>,
    opened: oneshot::Receiver<()>,
}

/// The other end of a gated body. Dropped without [`Holder::open`] the body breaks off, and with it the
/// connection: an upload that is cut.
#[derive(Debug)]
pub struct Holder {
    reached: Option<oneshot::Receiver<()>>,
    opened: Option<oneshot::Sender<()>>,
}

impl Holder {
    /// Waits until the first part has been handed to the connection, or the request has ended.
    pub async fn reached(&mut self) {
        if let Some(reached) = self.reached.take() {
            // An error means that the request ended before its gate: nothing is left to wait for.
            let _ = reached.await;
        }
    }

    /// Lets the rest of the body go.
    pub fn open(mut self) {
        if let Some(opened) = self.opened.take() {
            // The request may have ended by an early answer; then nobody waits.
            let _ = opened.send(());
        }
    }
}

impl Payload {
    /// A body sent at once.
    pub fn whole(bytes: Bytes) -> Payload {
        Payload { parts: VecDeque::from([bytes]), gate: None }
    }

    /// The first half of `bytes`, then the rest when the holder opens.
    pub fn gated(bytes: &Bytes) -> (Payload, Holder) {
        let (reached, was_reached) = oneshot::channel();
        let (open, opened) = oneshot::channel();
        let middle = bytes.len() / 2;
        let parts = VecDeque::from([bytes.slice(..middle), bytes.slice(middle..)]);
        let gate = Gate { reached: Some(reached), opened };
        (Payload { parts, gate: Some(gate) }, Holder { reached: Some(was_reached), opened: Some(open) })
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            if self.parts.len() == 1
                && let Some(gate) = &mut self.gate
            {
                if let Some(reached) = gate.reached.take() {
                    let _ = reached.send(());
                }
                match Pin::new(&mut gate.opened).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => self.gate = None,
                    Poll::Ready(Err(_)) => {
                        return Poll::Ready(Some(Err(std::io::Error::other("the body was cut"))));
                    }
                }
            }
            match self.parts.pop_front() {
                Some(empty) if empty.is_empty() => {}
                part => return Poll::Ready(part.map(|part| Ok(Frame::data(part)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.parts.iter().map(|part| part.len() as u64).sum())
    }
}
