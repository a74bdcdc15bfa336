//! What the live matrix runs on: a server of ours in front of the bucket, and this program again as a writer.

use std::path::PathBuf;
use std::sync::Arc;

use assay_checks::{Addressing, Clock, RequestClass};
use assay_server::{Addressing as UpstreamAddressing, Journal, Record, Server, Upstream};
use sinks::matrix::{Deviant, Rig, WriterCommand};

use super::{Area, sink_clock};
use crate::embedded::BUCKET;
use crate::target::Provider;

/// Says to a copy of this program that it is a writer of the matrix, whose order is on its standard input.
pub const WRITER: &str = "ASSAY_CERTIFY_WRITER";

/// Whether this process was started as a writer.
pub fn is_writer(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable(WRITER).is_some_and(|value| !value.is_empty())
}

/// Carries out a writer's order, and gives the exit code of the process.
pub async fn write(order: &str, clock: &Clock) -> u8 {
    sinks::matrix::writer::run(order, sink_clock(clock)).await
}

/// The server that the matrix sends its requests through, where it can misbehave: the embedded one itself, or one that
/// stands in front of a provider.
pub struct Front {
    server: Arc<Server>,
    own_store: bool,
    writer: PathBuf,
}

impl Front {
    /// The embedded server that the run is about. `writer` is a program that does as [`write()`] where [`WRITER`] is set.
    pub fn embedded(server: Arc<Server>, writer: PathBuf) -> Front {
        Front { server, own_store: true, writer }
    }

    /// A server in front of `provider`, with its credentials, session token and addressing.
    ///
    /// # Errors
    /// What kept it from starting.
    pub async fn of(provider: &Provider, writer: PathBuf) -> Result<Front, String> {
        let keys = &provider.credentials;
        let upstream = Upstream::new(provider.endpoint.url(), &keys.access_key, &keys.secret_key)
            .region(&provider.region)
            .addressing(match provider.addressing {
                Addressing::Path => UpstreamAddressing::Path,
                Addressing::Virtual => UpstreamAddressing::Virtual,
            });
        let upstream = match &keys.session_token {
            Some(token) => upstream.session_token(token),
            None => upstream,
        };
        let server = Server::builder().upstream(upstream).start().await;
        let server =
            server.map_err(|why| format!("the server in front of the provider does not start: {why}"))?;
        Ok(Front { server: Arc::new(server), own_store: false, writer })
    }

    /// Whether it keeps the bucket itself, so that its journal has every request.
    pub(super) fn keeps_the_bucket(&self) -> bool {
        self.own_store
    }

    pub(super) fn journal(&self) -> Journal {
        self.server.journal()
    }

    pub(super) fn rig(&self, area: &Area) -> Rig {
        Rig {
            endpoint: self.server.endpoint().to_owned(),
            bucket: area.provider.bucket.clone(),
            prefix: area.prefix.clone(),
            region: self.server.region().to_owned(),
            access_key: self.server.access_key().to_owned(),
            secret_key: self.server.secret_key().to_owned(),
            own_store: self.own_store,
            deviant: Arc::new(|deviation| Box::pin(deviant(deviation.to_owned()))),
            writer: WriterCommand {
                program: self.writer.clone(),
                arguments: Vec::new(),
                environment: vec![(WRITER.to_owned(), "1".to_owned())],
            },
            seed: area.seed,
            clock: sink_clock(&area.clock),
        }
    }
}

/// A server of our own with this deviation, or none.
async fn deviant(deviation: String) -> Result<Deviant, String> {
    let builder = Server::builder().bucket(BUCKET);
    let builder = match deviation.as_str() {
        "" => builder,
        name => builder.deviation(name.parse().map_err(|error| format!("{name}: {error}"))?),
    };
    let server = builder.start().await.map_err(|error| error.to_string())?;
    Ok(Deviant {
        endpoint: server.endpoint().to_owned(),
        bucket: BUCKET.to_owned(),
        region: server.region().to_owned(),
        access_key: server.access_key().to_owned(),
        secret_key: server.secret_key().to_owned(),
        guard: Box::new(server),
    })
}

/// How providers bill a request of the sink.
pub(super) fn class(record: &Record) -> RequestClass {
    match record.operation {
        Some("PutObject" | "UploadPart") => RequestClass::Put,
        Some("CopyObject" | "UploadPartCopy") => RequestClass::Copy,
        Some("CreateMultipartUpload" | "CompleteMultipartUpload" | "DeleteObjects") => RequestClass::Post,
        Some(name) if name.starts_with("List") => RequestClass::List,
        Some(name) if name.starts_with("Head") => RequestClass::Head,
        Some("DeleteObject" | "AbortMultipartUpload" | "DeleteBucket") => RequestClass::Delete,
        _ => RequestClass::Get,
    }
}
