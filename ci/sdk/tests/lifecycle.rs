//! A lifecycle rule that aborts uploads, as the AWS SDK for Rust sets it and meets it.

use assay_sdk::client;
use assay_server::{AuthMode, Server};
use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus, LifecycleRule,
    LifecycleRuleFilter,
};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

async fn abort_after(s3: &Client, prefix: &str, days: i32) {
    let rule = LifecycleRule::builder()
        .id("abandoned")
        .filter(LifecycleRuleFilter::builder().prefix(prefix).build())
        .status(ExpirationStatus::Enabled)
        .abort_incomplete_multipart_upload(
            AbortIncompleteMultipartUpload::builder().days_after_initiation(days).build(),
        )
        .build()
        .unwrap();
    let rules = BucketLifecycleConfiguration::builder().rules(rule).build().unwrap();
    let put = s3.put_bucket_lifecycle_configuration().bucket("data").lifecycle_configuration(rules);
    put.send().await.unwrap();
}

#[tokio::test]
async fn an_abandoned_upload_is_announced_and_aborted() {
    // The client's clock does not run along, and its signatures would be too old.
    let server = Server::builder().bucket("data").auth(AuthMode::None).start().await.unwrap();
    let s3 = client(&server);
    abort_after(&s3, "staging/", 2).await;
    let told = s3.get_bucket_lifecycle_configuration().bucket("data").send().await.unwrap();
    let [rule] = told.rules() else { panic!("{told:?}") };
    assert_eq!(rule.abort_incomplete_multipart_upload().unwrap().days_after_initiation(), Some(2));

    let begun = s3.create_multipart_upload().bucket("data").key("staging/a").send().await.unwrap();
    assert_eq!(begun.abort_rule_id(), Some("abandoned"));
    let id = begun.upload_id().unwrap();
    let part = s3.upload_part().bucket("data").key("staging/a").upload_id(id).part_number(1);
    part.body(ByteStream::from_static(b"part")).send().await.unwrap();
    let listed = s3.list_parts().bucket("data").key("staging/a").upload_id(id).send().await.unwrap();
    assert_eq!((listed.abort_date(), listed.parts().len()), (begun.abort_date(), 1));
    let other = s3.create_multipart_upload().bucket("data").key("elsewhere").send().await.unwrap();
    assert_eq!((other.abort_date(), other.abort_rule_id()), (None, None));

    let due_ms = begun.abort_date().unwrap().to_millis().unwrap();
    assert_eq!(due_ms % DAY_MS, 0, "a midnight");
    server.set_clock_offset_ms(3 * DAY_MS);
    let lost = s3.list_parts().bucket("data").key("staging/a").upload_id(id).send().await.unwrap_err();
    assert_eq!(lost.into_service_error().code(), Some("NoSuchUpload"));
    let open = s3.list_multipart_uploads().bucket("data").send().await.unwrap();
    let keys: Vec<_> = open.uploads().iter().filter_map(|upload| upload.key()).collect();
    assert_eq!(keys, ["elsewhere"]);

    s3.delete_bucket_lifecycle().bucket("data").send().await.unwrap();
    let none = s3.get_bucket_lifecycle_configuration().bucket("data").send().await.unwrap_err();
    assert_eq!(none.into_service_error().code(), Some("NoSuchLifecycleConfiguration"));
}
