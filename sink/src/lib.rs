//! Crash-durable S3 sink for change streams.
//!
//! So far this holds the key layout's building block, the table segment and its limits; the protocol stands
//! on it.

pub mod model;
