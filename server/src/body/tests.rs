use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue};
use http_body::Frame;
use proptest::prelude::*;
use time::macros::datetime;

use super::*;
use crate::auth::{AuthMode, Keys, verify};

/// A body that comes in the pieces given; an empty list of them is a connection that is cut.
struct Pieces(VecDeque<Result<Bytes, io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.0.pop_front().map(|piece| piece.map(Frame::data)))
    }
}

fn pieces(bytes: &[u8], step: usize) -> Pieces {
    Pieces(bytes.chunks(step.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

fn read(body: Pieces, plan: BodyPlan) -> Result<(Vec<u8>, BodySummary), S3Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut reader = BodyReader::new(body, plan);
        let mut data = Vec::new();
        while let Some(piece) = reader.next().await? {
            assert!(!piece.is_empty());
            data.extend_from_slice(&piece);
        }
        Ok((data, reader.finish()?))
    })
}

/// The answer in words: size, MD5 and checksum, or code, message and elements of the refusal.
fn words(result: Result<(Vec<u8>, BodySummary), S3Error>) -> String {
    match result {
        Ok((data, summary)) => {
            assert_eq!(summary.size, data.len() as u64);
            let checksum = summary.checksum.map_or("none".to_owned(), |value| format!("{value:?}"));
            format!("ok {} {} {checksum}", summary.size, hex::encode(summary.md5))
        }
        Err(error) => {
            let elements: Vec<String> = error.extra.iter().map(|(n, v)| format!(" {n}={v}")).collect();
            format!("{}: {}{}", error.code.as_str(), error.message, elements.concat())
        }
    }
}

fn headers(text: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a header");
        let value = HeaderValue::from_str(value.trim()).expect("a value");
        map.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value);
    }
    map
}

fn plan_in(text: &str, payload: Payload, form: DigestForm) -> Result<BodyPlan, S3Error> {
    let mut verified =
        Verified { access_key: None, region: None, payload, chunk_signer: None, hoisted: Vec::new() };
    BodyPlan::from_headers(&headers(text), &mut verified, form, Some(Algorithm::Crc64nvme))
}

const UNSIGNED_TRAILER: Payload = Payload::Streaming { signed: false, trailer: true };

/// What becomes of `body` sent in one piece with these headers; the same must come of it byte by byte.
fn answer(text: &str, payload: &Payload, body: &[u8]) -> String {
    let run = |step: usize| match plan_in(text, payload.clone(), DigestForm::Hex) {
        Ok(plan) => words(read(pieces(body, step), plan)),
        Err(error) => words(Err(error)),
    };
    let whole = run(body.len());
    assert_eq!(run(1), whole, "byte by byte");
    whole
}

#[test]
fn a_plain_body_is_measured_against_all_that_was_announced() {
    let hello = "ok 5 5d41402abc4b2a76b9719d911017c592 ";
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let check = |text: &str, payload: Payload, expected: &str| {
        assert_eq!(answer(&format!("content-length: 5\n{text}"), &payload, b"hello"), expected, "{text}");
    };
    check("", Payload::Unsigned, &format!("{hello}CRC64NVME:M3eFcAZSQlc="));
    check("", Payload::Sha256(sha256.to_uppercase()), &format!("{hello}CRC64NVME:M3eFcAZSQlc="));
    check("x-amz-checksum-crc32: NhCmhg==", Payload::Unsigned, &format!("{hello}CRC32:NhCmhg=="));
    let value = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    for payload in [Payload::Unsigned, Payload::Sha256(sha256.to_owned())] {
        check(&format!("x-amz-checksum-sha256: {value}"), payload, &format!("{hello}SHA256:{value}"));
    }
    let value = "XUFAKrxLKna5cZ2REBfFkg==";
    check(
        &format!("x-amz-checksum-md5: {value}\ncontent-md5: {value}"),
        Payload::Unsigned,
        &format!("{hello}MD5:{value}"),
    );
    check(
        "x-amz-checksum-crc32: AAAAAA==",
        Payload::Unsigned,
        "BadDigest: The CRC32 you specified did not match the calculated checksum.",
    );
    // The signed hash is looked at before Content-MD5, and that before the checksum.
    let wrong = "content-md5: 1B2M2Y8AsgTpgAmY7PhCfg==\nx-amz-checksum-crc32: AAAAAA==";
    check(
        wrong,
        Payload::Unsigned,
        "BadDigest: The Content-MD5 you specified did not match what we received. ExpectedDigest=d41d8cd98f00b204e9800998ecf8427e CalculatedDigest=XUFAKrxLKna5cZ2REBfFkg==",
    );
    check(
        wrong,
        Payload::Sha256("invalid".to_owned()),
        &format!(
            "XAmzContentSHA256Mismatch: The provided 'x-amz-content-sha256' header does not match what was computed. ClientComputedContentSHA256=invalid S3ComputedContentSHA256={sha256}"
        ),
    );
    for (size, provided) in [(6, 5), (4, 5)] {
        let text = format!("content-length: {size}");
        assert_eq!(
            answer(&text, &Payload::Unsigned, b"hello"),
            format!(
                "IncompleteBody: You did not provide the number of bytes specified by the Content-Length HTTP header NumberBytesExpected={size} NumberBytesProvided={provided}"
            )
        );
    }
}

