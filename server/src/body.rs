//! Reading an object's bytes from a request: framing, digests and trailers in one pass and constant memory.
//!
//! What is handed on before the end counts only once [`BodyReader::finish`] has said yes. Sources: Amazon S3 API
//! Reference, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks" and its
//! page on trailing headers; answers as recorded from AWS and as posted in versitygw issues 1660 to 1691 and asserted
//! by OpenStack Swift's s3api tests against AWS.

use std::future::poll_fn;
use std::pin::pin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use sha2::{Digest as _, Sha256};

use crate::auth::{ChunkSigner, Payload, Verified};
use crate::checksum::{Algorithm, Hasher, Requested, Value, mismatch};
use crate::error::{Code, S3Error};

mod chunked;
mod unframed;

pub(crate) use unframed::Unframed;

use chunked::{Decoder, Trailer};

/// How an operation shows the expected digest when `Content-MD5` does not fit (recorded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestForm {
    /// Hexadecimal: PutObject.
    Hex,
    /// Base64, as it was sent: UploadPart.
    Base64,
}

/// What to expect of a body, read from the head of its request.
#[derive(Debug)]
pub struct BodyPlan {
    /// How it is framed, and its SHA-256 if that was signed.
    pub payload: Payload,
    /// Checks the chunks' signatures; without it they are not looked at.
    pub chunk_signer: Option<ChunkSigner>,
    /// The object's size in bytes, without any framing.
    pub size: u64,
    /// What `Content-MD5` says.
    pub content_md5: Option<[u8; 16]>,
    /// How to show that digest.
    pub digest_form: DigestForm,
    /// The checksum that the client announces.
    pub requested: Requested,
    /// The checksum to compute when the client announces none.
    pub default_algorithm: Option<Algorithm>,
}

impl BodyPlan {
    /// The plan for the body of a PutObject or UploadPart.
    ///
    /// # Errors
    ///
    /// InvalidDigest for a `Content-MD5` that is not base64 of 16 bytes; those of [`Requested::from_headers`];
    /// MalformedTrailerError for `x-amz-trailer` on a body that has none; MissingContentLength without
    /// `Content-Length` (aws-chunked: `x-amz-decoded-content-length`); NotImplemented for `Transfer-Encoding` alone.
    pub fn from_headers(
        headers: &HeaderMap,
        verified: &mut Verified,
        digest_form: DigestForm,
        default_algorithm: Option<Algorithm>,
    ) -> Result<BodyPlan, S3Error> {
        let content_md5 = content_md5(headers)?;
        let requested = Requested::from_headers(headers)?;
        let payload = verified.payload.clone();
        if matches!(requested, Requested::Trailer(_))
            && !matches!(payload, Payload::Streaming { trailer: true, .. })
        {
            return Err(S3Error::new(Code::MalformedTrailerError));
        }
        let size = size(headers, &payload)?;
        let chunk_signer = verified.chunk_signer.take();
        Ok(BodyPlan { payload, chunk_signer, size, content_md5, digest_form, requested, default_algorithm })
    }
}

fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let digest = BASE64.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    digest.map(Some).ok_or_else(|| {
        S3Error::new(Code::InvalidDigest).extra("Content-MD5", String::from_utf8_lossy(value.as_bytes()))
    })
}

fn size(headers: &HeaderMap, payload: &Payload) -> Result<u64, S3Error> {
    let chunked = matches!(payload, Payload::Streaming { .. });
    let name = if chunked { "x-amz-decoded-content-length" } else { "content-length" };
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    if value.is_none() && !chunked && headers.contains_key("transfer-encoding") {
        return Err(S3Error::new(Code::NotImplemented).extra("Header", "Transfer-Encoding"));
    }
    value.ok_or_else(|| S3Error::new(Code::MissingContentLength))
}

/// What a body turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodySummary {
    /// Its MD5, from which the ETag is made.
    pub md5: [u8; 16],
    /// Its size in bytes.
    pub size: u64,
    /// The checksum that was announced and fits, or the default one.
    pub checksum: Option<Value>,
}

/// Reads a body piece by piece.
pub struct BodyReader<B> {
    body: B,
    input: Bytes,
    ended: bool,
    decoder: Option<Decoder>,
    expected: Expected,
    md5: md5::Md5,
    sha256: Option<Sha256>,
    checksum: Option<Hasher>,
    received: u64,
}

/// The part of the plan that is looked at in the end.
struct Expected {
    sha256: Option<String>,
    size: u64,
    content_md5: Option<[u8; 16]>,
    digest_form: DigestForm,
    requested: Requested,
    algorithm: Option<Algorithm>,
}

