//! Bodies in chunks, with or without signatures and trailers, as SDKs send streams.
//!
//! Source: AWS, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks", and
//! the page on trailing headers beside it.

use crate::sign::{Seal, sha256_hex};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Bytes of a chunk: the least that AWS takes for any but the last.
const CHUNK_BYTES: usize = 8 << 10;

/// How a body goes out in chunks.
#[derive(Clone, Debug, Default)]
pub struct Chunked {
    /// Whether each chunk carries a signature.
    pub signed: bool,
    /// A header after the last chunk: name and value.
    pub trailer: Option<(String, String)>,
    /// What is wrong with it.
    pub spoil: Option<Spoil>,
}

/// What a provider must notice in a body of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// The first chunk's signature is of another chunk.
    Signature,
    /// The trailer is announced and does not come.
    Trailer,
    /// The body ends before its last chunk.
    End,
}

impl Chunked {
    /// Adds the headers that announce the chunks; gives the word that stands for the payload's hash.
    pub(crate) fn announce(&self, length: usize, headers: &mut HeaderMap) -> &'static str {
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        put("content-encoding", "aws-chunked");
        put("x-amz-decoded-content-length", &length.to_string());
        if let Some((name, _)) = &self.trailer {
            put("x-amz-trailer", name);
        }
        match (self.signed, self.trailer.is_some()) {
            (true, true) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            (true, false) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            (false, _) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }

    /// The body as it goes out.
    pub(crate) fn encode(&self, body: &[u8], seal: &Seal) -> Bytes {
        let mut out = Vec::with_capacity(body.len() + 1024);
        let mut previous = seal.signature.clone();
        for chunk in body.chunks(CHUNK_BYTES).chain([&[][..]]) {
            if chunk.is_empty() && self.spoil == Some(Spoil::End) {
                return out.into();
            }
            out.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
            if self.signed {
                let spoilt = self.spoil == Some(Spoil::Signature) && previous == seal.signature;
                let text = self.text("PAYLOAD", seal, &previous, &sha256_hex(b""));
                previous = seal.sign(&format!("{text}\n{}", sha256_hex(if spoilt { b"?" } else { chunk })));
                out.extend_from_slice(format!(";chunk-signature={previous}").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
            if !chunk.is_empty() {
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
        }
        if let Some((name, value)) = &self.trailer
            && self.spoil != Some(Spoil::Trailer)
        {
            out.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
            if self.signed {
                let hash = sha256_hex(format!("{name}:{value}\n").as_bytes());
                let signature = seal.sign(&self.text("TRAILER", seal, &previous, &hash));
                out.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
        out.into()
    }

    fn text(&self, kind: &str, seal: &Seal, previous: &str, hash: &str) -> String {
        format!("AWS4-HMAC-SHA256-{kind}\n{}\n{}\n{previous}\n{hash}", seal.stamp, seal.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_chunks_end_with_their_trailer() {
        let trailer = Some(("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned()));
        let mut chunked = Chunked { trailer, ..Chunked::default() };
        let seal = Seal::default();
        assert_eq!(chunked.encode(b"abc", &seal), "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
        chunked.spoil = Some(Spoil::Trailer);
        assert_eq!(chunked.encode(b"abc", &seal), "3\r\nabc\r\n0\r\n\r\n");
        chunked.spoil = Some(Spoil::End);
        assert_eq!(chunked.encode(b"abc", &seal), "3\r\nabc\r\n");
        let mut headers = HeaderMap::new();
        assert_eq!(chunked.announce(3, &mut headers), "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        assert_eq!(headers["x-amz-decoded-content-length"], "3");
    }
}
