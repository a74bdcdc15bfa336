//! An embeddable, local-first S3 server that answers as AWS does.

#[allow(dead_code, unused_imports, reason = "its users land next")]
mod auth;
#[allow(dead_code, unused_imports, reason = "its users land next")]
mod body;
#[allow(dead_code, unused_imports, reason = "its users land next")]
mod checksum;
#[allow(dead_code, reason = "rows stand before the code that answers with them")]
mod error;

pub mod store;
