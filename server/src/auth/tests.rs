use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::*;

const NOW: OffsetDateTime = datetime!(2013-05-24 00:00:00 UTC);
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The keys of AWS's documentation, and those with which botocore signed.
fn keys() -> Keys {
    Keys::new([
        ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("assay", "s3cr3t/+key"),
    ])
}

/// A head from `METHOD TARGET` and a line for each header.
fn parts(text: &str) -> Parts {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (method, target) = lines.next().and_then(|line| line.split_once(' ')).expect("a request line");
    let mut request = http::Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(':').expect("a header");
        request = request.header(name, HeaderValue::from_bytes(value.trim().as_bytes()).expect("a value"));
    }
    request.body(()).expect("a valid head").into_parts().0
}

fn ask(text: &str, mode: AuthMode, now: OffsetDateTime) -> Result<Verified, S3Error> {
    let keys = keys();
    let host_bucket = text.contains("host: bucket.").then_some("bucket");
    let other_regions = &["us-west-2"];
    verify(
        &parts(text),
        &Context { keys: &keys, mode, region: Some("us-east-1"), other_regions, host_bucket, now },
    )
}

/// The answer in words: whose key, or code, message and elements of the refusal.
fn answer(text: &str, mode: AuthMode, now: OffsetDateTime) -> String {
    match ask(text, mode, now) {
        Ok(verified) => format!("ok {}", verified.access_key.as_deref().unwrap_or("anonymous")),
        Err(error) => {
            let elements: Vec<String> = error.extra.iter().map(|(n, v)| format!("\n{n}={v}")).collect();
            format!("{} {}: {}{}", error.code.status(), error.code.as_str(), error.message, elements.concat())
        }
    }
}

fn strict(text: &str) -> String {
    answer(text, AuthMode::Strict, NOW)
}

