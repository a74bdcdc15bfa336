//! The ten checksum algorithms of S3: names, running hashers, values, and their combination over parts.
//!
//! Source: Amazon S3 User Guide, "Checking object integrity for data uploads"; answers as recorded from AWS. What
//! a request asks for is read by [`Requested`].

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::error::{Code, S3Error};

mod requested;

pub use requested::{MultipartChecksum, Requested, algorithm_header};

/// A checksum algorithm. The order is frozen: stores write it as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Algorithm {
    /// CRC-32 as in ISO-HDLC (zip, PNG).
    Crc32,
    /// CRC-32C, Castagnoli.
    Crc32c,
    /// CRC-64/NVME, what S3 computes when a client sends no checksum.
    Crc64nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5, as a checksum of its own beside `Content-MD5`.
    Md5,
    /// XXH64 with seed 0, big-endian.
    Xxhash64,
    /// XXH3 of 64 bits with seed 0, big-endian.
    Xxhash3,
    /// XXH3 of 128 bits with seed 0, big-endian.
    Xxhash128,
}

/// How the checksum of a multipart object is made from its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// The checksum of the object's bytes, as if sent in one piece.
    FullObject,
    /// The checksum of the parts' checksums.
    Composite,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 10] = [
        Algorithm::Crc32,
        Algorithm::Crc32c,
        Algorithm::Crc64nvme,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha512,
        Algorithm::Md5,
        Algorithm::Xxhash64,
        Algorithm::Xxhash3,
        Algorithm::Xxhash128,
    ];

    /// Name on the wire, header, XML element, and size of a value in bytes.
    #[rustfmt::skip] // one row, one line
    const fn row(self) -> (&'static str, &'static str, &'static str, usize) {
        match self {
            Algorithm::Crc32 => ("CRC32", "x-amz-checksum-crc32", "ChecksumCRC32", 4),
            Algorithm::Crc32c => ("CRC32C", "x-amz-checksum-crc32c", "ChecksumCRC32C", 4),
            Algorithm::Crc64nvme => ("CRC64NVME", "x-amz-checksum-crc64nvme", "ChecksumCRC64NVME", 8),
            Algorithm::Sha1 => ("SHA1", "x-amz-checksum-sha1", "ChecksumSHA1", 20),
            Algorithm::Sha256 => ("SHA256", "x-amz-checksum-sha256", "ChecksumSHA256", 32),
            Algorithm::Sha512 => ("SHA512", "x-amz-checksum-sha512", "ChecksumSHA512", 64),
            Algorithm::Md5 => ("MD5", "x-amz-checksum-md5", "ChecksumMD5", 16),
            Algorithm::Xxhash64 => ("XXHASH64", "x-amz-checksum-xxhash64", "ChecksumXXHASH64", 8),
            Algorithm::Xxhash3 => ("XXHASH3", "x-amz-checksum-xxhash3", "ChecksumXXHASH3", 8),
            Algorithm::Xxhash128 => ("XXHASH128", "x-amz-checksum-xxhash128", "ChecksumXXHASH128", 16),
        }
    }

    /// The name as in `x-amz-checksum-algorithm` and in XML: `CRC32`.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The name as it stands in some of AWS's messages: `crc32`.
    pub fn lower(self) -> &'static str {
        &self.header()["x-amz-checksum-".len()..]
    }

    /// The header that carries a value.
    pub const fn header(self) -> &'static str {
        self.row().1
    }

    /// The XML element that carries a value.
    pub const fn element(self) -> &'static str {
        self.row().2
    }

    /// The size of a value, in bytes.
    pub const fn size(self) -> usize {
        self.row().3
    }

    /// The algorithm whose values this header carries; the name in any case.
    pub fn from_header(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.header().eq_ignore_ascii_case(name))
    }

    /// The algorithm whose values this XML element carries.
    pub fn from_element(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.element() == name)
    }

    /// The types that a multipart upload with this algorithm may have, the default first.
    ///
    /// CRC64NVME exists over the full object only; SHA and the algorithms without a combination as composites
    /// only; CRC32 and CRC32C both ways.
    pub const fn types(self) -> &'static [Type] {
        match self {
            Algorithm::Crc64nvme => &[Type::FullObject],
            Algorithm::Crc32 | Algorithm::Crc32c => &[Type::Composite, Type::FullObject],
            _ => &[Type::Composite],
        }
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64nvme => Some(CrcAlgorithm::Crc64Nvme),
            _ => None,
        }
    }
}

