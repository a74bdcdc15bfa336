use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

/// Base64 values of `123456789`, and of the bytes 0 to 255 five times over, in the order of [`Algorithm::ALL`];
/// made with zlib, hashlib, xxhash and the AWS common runtime.
#[rustfmt::skip]
const VECTORS: [(&str, &str); 10] = [
    ("y/Q5Jg==", "HnptJA=="),
    ("4waSgw==", "I7YsmA=="),
    ("rosUhgp5mIg=", "ILLm0gZ30xI="),
    ("98O8HYCOBHMq32eZZczDTKeuNEE=", "43oEyyNTMJ9c/07gNs+5Gl4xzv0="),
    ("FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=", "1BSwhYJusGd4SDujVWTchJ5kM1n2ntl0eHi6blSYW+0="),
    ("2eZ2LdHI6vbWGzxhkvxAjU1tXxF20MKRabwk5xw/J0rSf81YEbMT1oH35V7ALXPUmclUVba1u1A6z1dPuo/+hQ==",
     "yT9VzPL6jIJpn/m1iv41kSQrE12Qim2GXhfjittBwh0dU1nlEnMDY3PVTSC1ZZzIfm57OB/wJ9M/lxQWzFkPkA=="),
    ("JfnnlDI7RTiF9RgfG2JNCw==", "goKfHz8rsPGLJfJ45buovQ=="),
    ("jLhB20DmroM=", "r8GErXk4o1Q="),
    ("ctyxi2ehff8=", "SESwCeFkNS4="),
    ("MxGUd+3l3NXpcWQnaB1YYA==", "2SqzocsFQqdIRLAJ4WQ1Lg=="),
];

fn long() -> Vec<u8> {
    (0..5).flat_map(|_| 0..=255).collect()
}

#[test]
fn every_algorithm_gives_the_published_values() {
    for (algorithm, (short, other)) in Algorithm::ALL.into_iter().zip(VECTORS) {
        assert_eq!(Value::compute(algorithm, b"123456789").base64(), short, "{algorithm}");
        assert_eq!(Value::compute(algorithm, &long()).base64(), other, "{algorithm}");
        assert_eq!(Value::from_base64(algorithm, short).unwrap().base64(), short);
        assert_eq!(Value::from_base64(algorithm, "AAA="), None, "{algorithm}: two bytes");
        assert_eq!(algorithm.as_str().to_lowercase().parse(), Ok(algorithm));
        assert_eq!(Algorithm::from_header(algorithm.header()), Some(algorithm));
        assert_eq!(Algorithm::from_element(algorithm.element()), Some(algorithm));
        assert_eq!(algorithm.lower().to_uppercase(), algorithm.as_str());
    }
}

#[test]
fn an_object_of_three_parts_has_the_checksum_recorded_from_aws() {
    let big = vec![b'a'; 5 * 1024 * 1024 + 1];
    let check = |algorithm: Algorithm, kind: Type, expected: &str| {
        let part = |bytes: &[u8]| (Value::compute(algorithm, bytes), bytes.len() as u64);
        let parts = [part(&big), part(&big), part(&big[..10])];
        let checksum = Checksum::of_parts(algorithm, kind, &parts).unwrap();
        assert_eq!(checksum.text(), expected);
        assert_eq!(checksum.kind(), kind);
        assert_eq!(Checksum::parse(algorithm, expected), Some(checksum));
    };
    check(Algorithm::Crc32, Type::Composite, "5FRUiw==-3");
    check(Algorithm::Sha256, Type::Composite, "9o++y6AejqboiJ7MZCx0fahK2Vu5YC/qnNhhYsCLciI=-3");
    check(Algorithm::Crc64nvme, Type::FullObject, "ZMNX55lZurA=");
    check(Algorithm::Crc32, Type::FullObject, "qSEQSA==");
}

#[test]
fn parts_that_do_not_fit_have_no_checksum() {
    let crc = (Value::compute(Algorithm::Crc32, b"a"), 1);
    let sha = (Value::compute(Algorithm::Sha1, b"a"), 1);
    assert_eq!(Checksum::of_parts(Algorithm::Crc32, Type::Composite, &[]), None);
    assert_eq!(Checksum::of_parts(Algorithm::Crc32, Type::Composite, &[crc, sha]), None);
    assert_eq!(Checksum::of_parts(Algorithm::Sha1, Type::FullObject, &[sha]), None);
    assert_eq!(Checksum::parse(Algorithm::Crc32, "AAAAAA==-x"), None);
}

proptest! {
    #[test]
    fn full_object_crcs_do_not_depend_on_where_the_parts_are_cut(
        data in proptest::collection::vec(any::<u8>(), 0..4000), cuts in proptest::collection::vec(0usize..4000, 1..5),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(data.len())).chain([0, data.len()]).collect();
        cuts.sort_unstable();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64nvme] {
            let parts: Vec<_> = cuts.windows(2)
                .map(|w| (Value::compute(algorithm, &data[w[0]..w[1]]), (w[1] - w[0]) as u64))
                .collect();
            let whole = Checksum::of_parts(algorithm, Type::FullObject, &parts).unwrap();
            prop_assert_eq!(whole, Checksum::full(Value::compute(algorithm, &data)));
        }
    }

    #[test]
    fn hashing_in_pieces_is_hashing_at_once(
        data in proptest::collection::vec(any::<u8>(), 0..2000), step in 1usize..300,
    ) {
        for algorithm in Algorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            data.chunks(step).for_each(|piece| hasher.update(piece));
            prop_assert_eq!(hasher.finish(), Value::compute(algorithm, &data));
        }
    }
}