#[test]
fn a_wrong_content_md5_is_shown_as_recorded_from_aws() {
    let text = "content-length: 9\ncontent-md5: CYketZBSTjX8czcs3cXVlg==";
    for (form, shown) in [
        (DigestForm::Hex, "09891eb590524e35fc73372cddc5d596"),
        (DigestForm::Base64, "CYketZBSTjX8czcs3cXVlg=="),
    ] {
        let plan = plan_in(text, Payload::Unsigned, form).expect("a plan");
        assert_eq!(
            words(read(pieces(b"something", 4), plan)),
            format!(
                "BadDigest: The Content-MD5 you specified did not match what we received. ExpectedDigest={shown} CalculatedDigest=Q3uTDbhLgHnC3YBKcZNrXw=="
            )
        );
    }
    for md5 in ["__invalid__", "000", "not base64 encoded checksum", "MTIz", "dGVzdC1zdHJpbmc="] {
        let answer = answer(&format!("content-md5: {md5}"), &Payload::Unsigned, b"");
        assert_eq!(
            answer,
            format!("InvalidDigest: The Content-MD5 you specified was invalid. Content-MD5={md5}")
        );
    }
}

#[test]
fn heads_that_announce_no_readable_body_are_refused_before_it_is_read() {
    let check = |text: &str, payload: Payload, expected: &str| {
        assert_eq!(answer(text, &payload, b""), expected, "{text}");
    };
    let length = "MissingContentLength: You must provide the Content-Length HTTP header.";
    check("", Payload::Unsigned, length);
    check("content-length: 9", UNSIGNED_TRAILER, length);
    check("x-amz-decoded-content-length: test", UNSIGNED_TRAILER, length);
    check(
        "transfer-encoding: chunked",
        Payload::Unsigned,
        "NotImplemented: A header you provided implies functionality that is not implemented Header=Transfer-Encoding",
    );
    let trailer = "content-length: 0\nx-amz-decoded-content-length: 0\nx-amz-trailer: x-amz-checksum-crc32";
    let malformed = "MalformedTrailerError: The request contained trailing data that was not well-formed or did not conform to our published schema.";
    check(trailer, Payload::Unsigned, malformed);
    check(trailer, Payload::Streaming { signed: true, trailer: false }, malformed);
}

#[test]
fn a_connection_that_is_cut_leaves_an_incomplete_body() {
    let body = Pieces([Ok(Bytes::from_static(b"he")), Err(io::ErrorKind::ConnectionReset.into())].into());
    let plan = plan_in("content-length: 5", Payload::Unsigned, DigestForm::Hex).expect("a plan");
    assert_eq!(words(read(body, plan)), INCOMPLETE);
    let plan = plan_in("content-length: 5", Payload::Unsigned, DigestForm::Hex).expect("a plan");
    let unread = BodyReader::new(pieces(b"hello", 5), plan).finish();
    assert_eq!(unread, Err(S3Error::new(Code::IncompleteBody)), "finished before the end was read");
}

