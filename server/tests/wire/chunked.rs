//! Signatures and aws-chunked bodies over the wire, signed by a signer of the tests' own under a clock that stands.

use assay_server::{Instant, Server};

use crate::client::sign::{Signer, sha256, signature_of};
use crate::client::wire::Wire;
use crate::client::{Answer, START_MS};

const NOW: &str = "20261129T120000Z";

async fn strict() -> Server {
    let clock = || Instant::from_epoch_ms(START_MS);
    Server::builder().bucket("bucket").clock(clock).start().await.unwrap()
}

async fn ask(wire: &mut Wire, method: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    wire.ask(method, "/bucket/k", &headers, body).await
}

async fn stored(wire: &mut Wire) -> Answer {
    let headers =
        Signer::new("test", NOW).headers("GET", "/bucket/k", &[("host", "localhost")], "UNSIGNED-PAYLOAD");
    ask(wire, "GET", &headers, b"").await
}

/// The body of `hello` in one chunk with its CRC32 as trailer.
const TRAILED: &str = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";

#[tokio::test]
async fn a_signed_request_is_let_in_and_others_are_not() {
    let server = strict().await;
    let mut wire = Wire::connect(server.address()).await;
    let host = [("host", "localhost")];
    let put = |signer: &Signer, hash: &str| signer.headers("PUT", "/bucket/k", &host, hash);
    let hash = sha256(b"hello");

    let wrong = ask(&mut wire, "PUT", &put(&Signer::new("wrong", NOW), &hash), b"hello").await;
    let wrong = wrong.expect_code(403, "SignatureDoesNotMatch");
    for element in ["AWSAccessKeyId", "StringToSign", "SignatureProvided", "CanonicalRequest"] {
        assert!(!wrong.only(element).is_empty(), "{element}");
    }
    let stranger = Signer { access_key: "stranger".into(), ..Signer::new("test", NOW) };
    ask(&mut wire, "PUT", &put(&stranger, &hash), b"hello").await.expect_code(403, "InvalidAccessKeyId");
    wire.ask("PUT", "/bucket/k", &[], b"hello").await.expect_code(403, "AccessDenied");

    let late = ask(&mut wire, "PUT", &put(&Signer::new("test", "20261129T114000Z"), &hash), b"hello").await;
    let late = late.expect_code(403, "RequestTimeTooSkewed");
    assert_eq!(late.only("MaxAllowedSkewMilliseconds"), "900000");
    assert!(!late.only("RequestTime").is_empty() && !late.only("ServerTime").is_empty());

    let other = ask(&mut wire, "PUT", &put(&Signer::new("test", NOW), &sha256(b"other")), b"hello").await;
    let other = other.expect_code(400, "XAmzContentSHA256Mismatch");
    assert_eq!(other.only("ClientComputedContentSHA256"), sha256(b"other"));
    assert_eq!(other.only("S3ComputedContentSHA256"), hash);
    stored(&mut wire).await.expect_code(404, "NoSuchKey");

    ask(&mut wire, "PUT", &put(&Signer::new("test", NOW), &hash), b"hello").await.expect(200);
    assert_eq!(stored(&mut wire).await.expect(200).text(), "hello");
}

#[tokio::test]
async fn unsigned_chunks_with_a_trailer_are_decoded() {
    let server = strict().await;
    let mut wire = Wire::connect(server.address()).await;
    let headers = |length: &str| {
        let headers = [
            ("host", "localhost"),
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", length),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        Signer::new("test", NOW).headers("PUT", "/bucket/k", &headers, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    };
    for (body, length, status) in [
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", "5", 400), // another checksum
        ("5\r\nhello\r\n0\r\n\r\n", "5", 400),                                  // none
        (TRAILED, "6", 400),                                                    // another length
        ("5\r\nhel", "5", 400),                                                 // cut
        ("5 hello", "5", 400),                                                  // no framing
    ] {
        let refused = ask(&mut wire, "PUT", &headers(length), body.as_bytes()).await;
        assert_eq!(refused.status, status, "{body:?}: {refused:?}");
        stored(&mut wire).await.expect_code(404, "NoSuchKey");
    }
    let done = ask(&mut wire, "PUT", &headers("5"), TRAILED.as_bytes()).await.expect(200);
    assert_eq!(done.header("x-amz-checksum-crc32").as_deref(), Some("NhCmhg=="));
    let found = stored(&mut wire).await.expect(200);
    assert_eq!((found.text().as_str(), found.header("content-encoding")), ("hello", None));
}

fn streaming(length: usize, trailer: bool) -> Vec<(String, String)> {
    let length = length.to_string();
    let mut headers = vec![
        ("host", "localhost"),
        ("content-encoding", "aws-chunked,gzip"),
        ("x-amz-decoded-content-length", &length),
    ];
    let mut payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    if trailer {
        headers.push(("x-amz-trailer", "x-amz-checksum-crc32"));
        payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    }
    Signer::new("test", NOW).headers("PUT", "/bucket/k", &headers, payload)
}

#[tokio::test]
async fn signed_chunks_are_verified_one_by_one() {
    let server = strict().await;
    let mut wire = Wire::connect(server.address()).await;
    let signer = Signer::new("test", NOW);
    let body: Vec<u8> = (0..200_000_u32).map(|n| (n % 249) as u8).collect();
    let headers = streaming(body.len(), false);
    let (mut framed, _) = signer.chunks(&signature_of(&headers), &body, 64 * 1024);
    framed.extend_from_slice(b"\r\n");

    let mut forged = framed.clone();
    let at = forged.len() / 2;
    forged[at] ^= 1;
    ask(&mut wire, "PUT", &headers, &forged).await.expect_code(403, "SignatureDoesNotMatch");
    let (mut other_seed, _) = signer.chunks(&"0".repeat(64), &body, 64 * 1024);
    other_seed.extend_from_slice(b"\r\n");
    ask(&mut wire, "PUT", &headers, &other_seed).await.expect_code(403, "SignatureDoesNotMatch");
    stored(&mut wire).await.expect_code(404, "NoSuchKey");

    ask(&mut wire, "PUT", &headers, &framed).await.expect(200);
    let found = stored(&mut wire).await.expect(200);
    assert!(found.body == body, "{} bytes", found.body.len());
    assert_eq!(found.header("content-encoding").as_deref(), Some("gzip"));
}

#[tokio::test]
async fn a_signed_trailer_is_verified() {
    let server = strict().await;
    let mut wire = Wire::connect(server.address()).await;
    let signer = Signer::new("test", NOW);
    let headers = streaming(5, true);
    let (chunks, last) = signer.chunks(&signature_of(&headers), b"hello", 64 * 1024);
    let line = "x-amz-checksum-crc32:NhCmhg==";
    let signature = signer.trailer(&last, &format!("{line}\n"));
    let with = |line: &str, signature: &str| {
        let trailer = format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n\r\n");
        [chunks.clone(), trailer.into_bytes()].concat()
    };
    let forged = with(line, &"0".repeat(64));
    ask(&mut wire, "PUT", &headers, &forged).await.expect_code(403, "SignatureDoesNotMatch");
    let changed = with("x-amz-checksum-crc32:AAAAAA==", &signature);
    assert!(ask(&mut wire, "PUT", &headers, &changed).await.status >= 400);
    stored(&mut wire).await.expect_code(404, "NoSuchKey");
    ask(&mut wire, "PUT", &headers, &with(line, &signature)).await.expect(200);
    assert_eq!(stored(&mut wire).await.expect(200).text(), "hello");
}
