//! The checksum algorithms of S3, computed for requests.
//!
//! Source: S3 User Guide, "Checking object integrity for data uploads".

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, checksum};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use xxhash_rust::{xxh3, xxh64};

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64nvme,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    Xxhash64,
    Xxhash3,
    Xxhash128,
}

impl Algorithm {
    /// Its name in headers and documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
            Algorithm::Sha512 => "SHA512",
            Algorithm::Md5 => "MD5",
            Algorithm::Xxhash64 => "XXHASH64",
            Algorithm::Xxhash3 => "XXHASH3",
            Algorithm::Xxhash128 => "XXHASH128",
        }
    }

    /// The header that carries its value.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
            Algorithm::Sha512 => "x-amz-checksum-sha512",
            Algorithm::Md5 => "x-amz-checksum-md5",
            Algorithm::Xxhash64 => "x-amz-checksum-xxhash64",
            Algorithm::Xxhash3 => "x-amz-checksum-xxhash3",
            Algorithm::Xxhash128 => "x-amz-checksum-xxhash128",
        }
    }

    /// The value of `bytes`, raw.
    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Crc32 => crc32(CrcAlgorithm::Crc32IsoHdlc, bytes),
            Algorithm::Crc32c => crc32(CrcAlgorithm::Crc32Iscsi, bytes),
            Algorithm::Crc64nvme => checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes().to_vec(),
            Algorithm::Sha1 => Sha1::digest(bytes).to_vec(),
            Algorithm::Sha256 => Sha256::digest(bytes).to_vec(),
            Algorithm::Sha512 => Sha512::digest(bytes).to_vec(),
            Algorithm::Md5 => Md5::digest(bytes).to_vec(),
            Algorithm::Xxhash64 => xxh64::xxh64(bytes, 0).to_be_bytes().to_vec(),
            Algorithm::Xxhash3 => xxh3::xxh3_64(bytes).to_be_bytes().to_vec(),
            Algorithm::Xxhash128 => xxh3::xxh3_128(bytes).to_be_bytes().to_vec(),
        }
    }

    /// The value of `bytes` as it stands in a header.
    pub(crate) fn value(self, bytes: &[u8]) -> String {
        BASE64_STANDARD.encode(self.digest(bytes))
    }
}

fn crc32(algorithm: CrcAlgorithm, bytes: &[u8]) -> Vec<u8> {
    let value = checksum(algorithm, bytes);
    value.to_be_bytes()[4..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the algorithms' own descriptions, over the nine digits; XXH of the empty input.
    #[test]
    fn published_values() {
        for (algorithm, text, value) in [
            (Algorithm::Crc32, "123456789", "cbf43926"),
            (Algorithm::Crc32c, "123456789", "e3069283"),
            (Algorithm::Crc64nvme, "123456789", "ae8b14860a799888"),
            (Algorithm::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Algorithm::Md5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Xxhash64, "", "ef46db3751d8e999"),
            (Algorithm::Xxhash3, "", "2d06800538d394c2"),
            (Algorithm::Xxhash128, "", "99aa06d3014798d86001c324468d497f"),
        ] {
            assert_eq!(hex::encode(algorithm.digest(text.as_bytes())), value, "{}", algorithm.name());
        }
        assert_eq!(Algorithm::Sha512.digest(b"").len(), 64);
        assert_eq!(Algorithm::Crc32.value(b""), "AAAAAA==");
    }
}