const INCOMPLETE: &str = "IncompleteBody: The request body terminated unexpectedly";

/// `hello` in one chunk, as far as the line of the last chunk.
const HELLO: &str = "5\r\nhello\r\n0\r\n";

#[test]
fn unsigned_framing_is_read_as_aws_reads_it() {
    let none = "x-amz-decoded-content-length: 5";
    let crc = "x-amz-decoded-content-length: 5\nx-amz-trailer: x-amz-checksum-crc32";
    let ok = "ok 5 5d41402abc4b2a76b9719d911017c592 CRC64NVME:M3eFcAZSQlc=";
    let checked = "ok 5 5d41402abc4b2a76b9719d911017c592 CRC32:NhCmhg==";
    let malformed = "MalformedTrailerError: The request contained trailing data that was not well-formed or did not conform to our published schema.";
    let mismatch = "BadDigest: The CRC32 you specified did not match the calculated checksum.";
    let check = |text: &str, body: String, expected: &str| {
        assert_eq!(answer(text, &UNSIGNED_TRAILER, body.as_bytes()), expected, "{body:?}");
    };
    let hello = |rest: &str| format!("{HELLO}{rest}");
    check(none, hello("\r\n"), ok);
    check(none, hello(""), ok);
    check(none, hello("\r"), INCOMPLETE);
    check(none, "5;name=value\r\nhello\r\n0\r\n\r\n".to_owned(), ok);
    check(none, "5 \r\nhello\r\n0\r\n\r\n".to_owned(), ok);
    check(none, "5\nhello\n0\n\n".to_owned(), INCOMPLETE);
    check(none, "5\r\nhello0\r\n".to_owned(), INCOMPLETE);
    check(none, "5\r\nhello\r\n".to_owned(), INCOMPLETE);
    check(none, "-5\r\nhello\r\n0\r\n\r\n".to_owned(), INCOMPLETE);
    check(none, "+5\r\nhello\r\n0\r\n\r\n".to_owned(), INCOMPLETE);
    check(none, "\r\nhello\r\n0\r\n\r\n".to_owned(), INCOMPLETE);
    check(none, "10000000000000000\r\nhello\r\n0\r\n\r\n".to_owned(), INCOMPLETE);
    check(none, format!("{}\r\n", "0".repeat(10_000)), INCOMPLETE);
    check(none, "hello".to_owned(), INCOMPLETE);
    let counted = "IncompleteBody: You did not provide the number of bytes specified by the Content-Length HTTP header NumberBytesExpected=5 NumberBytesProvided=";
    check(none, "4\r\nhell\r\n0\r\n\r\n1\r\no\r\n0\r\n\r\n".to_owned(), &format!("{counted}4"));
    check(none, "a\r\nhellohello\r\n0\r\n\r\n".to_owned(), &format!("{counted}10"));
    check(
        none,
        "4\r\nhell\r\n1\r\no\r\n0\r\n\r\n".to_owned(),
        "InvalidChunkSizeError: Only the last chunk is allowed to have a size less than 8192 bytes Chunk=2 BadChunkSize=4",
    );
    check(none, hello("x-amz-checksum-crc32:NhCmhg==\r\n\r\n"), malformed);
    check(crc, hello("x-amz-checksum-crc32:NhCmhg==\r\n\r\n"), checked);
    check(crc, hello("X-Amz-Checksum-CRC32 : NhCmhg== \r\n"), checked);
    check(crc, hello("x-amz-checksum-crc32:NhCmhg==\r\n\r\n\r\n\u{ff}junk"), checked);
    check(crc, hello("x-amz-checksum-crc32:AAAAAA==\r\nx-amz-checksum-crc32:NhCmhg==\r\n"), checked);
    check(crc, hello("x-amz-checksum-crc32:NhCmhg==\r\nx-amz-checksum-crc32:AAAAAA==\r\n"), mismatch);
    check(
        crc,
        hello("x-amz-checksum-crc32:not=base-64\r\n"),
        "InvalidRequest: Value for x-amz-checksum-crc32 trailing header is invalid.",
    );
    check(crc, hello("x-amz-checksum-crc32:NhCmhg==\n"), INCOMPLETE);
    check(crc, hello("x-amz-checksum-crc32:NhCmhg=="), INCOMPLETE);
    check(crc, hello("\r\n"), malformed);
    check(crc, hello("\r\nx-amz-checksum-crc32:NhCmhg==\r\n"), malformed);
    check(crc, hello("x-amz-checksum-crc32c:NhCmhg==\r\n"), malformed);
    check(crc, hello("x-amz-checksum-crc32:NhCmhg==\r\nbonus: trailer\r\n"), malformed);
    check(crc, hello("x-amz-checksum-crc32NhCmhg==\r\n"), malformed);
    let header = format!("{none}\nx-amz-checksum-crc32: NhCmhg==");
    check(&header, hello("\r\n"), checked);
}

