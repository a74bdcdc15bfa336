//! A body taken out of its signed chunks for somebody else to judge: signatures and framing are checked here, the
//! digests and checksums are not.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::chunked::Decoder;
use crate::auth::ChunkSigner;
use crate::checksum::Algorithm;
use crate::error::{Code, S3Error};

/// Reads such a body piece by piece.
pub(crate) struct Unframed {
    decoder: Decoder,
    input: Bytes,
    /// Bytes that are still to come.
    left: u64,
}

impl Unframed {
    /// A reader of `size` bytes that has read nothing yet. Without a signer, signatures are not looked at.
    pub(crate) fn new(
        signer: Option<ChunkSigner>,
        size: u64,
        trailer: bool,
        declared: Option<Algorithm>,
    ) -> Self {
        Self { decoder: Decoder::new(true, signer, trailer, declared), input: Bytes::new(), left: size }
    }

    /// The next bytes, never empty; nothing once all are read and every signature is right.
    ///
    /// # Errors
    /// Those of [`super::BodyReader::next`], and IncompleteBody for a body of another size.
    pub(crate) async fn next<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, S3Error>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let incomplete = || S3Error::new(Code::IncompleteBody);
        loop {
            if let Some(piece) = self.decoder.feed(&mut self.input)? {
                self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(incomplete)?;
                return Ok(Some(piece));
            }
            match body.frame().await {
                Some(Ok(frame)) => self.input = frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return Err(incomplete()),
                None if self.left > 0 => return Err(incomplete()),
                None => return self.decoder.end().map(|()| None),
            }
        }
    }

    /// The text of the trailing checksum.
    ///
    /// # Errors
    /// MalformedTrailerError for another one than was declared.
    pub(crate) fn into_trailer(self) -> Result<Option<String>, S3Error> {
        Ok(self.decoder.into_trailer()?.map(|trailer| trailer.value))
    }
}
