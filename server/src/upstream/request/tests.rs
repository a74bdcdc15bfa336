//! What becomes of a head.

use super::*;
use crate::auth::ChunkSigner;

/// A head as text: the request line, then its headers as they were given.
fn head(text: &str) -> Parts {
    let mut lines = text.lines();
    let (method, uri) = lines.next().unwrap().split_once(' ').unwrap();
    let mut request = http::Request::builder().method(method).uri(uri);
    for line in lines {
        let (name, value) = line.trim().split_once(": ").unwrap();
        request = request.header(name, value);
    }
    request.body(()).unwrap().into_parts().0
}

fn verified(payload: Payload) -> Verified {
    let chunk_signer: Option<ChunkSigner> = None;
    Verified { access_key: None, region: None, payload, chunk_signer, hoisted: Vec::new() }
}

fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap()
}

/// The head that goes on, in the form of [`head`] with its headers sorted, and what is said of its payload.
fn gone_on(text: &str, payload: Payload) -> (String, String, Framing) {
    let head = head(text);
    let address = Address::parse(&head, &["s3.test".to_owned()]).unwrap();
    let up = endpoint("http://up:9000");
    let onward = onward(&head, &address, &verified(payload), &up, Addressing::Path).unwrap();
    let mut lines: Vec<String> = onward
        .head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    let line = format!("{} {}", onward.head.method, onward.head.uri);
    ([vec![line], lines].concat().join("\n"), onward.payload.to_str().unwrap().to_owned(), onward.framing)
}

#[test]
fn every_header_but_those_named_goes_on() {
    let sent = "PUT /data/k?x-id=PutObject
        host: localhost:9000
        authorization: AWS4-HMAC-SHA256 Credential=…
        x-amz-date: 20261129T120000Z
        x-amz-content-sha256: UNSIGNED-PAYLOAD
        x-amz-security-token: theirs
        x-assay-fault: effect=drop
        x-assay-other: 1
        connection: keep-alive, x-hop
        keep-alive: timeout=5
        x-hop: 1
        te: trailers
        upgrade: h2c
        proxy-connection: keep-alive
        accept-encoding: gzip
        content-encoding: gzip
        content-length: 5
        content-md5: XUFAKrxLKna5cZ2REBfFkg==
        content-type: text/plain
        date: Sun, 29 Nov 2026 12:00:00 GMT
        expect: 100-continue
        if-none-match: *
        range: bytes=0-1
        user-agent: aws-cli/2
        x-amz-checksum-crc32: NhCmhg==
        x-amz-copy-source: data/a%20b
        x-amz-meta-a: one
        x-amz-meta-a: two
        x-amz-sdk-checksum-algorithm: CRC32
        x-forwarded-for: 10.0.0.1";
    let expected = "PUT /data/k?x-id=PutObject
accept-encoding: gzip
content-encoding: gzip
content-length: 5
content-md5: XUFAKrxLKna5cZ2REBfFkg==
content-type: text/plain
date: Sun, 29 Nov 2026 12:00:00 GMT
expect: 100-continue
host: up:9000
if-none-match: *
range: bytes=0-1
user-agent: aws-cli/2
x-amz-checksum-crc32: NhCmhg==
x-amz-copy-source: data/a%20b
x-amz-meta-a: one
x-amz-meta-a: two
x-amz-sdk-checksum-algorithm: CRC32
x-forwarded-for: 10.0.0.1";
    let (head, payload, framing) = gone_on(sent, Payload::Unsigned);
    assert_eq!(head, expected);
    assert_eq!((payload.as_str(), framing), ("UNSIGNED-PAYLOAD", Framing::AsItIs));
}

