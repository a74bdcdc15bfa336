//! The AWS SDK for Rust as a client of the embedded server.

use assay_server::Server;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{Builder, Credentials, Region};

/// The SDK's own defaults, among them up to three attempts, for one server.
#[must_use]
pub fn defaults(server: &Server) -> Builder {
    aws_sdk_s3::Config::builder()
        .behavior_version_latest()
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(server.endpoint())
        .force_path_style(true)
        .region(Region::new(server.region().to_owned()))
        .credentials_provider(Credentials::new(server.access_key(), server.secret_key(), None, None, "test"))
}

/// A client with the SDK's defaults.
#[must_use]
pub fn client(server: &Server) -> Client {
    Client::from_conf(defaults(server).build())
}