impl FromStr for Algorithm {
    type Err = ();

    /// Reads the wire name, in any case (the SDKs are not of one mind).
    fn from_str(name: &str) -> Result<Algorithm, ()> {
        Algorithm::ALL.into_iter().find(|a| a.as_str().eq_ignore_ascii_case(name)).ok_or(())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Type {
    /// The name as in `x-amz-checksum-type` and in XML.
    pub const fn as_str(self) -> &'static str {
        match self {
            Type::FullObject => "FULL_OBJECT",
            Type::Composite => "COMPOSITE",
        }
    }
}

impl FromStr for Type {
    type Err = ();

    fn from_str(name: &str) -> Result<Type, ()> {
        [Type::FullObject, Type::Composite].into_iter().find(|t| t.as_str() == name).ok_or(())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A running checksum.
pub enum Hasher {
    /// One of the three CRCs.
    Crc(Algorithm, crc_fast::Digest),
    /// SHA-1.
    Sha1(sha1::Sha1),
    /// SHA-256.
    Sha256(sha2::Sha256),
    /// SHA-512.
    Sha512(sha2::Sha512),
    /// MD5.
    Md5(md5::Md5),
    /// XXH64.
    Xxhash64(xxhash_rust::xxh64::Xxh64),
    /// XXH3, of which XXHASH3 takes 64 bits and XXHASH128 all 128.
    Xxh3(Algorithm, Box<xxhash_rust::xxh3::Xxh3>),
}

impl Hasher {
    /// A checksum of nothing yet.
    pub fn new(algorithm: Algorithm) -> Hasher {
        if let Some(crc) = algorithm.crc() {
            return Hasher::Crc(algorithm, crc_fast::Digest::new(crc));
        }
        match algorithm {
            Algorithm::Sha1 => Hasher::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
            Algorithm::Md5 => Hasher::Md5(md5::Md5::new()),
            Algorithm::Xxhash64 => Hasher::Xxhash64(xxhash_rust::xxh64::Xxh64::new(0)),
            _ => Hasher::Xxh3(algorithm, Box::default()),
        }
    }

    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crc(_, h) => h.update(bytes),
            Hasher::Sha1(h) => h.update(bytes),
            Hasher::Sha256(h) => h.update(bytes),
            Hasher::Sha512(h) => h.update(bytes),
            Hasher::Md5(h) => h.update(bytes),
            Hasher::Xxhash64(h) => h.update(bytes),
            Hasher::Xxh3(_, h) => h.update(bytes),
        }
    }

    /// The checksum of everything fed.
    pub fn finish(self) -> Value {
        match self {
            Hasher::Crc(a, h) => Value::from_crc(a, h.finalize()),
            Hasher::Sha1(h) => Value::of(Algorithm::Sha1, &h.finalize()),
            Hasher::Sha256(h) => Value::of(Algorithm::Sha256, &h.finalize()),
            Hasher::Sha512(h) => Value::of(Algorithm::Sha512, &h.finalize()),
            Hasher::Md5(h) => Value::of(Algorithm::Md5, &h.finalize()),
            Hasher::Xxhash64(h) => Value::of(Algorithm::Xxhash64, &h.digest().to_be_bytes()),
            Hasher::Xxh3(Algorithm::Xxhash128, h) => {
                Value::of(Algorithm::Xxhash128, &h.digest128().to_be_bytes())
            }
            Hasher::Xxh3(a, h) => Value::of(a, &h.digest().to_be_bytes()),
        }
    }
}

/// A checksum: an algorithm and exactly as many bytes as it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "(Algorithm, Vec<u8>)", try_from = "(Algorithm, Vec<u8>)")]
pub struct Value {
    algorithm: Algorithm,
    bytes: [u8; 64], // the longest is SHA-512; zeros after the algorithm's size
}

impl Value {
    /// The value of these bytes; nothing if their number is not the algorithm's.
    pub fn from_bytes(algorithm: Algorithm, bytes: &[u8]) -> Option<Value> {
        (bytes.len() == algorithm.size()).then(|| Value::of(algorithm, bytes))
    }

    /// Reads the base64 form that headers and XML carry.
    pub fn from_base64(algorithm: Algorithm, text: &str) -> Option<Value> {
        Value::from_bytes(algorithm, &BASE64.decode(text).ok()?)
    }