#[test]
fn what_is_said_of_the_payload() {
    let plain = "PUT /data/k\nhost: h\nauthorization: x\ncontent-length: 5";
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let (_, payload, framing) = gone_on(plain, Payload::Sha256(hash.to_owned()));
    assert_eq!((payload.as_str(), framing), (hash, Framing::AsItIs));
    let no_hash = verified(Payload::Sha256("STREAMING-SOMETHING".to_owned()));
    let head = head(plain);
    let address = Address::parse(&head, &[]).unwrap();
    let refused = onward(&head, &address, &no_hash, &endpoint("http://up"), Addressing::Path).unwrap_err();
    assert_eq!(refused.code, Code::XAmzContentSHA256Mismatch);

    let chunked = "PUT /data/k
        host: h
        authorization: x
        content-encoding: aws-chunked, gzip
        content-length: 500
        x-amz-decoded-content-length: 5";
    let trailed = &format!("{chunked}\n x-amz-trailer: x-amz-checksum-crc32");
    let streaming = |signed, trailer| Payload::Streaming { signed, trailer };
    let (head, payload, framing) = gone_on(chunked, streaming(true, false));
    assert_eq!(head, "PUT /data/k\ncontent-encoding: gzip\ncontent-length: 5\nhost: up:9000");
    assert_eq!((payload.as_str(), framing), ("UNSIGNED-PAYLOAD", Framing::Plain(5)));

    let (head, payload, framing) = gone_on(trailed, streaming(true, true));
    let expected = "PUT /data/k
content-encoding: aws-chunked, gzip
content-length: 46
host: up:9000
x-amz-decoded-content-length: 5
x-amz-trailer: x-amz-checksum-crc32";
    assert_eq!(head, expected);
    assert_eq!(payload, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_eq!(framing, Framing::Trailed(5, Algorithm::Crc32));

    let (head, payload, framing) = gone_on(trailed, streaming(false, true));
    assert_eq!(head, expected.replace("46", "500"));
    assert_eq!((payload.as_str(), framing), ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", Framing::AsItIs));
    let only = chunked.replace(", gzip", "");
    assert!(!gone_on(&only, streaming(true, false)).0.contains("content-encoding"));
}

#[test]
fn a_body_of_unknown_length_stays_one() {
    let sent = "PUT /data/k\nhost: h\nauthorization: x\ntransfer-encoding: chunked\ncontent-length: 5";
    assert_eq!(gone_on(sent, Payload::Unsigned).0, "PUT /data/k\nhost: up:9000");
}

#[test]
fn a_presigned_url_loses_its_signature_and_what_counts_as_a_header() {
    let v4 = "GET /data/k?response-content-type=a%2Fb&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=c&X-Amz-Date=d\
        &X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=s&X-Amz-Security-Token=t&x-amz-request-payer=requester\
        &x-amz-checksum-crc32=unsigned&x-id=GetObject
        host: h
        x-amz-request-payer: requester";
    let (head, ..) = gone_on(v4, Payload::Unsigned);
    let line = "GET /data/k?response-content-type=a%2Fb&x-amz-checksum-crc32=unsigned&x-id=GetObject";
    assert_eq!(head, format!("{line}\nhost: up:9000\nx-amz-request-payer: requester"));
    let v2 = "GET /data/k?AWSAccessKeyId=a&Signature=s%3D&Expires=1&versionId=2\nhost: h";
    assert_eq!(gone_on(v2, Payload::Unsigned).0, "GET /data/k?versionId=2\nhost: up:9000");
    let bare = "GET /data/k?AWSAccessKeyId=a&Signature=s&Expires=1\nhost: h";
    assert_eq!(gone_on(bare, Payload::Unsigned).0, "GET /data/k\nhost: up:9000");
    // With a signature in the header the query is as the client wants it.
    let signed = "GET /data/k?Expires=1\nhost: h\nauthorization: x";
    assert_eq!(gone_on(signed, Payload::Unsigned).0, "GET /data/k?Expires=1\nhost: up:9000");
}

#[test]
fn the_bucket_goes_where_the_upstream_looks_for_it() {
    for (uri, host, up, addressing, to, path) in [
        ("/data/a%20b//c", "h", "http://up:9000", Addressing::Path, "up:9000", "/data/a%20b//c"),
        ("/a/b", "data.s3.test", "http://up:9000", Addressing::Path, "up:9000", "/data/a/b"),
        ("/", "data.s3.test", "http://up/base", Addressing::Path, "up", "/base/data/"),
        ("/", "h", "https://up", Addressing::Path, "up", "/"),
        ("/data/a%2Fb?x", "h", "https://up", Addressing::Virtual, "data.up", "/a%2Fb?x"),
        ("/data", "h", "https://up", Addressing::Virtual, "data.up", "/"),
        ("/data?uploads", "h", "https://up/base", Addressing::Virtual, "data.up", "/base/?uploads"),
        ("/k", "data.s3.test:80", "https://up:8443", Addressing::Virtual, "data.up:8443", "/k"),
        ("/", "h", "https://up", Addressing::Virtual, "up", "/"),
    ] {
        let head = head(&format!("GET {uri}\nhost: {host}"));
        let address = Address::parse(&head, &["s3.test".to_owned()]).unwrap();
        let onward =
            onward(&head, &address, &verified(Payload::Unsigned), &endpoint(up), addressing).unwrap();
        assert_eq!(
            (onward.head.headers["host"].to_str().unwrap(), onward.head.uri.to_string().as_str()),
            (to, path)
        );
    }
}
