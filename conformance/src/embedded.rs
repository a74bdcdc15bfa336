//! Starts the server of this project for one run.

use crate::target::{DEFAULT_REGION, Provider};
use assay_checks::{Addressing, Credentials, Endpoint};
use assay_server::{Builder, Server};

/// The bucket that the embedded server has from the start.
pub const BUCKET: &str = "certify";

/// Starts it on a free port of loopback, in memory. It ends when the handle is dropped.
///
/// # Errors
/// What kept it from starting.
pub async fn start() -> Result<(Server, Provider), String> {
    start_as(Server::builder()).await
}

/// Starts one that is built otherwise; bucket and region are those of every run.
///
/// # Errors
/// What kept it from starting.
pub async fn start_as(builder: Builder) -> Result<(Server, Provider), String> {
    let server = builder.bucket(BUCKET).region(DEFAULT_REGION).start().await;
    let server = server.map_err(|why| format!("the embedded server does not start: {why}"))?;
    let endpoint = Endpoint::parse(server.endpoint())?;
    let provider = Provider {
        // One process with one address: what two endpoints must agree on, two of its connections must too.
        endpoint_2: Some(endpoint.clone()),
        endpoint,
        versioned_bucket: None,
        addressing: Addressing::Path,
        bucket: BUCKET.to_owned(),
        region: server.region().to_owned(),
        credentials: Credentials {
            access_key: server.access_key().to_owned(),
            secret_key: server.secret_key().to_owned(),
            session_token: None,
        },
    };
    Ok((server, provider))
}