    /// The checksum of bytes that are at hand.
    pub fn compute(algorithm: Algorithm, bytes: &[u8]) -> Value {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Which algorithm made it.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The raw bytes, most significant first.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.size()]
    }

    /// The base64 form that headers and XML carry.
    pub fn base64(&self) -> String {
        BASE64.encode(self.bytes())
    }

    fn of(algorithm: Algorithm, bytes: &[u8]) -> Value {
        let mut value = Value { algorithm, bytes: [0; 64] };
        value.bytes[..algorithm.size()].copy_from_slice(bytes);
        value
    }

    fn from_crc(algorithm: Algorithm, crc: u64) -> Value {
        Value::of(algorithm, &crc.to_be_bytes()[8 - algorithm.size()..])
    }

    fn crc(&self) -> u64 {
        self.bytes().iter().fold(0, |crc, byte| crc << 8 | u64::from(*byte))
    }
}

impl From<Value> for (Algorithm, Vec<u8>) {
    fn from(value: Value) -> (Algorithm, Vec<u8>) {
        (value.algorithm, value.bytes().to_vec())
    }
}

impl TryFrom<(Algorithm, Vec<u8>)> for Value {
    type Error = String;

    fn try_from((algorithm, bytes): (Algorithm, Vec<u8>)) -> Result<Value, String> {
        Value::from_bytes(algorithm, &bytes)
            .ok_or_else(|| format!("{algorithm} has {} bytes, not {}", algorithm.size(), bytes.len()))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.base64())
    }
}

/// The checksum of a stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// The value, without the number of parts.
    pub value: Value,
    /// From how many parts it was composed; nothing for a checksum of the full object.
    pub composed_of: Option<u32>,
}

impl Checksum {
    /// The checksum of the full object.
    pub const fn full(value: Value) -> Checksum {
        Checksum { value, composed_of: None }
    }

    /// The checksum of an object made of parts, given each part's value and size in bytes, in order.
    ///
    /// Nothing if there are no parts, if a value is of another algorithm, or if the algorithm does not have that
    /// type.
    pub fn of_parts(algorithm: Algorithm, kind: Type, parts: &[(Value, u64)]) -> Option<Checksum> {
        if !algorithm.types().contains(&kind)
            || parts.is_empty()
            || parts.iter().any(|(v, _)| v.algorithm != algorithm)
        {
            return None;
        }
        if kind == Type::Composite {
            let mut hasher = Hasher::new(algorithm);
            parts.iter().for_each(|(value, _)| hasher.update(value.bytes()));
            let composed_of = Some(u32::try_from(parts.len()).ok()?);
            return Some(Checksum { value: hasher.finish(), composed_of });
        }
        let crc = algorithm.crc()?;
        let nothing = crc_fast::checksum(crc, b"");
        let whole = parts
            .iter()
            .fold(nothing, |sum, (value, size)| crc_fast::checksum_combine(crc, sum, value.crc(), *size));
        Some(Checksum::full(Value::from_crc(algorithm, whole)))
    }

    /// How it came about.
    pub const fn kind(&self) -> Type {
        match self.composed_of {
            None => Type::FullObject,
            Some(_) => Type::Composite,
        }
    }

    /// The form of headers and of CompleteMultipartUpload: base64, and `-N` behind a composite.
    /// GetObjectAttributes leaves the `-N` away: [`Value::base64`].
    pub fn text(&self) -> String {
        match self.composed_of {
            None => self.value.base64(),
            Some(parts) => format!("{}-{parts}", self.value.base64()),
        }
    }

    /// Reads what [`Checksum::text`] writes.
    pub fn parse(algorithm: Algorithm, text: &str) -> Option<Checksum> {
        let (value, parts) = match text.rsplit_once('-') {
            None => (text, None),
            Some((value, parts)) => (value, Some(parts.parse().ok()?)),
        };
        Some(Checksum { value: Value::from_base64(algorithm, value)?, composed_of: parts })
    }
}

/// The answer when a body does not have the checksum that was announced for it (recorded).
pub fn mismatch(algorithm: Algorithm) -> S3Error {
    S3Error::new(Code::BadDigest)
        .message(format!("The {algorithm} you specified did not match the calculated checksum."))
}

/// The answer when a part comes with another algorithm than its upload was created with (recorded).
pub fn type_mismatch(expected: Algorithm, actual: Algorithm) -> S3Error {
    S3Error::new(Code::InvalidRequest).message(format!(
        "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
        expected.lower(),
        actual.lower()
    ))
}

#[cfg(test)]
mod tests;
