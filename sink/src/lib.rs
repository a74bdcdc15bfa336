//! Crash-durable S3 sink for change streams.
//!
//! [`model`] holds the nouns of the protocol without I/O, [`store`] the door to the bucket, [`mod@env`] what a
//! sink runs in; [`metrics`] is what it counts, [`endpoint`] where that is read.

pub mod endpoint;
pub mod env;
pub mod metrics;
pub mod model;
pub mod store;