impl<B> BodyReader<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// A reader that has read nothing yet.
    pub fn new(body: B, plan: BodyPlan) -> BodyReader<B> {
        let algorithm = plan.requested.algorithm().or(plan.default_algorithm);
        let (sha256, decoder) = match plan.payload {
            Payload::Unsigned => (None, None),
            Payload::Sha256(claimed) => (Some(claimed), None),
            Payload::Streaming { signed, trailer } => {
                let declared = match plan.requested {
                    Requested::Trailer(algorithm) => Some(algorithm),
                    _ => None,
                };
                (None, Some(Decoder::new(signed, plan.chunk_signer, trailer, declared)))
            }
        };
        // A digest that is made anyway is not made twice.
        let reused = match algorithm {
            Some(Algorithm::Md5) => true,
            Some(Algorithm::Sha256) => sha256.is_some(),
            _ => false,
        };
        BodyReader {
            body,
            input: Bytes::new(),
            ended: false,
            decoder,
            md5: md5::Md5::new(),
            sha256: sha256.as_ref().map(|_| Sha256::new()),
            checksum: algorithm.filter(|_| !reused).map(Hasher::new),
            received: 0,
            expected: Expected {
                sha256,
                size: plan.size,
                content_md5: plan.content_md5,
                digest_form: plan.digest_form,
                requested: plan.requested,
                algorithm,
            },
        }
    }

    /// The next bytes of the object, never empty; nothing once all are read.
    ///
    /// Dropping the future loses nothing: the next call goes on where it was.
    ///
    /// # Errors
    ///
    /// IncompleteBody when the connection is cut or the framing broken; InvalidChunkSizeError; SignatureDoesNotMatch
    /// for a chunk or trailer; MalformedTrailerError. After an error there is nothing more to read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if let Some(piece) = self.decode()? {
                if let Some(piece) = self.take(piece) {
                    return Ok(Some(piece));
                }
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            match poll_fn(|cx| pin!(&mut self.body).poll_frame(cx)).await {
                // HTTP trailers mean nothing to S3.
                Some(Ok(frame)) => self.input = frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return Err(S3Error::new(Code::IncompleteBody)),
                None => {
                    self.ended = true;
                    if let Some(decoder) = &mut self.decoder {
                        decoder.end()?;
                    }
                }
            }
        }
    }

    fn decode(&mut self) -> Result<Option<Bytes>, S3Error> {
        match &mut self.decoder {
            Some(decoder) => decoder.feed(&mut self.input),
            None => Ok(Some(std::mem::take(&mut self.input)).filter(|piece| !piece.is_empty())),
        }
    }

    /// Counts and hashes a piece. What is beyond the announced size is only counted.
    fn take(&mut self, mut piece: Bytes) -> Option<Bytes> {
        let room = self.expected.size.saturating_sub(self.received);
        self.received += piece.len() as u64;
        piece.truncate(usize::try_from(room).unwrap_or(usize::MAX).min(piece.len()));
        if piece.is_empty() {
            return None;
        }
        self.md5.update(&piece);
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(&piece);
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&piece);
        }
        Some(piece)
    }

    /// Says whether everything read is what was announced. Call it after [`BodyReader::next`] gave nothing.
    ///
    /// # Errors
    ///
    /// IncompleteBody (also when not all was read), XAmzContentSHA256Mismatch, BadDigest, and InvalidRequest for a
    /// trailing checksum that is not one; the hash that was signed comes before `Content-MD5`, and that before the
    /// checksum (observed on AWS).
    pub fn finish(self) -> Result<BodySummary, S3Error> {
        if !self.ended {
            return Err(S3Error::new(Code::IncompleteBody));
        }
        let expected = self.expected;
        if self.received != expected.size {
            return Err(S3Error::new(Code::IncompleteBody)
                .message(
                    "You did not provide the number of bytes specified by the Content-Length HTTP header",
                )
                .extra("NumberBytesExpected", expected.size.to_string())
                .extra("NumberBytesProvided", self.received.to_string()));
        }
        let sha256: Option<[u8; 32]> = self.sha256.map(|hash| hash.finalize().into());
        if let (Some(claimed), Some(computed)) = (&expected.sha256, sha256) {
            let computed = hex::encode(computed);
            if !claimed.eq_ignore_ascii_case(&computed) {
                return Err(S3Error::new(Code::XAmzContentSHA256Mismatch)
                    .extra("ClientComputedContentSHA256", claimed.as_str())
                    .extra("S3ComputedContentSHA256", computed));
            }
        }
        let md5: [u8; 16] = self.md5.finalize().into();
        if let Some(digest) = expected.content_md5
            && digest != md5
        {
            let shown = match expected.digest_form {
                DigestForm::Hex => hex::encode(digest),
                DigestForm::Base64 => BASE64.encode(digest),
            };
            return Err(S3Error::new(Code::BadDigest)
                .extra("ExpectedDigest", shown)
                .extra("CalculatedDigest", BASE64.encode(md5)));
        }
        let checksum = match (self.checksum, expected.algorithm) {
            (Some(hasher), _) => Some(hasher.finish()),
            (None, Some(Algorithm::Md5)) => Value::from_bytes(Algorithm::Md5, &md5),
            (None, algorithm) => algorithm.zip(sha256).and_then(|(a, hash)| Value::from_bytes(a, &hash)),
        };
        let trailer = self.decoder.map(Decoder::into_trailer).transpose()?.flatten();
        if let Some(announced) = announced(&expected.requested, trailer)?
            && Some(announced) != checksum
        {
            return Err(mismatch(announced.algorithm()));
        }
        Ok(BodySummary { md5, size: expected.size, checksum })
    }
}

/// The checksum that the body must have, wherever it stood.
fn announced(requested: &Requested, trailer: Option<Trailer>) -> Result<Option<Value>, S3Error> {
    match (requested, trailer) {
        (Requested::Header(value), _) => Ok(Some(*value)),
        (Requested::Trailer(algorithm), Some(Trailer { value })) => {
            let value = Value::from_base64(*algorithm, &value).ok_or_else(|| {
                S3Error::new(Code::InvalidRequest)
                    .message(format!("Value for {} trailing header is invalid.", algorithm.header()))
            })?;
            Ok(Some(value))
        }
        (Requested::Trailer(_), None) => Err(S3Error::new(Code::MalformedTrailerError)),
        (Requested::Absent, _) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
