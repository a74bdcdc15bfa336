//! Who is let in, what one who is not learns, and for which region's endpoint the server answers.

mod client;

use assay_server::AuthMode;
use client::{On, Rig};

async fn strict() -> Rig {
    Rig::with(On::Memory, |builder| builder.auth(AuthMode::Strict)).await
}

#[tokio::test]
async fn an_anonymous_request_learns_only_that_a_bucket_is_not_there() {
    let rig = strict().await;
    for (method, target, status, code) in [
        ("GET", "/nowhere", 404, "NoSuchBucket"),
        ("GET", "/nowhere/k", 404, "NoSuchBucket"),
        ("GET", "/bucket", 403, "AccessDenied"),
        ("GET", "/bucket/k", 403, "AccessDenied"),
        ("GET", "/bucket?acl", 403, "AccessDenied"),
        ("GET", "/", 403, "AccessDenied"),
    ] {
        let answer = rig.call(method, target).await.expect(status);
        assert_eq!(answer.code(), code, "{method} {target}");
    }
}

#[tokio::test]
async fn a_signature_is_checked_before_the_names_are() {
    let rig = strict().await;
    assert_eq!(rig.call("GET", "/%2Fbucket/k").await.code(), "AccessDenied");
    let open = Rig::new(On::Memory).await;
    assert_eq!(open.call("GET", "/%2Fbucket/k").await.code(), "InvalidBucketName");
}

#[tokio::test]
async fn an_operation_that_is_not_there_is_refused_by_name() {
    let rig = strict().await;
    for (method, target, operation) in
        [("POST", "/bucket", "PostObject"), ("OPTIONS", "/nowhere/k", "CORSPreflight")]
    {
        assert_eq!(rig.call(method, target).await.expect(501).only("Operation"), operation);
    }
    let open = Rig::new(On::Memory).await;
    assert_eq!(open.call("GET", "?policy").await.expect(501).only("Operation"), "GetBucketPolicy");
    assert_eq!(open.call("GET", "/nowhere?policy").await.expect(404).code(), "NoSuchBucket");
    let owner = [("x-amz-expected-bucket-owner", "abcd")];
    let answer = open.send("GET", "?policy", &owner, "").await.expect(400);
    assert_eq!(answer.code(), "InvalidBucketOwnerAWSAccountID");
}

#[tokio::test]
async fn one_endpoint_can_stand_for_those_of_all_regions() {
    let rig = Rig::with(On::Memory, |builder| builder.auth(AuthMode::Any).any_region(true)).await;
    let create = async |bucket: &str, signed_for: &str, location: &str| {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=test/20261129/{signed_for}/s3/aws4_request,SignedHeaders=host,Signature=0"
        );
        let document = format!(
            "<CreateBucketConfiguration><LocationConstraint>{location}</LocationConstraint></CreateBucketConfiguration>"
        );
        rig.send("PUT", bucket, &[("authorization", &authorization)], document).await
    };
    create("/one", "us-west-2", "us-west-2").await.expect(200);
    let refused = create("/two", "us-west-2", "us-east-2").await.expect(400);
    assert_eq!(refused.code(), "IllegalLocationConstraintException");
    create("/three", "us-east-1", "EU").await.expect(200);
    let signed = [(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=test/20261129/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=0",
    )];
    let list = rig.send("GET", "/one?list-type=2", &signed, "").await.expect(200);
    assert_eq!(list.header("x-amz-bucket-region").as_deref(), Some("us-west-2"));
    let location = rig.send("GET", "/three?location", &signed, "").await.expect(200).text();
    assert!(location.contains(">EU</LocationConstraint>"), "{location}");
    let buckets = rig.send("GET", "/?prefix=", &signed, "").await.expect(200);
    assert_eq!(buckets.all("Buckets/Bucket/BucketRegion"), ["us-east-1", "us-west-2", "eu-west-1"]);
    let plain = rig.send("GET", "/", &signed, "").await.expect(200);
    assert_eq!(plain.all("Buckets/Bucket/Name"), ["bucket", "one", "three"]);
    assert!(plain.all("Buckets/Bucket/BucketRegion").is_empty());
}
