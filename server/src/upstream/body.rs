//! Bodies on their way through: never more than a few pieces of one are held.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::request::Framing;
use crate::auth::ChunkSigner;
use crate::body::Unframed;
use crate::checksum::Algorithm;
use crate::error::{Code, S3Error};
use crate::fault::Hold;
use crate::service::RequestBody;

/// Bytes of a chunk made here: above the 8 KiB that AWS wants of all but the last ("Transferring Payload in Multiple
/// Chunks").
const CHUNK_BYTES: u64 = 64 * 1024;

/// Pieces on their way to the upstream.
const AHEAD: usize = 2;

/// Reads the client's body as the upstream is to have it.
pub(super) struct Source<'a> {
    body: &'a mut RequestBody,
    kind: Kind,
}

enum Kind {
    AsItIs,
    Plain(Box<Unframed>),
    Trailed(Box<Trailed>),
    Over,
}

/// The state of a body that gets new chunks.
struct Trailed {
    inner: Unframed,
    algorithm: Algorithm,
    /// Bytes of the object that are not in a chunk yet.
    left: u64,
    /// Bytes that the current chunk still takes.
    in_chunk: u64,
    /// Bytes that came and are not in a chunk yet.
    held: Bytes,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        body: &'a mut RequestBody,
        framing: Framing,
        signer: Option<ChunkSigner>,
        trailer: bool,
    ) -> Self {
        let kind = match framing {
            Framing::AsItIs => Kind::AsItIs,
            Framing::Plain(size) => Kind::Plain(Box::new(Unframed::new(signer, size, trailer, None))),
            Framing::Trailed(size, algorithm) => Kind::Trailed(Box::new(Trailed {
                inner: Unframed::new(signer, size, true, Some(algorithm)),
                algorithm,
                left: size,
                in_chunk: 0,
                held: Bytes::new(),
            })),
        };
        Self { body, kind }
    }

    /// Whether nothing is to come, as far as is known.
    pub(super) fn is_empty(&self) -> bool {
        match self.kind {
            Kind::AsItIs => self.body.is_end_stream(),
            Kind::Plain(_) | Kind::Trailed(_) => false,
            Kind::Over => true,
        }
    }

    /// Hands the body on. The last piece waits until all before it is right, and then `late`: the upstream can't
    /// commit what it does not have.
    ///
    /// # Errors
    /// Where the client's body is not what it should be; the upstream then gets no end of it.
    pub(super) async fn pump(&mut self, feed: &Feed, late: Option<Hold>) -> Result<(), S3Error> {
        let mut last: Option<Bytes> = None;
        while let Some(piece) = self.next().await? {
            // Whoever takes no more has answered, or is gone: either shows in the answer.
            if let Some(ready) = last.replace(piece)
                && feed.0.send(Part::Piece(ready)).await.is_err()
            {
                return Ok(());
            }
        }
        if let Some(late) = late {
            late.over().await;
        }
        for part in last.map(Part::Piece).into_iter().chain([Part::End]) {
            if feed.0.send(part).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The next bytes for the upstream, never empty.
    ///
    /// # Errors
    /// Where the client's body is not what it should be.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        match &mut self.kind {
            Kind::Over => Ok(None),
            Kind::Plain(unframed) => match unframed.next(self.body).await? {
                Some(piece) => Ok(Some(piece)),
                None => {
                    if let Kind::Plain(unframed) = std::mem::replace(&mut self.kind, Kind::Over) {
                        unframed.into_trailer()?;
                    }
                    Ok(None)
                }
            },
            Kind::Trailed(trailed) => {
                if let Some(piece) = trailed.next(self.body).await? {
                    return Ok(Some(piece));
                }
                match std::mem::replace(&mut self.kind, Kind::Over) {
                    Kind::Trailed(trailed) => trailed.end().map(Some),
                    _ => Ok(None),
                }
            }
            Kind::AsItIs => loop {
                match self.body.frame().await {
                    None => return Ok(None),
                    Some(Err(_)) => return Err(S3Error::new(Code::IncompleteBody)),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) if !piece.is_empty() => return Ok(Some(piece)),
                        _ => {} // HTTP trailers mean nothing to S3
                    },
                }
            },
        }
    }
}

impl Trailed {
    /// The line before a chunk, or bytes in it and, after its last one, its end.
    async fn next(&mut self, body: &mut RequestBody) -> Result<Option<Bytes>, S3Error> {
        if self.held.is_empty() {
            match self.inner.next(body).await? {
                Some(piece) => self.held = piece,
                None => return Ok(None),
            }
        }
        if self.in_chunk == 0 {
            self.in_chunk = self.left.min(CHUNK_BYTES);
            return Ok(Some(format!("{:x}\r\n", self.in_chunk).into()));
        }
        let taken = self.in_chunk.min(self.held.len() as u64);
        let piece = self.held.split_to(usize::try_from(taken).unwrap_or(self.held.len()));
        self.in_chunk -= taken;
        self.left -= taken;
        if self.in_chunk > 0 {
            return Ok(Some(piece));
        }
        Ok(Some([&piece[..], b"\r\n"].concat().into()))
    }

    fn end(self) -> Result<Bytes, S3Error> {
        let malformed = || S3Error::new(Code::MalformedTrailerError);
        let value = self.inner.into_trailer()?.ok_or_else(malformed)?;
        // The length has been announced. Whether it is the right value is for the upstream to say.
        if value.len() != text_length(self.algorithm) {
            return Err(malformed());
        }
        Ok(format!("0\r\n{}:{value}\r\n\r\n", self.algorithm.header()).into())
    }
}

