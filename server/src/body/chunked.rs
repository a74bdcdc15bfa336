//! The aws-chunked framing: `SIZE[;chunk-signature=…]\r\n DATA \r\n`, a chunk of size 0, and trailer lines.
//!
//! Not HTTP's own chunked coding, and stricter in one thing: a chunk below 8 KiB must be the last with data.

use bytes::{Buf as _, Bytes};
use sha2::{Digest as _, Sha256};

use crate::auth::ChunkSigner;
use crate::checksum::Algorithm;
use crate::error::{Code, S3Error};

/// The longest line before a chunk: 16 digits, a name and a signature of 64 digits, with room for blanks.
const MAX_HEADER: usize = 256;
/// The longest trailer line: a name and the 88 characters of a SHA-512, with much room.
const MAX_TRAILER: usize = 1024;
/// More trailer lines than any client sends.
const MAX_TRAILERS: usize = 16;
/// All chunks with data but the last must have this size ("Transferring Payload in Multiple Chunks": 8 KB).
const MIN_CHUNK: u64 = 8192;

/// The trailing checksum as it was sent.
pub(super) struct Trailer {
    /// The value's text.
    pub(super) value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the line before a chunk.
    Header,
    /// In a chunk's data, with so much of it to come.
    Data(u64),
    /// Between a chunk's data and the next line.
    DataEnd,
    /// After the last chunk.
    Trailers,
    /// After the empty line; whatever follows is ignored (observed on AWS).
    Over,
}

/// Decodes the framing, whatever pieces it comes in.
pub(super) struct Decoder {
    state: State,
    line: Vec<u8>,
    signed: bool,
    signer: Option<ChunkSigner>,
    trailer: bool,
    declared: Option<Algorithm>,
    /// Of the current chunk: its number from 1, its size, its signature, its running hash.
    number: u64,
    size: u64,
    signature: String,
    hash: Sha256,
    trailers: Vec<(String, String)>,
    trailer_signature: Option<String>,
}

impl Decoder {
    /// A decoder at the start of a body: are its chunks signed, who verifies that, may a trailer follow, and the
    /// value of which algorithm does `x-amz-trailer` announce.
    pub(super) fn new(
        signed: bool,
        signer: Option<ChunkSigner>,
        trailer: bool,
        declared: Option<Algorithm>,
    ) -> Decoder {
        Decoder {
            state: State::Header,
            line: Vec::new(),
            signed,
            signer,
            trailer,
            declared,
            number: 0,
            size: 0,
            signature: String::new(),
            hash: Sha256::new(),
            trailers: Vec::new(),
            trailer_signature: None,
        }
    }

    /// Takes bytes from the front of `input` until there is data to hand on; nothing once `input` is used up.
    pub(super) fn feed(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, S3Error> {
        while !input.is_empty() {
            match self.state {
                State::Header => {
                    if let Some(line) = self.read_line(input, MAX_HEADER)? {
                        self.chunk_header(&line)?;
                    }
                }
                State::Data(left) => return self.data(left, input).map(Some),
                State::DataEnd => {
                    if let Some(line) = self.read_line(input, 2)? {
                        if !line.is_empty() {
                            return Err(incomplete());
                        }
                        self.state = State::Header;
                    }
                }
                State::Trailers => {
                    if let Some(line) = self.read_line(input, MAX_TRAILER)? {
                        self.trailer_line(&line)?;
                    }
                }
                State::Over => input.clear(),
            }
        }
        Ok(None)
    }

    /// The body has ended: is it allowed to?
    pub(super) fn end(&mut self) -> Result<(), S3Error> {
        match self.state {
            State::Over => {}
            // The last empty line may be missing (observed on AWS).
            State::Trailers if self.line.is_empty() => {}
            _ => return Err(incomplete()),
        }
        let Some(signer) = self.signer.as_mut().filter(|_| self.trailer) else { return Ok(()) };
        // A signed trailer needs its signature and, as observed on AWS, something to sign.
        let (false, Some(signature)) = (self.trailers.is_empty(), &self.trailer_signature) else {
            return Err(incomplete());
        };
        let canonical: String =
            self.trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        signer.verify_trailer(&canonical, signature)
    }

    /// The trailing checksum, which must be the declared one and nothing else; the last one sent counts.
    pub(super) fn into_trailer(mut self) -> Result<Option<Trailer>, S3Error> {
        let declared = self.declared.map(Algorithm::header);
        if self.trailers.iter().any(|(name, _)| Some(name.as_str()) != declared) {
            return Err(malformed());
        }
        Ok(self.trailers.pop().map(|(_, value)| Trailer { value }))
    }

    /// One line, without its end, once all of it is there.
    fn read_line(&mut self, input: &mut Bytes, limit: usize) -> Result<Option<Vec<u8>>, S3Error> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + taken > limit {
            return Err(incomplete());
        }
        self.line.extend_from_slice(&input[..taken]);
        input.advance(taken);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        if !line.ends_with(b"\r\n") {
            return Err(incomplete());
        }
        line.truncate(line.len() - 2);
        Ok(Some(line))
    }