/// The two bodies that AWS publishes: 66560 times `a` in a chunk of 64 KiB and a smaller one, without and with a
/// trailer. Their requests are verified first, so that the chunks' signer is the one a server would have.
fn published(trailer: bool) -> (BodyPlan, Vec<u8>) {
    let (sha256, more, names, signature) = if trailer {
        (
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            "x-amz-trailer: x-amz-checksum-crc32c",
            "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        )
    } else {
        (
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "content-length: 66824",
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        )
    };
    let text = format!(
        "host: s3.amazonaws.com
        x-amz-date: 20130524T000000Z
        x-amz-storage-class: REDUCED_REDUNDANCY
        x-amz-content-sha256: {sha256}
        content-encoding: aws-chunked
        x-amz-decoded-content-length: 66560
        {more}
        authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders={names},Signature={signature}"
    );
    let mut request = http::Request::put("/examplebucket/chunkObject.txt").body(()).expect("a head");
    *request.headers_mut() = headers(&text);
    let (parts, ()) = request.into_parts();
    let keys = Keys::new([("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")]);
    let context = crate::auth::Context {
        keys: &keys,
        mode: AuthMode::Strict,
        region: Some("us-east-1"),
        other_regions: &[],
        host_bucket: None,
        now: datetime!(2013-05-24 00:00:00 UTC),
    };
    let mut verified = verify(&parts, &context).expect("the published signature");
    let plan = BodyPlan::from_headers(&parts.headers, &mut verified, DigestForm::Hex, None).expect("a plan");
    let [first, second, last] = if trailer {
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ]
    } else {
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]
    };
    let mut body = Vec::new();
    for (size, signature) in [(65536, first), (1024, second)] {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.resize(body.len() + size, b'a');
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("0;chunk-signature={last}\r\n").as_bytes());
    if trailer {
        body.extend_from_slice(b"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n");
    }
    (plan, body)
}

#[test]
fn bodies_published_by_aws_are_accepted() {
    let (plan, body) = published(false);
    assert_eq!(words(read(pieces(&body, 1000), plan)), "ok 66560 da0d2e17cd5a8f14633c6b4aebad7e02 none");
    let (plan, body) = published(true);
    assert_eq!(
        words(read(pieces(&body, 7), plan)),
        "ok 66560 da0d2e17cd5a8f14633c6b4aebad7e02 CRC32C:sOO8/Q=="
    );
}

