//! Crash-durable S3 sink for change streams.
//!
//! [`model`] holds the nouns of the protocol without I/O, [`store`] the door to the bucket, [`env`] what a
//! sink runs in.

pub mod env;
pub mod model;
pub mod store;
