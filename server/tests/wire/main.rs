//! Real sockets: connections, bodies on the wire, and the life of a server.

#[path = "../client/mod.rs"]
mod client;

mod bodies;
mod chunked;
mod connections;
mod lifecycle;
mod presigned;

use assay_server::{AuthMode, Server};

/// A server in memory with a bucket named `bucket` that checks no signatures.
async fn server() -> Server {
    Server::builder().bucket("bucket").auth(AuthMode::None).start().await.unwrap()
}