#[test]
fn a_changed_chunk_or_trailer_is_refused() {
    let check = |trailer: bool, from: &str, to: &str, expected: &str| {
        let (plan, body) = published(trailer);
        let text = String::from_utf8(body).expect("text");
        assert!(text.contains(from), "{from}");
        let answer = words(read(pieces(text.replacen(from, to, 1).as_bytes(), 1 << 20), plan));
        assert!(answer.starts_with(expected), "{from} -> {to}: {answer}");
    };
    let wrong = "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method. AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE StringToSign=AWS4-HMAC-SHA256-";
    for trailer in [false, true] {
        let wrong_chunk = &format!("{wrong}PAYLOAD\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n");
        check(trailer, "aaa", "aab", wrong_chunk);
        check(trailer, "\n0;chunk-signature=", "\n0;chunk-signature=0", wrong_chunk);
        check(trailer, "chunk-signature=", "extra=param;chunk-signature=", wrong_chunk);
        check(trailer, "\r\naaaa", ";extra=param\r\naaaa", INCOMPLETE);
        check(trailer, "10000;", "10000;chunk-signature=\r\n", INCOMPLETE);
        check(trailer, ";chunk-signature=", " ; chunk-signature = ", "ok");
        check(trailer, "\n0;chunk-signature=", "\n0\r\n", INCOMPLETE);
    }
    check(true, "sOO8", "sOO9", &format!("{wrong}TRAILER\n"));
    check(true, "x-amz-trailer-signature:", "x-amz-trailer-signature:0", &format!("{wrong}TRAILER\n"));
    check(true, "\r\nx-amz-trailer-signature", "\r\n\r\nx-amz-trailer-signature", INCOMPLETE);
    check(true, "x-amz-checksum-crc32c:sOO8/Q==\r\n", "", INCOMPLETE);
}

#[test]
fn signatures_of_chunks_are_not_looked_at_without_a_signer() {
    for trailer in [false, true] {
        let (mut plan, body) = published(trailer);
        plan.chunk_signer = None;
        let body = String::from_utf8(body).expect("text").replace("signature=", "signature=0");
        assert!(words(read(pieces(body.as_bytes(), 1 << 20), plan)).starts_with("ok 66560"));
    }
}

/// An aws-chunked body of some data, up to and with its trailer but without the last empty line, and its head.
fn framed(data: &[u8], chunk: usize) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for piece in data.chunks(chunk) {
        body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(b"\r\n");
    }
    let crc = Value::compute(Algorithm::Crc32, data).base64();
    body.extend_from_slice(format!("0\r\nx-amz-checksum-crc32:{crc}\r\n").as_bytes());
    let head = format!("x-amz-decoded-content-length: {}\nx-amz-trailer: x-amz-checksum-crc32", data.len());
    (head, body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_into_pieces_gives_the_same_object(
        data in proptest::collection::vec(any::<u8>(), 0..30_000),
        chunk in 8192usize..20_000,
        mut cuts in proptest::collection::vec(0usize..31_000, 0..40),
    ) {
        let (head, body) = framed(&data, chunk);
        cuts.extend([0, body.len()]);
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(body.len()));
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|w| Ok(Bytes::copy_from_slice(&body[w[0]..w[1]]))).collect();
        let plan = plan_in(&head, UNSIGNED_TRAILER, DigestForm::Hex).unwrap();
        let (read, summary) = read(Pieces(pieces), plan).unwrap();
        prop_assert_eq!(read, data.clone());
        prop_assert_eq!(summary.checksum, Some(Value::compute(Algorithm::Crc32, &data)));
    }

    #[test]
    fn any_truncation_is_an_error(
        data in proptest::collection::vec(any::<u8>(), 0..30_000), chunk in 8192usize..20_000, cut in any::<prop::sample::Index>(),
    ) {
        let (head, body) = framed(&data, chunk);
        let plan = plan_in(&head, UNSIGNED_TRAILER, DigestForm::Hex).unwrap();
        prop_assert!(read(pieces(&body[..cut.index(body.len())], 997), plan).is_err());
    }

    #[test]
    fn any_truncation_of_a_signed_body_is_an_error(trailer in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let (plan, body) = published(trailer);
        prop_assert!(read(pieces(&body[..cut.index(body.len())], 4096), plan).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_an_answer_and_no_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let plan = plan_in("x-amz-decoded-content-length: 5", UNSIGNED_TRAILER, DigestForm::Hex).unwrap();
        let summary = read(pieces(&body, 10), plan);
        prop_assert!(summary.is_err() || body.starts_with(b"5"));
    }
}