#[test]
fn a_stored_value_reads_back_and_a_wrong_size_does_not() {
    for algorithm in Algorithm::ALL {
        let value = Value::compute(algorithm, b"x");
        let bytes = postcard::to_stdvec(&value).unwrap();
        assert_eq!(postcard::from_bytes::<Value>(&bytes).unwrap(), value);
        assert_eq!(usize::from(bytes[0]), algorithm as usize, "the number of an algorithm is frozen");
    }
    let wrong = postcard::to_stdvec(&(Algorithm::Crc32, vec![1u8, 2, 3])).unwrap();
    assert!(postcard::from_bytes::<Value>(&wrong).is_err());
}

fn headers(text: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value.trim()).unwrap(),
        );
    }
    map
}

/// What the headers ask for, in words: the request or the message of the refusal.
fn requested(text: &str) -> String {
    match Requested::from_headers(&headers(text)) {
        Ok(Requested::Absent) => "absent".to_owned(),
        Ok(Requested::Header(value)) => format!("header {value:?}"),
        Ok(Requested::Trailer(algorithm)) => format!("trailer {algorithm}"),
        Err(error) => {
            assert_eq!(error.code, Code::InvalidRequest);
            error.message.into_owned()
        }
    }
}

#[test]
fn requested_checksums_are_read_as_aws_reads_them() {
    let several = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
    let unsupported = "The value specified in the x-amz-trailer header is not supported";
    let crc = "x-amz-checksum-crc32: AAAAAA==";
    let check = |text: &str, expected: &str| assert_eq!(requested(text), expected, "{text}");
    check("", "absent");
    check(
        "x-amz-checksum-algorithm: TEST\nx-amz-checksum-type: COMPOSITE\nx-amz-checksum-mode: ENABLED",
        "absent",
    );
    check(crc, "header CRC32:AAAAAA==");
    check(&format!("{crc}\nx-amz-sdk-checksum-algorithm: crc32"), "header CRC32:AAAAAA==");
    check(
        &format!("{crc}\nx-amz-sdk-checksum-algorithm: CRC32C"),
        "Value for x-amz-sdk-checksum-algorithm header is invalid.",
    );
    check("x-amz-checksum-sha256: c2a9", "Value for x-amz-checksum-sha256 header is invalid.");
    check("x-amz-checksum-sha256: nope\nx-amz-checksum-crc32: nope", several);
    check(&format!("{crc}\n{crc}"), several);
    check(
        "x-amz-checksum-bad: AAAAAA==",
        "The algorithm type you specified in x-amz-checksum- header is invalid.",
    );
    check(
        "x-amz-sdk-checksum-algorithm: CRC32",
        "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
    );
    check("x-amz-trailer: x-amz-checksum-CRC32\nx-amz-sdk-checksum-algorithm: CRC32", "trailer CRC32");
    check("x-amz-trailer: x-amz-checksum-crc32,, ", "trailer CRC32");
    check("x-amz-trailer: x-amz-checksum-crc32, ,", unsupported);
    check("x-amz-trailer: , x-amz-checksum-crc32", unsupported);
    check("x-amz-trailer: content-md5", unsupported);
    check("x-amz-trailer: x-amz-checksum-crc32, x-amz-checksum-sha1", several);
    check(
        &format!("{crc}\nx-amz-trailer: x-amz-checksum-crc32"),
        "Expecting a single x-amz-checksum- header",
    );
}

#[test]
fn multipart_checksums_are_read_as_aws_reads_them() {
    let check = |algorithm: &str, kind: &str, expected: &str| {
        let mut text = String::new();
        if !algorithm.is_empty() {
            text += &format!("x-amz-checksum-algorithm: {algorithm}\n");
        }
        if !kind.is_empty() {
            text += &format!("x-amz-checksum-type: {kind}\n");
        }
        let got = match MultipartChecksum::from_headers(&headers(&text)) {
            Ok(None) => "none".to_owned(),
            Ok(Some(asked)) => format!("{} {}", asked.algorithm, asked.kind),
            Err(error) => error.message.into_owned(),
        };
        assert_eq!(got, expected, "{algorithm} {kind}");
    };
    check("", "", "none");
    check("CRC32", "", "CRC32 COMPOSITE");
    check("CRC32C", "FULL_OBJECT", "CRC32C FULL_OBJECT");
    check("CRC64NVME", "", "CRC64NVME FULL_OBJECT");
    check("SHA1", "", "SHA1 COMPOSITE");
    check("XXHASH128", "", "XXHASH128 COMPOSITE");
    check(
        "CRC64NVME",
        "COMPOSITE",
        "The COMPOSITE checksum type cannot be used with the crc64nvme checksum algorithm.",
    );
    check(
        "SHA256",
        "FULL_OBJECT",
        "The FULL_OBJECT checksum type cannot be used with the sha256 checksum algorithm.",
    );
    check(
        "",
        "COMPOSITE",
        "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
    );
    check(
        "TEST",
        "",
        "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
    );
    check("CRC32", "HALF", "Value for x-amz-checksum-type header is invalid.");
}
