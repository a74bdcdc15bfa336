//! What passes: bodies byte for byte, whatever they are framed and signed as, and answers as they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::{Digest as _, Md5};

use crate::client::sign::{Signer, sha256, signature_of};
use crate::client::wire::Wire;
use crate::{NOW, Pair, proxy_to};

fn client() -> Signer {
    Signer::new("test", NOW)
}

fn as_str(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn body_of(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 249) as u8).collect()
}

/// CRC32 in base64, bit by bit: independent of the server's.
fn crc32(bytes: &[u8]) -> String {
    let crc = !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    });
    BASE64.encode(crc.to_be_bytes())
}

/// How a client sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Hash,
    Unsigned,
    UnsignedTrailer,
    SignedChunks,
    SignedTrailer,
    Presigned,
}

const FORMS: [Form; 6] = [
    Form::Hash,
    Form::Unsigned,
    Form::UnsignedTrailer,
    Form::SignedChunks,
    Form::SignedTrailer,
    Form::Presigned,
];

/// Path with query, headers and framed body of a PUT; the trailing checksum is `crc`.
fn put(form: Form, path: &str, body: &[u8], crc: &str) -> (String, Vec<(String, String)>, Vec<u8>) {
    let signer = client();
    let host = ("host", "localhost");
    let length = body.len().to_string();
    let framed =
        [host, ("content-encoding", "aws-chunked,gzip"), ("x-amz-decoded-content-length", length.as_str())];
    let trailed = [&framed[..], &[("x-amz-trailer", "x-amz-checksum-crc32")]].concat();
    let line = format!("x-amz-checksum-crc32:{crc}");
    let signed = |headers: &[(&str, &str)], payload: &str| signer.headers("PUT", path, headers, payload);
    match form {
        Form::Hash => (path.to_owned(), signed(&[host], &sha256(body)), body.to_vec()),
        Form::Unsigned => (path.to_owned(), signed(&[host], "UNSIGNED-PAYLOAD"), body.to_vec()),
        Form::UnsignedTrailer => {
            let headers = signed(&trailed, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
            let chunk = format!("{:x}\r\n", body.len()).into_bytes();
            let chunk = if body.is_empty() { Vec::new() } else { [&chunk, body, b"\r\n"].concat() };
            (path.to_owned(), headers, [chunk, format!("0\r\n{line}\r\n\r\n").into_bytes()].concat())
        }
        Form::SignedChunks => {
            let headers = signed(&framed, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
            let (mut chunks, _) = signer.chunks(&signature_of(&headers), body, 64 * 1024);
            chunks.extend_from_slice(b"\r\n");
            (path.to_owned(), headers, chunks)
        }
        Form::SignedTrailer => {
            let headers = signed(&trailed, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
            let (chunks, last) = signer.chunks(&signature_of(&headers), body, 80_000);
            let signature = signer.trailer(&last, &format!("{line}\n"));
            let trailer = format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n\r\n");
            (path.to_owned(), headers, [chunks, trailer.into_bytes()].concat())
        }
        Form::Presigned => {
            let query = signer.presigned("PUT", path, 60, &[]);
            (format!("{path}?{query}"), Vec::new(), body.to_vec())
        }
    }
}

#[tokio::test]
async fn every_form_of_a_body_arrives_byte_for_byte() {
    let mut pair = Pair::strict().await;
    for form in FORMS {
        for length in [0, 1, 200_000] {
            let body = body_of(length);
            let (path, headers, framed) = put(form, "/bucket/k", &body, &crc32(&body));
            let done = pair.ask("PUT", &path, &as_str(&headers), &framed).await.expect(200);
            let stored = pair.stored("/bucket/k").await.expect(200);
            assert!(stored.body == body, "{form:?} {length}: {} bytes", stored.body.len());
            assert_eq!(stored.etag(), done.etag(), "{form:?} {length}");
            let trailed = matches!(form, Form::UnsignedTrailer | Form::SignedTrailer);
            assert_eq!(done.header("x-amz-checksum-crc32"), trailed.then(|| crc32(&body)), "{form:?}");
            let coded = trailed || form == Form::SignedChunks;
            assert_eq!(stored.header("content-encoding").as_deref(), coded.then_some("gzip"), "{form:?}");
            let get = client().headers("GET", "/bucket/k", &[("host", "localhost")], "UNSIGNED-PAYLOAD");
            let read = pair.ask("GET", "/bucket/k", &as_str(&get), b"").await.expect(200);
            assert!(read.body == body && read.etag() == done.etag(), "{form:?} {length}");
        }
    }
    let get = client().presigned("GET", "/bucket/k", 60, &[]);
    assert_eq!(pair.ask("GET", &format!("/bucket/k?{get}"), &[], b"").await.expect(200).body.len(), 200_000);
}

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_is_stored_nowhere() {
    let mut pair = Pair::strict().await;
    let body = body_of(200_000);
    // The proxy says of a chunk what the upstream can't see; the upstream says the rest.
    for form in [Form::SignedChunks, Form::SignedTrailer] {
        for length in [0, 200_000] {
            let (path, headers, mut framed) =
                put(form, "/bucket/k", &body[..length], &crc32(&body[..length]));
            let at = framed.windows(11).rposition(|window| window == b";chunk-sign").unwrap() + 20;
            framed[at] = if framed[at] == b'0' { b'1' } else { b'0' };
            let refused = pair.ask("PUT", &path, &as_str(&headers), &framed).await;
            refused.expect_code(403, "SignatureDoesNotMatch");
        }
    }
    for form in [Form::UnsignedTrailer, Form::SignedTrailer] {
        let (path, headers, framed) = put(form, "/bucket/k", &body, &crc32(b"other"));
        pair.ask("PUT", &path, &as_str(&headers), &framed).await.expect_code(400, "BadDigest");
    }
    let (path, headers, _) = put(Form::Hash, "/bucket/k", &body, "");
    let other = vec![b'x'; body.len()];
    let refused = pair.ask("PUT", &path, &as_str(&headers), &other).await;
    refused.expect_code(400, "XAmzContentSHA256Mismatch");
    pair.stored("/bucket/k").await.expect_code(404, "NoSuchKey");
}

#[tokio::test]
async fn who_is_not_let_in_is_not_asked_for() {
    let mut pair = Pair::strict().await;
    let stranger = Signer::new("wrong", NOW);
    let headers = stranger.headers("PUT", "/bucket/k", &[("host", "localhost")], &sha256(b"v"));
    pair.ask("PUT", "/bucket/k", &as_str(&headers), b"v").await.expect_code(403, "SignatureDoesNotMatch");
    pair.ask("GET", "/nowhere/k", &[], b"").await.expect_code(403, "AccessDenied");
    assert_eq!(pair.provider.journal().last(), 0);
    assert_eq!(pair.proxy.journal().count(|record| record.status == Some(403)), 2);
}

#[tokio::test]
async fn what_the_upstream_refuses_comes_back_as_it_is() {
    let mut pair = Pair::open().await;
    let create = [("if-none-match", "*")];
    pair.ask("PUT", "/bucket/k", &create, b"one").await.expect(200);
    let conflict = "key=busy effect=refuse code=ConditionalRequestConflict";
    let _busy = pair.provider.fault(conflict.parse().unwrap()).unwrap();
    let long = format!("/bucket/{}", "k".repeat(1025));
    for (method, path, headers, status, code) in [
        ("PUT", "/bucket/k", &create[..], 412, "PreconditionFailed"),
        ("PUT", "/bucket/k", &[("if-match", "\"0\"")], 412, "PreconditionFailed"),
        ("PUT", "/bucket/busy", &create, 409, "ConditionalRequestConflict"),
        ("GET", "/bucket/k?acl", &[], 501, "NotImplemented"),
        ("GET", "/bucket/none", &[], 404, "NoSuchKey"),
        ("GET", "/nowhere/k", &[], 404, "NoSuchBucket"),
        ("PUT", "/B_ad", &[], 400, "InvalidBucketName"),
        ("PUT", &long, &[], 400, "KeyTooLongError"),
        ("PATCH", "/bucket/k", &[], 405, "MethodNotAllowed"),
    ] {
        let answer = pair.ask(method, path, headers, b"").await.expect_code(status, code);
        // The document and its ids are the provider's, and the proxy's journal has the same id.
        let id = answer.header("x-amz-request-id").unwrap();
        assert_eq!(answer.only("RequestId"), id, "{path}");
        for journal in [pair.provider.journal(), pair.proxy.journal()] {
            let found = journal.filter(|record| record.id == id);
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!(found[0].status, Some(status), "{path}");
        }
    }
    let unchanged = pair.ask("GET", "/bucket/k", &create, b"").await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let head = pair.ask("HEAD", "/bucket/k", &[], b"").await.expect(200);
    assert_eq!(head.header("content-length").as_deref(), Some("3"));
    let part = pair.ask("GET", "/bucket/k", &[("range", "bytes=1-")], b"").await.expect(206);
    assert_eq!((part.text().as_str(), part.header("content-range").as_deref()), ("ne", Some("bytes 1-2/3")));
}

#[tokio::test]
async fn a_multipart_upload_and_everything_around_it() {
    let mut pair = Pair::open().await;
    let begun = pair.ask("POST", "/bucket/a%20b/%E2%82%AC?uploads", &[("x-amz-meta-a", "1")], b"").await;
    let id = begun.expect(200).only("UploadId");
    let parts = [body_of(5 * 1024 * 1024), body_of(100)];
    let mut list = String::new();
    for (number, part) in (1..).zip(&parts) {
        let path = format!("/bucket/a%20b/%E2%82%AC?partNumber={number}&uploadId={id}");
        let etag = pair.ask("PUT", &path, &[], part).await.expect(200).etag();
        list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    let document = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let path = format!("/bucket/a%20b/%E2%82%AC?uploadId={id}");
    let done = pair.ask("POST", &path, &[], document.as_bytes()).await.expect(200);
    assert!(done.only("ETag").contains("-2"), "{}", done.text());
    let stored = pair.stored("/bucket/a%20b/%E2%82%AC").await.expect(200);
    assert!(stored.body == parts.concat() && stored.header("x-amz-meta-a").as_deref() == Some("1"));
    let copy = [("x-amz-copy-source", "bucket/a%20b/%E2%82%AC")];
    pair.ask("PUT", "/bucket/copy", &copy, b"").await.expect(200);
    let listed = pair.ask("GET", "/bucket?list-type=2&prefix=a%20b%2F", &[], b"").await.expect(200);
    assert_eq!(listed.all("Contents/Key"), ["a b/€"]);
    let delete = "<Delete><Object><Key>copy</Key></Object></Delete>";
    let md5 = BASE64.encode(Md5::digest(delete));
    let deleted = pair.ask("POST", "/bucket?delete", &[("content-md5", &md5)], delete.as_bytes()).await;
    assert_eq!(deleted.expect(200).all("Deleted/Key"), ["copy"]);
    let operations = |server: &assay_server::Server| -> Vec<_> {
        server
            .journal()
            .filter(|_| true)
            .iter()
            .map(|record| (record.operation, record.key.clone()))
            .collect()
    };
    let (here, there) = (operations(&pair.proxy), operations(&pair.provider));
    assert!(here.iter().all(|entry| there.contains(entry)), "{here:?} {there:?}");
    assert_eq!(here[0], (Some("CreateMultipartUpload"), Some("a b/€".to_owned())));
}

#[tokio::test]
async fn hosts_that_name_buckets_and_a_proxy_in_front_of_a_proxy() {
    let pair = Pair::open().await;
    let second = proxy_to(&pair.proxy.endpoint().replace("127.0.0.1", "localhost")).await;
    let mut wire = Wire::connect(second.address()).await;
    wire.ask("PUT", "/bucket/twice", &[], b"passed on").await.expect(200);
    assert_eq!(pair.stored("/bucket/twice").await.expect(200).text(), "passed on");
    assert_eq!(pair.proxy.journal().last(), 1);
}
