//! Bytes out: an object's segments read in order, and the bodies of answers.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, SeekFrom};
use tokio::sync::mpsc;

use crate::fault::{Shape, Shaped};
use crate::store::{Pins, Segment};
use crate::upstream::Answered;

/// Bytes read from a file at once.
const READ_BYTES: usize = 256 * 1024;

/// Pieces that wait between reader and socket: with their size, the memory of one download.
const AHEAD: usize = 2;

/// Reads segments in order, in pieces of bounded size.
pub(crate) struct Reader {
    segments: VecDeque<Segment>,
    file: Option<(File, u64)>,
    /// Keeps the files while they are read.
    _pins: Option<Pins>,
}

impl Reader {
    pub(crate) fn new((segments, pins): (Vec<Segment>, Option<Pins>)) -> Self {
        Self { segments: segments.into(), file: None, _pins: pins }
    }

    /// A whole file.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn of_file(path: &Path) -> io::Result<Self> {
        let length = tokio::fs::metadata(path).await?.len();
        let path = path.to_owned();
        let segments = if length > 0 { vec![Segment::File { path, offset: 0, length }] } else { Vec::new() };
        Ok(Self::new((segments, None)))
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What the file system says, and `UnexpectedEof` for a file shorter than its record.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.file.is_none() {
            match self.segments.pop_front() {
                None => return Ok(None),
                Some(Segment::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Segment::File { path, offset, length }) => {
                    let mut file = File::open(path).await?;
                    file.set_max_buf_size(READ_BYTES);
                    if offset > 0 {
                        file.seek(SeekFrom::Start(offset)).await?;
                    }
                    self.file = Some((file, length));
                }
            }
        }
        let Some((file, left)) = &mut self.file else { return Ok(None) };
        let wanted = READ_BYTES.min(usize::try_from(*left).unwrap_or(READ_BYTES));
        let mut piece = BytesMut::with_capacity(wanted);
        let read = (&mut *file).take(wanted as u64).read_buf(&mut piece).await?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file of a body is shorter than its record",
            ));
        }
        *left -= read as u64;
        if *left == 0 {
            self.file = None;
        }
        Ok(Some(piece.freeze()))
    }
}

/// The body of an answer.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    /// Pieces that are at hand.
    Pieces(VecDeque<Bytes>),
    /// Pieces from a task that reads files, and how many bytes are to come.
    Stream { pieces: mpsc::Receiver<io::Result<Bytes>>, left: u64 },
    /// Pieces that come when they come; nobody knows how many.
    Live(mpsc::Receiver<io::Result<Bytes>>),
    /// A body that a fault slows, cuts or bends.
    Shaped(Box<Shaped<Body>>),
    /// The body of an upstream's answer.
    Upstream(Box<Answered>),
}

impl Body {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self(Kind::Pieces(VecDeque::new()))
    }

    /// The bytes, where they are at hand in one piece.
    pub(crate) fn at_hand(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Pieces(pieces) if pieces.len() == 1 => pieces.front(),
            _ => None,
        }
    }

    /// Pieces as they come, until the sender is gone.
    pub(crate) fn live(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self(Kind::Live(pieces))
    }

    /// What an upstream sends, as it comes.
    pub(crate) fn from_upstream(body: Answered) -> Self {
        Self(Kind::Upstream(Box::new(body)))
    }

    /// The same body under a shape.
    pub(crate) fn shaped(self, shape: Shape) -> Self {
        if shape.is_plain() {
            self
        } else {
            Self(Kind::Shaped(Box::new(Shaped::new(self, shape, || io::ErrorKind::ConnectionReset.into()))))
        }
    }

    /// All of `segments`, `length` bytes. Files are read by a task that is never far ahead of the socket and
    /// ends when the body is dropped.
    pub(crate) fn of_segments(opened: (Vec<Segment>, Option<Pins>), length: u64) -> Self {
        let at_hand: Option<VecDeque<Bytes>> = opened
            .0
            .iter()
            .map(|segment| match segment {
                Segment::Bytes(bytes) => Some(bytes.clone()),
                Segment::File { .. } => None,
            })
            .collect();
        if let Some(pieces) = at_hand {
            return Self(Kind::Pieces(pieces));
        }
        let (sender, pieces) = mpsc::channel(AHEAD);
        let mut reader = Reader::new(opened);
        tokio::spawn(async move {
            while let Some(piece) = reader.next().await.transpose() {
                let failed = piece.is_err();
                if sender.send(piece).await.is_err() || failed {
                    break;
                }
            }
        });
        Self(Kind::Stream { pieces, left: length })
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        Self(Kind::Pieces(if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([bytes]) }))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.0 {
            Kind::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            Kind::Stream { pieces, left } => pieces.poll_recv(context).map(|piece| {
                let piece = piece?;
                if let Ok(bytes) = &piece {
                    *left -= bytes.len() as u64;
                }
                Some(piece.map(Frame::data))
            }),
            Kind::Live(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Kind::Shaped(shaped) => Pin::new(&mut **shaped).poll_frame(context),
            Kind::Upstream(body) => Pin::new(&mut **body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Pieces(pieces) => pieces.is_empty(),
            Kind::Stream { left, .. } => *left == 0,
            Kind::Live(_) => false,
            Kind::Shaped(shaped) => shaped.is_end_stream(),
            Kind::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            Kind::Live(_) => return SizeHint::default(),
            Kind::Shaped(shaped) => return shaped.size_hint(),
            Kind::Upstream(body) => return body.size_hint(),
            Kind::Pieces(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Kind::Stream { left, .. } => *left,
        })
    }
}