/// AWS's own examples, "Examples: Signature Calculations" and "Query Parameters".
fn published() -> Vec<(&'static str, String)> {
    let get = |target: &str, sha256: &str, more: &str, names: &str, signature: &str| {
        format!(
            "GET {target}
            host: examplebucket.s3.amazonaws.com
            x-amz-date: 20130524T000000Z
            x-amz-content-sha256: {sha256}
            {more}
            authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders={names},Signature={signature}"
        )
    };
    vec![
        (
            "GET object",
            get(
                "/test.txt",
                EMPTY,
                "range: bytes=0-9",
                "host;range;x-amz-content-sha256;x-amz-date",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ),
        (
            "PUT object",
            get(
                "/test%24file.text",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
                "date: Fri, 24 May 2013 00:00:00 GMT\nx-amz-storage-class: REDUCED_REDUNDANCY",
                "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            )
            .replace("GET", "PUT"),
        ),
        (
            "GET bucket lifecycle",
            get(
                "/?lifecycle",
                EMPTY,
                "",
                "host;x-amz-content-sha256;x-amz-date",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
        ),
        (
            "list objects",
            get(
                "/?max-keys=2&prefix=J",
                EMPTY,
                "",
                "host;x-amz-content-sha256;x-amz-date",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ),
        (
            "chunked PUT",
            "PUT /examplebucket/chunkObject.txt
            host: s3.amazonaws.com
            x-amz-date: 20130524T000000Z
            x-amz-storage-class: REDUCED_REDUNDANCY
            x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD
            content-encoding: aws-chunked
            x-amz-decoded-content-length: 66560
            content-length: 66824
            authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
                .to_owned(),
        ),
        ("presigned GET", PRESIGNED.to_owned()),
    ]
}

const PRESIGNED: &str = "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404
    host: examplebucket.s3.amazonaws.com";

#[test]
fn requests_published_by_aws_are_let_in_and_nothing_else_is() {
    for (name, text) in published() {
        assert_eq!(strict(&text), "ok AKIAIOSFODNN7EXAMPLE", "{name}");
        assert_eq!(
            strict(&text.replace(".com", ".com:443")),
            "ok AKIAIOSFODNN7EXAMPLE",
            "{name}: default port"
        );
        for (wrong, instead) in [("AKIAIOSFODNN7EXAMPLE", "assay"), ("host: ", "host: x"), (" /", " /x")] {
            let answer = strict(&text.replace(wrong, instead));
            assert!(answer.starts_with("403 SignatureDoesNotMatch"), "{name} with {instead}: {answer}");
        }
        let cut = &text[..text.len() - 1];
        assert_eq!(answer(cut, AuthMode::Any, NOW), "ok AKIAIOSFODNN7EXAMPLE", "{name}: any signature");
        assert!(!answer(cut, AuthMode::Strict, NOW).starts_with("ok"), "{name}: a signature cut short");
    }
}

#[test]
fn requests_signed_by_botocore_are_let_in() {
    let file = include_str!("botocore.txt");
    let mut count = 0;
    for case in file.split("# ").filter(|case| !case.is_empty()) {
        let (name, text) = case.split_once('\n').expect("a name and a head");
        let now = if name.ends_with("(common runtime)") {
            datetime!(2026-11-29 19:52:38 UTC)
        } else {
            datetime!(2026-03-04 05:06:07 UTC)
        };
        assert_eq!(answer(text, AuthMode::Strict, now), "ok assay", "{name}");
        assert_eq!(answer(text, AuthMode::Any, NOW), "ok assay", "{name}");
        let (line, rest) = text.split_once('\n').expect("a request line");
        let other = format!("{}\n{rest}", line.replacen(" /", " /z", 1));
        let refused = answer(&other, AuthMode::Strict, now);
        assert!(refused.starts_with("403 SignatureDoesNotMatch"), "{name} with another path: {refused}");
        count += 1;
    }
    assert_eq!(count, 22);
}

#[test]
fn a_wrong_signature_is_answered_with_everything_that_was_signed() {
    let text = PRESIGNED.replace("404\n", "405\n");
    let answer = strict(&text);
    let expected = "403 SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method.
AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE
StringToSign=AWS4-HMAC-SHA256
20130524T000000Z
20130524/us-east-1/s3/aws4_request
3bfa292879f6447bbcda7001decf97f4a54dc650c8942174ae0a9121cf58ad04
SignatureProvided=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d405
StringToSignBytes=41 57 53 34 2d";
    assert!(answer.starts_with(expected), "{answer}");
    let (_, canonical) = answer.split_once("CanonicalRequest=").expect("the canonical request");
    let expected = "GET
/test.txt
X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host
host:examplebucket.s3.amazonaws.com

host
UNSIGNED-PAYLOAD
CanonicalRequestBytes=47 45 54 0a 2f 74";
    assert!(canonical.starts_with(expected), "{canonical}");
}

#[test]
fn a_wrong_version_2_signature_shows_no_canonical_request() {
    let text =
        "GET /bucket/k?AWSAccessKeyId=assay&Signature=AAAA+bbb&Expires=1369353601&versionId=v%2B1\nhost: h";
    let expected = "403 SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method.
AWSAccessKeyId=assay
StringToSign=GET


1369353601
/bucket/k?versionId=v+1
SignatureProvided=AAAA+bbb
StringToSignBytes=47 45 54 0a 0a 0a 31 33 36 39 33 35 33 36 30 31 0a 2f 62 75 63 6b 65 74 2f 6b 3f 76 65 72 73 69 6f 6e 49 64 3d 76 2b 31";
    assert_eq!(strict(text), expected);
}

/// A head with header authentication whose parts can be replaced before anything verifies the signature.
fn signed_get() -> String {
    published().swap_remove(0).1
}

#[test]
fn faults_in_the_authorization_header_are_named() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(signed_get().contains(from), "{from}");
        assert_eq!(strict(&signed_get().replace(from, to)), expected, "{from} -> {to}");
    };
    let malformed = "400 AuthorizationHeaderMalformed: The authorization header is malformed; ";
    check(
        "Signature=",
        "Sig=",
        &format!(
            "{malformed}the authorization header requires three components: Credential, SignedHeaders, and Signature."
        ),
    );
    check(
        "/s3/aws4_request",
        "/aws4_request",
        &format!(
            "{malformed}the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
        ),
    );
    check(
        "aws4_request",
        "aws5_request",
        &format!("{malformed}incorrect terminal \"aws5_request\". This endpoint uses \"aws4_request\"."),
    );
    check(
        "/s3/",
        "/ec2/",
        &format!("{malformed}incorrect service \"ec2\". This endpoint belongs to \"s3\"."),
    );
    check(
        "us-east-1",
        "aws-global",
        &format!("{malformed}the region 'aws-global' is wrong; expecting 'us-east-1'\nRegion=us-east-1"),
    );
    check(
        "/20130524/",
        "/20130523/",
        &format!(
            "{malformed}Invalid credential date \"20130523\". This date is not the same as X-Amz-Date: \"20130524\"."
        ),
    );
    check(
        "AKIAIOSFODNN7EXAMPLE",
        "nobody",
        "403 InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records.\nAWSAccessKeyId=nobody",
    );
    check(
        "x-amz-date: 2013",
        "x-amz-date: x",
        "403 AccessDenied: AWS authentication requires a valid Date or x-amz-date header",
    );
    check(
        "range: bytes",
        "x-amz-meta-b: 1\nx-amz-meta-a: 1\nrange: bytes",
        "403 AccessDenied: There were headers present in the request which were not signed\nHeadersNotSigned=x-amz-meta-a, x-amz-meta-b",
    );
    check(
        &format!("x-amz-content-sha256: {EMPTY}"),
        "",
        "400 InvalidRequest: Missing required header for this request: x-amz-content-sha256",
    );
    check(
        EMPTY,
        "unsigned-payload",
        "400 InvalidArgument: x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid sha256 value.\nArgumentName=x-amz-content-sha256\nArgumentValue=unsigned-payload",
    );
    check(
        "AWS4-HMAC-SHA256 Credential",
        "Bearer Credential",
        &format!(
            "400 InvalidArgument: Unsupported Authorization Type\nArgumentName=Authorization\nArgumentValue=Bearer {}",
            signed_get().rsplit_once("SHA256 ").expect("an algorithm").1
        ),
    );
}

#[test]
fn a_clock_may_be_fifteen_minutes_off() {
    for off in [Duration::minutes(15), Duration::minutes(-15)] {
        assert_eq!(answer(&signed_get(), AuthMode::Strict, NOW + off), "ok AKIAIOSFODNN7EXAMPLE");
    }
    let expected =
        "403 RequestTimeTooSkewed: The difference between the request time and the current time is too large.
RequestTime=20130524T000000Z
ServerTime=2013-05-24T00:15:01Z
MaxAllowedSkewMilliseconds=900000";
    assert_eq!(answer(&signed_get(), AuthMode::Strict, NOW + Duration::seconds(901)), expected);
    assert!(answer(&signed_get(), AuthMode::Strict, NOW - Duration::seconds(901)).contains("TooSkewed"));
}

#[test]
fn faults_in_presigned_urls_are_named() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(PRESIGNED.contains(from), "{from}");
        assert_eq!(strict(&PRESIGNED.replace(from, to)), expected, "{from} -> {to}");
    };
    let fault = "400 AuthorizationQueryParametersError: ";
    let missing = format!(
        "{fault}Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    );
    check("X-Amz-Date=20130524T000000Z&", "", &missing);
    check("X-Amz-Expires=86400", "X-Amz-Expires=", &missing);
    check(
        "%2F",
        "%252F",
        &format!(
            "{fault}Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
        ),
    );
    check(
        "us-east-1",
        "eu-west-1",
        &format!(
            "{fault}Error parsing the X-Amz-Credential parameter; the region 'eu-west-1' is wrong; expecting 'us-east-1'\nRegion=us-east-1"
        ),
    );
    check(
        "E%2F20130524",
        "E%2Fnot-a-date",
        &format!(
            "{fault}Invalid credential date \"not-a-date\". This date is not the same as X-Amz-Date: \"20130524\"."
        ),
    );
    check(
        "AWS4-HMAC-SHA256",
        "AWS4",
        &format!("{fault}X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256\""),
    );
    check(
        "000000Z",
        "0000Z",
        &format!("{fault}X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""),
    );
    check("=86400", "=soon", &format!("{fault}X-Amz-Expires should be a number"));
    check("=86400", "=-1", &format!("{fault}X-Amz-Expires must be non-negative"));
    check(
        "=86400",
        "=604801",
        &format!(
            "{fault}X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds"
        ),
    );
    check(
        "host: ",
        "x-amz-expires: 5\nhost: ",
        "403 AccessDenied: There were headers present in the request which were not signed\nHeadersNotSigned=x-amz-expires",
    );
    check(
        "host: ",
        "authorization: AWS4-HMAC-SHA256 x\nhost: ",
        "400 InvalidArgument: Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified\nArgumentName=Authorization\nArgumentValue=AWS4-HMAC-SHA256 x",
    );
    assert_eq!(
        strict(&format!("{PRESIGNED}\ncontent-type: text/plain")),
        "ok AKIAIOSFODNN7EXAMPLE",
        "an unsigned header that is not x-amz-*"
    );
}

#[test]
fn presigned_urls_expire() {
    let day = Duration::days(1);
    assert_eq!(answer(PRESIGNED, AuthMode::Strict, NOW + day), "ok AKIAIOSFODNN7EXAMPLE");
    let expired = "403 AccessDenied: Request has expired
X-Amz-Expires=86400
Expires=2013-05-25T00:00:00Z
ServerTime=2013-05-25T00:00:01Z";
    assert_eq!(answer(PRESIGNED, AuthMode::Strict, NOW + day + Duration::seconds(1)), expired);
    assert_eq!(answer(PRESIGNED, AuthMode::Any, NOW + day * 9), "ok AKIAIOSFODNN7EXAMPLE");
    let early = answer(PRESIGNED, AuthMode::Strict, NOW - Duration::minutes(16));
    assert!(early.starts_with("403 AccessDenied: Request is not yet valid"), "{early}");

    let version_2 = "GET /k?AWSAccessKeyId=assay&Signature=x&Expires=1369353600\nhost: h";
    let expired = "403 AccessDenied: Request has expired\nExpires=2013-05-24T00:00:00Z\nServerTime=2013-05-24T00:00:01Z";
    assert_eq!(answer(version_2, AuthMode::Strict, NOW + Duration::seconds(1)), expired);
}

#[test]
fn version_2_faults_are_named() {
    let check = |text: &str, expected: &str| assert_eq!(strict(text), expected, "{text}");
    check(
        "GET /k?AWSAccessKeyId=assay&Signature=x\nhost: h",
        "403 AccessDenied: Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters",
    );
    check(
        "GET /k?AWSAccessKeyId=nobody&Signature=x&Expires=1369353601\nhost: h",
        "403 InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records.\nAWSAccessKeyId=nobody",
    );
    check(
        "GET /k\nhost: h\nauthorization: AWS assay:x",
        "403 AccessDenied: AWS authentication requires a valid Date or x-amz-date header",
    );
    check(
        "GET /k\nhost: h\nauthorization: AWS assay",
        "400 InvalidArgument: AWS authorization header is invalid.  Expected AwsAccessKeyId:signature\nArgumentName=Authorization\nArgumentValue=AWS assay",
    );
    check(
        "GET /k\nhost: h\ndate: Fri, 24 May 2013 00:16:00 GMT\nauthorization: AWS assay:x",
        "403 RequestTimeTooSkewed: The difference between the request time and the current time is too large.\nRequestTime=Fri, 24 May 2013 00:16:00 GMT\nServerTime=2013-05-24T00:00:00Z\nMaxAllowedSkewMilliseconds=900000",
    );
}

#[test]
fn the_modes_differ_in_what_they_look_at() {
    let anonymous = "GET /k\nhost: h";
    assert_eq!(answer(anonymous, AuthMode::Strict, NOW), "403 AccessDenied: Access Denied");
    assert_eq!(answer(anonymous, AuthMode::Any, NOW), "403 AccessDenied: Access Denied");
    assert_eq!(answer(anonymous, AuthMode::None, NOW), "ok anonymous");
    let nonsense = "GET /k\nhost: h\nauthorization: Bearer x";
    assert!(answer(nonsense, AuthMode::Any, NOW).starts_with("400 InvalidArgument"));
    assert_eq!(answer(nonsense, AuthMode::None, NOW), "ok anonymous");
    let stranger = signed_get().replace("AKIAIOSFODNN7EXAMPLE", "stranger");
    assert_eq!(answer(&stranger, AuthMode::Any, NOW), "ok stranger");
    assert_eq!(answer(&stranger, AuthMode::None, NOW), "ok stranger");
}

#[test]
fn the_payload_is_read_as_the_mode_allows() {
    let payload = |text: &str, mode: AuthMode| ask(text, mode, NOW).expect("let in").payload;
    let streaming = |signed, trailer| Payload::Streaming { signed, trailer };
    let chunked = published().swap_remove(4).1;
    assert_eq!(payload(&chunked, AuthMode::Strict), streaming(true, false));
    assert!(ask(&chunked, AuthMode::Strict, NOW).expect("let in").chunk_signer.is_some());
    assert!(ask(&chunked, AuthMode::Any, NOW).expect("let in").chunk_signer.is_none());
    assert_eq!(payload(&signed_get(), AuthMode::Strict), Payload::Sha256(EMPTY.to_owned()));
    assert_eq!(payload(PRESIGNED, AuthMode::Strict), Payload::Unsigned);
    let sent = "PUT /k\nhost: h\ncontent-encoding: gzip, aws-chunked\nx-amz-decoded-content-length: 5";
    assert_eq!(payload(sent, AuthMode::None), streaming(false, true));
    let sent = "PUT /k\nhost: h\nx-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    assert_eq!(payload(sent, AuthMode::None), streaming(true, true));
    // A presigned request's body is not decoded by S3.
    let streamed = format!("{PRESIGNED}\nx-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_eq!(payload(&streamed, AuthMode::Any), streaming(false, true));
    assert!(strict(&streamed).contains("\nSTREAMING-UNSIGNED-PAYLOAD-TRAILER\n"), "it is what is signed");
}

#[test]
fn headers_that_stand_in_the_query_are_handed_on() {
    let hoisted = |text: &str| {
        let verified = ask(text, AuthMode::None, NOW).expect("let in");
        let mut names: Vec<String> = verified
            .hoisted
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap_or("?")))
            .collect();
        names.sort();
        names.join(" ")
    };
    let four = PRESIGNED.replace(
        "/test.txt?",
        "/k?x-amz-meta-foo=b%20c&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32&If-None-Match=%2A&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&content-type=a&partNumber=1&",
    );
    assert_eq!(hoisted(&four), "if-none-match=* x-amz-meta-foo=b c");
    assert_eq!(hoisted(&format!("{four}\nx-amz-meta-foo: sent")), "if-none-match=*");
    let signed = four.replace("SignedHeaders=host", "SignedHeaders=host%3Bx-amz-checksum-crc32");
    assert_eq!(hoisted(&signed), "if-none-match=* x-amz-checksum-crc32=AAAAAA== x-amz-meta-foo=b c");
    let two = "PUT /k?AWSAccessKeyId=assay&Signature=x&Expires=1&x-amz-meta-foo=b&content-type=t&versionId=1\nhost: h";
    assert_eq!(hoisted(two), "content-type=t x-amz-meta-foo=b");
}

#[test]
fn a_further_region_is_as_good_as_the_first_and_is_remembered() {
    let scoped = |region: &str| {
        format!(
            "GET /
            host: s3.test
            x-amz-date: 20130524T000000Z
            x-amz-content-sha256: UNSIGNED-PAYLOAD
            authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/{region}/s3/aws4_request,SignedHeaders=host;x-amz-date,Signature=00"
        )
    };
    assert!(strict(&scoped("us-west-2")).starts_with("403 SignatureDoesNotMatch"));
    assert!(strict(&scoped("aws-global")).starts_with("400 AuthorizationHeaderMalformed"));
    let verified = ask(&scoped("us-west-2"), AuthMode::Any, NOW).expect("nothing is checked");
    assert_eq!(verified.region.as_deref(), Some("us-west-2"));
}
