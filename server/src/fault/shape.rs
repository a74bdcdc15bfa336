//! Bodies that come slowly, stop, break off or carry a wrong byte.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Between the last byte before a cut and the cut: what was sent gets through, as it would from a peer that dies.
const BEFORE_CUT: Duration = Duration::from_millis(50);

/// What becomes of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    /// The first byte comes this much later.
    pub(crate) first_byte: Option<Duration>,
    /// Bytes a second.
    pub(crate) rate: Option<u64>,
    /// Nothing comes after this many bytes, and no end either.
    pub(crate) stop_at: Option<u64>,
    /// The body breaks off after this many bytes.
    pub(crate) cut_at: Option<u64>,
    /// The first byte is not what it should be.
    pub(crate) corrupt: bool,
}

impl Shape {
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// A body under a [`Shape`]. Pieces are cut small enough that a slow body is slow all along.
#[derive(Debug)]
pub(crate) struct Shaped<B: Body> {
    inner: B,
    /// Makes the error of a body that breaks off.
    broken: fn() -> B::Error,
    shape: Shape,
    passed: u64,
    held: Bytes,
    wait: Option<Pin<Box<Sleep>>>,
    cut: bool,
}

impl<B: Body> Shaped<B> {
    pub(crate) fn new(inner: B, shape: Shape, broken: fn() -> B::Error) -> Self {
        let wait = shape.first_byte.map(|time| Box::pin(sleep(time)));
        Self { inner, broken, shape, passed: 0, held: Bytes::new(), wait, cut: false }
    }

    /// How many of the held bytes may pass now; `None` where no more ever will.
    fn allowed(&self) -> Option<usize> {
        let limit = [self.shape.stop_at, self.shape.cut_at].into_iter().flatten().min();
        let until_limit = limit.map_or(u64::MAX, |limit| limit - self.passed);
        // A twentieth of a second's worth, so that the rate shows within one piece.
        let by_rate = self.shape.rate.map_or(u64::MAX, |rate| (rate / 20).max(1));
        let held = self.held.len() as u64;
        usize::try_from(held.min(until_limit).min(by_rate)).ok().filter(|allowed| *allowed > 0)
    }
}

impl<B> Body for Shaped<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        if self.held.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.held = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let Some(allowed) = self.allowed() else {
            if self.shape.cut_at.is_none_or(|at| at > self.passed) {
                return Poll::Pending; // nobody wakes this: the body never ends
            }
            if self.cut {
                return Poll::Ready(Some(Err((self.broken)())));
            }
            self.cut = true;
            self.wait = Some(Box::pin(sleep(BEFORE_CUT)));
            return self.poll_frame(context);
        };
        let mut piece = self.held.split_to(allowed);
        if self.shape.corrupt && self.passed == 0 {
            let mut wrong = BytesMut::from(&piece[..]);
            wrong[0] ^= 0x20;
            piece = wrong.freeze();
        }
        self.passed += piece.len() as u64;
        if let Some(rate) = self.shape.rate {
            self.wait = Some(Box::pin(sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64))));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.inner.size_hint();
        let held = self.held.len() as u64;
        hint.set_lower(hint.lower() + held);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http_body_util::{BodyExt as _, Full};
    use tokio::time::Instant;

    use super::*;

    /// A body in memory whose errors are the system's.
    fn body(text: &'static str) -> http_body_util::combinators::BoxBody<Bytes, io::Error> {
        Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed()
    }

    async fn read(shape: Shape) -> (String, Option<io::ErrorKind>, Duration) {
        let began = Instant::now();
        let mut shaped = Shaped::new(body("hello world"), shape, || io::ErrorKind::ConnectionReset.into());
        let (mut text, mut error) = (String::new(), None);
        let all = async {
            while let Some(frame) = shaped.frame().await {
                match frame {
                    Ok(frame) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
                    Err(cause) => {
                        error = Some(cause.kind());
                        break;
                    }
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), all).await;
        if ended.is_err() {
            error = Some(io::ErrorKind::TimedOut);
        }
        (text, error, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn shapes() {
        let plain = Shape::default();
        let (text, error, time) = read(Shape { first_byte: Some(Duration::from_secs(3)), ..plain }).await;
        assert_eq!((text.as_str(), error), ("hello world", None));
        assert!(time >= Duration::from_secs(3), "{time:?}");
        let (text, _, time) = read(Shape { rate: Some(2), ..plain }).await;
        assert_eq!(text, "hello world");
        assert!(time >= Duration::from_secs(5) && time < Duration::from_secs(7), "{time:?}");
        let (text, error, _) = read(Shape { cut_at: Some(5), ..plain }).await;
        assert_eq!((text.as_str(), error), ("hello", Some(io::ErrorKind::ConnectionReset)));
        let (text, error, _) = read(Shape { stop_at: Some(5), ..plain }).await;
        assert_eq!((text.as_str(), error), ("hello", Some(io::ErrorKind::TimedOut)));
        let (text, error, _) = read(Shape { corrupt: true, ..plain }).await;
        assert_eq!((text.as_str(), error), ("Hello world", None));
    }
}
