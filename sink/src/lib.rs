//! Crash-durable S3 sink for change streams.