/// Characters of a checksum in base64.
fn text_length(algorithm: Algorithm) -> usize {
    algorithm.size().div_ceil(3) * 4
}

/// The length of `size` bytes in unsigned chunks with a trailing checksum.
pub(super) fn trailed_length(size: u64, algorithm: Algorithm) -> u64 {
    let chunk = |size: u64| format!("{size:x}\r\n\r\n").len() as u64 + size;
    let last = match size % CHUNK_BYTES {
        0 => 0,
        rest => chunk(rest),
    };
    let trailer = "0\r\n:\r\n\r\n".len() + algorithm.header().len() + text_length(algorithm);
    size / CHUNK_BYTES * chunk(CHUNK_BYTES) + last + trailer as u64
}

enum Part {
    Piece(Bytes),
    End,
}

/// The end that a body for the upstream is fed from. Dropped before the body's end, it breaks the body off.
#[derive(Debug)]
pub(super) struct Feed(mpsc::Sender<Part>);

/// A body for the upstream.
pub(super) struct Fed {
    parts: mpsc::Receiver<Part>,
    /// Nothing more comes.
    over: bool,
    length: Option<u64>,
}

/// A body of so many bytes, if that is known, and the end it is fed from.
pub(super) fn fed(length: Option<u64>) -> (Feed, Fed) {
    let (feed, parts) = mpsc::channel(AHEAD);
    (Feed(feed), Fed { parts, over: false, length })
}

impl Fed {
    /// A body that has nothing in it.
    pub(super) fn empty() -> Self {
        Self { over: true, ..fed(Some(0)).1 }
    }
}

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(context).map(|part| match part {
            Some(Part::Piece(piece)) => Some(Ok(Frame::data(piece))),
            Some(Part::End) => {
                self.over = true;
                None
            }
            None => Some(Err(io::ErrorKind::ConnectionAborted.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A body that the upstream sends.
#[derive(Debug)]
pub(crate) struct Answered {
    incoming: Incoming,
    /// Keeps a request alive whose body the upstream did not want all of: breaking it off would break its answer off.
    _unwanted: Option<Feed>,
}

impl Answered {
    pub(super) fn new(incoming: Incoming, unwanted: Option<Feed>) -> Self {
        Self { incoming, _unwanted: unwanted }
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.incoming)
            .poll_frame(context)
            .map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    /// All that the upstream gets of a body, and whether it gets an end of it.
    async fn passed(body: &str, framing: Framing) -> (String, Result<(), S3Error>, bool) {
        let mut body: RequestBody =
            Full::new(Bytes::copy_from_slice(body.as_bytes())).map_err(|never| match never {}).boxed();
        let mut source = Source::new(&mut body, framing, None, matches!(framing, Framing::Trailed(..)));
        let (feed, mut fed) = fed(None);
        let reading = async {
            let mut text = String::new();
            loop {
                match fed.frame().await {
                    Some(Ok(frame)) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
                    end => return (text, end.is_none()),
                }
            }
        };
        let pumping = async {
            let pumped = source.pump(&feed, None).await;
            drop(feed);
            pumped
        };
        let (pumped, (text, ended)) = tokio::join!(pumping, reading);
        (text, pumped, ended)
    }

    const CRC: &str = "x-amz-checksum-crc32:NhCmhg==\r\n";

    #[tokio::test]
    async fn signed_chunks_come_off_and_unsigned_ones_stay() {
        let signed = "5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n\r\n";
        assert_eq!(passed(signed, Framing::Plain(5)).await, ("hello".to_owned(), Ok(()), true));
        let unsigned = format!("5\r\nhello\r\n0\r\n{CRC}\r\n");
        assert_eq!(passed(&unsigned, Framing::AsItIs).await, (unsigned.clone(), Ok(()), true));
        let trailed = Framing::Trailed(5, Algorithm::Crc32);
        let signed = format!(
            "5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n{CRC}x-amz-trailer-signature:0\r\n\r\n"
        );
        assert_eq!(passed(&signed, trailed).await, (unsigned, Ok(()), true));
    }

    #[tokio::test]
    async fn what_is_broken_gets_no_end_and_no_last_piece() {
        for (body, size) in [
            ("5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n\r\n", 6),
            ("5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n\r\n", 4),
            ("5;chunk-signature=0\r\nhello\r\n", 5),
        ] {
            let (text, pumped, ended) = passed(body, Framing::Plain(size)).await;
            assert_eq!((text.as_str(), ended), ("", false), "{body:?} {size}");
            assert_eq!(pumped.unwrap_err().code, Code::IncompleteBody, "{body:?} {size}");
        }
        let (_, pumped, ended) = passed(
            "5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n\r\n",
            Framing::Trailed(5, Algorithm::Crc32),
        )
        .await;
        assert_eq!((pumped.unwrap_err().code, ended), (Code::MalformedTrailerError, false));
    }

    #[tokio::test]
    async fn the_length_of_new_chunks_is_what_was_announced() {
        for size in [0, 1, 65_535, 65_536, 65_537, 200_000] {
            let data = "x".repeat(size);
            let chunk = if size == 0 { String::new() } else { format!("{size:x}\r\n{data}\r\n") };
            let value = format!("{}==", "A".repeat(86));
            let body = format!("{chunk}0\r\nx-amz-checksum-sha512:{value}\r\n\r\n");
            let framing = Framing::Trailed(size as u64, Algorithm::Sha512);
            let (text, pumped, _) = passed(&body, framing).await;
            assert_eq!(pumped, Ok(()), "{size}");
            assert_eq!(text.len() as u64, trailed_length(size as u64, Algorithm::Sha512), "{size}");
        }
    }
}