    fn chunk_header(&mut self, line: &[u8]) -> Result<(), S3Error> {
        let line = std::str::from_utf8(line).map_err(|_| incomplete())?;
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let digits = size.trim();
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(incomplete()); // `from_str_radix` would take a sign
        }
        let size = u64::from_str_radix(digits, 16).map_err(|_| incomplete())?;
        self.number += 1;
        if size > 0 && self.number > 1 && self.size < MIN_CHUNK {
            // AWS names the number of this chunk and the size of the one before.
            return Err(S3Error::new(Code::InvalidChunkSizeError)
                .extra("Chunk", self.number.to_string())
                .extra("BadChunkSize", self.size.to_string()));
        }
        if self.signed && self.signer.is_some() {
            self.signature = chunk_signature(extension)?;
        }
        self.size = size;
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        self.state = State::Trailers;
        self.verify_chunk()
    }

    fn data(&mut self, left: u64, input: &mut Bytes) -> Result<Bytes, S3Error> {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let piece = input.split_to(taken);
        if self.signer.is_some() {
            self.hash.update(&piece);
        }
        let left = left - taken as u64;
        if left > 0 {
            self.state = State::Data(left);
        } else {
            self.state = State::DataEnd;
            self.verify_chunk()?;
        }
        Ok(piece)
    }

    fn verify_chunk(&mut self) -> Result<(), S3Error> {
        match &mut self.signer {
            Some(signer) => signer.verify_chunk(self.hash.finalize_reset().into(), &self.signature),
            None => Ok(()),
        }
    }

    fn trailer_line(&mut self, line: &[u8]) -> Result<(), S3Error> {
        if line.is_empty() {
            self.state = State::Over;
            return Ok(());
        }
        let line = std::str::from_utf8(line).map_err(|_| malformed())?;
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if self.signed && name == "x-amz-trailer-signature" {
            self.trailer_signature = Some(value);
        } else if self.trailers.len() < MAX_TRAILERS {
            self.trailers.push((name, value));
        } else {
            return Err(malformed());
        }
        Ok(())
    }
}

/// The signature in a chunk's extension. Another name in front makes it a wrong one, more behind it breaks the
/// framing (observed on AWS).
fn chunk_signature(extension: &str) -> Result<String, S3Error> {
    let (name, value) = extension.split_once('=').ok_or_else(incomplete)?;
    let value = value.trim();
    if name.trim() != "chunk-signature" {
        return Ok(String::new());
    }
    if value.is_empty() || value.contains(';') {
        return Err(incomplete());
    }
    Ok(value.to_owned())
}

fn incomplete() -> S3Error {
    S3Error::new(Code::IncompleteBody)
}

fn malformed() -> S3Error {
    S3Error::new(Code::MalformedTrailerError)
}
