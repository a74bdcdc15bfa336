//! The situations in Python, against a server of this process. Their first run makes the virtual environment that
//! boto3 is installed in.

use std::time::Duration;

use assay_server::Server;
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use tokio::process::Command;

use super::page::in_python;

/// An installation takes most of it; the situations themselves take ten seconds.
const LIMIT: Duration = Duration::from_secs(280);

#[tokio::test]
async fn every_situation_in_python() {
    let server = Server::builder().bucket("data").bucket("versions").start().await.unwrap();
    let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    let s3 = assay_sdk::client(&server);
    s3.put_bucket_versioning().bucket("versions").versioning_configuration(enabled).send().await.unwrap();
    let racing = "race-create-put=4000".parse().unwrap();
    let racing = Server::builder().bucket("data").deviation(racing).start().await.unwrap();
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../python/cookbook"));
    script.env("ASSAY_ENDPOINT", server.endpoint()).kill_on_drop(true);
    script.env("ASSAY_ACCESS_KEY", server.access_key()).env("ASSAY_SECRET_KEY", server.secret_key());
    script.env("ASSAY_RACING_ENDPOINT", racing.endpoint());
    let output = tokio::time::timeout(LIMIT, script.output()).await.expect("in time").unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let ran: Vec<_> = printed.lines().take_while(|line| !line.contains('|')).collect();
    assert_eq!(ran, in_python(), "{printed}");
    server.assert_all_faults_fired().unwrap();
}
