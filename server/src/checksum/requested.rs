//! What the headers of a request ask for in checksums.

use http::HeaderMap;

use super::{Algorithm, Type, Value};
use crate::error::{Code, S3Error};

const PREFIX: &str = "x-amz-checksum-";

/// The checksum that a PutObject or UploadPart announces for its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// None: the server computes one of its own choice.
    Absent,
    /// The value stands in a header.
    Header(Value),
    /// The value follows the body as a trailer.
    Trailer(Algorithm),
}

impl Requested {
    /// Reads `x-amz-checksum-*`, `x-amz-trailer` and `x-amz-sdk-checksum-algorithm`.
    ///
    /// `x-amz-checksum-algorithm` and `x-amz-checksum-type` mean nothing here and are not looked at (recorded:
    /// even `TEST` is accepted).
    ///
    /// # Errors
    ///
    /// InvalidRequest with AWS's message: an unknown checksum header or trailer, more than one, a header and a
    /// trailer, an announced algorithm without a value or with another one's, a value that is not base64 of the
    /// right size.
    pub fn from_headers(headers: &HeaderMap) -> Result<Requested, S3Error> {
        let header = checksum_header(headers)?;
        let trailer = checksum_trailer(headers)?;
        let algorithm = match (header, trailer) {
            (Some(_), Some(_)) => return Err(invalid("Expecting a single x-amz-checksum- header")),
            (Some((algorithm, _)), None) | (None, Some(algorithm)) => Some(algorithm),
            (None, None) => None,
        };
        if let Some(announced) = headers.get("x-amz-sdk-checksum-algorithm") {
            let Some(algorithm) = algorithm else {
                return Err(invalid(
                    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
                ));
            };
            if announced.to_str().ok().and_then(|name| name.parse().ok()) != Some(algorithm) {
                return Err(invalid("Value for x-amz-sdk-checksum-algorithm header is invalid."));
            }
        }
        Ok(match (header, trailer) {
            (Some((algorithm, text)), _) => {
                let value = Value::from_base64(algorithm, text)
                    .ok_or_else(|| invalid(format!("Value for {} header is invalid.", algorithm.header())))?;
                Requested::Header(value)
            }
            (None, Some(algorithm)) => Requested::Trailer(algorithm),
            (None, None) => Requested::Absent,
        })
    }

    /// The algorithm asked for, if one is.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Requested::Absent => None,
            Requested::Header(value) => Some(value.algorithm()),
            Requested::Trailer(algorithm) => Some(*algorithm),
        }
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::new(Code::InvalidRequest).message(message)
}

fn several() -> S3Error {
    invalid("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
}

fn checksum_header(headers: &HeaderMap) -> Result<Option<(Algorithm, &str)>, S3Error> {
    let mut found = None;
    for (name, value) in headers {
        let Some(rest) = name.as_str().strip_prefix(PREFIX) else { continue };
        if matches!(rest, "algorithm" | "type" | "mode") {
            continue;
        }
        let algorithm = Algorithm::from_header(name.as_str()).ok_or_else(|| {
            invalid("The algorithm type you specified in x-amz-checksum- header is invalid.")
        })?;
        // A value that is not even text is not base64 either; the empty text says so later.
        if found.replace((algorithm, value.to_str().unwrap_or_default())).is_some() {
            return Err(several());
        }
    }
    Ok(found)
}

fn checksum_trailer(headers: &HeaderMap) -> Result<Option<Algorithm>, S3Error> {
    let mut found: Vec<Algorithm> = Vec::new();
    for value in headers.get_all("x-amz-trailer") {
        // As on AWS, commas at the very end are no names, an empty name in front or between is one.
        let names = value.to_str().unwrap_or("?").trim().trim_end_matches(',');
        for name in names.split(',').map(str::trim) {
            found.push(Algorithm::from_header(name).ok_or_else(|| {
                invalid("The value specified in the x-amz-trailer header is not supported")
            })?);
        }
    }
    if found.len() > 1 { Err(several()) } else { Ok(found.first().copied()) }
}

/// The checksum that CreateMultipartUpload asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultipartChecksum {
    /// Of every part, and of the object.
    pub algorithm: Algorithm,
    /// How the object's is made from the parts'.
    pub kind: Type,
}

impl MultipartChecksum {
    /// Reads `x-amz-checksum-algorithm` and `x-amz-checksum-type`; nothing if neither is there.
    ///
    /// # Errors
    ///
    /// InvalidRequest with AWS's message (recorded): an unsupported algorithm, a type without an algorithm, a
    /// type that the algorithm does not have.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<MultipartChecksum>, S3Error> {
        let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap_or("?"));
        let kind = text("x-amz-checksum-type");
        let Some(algorithm) = algorithm_header(headers)? else {
            return match kind {
                None => Ok(None),
                Some(_) => Err(invalid(
                    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
                )),
            };
        };
        let kind = match kind {
            None => algorithm.types()[0],
            Some(kind) => {
                kind.parse().map_err(|()| invalid("Value for x-amz-checksum-type header is invalid."))?
            }
        };
        if !algorithm.types().contains(&kind) {
            return Err(invalid(format!(
                "The {kind} checksum type cannot be used with the {} checksum algorithm.",
                algorithm.lower()
            )));
        }
        Ok(Some(MultipartChecksum { algorithm, kind }))
    }
}

/// The algorithm that CreateMultipartUpload or CopyObject asks for in `x-amz-checksum-algorithm`.
///
/// # Errors
///
/// InvalidRequest with the list of names (recorded) if the name is not one of them.
pub fn algorithm_header(headers: &HeaderMap) -> Result<Option<Algorithm>, S3Error> {
    let Some(name) = headers.get("x-amz-checksum-algorithm") else { return Ok(None) };
    name.to_str().ok().and_then(|name| name.parse().ok()).map(Some).ok_or_else(|| {
        invalid("Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
    })
}
